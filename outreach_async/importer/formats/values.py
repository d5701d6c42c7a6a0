"""Values of typed formats as the texts that a person sees; pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, time, timedelta
from typing import Any, Final

from outreach_async.importer.suspects import Flaw

_KEPT: Final = 15
"""Digits of a number that a float keeps, and so does a spreadsheet."""


def text_of(value: Any) -> str:
    """Return a cell that is no text: TRUE and FALSE, dates and times as ISO 8601 has them, whole numbers without `.0`."""
    return next(write for kind, write in _WRITERS if isinstance(value, kind))(value)


def number_text(value: float, digits: str = "r") -> str:
    """Return a number: a whole one without `.0` and without an exponent.

    Args:
        value: It.
        digits: How `format` is to write another one; `"r"` is as short as it is exact.
    """
    if float(value).is_integer():
        return str(int(value))
    return repr(value) if digits == "r" else format(value, digits)


def number_flaw(column: int, text: str, *, exact: bool = False) -> Flaw:
    """Return what is wrong with a cell that holds a whole number, in case it goes to a field whose digits are none.

    Args:
        column: Its place in the row.
        text: The number.
        exact: Whether all of its digits are sure to be there.
    """
    if not exact and len(text.lstrip("-")) > _KEPT:
        lost = f"{text} is a number in the file, which keeps {_KEPT} of its digits; bring back the others, as text"
        return Flaw(column, "digits", lost, fatal=True)
    return Flaw(
        column,
        "number",
        f"{text} is a number in the file, which has lost zeros or a plus sign before it, if there were any; format it as text",
    )


def _clock(value: timedelta) -> str:
    """Return a duration as a spreadsheet shows it, hours going on past 24."""
    seconds = round(value.total_seconds())
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    return f"{sign}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


# bool comes before int, which it is; a datetime is a date.
_WRITERS: Final[tuple[tuple[Any, Callable[[Any], str]], ...]] = (
    (bool, lambda value: str(value).upper()),
    ((int, float), lambda value: number_text(value, ".15g")),  # as many digits as a spreadsheet shows
    ((date, time), lambda value: value.isoformat()),
    (timedelta, _clock),
)
