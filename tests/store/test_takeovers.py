"""A run that stalls while another run takes over its journal reports no false outcome and sends no new row."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import get_args

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.scenarios import ROW, Scenario
from support.takeovers import LedgerTakeover, Takeover

from outreach_async import DuplicatePolicy
from outreach_async.errors import JournalError

LONG = 60.0


def scene(duplicates: DuplicatePolicy = "skip", rows: int = 8, trouble: float = 0.3, concurrency: int = 2) -> Scenario:
    people = [{"email": f"user{index}@a.example", ROW: str(index)} for index in range(rows)]
    before = [person["email"] for person in people[::3]]
    return Scenario(
        rows=people, before=before, duplicates=duplicates, trouble=trouble, concurrency=concurrency, seed=5, attempts=4
    )


def played(point: int, seconds: float, backend: str = "asyncio", given: Scenario | None = None) -> Takeover:
    takeover = Takeover(given or scene(), backend, point, seconds)
    takeover.play()
    return takeover


SCENES = st.builds(
    lambda seed, *options: attrs.evolve(scene(*options), seed=seed),
    st.integers(0, 2**16),
    st.sampled_from(get_args(DuplicatePolicy)),
    st.sampled_from([8, 20]),
    st.sampled_from([0.0, 0.3]),
    st.integers(1, 8),
)
STALLS = st.dictionaries(st.integers(1, 80), st.sampled_from([0.5, 3.0, 4.0, 6.0, LONG]), max_size=12)
PUTS = st.dictionaries(
    st.integers(1, 20), st.sampled_from([*["lost reply"] * 9, "503", "503 after the write", "unmounted"]), max_size=5
)


@pytest.mark.thorough
@settings(max_examples=scaled(40))
@given(SCENES, st.sampled_from(["asyncio", "trio"]), st.integers(5, 60), st.sampled_from([0.0, 4.0, LONG]), STALLS, PUTS)
def test_a_run_that_stands_still_and_loses_replies_sends_only_what_it_may(  # noqa: PLR0917 - drawn arguments
    given_scene: Scenario, backend: str, point: int, seconds: float, stalls: Mapping[int, float], puts: Mapping[int, str]
) -> None:
    takeover = Takeover(given_scene, backend, point, seconds, stalls=stalls, puts=puts)
    takeover.play()
    assert list(takeover.violations()) == []


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_run_that_stands_still_during_a_heartbeat_writes_another(backend: str) -> None:
    """Make heartbeats due by sending one row at a time with points 4 seconds apart."""
    heartbeats = [
        Takeover(scene(concurrency=1), backend, 10_000, 0.0, stalls={**dict.fromkeys(range(5, point), 4.0), point: LONG})
        for point in range(8, 24)
    ]
    for each in heartbeats:
        each.play()
        assert list(each.violations()) == []


@pytest.mark.nightly
@pytest.mark.parametrize("seconds", [0.0, LONG])
@pytest.mark.parametrize(
    ("duplicates", "backend"), [("skip", "asyncio"), ("overwrite", "trio"), ("update_missing_fields", "asyncio")]
)
def test_a_takeover_at_any_point_makes_no_label_false(duplicates: DuplicatePolicy, backend: str, seconds: float) -> None:
    happened = 0
    for point in count(1):
        takeover = played(point, seconds, backend, scene(duplicates))
        assert list(takeover.violations()) == [], f"point {point}"
        happened += takeover.happened
        if point > 5 and not takeover.happened:  # at the first points there is no journal to take over
            break
    assert happened > 25


@pytest.mark.covers
@pytest.mark.thorough
def test_a_run_that_was_taken_over_ends_with_an_error() -> None:
    ends = [played(point, LONG) for point in range(5, 30, 3)]
    errors = [str(error) for each in ends for error in each.errors]
    assert len(errors) > 5
    assert all("memory://run: another run has taken over the journal; this run sends nothing more" in error for error in errors)


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_after_a_long_stop_a_run_that_was_taken_over_sends_nothing_new(backend: str) -> None:
    for point in range(5, 40, 4):
        takeover = played(point, LONG, backend, scene(rows=30, concurrency=4))
        assert takeover.happened
        assert takeover.sent_after == set(), f"point {point}"


@pytest.mark.parametrize("write", range(3, 9))
def test_a_run_whose_folder_is_unmounted_makes_no_label_false(write: int) -> None:
    takeover = Takeover(scene(rows=30, trouble=0.0), "asyncio", 10_000, 0.0, puts={write: "unmounted"})
    takeover.play()
    assert list(takeover.violations()) == []
    assert [type(error) for error in takeover.errors] == [JournalError]


@pytest.mark.thorough
def test_after_a_short_stop_a_run_that_was_taken_over_may_send_marked_rows() -> None:
    assert any(played(point, 0.0, given=scene(rows=30, concurrency=4)).sent_after for point in range(5, 40, 4))


def test_the_rows_of_an_undisturbed_run_are_certain() -> None:
    takeover = played(10_000, 0.0, given=scene(trouble=0.0))
    assert not takeover.happened
    assert all(outcome.certain for outcome in takeover.delivered)
    assert list(takeover.violations()) == []


@pytest.mark.thorough
def test_with_a_clock_that_stands_still_a_run_that_was_taken_over_sends_more() -> None:
    takeovers = [Takeover(scene(rows=30, concurrency=4), "asyncio", point, LONG, clock=lambda: 0.0) for point in range(5, 40, 4)]
    for takeover in takeovers:
        takeover.play()
    assert any(takeover.sent_after for takeover in takeovers)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize(("point", "seconds"), [(43, 3.0), pytest.param(7, LONG, marks=pytest.mark.thorough)])
def test_no_older_value_counts_as_unchanged(point: int, seconds: float, backend: str) -> None:
    assert list((takeover := LedgerTakeover(backend, point, seconds, seed=point)).play()) == []
    assert takeover.happened


@pytest.mark.thorough
@settings(max_examples=scaled(40))
@given(st.sampled_from(["asyncio", "trio"]), st.integers(1, 80), st.sampled_from([0.0, 3.0, LONG]), st.integers(0, 2**16))
def test_no_older_value_counts_as_unchanged_after_a_stop_at_any_point(
    backend: str, point: int, seconds: float, seed: int
) -> None:
    assert list(LedgerTakeover(backend, point, seconds, seed).play()) == []
