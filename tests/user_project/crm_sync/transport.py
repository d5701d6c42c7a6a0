"""Our own middleware: every request names the run that it belongs to, and the slowest one is remembered."""

import time

import attrs
from outreach_async import Progress, Request, Response, Transport


class Tagged:
    def __init__(self, inner: Transport, run: str) -> None:
        self.inner = inner
        self.run = run
        self.slowest = 0.0
        self.secrets: tuple[str, ...] = getattr(inner, "secrets", ())

    async def send(self, request: Request, progress: Progress, /) -> Response:
        started = time.monotonic()
        try:
            return await self.inner.send(attrs.evolve(request, headers={**request.headers, "x-run": self.run}), progress)
        finally:
            self.slowest = max(self.slowest, time.monotonic() - started)

    async def aclose(self) -> None:
        await self.inner.aclose()
