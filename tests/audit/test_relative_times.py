from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables import check_rows

from outreach_async.audit._values import DAY, HOUR, MINUTE, Interval, parse_relative_time

MONTH = 365.2425 / 12 * DAY

DAYJS = (
    ("a few seconds", 0, 44),
    ("a minute", 45, 89),
    *((f"{n} minutes", (n - 0.5) * MINUTE, (n + 0.5) * MINUTE) for n in range(2, 45)),
    ("an hour", 45 * MINUTE, 89 * MINUTE),
    *((f"{n} hours", (n - 0.5) * HOUR, (n + 0.5) * HOUR) for n in range(2, 22)),
    ("a day", 22 * HOUR, 35 * HOUR),
    *((f"{n} days", (n - 0.5) * DAY, (n + 0.5) * DAY) for n in range(2, 26)),
    ("a month", 26 * DAY, 45 * DAY),
    *((f"{n} months", (n - 0.5) * MONTH, (n + 0.5) * MONTH) for n in range(2, 11)),
    ("a year", 11 * MONTH, 17 * MONTH),
    *((f"{n} years", (n - 0.5) * 365.25 * DAY, (n + 0.5) * 365.25 * DAY) for n in (2, 3, 10, 40)),
)
"""Every English form of dayjs's plugin relativeTime, with the range of seconds it stands for."""


def test_a_dayjs_phrase_is_read_as_a_span_that_contains_the_time() -> None:
    def check(words: str, least: float, most: float) -> None:
        span = parse_relative_time(f"{words} ago")

        assert span is not None
        assert span.least <= least <= most <= span.most
        assert parse_relative_time(words) == span
        assert parse_relative_time(f"in {words}") == Interval(-span.most, -span.least)

    check_rows(DAYJS, check)


@pytest.mark.parametrize(
    ("words", "least", "most"),
    [
        ("1 minute ago", 60, 119),
        ("1 hour ago", HOUR, 2 * HOUR - 1),
        ("1 day ago", DAY, 2 * DAY - 1),
        ("6 days ago", 6 * DAY, 7 * DAY - 1),
        ("1 month ago", 30 * DAY, 60 * DAY - 1),
        ("11 months ago", 330 * DAY, 365 * DAY - 1),
        ("1 year ago", 365 * DAY, 730 * DAY - 1),
        ("2 weeks ago", 14 * DAY, 21 * DAY - 1),
    ],
)
def test_a_phrase_rounded_down_is_read_as_a_span_that_contains_the_time(words: str, least: float, most: float) -> None:
    span = parse_relative_time(words)
    assert span is not None
    assert span.least <= least <= most <= span.most


def test_the_span_is_narrow_enough_to_judge_by_whatever_the_case_and_the_spaces() -> None:
    assert parse_relative_time("13 days ago") == Interval(12.5 * DAY, 14 * DAY)
    assert parse_relative_time("  A  MONTH   ago ") == Interval(25.5 * DAY, 46.5 * DAY)
    assert parse_relative_time("15 days ago") == Interval(14.5 * DAY, 16 * DAY)


@pytest.mark.parametrize(
    "text", ["", "Never", "ago", "in", "yesterday", "1 fortnight ago", "-1 days ago", "1.5 days", "9999999 days"]
)
def test_other_words_have_no_span(text: str) -> None:
    assert parse_relative_time(text) is None


@given(st.one_of(st.text(), st.builds("{} {} {}".format, st.integers(), st.text(max_size=8), st.text(max_size=4))))
def test_no_string_raises(text: str) -> None:
    span = parse_relative_time(text)
    assert span is None or span.least <= span.most
