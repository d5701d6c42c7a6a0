"""What a probe finds: the readings of a knob that its answers allow, and how that was seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from outreach_async.conformance.site import Dialogue, Unclear


@attrs.frozen
class Finding:
    """What is known of a knob.

    Attributes:
        possible: The readings that fit; one if it was seen, several if they cannot be told apart, none if nothing was seen.
        how: How it was seen, or why not.
    """

    possible: tuple[Any, ...]
    how: str

    @property
    def seen(self) -> bool:
        """Whether one reading is left."""
        return len(self.possible) == 1

    def is_seen_as(self, reading: object) -> bool:
        """Whether this reading is the one that is left."""
        return self.possible == (reading,)


def seen(reading: Any, how: str) -> Finding:
    """Say that a knob was seen."""
    return Finding((reading,), how)


def among(readings: Iterable[Any], how: str) -> Finding:
    """Say which readings are left; one of them is what was seen."""
    return Finding(tuple(readings), how)


def unseen(why: str) -> Finding:
    """Say that a knob was not seen."""
    return Finding((), why)


def attempt(probe: Dialogue[Finding]) -> Dialogue[Finding]:
    """Run a probe; an answer that decides nothing leaves its knob unseen."""
    try:
        return (yield from probe)
    except Unclear as unclear:
        return unseen(str(unclear))
