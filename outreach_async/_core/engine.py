"""The engine, which makes the attempts of every call. No other module of the client awaits `Transport.send`."""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar

import anyio
import attrs
from anyio.lowlevel import checkpoint, current_token

from outreach_async._core import retry
from outreach_async._core.attempts import Call, CallOptions, Throttle
from outreach_async._core.limits import Rate, RateLimiter, RatePoller, unix_time
from outreach_async._core.logs import LOGGER, log_failure, log_response, log_retry
from outreach_async._core.operations import AttemptInfo, CopyDetector, Operation
from outreach_async._core.responses import Destination, build_status_error, parse_retry_after, read_named_wait, scrub_error
from outreach_async.errors import DeadlineExceeded, InvalidRequest, OutreachError, RateLimited, TransportError, drop_tracebacks
from outreach_async.transport._urls import service_address
from outreach_async.transport._wire import PROXY_AUTHENTICATION_REQUIRED, Progress, Response, Transport

if TYPE_CHECKING:
    from outreach_async._core.events import Observer

T = TypeVar("T")

_MIN_ERROR_STATUS: Final = 300


def build_observer(hooks: object, transport: Transport) -> Observer | None:
    """Return what passes events to the hooks; `None` if there is no hook."""
    if isinstance(hooks, list | tuple) and not hooks:
        return None
    from outreach_async._core.events import Observer

    return Observer(hooks, service_address(transport))


class DeadlineScope(Protocol):
    """A cancel scope, or another object with a deadline on the event loop's clock."""

    deadline: float


