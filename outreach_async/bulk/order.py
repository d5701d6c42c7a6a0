"""In which order outcomes reach the caller."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, MutableSequence
from typing import Literal, Protocol

from outreach_async.bulk.outcome import ContactOutcome

Order = Literal["completion", "input"]
"""Outcomes as they come, or in the order of the rows, which holds the early ones back.

Example:
    ```python
    async with client.contacts.create_many([{"email": ""}, {"email": "ann@company.example"}], order="input") as outcomes:
        print([outcome.index async for outcome in outcomes])  # -> [0, 1]
    ```
"""


Revised = Callable[[ContactOutcome], ContactOutcome]
"""Returns what to say of a row instead."""


class Ready(Protocol):
    """Outcomes that wait for the caller."""

    def __len__(self) -> int:
        """Return 0 if none can be taken now."""
        ...

    def expect(self, index: int, /) -> None:
        """Take in that this row is under way."""
        ...

    def forget(self, index: int, /) -> None:
        """Take in that this row will have no outcome."""
        ...

    def extend(self, outcomes: Iterable[ContactOutcome], /) -> None:
        """Take outcomes."""
        ...

    def append(self, outcome: ContactOutcome, /) -> None:
        """Take an outcome."""
        ...

    def revise(self, index: int, revised: Revised, /) -> None:
        """Replace the outcome of a row, if it is still here."""
        ...

    def popleft(self) -> ContactOutcome:
        """Return the next one; there has to be one."""
        ...


class AsCompleted(deque[ContactOutcome]):
    """First done, first out."""

    def expect(self, _index: int) -> None:
        """Do nothing: no row waits for another."""

    def forget(self, _index: int) -> None:
        """Do nothing: no row waits for another."""

    def revise(self, index: int, revised: Revised) -> None:
        """Replace the outcome of a row, if it is still here."""
        revise(self, index, revised)


class AsGiven:
    """Outcomes that come in any order and leave in the order of the rows."""

    def __init__(self) -> None:
        self._expected: deque[int] = deque()
        self._held: dict[int, ContactOutcome] = {}

    def __len__(self) -> int:
        return len(self._held) if self._expected and self._expected[0] in self._held else 0

    def expect(self, index: int) -> None:
        """Let rows that come later wait for this one."""
        self._expected.append(index)

    def forget(self, index: int) -> None:
        """Let nobody wait for this row any longer."""
        self._expected.remove(index)

    def extend(self, outcomes: Iterable[ContactOutcome]) -> None:
        """Take outcomes."""
        for outcome in outcomes:
            self.append(outcome)

    def append(self, outcome: ContactOutcome) -> None:
        """Take an outcome."""
        self._held[outcome.index] = outcome

    def revise(self, index: int, revised: Revised) -> None:
        """Replace the outcome of a row, if it is still here."""
        if index in self._held:
            self._held[index] = revised(self._held[index])

    def popleft(self) -> ContactOutcome:
        """Return the outcome of the first row under way."""
        return self._held.pop(self._expected.popleft())


def revise(outcomes: MutableSequence[ContactOutcome], index: int, revised: Revised) -> None:
    """Replace the outcome of a row, if it is among these."""
    for place, outcome in enumerate(outcomes):
        if outcome.index == index:
            outcomes[place] = revised(outcome)


def ready(order: Order) -> Ready:
    """Return what keeps this order."""
    return AsGiven() if order == "input" else AsCompleted()
