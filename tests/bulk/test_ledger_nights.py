"""Nights with one ledger: drawn inputs, faults and kills at every point, against a model of the service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.crashes import memory
from support.endings import LOOPS
from support.examples import scaled
from support.nights import TROUBLE, Night, Nights, Row
from support.processes import WAYS, Ending

from outreach_async.bulk._rows import order_key

EMAILS = tuple(f"user{number}@a.example" for number in range(5))
SPELLINGS = (*EMAILS, EMAILS[0].upper(), EMAILS[1].replace("@", "+tag@"))
ROWS = st.lists(st.tuples(st.sampled_from(SPELLINGS), st.sampled_from(["Lyon", "Bern", "Rome"])), max_size=12)
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
    ),
    max_size=4,
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory() as simulated:
        yield simulated


def rows_to_send(known: list[Row], rows: list[Row]) -> list[Row]:
    """Return the rows that a calm night after a calm night sends: those that are not the last row of their contact.

    If an earlier row of the night has changed the contact, its later rows are sent too.
    """
    last, sent, changed = {order_key(email): (email, city) for email, city in known}, list[Row](), set[str]()
    for email, city in rows:
        key = order_key(email)
        if last[key] != (email, city) or key in changed:
            sent.append((email, city))
            changed.add(key)
    return sent


@pytest.mark.thorough
@given(NIGHTS, ROWS, ROWS, st.sampled_from(LOOPS))
@settings(max_examples=scaled(40))
def test_after_a_calm_night_contacts_have_their_last_rows_and_changes_are_sent(
    nights: list[Night], rows: list[Row], changed: list[Row], backend: str
) -> None:
    rows = [*((email, "Oslo") for email in EMAILS), *rows]
    with memory() as folder:
        world = Nights(folder)
        for night in nights:
            world.live(night)
        for _ in range(2):  # the first settles what is uncertain
            world.live(calm := Night(rows, backend=backend))
            assert world.check_converged(calm) == []
        world.live(last := Night(changed, backend=backend))
        assert world.check_converged(last) == []
        assert sorted(world.world.sent) == sorted(rows_to_send(rows, changed))


@pytest.mark.thorough
@pytest.mark.parametrize("backend", LOOPS)
def test_a_night_killed_at_any_point_loses_nothing(backend: str, folder: Path) -> None:
    first = Night([(email, "Lyon") for email in EMAILS], backend=backend)
    second = Night(
        [(EMAILS[0], "Bern"), (EMAILS[0], "Rome"), *first.rows[1:3], ("new@a.example", "Bern")], trouble=0.4, backend=backend
    )
    passed = set()
    for point in range(1, 400):
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
    assert passed >= {"publish...", "publish", "mark", "record", "end", "close", "clean", "committed", "deliver"}
