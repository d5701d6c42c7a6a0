"""Dask clusters of real processes, and a service that knows which of them sends a row."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dask
from distributed import LocalCluster, Status
from support.outcome_oracle import find_wrong_labels
from support.spread import ROW, SPACE, KillingService, numbers_of

from outreach_async import ObjectJournal, Outcome
from outreach_async.fake.fault_plan import Exchange
from outreach_async.spread import ImportPlan
from outreach_async.transport.wire import Request

WORKER_TTL = 4
"""Seconds without a heartbeat after which the scheduler gives a worker up, in the test of a worker that stands still."""


@contextmanager
def local_cluster(worker_ttl: str = "5 minutes") -> Iterator[Any]:
    """Start two workers, each a process with one thread. One that is killed is replaced, and one that is given up is not."""
    with (
        # A LocalCluster gives a worker up for good if it is restarting 15 seconds after an earlier death, as it often is here.
        dask.config.set({"distributed.scheduler.worker-ttl": worker_ttl, "distributed.deploy.lost-worker-timeout": "1h"}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
    ):
        yield cluster


class ClusterService(KillingService):
    """The service of `support.spread`, which kills or stops the worker that sends a row.

    Attributes:
        stops: Numbers of the requests whose workers are stopped with SIGSTOP, for `stop_seconds`.
        stop_seconds: Duration of a stop, in seconds.
        times: When each request arrived, in seconds.
        senders: Ids of the processes that were killed or stopped.
    """

    def __init__(self, before: Sequence[str] = ()) -> None:
        super().__init__(before)
        self.cluster: Any = None
        self.part_of: dict[int, str] = {}
        self.stops: set[int] = set()
        self.stop_seconds = 0.0
        self.times: list[float] = []
        self.senders: list[int] = []

    def watch(self, cluster: Any, made: ImportPlan) -> None:
        """Find the workers of a plan's rows on a cluster."""
        self.cluster = cluster
        self.part_of = {number: f"import-{part.id}-" for part in made.parts for number in numbers_of(part)}

    def exchange(self, request: Request, /) -> Exchange:
        """Carry a request out, and do what is ordered for it."""
        self.times.append(time.monotonic())
        number = self.requests + 1
        exchange = super().exchange(request)
        if number in self.stops:
            row = int(json.loads(request.body)[ROW])
            if (process := self.find_process(row)) is not None:
                os.kill(process, signal.SIGSTOP)
                threading.Timer(self.stop_seconds, _resume, (process,)).start()
        return exchange

    def find_process(self, row: int) -> int | None:
        """Return the id of the worker that sends a row, as the scheduler has it; `None` if it has just died."""
        tasks = dict(self.cluster.scheduler.tasks)
        workers = [task.processing_on for key, task in tasks.items() if str(key).startswith(self.part_of[row])]
        addresses = {worker.address for worker in workers if worker is not None}
        nannies = {nanny.worker_address: nanny for nanny in self.cluster.workers.values()}
        # Dask does not replace a worker that dies while it starts.
        running = [nannies[address] for address in addresses if address in nannies and nannies[address].status is Status.running]
        processes = [nanny.pid for nanny in running]
        if len(processes) != 1 or processes[0] in self.senders:
            return None
        self.senders += processes
        return int(processes[0])


def _resume(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGCONT)


def find_violations(service: KillingService, made: ImportPlan, journals: str) -> Iterator[str]:
    """Yield every row that was lost, and every label that does not allow what the service did."""
    expected = sorted(number for part in made.parts for number in numbers_of(part))
    if sorted(service.effects) != expected:
        yield f"rows were lost: {set(expected) - set(service.effects)}"
    contacts = [contact["email"].lower() for contact in service.fake.contacts(SPACE)]
    if len(contacts) != len(set(contacts)):
        yield "an e-mail has several contacts"
    for part in made.parts:
        numbers = numbers_of(part)
        outcomes = list(ObjectJournal(f"{journals}/{part.id}").outcomes())
        if [outcome.index for outcome in outcomes] != list(range(part.rows)):
            yield f"part {part.id}: not one outcome for each row"
        for outcome in outcomes:
            effects = service.effects[numbers[outcome.index]]
            truth = Outcome.ADDED if "added" in effects else Outcome(effects[-1])
            wrong = find_wrong_labels(outcome, truth, sent=True)
            yield from (f"part {part.id}, {outcome}: {kind}" for kind in wrong)


@contextmanager
def separate_scheduler(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a scheduler and a worker as commands, and yield the scheduler's address and process."""
    file = folder / "scheduler.json"
    code = "import sys; from distributed.cli.dask_{0} import main; sys.exit(main({1!r}))"
    options = ["--scheduler-file", str(file)]
    scheduler = _start(code.format("scheduler", [*options, "--port", "0", "--no-dashboard", "--host", "127.0.0.1"]))
    worker = _start(code.format("worker", [*options, "--nthreads", "1", "--no-dashboard"]))
    try:
        deadline = time.monotonic() + 60
        while not file.exists():
            assert time.monotonic() < deadline, "no scheduler"
            time.sleep(0.05)
        yield str(json.loads(file.read_text(encoding="utf-8"))["address"]), scheduler
    finally:
        for process in (scheduler, worker):
            process.terminate()
            process.wait(30)


def _start(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
