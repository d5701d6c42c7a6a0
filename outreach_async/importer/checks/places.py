"""Check countries and their states by code and name."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final
from unicodedata import combining, normalize

_CACHED: Final = 1 << 14
_NOT_ISO: Final = {"uk": "GB", "el": "GR"}
"""Two-letter codes that people and the European Union use, but ISO 3166 does not."""


def country_code(text: str) -> str | None:
    """Return the two-letter code of a country given by code or name; `None` if it is unknown."""
    return _country(text.strip())[0]


@lru_cache(maxsize=_CACHED)
def country_complaint(text: str) -> str | None:
    """Return the problem of a country; `None` if it is valid."""
    _, complaint = _country(text.strip())
    return complaint


@lru_cache(maxsize=_CACHED)
def state_complaint(state: tuple[str, str | None]) -> str | None:
    """Return the problem of a state; `None` if it is valid, or the country's states are not known here.

    Args:
        state: The cell, and the two-letter code of the country.
    """
    text, country = state
    states = _states().get(country or "")
    if states is None or folded(text) in states:
        return None
    near = get_close_matches(folded(text), states, n=1, cutoff=0.8)
    return f"not a state of {country}{_meant(states[near[0]]) if near else ''}"


@lru_cache(maxsize=_CACHED)
def _country(text: str) -> tuple[str | None, str | None]:
    """Return a country's two-letter code, and the problem with how it is written."""
    key = folded(text)
    codes, names, longer = _countries()
    if key in codes:
        return codes[key], None
    if found := names.get(key) or names.get(key.removeprefix("the")):
        return found, None
    if found := longer.get(key) or _NOT_ISO.get(key):
        return found, f"expected a two-letter code or a name{_meant(found)}"
    near = get_close_matches(key, names, n=1, cutoff=0.8)
    return None, f"expected a country's two-letter code or name{_meant(names[near[0]]) if near else ''}"


def _meant(code: str) -> str:
    return f"; did you mean {code!r}?"


def folded(text: str) -> str:
    """Return a name in the form in which names are compared: without case, accents, blanks and punctuation."""
    return "".join(char for char in normalize("NFKD", text).casefold() if char.isalnum() and not combining(char))


@cache
def _countries() -> tuple[Mapping[str, str], Mapping[str, str], Mapping[str, str]]:
    """Return the two-letter codes by two-letter code, by name, and by three-letter code."""
    rows = [line.split("\t") for line in _lines("countries")]
    names = {folded(name): code for code, _, *names in rows for name in names}
    return {code.casefold(): code for code, *_ in rows}, names, {longer.casefold(): code for code, longer, *_ in rows}


@cache
def _states() -> Mapping[str, Mapping[str, str]]:
    """Return the codes of states by code and name, for each country whose states are known."""
    states: dict[str, dict[str, str]] = {}
    for country, code, *names in (line.split("\t") for line in _lines("states")):
        states.setdefault(country, {}).update({folded(name): code for name in (code, *names)})
    return states


def _lines(table: str) -> list[str]:
    return (files("outreach_async.importer.checks") / "data" / f"{table}.tsv").read_text(encoding="utf-8").splitlines()
