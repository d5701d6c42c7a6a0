"""E-mail addresses: whether they can be written to, and what makes one suspicious."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

_PLAIN: Final = re.compile(
    r"[a-z0-9_+-]+(?:\.[a-z0-9_+-]+)*@(?:[a-z0-9]+(?:-[a-z0-9]+)*\.)+(?!(?:arpa|invalid|local|localhost|onion|test)\Z)[a-z]{2,}",
    re.IGNORECASE | re.ASCII,
)
"""Addresses that nobody has to look at twice: the library takes fifty times as long, and finds nothing against them either."""

_SHORT: Final = 63
"""Characters up to which no part of an address can be too long."""


def complaint(text: str) -> str | None:
    """Return why nobody can be reached at an address; `None` if somebody could be."""
    return None if len(text) <= _SHORT and _PLAIN.fullmatch(text) else _looked_up(text)


def role_complaint(text: str) -> str | None:
    """Return what speaks for an address being read by nobody in particular."""
    local = text.partition("@")[0].casefold()
    return f"{local}@ is a function's address, not a person's" if local in _roles() else None


def typo_complaint(text: str) -> str | None:
    """Return which provider was probably meant."""
    meant = _slips().get(text.rpartition("@")[2].casefold())
    return f"the domain is one slip away from {meant}" if meant else None


def _looked_up(text: str) -> str | None:
    from email_validator import EmailNotValidError, validate_email

    try:
        validate_email(text, check_deliverability=False, strict=True)
    except EmailNotValidError as error:
        return f"no address to write to: {error}"
    return None


@cache
def _roles() -> frozenset[str]:
    """Return RFC 2142's mailboxes, and those that list services commonly turn away."""
    return frozenset(_words("roles"))


@cache
def _slips() -> dict[str, str]:
    """Return the provider by every text that is one slip from its domain, and that nobody has as a domain of his own."""
    providers = _words("providers")
    found = {slip: provider for provider in reversed(providers) for slip in _one_slip(provider)}
    return {slip: provider for slip, provider in found.items() if slip not in {*providers, *_words("neighbours")}}


def _words(table: str) -> list[str]:
    return (files("outreach_async.importer.checks") / "data" / f"{table}.txt").read_text(encoding="utf-8").split()


def _one_slip(word: str) -> set[str]:
    """Return what a word becomes if a letter is left out, doubled, swapped with the next, or mistyped as one beside it."""
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
