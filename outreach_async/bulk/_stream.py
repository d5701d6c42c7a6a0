"""Read an async iterable in one task, which supplies its rows to others."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final, cast

import anyio
from anyio.lowlevel import checkpoint

from outreach_async.bulk._source import END, ReadAgain, ReadRows, approximate_size, freeze
from outreach_async.errors import BulkStopped

MAX_BATCH_BYTES: Final = 16 * 2**20
"""Size at which a window, a batch for the spool and the rows that were read ahead are full, even if they have few rows: a small
compressed file may contain rows of a megabyte each."""


def was_cancelled_from_inside() -> bool:
    """Return whether the cancellation that the current task has just caught was meant neither for the task nor for its run."""
    # Such as that of a future which somebody else cancelled. Nobody waits for it, so passing it on would end the run in silence.
    return anyio.current_effective_deadline() > -math.inf


def cancelled_from_inside(what: str, error: BaseException) -> BulkStopped:
    """Return the error that stops a run, after one of its tasks caught a cancellation that was not meant for it."""
    import asyncio  # a slow import, but its event loop is the only one with such cancellations

    # The task goes on, so asyncio must not count it as cancelled: anyio would no longer end it with its group.
    task = cast("asyncio.Task[None]", asyncio.current_task())
    for _ in range(task.cancelling()):
        task.uncancel()
    failure = BulkStopped(f"run stopped: {what} raised {type(error).__name__}, although the run was not cancelled")
    failure.__cause__ = error
    return failure


class StreamReader:
    """Reads a row of an async iterable for each task that waits for one, and `ahead` further rows; and closes the iterable."""

    # A generator may stand inside a time limit or a task group of its own when it yields. These belong to the task that entered
    # them: only there can they end, and only that task is cancelled by them. So one task advances and closes the iterable, and
    # waits in between where such a cancellation can be passed to the iterable.

    iterator: Final = None

    def __init__(
        self,
        stream: AsyncIterator[Any],
        *,
        ahead: int = 0,
        freeze: Callable[[Any], Any] = freeze,
        read_again: ReadAgain | None = None,
    ) -> None:
        self.read_again = read_again
        self._stream = stream
        self._in_batches = isinstance(stream, ReadRows)  # which has also frozen the rows
        self._freeze = freeze
        self._ahead = ahead
        self._rows: deque[Any] = deque()
        self._size = 0
        self._failure: Exception | None = None
        self._ended = self._stopped = self._is_advancing = False
        self._wanted = anyio.Event()
        self._waiting: deque[anyio.Event] = deque()
        self._scope = anyio.CancelScope()

    @property
    def ready(self) -> bool:
        # The exception of the iterable is not: the rows before it come first.
        return bool(self._rows) or (self._ended and self._failure is None)

    @property
    def has_arrived(self) -> bool:
        """Whether `pull` does not wait."""
        return bool(self._rows) or self._ended

    async def wait(self) -> None:
        """Wait for the next row, which another task may take first, or until no further one follows."""
        self._waiting.append(place := anyio.Event())
        self._wanted.set()
        await place.wait()

    async def pull(self) -> Any:
        """Return the next row; `END` after the last row. Exceptions of the iterable propagate unchanged."""
        while not self.has_arrived:
            await self.wait()
        if self._rows:
            row = self._rows.popleft()
            self._size -= approximate_size(row)
            self._wanted.set()
            return row
        if not self._stopped:  # afterwards, nobody receives what a pull raises
            self.raise_failure()
        return END

    def raise_failure(self) -> None:
        """Raise the exception of the iterable, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def pull_batch(self, limit: int, room: int) -> tuple[list[Any], int]:
        """Wait for a row, and return the rows that have arrived, as `Source.pull_batch` does."""
        batch: list[Any] = []
        while len(batch) < limit and (self._rows or not batch) and (row := await self.pull()) is not END:
            batch.append(row)
            room -= approximate_size(row)
            if room <= 0:
                break
        return batch, room

    def pull_quickly(self, limit: int, room: int, _clock: Callable[[], float]) -> tuple[list[Any], int]:
        """Return the rows that have arrived, as `pull_batch` does, but wait for none."""
        batch: list[Any] = []
        while self._rows and len(batch) < limit and room > 0:
            batch.append(row := self._rows.popleft())
            room -= approximate_size(row)
        if not batch and not self._stopped:
            self.raise_failure()
        return batch, room

    def stop(self) -> None:
        """Make `run` close the iterable and return. If the iterable is waiting for its next row, it is cancelled."""
        self._stopped = True
        self._wanted.set()
        self._end()
        if self._is_advancing:
            self._scope.cancel()

    async def run(self) -> None:
        """Read the iterable until it ends, and close it."""
        try:
            with self._scope:  # the iterable's own scopes are inside this one, until it is closed
                try:
                    await self._read()
                finally:
                    await self._close()
            await checkpoint()  # receives a cancellation that has not arrived yet
        except Exception as error:  # noqa: BLE001 - raised by `pull`, or at the end of the run
            self._failure = error
        except anyio.get_cancelled_exc_class() as error:
            if not was_cancelled_from_inside():
                raise
            self._failure = cancelled_from_inside("the iterable of rows", error)
        self._end()

    def _end(self) -> None:
        self._ended = True
        while self._waiting:
            self._waiting.popleft().set()

    async def _read(self) -> None:
        while (row := await self._next()) is not END:
            for each in row if self._in_batches else (self._freeze(row),):
                self._rows.append(each)
                if self._ahead:
                    self._size += approximate_size(each)
                if self._waiting:
                    self._waiting.popleft().set()

    async def _next(self) -> Any:
        """Wait until a row is wanted, and return it; `END` after the last row, or when no further row is wanted."""
        self._is_advancing = False
        try:
            while not (self._stopped or self._has_room()):
                self._wanted = anyio.Event()
                await self._wanted.wait()
        except anyio.get_cancelled_exc_class() as error:
            # Perhaps by a scope of the iterable, which must see the exception where it has yielded.
            if (throw := getattr(self._stream, "athrow", None)) is None:
                raise
            self._is_advancing = True
            with suppress(StopAsyncIteration):
                return await throw(error)
            return END
        if self._stopped:
            return END
        self._is_advancing = True
        return await anext(self._stream, END)

    def _has_room(self) -> bool:
        return bool(self._waiting) or (len(self._rows) < self._ahead and self._size < MAX_BATCH_BYTES)

    async def _close(self) -> None:
        self._is_advancing = False  # `stop` lets the iterable close itself in peace
        if (close := getattr(self._stream, "aclose", None)) is None:
            return
        try:
            await close()
        except BaseExceptionGroup as group:  # task groups wrap the exception that closes their generator
            if (rest := group.split(GeneratorExit)[1]) is not None:
                raise rest from None
