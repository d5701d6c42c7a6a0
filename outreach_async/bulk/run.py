"""The pipeline: workers pull rows, send them in key order and hand outcomes to one consumer."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable
from types import TracebackType
from typing import Any, Final, Literal, NoReturn, Self, TypeAlias, get_args

import anyio
import attrs
from anyio.abc import TaskGroup

from outreach_async.bulk.outcome import ContactOutcome, answered, concerns_every_row, failed, unsent
from outreach_async.bulk.report import BulkReport, Tally
from outreach_async.bulk.source import END, Source, order_key
from outreach_async.bulk.watch import Guard, Watch
from outreach_async.calls import Call, Terms, running_clock
from outreach_async.checks import contact_of, require_number, shown
from outreach_async.contacts import CreateAnswer
from outreach_async.engine import Engine
from outreach_async.errors import BulkStopped, InvalidRequest, OutreachError
from outreach_async.operations import Creation, Operation, Trail
from outreach_async.pacing import Slots
from outreach_async.vocabulary import Outcome

_Answer: TypeAlias = tuple[CreateAnswer, Trail]
Order = Literal["completion", "input"]

_WINDOW: Final = 4
"""Rows that may be on their way for each request in flight: enough to keep every slot busy while some rows wait for their key."""


@attrs.define
class _Row:
    index: int
    given: object
    key: str
    operation: Operation[_Answer]


class _Hand:
    """What a worker has in hand; it outlives the worker's cancel scope, which an attempt that takes too long ends."""

    row: _Row | None = None
    call: Call[_Answer] | None = None
    done = False


class BulkRun:
    """A run that has not begun: enter it for the outcomes, or await it for the figures."""

    def __init__(
        self,
        engine: Engine,
        creation: Creation,
        terms: Terms,
        rows: Iterable[Any] | AsyncIterable[Any],
        *,
        concurrency: int,
        order: Order,
    ) -> None:
        workers = min(require_number("concurrency", concurrency, least=1), engine.max_in_flight)
        if order not in get_args(Order):
            raise InvalidRequest(f"order: expected 'completion' or 'input', got {shown(order)}; pass one of them")
        self._outcomes = Outcomes(engine, creation, terms, Source(rows), workers=workers, order=order)
        self._group: TaskGroup
        self._begun = False

    def __await__(self) -> Generator[Any, Any, BulkReport]:
        """Run to the end and return the figures."""
        return self._to_end().__await__()

    async def _to_end(self) -> BulkReport:
        async with self as outcomes:
            async for _ in outcomes:
                pass
        return outcomes.report

    async def __aenter__(self) -> Outcomes:
        """Start the workers."""
        if self._begun:
            raise InvalidRequest("create_many: this run was started before; call create_many again for another")
        self._begun = True
        self._group = await anyio.create_task_group().__aenter__()
        self._outcomes.start(self._group)
        return self._outcomes

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Cancel what is still in flight; the block's own error passes through as it is."""
        if self._outcomes.under_way:
            self._group.cancel_scope.cancel()
        await self._group.__aexit__(None, None, None)

    def __aiter__(self) -> NoReturn:
        """Say how to iterate: workers need a block that ends them."""
        raise InvalidRequest(
            "create_many: expected `async with ... as outcomes`, got `async for`; iterate over `outcomes` inside it"
        )


