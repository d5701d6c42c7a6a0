"""Dates and time zones. Which forms the service takes is not documented: these are the ones that nobody can misread."""

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
    """Return what is wrong with a date: `YYYY-MM-DD`, `YYYY-MM` and `YYYY` are right if there is such a day."""
    found = _DATE.fullmatch(text)
    if found is None:
        return "which forms of dates are taken is not documented; YYYY-MM-DD cannot be misread"
    try:
        date(int(found["year"]), int(found["month"] or 1), int(found["day"] or 1))
    except ValueError:
        return "there is no such day"
    return None


@lru_cache(maxsize=_CACHED)
def timezone_complaint(text: str) -> str | None:
    """Return what is wrong with a time zone: a name of the time zone database is right, and an offset such as `UTC+05:30`."""
    names = _timezones()
    if not names or names.get(text.casefold()) == text or _OFFSET.fullmatch(text):
        return None
    near = get_close_matches(text.casefold().replace(" ", "_"), names, n=1, cutoff=0.7)
    meant = f"; {names[near[0]]!r} may be meant" if near else ""
    return f"no name of the time zone database, such as 'Europe/Berlin'{meant}"


@cache
def _timezones() -> Mapping[str, str]:
    """Return the names by folded name; none where neither the system nor the package tzdata has the database."""
    return {name.casefold(): name for name in available_timezones()}
