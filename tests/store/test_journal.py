"""The journal of a bulk run: writes are durable, one run holds the lock, and any process can read."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.journal import make_killed_journal
from tools.journal_child import open_journal, outcome, window

from outreach_async import Outcome
from outreach_async.errors import InvalidRequest, JournalError, StatusError
from outreach_async.store.journal import Identity, Journal, JournalWriter


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
                journal = Journal(each)
                assert list(journal.outcomes()) == list(journal.outcomes()) or each is killed
                assert journal.report() == journal.report()
                assert list(journal.events()) == []
                assert listing(tmp_path) == before
            writer.close()


def test_a_journal_in_a_read_only_folder_can_be_read(path: Path) -> None:
    with writing(path) as writer:
        writer.mark(window(0))
        writer.record([outcome(0)])
    path.parent.chmod(0o500)
    try:
        assert [found.index for found in Journal(path).outcomes()] == [0]
    finally:
        path.parent.chmod(0o700)


def test_outcomes_are_read_in_pages_without_loss_or_duplicates(path: Path) -> None:
    with writing(path) as writer:
        writer.mark(window(0, 5000))
        recorded = [index for index in range(5000) if index % 3]
        writer.record([outcome(index) for index in recorded])
        reading = Journal(path).outcomes()
        first = next(reading)
        writer.record([outcome(4998)])
        assert [first.index, *(found.index for found in reading)] == sorted([*recorded, 4998])


def test_reading_continues_while_the_run_ends_and_is_resumed(path: Path) -> None:
    with writing(path) as writer:
        writer.mark(window(0, 3500))
        writer.record([outcome(index) for index in range(3000)])
        reading = Journal(path).outcomes()
        found = [next(reading).index]
    found += [next(reading).index for _ in range(1500)]
    with writing(path, resume=True) as writer:
        writer.record([outcome(index) for index in range(3000, 3500)])
        found += [each.index for each in reading]
    assert found == list(range(3500))


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
            assert Journal(path).report().state == "running"
            other.communicate("\n")
        with writing(path, resume=True) as writer:
            assert writer.resumed

    @pytest.mark.parametrize("earlier", ["known", "unknown"])
    def test_a_file_that_is_not_a_journal_which_is_left_unchanged(self, path: Path, earlier: str) -> None:
        with closing(sqlite3.connect(other := path.with_name("other.db"))) as db:
            db.execute("CREATE TABLE t (a)")
        for content in (b"email\na@a.example\n", b"SQLite format 3\0", bytes(4096), other.read_bytes()):
            path.write_bytes(content)
            with pytest.raises(InvalidRequest, match="is not a journal"):
                open_journal(path, resume=True, earlier=earlier)
            with pytest.raises(InvalidRequest, match="is not a journal"):
                Journal(path).report()
            assert path.read_bytes() == content
        assert len(list(path.parent.iterdir())) == 2

    def test_a_journal_of_a_newer_format(self, path: Path) -> None:
        with writing(path):
            pass
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA user_version = 9")
        with pytest.raises(InvalidRequest, match="newer version"), writing(path, resume=True):
            pass
        with pytest.raises(InvalidRequest, match="newer version"):
            list(Journal(path).outcomes())

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
                Journal(each).report()
        path = path.with_name("x" * 300)
        for call in (lambda: open_journal(path), Journal(path).report):
            with pytest.raises(JournalError, match="File name too long"):
                call()

    def test_any_journal_on_a_system_without_posix_locks(self, path: Path) -> None:
        code = (
            "import sys; sys.modules['fcntl'] = None; from pathlib import Path; from outreach_async.store.journal import *\n"
            "from outreach_async.store.journal._file_journal import open_file\n"
            "try: open_file(sys.argv[1], Identity('space_1', {}), resume=False)\n"
            "except ValueError as error: print(error)"
        )
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        assert "lacks POSIX file locks or hard links" in done.stdout
        assert not path.exists()

    @pytest.mark.parametrize("resume", [True, False])
    def test_an_empty_file_which_is_left_unchanged(self, path: Path, resume: bool) -> None:
        path.touch()
        with pytest.raises(InvalidRequest, match=r"empty file.*earlier=" if resume else "already exists; resume its run"):
            open_journal(path, resume=resume)
        with pytest.raises(InvalidRequest, match=r"empty file.*earlier="):
            Journal(path).report()
        assert path.read_bytes() == b""


class TestReport:
    """Reports depend on the journal alone."""

    def test_it_contains_the_totals_of_the_run_and_of_the_journal(self, path: Path) -> None:
        clock = iter([100.0, 101.0, 102.0, 103.5])
        with writing(path, wall=lambda: next(clock)) as writer:
            writer.record_event("gate", {"seconds": 3})
            writer.mark(window(0, 9))
            possible = frozenset({Outcome.SKIPPED, Outcome.ADDED})
            writer.record([outcome(0), outcome(1, Outcome.SKIPPED, possible=possible), outcome(4, Outcome("archived"))])
            writer.end("suspended")
        assert Journal(path).report().to_dict() == {
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
        assert list(Journal(path).events()) == [(101.0, "gate", {"seconds": 3})]

    def test_neither_the_time_between_resumes_nor_a_clock_set_back_counts(self, path: Path) -> None:
        now = [100.0]
        for seconds in (5, 5, -50):
            with writing(path, resume=True, wall=lambda: now[0]) as writer:
                now[0] += seconds
                writer.end("suspended")
            now[0] += 1000
        assert Journal(path).report().seconds == 10


def payload(email: str, **members: str | None) -> bytes:
    return json.dumps({"email": email, **members}).encode()


ROWS = [
    (0, "a@a.example", payload("a@a.example", city="Rome", title="Dr")),
    (1, "b@a.example", payload("b@a.example", city="Bonn")),
    (2, "", b'"email: expected a text"'),
    (3, "a@a.example", payload("a@a.example", city="Oslo", title=" ", custom_2=" ")),
    (4, "", '{ "b":1 , "a":"\\u0000\\u00e9é\\/" , "b":1.50 }'.encode()),
    (5, "A@a.example", payload("A@a.example")),
    (6, "a@a.example", payload("a@a.example", custom_1="x")),
]


class TestSpool:
    """The input is stored byte for byte, and rows that repeat an e-mail are superseded or merged."""

    @staticmethod
    def rows_of(path: Path, policy: Any, duplicates: str = "skip") -> dict[int, Any]:
        with writing(path, identity=Identity("space_1", {"duplicates": duplicates})) as writer:
            writer.spool(ROWS[:4])
            writer.spool(ROWS[4:])
            writer.end_spool(len(ROWS))
            found = [*writer.spooled_rows(0, 3, policy, 2**40), *writer.spooled_rows(3, 100, policy, 2**40)]
            assert writer.spooled_rows(7, 5, policy, 2**40) == []
        return {row.index: row.payload if row.repeats is None else row.repeats for row in found}

    @pytest.mark.parametrize(
        ("policy", "others"), [("serial", {}), ("error", {}), ("first", {3: 0, 6: 0}), ("last", {0: 6, 3: 6})]
    )
    def test_one_row_of_an_email_is_sent_unchanged_or_all(self, path: Path, policy: str, others: dict[int, int]) -> None:
        assert self.rows_of(path, policy) == {index: content for index, _, content in ROWS} | others

    @pytest.mark.parametrize(
        ("duplicates", "merged"),
        [
            ("skip", {"city": "Rome", "title": "Dr"}),
            ("overwrite", {"city": "Oslo", "title": " ", "custom_2": " ", "custom_1": "x"}),
            ("update_missing_fields", {"city": "Rome", "title": "Dr", "custom_1": "x"}),
        ],
    )
    def test_the_rows_of_an_email_are_merged_into_the_first(self, path: Path, duplicates: str, merged: dict[str, str]) -> None:
        found = self.rows_of(path, "coalesce", duplicates)
        assert json.loads(found.pop(0)) == {"email": "a@a.example", **merged}
        assert found == {index: content for index, _, content in ROWS[1:]} | {3: 0, 6: 0}

    def test_all_rows_of_an_email_are_merged_however_many_there_are(self, path: Path) -> None:
        with writing(path, identity=Identity("space_1", {"duplicates": "overwrite"})) as writer:
            writer.spool([(index, "a", payload("a", **{f"custom_{index}": "x", "city": str(index)})) for index in range(1000)])
            writer.end_spool(1000)
            (sent, *others) = writer.spooled_rows(0, 1000, "coalesce", 2**40)
        members = json.loads(sent.payload)
        assert (len(members), members["city"]) == (1002, "999")
        assert {row.repeats for row in others} == {0}

    def test_emails_are_compared_exactly(self, path: Path) -> None:
        with writing(path) as writer:
            emails = ["a\0b", "a\0c", "a", "A", "a ", '"a"', "é", "e\u0301"]
            writer.spool([(index, email, b"{}") for index, email in enumerate(emails)])
            writer.end_spool(len(emails))
            assert [row.repeats for row in writer.spooled_rows(0, 20, "first", 2**40)] == [None] * len(emails)

    def test_a_spool_that_was_not_complete_is_written_again(self, path: Path) -> None:
        with writing(path) as writer:
            writer.spool(ROWS[:2])
        with writing(path, resume=True) as writer:  # spooled again after a kill, with fewer rows
            assert writer.spooled is None
            writer.spool([(0, "c", b'{"email":"c"}')])
            writer.end_spool(1)
        with writing(path, resume=True) as writer:
            assert writer.spooled == 1
            assert [row.payload for row in writer.spooled_rows(0, 9, "first", 2**40)] == [b'{"email":"c"}']

    def test_an_outcome_is_read_with_its_spooled_row(self, path: Path) -> None:
        with writing(path) as writer:
            writer.spool(ROWS)
            writer.end_spool(len(ROWS))
            writer.mark(window(0, len(ROWS)))
            writer.record([outcome(1), outcome(2)])
        assert [found.contact for found in Journal(path).outcomes()] == [{"email": "b@a.example", "city": "Bonn"}, None]


def test_a_damaged_journal_is_an_error_with_the_file_and_the_remedy(path: Path) -> None:
    with writing(path) as writer:
        writer.mark(window(0, 2000))
        writer.record([outcome(index) for index in range(2000)])
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    for read in (lambda: list(Journal(path).outcomes()), lambda: open_journal(path, resume=True)):
        with pytest.raises(JournalError, match=r"run\.db is damaged: .*malformed.*restore a copy.*earlier=\"unknown\""):
            read()
    with pytest.raises(JournalError), writing(path, resume=True):  # the failed attempts left no lock
        pass


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
    assert Journal(path).report().marked == 60


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
            transaction._db.execute("DELETE FROM meta")
            raise KeyboardInterrupt

    with writing(path) as writer:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        writer.mark(window(0))
    assert Journal(path).report().marked == 20


def test_masked_errors_bring_no_key_into_the_files_of_a_run(path: Path) -> None:
    with writing(path) as writer:
        error = StatusError("refused", status_code=401, headers={"x-key": "key_secret"}, body=b"key_secret")
        writer.mark(window(0))
        writer.record([outcome(0, Outcome.REJECTED, error=error)])
        content = b"".join(each.read_bytes() for each in path.parent.iterdir())
    assert b"refused" in content
    assert b"secret" not in content + path.read_bytes()


def test_a_journal_has_its_path() -> None:
    assert repr(Journal("a/run.db")) == "Journal('a/run.db')"
    assert not Journal("a").inline
