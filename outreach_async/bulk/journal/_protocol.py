"""The thread that runs the calls of a journal's writer, and the protocol of journals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

import anyio
from anyio import to_thread

from outreach_async.bulk.journal._identity import Earlier, Identity
from outreach_async.bulk.journal._writer import JournalWriter

P = ParamSpec("P")
T = TypeVar("T")


class _Closable(Protocol):
    def close(self) -> None: ...


Opened = TypeVar("Opened", bound=_Closable)


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
