"""A service on a real socket that sends some responses twice, with a ledger of its effects."""

from __future__ import annotations

import json
import random
import select
import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from support.listener import PATIENCE, Gone, Peer

from outreach_async import ContactOutcome

Timing = Literal["same write", "idle", "next response"]
"""Time at which the copy of a response is sent: with the response, while the connection is idle, or before the next response."""

TIMINGS: Final[tuple[Timing, ...]] = ("same write", "idle", "next response")


class CopyingService:
    """A listener's behaviour that creates contacts and sends some responses twice."""

    def __init__(self, timing: Timing, *, seed: int = 0, share: float = 0.2) -> None:
        self.copies = 0
        self.ledger: dict[str, tuple[str, str | None]] = {}
        self._timing = timing
        self._share = share
        self._chance = random.Random(seed)  # noqa: S311 - faults, not secrets
        self._lock = threading.Lock()
        self._owed: list[tuple[Peer, bytes]] = []

    def __call__(self, peer: Peer) -> None:
        delayed_data = b""
        while True:
            response, twice = self._answer(peer.request())
            data, delayed_data = delayed_data + response, b""
            if twice and self._timing == "same write":
                data += response
            elif twice and self._timing == "next response":
                delayed_data = response
            elif twice:
                with self._lock:
                    self._owed.append((peer, response))
            peer.send(data)

    def send_owed(self) -> None:
        """Send the copies that are due while connections are idle."""
        with self._lock:
            owed, self._owed = self._owed, []
        for peer, response in owed:
            send_while_idle(peer, response)

    def _answer(self, request: bytes) -> tuple[bytes, bool]:
        email = json.loads(request.partition(b"\r\n\r\n")[2])["email"]
        with self._lock:
            status, contact = ("skipped", None)
            if email not in self.ledger:
                number = len(self.ledger)
                if number % 3:
                    status, contact = "added", f"contact_{number}"
                self.ledger[email] = (status, contact)
            twice = self._chance.random() < self._share
            self.copies += twice
        body = json.dumps({"status": status, "id": contact, "details": None}).encode()
        code = b"201 Created" if contact else b"200 OK"
        return b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (code, len(body), body), twice

    def find_wrong_outcomes(self, outcomes: Iterable[ContactOutcome]) -> list[ContactOutcome]:
        """Return the outcomes that are marked as certain but differ from the ledger."""
        return [outcome for outcome in outcomes if outcome.certain and not self._true(outcome)]

    def _true(self, outcome: ContactOutcome) -> bool:
        contact: Any = outcome.contact
        return self.ledger.get(contact["email"]) == (outcome.status, outcome.id)


def send_while_idle(peer: Peer, data: bytes) -> None:
    """Send data to a client in this process and wait until it is readable. The client must not run meanwhile."""
    with suppress(Gone):
        peer.send(data)
    wait_readable(peer)


def wait_readable(peer: Peer) -> None:
    """Wait until the socket of a client in this process is readable; return at once if that socket is closed."""
    for path in Path("/dev/fd").iterdir():
        with suppress(OSError):
            found = socket.socket(fileno=int(path.name))
            try:
                if found.getsockname() == peer.address:
                    assert select.select([found], [], [], PATIENCE)[0], "no data arrived at the client"
            finally:
                found.detach()
