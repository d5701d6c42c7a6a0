from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.audit import NOW, mailbox
from support.campaigns import campaign, case, judged, use_of
from support.tables import check_rows

from outreach_async.audit import RULES, check
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


def in_dayjs(seconds: float) -> str:
    return next(words for words, _, most in DAYJS if seconds <= most + DAY / 48)


def rounded_down(seconds: float, *units: tuple[str, int]) -> str:
    name, days = next(unit for unit in units if seconds >= unit[1] * DAY or unit[0] == "day")
    return f"{int(seconds / DAY / days)} {name}s ago"


WORDINGS: Final[dict[str, Callable[[float], str]]] = {
    "dayjs": in_dayjs,
    "days": lambda seconds: rounded_down(seconds, ("day", 1)),
    "weeks": lambda seconds: rounded_down(seconds, ("year", 365), ("month", 30), ("week", 7), ("day", 1)),
    "months": lambda seconds: rounded_down(seconds, ("year", 365), ("month", 30), ("day", 1)),
    "hours": lambda seconds: f"{int(seconds / HOUR)} hours ago",
}
"""How services word the time since an event."""


def of_mailbox(**about: Any) -> Callable[[str], set[str]]:
    def judge(words: str) -> set[str]:
        given = {name: words if value is WORDINGS else value for name, value in about.items()}
        return {found.rule for found in check(mailbox(**given), now=NOW)}

    return judge


def of_campaign(**about: Any) -> Callable[[str], set[str]]:
    def judge(words: str) -> set[str]:
        one = campaign(created=NOW - 900 * DAY, last_activity=words, **about)
        return set(judged(case(one, fields_read=False)).rows[0].rules)

    return judge


def counted(words: str) -> set[str]:
    return {"OA240"} if use_of([mailbox(age=words, created_at=0)]).mailboxes else set()


AGE: Final[dict[str, Any]] = {"created_at": 0, "age": WORDINGS}
ACTIVITY: Final[dict[str, Any]] = {"last_activity": WORDINGS}
BOUNDARIES: Final[list[tuple[str, Callable[[str], set[str]], float, float]]] = [
    ("OA131", of_mailbox(type="Google", daily_limit=41, **AGE), 0, 365),
    ("OA132", of_mailbox(daily_limit=11, **AGE), 0, 14),
    ("OA132", of_mailbox(daily_limit=31, **AGE), 0, 28),
    ("OA133", of_mailbox(sent_30days=0, **AGE), 30, 900),
    ("OA140", of_mailbox(campaigns=1, **ACTIVITY), 14, 900),
    ("OA150", of_mailbox(opened_14days=0, **ACTIVITY), 0, 14),
    ("OA201", of_campaign(status="live"), 4, 900),
    ("OA205", of_campaign(status="draft"), 30, 900),
    ("OA206", of_campaign(status="paused"), 30, 900),
    ("OA240", counted, 30, 900),
]
"""Each rule with a relative time: what it finds for a wording, and between how many days it is right."""


@pytest.mark.parametrize("wording", WORDINGS)
def test_no_rule_is_wrong_on_a_day_at_its_boundary_in_any_wording(wording: str) -> None:
    for rule, judge, least, most in BOUNDARIES:
        times = [day + part for day in (0, 1, 7, *range(10, 50), *range(355, 380), 800) for part in (0.01, 0.3, 0.5, 0.99)]
        fires = [time for time in times if rule in judge(WORDINGS[wording](time * DAY))]
        wrong = [time for time in fires if not least <= time <= most]
        assert (rule, wrong, bool(fires)) == (rule, [], True)


def test_every_rule_about_days_has_a_boundary_in_the_table() -> None:
    about_other_days = {"OA204", "OA211"}  # their times are numbers of seconds
    assert {rule.id for rule in RULES if any("days" in name for name in rule.thresholds)} - about_other_days <= {
        rule for rule, *_ in BOUNDARIES
    }
