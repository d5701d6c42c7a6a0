"""The base class of journals in files and in object stores, and the thread that runs the calls of a writer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from threading import Lock
from typing import Any, ClassVar, ParamSpec, Protocol, TypeVar

import anyio
import attrs
from anyio import to_thread

from outreach_async.bulk._outcomes import ContactOutcome
from outreach_async.store.journal._reader import RunQuery, read_events, read_metadata, read_names, read_page, read_report
from outreach_async.store.journal._records import Earlier, Identity, JournalReport
from outreach_async.store.journal._writer import JournalWriter

P = ParamSpec("P")
T = TypeVar("T")


class _Closable(Protocol):
    def close(self) -> None: ...


Opened = TypeVar("Opened", bound=_Closable)


class WriterThread:
    """Runs the calls of a journal's writer in a thread, one at a time."""

    # After `run` returns or raises an exception, the call is not running and does not start later.

    def __init__(self, *, inline: bool, errors: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._inline = inline
        self._errors = errors  # converts what a call raises
        self._lock = anyio.Lock(fast_acquire=True)
        self._limiter = anyio.CapacityLimiter(1)

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call and return its result. A cancellation takes effect after the call has ended."""
        running, abandoned = Lock(), False

        def job() -> T | None:
            with running:  # held while the call runs; a job that starts too late sees `abandoned` and does nothing
                return None if abandoned else call(*args, **kwargs)

        # A commit cannot be undone, so a cancelled caller must still learn whether the commit succeeded.
        with anyio.CancelScope(shield=True):
            async with self._lock:
                try:
                    result: T = await self._execute(job)
                except BaseException:
                    # A shield does not stop asyncio's own Task.cancel, which leaves the thread running. The caller must know the
                    # result of the call, so wait for it here, even though this blocks the event loop for one commit.
                    with running:
                        abandoned = True
                    raise
        return result

    async def run_opening(self, call: Callable[[], Opened]) -> Opened:
        """Run a call that opens something. Close what it has opened if its caller is cancelled meanwhile."""
        # Whatever was opened must not stay open without an owner: its lock would refuse every later run of this process.
        opened: list[Opened] = []
        try:
            await self.run(lambda: opened.append(call()))
        except BaseException:
            for each in opened:  # asyncio's own Task.cancel may arrive although the call has succeeded
                each.close()
            raise
        return opened[0]

    async def _execute(self, job: Callable[[], Any]) -> Any:
        with self._errors():
            return job() if self._inline else await to_thread.run_sync(job, limiter=self._limiter)


@attrs.define(eq=False, repr=False, slots=False, kw_only=True)
class JournalStore(ABC):
    """The journal of a run: a `Journal` or an `ObjectJournal`. It can be read at any time, even during the run."""

    source: str | None = None
    fingerprint: str | None = None
    mapping: Mapping[str, str] | None = None
    inline: bool = False
    linger: float = attrs.field(default=0.05, init=False)
    """Maximum time in seconds that an outcome waits to be recorded together with other outcomes."""
    backlog: ClassVar[int]
    """Maximum number of rows that are in flight, or completed but not yet recorded."""

    @abstractmethod
    def writer(self, identity: Identity, *, resume: bool, earlier: Earlier = "known") -> JournalWriter:
        """Open the journal for a run, and return its writer. With `resume`, a run that exists is resumed."""
        # With `earlier="unknown"`, every row without an outcome counts as possibly sent, and a damaged journal is set aside and
        # replaced.

    @abstractmethod
    def _snapshot(self) -> AbstractContextManager[RunQuery]:
        """Provide a function that runs queries on the journal."""

    def writer_thread(self) -> WriterThread:
        return WriterThread(inline=self.inline)

    def outcomes(self) -> Iterator[ContactOutcome]:
        """Iterate over the recorded outcomes in the order of the rows. Memory use is bounded.

        An outcome's `contact` is the spooled mapping, or `None` if the rows were not spooled. Its `error` has the original
        class, message, status and attempts; headers and body are not recorded.

        Raises:
            InvalidRequest: There is no journal.
            JournalError: The journal is damaged or cannot be read.

        Example:
            ```python
            await client.contacts.create_many([{"email": "ann@company.example"}, {"email": ""}], journal="run.db")
            print([(outcome.index, outcome.status.value) for outcome in Journal("run.db").outcomes()])
            # -> [(0, 'added'), (1, 'rejected')]
            ```
        """
        first = 0
        with self._snapshot() as run_query:
            while page := run_query(partial(read_page, first=first)):
                yield from page
                first = page[-1].index + 1

    def events(self) -> Iterator[tuple[float, str, dict[str, Any]]]:
        """Iterate over the events of the run as (Unix time by the writer's clock, kind, details); errors as for `outcomes`.

        Example:
            ```python
            rows = [{"email": "ann@company.example"}]
            async with client.contacts.create_many(rows, journal="run.db"):
                pass  # leave before the run ends
            await client.contacts.create_many(rows, journal="run.db", resume=True)
            print([(kind, details) for at, kind, details in Journal("run.db").events()])
            # -> [('resumed', {'after': 'interrupted'})]
            ```
        """
        with self._snapshot() as run_query:
            events = run_query(lambda db: read_events(db, read_metadata(db)["events"]))
        yield from events

    def report(self) -> JournalReport:
        """Return the report of the run. Its counts are stored, so the outcomes are not read; errors as for `outcomes`.

        Example:
            ```python
            await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db")
            report = Journal("run.db").report()
            print(report.state, report.rows, report.possibly_sent)  # -> finished 1 0
            ```
        """
        with self._snapshot() as run_query:
            report: JournalReport = run_query(read_report)
        return report


def open_snapshot(journal: JournalStore) -> AbstractContextManager[RunQuery]:
    return journal._snapshot()  # noqa: SLF001 - not a method for users, who hold journals


def recorded_names(journal: JournalStore) -> dict[tuple[str, str], str]:
    """Return the ids of the campaigns that rows of the journal's run have named, by workspace and name."""
    with open_snapshot(journal) as run_query:
        return read_names(run_query(read_metadata))
