"""Check e-mail addresses: invalid ones, role addresses, and probable typing errors."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

_PLAIN: Final = re.compile(
    r"[a-z0-9_+-]+(?:\.[a-z0-9_+-]+)*@(?:[a-z0-9]+(?:-[a-z0-9]+)*\.)+(?!(?:arpa|invalid|local|localhost|onion|test)\Z)[a-z]{2,}",
    re.IGNORECASE | re.ASCII,
)
"""Plain addresses, accepted without the library, which takes fifty times as long and accepts them, too."""

_SHORT: Final = 63
"""Most characters of an address in which no part can be too long."""


def complaint(text: str) -> str | None:
    """Return why an address is invalid; `None` if it is valid."""
    return None if len(text) <= _SHORT and _PLAIN.fullmatch(text) else _looked_up(text)


def role_complaint(text: str) -> str | None:
    """Return why an address probably belongs to a role and not to a person; `None` if it does not."""
    local = text.partition("@")[0].casefold()
    return f"{local}@ is a role address, not a person's" if local in _roles() else None


def typo_complaint(text: str) -> str | None:
    """Return a hint at the provider that was probably meant; `None` if the domain looks correct."""
    meant = _slips().get(text.rpartition("@")[2].casefold())
    return f"the domain is one typing error away from {meant}" if meant else None


def _looked_up(text: str) -> str | None:
    from email_validator import EmailNotValidError, validate_email

    try:
        validate_email(text, check_deliverability=False, strict=True)
    except EmailNotValidError as error:
        return f"not a valid address: {error}"
    return None


@cache
def _roles() -> frozenset[str]:
    """Return the mailbox names of RFC 2142, and those that mailing list services commonly reject."""
    return frozenset(_words("roles"))


@cache
def _slips() -> dict[str, str]:
    """Return the provider by domain, for unknown domains that are one typing error away from the provider's."""
    providers = _words("providers")
    found = {slip: provider for provider in reversed(providers) for slip in _one_slip(provider)}
    return {slip: provider for slip, provider in found.items() if slip not in {*providers, *_words("neighbours")}}


def _words(table: str) -> list[str]:
    return (files("outreach_async.importer.checks") / "data" / f"{table}.txt").read_text(encoding="utf-8").split()


def _one_slip(word: str) -> set[str]:
    """Return the word with one letter omitted, doubled, swapped with the next, or replaced by a neighbour on the keyboard."""
    splits = [(word[:at], word[at:]) for at in range(len(word))]
    left_out = {before + rest[1:] for before, rest in splits}
    doubled = {before + rest[0] + rest for before, rest in splits}
    swapped = {before + rest[1] + rest[0] + rest[2:] for before, rest in splits if len(rest) > 1}
    beside = {before + key + rest[1:] for before, rest in splits for key in _BESIDE.get(rest[0], "")}
    return {slip for slip in left_out | doubled | swapped | beside if _is_domain(slip)}


def _is_domain(text: str) -> bool:
    return all(map(str.isalnum, text.split("."))) and "." in text[1:-1]


_ROWS: Final = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_BESIDE: Final = {key: "".join(row[max(at - 1, 0) : at] + row[at + 1 : at + 2]) for row in _ROWS for at, key in enumerate(row)}
