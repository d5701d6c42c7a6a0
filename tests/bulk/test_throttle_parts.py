"""The parts of the throttle: the rate limit, the schedule, failure counting, the breaker, quotas and the queue."""

from __future__ import annotations

import itertools
import math
from functools import partial

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.time import virtual_time

from outreach_async.bulk import breaker
from outreach_async.bulk.breaker import Breaker, FailureWindow, Reachability
from outreach_async.limiter import FifoWaiters
from outreach_async.rate import (
    BETA,
    FLOOR,
    SPACING,
    TOLERANCE,
    CubicLimit,
    Quota,
    QuotaTracker,
    RateMeter,
    Schedule,
    SlowStart,
    has_quota,
    parse_quota,
)
from outreach_async.testing import VirtualTime

seconds = st.floats(0.001, 30)
rates = st.floats(0.5, 2000)


# The rate


@given(st.lists(st.tuples(seconds, st.booleans(), st.floats(0, 1000)), max_size=60))
def test_the_limit_stays_in_its_bounds_and_only_throttling_lowers_it(
    moves: list[tuple[float, bool, float]],
) -> None:
    cubic, now, cut_at, most, vain = CubicLimit(), 0.0, -math.inf, 10.0, 0
    for gap, refused, achieved in moves:
        now += gap
        most = max(most, 2 * achieved)
        before = cubic.limit
        if refused and cubic.is_about_current_rate(now, now):
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
    assert cubic.is_about_current_rate(10.0, 9.9)
    cubic.cut(10.0, 100.0)
    assert not cubic.is_about_current_rate(11.0, 9.9)
    assert not cubic.is_about_current_rate(10.4, 10.1)
    assert cubic.is_about_current_rate(10.5, 10.1)


def test_successes_just_after_the_first_cut_still_raise_the_limit() -> None:
    early, late = CubicLimit(), CubicLimit()
    for cubic, at in ((early, 0.3), (late, 0.6)):
        cubic.cut(0.0, 2.0)
        cubic.grow(at, 200.0)
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


@settings(max_examples=40)
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


def test_idle_time_does_not_count_as_a_slow_rate() -> None:
    meter = RateMeter()
    for number in range(1, 300):
        meter.add(number / 100, (number - 1) / 100)
    meter.restart(1000.0, 1010.0)
    assert meter.rate(1005.0) == pytest.approx(100, rel=0.1)
    for number in range(1, 100):
        meter.add(1010 + number / 50, 0.0)
    assert meter.rate(1012.0) == pytest.approx(50, rel=0.1)


# The schedule


@given(st.lists(st.tuples(st.floats(1, 1000), st.floats(0, 0.1)), min_size=1, max_size=80))
def test_starts_are_spaced_by_the_rate_within_the_tolerance(steps: list[tuple[float, float]]) -> None:
    pace, now, starts = Schedule(), 0.0, []
    for rate, idle in steps:
        now = max(now + idle, pace.next_start(rate))
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
        now = max(now, pace.next_start(rate) + late)
    assert now <= len(lateness) / rate + 1e-6


def test_a_changed_rate_applies_to_the_next_start() -> None:
    pace = Schedule()
    pace.record_start(1.0, 100.0)
    assert pace.next_start(0.1) == pytest.approx(110 - TOLERANCE)
    assert pace.next_start(10.0) == pytest.approx(100.1 - TOLERANCE)


def test_after_a_pause_the_rate_rises_from_half_to_full() -> None:
    ramp = SlowStart()
    assert ramp.rate(None, 0.0) is None
    ramp.start(10.0, 100.0)
    assert [ramp.rate(None, at) for at in (9.0, 10.0, 11.0, 12.0)] == [50.0, 50.0, 75.0, None]
    assert [ramp.rate(60.0, at) for at in (10.0, 11.0, 12.0)] == [50.0, 60.0, 60.0]


# Failure counting


