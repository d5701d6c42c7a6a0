"""Draining a run waits for requests in flight and for nothing else."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.runs import client, rows
from support.time import virtual_time
from support.transport import HANG, Script, added, lost, skipped, status, unsent

from outreach_async import BulkStopped, ContactOutcome, NewContact, Outcome, Progress, Request, Response, Store
from outreach_async._cli.importing import drain_run
from outreach_async._cli.output import Screen
from outreach_async._cli.process import handle_interrupts
from outreach_async.bulk import Order, Outcomes

pytestmark = virtual_time

SCREEN = Screen(as_json=True, console=None)

PAUSES: dict[str, list[Any]] = {
    "Retry-After": [*[added()] * 5, status(429, retry_after="600")],
    "503": [*[added()] * 5, status(503)],
    "no connection": [*[added()] * 5, unsent()],
    "never reached": [unsent()],
    "lost answers": [*[added()] * 5, lost()],
    "no answers": [*[added()] * 5, *[lost()] * 200, HANG],
}
"""Responses of a service before and during a pause."""


class Distant(Script):
    """A script that delays each request a little."""

    async def send(self, request: Request, progress: Progress, /) -> Response:
        await anyio.sleep(0.02)
        return await super().send(request, progress)


async def until_paused(outcomes: Outcomes) -> None:
    while outcomes.progress.state != "paused":  # noqa: ASYNC110 - in virtual time; a state change has no event to wait for
        await anyio.sleep(0.05)


async def drain_in_pause(run: Any) -> tuple[list[ContactOutcome], float]:
    """Drain a run once it is paused; return its outcomes and how many seconds it still ran."""
    found: list[ContactOutcome] = []
    began = math.nan
    async with anyio.create_task_group() as group, run as outcomes:

        async def drain() -> None:
            nonlocal began
            await until_paused(outcomes)
            began = anyio.current_time()
            outcomes.drain()

        group.start_soon(drain)
        found += [outcome async for outcome in outcomes]
        group.cancel_scope.cancel()
    return found, anyio.current_time() - began


@pytest.mark.parametrize(
    ("pause", "count"), [*((pause, 300) for pause in PAUSES), ("Retry-After", 8), ("no connection", 8), ("never reached", 8)]
)
@pytest.mark.parametrize("order", ["completion", "input"])
async def test_a_run_drained_in_a_pause_ends_at_once_and_resumes_with_true_outcomes(
    journal: Store, pause: str, count: int, order: Order
) -> None:
    run = client(Distant(*PAUSES[pause])).contacts.create_many(rows(count), journal=journal, concurrency=8, order=order)
    found, seconds = await drain_in_pause(run)
    assert seconds < (31 if pause == "no answers" else 0.1)
    assert (journal.report().state, journal.report().rows) == ("interrupted", len(found))
    report = await client(Script(skipped())).contacts.create_many(rows(count), journal=journal, resume=True)
    never_applied = pause in {"Retry-After", "no connection", "never reached"}
    assert (journal.report().state, report.rows, sum(report.outcomes.values())) == ("finished", count, count)
    assert (report.uncertain == 0) == never_applied


class Narrow(Store):
    """A journal whose runs have a window of eight rows."""

    backlog = 8


async def test_a_drained_run_ends_if_rows_of_one_email_fill_its_window(tmp_path: Path) -> None:
    journal = Narrow(tmp_path / "run.db", inline=True)
    same = [NewContact("ann@a.example")] * 20
    with anyio.fail_after(3600):
        run = client(Distant(*PAUSES["503"][5:])).contacts.create_many(same, journal=journal, concurrency=2)
        found, seconds = await drain_in_pause(run)
    assert (found, journal.report().state) == ([], "interrupted")
    assert seconds < 0.1


async def test_no_later_row_of_its_contact_overtakes_one_that_a_drain_leaves(journal: Store) -> None:
    script = Script(lost(), added())
    same = [NewContact("ann@a.example")] * 2
    async with client(script).contacts.create_many(same, journal=journal, concurrency=2) as outcomes:
        await anyio.wait_all_tasks_blocked()
        outcomes.drain()
        assert [outcome async for outcome in outcomes] == []
    assert len(script.requests) == 1


async def test_without_a_journal_every_row_read_still_has_an_outcome() -> None:
    run = client(Distant(*PAUSES["lost answers"])).contacts.create_many(rows(300), concurrency=8)
    found, seconds = await drain_in_pause(run)
    left = [outcome for outcome in found if outcome.error is not None and outcome.attempts < 4]
    assert seconds < 0.1
    assert sorted(outcome.index for outcome in found) == list(range(len(found)))
    assert {outcome.status for outcome in left} <= {Outcome.UNKNOWN, Outcome.NOT_APPLIED}
    assert any(isinstance(outcome.error, BulkStopped) for outcome in left)
    assert all((outcome.status is Outcome.UNKNOWN) == (not outcome.certain) for outcome in left)


async def test_draining_waits_for_requests_in_flight(journal: Store) -> None:
    script = Script(added(), 20.0, added())
    async with client(script).contacts.create_many(rows(30), journal=journal, concurrency=4) as outcomes:
        await anext(outcomes)
        outcomes.drain()
        rest = [outcome async for outcome in outcomes]
    assert len(rest) == len(script.requests) - 1 > 0


REASONS = {
    "Retry-After": "the service answered 429 and asked to wait 600 s",
    "503": "most requests fail: the service answered 503",
    "lost answers": "most requests fail: the answer was lost",
    "never reached": "no connection",
}


@pytest.mark.parametrize("pause", REASONS)
async def test_progress_says_why_a_run_is_paused(pause: str) -> None:
    async with client(Distant(*PAUSES[pause])).contacts.create_many(rows(300), concurrency=8) as outcomes:
        assert outcomes.progress.why == ""
        with anyio.move_on_after(600):
            await until_paused(outcomes)
        assert outcomes.progress.why == REASONS[pause]


async def test_a_running_run_has_no_reason_for_a_pause() -> None:
    script = Distant(*[added()] * 5, status(429, retry_after="60"), added())
    async with client(script).contacts.create_many(rows(300), concurrency=8) as outcomes:
        await until_paused(outcomes)
        await anyio.sleep(120)
        assert (outcomes.progress.state, outcomes.progress.why) == ("running", "")


@pytest.mark.thorough
async def test_throttling_that_uses_up_the_retry_budget_is_the_reason() -> None:
    async with client(Distant(*[added()] * 5, status(429))).contacts.create_many(rows(300), concurrency=8) as outcomes:
        await until_paused(outcomes)
        assert outcomes.progress.why == "too many retries: the service answered 429"


# Ctrl-C.


async def interrupt_run(run: Any, after: float | None) -> float:
    """Send Ctrl-C after `after` seconds, or once the run is paused; return how many seconds the run continued."""
    began = math.nan
    async with handle_interrupts(SCREEN) as interrupts, run as outcomes:
        interrupts.drain = partial(drain_run, outcomes)

        async def take() -> None:
            nonlocal began
            await (until_paused(outcomes) if after is None else anyio.sleep(after))
            began = anyio.current_time()
            interrupts.handle()

        interrupts.group.start_soon(take)
        async for _ in outcomes:
            pass
    assert interrupts.count == 1
    return anyio.current_time() - began


async def test_an_unanswered_probe_delays_ctrl_c_by_a_second(journal: Store) -> None:
    script = Distant(*[added()] * 5, *[status(503)] * 17, HANG)
    run = client(script).contacts.create_many(rows(300), journal=journal, concurrency=8)
    seconds = await interrupt_run(run, 20.0)
    assert len(script.requests) == 23  # the last request is the probe
    assert seconds == pytest.approx(1.0, abs=0.1)
    assert journal.report().state == "interrupted"


async def test_after_ctrl_c_requests_in_flight_have_30_seconds_to_finish(journal: Store) -> None:
    run = client(Script(added(), HANG)).contacts.create_many(rows(30), journal=journal, concurrency=8)
    assert await interrupt_run(run, 0.1) == pytest.approx(29.9, abs=0.2)
