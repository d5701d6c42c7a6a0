"""The real pipeline, killed at every point and resumed by another process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final, get_args

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.crashes import Simulation, kill_everywhere, memory
from support.endings import LOOPS, draw_scenario
from support.examples import scaled
from support.processes import WAYS
from support.runs import OptedOut
from support.scenarios import KEY, NO_FIELD, ROW, TROUBLE, UNCLEAR, Late, Scenario, seeded
from tools.journal_child import possibly_sent

from outreach_async import ContactOutcome, DuplicatePolicy, InvalidRequest
from outreach_async._plumbing import WHOLE_INPUT
from outreach_async.bulk import Repeats
from outreach_async.errors import JournalError
from outreach_async.fake import faults
from outreach_async.fake.faults import Fault
from outreach_async.store import Store
from outreach_async.store._writer import JournalWriter

POINTS = {f"{name}{when}" for name in ("open", "mark", "completed_rows", "record", "end", "close") for when in ("...", "")}


@pytest.mark.thorough
@pytest.mark.parametrize("backend", LOOPS)
@pytest.mark.parametrize("seed", range(2))
def test_the_same_seed_gives_the_same_trace(seed: int, backend: str, folder: Path) -> None:
    traces = []
    for attempt_number in ("once", "twice"):
        (folder / attempt_number).mkdir()
        one = Simulation(seeded(seed), folder / attempt_number, backend)
        one.finish(iter([50, 30]))
        assert one.violations() == []
        traces.append([process.trace for process in one.processes])
    assert len(traces[0]) > 2
    assert traces[0] == traces[1]


@pytest.mark.parametrize("seed", range(2))
def test_both_event_loops_give_every_row_the_same_outcome(seed: int, folder: Path) -> None:
    messages = []
    for backend in LOOPS:
        (folder / backend).mkdir()
        one = Simulation(seeded(seed), folder / backend, backend)
        one.finish(iter(()))
        messages.append([(each.index, each.status, each.possible, each.attempts) for each in Store(one.location).outcomes()])
    assert messages[0] == messages[1]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("duplicates", "repeats", "backend"),
    [
        ("skip", "serial", "asyncio"),
        pytest.param("overwrite", "serial", "trio", marks=pytest.mark.nightly),
        pytest.param("update_missing_fields", "coalesce", "asyncio", marks=pytest.mark.nightly),
    ],
)
def test_a_run_killed_at_any_point_can_be_resumed_with_true_outcomes(
    duplicates: DuplicatePolicy, repeats: Repeats, backend: str, folder: Path
) -> None:
    scene = seeded(7, 4, duplicates=duplicates, repeats=repeats, trouble=0.3, concurrency=2)
    passed = set()
    for number, one in enumerate(kill_everywhere(scene, folder, backend)):
        assert one.violations() == [], f"run {number}: {[process.trace[-1] for process in one.processes]}"
        passed |= {name for process in one.processes for name, _ in process.trace}
    assert number > 20
    assert passed >= POINTS | {"send", "committed", "deliver"}


@pytest.mark.parametrize("backend", LOOPS)
def test_an_undisturbed_run_is_certain_of_every_row(backend: str, folder: Path) -> None:
    one = Simulation(seeded(3, trouble=0.0), folder, backend)
    one.finish(iter(()))
    assert all(outcome.certain for outcome in one.delivered)
    assert len(one.delivered) == 20
    assert one.violations() == []


@pytest.mark.parametrize("backend", LOOPS)
@pytest.mark.parametrize("spool", [False, True])
@pytest.mark.parametrize("changed", ["a marked row", "more rows", "spool", "repeats"])
def test_what_has_changed_is_refused_after_a_kill(backend: str, folder: Path, changed: str, spool: bool) -> None:
    scene = seeded(3, spool=spool)
    one = Simulation(scene, folder, backend)
    one.live(70)
    assert one.crashes[0] > 0
    if changed == "more rows" and not spool:
        one.finish(iter(()))
    sent = one.world.sends.total()
    if changed == "spool":
        one.scene = attrs.evolve(scene, spool=not spool)
    elif changed == "repeats":
        one.scene = attrs.evolve(scene, repeats="last")
    elif changed == "more rows":
        one.scene = attrs.evolve(scene, rows=[*scene.rows, {"email": "more@a.example", ROW: "20"}])
    else:
        one.scene = attrs.evolve(scene, rows=[{**scene.rows[0], "city": "elsewhere"}, *scene.rows[1:]])
    with pytest.raises(InvalidRequest, match=r"the input changed|belongs to another run"):
        one.live()
    assert one.world.sends.total() == sent
    one.scene = scene
    one.finish(iter(()))
    assert one.violations() == []


@pytest.mark.parametrize(
    "fault",
    [faults.status(500), faults.status(200, body=""), faults.reset(), faults.refuse(), faults.commit_then(faults.reset())],
    ids=lambda fault: fault.label,
)
def test_rows_in_flight_at_a_suspension_are_left_to_the_next_process(fault: Fault, folder: Path) -> None:
    rows = [{"email": f"user{index}@a.example", ROW: str(index)} for index in range(6)]
    down = Scenario(rows=rows, trouble=1.0, faults=[fault], attempts=50, concurrency=3)
    one = Simulation(down, folder, "asyncio")
    one.live()
    report = Store(one.location).report()
    assert (report.state, report.rows, one.delivered) == ("suspended", 0, [])
    one.world.scene = attrs.evolve(down, trouble=0.0)
    one.finish(iter(()))
    carried_out = {outcome.index for outcome in one.delivered if outcome.status == "skipped"}
    assert bool(carried_out) == fault.commits
    assert all(outcome.possible == {"added", "skipped"} for outcome in one.delivered if outcome.index in carried_out)
    assert sorted(outcome.index for outcome in one.delivered) == list(range(6))
    assert one.violations() == []


class HarmedWriter:
    """A writer with one changed behaviour."""

    def __init__(self, writer: JournalWriter) -> None:
        self.writer = writer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.writer, name)


NO_ROWS = possibly_sent()


class Unsuspecting(HarmedWriter):
    """Breaks the rule that rows without an outcome after a kill may have been sent."""

    possibly_sent = NO_ROWS


class Lazy(HarmedWriter):
    """Breaks the rule that outcomes are stored before they are delivered: each batch is written with the next one."""

    batch: Sequence[ContactOutcome] = ()

    def record(self, outcomes: Sequence[ContactOutcome]) -> None:
        self.batch, before = outcomes, self.batch
        if before:
            self.writer.record(before)

    def end(self, *arguments: Any) -> None:
        self.record(())
        self.writer.end(*arguments)


class Forgetful(HarmedWriter):
    """Breaks the rule that a row with an outcome is not sent again."""

    def completed_rows(self, _first: int, _rows: int) -> frozenset[int]:
        return frozenset()


@pytest.mark.parametrize("seed", range(40))
def test_outcomes_are_true_however_a_run_ends_early(seed: int) -> None:
    assert draw_scenario(seed).violations() == []


@pytest.mark.nightly
def test_outcomes_are_true_in_many_more_scenarios() -> None:
    found = {seed: draw_scenario(seed).violations() for seed in range(40, 40 + scaled(300))}
    assert {seed: broken for seed, broken in found.items() if broken} == {}


def test_the_first_scenarios_cover_every_ending_on_both_event_loops() -> None:
    scenes = [draw_scenario(seed) for seed in range(40)]
    assert {ending.way for scene in scenes for ending in scene.endings} == set(WAYS)
    assert {scene.backend for scene in scenes} == set(LOOPS)


@pytest.mark.covers
@pytest.mark.thorough
@pytest.mark.parametrize(("harmed", "kind"), [(Unsuspecting, "I5"), (Lazy, "I2")])
def test_the_simulation_detects_a_broken_rule(harmed: type[HarmedWriter], kind: str, folder: Path) -> None:
    scene = seeded(7, 8, trouble=0.3, concurrency=2)
    found: Iterator[str] = (wrong for one in kill_everywhere(scene, folder, "asyncio", harmed) for wrong in one.violations())
    assert any(wrong.startswith(kind) for wrong in found)


def test_the_simulation_detects_rows_sent_again_after_their_outcome(folder: Path) -> None:
    one = Simulation(seeded(7, 8, trouble=0.0), folder, "asyncio", Forgetful)
    one.live(60)
    with pytest.raises(JournalError, match="UNIQUE"):
        one.live()


values = st.none() | st.sampled_from(["", "x", "y"])
fields = st.dictionaries(st.sampled_from(["custom_2", "custom_3", "city"]), values)
no_rows = st.sampled_from([3, {"email": " "}, {"email": "a@a.example", NO_FIELD: "1"}, OptedOut(email="a@a.example")])


@st.composite
def scenes(draw: st.DrawFn) -> Scenario:
    """Draw scenarios: rows, many of which repeat an e-mail or are invalid, and the behaviour of the service."""
    repeats: Repeats = draw(st.sampled_from(["serial", "error", "first", "last", "coalesce"]))
    emails = ["a@a.example", "b@a.example", "c@a.example"]
    if repeats != "coalesce":
        emails += ["A@a.example", "B@A.example"]  # the same contacts in other spellings, so that rows are not merged
    sound = st.builds(lambda email, more: {"email": email, **more}, st.sampled_from(emails), fields)
    # A process that resumes a run and finds neither rows nor a complete spool cannot know that there were no rows.
    fewest = 1 if repeats in WHOLE_INPUT else 0
    rows = draw(st.lists(st.one_of(sound, sound, sound, no_rows), min_size=fewest, max_size=12))
    return Scenario(
        rows=[type(row)({**row, ROW: str(index)}) if isinstance(row, dict) else row for index, row in enumerate(rows)],
        duplicates=draw(st.sampled_from(get_args(DuplicatePolicy))),
        repeats=repeats,
        before=draw(st.lists(st.sampled_from(emails), max_size=2)),
        trouble=draw(st.sampled_from([0.0, 0.2, 0.5])),
        attempts=draw(st.integers(1, 4)),
        concurrency=draw(st.integers(1, 5)),
        seed=draw(st.integers(0, 2**16)),
    )


@pytest.mark.thorough
@pytest.mark.parametrize("backend", LOOPS)
@settings(max_examples=scaled(25))
@given(scene=scenes(), deaths=st.lists(st.integers(1, 80), max_size=3))
def test_contacts_end_up_as_if_the_rows_were_applied_one_by_one(backend: str, scene: Scenario, deaths: list[int]) -> None:
    with memory() as folder:
        one = Simulation(scene, folder, backend)
        one.finish(iter(deaths))
        assert one.violations() == []
        assert KEY not in repr(one.delivered)


# The status of a row is true on every path of a few faults, kills and late requests that two rows of a contact can meet


ANN: Final = "ann@a.example"
PAIR: Final = [
    {"email": ANN, ROW: "0", "city": "first", "custom_2": "first"},
    {"email": ANN, ROW: "1", "city": "second", "custom_3": "second"},
]
"""Two rows of a contact. Their fields overlap, so that the contact shows the order in which they were applied."""
DOUBTFUL: Final = (*range(300, 309), 408, 425, 499, *range(500, 512), 520, 598, 599)
"""Statuses after which the creation may have been carried out. The same holds for every other 3xx and 5xx status."""
FAULTS: Final = (
    *TROUBLE[:15],
    faults.status(422),
    *TROUBLE[-5:],
    *(Late(f"late {count}", commits=False, requests=count) for count in (1, 2, 9)),
)


def paired(*script: Fault, **options: Any) -> Scenario:
    return Scenario(rows=PAIR, script=script, **{"attempts": 2, "concurrency": 2, **options})


def wrong_after(folder: Path, given: Scenario) -> list[str]:
    folder.mkdir()
    one = Simulation(given, folder, "asyncio")
    one.finish(iter(()))
    return one.violations()


@pytest.mark.nightly
@pytest.mark.parametrize("before", [(), (ANN,)], ids=["new", "known"])
@pytest.mark.parametrize("duplicates", get_args(DuplicatePolicy))
def test_every_label_is_true_after_any_two_faults(duplicates: DuplicatePolicy, before: tuple[str, ...], folder: Path) -> None:
    for number, script in enumerate(product(FAULTS, repeat=2)):
        wrong = wrong_after(folder / str(number), paired(*script, duplicates=duplicates, before=before))
        assert wrong == [], script


@pytest.mark.nightly
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.label)
def test_every_label_is_true_after_a_fault_and_kills_at_any_point(fault: Fault, folder: Path) -> None:
    for number, duplicates in enumerate(get_args(DuplicatePolicy)):
        (place := folder / str(number)).mkdir()
        for one in kill_everywhere(paired(fault, duplicates=duplicates), place, "asyncio"):
            assert one.violations() == [], duplicates


@pytest.mark.parametrize("code", DOUBTFUL)
def test_a_status_that_may_follow_a_creation_leaves_every_label_true(code: int, folder: Path) -> None:
    for number, fault in enumerate([faults.status(code), faults.commit_then(faults.status(code))]):
        assert wrong_after(folder / str(number), paired(fault)) == []


@pytest.mark.parametrize("script", [*zip(UNCLEAR), *product(UNCLEAR, repeat=2)], ids=str)
def test_an_error_with_a_status_of_success_leaves_every_label_true(script: tuple[Fault, ...], folder: Path) -> None:
    for number, duplicates in enumerate(get_args(DuplicatePolicy)):
        assert wrong_after(folder / str(number), paired(*script, duplicates=duplicates)) == []


def test_merging_the_rows_of_a_contact_keeps_a_late_row_from_replacing_another(folder: Path) -> None:
    late = Late("late", commits=False, requests=1)
    one = Simulation(paired(late, duplicates="overwrite", repeats="coalesce"), folder, "asyncio")
    one.finish(iter(()))
    one.world.is_order_known = True
    assert one.violations() == []
