"""Our own middleware: every request names the run that it belongs to, and the slowest one is remembered."""

import time

import attrs
from outreach_async import Middleware, Progress, Request, Response, Transport


class Tagged(Middleware):
    def __init__(self, inner: Transport, run: str) -> None:
        super().__init__(inner)
        self.run = run
        self.slowest = 0.0

    async def send(self, request: Request, progress: Progress, /) -> Response:
        started = time.monotonic()
        try:
            return await super().send(attrs.evolve(request, headers={**request.headers, "x-run": self.run}), progress)
        finally:
            self.slowest = max(self.slowest, time.monotonic() - started)
