"""Journals under kills, power failures, full disks and I/O errors; tools/journal_faults.py runs the long version."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.journal import cut_copy, make_killed_journal, require_prefix, require_resumable
from tools.journal_child import open_journal, outcome_of, window
from tools.journal_faults import broken_log, cuts, full_disk, kills

from outreach_async.bulk.journal import Journal
from outreach_async.bulk.journal.writer import FileWriter
from outreach_async.errors import JournalError


@pytest.mark.thorough
def test_a_log_cut_anywhere_leaves_an_earlier_state_of_the_run(tmp_path: Path) -> None:
    found = cuts(tmp_path, count=8)
    assert len(found) == 7
    assert len(set(found)) == 3


@pytest.mark.parametrize("size", [0, 31, 32])
def test_an_empty_log_is_an_error_at_once(tmp_path: Path, size: int) -> None:
    path = tmp_path / "run.db"
    make_killed_journal(path, 2)
    copy = cut_copy(path, tmp_path / "cut", size)
    began = time.monotonic()
    with pytest.raises(JournalError, match=r"name ends in -wal\) is empty or unreadable"):
        Journal(copy).report()
    assert time.monotonic() - began < 5  # SQLite itself would give up after ten seconds


def test_a_log_whose_first_frame_is_cut_loses_outcomes_but_no_mark(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    make_killed_journal(path, 2)
    report = Journal(cut_copy(path, tmp_path / "cut", 33)).report()
    assert (report.marked, report.rows, report.possibly_sent) == (20, 0, 20)


@pytest.mark.thorough
def test_a_killed_process_leaves_at_least_what_it_reported_as_durable(tmp_path: Path) -> None:
    assert kills(tmp_path, count=2, seed=1) == 2


@pytest.mark.thorough
def test_a_file_that_cannot_grow_ends_writing_without_losing_durable_data(tmp_path: Path) -> None:
    assert full_disk(tmp_path, [30_000]) == 1


@pytest.mark.thorough
def test_a_log_that_cannot_be_written_ends_writing_without_losing_durable_data(tmp_path: Path) -> None:
    assert broken_log(tmp_path, [9]) == 1


def fill(writer: FileWriter) -> None:
    for _ in range(100):
        writer.record_event("filler", {"text": "x" * 1000})


def test_a_full_database_ends_writing_and_the_run_can_be_resumed(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    writer = open_journal(path)
    writer.mark(window(0))
    writer.record([outcome_of(index) for index in range(12)])
    (pages,) = writer._database._db.execute("PRAGMA page_count").fetchone()
    writer._database._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(JournalError, match="database or disk is full; fix the cause"):
        fill(writer)
    writer._database._db.execute("PRAGMA max_page_count = 100000")
    noted = len(list(Journal(path).events()))
    with pytest.raises(JournalError, match="is full"):
        writer.record([outcome_of(12)])
    with pytest.raises(JournalError, match="is full"):
        writer.record_event("filler", {})
    writer.close()
    assert require_prefix(path) == (20, 12)
    assert len(list(Journal(path).events())) == noted
    require_resumable(path)
