"""The pipeline of a run: workers pull rows, send them, and pass the outcomes to one consumer.

Rows with the same key are sent one after the other, in the order of the input.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import anyio
import attrs
from anyio.abc import TaskGroup

from outreach_async._core.attempts import Call, CallOptions, Slots
from outreach_async._core.engine import Engine
from outreach_async._wire_words import Outcome
from outreach_async.bulk import _outcomes as outcomes
from outreach_async.bulk._cells import Blank
from outreach_async.bulk._direct import DirectRecorder
from outreach_async.bulk._exclusions import Finder, find_error
from outreach_async.bulk._outcomes import ContactOutcome
from outreach_async.bulk._ports import MAX_WINDOW_SIZE, EndState, OpenRecorder, Recorder, RunContext
from outreach_async.bulk._progress import BulkProgress, RateEstimator, StateReporter
from outreach_async.bulk._rows import CreateResult, ParsedRow, PossiblySent, Repeats, RowParser, email_of
from outreach_async.bulk._source import Source, approximate_size
from outreach_async.bulk._stream import StreamReader, cancelled_from_inside, was_cancelled_from_inside
from outreach_async.bulk._targets import fails_only_its_rows
from outreach_async.bulk._throttle import RunThrottle
from outreach_async.errors import BulkError, BulkStopped, BulkSuspended, InvalidRequest, JournalError, OutreachError


# One timer serves many attempts. In this example, two workers, A and B, have a timeout of 30 s. Each attempt of A gets
# its response after 0.5 s; the first attempt of B never gets a response:
#
#   seconds        0.0        0.2        0.5                 30.0           30.2
#                   |          |          |                   |              |
#   worker A        |-- attempt 1 --------|-- attempt 2 -- ... |-- attempt 61 ------------ ...
#     its deadline 30.0                  30.5                60.0
#   worker B                   |-- attempt 1 --------------------------------X  cancelled
#     its deadline            30.2                                          inf
#   the timer      set                                       fires          fires
#     `fires_at`   30.0                                      30.2           60.0
#
#    0.0  set: A's deadline, 30.0, is earlier than `fires_at`, which was infinite. The timer is woken and sets itself to 30.0.
#    0.2  unchanged: B's deadline, 30.2, is later than `fires_at`. The deadline is stored, and nothing else happens.
#    0.5  unchanged: A's response arrives. A's deadline becomes infinite, then 30.5 with the next attempt. Now `fires_at` is
#         earlier than every deadline, which is harmless: the timer fires once without effect.
#   30.0  fires and moves: no deadline has passed, so the timer moves to the earliest deadline, 30.2.
#   30.2  fires: B's deadline has passed, and B's scope is cancelled. B leaves the scope and continues its call in a new one,
#         where the attempt counts as timed out. The timer moves to the earliest deadline left, 60.0.
#
# Why not a cancel scope with a deadline for each attempt? That adds a timer to the event loop, and removes it again, for every
# attempt. With equal timeouts, an attempt that starts later also has a later deadline, so nearly every attempt costs only the two
# assignments of the step at 0.5 s. While responses are quick, the timer fires about once per timeout, however many attempts there
# are. Measured: about 1 us per attempt with the shared timer, 7.8 us with a scope for each attempt.
class AttemptTimer:
    """Cancels the scope of each worker whose attempt has exceeded its deadline."""

    def __init__(self) -> None:
        self.fires_at = math.inf
        self._deadlines: list[WorkerDeadline] = []
        self._rescheduled = anyio.Event()
        self._ended = False

    def create_deadline(self) -> WorkerDeadline:
        self._deadlines.append(deadline := WorkerDeadline(self))
        return deadline

    def wake(self) -> None:
        """Make the timer recompute `fires_at`, because a deadline is earlier."""
        self._rescheduled.set()

    def end(self) -> None:
        self._ended = True
        self.wake()

    async def run(self) -> None:
        """Watch the deadlines until `end` is called."""
        # There is no await between the first line of the loop and the wait. Therefore no deadline can be set between the
        # computation of `fires_at` and the new event, and no wake-up is lost.
        while not self._ended:
            now = anyio.current_time()
            for worker in self._deadlines:
                worker.expire(now)
            self.fires_at = min((worker.deadline for worker in self._deadlines), default=math.inf)
            self._rescheduled = anyio.Event()
            with anyio.CancelScope(deadline=self.fires_at):
                await self._rescheduled.wait()


class WorkerDeadline:
    """The deadline of a worker's cancel scope. Setting it is cheap: the timer is woken only if it would fire too late."""

    scope: anyio.CancelScope
    _deadline = math.inf

    def __init__(self, timer: AttemptTimer) -> None:
        self._timer = timer

    @property
    def deadline(self) -> float:
        return self._deadline

    @deadline.setter
    def deadline(self, value: float) -> None:
        self._deadline = value
        if value < self._timer.fires_at:
            self._timer.wake()

    def expire(self, now: float) -> None:
        if self._deadline <= now:
            self._deadline = math.inf  # cancel once: otherwise the timer would fire again and again until the worker reacts
            self.scope.cancel()


