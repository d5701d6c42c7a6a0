"""The engine: runs a call attempt by attempt, within its deadline. Nothing else in the client awaits `Transport.send`."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from outreach_async.call import Call, Flow, Terms, Verdict, running_clock
from outreach_async.errors import DeadlineExceeded, OutreachError, RateLimited, TransportError, forget_frames
from outreach_async.limits import Gate, RetryBudget, Slots
from outreach_async.logs import LOGGER, log_answer, log_failure, log_repeat
from outreach_async.operations import Operation, Trail
from outreach_async.responses import refused, retry_after, scrubbed
from outreach_async.retry import Evidence, RetryPolicy, backoff, cost, may_repeat, weigh
from outreach_async.transport.wire import Progress, Response, Transport

if TYPE_CHECKING:
    from outreach_async.hooks import Event

T = TypeVar("T")

_REFUSAL: Final = 300
_ENDINGS: Final = (Verdict.GIVE_UP, Verdict.HALT)


class Expiring(Protocol):
    """A cancel scope, or an object that stands in for one."""

    deadline: float
    """When it is cancelled, on the event loop's clock."""


class Engine:
    """Runs operations over one transport. A client and all its copies share one engine.

    Args:
        transport: Carries the requests.
        max_in_flight: Maximum number of requests in flight; the transport's own `max_in_flight` may lower it.
        policy: The retry policy.
        wall: Returns Unix time in seconds, for a `Retry-After` given as a date.
        hooks: Invoked with each event, by the classes that emit events.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        max_in_flight: int,
        policy: RetryPolicy,
        wall: Callable[[], float] = time.time,
        hooks: Callable[[Event], None] | None = None,
    ) -> None:
        self.transport = transport
        self.max_in_flight = min(max_in_flight, getattr(transport, "max_in_flight", None) or max_in_flight)
        self.policy = policy
        self.wall = wall
        self.hooks = hooks
        self._slots = Slots(self.max_in_flight)
        self._gate = Gate()
        self._budget = RetryBudget(policy.budget)

    async def run(self, operation: Operation[T], terms: Terms) -> T:
        """Run the operation and return its parsed response.

        Raises:
            TransportError: No complete response arrived.
            DeadlineExceeded: The deadline passed.
            StatusError: The service returned an error status.
            UnexpectedResponse: The response does not match the interface.
        """
        call = Call(operation, terms, running_clock())
        try:
            # A cancel scope cannot be used again after its deadline. Each attempt that times out ends its scope, and `drive` goes
            # on with the same call in a new one.
            while True:
                with anyio.CancelScope() as scope:
                    return await self.drive(call, scope)
        except BaseException as error:
            self.abandon(call)
            if isinstance(error, OutreachError):
                call.last = error.__traceback__ = None  # the frames hold the response, the request and the error itself
            raise

    def abandon(self, call: Call[Any]) -> None:
        """Note that a call is driven no further, whether or not it has ended."""

    async def drive(self, call: Call[T], scope: Expiring) -> T:
        """Run a call until its response, as `run` does, in a scope that is cancelled when an attempt runs out of time.

        The caller must then leave the scope and drive the same call again in a new one. One scope can serve many calls in
        sequence, until an attempt times out: a scope per attempt would cost more than everything else here.
        """
        # A progress that is still set means that the previous scope was cancelled during an attempt: the attempt timed out.
        if call.progress is not None:
            self._recover(call, call.lapse(call.progress))
        response: Response | None
        while True:
            if not self._admits(call):
                await self._queue(call)
            try:
                response = await self._attempt(call, scope)
                answer = self._read(call, response)
            except OutreachError as error:
                response = None  # a cancelled attempt may keep this frame alive in the event loop for a while
                error.__traceback__ = None  # the frames hold the error: a cycle that only the garbage collector would free
                self._recover(call, error)
            else:
                self._succeed(call, response)
                return answer
            # The transport may fail just as its time runs out. The scope is then cancelled, but the cancellation is not delivered
            # yet and would hit the next attempt. The checkpoint delivers it here, between two attempts.
            await checkpoint()

    def _read(self, call: Call[T], response: Response) -> T:
        operation = call.operation
        if response.status >= _REFUSAL and not operation.any_status:
            raise refused(operation.name, response, operation.secrets, now=self.wall())
        return operation.parse(response, Trail(call.attempts + 1, call.tainted))

    async def _attempt(self, call: Call[Any], scope: Expiring) -> Response:
        """Send the request once. If the scope is cancelled, the attempt's progress stays with the call."""
        now = call.now()
        progress = call.begin(now)
        scope.deadline = call.attempt_ends(now)
        try:
            response = await self.transport.send(call.operation.request, progress)
        except Exception as error:  # noqa: BLE001 - a transport written elsewhere may raise anything; it is chained, not lost
            failure = error if isinstance(error, OutreachError) else _foreign(error, progress)
            forget_frames(failure)  # frames of libraries hold keys and header fields, and masking cannot reach their locals
            raise scrubbed(failure, call.operation.secrets) from failure.__cause__
        except BaseException as error:
            forget_frames(error)
            raise
        finally:
            # The scope outlives the attempt, and waits between attempts have their own limits: they must not be cancelled by it.
            scope.deadline = math.inf
            self._slots.give()
        if LOGGER.isEnabledFor(logging.DEBUG):
            log_answer(call, response)
        return response

    def _succeed(self, call: Call[Any], response: Response) -> None:
        if call.terms.flow is None:
            self._budget.refund(call.spent or 1)
        else:
            call.terms.flow.answered(call.now(), call.started, response.headers)

    def _admits(self, call: Call[Any]) -> bool:
        """Reserve the start of an attempt if it may start at once. This is the fast path: it never awaits."""
        now, flow = call.now(), call.terms.flow
        if self._gate.opens_at > now or not call.resumes <= now < call.ends or not self._slots.free:
            return False
        # The flow counts the attempt as started, so it comes last. No task can take the free slot in between: nothing awaits.
        return (flow is None or flow.admits(now)) and self._slots.take()

    async def _queue(self, call: Call[Any]) -> None:
        """Wait for the call's own wait, the flow, the gate and a slot. The attempt keeps the slot.

        An error that ends the call here is raised directly: no attempt was made that could be retried.
        """
        with anyio.CancelScope(deadline=call.ends):
            while True:
                self._refuse_long_wait(call)
                # The slot comes last: a call that waits for a time must not hold a slot that another call could use.
                await self._turn(call)
                await self._slots.wait()
                # Another task's failure may have closed the gate during the wait for a slot.
                now = call.now()
                if self._gate.opens_at <= now < call.ends:
                    return
                self._forgo(call)  # if the deadline has passed, the scope cancels the next wait
        text = f"{call.operation.name}: no attempt could start within the deadline of {call.terms.deadline:g} s"
        call.fail(DeadlineExceeded(text), call.last)

    async def _turn(self, call: Call[Any]) -> None:
        if call.terms.flow is None:
            await anyio.sleep_until(call.resumes)
            await self._gate.wait()
        else:
            await call.terms.flow.turn(max(call.resumes, self._gate.opens_at))

    def _forgo(self, call: Call[Any]) -> None:
        """Release the slot and the reserved start of an attempt that cannot start after all."""
        self._slots.give()
        if call.terms.flow is not None:
            call.terms.flow.forgo()

    def _refuse_long_wait(self, call: Call[Any]) -> None:
        # Fail now rather than at the deadline: waiting cannot help.
        if self._gate.opens_at >= call.ends:
            left = self._gate.opens_at - call.now()
            text = f"{call.operation.name}: the service asked to wait {left:.0f} s more, which exceeds the deadline"
            error = RateLimited(text, status_code=429)
            error.retry_after = left
            call.fail(error, call.last)

    def _recover(self, call: Call[Any], error: OutreachError) -> None:
        """Decide when to retry the call, or raise."""
        evidence = weigh(error, call.operation.repeat)
        call.learn(error, evidence)
        log_failure(call, error, evidence)
        asked = self._heed(call, error, evidence)
        wait = backoff(self.policy, call.attempts)
        if call.terms.flow is None:
            self._repeat_alone(call, error, evidence, max(wait, asked or 0.0))
        else:
            _repeat_within(call.terms.flow, call, error, evidence, asked)
        call.last = error
        log_repeat(call, error, evidence, max(wait, asked or 0.0))
        # `Retry-After` acts through the gate and can only lengthen this wait. Without the backoff, a service that asks to wait
        # 0 seconds would receive retries in a tight loop.
        call.resumes = call.now() + wait

    def _repeat_alone(self, call: Call[Any], error: OutreachError, evidence: Evidence, wait: float) -> None:
        """Raise unless a call outside a run may be retried after this wait in seconds."""
        if isinstance(error, DeadlineExceeded):
            call.fail(error, call.last)
        if not may_repeat(evidence, call.operation.repeat) or call.attempts >= self.policy.attempts:
            call.fail(error)
        if call.now() + wait >= call.ends:
            self._give_up(call, error, evidence)
        # The budget comes last: a call that fails for another reason must not spend what other calls could retry with.
        if not self._budget.spend(cost(evidence)):
            call.fail(error)
        call.spent += cost(evidence)

    def _heed(self, call: Call[Any], error: OutreachError, evidence: Evidence) -> float | None:
        """Close the gate for as long as the service asks, and return the seconds it asked for; `None` if it did not ask."""
        if evidence is not Evidence.REFUSED or (asked := retry_after(error.headers, now=self.wall())) is None:
            return None
        # One throttled call holds back every call of the client, because the others would be throttled as well.
        self._gate.hold(call.now() + min(asked, self.policy.retry_after_cap))
        return asked

    def _give_up(self, call: Call[Any], error: OutreachError, evidence: Evidence) -> NoReturn:
        """Raise at once, because the next attempt could only start after the deadline."""
        if evidence is Evidence.REFUSED:
            call.fail(error)  # it has the service's `Retry-After`, which tells the caller when to try later
        call.fail(DeadlineExceeded(f"{error}; no further attempt fits within the deadline of {call.terms.deadline:g} s"), error)


