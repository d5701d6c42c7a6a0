"""Throttle one run: combine the decisions about rate, quota and breaker. Of these modules, only this one waits."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Literal

import anyio
from anyio.lowlevel import checkpoint

from outreach_async.bulk.breaker import FIRST, SHORTEST, Breaker, Contact, Health, Outage
from outreach_async.bulk.rate import Allowance, Cubic, Meter, Pace, Ramp, has_quota, read_quota
from outreach_async.call import Verdict
from outreach_async.errors import BulkStopped, BulkSuspended, OutreachError
from outreach_async.limits import RetryBudget
from outreach_async.retry import Evidence, RetryPolicy, cost

_WORTHWHILE: Final = 0.001
"""Minimum gain in seconds for which the first task is woken: a limit that grows slightly with every response is no reason."""


class _Place:
    """A waiting task. It may be woken early, and then checks again."""

    __slots__ = ("_event", "until")

    _event: anyio.Event  # set by the first `wait`, before which no other task sees the place

    def __init__(self) -> None:
        self.until = -math.inf

    async def wait(self, until: float) -> None:
        self.until, self._event = until, anyio.Event()
        with anyio.CancelScope(deadline=until):
            await self._event.wait()

    def wake(self) -> None:
        self._event.set()


class Line:
    """A queue: first come, first served.

    A task that leaves, served or cancelled, wakes the next one, which checks for itself. No turn is handed over, so a cancelled
    task cannot lose one.
    """

    def __init__(self) -> None:
        self._queue: deque[_Place] = deque()
        self._asleep: dict[_Place, None] = {}  # an ordered set, so that a simulated run can be reproduced

    def __bool__(self) -> bool:
        return bool(self._queue)

    async def wait(self, not_before: float, take: Callable[[float], float]) -> None:
        """Wait for a turn and take it.

        Args:
            not_before: The instant before which the task does not join the queue.
            take: Takes the turn at an instant if possible, and returns the instant from which it is possible. Its exceptions end
                the wait.
        """
        # A retry sleeps outside the queue until its backoff ends: at the head of the queue it would hold up rows that may start.
        await self._sleep(not_before)
        place = _Place()
        self._queue.append(place)
        try:
            while self._queue[0] is not place:
                await place.wait(math.inf)
            # Check again after each wait: what delays the start may have moved in either direction meanwhile.
            while (again := take(now := anyio.current_time())) > now:
                await place.wait(again)
        finally:
            self._leave(place)

    async def _sleep(self, until: float) -> None:
        if until <= anyio.current_time():
            await checkpoint()
            return
        place = _Place()
        self._asleep[place] = None
        try:
            await place.wait(until)
        finally:
            del self._asleep[place]

    def _leave(self, place: _Place) -> None:
        first = self._queue[0] is place
        self._queue.remove(place)
        if first and self._queue:
            self._queue[0].wake()

    def nudge(self, again: float) -> None:
        """Wake the first task to check again, if it waits beyond this instant."""
        if self._queue and self._queue[0].until > again + _WORTHWHILE:
            self._queue[0].wake()

    def wake_all(self) -> None:
        """Wake all tasks: each reaches the head of the queue in turn, and gets the error that ended the run."""
        for place in (*self._asleep, *self._queue):
            place.wake()


_TOO_MANY_REQUESTS: Final = 429
_SPREAD: Final = 0.1
"""Maximum jitter added to a `Retry-After`, as a fraction of it: it spreads the clients that wait for the same instant."""
_SPREAD_CAP: Final = 1.0
"""Maximum jitter added to a `Retry-After`, in seconds."""
_BASE: Final = 1.0
"""Minimum base rate, in requests per second, for the ramp after a pause if no limit was learned."""
_LATELY: Final = 1.0
"""Seconds for which a run counts as throttled after an attempt was delayed."""


class RunFlow:
    """Decides when a run's next attempt may start, and whether the row or the service caused a failure.

    Args:
        policy: The retry policy of the run's client.
        max_outage: Seconds without any success after which the run is suspended.
        wall: Returns Unix time in seconds, for quota headers that give a reset as Unix time.

    Attributes:
        halted: The error that ended the run; `None` while the run continues.
        drained: The error that ends every wait for a start once the run is drained; `None` before.
        why: The reason for the last pause.
    """

    def __init__(self, policy: RetryPolicy, *, max_outage: float = 900.0, wall: Callable[[], float] = time.time) -> None:
        self.halted: OutreachError | None = None
        self.drained: OutreachError | None = None
        self.why = ""
        self._policy = policy
        self._max_outage = max_outage
        self._wall = wall
        self._calm = True  # nothing has failed, and no quota header was seen: there is nothing to decide
        self._in_flight = 0
        self._gate = self._held_until = -math.inf
        self._meter, self._cubic, self._pace, self._ramp = Meter(), Cubic(), Pace(), Ramp()
        self._health, self._breaker = Health(), Breaker()
        self._outage, self._contact = Outage(), Contact()
        self._allowance = Allowance()
        self._budget = RetryBudget(policy.budget)
        self._line = Line()

    @property
    def limit(self) -> float | None:
        """The learned rate limit in requests per second; `None` until the first refusal."""
        return self._cubic.limit

    @property
    def opens_at(self) -> float:
        """The instant at which the pause ends; infinitely far in the past if there is none."""
        return max(self._gate, self._breaker.opens_at)

    def state(self, now: float) -> Literal["running", "throttled", "paused"]:
        """Return whether the run is running, throttled or paused."""
        if self.opens_at > now or not self._breaker.closed:
            return "paused"
        return "throttled" if self._line or now - self._held_until < _LATELY else "running"

    def admits(self, now: float) -> bool:
        """Start an attempt now, if the flow allows it and no other attempt is waiting."""
        if self._calm:  # the fast path of a healthy run, taken once per row
            self._in_flight += 1
            return True
        # While others wait in line, a new attempt must queue behind them: otherwise rows that keep arriving could starve a retry.
        return self.halted is None and not self._line and self._take(now) <= now

    async def turn(self, not_before: float) -> None:
        """Wait until an attempt may start, at `not_before` or later, and start it. First come, first served.

        Raises:
            BulkStopped: The run has ended, or it ends or is drained during the wait.
        """
        self._raise_if_over()
        await self._line.wait(not_before, self._take_or_raise)

    def halt(self, error: OutreachError) -> None:
        """End the run: every current and later wait for a start raises the error."""
        self.halted = self.halted or error
        self._calm = False
        self._line.wake_all()

    def drain(self) -> None:
        """End every wait: from now on, an attempt that cannot start at once does not start."""
        self.drained = self.drained or BulkStopped("the run ended before this row was sent or retried")
        self._line.wake_all()

    def forgo(self) -> None:
        """Release a reserved start: the attempt does not start after all."""
        self._in_flight -= 1
        self._allowance.give_back()
        self._breaker.forgo()
        self._line.nudge(-math.inf)

    def answered(self, now: float, started: float, headers: Mapping[str, str]) -> None:
        """Record a successful attempt."""
        self._in_flight -= 1
        self._health.results += 1
        if not self._calm or has_quota(headers):
            self._thrive(now, started, headers)
        self._meter.add(now, started)

    def failed(
        self, error: OutreachError, evidence: Evidence, *, blamed: int, asked: float | None, started: float, now: float
    ) -> Verdict:
        """Record a failed attempt and return the verdict; see `Flow`."""
        self._in_flight -= 1
        self._calm = False
        self._allowance.give_back()
        if evidence is Evidence.FINAL:  # the row is refused for good, but the service answered: a success for the flow
            self._health.succeeded()
            self._thrive(now, started, error.headers)
            self._meter.add(now, started)
            verdict = Verdict.GIVE_UP
        elif evidence is Evidence.REFUSED:
            verdict = self._refused(error, asked, started, now)
        else:
            verdict = self._faulted(error, evidence, blamed, started, now)
        if self.halted is not None and verdict is not Verdict.GIVE_UP:
            return Verdict.HALT
        self._line.nudge(self._opens(now))
        return verdict

    # Results of attempts

    def _thrive(self, now: float, started: float, headers: Mapping[str, str]) -> None:
        """Update every decision after a success."""
        self._calm = False
        self._contact.made = True
        self._outage.ends()
        self._budget.refund(1)
        self._heed(headers, started, now)
        was_paused = self._breaker.is_probe(started)
        if was_paused:
            self._reopen(now)
        self._cubic.grow(now, self._meter.rate(now))
        if was_paused:  # after the limit has grown: refusals may have cut it to almost nothing, and the ramp starts from it
            self._ramp.begin(now, self._usual(now))
        self._line.nudge(self._opens(now))

    def _reopen(self, now: float) -> None:
        """End a pause, and refill half of the retry budget: with an empty one, the first failure would start the next pause."""
        # Nothing was sent during the pause. Without `rest` the limit would grow as if it had held all that time, and without
        # `restart` the measured rate would fall.
        self._cubic.rest(now - self._breaker.tripped_at)
        self._meter.restart(now, now)
        self._breaker.close()
        self._health.clear()
        self._budget.refund(self._budget.size // 2)

    def _usual(self, now: float) -> float:
        """Return the base rate of the ramp after a pause, which starts at half of it."""
        return self._cubic.limit or max(self._meter.rate(now), _BASE)

    def _refused(self, error: OutreachError, asked: float | None, started: float, now: float) -> Verdict:
        """Lower the rate, or wait as long as the service asks. A refusal is a fault of neither the row nor the service."""
        self._contact.made = True
        told = self._heed(error.headers, started, now)
        if self._breaker.is_probe(started):
            self._breaker.refused(now)
            self.why = _words(error)
        if error.status_code == _TOO_MANY_REQUESTS and self._cubic.concerns(now, started):
            self._cubic.cut(now, self._meter.rate(now), asked or 0.0)
        if asked is not None:
            self._close(error, asked, now)
        if told and asked is None:
            self._outage.ends()
        else:
            self._endure(error, started, now)
        self._afford(error, Evidence.REFUSED, now)
        return Verdict.REPEAT

    def _close(self, error: OutreachError, asked: float, now: float) -> None:
        """Close the gate for as long as the service asks."""
        if asked > self._policy.retry_after_cap:
            cap = self._policy.retry_after_cap
            self._suspend(f"the service asked to wait {asked:.0f} s, more than the limit of {cap:g} s", error, asked)
        until = now + asked + self._policy.jitter() * min(_SPREAD_CAP, _SPREAD * asked)
        if asked > 0 and until > self._gate:  # many requests in flight may be refused at once: only the longest wait counts
            self._ramp.begin(until, self._usual(now))
            self._cubic.rest(until - max(now, self._gate))
            self._meter.restart(now, until)
            self._gate = until
            self.why = f"{_words(error)} and asked to wait {asked:.3g} s"

    def _faulted(self, error: OutreachError, evidence: Evidence, blamed: int, started: float, now: float) -> Verdict:
        """Decide whether the row or the service caused a failure."""
        if evidence is Evidence.AMBIGUOUS or self._health.results:
            self._contact.made = True
        if not self._contact.made:
            self._search(error, started, now)
            return Verdict.REPEAT if self._policy.attempts > 1 else Verdict.GIVE_UP
        own = self._weigh(error, evidence, blamed, started, now)
        self._endure(error, started, now)
        if self._policy.attempts == 1 or (own and blamed + 1 >= self._policy.attempts):
            return Verdict.GIVE_UP
        self._afford(error, evidence, now)
        return Verdict.BLAME if own else Verdict.REPEAT

    def _weigh(self, error: OutreachError, evidence: Evidence, blamed: int, started: float, now: float) -> bool:
        """Return whether the row caused a failure: never while the breaker is open, nor for attempts started before it opened."""
        if self._breaker.is_probe(started):
            self._breaker.failed(now)
            self.why = _words(error)
            return False
        if not self._breaker.closed or started <= self._breaker.tripped_at:
            # It was in flight when the breaker opened: the same outage, which must not be counted twice, nor against the row.
            return False
        own = evidence is Evidence.AMBIGUOUS and self._health.blames(blamed)
        self._health.fault(blamed)
        if self._health.sick:
            self._breaker.trip(now)
            self.why = f"most requests fail: {_words(error)}"
        return own

    def _search(self, error: OutreachError, started: float, now: float) -> None:
        """Retry a few times if the service was never reached, with one attempt at a time, then suspend the run."""
        if self._contact.fails(started, now):
            rounds = self._contact.rounds
            if rounds >= max(2, self._policy.attempts):
                self._suspend(f"service unreachable after {rounds} attempts", error)
            self._breaker.trip(now, min(FIRST, self._policy.backoff * 2.0 ** (rounds - 1)))
            self.why = _words(error)

    def _endure(self, error: OutreachError, started: float, now: float) -> None:
        """Suspend the run if no attempt has succeeded for too long."""
        self._outage.fails(started)
        if (lasts := self._outage.lasts(now)) >= self._max_outage:
            self._suspend(f"no request has succeeded for {lasts:.0f} s", error)

    def _afford(self, error: OutreachError, evidence: Evidence, now: float) -> None:
        """Charge the retry budget; if it is empty, open the breaker. Probes are free, because the pause itself limits them."""
        if self._breaker.closed and not self._budget.spend(cost(evidence)):
            self._breaker.trip(now, SHORTEST)  # the service may well be healthy
            self.why = f"too many retries: {_words(error)}"

    def _heed(self, headers: Mapping[str, str], started: float, now: float) -> bool:
        """Apply the quota that a response states; return whether it states one. A wait beyond the cap is left to a refusal."""
        if not has_quota(headers) or (told := read_quota(headers, self._wall)) is None:
            return False
        if told.reset <= self._policy.retry_after_cap:
            self._allowance.heed(told, started=started, now=now, in_flight=self._in_flight)
        return True

    def _suspend(self, text: str, cause: OutreachError, retry_after: float | None = None) -> None:
        error = BulkSuspended.over(cause, f"run suspended: {text}")
        error.retry_after = retry_after
        self.halt(error)

    # The next start

    def _opens(self, now: float) -> float:
        """Return the earliest instant at which an attempt may start, as known now."""
        rate = self._ramp.rate(self._cubic.limit, now)
        due = -math.inf if rate is None else self._pace.due(rate)
        return max(self._gate, self._breaker.opens_at, self._allowance.opens_at(now), due)

    def _take(self, now: float) -> float:
        """Start an attempt if that is allowed now; return the instant from which it is allowed."""
        opens = self._opens(now)
        if opens <= now:
            self._start(now)
        return opens

    def _start(self, now: float) -> None:
        self._in_flight += 1
        self._breaker.start(now)
        self._allowance.start(now)
        rate = self._ramp.rate(self._cubic.limit, now)
        if rate is not None:
            self._pace.start(rate, now)

    def _raise_if_over(self) -> None:
        if (over := self.halted or self.drained) is not None:
            raise over.with_traceback(None)  # many tasks raise this instance: each must start with an empty traceback

    def _take_or_raise(self, now: float) -> float:
        self._raise_if_over()
        opens = self._take(now)
        if opens > now:
            self._held_until = opens
        return opens


def _words(error: OutreachError) -> str:
    """Describe a failure without quoting the response."""
    return str(error) if error.status_code is None else f"the service answered {error.status_code}"
