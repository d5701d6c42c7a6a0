"""Simulated processes. Each passes numbered points, and can end early at one of them, in any of the ways of `Way`.

The points are each step of a journal writer call, each request (before it is sent, and after the service has carried it out),
each row that is pulled and each outcome that is delivered. Journal calls take virtual time and behave as in a thread: a call
waits for its thread, and can be cancelled until then. After that, it runs to its end, even if the waiting task is cancelled.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

import anyio
import anyio.lowlevel
import attrs
import trio
from anyio.lowlevel import checkpoint

from outreach_async import ContactOutcome
from outreach_async.errors import JournalError
from outreach_async.store import Identity, Store
from outreach_async.store._writer import Database, JournalWriter, WriterThread

Point = tuple[str, Any]
Way = Literal[
    "kill", "cancel", "break", "raise", "close the generator", "drain", "rows raise", "Ctrl-C", "Ctrl-C twice", "journal fails",
    "journal fails late",
]  # fmt: skip
WAYS: Final[tuple[Way, ...]] = get_args(Way)
ORDERLY: Final = frozenset({"cancel", "break", "raise", "close the generator", "drain", "rows raise"})
"""Ways after which the journal records the end of the run."""


class Killed(BaseException):
    """The process was killed. The library must not handle this as an error."""


class Left(Exception):
    """An error that the caller's code or the row iterator raises."""


@attrs.frozen
class Ending:
    """How and where a process ends."""

    way: Way
    point: int
    gap: float = 0.0
    fails_at: int | None = None


class Process:
    """A simulated process and the points that it passes."""

    outcomes: Any = None
    scope: anyio.CancelScope

    def __init__(
        self, ending: Ending | None = None, *, seed: int = 0, journal_seconds: float = 0.0, caller_seconds: float = 0.0
    ) -> None:
        self.ending = ending
        self.dead = self.ended = self.raised = False
        self.trace: list[Point] = []
        self.writers: list[JournalWriter | Database] = []
        self._journal_seconds = journal_seconds
        self._caller_seconds = caller_seconds
        self._chance = random.Random(f"process {seed}")  # noqa: S311 - repeatable, not secret

    @property
    def way(self) -> Way | None:
        """How the process ends, once it has reached its ending; `None` before."""
        return self.ending.way if self.ending is not None and self.ended else None

    @property
    def journal_fails(self) -> bool:
        """Whether journal calls fail before they write anything."""
        later = self.ending is not None and self.ending.fails_at is not None and len(self.trace) >= self.ending.fails_at
        return later or self.way == "journal fails"

    def at(self, name: str, row: Any) -> None:
        """Pass a point."""
        if not self.dead:
            self.trace.append((name, row))
            if self.ending is not None and len(self.trace) == self.ending.point:
                self.ended = True
                self._end(self.ending)
        if self.dead:
            raise Killed

    def _end(self, ending: Ending) -> None:
        if ending.way == "kill":
            self.dead = True
        elif ending.way == "cancel":
            self.scope.cancel()
        elif ending.way == "drain" and self.outcomes is not None:
            self.outcomes.drain()
        elif ending.way in {"Ctrl-C", "Ctrl-C twice"}:
            interrupt = partial(signal.raise_signal, signal.SIGINT)
            later(0.0, interrupt)
            if ending.way == "Ctrl-C twice":
                later(ending.gap, interrupt)

    def rows(self, rows: Sequence[Any]) -> Iterator[Any]:
        """Yield the rows, as an iterator of the caller does that fills one dict again and again."""
        members: dict[str, Any] = {}
        for index, row in enumerate(rows):
            self.at("pull", index)
            if self.way == "rows raise":
                raise Left
            if type(row) is dict:
                members.clear()
                members.update(row)
            yield members if type(row) is dict else row

    async def consider(self) -> bool:
        """Spend the caller's time on an outcome, and return whether the caller leaves the run."""
        if self._caller_seconds:
            await anyio.sleep(self._chance.uniform(0, self._caller_seconds))
        if self.way == "raise":
            self.raised = True
            raise Left
        return self.way in {"break", "close the generator"}

    def journal_time(self) -> float:
        """Return a random duration for one half of a journal call, in seconds."""
        return self._chance.uniform(0, self._journal_seconds / 2)