@given(st.lists(st.booleans(), max_size=300))
def test_the_service_is_failing_when_half_of_the_last_100_results_are_faults(results: list[bool]) -> None:
    health = FailureWindow()
    for number, good in enumerate(results, 1):
        health.record_success() if good else health.record_fault(0)
        window = results[max(0, number - 100) : number]
        assert health.size == len(window)
        assert health.is_failing is (len(window) >= 20 and window.count(False) * 2 >= len(window))


@given(st.lists(st.booleans(), max_size=150))
def test_a_fault_counts_against_its_row_unless_many_neighbours_fail_too(results: list[bool]) -> None:
    health = FailureWindow()
    for good in results:
        health.record_success() if good else health.record_fault(0)
    window = results[-100:]
    assert health.counts_against_row(0) is (len(window) < 20 or window.count(True) >= 0.9 * len(window))


def test_earlier_failures_of_a_row_do_not_excuse_it() -> None:
    health = FailureWindow()
    for _ in range(18):
        health.record_success()
    for blamed in (0, 1, 2):
        health.record_fault(blamed)
    assert health.counts_against_row(3)
    assert not all([health.counts_against_row(0), health.size < 20])
    health.record_success()
    health.record_success()
    assert health.counts_against_row(3)
    assert not health.counts_against_row(0)


def test_faults_older_than_the_last_100_results_are_forgotten() -> None:
    health = FailureWindow()
    for _ in range(60):
        health.record_fault(0)
    for _ in range(95):
        health.record_success()
    assert not health.is_failing
    assert health.counts_against_row(0)


def test_clearing_forgets_earlier_results() -> None:
    health = FailureWindow()
    for _ in range(50):
        health.record_fault(0)
    assert health.is_failing
    health.clear()
    assert health.size == 0
    assert not health.is_failing


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
            (self.breaker.on_probe_failure if end == "failed" else self.breaker.on_probe_refusal)(self.now)
        self.probe = None
        assert self.breaker.closed is (end == "close")

    @invariant()
    def a_pause_has_an_end_and_what_began_before_the_probe_is_not_it(self) -> None:
        assert self.breaker.opens_at <= self.now + max(breaker.MAX_PAUSE, breaker.PROBE_LEASE)
        assert not self.breaker.closed or self.breaker.opens_at <= self.now
        assert not self.breaker.is_probe(-1.0)
        assert self.breaker.is_probe(self.now) is (self.probe is not None)


TestBreakers = Breakers.TestCase
TestBreakers.settings = settings(max_examples=40, stateful_step_count=30)


def test_pauses_double_up_to_the_maximum_and_restart_after_a_success() -> None:
    opened, now, pauses = Breaker(), 0.0, []
    opened.trip(now)
    for _ in range(6):
        pauses.append(opened.opens_at - now)
        now = opened.opens_at
        opened.record_start(now)
        opened.on_probe_failure(now)
    assert pauses == [5, 10, 20, 40, 60, 60]
    opened.close()
    opened.trip(now)
    assert opened.opens_at == now + 5


# Outages and unreachable services


def test_simultaneous_failures_count_as_one_round() -> None:
    contact = Reachability()
    assert [contact.record_failure(*attempt) for attempt in ((0, 1), (0, 1.5), (1, 2), (1.5, 3), (3, 4))] == [
        True,
        False,
        True,
        False,
        True,
    ]
    assert contact.rounds == 3


# Quotas

