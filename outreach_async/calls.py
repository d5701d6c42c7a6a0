"""One call under way, as a value: its time, and what its attempts have shown. Nothing here waits or sends."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

import attrs
from anyio.lowlevel import current_token

from outreach_async.errors import DeadlineExceeded, OutreachError, TransportError, UnexpectedResponse
from outreach_async.operations import Operation
from outreach_async.retry import Evidence, RetryPolicy, taints
from outreach_async.transport.wire import Progress

T = TypeVar("T")


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


def running_clock() -> Callable[[], float]:
    """Return the running event loop's clock: `anyio.current_time` looks for the loop each time, which is dearer than the rest."""
    return current_token().backend_class.current_time


class Call(Generic[T]):
    """One call under way.

    Args:
        operation: What is called.
        terms: How long it may take.
        now: The running event loop's clock.

    Attributes:
        operation: The same.
        terms: The same.
        now: The same.
        ends: The instant at which all waiting is over; a patient call waits without end.
        resumes: The instant before which the next attempt must not start.
        progress: Of the attempt under way; `None` between attempts.
        attempts: Attempts that failed.
        spent: What its repeats took from the retry budget.
        tainted: Whether an attempt may have been carried out.
        last: Why the last attempt failed.
    """

    resumes = -math.inf
    progress: Progress | None = None
    attempts = 0
    spent = 0
    tainted = False
    last: OutreachError | None = None
    _started = 0.0
    _refusals = 0
    _refused_at = math.inf
    _maybe_sent = False

    def __init__(self, operation: Operation[T], terms: Terms, now: Callable[[], float]) -> None:
        self.operation = operation
        self.terms = terms
        self.now = now
        self._left = math.inf if terms.deadline is None else terms.deadline
        self.ends = math.inf if terms.patient else now() + self._left

    def begin(self, now: float) -> Progress:
        """Begin an attempt."""
        self._started = now
        self.progress = Progress()
        return self.progress

    def attempt_ends(self, now: float) -> float:
        """Return the instant at which an attempt that starts now must be over."""
        timeout = math.inf if self.terms.timeout is None else self.terms.timeout
        return min(now + timeout, self.call_ends(now))

    def call_ends(self, now: float) -> float:
        """Return the instant at which the call must be over; a patient call has its own time only."""
        return now + self._left if self.terms.patient else self.ends

    def lapse(self, progress: Progress) -> TransportError:
        """End the attempt under way, whose time ran out.

        Raises:
            DeadlineExceeded: So did the call's.
        """
        maybe_sent = progress.sent is not False
        self._clock_out()
        name, now = self.operation.name, self.now()
        if self.call_ends(now) <= now:
            self.attempts += 1
            self.tainted |= maybe_sent
            text = f"{name}: no answer within the deadline of {self.terms.deadline:g} s"
            self.fail(DeadlineExceeded(text, maybe_sent=maybe_sent), self.last)
        return TransportError(f"{name}: no answer within the timeout of {self.terms.timeout:g} s", maybe_sent=maybe_sent)

    def _clock_out(self) -> None:
        if self.progress is not None:
            self._left -= self.now() - self._started
            self.progress = None

    def learn(self, error: OutreachError, evidence: Evidence) -> None:
        """Take in what a failed attempt has shown."""
        self._clock_out()
        self.last = error
        self.attempts += 1
        if evidence is Evidence.REFUSED:
            self._refusals += 1
            self._refused_at = min(self._refused_at, self.now())
        self.tainted |= taints(error, evidence)
        self._maybe_sent |= error.maybe_sent

    def exhausts(self, policy: RetryPolicy) -> bool:
        """Whether no attempt is left; a patient call's refusals count by their time instead of their number."""
        if not self.terms.patient:
            return self.attempts >= policy.attempts
        refused_for = self.now() - self._refused_at
        return self.attempts - self._refusals >= policy.attempts or refused_for >= policy.retry_after_cap

    def fail(self, error: OutreachError, cause: OutreachError | None = None) -> NoReturn:
        """Raise the error with all that the call knows."""
        error.operation = self.operation.name
        error.attempts = self.attempts
        error.maybe_sent |= self._maybe_sent
        error.maybe_applied = self.tainted or isinstance(error, UnexpectedResponse)
        raise error from cause or error.__cause__
