"""The only place that awaits `Transport.send`: gate and slot, attempt, decision, answer, all under one deadline."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

import anyio
import attrs

from outreach_async.errors import DeadlineExceeded, OutreachError, RateLimited, TransportError, UnexpectedResponse
from outreach_async.logs import LOGGER
from outreach_async.operations import Operation, Trail
from outreach_async.pacing import Gate, RetryBudget, Slots
from outreach_async.refusals import refused, retry_after, scrubbed
from outreach_async.retry import Evidence, RetryPolicy, backoff, cost, may_repeat, taints, weigh
from outreach_async.transport.wire import Progress, Response, Transport

T = TypeVar("T")


_REFUSAL: Final = 300


@attrs.frozen
class Terms:
    """How long a call may take.

    Attributes:
        timeout: Seconds of one attempt; `None` for no bound.
        deadline: Seconds over all attempts and waits; `None` for no bound.
        patient: Count only the attempts' own time against the deadline, wait refusals out for as long as a `Retry-After` would be
            honoured, and never give up for an empty retry budget: what a row of a bulk run wants.
    """

    timeout: float | None
    deadline: float | None
    patient: bool = False


class _Call:
    """One call under way: its operation, its time, and what its attempts have shown."""

    __slots__ = (
        "attempts",
        "ends",
        "last",
        "left",
        "maybe_sent",
        "operation",
        "refusals",
        "refused_at",
        "spent",
        "tainted",
        "terms",
    )

    def __init__(self, operation: Operation[Any], terms: Terms) -> None:
        self.operation = operation
        self.terms = terms
        self.left = math.inf if terms.deadline is None else terms.deadline
        self.ends = math.inf if terms.patient else anyio.current_time() + self.left
        self.attempts = self.refusals = self.spent = 0
        self.refused_at = math.inf
        self.tainted = self.maybe_sent = False
        self.last: OutreachError | None = None

    def attempt_ends(self, now: float) -> float:
        """Return the instant at which an attempt that starts now must be over."""
        timeout = math.inf if self.terms.timeout is None else self.terms.timeout
        return min(now + timeout, self.call_ends(now))

    def call_ends(self, now: float) -> float:
        """Return the instant at which the call must be over; a patient call has its own time only."""
        return now + self.left if self.terms.patient else self.ends

    def learn(self, error: OutreachError, evidence: Evidence) -> None:
        """Take in what a failed attempt has shown."""
        self.last = error
        self.attempts += 1
        if evidence is Evidence.REFUSED:
            self.refusals += 1
            self.refused_at = min(self.refused_at, anyio.current_time())
        self.tainted |= taints(error, evidence)
        self.maybe_sent |= error.maybe_sent

    def exhausts(self, policy: RetryPolicy) -> bool:
        """Whether no attempt is left; a patient call's refusals count by their time instead of their number."""
        if not self.terms.patient:
            return self.attempts >= policy.attempts
        refused_for = anyio.current_time() - self.refused_at
        return self.attempts - self.refusals >= policy.attempts or refused_for >= policy.retry_after_cap

    def fail(self, error: OutreachError, cause: OutreachError | None = None) -> NoReturn:
        """Raise the error with all that the call knows."""
        error.operation = self.operation.name
        error.attempts = self.attempts
        error.maybe_sent |= self.maybe_sent
        error.maybe_applied = self.tainted or isinstance(error, UnexpectedResponse)
        raise error from cause or error.__cause__


