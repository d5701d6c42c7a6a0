"""Find out who must not be written to, from the cells of columns such as "Unsubscribed" and "Email Status"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Final
from unicodedata import category, combining, normalize

from outreach_async._plumbing import show_name
from outreach_async.importer._known_exports import fold_name, read_table

CONSENT_CODES: Final = ("opt_out", "opt_in", "email_status")
"""Codes of columns that are never sent: who opted out or bounced, who opted in, and the status of the address."""

_TABLE: Final = "data/consent.toml"
_MAX_TEXT_LENGTH: Final = 40
_CROSSES: Final = frozenset("☐□⬜✗✘✕✖❌")  # an empty box or a cross means no
_NO_SYMBOLS: Final = "PMCZ"  # categories of punctuation, marks, control characters and blanks
_CACHE_SIZE: Final = 1 << 12


def find_exclusion(kind: str, header: str, text: str) -> str | None:
    """Return the reason why a cell of a column forbids to write to the person; `None` if it does not. A blank says nothing."""
    if not _forbids(kind, text):
        return None
    return f"column {header.strip()!r} says {show_name(text.strip(), _MAX_TEXT_LENGTH)}"


@lru_cache(maxsize=_CACHE_SIZE)
def _forbids(kind: str, text: str) -> bool:
    folded = fold_name(text)
    if not folded:
        symbols = {char for char in text if category(char)[0] not in _NO_SYMBOLS}
        is_crossed = not symbols.isdisjoint(_CROSSES)
        return (bool(symbols) and not is_crossed) if kind == "opt_out" else (is_crossed and kind == "opt_in")
    if folded in _load_words("missing"):
        return False
    is_negative = not folded.strip("0") or folded in _load_words("negative")  # also `0.0` and `0000-00-00`
    words = _fold_words(text)
    if kind == "opt_out":
        return not is_negative and not _load_pattern("harmless").fullmatch(words)
    if kind == "opt_in" and (is_negative or _load_pattern("refusal").match(words)):
        return True
    return any(not found["harmless"] for found in _load_pattern("status").finditer(words))


@lru_cache(maxsize=_CACHE_SIZE)
def is_refused(status: str) -> bool:
    """Return whether a status forbids to write because of the address, and not because of what its person said."""
    rest = _load_pattern("address").sub("", _fold_words(status))
    return _forbids("email_status", status) and not _forbids("email_status", rest)


def _fold_words(text: str) -> str:
    """Return the words of a text, in lower case and without accents, joined by blanks."""
    spaced = re.sub("(?<=[a-z])(?=[A-Z])", " ", text)
    letters = "".join(char for char in normalize("NFKD", spaced.casefold()) if not combining(char)).replace("ł", "l")
    return " ".join(re.findall(r"[^\W_]+", letters))


@cache
def _load_words(name: str) -> frozenset[str]:
    return frozenset(map(fold_name, read_table(_TABLE)["cells"][name]))


@cache
def _join_words(name: str) -> str:
    return "|".join(map(_fold_words, read_table(_TABLE)["cells"][name]))


@cache
def _load_pattern(name: str) -> re.Pattern[str]:
    of = {key: _join_words(key) for key in ("negations", "statuses", "permitted", "fine", "addresses", "usable")}
    negated = rf"(?:{of['negations']}) (?:{of['statuses']})"
    patterns = {
        "status": rf"\b(?:(?P<harmless>{negated}|soft bounced?)|{of['statuses']}|(?:{of['negations']}) (?:{of['permitted']}))\b",
        "address": rf"\b(?:{of['addresses']}|(?:{of['negations']}) (?:{of['usable']}))\b",
        "refusal": rf"(?!(?:{negated})\b)(?:{of['negations']})\b",
        "harmless": rf"(?:(?:{negated}|(?:{of['permitted']})(?: \d+)*|{of['fine']})(?: |$))+",
    }
    return re.compile(patterns[name])


@cache
def load_consent_headers() -> Mapping[str, str]:
    """Return the kinds of columns with common names, by folded name."""
    groups = [group for language in read_table(_TABLE)["headers"].values() for group in language.items()]
    return {fold_name(name): kind for kind, names in groups for name in names}


def guess_kinds(header: str) -> tuple[str, ...]:
    """Return the kinds that a column with an unknown name may have, the likeliest first; none if it looks like another."""
    words = _fold_words(header)
    found = {kind for kind in CONSENT_CODES if _find_look(kind, words)}
    if not found or is_about_telephones(header) or _find_look("links", words, r"\b"):
        return ()
    if "opt_out" not in found and _find_look("details", words, r"\b"):
        return ()
    if re.search(rf"\b(?:{_join_words('negations')}) {_load_look('opt_in', '').pattern}", words):
        found.add("opt_out")
    # Of two kinds, the one that excludes more comes first.
    first = "email_status" if _find_look("verifiers", words, r"\b") else next(kind for kind in CONSENT_CODES if kind in found)
    return (first, *(kind for kind in CONSENT_CODES if kind != first))


def is_about_telephones(header: str) -> bool:
    """Return whether a column says who must not be called, or who agreed to it. It says nothing about e-mail."""
    words = _fold_words(header)
    is_named = "mail" not in words and _find_look("telephones", words, r"\b")
    return is_named and any(_find_look(kind, words) for kind in CONSENT_CODES)


@cache
def _load_look(name: str, end: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(read_table(_TABLE)['looks_like'][name])}){end}")


def _find_look(name: str, words: str, end: str = "") -> bool:
    return _load_look(name, end).search(words) is not None
