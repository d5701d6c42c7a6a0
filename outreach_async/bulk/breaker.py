"""Pause a run while the service fails: judge recent results, and open or close a circuit breaker."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

WINDOW_SIZE: Final = 100
"""Number of recent results that are judged."""
MIN_RESULTS: Final = 20
"""Minimum number of results for a judgement."""
FAILING_SHARE: Final = 0.5
"""Minimum share of faults at which the service counts as failing."""
HEALTHY_SHARE: Final = 0.9
"""Minimum share of successes among the other rows at which a failure counts against its row."""


class FailureWindow:
    """The results of recent attempts. A success costs one addition: only faults are stored, with the number of their result.

    Attributes:
        results: Number of results so far.
    """

    __slots__ = ("_faults", "_since", "results")

    def __init__(self) -> None:
        self.results = 0
        self._since = 0
        self._faults: deque[tuple[int, int]] = deque()

    def record_success(self) -> None:
        """Record a success."""
        self.results += 1

    def record_fault(self, counted_failures: int) -> None:
        """Record a failure of the service or the connection, for a row with this many failures counted against it before."""
        self._faults.append((self.results, counted_failures))
        self.results += 1
        self._drop_old()

    def clear(self) -> None:
        """Forget all results so far."""
        self._since = self.results
        self._faults.clear()

    def _drop_old(self) -> None:
        while self._faults and self._faults[0][0] < self.results - WINDOW_SIZE:
            self._faults.popleft()

    @property
    def size(self) -> int:
        """Number of results in the window."""
        return min(self.results - self._since, WINDOW_SIZE)

    @property
    def is_failing(self) -> bool:
        """True if the service is failing."""
        self._drop_old()
        return self.size >= MIN_RESULTS and len(self._faults) >= FAILING_SHARE * self.size

    def counts_against_row(self, counted_failures: int) -> bool:
        """Return whether a row's next failure counts against it: the other rows succeed, or there are too few of them to tell.

        The row's earlier faults are left out. Faults are not stored per row: among all first faults of a row, one is taken to be
        this row's, and likewise among the second ones and so on.
        """
        self._drop_old()
        own = len({before for _, before in self._faults if before < counted_failures})
        others = self.size - own
        return others < MIN_RESULTS or others - (len(self._faults) - own) >= HEALTHY_SHARE * others


class Reachability:
    """Tracks whether the service was ever reached: a wrong base URL is not an outage that ends by waiting.

    Attributes:
        reached: Whether the service was reached.
        rounds: Failures before it was first reached; concurrent ones count as one round.
    """

    __slots__ = ("_failed_at", "reached", "rounds")

    def __init__(self) -> None:
        self.reached = False
        self.rounds = 0
        self._failed_at = -math.inf

    def record_failure(self, started: float, now: float) -> bool:
        """Record an attempt that did not reach the service, and return whether it counts as a new round."""
        if started < self._failed_at:  # it started before the last round ended: with 64 workers, 64 failures tell as much as one
            return False
        self._failed_at = now
        self.rounds += 1
        return True


FIRST_PAUSE: Final = 5.0
"""Length of the first pause in seconds; each further pause is twice as long."""
MAX_PAUSE: Final = 60.0
"""Maximum length of a pause in seconds. One probe a minute is no burden for a service that is down. Once the service is back, the
run loses up to one more pause."""
MIN_PAUSE: Final = 1.0
"""Length in seconds of a pause when the service may well be healthy, and the minimum from which further pauses double."""
PROBE_LEASE: Final = 120.0
"""Seconds after which a probe without a result counts as lost."""


class Breaker:
    """A breaker with three states: closed (initially), open until an instant, and probing until the probe's result is known.

    Attributes:
        closed: Whether attempts may start freely.
        opens_at: The instant from which an attempt may start; infinitely far in the past while the breaker is closed.
        tripped_at: The instant at which the breaker last tripped from closed to open.
    """

    __slots__ = ("_interval", "_probed_at", "closed", "opens_at", "tripped_at")

    def __init__(self) -> None:
        self.closed = True
        self.opens_at = self.tripped_at = -math.inf
        self._interval = 0.0
        self._probed_at = math.inf

    def trip(self, now: float, seconds: float = FIRST_PAUSE) -> None:
        """Open the breaker for this many seconds."""
        if self.closed:
            self.tripped_at = now
        self.closed = False
        self._interval = seconds
        self.opens_at, self._probed_at = now + seconds, math.inf

    def record_start(self, now: float) -> None:
        """Record the start of an attempt: unless the breaker is closed, this attempt is the probe."""
        # Moving `opens_at` keeps every other attempt from starting while the probe is in flight. The lease ends that after a
        # while, so a probe whose result never arrives cannot pause the run for ever.
        if not self.closed:
            self._probed_at, self.opens_at = now, now + PROBE_LEASE

    def is_probe(self, started: float) -> bool:
        """Return whether a result is the probe's: no other attempt can have started as late as the probe."""
        return started >= self._probed_at

    def cancel_probe(self) -> None:
        """Record that the probe does not start after all, so that another attempt may be the probe."""
        if self._probed_at < math.inf:
            self.opens_at, self._probed_at = -math.inf, math.inf

    def on_probe_failure(self, now: float) -> None:
        """Record that the probe failed: pause again, for twice as long."""
        self._interval = min(2 * max(self._interval, MIN_PAUSE), MAX_PAUSE)
        self.on_probe_refusal(now)

    def on_probe_refusal(self, now: float) -> None:
        """Record that the probe was refused: pause again, no longer than before, because the service is up."""
        self.opens_at, self._probed_at = now + self._interval, math.inf

    def close(self) -> None:
        """Close the breaker: attempts may start freely again."""
        self.closed = True
        self.opens_at, self._probed_at = -math.inf, math.inf
