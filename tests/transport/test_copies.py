"""Calls and bulk runs over a service that sends some responses twice: no outcome is both certain and wrong."""

from __future__ import annotations

from typing import Final

import anyio
import pytest
from support.copies import TIMINGS, CopyingService, Timing
from support.listener import Listener, Peer
from support.transports import ALL, MAKERS, OWN, Make, over

from outreach_async import OutreachClient, Progress, Request, Response, RetryPolicy, Transport

ROWS: Final = 200
PATIENCE: Final = 60.0


class Idling:
    """A transport that lets the service send delayed copies after each response is read."""

    def __init__(self, inner: Transport, service: CopyingService) -> None:
        self._inner = inner
        self._service = service

    async def send(self, request: Request, progress: Progress, /) -> Response:
        response = await self._inner.send(request, progress)
        self._service.send_owed()
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


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