WALL = 1_767_225_600.0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"x-ratelimit-limit": "60", "x-ratelimit-remaining": "12", "x-ratelimit-reset": "30"}, Quota(12, 30, 60)),
        ({"ratelimit-limit": "60, 60;w=60", "ratelimit-remaining": "12", "ratelimit-reset": "30"}, Quota(12, 30, 60)),
        ({"ratelimit": "limit=60, remaining=12, reset=30"}, Quota(12, 30, 60)),
        ({"ratelimit": '"default";r=12;t=30', "ratelimit-policy": '"default";q=60;w=60'}, Quota(12, 30, 60)),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1.5"}, Quota(0, 1.5)),
        ({"x-ratelimit-remaining": "1", "x-ratelimit-reset": "1767225630"}, Quota(1, 30)),
        (
            {"x-ratelimit-remaining": "1", "x-ratelimit-reset": "1767225630", "date": "Thu, 01 Jan 2026 00:00:20 GMT"},
            Quota(1, 10),
        ),
        ({"x-ratelimit-remaining": "1", "x-ratelimit-reset": "1767225630", "date": "never"}, Quota(1, 30)),
        ({"x-ratelimit-remaining": "1", "x-ratelimit-reset": "1767225590"}, Quota(1, 0)),
        ({"x-ratelimit-remaining": "5"}, None),
        ({"x-ratelimit-remaining": "many", "x-ratelimit-reset": "soon"}, None),
        ({"ratelimit": "?"}, None),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_a_quota_is_parsed_from_every_known_header(headers: dict[str, str], expected: Quota | None) -> None:
    assert has_quota(headers)
    assert parse_quota(headers, lambda: WALL) == expected


def test_a_response_without_a_remaining_count_reports_no_quota() -> None:
    assert not has_quota({"x-ratelimit-limit": "60", "content-type": "application/json"})


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 20))
def test_a_quota_bounds_the_attempts_until_it_resets(left: int, in_flight: int, failed: int) -> None:
    allowance = QuotaTracker()
    assert allowance.opens_at(0.0) == -math.inf
    allowance.apply(Quota(left, 30, 60), started=1.0, now=2.0, in_flight=in_flight)
    for _ in range(failed):
        allowance.refund()
    started_count = 0
    while allowance.opens_at(3.0) <= 3.0:
        allowance.record_start(3.0)
        started_count += 1
    assert started_count == max(0, left - in_flight + failed)
    assert allowance.opens_at(3.0) == 32.0
    started_count = 0
    while allowance.opens_at(32.0) <= 32.0:
        allowance.record_start(32.0)
        started_count += 1
    assert started_count == 60


def test_a_response_to_an_older_attempt_does_not_update_the_quota() -> None:
    allowance = QuotaTracker()
    allowance.apply(Quota(0, 30), started=5.0, now=6.0, in_flight=0)
    allowance.apply(Quota(9, 30), started=4.0, now=7.0, in_flight=0)
    assert allowance.opens_at(8.0) == 36.0


# The queue


async def stand(line: FifoWaiters, doomed: set[int], count: int) -> list[int]:
    """Let many tasks queue for one start per second, cancel some of them, and return who was served."""
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


@settings(max_examples=30)
@given(st.integers(1, 12), st.sets(st.integers(0, 11)), st.sampled_from(["asyncio", "trio"]))
def test_turns_are_first_come_first_served_and_cancelling_loses_none(count: int, doomed: set[int], backend: str) -> None:
    line, doomed = FifoWaiters(), {number for number in doomed if number < count}  # cancelled before anyone's turn
    served = anyio.run(partial(stand, line, doomed, count), backend=backend, backend_options=VirtualTime().options(backend))
    assert served == [number for number in range(count) if number not in doomed]
    assert not line


@virtual_time
async def test_the_first_waiter_wakes_for_a_turn_sooner_by_a_millisecond_or_more() -> None:
    line = FifoWaiters()
    opens, looks = [anyio.current_time() + 1000], itertools.count()

    def take(_: float) -> float:
        next(looks)
        return opens[0]

    line.wake_first(0.0)  # nobody is there
    async with anyio.create_task_group() as group:
        group.start_soon(line.wait, take)
        await anyio.wait_all_tasks_blocked()
        line.wake_first(opens[0] - 0.0005)
        await anyio.wait_all_tasks_blocked()
        assert next(looks) == 1
        opens[0] = anyio.current_time()
        line.wake_first(opens[0])
    assert not line


def test_restarting_the_meter_keeps_what_it_has_measured() -> None:
    meter = RateMeter()
    for number in range(1, 5):
        meter.add(number / 10, 0.0)
    meter.restart(0.5, 10.5)
    assert meter.rate(11.5) > 1
