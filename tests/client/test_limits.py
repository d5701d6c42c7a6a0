"""The limits of a client: the token bucket, the learned limit, the schedule, one queue, slots, shares, and the retry budget."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.rates import most_in_excess
from support.time import virtual_time

from outreach_async import RateLimited, RetryPolicy, StatusError
from outreach_async._core.attempts import RetryBudget, Slots
from outreach_async._core.limits import (
    BETA,
    FLOOR,
    SPACING,
    TOLERANCE,
    CubicLimit,
    RateLimiter,
    RateMeter,
    RetryAfterGate,
    Schedule,
    TokenBucket,
    Usage,
    WaitingLine,
    reset_all_after_fork,
)
from outreach_async._core.retry import FailedAttempt, FailureKind
from outreach_async.errors import OutreachError
from outreach_async.testing import VirtualTime

seconds = st.floats(0.001, 30)
rates = st.floats(0.5, 2000)


@given(st.floats(0.01, 2000), st.lists(st.floats(0, 3), min_size=1, max_size=60))
def test_a_bucket_never_starts_more_than_its_rate_and_burst(rate: float, pauses: list[float]) -> None:
    bucket, now = TokenBucket(rate), 0.0
    starts: list[float] = []
    for pause in pauses:  # after each pause, start as many attempts as are allowed
        now = max(now + pause, bucket.opens_at if pause < 1 else now)
        while bucket.opens_at <= now and len(starts) < 400:
            bucket.record_start(now)
            starts.append(now)
    assert most_in_excess(starts, rate) <= 1e-6


@given(st.floats(0.1, 500), st.floats(0.1, 500), st.floats(0, 0.5))
def test_a_changed_rate_keeps_the_number_of_missing_tokens(before: float, after: float, pause: float) -> None:
    bucket, started = TokenBucket(before), 0
    while bucket.opens_at <= 0.0:
        bucket.record_start(0.0)
        started += 1
    bucket.change_rate(after, pause)
    missing = max(0.0, started - before * pause)
    assert bucket.opens_at == pytest.approx(pause + (missing + 1 - max(1.0, after / 10)) / after, abs=1e-6)


def test_a_timer_that_is_late_costs_no_throughput_within_the_burst() -> None:
    bucket, now, count = TokenBucket(100.0), 0.0, 0
    while now < 10:
        while bucket.opens_at <= now:
            bucket.record_start(now)
            count += 1
        now = bucket.opens_at + 0.05
    assert count >= 100 * 9.9


@given(st.floats(0.1, 500))
def test_from_an_emptied_bucket_attempts_start_one_period_apart(rate: float) -> None:
    bucket, starts = TokenBucket(rate), []
    bucket.empty(5.0)
    for _ in range(20):
        starts.append(bucket.opens_at)
        bucket.record_start(bucket.opens_at)
    assert starts == pytest.approx([5 + number / rate for number in range(1, 21)])


@given(st.lists(st.tuples(seconds, st.booleans(), st.floats(0, 1000)), max_size=60))
def test_the_limit_stays_in_its_bounds_and_only_throttling_lowers_it(moves: list[tuple[float, bool, float]]) -> None:
    cubic, now, cut_at, most, vain = CubicLimit(), 0.0, -math.inf, 10.0, 0
    for gap, refused, achieved in moves:
        now += gap
        most = max(most, 2 * achieved)
        before = cubic.limit
        if refused:
            cubic.record_refusals(now)
        if refused and cubic.is_exceeded(now, achieved):
            assert now - cut_at >= SPACING
            cubic.cut(now, achieved)
            cut_at = now
            vain += 1
            everything = vain > 2 or (vain > 1 and not achieved)
            assert cubic.limit is not None
            assert before is None or cubic.limit <= (before if everything else max(FLOOR, BETA * before))
        else:
            cubic.grow(now, achieved)
            vain = 0
            assert (cubic.limit is None) == (before is None)
            assert before is None or cubic.limit is None or cubic.limit >= before
        assert cubic.limit is None or FLOOR <= cubic.limit <= most


@given(rates, st.floats(0.01, 0.99))
def test_recovery_ends_at_the_rate_that_was_throttled(rate: float, part: float) -> None:
    cubic = CubicLimit()
    for at in (0.0, 1.0, 2.0):
        cubic.cut(at, rate)
        cubic.grow(at, rate)
    peak = (cubic.limit or 0.0) / BETA
    cubic.grow(2.0 + 2.7 * part, 1e9)
    assert BETA * peak <= (cubic.limit or 0.0) < peak * 1.000001
    cubic.grow(200.0, 1e9)
    assert (cubic.limit or 0.0) > 2 * peak


def test_throttling_of_an_attempt_started_before_the_last_cut_is_ignored() -> None:
    cubic = CubicLimit()
    cubic.record_refusals(9.9)
    assert cubic.is_exceeded(10.0, 1.0)
    cubic.cut(10.0, 1.0)
    cubic.record_refusals(9.9)
    assert not cubic.is_exceeded(11.0, 1.0)
    cubic.record_refusals(10.1)
    assert not cubic.is_exceeded(10.4, 1.0)
    assert cubic.is_exceeded(10.5, 1.0)


def recovering(after: float, achieved: float = 400.0) -> CubicLimit:
    """Return a limit some seconds after its third cut, at which 400 requests a second were refused."""
    cubic = CubicLimit()
    for at in (0.0, 10.0, 20.0):
        cubic.cut(at, achieved)
        cubic.grow(at, achieved)
    cubic.grow(20.0 + after, achieved)
    return cubic


@pytest.mark.parametrize(("achieved", "needed"), [(40.0, 1), (100.0, 2), (400.0, 3)])
@pytest.mark.parametrize("is_first", [True, False])
def test_the_refusals_that_prove_a_low_limit_too_high_depend_on_the_rate(achieved: float, needed: int, is_first: bool) -> None:
    cubic = CubicLimit() if is_first else recovering(1.0, achieved)
    for number in range(1, needed + 1):
        cubic.record_refusals(21.0)
        assert cubic.is_exceeded(21.0, achieved) is (number == needed)


@pytest.mark.parametrize(("after", "needed"), [(1.0, 3), (2.7, 1)])
def test_one_refusal_near_the_refused_rate_proves_the_limit_again(after: float, needed: int) -> None:
    cubic = recovering(after)
    cubic.record_refusals(20.0 + after, needed - 1)
    assert not cubic.is_exceeded(20.0 + after, 400.0)
    cubic.record_refusals(20.0 + after)
    assert cubic.is_exceeded(20.0 + after, 400.0)


def test_refusals_at_a_low_limit_are_expected_near_the_refused_rate_too() -> None:
    cubic = recovering(1.0)
    for _ in range(5):
        cubic.record_refusals(21.0)
        cubic.grow(21.0, 400.0, 200)
    for _ in range(20):  # one in 110 requests, less than twice as many as before
        cubic.grow(25.0, 400.0, 110)
        cubic.record_refusals(25.0)
        assert not cubic.is_exceeded(25.0, 400.0)
    for _ in range(2):
        cubic.record_refusals(25.0)
    assert cubic.is_exceeded(25.0, 400.0)


def test_refusals_that_cut_a_low_limit_are_not_expected_later() -> None:
    cubic = recovering(1.0)
    cubic.record_refusals(21.0, 5)
    cubic.cut(21.0, 400.0)
    cubic.grow(40.0, 400.0)
    cubic.record_refusals(40.0)
    assert cubic.is_exceeded(40.0, 400.0)


def test_while_everything_is_refused_each_refusal_counts() -> None:
    cubic = CubicLimit()
    cubic.cut(0.0, 400.0)
    cubic.record_refusals(1.0)
    assert cubic.is_exceeded(1.0, 400.0)


def test_successes_just_after_the_first_cut_still_raise_the_limit() -> None:
    early, late = CubicLimit(), CubicLimit()
    for cubic, at in ((early, 0.3), (late, 0.6)):
        cubic.cut(50.0, 2.0)
        cubic.grow(50.0 + at, 200.0)
    assert (early.limit or 0.0) > 100
    assert (late.limit or 0.0) < 2


def test_after_a_long_retry_after_recovery_takes_longer() -> None:
    limits = []
    for retry_after in (0.0, 2.0):
        cubic = CubicLimit()
        for at in (0.0, 1.0, 2.0, 3.0):
            cubic.cut(at, 100.0, retry_after)
            cubic.grow(at, 100.0)
        cubic.grow(9.0, 1e9)
        limits.append(cubic.limit or 0.0)
    assert limits[1] < limits[0]


def test_throttling_before_any_success_lowers_the_rate_to_the_floor() -> None:
    cubic, limits = CubicLimit(), []
    for at in (0.0, 1.0, 10.0, 16.0, 40.0, 100.0, 1000.0):
        cubic.cut(at, 0.0)
        limits.append(cubic.limit)
    assert limits == pytest.approx([0.7, 0.7, 0.7, 0.5, 0.2, FLOOR, FLOOR])


@pytest.mark.parametrize("achieved", [0.0, 0.01])
def test_after_everything_was_throttled_the_search_for_the_rate_restarts(achieved: float) -> None:
    cubic = CubicLimit()
    for at in range(0, 1000, 10):
        cubic.cut(float(at), achieved)
    cubic.grow(1000.0, achieved)
    assert cubic.limit == pytest.approx(BETA)
    cubic.grow(1002.0, achieved)
    assert cubic.limit == pytest.approx(10.0)


def test_one_throttled_request_before_any_success_is_not_total_refusal() -> None:
    limits = []
    for cuts in (1, 2):
        cubic = CubicLimit()
        for at in range(cuts):
            cubic.cut(float(at), 0.0)
        cubic.grow(2.0, 0.0)
        limits.append(cubic.limit or 0.0)
    assert limits[0] > 1 > limits[1]


def test_two_throttled_requests_in_a_row_are_not_total_refusal() -> None:
    cubic = CubicLimit()
    for at in (0.0, 1.0, 2.0):
        cubic.cut(at, 100.0)
        if not at:
            cubic.grow(at, 100.0)
    assert cubic.limit == pytest.approx(100 * BETA**3)
    cubic.grow(2.5, 100.0)
    assert (cubic.limit or 0.0) > BETA * 10


def test_an_excluded_time_postpones_the_recovery() -> None:
    cubic = CubicLimit()
    cubic.cut(0.0, 100.0)
    cubic.exclude_time(100.0)
    cubic.grow(100.5, 100.0)
    assert (cubic.limit or 0.0) < 100


@settings(max_examples=scaled(40))
@given(st.floats(1, 200), st.floats(0.5, 1))
def test_a_steady_rate_is_measured_to_within_a_quarter(rate: float, phase: float) -> None:
    meter, count = RateMeter(), int(40 + 3 * rate)
    assert meter.rate(0.0) == 0.0
    for number in range(1, count):
        meter.add(number / rate, (number - phase) / rate)
    assert meter.rate(count / rate) == pytest.approx(rate, rel=0.25)


def test_a_slow_rate_is_measured_over_more_than_half_a_second() -> None:
    meter = RateMeter()
    for number in range(1, 60):
        meter.add(float(number), number - 0.05)
        if number > 25:
            assert 0.75 < meter.rate(number + 0.6) < 1.3


def test_pauses_do_not_change_the_measured_rate() -> None:
    meter, paused = RateMeter(), 0.0
    for number in range(1, 400):
        meter.add(number / 100 + paused, (number - 1) / 100 + paused)
        if number % 20 == 0:
            meter.exclude_time(5.0)
            paused += 5.0
    assert meter.rate(4.0 + paused) == pytest.approx(100, rel=0.05)


@given(st.lists(st.tuples(st.floats(1, 1000), st.floats(0, 0.1)), min_size=1, max_size=80))
def test_starts_are_spaced_by_the_rate_within_the_tolerance(steps: list[tuple[float, float]]) -> None:
    pace, now, starts = Schedule(), 0.0, []
    for rate, idle in steps:
        now = max(now + idle, pace.next_start(rate, now))
        pace.record_start(rate, now)
        starts.append((now, rate))
    for first in range(len(starts)):
        least = 0.0
        for at, rate in starts[first + 1 :]:
            least += 1 / rate
            assert at - starts[first][0] >= least - TOLERANCE - 1e-9


@given(rates, st.lists(st.floats(0, TOLERANCE), min_size=1, max_size=200))
def test_late_timers_lose_no_starts(rate: float, lateness: list[float]) -> None:
    pace, now = Schedule(), 0.0
    for late in lateness:
        pace.record_start(rate, now)
        now = max(now, pace.next_start(rate, now) + late)
    assert now <= len(lateness) / rate + 1e-6


def test_after_a_pause_the_rate_rises_from_half_to_full() -> None:
    ramp = Schedule()
    assert ramp.rate(None, 0.0) is None
    ramp.start_slowly(10.0, 100.0, 60.0)
    assert [ramp.rate(None, at) for at in (9.0, 10.0, 11.0, 12.0)] == [50.0, 50.0, 75.0, None]
    assert [ramp.rate(60.0, at) for at in (10.0, 11.0, 12.0)] == [50.0, 60.0, 60.0]
    ramp.start_slowly(20.0, 100.0, 0.5)
    assert [ramp.rate(None, at) for at in (20.0, 20.25, 20.5)] == [50.0, 75.0, None]


REFUSED = RateLimited("429", status_code=429)


def limiter(rate: float | None = None, **options: Any) -> RateLimiter:
    return RateLimiter(RetryPolicy(jitter=lambda: 0.0), max_in_flight=options.pop("max_in_flight", 100), rate=rate, **options)


def refused(at: float, retry_after: float | None = None, error: OutreachError = REFUSED) -> FailedAttempt:
    return FailedAttempt(error=error, kind=FailureKind.REFUSED, retry_after=retry_after, started=at, ended=at)


def test_a_refusal_lowers_the_limit_below_the_configured_rate() -> None:
    limits = limiter(50.0)
    assert limits.try_start(0.0)
    limits.on_failure(refused(0.0))
    assert limits.limit == pytest.approx(0.7)
    assert limiter(0.5).limit == 0.5


def learned() -> RateLimiter:
    """Return a limiter that has learned a limit from a refusal at the second 1."""
    limits = limiter()
    for at in range(100):
        limits.on_success(at / 100, at / 100)
    limits.on_failure(refused(1.0))
    return limits


@pytest.mark.parametrize(
    ("code", "named_wait", "cuts"), [(503, None, False), (503, 0.0, True), (403, None, True), (400, 5.0, True)]
)
def test_a_refusal_cuts_the_limit_unless_the_service_is_only_unavailable(code: int, named_wait: float | None, cuts: bool) -> None:
    limits, error = learned(), StatusError(str(code), status_code=code)
    cut, error.named_wait = limits.limit, named_wait
    limits.on_failure(refused(1.6, 5.0, error))
    assert (limits.limit != cut) is cuts


async def stand(line: WaitingLine, doomed: set[int], count: int) -> list[int]:
    """Queue many tasks for one start per second, cancel some of them, and return those that were served."""
    served: list[int] = []
    opens = [anyio.current_time() + 0.5]
    scopes = [anyio.CancelScope() for _ in range(count)]

    def take(now: float) -> float:
        opened = opens[0]
        if opened <= now:
            opens[0] = now + 1
        return opened

    async def ask(number: int) -> None:
        with scopes[number]:
            await line.wait(take)
            served.append(number)

    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(ask, number)
            await anyio.lowlevel.checkpoint()
        await anyio.sleep(0.25)
        for number in doomed:
            scopes[number].cancel()
    assert not served or anyio.current_time() == pytest.approx(opens[0] - 1)
    return served


@settings(max_examples=scaled(30))
@given(st.integers(1, 12), st.sets(st.integers(0, 11)), st.sampled_from(["asyncio", "trio"]))
def test_turns_are_first_come_first_served_and_cancelling_loses_none(count: int, doomed: set[int], backend: str) -> None:
    line, doomed = WaitingLine(), {number for number in doomed if number < count}  # cancelled before any start
    served = anyio.run(partial(stand, line, doomed, count), backend=backend, backend_options=VirtualTime().options(backend))
    assert served == [number for number in range(count) if number not in doomed]
    assert not line.queue


@virtual_time
async def test_the_first_waiter_wakes_for_a_turn_sooner_by_a_millisecond_or_more() -> None:
    line = WaitingLine()
    opens, looks = [anyio.current_time() + 1000], itertools.count()

    def take(_: float) -> float:
        next(looks)
        return opens[0]

    line.wake_first(0.0)  # the queue is empty
    async with anyio.create_task_group() as group:
        group.start_soon(line.wait, take)
        await anyio.wait_all_tasks_blocked()
        line.wake_first(opens[0] - 0.0005)
        await anyio.wait_all_tasks_blocked()
        assert next(looks) == 1
        opens[0] = anyio.current_time()
        line.wake_first(opens[0])
    assert not line.queue


def test_a_gate_closed_again_opens_at_the_later_time() -> None:
    gate = RetryAfterGate()
    for seconds in (5.0, 20.0, 10.0):
        gate.close(refused(100.0, seconds), seconds)
    assert (gate.opens_at, gate.reason) == (120.0, "the service answered 429 and asked to wait 20 s")


def test_nothing_starts_before_a_retry_after_ends_and_then_slowly() -> None:
    limits = limiter()
    assert limits.try_start(0.0)
    limits.on_failure(refused(0.0, 10.0, StatusError("503", status_code=503)))
    assert not limits.try_start(9.9)
    assert limits.is_throttled(9.9)
    assert limits.try_start(10.0)
    assert not limits.try_start(10.5)


@pytest.mark.parametrize("rate", [None, 10.0])
def test_what_was_learned_in_one_event_loop_is_forgotten_in_the_next(
    anyio_backend: tuple[str, dict[str, Any]], rate: float | None
) -> None:
    limits = limiter(rate)

    async def learn() -> None:
        now = anyio.current_time()
        limits.use_loop(anyio.lowlevel.current_token().native_token, lambda: now)
        assert limits.try_start(now)
        limits.on_failure(refused(now, 1e9))
        limits.use_loop(anyio.lowlevel.current_token().native_token, lambda: now)
        assert limits.gate.opens_at > now

    async def start_again() -> None:
        now = anyio.current_time()
        limits.use_loop(anyio.lowlevel.current_token().native_token, lambda: now)
        assert (limits.gate.opens_at, limits.limit) == (-math.inf, rate)
        assert limits.try_start(now) is (rate is None)  # with a rate, the number of recent attempts is unknown
        assert limits.try_start(now + 0.1)

    anyio.run(learn, backend=anyio_backend[0])
    anyio.run(start_again, backend=anyio_backend[0])


def test_an_idle_time_changes_neither_the_limit_nor_the_measured_rate() -> None:
    limits = limiter()
    now = 0.0
    while now < 30:
        if limits.try_start(now):
            started, now = now, now + 0.01
            if 10 < now < 10.02:
                limits.on_failure(refused(started))
            else:
                limits.on_success(now, started)
        now += 0.01
    before = limits.limit
    assert before is not None
    now += 3600
    assert limits.try_start(now)
    limits.on_failure(refused(now))
    assert limits.limit is not None
    assert 40 < limits.limit < before  # 0.7 * 1.25 times the achieved rate


@virtual_time
async def test_usage_counts_what_was_wanted_answered_and_refused() -> None:
    limits, now = limiter(needs_share=True), anyio.current_time()
    limits.apply_share(1000.0, math.inf)
    for _ in range(5):
        assert limits.try_start(now)
    limits.on_success(now, now)
    limits.on_failure(FailedAttempt(StatusError("422", status_code=422), FailureKind.FINAL, now, now))
    limits.on_failure(refused(now, 2.0))
    limits.on_failure(refused(now, 1.0, StatusError("503", status_code=503)))
    async with anyio.create_task_group() as group:
        group.start_soon(limits.waiters.wait, limits.start_if_due)
        await anyio.wait_all_tasks_blocked()
        assert limits.take_usage(now + 0.5) == Usage(wanted=6, completed=2, refused=1, retry_after=1.5, paused=0.5)
        group.cancel_scope.cancel()
    assert limits.take_usage(now + 3) == Usage(wanted=0, completed=0, refused=0, retry_after=0.0, paused=1.5)
    limits.apply_share(1000.0, math.inf, hold_until=now + 4)
    assert limits.take_usage(now + 5) == Usage(paused=2.0)  # `now` is the time of the call: 2 s of the hold were paused before
    assert limits.limit == 1000.0  # the coordinator of the shares learns the limit


@virtual_time
async def test_a_refusal_of_an_attempt_older_than_a_lower_share_is_not_counted() -> None:
    limits, started = limiter(needs_share=True), anyio.current_time()
    limits.apply_share(1000.0, math.inf)
    assert limits.try_start(started)
    await anyio.sleep(0.5)
    limits.apply_share(100.0, math.inf)
    limits.on_failure(refused(started))
    assert limits.take_usage(anyio.current_time()).refused == 0


FORKING = """
import os
from outreach_async._core.limits import RateLimiter
from outreach_async._core.retry import RetryPolicy
limiter = RateLimiter(RetryPolicy(), max_in_flight=2)
assert limiter.try_start(0.0) and limiter.try_start(0.0)
child = os.fork()
if child == 0:
    os._exit(limiter.in_flight)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert limiter.in_flight == 2
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="on Windows no process is forked")
def test_in_a_forked_child_nothing_is_in_flight() -> None:
    subprocess.run([sys.executable, "-c", FORKING], check=True)


