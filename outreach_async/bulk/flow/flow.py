"""The flow of one run: puts the decisions together, and is all of it that waits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Final, Literal

from outreach_async.bulk.flow import quota
from outreach_async.bulk.flow.breaker import FIRST, SHORTEST, Breaker
from outreach_async.bulk.flow.health import Health
from outreach_async.bulk.flow.line import Line
from outreach_async.bulk.flow.outage import Contact, Outage
from outreach_async.bulk.flow.pace import Pace, Ramp
from outreach_async.bulk.flow.rate import Cubic, Meter
from outreach_async.calls import Verdict
from outreach_async.errors import BulkStopped, BulkSuspended, OutreachError
from outreach_async.pacing import RetryBudget
from outreach_async.retry import Evidence, RetryPolicy, cost

_TOO_MANY_REQUESTS: Final = 429
_SPREAD: Final = 0.1
"""The part of a `Retry-After` over which clients spread when they come back, and the most seconds it comes to."""
_SPREAD_CAP: Final = 1.0
_BASE: Final = 1.0
"""Requests a second to come back at after a pause, as a whole, when nothing was ever answered."""
_LATELY: Final = 1.0
"""Seconds for which a run counts as held up after one of its attempts was."""


class RunFlow:
    """When a run's next attempt may start, and whose fault a failed one was.

    Args:
        policy: How the run's client repeats.
        max_outage: Seconds after which a run stops that gets nowhere.
        wall: Returns Unix time, for quotas that are told in it.

    Attributes:
        halted: Why the run is over; `None` while it is not.
        drained: What ends every wait for a turn, once nobody is to wait any more; `None` before.
        why: What the last pause is for.
    """

    def __init__(self, policy: RetryPolicy, *, max_outage: float = 900.0, wall: Callable[[], float] = time.time) -> None:
        self.halted: OutreachError | None = None
        self.drained: OutreachError | None = None
        self.why = ""
        self._policy = policy
        self._max_outage = max_outage
        self._wall = wall
        self._calm = True
        self._in_flight = 0
        self._gate = self._held_until = -math.inf
        self._meter, self._cubic, self._pace, self._ramp = Meter(), Cubic(), Pace(), Ramp()
        self._health, self._breaker = Health(), Breaker()
        self._outage, self._contact = Outage(), Contact()
        self._allowance = quota.Allowance()
        self._budget = RetryBudget(policy.budget)
        self._line = Line()

    @property
    def limit(self) -> float | None:
        """Requests a second that the run allows itself; `None` while no refusal has taught it a limit."""
        return self._cubic.limit

    @property
    def opens_at(self) -> float:
        """The instant at which a pause ends; far in the past if there is none."""
        return max(self._gate, self._breaker.opens_at)

    def state(self, now: float) -> Literal["running", "throttled", "paused"]:
        """Say what holds the run up, if anything does."""
        if self.opens_at > now or not self._breaker.closed:
            return "paused"
        return "throttled" if self._line or now - self._held_until < _LATELY else "running"

    def admits(self, now: float) -> bool:
        """Start an attempt now, if nothing stands against it and nobody waits."""
        if self._calm:  # until anything goes wrong: asked for every row of millions
            self._in_flight += 1
            return True
        return self.halted is None and not self._line and self._take(now) <= now

    async def turn(self, not_before: float) -> None:
        """Wait until an attempt may start, not before that instant, and start it; first come, first served.

        Raises:
            BulkStopped: The run is over, or ends or is drained while waiting.
        """
        self._raise_if_over()
        await self._line.wait(not_before, self._take_or_raise)

    def halt(self, error: OutreachError) -> None:
        """End the run: whoever waits for a turn raises the error, and whoever asks for one later."""
        self.halted = self.halted or error
        self._calm = False
        self._line.wake_all()

    def drain(self) -> None:
        """Let nobody wait any more, whatever for: an attempt that cannot start at once does not start."""
        self.drained = self.drained or BulkStopped("the run was ended before this row was sent, or sent again")
        self._line.wake_all()

    def forgo(self) -> None:
        """Take in that an attempt that was to start does not."""
        self._in_flight -= 1
        self._allowance.give_back()
        self._breaker.forgo()
        self._line.nudge(-math.inf)

    def answered(self, now: float, started: float, headers: Mapping[str, str]) -> None:
        """Take in that an attempt succeeded."""
        self._in_flight -= 1
        self._health.results += 1
        if not self._calm or quota.is_told(headers):
            self._thrive(now, started, headers)
        self._meter.add(now, started)

    def failed(
        self, error: OutreachError, evidence: Evidence, *, blamed: int, asked: float | None, started: float, now: float
    ) -> Verdict:
        """Take in that an attempt failed, and judge it; see `Flow`."""
        self._in_flight -= 1
        self._calm = False
        self._allowance.give_back()
        if evidence is Evidence.FINAL:  # an answer like any other, as far as the flow goes
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

    # What comes of an attempt

    def _thrive(self, now: float, started: float, headers: Mapping[str, str]) -> None:
        """Take in all that a success says beyond itself."""
        self._calm = False
        self._contact.made = True
        self._outage.ends()
        self._budget.refund(1)
        self._heed(headers, started, now)
        was_paused = self._breaker.is_probe(started)
        if was_paused:
            self._reopen(now)
        self._cubic.grow(now, self._meter.rate(now))
        if was_paused:  # after the limit has grown: one that refusals cut to next to nothing would hold up the run
            self._ramp.begin(now, self._usual(now))
        self._line.nudge(self._opens(now))

    def _reopen(self, now: float) -> None:
        """Go on after a pause, gently, and with half of the retry budget: an empty one would end the next pause at once."""
        self._cubic.rest(now - self._breaker.tripped_at)
        self._meter.restart(now, now)
        self._breaker.close()
        self._health.clear()
        self._budget.refund(self._budget.size // 2)

    def _usual(self, now: float) -> float:
        """Return the rate to come back at half of."""
        return self._cubic.limit or max(self._meter.rate(now), _BASE)

    def _refused(self, error: OutreachError, asked: float | None, started: float, now: float) -> Verdict:
        """Slow down, or wait as long as is asked: a refusal is nobody's fault."""
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
        """Send nothing for as long as the service asks."""
        if asked > self._policy.retry_after_cap:
            cap = self._policy.retry_after_cap
            self._suspend(f"the service asked to wait {asked:.0f} s, which is more than {cap:g} s", error, asked)
        until = now + asked + self._policy.jitter() * min(_SPREAD_CAP, _SPREAD * asked)
        if asked > 0 and until > self._gate:
            self._ramp.begin(until, self._usual(now))
            self._cubic.rest(until - max(now, self._gate))
            self._meter.restart(now, until)
            self._gate = until
            self.why = f"{_words(error)} and asked to wait {asked:.3g} s"

    def _faulted(self, error: OutreachError, evidence: Evidence, blamed: int, started: float, now: float) -> Verdict:
        """Find out whose fault it is, the row's or the service's."""
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
        """Return whether a failure is the row's own; what began before the breaker opened, or while it is open, never is."""
        if self._breaker.is_probe(started):
            self._breaker.failed(now)
            self.why = _words(error)
            return False
        if not self._breaker.closed or started <= self._breaker.tripped_at:
            return False
        own = evidence is Evidence.AMBIGUOUS and self._health.blames(blamed)
        self._health.fault(blamed)
        if self._health.sick:
            self._breaker.trip(now)
            self.why = f"most requests fail: {_words(error)}"
        return own

    def _search(self, error: OutreachError, started: float, now: float) -> None:
        """Try a few more times where nobody was ever reached, each time by one attempt alone."""
        if self._contact.fails(started, now):
            rounds = self._contact.rounds
            if rounds >= max(2, self._policy.attempts):
                self._suspend(f"nobody was reached there in {rounds} attempts", error)
            self._breaker.trip(now, min(FIRST, self._policy.backoff * 2.0 ** (rounds - 1)))
            self.why = _words(error)

    def _endure(self, error: OutreachError, started: float, now: float) -> None:
        """Stop the run if nothing has come of anything for too long."""
        self._outage.fails(started)
        if (lasts := self._outage.lasts(now)) >= self._max_outage:
            self._suspend(f"nothing has succeeded for {lasts:.0f} s", error)

    def _afford(self, error: OutreachError, evidence: Evidence, now: float) -> None:
        """Pay for a repeat, or pause: what the pause itself tries is paid by it."""
        if self._breaker.closed and not self._budget.spend(cost(evidence)):
            self._breaker.trip(now, SHORTEST)  # the service may well be in good health
            self.why = f"too many requests had to be repeated: {_words(error)}"

    def _heed(self, headers: Mapping[str, str], started: float, now: float) -> bool:
        """Take in what an answer says of a quota; a wait beyond the cap is left to the refusal that will ask for it."""
        if not quota.is_told(headers) or (told := quota.read(headers, self._wall)) is None:
            return False
        if told.reset <= self._policy.retry_after_cap:
            self._allowance.heed(told, started=started, now=now, in_flight=self._in_flight)
        return True

    def _suspend(self, text: str, cause: OutreachError, retry_after: float | None = None) -> None:
        error = BulkSuspended.over(cause, f"the run is suspended, for {text}")
        error.retry_after = retry_after
        self.halt(error)

    # When the next may start

    def _opens(self, now: float) -> float:
        """Return the instant from which an attempt may start, as far as is known now."""
        rate = self._ramp.rate(self._cubic.limit, now)
        due = -math.inf if rate is None else self._pace.due(rate)
        return max(self._gate, self._breaker.opens_at, self._allowance.opens_at(now), due)

    def _take(self, now: float) -> float:
        """Start an attempt if it may; return the instant from which it may."""
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
            raise over.with_traceback(None)  # many raise the same one: none shows the others' way to it

    def _take_or_raise(self, now: float) -> float:
        self._raise_if_over()
        opens = self._take(now)
        if opens > now:
            self._held_until = opens
        return opens


def _words(error: OutreachError) -> str:
    """Say how an attempt failed, without what the service said of it."""
    return str(error) if error.status_code is None else f"the service answered {error.status_code}"
