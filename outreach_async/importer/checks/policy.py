"""How much a check counts for: an error keeps a row from being sent, a warning is told, and what is off is not looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import Final, Literal, get_args

import attrs

from outreach_async.errors import InvalidRequest

Level = Literal["error", "warn", "off"]

CHECKS: Final[Mapping[str, str]] = {
    "email": "an address that can be written to",
    "role": "an address of a function, such as info@",
    "typo": "a domain that is one slip away from a big provider's",
    "phone": "a number that its country gives out",
    "country": "a two-letter code or an English name",
    "state": "a state of the United States, Canada or Australia, by code or name",
    "timezone": "a name of the time zone database, or UTC+hh:mm",
    "date": "a real date as YYYY-MM-DD",
    "website": "an http or https URL, or a host",
    "cells": "a cell that a spreadsheet or a wrong encoding has changed",
    "repeat": "an e-mail that stands in the file before",
}
"""The checks, and what passes or, for those that are about a suspicion, what they find."""

LINTS: Final = frozenset({"role", "typo", "timezone", "date", "cells", "repeat"})
"""Checks that are errors only by name: what they find may well be meant, or nobody knows what the service takes."""

NEEDS: Final[Mapping[str, str]] = {"email": "email_validator", "phone": "phonenumbers"}
"""Modules that checks need, which the extra `validate` installs."""

_WARN: Final = "repeat"
"""What repeats become is the policy over repeats' to say; here they are told, or not."""


@attrs.frozen
class Policy:
    """What each check counts for.

    Attributes:
        levels: By check.
        lacking: Checks that are off because what they need is not installed.
    """

    levels: Mapping[str, Level]
    lacking: tuple[str, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str] = (), *, has: Callable[[str], object] = find_spec) -> Policy:
        """Read `error`, `warn` or `off`, for all checks, and `check=level`, for one; what comes later wins.

        Checks warn if nothing is said. Those that are no more than a suspicion, and those of what the service does not document,
        become errors only by name.

        Args:
            texts: Those.
            has: Says whether a module is installed.

        Raises:
            InvalidRequest: No check, no level, or a check that was asked for and needs what is not installed.
        """
        levels: dict[str, Level] = dict.fromkeys(CHECKS, "warn")
        asked: set[str] = set()
        for text in texts:
            name, sign, given = text.rpartition("=")
            level = _level(text, given)
            names = [_check(text, name)] if sign else list(CHECKS)
            asked = asked | set(names) if level != "off" else asked - set(names)
            levels |= {check: "warn" if level == "error" and not sign and check in LINTS else level for check in names}
        lacking = tuple(check for check, module in NEEDS.items() if levels[check] != "off" and not has(module))
        if wanted := asked & set(lacking):
            raise InvalidRequest(f"check: {_listed(wanted)} needs the extra 'validate'; pip install 'outreach_async[validate]'")
        return cls({**levels, **dict.fromkeys(lacking, "off")}, lacking)

    @property
    def note(self) -> str | None:
        """What a person should know: which checks are not made for want of a library."""
        if not self.lacking:
            return None
        return f"not checked: {_listed(self.lacking)}; pip install 'outreach_async[validate]' for that"


def _level(text: str, given: str) -> Level:
    for level in get_args(Level):
        if given.strip() == level:
            return level  # type: ignore[no-any-return]  # get_args is not typed
    raise InvalidRequest(f"check: expected error, warn or off, or for example email=error, got {text!r}")


def _check(text: str, name: str) -> str:
    if (check := name.strip()) not in CHECKS:
        raise InvalidRequest(f"check: {text!r} names no check; there are {', '.join(CHECKS)}")
    if check == _WARN and text.rpartition("=")[2].strip() == "error":
        raise InvalidRequest(
            "check: repeats can warn or be off; what becomes of them is for the policy over repeats (repeats='error')"
        )
    return check


def _listed(names: Iterable[str]) -> str:
    return " and ".join(sorted(names))
