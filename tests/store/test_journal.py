"""The journal of a bulk run: writes are durable, one run holds the lock, and any process can read."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.journal import facts, make_killed_journal, outcomes
from support.runs import outcomes_of
from support.s3 import environment, serve_s3
from support.scenarios import KEY, SPACE, new_fake
from tools.journal_child import IDENTITY, open_journal, outcome, record_event, window

from outreach_async import Outcome, OutreachClient
from outreach_async.audit.history import History
from outreach_async.errors import InvalidRequest, JournalError, OutreachError, StatusError
from outreach_async.fake import FakeTransport
from outreach_async.store import Store
from outreach_async.store._schema import APPLICATION_ID
from outreach_async.store._writer import JournalWriter

_NUMBERS = count()


def writing(path: Path, **options: Any) -> closing[JournalWriter]:
    return closing(open_journal(path, **options))


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the size and time of each file, except the time of an index, which SQLite repairs."""
    return {
        each.name: (each.stat().st_size, 0 if each.name.endswith("-shm") else each.stat().st_mtime_ns)
        for each in folder.iterdir()
    }


def test_only_the_owner_may_read_the_files_of_a_run_and_one_is_left(path: Path) -> None:
    before = os.umask(0)
    try:
        with writing(path) as writer:
            writer.mark(window(0))
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"run.db": 0o600, "run.db-wal": 0o600, "run.db-shm": 0o600}
    assert [each.name for each in path.parent.iterdir()] == ["run.db"]


def test_reading_changes_only_the_index_of_the_log_even_after_a_kill(tmp_path: Path) -> None:
    killed, whole = tmp_path / "killed.db", tmp_path / "whole.db"
    make_killed_journal(killed, commits=7)
    with writing(whole) as writer:
        writer.mark(window(0))
        for _ in range(2):  # during a run, with a log; then after the run, without one
            for each in (killed, whole):
                before = listing(tmp_path)
                journal = Store(each)
                assert list(journal.outcomes()) == list(journal.outcomes()) or each is killed
                assert journal.report() == journal.report()
                assert list(journal.events()) == []
                assert listing(tmp_path) == before
            writer.close()


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda path: Store(path).report(), "pipe is a named pipe, not a journal; pass the path of a journal"),
        (lambda path: Store(path).contacts(), "pipe is a named pipe, not a ledger; pass the path of a ledger"),
        (lambda path: History(path).daily("workspace"), "pipe is not a history; pass the path of a history"),
        (lambda path: Store(path.parent / ("x" * 300)).report(), "cannot be read: File name too long"),
    ],
)
def test_a_file_that_would_wait_or_cannot_be_opened_is_refused(
    tmp_path: Path, read: Callable[[Path], object], message: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutreachError, match=message):
        read(tmp_path / "pipe")


def test_a_journal_in_a_read_only_folder_can_be_read(path: Path) -> None:
    with writing(path) as writer:
        writer.mark(window(0))
        writer.record([outcome(0)])
    path.parent.chmod(0o500)
    try:
        assert [found.index for found in Store(path).outcomes()] == [0]
    finally:
        path.parent.chmod(0o700)


def test_outcomes_are_read_in_pages_while_the_run_ends_and_is_resumed(path: Path) -> None:
    recorded = [index for index in range(4000) if index % 3]
    with writing(path) as writer:
        writer.mark(window(0, 5000))
        writer.record([outcome(index) for index in recorded])
        reading = Store(path).outcomes()
        found = [next(reading).index]
    found += [next(reading).index for _ in range(1500)]
    with writing(path, resume=True) as writer:
        writer.record([outcome(index) for index in range(4000, 5000)])
        assert found + [each.index for each in reading] == [*recorded, *range(4000, 5000)]


