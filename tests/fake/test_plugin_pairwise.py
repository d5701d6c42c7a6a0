"""The pairwise cover: complete for any knobs, small for the fake's, deterministic; and its explanations of failures."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import combinations, product
from math import prod

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from outreach_async.fake import Behaviour
from outreach_async.fake.behaviour import KNOB_VALUES
from outreach_async.testing import differing, pairwise
from outreach_async.testing.orders import cover_pairs, find_explanations, summarize_failures
from outreach_async.testing.orders import format_setting as written

figures = st.lists(st.integers(1, 5), max_size=6)


@given(levels=figures)
def test_every_pair_of_levels_of_two_factors_is_in_a_row(levels: list[int]) -> None:
    rows = cover_pairs(levels)
    assert all(0 <= level < count for row in rows for level, count in zip(row, levels, strict=True))
    for (one, count), (other, many) in combinations(enumerate(levels), 2):
        assert {(row[one], row[other]) for row in rows} == set(product(range(count), range(many)))
    for factor, count in enumerate(levels):
        assert {row[factor] for row in rows} == set(range(count))


@given(levels=figures)
def test_a_cover_starts_with_the_defaults_and_has_no_duplicate_rows(levels: list[int]) -> None:
    rows = cover_pairs(levels)
    assert rows[0] == (0,) * len(levels)
    assert len(set(rows)) == len(rows) <= prod(levels)
    assert cover_pairs(levels) == rows


def test_about_thirty_behaviours_cover_the_knobs_of_the_fake() -> None:
    rows = pairwise()
    assert rows[0] == Behaviour()
    assert len(rows) <= 32
    for one, other in combinations(KNOB_VALUES, 2):
        met = [(getattr(row, one), getattr(row, other)) for row in rows]
        assert all(pair in met for pair in product(KNOB_VALUES[one], KNOB_VALUES[other])), (one, other)


def test_only_settings_that_differ_from_the_default_are_named() -> None:
    assert differing(Behaviour()) == {}
    assert differing(Behaviour(past_end="clamp", first_page=0)) == {"first_page": 0, "past_end": "clamp"}


# Explanations of failed rows

KNOBS = sorted(KNOB_VALUES)


def explain(fails: Callable[[Behaviour], bool]) -> list[str]:
    rows = pairwise()
    return find_explanations([row for row in rows if fails(row)], [row for row in rows if not fails(row)])


@pytest.mark.parametrize("knob", KNOBS)
def test_a_single_setting_that_fails_a_test_is_found(knob: str) -> None:
    for reading in KNOB_VALUES[knob]:
        assert f"{knob}={reading!r}" in explain(lambda row: getattr(row, knob) == reading)  # noqa: B023 - called at once


def test_two_settings_that_fail_a_test_together_are_found() -> None:
    found = explain(lambda row: row.past_end == "clamp" and row.numbers == "mixed")
    assert "numbers='mixed' and past_end='clamp'" in found


ALL_READINGS = sorted((knob, reading) for knob in KNOBS for reading in range(len(KNOB_VALUES[knob])))


def has(row: Behaviour, place: tuple[str, int]) -> bool:
    knob, number = place
    return bool(getattr(row, knob) == KNOB_VALUES[knob][number])


def named(place: tuple[str, int]) -> str:
    knob, number = place
    return f"{knob}={written(KNOB_VALUES[knob][number])}"


@given(places=st.lists(st.sampled_from(ALL_READINGS), min_size=2, max_size=2, unique=True))
def test_either_of_two_settings_that_fail_a_test_is_found(places: list[tuple[str, int]]) -> None:
    assume(any(not any(has(row, place) for place in places) for row in pairwise()))
    found = explain(lambda row: any(has(row, place) for place in places))
    assert " or ".join(sorted(map(named, places))) in found


def test_three_settings_that_fail_a_test_are_the_only_explanation() -> None:
    assert explain(lambda row: row.past_end == "clamp" or row.order == "newest" or row.numbers == "float") == [
        "numbers='float' or order='newest' or past_end='clamp'"
    ]


def test_a_setting_or_a_pair_that_fails_a_test_is_found() -> None:
    found = explain(lambda row: row.past_end == "clamp" or (row.numbers == "mixed" and row.order == "newest"))
    assert "numbers='mixed' and order='newest' or past_end='clamp'" in found


def test_every_explanation_fits_the_rows_and_is_minimal() -> None:
    def fails(row: Behaviour) -> bool:
        return row.created_status == 201 or row.campaign_max_display == 100

    for text in explain(fails):
        causes = [dict(part.split("=") for part in cause.split(" and ")) for cause in text.split(" or ")]
        hits = [{knob: written(getattr(row, knob)) for cause in causes for knob in cause} for row in pairwise()]
        explained = [any(cause.items() <= hit.items() for cause in causes) for hit in hits]
        assert explained == [fails(row) for row in pairwise()]
        assert len(causes) == 2


def test_a_failure_that_no_setting_explains_has_no_explanation() -> None:
    rows = pairwise()
    assert find_explanations([rows[0], rows[0]], rows) == []


def test_a_summary_names_the_test_the_counts_and_the_settings() -> None:
    rows = enumerate(pairwise())
    ran = [(f"test_a.py::test_x[asyncio-row{number:02}]", number, row.past_end == "clamp") for number, row in rows]
    failed = sum(bad for *_, bad in ran)
    line = f"test_a.py::test_x[asyncio-row*] failed under {failed} of {len(ran)} behaviours: those with past_end='clamp'"
    assert summarize_failures(ran) == [line]
    assert summarize_failures([*ran, *((name, row, False) for name, row, _ in ran)]) == [line], (
        "a row that failed once has failed"
    )


def test_a_summary_names_alternatives_and_each_explanation() -> None:
    def verdict(fails: Callable[[Behaviour], bool]) -> str:
        (line,) = summarize_failures((f"t[row{number:02}]", number, fails(row)) for number, row in enumerate(pairwise()))
        return line.partition(": ")[2]

    assert verdict(lambda row: row.past_end != "empty") == "those with past_end='clamp' or past_end='error'"
    several = verdict(lambda row: row.created_status == 201 or row.campaign_max_display == 100)
    assert "those with campaign_max_display=100 or created_status=201" in several.split("; or ")
    many = verdict(lambda row: row == pairwise()[5])
    assert many.count("; or ") == 8
    assert re.search(r"; or \d+ more explanations$", many)


def test_a_test_that_fails_or_passes_in_every_row_blames_no_setting() -> None:
    assert summarize_failures([("t[row00]", 0, True), ("t[row01]", 1, True)]) == ["t[row*] failed under 2 of 2 behaviours"]
    assert summarize_failures([("t[row00]", 0, False), ("t[row01]", 1, False)]) == []
