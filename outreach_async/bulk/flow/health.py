"""The last hundred results: is the service failing, or the row?"""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW: Final = 100
"""Results to judge by."""
ENOUGH: Final = 20
"""Results below which nothing is judged."""
SICK: Final = 0.5
"""The share of faults from which on the service counts as failing."""
WELL: Final = 0.9
"""The share of successes among its neighbours from which on a failure is the row's own."""


class Health:
    """What came of the last attempts. A success costs one addition: only faults are remembered, by their number.

    Attributes:
        results: How many there were.
    """

    __slots__ = ("_faults", "_since", "results")

    def __init__(self) -> None:
        self.results = 0
        self._since = 0
        self._faults: deque[tuple[int, int]] = deque()

    def succeeded(self) -> None:
        """Take in that the service did as it was told."""
        self.results += 1

    def fault(self, blamed: int) -> None:
        """Take in that the service, or the way to it, failed for a row that was blamed so often before."""
        self._faults.append((self.results, blamed))
        self.results += 1
        self._forget()

    def clear(self) -> None:
        """Judge by what comes from now on."""
        self._since = self.results
        self._faults.clear()

    def _forget(self) -> None:
        while self._faults and self._faults[0][0] < self.results - WINDOW:
            self._faults.popleft()

    @property
    def seen(self) -> int:
        """How many results there are to judge by."""
        return min(self.results - self._since, WINDOW)

    @property
    def sick(self) -> bool:
        """Whether the service is failing."""
        self._forget()
        return self.seen >= ENOUGH and len(self._faults) >= SICK * self.seen

    def blames(self, blamed: int) -> bool:
        """Whether a row's next fault is its own, as its neighbours do well or are too few to tell.

        The row's earlier faults are left out. Nothing here knows rows apart: of the faults that were a row's first, its second
        and so on, one each is taken for this row's.
        """
        self._forget()
        own = len({before for _, before in self._faults if before < blamed})
        others = self.seen - own
        return others < ENOUGH or others - (len(self._faults) - own) >= WELL * others