_MAX_LARGE_BYTES: Final = 32 * 2**20  # size of the large rows in the pipeline at which no other row enters


class _Worker:
    """The state of a worker: its current row and call. Both are kept when a timeout replaces the worker's cancel scope."""

    row: ParsedRow | None = None
    call: Call[CreateResult] | None = None
    done = False

    def possibly_sent_index(self) -> int | None:
        """Return the index of the worker's row if the row may have been sent and has no outcome; otherwise `None`."""
        if self.row is None:
            return None
        maybe_sent = self.row.maybe_sent if self.call is None else self.call.maybe_applied
        return self.row.index if maybe_sent else None


@attrs.frozen
class Plan:
    """The validated options of a run."""

    engine: Engine
    duplicates: str
    call_options: CallOptions
    source: Source
    workers: int
    order: outcomes.Order
    reject_streak: outcomes.RejectStreak
    parser: RowParser
    throttle: RunThrottle
    total: int | None
    repeats: Repeats
    blank: Blank | None
    exclusions: Sequence[Finder]


class Pipeline:
    """A bulk run: its workers, its recorder, and the outcomes that wait for the consumer."""

    _recorder: Recorder
    _window_slots: Slots

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._throttle = plan.throttle
        self._timer = AttemptTimer()
        self._state_reporter = StateReporter(self._throttle, lambda: self._delivered_count, plan.engine.observer)
        self._buffer: outcomes.OutcomeBuffer = outcomes.InputOrder() if plan.order == "input" else outcomes.CompletionOrder()
        self.reader: StreamReader | None = None
        """Reads an async iterable. It is run by the caller of `start`."""
        self._large_rows: dict[int, int] = {}  # the additional slots that they take, by index
        self._waiting_by_key: dict[str, deque[ParsedRow] | None] = {}  # no deque until a row waits for its key, which is rare
        self._recent_ids = outcomes.RecentIds()
        self._changed, self._is_awaited = anyio.Event(), False
        self._workers = [_Worker() for _ in range(plan.workers)]
        self._active_workers = plan.workers
        self._possibly_sent: list[int] = []
        self._pulling_ended = self._input_exhausted = self._recording_done = self._any_sent = False
        self._failure: Exception | None = None
        self._started_at = self._measured_at = 0.0
        self._delivered_count = 0

    async def open(self, open_recorder: OpenRecorder | None, *, only_counts: bool) -> None:
        """Open the store of the run, if it has one. With `only_counts`, nobody receives the outcomes of unchanged rows."""
        plan = self._plan
        if (stream := plan.source.stream) is not None:
            ahead = 0 if open_recorder is None else MAX_WINDOW_SIZE
            self.reader = StreamReader(stream, ahead=ahead, freeze=plan.source.freeze, read_again=plan.source.read_again)
        context = RunContext(
            self.reader or plan.source,
            plan.parser,
            self._next_window_size,
            self._deliver,
            only_counts=only_counts and not plan.engine.observer,
            width=plan.source.width,
            exclusions=plan.exclusions,
        )
        if open_recorder is None:
            self._recorder = DirectRecorder(
                context,
                self._buffer,
                workers=plan.workers,
                clock=plan.engine.clock(),
                free_slots=lambda: self._window_slots.free,
            )
        else:
            self._recorder = self._throttle.fence = await open_recorder(context)
        self._exclusions = self._plan.exclusions if self._recorder.ledger is None else ()  # a ledger applies them itself
        # Outcomes that are not recorded yet still occupy the window. Without room for this backlog, a slow disk would leave the
        # workers without rows.
        self._window_slots = Slots(max(plan.workers, self._recorder.backlog))

    def start(self, group: TaskGroup) -> None:
        """Start the workers in a task group that outlives the iteration."""
        self._started_at = self._measured_at = anyio.current_time()
        self._rate_estimator = RateEstimator(self._started_at)
        self._delivered_count = self._recorder.counts.rows
        if self._recorder.counts.accepted:  # by an earlier process
            self._plan.reject_streak.end()
        self._state_reporter.start(group)
        self._recorder.feed.start(group)
        group.start_soon(self._timer.run)
        group.start_soon(self._run_recorder)
        for worker in self._workers:
            group.start_soon(self._run_worker, worker)

    @property
    def report(self) -> outcomes.BulkReport:
        # `_measured_at` moves only when the consumer waits for an outcome, so the duration of a finished run no longer grows.
        report = self._recorder.counts.report(self._measured_at - self._started_at)
        counts = self._recorder.ledger
        return report if counts is None else attrs.evolve(report, ledger=attrs.evolve(counts))

    @property
    def progress(self) -> BulkProgress:
        now, rows = anyio.current_time(), self._recorder.counts.rows
        rate = min(self._rate_estimator.rate(now), self._throttle.limit or math.inf)
        left = None if self._plan.total is None else max(0, self._plan.total - rows)
        pause, state = max(0.0, self._throttle.opens_at - now), self._throttle.state(now)
        return BulkProgress(
            rows=rows,
            total=self._plan.total,
            rate=rate,
            state=state,
            resumes=pause,
            eta=None if left is None or not rate else pause + left / rate,
            why=self._throttle.pause_reason if state == "paused" else "",
        )

    def drain(self) -> None:
        self._stop_pulling()
        self._throttle.drain()

    def _stop_pulling(self) -> None:
        self._pulling_ended = True
        self._recorder.feed.stop()
        if self.reader is not None:
            self.reader.stop()

    async def next(self) -> ContactOutcome:
        """Return the next outcome. After the last one, raise `StopAsyncIteration`, or the error that ended the run."""
        # There is no await between the check of `_buffer` and the new event, so no delivery in between can be missed.
        while not self._buffer:
            self._measured_at = anyio.current_time()
            if self._recording_done:
                failure, self._failure = self._failure, None
                if isinstance(failure, BulkError):
                    failure.report, failure.resumable = self.report.to_dict(), self._recorder.resumable
                raise StopAsyncIteration if failure is None else failure
            self._changed, self._is_awaited = anyio.Event(), True
            await self._changed.wait()
            self._is_awaited = False
        outcome = self._buffer.popleft()
        self._release_slots(outcome.index)  # only when the consumer receives the outcome, so that memory stays bounded
        self._recorder.counts.add(outcome)
        return outcome

    def _release_slots(self, index: int) -> None:
        self._window_slots.release()
        if self._large_rows:
            for _ in range(self._large_rows.pop(index, 0)):
                self._window_slots.release()

    async def _run_worker(self, worker: _Worker) -> None:
        deadline, clock = self._timer.create_deadline(), self._plan.engine.clock()
        try:
            # One scope serves many rows. A timeout cancels the scope for good, so a new scope is opened, and the worker continues
            # with its current row and call.
            while not worker.done:
                try:
                    with anyio.CancelScope() as deadline.scope:
                        await self._process_rows(worker, deadline, clock)
                except anyio.get_cancelled_exc_class() as error:
                    if not was_cancelled_from_inside():
                        raise
                    self._halt(cancelled_from_inside("a request", error))
        except Exception as error:  # noqa: BLE001 - raised in the consumer, after the outcomes of the rows already read
            self._stop_run(error)
        finally:
            if worker.call is not None:
                self._plan.engine.discard(worker.call)
            self._active_workers -= 1
            if not self._active_workers:
                self._state_reporter.end()
                self._timer.end()
                self._recorder.end()

    async def _process_rows(self, worker: _Worker, deadline: WorkerDeadline, clock: Callable[[], float]) -> None:
        """Send rows until no row is left, or the worker's scope is cancelled."""
        options = self._plan.call_options
        while not deadline.scope.cancel_called:
            row = worker.row = worker.row or await self._next_row()
            if row is None:
                worker.done = True
                return
            if worker.call is None:
                worker.call = Call(row.operation, options, self._throttle, clock, row.request)
                worker.call.maybe_applied_earlier = row.maybe_sent
            outcome = await self._send(row, worker.call, deadline)
            if outcome is not None:
                self._recorder.record_outcome(outcome)
                self._check_rejects(outcome, rejected_before=row.rejected_before)
            else:  # the row is left without an outcome; the run then counts as unfinished, even if this was the last row
                self._input_exhausted = False
                self._buffer.forget(row.index)
                self._release_slots(row.index)  # wakes the workers that wait for a slot, so that they end too
                if (index := worker.possibly_sent_index()) is not None:
                    self._possibly_sent.append(index)
            if waiting := self._waiting_by_key[row.key]:
                worker.row = waiting.popleft()
            else:
                worker.row = None
                del self._waiting_by_key[row.key]
            worker.call = None

    async def _next_row(self) -> ParsedRow | None:
        """Pull rows until a row can be sent immediately, and return that row; `None` if no row is left."""
        # If another worker is sending a row with the same key, the pulled row is left to that worker.
        # This worker does not wait for a busy key: during the wait, one request fewer would be in flight.
        while True:  # also after the pulling has ended: rows that were pulled have an outcome
            if not self._window_slots.try_acquire():
                await self._window_slots.acquire()
            row = await self._recorder.feed.next()
            if row is None:
                self._input_exhausted |= not self._pulling_ended
                self._pulling_ended = True
                self._window_slots.release()
                return None
            if isinstance(row, outcomes.UnsentRows):
                self._deliver_unsent(row)
                continue
            if self._exclusions and (isinstance(row, ParsedRow) or outcomes.is_rejected_repeat(row)):
                row = self._exclude(row)
            size = len(row.request.body) if isinstance(row, ParsedRow) else approximate_size(row.contact)
            # A row of any size enters if there is room before it. Rows in the pipeline need no further row to leave it.
            if slots := size * self._window_slots.total // _MAX_LARGE_BYTES:
                self._large_rows[row.index] = slots
                self._window_slots.take(slots)
            self._buffer.expect(row.index)
            if isinstance(row, ContactOutcome):
                self._recorder.record_outcome(row)
            elif row.key not in self._waiting_by_key:
                self._waiting_by_key[row.key] = None
                return row
            elif waiting := self._waiting_by_key[row.key]:
                waiting.append(row)
            else:
                self._waiting_by_key[row.key] = deque([row])

    def _exclude(self, row: ParsedRow | ContactOutcome) -> ParsedRow | ContactOutcome:
        """Return the row or, if its person must not be written to, its outcome."""
        maybe_sent = isinstance(row, ParsedRow) and row.maybe_sent
        try:
            error = find_error(self._exclusions, row.email if isinstance(row, ParsedRow) else email_of(row.contact) or "")
        except Exception:  # of a function of the caller
            if maybe_sent:
                self._possibly_sent.append(row.index)
            raise
        if error is None:
            return row
        original = row.original if isinstance(row, ParsedRow) else row.contact
        if maybe_sent:  # by an earlier process, before the person was excluded
            options: dict[str, Any] = {"attempts": 0, "maybe_applied": True, "target": row.target}
            return outcomes.unfinished_outcome(row.index, original, error, self._plan.duplicates, **options)
        return outcomes.unsent_outcome(row.index, original, Outcome.EXCLUDED, error, target=row.target)

    def _deliver_unsent(self, unsent: outcomes.UnsentRows) -> None:
        """Deliver outcomes of rows that are not sent. Their worker has taken one slot for them."""
        for target, rows in unsent.unchanged.items():
            self._recorder.counts.add_unchanged(target, rows)
            self._delivered_count += rows
            self._rate_estimator.add(rows)
        if not (group := unsent.outcomes):
            self._window_slots.release()
            return
        self._window_slots.take(len(group) - 1)
        for outcome in group:
            self._buffer.expect(outcome.index)
        self._deliver(group)

    async def _send(self, row: ParsedRow, call: Call[CreateResult], deadline: WorkerDeadline) -> ContactOutcome | None:
        """Send a row and return its outcome; `None` if the run ended before the row had an outcome, and can be resumed."""
        # A row that was left, because it waited for a retry, must not be overtaken by a later one of its contact.
        cause, duplicates = self._throttle.halted or self._throttle.drained, self._plan.duplicates
        if cause is None:
            self._any_sent = True
            try:
                answer, attempts = await self._plan.engine.execute(call, deadline)
                outcome = outcomes.answered_outcome(row.index, row.original, answer, attempts, row.target)
                # If a row with another e-mail received the same id, or both were added, neither response can be trusted.
                if (other := self._recent_ids.find_earlier(outcome, row.key)) is not None:
                    revised = partial(outcomes.misdirected_outcome, other=row.index, duplicates=duplicates)
                    self._recorder.revise(other, revised)
                    return outcomes.misdirected_outcome(outcome, other, duplicates)
                # If an earlier call or run received the id, the outcome may be `not_applied`, and loses the id.
                return attrs.evolve(outcome, id=None) if Outcome.NOT_APPLIED in outcome.possible else outcome
            except OutreachError as error:
                error.__traceback__ = None  # its frames would keep the response in memory for as long as the outcome
                names_target = row.target is not self._plan.parser.targets.default
                if outcomes.affects_every_row(error) and not (names_target and fails_only_its_rows(error)):
                    stopped = outcomes.stopped_by(error, "this error affects every row", self._recorder.again)
                    self._throttle.halt(stopped)
                elif error is not self._throttle.drained and (self._throttle.halted is None or outcomes.is_final_answer(error)):
                    return outcomes.failed_outcome(row.index, row.original, error, duplicates, row.target)
                cause = error
        self._plan.engine.discard(call)
        if cause is not self._throttle.drained:
            self._stop_run(self._throttle.halted or cause)
        if self._recorder.resumable:
            return None
        return outcomes.unfinished_outcome(
            row.index,
            row.original,
            cause,
            duplicates,
            attempts=call.started_attempts,
            maybe_applied=call.maybe_applied,
            target=row.target,
        )

    def _stop_run(self, error: Exception) -> None:
        if isinstance(error, JournalError):
            self._throttle.halt(error)  # a row whose outcome cannot be recorded must not be sent
        if isinstance(error, JournalError | InvalidRequest) and self._any_sent:
            error.maybe_sent = error.maybe_applied = True  # the error concerns the whole run, and rows of it have been sent
        self._failure = self._failure or error
        self._stop_pulling()

    def _check_rejects(self, outcome: ContactOutcome, *, rejected_before: bool) -> None:
        streak = self._plan.reject_streak
        if not streak.remaining:
            return
        error = streak.check(outcome, rejected_before=rejected_before, again=self._recorder.again)
        if error is not None:
            self._halt(error)

    def _halt(self, error: BulkStopped) -> None:
        self._throttle.halt(error)
        self._stop_run(error)

    def _deliver(self, delivered: Sequence[ContactOutcome]) -> None:
        if observer := self._plan.engine.observer:
            for outcome in delivered:
                fields = {"index": outcome.index, "status": outcome.status, "attempts": outcome.attempts}
                observer.on_row(outcome.error, run=self._throttle.run, certain=outcome.certain, **fields)
        self._delivered_count += len(delivered)
        self._rate_estimator.add(len(delivered))
        self._buffer.extend(delivered)
        if self._is_awaited:
            self._changed.set()

    async def _run_recorder(self) -> None:
        """Record every outcome, then record how the run ended."""
        try:
            await self._recorder.run()
            with anyio.CancelScope(shield=True):  # a cancelled close cannot be retried: only its first call has an effect
                await self.close()
        except JournalError as error:
            self._stop_run(error)
        self._recording_done = True
        self._changed.set()

    async def close(self) -> None:
        """Record how the run ended, and which rows may have been sent. Only the first call records anything."""
        current = (index for worker in self._workers if (index := worker.possibly_sent_index()) is not None)
        waiting = (row.index for rows in self._waiting_by_key.values() for row in rows or () if row.maybe_sent)
        unpulled = self._recorder.feed.remaining_possibly_sent()
        possibly_sent = PossiblySent.of([*self._possibly_sent, *current, *waiting], unpulled.ranges)
        if (halted := self._throttle.halted) is not None:
            state: EndState = "suspended" if isinstance(halted, BulkSuspended) else "stopped"
        else:
            state = "finished" if self._input_exhausted and all(worker.done for worker in self._workers) else "interrupted"
        try:
            await self._recorder.close(state, possibly_sent)
        except JournalError as error:
            self._stop_run(error)
            raise
        self._state_reporter.close(state, self._throttle.halted or self._failure)
        if isinstance(self._failure, JournalError):  # not raised yet: the caller left before the iteration could raise it
            failure, self._failure = self._failure, None
            raise failure

    def _next_window_size(self) -> int:
        """Return the maximum size of the next window: about as many rows as are sent in two seconds."""
        # Each mark is a commit that the disk confirms, so a larger window costs less per row. But a crash makes every unanswered
        # row of a window uncertain.
        rate = self._rate_estimator.rate(anyio.current_time())
        return max(self._plan.workers, min(int(2 * rate), MAX_WINDOW_SIZE))
