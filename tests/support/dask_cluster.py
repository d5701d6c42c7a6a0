"""Dask clusters of real processes, and a service that records which process sends a row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import dask
from distributed import Client, LocalCluster, Status
from distributed.utils import get_mp_context
from support.links import Link, free_port
from support.parts import KEY, ROW, KillingService, find_wrong_effects, numbers_of, served, write_people

from outreach_async import DuplicatePolicy, Progress, Request, Response, Store, Transport
from outreach_async.fake.faults import Exchange
from outreach_async.parts import Connection, ImportPlan, Part, plan

WORKER_TTL: Final = "5s"
"""Time without a heartbeat after which a scheduler removes a worker. Dask uses at least ten heartbeats, which take 5 seconds."""
_PROCESS: Final = "x-process"
_MAX_UNRECORDED: Final = 1000
"""Maximum number of rows of an object journal that have a response but are not recorded."""


class SigningTransport:
    """A transport that adds the id of this process to the header of each request."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def send(self, request: Request, progress: Progress, /) -> Response:
        headers = {**request.headers, _PROCESS: str(os.getpid())}
        return await self._transport.send(attrs.evolve(request, headers=headers), progress)

    async def aclose(self) -> None:
        await self._transport.aclose()


class SigningConnection(Connection):
    """A connection whose transports add the id of their process to each request."""

    def _create_transport(self) -> Transport:
        return SigningTransport(super()._create_transport())


@contextmanager
def served_to_cluster(service: KillingService) -> Iterator[Connection]:
    """Serve on a real port, and yield a connection that adds process ids to its requests."""
    with served(service) as connection:
        yield SigningConnection(**attrs.asdict(connection))


