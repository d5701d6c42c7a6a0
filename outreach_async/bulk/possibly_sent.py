"""The set of rows that an earlier process may have sent."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

import attrs


@attrs.frozen
class PossiblySent:
    """A set of rows that may have been sent, stored as ranges.

    If the earlier process was killed, the set holds every marked row. Those with an outcome are not sent again. A process that
    ends normally records exactly which rows without an outcome may have been sent.

    Attributes:
        ranges: Half-open ranges (first row, row after the last), sorted; no two overlap or touch.
    """

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, indexes: Iterable[int] = (), ranges: Iterable[tuple[int, int]] = ()) -> PossiblySent:
        """Return the set of the rows with these indexes or in these ranges."""
        joined: list[tuple[int, int]] = []
        for first, end in sorted([*((index, index + 1) for index in indexes), *ranges]):
            if joined and first <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            elif first < end:
                joined.append((first, end))
        return cls(tuple(joined))

    def __contains__(self, index: int) -> bool:
        at = bisect_right(self.ranges, (index, float("inf")))
        return at > 0 and index < self.ranges[at - 1][1]

    def starting_at(self, index: int) -> PossiblySent:
        """Return the rows of the set from this index on."""
        return PossiblySent.of(ranges=[(max(first, index), end) for first, end in self.ranges if end > index])


NO_ROWS: Final = PossiblySent()
