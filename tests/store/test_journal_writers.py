"""Every journal keeps the same promises: in a file, in a folder, in memory and on S3."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.journal import ENDINGS, facts, outcomes, states
from support.s3 import environment, serve_s3
from support.scenarios import KEY, SPACE, new_fake
from tools.journal_child import IDENTITY, ROWS, outcome, outcome_of, possibly_sent, steps, window

from outreach_async import Outcome, OutreachClient
from outreach_async.errors import InvalidRequest, JournalError, StatusError
from outreach_async.fake import FakeTransport
from outreach_async.store.journal import Identity, Journal, JournalWriter, ObjectJournal, journal_at

_NUMBERS: Final = count()


@attrs.frozen
class Place:
    """The location of a journal."""

    location: str | Path

    def journal(self, **options: Any) -> Journal | ObjectJournal:
        """Return the journal at this location."""
        return journal_at(self.location, **options)

    def open(self, identity: Identity = IDENTITY, *, resume: bool = False, **options: Any) -> JournalWriter:
        """Open the journal for a run."""
        return self.journal().writer(identity, resume=resume, **options)

    def kill(self, writer: JournalWriter) -> Place:
        """Simulate a kill of the writer, and return the location of the journal that the kill leaves."""
        # A journal file is copied before the writer is closed, because closing changes the file.
        place = self
        if isinstance(self.location, Path):
            place = Place(self.location.with_name(f"killed{next(_NUMBERS)}.db"))
            for ending in ENDINGS:
                shutil.copyfile(f"{self.location}{ending}", f"{place.location}{ending}")
        writer.close()
        return place


def place_in(kind: str, folder: Path) -> Place:
    """Return an unused location of a kind: `file`, `folder`, `memory` or `s3`. Environment variables set the S3 server."""
    locations: dict[str, str | Path] = {
        "file": folder / "run.db",
        "folder": f"file://{folder}/run",
        "memory": f"memory://test{next(_NUMBERS)}",
        "s3": f"s3://journals/test{next(_NUMBERS)}",
    }
    return Place(locations[kind])


KINDS = ("file", "folder", "memory", "s3")


@pytest.fixture(scope="module")
def s3() -> Iterator[None]:
    with serve_s3() as port, pytest.MonkeyPatch.context() as patch:
        for name, value in environment(port).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "s3":
        request.getfixturevalue("s3")
    return place_in(request.param, tmp_path)


def test_a_new_journal_is_empty_and_not_resumed(place: Place) -> None:
    assert not place.journal().exists()
    with closing(place.open(resume=True)) as writer:
        assert place.journal().exists()
        assert (writer.resumed, writer.marked, writer.state, writer.finished) == (False, 0, "running", False)
        assert (writer.spooled, writer.possibly_sent, writer.has_same_input) == (None, possibly_sent(), False)
        assert writer.window_at(0) is None
        assert writer.completed_rows(0, 10) == frozenset()
        assert writer.create_counts().report(0).rows == 0


def test_outcomes_are_read_during_a_run_and_by_a_resumed_run(place: Place) -> None:
    refusal = StatusError("no", status_code=500)
    recorded = [outcome(3), outcome(1, Outcome.UNKNOWN, id=None, error=refusal), outcome(0, repeats=3)]
    with closing(place.open()) as writer:
        writer.mark(window(0, 5))
        writer.record(recorded)
        assert [facts(found) for found in place.journal().outcomes()] == [facts(recorded[at]) for at in (2, 1, 0)]
    with closing(place.open(resume=True)) as writer:
        assert (writer.resumed, writer.marked, writer.state) == (True, 5, "running")
        assert writer.completed_rows(0, 5) == {0, 1, 3}
        assert writer.completed_rows(1, 2) == {1}
        assert writer.window_at(0) == window(0, 5)
        assert writer.create_counts().report(0).outcomes[Outcome.ADDED] == 2


@settings(max_examples=scaled(15), deadline=None)
@given(data=st.data())
def test_any_outcome_is_read_as_it_was_recorded(data: st.DataObject) -> None:
    place = place_in("memory", Path())
    drawn = [data.draw(outcomes(index)) for index in range(data.draw(st.integers(1, 4)))]
    with closing(place.open()) as writer:
        writer.mark(window(0, 4))
        writer.record(drawn)
    assert [facts(found) for found in place.journal().outcomes()] == [facts(each) for each in drawn]


@pytest.mark.nightly
@pytest.mark.parametrize("commits", [1, 2, 7, 30])
def test_after_a_kill_every_commit_is_there_and_the_run_can_be_completed(place: Place, commits: int) -> None:
    writer = place.open()
    acknowledged = list(islice(steps(writer), commits))
    place = place.kill(writer)
    report = place.journal().report()
    assert (report.marked, report.rows) in states()
    assert acknowledged[-1] in {f"marked {report.marked}", f"recorded {report.rows}"}
    assert report.possibly_sent == report.marked - report.rows
    with closing(place.open(resume=True)) as writer:
        assert writer.possibly_sent == possibly_sent((0, report.marked))
        assert len(list(steps(writer))) > 0
    found = list(place.journal().outcomes())
    assert [facts(each) for each in found] == [facts(outcome_of(index)) for index in range(ROWS)]
    assert place.journal().report().state == "finished"


def test_an_existing_journal_is_only_opened_to_resume_the_same_run(place: Place) -> None:
    place.open().close()
    with pytest.raises(InvalidRequest, match="already exists; resume its run, or pass another journal, with earlier="):
        place.open()
    with pytest.raises(InvalidRequest, match=r"workspace was 'space_1' and is now 'space_2'; .* with earlier=.unknown. if some"):
        place.open(attrs.evolve(IDENTITY, workspace="space_2"), resume=True)


def test_rows_are_marked_in_order_and_a_changed_input_is_refused(place: Place) -> None:
    with closing(place.open()) as writer:
        with pytest.raises(InvalidRequest, match="mark rows in order"):
            writer.mark(window(5))
        with pytest.raises(InvalidRequest, match="mark rows in order"):
            writer.mark(window(0, 0))
        writer.mark(window(0))
        writer.mark(window(0))
        for other in (window(0, digest=b"87654321"), window(0, 19), window(5, 15)):
            with pytest.raises(InvalidRequest, match=r"the input changed: rows \d+ to \d+ differ .* earlier=.unknown. if some"):
                writer.mark(other)
        writer.mark(window(20))
        assert writer.marked == 40
    assert place.journal().report().windows == 2


def test_a_row_without_a_mark_has_no_outcome(place: Place) -> None:
    with closing(place.open()) as writer:
        writer.mark(window(0, 2))
        for index in (2, -1):
            with pytest.raises(InvalidRequest, match="mark a row before you record its outcome"):
                writer.record([outcome(0), outcome(index)])
        writer.record([outcome(0)])
    assert [each.index for each in place.journal().outcomes()] == [0]


def test_a_second_outcome_is_an_error_after_which_nothing_is_written(place: Place) -> None:
    with closing(place.open()) as writer:
        writer.mark(window(0))
        writer.record([outcome(0)])
        with pytest.raises(JournalError, match="UNIQUE"):
            writer.record([outcome(1), outcome(0)])
        for call in (
            lambda: writer.mark(window(20)),
            lambda: writer.record([outcome(2)]),
            lambda: writer.end("stopped"),
            lambda: writer.record_event("x", {}),
            lambda: writer.completed_rows(0, 1),
        ):
            with pytest.raises(JournalError, match="UNIQUE"):
                call()
    report = place.journal().report()
    assert (report.rows, report.marked, report.state) == (1, 20, "running")


@pytest.mark.parametrize("state", ["finished", "suspended", "stopped", "interrupted"])
def test_the_end_of_a_run_is_recorded_with_the_rows_that_may_have_been_sent(place: Place, state: str) -> None:
    rows = possibly_sent() if state == "finished" else possibly_sent((3, 5), (7, 8))
    with closing(place.open()) as writer:
        writer.mark(window(0, 9))
        writer.record([outcome(index) for index in range(9) if index not in rows])
        writer.end(state, rows)
        assert writer.state == state
    with closing(place.open(resume=True)) as writer:
        assert writer.finished == (state == "finished")
        assert writer.possibly_sent == rows
        if state != "finished":  # while it runs, the process may be killed
            assert place.journal().report().state == "running"
        writer.end("stopped")
        assert writer.finished == (state == "finished")
    events = [(kind, details) for _, kind, details in place.journal().events()]
    assert events == ([] if state == "finished" else [("resumed", {"after": state})])


def test_a_run_with_missing_outcomes_cannot_finish_and_states_are_known(place: Place) -> None:
    with closing(place.open()) as writer:
        writer.mark(window(0))
        with pytest.raises(InvalidRequest, match="got none for 20 rows"):
            writer.end("finished")
        with pytest.raises(InvalidRequest, match="state"):
            writer.end("done")
    assert place.journal().report().state == "running"


@pytest.mark.parametrize("policy", ["serial", "first", "last", "coalesce"])
def test_spooled_rows_are_returned_after_a_kill(place: Place, policy: Any) -> None:
    rows = [
        (0, "a@x", b'{"email":"a@x"}'),
        (1, "b\0@x", b'{"email":"b"}'),
        (2, "a@x", b'{"email":"a@x","city":"Lyon"}'),
        (3, "", b"5"),
    ]
    identity = attrs.evolve(IDENTITY, options={"duplicates": "overwrite"})
    with closing(place.open(identity)) as writer:
        writer.spool([*rows[:2], (9, "", b"{}")])  # a kill may leave rows beyond the end
        writer.spool(rows[2:])
        with pytest.raises(InvalidRequest, match="expected 12 spooled rows, got 5"):
            writer.end_spool(12)
        writer.end_spool(4)
        with pytest.raises(InvalidRequest, match="the spool is complete with 4 rows"):
            writer.spool(rows)
        expected = writer.spooled_rows(0, 9, policy, 2**40)
    with closing(place.open(identity, resume=True)) as writer:
        assert writer.spooled == 4
        assert writer.spooled_rows(0, 9, policy, 2**40) == expected
        assert [row.index for row in writer.spooled_rows(1, 2, policy, 2**40)] == [1, 2]
    sent = {row.index: row.repeats for row in expected}
    assert sent == {"serial": dict.fromkeys(range(4)), "last": {0: 2, 1: None, 2: None, 3: None}}.get(
        policy, {0: None, 1: None, 2: 0, 3: None}
    )


def test_reports_events_and_times_are_those_of_the_run(place: Place) -> None:
    with closing(place.open()) as writer:
        writer.record_event("paused", {"seconds": 2})
        writer.end("suspended")
    journal = place.journal()
    ((at, kind, details),) = journal.events()
    assert at > 1e9
    assert (kind, details) == ("paused", {"seconds": 2})
    assert journal.report().to_dict()["state"] == "suspended"
    assert journal.report().events == {"paused": 1}
    assert journal.report().source == "rows.csv"


def test_with_earlier_unknown_every_row_may_have_been_sent(place: Place) -> None:
    for resumed in (False, True):  # a lost journal, then an intact one
        with closing(place.open(earlier="unknown")) as writer:
            assert writer.resumed is resumed
            assert 0 in writer.possibly_sent
            assert 2**62 in writer.possibly_sent
    with closing(place.open(resume=True)) as writer:
        assert 2**62 in writer.possibly_sent


def test_a_closed_writer_refuses_writes_and_may_be_closed_again(place: Place) -> None:
    writer = place.open()
    writer.close()
    writer.close()
    with pytest.raises(JournalError, match="is closed"):
        writer.mark(window(0))


def test_a_missing_journal_cannot_be_read(place: Place) -> None:
    journal = place.journal()
    for read in (journal.report, lambda: list(journal.outcomes()), lambda: list(journal.events())):
        with pytest.raises(InvalidRequest, match="does not exist"):
            read()


@pytest.mark.thorough
def test_a_heartbeat_changes_nothing_that_is_read(place: Place) -> None:
    with closing(place.open()) as writer:
        assert writer.database.heartbeat_due is None
        writer.mark(window(0))
        before = place.journal().report()
        writer.database.heartbeat(float("inf"))
        writer.database.heartbeat(float("-inf"))
        assert attrs.evolve(place.journal().report(), seconds=before.seconds) == before


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_run_is_interrupted_and_resumed_with_exact_outcomes(place: Place, backend: str) -> None:
    fake = new_fake()
    rows = [{"email": f"user{index}@a.example"} for index in range(300)]

    async def create(most: int | None) -> int:
        taken = 0
        async with (
            OutreachClient(transport=FakeTransport(fake), owner_key=KEY, workspace=SPACE) as client,
            client.contacts.create_many(rows, journal=place.location, resume=True, concurrency=8) as run,
        ):
            async for _ in run:
                taken += 1
                if taken == most:
                    break
        return taken

    taken = anyio.run(create, 100, backend=backend) + anyio.run(create, None, backend=backend)
    found = list(place.journal().outcomes())
    assert [each.index for each in found] == list(range(300))
    assert {each.status for each in found if each.certain} == {"added"}
    assert len(fake.contacts(SPACE)) == 300
    assert 100 <= taken <= 300
    assert anyio.run(create, None, backend=backend) == 0
