"""Imports on a Dask cluster whose worker is a thread of this process: reports, progress, errors, cancellation and secrets."""

from __future__ import annotations

import gc
import logging
import pickle
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import attrs
import pytest
from distributed import Client, LocalCluster, Status
from distributed.diagnostics.plugin import SchedulerPlugin
from support.parts import KEY, ROW, KillingService, QuotingConnection, write_people

from outreach_async import OutreachClient, Rate, RateShare, RateUsage
from outreach_async._plumbing import TakenOverError
from outreach_async.errors import BulkStopped, BulkSuspended, InvalidRequest, TransportError
from outreach_async.fake import faults
from outreach_async.parts import Connection, ImportPlan, plan
from outreach_async.parts.dask import DaskImport, LeasedRate, RatePlugin

USAGE = RateUsage(client="c", seconds=0.25, wanted=1000, completed=10, refused=0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0") as found:
        yield found


def planned(folder: Path, files: int = 3, rows: int = 20) -> ImportPlan:
    paths = [folder / f"{at}.csv" for at in range(files)]
    for at, path in enumerate(paths):
        write_people(path, [f"u{at * rows + row}@x.example" for row in range(rows)], at * rows)
    return plan(paths, overrides={"Note": ROW})


@pytest.mark.covers
@pytest.mark.thorough
def test_parts_report_as_they_finish_and_again_without_a_request(
    cluster: Any, service: KillingService, connection: Connection, tmp_path: Path
) -> None:
    made, journal = planned(tmp_path), f"file://{tmp_path}/journals"
    with DaskImport(cluster, made, connection, journal=journal) as run:
        seen = [(report.rows, len(run.report.parts), run.report.rows) for report in run]
    assert seen == [(20, 1, 20), (20, 2, 40), (20, 3, 60)]
    assert (run.report.rows, run.plan.rows, len(run.plan.parts)) == (made.rows, 60, 3)
    sent = service.requests
    with Client(cluster) as client, DaskImport(client, made, connection, journal=journal) as again:
        assert len(list(again)) == 3
    assert again.report == run.report
    assert (service.requests, sorted(service.effects)) == (sent, list(range(60)))


@pytest.mark.covers
@pytest.mark.thorough
def test_leaving_the_block_cancels_and_the_plan_resumes(
    cluster: Any, service: KillingService, connection: Connection, tmp_path: Path
) -> None:
    made, journal = planned(tmp_path, rows=60), f"file://{tmp_path}/journals"
    with DaskImport(cluster, made, connection, journal=journal, rate=40.0) as run:
        deadline = time.monotonic() + 30
        while service.requests < 20 and time.monotonic() < deadline:
            time.sleep(0.05)
    while not _is_quiet(service):
        assert time.monotonic() < deadline, "a cancelled part went on"
    assert service.requests < 120
    assert list(run) == []
    with DaskImport(cluster, made, connection, journal=journal, rate=10_000.0) as run:
        assert sum(report.rows for report in run) == 180
    assert (run.report.uncertain, service.requests) == (0, 180), "a drained part sent a row twice"


def _is_quiet(service: KillingService) -> bool:
    sent = service.requests
    time.sleep(1.5)
    return service.requests == sent


def test_cancelling_in_another_thread_ends_the_iteration(
    cluster: Any, service: KillingService, connection: Connection, tmp_path: Path
) -> None:
    runs: list[DaskImport] = []
    service.call_at(5, lambda: threading.Thread(target=runs[0].cancel).start())
    with DaskImport(cluster, planned(tmp_path), connection, journal=f"file://{tmp_path}/journals", rate=40.0) as run:
        runs.append(run)
        assert list(run) == []


class ScaleLater(logging.Handler):
    """Starts a worker some time after the first record."""

    def __init__(self, cluster: Any, seconds: float) -> None:
        super().__init__()
        self.records: list[str] = []
        self.timer = threading.Timer(seconds, cluster.scale, (1,))

    def emit(self, record: logging.LogRecord) -> None:
        if "workers" not in record.getMessage():  # from another test's run that is just ending
            return
        if not self.records:
            self.timer.start()
        self.records.append(f"{record.levelname} {record.getMessage()}")


@pytest.mark.covers
@pytest.mark.thorough
def test_without_workers_an_import_warns_once_and_waits(connection: Connection, tmp_path: Path) -> None:
    logger = logging.getLogger("outreach_async")
    with (
        LocalCluster(n_workers=0, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as empty,
        DaskImport(empty, planned(tmp_path), connection, journal=f"file://{tmp_path}/journals") as run,
    ):
        handler = ScaleLater(empty, seconds=3.0)
        logger.addHandler(handler)
        try:
            assert len(list(run)) == 3
        finally:
            logger.removeHandler(handler)
            handler.timer.join()
    assert handler.records == [
        "WARNING import: the Dask scheduler has no workers, so 3 parts are waiting; start workers, or interrupt the import"
    ]


class LostConnection(Connection):
    """A connection whose tasks always find that another worker has taken over their journals."""

    def create_client(self, rate: Rate | None = None) -> OutreachClient:
        raise TakenOverError(f"taken over, with {rate}")


def test_the_cause_of_an_error_does_not_reach_the_scheduler(cluster: Any, connection: Connection, tmp_path: Path) -> None:
    quoting = QuotingConnection(**attrs.asdict(connection))
    with (
        DaskImport(cluster, planned(tmp_path, files=1), quoting, journal=f"file://{tmp_path}/journals") as run,
        pytest.raises(TransportError) as caught,
    ):
        list(run)
    assert KEY.encode() not in pickle.dumps(caught.value)  # includes the causes, because Dask makes pickle include them


@pytest.mark.covers
@pytest.mark.thorough
def test_a_part_is_submitted_at_most_50_times(cluster: Any, connection: Connection, tmp_path: Path) -> None:
    lost = LostConnection(**attrs.asdict(connection))
    with (
        DaskImport(cluster, planned(tmp_path, files=1), lost, journal=f"file://{tmp_path}/journals") as run,
        pytest.raises(TakenOverError),
    ):
        list(run)
    assert run.resubmitted == 49


@pytest.mark.covers
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # from the client that could not connect
def test_a_scheduler_out_of_reach_suspends_the_import(connection: Connection, tmp_path: Path) -> None:
    import dask

    run = DaskImport("tcp://127.0.0.1:1", planned(tmp_path), connection, journal=f"file://{tmp_path}/journals")
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(BulkSuspended, match="the Dask scheduler cannot be reached") as caught,
    ):
        run.__enter__()
    assert caught.value.resumable
    gc.collect()


class Recorder(SchedulerPlugin):
    """Records what the scheduler knows of each task, while it knows the task."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self.specs: dict[str, bytes] = {}
        self.failures: list[bytes] = []

    def transition(self, key: Any, start: str, finish: str, *args: object, **kwargs: object) -> None:
        del start, args, kwargs
        if (task := self._scheduler.tasks.get(key)) is not None:
            self.specs[str(key)] = pickle.dumps(task.run_spec)
            if finish == "erred":
                self.failures += [pickle.dumps(task.exception), str(task.exception_text).encode()]


@pytest.mark.covers
@pytest.mark.thorough
def test_the_key_is_in_no_task_log_page_or_result(
    cluster: Any, service: KillingService, connection: Connection, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler, parts = cluster.scheduler, planned(tmp_path)
    recorder = Recorder(scheduler)
    scheduler.add_plugin(recorder)
    with (
        caplog.at_level(logging.DEBUG),
        Client(cluster) as client,
        DaskImport(client, parts, connection, journal=f"file://{tmp_path}/journals") as run,
    ):
        scanned = [pickle.dumps(report) for report in run]
        service.fake.faults.add(faults.status(401, body=f'{{"message": "unknown key {KEY}"}}'))
        failing = DaskImport(client, parts, connection, journal=f"file://{tmp_path}/others")
        with failing, pytest.raises(BulkStopped) as caught:
            list(failing)
        scanned += [
            pickle.dumps(caught.value),
            repr(client.get_worker_logs()).encode(),
            repr(client.get_scheduler_logs()).encode(),
        ]
        scanned += [repr(client.scheduler_info()).encode(), repr(scheduler.transition_log).encode(), caplog.text.encode()]
        base = f"http://127.0.0.1:{scheduler.http_server.port}"
        for page in ("json/counts.json", "health"):
            with urllib.request.urlopen(f"{base}/{page}") as response:  # noqa: S310 - on loopback
                scanned.append(response.read())
    assert len(recorder.specs) >= len(parts.parts)
    assert recorder.failures
    scanned += [*recorder.specs.values(), *recorder.failures]
    assert [content for content in scanned if KEY.encode() in content] == []


def scheduler_with(worker: str | None) -> Any:
    processing_on = None if worker is None else SimpleNamespace(address=worker)
    return SimpleNamespace(tasks={"task": SimpleNamespace(processing_on=processing_on)}, handlers={})


def leased(scheduler: Any, task: str = "task", worker: str = "one") -> dict[str, float] | None:
    return scheduler.handlers["outreach_async_share"]("api", task, worker, attrs.asdict(USAGE))  # type: ignore[no-any-return] # a fake


def test_tasks_share_one_rate_which_can_change() -> None:
    scheduler = scheduler_with("one")
    anyio.run(RatePlugin().start, scheduler)
    scheduler.handlers["outreach_async_limit"]("api", 50.0)
    share = leased(scheduler)
    assert share is not None
    assert share["rate"] == pytest.approx(50.0)
    scheduler.handlers["outreach_async_limit"]("api", 20.0)
    assert (leased(scheduler) or {})["rate"] == pytest.approx(20.0)


def test_the_first_rate_of_a_service_can_be_given() -> None:
    scheduler = scheduler_with("one")
    anyio.run(RatePlugin().start, scheduler)
    scheduler.handlers["outreach_async_limit"]("api", None, 5000.0)
    assert (leased(scheduler) or {})["rate"] == pytest.approx(5000.0)


@pytest.mark.parametrize(("owner", "task"), [("two", "task"), (None, "task"), ("one", "gone")])
def test_a_task_that_was_taken_away_gets_no_share(owner: str | None, task: str) -> None:
    scheduler = scheduler_with(owner)
    anyio.run(RatePlugin().start, scheduler)
    assert leased(scheduler, task=task) is None


def leased_rate(ask: Callable[..., Any], callbacks: list[Callable[[], Any]], status: Status = Status.running) -> LeasedRate:
    worker: Any = SimpleNamespace(
        loop=SimpleNamespace(add_callback=callbacks.append),
        scheduler=SimpleNamespace(outreach_async_share=ask),
        address="one",
        status=status,
    )
    return LeasedRate(worker, "task", "api")


async def renewed(ask: Callable[..., Any]) -> RateShare:
    """Renew the share of a task whose worker runs callbacks in its own event loop."""
    callbacks: list[Callable[[], Any]] = []

    async def run_next() -> None:
        while not callbacks:
            await anyio.lowlevel.checkpoint()
        await callbacks.pop()()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_next)
        return await leased_rate(ask, callbacks).renew(USAGE)
    raise AssertionError


async def never_asked(**_: Any) -> None:
    pytest.fail("asked")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_scheduler_that_fails_gives_no_share() -> None:
    async def fail(**_: Any) -> None:
        raise OSError("closed")

    with pytest.RaisesGroup(pytest.RaisesExc(TransportError, match=r"the Dask scheduler does not respond \(OSError\)")):
        await renewed(fail)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_is_not_the_workers_any_more_sends_nothing() -> None:
    async def refuse(**_: Any) -> None:
        return None

    share = await renewed(refuse)
    assert share.hold == share.expires_in


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_worker_that_is_being_closed_ends_its_run() -> None:
    drains: list[bool] = []
    rate = leased_rate(never_asked, [], Status.closing)
    rate.on_start(SimpleNamespace(drain=lambda: drains.append(True)))  # type: ignore[arg-type] # a fake
    share = await rate.renew(USAGE)
    assert (drains, share.hold) == ([True], share.expires_in)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_report_that_was_given_up_before_it_started_is_not_sent() -> None:
    callbacks: list[Callable[[], Any]] = []
    with anyio.move_on_after(0):
        await leased_rate(never_asked, callbacks).renew(USAGE)
    await callbacks.pop()()


FAST = Connection(base_url="https://api.example", workspace="space_1", rate=5.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cluster": 5}, "cluster: expected an address, a cluster or a Client, got int"),
        ({"journal": "/data/journals"}, "journal: expected a URL that all workers can reach"),
        ({"journal": "memory://x"}, "journal: expected a URL that all workers can reach"),
        ({"journal": "ftp://x"}, "journal: expected a path or a URL"),
        ({"rate": 0.0}, "rate: "),
        ({"connection": FAST}, "connection.rate: expected None, got a rate, which would apply to each part separately"),
    ],
)
def test_arguments_are_checked(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    usual = {"cluster": "tcp://x:1", "connection": attrs.evolve(FAST, rate=None), "journal": "file:///data/x"}
    with pytest.raises(InvalidRequest, match=message):
        DaskImport(made=planned(tmp_path), **{**usual, **given})


def test_an_asynchronous_client_is_refused(connection: Connection, tmp_path: Path) -> None:
    made = planned(tmp_path)

    async def enter() -> None:
        async with (
            LocalCluster(n_workers=0, processes=False, asynchronous=True, dashboard_address="127.0.0.1:0") as cluster,
            Client(cluster, asynchronous=True, set_as_default=False) as client,
        ):
            with pytest.raises(InvalidRequest, match="expected a synchronous Client"):
                DaskImport(client, made, connection, journal="file:///data/x").__enter__()

    anyio.run(enter)


@pytest.mark.thorough
def test_without_the_extra_the_error_names_it() -> None:
    code = "import sys; sys.modules['distributed'] = None; import outreach_async.parts.dask"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "InvalidRequest: distributed is not installed; run: pip install 'outreach_async[dask]'" in result.stderr
