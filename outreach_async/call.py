"""The state of one call: its time limits and the results of its attempts. This module does no I/O and never waits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

import attrs

from outreach_async.errors import DeadlineExceeded, OutreachError, TransportError, UnexpectedResponse
from outreach_async.limits import Throttle
from outreach_async.operations import Operation
from outreach_async.retry import FailureKind, maybe_applied
from outreach_async.transport.wire import Progress

T = TypeVar("T")


@attrs.frozen
class CallOptions:
    """Time limits of a call.

    Attributes:
        timeout: Timeout per attempt, in seconds; `None` for no limit.
        deadline: Limit in seconds over all attempts and waits; `None` for no limit. Within a bulk run or audit, waits do not use
            up the deadline. Failed attempts use it up only if they are attributed to the row, and not to the service.
    """

    timeout: float | None
    deadline: float | None


class Call(Generic[T]):
    """One call in progress.

    Args:
        operation: The operation to run.
        options: The time limits of the call.
        throttle: The throttle of the client, or of the bulk run or audit.
        now: Returns the time on the running event loop's clock.

    Attributes:
        operation: The operation to run.
        options: The time limits of the call.
        throttle: The throttle of the client, or of the bulk run or audit.
        now: Returns the time on the running event loop's clock.
        deadline_at: The time at which the deadline passes; infinite without a deadline and within a bulk run.
        not_before: The earliest time for the next attempt.
        started: Time at which the last attempt started.
        first_failed_at: Time at which the first attempt failed; infinite if none has failed.
        in_flight: Whether the throttle counts an attempt of this call as in flight.
        progress: Progress of the current attempt; `None` between attempts.
        attempts: Number of failed attempts.
        counted_failures: Number of failed attempts that count against the call. Within a bulk run, failures attributed to the
            service do not count.
        time_left: Seconds of the deadline that are left after subtracting the durations of the counted failures.
        budget_spent: Total amount that the call's retries have taken from the retry budget.
        maybe_applied_earlier: Whether the service may have applied an attempt before the current one, including attempts of an
            earlier process.
        maybe_applied: Whether the service may have applied any attempt.
        last_error: The error of the last failed attempt.
    """

    not_before = -math.inf
    started = 0.0
    first_failed_at = math.inf
    in_flight = False
    progress: Progress | None = None
    attempts = 0
    counted_failures = 0
    budget_spent = 0
    last_error: OutreachError | None = None
    maybe_applied_earlier = False
    _maybe_sent = False

    def __init__(self, operation: Operation[T], options: CallOptions, throttle: Throttle, now: Callable[[], float]) -> None:
        self.operation = operation
        self.options = options
        self.throttle = throttle
        self.now = now
        self.time_left = math.inf if options.deadline is None else options.deadline
        # A bulk run may pause for minutes for reasons unrelated to the row. Within a run, the deadline therefore limits the total
        # time of the attempts and is not a point in time. The run itself limits the waits.
        self.deadline_at = now() + self.time_left if throttle.run is None else math.inf

    def start_attempt(self, now: float) -> Progress:
        """Record that an attempt starts, and return a new progress for it."""
        self.started = now
        self.progress = Progress()
        return self.progress

    def attempt_deadline(self, now: float) -> float:
        """Return the time at which an attempt that starts now must end."""
        timeout = math.inf if self.options.timeout is None else self.options.timeout
        return min(now + timeout, now + self.time_left, self.deadline_at)

    def timeout_error(self, progress: Progress) -> OutreachError:
        """Return the error of the current attempt, which exceeded its own timeout or the call's deadline."""
        maybe_sent, name = progress.sent is not False, self.operation.name
        if self.attempt_deadline(self.started) < self.started + (self.options.timeout or math.inf):  # ended by the deadline
            text = f"{name}: no response within the deadline of {self.options.deadline:g} s"
            return DeadlineExceeded(text, maybe_sent=maybe_sent)
        return TransportError(f"{name}: no response within the timeout of {self.options.timeout:g} s", maybe_sent=maybe_sent)

    def record_failure(self, error: OutreachError, failure_kind: FailureKind) -> None:
        """Record a failed attempt. `maybe_applied` is never reset: no later attempt can prove that this one was not applied."""
        self.progress = None
        self.attempts += 1
        self.maybe_applied_earlier |= maybe_applied(error, failure_kind)
        self._maybe_sent |= error.maybe_sent

    def count_failure(self, now: float) -> None:
        """Count the last attempt as a failure of the call, and subtract its duration from `time_left`."""
        self.counted_failures += 1
        self.time_left -= now - self.started

    @property
    def started_attempts(self) -> int:
        """Number of started attempts, including the current one."""
        return self.attempts + (self.progress is not None)

    @property
    def maybe_applied(self) -> bool:
        """True if the service may have applied an attempt, including the current one, or may still apply it."""
        return self.maybe_applied_earlier or (self.progress is not None and self.progress.sent is not False)

    def fail(self, error: OutreachError, cause: OutreachError | None = None) -> NoReturn:
        """Set the error's attributes that describe the call and its attempts, and raise the error."""
        error.operation = self.operation.name
        error.attempts = self.attempts
        error.maybe_sent |= self._maybe_sent
        # A 2xx response that cannot be parsed still means that the service handled the request.
        error.maybe_applied = self.maybe_applied_earlier or isinstance(error, UnexpectedResponse)
        raise error from cause or error.__cause__