class Outcomes(AsyncIterator[ContactOutcome]):
    """The outcomes of a run under way.

    Iterating ends when every row has its outcome. It then raises what the rows' own code raised, if it did, or BulkStopped.
    """

    def __init__(self, engine: Engine, creation: Creation, terms: Terms, source: Source, *, workers: int, order: Order) -> None:
        self._engine = engine
        self._creation = creation
        self._terms = terms
        self._source = source
        self._watch = Watch()
        self._window = Slots(workers * _WINDOW)
        self._busy: dict[str, deque[_Row] | None] = {}  # no list for each key: hardly ever does a row wait
        self._ready: deque[ContactOutcome] | _InOrder = deque() if order == "completion" else _InOrder()
        self._news: anyio.Event | None = None
        self._workers = workers
        self._pulled = 0
        self._ended = False
        self._failure: Exception | None = None
        self._tally = Tally()
        self._began = self._now = 0.0

    def start(self, group: TaskGroup) -> None:
        """Start the workers in a group that outlives the iteration."""
        self._began = anyio.current_time()
        group.start_soon(self._watch.run)
        for _ in range(self._workers):
            group.start_soon(self._work)

    @property
    def under_way(self) -> bool:
        """Whether a worker is still at it."""
        return self._workers > 0

    @property
    def report(self) -> BulkReport:
        """The figures of the outcomes handed out so far."""
        return self._tally.report(self._now - self._began)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ContactOutcome:
        """Return the next outcome.

        Raises:
            BulkStopped: After the last one, if the service refused in a way that concerns every row.
        """
        while not self._ready:
            self._now = anyio.current_time()
            if not self._workers:
                self._finish()
            self._news = anyio.Event()
            await self._news.wait()
        outcome = self._ready.popleft()
        self._window.give()
        self._tally.add(outcome)
        return outcome

    def _finish(self) -> NoReturn:
        failure, self._failure = self._failure, None
        if failure is None:
            raise StopAsyncIteration
        if isinstance(failure, BulkStopped):
            failure.report = self.report.to_dict()
        raise failure

    async def _work(self) -> None:
        hand, guard, now = _Hand(), self._watch.guard(), running_clock()
        try:
            while not hand.done:
                with anyio.CancelScope() as guard.scope:
                    await self._serve(hand, guard, now)
        except Exception as error:  # noqa: BLE001 - raised to the consumer, after the outcomes of the rows already read
            self._stop(error)
        finally:
            self._workers -= 1
            if not self._workers:
                self._watch.end()
            self._tell()

    async def _serve(self, hand: _Hand, guard: Guard, now: Callable[[], float]) -> None:
        """Send row after row, until there is none or the scope is cancelled."""
        while not guard.scope.cancel_called:
            row = hand.row = hand.row or await self._next_row()
            if row is None:
                hand.done = True
                return
            hand.call = hand.call or Call(row.operation, self._terms, now)
            self._settle(await self._send(row, hand.call, guard))
            hand.row, hand.call = self._next_of(row.key), None

    async def _next_row(self) -> _Row | None:
        """Pull rows until one may be sent now; leave those whose key is busy to the worker that has it."""
        while not self._ended:
            if not self._window.take():
                await self._window.wait()
            row = await self._pull()
            if row is None:
                continue
            if row.key not in self._busy:
                self._busy[row.key] = None
                return row
            self._wait_for_key(row)
        return None

    def _wait_for_key(self, row: _Row) -> None:
        waiting = self._busy[row.key]
        if waiting is None:
            waiting = self._busy[row.key] = deque()
        waiting.append(row)

    def _next_of(self, key: str) -> _Row | None:
        """Return the row that waited longest for one of this key, or free the key."""
        if waiting := self._busy[key]:
            return waiting.popleft()
        del self._busy[key]
        return None

    async def _pull(self) -> _Row | None:
        given = END if self._ended else await self._source.pull()
        if given is END:
            self._ended = True
            return None
        index, self._pulled = self._pulled, self._pulled + 1
        try:
            contact = contact_of(given)
            operation = self._creation.row(contact)
        except InvalidRequest as error:
            self._settle(unsent(index, given, Outcome.REJECTED, error))
            return None
        return _Row(index, given, order_key(contact.email), operation)

    async def _send(self, row: _Row, call: Call[_Answer], guard: Guard) -> ContactOutcome:
        if isinstance(self._failure, BulkStopped):
            return unsent(row.index, row.given, Outcome.NOT_APPLIED, self._failure)
        try:
            answer, trail = await self._engine.drive(call, guard)
        except OutreachError as error:
            if concerns_every_row(error):
                self._stop(_stopped(error))
            return failed(row.index, row.given, error, self._creation.duplicates)
        return answered(row.index, row.given, answer, trail)

    def _stop(self, error: Exception) -> None:
        self._ended = True
        self._failure = self._failure or error

    def _settle(self, outcome: ContactOutcome) -> None:
        self._ready.append(outcome)
        self._tell()

    def _tell(self) -> None:
        if self._news is not None:
            self._news.set()


def _stopped(cause: OutreachError) -> BulkStopped:
    error = BulkStopped(
        f"the run stopped, for this concerns every row: {cause}",
        operation=cause.operation,
        status_code=cause.status_code,
        headers=cause.headers,
        body=cause.body,
        attempts=cause.attempts,
        maybe_sent=cause.maybe_sent,
    )
    error.__cause__ = cause
    return error


class _InOrder:
    """Outcomes that come in any order and leave in the order of the rows."""

    def __init__(self) -> None:
        self._held: dict[int, ContactOutcome] = {}
        self._next = 0

    def __bool__(self) -> bool:
        return self._next in self._held

    def append(self, outcome: ContactOutcome) -> None:
        self._held[outcome.index] = outcome

    def popleft(self) -> ContactOutcome:
        self._next += 1
        return self._held.pop(self._next - 1)