@attrs.define(eq=False, repr=False, slots=False)
class Engine:
    """Runs operations over one transport. A client and all its copies share one engine."""

    transport: Transport
    max_in_flight: int = attrs.field(kw_only=True)
    policy: retry.RetryPolicy = attrs.field(kw_only=True)
    rate: float | Rate | None = attrs.field(default=None, kw_only=True)
    wall_clock: Callable[[], float] = attrs.field(default=unix_time, kw_only=True)
    observer: Observer | None = attrs.field(default=None, kw_only=True)
    limiter: RateLimiter = attrs.field(init=False)
    throttle: Throttle = attrs.field(init=False)
    rate_poller: RatePoller | None = attrs.field(init=False)
    copy_detector: CopyDetector = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Lower `max_in_flight` to the transport's limit, and create the limiter and the throttle that all calls share."""
        self.max_in_flight = min(self.max_in_flight, getattr(self.transport, "max_in_flight", None) or self.max_in_flight)
        shared = self.rate if isinstance(self.rate, Rate) else None
        self.limiter = RateLimiter(
            self.policy,
            max_in_flight=self.max_in_flight,
            rate=None if isinstance(self.rate, Rate) else self.rate,
            needs_share=shared is not None,
            wall_clock=self.wall_clock,
        )
        self.rate_poller = None if shared is None else RatePoller(shared, self.limiter)
        self.throttle = Throttle(self.limiter, self.policy)
        # After a copy, each later response on its connection would be taken for another request. No task has run since the
        # transport returned the copy, so the connection is still idle.
        self.copy_detector = CopyDetector(getattr(self.transport, "drop_idle", bool))

    def with_options(self, policy: retry.RetryPolicy, observer: Observer | None) -> Engine:
        """Return an engine with another retry policy and observer, which shares connections, limits and the retry budget."""
        if policy is self.policy and observer is self.observer:
            return self
        engine = object.__new__(type(self))
        vars(engine).update(vars(self))
        engine.policy, engine.observer, engine.throttle = policy, observer, self.throttle.with_policy(policy)
        return engine

    def __reduce_ex__(self, _protocol: object, /) -> NoReturn:
        """Say why a client, a resource, a pager or a run cannot be pickled: all of them refer to an engine."""
        remedy = "pass the client's options, and make a client in each process"
        raise InvalidRequest(f"pickle: expected data that can be copied, got a client or an object of a client; {remedy}")

    def clock(self) -> Callable[[], float]:
        """Prepare the rate limiter for the running event loop, and return the clock of this loop."""
        loop = current_token()
        # An asyncio loop's own clock is twice as fast as its backend's, which is faster than `anyio.current_time`.
        clock: Callable[[], float] = getattr(loop.native_token, "time", loop.backend_class.current_time)
        self.limiter.use_loop(loop.native_token, clock)
        return clock

    def require_open(self) -> None:
        if self.rate_poller is not None:
            self.rate_poller.require_running()

    async def run(self, operation: Operation[T], options: CallOptions, throttle: Throttle | None = None) -> T:
        # The default `throttle` is the client's; a bulk run or an audit passes its own throttle.
        self.require_open()
        call = Call(operation, options, throttle or self.throttle, self.clock())
        try:
            # A cancel scope cannot be used again after its deadline. Each attempt that times out ends its scope, and `execute`
            # continues the same call in a new one.
            while True:
                with anyio.CancelScope() as scope:
                    return await self.execute(call, scope)
        except BaseException as error:
            self.discard(call)
            if isinstance(error, OutreachError):
                call.last_error = error.__traceback__ = None  # the frames reference the response, the request and the error
            raise

    def discard(self, call: Call[Any]) -> None:
        """End a call that will not be continued, unless it has already ended."""
        if call.in_flight:
            call.in_flight = False
            call.throttle.on_cancelled(call.now(), call.started)
        if self.observer:
            self.observer.on_call_discarded(call)

    async def execute(self, call: Call[T], scope: DeadlineScope) -> T:
        """Run a call inside `scope`, and return its parsed response."""
        # An attempt that times out cancels `scope`. The caller must then leave the scope, and pass the same call and a new scope
        # to this method. The method then retries the call or raises its error.
        # Until an attempt times out, one scope can serve any number of calls, one after another. Reusing a scope saves time,
        # because creating one takes longer than the rest of this method.
        response: Response | None
        if self.observer:
            self.observer.on_call_executed(call)
        try:
            # A progress that is still set means that the previous scope was cancelled during an attempt: the attempt timed out.
            if call.progress is not None:
                self._on_failure(call, call.timeout_error(call.progress))
            while True:
                now = call.now()  # the attempt starts without awaiting, if that is possible
                if not (call.not_before <= now < call.deadline_at and call.throttle.try_start(now)):
                    await self._wait_to_start(call)
                    now = call.now()
                call.in_flight = True  # no task switch since the start: a cancelled call cannot lose it
                try:
                    response = await self._send_attempt(call, scope, now)
                    answer = self._parse_response(call, response)
                except OutreachError as error:
                    response = None  # a cancelled attempt may keep this frame alive in the event loop for a while
                    error.__traceback__ = None  # the frames reference the error: a cycle that only the garbage collector frees
                    self._on_failure(call, error)
                else:
                    call.in_flight = False
                    call.throttle.on_success(call.now(), call.started, response.headers, call.budget_spent)
                    break
                # The transport may fail just as the attempt's time runs out. The scope is then cancelled, but the cancellation is
                # not delivered yet and would hit the next attempt. The checkpoint delivers it here, between two attempts.
                await checkpoint()
        # A cancellation does not end the call: an attempt that timed out leaves its scope this way and may be retried. `discard`
        # ends calls that are really cancelled.
        except Exception as error:
            if self.observer:
                self.observer.on_call_ended(call, error)
            raise
        if self.observer:
            self.observer.on_call_ended(call)
        return answer

    def _parse_response(self, call: Call[T], response: Response) -> T:
        operation = call.operation
        if response.status >= _MIN_ERROR_STATUS and not operation.any_status:
            destination = Destination(
                service_address(self.transport), getattr(self.transport, "proxy", None), operation.request.target
            )
            error = build_status_error(
                operation.name, response, operation.secrets, now=self.wall_clock(), destination=destination
            )
            if response.status == PROXY_AUTHENTICATION_REQUIRED and call.progress is not None:
                error.maybe_sent = call.progress.sent is not False  # not if it answered CONNECT, which comes before the request
            raise error
        return operation.parse(response, AttemptInfo(call.attempts + 1, call.maybe_applied_earlier))

    async def _send_attempt(self, call: Call[Any], scope: DeadlineScope, now: float) -> Response:
        """Send the request once. If the scope is cancelled, `call.progress` still contains the progress of the attempt."""
        result: Response | OutreachError | None = None  # stays `None` if the attempt is cancelled
        if self.observer:
            self.observer.on_attempt_started(call)
        call.started, call.progress = now, (progress := call.throttle.create_progress())
        scope.deadline = call.attempt_deadline(now)
        try:
            result = response = await self.transport.send(call.request, progress)
        except Exception as error:  # noqa: BLE001 - a third-party transport may raise anything; the error is chained
            failure = error if isinstance(error, OutreachError) else _wrap_foreign_error(error, progress)
            drop_tracebacks(failure)  # frames of libraries contain keys and header fields, and masking cannot reach their locals
            result = scrub_error(failure, call.operation.secrets)
            try:
                raise result from failure.__cause__
            finally:
                result.__context__ = None  # `raise` has set it to the error before it was scrubbed, and pickles may contain it
        except BaseException as error:
            drop_tracebacks(error)
            raise
        finally:
            # The scope outlives the attempt. It must not cancel the waits between attempts, which have limits of their own.
            scope.deadline = math.inf
            if self.observer:
                self.observer.on_attempt_ended(call, result)
        if LOGGER.isEnabledFor(logging.DEBUG):
            log_response(call, response)
        return response

    async def _wait_to_start(self, call: Call[Any]) -> None:
        """Wait until the call's backoff has passed and the throttle permits an attempt, and start the attempt."""
        # An error during the wait ends the call. It is not passed to `_on_failure`, because it is not a failed attempt.
        now = call.now()
        gate = call.throttle.gate
        if gate.opens_at > now and gate.opens_at >= call.deadline_at:
            # Fail now rather than at the deadline: waiting cannot help.
            error = RateLimited(f"{call.operation.name}: {gate.describe(now)}, which exceeds the deadline", status_code=429)
            error.retry_after = gate.opens_at - now
            call.fail(error, call.last_error)
        with anyio.CancelScope(deadline=call.deadline_at):
            await call.throttle.wait_and_start(call.not_before)
            now = call.now()
            if now < call.deadline_at:
                return
            call.throttle.on_cancelled(now, now)  # the deadline passed just as the wait ended
        text = f"{call.operation.name}: no attempt could start within the deadline of {call.options.deadline:g} s"
        if gate.opens_at > (now := call.now()):
            text += f"; {gate.describe(now)}"
        if self.rate_poller is not None and self.rate_poller.failure is not None:
            text += f"; renewing the share of the rate failed: {self.rate_poller.failure}"
        call.fail(DeadlineExceeded(text), call.last_error)

    def _on_failure(self, call: Call[Any], error: OutreachError) -> None:
        """Schedule a retry of the call after a failed attempt, or raise the error that ends the call."""
        if error.named_wait is not None:
            error.named_wait = read_named_wait(error.body, call.request.body)
        failure_kind = retry.classify(error, call.operation.idempotency)
        call.record_failure(error, failure_kind)
        log_failure(call, error, failure_kind)
        is_refusal = failure_kind is retry.FailureKind.REFUSED
        retry_after = parse_retry_after(error.headers, now=self.wall_clock()) if is_refusal else None
        if retry_after is None:
            retry_after = error.named_wait or None
        backoff = retry.backoff_delay(self.policy, call.attempts)
        wait = max(backoff, retry_after or 0.0)
        now = call.now()
        retryable = retry.is_retryable(failure_kind, call.operation.idempotency)
        in_time = now + wait < call.deadline_at
        call.first_failed_at = min(call.first_failed_at, now)
        # The throttle decides first, whether or not the call may be retried: it counts the attempts in flight, and must see every
        # one of them end.
        attempt = retry.FailedAttempt(
            error,
            failure_kind,
            call.started,
            now,
            call.counted_failures,
            retry_after,
            can_retry=retryable and in_time,
            can_wait=call.operation.idempotency is retry.Idempotency.SAFE and call.deadline_at < math.inf,
            earlier_failures=call.attempts - 1,
            first_failed_at=call.first_failed_at,
            run=call.throttle.run,
        )
        call.in_flight = False
        decision = call.throttle.on_failure(attempt)
        if decision is retry.RetryDecision.RETRY_COUNTED:
            call.counted_failures += 1
            call.time_left -= now - call.started
        if not retryable or decision in (retry.RetryDecision.GIVE_UP, retry.RetryDecision.STOP_RUN):
            call.fail(error, call.last_error if isinstance(error, DeadlineExceeded) else None)
        if not in_time:  # fail now: the next attempt could only start after the deadline
            if is_refusal:
                call.fail(error)  # the error has the service's `Retry-After`, the time at which the caller may retry
            text = f"{error}; no further attempt fits within the deadline of {call.options.deadline:g} s"
            call.fail(DeadlineExceeded(text), error)
        if call.time_left <= 0:  # within a run, where waits do not use up the deadline
            text = f"{call.operation.name}: failed attempts used up the deadline of {call.options.deadline:g} s"
            call.fail(DeadlineExceeded(text), error)
        if decision is retry.RetryDecision.RETRY_COUNTED:
            call.budget_spent += retry.retry_cost(failure_kind)
        call.last_error = error
        log_retry(call, error, failure_kind, wait)
        # `Retry-After` also acts through the gate, unless it is about this call alone. Without the backoff, a service that asks
        # to wait 0 seconds would receive retries in a tight loop.
        call.not_before = now + max(backoff, min(retry_after or 0.0, self.policy.retry_after_cap))
        if self.observer:
            self.observer.on_retry(call, error, failure_kind)


def _wrap_foreign_error(error: Exception, progress: Progress) -> TransportError:
    unsent = progress.sent is False or (progress.sent is None and isinstance(error, ConnectionRefusedError))
    failure = TransportError(f"the transport failed: {type(error).__name__}", maybe_sent=not unsent)
    failure.__cause__ = error
    # The traceback is dropped, so a note lists where the error was raised, innermost frame first. The outermost frame is left
    # out, because it is the engine's own.
    frames = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False)[:0:-1]
    calls = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
    failure.add_note(f"raised at {', called from '.join(calls)}")
    return failure
