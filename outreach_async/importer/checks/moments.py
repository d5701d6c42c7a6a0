"""Check dates and time zones. The service does not document the forms it accepts, so the unambiguous ones pass."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Final
from zoneinfo import available_timezones

_CACHED: Final = 1 << 14
_DATE: Final = re.compile(r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{2})(?:-(?P<day>[0-9]{2}))?)?")
_OFFSET: Final = re.compile(r"(?:UTC|GMT)[+-](?:0[0-9]|1[0-4]):[0-5][0-9]")


@lru_cache(maxsize=_CACHED)
def date_complaint(text: str) -> str | None:
    """Return the problem of a date; `None` for a real date as `YYYY-MM-DD`, `YYYY-MM` or `YYYY`."""
    found = _DATE.fullmatch(text)
    if found is None:
        return "the service does not document its date formats; use YYYY-MM-DD, which is unambiguous"
    try:
        date(int(found["year"]), int(found["month"] or 1), int(found["day"] or 1))
    except ValueError:
        return "there is no such date"
    return None


@lru_cache(maxsize=_CACHED)
def timezone_complaint(text: str) -> str | None:
    """Return the problem of a time zone; `None` for a name of the time zone database, or an offset such as `UTC+05:30`."""
    names = _timezones()
    if not names or names.get(text.casefold()) == text or _OFFSET.fullmatch(text):
        return None
    near = get_close_matches(text.casefold().replace(" ", "_"), names, n=1, cutoff=0.7)
    meant = f"; did you mean {names[near[0]]!r}?" if near else ""
    return f"expected a name of the time zone database, such as 'Europe/Berlin'{meant}"


@cache
def _timezones() -> Mapping[str, str]:
    """Return the names by folded name; none if neither the system nor the package tzdata provides the database."""
    return {name.casefold(): name for name in available_timezones()}
