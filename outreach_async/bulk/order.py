"""Holds outcomes until the caller takes them, in order of completion or in the order of the rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, MutableSequence
from typing import Literal, Protocol

from outreach_async.bulk.outcome import ContactOutcome

Order = Literal["completion", "input"]
"""Return outcomes as they complete, or in the order of the rows, which holds back those that complete early.

Example:
    ```python
    async with client.contacts.create_many([{"email": ""}, {"email": "ann@company.example"}], order="input") as outcomes:
        print([outcome.index async for outcome in outcomes])  # -> [0, 1]
    ```
"""


Revised = Callable[[ContactOutcome], ContactOutcome]
"""Takes the outcome of a row and returns the one that replaces it."""


class Ready(Protocol):
    """Outcomes that wait for the caller."""

    def __len__(self) -> int:
        """Return 0 if no outcome can be taken now."""
        ...

    def expect(self, index: int, /) -> None:
        """Note that this row is being processed."""
        ...

    def forget(self, index: int, /) -> None:
        """Note that this row will have no outcome."""
        ...

    def extend(self, outcomes: Iterable[ContactOutcome], /) -> None:
        """Add outcomes."""
        ...

    def append(self, outcome: ContactOutcome, /) -> None:
        """Add an outcome."""
        ...

    def revise(self, index: int, revised: Revised, /) -> None:
        """Replace the outcome of a row, if the caller has not taken it yet."""
        ...

    def popleft(self) -> ContactOutcome:
        """Remove and return the next outcome; there must be one."""
        ...


class AsCompleted(deque[ContactOutcome]):
    """Returns outcomes in order of completion."""

    def expect(self, _index: int) -> None:
        """Do nothing: no row waits for another."""

    def forget(self, _index: int) -> None:
        """Do nothing: no row waits for another."""

    def revise(self, index: int, revised: Revised) -> None:
        """Replace the outcome of a row, if the caller has not taken it yet."""
        revise(self, index, revised)


class AsGiven:
    """Takes outcomes in any order and returns them in the order of the rows."""

    def __init__(self) -> None:
        self._expected: deque[int] = deque()
        self._held: dict[int, ContactOutcome] = {}

    def __len__(self) -> int:
        return len(self._held) if self._expected and self._expected[0] in self._held else 0

    def expect(self, index: int) -> None:
        """Make later rows wait for this one."""
        self._expected.append(index)

    def forget(self, index: int) -> None:
        """Stop waiting for this row."""
        self._expected.remove(index)

    def extend(self, outcomes: Iterable[ContactOutcome]) -> None:
        """Add outcomes."""
        for outcome in outcomes:
            self.append(outcome)

    def append(self, outcome: ContactOutcome) -> None:
        """Add an outcome."""
        self._held[outcome.index] = outcome

    def revise(self, index: int, revised: Revised) -> None:
        """Replace the outcome of a row, if the caller has not taken it yet."""
        if index in self._held:
            self._held[index] = revised(self._held[index])

    def popleft(self) -> ContactOutcome:
        """Remove and return the outcome of the first expected row."""
        return self._held.pop(self._expected.popleft())


def revise(outcomes: MutableSequence[ContactOutcome], index: int, revised: Revised) -> None:
    """Replace the outcome of a row, if it is in this sequence."""
    for place, outcome in enumerate(outcomes):
        if outcome.index == index:
            outcomes[place] = revised(outcome)


def ready(order: Order) -> Ready:
    """Return an empty container for this order."""
    return AsGiven() if order == "input" else AsCompleted()
