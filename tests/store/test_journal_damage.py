"""Damaged, incomplete or missing journals: detected, never destroyed, and continued only with every row possibly sent."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import chain, combinations, islice
from pathlib import Path
from typing import Any, ClassVar, Final

import attrs
import pytest
from support.crashes import memory
from support.damage import run
from support.examples import scaled
from support.journal import (
    ENDINGS,
    child,
    count_acknowledged,
    cut_copy,
    make_killed_journal,
    open_elsewhere,
    require_prefix,
    require_resumable,
    run_to_end,
)
from support.runs import client, rows
from support.systems import REFUSAL
from support.time import virtual_time
from support.transport import Script, added
from tools.journal_child import IDENTITY, open_journal, outcome, outcome_of, possibly_sent, record_event, steps, window

from outreach_async import InvalidRequest, JournalError, Store
from outreach_async.store._records import DamagedJournalError, checksum, require_intact
from outreach_async.store._sqlite import FileDatabase, JournalLock, create_file, query_journal, read_error, require_same_file
from outreach_async.store._writer import JournalWriter
from outreach_async.store._writer import open_journal as open_database

EVERY_ROW = possibly_sent((0, 2**63 - 1))


def writing(path: Path, **options: Any) -> closing[JournalWriter]:
    return closing(open_journal(path, resume=True, **options))


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def ended(path: Path, state: str = "finished", rows: int = 3) -> None:
    """Create the journal of a run that ended normally."""
    with writing(path) as writer:
        writer.mark(window(0, rows))
        writer.record([outcome(index) for index in range(rows)])
        writer.end(state)


@pytest.mark.thorough
def test_damage_anywhere_leads_to_no_false_label_and_no_wrong_read() -> None:
    with memory() as folder:
        figures = run(folder, count=170, seed=7)
    assert figures.wrong == []
    assert min(figures.counts.values()) > 30
    assert len(figures.counts) == 3


class TestLog:
    """The file is complete without its log, and an old log beside it is ignored."""

    @pytest.mark.parametrize("commits", [1, 2, 3, 7])
    def test_another_program_may_open_a_killed_journal_and_remove_its_log(self, path: Path, commits: int) -> None:
        make_killed_journal(path, commits)
        state = require_prefix(path)
        open_elsewhere(path)
        assert names(path.parent) == {"run.db"}
        assert require_prefix(path) == state
        require_resumable(path)

    @pytest.mark.parametrize("log", [None, b"", b"\x00" * 12, b"\xff" * 9000])
    def test_a_lost_or_unreadable_log_loses_nothing(self, path: Path, log: bytes | None) -> None:
        make_killed_journal(path, 3)
        for ending in ENDINGS[1:]:
            Path(f"{path}{ending}").unlink()
        if log is not None:
            Path(f"{path}-wal").write_bytes(log)
        assert require_prefix(path) == (20, 20)
        require_resumable(path)

    def test_a_log_that_cannot_be_opened_is_not_damage(self, path: Path) -> None:
        make_killed_journal(path, 2)
        Path(f"{path}-wal").unlink()
        Path(f"{path}-wal").mkdir()
        with pytest.raises(JournalError, match=r"run\.db cannot be read: unable to open database file; fix the cause"):
            Store(path).report()

    def test_a_mark_is_in_the_main_file_when_the_call_returns(self, path: Path) -> None:
        with writing(path) as writer:
            writer.mark(window(0))
            writer.record([outcome(0)])
            writer.mark(window(20))
            with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as db:
                assert db.execute("SELECT value FROM meta WHERE name IN ('marked', 'state') ORDER BY name").fetchall() == [
                    ("40",),
                    ('"running"',),
                ]
                assert db.execute("SELECT count(*) FROM window").fetchone() == (2,)

    def test_an_old_log_does_not_undo_newer_facts(self, path: Path) -> None:
        writer = open_journal(path)
        writer.mark(window(0))
        log = Path(f"{path}-wal").read_bytes()
        for ending in ENDINGS[1:]:
            shutil.copyfile(f"{path}{ending}", path.with_name(f"old{ending}"))
        writer.record([outcome(0), outcome(1)])
        writer.end("interrupted", possibly_sent((2, 3)))
        writer.close()
        for ending in ENDINGS[1:]:
            path.with_name(f"old{ending}").rename(f"{path}{ending}")
        report = Store(path).report()
        assert (report.state, report.rows) == ("interrupted", 2)
        with writing(path) as writer:
            assert writer.possibly_sent == possibly_sent((2, 3))
            assert writer.completed_rows(0, 20) == {0, 1}
        assert path.with_name("run.db.damaged-wal").read_bytes() == log
        assert Store(path).report().rows == 2

    @pytest.mark.parametrize("size", [1, 5000])
    def test_the_log_of_another_run_is_ignored(self, path: Path, size: int) -> None:
        """A large identity has pages of its own. With the log, its entry refers to pages of the other run."""
        identity = attrs.evolve(IDENTITY, source="x" * size)
        other = path.with_name("other.db")
        for each in (other, path):
            writer = open_journal(each, attrs.evolve(identity, workspace=each.name))
            writer.mark(window(0))
            if each == other:
                for ending in ENDINGS[1:]:
                    shutil.copyfile(f"{other}{ending}", f"{other}.kept{ending}")
            writer.close()
        for ending in ENDINGS[1:]:
            Path(f"{other}.kept{ending}").rename(f"{path}{ending}")
        assert Store(path).report().workspace == "run.db"
        open_journal(path, attrs.evolve(identity, workspace="run.db"), resume=True).close()

    def test_a_log_without_its_journal_is_an_error_and_no_new_run_uses_it(self, path: Path) -> None:
        make_killed_journal(path, 7)
        path.unlink()
        for resume in (True, False):
            with pytest.raises(JournalError, match=r"the file is missing, but its log .* exists"):
                open_journal(path, resume=resume)
        with writing(path, earlier="unknown") as writer:
            assert writer.possibly_sent == EVERY_ROW
        assert {"run.db", "run.db.damaged-wal", "run.db.damaged-shm"} <= names(path.parent)

    def test_an_empty_log_without_a_journal_is_ignored(self, path: Path) -> None:
        Path(f"{path}-wal").touch()
        with writing(path) as writer:
            assert not writer.resumed

    def test_a_torn_page_is_restored_from_the_log(self, path: Path) -> None:
        """A power failure may tear a page while the log is copied into the file."""
        make_killed_journal(path, 6)
        with path.open("r+b") as file:
            file.seek(4096 + 100)
            file.write(b"\xff" * 3000)
        require_prefix(path, (40, 40))
        require_resumable(path)


class TestClosing:
    """Closing removes the log, but only after the file contains everything in it."""

    def test_a_writer_closed_beside_a_reader_leaves_its_log(self, path: Path) -> None:
        writer = open_journal(path)
        writer.mark(window(0))
        with reader_of(path):
            writer.record([outcome(0)])
            writer.end("interrupted")
            writer.close()
            assert "run.db-wal" in names(path.parent)
        assert (Store(path).report().state, Store(path).report().rows) == ("interrupted", 1)
        with writing(path) as resumed:
            assert resumed.possibly_sent == possibly_sent()
        assert names(path.parent) == {"run.db"}

    def test_the_lock_is_released_after_the_log_is_removed(self, path: Path) -> None:
        found: list[set[str]] = []

        class Watched(FileDatabase):
            def _lock_file(self, *, resume: bool) -> None:
                super()._lock_file(resume=resume)
                self._resources.callback(lambda: found.append(names(path.parent)))  # just before the release

        ended(path)
        database = Watched(str(path))
        database.open(lambda _: None, resume=True)
        with database.transaction(marks=True):
            assert "run.db-wal" in names(path.parent)
        database.close()
        assert found == [{"run.db"}]

    def test_a_kill_between_the_end_and_the_close_of_a_run_is_repaired(self, path: Path) -> None:
        living = path.with_name("living.db")
        with writing(living) as writer:
            writer.mark(window(0, 1))
            writer.record([outcome(0)])
            writer.end("finished")
            for ending in ENDINGS:
                shutil.copyfile(f"{living}{ending}", f"{path}{ending}")
        with writing(path) as writer:
            assert writer.finished
        assert names(path.parent) == {"living.db", "run.db"}
        assert Store(path).report().state == "finished"


@contextmanager
def reader_of(path: Path) -> Iterator[None]:
    """Keep a read transaction open on a journal."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)) as db:
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM meta").fetchone()
        yield


