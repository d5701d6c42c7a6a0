"""A breaker that pauses: while it is open nothing is sent, and one probe at a time finds out when to go on."""

from __future__ import annotations

import math
from typing import Final

FIRST: Final = 5.0
"""Seconds of the first pause; each further one lasts twice as long."""
LONGEST: Final = 60.0
"""Seconds of a pause at most. A probe a minute is no burden for a service that is down, and a run that is paused loses, once the
service is back, up to one such pause more."""
SHORTEST: Final = 1.0
LEASE: Final = 120.0
"""Seconds after which a probe that nothing was heard of counts as lost."""


class Breaker:
    """Closed at first; open until an instant; probing, until the probe's result is known.

    Attributes:
        closed: Whether attempts may start as they like.
        opens_at: The instant from which one may start; far in the past while it is closed.
        tripped_at: When it was closed last.
    """

    __slots__ = ("_interval", "_probed_at", "closed", "opens_at", "tripped_at")

    def __init__(self) -> None:
        self.closed = True
        self.opens_at = self.tripped_at = -math.inf
        self._interval = 0.0
        self._probed_at = math.inf

    def trip(self, now: float, seconds: float = FIRST) -> None:
        """Pause for so long."""
        if self.closed:
            self.tripped_at = now
        self.closed = False
        self._interval = seconds
        self._wait(now)

    def start(self, now: float) -> None:
        """Take in that an attempt starts: if it is not closed, that is the probe."""
        if not self.closed:
            self._probed_at, self.opens_at = now, now + LEASE

    def is_probe(self, started: float) -> bool:
        """Whether a result is the probe's: nothing else can have started so late."""
        return started >= self._probed_at

    def forgo(self) -> None:
        """Take in that the probe does not start after all, so that another may."""
        if self._probed_at < math.inf:
            self.opens_at, self._probed_at = -math.inf, math.inf

    def failed(self, now: float) -> None:
        """Take in that the probe found the service still failing."""
        self._interval = min(2 * max(self._interval, SHORTEST), LONGEST)
        self._wait(now)

    def refused(self, now: float) -> None:
        """Take in that the probe was refused: the service is there, but wants nothing yet."""
        self._wait(now)

    def close(self) -> None:
        """Go on."""
        self.closed = True
        self.opens_at, self._probed_at = -math.inf, math.inf

    def _wait(self, now: float) -> None:
        self.opens_at, self._probed_at = now + self._interval, math.inf
