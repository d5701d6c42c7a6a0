"""Policies for e-mails that occur more than once in the input.

Elsewhere these are called duplicates. Here, `duplicates` is the service's option for contacts that it already has.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Literal

from outreach_async.bulk.outcome import ContactOutcome, refused_repeat
from outreach_async.errors import InvalidRequest

Repeats = Literal["serial", "error", "first", "last", "coalesce"]
"""Policy for e-mails that occur more than once in the input. `serial` sends every row, one at a time per e-mail. `error` rejects
a row that repeats one of the last 10,000. `first`, `last` and `coalesce` send one row per e-mail, once the whole input is in the
journal's spool.

Example:
    ```python
    report = await client.contacts.create_many([{"email": "ann@company.example"}] * 2, repeats="error")
    print(report.outcomes[Outcome.ADDED], report.outcomes[Outcome.REJECTED])  # -> 1 1
    ```
"""

WHOLE_INPUT: Final = frozenset({"first", "last", "coalesce"})
"""Policies that need all rows before the first is sent."""

_REACH: Final = 10_000
"""Number of recent rows whose e-mails are remembered."""


def same_as(place: str) -> str:
    """Return the message for a row with the e-mail of another row.

    Args:
        place: The other row, such as `line 3`.
    """
    return f"email: same address as {place}"


def refused_as(place: str) -> str:
    """Return the message for a row that is rejected because of this, with the remedy."""
    return f"{same_as(place)}; remove one of them, or choose another policy for repeats"


class Recent:
    """Remembers the e-mails of the last rows.

    Only identical addresses count as repeated: rejecting by a coarser key could lose a contact.
    """

    def __init__(self, reach: int = _REACH) -> None:
        self._reach = reach
        self._rows: OrderedDict[str, int] = OrderedDict()

    def earlier(self, index: int, email: str) -> int | None:
        """Return the index of an earlier row with the same e-mail; remember this row if there is none."""
        while self._rows and next(iter(self._rows.values())) < index - self._reach:
            self._rows.popitem(last=False)
        found = self._rows.setdefault(email, index)
        return None if found == index else found

    @staticmethod
    def refused(index: int, given: object, earlier: int) -> ContactOutcome:
        """Return the outcome of a row that repeats an earlier one."""
        return refused_repeat(index, given, earlier, InvalidRequest(refused_as(f"row {earlier}")))
