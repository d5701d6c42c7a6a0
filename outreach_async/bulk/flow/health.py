"""Judges the last hundred results: is the service failing, or the row?"""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW: Final = 100
"""Number of recent results that are judged."""
ENOUGH: Final = 20
"""Minimum number of results for a judgement."""
SICK: Final = 0.5
"""Minimum share of faults at which the service counts as failing."""
WELL: Final = 0.9
"""Minimum share of successes among the other rows at which a failure counts against its row."""


class Health:
    """The results of recent attempts. A success costs one addition: only faults are stored, with the number of their result.

    Attributes:
        results: Number of results so far.
    """

    __slots__ = ("_faults", "_since", "results")

    def __init__(self) -> None:
        self.results = 0
        self._since = 0
        self._faults: deque[tuple[int, int]] = deque()

    def succeeded(self) -> None:
        """Record a success."""
        self.results += 1

    def fault(self, blamed: int) -> None:
        """Record a failure of the service or the connection, for a row with this many failures counted against it before."""
        self._faults.append((self.results, blamed))
        self.results += 1
        self._forget()

    def clear(self) -> None:
        """Forget all results so far."""
        self._since = self.results
        self._faults.clear()

    def _forget(self) -> None:
        while self._faults and self._faults[0][0] < self.results - WINDOW:
            self._faults.popleft()

    @property
    def seen(self) -> int:
        """Number of results in the window."""
        return min(self.results - self._since, WINDOW)

    @property
    def sick(self) -> bool:
        """True if the service is failing."""
        self._forget()
        return self.seen >= ENOUGH and len(self._faults) >= SICK * self.seen

    def blames(self, blamed: int) -> bool:
        """Return whether a row's next failure counts against it: the other rows succeed, or there are too few of them to tell.

        The row's earlier faults are left out. Faults are not stored per row: among all first faults of a row, one is taken to be
        this row's, and likewise among the second ones and so on.
        """
        self._forget()
        own = len({before for _, before in self._faults if before < blamed})
        others = self.seen - own
        return others < ENOUGH or others - (len(self._faults) - own) >= WELL * others
