"""Nights with one ledger: drawn inputs, faults and kills at every point, against a model of the service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import attrs
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from support.crashes import memory
from support.endings import LOOPS
from support.examples import scaled
from support.nights import DAY, NAMES, TARGETS, TROUBLE, Night, Nights, Row
from support.processes import WAYS, Ending

EMAILS = (*(f"user{number}@a.example" for number in range(3)), "user1+tag@a.example", "us\u00e9r2@a.example")
"""Five contacts: the last two have e-mails that a service may treat as equal to others."""
SPELLINGS = (*EMAILS, EMAILS[0].upper(), f" {EMAILS[3]}")
CITIES = st.sampled_from(["Lyon", "Bern", "Rome"])
OPTED_OUT = st.sampled_from([False, False, False, True])
PLAIN_ROWS = st.lists(st.builds(Row, st.sampled_from(SPELLINGS), CITIES, st.just(""), OPTED_OUT), max_size=12)
ROWS = PLAIN_ROWS | st.lists(
    st.builds(Row, st.sampled_from(SPELLINGS), CITIES, st.sampled_from([*TARGETS, *NAMES]), OPTED_OUT), max_size=12
)
REPEATS = ["serial", "error", "first", "last"]
ENDINGS = st.none() | st.builds(Ending, st.sampled_from(WAYS[:6]), st.integers(1, 120))
NIGHTS = st.lists(
    st.builds(
        Night,
        rows=ROWS,
        trouble=st.sampled_from([0.0, 0.2, 0.6]),
        faults=st.sampled_from([TROUBLE, ["delayed"]]),
        ending=ENDINGS,
        seed=st.integers(0, 2**16),
        backend=st.sampled_from(LOOPS),
        order=st.sampled_from(["completion", "input"]),
        pause=st.sampled_from([1.0, 60.0, DAY]),
        changed=st.sampled_from(["send", "send", "ignore"]),
        repeats=st.sampled_from(["serial", "error"]),
        is_rereadable=st.booleans(),
        max_age=st.sampled_from([None, None, 0, 3600.0]),
        clock=st.sampled_from([0.0, 0.0, -86400.0, 86400.0]),
        damage=st.none() | st.floats(0, 1),
    )
    | st.builds(
        Night,
        rows=ROWS,
        trouble=st.sampled_from([0.0, 0.2, 0.6]),
        ending=ENDINGS,
        seed=st.integers(0, 2**16),
        repeats=st.sampled_from(["first", "last"]),
    ),
    max_size=4,
)


Sequence = tuple[tuple[str, str], ...]
"""The e-mails and cities of the rows of a contact, one after the other."""


def extend(sequence: Sequence, row: Row) -> Sequence:
    return sequence if sequence[-1:] == (row[:2],) else (*sequence, row[:2])


def number_rows(rows: list[Row]) -> list[tuple[Row, Sequence]]:
    """Return the rows, each with those of its contact up to this one."""
    sequences = dict[tuple[str, str], Sequence]()
    numbered = []
    for row in rows:
        sequences[row.contact] = extend(sequences.get(row.contact, ()), row)
        numbered.append((row, sequences[row.contact]))
    return numbered


def rows_to_send(known: list[Row], rows: list[Row], person: Callable[[Row], tuple[str, str]]) -> list[Row]:
    """Return the rows that a calm night sends if the previous night has sent the `known` rows, in this order."""
    entries: dict[tuple[str, str], tuple[Row, Sequence | None]] = {}
    for row, sequence in number_rows(known):
        # A row gives its values to the contact in all campaigns, and makes those of similar contacts out of date.
        for key, (other, _) in entries.items():
            if person(other) == person(row):
                entries[key] = other, sequence if other.contact == row.contact else None
        entries[row.entry] = row, sequence
    done = dict[tuple[str, str], Sequence]()
    for row, sequence in number_rows(rows):
        if any(other.contact == row.contact and stored == sequence for other, stored in entries.values()):
            done[row.contact] = sequence
    sent = list[tuple[Row, Sequence]]()
    for row, sequence in number_rows(rows):
        # The contact has this row if it has a later one of the same rows.
        at_least = done.get(row.contact, ())
        expected = at_least if at_least[: len(sequence)] == sequence else sequence
        _, stored = entries.get(row.entry, (row, None))
        replaced = any(person(each) == person(row) and (each.contact, other) != (row.contact, sequence) for each, other in sent)
        if stored != expected or replaced:
            sent.append((row._replace(to=row.entry[0]), sequence))
    return [row for row, _ in sent]


KINDS = st.builds(Night, st.just([]), backend=st.sampled_from(LOOPS), repeats=st.sampled_from(REPEATS))


@pytest.mark.thorough
@given(NIGHTS, ROWS, ROWS, KINDS, st.booleans())
@settings(max_examples=scaled(40))
def test_after_a_calm_night_contacts_have_their_last_rows_and_changes_are_sent(
    nights: list[Night], rows: list[Row], changed: list[Row], kind: Night, merges: bool
) -> None:
    check_nights(nights, rows, changed, kind, merges=merges)


@pytest.mark.parametrize("number", range(30))
def test_a_few_drawn_nights_send_what_changed(number: int) -> None:
    """Check one drawn example for each number, besides the simplest one, so that each takes little time."""
    check = given(NIGHTS.filter(bool).map(lambda nights: nights[:2]), ROWS, ROWS, KINDS, st.booleans())(check_nights)
    seed(number)(settings(max_examples=2, database=None)(check))()


def check_nights(nights: list[Night], rows: list[Row], changed: list[Row], kind: Night, merges: bool) -> None:
    rows = [*(Row(email, "Oslo", to) for email in EMAILS for to in TARGETS), *rows]
    with memory() as folder:
        world = Nights(folder, merges=merges)
        past = list[Row]()
        for night in nights:
            world.live(night)
            past += night.rows
            # A row that is alone in its night shows whether it is rightly unchanged: the last one of a contact, or any other.
            drawn = Random(night.seed)  # noqa: S311 - repeatable, not secret
            if choices := drawn.choice([[], night.rows, night.rows, drawn.sample(past, len(past))]):
                rows_of_one = [*{row.similar: row for row in choices}.values()]
                world.live(Night(rows_of_one, backend=kind.backend, pause=night.pause))
                world.rest()
                world.live(Night(rows_of_one, backend=kind.backend, pause=night.pause))
        world.rest()
        for _ in range(3):  # the first settle what is uncertain, even after the clock was ahead
            world.live(calm := attrs.evolve(kind, rows=rows))
            assert world.check_converged(calm) == []
        assert sorted(world.world.sent) == sorted(rows_to_send(calm.counted, calm.counted, world.world.person))
        world.live(last := attrs.evolve(kind, rows=changed))
        assert world.check_converged(last) == []
        assert sorted(world.world.sent) == sorted(rows_to_send(calm.counted, last.counted, world.world.person))


@pytest.mark.parametrize("ending", [None, Ending("kill", 30), Ending("cancel", 30)])
@pytest.mark.parametrize("backend", LOOPS)
def test_a_request_that_arrives_in_the_next_night_is_made_good(backend: str, ending: Ending | None, folder: Path) -> None:
    world = Nights(folder)
    older, newer = ([Row(email, city) for email in EMAILS] for city in ("Lyon", "Bern"))
    world.live(Night(older, trouble=1.0, faults=["delayed"], ending=ending, backend=backend, pause=1.0))
    world.live(Night(newer, backend=backend, pause=1.0))
    world.rest()
    for _ in range(2):
        world.live(calm := Night(newer, backend=backend))
        assert world.check_converged(calm) == []
    assert world.world.sent == []


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["asyncio", pytest.param("trio", marks=pytest.mark.nightly)])
def test_a_night_killed_at_any_point_loses_nothing(backend: str, folder: Path) -> None:
    first = Night([Row(email, "Lyon") for email in EMAILS], backend=backend)
    second = Night(
        [
            Row(EMAILS[0], "Bern"),
            Row(EMAILS[0], "Rome", "Spring"),
            *first.rows[1:3],
            Row(EMAILS[3], "Rome", excluded=True),
            Row("new@a.example", "Bern"),
        ],
        trouble=0.4,
        backend=backend,
    )
    passed = set()
    for point in range(1 + (backend == "trio"), 400, 2):  # each event loop tries every second point
        (place := folder / str(point)).mkdir()
        world = Nights(place)
        world.live(first)
        world.live(attrs.evolve(second, seed=point, ending=Ending("kill", point)))
        was_killed, trace = world.process.dead, world.process.trace
        passed |= {name for name, _ in trace}
        calm = attrs.evolve(second, trouble=0.0)
        for _ in range(2):
            world.live(calm)
            assert world.check_converged(calm) == [], f"killed at point {point}: {trace[-1:]}"
        if not was_killed:
            break
    assert passed >= {"open", "begin", "commit...", "commit", "on_started", "publish", "committed", "deliver"}
