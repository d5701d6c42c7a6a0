r"""Import files with several local processes.

All share one rate, and each part has a journal and a report.

```python
import os
from pathlib import Path

from outreach_async.parts import Connection, plan
from outreach_async.parts.processes import ProcessImport

if __name__ == "__main__":
    Path("people.csv").write_text("E-mail\nann@company.example\nbo@company.example\n")
    made = plan(["people.csv"], parts=2, journal="journals")
    connection = Connection(
        base_url=os.environ["OUTREACH_BASE_URL"],
        workspace=os.environ["OUTREACH_WORKSPACE"],
    )
    with ProcessImport(made, connection, processes=2, journal="journals", rate=100.0) as run:
        for report in run:
            print(report.rows, "rows;", run.report.rows, "of", made.rows)
    # -> 1 rows; 1 of 2
    # -> 1 rows; 2 of 2
    print(run.report.outcomes["added"], "added,", run.report.uncertain, "uncertain")
    # -> 2 added, 0 uncertain
```

Each process takes one part at a time, the largest first. Divide a file
into several parts per process (`plan(parts=...)`), so that none waits long
for the last one. This process divides the rate among the others, with the
algorithm of `RateCoordinator`: `rate` is the maximum of all processes
together, and with or without it, the service's own limit is learned once
for all of them.

To resume, make the same plan, and a `ProcessImport` with the same journal,
also after a kill of this process or of another one. If a process dies, for
example because memory ran out, the others finish their requests in flight,
and the iteration raises a `BulkSuspended`. If this process dies, the
others notice it within a second, and do the same.

The owner key reaches the processes through a pipe, not in their arguments.
They inherit the environment of this process. They ignore Ctrl-C, which a
terminal sends to all of them.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import anyio
import attrs

from outreach_async._plumbing import require_id, require_number, require_rate, require_types, trim
from outreach_async.bulk import Exclusions, Outcomes
from outreach_async.errors import BulkSuspended, InvalidRequest, OutreachError
from outreach_async.parts._planning import ImportPlan
from outreach_async.parts._task import NO_LIMIT, Connection, ImportReport, import_part, merge_reports, stop_run
from outreach_async.rates import RateCoordinator, RateShare, RateUsage
from outreach_async.store import Earlier

if TYPE_CHECKING:
    from multiprocessing.connection import Connection as Channel
    from multiprocessing.context import SpawnProcess

__all__ = ["ProcessImport"]

_DRAIN_TIME: Final = 30.0  # seconds that processes have for requests in flight when an import is left
_KILLED: Final = -9  # the exit code after SIGKILL, which Windows does not name
_PROGRESS_INTERVAL: Final = 0.5  # seconds
_Message: TypeAlias = "ImportReport | Exception | tuple[RateUsage, int] | None"
"""What a process reports: the result of a part, its usage of the rate and its rows so far, or that it has started."""


class PipedRate:
    """A `Rate` for the parts that a process imports. The parent process calculates the shares; without one, the part ends."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.outcomes: Outcomes | None = None
        self.is_stopped = False

    def on_start(self, outcomes: Outcomes) -> None:
        self.outcomes = outcomes

    async def renew(self, usage: RateUsage, /) -> RateShare:
        """Report the usage to the parent process, and return the next share; see `Rate`."""
        rows = 0 if self.outcomes is None else self.outcomes.progress.rows
        share = None if self.is_stopped else await anyio.to_thread.run_sync(self._ask, usage, rows)
        return stop_run(self.outcomes) if share is None else share

    def _ask(self, usage: RateUsage, rows: int) -> RateShare | None:
        with suppress(EOFError, OSError):  # the parent process has ended
            self._channel.send((usage, rows))
            share: RateShare | None = self._channel.recv()
            return share
        return None