def test_a_reader_that_blocks_a_mark_is_an_error_and_its_rows_are_not_sent(path: Path) -> None:
    with writing(path) as writer:
        writer.mark(window(0))
        writer.database._db.execute("PRAGMA busy_timeout = 1")
        with (
            reader_of(path),
            pytest.raises(JournalError, match="cannot be checkpointed, because another program is reading"),
        ):
            writer.mark(window(20))
        with pytest.raises(JournalError, match="cannot be checkpointed"):
            writer.mark(window(20))
        assert writer.marked == 20
    require_resumable(path)


class TestEarlierUnknown:
    """A damaged journal is moved aside, and the new one treats every row as possibly sent."""

    def test_a_damaged_journal_is_kept_under_the_name_in_its_event(self, path: Path) -> None:
        make_killed_journal(path, 7)
        Path(f"{path}-wal").unlink()
        os.truncate(path, 9000)
        content = path.read_bytes()
        with writing(path, earlier="unknown") as writer:
            assert (writer.resumed, writer.marked, writer.possibly_sent) == (False, 0, EVERY_ROW)
        assert path.with_name("run.db.damaged").read_bytes() == content
        ((_, kind, details),) = Store(path).events()
        assert (kind, details["kept"]) == ("damaged", "run.db.damaged")
        assert "run.db is damaged: database disk image is malformed" in details["reason"]

    def test_journals_moved_aside_earlier_are_not_overwritten(self, path: Path) -> None:
        for number, name in enumerate(("run.db.damaged", "run.db.damaged-1", "run.db.damaged-2")):
            path.write_bytes(b"")
            path.with_name("run.db.damaged-1-wal").touch()  # belongs to another journal
            with writing(path, earlier="unknown"):
                pass
            assert (name in names(path.parent)) is (number != 1)
        assert {"run.db.damaged", "run.db.damaged-2", "run.db.damaged-3"} <= names(path.parent)

    def test_a_journal_whose_log_cannot_be_renamed_is_not_renamed(self, tmp_path: Path) -> None:
        path = tmp_path / ("j" * 247)  # the new name of the journal fits into 255 bytes, that of its log does not
        make_killed_journal(tmp_path / "run.db", 7)
        for ending in ENDINGS:
            (tmp_path / f"run.db{ending}").rename(f"{path}{ending}")
        with path.open("r+b") as file:
            file.truncate(5000)
        with pytest.raises(JournalError, match="File name too long"):
            open_journal(path, resume=True, earlier="unknown")
        assert names(tmp_path) == {f"{path.name}{ending}" for ending in ENDINGS}

    def test_an_invalid_header_is_damage(self, path: Path) -> None:
        ended(path)
        with path.open("r+b") as file:
            file.seek(16)  # the page size
            file.write(b"\x00\x03")
        with pytest.raises(JournalError, match="is damaged"):
            open_journal(path, resume=True)
        with writing(path, earlier="unknown") as writer:
            assert not writer.resumed

    def test_a_journal_in_use_is_not_moved_aside(self, path: Path) -> None:
        with writing(path), pytest.raises(InvalidRequest, match="another run is writing"):
            open_journal(path, resume=True, earlier="unknown")
        assert names(path.parent) == {"run.db"}


