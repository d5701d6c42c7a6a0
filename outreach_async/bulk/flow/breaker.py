"""A circuit breaker that pauses the run: while it is open, nothing is sent except one probe at a time."""

from __future__ import annotations

import math
from typing import Final

FIRST: Final = 5.0
"""Length of the first pause in seconds; each further pause is twice as long."""
LONGEST: Final = 60.0
"""Maximum length of a pause in seconds. One probe a minute is no burden for a service that is down. Once the service is back, the
run loses up to one more pause."""
SHORTEST: Final = 1.0
"""Length in seconds of a pause when the service may well be healthy, and the minimum from which further pauses double."""
LEASE: Final = 120.0
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

    def trip(self, now: float, seconds: float = FIRST) -> None:
        """Open the breaker for this many seconds."""
        if self.closed:
            self.tripped_at = now
        self.closed = False
        self._interval = seconds
        self._wait(now)

    def start(self, now: float) -> None:
        """Record the start of an attempt: unless the breaker is closed, this attempt is the probe."""
        # Moving `opens_at` keeps every other attempt from starting while the probe is in flight. The lease ends that after a
        # while, so a probe whose result never arrives cannot pause the run for ever.
        if not self.closed:
            self._probed_at, self.opens_at = now, now + LEASE

    def is_probe(self, started: float) -> bool:
        """Return whether a result is the probe's: no other attempt can have started as late as the probe."""
        return started >= self._probed_at

    def forgo(self) -> None:
        """Record that the probe does not start after all, so that another attempt may be the probe."""
        if self._probed_at < math.inf:
            self.opens_at, self._probed_at = -math.inf, math.inf

    def failed(self, now: float) -> None:
        """Record that the probe failed: pause again, for twice as long."""
        self._interval = min(2 * max(self._interval, SHORTEST), LONGEST)
        self._wait(now)

    def refused(self, now: float) -> None:
        """Record that the probe was refused: pause again, no longer than before, because the service is up."""
        self._wait(now)

    def close(self) -> None:
        """Close the breaker: attempts may start freely again."""
        self.closed = True
        self.opens_at, self._probed_at = -math.inf, math.inf

    def _wait(self, now: float) -> None:
        self.opens_at, self._probed_at = now + self._interval, math.inf
