"""Serve the kill loop: the fake on a port, with injected faults and a ledger of the effects of each request.

Run: python -m tools.kill_server SEED

Prints its URL, and ends when its standard input is closed. `PUT /runs/WORKSPACE` creates the workspace of a run, and
`GET /runs/WORKSPACE` returns its ledger and contacts. The fake handles all other requests. If a request has the header field
`x-kill`, the server kills the process that sent it, before or after the fake has handled the request.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import defaultdict
from contextlib import suppress
from typing import Any, Final

import anyio
from support.kill_points import INDEX, KILL, PROCESS, Point

from outreach_async.fake import FakeService
from outreach_async.fake._fault_plan import Exchange, inject
from outreach_async.fake.faults import Faults, commit_then, latency, reset, status
from outreach_async.fake.server import serve_forever
from outreach_async.transport._wire import Request, Response

RUNS: Final = "/runs/"

LATER: Final = 5
"""Number of requests to the same workspace after which a late request is carried out."""

_DUPLICATE: Final = {"skip": "skipped", "overwrite": "overwriten", "update_missing_fields": "updated_missing_fields"}


def _stormy(request: Request) -> bool:
    return b'"space_run' in request.body and KILL not in request.headers


def inject_faults(faults: Faults) -> None:
    """Let one request in twenty fail or get lost, and delay almost a third of the responses."""
    for fault, share in (
        (status(429), 0.01),
        (reset(), 0.01),
        (commit_then(reset()), 0.01),
        (status(500), 0.01),
        (commit_then(status(500)), 0.01),
        (latency(0.01), 0.3),
    ):
        faults.add(fault, operation="create_contact", match=_stormy, p=share)


class Ledger:
    """The fake, and a record of what it did for each row."""

    # An entry consists of the process that sent the request, the row, the effect ("" for none), and the injected fault, if any.

    def __init__(self, fake: FakeService) -> None:
        self._fake = fake
        self._entries: defaultdict[str, list[tuple[int, int, str, str | None]]] = defaultdict(list)
        self._late: defaultdict[str, list[tuple[int, Request]]] = defaultdict(list)

    def exchange(self, request: Request, /) -> Exchange:
        """Handle a request."""
        if request.target.startswith(RUNS):
            act = self._tell if request.method == "GET" else self._begin
            return Exchange(Response(200, {}, json.dumps(act(request)).encode()), None)
        workspace = json.loads(request.body)["workspace"]
        exchange = self._kill(workspace, request) if KILL in request.headers else self._serve(workspace, request)
        self._catch_up(workspace, len(self._entries[workspace]))
        return exchange

    def _begin(self, request: Request) -> None:
        workspace, message = request.target.removeprefix(RUNS), json.loads(request.body)
        self._fake.add_workspace(workspace)
        self._fake.add_owner_key(workspace, key=message["key"])
        self._fake.add_contacts(workspace, [{"email": email} for email in message["before"]])

    def _tell(self, request: Request) -> dict[str, Any]:
        workspace = request.target.removeprefix(RUNS)
        self._catch_up(workspace, sys.maxsize)
        contacts = [(contact["email"], contact["id"]) for contact in self._fake.contacts(workspace)]
        return {"entries": self._entries.pop(workspace, []), "contacts": contacts}

    def _serve(self, workspace: str, request: Request) -> Exchange:
        """Let the fake handle a request, and record the effect."""
        message = json.loads(request.body)
        before = self._fake.contact(workspace, message["email"])
        exchange = self._fake.exchange(request)
        done = self._fake.requests[-1]
        effect = ""
        if done.served and self._fake.contact(workspace, message["email"]) is not None:
            effect = _DUPLICATE[message["upload_options"]["duplicates"]] if before else "added"
        self._entries[workspace].append((int(request.headers[PROCESS]), int(message[INDEX]), effect, done.fault))
        return exchange

    def _kill(self, workspace: str, request: Request) -> Exchange:
        """Kill the process that sent a request, before or after carrying out the request, and send no response."""
        pid, name = request.headers[KILL].split()
        point = Point[name]
        if point is Point.CARRIED_OUT:
            self._serve(workspace, request)
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
        if point is Point.LATE:
            self._late[workspace].append((len(self._entries[workspace]) + LATER, request))
        return inject(reset(), lambda: Response(500))

    def _catch_up(self, workspace: str, entries: int) -> None:
        """Carry out the late requests that are due after the given number of entries."""
        while self._late[workspace] and self._late[workspace][0][0] <= entries:
            _, request = self._late[workspace].pop(0)
            self._serve(workspace, request)


def _say(url: str) -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()


async def _serve(ledger: Ledger) -> None:
    """Serve until standard input is closed."""
    async with anyio.create_task_group() as group:
        group.start_soon(serve_forever, ledger, "127.0.0.1", 0, _say)
        await anyio.wait_readable(sys.stdin)
        group.cancel_scope.cancel()


def main() -> None:
    fake = FakeService(seed=int(sys.argv[1]))
    inject_faults(fake.faults)
    anyio.run(_serve, Ledger(fake))


if __name__ == "__main__":
    main()
