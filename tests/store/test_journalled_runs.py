"""Runs with a journal: they can be left and resumed, and outcomes are recorded before they are delivered."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.journal import content_of, copy_of
from support.runs import Counted, OptedOut, client, drain, outcomes_of, rows
from support.time import virtual_time
from support.transport import HANG, Script, added, skipped, status

from outreach_async import (
    BulkReport,
    BulkSuspended,
    ContactOutcome,
    InvalidRequest,
    JournalError,
    NewContact,
    Outcome,
)
from outreach_async.bulk import BulkRun
from outreach_async.store import Identity, Store
from outreach_async.store._writer import JournalWriter

pytestmark = virtual_time


async def test_a_resumed_run_sends_the_rows_that_have_no_outcome(journal: Store) -> None:
    script = Script(added(), seconds=0.1)
    run = client(script).contacts.create_many(rows(300), journal=journal, concurrency=8)
    first = await outcomes_of(run, 40)
    recorded = {outcome.index for outcome in journal.outcomes()}
    assert {outcome.index for outcome in first} <= recorded
    assert journal.report().state == "interrupted"
    with pytest.raises(InvalidRequest, match="already exists; resume its run, or pass another journal, with earlier="):
        await client(Script(added())).contacts.create_many(rows(300), journal=journal)
    second = await outcomes_of(client(Script(added())).contacts.create_many(rows(300), journal=journal, resume=True))
    assert sorted([*recorded, *(outcome.index for outcome in second)]) == list(range(300))
    assert journal.report().state == "finished"
    assert [outcome.index for outcome in journal.outcomes()] == list(range(300))
    assert [(kind, details) for _, kind, details in journal.events()] == [("resumed", {"after": "interrupted"})]


async def test_a_journal_that_does_not_exist_cannot_be_read(journal: Store) -> None:
    for read in (journal.report, lambda: list(journal.outcomes()), lambda: list(journal.events())):
        with pytest.raises(InvalidRequest, match="does not exist"):
            read()


async def finish_run(journal: Store, count: int = 20, **options: Any) -> BulkReport:
    return await client(Script(added())).contacts.create_many(rows(count), journal=journal, concurrency=8, **options)


async def test_the_last_outcomes_of_a_run_do_not_wait_for_others(tmp_path: Path) -> None:
    began = anyio.current_time()
    journal = Store(f"{tmp_path.as_uri()}/run", inline=True, linger=60.0)
    await client(Script(added())).contacts.create_many(rows(3), journal=journal)
    assert anyio.current_time() - began < 1


async def test_many_outcomes_do_not_wait_for_more(tmp_path: Path) -> None:
    began, refused = anyio.current_time(), [{"email": ""}] * 600
    journal = Store(f"{tmp_path.as_uri()}/run", inline=True, linger=60.0)
    run = client(Script(HANG)).contacts.create_many(
        [NewContact("ann@a.example"), *refused], journal=journal, stop_after_rejects=None
    )
    assert {outcome.status for outcome in await outcomes_of(run, 500)} == {Outcome.REJECTED}
    assert anyio.current_time() - began < 1


async def test_a_repeat_of_a_row_with_an_outcome_is_rejected_when_resumed(journal: Store) -> None:
    emails = [NewContact("ann@a.example"), NewContact("bo@a.example"), NewContact("ann@a.example")]
    options: Any = {"journal": journal, "repeats": "error", "concurrency": 1}
    await outcomes_of(client(Script(added(), HANG)).contacts.create_many(emails, **options), 1)
    rest = await outcomes_of(client(Script(added("contact_2"))).contacts.create_many(emails, resume=True, **options))
    assert [(outcome.index, outcome.status, outcome.repeats) for outcome in rest] == [
        (1, Outcome.ADDED, None),
        (2, Outcome.REJECTED, 0),
    ]


@pytest.mark.parametrize("kind", ["list", "generator"])
async def test_resuming_a_finished_run_with_the_same_rows_sends_nothing(journal: Store, kind: str, tmp_path: Path) -> None:
    report, script = await finish_run(journal), Script(added())
    passed_rows = list(rows(20)) if kind == "list" else rows(20)
    content = content_of(tmp_path)
    rerun = await client(script).contacts.create_many(passed_rows, journal=journal, resume=True)
    assert (rerun.outcomes, rerun.rows, script.requests) == (report.outcomes, 20, [])
    assert content_of(tmp_path) == content


async def unread() -> AsyncIterator[NewContact]:
    for row in rows(3000):
        await anyio.lowlevel.checkpoint()
        yield row
    await anyio.sleep_forever()


OTHER: dict[str, tuple[Callable[[], Any], str]] = {
    "none": (list, "ends before row"),
    "fewer": (lambda: rows(9), "differ"),
    "another": (lambda: [NewContact("user0@a.example", city="x"), *[*rows(60)][1:]], "rows 0 to .* differ"),
    "in another order": (lambda: reversed([*rows(60)]), "rows 0 to .* differ"),
    "unreadable": (lambda: [{"email": ""}] * 60, "rows 0 to .* differ"),
}
OTHER_LATER: dict[str, tuple[Callable[[], Any], str]] = {
    "one fewer": (lambda: rows(59), "rows .* to 58 differ"),
    "more": (lambda: rows(61), "expected the 60 rows of the finished run, got more"),
    "another last row": (lambda: [*rows(59), NewContact("tuesday@a.example")], "rows .* to 59 differ"),
    "an invalid last row": (lambda: [*rows(59), 3], "rows .* to 59 differ"),
    "a stream that stays open": (unread, "expected the 60 rows of the finished run, got more"),
}
"""Other inputs than the 60 rows of a run, each with the error; these are found where they differ, and in a spool at once."""
INPUTS = [
    *((name, spool, finished) for name in OTHER for spool in (False, True) for finished in (False, True)),
    *((name, *kind) for name in OTHER_LATER for kind in ((False, True), (True, False), (True, True))),
]


@pytest.mark.parametrize(("name", "spool", "finished"), [each for each in INPUTS if each[:2] != ("none", True)])
async def test_another_input_is_refused_before_any_of_its_rows_is_sent(
    journal: Store, name: str, spool: bool, finished: bool
) -> None:
    options: Any = {"journal": journal, "concurrency": 20, "spool": spool}
    found = await outcomes_of(
        client(Script(added(), seconds=0.1)).contacts.create_many(rows(60), **options), None if finished else 20
    )
    (make, wrong), script = (OTHER | OTHER_LATER)[name], Script(added())
    expected = 'expected no rows, or the 60 rows.*earlier="unknown"' if spool else wrong
    with anyio.fail_after(3600), pytest.raises(InvalidRequest, match=f"rows: the input changed: .*{expected}"):
        await client(script).contacts.create_many(make(), resume=True, **options)
    assert not script.requests
    assert len(found) <= journal.report().rows
    assert (journal.report().state == "finished") is finished


async def test_with_equal_fingerprints_a_finished_run_does_not_read_its_rows(journal: Store) -> None:
    journal.fingerprint = "f1"
    await finish_run(journal)
    untouched = rows(20)
    rerun = await client(Script(added())).contacts.create_many(untouched, journal=journal, resume=True)
    assert (rerun.rows, len([*untouched])) == (20, 20)
    journal.fingerprint = "f2"
    with pytest.raises(InvalidRequest, match="fingerprint"):
        await client(Script(added())).contacts.create_many(rows(20), journal=journal, resume=True)


@pytest.mark.parametrize("fingerprint", [None, "f1"])
async def test_one_fingerprint_alone_does_not_decide(journal: Store, fingerprint: str | None) -> None:
    journal.fingerprint = fingerprint
    await finish_run(journal)
    journal.fingerprint = None if fingerprint else "f1"
    with pytest.raises(InvalidRequest, match="ends before row 0"):
        await client(Script(added())).contacts.create_many([], journal=journal, resume=True)


SPOOLED: list[dict[str, Any]] = [{"spool": True}, {"repeats": "last"}, {"repeats": "coalesce", "duplicates": "overwrite"}]


@pytest.mark.parametrize("taken", [10, None], ids=["unfinished", "finished"])
@pytest.mark.parametrize("passes", [True, False], ids=["its rows", "none"])
@pytest.mark.parametrize("options", SPOOLED, ids=str)
async def test_a_spooled_run_is_resumed_with_its_rows_or_with_none(
    journal: Store, options: Any, passes: bool, taken: int | None
) -> None:
    passed_rows: list[Any] = [*rows(60), NewContact(" "), OptedOut(email="out@a.example"), *rows(60)]
    run = client(Script(added(), seconds=0.1)).contacts.create_many(passed_rows, journal=journal, concurrency=5, **options)
    await outcomes_of(run, taken)
    for again in (passed_rows, iter(passed_rows)) if passes else ([],):
        report = await client(Script(added())).contacts.create_many(again, journal=journal, resume=True, **options)
        assert (report.rows, journal.report().state) == (122, "finished")
    contacts: list[Any] = [outcome.contact for outcome in journal.outcomes()]
    assert [contact["email"] for contact in contacts[:60]] == [row.email for row in rows(60)]
    out = list(journal.outcomes())[61]
    assert (out.status, out.contact, str(out.error)) == (
        "excluded",
        {"email": "out@a.example"},
        "column 'Unsubscribed' says 'true'",
    )


async def test_a_spooled_run_with_the_same_fingerprint_does_not_read_its_rows(journal: Store) -> None:
    journal.fingerprint = "f1"
    run = client(Script(added(), seconds=0.1)).contacts.create_many(rows(60), journal=journal, concurrency=5, spool=True)
    await outcomes_of(run, 10)
    with anyio.fail_after(3600):
        report = await client(Script(added())).contacts.create_many(unread(), journal=journal, resume=True, spool=True)
    assert report.rows == 60


async def test_a_run_that_ended_before_its_rows_were_spooled_needs_them_again(journal: Store) -> None:
    async def interrupted() -> AsyncIterator[NewContact]:
        for row in rows(600):
            yield row
        raise ValueError("the stream broke")

    with pytest.raises(ValueError, match="the stream broke"):
        await client(Script(added())).contacts.create_many(interrupted(), journal=journal, spool=True)
    with pytest.raises(InvalidRequest, match=r'expected the whole input, .*, got no rows.*earlier="unknown"'):
        await client(Script(added())).contacts.create_many([], journal=journal, spool=True, resume=True)
    report = await client(Script(added())).contacts.create_many(rows(5), journal=journal, spool=True, resume=True)
    assert report.rows == 5


@pytest.mark.parametrize("left", [0, 10, 30])
async def test_with_earlier_unknown_rows_stay_uncertain_in_later_runs(journal: Store, left: int) -> None:
    def create(*answers: Any, **options: Any) -> BulkRun:
        script = Script(*answers, seconds=0.1)
        return client(script).contacts.create_many(rows(30), journal=journal, concurrency=4, **options)

    if left:  # the journal is intact, and the outcomes in it stay as they are
        await outcomes_of(create(added()), left)
        left = journal.report().rows
    await outcomes_of(create(skipped(), skipped(), HANG, earlier="unknown"), 1)
    report = await create(skipped(), resume=True)
    assert (report.rows, report.uncertain, report.outcomes[Outcome.ADDED]) == (30, 30 - left, left)


async def test_a_run_continued_after_damage_is_certain_of_no_skipped_row(journal: Store, tmp_path: Path) -> None:
    await finish_run(journal, 30)
    name, content = next(iter(content_of(tmp_path).items()))
    name.write_bytes(content[: len(content) // 2])
    for options in {}, {"resume": True}:
        with pytest.raises((JournalError, InvalidRequest), match='earlier="unknown"'):
            await finish_run(journal, 30, **options)
    report = await client(Script(skipped())).contacts.create_many(rows(30), journal=journal, earlier="unknown")
    assert (report.outcomes[Outcome.SKIPPED], report.uncertain) == (30, 30)
    ((_, kind, details),) = journal.events()
    assert kind == "damaged"
    assert "is damaged: " in details["reason"]


async def test_rows_in_flight_when_a_run_was_left_may_have_been_sent_and_others_not(journal: Store) -> None:
    async with client(Script(added(), added(), HANG)).contacts.create_many(rows(20), journal=journal, concurrency=2) as outcomes:
        await anext(outcomes)
        await anext(outcomes)
        await anyio.sleep(1)
    found = await outcomes_of(client(Script(skipped())).contacts.create_many(rows(20), journal=journal, resume=True))
    assert [len(outcome.possible) for outcome in sorted(found, key=lambda each: each.index)] == [2, 2, *[1] * 16]


@pytest.mark.parametrize(
    "options",
    [
        {"duplicates": "overwrite"},
        {"strict_validation": False},
        {"campaign": "camp_2"},
        {"workspace": "space_2"},
        {"spool": True},
        {"repeats": "error"},
    ],
)
async def test_other_options_are_refused(journal: Store, options: Any) -> None:
    await outcomes_of(client(Script(added(), seconds=0.1)).contacts.create_many(rows(40), journal=journal), 20)
    with pytest.raises(InvalidRequest, match=next(iter(options))):
        await client(Script(added())).contacts.create_many(rows(40), journal=journal, resume=True, **options)


class Addressed(Script):
    """A service at an address."""

    def __init__(self, base_url: str) -> None:
        super().__init__(added(), HANG)
        self.base_url = base_url


@pytest.mark.parametrize(
    ("before", "now", "shown"),
    [
        ("https://a.example", "https://b.example", "'https://a.example' and is now 'https://b.example'"),
        ("https://user:word@a.example", "http://a.example", "'https://a.example' and is now 'http://a.example'"),
        ("https://a.example", "https://a.example/v2", "'https://a.example' and is now 'https://a.example/v2'"),
        ("https://a.example", "https://a.example:444", "'https://a.example' and is now 'https://a.example:444'"),
        ("https://a.example", "", "'https://a.example' and is now null"),
    ],
)
async def test_another_address_is_refused_and_both_are_shown(journal: Store, before: str, now: str, shown: str) -> None:
    await outcomes_of(client(Addressed(before)).contacts.create_many(rows(40), journal=journal, concurrency=4), 1)
    script = Addressed(now)
    with pytest.raises(InvalidRequest, match=re.escape(f"base_url was {shown}")) as caught:
        await client(script).contacts.create_many(rows(40), journal=journal, resume=True)
    assert not script.requests
    assert "word" not in str(caught.value)


async def test_the_same_address_may_be_written_differently(journal: Store) -> None:
    first = Addressed("https://a.example")
    await outcomes_of(client(first).contacts.create_many(rows(5), journal=journal, concurrency=4), 1)
    again = Addressed("https://user:word@A.example:443/")
    again.entries = [added()]
    assert (await client(again).contacts.create_many(rows(5), journal=journal, resume=True)).rows == 4 + 1


A = "ann@a.example"
REPEATED: list[Any] = [
    {"email": A, "city": "Rome", "title": "Dr"},
    {"email": "bo@a.example"},
    {"email": A, "city": "Oslo", "title": " ", "custom_2": " "},
    {"email": " "},
    *({"email": email} for email in (A.upper(), f" {A}", f"{A}\0", f"{A}\0b")),  # e-mails of their own, for this choice
    {"email": A, "custom_1": "x"},
]
FIRST, LAST = {"city": "Rome", "title": "Dr"}, {"custom_1": "x"}
MERGED: dict[tuple[str, str], tuple[int, dict[str, str]]] = {
    ("first", "overwrite"): (0, FIRST),
    ("last", "overwrite"): (8, LAST),
    ("coalesce", "skip"): (0, FIRST),
    ("coalesce", "overwrite"): (0, {"city": "Oslo", "title": " ", "custom_2": " ", **LAST}),
    ("coalesce", "update_missing_fields"): (0, {**FIRST, **LAST}),
}
"""The row that is sent of those with an e-mail, and its fields."""


@pytest.mark.parametrize(("repeats", "duplicates"), MERGED)
async def test_one_row_per_email_is_sent_and_the_others_refer_to_it(journal: Store, repeats: Any, duplicates: Any) -> None:
    (sent, fields), script = MERGED[repeats, duplicates], Script(added(), seconds=0.1)
    options: Any = {"journal": journal, "repeats": repeats, "duplicates": duplicates, "concurrency": 1}
    await outcomes_of(client(script).contacts.create_many(REPEATED, **options), 2)
    report = await client(script).contacts.create_many([], resume=True, **options)
    found = [*journal.outcomes()]
    assert [outcome.repeats for outcome in found] == [sent if at in {0, 2, 8} and at != sent else None for at in range(9)]
    assert [outcome.status for outcome in found if outcome.repeats is not None] == [Outcome.NOT_APPLIED] * 2
    assert [outcome.index for outcome in found if outcome.status is Outcome.REJECTED] == [3]
    (body,) = {request.body for request in script.requests if json.loads(request.body)["email"] == A}
    assert {
        name: value for name, value in json.loads(body).items() if name in {"city", "title", "custom_1", "custom_2"}
    } == fields
    assert (report.repeats, report.outcomes[Outcome.NOT_APPLIED], report.rows) == (2, 2, 9)
    assert [outcome.contact for outcome in found] == [None if at == 3 else row for at, row in enumerate(REPEATED)]


async def test_all_rows_of_an_email_are_merged_however_many_there_are(journal: Store) -> None:
    many = [{"email": A, f"custom_{number}": "x", "city": str(number)} for number in range(500)]
    script = Script(added())
    await client(script).contacts.create_many(many, journal=journal, repeats="coalesce", duplicates="overwrite")
    (body,) = (json.loads(request.body) for request in script.requests)
    assert (body["city"], sum(name.startswith("custom_") for name in body)) == ("499", 500)


CHOICES = {  # a policy, whether the first or the second of two rows may not be sent, and the outcomes
    "serial": (["excluded", "added"], ["added", "excluded"]),
    "error": (["excluded", "rejected"], ["added", "excluded"]),
    "first": (["excluded", "not_applied"], ["added", "excluded"]),
    "last": (["excluded", "added"], ["not_applied", "excluded"]),
    "coalesce": (["excluded", "not_applied"], ["excluded", "excluded"]),
}


@pytest.mark.parametrize("campaign", [None, "camp_2"])
@pytest.mark.parametrize("duplicates", ["skip", "overwrite"])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("repeats", CHOICES)
async def test_a_row_that_may_not_be_sent_takes_part_in_the_choice_of_rows(
    journal: Store, repeats: Any, second: bool, duplicates: Any, campaign: str | None
) -> None:
    ann = {"email": "ann@a.example", **({"campaign": campaign} if campaign else {})}
    passed_rows = [ann, OptedOut(ann)] if second else [OptedOut(ann), ann]
    script = Script(added())
    options: Any = {"journal": journal, "repeats": repeats, "duplicates": duplicates, "campaign": "camp_1"}
    found = sorted(await outcomes_of(client(script).contacts.create_many(passed_rows, **options)), key=lambda each: each.index)
    assert [outcome.status for outcome in found] == CHOICES[repeats][second]
    assert len(script.requests) == CHOICES[repeats][second].count("added")
    assert {outcome.target.campaign for outcome in found} == {campaign or "camp_1"}


async def test_a_row_without_an_email_that_may_not_be_sent_replaces_no_other(journal: Store) -> None:
    passed_rows = [OptedOut(city="Lyon"), OptedOut(city="Bern"), {"email": "ann@a.example"}]
    await client(Script(added())).contacts.create_many(passed_rows, journal=journal, repeats="first")
    assert [(outcome.status, outcome.contact) for outcome in journal.outcomes()] == [
        ("excluded", {}),
        ("excluded", {}),
        ("added", {"email": "ann@a.example"}),
    ]


@pytest.mark.thorough
async def test_the_whole_input_is_spooled_before_the_first_row_is_sent(journal: Store) -> None:
    counted = Counted(rows(1200))
    async with client(Script(added())).contacts.create_many(counted, journal=journal, spool=True) as outcomes:
        await anext(outcomes)
        assert counted.read == 1200
        assert len([outcome async for outcome in outcomes]) == 1199


async def test_a_stream_is_read_at_most_a_window_ahead(journal: Store) -> None:
    counted = Counted(rows(100_000))

    async def endless() -> AsyncIterator[NewContact]:
        for row in counted:
            yield row

    async with client(Script(HANG)).contacts.create_many(endless(), journal=journal, concurrency=2):
        await anyio.sleep(60)
        assert counted.read == journal.report().marked + 1000


@pytest.mark.parametrize("workers", [3, 30])
async def test_a_window_has_about_as_many_rows_as_are_sent_in_two_seconds(journal: Store, workers: int) -> None:
    run = client(Script(added(), seconds=0.5)).contacts.create_many(rows(16 * workers), journal=journal, concurrency=workers)
    async with run as outcomes:
        reports = [journal.report() async for outcome in outcomes if outcome.index % (workers // 3) == 0]
    assert reports[0].marked == workers * reports[0].windows  # nothing has been sent, so each has one row for each worker
    sizes = [after.marked - before.marked for before, after in itertools.pairwise(reports) if after.windows == before.windows + 1]
    assert 3 * workers <= max(sizes) <= 4 * workers


async def test_rows_of_a_slow_stream_are_sent_as_they_arrive(journal: Store) -> None:
    script = Script(added())

    async def slow() -> AsyncIterator[NewContact]:
        for row in rows(5):
            yield row
            await anyio.sleep(60)

    async with client(script).contacts.create_many(slow(), journal=journal) as outcomes:
        came = [(outcome.index, anyio.current_time()) async for outcome in outcomes]
    began = came[0][1]
    assert [(index, round((when - began) / 60)) for index, when in came] == [(at, at) for at in range(5)]


async def test_outcomes_in_input_order_leave_out_those_of_an_earlier_process(journal: Store) -> None:
    await outcomes_of(client(Script(added(), seconds=0.1)).contacts.create_many(rows(60), journal=journal, concurrency=7), 20)
    before = {outcome.index for outcome in journal.outcomes()}
    found = await outcomes_of(client(Script(added())).contacts.create_many(rows(60), journal=journal, resume=True, order="input"))
    assert [outcome.index for outcome in found] == sorted(set(range(60)) - before)


async def test_a_suspended_run_leaves_its_rows_for_later(journal: Store) -> None:
    script = Script(added(), added(), status(429, retry_after="7200"))
    with pytest.raises(BulkSuspended) as caught:
        await client(script).contacts.create_many(rows(30), journal=journal, concurrency=2, order="input")
    assert (caught.value.resumable, caught.value.retry_after) == (True, 7200)
    assert (journal.report().state, journal.report().rows) == ("suspended", 2)
    report = await client(Script(added())).contacts.create_many(rows(30), journal=journal, resume=True)
    assert (report.rows, report.uncertain, journal.report().state) == (30, 0, "finished")


async def test_a_row_that_became_invalid_with_the_same_json_is_refused_when_resumed(journal: Store) -> None:
    row: dict[str, Any] = {"email": "ann@a.example", "job_start_date": "2026-01-01"}
    async with client(Script(HANG)).contacts.create_many([row], journal=journal):
        await anyio.sleep(1)
    with pytest.raises(InvalidRequest, match=r"rows: .* changed"):  # it may have been sent, so it must not count as rejected
        await client(Script()).contacts.create_many([row | {"job_start_date": date(2026, 1, 1)}], journal=journal, resume=True)


async def test_a_row_with_an_outcome_may_have_another_type_if_its_json_is_the_same(journal: Store) -> None:
    row: dict[str, Any] = {"email": "ann@a.example", "job_start_date": "2026-01-01"}
    await client(Script(added())).contacts.create_many([row], journal=journal)
    same = [row | {"job_start_date": date(2026, 1, 1)}]
    assert (await client(Script()).contacts.create_many(same, journal=journal, resume=True)).outcomes[Outcome.ADDED] == 1


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("is_drained", [False, True])
async def test_rows_of_a_killed_run_stay_uncertain_when_a_resumed_run_is_left(
    journal: Store, tmp_path: Path, count: int, is_drained: bool
) -> None:
    async with client(Script(HANG)).contacts.create_many(rows(20), journal=journal, concurrency=20):
        await anyio.sleep(1)
        killed = copy_of(journal, tmp_path)
    left: list[ContactOutcome] = []
    resumed = client(Script(skipped(), seconds=0.1)).contacts.create_many(rows(20), journal=killed, resume=True, concurrency=1)
    async with resumed as outcomes:
        while len(left) < count:
            left.append(await anext(outcomes))
        if is_drained:
            outcomes.drain()
            await drain(outcomes, left)
    await client(Script(skipped())).contacts.create_many(rows(20), journal=killed, resume=True)
    assert [outcome.possible for outcome in killed.outcomes()] == [{Outcome.ADDED, Outcome.SKIPPED}] * 20


class Breaking(Store):
    """A journal whose disk is full at a given record or mark."""

    verb = "record"
    left = 2

    def writer(self, identity: Identity, *, resume: bool, **options: Any) -> JournalWriter:
        writer = super().writer(identity, resume=resume, **options)
        through = getattr(writer, self.verb)

        def failing(*passed_rows: Any) -> None:
            self.left -= 1
            if self.left < 0:
                raise JournalError("the disk is full")
            through(*passed_rows)

        setattr(writer, self.verb, failing)
        return writer


@pytest.mark.parametrize("verb", ["record", "mark"])
async def test_no_request_starts_after_a_journal_error(tmp_path: Path, verb: str) -> None:
    journal = Breaking(tmp_path / "run.db", inline=True)
    journal.verb = verb
    script = Script(added(), seconds=0.2)
    found: list[ContactOutcome] = []
    async with client(script).contacts.create_many(rows(10_000), journal=journal, concurrency=4) as outcomes:
        with pytest.raises(JournalError, match="the disk is full") as caught:
            await drain(outcomes, found)
    assert caught.value.maybe_sent
    assert caught.value.maybe_applied
    whole = Store(journal.path)
    assert {outcome.index for outcome in found} == {outcome.index for outcome in whole.outcomes()}
    assert 0 < len(found) <= len(script.requests) < 60
    report = await client(Script(added())).contacts.create_many(rows(100), journal=Store(journal.path, inline=True), resume=True)
    assert report.rows == 100


@pytest.mark.parametrize(("verb", "left"), [("record", 0), ("mark", 1)])
async def test_a_row_that_waits_for_its_retry_is_not_sent_after_a_journal_error(tmp_path: Path, verb: str, left: int) -> None:
    journal = Breaking(tmp_path / "run.db", inline=True)
    journal.verb, journal.left = verb, left
    script = Script(status(429, retry_after="60"), added(), together=2)
    async with client(script).contacts.create_many(rows(9), journal=journal, concurrency=2) as outcomes:
        await anyio.sleep(100)
        with pytest.raises(JournalError, match="the disk is full"):
            await drain(outcomes, [])
    assert len(script.requests) == 2


async def test_a_journal_error_before_the_first_request_says_that_nothing_was_sent(tmp_path: Path) -> None:
    journal = Breaking(tmp_path / "run.db", inline=True)
    journal.verb, journal.left = "mark", 0
    script = Script(added(), seconds=0.2)
    with pytest.raises(JournalError) as caught:
        await client(script).contacts.create_many(rows(3), journal=journal)
    assert not script.requests
    assert not caught.value.maybe_sent
    assert not caught.value.maybe_applied


async def test_a_changed_input_after_rows_were_sent_says_that_they_were(journal: Store) -> None:
    await outcomes_of(client(Script(added(), seconds=0.1)).contacts.create_many(rows(40), journal=journal, concurrency=10), 15)
    changed = [*list(rows(40))[:35], NewContact("other@a.example"), *list(rows(40))[36:]]
    script = Script(added(), seconds=0.1)
    with pytest.raises(InvalidRequest, match="the input changed") as caught:
        await client(script).contacts.create_many(changed, journal=journal, resume=True, concurrency=1)
    assert caught.value.maybe_sent is bool(script.requests)


async def test_leaving_a_run_whose_end_cannot_be_recorded_raises_journal_error(tmp_path: Path) -> None:
    journal = Breaking(tmp_path / "run.db", inline=True)
    journal.verb, journal.left = "end", 0
    with pytest.raises(JournalError, match="the disk is full"):
        await outcomes_of(client(Script(added(), seconds=0.2)).contacts.create_many(rows(30), journal=journal), 1)
    assert Store(journal.path).report().state == "running"


@pytest.mark.thorough
async def test_a_slow_consumer_stops_reading_and_every_response_is_recorded(journal: Store) -> None:
    held_back = 4096 if journal.objects is None else 1000  # as the documentation of an object store says
    counted = Counted(rows(100_000))
    async with client(Script(added())).contacts.create_many(counted, journal=journal, concurrency=4) as outcomes:
        await anext(outcomes)
        await anyio.sleep(60)
        assert counted.read <= held_back + 16 + 2 * 1000 + 1
        assert journal.report().rows >= held_back
        assert journal.report().possibly_sent <= 2 * 1000


def reused(count: int) -> Iterator[dict[str, Any]]:
    """Yield one dict again and again, each time with the values of another contact."""
    row: dict[str, Any] = {"custom": {}}
    for number in range(count):
        row["email"] = f"user{number}@a.example"
        row["custom"]["custom_1"] = str(number)
        yield row


async def reused_async(count: int) -> AsyncIterator[dict[str, Any]]:
    for row in reused(count):
        yield row


class View(Mapping[str, Any]):
    """A mapping without methods that change it, whose values change nevertheless."""

    def __init__(self, row: dict[str, Any]) -> None:
        self._row = row

    def __getitem__(self, name: str) -> Any:
        return self._row[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)


REUSED: dict[str, Callable[[int], Any]] = {
    "generator": reused,
    "async generator": reused_async,
    "proxies": lambda count: map(MappingProxyType, reused(count)),
    "views": lambda count: map(View, reused(count)),
}


@pytest.mark.parametrize("make", REUSED.values(), ids=REUSED)
async def test_rows_that_reuse_one_dict_are_each_sent(journal: Store, make: Any) -> None:
    script = Script(added())
    found = await outcomes_of(client(script).contacts.create_many(make(60), concurrency=8, journal=journal))
    bodies = [json.loads(request.body) for request in script.requests]
    assert sorted((body["email"], body["custom_1"]) for body in bodies) == sorted(
        (f"user{number}@a.example", str(number)) for number in range(60)
    )
    for outcome in found:
        contact: Any = outcome.contact
        assert (contact["email"], contact.get("custom", contact)["custom_1"]) == (
            f"user{outcome.index}@a.example",
            str(outcome.index),
        )


@pytest.mark.thorough
@pytest.mark.covers
@pytest.mark.parametrize("form", ["mappings", "contacts", "stream", "spool"])
async def test_a_run_reads_only_some_megabytes_ahead(form: str, journal: Store) -> None:
    note, pulled, ahead, count = "x" * 2**20, 0, 0, 40 if form == "spool" else 120

    def contacts() -> Iterator[Any]:
        nonlocal pulled
        for number in range(count):
            pulled += 1
            email = f"user{number}@a.example"
            yield NewContact(email, personal_note=note) if form == "contacts" else {"email": email, "personal_note": note}

    async def stream() -> AsyncIterator[Any]:
        for contact in contacts():
            yield contact

    service = Script(added(), seconds=0.001)
    source = stream() if form == "stream" else contacts()
    async with client(service) as caller:
        run = caller.contacts.create_many(source, concurrency=4, journal=journal, spool=form == "spool")
        async with run as outcomes:
            async for outcome in outcomes:
                ahead = max(ahead, pulled - outcome.index)
    assert outcomes.report.outcomes[Outcome.ADDED] == count
    if form == "spool":  # the whole input is in the journal, and windows are read from it
        assert journal.report().windows >= count / 17
    else:
        assert ahead <= 34 + 3 * 17  # rows in the pipeline, and windows that are sent, marked and read ahead
