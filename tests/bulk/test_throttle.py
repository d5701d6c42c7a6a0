"""The throttle of a run: as a whole against a simulated service in virtual time, and decision by decision."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from typing import Any, Final

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.examples import scaled
from support.flow import RECOVERY, Run, Scenario, Trouble, simulate
from support.rates import simulate_whole
from support.runs import client, drain, outcomes_of, rows
from support.time import virtual_time
from support.transport import Script, added, skipped, status
from support.transports import LOOPS

from outreach_async import (
    BulkStopped,
    ContactOutcome,
    NewContact,
    Outcome,
    OutreachClient,
    OutreachError,
    Progress,
    RateLimited,
    Request,
    Response,
    RetryPolicy,
    StatusError,
    TransportError,
)
from outreach_async._core.attempts import Throttle
from outreach_async._core.limits import RateLimiter
from outreach_async._core.retry import FailedAttempt, FailureKind, RetryDecision
from outreach_async._plumbing import RunThrottle
from outreach_async.bulk._throttle import MAX_PAUSE, PROBE_LEASE, Breaker, FailureWindow
from outreach_async.errors import BulkSuspended, UnexpectedResponse

# Against a service


@pytest.fixture
def play(anyio_backend_name: str) -> Any:
    """Return a function that plays a scenario on the event loop in virtual time."""
    return functools.partial(simulate, backend=anyio_backend_name)


def on(loop: str) -> pytest.MarkDecorator:
    """Run a long scenario on one event loop only; other tests check that both loops give the same result."""
    return pytest.mark.parametrize("anyio_backend", [LOOPS[loop]], ids=[loop], indirect=True)


SCENES: dict[str, tuple[Scenario, dict[str, float], dict[float, float]]] = {
    "500/s": (Scenario(seconds=10, limits=[(0, 500)]), {}, {0: 5}),
    "10/s": (Scenario(seconds=250, limits=[(0, 10)]), {"refusals": 0.05}, {}),
    "50/s, 10/s, 50/s": (Scenario(seconds=120, limits=[(0, 50), (40, 10), (80, 50)]), {"refusals": 0.05}, {40: 5, 80: 20}),
    # The first 64 requests are a large part of five minutes.
    "10/s, Retry-After: 1": (Scenario(seconds=300, limits=[(0, 10)], asks=1), {"refusals": 0.05, "good": 0.8}, {}),
}
"""Scenarios, each with its requirements, and the seconds until a limit is used to 85 %, by the start of the limit."""


@pytest.mark.thorough
@pytest.mark.parametrize(("scene", "needs", "good"), SCENES.values(), ids=SCENES)
@on("asyncio")
def test_limits_are_found_followed_and_respected(
    play: Any, scene: Scenario, needs: dict[str, float], good: dict[float, float]
) -> None:
    run: Run = play(scene)
    assert run.shortfalls(**needs) == []
    assert all(run.first_good(since) <= seconds for since, seconds in good.items())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "anyio_backend"),
    [("refused", LOOPS["asyncio"]), ("503", LOOPS["trio"]), ("hanging", LOOPS["asyncio"])],
    ids=["refused", "503", "hanging"],
    indirect=["anyio_backend"],
)
def test_an_outage_of_five_minutes_fails_no_row_and_adds_little_time(play: Any, kind: Trouble) -> None:
    run: Run = play(Scenario(seconds=600, limits=[(0, 10)], outages=[(60, 360, kind)]))
    assert not run.shortfalls(refusals=0.05)
    within = sum(60 <= at < 360 for at in run.service.started)
    assert within <= 2 * 64 + 15  # requests in flight before the first failure, their retries, and the probes


@pytest.mark.thorough
@pytest.mark.parametrize(("begins", "ends", "workers"), [(0, 2, 8), (0, 20, 8), (0, 20, 64), (5, 65, 8)])
@pytest.mark.parametrize("asks", [None, 0, 1])
@on("asyncio")
def test_a_service_that_recovers_from_total_refusal_gets_300_rows_in_30_seconds(
    play: Any, begins: float, ends: float, workers: int, asks: float | None
) -> None:
    scene = Scenario(seconds=ends + RECOVERY, limits=[(0, 50)], outages=[(begins, ends, "429")], asks=asks, workers=workers)
    run: Run = play(scene)
    assert run.recovery() <= RECOVERY


@pytest.mark.thorough
@on("trio")
def test_a_service_that_refuses_everything_is_asked_less_and_less_often(play: Any) -> None:
    run: Run = play(Scenario(seconds=300, limits=[(0, 50)], outages=[(0, 300, "429")], workers=8))
    minutes = [sum(60 * minute <= at < 60 * (minute + 1) for at in run.service.started) for minute in range(5)]
    assert minutes[0] <= 8 + 30
    assert minutes[1] <= 12
    assert all(started <= 7 for started in minutes[2:])


@pytest.mark.parametrize("kind", ["503", "refused", "429"])
@pytest.mark.parametrize("workers", [1, 8])
def test_an_explicit_max_outage_counts_from_the_first_request_to_the_second(play: Any, kind: Trouble, workers: int) -> None:
    run: Run = play(Scenario(seconds=900, limits=[(0, 100)], outages=[(0, 900, kind)], workers=workers), max_outage=100)
    assert isinstance(run.flow.halted, BulkSuspended)
    assert run.ended == pytest.approx(100, abs=0.1)


@pytest.mark.thorough
@on("trio")
def test_a_last_probe_finds_a_service_that_returns_just_before_the_end(play: Any) -> None:
    run: Run = play(Scenario(seconds=120, limits=[(0, 100)], outages=[(0, 97, "refused")], workers=8), max_outage=100)
    assert run.flow.halted is None
    assert run.service.succeeded[0] == pytest.approx(98, abs=0.2)


def test_a_run_that_never_reaches_the_service_is_suspended_in_seconds(play: Any) -> None:
    run: Run = play(Scenario(seconds=900, limits=[(0, 100)], outages=[(0, 900, "refused")]))
    assert isinstance(run.flow.halted, BulkSuspended)
    assert run.ended == pytest.approx(3.5)
    assert run.service.started == pytest.approx([0, 0.5, 1.5, 3.5])
    assert run.fates == {RetryDecision.STOP_RUN: 64}
    assert str(run.flow.halted) == "run suspended: service unreachable after 4 attempts: nobody listens"


@pytest.mark.thorough
def test_a_run_continues_once_the_service_is_reached(play: Any) -> None:
    run: Run = play(Scenario(seconds=60, limits=[(0, 20)], outages=[(0, 2, "refused")]))
    assert run.flow.halted is None
    assert not run.fates
    assert len(run.service.succeeded) > 0.8 * 20 * 54


# Decision by decision


LOST = TransportError("lost", maybe_sent=True)
UNSENT = TransportError("nobody listens", maybe_sent=False)
REFUSED = RateLimited("429", status_code=429)
DOWN = StatusError("503", status_code=503)
WRONG = StatusError("422", status_code=422)
UNCLEAR = UnexpectedResponse("200", status_code=200)
KINDS: dict[OutreachError, FailureKind] = {
    LOST: FailureKind.AMBIGUOUS,
    UNSENT: FailureKind.NOT_SENT,
    WRONG: FailureKind.FINAL,
    UNCLEAR: FailureKind.UNCLEAR,
}
RETRY, COUNTED, GIVE_UP = RetryDecision.RETRY, RetryDecision.RETRY_COUNTED, RetryDecision.GIVE_UP
Step = Callable[[RunThrottle], object]


def flow(max_outage: float | None = None, **options: Any) -> RunThrottle:
    policy = RetryPolicy(jitter=lambda: 1.0, **options)
    limiter = RateLimiter(policy, max_in_flight=1000, wall_clock=lambda: 0.0)
    return RunThrottle(limiter, policy, max_outage=max_outage)


def failed(error: OutreachError, started: float, ended: float, **facts: Any) -> FailedAttempt:
    kind = KINDS.get(error, FailureKind.REFUSED)
    return FailedAttempt(error=error, kind=kind, started=started, ended=ended, **facts)


def start(run: RunThrottle, at: float) -> None:
    """Start an attempt even if it is not allowed."""
    run._limiter.in_flight += 1
    run._breaker.record_start(at)


def fail(run: RunThrottle, error: OutreachError, at: float, **facts: Any) -> RetryDecision:
    """Start an attempt even if it is not allowed, and let it fail at once."""
    start(run, at)
    return run.on_failure(failed(error, at, at, **facts))


def succeed(run: RunThrottle, at: float, count: int = 1) -> None:
    for _ in range(count):
        start(run, at)
        run.on_success(at, at, {})


def fails(error: OutreachError, *times: float, decision: RetryDecision | None = None, **facts: Any) -> Step:
    def step(run: RunThrottle) -> None:
        assert {fail(run, error, at, **facts) for at in times} <= ({decision} if decision else {*RetryDecision})

    return step


def answers(error: OutreachError, started: float, ended: float, decision: RetryDecision = RETRY, **facts: Any) -> Step:
    """Let an attempt fail that was started before."""

    def step(run: RunThrottle) -> None:
        assert run.on_failure(failed(error, started, ended, **facts)) is decision

    return step


def succeeds(at: float, count: int = 1) -> Step:
    return lambda run: succeed(run, at, count)


def ends(started: float, ended: float) -> Step:
    return lambda run: run.on_success(ended, started, {})


def starts(*times: float, allowed: bool = True) -> Step:
    def step(run: RunThrottle) -> None:
        assert [run.try_start(at) for at in times] == [allowed] * len(times)

    return step


def shows(state: str, at: float, opens: float | None = None, why: str | None = None) -> Step:
    def step(run: RunThrottle) -> None:
        assert (run.state(at), opens or run.opens_at, why or run.pause_reason) == (state, run.opens_at, run.pause_reason)

    return step


def halted(text: str = "") -> Step:
    def step(run: RunThrottle) -> None:
        assert str(run.halted or "") == text

    return step


def learns_no_limit(run: RunThrottle) -> None:
    assert run.limit is None


def story(*steps: Step, **options: Any) -> tuple[tuple[Step, ...], dict[str, Any]]:
    return steps, options


STORIES = {
    "simultaneous failures count once while the service is not reached": story(
        starts(*[0.0] * 64), *[answers(UNSENT, 0.0, 0.1)] * 64, halted(), shows("paused", 0.1, opens=0.6)
    ),
    "failures of many rows are counted against none": story(
        succeeds(1.0, 100),
        fails(LOST, 2.0, decision=COUNTED),
        fails(LOST, *[2.0] * 11),
        fails(LOST, *[2.0] * 18, decision=RETRY),
    ),
    "a request that was not sent is never counted against its row": story(
        succeeds(1.0, 100), fails(UNSENT, 2.0, decision=RETRY, counted_failures=3)
    ),
    "a service that becomes unreachable is an outage": story(
        starts(0.0), ends(0.0, 0.0), fails(UNSENT, *range(10, 90, 10), decision=RETRY), halted()
    ),
    "with one attempt, only throttled requests are retried": story(
        fails(UNSENT, 1.0, decision=GIVE_UP),
        succeeds(10.0, 100),
        *(fails(error, 11.0, decision=GIVE_UP) for error in (UNSENT, LOST)),
        fails(REFUSED, 11.0, decision=RETRY),
        halted(),
        attempts=1,
    ),
    "a permanent failure ends the row and proves that the service is up": story(
        fails(UNSENT, 1.0), shows("paused", 1.0), fails(WRONG, 2.0, decision=GIVE_UP), shows("running", 2.0)
    ),
    "when half of the results fail, the run pauses until a probe succeeds": story(
        *(succeeds(1.0, 10), *[shows("running", 2.0), fails(LOST, 2.0)] * 10),
        *(shows("paused", 2.0, opens=7.0, why="most requests fail: lost"), starts(6.9, allowed=False)),
        *(starts(7.0), starts(7.0, allowed=False), answers(LOST, 7.0, 8.0), shows("paused", 8.0, opens=18.0, why="lost")),
        *(starts(18.0), ends(18.0, 18.5), shows("running", 18.5), starts(18.5), fails(LOST, 18.5), shows("running", 18.5)),
        budget=10_000,
    ),
    "pauses double up to the maximum, and restart after a success": story(
        fails(LOST, *[2.0] * 20),
        *(
            each
            for at in (7.0, 17.0, 37.0, 77.0, 137.0)
            for each in (starts(at - 0.1, allowed=False), starts(at), answers(LOST, at, at))
        ),
        *(shows("paused", 137.0, opens=197.0), starts(197.0), ends(197.0, 197.0)),
        *(fails(LOST, *[200.0] * 20), shows("paused", 200.0, opens=205.0)),
        budget=10_000,
    ),
    "a throttled probe prolongs the pause": story(
        *(fails(UNSENT, 1.0), starts(1.5), answers(REFUSED, 1.5, 2.0)),
        shows("paused", 2.0, opens=2.5, why="the service answered 429"),
    ),
    "a request that started before a pause is not its probe, nor counted": story(
        *(fails(LOST, *[2.0] * 20), starts(7.0), answers(LOST, 1.0, 7.5), ends(1.0, 7.6), shows("paused", 7.6)),
        *(ends(7.0, 7.7), answers(LOST, 1.0, 8.0), shows("running", 8.0)),
        budget=10_000,
    ),
    "an empty retry budget pauses the run and fails no row": story(
        *(succeeds(1.0, 100), fails(LOST, 2.0, 2.0, decision=COUNTED), shows("running", 2.0)),
        *(fails(LOST, 2.0, decision=COUNTED), shows("paused", 2.0, opens=3.0), starts(3.0), ends(3.0, 3.1)),
        *(fails(LOST, 4.0, decision=RETRY), shows("running", 4.0)),  # half of the budget was refunded
        *(fails(LOST, 4.0), shows("paused", 4.0)),  # and no more than half
        budget=28,
    ),
    "the longest Retry-After closes the gate": story(
        *(fails(REFUSED, 100.0, decision=RETRY, retry_after=seconds) for seconds in (10.0, 30.0, 5.0, 0.0)),
        *(shows("paused", 130.0, opens=131.0), starts(130.9, allowed=False), starts(131.0)),  # 30 s and the jitter
    ),
    "a 503 with Retry-After closes the gate without teaching a limit": story(
        *(succeeds(1.0, 100), fails(LOST, *[1.0] * 20), fails(DOWN, 2.0, decision=RETRY, retry_after=10.0)),
        *(shows("paused", 2.0, opens=13.0), learns_no_limit),
    ),
    "while few results are known, only a later success blames a row": story(
        *(succeeds(1.0), fails(LOST, 2.0, decision=RETRY, first_failed_at=2.0), succeeds(3.0)),
        fails(LOST, 4.0, decision=COUNTED, first_failed_at=2.0, earlier_failures=1),
        fails(LOST, 5.0, decision=GIVE_UP, first_failed_at=2.0, earlier_failures=4, counted_failures=3),
    ),
    "a row that fails without a success of another pauses the run": story(
        *(fails(LOST, 1.0 + number, decision=RETRY, earlier_failures=number) for number in range(3)),
        *(shows("running", 4.0), fails(LOST, 4.0, decision=RETRY, earlier_failures=3)),
        shows("paused", 4.0, opens=9.0, why="no request succeeds: lost"),
    ),
    **{
        f"endless throttling {facts} suspends the run": story(
            *(fails(REFUSED, *range(0, 900, 10), **facts), halted(), fails(REFUSED, 900.0, **facts)),
            halted("run suspended: no request has succeeded for 900 s: 429"),
        )
        for facts in list[dict[str, Any]]([{}, {"retry_after": 5.0}])
    },
    "an outage lasts from the first failed attempt after the last success": story(
        *(fails(REFUSED, 10.0, 5.0, 24.0), succeeds(24.5)),  # not in the order of their starts
        *(fails(REFUSED, 50.0, 69.0), halted(), answers(REFUSED, 49.0, 69.0, RetryDecision.STOP_RUN)),
        halted("run suspended: no request has succeeded for 20 s: 429"),
        max_outage=20.0,
    ),
    "cancelling a start of a healthy run changes nothing": story(
        starts(1.0), lambda run: run.on_cancelled(1.0, 1.0), starts(1.0), shows("running", 1.0)
    ),
    "an unclear probe prolongs the pause until its row is given up": story(
        *(fails(UNCLEAR, *[1.0] * 19, decision=GIVE_UP), fails(UNCLEAR, 1.0, decision=COUNTED)),
        shows("paused", 1.0, opens=6.0, why="no request succeeds: the service answered 200 with an error"),
        *(starts(6.0), answers(UNCLEAR, 6.0, 6.0, COUNTED, counted_failures=0), shows("paused", 6.0, opens=16.0)),
        *(starts(16.0), answers(UNCLEAR, 16.0, 16.0, GIVE_UP, counted_failures=1), shows("paused", 16.0, opens=36.0)),
        attempts=2,
    ),
}
"""What happens in a run, one step after the other, and the options of its throttle."""


@virtual_time
@pytest.mark.parametrize(("steps", "options"), STORIES.values(), ids=STORIES)
async def test_a_run_pauses_goes_on_and_ends_as_its_attempts_say(steps: tuple[Step, ...], options: dict[str, Any]) -> None:
    run = flow(**options)
    for step in steps:
        step(run)


def test_a_run_without_failures_starts_everything_and_learns_no_limit() -> None:
    run = flow()
    for number in range(5000):
        assert run.try_start(number / 100)
        run.on_success(number / 100, number / 100, {})
    assert (run.limit, run.opens_at, run.state(50.0)) == (None, -math.inf, "running")


@pytest.mark.parametrize(("error", "facts"), [(LOST, {}), (DOWN, {"retry_after": 10.0})], ids=["lost", "503 with Retry-After"])
def test_a_row_that_keeps_failing_is_given_up_and_holds_up_no_other(error: OutreachError, facts: dict[str, Any]) -> None:
    run = flow(attempts=3)
    verdicts = []
    for failures in range(3):
        succeed(run, failures + 1.0, 30)
        counts = {"counted_failures": failures, "earlier_failures": failures}
        verdicts.append(fail(run, error, failures + 1.0, **counts, **facts))
    assert verdicts == [COUNTED, COUNTED, GIVE_UP]
    assert run.try_start(4.0)


@virtual_time
async def test_a_retry_after_beyond_the_policy_suspends_the_run() -> None:
    run = flow(retry_after_cap=60)
    error = RateLimited("429", status_code=429, operation="create_contact", headers={"retry-after": "61"})
    assert fail(run, error, 1.0, retry_after=61.0) is RetryDecision.STOP_RUN
    halted = run.halted
    assert isinstance(halted, BulkSuspended)
    assert (halted.retry_after, halted.status_code, halted.__cause__) == (61.0, 429, error)
    assert not run.try_start(1000.0)
    assert fail(run, LOST, 1001.0) is RetryDecision.STOP_RUN


@virtual_time
async def test_a_run_waits_for_a_gate_closed_by_another_call_and_starts_slowly() -> None:
    policy = RetryPolicy(jitter=lambda: 0.0)
    limiter = RateLimiter(policy, max_in_flight=2)
    run, calls, began = RunThrottle(limiter, policy), Throttle(limiter, policy), anyio.current_time()
    assert run.try_start(began)
    assert calls.try_start(began)
    run.on_success(began, began, {})
    calls.on_failure(failed(DOWN, began, began, retry_after=10.0))
    assert not run.try_start(began + 9)
    changes: list[float] = []
    run.on_change = changes.append
    for expected in (10.0, 11.0):  # half of the measured rate, 2 requests per second
        await run.wait_and_start(-math.inf)
        assert anyio.current_time() - began == pytest.approx(expected, abs=0.02)
    assert changes[0] == began
    assert (run.state(began + 1), run.pause_reason) == ("paused", "the service answered 503 and asked to wait 10 s")


def test_a_cancelled_probe_lets_the_next_request_probe() -> None:
    run = flow()
    succeed(run, 1.0)
    for at in range(30):
        fail(run, LOST, 2.0 + at / 100)
    paused = run.opens_at
    assert not run.try_start(paused - 0.1)
    assert run.try_start(paused)
    assert not run.try_start(paused)
    run.on_cancelled(paused, paused)
    assert run.try_start(paused)


def test_the_first_error_that_ends_a_run_is_kept() -> None:
    run = flow()
    first = BulkStopped("first")
    run.halt(first)
    run.halt(BulkStopped("second"))
    assert run.halted is first


# Waiting


@virtual_time
async def test_the_end_of_a_run_wakes_every_waiter() -> None:
    run = flow()
    now = anyio.current_time()
    fail(run, REFUSED, now, retry_after=800.0)
    raised: list[BaseException] = []

    async def wait(not_before: float) -> None:
        with pytest.raises(BulkStopped) as caught:
            await run.wait_and_start(not_before)
        raised.append(caught.value)

    error = BulkStopped("over")
    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(wait, now + number // 3 * 5000)
        await anyio.sleep(1)
        assert not run.try_start(now + 10_000)  # the waiting tasks come first
        assert run.state(now + 1) == "paused"
        run.halt(error)
    assert raised == [error] * 6
    assert anyio.current_time() == pytest.approx(now + 1)
    with pytest.raises(BulkStopped):
        await run.wait_and_start(-math.inf)


@virtual_time
async def test_starts_respect_the_limit_and_a_waiting_run_counts_as_throttled() -> None:
    run = flow()
    now = anyio.current_time() + 10
    await anyio.sleep(10)
    fail(run, REFUSED, now)
    assert run.limit == pytest.approx(0.7)
    starts = []
    for _ in range(4):
        await run.wait_and_start(-math.inf)
        starts.append(anyio.current_time() - now)
    assert starts == pytest.approx([0, 1 / 0.7, 2 / 0.7, 3 / 0.7], abs=0.02)
    assert run.state(anyio.current_time()) == "throttled"
    assert run.state(anyio.current_time() + 3) == "running"


@virtual_time
async def test_a_successful_probe_wakes_the_waiters_at_once() -> None:
    run = flow()
    began = anyio.current_time()
    fail(run, UNSENT, began)
    starts: list[float] = []

    async def attempt() -> None:
        await run.wait_and_start(-math.inf)
        started = anyio.current_time()
        starts.append(started - began)
        await anyio.sleep(0.25)
        run.on_success(anyio.current_time(), started, {})

    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(attempt)
    assert starts == pytest.approx([0.5, 0.75])


@virtual_time
async def test_rows_of_a_run_paused_meanwhile_leave_the_queue_of_the_client() -> None:
    policy = RetryPolicy(jitter=lambda: 1.0)
    limiter = RateLimiter(policy, max_in_flight=2)
    run, other = RunThrottle(limiter, policy), RunThrottle(limiter, policy)
    began = anyio.current_time()
    assert run.try_start(began)
    assert other.try_start(began)
    started: list[tuple[str, float]] = []

    async def attempt(name: str, throttle: RunThrottle) -> None:
        await throttle.wait_and_start(-math.inf)
        started.append((name, anyio.current_time() - began))

    async with anyio.create_task_group() as group:
        for name, throttle in (("row", run), ("other", other)):
            group.start_soon(attempt, name, throttle)
            await anyio.wait_all_tasks_blocked()
        run.on_failure(failed(UNSENT, began, began))  # pauses the run for half a second
        await anyio.sleep(0.1)
        assert [name for name, _ in started] == ["other"]
        other.on_success(anyio.current_time(), began, {})
    assert [name for name, _ in started] == ["other", "row"]
    assert started[1][1] == pytest.approx(0.5, abs=0.01)


@virtual_time
async def test_a_retry_after_beyond_the_outage_limit_ends_the_run_at_the_limit() -> None:
    run, began = flow(max_outage=60.0), anyio.current_time()
    assert fail(run, DOWN, began, retry_after=90.0) is RetryDecision.RETRY
    with pytest.raises(BulkSuspended, match="no request has succeeded for 60 s: 503") as ended:
        await run.wait_and_start(-math.inf)
    assert anyio.current_time() - began == pytest.approx(60)
    assert ended.value.retry_after == pytest.approx(30, abs=2)


@virtual_time
async def test_a_success_during_a_wait_ends_the_outage_and_not_the_run() -> None:
    run, began = flow(max_outage=60.0), anyio.current_time()
    start(run, began)
    fail(run, DOWN, began, retry_after=90.0)
    run.on_success(began, began, {})
    await run.wait_and_start(-math.inf)
    assert anyio.current_time() - began >= 90


@virtual_time
async def test_an_unanswered_probe_does_not_block_the_run_forever() -> None:
    run = flow()
    began = anyio.current_time()
    fail(run, UNSENT, began)
    await run.wait_and_start(-math.inf)
    await run.wait_and_start(-math.inf)
    assert anyio.current_time() - began == pytest.approx(120.5)


# The client, a run and the engine against a service


WHOLE_SCENES = {
    "100/s": (Scenario(seconds=30, limits=[(0, 100)]), 0.04),
    "down for five minutes": (Scenario(seconds=450, limits=[(0, 10)], outages=[(60, 360, "refused")]), 0.08),
    "hanging for five minutes": (Scenario(seconds=480, limits=[(0, 10)], outages=[(60, 360, "hanging")]), 0.08),
}
"""Scenarios with the maximum share of 429 responses: in so short a run, the first attempts of 64 workers are a large part."""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("scene", "backend"),
    [*(("100/s", "asyncio"), ("100/s", "trio")), *(("down for five minutes", "asyncio"), ("hanging for five minutes", "trio"))],
)
def test_a_real_run_behaves_as_the_throttle_promises(scene: str, backend: str) -> None:
    played, refusals = WHOLE_SCENES[scene]
    run = simulate_whole(played, backend)
    assert run.shortfalls(refusals=refusals) == []


@pytest.mark.thorough
@virtual_time
@pytest.mark.parametrize("refusal", [status(429), status(429, retry_after="0")], ids=["no Retry-After", "Retry-After: 0"])
async def test_a_run_whose_first_twenty_requests_are_throttled_ends_in_30_seconds(refusal: Response) -> None:
    script = Script(*[refusal] * 20, added())
    client = OutreachClient(
        transport=script, owner_key="key_1", workspace="space_1", retry=RetryPolicy(jitter=lambda: 1.0), max_in_flight=8
    )
    rows = (NewContact(f"user{number}@a.example") for number in range(300))
    began = anyio.current_time()
    report = await client.contacts.create_many(rows, concurrency=8)
    assert (report.outcomes[Outcome.ADDED], len(script.requests)) == (300, 320)
    assert anyio.current_time() - began <= 30


# Answers without a known meaning


def ok(text: str, code: int = 200) -> Response:
    return Response(code, {"content-type": "application/json"}, text.encode())


RATE_60: Final = ok('{"status":"error","message":"Rate limit exceeded, retry in 60 seconds"}')
UNBROKEN: dict[str, Response] = {
    "an error": ok('{"status":"error","message":"internal"}'),
    "an unknown status": ok('{"status":"queued"}'),
    "no members": ok("{}", 201),
    "HTML": ok("<html>", 202),
    "nothing": Response(204, {}, b""),
    "a rate limit": RATE_60,
    "a rate limit as text": ok("Too many requests"),
    **{str(code): status(code) for code in (402, 406, 409, 418, 425, 451, 499)},
    "400 with a rate limit": status(400, b'{"message":"Too many requests"}'),
    "403 with Retry-After": status(403, retry_after="5"),
}
"""Answers that do not say what became of a row."""


@virtual_time
@pytest.mark.parametrize("good", [0, 150])
@pytest.mark.parametrize("answer", UNBROKEN.values(), ids=UNBROKEN)
async def test_unbroken_answers_without_a_meaning_suspend_the_run_with_true_labels(answer: Response, good: int) -> None:
    script, found, began = Script(*[added()] * good, answer, seconds=0.01), list[ContactOutcome](), anyio.current_time()
    run = client(script).contacts.create_many(rows(3000), max_outage=100, stop_after_rejects=None, concurrency=8)
    async with run as outcomes:
        with pytest.raises(BulkSuspended, match="no request has succeeded for 100 s"):
            await drain(outcomes, found)
    assert len(script.requests) - good < 250
    assert 100 <= anyio.current_time() - began < 102
    assert sum(outcome.status is Outcome.ADDED for outcome in found) == good
    is_certain = 400 <= answer.status < 500 and answer.status not in {425, 499}
    for outcome in found:
        if outcome.status is not Outcome.ADDED and outcome.attempts:
            assert outcome.certain is is_certain
            assert outcome.status in ({Outcome.REJECTED, Outcome.NOT_APPLIED} if is_certain else {Outcome.UNKNOWN})


@virtual_time
@pytest.mark.parametrize("name", ["an error", "an unknown status", "no members", "402", "499"])
async def test_unclear_answers_among_good_ones_neither_delay_nor_repeat_a_row(name: str) -> None:
    script, began = Script(*[UNBROKEN[name], added(), added()] * 200), anyio.current_time()
    report = await client(script).contacts.create_many(rows(600), concurrency=8)
    assert (report.outcomes[Outcome.ADDED], len(script.requests), anyio.current_time()) == (400, 600, began)


@virtual_time
async def test_an_outage_of_errors_with_a_status_of_success_leaves_few_rows_unknown() -> None:
    script = Script(*[added()] * 100, *[UNBROKEN["an error"]] * 30, added(), seconds=0.01)
    report = await client(script).contacts.create_many(rows(1000), concurrency=8)
    assert 19 <= report.outcomes[Outcome.UNKNOWN] <= 19 + 7  # the first of them may arrive between good ones in flight
    assert report.outcomes[Outcome.UNKNOWN] + report.outcomes[Outcome.ADDED] == 1000


@virtual_time
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Rate limit exceeded, retry in 60 seconds", 60),
        ("Too many requests. Try again in 2 minutes.", 120),
        ("Your quota is used up: wait 1 h", 3600),
        ("rate_limit: retry after 30s", 30),
        ("Request was throttled", 0),
        ("Throttled for 5 apples", 0),
        ("Quota: rate limit, wait 9 s, for 20 hours", 9),  # the row has some of these words
    ],
)
@pytest.mark.parametrize("code", [200, 400, 403, 500])
async def test_a_message_about_a_rate_limit_is_a_pause(text: str, seconds: int, code: int) -> None:
    body = text.encode() if code == 403 else json.dumps({"status": "error", "message": text}).encode()
    script, began = Script(status(code, body), skipped()), anyio.current_time()
    policy = RetryPolicy(jitter=lambda: 1.0, retry_after_cap=7200)
    row = NewContact("a@a.example", company_name="For 20 hours")
    (outcome,) = await outcomes_of(client(script, retry=policy).contacts.create_many([row], max_outage=9999))
    assert seconds <= anyio.current_time() - began <= seconds + 2
    assert outcome.possible == ({Outcome.SKIPPED} if 400 <= code < 500 else {Outcome.SKIPPED, Outcome.ADDED})


@virtual_time
@pytest.mark.parametrize("code", [402, 425])
async def test_rejections_without_a_meaning_at_the_start_stop_the_run_at_once(code: int) -> None:
    began = anyio.current_time()
    with pytest.raises(BulkStopped, match="the first 50"):
        await client(Script(status(code))).contacts.create_many(rows(3000), concurrency=8)
    assert anyio.current_time() == began


@virtual_time
async def test_a_named_wait_is_bounded() -> None:
    body = b'{"message":"Quota exceeded: retry in 999999 hours"}'
    with pytest.raises(BulkSuspended) as caught:
        await client(Script(status(200, body))).contacts.create_many(rows(1))
    assert caught.value.retry_after == 86_400


@virtual_time
@pytest.mark.parametrize("code", [200, 400, 422])
@pytest.mark.parametrize("bad", [0, 70])
async def test_a_message_that_quotes_a_row_names_no_limit(code: int, bad: int) -> None:
    message = '{"status":"error","message":"company_name: RATE LIMIT Ltd (for 20 hours) is too short"}'

    class Picky(Script):
        async def send(self, request: Request, progress: Progress, /) -> Response:
            response = await super().send(request, progress)
            return ok(message, code) if b"Limit" in request.body else response

    odd = NewContact("ann@company.example", company_name="Rate Limit Ltd (for 20 hours)")
    mixed, began = [odd if number == bad else row for number, row in enumerate(rows(300))], anyio.current_time()
    found = await outcomes_of(client(Picky(added())).contacts.create_many(mixed, concurrency=4))
    (left,) = [outcome for outcome in found if outcome.status is not Outcome.ADDED]
    label = Outcome.UNKNOWN if code == 200 else Outcome.REJECTED
    assert (left.index, left.status, left.attempts, anyio.current_time()) == (bad, label, 1, began)


@virtual_time
async def test_a_rejection_of_the_content_names_no_limit() -> None:
    script, began = Script(status(422, b'{"message":"quota: required, try again in 20 hours"}'), added()), anyio.current_time()
    (outcome, *_) = await outcomes_of(client(script).contacts.create_many(rows(2), concurrency=1))
    assert (outcome.status, anyio.current_time()) == (Outcome.REJECTED, began)


@virtual_time
async def test_a_single_call_waits_for_a_named_limit_but_repeats_no_unclear_answer() -> None:
    script, began = Script(RATE_60, added()), anyio.current_time()
    created = await client(script, deadline=600).contacts.create(NewContact("a@a.example"))
    assert (created.status, len(script.requests)) == (Outcome.ADDED, 2)
    assert anyio.current_time() - began >= 60
    script = Script(UNBROKEN["an error"], added())
    with pytest.raises(UnexpectedResponse) as caught:
        await client(script).contacts.create(NewContact("a@a.example"))
    assert (len(script.requests), caught.value.maybe_applied, caught.value.named_wait) == (1, True, None)


def test_failures_between_unclear_answers_do_not_break_their_series() -> None:
    window = FailureWindow()
    series = []
    for _ in range(4):
        series.append(window.record_unclear(0))
        window.record_fault(0)
    window.record_success()
    assert (series, window.record_unclear(0)) == ([1, 2, 3, 4], 1)


# Failures and pauses

seconds = st.floats(0.001, 30)
rates = st.floats(0.5, 2000)


# Failure counting


@given(st.lists(st.booleans(), max_size=300))
@example([False, *[True] * 100])
def test_the_service_is_failing_when_half_of_the_last_100_results_are_faults(results: list[bool]) -> None:
    health = FailureWindow()
    for number, good in enumerate(results, 1):
        health.record_success() if good else health.record_fault(0)
        window = results[max(0, number - 100) : number]
        assert health.size == len(window)
        assert health.is_failing is (len(window) >= 20 and window.count(False) * 2 >= len(window))


@given(st.lists(st.booleans(), max_size=150))
def test_a_row_is_at_fault_if_nearly_all_of_many_neighbours_succeed(results: list[bool]) -> None:
    health = FailureWindow()
    for good in results:
        health.record_success() if good else health.record_fault(0)
    window = results[-100:]
    assert health.is_row_at_fault(0) is (None if len(window) < 20 else window.count(True) >= 0.9 * len(window))


def test_earlier_failures_of_a_row_do_not_excuse_it() -> None:
    health = FailureWindow()
    for _ in range(20):
        health.record_success()
    for earlier in (0, 1, 2):
        health.record_fault(earlier)
    assert (health.is_row_at_fault(3), health.is_row_at_fault(0)) == (True, False)


def test_refusals_excuse_a_row_but_the_service_does_not_count_as_failing() -> None:
    health = FailureWindow()
    for _ in range(40):
        health.record_success()
        health.record_fault(0, proves_outage=False)
    assert (health.is_failing, health.is_row_at_fault(0)) == (False, False)


# The breaker


class Breakers(RuleBasedStateMachine):
    """Invariants of the breaker under any sequence of events."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker()
        self.now = 0.0
        self.probe: float | None = None

    @rule(gap=st.floats(0.01, 100))
    def wait(self, gap: float) -> None:
        self.now += gap

    @precondition(lambda self: self.breaker.closed)
    @rule(pause=st.floats(0, 5))
    def trip(self, pause: float) -> None:
        self.breaker.trip(self.now, pause)
        assert self.breaker.opens_at == self.now + pause

    @precondition(lambda self: self.breaker.opens_at <= self.now)
    @rule()
    def start(self) -> None:
        self.breaker.record_start(self.now)
        self.probe = None if self.breaker.closed else self.now
        assert self.breaker.closed or self.breaker.opens_at > self.now  # a second probe has to wait

    @precondition(lambda self: self.probe is not None)
    @rule(end=st.sampled_from(["failed", "refused", "close"]))
    def hear(self, end: str) -> None:
        assert self.probe is not None
        assert self.breaker.is_probe(self.probe)
        if end == "close":
            self.breaker.close()
        else:
            self.breaker.on_probe_failure(self.now, is_refusal=end == "refused")
        self.probe = None
        assert self.breaker.closed is (end == "close")

    @rule(latest=st.floats(-10, 100))
    def shorten(self, latest: float) -> None:
        before, latest = self.breaker.opens_at, self.now + latest
        self.breaker.shorten_pause(self.now, latest)
        is_due = not self.breaker.closed and self.probe is None and latest > self.now
        assert self.breaker.opens_at == (min(before, latest) if is_due else before)

    @invariant()
    def a_pause_has_an_end_and_what_began_before_the_probe_is_not_it(self) -> None:
        assert self.breaker.opens_at <= self.now + max(MAX_PAUSE, PROBE_LEASE)
        assert not self.breaker.closed or self.breaker.opens_at <= self.now
        assert not self.breaker.is_probe(-1.0)
        assert self.breaker.is_probe(self.now) is (self.probe is not None)


TestBreakers = Breakers.TestCase
TestBreakers.settings = settings(max_examples=scaled(40), stateful_step_count=30)
