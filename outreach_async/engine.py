"""The engine: runs a call attempt by attempt, within its deadline. Nothing else in the client awaits `Transport.send`."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from outreach_async.call import Call, CallOptions, RetryDecision, Throttle, event_loop_clock
from outreach_async.errors import DeadlineExceeded, OutreachError, RateLimited, TransportError, drop_tracebacks
from outreach_async.limits import RequestSlots, RetryAfterGate, RetryBudget
from outreach_async.logs import LOGGER, log_failure, log_response, log_retry
from outreach_async.operations import AttemptInfo, Operation
from outreach_async.responses import build_status_error, parse_retry_after, scrub_error
from outreach_async.retry import FailureKind, RetryPolicy, backoff_delay, classify, is_retryable, retry_cost
from outreach_async.transport.wire import Progress, Response, Transport

if TYPE_CHECKING:
    from outreach_async.hooks import Event

T = TypeVar("T")

_MIN_ERROR_STATUS: Final = 300
_FINAL_DECISIONS: Final = (RetryDecision.GIVE_UP, RetryDecision.STOP_RUN)


class DeadlineScope(Protocol):
    """A cancel scope, or an object that stands in for one."""

    deadline: float
    """When it is cancelled, on the event loop's clock."""


class Engine:
    """Runs operations over one transport. A client and all its copies share one engine.

    Args:
        transport: Carries the requests.
        max_in_flight: Maximum number of requests in flight; the transport's own `max_in_flight` may lower it.
        policy: The retry policy.
        wall_clock: Returns Unix time in seconds, for a `Retry-After` given as a date.
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
        self.wall_clock = wall
        self.hooks = hooks
        self._slots = RequestSlots(self.max_in_flight)
        self._gate = RetryAfterGate()
        self._budget = RetryBudget(policy.budget)

    async def run(self, operation: Operation[T], terms: CallOptions) -> T:
        """Run the operation and return its parsed response.

        Raises:
            TransportError: No complete response arrived.
            DeadlineExceeded: The deadline passed.
            StatusError: The service returned an error status.
            UnexpectedResponse: The response does not match the interface.
        """
        call = Call(operation, terms, event_loop_clock())
        try:
            # A cancel scope cannot be used again after its deadline. Each attempt that times out ends its scope, and `execute`
            # continues the same call in a new one.
            while True:
                with anyio.CancelScope() as scope:
                    return await self.execute(call, scope)
        except BaseException as error:
            self.discard(call)
            if isinstance(error, OutreachError):
                call.last_error = error.__traceback__ = None  # the frames hold the response, the request and the error itself
            raise

    def discard(self, call: Call[Any]) -> None:
        """Note that a call is driven no further, whether or not it has ended."""

    async def execute(self, call: Call[T], scope: DeadlineScope) -> T:
        """Run a call until its response, as `run` does, in a scope that is cancelled when an attempt runs out of time.

        The caller must then leave the scope and drive the same call again in a new one. One scope can serve many calls in
        sequence, until an attempt times out: a scope per attempt would cost more than everything else here.
        """
        # A progress that is still set means that the previous scope was cancelled during an attempt: the attempt timed out.
        if call.progress is not None:
            self._on_failure(call, call.timeout_error(call.progress))
        response: Response | None
        while True:
            if not self._try_start(call):
                await self._wait_to_start(call)
            try:
                response = await self._send_attempt(call, scope)
                answer = self._parse_response(call, response)
            except OutreachError as error:
                response = None  # a cancelled attempt may keep this frame alive in the event loop for a while
                error.__traceback__ = None  # the frames hold the error: a cycle that only the garbage collector would free
                self._on_failure(call, error)
            else:
                self._on_success(call, response)
                return answer
            # The transport may fail just as its time runs out. The scope is then cancelled, but the cancellation is not delivered
            # yet and would hit the next attempt. The checkpoint delivers it here, between two attempts.
            await checkpoint()

    def _parse_response(self, call: Call[T], response: Response) -> T:
        operation = call.operation
        if response.status >= _MIN_ERROR_STATUS and not operation.any_status:
            raise build_status_error(operation.name, response, operation.secrets, now=self.wall_clock())
        return operation.parse(response, AttemptInfo(call.attempts + 1, call.maybe_applied_earlier))

    async def _send_attempt(self, call: Call[Any], scope: DeadlineScope) -> Response:
        """Send the request once. If the scope is cancelled, the attempt's progress stays with the call."""
        now = call.now()
        progress = call.start_attempt(now)
        scope.deadline = call.attempt_deadline(now)
        try:
            response = await self.transport.send(call.operation.request, progress)
        except Exception as error:  # noqa: BLE001 - a transport written elsewhere may raise anything; it is chained, not lost
            failure = error if isinstance(error, OutreachError) else _wrap_foreign_error(error, progress)
            drop_tracebacks(failure)  # frames of libraries hold keys and header fields, and masking cannot reach their locals
            raise scrub_error(failure, call.operation.secrets) from failure.__cause__
        except BaseException as error:
            drop_tracebacks(error)
            raise
        finally:
            # The scope outlives the attempt, and waits between attempts have their own limits: they must not be cancelled by it.
            scope.deadline = math.inf
            self._slots.release()
        if LOGGER.isEnabledFor(logging.DEBUG):
            log_response(call, response)
        return response

    def _on_success(self, call: Call[Any], response: Response) -> None:
        if call.options.throttle is None:
            self._budget.refund(call.budget_spent or 1)
        else:
            call.options.throttle.on_success(call.now(), call.started, response.headers)

    def _try_start(self, call: Call[Any]) -> bool:
        """Reserve the start of an attempt if it may start at once. This is the fast path: it never awaits."""
        now, flow = call.now(), call.options.throttle
        if self._gate.opens_at > now or not call.not_before <= now < call.deadline_at or not self._slots.free:
            return False
        # The flow counts the attempt as started, so it comes last. No task can take the free slot in between: nothing awaits.
        return (flow is None or flow.try_start(now)) and self._slots.try_acquire()

    async def _wait_to_start(self, call: Call[Any]) -> None:
        """Wait for the call's own wait, the flow, the gate and a slot. The attempt keeps the slot.

        An error that ends the call here is raised directly: no attempt was made that could be retried.
        """
        with anyio.CancelScope(deadline=call.deadline_at):
            while True:
                self._reject_long_wait(call)
                # The slot comes last: a call that waits for a time must not hold a slot that another call could use.
                await self._wait_for_throttle(call)
                await self._slots.acquire()
                # Another task's failure may have closed the gate during the wait for a slot.
                now = call.now()
                if self._gate.opens_at <= now < call.deadline_at:
                    return
                self._release_start(call)  # if the deadline has passed, the scope cancels the next wait
        text = f"{call.operation.name}: no attempt could start within the deadline of {call.options.deadline:g} s"
        call.fail(DeadlineExceeded(text), call.last_error)

    async def _wait_for_throttle(self, call: Call[Any]) -> None:
        if call.options.throttle is None:
            await anyio.sleep_until(call.not_before)
            await self._gate.wait()
        else:
            await call.options.throttle.wait_and_start(max(call.not_before, self._gate.opens_at))

    def _release_start(self, call: Call[Any]) -> None:
        """Release the slot and the reserved start of an attempt that cannot start after all."""
        self._slots.release()
        if call.options.throttle is not None:
            call.options.throttle.cancel_start()

    def _reject_long_wait(self, call: Call[Any]) -> None:
        # Fail now rather than at the deadline: waiting cannot help.
        if self._gate.opens_at >= call.deadline_at:
            left = self._gate.opens_at - call.now()
            text = f"{call.operation.name}: the service asked to wait {left:.0f} s more, which exceeds the deadline"
            error = RateLimited(text, status_code=429)
            error.retry_after = left
            call.fail(error, call.last_error)

    def _on_failure(self, call: Call[Any], error: OutreachError) -> None:
        """Decide when to retry the call, or raise."""
        evidence = classify(error, call.operation.idempotency)
        call.record_failure(error, evidence)
        log_failure(call, error, evidence)
        asked = self._apply_retry_after(call, error, evidence)
        wait = backoff_delay(self.policy, call.attempts)
        if call.options.throttle is None:
            self._check_retry(call, error, evidence, max(wait, asked or 0.0))
        else:
            _check_run_retry(call.options.throttle, call, error, evidence, asked)
        call.last_error = error
        log_retry(call, error, evidence, max(wait, asked or 0.0))
        # `Retry-After` acts through the gate and can only lengthen this wait. Without the backoff, a service that asks to wait
        # 0 seconds would receive retries in a tight loop.
        call.not_before = call.now() + wait

    def _check_retry(self, call: Call[Any], error: OutreachError, evidence: FailureKind, wait: float) -> None:
        """Raise unless a call outside a run may be retried after this wait in seconds."""
        if isinstance(error, DeadlineExceeded):
            call.fail(error, call.last_error)
        if not is_retryable(evidence, call.operation.idempotency) or call.attempts >= self.policy.attempts:
            call.fail(error)
        if call.now() + wait >= call.deadline_at:
            self._raise_past_deadline(call, error, evidence)
        # The budget comes last: a call that fails for another reason must not spend what other calls could retry with.
        if not self._budget.try_spend(retry_cost(evidence)):
            call.fail(error)
        call.budget_spent += retry_cost(evidence)

    def _apply_retry_after(self, call: Call[Any], error: OutreachError, evidence: FailureKind) -> float | None:
        """Close the gate for as long as the service asks, and return the seconds it asked for; `None` if it did not ask."""
        if evidence is not FailureKind.REFUSED or (asked := parse_retry_after(error.headers, now=self.wall_clock())) is None:
            return None
        # One throttled call holds back every call of the client, because the others would be throttled as well.
        self._gate.close_until(call.now() + min(asked, self.policy.retry_after_cap))
        return asked

    def _raise_past_deadline(self, call: Call[Any], error: OutreachError, evidence: FailureKind) -> NoReturn:
        """Raise at once, because the next attempt could only start after the deadline."""
        if evidence is FailureKind.REFUSED:
            call.fail(error)  # it has the service's `Retry-After`, which tells the caller when to try later
        call.fail(DeadlineExceeded(f"{error}; no further attempt fits within the deadline of {call.options.deadline:g} s"), error)


