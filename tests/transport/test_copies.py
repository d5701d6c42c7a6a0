"""Bulk runs over a service that sends some responses twice: no outcome is both certain and wrong."""

from __future__ import annotations

from typing import Final

import anyio
import pytest
from support.copies import TIMINGS, CopyingService, Timing
from support.listener import Listener
from support.transports import ALL, Make, over

from outreach_async import OutreachClient, Progress, Request, Response, RetryPolicy, Transport

pytestmark = pytest.mark.thorough

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
