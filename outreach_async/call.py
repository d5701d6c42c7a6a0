"""The state of one call: its time limits and the results of its attempts. Nothing here waits or sends."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Generic, NoReturn, Protocol, TypeVar

import attrs
from anyio.lowlevel import current_token

from outreach_async.errors import DeadlineExceeded, OutreachError, TransportError, UnexpectedResponse
from outreach_async.operations import Operation
from outreach_async.retry import Evidence, taints
from outreach_async.transport.wire import Progress

T = TypeVar("T")


class Verdict(Enum):
    """A run's decision after a failed attempt of one of its rows."""

    REPEAT = "retry; the service or the network failed, and the failure does not count against the row"
    BLAME = "retry; other rows succeed, and the failure counts against this row"
    GIVE_UP = "do not retry: the error is final, or the row has used up its attempts"
    HALT = "the run is over"


class Flow(Protocol):
    """The throttle shared by all calls of a run. It decides when an attempt may start and whether a failure counts against a row.

    Each started attempt ends with a call of `answered`, `failed` or `forgo`, unless the run is cancelled. Times are on the event
    loop's clock.

    Attributes:
        halted: The error that ended the run; `None` while the run goes on.
    """

    halted: OutreachError | None

    def admits(self, now: float) -> bool:
        """Start an attempt now if nothing prevents it, and return whether it started."""
        ...

    async def turn(self, not_before: float) -> None:
        """Wait until an attempt may start, at `not_before` or later, and start it. Waiters are served in FIFO order.

        Raises:
            BulkStopped: The run is over, or ends during the wait.
        """
        ...

    def forgo(self) -> None:
        """Release a reserved start: the attempt will not be sent."""
        ...

    def answered(self, now: float, started: float, headers: Mapping[str, str]) -> None:
        """Record a successful attempt."""
        ...

    def failed(
        self, error: OutreachError, evidence: Evidence, *, blamed: int, asked: float | None, started: float, now: float
    ) -> Verdict:
        """Record a failed attempt and decide what to do next.

        Args:
            error: The failure.
            evidence: What the failure proves.
            blamed: Number of earlier failures counted against the row.
            asked: Seconds that the service asked to wait; `None` if it did not ask.
            started: When the attempt started.
            now: When the attempt ended.
        """
        ...


@attrs.frozen
class Terms:
    """Time limits of a call, and the run that it belongs to.

    Attributes:
        timeout: Timeout per attempt, in seconds; `None` for no limit.
        deadline: Limit in seconds over all attempts and waits; `None` for no limit. Within a run, only the attempts counted
            against the row use it up: waits and the service's own failures do not.
        flow: The run's flow, which decides on waits and retries; `None` outside a run.
    """

    timeout: float | None
    deadline: float | None
    flow: Flow | None = None


def running_clock() -> Callable[[], float]:
    """Return the clock of the running event loop. `anyio.current_time` looks up the loop on every call, which is slow."""
    return current_token().backend_class.current_time


class Call(Generic[T]):
    """One call in progress.

    Args:
        operation: The operation to run.
        terms: Its time limits, and the flow of its run.
        now: The clock of the running event loop.
        tainted: Whether an attempt of an earlier process may have been applied.

    Attributes:
        operation: The operation to run.
        terms: Its time limits, and the flow of its run.
        now: The clock of the running event loop.
        ends: When all waiting ends; infinite within a run.
        resumes: The earliest time for the next attempt.
        started: When the last attempt started.
        progress: Progress of the current attempt; `None` between attempts.
        attempts: Number of failed attempts.
        blamed: Number of failed attempts counted against the call, within a run.
        spent: Retry budget that its retries have used.
        tainted: Whether an attempt may have been applied.
        last: The error of the last failed attempt.
    """

    resumes = -math.inf
    started = 0.0
    progress: Progress | None = None
    attempts = 0
    blamed = 0
    spent = 0
    last: OutreachError | None = None
    _maybe_sent = False

    def __init__(self, operation: Operation[T], terms: Terms, now: Callable[[], float], *, tainted: bool = False) -> None:
        self.operation = operation
        self.terms = terms
        self.now = now
        self.tainted = tainted
        self._left = math.inf if terms.deadline is None else terms.deadline
        # A run may pause for minutes through no fault of the row. Within a run, the deadline is a budget of attempt time rather
        # than a point in time, and the run itself limits the waiting.
        self.ends = math.inf if terms.flow else now() + self._left

    def begin(self, now: float) -> Progress:
        """Start an attempt and return its progress."""
        self.started = now
        self.progress = Progress()
        return self.progress

    def attempt_ends(self, now: float) -> float:
        """Return the time at which an attempt that starts now must end."""
        timeout = math.inf if self.terms.timeout is None else self.terms.timeout
        return now + min(timeout, self._left) if self.terms.flow else min(now + timeout, self.ends)

    def lapse(self, progress: Progress) -> OutreachError:
        """Return the error of the current attempt, which ran out of time: its own timeout, or the call's deadline."""
        maybe_sent, name = progress.sent is not False, self.operation.name
        if self.attempt_ends(self.started) < self.started + (self.terms.timeout or math.inf):  # the deadline cut it short
            text = f"{name}: no response within the deadline of {self.terms.deadline:g} s"
            return DeadlineExceeded(text, maybe_sent=maybe_sent)
        return TransportError(f"{name}: no response within the timeout of {self.terms.timeout:g} s", maybe_sent=maybe_sent)

    def learn(self, error: OutreachError, evidence: Evidence) -> None:
        """Record a failed attempt. No later attempt proves that an earlier one was not applied: `tainted` is never reset."""
        self.progress = None
        self.attempts += 1
        self.tainted |= taints(error, evidence)
        self._maybe_sent |= error.maybe_sent

    def blame(self) -> None:
        """Count the last attempt, and the time it took, against the call."""
        self.blamed += 1
        self._left -= self.now() - self.started

    @property
    def begun(self) -> int:
        """Number of started attempts, including the current one."""
        return self.attempts + (self.progress is not None)

    @property
    def maybe_applied(self) -> bool:
        """Whether an attempt, including the current one, may have been applied or may still be."""
        return self.tainted or (self.progress is not None and self.progress.sent is not False)

    @property
    def out_of_time(self) -> bool:
        """Whether the attempts counted against the call have used up its deadline."""
        return self._left <= 0

    def fail(self, error: OutreachError, cause: OutreachError | None = None) -> NoReturn:
        """Raise the error with the facts of all attempts."""
        error.operation = self.operation.name
        error.attempts = self.attempts
        error.maybe_sent |= self._maybe_sent
        # A 2xx response that cannot be parsed still means that the service handled the request.
        error.maybe_applied = self.tainted or isinstance(error, UnexpectedResponse)
        raise error from cause or error.__cause__
