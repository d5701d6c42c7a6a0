"""The pipeline of a run: workers pull rows, send them in order per key, and pass outcomes to one consumer."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, Self

import anyio
import attrs
from anyio.abc import TaskGroup

from outreach_async.bulk.journal.identity import State
from outreach_async.bulk.outcomes import (
    BulkReport,
    ContactOutcome,
    Order,
    RecentIds,
    SameReason,
    answered,
    concerns_every_row,
    failed,
    is_final_answer,
    misdirected,
    ready,
    unfinished,
)
from outreach_async.bulk.possibly_sent import Suspects
from outreach_async.bulk.progress import BulkProgress, Pace, States, WatchedFlow
from outreach_async.bulk.recording import Book, Record, Recorded, Unrecorded
from outreach_async.bulk.rows import Answer, Reader, Row, Source
from outreach_async.bulk.windows import LARGEST
from outreach_async.call import Call, Terms, running_clock
from outreach_async.engine import Engine
from outreach_async.errors import BulkStopped, BulkSuspended, InvalidRequest, JournalError, OutreachError
from outreach_async.limits import Slots
from outreach_async.operations import Creation

if TYPE_CHECKING:
    from outreach_async.bulk.progress import Teller


# How one timer serves many attempts. Two workers, A and B, with a timeout of 30 s; each attempt of A is answered after 0.5 s, the
# first one of B never:
#
#   seconds        0.0        0.2        0.5                 30.0           30.2
#                   |          |          |                   |              |
#   worker A        |-- attempt 1 --------|-- attempt 2 -- ... |-- attempt 61 ------------ ...
#     its deadline 30.0                  30.5                60.0
#   worker B                   |-- attempt 1 --------------------------------X  cancelled
#     its deadline            30.2                                          inf
#   the timer      set                                       fires          fires
#     `wakes`      30.0                                      30.2           60.0
#
#    0.0  set: A's deadline, 30.0, is earlier than `wakes`, which was infinite, so it wakes the timer, which is set to 30.0.
#    0.2  left alone: B's deadline, 30.2, is later than `wakes`. It is stored, and nothing else happens.
#    0.5  left alone: A is answered. Its deadline becomes infinite, and 30.5 with the next attempt. Now `wakes` is too early for
#         any attempt in flight, which does no harm: the timer fires once in vain.
#   30.0  fires and moves: no deadline has passed, so it moves to the earliest one, 30.2.
#   30.2  fires: B's deadline has passed, and B's scope is cancelled. B leaves the scope and continues its call in a new one,
#         where the attempt counts as timed out. The timer moves to the earliest deadline left, 60.0.
#
# Why not a cancel scope with a deadline for each attempt? That adds a timer to the event loop, and removes it again, for every
# attempt. With equal timeouts, an attempt that starts later also ends later, so nearly every attempt takes the path of 0.5 s: two
# assignments. While answers are quick, the timer fires about once per timeout, however many attempts there are. Measured: about
# 1 us per attempt with the shared timer, 7.8 us with a scope each.
class Watch:
    """Cancels the scope of each worker whose attempt has exceeded its deadline.

    Attributes:
        wakes: The instant at which the timer fires, unless it is woken earlier.
    """

    def __init__(self) -> None:
        self.wakes = math.inf
        self._guards: list[Guard] = []
        self._sooner = anyio.Event()
        self._over = False

    def guard(self) -> Guard:
        """Return a guard that stands in for one worker's successive cancel scopes."""
        self._guards.append(guard := Guard(self))
        return guard

    def wake(self) -> None:
        """Recompute the timer now, because a deadline is earlier than the instant it is set to."""
        self._sooner.set()

    def end(self) -> None:
        """Stop watching: no worker is left."""
        self._over = True
        self.wake()

    async def run(self) -> None:
        """Watch the deadlines until `end`."""
        # Nothing awaits between the first line of the loop and the wait: no deadline can be set between the computation of
        # `wakes` and the new event, so no wake-up is lost.
        while not self._over:
            now = anyio.current_time()
            for guard in self._guards:
                guard.expire(now)
            self.wakes = min((guard.deadline for guard in self._guards), default=math.inf)
            self._sooner = anyio.Event()
            with anyio.CancelScope(deadline=self.wakes):
                await self._sooner.wait()


class Guard:
    """Stands in for the cancel scope that a worker runs in. Setting its deadline only stores it; see the time line above.

    Attributes:
        scope: The worker's current cancel scope.
    """

    scope: anyio.CancelScope
    _deadline = math.inf

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    @property
    def deadline(self) -> float:
        """The instant of the event loop's clock at which the scope is cancelled."""
        return self._deadline

    @deadline.setter
    def deadline(self, value: float) -> None:
        self._deadline = value
        if value < self._watch.wakes:
            self._watch.wake()

    def expire(self, now: float) -> None:
        """Cancel the scope if its deadline has passed."""
        if self._deadline <= now:
            self._deadline = math.inf  # cancelled once: otherwise the timer would fire again and again until the worker reacts
            self.scope.cancel()


