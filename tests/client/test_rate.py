"""The pure parts of rate limits: the token bucket, the learned limit, the schedule and quotas."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.rates import most_in_excess

from outreach_async._core.limits import BETA, FLOOR, SPACING, TOLERANCE, RateMeter, Schedule, TokenBucket
from outreach_async._plumbing import CubicLimit

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


def test_restarting_the_meter_keeps_what_it_has_measured() -> None:
    meter = RateMeter()
    for number in range(1, 5):
        meter.add(number / 10, 0.0)
    meter.restart(0.5, 10.5)
    assert meter.rate(11.5) > 1


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


def test_a_changed_rate_applies_to_the_next_start() -> None:
    pace = Schedule()
    pace.record_start(1.0, 100.0)
    assert pace.next_start(0.1, 100.0) == pytest.approx(110 - TOLERANCE)
    assert pace.next_start(10.0, 100.0) == pytest.approx(100.1 - TOLERANCE)


def test_after_a_pause_the_rate_rises_from_half_to_full() -> None:
    ramp = Schedule()
    assert ramp.rate(None, 0.0) is None
    ramp.start_slowly(10.0, 100.0)
    assert [ramp.rate(None, at) for at in (9.0, 10.0, 11.0, 12.0)] == [50.0, 50.0, 75.0, None]
    assert [ramp.rate(60.0, at) for at in (10.0, 11.0, 12.0)] == [50.0, 60.0, 60.0]
