"""Journals under kills, power failures, full disks and I/O errors; tools/journal_faults.py runs the long version."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.journal import require_prefix, require_resumable
from tools.journal_child import open_journal, outcome_of, window
from tools.journal_faults import broken_log, cuts, full_disk, kills

from outreach_async.bulk.journal import Journal
from outreach_async.bulk.journal._writer import FileWriter
from outreach_async.errors import JournalError


@pytest.mark.thorough
def test_a_log_cut_anywhere_leaves_every_durable_state(tmp_path: Path) -> None:
    assert set(cuts(tmp_path, count=8)) == {(540, 540)}


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
