"""The only place that awaits `Transport.send`: gate and slot, attempt, decision, answer, all under one deadline."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from outreach_async.calls import Call, Flow, Terms, Verdict, running_clock
from outreach_async.errors import DeadlineExceeded, OutreachError, RateLimited, TransportError, forget_frames
from outreach_async.logs import LOGGER, log_answer, log_failure, log_repeat
from outreach_async.operations import Operation, Trail
from outreach_async.pacing import Gate, RetryBudget, Slots
from outreach_async.refusals import refused, retry_after, scrubbed
from outreach_async.retry import Evidence, RetryPolicy, backoff, cost, may_repeat, weigh
from outreach_async.transport.wire import Progress, Response, Transport

if TYPE_CHECKING:
    from outreach_async.hooks import Event

T = TypeVar("T")

_REFUSAL: Final = 300
_ENDINGS: Final = (Verdict.GIVE_UP, Verdict.HALT)


class Expiring(Protocol):
    """A cancel scope, or what stands in for one."""

    deadline: float
    """The instant of the event loop's clock at which it is cancelled."""


class Engine:
    """Runs operations over one transport; shared by a client and all its copies.

    Args:
        transport: Carries the requests.
        max_in_flight: Requests at a time at most; the transport's own `max_in_flight` bounds it further.
        policy: How to repeat.
        wall: Returns Unix time in seconds, for a `Retry-After` given as a date.
        hooks: Are told of what happens, by those who look on.
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
        """Run the operation to its answer.

        Raises:
            TransportError: No answer arrived.
            DeadlineExceeded: The time ran out.
            StatusError: The service refused.
            UnexpectedResponse: The answer is not what the interface says.
        """
        call = Call(operation, terms, running_clock())
        try:
            while True:  # once more for each attempt that the scope ended
                with anyio.CancelScope() as scope:
                    return await self.drive(call, scope)
        except BaseException as error:
            self.abandon(call)
            if isinstance(error, OutreachError):
                call.last = error.__traceback__ = None  # the frames hold the answer, the request and the error itself
            raise

    def abandon(self, call: Call[Any]) -> None:
        """Take in that a call is driven no further, whether or not it came to its end."""

    async def drive(self, call: Call[T], scope: Expiring) -> T:
        """Drive a call to its answer, as `run` does, within a scope that is cancelled when an attempt's time runs out.

        The caller leaves such a scope and drives the call on in another. So one scope does for many calls that follow each other,
        until one of them needs it: a scope of its own for each attempt would cost more than all else here.
        """
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
                response = None  # an attempt that is cut short may leave this frame to the event loop for a while
                error.__traceback__ = None  # the frames hold the error: only the garbage collector would free them
                self._recover(call, error)
            else:
                self._succeed(call, response)
                return answer
            await checkpoint()  # leaves a scope whose time ran out even so

    def _read(self, call: Call[T], response: Response) -> T:
        operation = call.operation
        if response.status >= _REFUSAL and not operation.any_status:
            raise refused(operation.name, response, operation.secrets, now=self.wall())
        return operation.parse(response, Trail(call.attempts + 1, call.tainted))

    async def _attempt(self, call: Call[Any], scope: Expiring) -> Response:
        """Send once. Cut short by the scope, it leaves the attempt's progress with the call."""
        now = call.now()
        progress = call.begin(now)
        scope.deadline = call.attempt_ends(now)
        try:
            response = await self.transport.send(call.operation.request, progress)
        except Exception as error:  # noqa: BLE001 - a transport written elsewhere may raise anything; it is chained, not lost
            failure = error if isinstance(error, OutreachError) else _foreign(error, progress)
            forget_frames(failure)  # those of libraries hold keys and header fields, and no masking reaches their locals
            raise scrubbed(failure, call.operation.secrets) from failure.__cause__
        except BaseException as error:
            forget_frames(error)
            raise
        finally:
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
        """Take a slot for an attempt, if it may start at once."""
        now, flow = call.now(), call.terms.flow
        if self._gate.opens_at > now or not call.resumes <= now < call.ends or not self._slots.free:
            return False
        return (flow is None or flow.admits(now)) and self._slots.take()

    async def _queue(self, call: Call[Any]) -> None:
        """Wait for the call's own time, the flow, the gate and a slot, which the attempt keeps; the gate may close meanwhile.

        What ends the call here is raised as it is: no attempt was made that could be repeated.
        """
        with anyio.CancelScope(deadline=call.ends):
            while True:
                self._refuse_long_wait(call)
                await self._turn(call)
                await self._slots.wait()
                now = call.now()
                if self._gate.opens_at <= now < call.ends:
                    return
                self._forgo(call)  # if the call's time is over, the next wait ends it
        text = f"{call.operation.name}: no attempt could start within the deadline of {call.terms.deadline:g} s"
        call.fail(DeadlineExceeded(text), call.last)

    async def _turn(self, call: Call[Any]) -> None:
        if call.terms.flow is None:
            await anyio.sleep_until(call.resumes)
            await self._gate.wait()
        else:
            await call.terms.flow.turn(max(call.resumes, self._gate.opens_at))

    def _forgo(self, call: Call[Any]) -> None:
        """Give back what an attempt would have needed that cannot start after all."""
        self._slots.give()
        if call.terms.flow is not None:
            call.terms.flow.forgo()

    def _refuse_long_wait(self, call: Call[Any]) -> None:
        if self._gate.opens_at >= call.ends:
            left = self._gate.opens_at - call.now()
            text = f"{call.operation.name}: the service asked to wait {left:.0f} s more, which is beyond the deadline"
            error = RateLimited(text, status_code=429)
            error.retry_after = left
            call.fail(error, call.last)

    def _recover(self, call: Call[Any], error: OutreachError) -> None:
        """Settle when the call may be tried again, or raise."""
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
        call.resumes = call.now() + wait  # the gate may add to it: a service that asks for 0 seconds is not asked without end

    def _repeat_alone(self, call: Call[Any], error: OutreachError, evidence: Evidence, wait: float) -> None:
        """Raise unless a call of its own may be tried again after so long a wait."""
        if isinstance(error, DeadlineExceeded):
            call.fail(error, call.last)
        if not may_repeat(evidence, call.operation.repeat) or call.attempts >= self.policy.attempts:
            call.fail(error)
        if call.now() + wait >= call.ends:
            self._give_up(call, error, evidence)
        if not self._budget.spend(cost(evidence)):
            call.fail(error)
        call.spent += cost(evidence)

    def _heed(self, call: Call[Any], error: OutreachError, evidence: Evidence) -> float | None:
        """Hold back every task of the client for as long as a refusal asks, and return the seconds it asked for."""
        if evidence is not Evidence.REFUSED or (asked := retry_after(error.headers, now=self.wall())) is None:
            return None
        self._gate.hold(call.now() + min(asked, self.policy.retry_after_cap))
        return asked

    def _give_up(self, call: Call[Any], error: OutreachError, evidence: Evidence) -> NoReturn:
        """Raise at once: the next attempt could only start after the deadline."""
        if evidence is Evidence.REFUSED:
            call.fail(error)
        call.fail(DeadlineExceeded(f"{error}; no further attempt fits into the deadline of {call.terms.deadline:g} s"), error)


