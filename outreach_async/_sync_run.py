"""Bulk runs of the synchronous client. Rows are passed to the thread of the event loop, and outcomes are passed back."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from itertools import islice
from threading import Lock
from time import monotonic
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar, cast

import anyio
import attrs
from anyio.from_thread import BlockingPortal

from outreach_async.bulk import ArrowStream, BulkProgress, BulkReport, BulkRun, ContactOutcome, Numbers, Outcomes
from outreach_async.bulk._rows import Source
from outreach_async.errors import InvalidRequest, OutreachError, drop_tracebacks

P = ParamSpec("P")
T = TypeVar("T")

_BATCH_SIZE: Final = 500
"""Maximum number of rows passed between the threads at once."""
_LINGER: Final = 0.02
"""Maximum number of seconds to wait for a batch to fill, which limits the delay of outcomes."""
_INTERRUPT_DELAY: Final = 0.1
"""Seconds after which a waiting thread looks for a Ctrl-C. A lock without a timeout can miss one, and always does on Windows."""


class _Interruptible:
    """Work in an event loop, which an exception in the calling thread cancels."""

    def __init__(self) -> None:
        self._scope: anyio.CancelScope | None = None

    def in_loop(self) -> anyio.CancelScope:
        self._scope = anyio.CancelScope()
        return self._scope

    def _cancel(self) -> None:
        if self._scope is not None:  # None if the work was interrupted before it reached the event loop
            self._scope.cancel()

    @contextmanager
    def cancelled_by_errors(self, portal: BlockingPortal) -> Iterator[None]:
        """Use this in the calling thread, around the start of the work and the wait for its result."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, OutreachError):
                drop_tracebacks(error)  # the frames may contain secrets
            # A KeyboardInterrupt can come before the future of the work is known, so cancelling the future is not enough.
            with suppress(RuntimeError):  # the event loop has ended, and the work with it
                portal.start_task_soon(self._cancel)  # runs after the start of the work, as the event loop keeps their order
            raise


class _BlockFailed(Exception):
    """Stands for the exception that left a `with` block of the caller."""


def _wait(future: Future[T]) -> T:
    """Return the result of a future. A Ctrl-C ends the wait."""
    # `concurrent.futures.wait` would take twice as long as the rest of a call.
    ended = Lock()
    ended.acquire()
    future.add_done_callback(lambda _: ended.release())
    while not ended.acquire(timeout=_INTERRUPT_DELAY):
        pass
    return future.result()