CHANGES = {
    "a fact": "UPDATE meta SET value = '21' WHERE name = 'marked'",
    "a fact of an earlier commit": f"UPDATE meta SET value = '20', crc = {checksum(['marked', '20'])} WHERE name = 'marked'",  # noqa: S608 - a number
    "a fact that is missing": "DELETE FROM meta WHERE name = 'possibly_sent'",
    "a window": "UPDATE window SET rows = 21",
    "the digest of a window": "UPDATE window SET digest = x'00' WHERE first = 0",
    "a window that is missing": "DELETE FROM window WHERE first = 20",
    "the first window": "DELETE FROM window WHERE first = 0",
    "an outcome": "UPDATE outcome SET seq = 39 WHERE seq = 19",
    "the status of an outcome": "UPDATE outcome SET status = 99 WHERE seq = 19",
    "the status of the first outcome": "UPDATE outcome SET status = 99 WHERE seq = 0",
    "an outcome that is missing": "DELETE FROM outcome WHERE seq = 19",
    "an outcome of a row that was not marked": "UPDATE outcome SET seq = 99 WHERE seq = 19",
    "an error": "UPDATE error SET text = 'x'",
    "an error that is missing": "DELETE FROM error",
    "an event": "UPDATE event SET at = 5",
    "an event that is missing": "DELETE FROM event",
    "a spooled row": "UPDATE spool SET payload = '{}' WHERE seq = 1",
    "a spooled row that is missing": "DELETE FROM spool WHERE seq = 1",
    "a table": "ALTER TABLE error RENAME COLUMN text TO word",
    "a table more": "CREATE TABLE more (a)",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_to_a_journal_are_detected_before_it_is_resumed(path: Path, change: str) -> None:
    with writing(path) as writer:
        writer.spool([(index, "", b'{"email":"a"}') for index in range(40)])
        writer.end_spool(40)
        record_event(writer, "gate", {})
        for first in (0, 20):
            writer.mark(window(first))
        writer.record([outcome_of(index) for index in range(20)])
        writer.end("interrupted")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(change)
    for _ in range(2):  # the first attempt leaves no lock
        with pytest.raises(JournalError, match=r'run\.db is damaged: .*; restore a copy.*earlier="unknown"'):
            open_journal(path, resume=True)
    with pytest.raises(JournalError, match=r"run\.db is damaged"):  # each read detects damage in what it reads
        (Store(path).report(), list(Store(path).outcomes()), list(Store(path).events()))


def test_a_spooled_row_that_changes_during_the_run_is_a_journal_error(path: Path) -> None:
    with writing(path) as writer:
        writer.spool([(0, "", b"{}")])
        writer.end_spool(1)
        with writer.database.connection() as db:
            db.execute("UPDATE spool SET payload = '{'")
        with pytest.raises(JournalError, match="checksum mismatch in spooled row 0"):
            writer.spooled_rows(0, 1, "serial", 2**40)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_CANTOPEN])