class Engine:
    """Runs operations over one transport; shared by a client and all its copies.

    Args:
        transport: Carries the requests.
        max_in_flight: Requests at a time at most; the transport's own `max_in_flight` bounds it further.
        policy: How to repeat.
        wall: Returns Unix time in seconds, for a `Retry-After` given as a date.
    """

    def __init__(
        self, transport: Transport, *, max_in_flight: int, policy: RetryPolicy, wall: Callable[[], float] = time.time
    ) -> None:
        self.transport = transport
        self.max_in_flight = min(max_in_flight, getattr(transport, "max_in_flight", None) or max_in_flight)
        self._policy = policy
        self._wall = wall
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
        call = _Call(operation, terms)
        while True:
            await self._admit(call)
            try:
                answer = self._read(operation, call, await self._attempt(call))
            except DeadlineExceeded as error:
                call.fail(error, call.last)
            except OutreachError as error:
                await self._recover(call, error)
            else:
                self._budget.refund(call.spent or 1)
                return answer

    def _read(self, operation: Operation[T], call: _Call, response: Response) -> T:
        if response.status >= _REFUSAL and not operation.any_status:
            raise refused(operation.name, response, operation.secrets, now=self._wall())
        return operation.parse(response, Trail(call.attempts + 1, call.tainted))

    async def _attempt(self, call: _Call) -> Response:
        started = anyio.current_time()
        progress = Progress()
        try:
            with anyio.CancelScope(deadline=call.attempt_ends(started)) as scope:
                response = await self.transport.send(call.operation.request, progress)
        except Exception as error:  # noqa: BLE001 - a transport written elsewhere may raise anything; it is chained, not lost
            failure = error if isinstance(error, OutreachError) else _foreign(error, progress)
            raise scrubbed(failure, call.operation.secrets) from failure.__cause__
        finally:
            self._slots.give()
            call.left -= anyio.current_time() - started
        if scope.cancelled_caught:
            self._expire(call, progress)
        LOGGER.debug("%s: %d on attempt %d", call.operation.name, response.status, call.attempts + 1)
        return response

    async def _admit(self, call: _Call) -> None:
        """Wait for the gate and a slot, and keep the slot for the attempt; the gate may close again while a slot is waited for.

        What ends the call here is raised as it is: no attempt was made that could be repeated.
        """
        if self._gate.opens_at <= (now := anyio.current_time()) < call.call_ends(now) and self._slots.take():
            return  # the usual case costs no cancel scope
        with anyio.CancelScope(deadline=call.ends):
            while True:
                self._refuse_long_wait(call)
                await self._gate.wait()
                await self._slots.wait()
                now = anyio.current_time()
                if self._gate.opens_at <= now < call.call_ends(now):
                    return
                self._slots.give()
                if now >= call.call_ends(now):
                    break
        text = f"{call.operation.name}: no attempt could start within the deadline of {call.terms.deadline:g} s"
        call.fail(DeadlineExceeded(text), call.last)

    def _refuse_long_wait(self, call: _Call) -> None:
        if self._gate.opens_at >= call.ends:
            left = self._gate.opens_at - anyio.current_time()
            text = f"{call.operation.name}: the service asked to wait {left:.0f} s more, which is beyond the deadline"
            error = RateLimited(text, status_code=429)
            error.retry_after = left
            call.fail(error, call.last)

    def _expire(self, call: _Call, progress: Progress) -> NoReturn:
        maybe_sent = progress.sent is not False
        name = call.operation.name
        if call.call_ends(anyio.current_time()) <= anyio.current_time():
            call.attempts += 1
            call.tainted |= maybe_sent
            raise DeadlineExceeded(f"{name}: no answer within the deadline of {call.terms.deadline:g} s", maybe_sent=maybe_sent)
        raise TransportError(f"{name}: no answer within the timeout of {call.terms.timeout:g} s", maybe_sent=maybe_sent)

    async def _recover(self, call: _Call, error: OutreachError) -> None:
        """Wait until the call may be tried again, or raise."""
        repeat = call.operation.repeat
        evidence = weigh(error, repeat)
        call.learn(error, evidence)
        LOGGER.debug("%s: attempt %d failed: %s", call.operation.name, call.attempts, error)
        asked = self._heed(error, evidence)
        if not may_repeat(evidence, repeat) or call.exhausts(self._policy):
            call.fail(error)
        wait = backoff(self._policy, call.attempts)
        if anyio.current_time() + max(wait, asked) >= call.ends:
            self._give_up(call, error, evidence)
        if not self._afford(call, evidence):
            call.fail(error)
        await anyio.sleep(wait)  # the gate may add to it: a service that asks for 0 seconds is not asked without end

    def _heed(self, error: OutreachError, evidence: Evidence) -> float:
        """Hold back every task of the client for as long as a refusal asks, and return the seconds it asked for."""
        if evidence is not Evidence.REFUSED or (asked := retry_after(error.headers, now=self._wall())) is None:
            return 0.0
        self._gate.hold(anyio.current_time() + min(asked, self._policy.retry_after_cap))
        return asked

    def _give_up(self, call: _Call, error: OutreachError, evidence: Evidence) -> NoReturn:
        """Raise at once: the next attempt could only start after the deadline."""
        if evidence is Evidence.REFUSED:
            call.fail(error)
        call.fail(DeadlineExceeded(f"{error}; no further attempt fits into the deadline of {call.terms.deadline:g} s"), error)

    def _afford(self, call: _Call, evidence: Evidence) -> bool:
        if self._budget.spend(cost(evidence)):
            call.spent += cost(evidence)
            return True
        return call.terms.patient


def _foreign(error: Exception, progress: Progress) -> TransportError:
    unsent = progress.sent is False or (progress.sent is None and isinstance(error, ConnectionRefusedError))
    failure = TransportError(f"the transport failed: {type(error).__name__}", maybe_sent=not unsent)
    failure.__cause__ = error
    return failure
