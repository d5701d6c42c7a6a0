"""The level of each check: an error keeps a row from being sent, a warning is reported, and a check that is off does not run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import Final, Literal, get_args

import attrs

from outreach_async.errors import InvalidRequest

Level = Literal["error", "warn", "off"]

CHECKS: Final[Mapping[str, str]] = {
    "email": "a valid address",
    "role": "an address of a role, such as info@",
    "typo": "a domain one typing error away from a large provider's",
    "phone": "a valid number of its country",
    "country": "a two-letter code or an English name",
    "state": "a state of the United States, Canada or Australia, by code or name",
    "timezone": "a name of the time zone database, or UTC+hh:mm",
    "date": "a real date as YYYY-MM-DD",
    "website": "an http or https URL, or a host",
    "cells": "a cell that a spreadsheet or a wrong encoding has changed",
    "repeat": "an e-mail that occurs earlier in the file",
}
"""The checks, with the values that pass, or, for checks of a suspicion, the values that they report."""

LINTS: Final = frozenset({"role", "typo", "timezone", "date", "cells", "repeat"})
"""Checks that become errors only by name: their findings may be intended, or the service does not document what it accepts."""

NEEDS: Final[Mapping[str, str]] = {"email": "email_validator", "phone": "phonenumbers"}
"""Modules that checks need. The extra `validate` installs them."""

_WARN: Final = "repeat"
"""The check of duplicates in the file. It only warns: `repeats` of `create_many` decides what happens to them."""


@attrs.frozen
class Policy:
    """The level of each check.

    Attributes:
        levels: Levels by check.
        lacking: Checks that are off because a library is not installed.
    """

    levels: Mapping[str, Level]
    lacking: tuple[str, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str] = (), *, has: Callable[[str], object] = find_spec) -> Policy:
        """Parse `error`, `warn` or `off` for all checks, and `check=level` for one. Later strings override earlier ones.

        Checks warn by default. A check of a mere suspicion, or of something that the service does not document, becomes an error
        only by name.

        Args:
            texts: The strings.
            has: Returns whether a module is installed.

        Raises:
            InvalidRequest: A check or a level is unknown, or a check requested here needs a library that is not installed.
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
            raise InvalidRequest(
                f"check: the extra 'validate' is missing for {_listed(wanted)}; run pip install 'outreach_async[validate]'"
            )
        return cls({**levels, **dict.fromkeys(lacking, "off")}, lacking)

    @property
    def note(self) -> str | None:
        """A note on the checks that are off because a library is missing; `None` if there are none."""
        if not self.lacking:
            return None
        return f"not checked: {_listed(self.lacking)}; to check, run pip install 'outreach_async[validate]'"


def _level(text: str, given: str) -> Level:
    for level in get_args(Level):
        if given.strip() == level:
            return level  # type: ignore[no-any-return]  # get_args is not typed
    raise InvalidRequest(f"check: expected error, warn or off, got {text!r}; write, for example, --check email=error")


def _check(text: str, name: str) -> str:
    if (check := name.strip()) not in CHECKS:
        raise InvalidRequest(f"check: unknown check in {text!r}; use one of {', '.join(CHECKS)}")
    if check == _WARN and text.rpartition("=")[2].strip() == "error":
        raise InvalidRequest(
            "check: expected repeat=warn or repeat=off, got repeat=error; to reject duplicates, pass --repeats error"
        )
    return check


def _listed(names: Iterable[str]) -> str:
    return " and ".join(sorted(names))
