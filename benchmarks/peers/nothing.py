"""A transport that carries nothing: `send` suspends once and answers what was made beforehand. What is left is the client."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

from benchmarks.workload import ANSWER_FIELDS, CREATED, Pages, numbered
from outreach_async import Request, Response
from outreach_async.transport.wire import Progress


class NullTransport:
    """Answers creations, and pages if it was given any.

    Args:
        pages: What to answer to a list.
    """

    def __init__(self, pages: Pages | None = None) -> None:
        self._pages = pages

    async def send(self, request: Request, progress: Progress, /) -> Response:
        """Answer after one turn of the event loop."""
        progress.sent = True
        await asyncio.sleep(0)
        if self._pages is None:
            return Response(201, ANSWER_FIELDS, numbered(CREATED))
        (page,) = parse_qs(request.target.partition("?")[2])["page"]
        return Response(200, ANSWER_FIELDS, self._pages.body(int(page)))

    async def aclose(self) -> None:
        """Hold nothing to close."""