def later(seconds: float, call: Callable[[], None]) -> None:
    """Call a function after a delay, independently of every task."""
    if anyio.lowlevel.current_token().backend_class.__module__.endswith("_trio"):
        trio.lowlevel.spawn_system_task(_call_in, seconds, call)
    else:
        asyncio.get_running_loop().call_later(seconds, call)


async def _call_in(seconds: float, call: Callable[[], None]) -> None:
    await trio.sleep(seconds)
    call()


class SlowScribe(WriterThread):
    """Runs journal calls in virtual time, as a thread does in real time."""

    def __init__(self, process: Process) -> None:
        super().__init__(inline=False)
        self._process = process

    async def _execute(self, job: Callable[[], Any]) -> Any:
        self._process.at("hand over", None)
        await checkpoint()
        done, results = anyio.Event(), list[Callable[[], Any]]()
        self._process.at("begin", None)
        later(begins := self._process.journal_time(), partial(_run, job, results))
        later(begins + self._process.journal_time(), done.set)
        with anyio.CancelScope(shield=True):
            await done.wait()
        self._process.at("return", None)
        return results[0]()


def _run(job: Callable[[], Any], results: list[Callable[[], Any]]) -> None:
    try:
        result = job()
    except BaseException as error:  # noqa: BLE001 - raised where the result is needed
        results.append(partial(_raise, error))
    else:
        results.append(lambda: result)


def _raise(error: BaseException) -> None:
    raise error


class MortalWriter:
    """A journal writer that ends with its process. Once a write fails, all later writes fail too, as on a full disk."""

    def __init__(self, writer: Any, process: Process) -> None:
        self._writer = writer
        self._process = process
        self._failed = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._writer, name)
        return self._mortal(name, found) if callable(found) else found

    def _mortal(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def construct(*items: Any) -> Any:
            rows = _rows(items)
            self._process.at(f"{name}...", rows)
            fails = name not in {"close", "create_counts"}  # these calls do not write
            if fails and (self._failed or self._process.journal_fails):
                self._fail()
            done = call(*items)
            if fails and self._process.way == "journal fails late":
                self._fail()
            self._process.at(name, rows)
            return done

        return construct

    def _fail(self) -> None:
        self._failed = True
        raise JournalError("the disk is full")


def _rows(items: Sequence[Any]) -> Any:
    """Return the rows that a writer call concerns."""
    first = items[0] if items else None
    if isinstance(first, list):
        return tuple(each.index if isinstance(each, ContactOutcome) else each[0] for each in first)
    return first if isinstance(first, int | str) else getattr(first, "first", None)


class MortalJournal(Store):
    """A journal whose writer ends with its process."""

    def __init__(self, path: Path, process: Process, harmed: Callable[[JournalWriter], Any]) -> None:
        super().__init__(path)
        self._process = process
        self._harmed = harmed

    def writer_thread(self) -> WriterThread:
        return SlowScribe(self._process)

    def writer(self, identity: Identity, *, resume: bool, **options: Any) -> JournalWriter:
        self._process.at("open...", None)
        writer = super().writer(identity, resume=resume, **options)
        self._process.writers.append(writer)
        self._process.at("open", writer.marked)
        return cast("JournalWriter", MortalWriter(self._harmed(writer), self._process))


async def consume(run: Any, process: Process, delivered: list[ContactOutcome]) -> None:
    """Consume outcomes as the caller does, until the caller leaves or the run ends. Each delivery is a point."""

    async def outcomes() -> Any:
        async with run as process.outcomes:
            async for outcome in process.outcomes:
                yield outcome

    async def take(found: Any) -> None:
        async for outcome in found:
            process.at("deliver", outcome.index)
            delivered.append(outcome)
            if await process.consider():
                break

    with anyio.CancelScope() as process.scope:
        if process.ending is not None and process.ending.way == "close the generator":
            async with aclosing(outcomes()) as generator:
                await take(generator)
        else:
            async with run as process.outcomes:
                await take(process.outcomes)
