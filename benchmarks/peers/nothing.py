"""A transport without I/O: `send` suspends once and returns a prepared response. It leaves the cost of the client."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

from benchmarks.workload import ANSWER_FIELDS, CREATED, Pages, numbered
from outreach_async import Progress, Request, Response


class NullTransport:
    """A transport that responds to creations, or to lists if it has pages.

    Args:
        pages: Pages of the list; `None` to respond to creations.
    """

    def __init__(self, pages: Pages | None = None) -> None:
        self._pages = pages

    async def send(self, request: Request, progress: Progress, /) -> Response:
        """Return the response after one iteration of the event loop."""
        progress.sent = True
        await asyncio.sleep(0)
        if self._pages is None:
            return Response(201, ANSWER_FIELDS, numbered(CREATED))
        (page,) = parse_qs(request.target.partition("?")[2])["page"]
        return Response(200, ANSWER_FIELDS, self._pages.body(int(page)))

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""
