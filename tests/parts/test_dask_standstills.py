"""Dask workers that are stopped or cut off from the scheduler while another worker runs their part, and then return."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.dask_cluster import (
    WORKER_TTL,
    ClusterService,
    SentRow,
    command_cluster,
    find_violations,
    served_to_cluster,
    write_parts,
)
from support.parts import numbers_of

from outreach_async import Store
from outreach_async.parts import Connection, ImportPlan
from outreach_async.parts.dask import DaskImport
from outreach_async.rates import RateCoordinator

pytestmark = pytest.mark.thorough

IN_FLIGHT = 8
ROWS = 240
EMAILS = 24
TOLERANCE = 1.0
"""Seconds that a request may take to arrive on a busy machine."""


@pytest.fixture
def service() -> ClusterService:
    return ClusterService(before=[f"u{number}@x.example" for number in range(0, EMAILS, 5)])


@pytest.fixture
def connection(service: ClusterService) -> Iterator[Connection]:
    with served_to_cluster(service) as found:
        yield found


@pytest.fixture
def made(tmp_path: Path) -> ImportPlan:
    """Return a plan with one part, in which every e-mail has ten rows."""
    emails = [f"u{number % EMAILS}@x.example" for number in range(ROWS)]
    made = write_parts(tmp_path, emails, files=1, duplicates="overwrite")
    assert [part.rows for part in made.parts if part.rows] == [ROWS]
    return made


class Standstill:
    """A standstill of the worker that sends the 60th row. It ends after `seconds`, or when another worker has sent 20 rows."""

    AT, SUCCESSOR_ROWS = 60, 20

    def __init__(
        self,
        service: ClusterService,
        journal: Store,
        *,
        begin: Callable[[int], object],
        end: Callable[[int], object],
        seconds: float | None = None,
    ) -> None:
        self.marked = self.process = 0
        self.begun = self.ended = 0.0
        self._service = service
        self._journal = journal
        self._begin = begin
        self._end = end
        self._seconds = seconds
        service.on_request = self._watch

    def _watch(self, sent: SentRow) -> None:
        if not self.process and len(self._service.sent) == self.AT:
            self.process, self.begun = sent.process, sent.at
            self._begin(sent.process)
            self.marked = self._journal.report().marked
            if self._seconds is not None:
                threading.Timer(self._seconds, self._return).start()
        elif self.process and not self.ended and len(self.sent_by_others()) == self.SUCCESSOR_ROWS:
            self._return()

    def _return(self) -> None:
        self.ended = time.monotonic()
        self._end(self.process)

    def sent_by_others(self) -> list[SentRow]:
        """Return the rows that other processes sent."""
        return [sent for sent in self._service.sent if sent.process != self.process]

    def sent_since(self, moment: float) -> list[SentRow]:
        """Return the rows that the process sent after a moment."""
        return [sent for sent in self._service.sent if sent.process == self.process and sent.at > moment]


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["stopped", "cut off from the scheduler"])
def test_a_worker_that_stands_still_is_replaced_and_sends_only_marked_rows(
    service: ClusterService, connection: Connection, made: ImportPlan, tmp_path: Path, kind: str
) -> None:
    journals = f"file://{tmp_path}/journals"
    with command_cluster(tmp_path, workers=2, worker_ttl=WORKER_TTL) as cluster:
        stop, resume = (lambda process, number=number: os.kill(process, number) for number in (signal.SIGSTOP, signal.SIGCONT))
        begin, end = (stop, resume) if kind == "stopped" else (cluster.cut, cluster.mend)
        standstill = Standstill(service, journal_of(made, journals), begin=begin, end=end)
        with DaskImport(cluster.address, made, connection, journal=journals, rate=40.0) as run:
            assert sum(report.rows for report in run) == ROWS
        cluster.wait_for_end(standstill.process)
    assert standstill.ended, "no other worker took the part over"
    late = standstill.sent_since(standstill.begun + RateCoordinator.LIFETIME + TOLERANCE)
    assert kind == "stopped" or late == [], "the worker sent after its share had expired"
    require_started(standstill, made)
    assert list(find_violations(service, made, journals)) == []


@pytest.mark.nightly
def test_a_worker_cut_off_for_a_short_time_continues_its_part(
    service: ClusterService, connection: Connection, made: ImportPlan, tmp_path: Path
) -> None:
    journals = f"file://{tmp_path}/journals"
    with command_cluster(tmp_path, workers=1) as cluster:
        standstill = Standstill(service, journal_of(made, journals), begin=cluster.cut, end=cluster.mend, seconds=4.0)
        with DaskImport(cluster.address, made, connection, journal=journals, rate=40.0) as run:
            assert sum(report.rows for report in run) == ROWS
    silent_from = standstill.begun + RateCoordinator.LIFETIME + TOLERANCE
    assert [sent for sent in service.sent if silent_from < sent.at < standstill.ended] == []
    assert (len(service.sent), run.report.uncertain) == (ROWS, 0), "a row was sent again"
    assert list(find_violations(service, made, journals)) == []


def journal_of(made: ImportPlan, journals: str) -> Store:
    (part,) = (part for part in made.parts if part.rows)
    return Store(f"{journals}/{part.id}")


def require_started(standstill: Standstill, made: ImportPlan) -> None:
    """Check that after its standstill, the worker sent only rows marked before it, and no more than were in flight."""
    late = standstill.sent_since(standstill.ended)
    assert len(late) <= IN_FLIGHT
    (part,) = (part for part in made.parts if part.rows)
    assert {sent.row for sent in late} <= set(numbers_of(part)[: standstill.marked])
