"""People are erased from journals and ledgers: nothing is left of them, and everything else is as it was."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from secrets import token_hex
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.crashes import memory
from support.erasures import ANN, QuotingService, find_traces, unpacked
from support.examples import scaled
from support.journal import MEDIA, content_of, copy_of, new_journal
from support.runs import client, drain, outcomes_of
from support.s3 import environment, serve_s3
from support.time import ALLOW_LOOP_FIXTURE, virtual_time
from tools.journal_child import outcome

from outreach_async import ContactOutcome, JournalError, Outcome
from outreach_async._files.objects import open_objects
from outreach_async.errors import InvalidRequest
from outreach_async.store import Erased, Identity, Store, erase, match_people
from outreach_async.store._ledgers import start_run
from outreach_async.store._objects import ObjectDatabase
from outreach_async.store._records import MESSAGE_LIMIT, MarkedWindow, read_metadata
from outreach_async.store._sqlite import FileDatabase

BO, CY = "bo@acme.example", "cy@other.example"
ROWS = [{"email": ANN, "city": "Lyon"}, {"email": BO}, {"email": CY}]
CHANGED = [{"email": ANN, "city": "Bern"}, {"email": BO, "city": "Bern"}, {"email": CY}]
IDENTITY = Identity("space_1", {"duplicates": "skip", "campaign": None})


@pytest.fixture(params=["file", "objects"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    location = tmp_path / "a.ledger" if request.param == "file" else f"{tmp_path.as_uri()}/ledger"
    return Store(location, inline=True, linger=0.05)


async def send(service: QuotingService, rows: list[dict[str, str]], **options: Any) -> list[ContactOutcome]:
    options = {"stop_after_rejects": None, **options}
    return await outcomes_of(client(service).contacts.create_many(rows, order="input", **options))


def erase_ann(*stores: Store, dry_run: bool = False) -> list[Erased]:
    return erase(stores, [f" {ANN.swapcase()}"], dry_run=dry_run)


def keys_of(ledger: Store) -> set[int]:
    with closing(ledger.medium()) as medium:
        return medium.query(lambda db: {key for (key,) in db.execute("SELECT key FROM entry UNION SELECT key FROM reject")})


@virtual_time
async def test_nothing_of_a_person_is_left_in_a_ledger(ledger: Store, tmp_path: Path) -> None:
    await send(QuotingService(), ROWS, ledger=ledger, duplicates="overwrite")
    await send(QuotingService([ANN, CY]), CHANGED, ledger=ledger, duplicates="overwrite")
    before = keys_of(ledger)
    assert find_traces(tmp_path, ANN, before)
    (found,) = erase_ann(ledger)
    (key,) = before - keys_of(ledger)
    assert (found.problem, found.counts["entries"], found.counts["rejects"]) == ("", 1, 1)
    assert found.contacts == {("space_1", f"contact_{1:016x}")}
    assert find_traces(tmp_path, ANN, [key]) == []
    assert (ledger.contacts().contacts, ledger.report().state) == (2, "finished")
    service = QuotingService()
    await send(service, CHANGED, ledger=ledger, duplicates="overwrite")
    assert service.emails == [ANN]


@virtual_time
async def test_a_person_is_erased_from_every_target_of_a_ledger(ledger: Store, tmp_path: Path) -> None:
    targets: list[dict[str, str]] = [{}, {"campaign": "camp_1"}, {"workspace": "space_2"}]
    rows = [{"email": email, **target} for email in (ANN, BO) for target in targets]
    await send(QuotingService(), rows, ledger=ledger, duplicates="overwrite")
    before = keys_of(ledger)
    (found,) = erase_ann(ledger)
    assert (found.problem, found.counts["entries"], ledger.contacts().contacts) == ("", 3, 3)
    assert {workspace for workspace, _ in found.contacts} == {"space_1", "space_2"}
    assert find_traces(tmp_path, ANN, before - keys_of(ledger)) == []


@virtual_time
async def test_nothing_of_a_person_is_left_in_a_journal(journal: Store, tmp_path: Path) -> None:
    before = await send(QuotingService([ANN]), [*ROWS, ROWS[0]], journal=journal, spool=True)
    assert find_traces(tmp_path, ANN)
    (found,) = erase_ann(journal)
    assert (found.problem, found.counts) == ("", {"rows": 2, "errors": 1})
    assert find_traces(tmp_path, ANN) == []
    assert journal.report().outcomes[Outcome.REJECTED] == 2
    after = [*journal.outcomes()]
    assert [each.status for each in after] == [each.status for each in before]
    assert [each.contact for each in after] == [{}, {"email": BO}, {"email": CY}, {}]
    assert [each.id for each in after[1:3]] == [each.id for each in before[1:3]]


def test_nothing_is_left_in_a_log_that_another_program_keeps_open(path: Path, tmp_path: Path) -> None:
    writer = Store(path).writer(IDENTITY, resume=False)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("SELECT count(*) FROM spool").fetchall()
        writer.spool([(at, ANN, json.dumps({"email": ANN, "note": ANN * 100}, ensure_ascii=False).encode()) for at in range(20)])
        writer.end_spool(20)
        writer.close()
        assert find_traces(tmp_path, ANN) == ["run.db", "run.db-wal"]
        erase_ann(Store(path))
        assert find_traces(tmp_path, ANN) == []


@pytest.mark.parametrize("cut", [ANN[:-1], ANN[: ANN.index("@") + 2]])
def test_an_error_that_was_cut_within_an_address_is_erased(path: Path, cut: str) -> None:
    journal, message = Store(path), f"{'x' * (MESSAGE_LIMIT - len(cut))}{ANN}"
    with closing(journal.writer(IDENTITY, resume=False)) as writer:
        writer.mark(MarkedWindow(0, 1, b"12345678"))
        writer.record([outcome(0, Outcome.REJECTED, id=None, error=InvalidRequest(message))])
        writer.end("finished")
    assert erase_ann(journal)[0].counts == {"errors": 1}
    assert str(next(journal.outcomes()).error) == "erased"


@virtual_time
async def test_nothing_of_a_person_is_left_in_an_object_store() -> None:
    name = token_hex(8)  # the memory is that of the process
    ledger, journal = (Store(f"memory://{name}/{kind}", inline=True, linger=0.05) for kind in ("ledger", "journal"))
    await send(QuotingService(), ROWS, ledger=ledger, duplicates="overwrite")
    await send(QuotingService(), ROWS, journal=journal, spool=True)
    assert [each.counts for each in erase_ann(ledger, journal)] == [{"entries": 1}, {"rows": 1}]
    logs = [open_objects(f"memory://{name}/{place}") for place in ("ledger/run-000001", "journal")]
    assert [[each for each in log.names() if log.read(each)] for log in logs] == [[], ["0001-0000000000"]]
    assert {each[:6] for each in open_objects(f"memory://{name}/ledger/entries").names()} == {"000002"}


@virtual_time
@pytest.mark.nightly
async def test_nothing_of_a_person_is_left_in_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_s3() as port:
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)
        place = f"s3://journals/{token_hex(8)}"
        ledger, journal = (Store(f"{place}/{kind}", inline=True, linger=0.05) for kind in ("ledger", "journal"))
        for _ in range(2):
            await send(QuotingService(), ROWS, ledger=ledger, duplicates="overwrite", max_age=0)
        await send(QuotingService([ANN]), ROWS, journal=journal, spool=True)
        assert [each.problem for each in erase_ann(ledger, journal)] == ["", ""]
        for folder in ("journal", "ledger/entries", *(f"ledger/run-{number:06}" for number in (1, 2, 3))):
            objects = open_objects(f"{place}/{folder}")
            for content in (each for name in objects.names() for each in unpacked(objects.read(name))):
                assert ANN.lower() not in content.decode(errors="replace").lower()
        assert (ledger.contacts().contacts, journal.report().rows) == (2, 3)


@virtual_time
async def test_ids_of_a_ledger_show_the_rows_of_a_journal(journal: Store, ledger: Store) -> None:
    service = QuotingService()
    await send(service, ROWS, journal=journal)
    service.emails.clear()
    await send(service, ROWS, ledger=ledger, duplicates="overwrite")
    assert [each.counts.get("rows") for each in erase_ann(journal)] == [None]
    assert erase_ann(journal, ledger)[0].counts == {"rows": 1}
    assert [outcome.id is None for outcome in journal.outcomes()] == [True, False, False]
    assert await send(QuotingService(), ROWS, journal=journal, resume=True) == []


@virtual_time
@pytest.mark.parametrize("again", [[], ROWS])
async def test_an_unfinished_run_goes_on_without_an_erased_row(journal: Store, again: list[dict[str, str]]) -> None:
    run = client(QuotingService(answers=1)).contacts.create_many(ROWS[::-1], journal=journal, spool=True, concurrency=1)
    assert len(await outcomes_of(run, 1)) == 1
    erase_ann(journal)
    service = QuotingService()
    found = await send(service, again[::-1], journal=journal, spool=True, resume=True)
    assert found[-1].status is Outcome.EXCLUDED
    assert ANN not in service.emails
    assert journal.report().outcomes[Outcome.ADDED] == 2


@virtual_time
async def test_an_erased_row_that_may_have_been_sent_is_unknown(journal: Store, tmp_path: Path) -> None:
    hanging, service = QuotingService(answers=0), QuotingService()
    async with client(hanging).contacts.create_many(ROWS, journal=journal, spool=True):
        await hanging.hung.wait()
        killed = copy_of(journal, tmp_path)
    assert erase_ann(killed)[0].problem == ""
    found = await send(service, [], journal=killed, spool=True, resume=True)
    assert (found[0].status, found[0].certain) == (Outcome.UNKNOWN, False)
    assert service.emails == [BO, CY]


@virtual_time
@pytest.mark.thorough
@settings(max_examples=scaled(12), suppress_health_check=ALLOW_LOOP_FIXTURE)
@given(
    st.sampled_from(MEDIA),
    st.lists(st.sampled_from([ANN, ANN.upper(), BO, CY]), min_size=1, max_size=8),
    st.sampled_from(["serial", "error", "first", "last", "coalesce"]),
    st.integers(0, 6),
)
async def test_a_run_goes_on_without_the_people_and_the_others_are_as_before(
    medium: str, emails: list[str], repeats: str, answers: int
) -> None:
    rows = [{"email": email, "city": str(at)} for at, email in enumerate(emails)]
    options: dict[str, Any] = {"spool": True, "repeats": repeats, "duplicates": "overwrite"}
    with memory() as folder:
        sent, found = dict[str, list[str]](), dict[str, list[ContactOutcome]]()
        for name in ("erased", "kept"):
            (copies := folder / name).mkdir()
            service, journal = QuotingService(answers=answers), new_journal(medium, folder, f"of {name}")
            async with (
                client(service).contacts.create_many(rows, journal=journal, concurrency=1, **options) as run,
                anyio.create_task_group() as group,
            ):
                group.start_soon(drain, run, [])
                with anyio.move_on_after(60):  # unless the run ends before
                    await service.hung.wait()
                killed = copy_of(journal, copies)
                group.cancel_scope.cancel()
            if name == "erased":
                erase_ann(killed)
            service = QuotingService()
            await send(service, [], journal=killed, resume=True, **options)
            sent[name], found[name] = service.emails, [*killed.outcomes()]
        assert find_traces(folder / "erased", ANN) == []
        assert sent["erased"] == [email for email in sent["kept"] if email in {BO, CY}]
        assert [each.index for each in found["erased"]] == [*range(len(rows))]
        pairs = [pair for pair in zip(*found.values(), strict=True) if emails[pair[0].index] in {BO, CY}]
        assert all((one.status, one.repeats) == (other.status, other.repeats) for one, other in pairs)


@virtual_time
async def test_a_killed_run_of_a_ledger_is_merged_before_its_people_are_erased(ledger: Store, tmp_path: Path) -> None:
    hanging = QuotingService(answers=0)
    async with client(hanging).contacts.create_many(ROWS, ledger=ledger, duplicates="overwrite"):
        await hanging.hung.wait()
        shutil.copytree(tmp_path, killed := tmp_path / "killed")
    place = killed / "a.ledger" if ledger.objects is None else f"{killed.as_uri()}/ledger"
    (found,) = erase([place], [ANN])
    assert (found.problem, found.counts["entries"]) == ("", 1)
    report = Store(place).contacts()
    assert (report.contacts, report.uncertain, report.pending) == (2, 2, False)


@virtual_time
async def test_a_store_in_use_is_refused_and_no_other_is_changed(ledger: Store, path: Path, tmp_path: Path) -> None:
    await send(QuotingService(), ROWS, ledger=ledger, duplicates="overwrite")
    writer = Store(path).writer(IDENTITY, resume=False)
    before = content_of(tmp_path)
    with pytest.raises(InvalidRequest, match=f"erase: a run is using {path}; wait until it ends: nothing was erased"):
        erase_ann(Store(path), ledger)
    assert content_of(tmp_path) == before
    writer.close()


@virtual_time
async def test_a_dry_run_finds_the_same_and_changes_nothing(journal: Store, ledger: Store, tmp_path: Path) -> None:
    await send(QuotingService(), ROWS, ledger=ledger, duplicates="overwrite")
    await send(QuotingService([ANN]), ROWS, journal=journal, spool=True)
    before = content_of(tmp_path)
    planned = erase_ann(journal, ledger, dry_run=True)
    assert content_of(tmp_path) == before
    assert [(each.counts["rows"], each.contacts) for each in planned[:1]] == [(1, frozenset())]
    assert planned[1].counts["entries"] == erase_ann(journal, ledger)[1].counts["entries"] == 1


async def test_a_store_that_is_named_twice_is_erased_once(tmp_path: Path) -> None:
    ledger, other = Store(tmp_path / "a.ledger"), Store(f"{tmp_path.as_uri()}/b.ledger")
    for store in ledger, other:
        await send(QuotingService(), ROWS, ledger=store, duplicates="overwrite")
    os.link(ledger.path, tmp_path / "hard.ledger")
    (tmp_path / "soft.ledger").symlink_to(ledger.path)
    names = ledger, Store(ledger.path), *(Store(tmp_path / f"{name}.ledger") for name in ("hard", "soft")), other, other
    for dry_run in True, False:
        found = erase_ann(*names, dry_run=dry_run)
        assert [(each.location, each.counts["entries"], each.problem) for each in found] == [
            (str(ledger.location), 1, ""),
            (other.location, 1, ""),
        ]


def test_a_process_whose_journal_was_erased_writes_nothing_more(tmp_path: Path) -> None:
    journal = Store(f"{tmp_path.as_uri()}/run")
    with closing(journal.writer(IDENTITY, resume=False)) as writer:
        writer.mark(MarkedWindow(0, 1, b"12345678"))
        assert "its run is not finished, and its input is read again; finish the run" in erase_ann(journal)[0].problem
        with pytest.raises(JournalError, match="another run has taken over"):
            writer.mark(MarkedWindow(1, 1, b"12345678"))


@virtual_time
async def test_a_run_whose_ledger_was_erased_sends_nothing_more(tmp_path: Path) -> None:
    ledger = Store(f"{tmp_path.as_uri()}/ledger", inline=True)
    await send(QuotingService(), ROWS, ledger=ledger, duplicates="overwrite")
    medium = ledger.medium()
    identity = Identity(**medium.query(read_metadata)["identity"])
    run = start_run(medium, identity, lambda: 1e9, with_ids=False, with_runs=False)
    assert erase_ann(ledger)[0].problem == ""
    with pytest.raises(JournalError, match="another run has taken over"):
        run.writer.end("finished")
    run.close()


def test_a_process_that_takes_over_meanwhile_keeps_its_journal(tmp_path: Path) -> None:
    journal = Store(url := f"{tmp_path.as_uri()}/run")
    journal.writer(IDENTITY, resume=False).close()
    with closing(ObjectDatabase(open_objects(url), url, journal.clock)) as database:
        database.open(lambda _: None, resume=True)
        writer = journal.writer(IDENTITY, resume=True)
        with pytest.raises(JournalError, match="another run has taken over"):
            database.rewrite(open_objects(url))
    with closing(writer):
        writer.mark(MarkedWindow(0, 1, b"12345678"))
    assert journal.report().marked == 1


@virtual_time
async def test_a_damaged_store_is_reported_and_the_rest_is_erased(journal: Store, ledger: Store, tmp_path: Path) -> None:
    await send(QuotingService(), ROWS, ledger=ledger, duplicates="overwrite")
    (tmp_path / "damaged.db").write_bytes(b"SQLite format 3\0")
    damaged, missing, found = erase_ann(Store(tmp_path / "damaged.db"), journal, ledger)
    assert ("is not a journal" in damaged.problem, "does not exist" in missing.problem) == (True, True)
    assert (found.problem, found.counts["entries"]) == ("", 1)


@virtual_time
async def test_a_ledger_whose_entries_are_damaged_is_left_as_it_is(path: Path) -> None:
    await send(QuotingService(), ROWS, ledger=path, duplicates="overwrite")
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE entry SET run = 7 WHERE key = (SELECT min(key) FROM entry)")
        db.commit()
    (found,) = erase_ann(Store(path))
    assert "expected 3 intact rows in the table entry, found 2" in found.problem
    assert found.contacts == {("space_1", f"contact_{1:016x}")}


def test_a_row_that_no_run_has_marked_is_erased(journal: Store, tmp_path: Path) -> None:
    with closing(journal.writer(IDENTITY, resume=False)) as writer:
        writer.spool([(0, ANN, json.dumps(ROWS[0], ensure_ascii=False).encode())])
        writer.end_spool(1)
    assert erase_ann(journal)[0].counts == {"rows": 1}
    assert find_traces(tmp_path, ANN) == []


def test_a_file_that_another_program_reads_is_not_wholly_erased(path: Path) -> None:
    Store(path).writer(IDENTITY, resume=False).close()
    with closing(FileDatabase(str(path))) as database, closing(sqlite3.connect(path, isolation_level=None)) as reader:
        database.open(lambda _: None, resume=True)
        database.query(lambda db: db.execute("PRAGMA busy_timeout = 1"))
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM meta").fetchone()
        with pytest.raises(JournalError, match="another program is reading it; close that program, and erase again"):
            database.purge()


def erase_in_child(call: int, *stores: Store) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.erasure_child", str(call), ANN, *(os.fspath(store.location) for store in stores)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])


@virtual_time
@pytest.mark.thorough
async def test_an_erasure_that_is_killed_leaves_stores_that_work_and_completes(tmp_path: Path) -> None:
    def places(folder: Path) -> list[Store]:
        names = ["a.ledger", "run.db", *(f"{folder.as_uri()}/{name}" for name in ("ledger", "run", "ids"))]
        return [Store(name if "://" in name else folder / name, inline=True, linger=0.05) for name in names]

    (whole := tmp_path / "whole").mkdir()
    for store in places(whole):
        is_ledger = "ledger" in str(store)
        options = (
            {"ledger": store, "duplicates": "overwrite"} if is_ledger else {"journal": store, "spool": "ids" not in str(store)}
        )
        await send(QuotingService([CY]), ROWS, **options)
    keys = [keys_of(store) for store in places(whole)[:3:2]]
    shutil.copytree(whole, tmp_path / "counted")
    calls = int(erase_in_child(0, *places(tmp_path / "counted")).stdout)
    gone = {
        key for before, store in zip(keys, places(tmp_path / "counted")[:3:2], strict=True) for key in before - keys_of(store)
    }
    for call in Random(calls).sample(range(1, calls), 24):  # noqa: S311 - no secret
        shutil.copytree(whole, folder := tmp_path / str(call))
        assert erase_in_child(call, *places(folder)).returncode == -signal.SIGKILL
        for store in places(folder):
            assert len(list(store.outcomes())) == store.report().rows
            assert store.contacts().contacts in {1, 2} if store.is_ledger() else store.report().state == "finished"
        assert [each.problem for each in erase_ann(*places(folder))] == [""] * 5
        assert next(places(folder)[-1].outcomes()).id is None  # which only the ids of other stores show
        assert find_traces(folder, ANN, gone) == []


LOCAL = st.text("ab.-_+'\"\u00e7\u00c7\U0001f600", min_size=1, max_size=8).filter(lambda text: not text.isspace())
FORMS: list[Callable[[str], str]] = [
    str,
    str.upper,
    json.dumps,
    lambda text: json.dumps(f"to\n{text}"),
    lambda text: f"<{text}>, and others",
    lambda text: f"was {text}.",
    lambda text: text.replace("@", "%40"),
]


@given(LOCAL, st.sampled_from(FORMS))
def test_a_person_is_found_in_a_text_and_others_are_not(local: str, form: Callable[[str], str]) -> None:
    names = match_people([f"{local}@company.example"])
    assert names(form(f"{local}@company.example"))
    for other in (
        f"x{local}@company.example",
        f"o'{local}@company.example",
        f"{local}@company.example.org",
        f"{local}@company.examples",
        f"{local}@company.example-shop.org",
        f"{local}@company",
    ):
        assert not names(other)


@pytest.mark.parametrize("known", ["\u00e4nn@b\u00fccher.example", "\u00e4nn@xn--bcher-kva.example"])
@pytest.mark.parametrize(
    "given", ["\u00c4nn@B\u00fccher.example", "\u00e4nn@xn--bcher-kva.example", "\u00e4nn@b\u00fccher.example."]
)
@virtual_time
async def test_a_person_is_erased_in_each_spelling_of_the_domain(known: str, given: str, journal: Store, ledger: Store) -> None:
    rows = [{"email": known}, {"email": "\u00e4nn@other.example"}]
    await send(QuotingService(), rows, journal=journal, spool=True)
    await send(QuotingService(), rows, ledger=ledger, duplicates="overwrite")
    of_journal, of_ledger = erase([journal, ledger], [given])
    assert (of_journal.counts, of_ledger.counts["entries"]) == ({"rows": 1}, 1)
    assert [each.contact for each in journal.outcomes()] == [{}, rows[1]]


def test_a_person_is_found_by_the_id_of_a_contact() -> None:
    names = match_people([ANN], ["contact_00AB"])
    assert [names(text) for text in ("of contact_00ab.", "CONTACT_00AB", "contact_00abc")] == [True, True, False]


@pytest.mark.parametrize(
    "emails", [[], ["ann"], ["@b.example"], ["ann@b@"], ["Ann <ann@b.example>"], ["ann@b.example,bo@c.example"]]
)
def test_what_is_no_address_is_refused(emails: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="emails: expected"):
        erase([], emails)
