"""`Protocol` classes for a journal and its writer, and a thread that runs the writer's calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

import anyio
from anyio import to_thread

from outreach_async.bulk._outcomes import ContactOutcome, OutcomeCounts
from outreach_async.bulk._rows import NO_ROWS, PossiblySent, Repeats, SpooledRow
from outreach_async.bulk.journal._identity import Earlier, Identity, MarkedWindow

P = ParamSpec("P")
T = TypeVar("T")


class _Closable(Protocol):
    def close(self) -> None: ...


Opened = TypeVar("Opened", bound=_Closable)


class JournalWriter(Protocol):
    """A journal that is open for writing. Its methods are synchronous, and may be called from any thread, one at a time.

    When a method returns, its changes are durable. After a JournalError, nothing more is written: every later call raises the
    same error. Earlier changes remain valid.

    Attributes:
        resumed: Whether an earlier process started the run.
        state: State of the run: `running`, or the state in which the run ended.
        hwm: High-water mark: the index of the first unmarked row. Rows are marked before they are sent, so this row and later
            rows were not sent. The exception is `earlier="unknown"`: then any row may have been sent.
        possibly_sent: Rows without an outcome that an earlier process may have sent.
        spooled: Number of rows in the input; `None` until the whole input is spooled.
    """

    resumed: bool
    state: str
    hwm: int
    possibly_sent: PossiblySent
    spooled: int | None

    @property
    def finished(self) -> bool:
        """True if every row of the input has an outcome."""

    @property
    def has_same_input(self) -> bool:
        """True if the input and the journal both have a fingerprint, which were compared when the journal was opened.

        If false, the rows of the input are compared with those of the journal.
        """

    @property
    def heartbeat_due(self) -> float | None:
        """The current time on the writer's clock, if a heartbeat is due before the next row is sent; otherwise `None`.

        Another run may take over a journal that has no lock, for example while this process is suspended. After a takeover, every
        write of this process fails. A heartbeat is a write without changes. It detects a takeover before the next row is sent.
        """

    def heartbeat(self, due: float) -> None:
        """Write a heartbeat if it is still needed. It is not needed if a write has started since `due` and has succeeded.

        Args:
            due: The value of `heartbeat_due`.

        Raises:
            JournalError: Another run has taken over the journal, or the journal cannot be written.
        """

    def create_counts(self) -> OutcomeCounts:
        """Return a new `OutcomeCounts` with the recorded outcomes. The caller may add outcomes to it."""

    def window_at(self, first: int) -> MarkedWindow | None:
        """Return the marked window that starts at row `first`; `None` if there is none."""

    def mark(self, window: MarkedWindow) -> None:
        """Mark the rows of a window as about to be sent. If the window is already marked, check that its rows are unchanged.

        Raises:
            InvalidRequest: The window was marked with other rows, or does not follow the previous one.
            JournalError: The mark cannot be written.
        """

    def completed_rows(self, first: int, rows: int) -> frozenset[int]:
        """Return the indexes of rows with an outcome, from index `first` to `first + rows - 1`."""

    def record(self, outcomes: Sequence[ContactOutcome]) -> None:
        """Record outcomes in one transaction: if the transaction fails, none of them is recorded.

        Raises:
            InvalidRequest: A row was not marked.
            JournalError: A row already has an outcome, or the journal cannot be written.
        """

    def record_event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Record an event.

        Args:
            kind: Kind of the event; a report counts events by kind.
            data: Details, as JSON values.
        """

    def end(self, state: str, possibly_sent: PossiblySent = NO_ROWS) -> None:
        """Record how the run ended. A run that has already finished stays finished.

        Args:
            state: `finished`, `suspended`, `stopped` or `interrupted`.
            possibly_sent: Rows without an outcome that may have been sent.

        Raises:
            InvalidRequest: The state is unknown, or it is `finished` but a marked row has no outcome.
        """

    def spool(self, rows: Sequence[tuple[int, str, bytes]]) -> None:
        """Store rows of the input in the spool.

        Args:
            rows: For each row: its index, its e-mail, and its payload as JSON. The e-mail is empty if the row can never be sent.

        Raises:
            InvalidRequest: The spool is already complete.
        """

    def end_spool(self, rows: int) -> None:
        """Record that the spool is complete, and that the input has `rows` rows.

        Raises:
            InvalidRequest: Rows are missing from the spool.
        """

    def spooled_rows(self, first: int, rows: int, policy: Repeats, room: int) -> list[SpooledRow]:
        """Return rows from a spool that contains the whole input.

        If `policy` selects another row with the same e-mail to be sent instead of a row, the returned item for the row contains
        the index of the other row.

        Args:
            first: Index of the first row.
            rows: Maximum number of rows.
            policy: Policy for rows with the same e-mail. `"first"` and `"last"` send the first or last row with each e-mail.
                `"coalesce"` sends the first row, merged with the later rows. The run's `duplicates` option determines how they
                are merged. The remaining policies send every row.
            room: Size in bytes after which no further row is returned.
        """

    def close(self) -> None:
        """Close the journal. Closing a closed journal does nothing."""


class WriterThread:
    """Runs the calls of a journal's writer in a thread, one at a time."""

    # After `run` returns or raises an exception, the call is not running and does not start later.

    def __init__(self, *, inline: bool) -> None:
        self._inline = inline
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
        opened: list[Opened] = []
        try:
            await self.run(lambda: opened.append(call()))
        except BaseException:
            for each in opened:  # asyncio's own Task.cancel may arrive although the call has succeeded
                each.close()
            raise
        return opened[0]

    async def _execute(self, job: Callable[[], Any]) -> Any:
        return job() if self._inline else await to_thread.run_sync(job, limiter=self._limiter)


@runtime_checkable
class JournalStore(Protocol):
    """A journal that `create_many` accepts, such as `Journal` or `ObjectJournal`.

    Example:
        ```python
        from outreach_async.bulk.journal import JournalStore

        print(isinstance(Journal("run.db"), JournalStore))  # -> True
        ```
    """

    @property
    def source(self) -> str | None:
        """Name of the run's input, such as the path of a file; reports show it."""

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the run's whole input, such as a file's digest. A run cannot be resumed with a different fingerprint."""

    @property
    def mapping(self) -> Mapping[str, str] | None:
        """Field codes by column name, if the input has columns. A run cannot be resumed with a different code for a column."""

    @property
    def linger(self) -> float:
        """Maximum time in seconds that an outcome waits to be recorded together with other outcomes."""

    @property
    def backlog(self) -> int:
        """Maximum number of rows that are in flight, or completed but not yet recorded."""

    def writer(self, identity: Identity, *, resume: bool, earlier: Earlier = "known") -> JournalWriter:
        """Open the journal for a run, and return its writer.

        Args:
            identity: Identity of the run.
            resume: Whether to resume the run of an existing journal. A missing journal is created.
            earlier: With `unknown`, every row without an outcome counts as possibly sent, and a damaged journal is set aside
                and replaced.

        Raises:
            InvalidRequest: The journal exists although `resume` is false, belongs to another run, is in use, or has an
                unsupported location or format.
            JournalError: The journal is damaged, or cannot be read or written.
        """

    def writer_thread(self) -> WriterThread:
        """Return a new `WriterThread`, the thread on which the methods of the journal's writer run."""
