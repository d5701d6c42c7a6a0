"""Runs with a ledger: only new, changed and uncertain rows are sent."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from support.journal import copy_killed
from support.runs import OptedOut
from support.scenarios import KEY, SPACE, new_fake
from support.time import virtual_time
from support.transport import Script, added, lost, status

from outreach_async import (
    BulkReport,
    ContactOutcome,
    InvalidRequest,
    JournalError,
    NewContact,
    Outcome,
    OutreachClient,
    Progress,
    Request,
    Response,
    RetryPolicy,
    Target,
)
from outreach_async.bulk import Repeats
from outreach_async.bulk._source import Source
from outreach_async.fake import FakeService, FakeTransport, faults
from outreach_async.hooks import Event, RowEnded
from outreach_async.store import Changed, Store
from outreach_async.store._records import read_metadata
from outreach_async.store._schema import FORMAT_VERSION
from outreach_async.sync import CallerRows

pytestmark = virtual_time

LATE = 95.0
"""Seconds after which no request of a run with a timeout of 30 s can arrive."""
ANN, BO = {"email": "ann@a.example", "city": "Lyon"}, {"email": "bo@a.example", "city": "Bern"}


@attrs.define
class Clock:
    """A wall clock that the test moves."""

    now: float = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


def move(ledger: Store, seconds: float) -> None:
    """Move the clock of a ledger."""
    clock: Any = ledger.wall
    clock.now += seconds


class Slow:
    """A transport to a service whose responses take a tenth of a second."""

    def __init__(self, fake: FakeService) -> None:
        self._inner = FakeTransport(fake)

    async def send(self, request: Request, progress: Progress, /) -> Response:
        response = await self._inner.send(request, progress)
        await anyio.sleep(0.1)
        return response

    async def aclose(self) -> None: ...


class LosesAnswers(Slow):
    """A transport that loses each answer for a contact."""

    def __init__(self, fake: FakeService, email: str, most: int = 99) -> None:
        super().__init__(fake)
        self._email = email
        self._left = most

    async def send(self, request: Request, progress: Progress, /) -> Response:
        response = await super().send(request, progress)
        if json.loads(request.body)["email"] == self._email and self._left > 0:
            self._left -= 1
            raise lost()
        return response


class PutsOff(Slow):
    """A transport to a service that always asks to wait for one contact."""

    async def send(self, request: Request, progress: Progress, /) -> Response:
        is_ann = json.loads(request.body)["email"] == ANN["email"]
        return Response(403, {"retry-after": "1"}, b"") if is_ann else await super().send(request, progress)


@pytest.fixture(params=["file", "folder"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    path = tmp_path / "contacts.ledger"
    return Store(path.as_uri() if request.param == "folder" else path, inline=True, wall=Clock())


@pytest.fixture
def file(tmp_path: Path) -> Store:
    return Store(tmp_path / "contacts.ledger", inline=True, wall=Clock())


@pytest.fixture
def fake() -> FakeService:
    return new_fake("Plan")


def client(transport: Any) -> OutreachClient:
    transport = FakeTransport(transport) if isinstance(transport, FakeService) else transport
    return OutreachClient(transport=transport, owner_key=KEY, workspace=SPACE, retry=RetryPolicy(attempts=2, jitter=lambda: 1.0))


async def run(
    transport: Any, ledger: Any, rows: Any, timeout: float | None = 30.0, **options: Any
) -> tuple[list[ContactOutcome], BulkReport]:
    """Send rows, and return the outcomes in the order of the rows, and the report."""
    options = {"duplicates": "overwrite", "order": "input", "stop_after_rejects": None, **options}
    async with client(transport).with_options(timeout=timeout).contacts.create_many(rows, ledger=ledger, **options) as outcomes:
        found = [outcome async for outcome in outcomes]
    assert outcomes.report.repeats == sum(outcome.repeats is not None and outcome.error is None for outcome in found)
    return found, outcomes.report


async def interrupt(fake: FakeService, ledger: Store, rows: Any, **options: Any) -> None:
    """Cancel a run while its requests are in flight."""
    with anyio.move_on_after(0.05):
        await run(Slow(fake), ledger, rows, **options)


def statuses(found: tuple[list[ContactOutcome], BulkReport]) -> list[str]:
    return [outcome.status.value for outcome in found[0]]


def counts(found: tuple[list[ContactOutcome], BulkReport]) -> dict[str, int]:
    """Return the counts of the ledger that are not zero."""
    assert found[1].ledger is not None
    return {name: count for name, count in attrs.asdict(found[1].ledger).items() if count}


def read(path: Path) -> bytes:
    return path.read_bytes()


def replace(path: Path, content: bytes) -> None:
    """Replace a file with another one."""
    path.with_name("new").write_bytes(content)
    path.with_name("new").replace(path)


def overwrite(path: Path, content: bytes) -> None:
    """Overwrite a file in place, as `cp` does."""
    path.write_bytes(content)


def remove(path: Path) -> None:
    path.unlink()


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_hooks_receive_the_unchanged_rows_of_an_awaited_run_too(fake: FakeService, ledger: Store) -> None:
    events: list[Event] = []
    for _ in range(2):
        events.clear()
        watched = client(fake).with_options(hooks=[events.append])
        await watched.contacts.create_many([ANN, BO], ledger=ledger, duplicates="overwrite")
    assert [event.status for event in events if isinstance(event, RowEnded)] == [Outcome.UNCHANGED] * 2


async def test_a_second_run_sends_new_and_changed_rows_and_knows_the_other_ids(fake: FakeService, ledger: Store) -> None:
    first = await run(fake, ledger, [ANN, BO, {"email": "cy@a.example"}])
    assert (statuses(first), counts(first)) == (["added"] * 3, {"new": 3})
    second = await run(fake, ledger, [BO, {**ANN, "city": "Rome"}, {"email": "di@a.example"}])
    assert (statuses(second), counts(second)) == (
        ["unchanged", "overwriten", "added"],
        {"unchanged": 1, "changed": 1, "new": 1, "gone": 1},
    )
    bo = second[0][0]
    assert (bo.id, bo.certain, bo.attempts, bo.contact) == (first[0][1].id, True, 0, BO)
    assert statuses(await run(fake, ledger, [{**ANN, "city": "Rome"}, {"email": "cy@a.example"}])) == ["unchanged"] * 2


@pytest.mark.parametrize("named", [False, True])
async def test_a_ledger_keeps_what_it_knows_of_a_contact_who_opts_out_for_some_nights(
    fake: FakeService, ledger: Store, named: bool
) -> None:
    out: Any = (OptedOut(BO), Target(SPACE)) if named else OptedOut(BO)
    nights: list[tuple[Any, dict[str, Any], str, dict[str, int]]] = [
        (BO, {}, "added", {"new": 2}),
        (BO, {}, "unchanged", {"unchanged": 2}),
        (out, {}, "excluded", {"unchanged": 1, "excluded": 1}),
        (out, {"max_age": 0}, "excluded", {"expired": 1, "excluded": 1}),
        (BO, {}, "unchanged", {"unchanged": 2}),
        ({**BO, "city": "Rome"}, {}, "overwriten", {"unchanged": 1, "changed": 1}),
    ]
    for row, options, label, expected in nights:
        found = await run(fake, ledger, [ANN, row], **options)
        assert (statuses(found)[1], counts(found)) == (label, expected)
    assert (ledger.contacts().contacts, ledger.contacts().gone) == (2, 0)
    assert [sums.get("excluded", 0) for _, _, sums in ledger.contacts().runs] == [0, 0, 1, 1, 0, 0]


async def test_a_contact_with_an_uncertain_row_who_opts_out_stays_uncertain(fake: FakeService, file: Store) -> None:
    await run(LosesAnswers(fake, BO["email"], 1), file, [ANN, BO])
    assert statuses(await run(Script(), file, [ANN, OptedOut(BO)])) == ["unchanged", "excluded"]
    assert counts(await run(fake, file, [ANN, BO])) == {"uncertain": 1, "unchanged": 1}


async def test_the_same_values_in_another_form_are_unchanged(fake: FakeService, file: Store) -> None:
    rows = [{**ANN, "custom_1": "pro"}, BO]
    await run(fake, file, rows)
    forms = [NewContact("ann@a.example", city="Lyon", custom={"custom_1": "pro"}), {"city": "Bern", "email": "bo@a.example"}]
    assert statuses(await run(fake, file, forms)) == ["unchanged"] * 2
    assert statuses(await run(fake, file, [NewContact("bo@a.example", city="Bern")])) == ["unchanged"]
    assert statuses(await run(fake, file, rows, repeats="error")) == ["unchanged"] * 2
    assert statuses(await run(fake, file, rows, strict_validation=False)) == ["overwriten"] * 2


async def test_rejected_rows_are_reported_each_time_and_are_not_gone(file: Store) -> None:
    rows = [ANN, {"email": " "}, 7, {"email": "no@a.example", "town": "x"}, {"email": "bad@a.example"}]
    script = Script(added(), status(422))
    for expected in (["added", *["rejected"] * 4], ["unchanged", *["rejected"] * 4]):
        assert statuses(await run(script, file, rows, concurrency=1)) == expected
    await run(Script(added("contact_2")), file, [{"email": "no@a.example"}])
    for wrong in rows[3:4], rows[1:4]:
        last = await run(Script(), file, wrong)
        assert (statuses(last), counts(last)) == (["rejected"] * len(wrong), {"gone": 1})


@pytest.mark.parametrize("row", [{}, {"email": None}, {"email": 5}, {"city": "Lyon"}, NewContact(None)])  # type: ignore[arg-type]
async def test_a_row_without_an_email_is_rejected_and_stops_no_other(row: Any, fake: FakeService, file: Store) -> None:
    assert statuses(await run(fake, file, [ANN, row, BO])) == ["added", "rejected", "added"]


async def test_an_uncertain_row_is_sent_until_its_only_attempt_is_answered(fake: FakeService, ledger: Store) -> None:
    rows = [*({"email": f"user{number}@a.example"} for number in range(30)), ANN]
    first = await run(LosesAnswers(fake, ANN["email"]), ledger, rows, concurrency=2)
    assert (first[0][-1].status, ledger.contacts().uncertain) == ("unknown", 1)
    second = await run(LosesAnswers(fake, ANN["email"], 1), ledger, rows)
    assert (counts(second), ledger.contacts().uncertain) == ({"uncertain": 1, "unchanged": 30}, 1)
    move(ledger, LATE)
    third = await run(fake, ledger, [ANN])
    assert third[0][0].possible == {Outcome.ADDED, Outcome.OVERWRITTEN}
    assert ledger.contacts().uncertain == 0
    assert statuses(await run(Script(), ledger, [ANN])) == ["unchanged"]


@pytest.mark.parametrize(("timeout", "seconds"), [(0.5, LATE - 29.5), (None, 3600.0), (math.inf, 3600.0), (1e6, 3600.0)])
async def test_an_answer_settles_a_row_once_no_earlier_request_can_arrive(
    timeout: float | None, seconds: float, fake: FakeService, file: Store
) -> None:
    await interrupt(fake, file, [ANN], timeout=timeout)
    move(file, seconds - 1)
    await run(fake, file, [ANN, BO])
    assert counts(await run(fake, file, [ANN, BO])) == {"uncertain": 1, "unchanged": 1}
    move(file, 1)
    await run(fake, file, [ANN, BO])
    assert counts(await run(Script(), file, [ANN, BO])) == {"unchanged": 2}


async def test_a_clock_that_was_ahead_keeps_no_row_uncertain_for_longer(fake: FakeService, file: Store) -> None:
    move(file, 365 * 86400)
    await interrupt(fake, file, [ANN])
    move(file, -365 * 86400)
    await run(fake, file, [ANN, BO])
    move(file, 3600)
    assert counts(await run(fake, file, [ANN, BO])) == {"uncertain": 1, "unchanged": 1}
    assert counts(await run(Script(), file, [ANN, BO])) == {"unchanged": 2}


async def test_after_a_retry_a_later_row_of_the_contact_is_sent_again(fake: FakeService, file: Store) -> None:
    rows = [ANN, {**ANN, "city": "Rome"}]
    await run(LosesAnswers(fake, ANN["email"], 1), file, rows, concurrency=1)
    for seconds in 0, LATE:  # the first answer may be older than the request that was not answered
        move(file, seconds)
        assert counts(await run(fake, file, rows[1:])) == {"uncertain": 1}
    assert counts(await run(Script(), file, rows[1:])) == {"unchanged": 1}


async def test_rows_that_can_be_read_only_once_are_compared_one_by_one(fake: FakeService, file: Store) -> None:
    rows = [{**ANN, "city": "Rome"}, ANN]
    for expected in {"new": 2}, {"changed": 2}:
        assert counts(await run(fake, file, (row for row in rows))) == expected
    assert fake.contacts(SPACE)[0]["fields"]["city"] == "Lyon"
    assert counts(await run(fake, file, iter([ANN, ANN]))) == {"unchanged": 2}


async def test_a_row_that_was_put_off_until_the_end_is_new_the_next_night(fake: FakeService, file: Store) -> None:
    people = [*({"email": f"user{number}@a.example"} for number in range(60)), ANN]
    *_, last = (await run(PutsOff(fake), file, people, concurrency=2))[0]
    assert (last.status, last.certain) == (Outcome.NOT_APPLIED, True)
    assert counts(await run(fake, file, people)) == {"new": 1, "unchanged": 60}


@pytest.mark.parametrize("changed", ["send", "ignore"])
@pytest.mark.parametrize(("moved", "max_age"), [(-86400, 0), (-86400, 1e6), (1e6, 1e5), (0, 0), (60, 1e5), (0, 1e5), (-60, None)])
async def test_rows_without_a_fresh_entry_are_sent_whether_they_differ_or_not(
    fake: FakeService, file: Store, moved: float, max_age: float | None, changed: Changed
) -> None:
    clock: Any = file.wall
    await run(fake, file, [ANN, BO])
    clock.now += moved
    _, report = await run(fake, file, [ANN, {**BO, "city": "Oslo"}], max_age=max_age, changed=changed)
    is_fresh = max_age is None or 0 <= moved < max_age
    assert report.outcomes[Outcome.OVERWRITTEN] == ((changed == "send") if is_fresh else 2)


@pytest.mark.parametrize("now", [math.nan, math.inf, -1.0, 1e18, 10**400, "1790000000", True, None])
async def test_a_clock_that_returns_no_time_is_refused_before_anything_is_sent(now: Any, tmp_path: Path) -> None:
    ledger = Store(tmp_path / "contacts.ledger", inline=True, wall=lambda: now)
    with pytest.raises(InvalidRequest, match=r"^wall: expected the Unix time in seconds, .*, got .*; pass a function such as"):
        await run(Script(), ledger, [ANN])
    assert names(tmp_path) == []


async def test_changes_can_be_ignored(fake: FakeService, file: Store) -> None:
    await run(fake, file, [ANN], duplicates="skip", changed="ignore")
    found = await run(fake, file, [{**ANN, "city": "Rome"}, BO], duplicates="skip", changed="ignore")
    assert (statuses(found), counts(found)) == (["unchanged", "added"], {"unchanged": 1, "new": 1})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"duplicates": "skip"}, 'duplicates: with a ledger and "skip", the service would ignore each changed row'),
        ({"journal": "run.db"}, "journal: conflicts with a ledger"),
        ({"resume": True}, "resume: conflicts with a ledger"),
        ({"spool": True}, "spool: conflicts with a ledger"),
        ({"earlier": "unknown"}, "earlier: conflicts with a ledger; to send every row again, pass max_age=0"),
        ({"repeats": "coalesce"}, 'repeats: "coalesce" conflicts with a ledger; pass repeats="serial", or "last", "first"'),
        (
            {"repeats": "last", "rows": iter([ANN])},
            "repeats: with a ledger, 'last' needs rows that can be read twice",
        ),
        ({"changed": "maybe"}, "changed: "),
        *(
            ({"max_age": age}, f"max_age: expected at least 0 seconds, or a timedelta, got {got}; pass 0 to send every row")
            for age, got in [
                (-1, "-1"),
                (timedelta(-1), "-86400.0"),
                (10**400, "a number of 1329 bits"),
                (math.nan, "nan"),
                (math.inf, "inf"),
                (True, "bool"),
                ("30d", "str"),
            ]
        ),
        ({"ledger": 7}, "ledger: expected a path, URL or Store, got int"),
        ({"ledger": "ftp://host/x", "duplicates": "skip"}, "ledger: expected a path or a URL that starts with one of s3://"),
        ({"duplicates": "skip", "total": -1}, "total: expected at least 0"),
        ({"duplicates": "skip", "max_age": -1}, "max_age: expected at least 0"),
        ({"ledger": None, "max_age": 1}, "max_age: needs a ledger"),
        ({"ledger": None, "changed": "ignore"}, "changed: needs a ledger"),
    ],
)
async def test_options_that_contradict_a_ledger_are_refused_at_once(options: dict[str, Any], message: str, file: Store) -> None:
    with pytest.raises(InvalidRequest) as caught:
        client(Script()).contacts.create_many(**{"rows": [ANN], "ledger": file, "duplicates": "overwrite", **options})
    assert str(caught.value).startswith(message)
    assert not file.exists()


async def test_a_second_run_at_the_same_time_is_refused_and_loses_nothing(file: Store) -> None:
    async with client(Script(added())).contacts.create_many([ANN], ledger=file, duplicates="overwrite") as outcomes:
        with pytest.raises(InvalidRequest, match=r"^ledger: another run is using .*contacts.ledger; wait until that run ends"):
            await run(Script(), file, [ANN])
        assert file.contacts().pending
        assert [outcome.status async for outcome in outcomes] == ["added"]
    assert (statuses(await run(Script(), file, [ANN])), file.contacts().pending) == (["unchanged"], False)


async def test_a_run_in_a_shared_folder_takes_over_from_an_earlier_one(fake: FakeService, tmp_path: Path) -> None:
    ledger = Store((tmp_path / "contacts").as_uri(), inline=True, wall=Clock())
    rows = [{"email": f"user{number}@a.example"} for number in range(20)]
    earlier: list[ContactOutcome] = []
    later: list[dict[str, int]] = []

    async def run_twice() -> None:
        slow = client(Slow(fake)).contacts.create_many(rows, ledger=ledger, duplicates="overwrite", concurrency=1)
        async with slow as outcomes:
            async for outcome in outcomes:
                earlier.append(outcome)
                if len(earlier) == 9:
                    later.append(counts(await run(fake, ledger, rows)))

    with pytest.raises(JournalError, match="another run has taken over"):
        await run_twice()
    assert (later[0]["unchanged"], sum(later[0].values())) == (len(earlier), 20)
    assert ledger.contacts().uncertain == later[0]["uncertain"]  # requests of the earlier run may arrive after those of the later
    move(ledger, LATE)
    await run(fake, ledger, rows)
    assert statuses(await run(Script(), ledger, rows)) == ["unchanged"] * 20


async def test_a_run_that_was_taken_over_while_it_stood_still_sends_nothing_more(fake: FakeService, tmp_path: Path) -> None:
    ledger = Store((tmp_path / "contacts").as_uri(), inline=True)
    rows = [{"email": f"user{number}@a.example"} for number in range(20)]
    sent: list[int] = []

    async def stand_still() -> None:
        slow = client(Slow(fake)).contacts.create_many(rows, ledger=ledger, duplicates="overwrite", concurrency=1)
        async with slow as outcomes:
            async for _ in outcomes:
                if not sent:
                    await run(fake, ledger, rows)
                    recorder: Any = outcomes._pipeline._recorder
                    recorder._writer.database.last_write = -math.inf
                    sent.append(len(fake.requests))

    with pytest.raises(JournalError, match="another run has taken over"):
        await stand_still()
    assert len(fake.requests) <= sent[0] + 1  # the row in flight


async def test_leaving_a_run_early_keeps_its_outcomes_and_marks_no_contact_as_gone(fake: FakeService, ledger: Store) -> None:
    await run(fake, ledger, [BO])
    rows = [BO if number % 2 else {"email": f"user{number}@a.example"} for number in range(300)]
    async with client(Slow(fake)).contacts.create_many(rows, ledger=ledger, duplicates="overwrite", concurrency=1) as outcomes:
        async for _ in outcomes:
            outcomes.drain()
    assert outcomes.report.ledger is not None
    assert outcomes.report.ledger.gone is None
    done = outcomes.report.outcomes[Outcome.ADDED]
    assert 0 < done < 150
    assert counts(await run(fake, ledger, rows)) == {"unchanged": 150 + done, "new": 150 - done, "repeated": 150}


async def test_a_report_states_contacts_runs_and_targets(fake: FakeService, ledger: Store) -> None:
    await run(fake, ledger, [ANN, BO])
    await run(fake, ledger, [ANN])
    report = ledger.contacts()
    assert (report.contacts, report.uncertain, report.gone, report.pending) == (2, 0, 1, False)
    assert [(number, dict(sums)) for number, _, sums in report.runs] == [
        (2, {"unchanged": 1, "gone": 1}),
        (1, {"added": 2, "new": 2, "gone": 0}),
    ]
    assert report.to_dict()["targets"] == [{"workspace": SPACE, "campaign": None, "contacts": 2}]
    assert report.to_dict()["runs"][0]["at"] == "2026-09-21T14:13:20+00:00"


async def test_the_last_run_of_a_ledger_is_read(fake: FakeService, ledger: Store) -> None:
    for city in "Lyon", "Rome":
        await run(fake, ledger, [{**ANN, "city": city}, BO])
    report = ledger.report()
    assert (report.state, report.rows, report.outcomes[Outcome.OVERWRITTEN], report.windows) == ("finished", 1, 1, 1)
    assert [(outcome.index, outcome.status, outcome.target) for outcome in ledger.outcomes()] == [
        (0, "overwriten", (SPACE, None))
    ]


async def test_a_run_that_was_not_merged_is_pending(fake: FakeService, ledger: Store) -> None:
    await run(fake, ledger, [ANN])
    async with client(Slow(fake)).contacts.create_many([ANN, BO], ledger=ledger, duplicates="overwrite") as outcomes:
        assert (await anext(outcomes)).status is Outcome.UNCHANGED
        assert ledger.contacts().pending
    assert not ledger.contacts().pending
    assert [number for number, *_ in ledger.contacts().runs] == [2, 1]


async def test_a_campaign_that_does_not_exist_is_no_target_of_the_ledger(fake: FakeService, file: Store) -> None:
    campaign = fake.add_campaign(SPACE, name="Spring")
    rows = [{**ANN, "campaign": "Spring"}, {**BO, "campaign": "Nowhere"}, 7]
    assert statuses(await run(fake, file, rows)) == ["added", "rejected", "rejected"]
    assert file.contacts().targets == {(SPACE, None): 0, (SPACE, campaign): 1}


@pytest.mark.thorough
async def test_a_contact_in_many_campaigns_is_unchanged_in_each(fake: FakeService, file: Store) -> None:
    rows = [{**ANN, "campaign": fake.add_campaign(SPACE, name=f"c{number}")} for number in range(800)]
    await run(fake, file, rows)
    _, again = await run(fake, file, [*rows, BO])
    assert (again.outcomes[Outcome.UNCHANGED], again.outcomes[Outcome.ADDED]) == (800, 1)


async def test_another_owner_key_leaves_rows_unchanged_until_all_are_sent(fake: FakeService, file: Store) -> None:
    await run(fake, file, [ANN])
    other = client(fake).with_options(owner_key=fake.add_owner_key(SPACE))
    again = await other.contacts.create_many([ANN], ledger=file, duplicates="overwrite")
    assert again.outcomes[Outcome.UNCHANGED] == 1
    again = await other.contacts.create_many([ANN], ledger=file, duplicates="overwrite", max_age=0)
    assert again.outcomes[Outcome.OVERWRITTEN] == 1
    assert len(fake.requests) == 2


@pytest.mark.thorough
async def test_rows_keep_their_order_and_unchanged_rows_do_not_count_as_accepted(fake: FakeService, file: Store) -> None:
    rows = [{"email": f"user{number}@a.example"} for number in range(500)]
    await run(fake, file, rows)
    changed = [{**row, "city": "Lyon"} if number % 50 == 7 else row for number, row in enumerate(rows)]
    found, report = await run(fake, file, changed)
    assert [outcome.index for outcome in found] == list(range(500))
    assert (report.outcomes[Outcome.UNCHANGED], report.outcomes[Outcome.OVERWRITTEN]) == (490, 10)
    bad = [*rows[:7], *({"email": f"@{number}"} for number in range(3))]
    with pytest.raises(Exception, match="the first 3 rows were all rejected"):
        await run(fake, file, bad, stop_after_rejects=3)


@pytest.mark.parametrize("night", ["same", "other values", "accepted"])
async def test_rows_that_were_rejected_before_do_not_stop_a_run(fake: FakeService, ledger: Store, night: str) -> None:
    bad = [{"email": f"@{number}", "city": "Lyon"} for number in range(5)]
    await run(fake, ledger, bad)
    if night == "other values":  # for example in a column that changes every day
        bad = [{**row, "city": "Rome"} for row in bad]
    if night == "accepted":
        fake.behaviour = attrs.evolve(fake.behaviour, strict_fields=frozenset())
    found = await run(fake, ledger, [*bad, ANN], stop_after_rejects=3, concurrency=1)
    assert statuses(found) == ["added" if night == "accepted" else "rejected"] * 5 + ["added"]


async def test_rejections_of_a_stopped_run_that_was_not_merged_are_remembered(fake: FakeService, file: Store) -> None:
    bad = [{"email": f"@{number}"} for number in range(3)]
    await run(fake, file, [ANN])

    killed = await run_until_killed(fake, file, [*bad, BO], 3, stop_after_rejects=None)
    replace(Path(file.location), killed)  # as if its process had been killed before it merged the run
    found = await run(fake, file, [*bad, BO], stop_after_rejects=1, concurrency=1)
    assert statuses(found) == ["rejected"] * 3 + ["overwriten"]


async def test_a_rejected_update_leaves_the_entry_as_it_is(fake: FakeService, ledger: Store) -> None:
    ((added_ann,), _) = await run(fake, ledger, [ANN])
    fake.faults.script("create_contact", faults.status(422))
    assert statuses(await run(fake, ledger, [{**ANN, "city": "Rome"}])) == ["rejected"]
    (known,), report = await run(fake, ledger, [ANN])
    assert (known.status, known.id, report.ledger and report.ledger.unchanged) == ("unchanged", added_ann.id, 1)
    assert counts(await run(fake, ledger, [{**ANN, "city": "Rome"}])) == {"changed": 1}


async def test_a_rejection_does_not_hide_an_attempt_without_an_answer(fake: FakeService, ledger: Store) -> None:
    for script, limit in (Script(lost(), status(422)), None), (Script(status(422)), 1):
        (outcome,), _ = await run(script, ledger, [ANN], stop_after_rejects=limit)
        assert (outcome.status, outcome.certain) == ("rejected", False)
    for seconds in 0, LATE:  # until then, the request without an answer may still arrive
        move(ledger, seconds)
        assert counts(await run(fake, ledger, [ANN])) == {"uncertain": 1}
    assert counts(await run(Script(), ledger, [ANN])) == {"unchanged": 1}


async def test_rows_of_a_slow_stream_do_not_wait_for_a_window(fake: FakeService, file: Store) -> None:
    async def stream() -> Any:
        for row in (ANN, BO):
            yield row
            await anyio.sleep(1)

    assert statuses(await run(fake, file, stream())) == ["added"] * 2


# Similar e-mails

SIMILAR = ("sales+de@a.example", "sales+fr@a.example")


async def test_a_lost_answer_casts_doubt_on_contacts_that_may_be_the_same(fake: FakeService, file: Store) -> None:
    rows = [{"email": f"sales+{place}@a.example", "city": "Lyon"} for place in ("de", "fr", "it")]
    others = [{"email": f"user{number}@a.example"} for number in range(60)]  # their answers show that there is no outage
    await run(fake, file, rows[:1])
    lossy = LosesAnswers(fake, "sales+fr@a.example")
    assert counts(await run(lossy, file, [*rows, *others[:30]], concurrency=2)) == {"unchanged": 1, "new": 32}
    # Without the id of the contact whose answer was lost, it may be any of the others.
    assert counts(await run(fake, file, rows)) == {"changed": 2, "uncertain": 1, "gone": 30}
    changed = [rows[0], {**rows[1], "city": "Bern"}, rows[2]]
    await run(lossy, file, [*changed, *others], concurrency=2)
    assert counts(await run(fake, file, rows)) == {"unchanged": 2, "uncertain": 1, "gone": 60}


async def test_a_request_that_may_still_arrive_keeps_similar_contacts_in_doubt(fake: FakeService, file: Store) -> None:
    clock: Any = file.wall
    known, lost = {"email": "sales+de@a.example"}, {"email": "sales+fr@a.example"}
    others = [{"email": f"user{number}@a.example"} for number in range(30)]
    await run(fake, file, [known])
    await run(LosesAnswers(fake, lost["email"]), file, [lost, *others], concurrency=2)
    for _ in range(2):
        assert counts(await run(fake, file, [known]))["changed"] == 1
    clock.now += 3600
    assert counts(await run(fake, file, [known]))["changed"] == 1
    assert counts(await run(fake, file, [known]))["unchanged"] == 1


async def test_a_contact_without_an_id_may_be_any_similar_one(file: Store) -> None:
    rows = [{"email": email} for email in SIMILAR]
    without_id = Response(200, {}, b'{"status":"overwriten","id":null,"details":null}')
    await run(Script(without_id, added("contact_2")), file, rows, concurrency=1)
    assert counts(await run(Script(without_id), file, rows[:1])) == {"changed": 1, "gone": 1}
    assert counts(await run(Script(added("contact_2"), without_id), file, rows[::-1], concurrency=1)) == {"changed": 2}


# What changes under a ledger


async def test_an_older_copy_is_refused_with_a_remedy(fake: FakeService, file: Store) -> None:
    path = Path(file.location)
    for number in range(2):
        await run(fake, file, [{**ANN, "city": f"city {number}"}])
        shutil.copy(path, f"{path}.{number}")
    shutil.copy(f"{path}.0", path)
    with pytest.raises(InvalidRequest, match=r"older than its last run, which .*.last-run shows, .* move .*.last-run away"):
        await run(fake, file, [{**ANN, "city": "city 0"}])
    remove(path.with_name("contacts.ledger.last-run"))
    assert counts(await run(fake, file, [{**ANN, "city": "city 0"}], max_age=0)) == {"expired": 1}
    assert fake.contacts(SPACE)[0]["fields"]["city"] == "city 0"


async def test_a_ledger_that_was_used_elsewhere_and_is_copied_back_is_accepted(fake: FakeService, file: Store) -> None:
    path = Path(file.location)
    await run(fake, file, [ANN])
    elsewhere = Store(shutil.copy(path, path.with_name("elsewhere.ledger")), inline=True, wall=file.wall)
    await run(fake, elsewhere, [{**ANN, "city": "Rome"}])
    shutil.copy(elsewhere.location, path)
    assert counts(await run(fake, file, [{**ANN, "city": "Rome"}])) == {"unchanged": 1}


async def test_a_ledger_that_was_deleted_is_missed(fake: FakeService, file: Store) -> None:
    path = Path(file.location)
    await run(fake, file, [ANN])
    remove(path)
    with pytest.raises(InvalidRequest, match=r"does not exist, although .*.last-run shows a run; restore it, or move .* away"):
        await run(fake, file, [ANN])
    remove(path.with_name("contacts.ledger.last-run"))
    assert counts(await run(fake, file, [ANN], max_age=0)) == {"new": 1}


@pytest.mark.parametrize("torn", [b"", b'["'])
async def test_a_torn_note_of_the_last_run_says_nothing(torn: bytes, fake: FakeService, file: Store) -> None:
    await run(fake, file, [ANN])
    overwrite(Path(f"{file.location}.last-run"), torn)
    assert counts(await run(fake, file, [ANN])) == {"unchanged": 1}


@pytest.mark.parametrize("change", [replace, overwrite, lambda path, _: remove(path)])
async def test_a_ledger_that_changes_during_a_run_stops_it(
    change: Callable[[Path, bytes], None], fake: FakeService, file: Store
) -> None:
    path = Path(file.location)
    await run(fake, file, [ANN])
    before = read(path)

    async def change_during_a_run() -> None:
        async with client(fake).contacts.create_many([ANN, BO], ledger=file, duplicates="overwrite") as outcomes:
            change(path, b"")
            async for _ in outcomes:
                pass

    with pytest.raises(JournalError, match="the file was replaced or changed during the run; fix the cause and run again"):
        await change_during_a_run()
    assert path.name not in names(path.parent) or read(path) == b""
    assert [contact["email"] for contact in fake.contacts(SPACE)] == [ANN["email"]]  # the row was not marked, so it was not sent
    replace(path, before)
    path.with_name("contacts.ledger-wal").unlink(missing_ok=True)
    with pytest.raises(InvalidRequest, match="is older than its last run"):
        await run(fake, file, [BO])


def replace_by_link(path: Path) -> None:
    path.rename(moved := path.with_name("moved"))
    path.symlink_to(moved)


def execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement)
        db.commit()


def leave_the_log(path: Path) -> None:
    path.rename(f"{path}-wal")
    path.with_name(f"{path.name}.last-run").unlink()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "an outcome is missing": lambda path: execute(path, "DELETE FROM outcome WHERE seq = 1"),
    "all outcomes are missing": lambda path: execute(path, "DELETE FROM outcome"),
    "an outcome has another row": lambda path: execute(path, "UPDATE outcome SET seq = 7 WHERE seq = 1"),
    "an outcome has changed": lambda path: execute(path, "UPDATE outcome SET status = 5 WHERE seq = 1"),
    "a sent row is missing": lambda path: execute(path, "DELETE FROM sent WHERE seq = 0"),
    "a sent row has changed": lambda path: execute(path, "UPDATE sent SET digest = digest + 1 WHERE seq = 0"),
    "a window is missing": lambda path: execute(path, "DELETE FROM window"),
    "a target is changed": lambda path: execute(path, "UPDATE target SET campaign = 'camp_9'"),
    "an entry is missing": lambda path: execute(path, "DELETE FROM entry WHERE key = (SELECT min(key) FROM entry)"),
    "an entry has changed": lambda path: execute(path, "UPDATE entry SET id_2 = id_2 + 1"),
    "a run has changed": lambda path: execute(path, "UPDATE run SET at = at + 1"),
    "the file is empty": lambda path: path.write_bytes(b""),
    "the file is torn": lambda path: path.write_bytes(path.read_bytes()[:5000]),
    "only the log is left": leave_the_log,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("is_finished", [True, False])
async def test_no_part_of_a_damaged_ledger_is_used(fake: FakeService, file: Store, damage: str, *, is_finished: bool) -> None:
    path, campaign = Path(file.location), fake.add_campaign(SPACE)
    rows = [ANN, {**BO, "campaign": campaign}, *[{**ANN, "email": "cy@a.example"}] * (not is_finished)]
    await run(fake, file, rows)
    changed = [{**row, "city": "Oslo"} for row in rows]
    if is_finished:
        with pytest.raises(JournalError, match="killed"):
            await run(fake, Unmerged(file.location, inline=True, wall=file.wall), changed)
    else:
        replace(path, await run_until_killed(fake, file, changed, 2))
    assert file.contacts().pending
    DAMAGE[damage](path)
    with pytest.raises(
        JournalError, match=r"^ledger .* is damaged: .*; restore a copy .*, or move it away, .* with max_age=0"
    ) as caught:
        await run(fake, file, rows)
    assert not re.search("resume|earlier", str(caught.value))
    (path.parent / "away").mkdir()
    for each in path.parent.glob(f"{path.name}*"):
        each.rename(path.parent / "away" / each.name)
    found = await run(fake, file, rows, max_age=0)
    assert set(statuses(found)) == {"overwriten"}
    assert {contact["fields"].get("city") for contact in fake.contacts(SPACE)} == {row.get("city") for row in rows}


async def run_until_killed(fake: FakeService, file: Store, rows: list[Any], outcomes: int, **options: Any) -> bytes:
    """Return the ledger that a run leaves if its process is killed after so many outcomes. The run goes on to its end."""
    options = {"duplicates": "overwrite", "concurrency": 1, **options}
    async with client(Slow(fake)).contacts.create_many(rows, ledger=file, **options) as found:
        async for _ in found:
            if not (outcomes := outcomes - 1):
                return read(copy_killed(Path(file.location)))
    raise AssertionError("the run has ended")


class DiesBeforeMerging:
    """The database of a process that ends when its run has ended, before it has merged its rows."""

    def __init__(self, database: Any) -> None:
        self._database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def transaction(self, *, marks: bool = False) -> Any:
        if marks and self._started and self._database.query(read_metadata)["state"] == "finished":
            raise JournalError("killed")
        self._started |= marks
        return self._database.transaction(marks=marks)

    _started = False


@attrs.define(eq=False, repr=False, slots=False)
class Unmerged(Store):
    """A ledger whose process ends before it has merged its rows."""

    def medium(self) -> Any:
        medium: Any = super().medium()
        opens = medium.open

        def open_dying(address: Any) -> Any:
            return DiesBeforeMerging(opens(address))

        medium.open = open_dying
        return medium


@pytest.mark.parametrize(("damage", "message"), [
    (replace_by_link, "is not a regular file"),
    (lambda path: path.write_text("not a ledger" * 100, encoding="utf-8"), "is not a ledger; move it away"),
])  # fmt: skip
async def test_what_is_not_a_ledger_is_refused(
    damage: Callable[[Path], object], message: str, fake: FakeService, file: Store
) -> None:
    await run(fake, file, [ANN])
    damage(Path(file.location))
    with pytest.raises(InvalidRequest, match=message):
        await run(fake, file, [ANN])


async def test_the_folder_of_another_run_is_refused(fake: FakeService, tmp_path: Path) -> None:
    ledger = Store((tmp_path / "contacts.ledger").as_uri(), inline=True, wall=Clock())
    await run(fake, ledger, [ANN])
    place = f"{ledger.location}/run-000002"
    await client(fake).contacts.create_many([BO], journal=place)
    with pytest.raises(
        InvalidRequest, match=r"^ledger: .*run-000002 is not that of a run with this ledger; move away what does not belong"
    ) as caught:
        await run(fake, ledger, [ANN])
    assert not re.search("resume|earlier|max_age|-wal", str(caught.value))
    journal = path_of(place)
    journal.rename(tmp_path / "away")
    write(journal / "notes.txt", b"not a journal")
    with pytest.raises(InvalidRequest, match=r"run-000002 contains objects that do not belong to a journal, .*; move away what"):
        await run(fake, ledger, [ANN])
    journal.rename(tmp_path / "notes")
    assert counts(await run(fake, ledger, [ANN])) == {"unchanged": 1}
    (tmp_path / "notes").rename(path_of(f"{ledger.location}/run-000009"))
    with pytest.raises(InvalidRequest, match="is older than its last run, which a later folder than run-000003 shows"):
        await run(fake, ledger, [ANN])


def path_of(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)


async def test_a_ledger_that_cannot_be_written_stops_the_run_with_a_remedy(fake: FakeService, file: Store) -> None:
    rows = [{"email": f"user{number}@a.example"} for number in range(300)]
    await run(fake, file, rows[:1])
    size = len(read(Path(file.location)))
    with pytest.raises(JournalError, match=r"^ledger .*: journal .*; fix the cause and run again$"):
        await run_with_a_limit(size, lambda: run(fake, file, rows))
    clock: Any = file.wall
    for _ in range(2):  # the second starts when no earlier request can arrive any more
        await run(fake, file, rows)
        clock.now += 3600
    assert counts(await run(Script(), file, rows)) == {"unchanged": 300}


@pytest.mark.parametrize("at", range(8))
async def test_a_damaged_or_torn_file_is_never_believed(at: int, fake: FakeService, file: Store) -> None:
    path, rows = Path(file.location), [{"email": f"user{number}@a.example"} for number in range(60)]
    first, _ = await run(fake, file, rows)
    content, chance, harmless = read(path), random.Random(at), 0  # noqa: S311 - repeatable, not secret
    for place in (chance.randrange(len(content)) for _ in range(30)):
        for damaged in (content[:place], content[:place] + bytes([content[place] ^ 1 << at]) + content[place + 1 :]):
            replace(path, damaged)
            try:
                known = file.contacts()
            except (JournalError, InvalidRequest) as error:
                assert re.search("is damaged|is not a ledger|newer version|older version|empty file", str(error))  # noqa: PT017 - or none
                continue
            harmless += 1  # free space
            assert (known.contacts, known.uncertain) == (60, 0)
    assert harmless < 50
    replace(path, content)
    again, report = await run(fake, file, rows)
    assert counts((again, report)) == {"unchanged": 60}
    assert [outcome.id for outcome in again] == [outcome.id for outcome in first]


@pytest.mark.covers
@pytest.mark.thorough
async def test_a_full_disk_loses_no_outcome(fake: FakeService, file: Store) -> None:
    rows = [{"email": f"user{number}@a.example"} for number in range(500)]
    await run(fake, file, rows[:1])
    size, failures = len(read(Path(file.location))), 0
    for more in range(4_000, 80_000, 8_000):  # while the rows are sent, and while they are merged
        with contextlib.suppress(JournalError):
            await run_with_a_limit(size + more, lambda: run(fake, file, rows))
            failures -= 1
        failures += 1
    assert failures > 3
    clock: Any = file.wall
    clock.now += 3600
    await run(fake, file, rows)
    clock.now += 3600
    assert counts(await run(fake, file, rows)) == {"unchanged": 500}


async def run_with_a_limit(size: int, call: Callable[[], Awaitable[Any]]) -> None:
    """Run with a maximum size of files in bytes."""
    resource = pytest.importorskip("resource", reason="Windows has no limits of files")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        await call()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.covers
@pytest.mark.thorough
async def test_a_large_run_gives_back_its_space(fake: FakeService, file: Store) -> None:
    rows, path = [{"email": f"user{number}@a.example"} for number in range(4000)], Path(file.location)
    await run(fake, file, rows)
    large = len(read(path))
    await run(fake, file, rows)
    assert len(read(path)) < large * 0.6


async def test_a_journal_and_a_ledger_are_told_apart(fake: FakeService, file: Store, tmp_path: Path) -> None:
    await run(fake, file, [ANN])
    await client(fake).contacts.create_many([ANN], journal=tmp_path / "run.db")
    assert (file.is_ledger(), Store(tmp_path / "run.db").is_ledger()) == (True, False)
    with pytest.raises(InvalidRequest, match=r"run.db is a journal, not a ledger; pass it as journal=, or move it away"):
        await run(fake, tmp_path / "run.db", [ANN])
    with pytest.raises(InvalidRequest, match=r"contacts.ledger is a ledger, not a journal; pass it as ledger=, or pass another"):
        await client(fake).contacts.create_many([ANN], journal=file.location, resume=True)
    with pytest.raises(InvalidRequest, match="does not exist; pass the path or URL of a ledger"):
        Store((tmp_path / "none").as_uri()).contacts()


def select(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        return db.execute(query).fetchall()


async def test_other_programs_read_the_runs_rows_and_entries_of_a_file(fake: FakeService, file: Store, tmp_path: Path) -> None:
    campaign, path = fake.add_campaign(SPACE), Path(file.location)
    rows = [ANN, {**BO, "campaign": campaign}, {"email": "@"}]
    (ann, bo, _), _ = await run(fake, file, rows)
    assert select(path, "SELECT state, id, workspace, campaign, run, at, gone FROM entries ORDER BY campaign") == [
        ("known", ann.id, SPACE, None, 1, "2026-09-21 14:13:20", 0),
        ("known", bo.id, SPACE, campaign, 1, "2026-09-21 14:13:20", 0),
    ]
    columns = "row, status, certain, possible, id, attempts, error_class, workspace, campaign"
    found = select(path, f"SELECT {columns} FROM rows ORDER BY row")  # noqa: S608 - names of the test
    assert found == [
        (0, "added", 1, None, ann.id, 1, None, SPACE, None),
        (1, "added", 1, None, bo.id, 1, None, SPACE, campaign),
        (2, "rejected", 1, None, None, 1, "ContactRejected", SPACE, None),
    ]
    others = [{"email": f"{at}@a.example"} for at in range(30)]
    await run(LosesAnswers(fake, ANN["email"]), file, [*others, {**ANN, "city": "Rome"}], concurrency=2)
    possible = "added overwriten not_applied"
    assert select(path, "SELECT status, certain, possible FROM rows WHERE NOT certain") == [("unknown", 0, possible)]
    assert select(path, "SELECT state, gone FROM entries WHERE state <> 'known'") == [("uncertain", 0)]
    ((counts_of_run, state),) = select(path, "SELECT counts, state FROM runs WHERE run = 2")
    assert (json.loads(counts_of_run)["unknown"], state) == (1, "finished")
    await client(fake).contacts.create_many([BO], journal=tmp_path / "run.db")
    assert select(tmp_path / "run.db", "SELECT run, state FROM runs") == [(1, "finished")]
    assert select(tmp_path / "run.db", "SELECT row, status, workspace FROM rows") == [(0, "skipped", SPACE)]


DUCKDB = """
import duckdb, importlib.util, json, pathlib, sys
package = importlib.util.find_spec("duckdb_extension_sqlite_scanner")
place = next(pathlib.Path(package.origin).parent.rglob("*.duckdb_extension")) if package else "sqlite"
db = duckdb.connect()
try:
    db.execute(f"LOAD '{place}'")