def test_a_temporary_error_is_not_damage(path: Path, code: int) -> None:
    error = sqlite3.OperationalError("it is so")
    error.sqlite_errorcode = code
    assert not isinstance(read_error(path, error), DamagedJournalError)
    assert "it is so; fix the cause and try again" in str(read_error(path, error))
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHORT_READ
    assert isinstance(read_error(path, error), DamagedJournalError)


class TestCreation:
    """A journal is created completely or not at all."""

    METADATA: ClassVar[dict[str, str]] = {"state": "running"}

    def test_a_draft_that_cannot_be_linked_leaves_nothing_behind(self, path: Path) -> None:
        seen: list[str] = []

        def refuse(draft: str, _path: str) -> None:
            seen.append(draft)
            with closing(sqlite3.connect(f"file:{draft}?immutable=1", uri=True)) as db:
                assert db.execute("SELECT name FROM meta").fetchall() == [("state",)]
                assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            raise OSError(errno.EPERM, "not here")

        with pytest.raises(OSError, match="not here"):
            create_file(str(path), self.METADATA, 0.0, refuse)
        assert (len(seen), names(path.parent)) == (1, set())

    def test_a_file_created_meanwhile_is_not_replaced(self, path: Path) -> None:
        path.write_bytes(b"mine")
        with pytest.raises(FileExistsError):
            create_file(str(path), self.METADATA, 0.0)
        assert (path.read_bytes(), names(path.parent)) == (b"mine", {"run.db"})

    def test_a_draft_that_cannot_be_written_leaves_nothing_behind(self, path: Path) -> None:
        no_time: Any = ("no", "time")
        with pytest.raises(OSError, match="type 'tuple' is not supported"):
            create_file(str(path), self.METADATA, no_time)
        assert names(path.parent) == set()

    def test_a_journal_that_cannot_be_started_is_released(self, path: Path) -> None:
        with pytest.raises(StopIteration):
            open_journal(path, wall=iter([0.0]).__next__)
        with writing(path) as writer:
            assert writer.resumed

    def test_a_file_that_replaced_the_locked_one_belongs_to_another_run(self, path: Path) -> None:
        path.touch()
        with path.open("rb") as file:
            require_same_file(str(path), file.fileno())
            path.rename(path.with_name("run.db.damaged"))
            path.touch()
            with pytest.raises(InvalidRequest, match="another run is writing"):
                require_same_file(str(path), file.fileno())

    def test_a_journal_replaced_during_its_run_resumes_when_put_back(self, path: Path) -> None:
        with writing(path) as writer:
            next(changes := steps(writer))
            path.rename(original := path.with_name("original.db"))
            shutil.copy(original, path)
            with pytest.raises(JournalError, match="put the original file back and resume the run, or pass another journal"):
                for _ in changes:
                    pass
        original.replace(path)
        with writing(path) as writer:
            assert writer.window_at(0) is not None

    @pytest.mark.thorough
    @pytest.mark.parametrize("size", [5000, 15000, 25000])
    def test_a_full_disk_is_a_journal_error_and_leaves_nothing_behind(self, path: Path, size: int) -> None:
        code = (
            "import resource, signal, sys; from tools.journal_child import *\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)\n"
            "try: open_journal(Path(sys.argv[1]))\n"
            "except JournalError as error: print(error)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(path), str(size)],
            check=True,
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
        )
        assert f"journal {path} cannot be opened: " in done.stdout
        assert names(path.parent) == set()


