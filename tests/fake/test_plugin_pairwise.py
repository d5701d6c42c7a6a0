"""The pairwise cover: complete for any knobs, small for the fake's, deterministic; and the causes of failures."""

from __future__ import annotations

from itertools import combinations, product
from math import prod
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from outreach_async.fake import Behaviour
from outreach_async.fake.behaviour import KNOB_VALUES
from outreach_async.testing import differing, pairwise
from outreach_async.testing._marker import cover_pairs, find_cause, has_cause, summarize_failures

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


# Causes of failures

KNOBS = sorted(KNOB_VALUES)
SETTINGS = [(knob, value) for knob in KNOBS for value in KNOB_VALUES[knob][1:]]


@given(
    st.sampled_from(pairwise()), st.lists(st.sampled_from(SETTINGS), max_size=4, unique_by=lambda setting: setting[0]).map(dict)
)
def test_all_settings_of_a_cause_are_necessary_and_all_others_are_defaults(row: Behaviour, settings: dict[str, Any]) -> None:
    failing = attrs.evolve(row, **settings)
    ran = []

    def fails(behaviour: Behaviour) -> bool:
        ran.append(behaviour)
        return settings.items() <= {**attrs.asdict(behaviour, recurse=False)}.items()

    assert find_cause(failing, fails) == Behaviour(**settings)
    assert len(ran) <= 1 + len(differing(failing))


def test_a_failure_that_does_not_repeat_has_no_cause() -> None:
    assert find_cause(pairwise()[3], lambda behaviour: behaviour != pairwise()[3]) is None


def test_a_behaviour_has_a_cause_if_it_has_all_of_its_settings() -> None:
    cause = Behaviour(first_page=0, past_end="clamp")
    assert has_cause(Behaviour(first_page=0, past_end="clamp", numbers="float"), [Behaviour(order="newest"), cause])
    assert not has_cause(Behaviour(first_page=0, past_end="error"), [cause])
    assert not has_cause(Behaviour(first_page=0), [])
    assert has_cause(Behaviour(first_page=0), [Behaviour()])


def test_a_summary_names_the_test_the_counts_and_each_cause_once() -> None:
    rows = list(enumerate(pairwise()))
    ran = [(f"test_a.py::test_x[asyncio-row{number:02}]", number, row.past_end == "clamp", None) for number, row in rows]
    failed = sum(bad for _, _, bad, _ in ran)
    line = f"test_a.py::test_x[asyncio-row*] failed under {failed} of {len(ran)} behaviours"
    assert summarize_failures(ran) == [line]
    assert summarize_failures([*ran, *((name, row, False, None) for name, row, _, _ in ran)]) == [line], "a row that failed once"
    causes = [(*ran[5][:2], False, cause) for cause in ("past_end='clamp'", "order='newest'", "past_end='clamp'")]
    assert summarize_failures([*ran, *causes]) == [f"{line}: it fails with past_end='clamp', or with order='newest'"]


def test_a_test_that_passes_in_every_row_is_not_in_the_summary() -> None:
    assert summarize_failures([("t[row00]", 0, False, None), ("t[row01]", 1, False, None)]) == []
