"""Rows of one contact in one input of a run with a ledger: which of them count, and that the same input sends nothing again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from support.scenarios import KEY, SPACE, new_fake
from support.time import virtual_time
from support.transport import Script, added, status

from outreach_async import ContactOutcome, OutreachClient
from outreach_async._plumbing import Source
from outreach_async.bulk import Repeats
from outreach_async.errors import Excluded
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.store.ledger import Ledger
from outreach_async.sync import CallerRows

pytestmark = virtual_time

SPELLINGS = ("ann@a.example", " Ann@a.example")
ANN = [{"email": SPELLINGS[at % 2], "city": city} for at, city in enumerate(("Lyon", "Bern", "Rome"))]
BO = {"email": "bo@a.example", "city": "Oslo"}
Contact = Callable[[], dict[str, Any]]


class OptedOut(dict[str, Any]):
    """A row of a person who must not be written to."""

    def items(self) -> Any:
        raise Excluded("opted out")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "contacts.ledger", inline=True)


@pytest.fixture
def fake() -> FakeService:
    return new_fake("Plan")


async def run(fake: Any, ledger: Ledger, rows: Any, repeats: Repeats = "serial", **options: Any) -> list[ContactOutcome]:
    """Send rows, and return the outcomes in the order of the rows."""
    client = OutreachClient(
        transport=FakeTransport(fake) if isinstance(fake, FakeService) else fake, owner_key=KEY, workspace=SPACE
    )
    options = {"duplicates": "overwrite", "order": "input", "stop_after_rejects": None, **options}
    async with client.contacts.create_many(rows, ledger=ledger, repeats=repeats, **options) as outcomes:
        found = [outcome async for outcome in outcomes]
    assert outcomes.report.ledger is not None
    assert outcomes.report.repeats == sum(outcome.repeats is not None and outcome.error is None for outcome in found)
    return found


def statuses(outcomes: Sequence[ContactOutcome]) -> list[str]:
    return [outcome.status.value for outcome in outcomes]


def city(fake: FakeService) -> Any:
    (ann,) = (contact for contact in fake.contacts(SPACE) if contact["email"].lower() == "ann@a.example")
    return ann["fields"].get("city")


@pytest.mark.parametrize(
    ("repeats", "expected", "kept"),
    [
        ("serial", ["added", "added", "overwriten", "overwriten"], "Rome"),
        ("first", ["added", "added", "not_applied", "not_applied"], "Lyon"),
        ("last", ["not_applied", "added", "not_applied", "added"], "Rome"),
        ("error", ["added", "added", "rejected", "rejected"], "Lyon"),
    ],
)
async def test_the_same_rows_are_sent_once_under_every_policy(
    repeats: Repeats, expected: list[str], kept: str, fake: FakeService, ledger: Ledger
) -> None:
    rows = [ANN[0], BO, *ANN[1:]]
    first = await run(fake, ledger, rows, repeats)
    assert (statuses(first), city(fake)) == (expected, kept)
    again = ["unchanged" if each not in {"not_applied", "rejected"} else each for each in expected]
    for _ in range(2):
        found = await run(Script(), ledger, rows, repeats)
        assert statuses(found) == again
        assert [outcome.repeats for outcome in found] == [outcome.repeats for outcome in first]


@pytest.mark.parametrize("repeats", ["first", "last"])
async def test_a_row_that_does_not_count_names_the_one_that_does(repeats: Repeats, fake: FakeService, ledger: Ledger) -> None:
    found = await run(fake, ledger, [*ANN, {**BO, **ANN[0], "town": "x"}, ANN[0]], repeats)
    counted = 0 if repeats == "first" else 4
    assert [outcome.repeats for outcome in found] == [None if at in {3, counted} else counted for at in range(5)]
    assert ([outcome.index for outcome in found], found[3].status) == ([*range(5)], "rejected")


async def test_a_row_that_cannot_be_sent_is_not_the_one_that_counts(fake: FakeService, ledger: Ledger) -> None:
    for fault, expected in ({"city": date(2026, 5, 4)}, "added"), ({"town": "x"}, "unchanged"):
        found = await run(fake, ledger, [BO, ANN[0], {**ANN[1], **fault}], "last")
        assert statuses(found)[1:] == [expected, "rejected"]


async def test_another_policy_sends_the_rows_of_these_contacts_once_more(fake: FakeService, ledger: Ledger) -> None:
    rows = [*ANN, BO]
    policies: tuple[tuple[Repeats, list[str]], ...] = (
        ("serial", ["added"] * 1 + ["overwriten"] * 2),
        ("last", ["not_applied"] * 2 + ["overwriten"]),
        ("first", ["overwriten"] + ["not_applied"] * 2),
        ("serial", ["unchanged"] + ["overwriten"] * 2),  # the contact has the first row already
    )
    for repeats, expected in policies:
        assert statuses(await run(fake, ledger, rows, repeats))[:3] == expected
        assert set(statuses(await run(Script(), ledger, rows, repeats))) <= {"unchanged", "not_applied"}
    assert city(fake) == "Rome"


async def test_a_rejected_row_is_sent_each_night_and_those_before_it_are_not(ledger: Ledger) -> None:
    assert statuses(await run(Script(added(), status(422)), ledger, ANN[:2])) == ["added", "rejected"]
    for _ in range(2):
        assert statuses(await run(Script(status(422)), ledger, ANN[:2])) == ["unchanged", "rejected"]
    assert statuses(await run(Script(added()), ledger, ANN[:2])) == ["unchanged", "added"]
    assert statuses(await run(Script(), ledger, ANN[:2])) == ["unchanged"] * 2


async def test_a_rejected_row_counts_as_the_last_one(ledger: Ledger) -> None:
    for _ in range(2):
        assert statuses(await run(Script(status(422)), ledger, ANN, "last")) == ["not_applied"] * 2 + ["rejected"]


@pytest.mark.parametrize("repeats", ["first", "last"])
async def test_a_row_that_says_not_to_write_counts_like_any_other(repeats: Repeats, fake: FakeService, ledger: Ledger) -> None:
    rows = [ANN[0], OptedOut(ANN[1])] if repeats == "last" else [OptedOut(ANN[1]), ANN[0]]
    for _ in range(2):
        assert sorted(statuses(await run(fake, ledger, rows, repeats))) == ["excluded", "not_applied"]
    assert fake.contacts(SPACE) == []
    assert statuses(await run(fake, ledger, rows[::-1], repeats)) == [
        *(["added", "excluded"] if repeats == "first" else ["excluded", "added"])
    ]


async def test_a_run_that_is_drained_while_it_reads_its_rows_first_sends_none(ledger: Ledger) -> None:
    client = OutreachClient(transport=Script(), owner_key=KEY, workspace=SPACE)
    async with client.contacts.create_many(ANN, ledger=ledger, duplicates="overwrite") as outcomes:
        outcomes.drain()
        assert [outcome async for outcome in outcomes] == []
    assert statuses(await run(Script(added("contact_1")), ledger, ANN)) == ["added"] * 3


async def test_repeats_far_from_each_other_are_compared_together(fake: FakeService, ledger: Ledger) -> None:
    rows = [ANN[0], *({"email": f"user{at}@a.example"} for at in range(500)), ANN[1]]
    await run(fake, ledger, rows, concurrency=64)
    assert {*statuses(await run(Script(), ledger, rows))} == {"unchanged"}


class Once:
    """Rows that have a length and give a new iterator each time, but exist only once."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = iter(rows)

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[Any]:
        yield from self._rows


async def test_only_rows_that_are_certainly_still_there_are_read_twice() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.Table.from_pylist(ANN)
    for rows in (ANN, (*ANN,), dict(enumerate(ANN)).values(), table):
        read = Source(rows).read_again
        assert read is not None
        assert len([*read()]) == len([*read()]) == len(ANN)
    for rows in (iter(ANN), Once(ANN), table.to_reader(), map(dict, ANN)):
        assert Source(rows).read_again is None


async def test_a_synchronous_run_reads_a_list_twice() -> None:
    read = Source(CallerRows(ANN)).read_again
    assert read is not None
    assert [[*read()], [*read()]] == [ANN, ANN]
    assert Source(CallerRows(iter(ANN))).read_again is None