def test_attempts_started_before_a_fork_are_not_in_flight_after_it() -> None:
    limits = limiter(max_in_flight=1)
    assert limits.try_start(0.0)
    reset_all_after_fork()
    assert limits.try_start(0.0)


async def queue_for(slots: Slots, doomed: set[int], count: int, *, together: bool) -> list[int]:
    """Let many tasks wait for slots, cancel some of them before or as slots are released, and return those that were served."""
    served: list[int] = []
    scopes = [anyio.CancelScope() for _ in range(count)]
    for _ in range(slots.total):
        await slots.acquire()

    async def ask(number: int) -> None:
        with scopes[number]:
            await slots.acquire()
            served.append(number)
            slots.release()

    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(ask, number)
            await anyio.wait_all_tasks_blocked()
        for number in doomed:
            scopes[number].cancel()
        if not together:
            await anyio.wait_all_tasks_blocked()
        for _ in range(slots.total):
            slots.release()
    return served


@pytest.mark.parametrize("together", [False, True])
@settings(max_examples=scaled(30))
@given(st.integers(1, 3), st.integers(1, 12), st.sets(st.integers(0, 11), min_size=1), st.sampled_from(["asyncio", "trio"]))
def test_slots_are_first_come_first_served_and_cancelling_loses_none(
    together: bool, total: int, count: int, doomed: set[int], backend: str
) -> None:
    slots, doomed = Slots(total), {number for number in doomed if number < count}
    served = anyio.run(partial(queue_for, slots, doomed, count, together=together), backend=backend)
    patient = [number for number in served if number not in doomed]
    assert (patient if total == 1 else sorted(patient)) == [number for number in range(count) if number not in doomed]
    assert together or not doomed.intersection(served)  # otherwise, a task may get its slot before its cancellation
    assert slots.free == total


@given(st.integers(0, 50), st.lists(st.tuples(st.booleans(), st.integers(0, 20))))
def test_a_retry_budget_stays_between_zero_and_its_size(size: int, moves: list[tuple[bool, int]]) -> None:
    budget = RetryBudget(size)
    for spends, amount in moves:
        before = budget.remaining
        if spends:
            assert budget.try_spend(amount) is (amount <= before)
        else:
            budget.refund(amount)
        assert 0 <= budget.remaining <= size