class ClientLoop:
    """The event loop of a client, in a separate thread."""

    def __init__(self) -> None:
        self.portal: BlockingPortal | None = None

    def run(self, function: Callable[P, Awaitable[T]], *arguments: P.args, **options: P.kwargs) -> T:
        portal, work = self.require_portal(), _Interruptible()

        async def call() -> T | None:
            with work.in_loop():
                return await function(*arguments, **options)
            return None  # cancelled: nobody waits for the result

        with work.cancelled_by_errors(portal):
            return cast("T", _wait(portal.start_task_soon(call)))

    @contextmanager
    def hold(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter and leave an async context manager in the event loop. A Ctrl-C ends the waits for both."""
        # `BlockingPortal.wrap_async_context_manager` waits without a timeout, and can miss a Ctrl-C; see `_INTERRUPT_DELAY`.
        portal, work = self.require_portal(), _Interruptible()
        entered: Future[tuple[T, anyio.Event]] = Future()
        failed = False

        def raise_failure() -> None:
            if failed:
                raise _BlockFailed  # for the manager; the exception itself propagates in the calling thread

        async def enter_and_leave() -> None:
            try:
                with work.in_loop(), suppress(_BlockFailed):
                    async with manager as value:
                        leaving = anyio.Event()
                        entered.set_result((value, leaving))
                        await leaving.wait()
                        raise_failure()
            except BaseException as error:
                if not entered.done():
                    entered.set_exception(error)
                raise

        with work.cancelled_by_errors(portal):
            held = portal.start_task_soon(enter_and_leave)
            value, leaving = _wait(entered)
        try:
            yield value
        except BaseException:
            failed = True
            raise
        finally:
            with work.cancelled_by_errors(portal):
                portal.start_task_soon(leaving.set)
                _wait(held)

    def forget_portal(self) -> None:
        """Forget the portal, so that calls after the end of the event loop raise an error."""
        self.portal = None

    def require_portal(self) -> BlockingPortal:
        if self.portal is None:
            raise InvalidRequest(
                "client: expected an open client, got a closed one; use it inside `with SyncClient() as client:`"
            )
        return self.portal


class SyncRun:
    """A bulk run that has not started. Use it in a `with` block to iterate over the outcomes, or call `wait()` for the report.

    Attributes:
        findings: The columns of a data frame whose values are sent as text, although they are not strings; empty for other rows.

    Example:
        ```python
        with SyncClient(transport=FakeTransport(fake), workspace="space_1", owner_key="key_1") as client:
            with client.contacts.create_many([{"email": "ann@company.example"}]) as outcomes:
                print([outcome.status.value for outcome in outcomes])  # -> ['added']
        ```
    """

    def __init__(self, run: BulkRun, rows: CallerRows, loop: ClientLoop) -> None:
        self._run, self._rows, self._loop = run, rows, loop
        self.findings = rows.findings

    def __enter__(self) -> SyncOutcomes:
        """Start the run, and return its outcomes."""
        self._manager = self._loop.hold(self._run)
        return SyncOutcomes(self._manager.__enter__(), self._rows, self._loop)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Cancel the requests in flight, and record how the run ended."""
        self._manager.__exit__(kind, error, trace)

    def wait(self) -> BulkReport:
        """Run to the end and return the report, as awaiting a `BulkRun` does.

        Raises:
            OutreachError: The run ended early.

        Example:
            ```python
            with SyncClient(transport=FakeTransport(fake), workspace="space_1", owner_key="key_1") as client:
                print(client.contacts.create_many([{"email": "ann@company.example"}]).wait().rows)  # -> 1
            ```
        """
        with self as outcomes:
            deque(outcomes, maxlen=0)
        return outcomes.report


class SyncOutcomes(Iterator[ContactOutcome]):
    """Iterator over the outcomes of a started bulk run.

    Example:
        ```python
        with SyncClient(transport=FakeTransport(fake), workspace="space_1", owner_key="key_1") as client:
            with client.contacts.create_many([{"email": "ann@company.example"}]) as outcomes:
                for outcome in outcomes:
                    print(outcome.index, outcome.status, outcomes.progress.total)  # -> 0 added 1
        ```
    """

    def __init__(self, outcomes: Outcomes, rows: CallerRows, loop: ClientLoop) -> None:
        self._outcomes, self._rows, self._loop = outcomes, rows, loop
        self._batch: deque[ContactOutcome] = deque()
        self._ended = False
        self._failure: Exception | None = None

    def __next__(self) -> ContactOutcome:
        while not self._batch:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            if self._ended:
                raise StopIteration
            self._batch.extend(self._loop.run(self._exchange, self._rows.read()))
        return self._batch.popleft()

    async def _exchange(self, rows: _RowBatch) -> list[ContactOutcome]:
        """Pass rows to the run. Return outcomes as soon as there are any, or an empty list if the run needs more rows first."""
        self._rows.give(rows)
        batch: list[ContactOutcome] = []
        with anyio.CancelScope() as scope, self._rows.call_when_low(scope.cancel):
            try:
                async for outcome in self._outcomes:
                    batch.append(outcome)
                    if len(batch) == 1:
                        scope.deadline = anyio.current_time() + _LINGER
                self._ended = True
            except Exception as error:
                if not batch:
                    raise
                self._failure = error  # raised after the outcomes before it
        return batch

    @property
    def report(self) -> BulkReport:
        """The counts of the outcomes so far, including outcomes that the iterator has received but not yet returned."""
        return self._outcomes.report

    @property
    def progress(self) -> BulkProgress:
        """The current progress: rows done, rate, state and estimated time left."""

        async def read() -> BulkProgress:
            return self._outcomes.progress

        return self._loop.run(read)

    def drain(self) -> None:
        """Stop reading rows and let the requests in flight finish, as `Outcomes.drain` does.

        Example:
            ```python
            rows = ({"email": f"user{number}@company.example"} for number in range(10_000))
            with SyncClient(transport=FakeTransport(fake), workspace="space_1", owner_key="key_1") as client:
                with client.contacts.create_many(rows) as outcomes:
                    for outcome in outcomes:
                        outcomes.drain()
            print(outcomes.report.rows < 10_000)  # -> True
            ```
        """

        async def drain() -> None:
            self._outcomes.drain()

        self._loop.run(drain)


@attrs.define
class _RowBatch:
    """A batch of rows that were read in the caller's thread."""

    rows: list[Any] = attrs.field(factory=list)
    is_last: bool = False
    failure: Exception | None = None


class CallerRows(AsyncIterator[Any]):
    """Rows that are read in the caller's thread, in batches, and iterated over in the event loop."""

    def __init__(
        self, rows: Iterable[Any] | ArrowStream, numbers: Numbers = "format", clock: Callable[[], float] = monotonic
    ) -> None:
        source = Source(rows, numbers)
        if not source.ready:
            raise InvalidRequest("rows: expected an iterable, got an async iterable; use OutreachClient, or pass a list")
        self.total = source.total
        self.findings = source.findings
        self._clock = clock
        self._iterator = source.iterator
        self._failure: Exception | None = None
        self._ended = False
        self._rows: deque[Any] = deque()
        self._given = anyio.Event()
        self._on_low: Callable[[], None] | None = None

    def read(self) -> _RowBatch:
        """Read a batch of rows in the caller's thread. The batch is empty if the run does not need more rows yet."""
        batch = _RowBatch()
        if not self._is_low:
            return batch
        until = self._clock() + _LINGER
        try:
            for row in islice(self._iterator, _BATCH_SIZE):
                batch.rows.append(row)
                if self._clock() > until:
                    return batch
        except Exception as error:  # noqa: BLE001 - raised by the run, after the outcomes of the rows before it
            batch.failure = error
        batch.is_last = len(batch.rows) < _BATCH_SIZE
        return batch

    @property
    def _is_low(self) -> bool:
        return not self._ended and len(self._rows) <= _BATCH_SIZE // 2

    def give(self, batch: _RowBatch) -> None:
        """Add a batch of rows. Call this method in the event loop."""
        self._rows.extend(batch.rows)
        self._ended, self._failure = batch.is_last or self._ended, batch.failure or self._failure
        self._given.set()
        self._given = anyio.Event()

    @contextmanager
    def call_when_low(self, function: Callable[[], None]) -> Iterator[None]:
        """Inside a `with` block, call `function` whenever few rows are left in the buffer."""
        self._on_low = function
        try:
            self._call_if_low()
            yield
        finally:
            self._on_low = None

    def _call_if_low(self) -> None:
        if self._on_low is not None and self._is_low:
            self._on_low()

    async def __anext__(self) -> Any:
        """Wait for the next row and return it. If the input raises an exception, all earlier rows are returned first."""
        while not self._rows:
            if self._ended:
                failure, self._failure = self._failure, None
                if failure is not None:
                    raise failure
                raise StopAsyncIteration
            self._call_if_low()
            await self._given.wait()
        row = self._rows.popleft()
        self._call_if_low()
        return row
