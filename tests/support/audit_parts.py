"""Audits whose parts run in real processes, and a service that kills these processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import anyio
from anyio.from_thread import start_blocking_portal

from outreach_async import OutreachClient
from outreach_async.audit import AuditPart, Report, audit, audit_part
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.fake.faults import Exchange, inject, reset
from outreach_async.fake.server import serve
from outreach_async.transport._wire import Request, Response

SPACES: Final = tuple(f"space_{number}" for number in range(6))
DISPLAY: Final = 5


class KillingFleet:
    """Kills the client process at chosen requests. The mailboxes of the fake share domains and servers across workspaces."""

    def __init__(self, folder: Path, kills: set[int]) -> None:
        self.fake = FakeService()
        for number, space in enumerate(SPACES):
            self.fake.add_workspace(space)
            for count in (7, 6):
                shared = {"domain": f"d{(number + count) % 4}.example", "server_ip": f"192.0.2.{number % 3}"}
                self.fake.add_mailboxes(space, count, trouble=0.4, **shared)
        self.killed: list[int] = []
        self._folder = folder
        self._kills = kills
        self._requests = 0

    def exchange(self, request: Request, /) -> Exchange:
        """Execute a request, or kill the process that sent it."""
        self._requests += 1
        if self._requests not in self._kills:
            return self.fake.exchange(request)
        (space,) = parse_qs(urlsplit(request.target).query)["workspace"]
        with suppress(ProcessLookupError):
            os.kill(int((self._folder / space).read_text(encoding="utf-8")), signal.SIGKILL)
        self.killed.append(self._requests)
        return inject(reset(), lambda: Response(500))

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve on a real port, in another thread, and yield the URL."""
        with start_blocking_portal() as portal, portal.wrap_async_context_manager(serve(self)) as url:
            yield url

    def report(self) -> Report:
        """Return the report of an audit in a single process, without kills."""

        async def read() -> Report:
            client = OutreachClient(transport=FakeTransport(self.fake))
            return await audit(client, SPACES, display=DISPLAY, clock=lambda: self.fake.now)

        return anyio.run(read)


def read_part(spaces: Sequence[str], url: str, folder: Path, at: float) -> AuditPart:
    """Write the id of this process to files in `folder`, then audit one part."""
    for space in spaces:
        (folder / space).write_text(str(os.getpid()), encoding="utf-8")

    async def read() -> AuditPart:
        async with OutreachClient(base_url=url) as client:
            return await audit_part(client, spaces, at=at, salt="pepper", display=DISPLAY)

    return anyio.run(read)
