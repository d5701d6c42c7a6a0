"""What to do with an e-mail that an input holds more than once."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Literal

from outreach_async.bulk.outcome import ContactOutcome, refused_repeat
from outreach_async.errors import InvalidRequest

Repeats = Literal["serial", "error", "first", "last", "coalesce"]
"""`serial` sends every row, one after the other for each e-mail. `error` refuses a row that repeats one of the last 10,000.
`first`, `last` and `coalesce` send one row for each e-mail, once the whole input is in the journal's spool.

Example:
    ```python
    report = await client.contacts.create_many([{"email": "ann@company.example"}] * 2, repeats="error")
    print(report.outcomes[Outcome.ADDED], report.outcomes[Outcome.REJECTED])  # -> 1 1
    ```
"""

WHOLE_INPUT: Final = frozenset({"first", "last", "coalesce"})
"""Policies that need all rows before the first is sent."""

_REACH: Final = 10_000


def same_as(place: str) -> str:
    """Say that a row has the e-mail of another.

    Args:
        place: The other one, such as `line 3`.
    """
    return f"email: the same as in {place}"


def refused_as(place: str) -> str:
    """Say that a row is refused for that, and what to do."""
    return f"{same_as(place)}; leave one out, or choose what repeats should do"


class Recent:
    """Remembers the e-mails of the last rows.

    Only addresses that are equal to the last character count as repeated: refusing by a coarser key could lose a contact.
    """

    def __init__(self, reach: int = _REACH) -> None:
        self._reach = reach
        self._rows: OrderedDict[str, int] = OrderedDict()

    def earlier(self, index: int, email: str) -> int | None:
        """Return the index of an earlier row with this e-mail; remember this row if there is none."""
        while self._rows and next(iter(self._rows.values())) < index - self._reach:
            self._rows.popitem(last=False)
        found = self._rows.setdefault(email, index)
        return None if found == index else found

    @staticmethod
    def refused(index: int, given: object, earlier: int) -> ContactOutcome:
        """Return the outcome of a row that repeats an earlier one."""
        return refused_repeat(index, given, earlier, InvalidRequest(refused_as(f"row {earlier}")))
