"""Merges rows with the same e-mail into one. Pure: no I/O.

The result is the contact that the service would hold if the rows had been sent one after the other. With `skip`, only the first
row counts. With `overwrite`, a later value replaces an earlier one. With `update_missing_fields`, a later value fills a blank
one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

Members: TypeAlias = Mapping[str, Any]


def merge(earlier: Members, later: Members, duplicates: str) -> dict[str, Any]:
    """Return the members to send once, instead of two rows one after the other.

    Args:
        earlier: Members of the row that comes first in the input.
        later: Members of a later row with the same e-mail.
        duplicates: The `duplicates` option of the run.
    """
    return _MERGES[duplicates](earlier, later)


def _skip(earlier: Members, _: Members) -> dict[str, Any]:
    return {**earlier}


def _overwrite(earlier: Members, later: Members) -> dict[str, Any]:
    return {**earlier, **later}


def _fill(earlier: Members, later: Members) -> dict[str, Any]:
    """Take no blank value from the later row: the service would not fill a field with it, but would store it in a new contact."""
    return {**earlier, **{name: value for name, value in later.items() if not _blank(value) and _blank(earlier.get(name))}}


def _blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


_MERGES: Final[dict[str, Callable[[Members, Members], dict[str, Any]]]] = {
    "skip": _skip,
    "overwrite": _overwrite,
    "update_missing_fields": _fill,
}
