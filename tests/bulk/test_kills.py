"""Runs with a journal whose processes are killed, and the checks of the results; tools/kill_loop.py runs the long version."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from support.kill_points import Point
from support.kills import Entry, Figures, Importers, Left, Service, Story, find_leaks, violations
from support.s3 import environment, serve_s3
from tools.kill_importer import Run, format_outcome
from tools.kill_loop import Death, Worker, code, doom, run_of, table, wanted_kills

from outreach_async._vocabulary import DUPLICATE_POLICIES, Outcome
from outreach_async.bulk._outcomes import ContactOutcome
from outreach_async.errors import InvalidRequest

RUN = Run(number=3, seed=0, rows=4, duplicates="skip")


def outcome(index: int, status: Outcome, **values: Any) -> ContactOutcome:
    facts = {"contact": None, "id": None, "possible": frozenset({status}), "attempts": 1, **values}
    return ContactOutcome(index=index, status=status, **facts)


def good() -> Story:
    """Describe a flawless run: row 0 existed, row 1 repeats it, row 2 was in flight at a kill, row 3 was rejected."""
    outcomes = (
        outcome(0, Outcome.SKIPPED),
        outcome(1, Outcome.SKIPPED),
        outcome(2, Outcome.SKIPPED, possible=frozenset({Outcome.ADDED, Outcome.SKIPPED})),
        outcome(3, Outcome.REJECTED, error=InvalidRequest("no")),
    )
    return Story(
        run=RUN,
        left=(Left(3, frozenset({0, 1}), (0,)), Left(4, frozenset(range(4)), (0, 2, 3))),
        state="finished",
        outcomes=outcomes,
        lines=[format_outcome(outcomes[index]) for index in (0, 2, 3)],
        entries=(
            Entry(0, 0, "skipped", None),
            Entry(0, 1, "", "reset()"),
            Entry(0, 1, "skipped", None),
            Entry(0, 2, "added", None),
            Entry(1, 2, "skipped", "latency(0.01)"),
            Entry(1, 3, "", None),
        ),
        contacts=[(row["email"], f"contact_{index}") for index, row in enumerate(RUN.input()[:3]) if index != 1],
    )


def relabel(story: Story, at: int, **values: Any) -> Story:
    """Describe the same run with another outcome for one row, both delivered and in the journal."""
    outcomes = [attrs.evolve(each, **values) if each.index == at else each for each in story.outcomes]
    return attrs.evolve(story, outcomes=outcomes, lines=[])


def with_entries(story: Story, *entries: Entry) -> Story:
    return attrs.evolve(story, entries=(*story.entries, *entries))


Change = Callable[[Story], Story]

WRONG: Sequence[tuple[Change, str]] = (
    (lambda story: attrs.evolve(story, state="running"), "the run is running"),
    (lambda story: attrs.evolve(story, outcomes=story.outcomes[1:], lines=[]), "row 0: 0 outcomes"),
    (lambda story: attrs.evolve(story, outcomes=(*story.outcomes, story.outcomes[0])), "row 0: 2 outcomes"),
    (
        lambda story: attrs.evolve(story, lines=[*story.lines, story.lines[0]]),
        "delivered 2 times, and recorded: 0 skipped skipped -",
    ),
    (lambda story: attrs.evolve(story, lines=["0 added added -\n"]), "delivered 1 times, and not recorded: 0 added added -"),
    (
        lambda story: relabel(story, 2, possible=frozenset({Outcome.SKIPPED})),
        "row 2: the outcome is 2 skipped skipped -, expected added",
    ),
    (
        lambda story: relabel(story, 0, status=Outcome.NOT_APPLIED, possible=frozenset({Outcome.NOT_APPLIED})),
        "row 0: the outcome is 0 not_applied not_applied -, expected skipped",
    ),
    (
        lambda story: attrs.evolve(story, run=attrs.evolve(RUN, calm=True)),
        "row 2: uncertain, although there was no fault",
    ),
    (lambda story: relabel(story, 0, id="contact_2"), "row 0: contact_2 is not the contact of p0@3.example"),
    (
        lambda story: attrs.evolve(story, contacts=[*story.contacts, ("P0@3.EXAMPLE", "contact_9")]),
        "p0@3.example: 2 contacts",
    ),
    (lambda story: attrs.evolve(story, contacts=story.contacts[1:]), "row 0: p0@3.example is not a contact"),
    (lambda story: with_entries(story, Entry(1, 2, "", None)), "row 2: sent 2 times by process 1, of which 0 failed"),
    (lambda story: with_entries(story, Entry(1, 0, "", None)), "row 0: sent by process 1, although it had its outcome"),
    (
        lambda story: with_entries(story, Entry(0, 3, "", None)),
        "row 3: sent again by process 1, although an earlier process sent it without a mark",
    ),
    (
        lambda story: with_entries(story, *(Entry(1, row, "", None) for row in range(4, 4101))),
        "process 1: 4097 rows were sent and not recorded, expected at most 4096",
    ),
)


def test_a_flawless_run_has_no_violations() -> None:
    assert [row["email"] for row in RUN.input()][:2] == ["p0@3.example"] * 2
    assert list(violations(good())) == []


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[message for _, message in WRONG])
def test_whatever_goes_wrong_is_a_violation(change: Change, message: str) -> None:
    assert message in {violation[: len(message)] for violation in violations(change(good()))}


def test_leaked_keys_tracebacks_and_premature_outcomes_are_violations(tmp_path: Path) -> None:
    (tmp_path / "run.db-wal").write_bytes(b"\0" + RUN.key.encode() + b"\0")
    (tmp_path / "errors").write_text("Traceback\nRuntimeError: x\n", encoding="utf-8")
    assert list(find_leaks(tmp_path, RUN, Left(9, frozenset({0}), (0, 1)))) == [
        "a process wrote to stderr: RuntimeError: x",
        "the owner key is in run.db-wal",
        "row 1: delivered, but not recorded",
    ]


def test_a_full_run_kills_at_every_point_twenty_times_under_all_options() -> None:
    places = wanted_kills(500, tuple(Point), seed=0)
    assert places.total() == 500 + 21
    for point in Point:
        counts = [places[point, option] for option in DUPLICATE_POLICIES]
        assert min(counts) >= 7
        assert sum(counts) >= 20


def test_runs_combine_every_option_with_every_source_and_have_duplicates() -> None:
    runs = [run_of(0, number, 80) for number in range(36)]
    assert len({(run.duplicates, run.source) for run in runs}) == 9
    assert {run.repeats for run in runs if run.source == "spool"} == {"serial", "first", "last"}
    assert {run.order for run in runs} == {"completion", "input"}
    emails = [row["email"].lower() for row in runs[0].input()]
    assert len(set(emails)) < len(emails)
    assert set(runs[0].before()) & set(emails)


def test_a_run_without_a_wanted_kill_is_not_killed() -> None:
    assert doom(Counter(), RUN, 2, Left(), random.Random(0)) is None  # noqa: S311 - not for cryptography


SHORT: Sequence[tuple[Run, Sequence[tuple[Point, int]]]] = (
    (
        Run(number=0, seed=1, rows=24, duplicates="skip"),
        (
            (Point.CREATING, 1),
            (Point.MARKED, 1),
            (Point.CARRIED_OUT, 3),
            (Point.IN_OPENING, 1),
            (Point.ANSWERED, 5),
            (Point.ENDED, 1),
        ),
    ),
    (
        Run(number=1, seed=1, rows=24, duplicates="overwrite", source="spool", repeats="first"),
        ((Point.CREATED, 1), (Point.SPOOLED, 1), (Point.LATE, 2), (Point.IN_RECORD, 1), (Point.RECORDED, 1)),
    ),
    (
        Run(number=2, seed=1, rows=24, duplicates="update_missing_fields", source="stream", order="input"),
        ((Point.IN_MARK, 1), (Point.MOVING, 1), (Point.DROPPED, 2), (Point.LEFT, 3), (Point.ENDING, 1)),
    ),
    (
        Run(number=5, seed=1, rows=24, duplicates="skip", journal="folder"),
        ((Point.CREATING, 1), (Point.CREATED, 1), (Point.CARRIED_OUT, 3), (Point.IN_OPENING, 1), (Point.ENDED, 1)),
    ),
    (
        Run(number=6, seed=1, rows=24, duplicates="overwrite", source="stream", journal="s3"),
        ((Point.CREATED, 1), (Point.IN_MARK, 1), (Point.LATE, 2), (Point.OPENED, 1), (Point.IN_RECORD, 1), (Point.IN_END, 1)),
    ),
)


@pytest.fixture(scope="module")
def processes() -> Iterator[tuple[Service, Importers]]:
    """Start the service and the importers once, because starting them takes longer than a kill."""
    with pytest.MonkeyPatch.context() as patch, serve_s3() as port:
        for name, value in environment(port).items():
            patch.setenv(name, value)
        with Importers() as importers, Service(seed=1) as service:
            yield service, importers


def after(*deaths: tuple[Point, int]) -> Callable[[int, Left], Death]:
    """Kill the processes of a run one after another, each at its point; the next process survives."""
    return lambda process, _: deaths[process] if process < len(deaths) else None


@pytest.mark.nightly
@pytest.mark.parametrize(("run", "deaths"), SHORT, ids=[f"{run.duplicates}-{run.journal}" for run, _ in SHORT])
def test_kills_lose_duplicate_and_mislabel_no_row(
    processes: tuple[Service, Importers], tmp_path: Path, run: Run, deaths: Sequence[tuple[Point, int]]
) -> None:
    worker = Worker(*processes, folder=tmp_path, seed=1, pretend=False)
    worker.carry_out(run, after(*deaths))
    assert worker.figures.violations == []
    assert worker.figures.kills == Counter((point, run.duplicates) for point, _ in deaths)


@pytest.mark.thorough
def test_without_kills_and_faults_every_label_is_certain(processes: tuple[Service, Importers], tmp_path: Path) -> None:
    worker = Worker(*processes, folder=tmp_path, seed=1, pretend=False)
    worker.carry_out(Run(number=3, seed=1, rows=24, duplicates="skip", calm=True), after())
    assert worker.figures.violations == []
    assert (worker.figures.uncertain, worker.figures.repeats) == (0, 0)


def test_without_marks_rows_in_flight_at_a_kill_are_mislabelled(processes: tuple[Service, Importers], tmp_path: Path) -> None:
    worker = Worker(*processes, folder=tmp_path, seed=1, pretend=True)
    worker.carry_out(Run(number=4, seed=1, rows=24, duplicates="skip"), after((Point.CARRIED_OUT, 4)))
    assert worker.figures.kills.total() == 1
    assert any("the outcome is" in violation and "expected added" in violation for violation in worker.figures.violations)


@pytest.mark.thorough
def test_the_table_counts_kills_by_point_and_option() -> None:
    figures = Figures(violations=["run 3: wrong"])
    figures.kills[Point.ENDED, "skip"] = 2
    figures.kills[Point.ENDED, "overwrite"] = 1
    figures.kills[Point.LEFT, "skip"] = 5
    lines = {line.split("  ")[0]: line.split()[-4:] for line in table(figures + Figures()).splitlines()}
    assert lines["after the end"] == ["2", "1", "0", "3"]
    assert lines["all kills"] == ["2", "1", "0", "3"]
    assert lines["left in order"] == ["5", "0", "0", "5"]
    assert "1 violations" in lines


@pytest.mark.nightly
def test_the_command_fails_if_a_kill_is_missing_or_anything_is_wrong() -> None:
    assert code(Figures(kills=Counter({(Point.ENDED, "skip"): 3})), kills=3) == 0
    assert code(Figures(kills=Counter({(Point.ENDED, "skip"): 3, (Point.LEFT, "skip"): 3})), kills=4) == 1
    assert code(Figures(kills=Counter({(Point.ENDED, "skip"): 3}), violations=["run 3: wrong"]), kills=3) == 1
