"""Countries and their states, by the codes and names that people write."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final
from unicodedata import combining, normalize

_CACHED: Final = 1 << 14
_NOT_ISO: Final = {"uk": "GB", "el": "GR"}
"""Two letters that people and the European Union write, and ISO 3166 does not."""


def country_code(text: str) -> str | None:
    """Return the two letters of a country that is given by them or by a name; `None` if nobody knows it."""
    return _country(text.strip())[0]


@lru_cache(maxsize=_CACHED)
def country_complaint(text: str) -> str | None:
    """Return what is wrong with a country."""
    _, complaint = _country(text.strip())
    return complaint


@lru_cache(maxsize=_CACHED)
def state_complaint(state: tuple[str, str | None]) -> str | None:
    """Return what is wrong with a state of a country, where that one's states are known.

    Args:
        state: What stands in the cell, and the country's two letters.
    """
    text, country = state
    states = _states().get(country or "")
    if states is None or folded(text) in states:
        return None
    near = get_close_matches(folded(text), states, n=1, cutoff=0.8)
    return f"no state of {country}{_meant(states[near[0]]) if near else ''}"


@lru_cache(maxsize=_CACHED)
def _country(text: str) -> tuple[str | None, str | None]:
    """Return a country's two letters, and what is wrong with how it is written."""
    key = folded(text)
    codes, names, longer = _countries()
    if key in codes:
        return codes[key], None
    if found := names.get(key) or names.get(key.removeprefix("the")):
        return found, None
    if found := longer.get(key) or _NOT_ISO.get(key):
        return found, f"neither a two-letter code nor a name{_meant(found)}"
    near = get_close_matches(key, names, n=1, cutoff=0.8)
    return None, f"neither a two-letter code nor a name of a country{_meant(names[near[0]]) if near else ''}"


def _meant(code: str) -> str:
    return f"; {code!r} may be meant"


def folded(text: str) -> str:
    """Return a name as names are compared: without case, accents, blanks and punctuation."""
    return "".join(char for char in normalize("NFKD", text).casefold() if char.isalnum() and not combining(char))


@cache
def _countries() -> tuple[Mapping[str, str], Mapping[str, str], Mapping[str, str]]:
    """Return the two-letter code by itself, by each name, and by the three-letter code."""
    rows = [line.split("\t") for line in _lines("countries")]
    names = {folded(name): code for code, _, *names in rows for name in names}
    return {code.casefold(): code for code, *_ in rows}, names, {longer.casefold(): code for code, longer, *_ in rows}


@cache
def _states() -> Mapping[str, Mapping[str, str]]:
    """Return for each country whose states are known the states' codes, by code and name."""
    states: dict[str, dict[str, str]] = {}
    for country, code, *names in (line.split("\t") for line in _lines("states")):
        states.setdefault(country, {}).update({folded(name): code for name in (code, *names)})
    return states


def _lines(table: str) -> list[str]:
    return (files("outreach_async.importer.checks") / "data" / f"{table}.tsv").read_text(encoding="utf-8").splitlines()