@contextmanager
def local_cluster(workers: int = 2, environment: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Start a cluster of workers, each a process with one thread. A killed worker is replaced."""
    settings = {
        # By default, a LocalCluster abandons a worker that is still restarting after 15 seconds, which is common in these tests.
        "distributed.deploy.lost-worker-timeout": "1h",
        "distributed.worker.multiprocessing-method": "forkserver",  # a new worker starts without imports
    }
    with dask.config.set(settings):
        get_mp_context().set_forkserver_preload(["distributed", "outreach_async.parts.dask", "obstore.store", "httpx"])
        with LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            env={"OUTREACH_OWNER_KEY": KEY, **(environment or {})},
        ) as cluster:
            yield cluster


def write_parts(folder: Path, emails: Sequence[str], files: int, duplicates: DuplicatePolicy = "skip") -> ImportPlan:
    """Write rows to `files` files of equal size, and plan their import."""
    size = len(emails) // files
    paths = [folder / f"{at}.csv" for at in range(files)]
    for at, path in enumerate(paths):
        write_people(path, emails[at * size : (at + 1) * size], at * size)
    return plan(paths, overrides={"Note": ROW}, duplicates=duplicates)


@attrs.frozen
class SentRow:
    at: float
    process: int
    row: int


class ClusterService(KillingService):
    """The service of `support.parts`, which kills the worker that sends a row."""

    def __init__(self, before: Sequence[str] = ()) -> None:
        super().__init__(before)
        self.sent: list[SentRow] = []
        self.on_request: Callable[[SentRow], object] = lambda _: None
        self._cluster: Any = None
        self._dead: set[int] = set()

    def watch(self, cluster: Any) -> None:
        self._cluster = cluster

    def exchange(self, request: Request, /) -> Exchange:
        sent = SentRow(time.monotonic(), int(request.headers[_PROCESS]), int(json.loads(request.body)[ROW]))
        self.sent.append(sent)
        self.on_request(sent)
        return super().exchange(request)

    def find_process(self, row: int) -> int | None:
        """Return the id of the worker process that sent the last request; `None` if the process is dead or has just started."""
        assert self.sent[-1].row == row
        process = self.sent[-1].process
        # Dask does not replace a worker that dies while it starts.
        running = {nanny.pid for nanny in self._cluster.workers.values() if nanny.status is Status.running}
        if process in self._dead or process not in running:
            return None
        self._dead.add(process)
        return process


def find_violations(service: ClusterService, made: ImportPlan, journals: str, in_flight: int = 8) -> Iterator[str]:
    """Yield every lost row, every false label, every outdated value, and every part that resent too many rows."""
    yield from find_wrong_effects(service, made, lambda part: Store(f"{journals}/{part.id}").outcomes())
    for part in made.parts:
        resent, interruptions = count_resent(service, part)
        if resent > interruptions * (_MAX_UNRECORDED + in_flight):
            yield f"part {part.id}: {resent} rows were sent again after {interruptions} interruptions"


def count_resent(service: ClusterService, part: Part) -> tuple[int, int]:
    """Return the number of repeated requests of a part, and the number of its interruptions: its processes minus one."""
    numbers = set(numbers_of(part))
    requests = Counter(sent.row for sent in service.sent if sent.row in numbers)
    processes = {sent.process for sent in service.sent if sent.row in numbers}
    return requests.total() - len(requests), max(0, len(processes) - 1)


@attrs.frozen
class CommandCluster:
    """A scheduler and workers that run as separate commands. A killed worker is not replaced."""

    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]
    links: list[tuple[Link, Link]]

    def start_worker(self) -> None:
        to_scheduler, to_worker = Link(int(self.address.rpartition(":")[2])), Link(free_port())
        self.links.append((to_scheduler, to_worker))
        options = ["--nthreads", "1", "--no-nanny", "--no-dashboard"]
        options += ["--listen-address", f"tcp://127.0.0.1:{to_worker.target}"]
        options += ["--contact-address", f"tcp://127.0.0.1:{to_worker.port}"]
        self.workers.append(_start("worker", f"tcp://127.0.0.1:{to_scheduler.port}", *options))

    def cut(self, process: int) -> None:
        """Cut the network links between a worker and the scheduler, in both directions."""
        for link in self.links[self._find(process)]:
            link.cut()

    def mend(self, process: int) -> None:
        for link in self.links[self._find(process)]:
            link.mend()

    def wait_for_end(self, process: int) -> None:
        """Wait up to 15 seconds until a worker process has ended by itself."""
        self.workers[self._find(process)].wait(15)

    def _find(self, process: int) -> int:
        return [worker.pid for worker in self.workers].index(process)

    def end_workers(self) -> None:
        for worker in self.workers:
            _end(worker)
        for link in (link for pair in self.links for link in pair):
            link.close()


@contextmanager
def command_cluster(folder: Path, workers: int = 1, worker_ttl: str = "5 minutes") -> Iterator[CommandCluster]:
    """Start a scheduler and workers as commands. `cut` and `mend` interrupt and restore the network of a worker."""
    file = folder / "scheduler.json"
    options = ["--scheduler-file", str(file), "--port", "0", "--no-dashboard", "--host", "127.0.0.1"]
    with ExitStack() as stack:
        scheduler = _start("scheduler", *options, ttl=worker_ttl)
        stack.callback(_end, scheduler)
        deadline = time.monotonic() + 60
        while not (file.exists() and (written := file.read_text(encoding="utf-8")).endswith("}")):
            assert time.monotonic() < deadline, "the scheduler did not start within 60 seconds"
            time.sleep(0.05)
        address = str(json.loads(written)["address"])
        cluster = CommandCluster(address, scheduler, [], [])
        stack.callback(cluster.end_workers)
        for _ in range(workers):
            cluster.start_worker()
        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=60)
        yield cluster


def _start(command: str, *arguments: str, ttl: str = "5 minutes") -> subprocess.Popen[bytes]:
    code = f"import sys; from distributed.cli.dask_{command} import main; sys.exit(main({arguments!r}))"
    environment = {
        **os.environ,
        "OUTREACH_OWNER_KEY": KEY,
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": ttl,
    }
    return subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(30)