@settings(max_examples=scaled(15), deadline=None)
@given(data=st.data())
def test_any_outcome_is_read_as_it_was_recorded(data: st.DataObject) -> None:
    journal = Store(f"memory://test{next(_NUMBERS)}")
    drawn = [data.draw(outcomes(index)) for index in range(data.draw(st.integers(1, 4)))]
    with closing(journal.writer(IDENTITY, resume=False)) as writer:
        writer.mark(window(0, 4))
        writer.record(drawn)
    assert [facts(found) for found in journal.outcomes()] == [facts(each) for each in drawn]


def overfill(writer: JournalWriter) -> None:
    writer.end_spool(0)
    writer.spool([])


REFUSED: dict[str, tuple[Callable[[JournalWriter], object], str]] = {
    "a window that skips rows": (lambda writer: writer.mark(window(25)), "mark rows in order"),
    "a window without rows": (lambda writer: writer.mark(window(20, 0)), "mark rows in order"),
    "other rows in a window": (lambda writer: writer.mark(window(0, digest=b"87654321")), "rows 0 to 19 differ .* earlier="),
    "fewer rows in a window": (lambda writer: writer.mark(window(0, 19)), "rows 0 to 18 differ .* earlier="),
    "a window inside another": (lambda writer: writer.mark(window(5, 15)), "rows 5 to 19 differ .* earlier="),
    "an outcome of a row that is not marked": (lambda writer: writer.record([outcome(1), outcome(20)]), "mark a row before"),
    "an outcome of no row": (lambda writer: writer.record([outcome(1), outcome(-1)]), "mark a row before"),
    "an end without outcomes": (lambda writer: writer.end("finished"), "got none for 19 rows"),
    "an unknown state": (lambda writer: writer.end("done"), "state"),
    "a row beyond a complete spool": (overfill, "the spool is complete"),
    "an incomplete spool": (lambda writer: writer.end_spool(12), "expected 12 spooled rows, got 0"),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_a_writer_refuses_what_contradicts_its_journal_and_goes_on(
    journal: Store, call: Callable[[JournalWriter], object], message: str
) -> None:
    with closing(journal.writer(IDENTITY, resume=False)) as writer:
        writer.mark(window(0))
        writer.record([outcome(0)])
        with pytest.raises(InvalidRequest, match=message):
            call(writer)
        writer.mark(window(0))
        writer.mark(window(20))
        assert writer.marked == 40
    assert (journal.report().rows, journal.report().windows) == (1, 2)


@pytest.mark.parametrize("closes", [False, True])
def test_after_a_second_outcome_or_a_close_nothing_is_written(journal: Store, *, closes: bool) -> None:
    with closing(journal.writer(IDENTITY, resume=False)) as writer:
        writer.mark(window(0))
        writer.record([outcome(0)])
        if closes:
            writer.close()
        else:
            with pytest.raises(JournalError, match="UNIQUE"):
                writer.record([outcome(1), outcome(0)])
        for call in (
            lambda: writer.mark(window(20)),
            lambda: writer.record([outcome(2)]),
            lambda: writer.end("stopped"),
            lambda: record_event(writer, "x", {}),
            lambda: writer.completed_rows(0, 1),
        ):
            with pytest.raises(JournalError, match="is closed" if closes else "UNIQUE"):
                call()
    report = journal.report()
    assert (report.rows, report.marked, report.state) == (1, 20, "running")


def test_a_heartbeat_changes_nothing_that_is_read(journal: Store) -> None:
    with closing(journal.writer(IDENTITY, resume=False)) as writer:
        assert writer.database.heartbeat_due is None
        writer.mark(window(0))
        before = journal.report()
        writer.database.heartbeat(float("inf"))
        writer.database.heartbeat(float("-inf"))
        assert attrs.evolve(journal.report(), seconds=before.seconds) == before


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_run_on_s3_is_interrupted_and_resumed_with_exact_outcomes(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, url = new_fake(), f"s3://journals/{backend}"
    rows = [{"email": f"user{index}@a.example"} for index in range(300)]

    async def create(most: int | None) -> int:
        async with OutreachClient(transport=FakeTransport(fake), owner_key=KEY, workspace=SPACE) as client:
            return len(await outcomes_of(client.contacts.create_many(rows, journal=url, resume=True, concurrency=8), most))

    with serve_s3() as port:
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)
        taken = anyio.run(create, 100, backend=backend) + anyio.run(create, None, backend=backend)
        found = [*Store(url).outcomes()]
    assert [each.index for each in found] == [*range(300)]
    assert {each.status for each in found if each.certain} == {"added"}
    assert len(fake.contacts(SPACE)) == 300
    assert 100 <= taken <= 300


def database(version: int, kind: int) -> bytes:
    """Return the content of an SQLite file with this version and this kind of application."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE t (a)")
        db.execute(f"PRAGMA user_version = {version}")
        db.execute(f"PRAGMA application_id = {kind}")
        return db.serialize()


FOREIGN: dict[str, tuple[bytes, str]] = {
    "a text": (b"email\na@a.example\n", "is not a journal"),
    "the start of a database": (b"SQLite format 3\0", "is not a journal"),
    "zeros": (bytes(4096), "is not a journal"),
    "another database": (database(1, 0), "is not a journal"),
    "a journal of a newer format": (database(9, APPLICATION_ID), "newer version"),
    "nothing": (b"", r"empty file.*earlier="),
}


class TestRefused:
    """Journals that cannot be opened."""

    def test_a_journal_written_by_this_process(self, path: Path) -> None:
        with writing(path) as writer:
            for resume in (False, True):
                with pytest.raises(InvalidRequest, match="another run is writing"), writing(path, resume=resume):
                    pass
            link = path.with_name("same.db")
            link.hardlink_to(path)
            with pytest.raises(InvalidRequest, match="another run is writing"), writing(link, resume=True):
                pass
            writer.mark(window(0))

    @pytest.mark.thorough
    def test_a_journal_written_by_another_process(self, path: Path) -> None:
        code = "import sys; from tools.journal_child import *; w = open_journal(Path(sys.argv[1])); print(1, flush=True); input()"
        command = [sys.executable, "-c", code, str(path)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
        ) as other:
            assert other.stdout
            assert other.stdout.readline() == "1\n"
            with pytest.raises(InvalidRequest, match="another run is writing"), writing(path, resume=True):
                pass
            assert Store(path).report().state == "running"
            other.communicate("\n")
        with writing(path, resume=True) as writer:
            assert writer.resumed

    @pytest.mark.parametrize(("content", "message"), FOREIGN.values(), ids=FOREIGN)
    def test_a_file_that_is_not_a_journal_which_is_left_unchanged(self, path: Path, content: bytes, message: str) -> None:
        path.write_bytes(content)
        for earlier in ("known", "unknown") if content else ("known",):
            with pytest.raises(InvalidRequest, match=message):
                open_journal(path, resume=True, earlier=earlier)
        with pytest.raises(InvalidRequest, match="already exists; resume its run"):
            open_journal(path)
        for read in (Store(path).report, lambda: list(Store(path).outcomes())):
            with pytest.raises(InvalidRequest, match=message):
                read()
        assert path.read_bytes() == content
        assert list(path.parent.iterdir()) == [path]

    def test_a_symlink_or_a_folder(self, path: Path) -> None:
        path.symlink_to(path.with_name("elsewhere.db"))
        for each in (path, path.parent):
            with pytest.raises(InvalidRequest, match="not a regular file"), writing(each, resume=True):
                pass
        assert not path.with_name("elsewhere.db").exists()

    def test_a_path_that_leads_nowhere(self, path: Path) -> None:
        with pytest.raises(InvalidRequest, match="No such file or directory; pass a path in a folder"), writing(path / "a.db"):
            pass
        path.touch()
        for each in (path.with_name("none.db"), path / "run.db"):
            with pytest.raises(InvalidRequest, match="does not exist"):
                Store(each).report()
        path = path.with_name("x" * 300)
        for call in (lambda: open_journal(path), Store(path).report):
            with pytest.raises(JournalError, match="File name too long"):
                call()

    def test_any_journal_on_a_system_without_posix_locks(self, path: Path) -> None:
        code = (
            "import sys; sys.modules['fcntl'] = None; from outreach_async.store import *\n"
            "try: Store(sys.argv[1]).writer(Identity('space_1', {}), resume=False)\n"
            "except ValueError as error: print(error)"
        )
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        assert "lacks POSIX file locks or hard links" in done.stdout
        assert not path.exists()


class TestReport:
    """Reports depend on the journal alone."""

    def test_it_contains_the_totals_of_the_run_and_of_the_journal(self, path: Path) -> None:
        clock = iter([99.0, 100.0, 101.0, 102.0, 103.5])
        with writing(path, wall=lambda: next(clock)) as writer:
            record_event(writer, "gate", {"seconds": 3})
            writer.mark(window(0, 9))
            possible = frozenset({Outcome.SKIPPED, Outcome.ADDED})
            writer.record([outcome(0), outcome(1, Outcome.SKIPPED, possible=possible), outcome(4, Outcome("archived"))])
            writer.end("suspended")
        assert Store(path).report().to_dict() == {
            "rows": 3,
            "outcomes": dict.fromkeys(Outcome, 0) | {"added": 1, "skipped": 1, "archived": 1},
            "uncertain": 1,
            "repeats": 0,
            "seconds": 3.5,
            "state": "suspended",
            "marked": 9,
            "possibly_sent": 6,
            "windows": 1,
            "events": {"gate": 1},
            "workspace": "space_1",
            "source": "rows.csv",
            "fingerprint": None,
        }
        assert list(Store(path).events()) == [(101.0, "gate", {"seconds": 3})]

    def test_neither_the_time_between_resumes_nor_a_clock_set_back_counts(self, path: Path) -> None:
        now = [100.0]
        for seconds in (5, 5, -50):
            with writing(path, resume=True, wall=lambda: now[0]) as writer:
                now[0] += seconds
                writer.end("suspended")
            now[0] += 1000
        assert Store(path).report().seconds == 10


def test_every_commit_is_synced_to_disk(path: Path) -> None:
    with writing(path) as writer, writer.database.connection() as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_file_system_that_cannot_hold_the_log_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(":memory:")) as memory, writing(path) as writer:  # an in-memory database has no log either
        database: Any = writer.database
        database._db.close()
        database._db = memory
        with pytest.raises(InvalidRequest, match="without shared memory"):
            database._enable_log()


def test_a_journal_is_read_without_the_index_of_its_log(path: Path) -> None:
    make_killed_journal(path, commits=7)
    path.with_name("run.db-shm").unlink()
    assert Store(path).report().marked == 60


def test_closing_a_closed_writer_does_not_release_the_lock_of_the_next_one(path: Path) -> None:
    writer = open_journal(path)
    writer.close()
    with writing(path, resume=True) as other:
        writer.close()
        with pytest.raises(InvalidRequest, match="another run"):
            open_journal(path, resume=True)
        other.mark(window(0))


def test_an_interrupted_commit_is_rolled_back_and_the_journal_stays_usable(path: Path) -> None:
    def interrupted() -> None:
        with writer.database.transaction() as transaction:
            transaction.db.execute("DELETE FROM meta")
            raise KeyboardInterrupt

    with writing(path) as writer:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        writer.mark(window(0))
    assert Store(path).report().marked == 20


def test_masked_errors_bring_no_key_into_the_files_of_a_run(path: Path) -> None:
    with writing(path) as writer:
        error = StatusError("refused", status_code=401, headers={"x-key": "key_secret"}, body=b"key_secret")
        writer.mark(window(0))
        writer.record([outcome(0, Outcome.REJECTED, error=error)])
        content = b"".join(each.read_bytes() for each in path.parent.iterdir())
    assert b"refused" in content
    assert b"secret" not in content + path.read_bytes()


def test_a_journal_has_its_path() -> None:
    assert repr(Store("a/run.db")) == "Store('a/run.db')"
    assert not Store("a").inline