_WINDOW: Final = 4
"""Rows in the pipeline per worker: enough to keep every worker busy while some rows wait for their key."""


class _Hand:
    """The row and call that a worker is processing. They outlive the worker's cancel scope, which ends with a timeout."""

    row: Row | None = None
    call: Call[Answer] | None = None
    done = False

    def suspect(self) -> int | None:
        """Return the row's index if it may have been sent and has no outcome."""
        if self.row is None:
            return None
        maybe_sent = self.row.tainted if self.call is None else self.call.maybe_applied
        return self.row.index if maybe_sent else None


@attrs.frozen
class Plan:
    """The checked options of a run.

    Attributes:
        engine: Sends requests.
        creation: The options of every contact request.
        terms: Timeout and deadline of a row.
        source: Supplies the rows.
        workers: Maximum number of rows in flight.
        order: Order in which outcomes are returned.
        rejects: Stops a run whose first rows are all rejected with the same error.
        reader: Parses rows.
        max_outage: Seconds that a run waits for a service that is down.
        total: Number of rows in the input; `None` if unknown.
    """

    engine: Engine
    creation: Creation
    terms: Terms
    source: Source
    workers: int
    order: Order
    rejects: SameReason
    reader: Reader
    max_outage: float
    total: int | None


class Outcomes(AsyncIterator[ContactOutcome]):
    """The outcomes of a running bulk run.

    Iteration ends when every row has its outcome. If the iterable of rows raised an exception, or the run stopped early with
    BulkStopped, that exception is then raised.

    Example:
        ```python
        async with client.contacts.create_many([{"email": "ann@company.example"}]) as outcomes:
            async for outcome in outcomes:
                print(outcome.status)  # -> added
            print(outcomes.report.rows, outcomes.progress.rate >= 0)  # -> 1 True
        ```
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._flow = WatchedFlow(plan.engine.policy, max_outage=plan.max_outage, wall=plan.engine.wall)
        self._terms = attrs.evolve(plan.terms, flow=self._flow)
        self._watch = Watch()
        self._pace = Pace()
        teller = self._teller()
        self._states = States(self._flow, lambda: self._done, teller)
        self._delivery = self._deliver if teller is None else partial(self._deliver_and_tell, teller)
        self._ready = ready(plan.order)
        self._record: Record = Unrecorded(plan.source, plan.reader, self._delivery, self._ready)
        self._window = Slots(plan.workers * _WINDOW)
        self._busy: dict[str, deque[Row] | None] = {}  # no deque until a row waits for its key, which is rare
        self._ids = RecentIds()
        self._news = anyio.Event()
        self._hands = [_Hand() for _ in range(plan.workers)]
        self._workers = plan.workers
        self._suspects: list[int] = []
        self._ended = self._exhausted = self._kept = self._sent = False
        self._failure: Exception | None = None
        self._began = self._now = 0.0
        self._done = 0

    def record_in(self, book: Book) -> None:
        """Record the run in a journal."""
        plan = self._plan
        self._record = Recorded(book, plan.source, plan.reader, self._delivery, self._next_window)
        # Outcomes that wait for their commit still occupy the window. Without room for this backlog, a slow disk would leave the
        # workers without rows.
        self._window = Slots(plan.workers * _WINDOW + self._record.backlog)

    def start(self, group: TaskGroup) -> None:
        """Start the workers in a task group that outlives the iteration."""
        self._began = self._now = anyio.current_time()
        self._pace.begin(self._began)
        self._done = self._record.tally.rows
        self._states.start(group)
        self._record.start(group)
        group.start_soon(self._watch.run)
        group.start_soon(self._keep)
        for hand in self._hands:
            group.start_soon(self._work, hand)

    @property
    def under_way(self) -> bool:
        """True if any task of the run still has work to do."""
        return self._workers > 0 or not self._kept or not self._exhausted

    @property
    def report(self) -> BulkReport:
        """The figures of the outcomes returned so far, including those of earlier processes if a journal is resumed."""
        # `_now` moves only when the consumer waits for an outcome, so the duration of a finished run no longer grows.
        return self._record.tally.report(self._now - self._began)

    @property
    def progress(self) -> BulkProgress:
        """The current progress: rows done, rate, state and estimated time left."""
        now, rows = anyio.current_time(), self._record.tally.rows
        rate = min(self._pace.rate(now), self._flow.limit or math.inf)
        left = None if self._plan.total is None else max(0, self._plan.total - rows)
        pause, state = max(0.0, self._flow.opens_at - now), self._flow.state(now)
        return BulkProgress(
            rows=rows,
            total=self._plan.total,
            rate=rate,
            state=state,
            resumes=pause,
            eta=None if left is None or not rate else pause + left / rate,
            why=self._flow.why if state == "paused" else "",
        )

    def drain(self) -> None:
        """Stop pulling rows, and wait only for the requests in flight: iteration ends when they are answered.

        Rows that wait for a pause to end, or for a retry, are left to a resumed run. Without a journal their outcome is
        `not_applied`, or `unknown` if they may have been sent.

        Example:
            ```python
            rows = ({"email": f"user{number}@company.example"} for number in range(10_000))
            async with client.contacts.create_many(rows) as outcomes:
                async for outcome in outcomes:
                    outcomes.drain()
            print(outcomes.report.rows < 10_000)  # -> True
            ```
        """
        self._pull_no_more()
        self._flow.drain()

    def _pull_no_more(self) -> None:
        self._ended = True
        self._record.intake.stop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ContactOutcome:
        """Return the next outcome.

        Raises:
            BulkStopped: After the last outcome, if the service refused in a way that affects every row, or was down for too long.
            JournalError: After the last outcome that was committed.
        """
        # No await between the check of `_ready` and the new event, so no delivery can fall in between and be missed.
        while not self._ready:
            self._now = anyio.current_time()
            if self._kept:
                self._finish()
            self._news = anyio.Event()
            await self._news.wait()
        outcome = self._ready.popleft()
        self._window.give()  # only now: a row leaves the window when the consumer has its outcome, so memory stays bounded
        self._record.tally.add(outcome)
        return outcome

    def _finish(self) -> NoReturn:
        failure, self._failure = self._failure, None
        if failure is None:
            raise StopAsyncIteration
        if isinstance(failure, BulkStopped):
            failure.report, failure.resumable = self.report.to_dict(), self._record.resumable
        raise failure

    async def _work(self, hand: _Hand) -> None:
        guard, now = self._watch.guard(), running_clock()
        try:
            # One scope serves many rows. A timeout cancels it, and a cancelled scope stays cancelled: the next one continues with
            # the row and the call in hand.
            while not hand.done:
                with anyio.CancelScope() as guard.scope:
                    await self._serve(hand, guard, now)
        except Exception as error:  # noqa: BLE001 - raised in the consumer, after the outcomes of the rows already read
            self._stop(error)
        finally:
            if hand.call is not None:
                self._plan.engine.abandon(hand.call)
            self._workers -= 1
            if not self._workers:
                self._states.end()
                self._watch.end()
                self._record.end()

    async def _serve(self, hand: _Hand, guard: Guard, now: Callable[[], float]) -> None:
        """Send rows until there are none left, or the scope is cancelled."""
        while not guard.scope.cancel_called:
            row = hand.row = hand.row or await self._next_row()
            if row is None:
                hand.done = True
                return
            hand.call = hand.call or Call(row.operation, self._terms, now, tainted=row.tainted)
            outcome = await self._send(row, hand.call, guard)
            if outcome is None:
                self._leave(row, hand)
            else:
                self._settle(outcome)
            hand.row, hand.call = self._next_of(row.key), None

    async def _next_row(self) -> Row | None:
        """Pull rows until one can be sent now. Leave a row whose key is busy to the worker that is sending that key."""
        # This worker does not wait for the key: a worker that waits is one request less in flight.
        while not self._ended:
            if not self._window.take():
                await self._window.wait()
            row = await self._record.intake.next()
            if row is None:
                self._exhausted |= not self._ended
                self._ended = True
                return None
            self._ready.expect(row.index)
            if isinstance(row, ContactOutcome):
                self._settle(row)
            elif row.key not in self._busy:
                self._busy[row.key] = None
                return row
            else:
                self._wait_for_key(row)
        return None

    def _wait_for_key(self, row: Row) -> None:
        waiting = self._busy[row.key]
        if waiting is None:
            waiting = self._busy[row.key] = deque()
        waiting.append(row)

    def _next_of(self, key: str) -> Row | None:
        """Return the row that has waited longest for this key; free the key if there is none."""
        if waiting := self._busy[key]:
            return waiting.popleft()
        del self._busy[key]
        return None

    async def _send(self, row: Row, call: Call[Answer], guard: Guard) -> ContactOutcome | None:
        """Return the row's outcome; `None` if the run ended first and the row is left to a resumed run."""
        cause, duplicates = self._flow.halted, self._plan.creation.duplicates
        if cause is None:
            self._sent = True
            try:
                answer, trail = await self._plan.engine.drive(call, guard)
                return self._identified(answered(row.index, row.given, answer, trail), row.key)
            except OutreachError as error:
                error.__traceback__ = None  # an outcome that the caller keeps would keep the frames, and the response in them
                if concerns_every_row(error):
                    self._flow.halt(BulkStopped.over(error, "run stopped: this error affects every row"))
                elif error is not self._flow.drained and (self._flow.halted is None or is_final_answer(error)):
                    return failed(row.index, row.given, error, duplicates)
                cause = error
        self._plan.engine.abandon(call)
        if cause is not self._flow.drained:
            self._stop(self._flow.halted or cause)
        if self._record.resumable:
            return None
        return unfinished(row.index, row.given, cause, duplicates, attempts=call.begun, tainted=call.maybe_applied)

    def _identified(self, outcome: ContactOutcome, key: str) -> ContactOutcome:
        """Return the outcome. If another contact was given the same id, neither response can be trusted: revise both outcomes."""
        earlier, duplicates = self._ids.earlier(outcome.id, key, outcome.index), self._plan.creation.duplicates
        if earlier is None:
            return outcome
        self._record.revise(earlier, lambda other: misdirected(other, outcome.index, duplicates))
        return misdirected(outcome, earlier, duplicates)

    def _leave(self, row: Row, hand: _Hand) -> None:
        """Leave the current row without an outcome; the run then counts as unfinished, even if this was the last row."""
        self._exhausted = False
        self._ready.forget(row.index)
        if (suspect := hand.suspect()) is not None:
            self._suspects.append(suspect)

    def _stop(self, error: Exception) -> None:
        if isinstance(error, JournalError):
            self._flow.halt(error)  # a row whose outcome cannot be recorded must not be sent
        if isinstance(error, JournalError | InvalidRequest) and self._sent:  # the error is about the run, and rows have been sent
            error.maybe_sent = error.maybe_applied = True
        self._failure = self._failure or error
        self._pull_no_more()

    def _settle(self, outcome: ContactOutcome) -> None:
        self._record.settle(outcome)
        if (refusal := self._plan.rejects.judge(outcome)) is not None:
            self._flow.halt(refusal)
            self._stop(refusal)

    def _deliver(self, outcomes: Sequence[ContactOutcome]) -> None:
        self._done += len(outcomes)
        self._pace.add(len(outcomes))
        self._ready.extend(outcomes)
        self._news.set()

    def _teller(self) -> Teller | None:
        if self._plan.engine.hooks is None:
            return None
        from outreach_async.bulk.progress import Teller

        return Teller(self._flow.run, self._plan.engine.hooks)

    def _deliver_and_tell(self, teller: Teller, outcomes: Sequence[ContactOutcome]) -> None:
        for outcome in outcomes:
            teller.row(outcome)
        self._deliver(outcomes)

    async def _keep(self) -> None:
        """Record outcomes up to the last one, then how the run ended."""
        try:
            await self._record.run()
            with anyio.CancelScope(shield=True):  # a close that was cut short could not be retried: only the first call counts
                await self.close()
        except JournalError as error:
            self._stop(error)
        self._kept = True
        self._news.set()

    async def close(self) -> None:
        """Record how the run ended. A second call records nothing more.

        Raises:
            JournalError: The end could not be recorded.
        """
        state = self._state()
        try:
            await self._record.close(state, self._left())
        except JournalError as error:
            self._stop(error)
            raise
        self._states.close(state, self._flow.halted or self._failure)
        if isinstance(self._failure, JournalError):  # not raised yet: the caller left before the iteration could raise it
            failure, self._failure = self._failure, None
            raise failure

    def _state(self) -> State:
        if self._flow.halted is not None:
            return "suspended" if isinstance(self._flow.halted, BulkSuspended) else "stopped"
        return "finished" if self._exhausted and all(hand.done for hand in self._hands) else "interrupted"

    def _left(self) -> Suspects:
        """Return the rows without an outcome that may have been sent."""
        waiting = (row for rows in self._busy.values() for row in rows or ())
        hands = (suspect for hand in self._hands if (suspect := hand.suspect()) is not None)
        known = (row.index for row in waiting if row.tainted)
        return Suspects.of([*self._suspects, *hands, *known], self._record.intake.left().ranges)

    def _next_window(self) -> int:
        """Return how many rows to mark at once: about two seconds of sending."""
        # Each mark is a commit that the disk confirms, so a larger window costs less per row. But a crash makes every unanswered
        # row of the window uncertain, so it is no larger than the rate needs.
        rate = self._pace.rate(anyio.current_time())
        return max(self._plan.workers, min(int(2 * rate), LARGEST))
