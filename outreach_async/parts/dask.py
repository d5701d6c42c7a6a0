r"""Import files on a Dask cluster.

All workers share one rate, journals are on an object store, and each part
has a report. Install the extra `dask` on the machine that starts the
import, and this package on the scheduler and on every worker. Set
`OUTREACH_OWNER_KEY` in the environment of the workers: the key is never in
a task, log or result.

```python
import os
from pathlib import Path

from distributed import LocalCluster

from outreach_async.parts import Connection, plan
from outreach_async.parts.dask import DaskImport

if __name__ == "__main__":
    Path("may.csv").write_text("E-mail\nann@company.example\nbo@company.example\n")
    Path("june.csv").write_text("E-mail\ncy@company.example\ndee@company.example\n")
    made = plan(["may.csv", "june.csv"])
    connection = Connection(
        base_url=os.environ["OUTREACH_BASE_URL"],
        workspace=os.environ["OUTREACH_WORKSPACE"],
    )
    journal = f"file://{Path('journals').absolute()}"
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        DaskImport(cluster, made, connection, journal=journal, rate=100.0) as run,
    ):
        for report in run:
            print(report.rows, "rows;", run.report.rows, "of", made.rows)
    # -> 2 rows; 2 of 4
    # -> 2 rows; 4 of 4
    print(run.report.outcomes["added"], "added,", run.report.uncertain, "uncertain")
    # -> 4 added, 0 uncertain
```

For several machines, pass the address of the scheduler
(`"tcp://scheduler:8786"`), URLs of files that all workers can read, and
journals on an object store (`"s3://bucket/journals/june"`).

A plugin on the scheduler divides one rate among the workers, with the
algorithm of `RateCoordinator`. All imports into one workspace on one
cluster share the rate. A worker that loses its connection to the scheduler
stops sending after 1.5 seconds.

To resume, make a `DaskImport` again with the same plan and journal, on the
same or another cluster. If a worker dies, or does not respond for longer
than the scheduler's `worker-ttl`, Dask runs the part again, on a worker
that takes over the journal; the worker that used it before stops sending.
If Dask stops retrying a part, because several workers have died while
running it, the import submits it again. A worker also stops a part whose
task was cancelled or runs on another worker, and if the worker is closing.
If the cluster has no workers, the import waits, and logs one warning to
the logger `outreach_async`.

Start workers with one thread each (`dask worker --nthreads 1`), because
imports are CPU-bound. Turn off Dask's profiler
(`DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=False`), which takes about 5 %
of a worker's CPU time. Without `rate`, the search for the service's limit
starts at 10 requests per second, and the rate grows tenfold in about five
seconds. A `LocalCluster` starts without a limit, as the processes of one
machine need no slow start.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
import attrs

from outreach_async._plumbing import (
    TakenOverError,
    is_url,
    open_place,
    require_module,
    require_rate,
    type_name,
)
from outreach_async.bulk import Exclusions, Outcomes
from outreach_async.errors import BulkSuspended, InvalidRequest, TransportError
from outreach_async.parts._planning import ImportPlan, Part
from outreach_async.parts._task import NO_LIMIT, Connection, ImportReport, import_part, merge_reports, stop_run
from outreach_async.rates import RateCoordinator, RateShare, RateUsage
from outreach_async.store import Earlier

require_module("distributed", "outreach_async[dask]")

import distributed  # noqa: E402 - the error above names the extra
from distributed import CancelledError, KilledWorker, SchedulerPlugin, Status, get_worker  # noqa: E402 - as above

if TYPE_CHECKING:
    from distributed import Scheduler

_LOGGER: Final = logging.getLogger("outreach_async")
__all__ = ["DaskImport"]

_TIMEOUT: Final = 1.0  # of a request to the scheduler, in seconds: shorter than the lifetime of a share
_CHECK_INTERVAL: Final = 2.0  # seconds without a finished part until the driver checks whether the scheduler has workers
_MAX_SUBMISSIONS: Final = 50  # of a part: one that kills its workers must not be submitted forever
_CLOSING: Final = frozenset({Status.closing, Status.closed, Status.failed})


class RatePlugin(SchedulerPlugin):
    """A scheduler plugin that divides a rate among import tasks. The plugin keeps its state when a worker dies."""

    name = "outreach_async"
    idempotent = True

    def __init__(self) -> None:
        self._rates: dict[str, RateCoordinator] = {}

    async def start(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        scheduler.handlers["outreach_async_limit"] = self.set_limit
        scheduler.handlers["outreach_async_share"] = self.renew

    def set_limit(self, service: str, limit: float | None, first: float | None = None) -> None:
        """Set the maximum rate of all tasks together, and the first rate of a service of which nothing is known."""
        # The limit learned from the service does not change.
        new = RateCoordinator() if first is None else RateCoordinator(search_rate=first)
        self._rates.setdefault(service, new).limit = limit

    def renew(self, service: str, task: str, worker: str, usage: dict[str, Any]) -> dict[str, Any] | None:
        """Record the usage of a task, and return the share of the task; `None` if the worker no longer owns the task."""
        # A worker loses a task if the task is cancelled, if the driver disconnects, or if the worker does not respond for too
        # long.
        state = self._scheduler.tasks.get(task)
        if state is None or state.processing_on is None or state.processing_on.address != worker:
            return None
        rate = self._rates.setdefault(service, RateCoordinator())
        return attrs.asdict(rate.step(RateUsage(**usage), time.monotonic()))


class LeasedRate:
    """A `Rate` for one task on a Dask worker. `RatePlugin` on the scheduler calculates the task's shares of the rate."""

    # `renew` ends the run of the task if the worker no longer owns the task, or if the worker is closing.

    def __init__(self, worker: distributed.Worker, task: str, service: str) -> None:
        self._worker = worker
        self._task = task
        self._service = service
        self._outcomes: Outcomes | None = None

    def on_start(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes

    async def renew(self, usage: RateUsage, /) -> RateShare:
        """Report the usage to the scheduler, and return the next share; see `Rate`."""
        if self._worker.status in _CLOSING:  # the worker has closed its connections, and waits for its tasks
            return stop_run(self._outcomes)
        reply: Future[Any] = Future()
        scheduler: Any = self._worker.scheduler

        async def ask() -> None:
            if not reply.set_running_or_notify_cancel():  # the request has timed out
                return
            try:
                place, sent = {"task": self._task, "worker": self._worker.address}, attrs.asdict(usage)
                reply.set_result(await scheduler.outreach_async_share(service=self._service, usage=sent, **place))
            except (OSError, RuntimeError, ValueError) as error:
                reply.set_exception(error)

        try:
            # The task runs in a thread with its own event loop, but the connection belongs to the worker's event loop.
            self._worker.loop.add_callback(ask)
            with anyio.fail_after(_TIMEOUT):
                share = await asyncio.wrap_future(reply)
        except (OSError, RuntimeError, ValueError) as error:
            raise TransportError(
                f"rate: the Dask scheduler does not respond ({type(error).__name__}); check that it is running", maybe_sent=False
            ) from None
        return stop_run(self._outcomes) if share is None else RateShare(**share)


def run_task(part: Part, journal: str, connection: Connection, service: str, **options: Any) -> ImportReport:
    worker = get_worker()
    rate = LeasedRate(worker, str(worker.get_current_task()), service)
    return import_part(part, journal, connection, rate=rate, on_start=rate.on_start, **options)


class DaskImport:
    r"""An import on a Dask cluster: an iterator of reports, as parts finish.

    A `with` statement starts the import. If the block ends before all
    parts have finished, the remaining parts are cancelled.

    Args:
        cluster: Address of the scheduler, a cluster such as
            `LocalCluster`, or a synchronous `distributed.Client`.
        made: The plan.
        connection: Settings for the workers' connections to the service.
            `connection.concurrency` applies to each part.
        journal: URL of the journals, such as `s3://bucket/prefix`, or
            `file:///folder` if all workers share the folder. Use a new one
            for each plan, and the same one to resume.
        rate: Maximum number of requests per second of all workers
            together; `None` to learn the rate from the service.
        earlier, exclude: As for `import_part`.

    Attributes:
        plan: The plan.
        resubmitted: Number of times that a part was submitted again,
            because Dask stopped retrying it or its journal was taken.

    Raises:
        InvalidRequest: An argument is invalid.

    Example:
        ```python
        Path("people.csv").write_text("E-mail\nann@company.example\n")
        connection = Connection(base_url="https://api.example", workspace="space_1")
        run = DaskImport("tcp://scheduler:8786", plan(["people.csv"]), connection, journal="s3://bucket/june", rate=100.0)
        print(run.report.rows, "of", run.plan.rows)  # -> 0 of 1
        ```
    """

    def __init__(
        self,
        cluster: Any,
        made: ImportPlan,
        connection: Connection,
        *,
        journal: str,
        rate: float | None = None,
        earlier: Earlier = "known",
        exclude: Sequence[Exclusions] = (),
    ) -> None:
        if not isinstance(cluster, str | distributed.Client) and not hasattr(cluster, "scheduler_address"):
            raise InvalidRequest(
                f"cluster: expected an address, a cluster or a Client, got {type_name(cluster)}; pass tcp://host:port"
            )
        if not is_url(journal) or journal.lower().startswith("memory:"):
            raise InvalidRequest(
                "journal: expected a URL that all workers can reach; pass s3://bucket/prefix or file:///shared/folder"
            )
        open_place(journal)  # checks the URL
        if connection.rate is not None:
            raise InvalidRequest(
                "connection.rate: expected None, got a rate, which would apply to each part separately; pass rate= instead"
            )
        self._cluster = cluster
        self.plan = made
        self._service = f"{connection.base_url} {connection.workspace}"
        self._arguments: dict[str, Any] = {"journal": journal, "connection": connection, "earlier": earlier}
        self._arguments |= {"service": self._service, "exclude": exclude}
        self._limit = None if rate is None else require_rate("rate", rate)
        self._client: distributed.Client | None = None
        self._owns_client = False
        # For each task, its part, and how often the part has been submitted.
        self._submissions: dict[distributed.Future[ImportReport], tuple[Part, int]] = {}
        self._finished: SimpleQueue[distributed.Future[ImportReport]] = SimpleQueue()
        self._has_workers = True
        self._reports: list[ImportReport] = []
        self.resubmitted = 0

    @property
    def report(self) -> ImportReport:
        """The reports so far, merged; complete if `rows` are the plan's."""
        return merge_reports(self._reports)

    def __enter__(self) -> Self:
        """Connect to the scheduler and submit the parts."""
        if isinstance(self._cluster, distributed.Client) and self._cluster.asynchronous:
            raise InvalidRequest("cluster: expected a synchronous Client, got an asynchronous one; pass the scheduler's address")
        try:
            self._owns_client = not isinstance(self._cluster, distributed.Client)
            self._client = distributed.Client(self._cluster, set_as_default=False) if self._owns_client else self._cluster
            self._client.register_plugin(RatePlugin())
            scheduler: Any = self._client.scheduler
            first = NO_LIMIT if isinstance(self._cluster, distributed.LocalCluster) else None
            self._client.sync(scheduler.outreach_async_limit, service=self._service, limit=self._limit, first=first)
        except OSError as error:
            self._close()
            raise _suspend(f"the Dask scheduler cannot be reached ({type(error).__name__})") from None
        if exclude := self._arguments["exclude"]:  # sent once, and not with each part
            key = f"exclude-{time.time_ns():x}"
            self._arguments["exclude"] = self._client.submit(tuple, exclude, key=key, pure=False)
        for part in self.plan.parts:
            self._submit(part, 1)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Cancel the parts that have not finished, and disconnect."""
        self.cancel()
        self._close()

    def __iter__(self) -> Iterator[ImportReport]:
        """Yield the report of each part when the part finishes."""
        while self._submissions:
            try:
                future = self._finished.get(timeout=_CHECK_INTERVAL)
            except Empty:
                self._warn_without_workers()
                continue
            submission = self._submissions.pop(future, None)
            if submission is None:  # the part was cancelled
                continue
            report = self._take(future, *submission)
            if report is not None:
                self._reports.append(report)
                yield report

    def cancel(self) -> None:
        r"""Cancel the unfinished parts.

        Their workers stop sending within a second, and record the outcomes
        of rows in flight.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            connection = Connection(base_url="https://api.example", workspace="space_1")
            run = DaskImport("tcp://scheduler:8786", plan(["people.csv"]), connection, journal="s3://bucket/june")
            run.cancel()  # no effect: the import has not started
            ```
        """
        futures = list(self._submissions)
        self._submissions.clear()
        if futures and self._client is not None and self._client.status == "running":
            self._client.cancel(futures, reason="the import was cancelled")

    def _warn_without_workers(self) -> None:
        """Log a warning if the scheduler has no workers. Each period without workers is logged once."""
        client: Any = self._client
        had_workers, self._has_workers = self._has_workers, client.scheduler_info(n_workers=0)["n_workers"] > 0
        if had_workers and not self._has_workers:
            _LOGGER.warning(
                "import: the Dask scheduler has no workers, so %d parts are waiting; start workers, or interrupt the import",
                len(self._submissions),
            )

    def _submit(self, part: Part, number: int) -> None:
        client: Any = self._client
        # The submission number makes the key unique, because Dask does not run a failed key again.
        future = client.submit(
            run_task,
            part,
            **self._arguments,
            key=f"import-{part.id}-{part.fingerprint()[:16]}-{number}-{time.time_ns():x}",
            pure=False,
        )
        self._submissions[future] = (part, number)
        future.add_done_callback(self._finished.put)

    def _take(self, future: distributed.Future[ImportReport], part: Part, number: int) -> ImportReport | None:
        """Return the report of a completed task; `None` if the part was submitted again."""
        # This method releases the task. Otherwise, Dask would run the task again if the worker that stores the result died.
        try:
            return future.result()
        except (KilledWorker, TakenOverError):
            # A worker that was suspended just before it opened the journal takes the journal from the current worker.
            if number >= _MAX_SUBMISSIONS:
                raise
            self.resubmitted += 1
            self._submit(part, number + 1)
            return None
        except (CancelledError, OSError) as error:
            raise _suspend(f"the connection to the Dask scheduler was lost ({type(error).__name__})") from None
        finally:
            future.release()

    def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None and self._owns_client:
            client.close(timeout=5)


def _suspend(text: str) -> BulkSuspended:
    error = BulkSuspended(f"run suspended: {text}; run the import again with the same plan and journal")
    error.resumable = True
    return error
