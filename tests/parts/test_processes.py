"""Imports with several processes: the same result as one process, one rate, and nothing lost when a process dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.parts import KEY, ROW, KillingService, QuotingConnection, find_wrong_effects, served, write_people

from outreach_async import RateShare, RateUsage
from outreach_async.errors import BulkStopped, BulkSuspended, InvalidRequest, TransportError
from outreach_async.fake import faults
from outreach_async.parts import Connection, ImportPlan, plan
from outreach_async.parts.processes import PipedRate, ProcessImport, run_parts
from outreach_async.store import Store


def planned(folder: Path, emails: list[str], parts: int) -> ImportPlan:
    write_people(folder / "people.csv", emails, 0)
    return plan([folder / "people.csv"], overrides={"Note": ROW}, parts=parts)


def people(rows: int) -> list[str]:
    return [f"u{row}@x.example" for row in range(rows)]


def kill_one() -> None:
    multiprocessing.active_children()[0].kill()


def wrong_effects(service: KillingService, made: ImportPlan, folder: Path) -> list[str]:
    return list(find_wrong_effects(service, made, lambda part: Store(folder / f"{part.id}.db").outcomes()))


@pytest.mark.thorough
@pytest.mark.covers
def test_processes_import_every_row_once_and_again_nothing(
    service: KillingService, connection: Connection, tmp_path: Path
) -> None:
    made, shown = planned(tmp_path, [*people(90), "U3@x.example"], 4), list[int]()
    with ProcessImport(made, connection, processes=2, journal=tmp_path / "journals", on_progress=shown.append) as run:
        rows = [report.rows for report in run]
    assert (sum(rows), run.report.rows, len(rows), shown[-1]) == (91, 91, 5, 91)
    assert wrong_effects(service, made, tmp_path / "journals") == []
    assert multiprocessing.active_children() == []
    again = plan([tmp_path / "people.csv"], overrides={"Note": ROW}, parts=9, journal=tmp_path / "journals")
    with ProcessImport(again, connection, processes=1, journal=tmp_path / "journals") as resumed:
        assert len(list(resumed)) == 5
    assert (resumed.report, service.requests) == (run.report, 91)


@pytest.mark.nightly
@given(rows=st.integers(0, 40), processes=st.integers(1, 4), parts=st.integers(1, 9), repeated=st.integers(0, 5))
@settings(max_examples=scaled(6), deadline=None)
def test_any_number_of_processes_imports_every_row_once(rows: int, processes: int, parts: int, repeated: int) -> None:
    service = KillingService()
    with TemporaryDirectory() as folder, served(service) as connection:
        emails = people(rows) + [f"U{row}@x.example" for row in range(min(rows, repeated))]
        made = planned(Path(folder), emails, parts)
        with ProcessImport(made, connection, processes=processes, journal=f"{folder}/journals", owner_key=KEY) as run:
            list(run)
        assert (run.report.rows, run.report.uncertain, service.requests) == (made.rows, 0, len(emails))
        assert not made.rows or wrong_effects(service, made, Path(folder, "journals")) == []


@pytest.mark.thorough
@pytest.mark.covers
@pytest.mark.parametrize("when", [5, 60])  # later, a process may have no part left
def test_a_killed_process_suspends_the_import_which_resumes(
    service: KillingService, connection: Connection, tmp_path: Path, when: int
) -> None:
    made = planned(tmp_path, people(120), 4)
    service.call_at(when, kill_one)
    with (
        pytest.raises(BulkSuspended, match=r"ended by signal 9 \(SIGKILL\), perhaps because memory ran out") as caught,
        ProcessImport(made, connection, processes=2, journal=tmp_path / "journals", rate=200.0) as run,
    ):
        list(run)
    assert caught.value.resumable
    assert multiprocessing.active_children() == []
    with ProcessImport(made, connection, processes=2, journal=tmp_path / "journals") as run:
        assert sum(report.rows for report in run) == 120
    assert wrong_effects(service, made, tmp_path / "journals") == []
    assert service.requests - 120 <= run.report.uncertain < 60


@pytest.mark.thorough
@pytest.mark.covers
def test_leaving_the_block_drains_the_processes(service: KillingService, connection: Connection, tmp_path: Path) -> None:
    made = planned(tmp_path, people(400), 2)
    with ProcessImport(made, connection, processes=2, journal=tmp_path / "journals", rate=80.0):
        deadline = time.monotonic() + 30
        while service.requests < 10 and time.monotonic() < deadline:
            time.sleep(0.02)
    sent = service.requests
    assert 10 <= sent < 300
    assert multiprocessing.active_children() == []
    with ProcessImport(made, connection, processes=2, journal=tmp_path / "journals") as run:
        list(run)
    assert (run.report.rows, run.report.uncertain, service.requests) == (400, 0, 400)


@pytest.mark.thorough
@pytest.mark.covers
def test_processes_share_one_rate(service: KillingService, connection: Connection, tmp_path: Path) -> None:
    times = list[float]()
    for number in (1, 121):
        service.call_at(number, lambda: times.append(time.monotonic()))
    with ProcessImport(
        planned(tmp_path, people(121), 2), connection, processes=2, journal=tmp_path / "journals", rate=40.0
    ) as run:
        list(run)
    bursts = 2 * 40 / 10  # of both processes
    assert times[1] - times[0] >= (120 - bursts) / 40 * 0.9


@pytest.mark.thorough
@pytest.mark.covers
def test_the_error_of_a_process_stops_the_others(service: KillingService, connection: Connection, tmp_path: Path) -> None:
    service.fake.faults.add(faults.status(401, body=f'{{"message": "unknown key {KEY}"}}'))
    with (
        pytest.raises(BulkStopped) as caught,
        ProcessImport(planned(tmp_path, people(80), 8), connection, processes=2, journal=tmp_path / "journals") as run,
    ):
        list(run)
    assert KEY not in repr(caught.value)


# The work of a process, in this process.


@pytest.fixture
def channel() -> Iterator[tuple[Any, Any]]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    key = os.environ.get("OUTREACH_OWNER_KEY")
    own, other = multiprocessing.Pipe()
    with own, other:
        yield own, other
    for number, handler in before.items():
        signal.signal(number, handler)
    if key is not None:
        os.environ["OUTREACH_OWNER_KEY"] = key


def parent(own: Any, parts: list[Any], share: Any, results: list[Any], on_usage: Any = None) -> threading.Thread:
    """Start a thread that sends parts to a process, and answers its reports of usage with a share."""

    def serve() -> None:
        with suppress(EOFError, OSError):
            while True:
                message = own.recv()
                if isinstance(message, tuple):
                    if on_usage is not None:
                        on_usage()
                    own.send(share)
                    continue
                results.append(message)
                if not parts:
                    own.close()
                    return
                own.send(parts.pop(0))

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


SHARE = RateShare(rate=1000.0, expires_in=1.5)


@pytest.mark.parametrize("share", [SHARE, None], ids=["a share", "no share"])
def test_a_process_imports_parts_or_ends_them(
    connection: Connection, tmp_path: Path, channel: tuple[Any, Any], share: RateShare | None
) -> None:
    made, results, (own, other) = planned(tmp_path, people(8), 2), list[Any](), channel
    arguments = {"journal": str(tmp_path / "journals"), "connection": connection}
    thread = parent(own, [*made.parts], share, results)
    run_parts(other, KEY, arguments)
    thread.join()
    assert results[0] is None
    assert [getattr(result, "rows", type(result)) for result in results[1:]] == ([4, 4] if share else [BulkSuspended] * 2)


def test_a_process_reports_the_error_of_a_part_without_its_cause(
    connection: Connection, tmp_path: Path, channel: tuple[Any, Any]
) -> None:
    made, results, (own, other) = planned(tmp_path, people(4), 1), list[Any](), channel
    thread = parent(own, [*made.parts], SHARE, results)
    quoting = QuotingConnection(**attrs.asdict(connection))
    run_parts(other, KEY, {"journal": str(tmp_path / "journals"), "connection": quoting})
    thread.join()
    assert (type(results[1]), results[1].__cause__) == (TransportError, None)


def test_a_plan_without_rows_starts_no_process_in_any_thread(tmp_path: Path) -> None:
    made, reports = planned(tmp_path, [], 1), list[int]()

    def run() -> None:
        with ProcessImport(made, PEOPLE, processes=2, journal=tmp_path / "journals", owner_key=KEY) as started:
            reports.extend(report.rows for report in started)
            reports.append(started.report.rows)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert reports == [0]


def test_a_terminated_process_ends_its_part(connection: Connection, tmp_path: Path, channel: tuple[Any, Any]) -> None:
    made, results, (own, other) = planned(tmp_path, people(2000), 1), list[Any](), channel
    arguments = {"journal": str(tmp_path / "journals"), "connection": connection}
    slow = RateShare(rate=20.0, expires_in=1.5)
    thread = parent(own, [*made.parts], slow, results, on_usage=lambda: os.kill(os.getpid(), signal.SIGTERM))
    run_parts(other, KEY, arguments)
    thread.join()
    assert isinstance(results[1], BulkSuspended)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_process_without_a_parent_gets_no_share(channel: tuple[Any, Any]) -> None:
    own, other = channel
    own.close()
    rate = PipedRate(other)
    share = await rate.renew(RateUsage(client="c", seconds=0.25, wanted=1, completed=1, refused=0))
    assert share.hold == share.expires_in


PEOPLE = Connection(base_url="https://api.example", workspace="space_1")


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"processes": 0}, "processes: expected at least 1"),
        ({"journal": "memory://x"}, "journal: expected a folder or a URL that all processes can reach"),
        ({"connection": attrs.evolve(PEOPLE, rate=5.0)}, "connection.rate: expected None"),
        ({"connection": attrs.evolve(PEOPLE, concurrency=1)}, "concurrency: expected at least a request for each of 2 processes"),
        ({"rate": 0.0}, "rate: "),
        ({"owner_key": " "}, "owner_key: expected a string starting with 'key_', got None"),
    ],
)
def test_arguments_are_checked(given_: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTREACH_OWNER_KEY", raising=False)
    usual = {"connection": PEOPLE, "processes": 2, "journal": "journals", "owner_key": KEY}
    with pytest.raises(InvalidRequest, match=message):
        ProcessImport(planned(tmp_path, people(2), 1), **{**usual, **given_})
