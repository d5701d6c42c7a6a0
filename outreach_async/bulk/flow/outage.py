"""How long nothing has come of anything, and whether anything ever will."""

from __future__ import annotations

import math


class Outage:
    """The time since the first failure after the last success. A time without attempts is none: it is counted from a failure."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = math.inf

    def fails(self, started: float) -> None:
        """Take in that an attempt which started then failed."""
        self._since = min(self._since, started)

    def ends(self) -> None:
        """Take in that the service did as it was told, or said when it will."""
        self._since = math.inf

    def lasts(self, now: float) -> float:
        """Return how many seconds it has lasted."""
        return max(0.0, now - self._since)


class Contact:
    """Whether the service was ever reached: an address that is wrong is not an outage to wait out.

    Attributes:
        made: Whether it was.
        rounds: Failures in a row before; those that happened at the same time are one.
    """

    __slots__ = ("_failed_at", "made", "rounds")

    def __init__(self) -> None:
        self.made = False
        self.rounds = 0
        self._failed_at = -math.inf

    def fails(self, started: float, now: float) -> bool:
        """Take in that an attempt did not reach it, and return whether that makes a further round."""
        if started < self._failed_at:
            return False
        self._failed_at = now
        self.rounds += 1
        return True
