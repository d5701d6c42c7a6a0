"""One call under way, as a value: its time, and what its attempts have shown. Nothing here waits or sends."""

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
    """What a run makes of a failed attempt of one of its rows."""

    REPEAT = "try again; it costs the row nothing, for the service or the way to it is at fault"
    BLAME = "try again; it counts against the row, whose neighbours succeed"
    GIVE_UP = "the row has failed often enough on its own account"
    HALT = "the run is over"


class Flow(Protocol):
    """What many calls of one run share: when the next attempt may start, and whose fault a failure is.

    Each attempt that was started is followed by one of `answered`, `failed` and `forgo`, unless the run is cancelled. Instants
    are of the event loop's clock.

    Attributes:
        halted: Why the run is over; `None` while it is not.
    """

    halted: OutreachError | None

    def admits(self, now: float) -> bool:
        """Start an attempt now, if nothing stands against it."""
        ...

    async def turn(self, not_before: float) -> None:
        """Wait until an attempt may start, not before that instant, and start it; first come, first served.

        Raises:
            BulkStopped: The run is over, or ends while waiting.
        """
        ...

    def forgo(self) -> None:
        """Take in that an attempt that was to start does not."""
        ...

    def answered(self, now: float, started: float, headers: Mapping[str, str]) -> None:
        """Take in that an attempt succeeded."""
        ...

    def failed(
        self, error: OutreachError, evidence: Evidence, *, blamed: int, asked: float | None, started: float, now: float
    ) -> Verdict:
        """Take in that an attempt failed, and judge it.

        Args:
            error: How.
            evidence: What it proves.
            blamed: Failures that the row was blamed for before.
            asked: Seconds that a refusal asked to wait.
            started: When the attempt began.
            now: When it ended.
        """
        ...


@attrs.frozen
class Terms:
    """How long a call may take, and what it shares with others.

    Attributes:
        timeout: Seconds of one attempt; `None` for no bound.
        deadline: Seconds over all attempts and waits; `None` for no bound. Within a flow only attempts count that the row was
            blamed for: neither waits nor the service's own failures.
        flow: Of the run that the call belongs to; it decides about waits and repeats.
    """

    timeout: float | None
    deadline: float | None
    flow: Flow | None = None


def running_clock() -> Callable[[], float]:
    """Return the running event loop's clock: `anyio.current_time` looks for the loop each time, which is dearer than the rest."""
    return current_token().backend_class.current_time


class Call(Generic[T]):
    """One call under way.

    Args:
        operation: What is called.
        terms: How long it may take, and the flow that it is part of.
        now: The running event loop's clock.
        tainted: Whether it may have been carried out before, by a process that ended.

    Attributes:
        operation: The same.
        terms: The same.
        now: The same.
        ends: The instant at which all waiting is over; a call within a flow waits without end.
        resumes: The instant before which the next attempt must not start.
        started: When the last attempt began.
        progress: Of the attempt under way; `None` between attempts.
        attempts: Attempts that failed.
        blamed: Those of them that were the call's own fault, within a flow.
        spent: What its repeats took from the retry budget.
        tainted: Whether an attempt may have been carried out.
        last: Why the last attempt failed.
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
        self.ends = math.inf if terms.flow else now() + self._left

    def begin(self, now: float) -> Progress:
        """Begin an attempt."""
        self.started = now
        self.progress = Progress()
        return self.progress

    def attempt_ends(self, now: float) -> float:
        """Return the instant at which an attempt that starts now must be over."""
        timeout = math.inf if self.terms.timeout is None else self.terms.timeout
        return now + min(timeout, self._left) if self.terms.flow else min(now + timeout, self.ends)

    def lapse(self, progress: Progress) -> OutreachError:
        """Return the error of the attempt under way, whose time ran out: its own, or the call's."""
        maybe_sent, name = progress.sent is not False, self.operation.name
        if self.attempt_ends(self.started) < self.started + (self.terms.timeout or math.inf):
            text = f"{name}: no answer within the deadline of {self.terms.deadline:g} s"
            return DeadlineExceeded(text, maybe_sent=maybe_sent)
        return TransportError(f"{name}: no answer within the timeout of {self.terms.timeout:g} s", maybe_sent=maybe_sent)

    def learn(self, error: OutreachError, evidence: Evidence) -> None:
        """Take in what a failed attempt has shown."""
        self.progress = None
        self.attempts += 1
        self.tainted |= taints(error, evidence)
        self._maybe_sent |= error.maybe_sent

    def blame(self) -> None:
        """Count the last attempt, and its time, against the call."""
        self.blamed += 1
        self._left -= self.now() - self.started

    @property
    def begun(self) -> int:
        """Attempts that were begun, the one under way included."""
        return self.attempts + (self.progress is not None)

    @property
    def maybe_applied(self) -> bool:
        """Whether an attempt, the one under way included, may have been carried out or still be."""
        return self.tainted or (self.progress is not None and self.progress.sent is not False)

    @property
    def out_of_time(self) -> bool:
        """Whether the attempts it was blamed for have taken all of its time."""
        return self._left <= 0

    def fail(self, error: OutreachError, cause: OutreachError | None = None) -> NoReturn:
        """Raise the error with all that the call knows."""
        error.operation = self.operation.name
        error.attempts = self.attempts
        error.maybe_sent |= self._maybe_sent
        error.maybe_applied = self.tainted or isinstance(error, UnexpectedResponse)
        raise error from cause or error.__cause__