def _repeat_within(flow: Flow, call: Call[Any], error: OutreachError, evidence: Evidence, asked: float | None) -> None:
    """Raise unless the flow lets the call be tried again."""
    verdict = flow.failed(error, evidence, blamed=call.blamed, asked=asked, started=call.started, now=call.now())
    if verdict is Verdict.BLAME:
        call.blame()
    if verdict in _ENDINGS or not may_repeat(evidence, call.operation.repeat):
        call.fail(error, call.last if isinstance(error, DeadlineExceeded) else None)
    if call.out_of_time:
        text = f"{call.operation.name}: its own failures took all of its deadline of {call.terms.deadline:g} s"
        call.fail(DeadlineExceeded(text), error)


def _foreign(error: Exception, progress: Progress) -> TransportError:
    unsent = progress.sent is False or (progress.sent is None and isinstance(error, ConnectionRefusedError))
    failure = TransportError(f"the transport failed: {type(error).__name__}", maybe_sent=not unsent)
    failure.__cause__ = error
    failure.add_note(f"raised at {_place(error)}")
    return failure


def _place(error: Exception) -> str:
    """Say where an error was raised, innermost first, for its traceback is dropped."""
    calls = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        calls.append(f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}")
        trace = trace.tb_next
    return ", called from ".join(reversed(calls[1:]))  # the first is the engine's own