def _check_run_retry(flow: Throttle, call: Call[Any], error: OutreachError, evidence: FailureKind, asked: float | None) -> None:
    """Raise unless the flow allows a retry of the call."""
    # The flow comes first, whether or not the call may be retried: it counts the attempts in flight and must see every one end.
    verdict = flow.on_failure(error, evidence, blamed=call.counted_failures, asked=asked, started=call.started, now=call.now())
    if verdict is RetryDecision.RETRY_COUNTED:
        call.count_failure()
    if verdict in _FINAL_DECISIONS or not is_retryable(evidence, call.operation.idempotency):
        call.fail(error, call.last_error if isinstance(error, DeadlineExceeded) else None)
    if call.is_out_of_time:
        text = f"{call.operation.name}: its failed attempts used up the deadline of {call.options.deadline:g} s"
        call.fail(DeadlineExceeded(text), error)


def _wrap_foreign_error(error: Exception, progress: Progress) -> TransportError:
    unsent = progress.sent is False or (progress.sent is None and isinstance(error, ConnectionRefusedError))
    failure = TransportError(f"the transport failed: {type(error).__name__}", maybe_sent=not unsent)
    failure.__cause__ = error
    failure.add_note(f"raised at {_format_location(error)}")
    return failure


def _format_location(error: Exception) -> str:
    """Return where an error was raised, innermost frame first, because its traceback is dropped."""
    calls = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        calls.append(f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}")
        trace = trace.tb_next
    return ", called from ".join(reversed(calls[1:]))  # the first frame is the engine's own