@virtual_time
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("DELETE FROM outcome WHERE seq > 5", "expected 30 outcomes, found 6"),
        ("UPDATE outcome SET attempts = 7 WHERE seq = 3", "checksum mismatch in row 3"),
    ],
)
async def test_a_finished_run_with_changed_outcomes_is_refused_everywhere(path: Path, change: str, message: str) -> None:
    journal = Store(path, inline=True)
    await client(Script(added())).contacts.create_many(rows(30), journal=journal)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(change)
    script = Script(added())
    for read in (journal.report, lambda: list(journal.outcomes())):
        with pytest.raises(JournalError, match=message):
            read()
    with pytest.raises(JournalError, match=message):
        await client(script).contacts.create_many(rows(30), journal=journal, resume=True)
    assert script.requests == []


@pytest.mark.thorough
def test_a_running_journal_is_read_concurrently_and_never_called_damaged(path: Path) -> None:
    with writing(path) as writer:
        for _ in islice(steps(writer), 60):
            assert Store(path).report().marked == writer.marked
            assert len(list(Store(path).outcomes())) == Store(path).report().rows


@pytest.mark.parametrize("beside", [False, True])
def test_either_lock_excludes_other_runs_and_lets_sqlite_work(path: Path, *, beside: bool) -> None:
    fcntl = pytest.importorskip("fcntl", reason=REFUSAL)
    path.touch()
    hold = JournalLock(str(path), resume=True, beside=beside)
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE t (a)")
    with (path.with_name("run.db-lock") if beside else path).open() as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        db.close()
        hold.release()
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(InvalidRequest, match="another run is writing"):
            JournalLock(str(path), resume=True, beside=beside)
    JournalLock(str(path), resume=True, beside=beside).release()


def test_a_read_is_retried_a_few_times_if_the_file_changed_meanwhile(path: Path) -> None:
    with writing(path):
        pass
    tries = 0

    def question(db: sqlite3.Connection) -> int:
        nonlocal tries
        tries += 1
        if tries <= changes:
            os.utime(path, ns=(tries, tries))
        if tries == 1:
            db.execute("SELECT * FROM nothing")
        return tries

    changes = 3
    assert query_journal(path, question) == (4, False)
    tries, changes = 1, 1_000_000
    with pytest.raises(JournalError, match="changes faster than it can be read"):
        query_journal(path, question)


