"""The result of a probe: the possible values of a knob, and how they were observed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from outreach_async.conformance.site import Dialogue, Unclear


@attrs.frozen
class Finding:
    """What is known about a knob.

    Attributes:
        possible: The values that fit: one if the value was observed, several if they cannot be distinguished, none if nothing was
            observed.
        how: How the value was observed, or why it was not.
    """

    possible: tuple[Any, ...]
    how: str

    @property
    def seen(self) -> bool:
        """Whether exactly one value is possible."""
        return len(self.possible) == 1

    def is_seen_as(self, reading: object) -> bool:
        """Return whether `reading` is the only possible value."""
        return self.possible == (reading,)


def seen(reading: Any, how: str) -> Finding:
    """Return the finding of an observed value."""
    return Finding((reading,), how)


def among(readings: Iterable[Any], how: str) -> Finding:
    """Return the finding of several possible values."""
    return Finding(tuple(readings), how)


def unseen(why: str) -> Finding:
    """Return the finding of a knob that was not observed."""
    return Finding((), why)


def attempt(probe: Dialogue[Finding]) -> Dialogue[Finding]:
    """Run a probe. If a response decides nothing, the knob counts as not observed."""
    try:
        return (yield from probe)
    except Unclear as unclear:
        return unseen(str(unclear))
