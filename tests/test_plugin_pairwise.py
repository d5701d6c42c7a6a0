"""The pairwise cover: complete for any knobs, small for the fake's, the same every time; and what it tells of failures."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outreach_async.fake import Behaviour
from outreach_async.fake.behaviour import READINGS
from outreach_async.testing import differing, pairwise
from outreach_async.testing.pairwise import cover
from outreach_async.testing.suspects import suspects, verdicts

figures = st.lists(st.integers(1, 5), max_size=6)


@given(levels=figures)
def test_any_two_levels_of_two_factors_meet_in_a_row(levels: list[int]) -> None:
    rows = cover(levels)
    assert all(0 <= level < count for row in rows for level, count in zip(row, levels, strict=True))
    for (one, count), (other, many) in combinations(enumerate(levels), 2):
        assert {(row[one], row[other]) for row in rows} == set(product(range(count), range(many)))
    for factor, count in enumerate(levels):
        assert {row[factor] for row in rows} == set(range(count))


@given(levels=figures)
def test_a_cover_begins_with_the_defaults_has_no_row_twice_and_never_more_than_all(levels: list[int]) -> None:
    rows = cover(levels)
    assert rows[0] == (0,) * len(levels)
    assert len(set(rows)) == len(rows) <= prod(levels)
    assert cover(levels) == rows


def test_about_thirty_behaviours_cover_the_knobs_of_the_fake() -> None:
    rows = pairwise()
    assert rows[0] == Behaviour()
    assert len(rows) <= 32
    for one, other in combinations(READINGS, 2):
        met = [(getattr(row, one), getattr(row, other)) for row in rows]
        assert all(pair in met for pair in product(READINGS[one], READINGS[other])), (one, other)


def test_what_differs_from_the_default_is_named_and_nothing_else() -> None:
    assert differing(Behaviour()) == {}
    assert differing(Behaviour(past_end="clamp", first_page=0)) == {"first_page": 0, "past_end": "clamp"}


# What the rows that failed have in common

KNOBS = sorted(READINGS)


def told(fails: Callable[[Behaviour], bool]) -> list[str]:
    rows = pairwise()
    return suspects([row for row in rows if fails(row)], [row for row in rows if not fails(row)])


@pytest.mark.parametrize("knob", KNOBS)
def test_a_single_reading_that_a_test_cannot_bear_is_found(knob: str) -> None:
    for reading in READINGS[knob]:
        assert f"{knob}={reading!r}" in told(lambda row: getattr(row, knob) == reading)  # noqa: B023 - called at once


def test_two_readings_that_a_test_cannot_bear_together_are_found() -> None:
    found = told(lambda row: row.past_end == "clamp" and row.numbers == "mixed")
    assert "numbers='mixed' and past_end='clamp'" in found


def test_a_failure_that_no_reading_explains_accuses_none() -> None:
    rows = pairwise()
    assert suspects([rows[0], rows[0]], rows) == []


def test_a_verdict_names_the_test_the_figures_and_the_readings() -> None:
    rows = enumerate(pairwise())
    ran = [(f"test_a.py::test_x[asyncio-row{number:02}]", number, row.past_end == "clamp") for number, row in rows]
    failed = sum(bad for *_, bad in ran)
    line = f"test_a.py::test_x[asyncio-row*] failed under {failed} of {len(ran)} behaviours: those with past_end='clamp'"
    assert verdicts(ran) == [line]
    assert verdicts([*ran, *((name, row, False) for name, row, _ in ran)]) == [line], "a row that failed once has failed"


def test_a_test_that_fails_or_passes_under_every_behaviour_accuses_no_reading() -> None:
    assert verdicts([("t[row00]", 0, True), ("t[row01]", 1, True)]) == ["t[row*] failed under 2 of 2 behaviours"]
    assert verdicts([("t[row00]", 0, False), ("t[row01]", 1, False)]) == []