def test_a_database_that_cannot_be_opened_is_closed(path: Path) -> None:
    with writing(path):
        pass
    log = path.with_name("run.db-wal")

    class Blocked(FileDatabase):
        def _connect(self, metadata: Any) -> None:
            log.mkdir()
            super()._connect(metadata)

    with pytest.raises(JournalError, match="unable to open database file") as caught:
        open_database(Blocked(str(path)), IDENTITY, resume=True, earlier="known", wall=lambda: 0.0)
    opened = [each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    assert path not in opened  # neither the connection nor the lock has it open
    assert caught.value.__traceback__ is not None  # until here, it refers to the connection
    log.rmdir()
    open_journal(path, resume=True).close()


PAGE: Final = 4096


@attrs.frozen
class Commit:
    """A commit that is in the log, and not yet in the file."""

    file: bytes
    log: bytes
    pages: dict[int, bytes]

    @classmethod
    def of(cls, path: Path) -> Commit:
        log, pages = Path(f"{path}-wal").read_bytes(), {}
        for start in range(32, len(log), 24 + PAGE):  # https://sqlite.org/fileformat2.html#the_wal_format
            if log[start + 8 : start + 16] == log[16:24]:  # otherwise the frame is older than the log
                pages[struct.unpack_from(">I", log, start)[0]] = log[start + 24 : start + 24 + PAGE]
        return cls(path.read_bytes(), log, pages)

    def parts(self) -> Iterator[tuple[int, ...]]:
        """Return which pages a kill may have left in the file: every choice, or 64 of many."""
        if len(self.pages) > 6:
            chance = random.Random(len(self.file))  # noqa: S311 - reproducible, not secret
            yield from ((), tuple(self.pages))
            yield from (tuple(page for page in self.pages if chance.random() < 0.5) for _ in range(62))
        else:
            yield from chain.from_iterable(combinations(self.pages, count) for count in range(len(self.pages) + 1))

    def file_with(self, part: tuple[int, ...]) -> bytes:
        """Return the file with a part of the changed pages. SQLite enlarges the file before it writes a later page."""
        content = bytearray(self.file)
        for number in part:
            end = number * PAGE
            content.extend(bytes(max(0, end - len(content))))
            content[end - PAGE : end] = self.pages[number]
        return bytes(content)


def commits(path: Path) -> list[Commit]:
    """Write a run with every kind of commit, and return the commits."""
    found: list[Commit] = []

    def look(statement: str) -> None:
        if statement.startswith("PRAGMA wal_checkpoint("):
            found.append(Commit.of(path))

    def watched(**options: Any) -> JournalWriter:
        writer = open_journal(path, resume=True, **options)
        writer.database._db.set_trace_callback(look)
        return writer

    writer = watched()
    writer.spool([(index, f"p{index % 30}@a.example", b'{"email":"' + b"p" * 300 + b'"}') for index in range(40)])
    writer.end_spool(40)
    writer.spooled_rows(0, 20, "first", 2**40)
    for first in (0, 20):
        writer.mark(window(first))
        writer.record([outcome_of(index) for index in range(first + 2, first + 12)])
        record_event(writer, "gate", {"text": "x" * 900})
    writer.end("interrupted", possibly_sent((0, 1), (20, 22)))
    writer.close()
    writer = watched(earlier="unknown")
    writer.record([outcome_of(index) for index in (0, 1, *range(12, 22), *range(32, 40))])
    writer.end("finished")
    writer.close()
    return found


def view(path: Path) -> tuple[dict[str, Any], list[tuple[int]]]:
    """Check a journal as a resumed run does, and return what the run relies on."""
    return query_journal(path, lambda db: (require_intact(db), db.execute("SELECT seq FROM outcome ORDER BY seq").fetchall()))[0]


@pytest.mark.thorough
def test_any_part_of_a_commit_is_completed_by_the_log_found_or_harmless(tmp_path: Path) -> None:
    path, refused, harmless = tmp_path / "half.db", 0, 0
    log = Path(f"{path}-wal")
    for commit in commits(tmp_path / "run.db"):
        path.write_bytes(commit.file)
        before = view(path)
        path.write_bytes(commit.file_with(tuple(commit.pages)))
        after = view(path)
        for part in commit.parts():
            path.write_bytes(commit.file_with(part))
            log.write_bytes(commit.log)
            assert view(path) == after
            for left in (len(commit.log) // 2, 0):
                log.write_bytes(commit.log[:left])
                try:
                    assert view(path) in (before, after)
                    harmless += 1
                except DamagedJournalError:
                    refused += 1
    assert min(refused, harmless) > 80


# Kills, power failures, full disks and I/O errors


@pytest.mark.thorough
def test_a_log_cut_anywhere_leaves_every_durable_state(tmp_path: Path) -> None:
    path, count = tmp_path / "cut.db", scaled(24)
    make_killed_journal(path, 81)
    size = Path(f"{path}-wal").stat().st_size
    for number in range(count + 1):
        copy = cut_copy(path, tmp_path / f"cut{number}", size * number // count)
        assert require_prefix(copy) == (540, 540)  # the file is complete without its log
        require_resumable(copy)


@pytest.mark.thorough
def test_a_killed_process_leaves_at_least_what_it_reported_as_durable(tmp_path: Path) -> None:
    chance, wanted, done = random.Random(1), scaled(6), 0  # noqa: S311 - reproducible, not secret
    path = tmp_path / "kill0.db"
    while done < wanted:
        process = child(path)
        assert process.stdout is not None
        reported = "".join(process.stdout.readline() for _ in range(chance.randrange(1, 40)))
        time.sleep(chance.random() * 0.002)  # hits the child at a random instant
        process.send_signal(signal.SIGKILL)
        rest, errors = process.communicate()
        assert not errors
        done += process.returncode == -signal.SIGKILL
        if chance.random() < 0.5:  # another program opens the journal, and thereby removes its log
            open_elsewhere(path)
        require_prefix(path, count_acknowledged(reported + rest))
        if process.returncode == 0:
            path = tmp_path / f"kill{done}.db"
    require_resumable(path)


def require_kept(path: Path, code: int, reported: tuple[int, int]) -> None:
    """Check that a run that reported an error has kept what it reported, and can be resumed."""
    assert code == 3
    try:
        require_prefix(path, reported)
    except InvalidRequest:  # the disk was full before the journal existed
        assert reported == (0, 0)
    require_resumable(path)


@pytest.mark.thorough
def test_a_file_that_cannot_grow_ends_writing_without_losing_durable_data(tmp_path: Path) -> None:
    count = scaled(3)
    for number in range(1, count + 1):
        path = tmp_path / f"limit{number}.db"
        require_kept(path, *run_to_end(path, "--file-size", 30_000 * number // count))


@pytest.mark.thorough
def test_a_log_that_cannot_be_written_ends_writing_without_losing_durable_data(tmp_path: Path) -> None:
    count = scaled(3)
    for number in range(1, count + 1):
        path = tmp_path / f"break{number}.db"
        require_kept(path, *run_to_end(path, "--break", 9 * number // count))


def fill(writer: JournalWriter) -> None:
    for _ in range(100):
        record_event(writer, "filler", {"text": "x" * 1000})


def test_a_full_database_ends_writing_and_the_run_can_be_resumed(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    writer = open_journal(path)
    writer.mark(window(0))
    writer.record([outcome_of(index) for index in range(12)])
    (pages,) = writer.database._db.execute("PRAGMA page_count").fetchone()
    writer.database._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(JournalError, match="database or disk is full; fix the cause"):
        fill(writer)
    writer.database._db.execute("PRAGMA max_page_count = 100000")
    noted = len(list(Store(path).events()))
    with pytest.raises(JournalError, match="is full"):
        writer.record([outcome_of(12)])
    with pytest.raises(JournalError, match="is full"):
        record_event(writer, "filler", {})
    writer.close()
    assert require_prefix(path) == (20, 12)
    assert len(list(Store(path).events())) == noted
    require_resumable(path)
