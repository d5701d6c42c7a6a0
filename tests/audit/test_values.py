from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.campaigns import campaign, case, fields, judged, step, template

from outreach_async.audit import Policy
from outreach_async.audit._rules import FieldNames
from outreach_async.audit._values import (
    format_at_least,
    format_at_most,
    format_number,
    format_percent,
    lower_bound,
    upper_bound,
    valid_or_none,
    valid_or_zero,
)

SAMPLES = st.integers(1, 100_000).flatmap(lambda sent: st.tuples(st.integers(0, sent), st.just(sent)))


@given(SAMPLES, st.integers(0, 1000), st.integers(2, 50))
def test_the_lower_bound_never_falls_with_more_bounces_or_e_mails(sample: tuple[int, int], more: int, times: int) -> None:
    bounced, sent = sample
    least = lower_bound(bounced, sent) - 1e-12
    assert lower_bound(min(sent, bounced + more), sent) >= least
    assert lower_bound(times * bounced, times * sent) >= least


def _tail(trials: int, rate: Fraction, least: int) -> Fraction:
    """Return the exact probability of `least` or more events."""
    part, whole = rate.as_integer_ratio()
    below = sum(math.comb(trials, n) * part**n * (whole - part) ** (trials - n) for n in range(least))
    return 1 - Fraction(below, whole**trials)


def _first_alarm(trials: int, threshold: float) -> int:
    """Return the smallest number of events whose bound reaches the threshold."""
    return bisect_left(range(trials + 1), threshold, key=lambda events: lower_bound(events, trials))


def assert_at_most_5_percent_false_alarms(trials: int) -> None:
    """Prove for every threshold that at most 5 % of the samples are false alarms, if the true rate is at most the threshold."""
    # The bound reaches a threshold from some number of events on. The probability of that many events grows with the true rate,
    # so it is largest if the true rate, the threshold and the bound are equal.
    for events in range(1, trials + 1):
        lower, upper = lower_bound(events, trials), upper_bound(trials - events, trials)
        assert 0.0499999 < _tail(trials, Fraction(lower), events) <= Fraction(1, 20)
        assert 0.0499999 < 1 - _tail(trials, Fraction(upper), trials - events + 1) <= Fraction(1, 20)


@pytest.mark.parametrize("trials", [1, 2, 7, 23])
def test_at_most_5_percent_are_false_alarms_at_every_threshold(trials: int) -> None:
    assert_at_most_5_percent_false_alarms(trials)


@pytest.mark.thorough
def test_at_most_5_percent_are_false_alarms_in_every_small_sample() -> None:
    for trials in range(1, 71):
        assert_at_most_5_percent_false_alarms(trials)


def test_the_alarms_of_an_exact_test_are_all_raised() -> None:
    for trials, threshold in (66, Fraction(1, 100)), (200, Fraction(1, 50)), (1000, Fraction(1, 20)):
        first = _first_alarm(trials, float(threshold))
        assert _tail(trials, threshold, first) <= Fraction(1, 20) < _tail(trials, threshold, first - 1)


def test_more_than_a_million_trials_count_as_a_million_at_the_same_rate() -> None:
    assert lower_bound(10**13, 5 * 10**14) == lower_bound(20_000, 10**6) < 0.02
    assert upper_bound(10**13, 5 * 10**14) == upper_bound(20_000, 10**6) > 0.02
    assert lower_bound(3, 10**15) == 0


def test_parts_of_an_event_and_events_beyond_the_trials_do_not_count() -> None:
    assert lower_bound(2.9, 49.1) == lower_bound(2, 50)
    assert lower_bound(80, 50) == lower_bound(50, 50)


@given(st.one_of(st.integers(), st.floats(), st.just(10**400)))
def test_a_value_is_valid_only_if_it_can_be_a_count(value: float) -> None:
    assert valid_or_none(value) == (value if 0 <= value <= 10**15 else None)
    assert valid_or_zero(value) == (valid_or_none(value) or 0)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (2000, "2,000"), (2000.0, "2,000"), (12.345, "12.35"), (10**15, "1,000,000,000,000,000")]
)
def test_whole_numbers_are_written_without_decimals(value: float, text: str) -> None:
    assert format_number(value) == text


def test_a_share_is_a_percentage_and_a_bound_is_rounded_to_stay_true() -> None:
    assert (format_percent(0.0625), format_at_least(0.0199), format_at_most(0.0191)) == ("6.2 %", "1.9 %", "2.0 %")


@pytest.mark.parametrize("rule", ["OA210", "OA212"])
def test_a_rate_whose_bound_is_exactly_the_threshold_is_reported(rule: str) -> None:
    bound = lower_bound(20, 1000)
    one = case(campaign(bounces_num=20), [step(template(sent=1000, replied_num=0, unsubscribed_num=20))])

    def rules(threshold: float) -> list[str]:
        return judged(one, policy=Policy.of({rule: {"warning": threshold}})).rows[0].rules

    assert rule in rules(bound)
    assert rule not in rules(math.nextafter(bound, 1))


def test_a_repeated_misspelling_is_looked_up_once() -> None:
    names = FieldNames(fields())
    assert names.suggest("frist_name") == ("first_name", True)
    assert names.suggest("frist_name") is names.suggest("frist_name")
