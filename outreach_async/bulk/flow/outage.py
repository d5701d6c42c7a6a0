"""Tracks the current failure streak, and whether the service was ever reached."""

from __future__ import annotations

import math


class Outage:
    """The time since the first failed attempt after the last success. An idle time before that attempt does not count."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = math.inf

    def fails(self, started: float) -> None:
        """Record a failed attempt that started at this instant."""
        self._since = min(self._since, started)  # failures may arrive in another order than their attempts started

    def ends(self) -> None:
        """Record a success, or a refusal that says when the quota resets."""
        self._since = math.inf

    def lasts(self, now: float) -> float:
        """Return the length of the streak in seconds; 0.0 if there is none."""
        return max(0.0, now - self._since)


class Contact:
    """Tracks whether the service was ever reached: a wrong base URL is not an outage that ends by waiting.

    Attributes:
        made: Whether the service was reached.
        rounds: Failures before it was first reached; concurrent ones count as one round.
    """

    __slots__ = ("_failed_at", "made", "rounds")

    def __init__(self) -> None:
        self.made = False
        self.rounds = 0
        self._failed_at = -math.inf

    def fails(self, started: float, now: float) -> bool:
        """Record an attempt that did not reach the service, and return whether it counts as a new round."""
        if started < self._failed_at:  # it started before the last round ended: with 64 workers, 64 failures tell as much as one
            return False
        self._failed_at = now
        self.rounds += 1
        return True
