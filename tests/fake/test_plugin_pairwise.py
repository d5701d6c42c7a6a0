"""The pairwise cover: complete for any knobs, small for the fake's, deterministic; and the causes of failures."""

from __future__ import annotations

from itertools import combinations, product
from math import prod
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from outreach_async.fake import Behaviour
from outreach_async.fake.behaviour import KNOB_VALUES
from outreach_async.pytest_plugin._marker import find_causes, format_setting, summarize_failures
from outreach_async.testing import cover_pairs, differing, pairwise

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


SETTINGS = [(knob, value) for knob in KNOB_VALUES for value in KNOB_VALUES[knob][1:]]


@given(st.lists(st.sampled_from(SETTINGS), min_size=1, max_size=2, unique_by=lambda setting: setting[0]))
@example([("past_end", "clamp")])
def test_each_setting_that_makes_every_run_fail_is_named(settings: list[tuple[str, Any]]) -> None:
    def fails(behaviour: Behaviour) -> bool:
        return any(differing(behaviour).get(knob) == value for knob, value in settings)

    causes = find_causes(filter(fails, pairwise()), [row for row in pairwise() if not fails(row)])
    expected = {f"{knob}={format_setting(value)}" for knob, value in settings}
    assert expected == set(causes) if len(settings) == 1 else expected <= set(causes)


def test_a_failure_under_the_defaults_or_of_one_run_only_names_no_setting() -> None:
    assert find_causes(pairwise(), []) == ["all defaults"]
    assert find_causes([Behaviour(first_page=0)], [Behaviour(first_page=0, past_end="clamp")]) == []


def test_a_summary_names_the_test_the_counts_and_the_causes() -> None:
    ran = [
        (f"test_a.py::test_x[asyncio-row{number:02}]", number, row.past_end == "clamp") for number, row in enumerate(pairwise())
    ]
    line = f"test_a.py::test_x[asyncio-row*] failed under {sum(bad for _, _, bad in ran)} of {len(ran)} behaviours"
    again = [(name, row, False) for name, row, _ in ran]  # the teardown of a row that failed
    assert summarize_failures([*ran, *again]) == [f"{line}: it fails with past_end='clamp'"]
    assert summarize_failures(again) == []
    some = [(*ran[0][:2], False), (*ran[1][:2], True), (*ran[1][:2], False)]  # as with `-x`: any setting could be the cause
    assert summarize_failures(some) == ["test_a.py::test_x[asyncio-row*] failed under 1 of 2 behaviours"]
