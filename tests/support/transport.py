"""A transport that follows a script of responses and failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import anyio
import anyio.lowlevel
import attrs

from outreach_async import Progress, Request, Response, TransportError


def added(contact_id: str = "contact_1") -> Response:
    """Return the response to a creation that added a contact."""
    return Response(201, {"x-request-id": "req_1"}, b'{"status":"added","id":"%b","details":null}' % contact_id.encode())


def numbered(response: Response, number: int) -> Response:
    """Return the response to a creation with its own id, as a service does; return other responses unchanged."""
    body = response.body.replace(b'"contact_1"', b'"contact_%d"' % number)
    return response if body == response.body else attrs.evolve(response, body=body)


def skipped() -> Response:
    """Return the response to a duplicate."""
    return Response(200, {}, b'{"status":"skipped","id":null,"details":"duplicate"}')


def page(number: int = 1) -> Response:
    """Return an empty page."""
    figures = b'"headers":[],"data":[],"total_found":0,"current_page":%d,"total_pages":0' % number
    return Response(200, {}, b'{"status":"ok",%b}' % figures)


def status(code: int, body: bytes = b"", **headers: str) -> Response:
    """Return a response with a status. In header names, underscores become hyphens."""
    return Response(code, {name.replace("_", "-"): value for name, value in headers.items()}, body)


def lost() -> TransportError:
    """Return an error after which the request may have been applied."""
    return TransportError("the answer was lost", maybe_sent=True)


def unsent() -> TransportError:
    """Return an error that occurred before any byte was sent."""
    return TransportError("no connection", maybe_sent=False)


HANG = "hang"
"""Entry for a request that is sent and never answered."""
STUCK = "stuck"
"""Entry for a request that never sends its first byte."""


FAULTS: dict[str, Callable[[], Response | Exception | str]] = {
    "lost": lost,
    "unsent": unsent,
    "429": partial(status, 429),
    "503": partial(status, 503, retry_after="1"),
    "500": partial(status, 500),
    "garbled": partial(Response, 201, {}, b"<html>"),
    "hang": lambda: HANG,
    "stuck": lambda: STUCK,
}
"""Failures that are retried, by name."""


class Script:
    """Answers requests from a list; the last entry repeats."""

    # An entry is a response, an exception to raise, `HANG`, `STUCK`, or a number of seconds to wait before the next entry.
    # Every request takes `seconds`.

    def __init__(
        self,
        *entries: Response | Exception | str | float,
        max_in_flight: int | None = None,
        together: int = 1,
        seconds: float = 0.0,
    ) -> None:
        self.entries = list(entries)
        self.times: list[float] = []
        self.requests: list[Request] = []
        self.in_flight = self.most_in_flight = 0
        self.closed = 0
        self._together, self._met, self._seconds = together, anyio.Event(), seconds
        if max_in_flight is not None:
            self.max_in_flight = max_in_flight

    def _take(self) -> Iterable[Response | Exception | str | float]:
        while True:
            entry = self.entries.pop(0) if len(self.entries) > 1 else self.entries[0]
            yield entry
            if not isinstance(entry, float):
                return

    async def send(self, request: Request, progress: Progress, /) -> Response:
        self.times.append(anyio.current_time())
        self.requests.append(request)
        number = len(self.requests)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.in_flight >= self._together:
                self._met.set()
            if not self._met.is_set():
                await self._met.wait()
            return await self._play(progress, number)
        finally:
            self.in_flight -= 1

    async def _play(self, progress: Progress, number: int) -> Response:
        progress.sent = False
        await anyio.lowlevel.checkpoint()
        for entry in self._take():
            if entry == STUCK:
                await anyio.sleep_forever()
            progress.sent = True
            if self._seconds:
                await anyio.sleep(self._seconds)
            if isinstance(entry, Response):
                return numbered(entry, number)
            if isinstance(entry, Exception):
                raise entry
            await (anyio.sleep(entry) if isinstance(entry, float) else anyio.sleep_forever())
        raise AssertionError("the script ended")

    async def aclose(self) -> None:
        self.closed += 1
