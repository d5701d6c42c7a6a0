"""A kill may leave any part of a commit in the journal's file: the log completes it; without the log, it is found or harmless."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from itertools import chain, combinations
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from tools.journal_child import open_journal, outcome_of, window

from outreach_async.bulk._rows import PossiblySent
from outreach_async.store.journal import JournalWriter
from outreach_async.store.journal._reader import DamagedJournalError, query_journal, require_intact

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
        if statement == "PRAGMA wal_checkpoint(PASSIVE)":
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
        writer.record_event("gate", {"text": "x" * 900})
    writer.end("interrupted", PossiblySent(((0, 1), (20, 22))))
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
