from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outreach_async.audit.values import format_number, format_percent, valid_or_none, valid_or_zero, wilson_lower

SAMPLES = st.integers(1, 100_000).flatmap(lambda sent: st.tuples(st.integers(0, sent), st.just(sent)))


@given(SAMPLES)
def test_the_lower_bound_is_a_share_no_greater_than_the_naive_rate(sample: tuple[int, int]) -> None:
    bounced, sent = sample

    assert 0 <= wilson_lower(bounced, sent) <= bounced / sent


@given(SAMPLES, st.integers(0, 1000))
def test_the_lower_bound_never_falls_with_more_bounces(sample: tuple[int, int], more: int) -> None:
    bounced, sent = sample

    assert wilson_lower(min(sent, bounced + more), sent) >= wilson_lower(bounced, sent) - 1e-12


@given(SAMPLES, st.integers(2, 50))
def test_the_lower_bound_never_falls_with_more_e_mails_at_the_same_rate(sample: tuple[int, int], times: int) -> None:
    bounced, sent = sample

    assert wilson_lower(times * bounced, times * sent) >= wilson_lower(bounced, sent) - 1e-12


@given(SAMPLES)
def test_the_lower_bound_is_1_645_standard_errors_below_the_naive_rate(sample: tuple[int, int]) -> None:
    bounced, sent = sample
    bound = wilson_lower(bounced, sent)

    standard_error = math.sqrt(bound * (1 - bound) / sent)

    assert math.isclose(bounced / sent - bound, 1.6448536 * standard_error, rel_tol=1e-6, abs_tol=1e-9)


def _tail(trials: int, rate: float, least: int) -> float:
    below = sum(math.comb(trials, n) * rate**n * (1 - rate) ** (trials - n) for n in range(least))
    return 1 - below


def _alarms(trials: int, rate: float) -> float:
    """Return how often the bound reaches 2 % at this true rate."""
    return _tail(trials, rate, next(n for n in range(trials) if wilson_lower(n, trials) >= 0.02))


def test_a_healthy_mailbox_is_misjudged_at_most_once_in_a_thousand() -> None:
    assert _tail(200, 0.01, 5) > 0.05  # how often a naive rate would exceed 2 %
    assert _alarms(200, 0.01) == pytest.approx(0.001, abs=0.0001)
    assert _alarms(660, 0.05) == pytest.approx(0.995, abs=0.001)


def test_more_bounces_than_e_mails_count_as_all_of_them() -> None:
    assert wilson_lower(80, 50) == wilson_lower(50, 50)


@given(st.one_of(st.integers(), st.floats(), st.just(10**400)))
def test_a_value_is_valid_only_if_it_can_be_a_count(value: float) -> None:
    assert valid_or_none(value) == (value if 0 <= value <= 10**15 else None)
    assert valid_or_zero(value) == (valid_or_none(value) or 0)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (2000, "2,000"), (2000.0, "2,000"), (12.345, "12.35"), (10**15, "1,000,000,000,000,000")]
)
def test_whole_numbers_are_written_without_decimals(value: float, text: str) -> None:
    assert format_number(value) == text


def test_shares_are_written_as_percentages() -> None:
    assert format_percent(0.0625) == "6.2 %"
