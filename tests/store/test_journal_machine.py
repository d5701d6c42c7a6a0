"""After any sequence of calls, crashes and resumes, the journal holds what a plain dict would hold."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.examples import scaled
from support.journal import copy_of, facts, new_journal, outcomes
from tools.journal_child import IDENTITY, possibly_sent, record_event, window

from outreach_async import ContactOutcome, Outcome
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.store._writer import JournalWriter


class FileMachine(RuleBasedStateMachine):
    """A writer compared with a model of it."""

    medium = "file"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.generations = itertools.count()
        self.journal = new_journal(self.medium, self.folder)
        self.windows: list[Any] = []
        self.recorded: dict[int, ContactOutcome] = {}
        self.spooled: dict[int, bytes] = {}
        self.events: list[str] = []
        self.state = "running"
        self.possibly_sent = possibly_sent()
        self.writer: JournalWriter

    @property
    def marked(self) -> int:
        return self.windows[-1].end if self.windows else 0

    @property
    def free(self) -> list[int]:
        return [index for index in range(self.marked) if index not in self.recorded]

    @initialize()
    def begin(self) -> None:
        self.writer = self.journal.writer(IDENTITY, resume=False)

    @rule(rows=st.integers(1, 9), digest=st.binary(min_size=8, max_size=8))
    def mark(self, rows: int, digest: bytes) -> None:
        self.windows.append(window(self.marked, rows, digest))
        self.writer.mark(self.windows[-1])

    @precondition(lambda self: self.windows)
    @rule(data=st.data())
    def mark_again(self, data: st.DataObject) -> None:
        again = data.draw(st.sampled_from(self.windows))
        self.writer.mark(again)
        with pytest.raises(InvalidRequest, match="the input changed"):
            self.writer.mark(window(again.first, again.rows + 1, again.digest))

    @precondition(lambda self: self.free)
    @rule(data=st.data())
    def record(self, data: st.DataObject) -> None:
        indexes = data.draw(st.lists(st.sampled_from(self.free), unique=True, max_size=6))
        found = [data.draw(outcomes(index)) for index in indexes]
        self.writer.record(found)
        self.recorded |= {each.index: each for each in found}

    @precondition(lambda self: self.recorded and self.free)
    @rule(data=st.data())
    def record_twice_and_resume(self, data: st.DataObject) -> None:
        twice = data.draw(outcomes(data.draw(st.sampled_from(sorted(self.recorded)))))
        fresh = data.draw(outcomes(self.free[0]))
        for _ in range(2):
            with pytest.raises(JournalError, match="UNIQUE"):
                self.writer.record([fresh, twice])
        self.reopen()

    @rule(data=st.data())
    def record_beyond(self, data: st.DataObject) -> None:
        with pytest.raises(InvalidRequest, match="mark a row before"):
            self.writer.record([data.draw(outcomes(self.marked))])

    @rule(kind=st.sampled_from(["gate", "breaker"]))
    def note(self, kind: str) -> None:
        record_event(self.writer, kind, {"kind": kind})
        self.events.append(kind)

    @rule(rows=st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["", "a", "b"])), max_size=5, unique_by=lambda row: row[0]))
    def spool(self, rows: list[tuple[int, str]]) -> None:
        batch = [(index, key, f'{{"email":"{key}","n":{index}}}'.encode()) for index, key in rows]
        self.writer.spool(batch)
        self.spooled |= {index: payload for index, _, payload in batch}

    @rule()
    def reopen(self) -> None:
        """Abandon the writer without ending the run, like a process that gives up."""
        self.writer.close()
        self.resume()

    @rule()
    def crash(self) -> None:
        """Continue with copies of the files that were taken inside a transaction, as a kill would leave them."""
        (successor := self.folder / str(next(self.generations))).mkdir()
        db = self.writer.database._db
        db.execute("BEGIN IMMEDIATE")
        db.execute("DELETE FROM outcome")
        journal = copy_of(self.journal, successor)
        db.execute("ROLLBACK")
        self.writer.close()
        self.journal = journal
        self.resume()

    @rule(state=st.sampled_from(["suspended", "stopped", "interrupted"]), data=st.data())
    def end_and_resume(self, state: str, data: st.DataObject) -> None:
        indexes = data.draw(st.lists(st.sampled_from(self.free), max_size=5)) if self.free else []
        rows = possibly_sent(*((index, index + 1) for index in indexes))
        self.writer.end(state, rows)
        assert self.journal.report().state == state
        self.writer.close()
        self.state, self.possibly_sent = state, rows
        self.resume()

    def resume(self) -> None:
        self.writer = self.journal.writer(IDENTITY, resume=True)
        expected = possibly_sent((0, self.marked)) if self.state == "running" else self.possibly_sent
        assert (self.writer.resumed, self.writer.possibly_sent) == (True, expected)
        self.events.append("resumed")
        self.state = "running"

    @invariant()
    def the_writer_knows_what_was_written(self) -> None:
        assert (self.writer.marked, self.writer.state, self.writer.finished) == (self.marked, "running", False)
        assert self.writer.completed_rows(0, self.marked + 1) == self.recorded.keys()
        assert self.writer.window_at(self.marked) is None
        assert all(self.writer.window_at(each.first) == each for each in self.windows)
        assert {row.index: row.payload for row in self.writer.spooled_rows(0, 10, "serial", 2**40)} == self.spooled

    @invariant()
    def a_reader_beside_sees_the_same(self) -> None:
        found = {each.index: facts(each) for each in self.journal.outcomes()}
        assert list(found) == sorted(found)
        assert {index: {**each, "contact": None} for index, each in found.items()} == {
            index: facts(each) for index, each in self.recorded.items()
        }
        assert [kind for _, kind, _ in self.journal.events()] == self.events

    @invariant()
    def the_report_counts_right(self) -> None:
        report = self.journal.report()
        assert (report.marked, report.rows, report.windows) == (self.marked, len(self.recorded), len(self.windows))
        assert report.possibly_sent == len(self.free)
        assert report.uncertain == sum(not each.certain for each in self.recorded.values())
        statuses = [each.status for each in self.recorded.values()]
        assert report.outcomes == {**dict.fromkeys(Outcome, 0), **{each: statuses.count(each) for each in statuses}}
        assert (report.workspace, report.source) == (IDENTITY.workspace, IDENTITY.source)

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            self.writer.close()
        shutil.rmtree(self.folder)


class ObjectMachine(FileMachine):
    medium = "objects"


TestFileMachine = pytest.mark.thorough(FileMachine.TestCase)
TestObjectMachine = pytest.mark.thorough(ObjectMachine.TestCase)
TestFileMachine.settings = TestObjectMachine.settings = settings(max_examples=scaled(12), stateful_step_count=15, deadline=None)
