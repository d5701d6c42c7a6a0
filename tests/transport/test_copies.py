"""Calls and bulk runs over a service that sends some responses twice: no outcome is both certain and wrong."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterable
from typing import Any, Final, Literal

import anyio
import pytest
from support.listener import PATIENCE, Listener, Peer, send_while_idle
from support.transports import ALL, MAKERS, OWN, Make, over

from outreach_async import ContactOutcome, Middleware, OutreachClient, Progress, Request, Response, RetryPolicy, Transport

ROWS: Final = 200

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
        wrong = []
        for outcome in outcomes:
            contact: Any = outcome.contact
            if outcome.certain and self.ledger.get(contact["email"]) != (outcome.status, outcome.id):
                wrong.append(outcome)
        return wrong


class Idling(Middleware):
    """A transport that lets the service send delayed copies after each response is read."""

    def __init__(self, inner: Transport, service: CopyingService) -> None:
        super().__init__(inner)
        self._service = service

    async def send(self, request: Request, progress: Progress, /) -> Response:
        response = await super().send(request, progress)
        self._service.send_owed()
        return response


def answer_everything_alike(peer: Peer) -> None:
    """Respond to the first request, and to each later one with a copy of that response alone."""
    while True:
        peer.request()
        peer.send(b'HTTP/1.1 201 Created\r\ncontent-length: 55\r\n\r\n{"status": "added", "id": "contact_1", "details": null}')


@over(*ALL)
async def test_a_copy_that_arrives_alone_is_not_certain(make: Make) -> None:
    with Listener(answer_everything_alike) as listener:
        async with OutreachClient(transport=make(listener.url), owner_key="key_1", workspace="space_1") as client:
            found = [await client.contacts.create({"email": f"user{number}@company.example"}) for number in range(3)]
            other = client.with_options(owner_key="key_2")
            found.append(await other.contacts.create({"email": "user3@company.example"}))
        # A transport made from a URL closes the connection of each copy, but cannot close those of a client or session.
        assert len(listener.peers) == (3 if make in [MAKERS[name] for name in OWN] else 1)
    assert [(each.id, each.certain) for each in found] == [("contact_1", True), *[(None, False)] * 3]


@pytest.mark.nightly
@over(*ALL)
@pytest.mark.parametrize("timing", TIMINGS)
async def test_a_run_over_copied_responses_has_no_certain_but_wrong_row(make: Make, timing: Timing) -> None:
    service = CopyingService(timing, seed=7)
    rows = [{"email": f"user{number}@company.example"} for number in range(ROWS)]
    with Listener(service) as listener, anyio.fail_after(PATIENCE):
        transport = Idling(make(listener.url), service)
        retry = RetryPolicy(backoff=0.0)
        client = OutreachClient(transport=transport, owner_key="key_1", workspace="space_1", retry=retry)
        async with client, client.contacts.create_many(rows, concurrency=1 if timing == "idle" else 8) as run:
            outcomes = [outcome async for outcome in run]
    assert len(outcomes) == ROWS
    assert service.copies > ROWS / 10
    assert service.find_wrong_outcomes(outcomes) == []