def _repeat_within(flow: Flow, call: Call[Any], error: OutreachError, evidence: Evidence, asked: float | None) -> None:
    """Raise unless the flow allows a retry of the call."""
    # The flow comes first, whether or not the call may be retried: it counts the attempts in flight and must see every one end.
    verdict = flow.failed(error, evidence, blamed=call.blamed, asked=asked, started=call.started, now=call.now())
    if verdict is Verdict.BLAME:
        call.blame()
    if verdict in _ENDINGS or not may_repeat(evidence, call.operation.repeat):
        call.fail(error, call.last if isinstance(error, DeadlineExceeded) else None)
    if call.out_of_time:
        text = f"{call.operation.name}: its failed attempts used up the deadline of {call.terms.deadline:g} s"
        call.fail(DeadlineExceeded(text), error)


def _foreign(error: Exception, progress: Progress) -> TransportError:
    unsent = progress.sent is False or (progress.sent is None and isinstance(error, ConnectionRefusedError))
    failure = TransportError(f"the transport failed: {type(error).__name__}", maybe_sent=not unsent)
    failure.__cause__ = error
    failure.add_note(f"raised at {_place(error)}")
    return failure


def _place(error: Exception) -> str:
    """Return where an error was raised, innermost frame first, because its traceback is dropped."""
    calls = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        calls.append(f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}")
        trace = trace.tb_next
    return ", called from ".join(reversed(calls[1:]))  # the first frame is the engine's own
