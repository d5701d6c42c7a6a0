"""Journals under kills, power failures, full disks and I/O errors."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from support.examples import scaled
from support.journal import (
    child,
    count_acknowledged,
    cut_copy,
    make_killed_journal,
    open_elsewhere,
    require_prefix,
    require_resumable,
    run_to_end,
)
from tools.journal_child import open_journal, outcome_of, window

from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.store.journal import Journal, JournalWriter


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
        writer.record_event("filler", {"text": "x" * 1000})


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
    noted = len(list(Journal(path).events()))
    with pytest.raises(JournalError, match="is full"):
        writer.record([outcome_of(12)])
    with pytest.raises(JournalError, match="is full"):
        writer.record_event("filler", {})
    writer.close()
    assert require_prefix(path) == (20, 12)
    assert len(list(Journal(path).events())) == noted
    require_resumable(path)