def run_parts(channel: Channel, key: str, arguments: dict[str, Any]) -> None:
    """Import the parts that the parent process sends, until it closes the channel or ends."""
    os.environ["OUTREACH_OWNER_KEY"] = key
    rate = PipedRate(channel)

    def stop(*_: object) -> None:
        rate.is_stopped = True

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, stop)
    result: ImportReport | Exception | None = None
    with suppress(EOFError, OSError):
        while True:
            channel.send(result)
            part = channel.recv()
            try:
                rate.outcomes = None
                result = import_part(part, rate=rate, on_start=rate.on_start, **arguments)
            except (OutreachError, OSError) as error:
                result = error


@attrs.define(eq=False)
class _PartsProcess:
    process: SpawnProcess
    client: str = ""
    """The id under which the process has last reported its usage."""
    rows: int = 0
    """Rows of its current part that have outcomes."""


class ProcessImport:
    r"""An import with local processes: an iterator of reports, as parts end.

    A `with` statement starts the processes. If the block ends before all
    parts have finished, the processes finish their requests in flight, for
    at most 30 seconds. A second Ctrl-C meanwhile ends them at once.
    Processes import the main module of a program, so it needs
    `if __name__ == "__main__":`.

    Args:
        made: The plan.
        connection: Settings for the connections to the service.
            `connection.concurrency` applies to all processes together.
        processes: Number of processes. No more are started than the plan
            has parts.
        journal: Folder of the journals, or their URL on an object store.
            Use a new one for each plan, and the same one to resume.
        rate: Maximum number of requests per second of all processes
            together; `None` to learn the rate from the service.
        earlier, exclude: As for `import_part`.
        owner_key: The owner key; by default, `OUTREACH_OWNER_KEY` of the
            environment.
        on_progress: Function that receives the number of rows that have
            outcomes, about twice a second during the iteration.

    Attributes:
        plan: The plan.

    Raises:
        InvalidRequest: An argument is invalid, or there is no owner key.

    Example:
        ```python
        Path("people.csv").write_text("E-mail\nann@company.example\n")
        connection = Connection(base_url="https://api.example", workspace="space_1")
        run = ProcessImport(plan(["people.csv"]), connection, processes=2, journal="journals", owner_key="key_1")
        print(run.report.rows, "of", run.plan.rows)  # -> 0 of 1
        ```
    """

    def __init__(
        self,
        made: ImportPlan,
        connection: Connection,
        *,
        processes: int,
        journal: str | os.PathLike[str],
        rate: float | None = None,
        earlier: Earlier = "known",
        exclude: Sequence[Exclusions] = (),
        owner_key: str | None = None,
        on_progress: Callable[[int], object] | None = None,
    ) -> None:
        require_types(ProcessImport, locals())
        require_number("processes", processes, least=1)
        if connection.rate is not None:
            raise InvalidRequest(
                "connection.rate: expected None, got a rate, which would apply to each process separately; pass rate= instead"
            )
        if os.fspath(journal).lower().startswith("memory:"):
            raise InvalidRequest("journal: expected a folder or a URL that all processes can reach, got memory:; pass a folder")
        if connection.concurrency < processes:
            expected = f"expected at least a request for each of {processes} processes, got {connection.concurrency}"
            raise InvalidRequest(f"concurrency: {expected}; pass a greater concurrency or fewer processes")
        remedy = "pass owner_key= or set OUTREACH_OWNER_KEY"
        key = require_id("owner_key", trim(owner_key) or os.environ.get("OUTREACH_OWNER_KEY"), "owner_key", remedy)
        self.plan = made
        self._key = key
        self._left = sorted(made.parts, key=lambda part: (part.rows, part.id))  # the largest is taken first
        self._count = min(processes, len(self._left))
        own = attrs.evolve(connection, concurrency=connection.concurrency // max(self._count, 1))
        self._arguments = {"journal": os.fspath(journal), "connection": own, "earlier": earlier, "exclude": exclude}
        self._rate = RateCoordinator(None if rate is None else require_rate("rate", rate), search_rate=NO_LIMIT)
        self._on_progress = on_progress
        self._workers: dict[Channel, _PartsProcess] = {}
        self._results = SimpleQueue[ImportReport | None]()
        self._error: Exception | None = None
        self._is_stopping = False
        self._reports: list[ImportReport] = []
        self._thread = threading.Thread(target=self._serve, name="outreach_async import", daemon=True)

    @property
    def report(self) -> ImportReport:
        """The reports so far, merged; complete if `rows` are the plan's."""
        return merge_reports(self._reports)

    def __enter__(self) -> Self:
        """Start the processes."""
        from multiprocessing import get_context  # not everywhere, such as in WebAssembly

        context = get_context("spawn")  # not "fork": this process may have threads
        with _ignored_interrupts():
            for _ in range(self._count):
                own, other = context.Pipe()
                process = context.Process(target=run_parts, args=(other, self._key, self._arguments), daemon=True)
                process.start()
                other.close()  # so that the end of the process closes the channel
                self._workers[own] = _PartsProcess(process)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop the processes, and wait until they have ended."""
        processes = [worker.process for worker in self._workers.values()]
        self.cancel()
        try:
            self._thread.join(_DRAIN_TIME)
        finally:
            for process in processes:
                process.kill()  # no effect on a process that has ended
            self._thread.join()

    def __iter__(self) -> Iterator[ImportReport]:
        """Yield the report of each part when the part finishes."""
        while True:
            try:
                report = self._results.get(timeout=_PROGRESS_INTERVAL)
            except Empty:
                self._show_progress()
                continue
            if report is None:
                break
            self._reports.append(report)
            yield report
            self._show_progress()
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        r"""Stop the unfinished parts.

        Their processes stop sending within a second, and record the
        outcomes of rows in flight.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            connection = Connection(base_url="https://api.example", workspace="space_1")
            run = ProcessImport(plan(["people.csv"]), connection, processes=2, journal="journals", owner_key="key_1")
            run.cancel()  # no effect: the import has not started
            ```
        """
        self._is_stopping = True

    def _show_progress(self) -> None:
        if self._on_progress is not None:
            running = sum(worker.rows for worker in [*self._workers.values()])
            self._on_progress(sum(report.rows for report in self._reports) + running)

    # In a thread, so that the caller may take its time with a report: a process that receives no share sends nothing.

    def _serve(self) -> None:
        """Answer the messages of the processes until all of them have ended."""
        from multiprocessing.connection import wait

        try:
            while self._workers:
                for channel in wait([*self._workers]):
                    self._take_message(channel)  # type: ignore[arg-type] # only channels are waited for
        except Exception as error:  # noqa: BLE001 # pragma: no cover - raised in the iteration: a bug must not look like its end
            self._stop(error)
        finally:
            self._results.put(None)

    def _take_message(self, channel: Channel) -> None:
        worker = self._workers[channel]
        try:
            message: _Message = channel.recv()
            if isinstance(message, tuple):
                usage, worker.rows = message
                worker.client = usage.client
                channel.send(None if self._is_stopping else self._rate.step(usage, time.monotonic()))
                return
            self._take_result(message)
            # The next part has another client. Without this line, the ended one would keep its share of the rate for a while.
            self._rate.clients.pop(worker.client, None)
            worker.rows = 0
            if self._left and not self._is_stopping:
                channel.send(self._left.pop())
                return
        except (EOFError, OSError):
            self._lose(worker)
        del self._workers[channel]
        channel.close()  # the process ends
        worker.process.join()

    def _take_result(self, result: ImportReport | Exception | None) -> None:
        if isinstance(result, ImportReport):
            self._results.put(result)
        elif result is not None:
            self._stop(result)

    def _lose(self, worker: _PartsProcess) -> None:
        worker.process.join()
        code = worker.process.exitcode or 0
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        why = " (SIGKILL), perhaps because memory ran out" if code == _KILLED else ""
        error = BulkSuspended(f"run suspended: a process of the import {how}{why}; run the import again with the same journal")
        error.resumable = True
        self._stop(error)

    def _stop(self, error: Exception) -> None:
        """Stop all processes. The first error is the cause of those that follow."""
        if not self._is_stopping:
            self._is_stopping, self._error = True, error


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C for a moment: a process that is started meanwhile ignores it from its first instruction on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