except duckdb.Error:
    sys.exit("missing")
db.execute(f"ATTACH '{sys.argv[1]}' AS ledger (TYPE sqlite, READ_ONLY)")
views = ("runs", "rows", "entries")
print(json.dumps([db.sql(f"FROM sqlite_query('ledger', 'SELECT * FROM {view} ORDER BY 1')").fetchall() for view in views]))
"""


def read_with_duckdb(path: Path) -> Any:
    """Return the rows of the views, as texts."""
    command = [os.environ.get("OUTREACH_TEST_DUCKDB", sys.executable), "-c", DUCKDB, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.stderr.startswith("missing"):
        pytest.skip(
            "DuckDB lacks its extension; name in OUTREACH_TEST_DUCKDB the Python of an environment that has duckdb==1.5.5 and"
            " duckdb-extension-sqlite-scanner==1.5.5"
        )
    return json.loads(done.stdout)


@pytest.mark.thorough
async def test_duckdb_reads_the_views_of_a_file(fake: FakeService, file: Store) -> None:
    rows, path = [ANN, {**BO, "campaign": fake.add_campaign(SPACE)}, {"email": "@"}], Path(file.location)
    await run(fake, file, rows)
    await run(fake, file, [*rows, {**ANN, "email": "cy@a.example"}])
    content = read(path)
    found = read_with_duckdb(path)
    views = [select(path, f"SELECT * FROM {view} ORDER BY 1") for view in ("runs", "rows", "entries")]  # noqa: S608 - our names
    assert found == [[[None if cell is None else str(cell) for cell in row] for row in view] for view in views]
    assert read(path) == content
    (*_, last), _ = await run(fake, file, [*rows, {**ANN, "email": "cy@a.example"}])
    assert last.status is Outcome.UNCHANGED


@pytest.mark.parametrize("damage", ["content", "missing part", "manifest", "log"])
async def test_a_damaged_object_is_named(fake: FakeService, tmp_path: Path, damage: str) -> None:
    ledger = Store((tmp_path / "contacts").as_uri(), inline=True)
    await run(fake, ledger, [ANN])
    (part,) = (tmp_path / "contacts" / "entries").glob("000001-*")
    manifest = tmp_path / "contacts" / "entries" / "000001"
    if damage == "content":
        part.write_bytes(b"x" + part.read_bytes()[1:])
    elif damage == "missing part":
        part.unlink()
    elif damage == "manifest":
        manifest.write_bytes(b"{}")
    else:
        with pytest.raises(JournalError, match="killed"):
            await run(fake, Unmerged(ledger.location, inline=True), [BO])
        (tmp_path / "contacts" / "run-000002" / "0000-0000000001").write_bytes(b"OAOJ")
    with pytest.raises(JournalError, match=r"^ledger file:.* is damaged: .*; restore the object, or pass another URL") as caught:
        await run(fake, ledger, [ANN])
    assert not re.search("resume|earlier|-wal|move", str(caught.value))


@pytest.mark.parametrize("place", ["contacts.ledger", "contacts"])
async def test_who_reads_a_damaged_ledger_gets_the_remedy_of_ledgers(
    fake: FakeService, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / place
    if is_file := path.suffix == ".ledger":
        await run(fake, ledger := Store(place, inline=True), [ANN])
        execute(path, "DELETE FROM window")
    else:
        await run(fake, ledger := Store(path.as_uri(), inline=True), [ANN])
        (path / "run-000001" / "0000-0000000001").write_bytes(b"OAOJ")
    remedy = (
        "restore a copy .* with max_age=0" if is_file else "restore the object, or pass another URL, which starts a new ledger"
    )
    with pytest.raises(JournalError, match=rf"^ledger .*{place} is damaged: .*; {remedy}") as caught:
        ledger.report()
    assert not re.search("resume|earlier|journal" if is_file else "resume|earlier", str(caught.value))
    if not is_file:
        again = await run(fake, Store((tmp_path / "another").as_uri(), inline=True), [ANN])
        assert statuses(again) == ["overwriten"]


async def test_other_files_are_refused_and_unchanged(fake: FakeService, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no ledger", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "text")
    for name, message in {
        "text": "is not a ledger; move it away",
        "link": "is not a regular file",
        "no/folder": "cannot be opened: No such file or directory",
    }.items():
        with pytest.raises(InvalidRequest, match=message):
            await run(fake, Store(tmp_path / name, inline=True), [ANN])
    assert (tmp_path / "text").read_text(encoding="utf-8") == "no ledger"
    assert not Store(tmp_path / ("x" * 300)).exists()
    with pytest.raises(InvalidRequest, match="does not exist; pass the path of a ledger"):
        Store(tmp_path / "none").contacts()


async def test_a_run_for_another_service_takes_over_no_run(fake: FakeService, tmp_path: Path) -> None:
    ledger, elsewhere = Store((tmp_path / "contacts").as_uri(), inline=True, linger=0), Slow(fake)
    elsewhere.base_url = "https://api.example/v1"  # type: ignore[attr-defined]
    slow = client(Slow(fake)).contacts.create_many([ANN, BO], ledger=ledger, duplicates="overwrite", concurrency=1)
    async with slow as outcomes:
        found = [(await anext(outcomes)).status]
        with pytest.raises(InvalidRequest, match=r"belongs to the service at None, not to that at https://api.example"):
            await run(elsewhere, ledger, [ANN])
        found += [outcome.status async for outcome in outcomes]
    assert found == [Outcome.ADDED, Outcome.ADDED]


async def test_a_ledger_of_a_newer_version_or_another_service_is_refused(fake: FakeService, file: Store) -> None:
    await run(fake, file, [ANN])
    elsewhere: Any = Script()
    elsewhere.base_url = "https://api.example/v1"
    with pytest.raises(InvalidRequest, match=r"belongs to the service at None, not to that at https://api.example"):
        await run(elsewhere, file, [ANN])
    path = Path(file.location)
    for version, word in ((FORMAT_VERSION + 1, "newer"), (FORMAT_VERSION - 1, "older")):
        execute(path, f"PRAGMA user_version = {version}")
        before = read(path)
        with pytest.raises(InvalidRequest, match=f"was written by an? {word} version of this library"):
            await run(fake, file, [ANN])
        with pytest.raises(InvalidRequest, match=f"was written by an? {word} version of this library"):
            file.contacts()
        assert read(path) == before


async def test_a_ledger_has_no_secret_and_no_email_and_only_its_owner_can_read_it(fake: FakeService, file: Store) -> None:
    for row in (ANN, {**ANN, "city": "Rome"}):
        await run(fake, file, [row])
        assert not any(text in read(Path(file.location)) for text in (KEY.encode(), b"ann@", b"Lyon", b"Rome"))
        assert mode_of(Path(file.location)) == 0o600


async def test_only_the_last_journals_and_generations_are_kept(fake: FakeService, ledger: Store, tmp_path: Path) -> None:
    for number in range(4):
        await run(fake, ledger, [{**ANN, "city": str(number)}])
    if isinstance(ledger.location, str):
        assert {name[:6] for name in names(tmp_path / "contacts.ledger" / "entries")} == {"000002", "000003", "000004"}
    else:
        assert names(tmp_path) == ["contacts.ledger", "contacts.ledger.last-run"]


# Rows of one contact in one input: which of them count, and that the same input sends nothing again

ANNS = [{"email": (ANN["email"], " Ann@a.example")[at % 2], "city": city} for at, city in enumerate(("Lyon", "Bern", "Rome"))]


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
    repeats: Repeats, expected: list[str], kept: str, fake: FakeService, file: Store
) -> None:
    rows = [ANNS[0], BO, *ANNS[1:]]
    first = await run(fake, file, rows, repeats=repeats)
    assert (statuses(first), city(fake)) == (expected, kept)
    again = ["unchanged" if each not in {"not_applied", "rejected"} else each for each in expected]
    for _ in range(2):
        found = await run(Script(), file, rows, repeats=repeats)
        assert statuses(found) == again
        assert [outcome.repeats for outcome in found[0]] == [outcome.repeats for outcome in first[0]]


@pytest.mark.parametrize("repeats", ["first", "last"])
async def test_a_row_that_does_not_count_names_the_one_that_does(repeats: Repeats, fake: FakeService, file: Store) -> None:
    found, _ = await run(fake, file, [*ANNS, {**BO, **ANNS[0], "town": "x"}, ANNS[0]], repeats=repeats)
    counted = 0 if repeats == "first" else 4
    assert [outcome.repeats for outcome in found] == [None if at in {3, counted} else counted for at in range(5)]
    assert ([outcome.index for outcome in found], found[3].status) == ([*range(5)], "rejected")


async def test_a_row_that_cannot_be_sent_is_not_the_one_that_counts(fake: FakeService, file: Store) -> None:
    for fault, expected in ({"city": date(2026, 5, 4)}, "added"), ({"town": "x"}, "unchanged"):
        found = await run(fake, file, [BO, ANNS[0], {**ANNS[1], **fault}], repeats="last")
        assert statuses(found)[1:] == [expected, "rejected"]


async def test_another_policy_sends_the_rows_of_these_contacts_once_more(fake: FakeService, file: Store) -> None:
    rows = [*ANNS, BO]
    policies: tuple[tuple[Repeats, list[str]], ...] = (
        ("serial", ["added"] * 1 + ["overwriten"] * 2),
        ("last", ["not_applied"] * 2 + ["overwriten"]),
        ("first", ["overwriten"] + ["not_applied"] * 2),
        ("serial", ["unchanged"] + ["overwriten"] * 2),  # the contact has the first row already
    )
    for repeats, expected in policies:
        assert statuses(await run(fake, file, rows, repeats=repeats))[:3] == expected
        assert set(statuses(await run(Script(), file, rows, repeats=repeats))) <= {"unchanged", "not_applied"}
    assert city(fake) == "Rome"


async def test_a_rejected_row_is_sent_each_night_and_those_before_it_are_not(file: Store) -> None:
    assert statuses(await run(Script(added(), status(422)), file, ANNS[:2])) == ["added", "rejected"]
    for _ in range(2):
        assert statuses(await run(Script(status(422)), file, ANNS[:2])) == ["unchanged", "rejected"]
    assert statuses(await run(Script(added()), file, ANNS[:2])) == ["unchanged", "added"]
    assert statuses(await run(Script(), file, ANNS[:2])) == ["unchanged"] * 2


async def test_a_rejected_row_counts_as_the_last_one(file: Store) -> None:
    for _ in range(2):
        assert statuses(await run(Script(status(422)), file, ANNS, repeats="last")) == ["not_applied"] * 2 + ["rejected"]


@pytest.mark.parametrize("repeats", ["first", "last"])
async def test_a_row_that_says_not_to_write_counts_like_any_other(repeats: Repeats, fake: FakeService, file: Store) -> None:
    rows = [ANNS[0], OptedOut(ANNS[1])] if repeats == "last" else [OptedOut(ANNS[1]), ANNS[0]]
    for _ in range(2):
        assert sorted(statuses(await run(fake, file, rows, repeats=repeats))) == ["excluded", "not_applied"]
    assert fake.contacts(SPACE) == []
    assert statuses(await run(fake, file, rows[::-1], repeats=repeats)) == [
        *(["added", "excluded"] if repeats == "first" else ["excluded", "added"])
    ]


async def test_a_run_that_is_drained_while_it_reads_its_rows_first_sends_none(file: Store) -> None:
    async with client(Script()).contacts.create_many(ANNS, ledger=file, duplicates="overwrite") as outcomes:
        outcomes.drain()
        assert [outcome async for outcome in outcomes] == []
    assert statuses(await run(Script(added("contact_1")), file, ANNS)) == ["added"] * 3


async def test_other_tasks_run_while_a_run_reads_its_rows_first(file: Store) -> None:
    read, seen = 0, set[int]()

    class Counted(list[dict[str, str]]):
        def __iter__(self) -> Iterator[dict[str, str]]:
            nonlocal read
            for row in super().__iter__():
                read += 1
                yield row

    async def watch() -> None:
        while True:
            seen.add(read)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await run(Script(), file, Counted([{"email": ""}] * 800))
        group.cancel_scope.cancel()
    # Rows are read in batches of 250, and trio may start the next batch before the other task.
    assert max(later - earlier for earlier, later in pairwise(sorted(seen))) <= 500


async def test_equal_rows_are_as_one(fake: FakeService, file: Store) -> None:
    await run(fake, file, [BO, BO])
    for rows in [BO], [BO] * 3:
        assert {*statuses(await run(Script(), file, rows))} == {"unchanged"}
    spring = {**BO, "campaign": fake.add_campaign(SPACE)}
    assert statuses(await run(fake, file, [spring, BO])) == ["overwriten", "unchanged"]


async def test_repeats_far_from_each_other_are_compared_together(fake: FakeService, file: Store) -> None:
    rows = [ANNS[0], *({"email": f"user{at}@a.example"} for at in range(500)), ANNS[1]]
    await run(fake, file, rows, concurrency=64)
    assert {*statuses(await run(Script(), file, rows))} == {"unchanged"}


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
    table = pyarrow.Table.from_pylist(ANNS)
    for rows in (ANNS, (*ANNS,), dict(enumerate(ANNS)).values(), table):
        read = Source(rows).read_again
        assert read is not None
        assert len([*read()]) == len([*read()]) == len(ANNS)
    for rows in (iter(ANNS), Once(ANNS), table.to_reader(), map(dict, ANNS)):
        assert Source(rows).read_again is None


async def test_a_synchronous_run_reads_a_list_twice() -> None:
    read = Source(CallerRows(ANNS)).read_again
    assert read is not None
    assert [[*read()], [*read()]] == [ANNS, ANNS]
    assert Source(CallerRows(iter(ANNS))).read_again is None
