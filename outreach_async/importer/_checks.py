"""Check the values of a file: functions that check a single value, the level of each check, and the check of whole rows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast, get_args
from zoneinfo import available_timezones

import attrs

from outreach_async._service.validation import masked_repr
from outreach_async.errors import InvalidRequest, shorten
from outreach_async.importer._columns import Columns
from outreach_async.importer._known_exports import fold_name
from outreach_async.importer._table import Row, Table, split_rows

if TYPE_CHECKING:
    from phonenumbers import PhoneNumberDesc

# Single values.

# email-validator accepts every address that matches, in lower case and without unusual dots, but takes fifty times as long.
_PLAIN_ADDRESSES: Final = re.compile(
    r"(?:[a-z0-9_+.-]+@[a-z0-9.-]+\.(?!(?:arpa|invalid|local|localhost|onion|test)\n)[a-z]{2,}\n)*"
)
_UNUSUAL_DOTS: Final = re.compile(r"[\n.@-][.@-]")  # also dashes; at the start of a line or a part, or next to each other
_SAFE_LENGTH: Final = 63  # in such a short address, no part can exceed its own length limit


def check_email(text: str) -> str | None:
    return None if _are_plain((text,)) else _validate_email(text)


def _are_plain(addresses: Collection[str]) -> bool:
    lines = "\n".join(("", *addresses, ""))
    is_safe = lines.isascii() and lines.count("\n") == len(addresses) + 1 and max(map(len, addresses), default=0) <= _SAFE_LENGTH
    return is_safe and bool(_PLAIN_ADDRESSES.fullmatch(lines.lower(), 1)) and not _UNUSUAL_DOTS.search(lines)


def check_role(text: str) -> str | None:
    local = text.partition("@")[0].casefold()
    return f"{local}@ is the address of a role; use the address of a person" if local in _load_roles() else None


def check_typo(text: str) -> str | None:
    meant = _load_typo_domains().get(text.rpartition("@")[2].casefold())
    return f"the domain is probably a mistyped {meant}; correct the domain" if meant else None


def _split_parts(addresses: Iterable[str]) -> list[str]:
    """Return at least the part of each address before its first `@` and the part after its last one, in lower case."""
    return "\n".join(map(str.strip, addresses)).casefold().replace("@", "\n").split("\n")


def _validate_email(text: str) -> str | None:
    from email_validator import EmailNotValidError, validate_email

    try:
        validate_email(text, check_deliverability=False, strict=True)
    except EmailNotValidError as error:
        return f"not a valid address: {error}"
    return None


@cache
def _load_roles() -> frozenset[str]:
    return frozenset(_read_table("roles.txt").split())  # of RFC 2142, and others that mailing list services reject


@cache
def _load_typo_domains() -> dict[str, str]:
    providers = _read_table("providers.txt").split()
    known = {*providers, *_read_table("neighbours.txt").split()}
    return {typo: provider for provider in reversed(providers) for typo in _typos_of(provider) if typo not in known}


def _read_table(name: str) -> str:
    return (files("outreach_async.importer") / "data" / name).read_text(encoding="utf-8")


def _typos_of(word: str) -> set[str]:
    splits = [(word[:at], word[at:]) for at in range(len(word))]
    left_out = {before + rest[1:] for before, rest in splits}
    doubled = {before + rest[0] + rest for before, rest in splits}
    swapped = {before + rest[1] + rest[0] + rest[2:] for before, rest in splits if len(rest) > 1}
    beside = {before + key + rest[1:] for before, rest in splits for key in _NEIGHBOUR_KEYS.get(rest[0], "")}
    typos = left_out | doubled | swapped | beside
    return {typo for typo in typos if all(map(str.isalnum, typo.split("."))) and "." in typo}  # valid domain names only


_KEYBOARD_ROWS: Final = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_NEIGHBOUR_KEYS: Final = {
    key: "".join(row[max(at - 1, 0) : at] + row[at + 1 : at + 2]) for row in _KEYBOARD_ROWS for at, key in enumerate(row)
}


_CACHE_SIZE: Final = 1 << 14
_INTERNATIONAL: Final = re.compile(r"\+[ (]*[1-9][0-9 ().-]{5,23}")
_NATIONAL: Final = re.compile(r"[(]*[0-9][0-9 ().-]{5,23}")
_PUNCTUATION: Final = dict.fromkeys(map(ord, "+ ().-"))
_NUMBER_KINDS: Final = ("fixed_line", "mobile")  # of nearly all people; the fast check recognises no other kinds
_MAX_CODE_LENGTH: Final = 3  # digits of a country calling code


def check_phone(number: tuple[str, str | None]) -> str | None:
    text, country = number
    return None if not text or _is_plainly_valid(text, country) else _validate_phone(text, country)


def _is_plainly_valid(text: str, country: str | None) -> bool:
    # The library phonenumbers accepts every number that passes the check, but takes fifty times as long.
    digits = text.translate(_PUNCTUATION)
    if text[0] == "+":
        if not _INTERNATIONAL.fullmatch(text):
            return False
        regions, length = _find_regions(digits[:_MAX_CODE_LENGTH])
        for region in regions:  # noqa: SIM110 - the builtin any() takes half as long again
            if _build_pattern(region).fullmatch(digits, length):
                return True
        return False
    if country and _NATIONAL.fullmatch(text):
        pattern, prefix = _national_patterns(country)
        dialled = prefix.match(digits) if prefix else None
        return pattern is not None and pattern.fullmatch(digits, dialled.end() if dialled else 0) is not None
    return False


@lru_cache(maxsize=_CACHE_SIZE)
def _validate_phone(text: str, country: str | None) -> str | None:
    import phonenumbers

    try:
        number = phonenumbers.parse(text, country)
    except phonenumbers.NumberParseException as error:
        if error.error_type == phonenumbers.NumberParseException.INVALID_COUNTRY_CODE and not text.lstrip().startswith("+"):
            return "the country is unknown; add the calling code, as in +1 206 555 0100"
        return f"not a phone number: {error}"
    if phonenumbers.is_valid_number(number):
        return None
    return f"not a valid number for calling code +{number.country_code}; check the digits"


@cache
def _find_regions(beginning: str) -> tuple[tuple[str, ...], int]:
    """Return the regions of the calling code with which a number begins, the main one first, and the length of the code."""
    import phonenumbers

    for length in range(1, _MAX_CODE_LENGTH + 1):
        regions = phonenumbers.region_codes_for_country_code(int(beginning[:length]))
        if regions and "001" not in regions:
            return regions, length
    return (), 0


@cache
def _national_patterns(region: str) -> tuple[re.Pattern[str] | None, re.Pattern[str] | None]:
    """Return a pattern for the phone numbers of a country, and for the prefix dialled within the country."""
    from phonenumbers import PhoneMetadata

    metadata = PhoneMetadata.metadata_for_region(region, None)
    if metadata is None or metadata.national_prefix_transform_rule is not None:
        return None, None
    prefix = metadata.national_prefix_for_parsing
    return _build_pattern(region), re.compile(prefix) if prefix else None


@cache
def _build_pattern(region: str) -> re.Pattern[str]:
    from phonenumbers import PhoneMetadata

    metadata = PhoneMetadata.metadata_for_region(region, None)
    numbers: list[PhoneNumberDesc | None] = [getattr(metadata, kind) for kind in _NUMBER_KINDS] if metadata else []
    patterns = [number.national_number_pattern for number in numbers if number is not None]
    return re.compile("|".join(f"(?:{pattern})\\Z" for pattern in patterns if pattern))


_NOT_ISO: Final = {"uk": "GB", "el": "GR"}  # common codes, with those of ISO 3166


def find_country_code(text: str) -> str | None:
    """Return the two-letter code of a country given by code or name; `None` if the country is unknown."""
    return _resolve_country(text.strip())[0]


def check_country(text: str) -> str | None:
    return _resolve_country(text.strip())[1]


@lru_cache(maxsize=_CACHE_SIZE)
def check_state(state: tuple[str, str | None]) -> str | None:
    """Return the problem with a state; `None` if the state is valid, or if the country's states are unknown."""
    text, country = state
    states = _load_states().get(country or "")
    if states is None or fold_name(text) in states:
        return None
    return f"not a state of {country}{_suggest(fold_name(text), states)}"


@lru_cache(maxsize=_CACHE_SIZE)
def _resolve_country(text: str) -> tuple[str | None, str | None]:
    """Return the two-letter code of a country and the problem with `text`, each if there is one."""
    key = fold_name(text)
    codes, names, longer = _load_countries()
    if key in codes:
        return codes[key], None
    if found := names.get(key) or names.get(key.removeprefix("the")):
        return found, None
    if found := longer.get(key) or _NOT_ISO.get(key):
        return found, f"expected a two-letter code or a name; did you mean {found!r}?"
    return None, f"expected a country's two-letter code or name{_suggest(key, names)}"


def _suggest(name: str, known: Mapping[str, str], cutoff: float = 0.8) -> str:
    near = get_close_matches(name, known, n=1, cutoff=cutoff)
    return f"; did you mean {known[near[0]]!r}?" if near else ""


@cache
def _load_countries() -> tuple[Mapping[str, str], Mapping[str, str], Mapping[str, str]]:
    """Return two-letter codes by the same code in lower case, by folded name, and by three-letter code in lower case."""
    rows = [line.split("\t") for line in _read_table("countries.tsv").splitlines()]
    names = {fold_name(name): code for code, _, *names in rows for name in names}
    return {code.casefold(): code for code, *_ in rows}, names, {longer.casefold(): code for code, longer, *_ in rows}


@cache
def _load_states() -> Mapping[str, Mapping[str, str]]:
    states: dict[str, dict[str, str]] = {}
    for country, code, *names in (line.split("\t") for line in _read_table("states.tsv").splitlines()):
        states.setdefault(country, {}).update({fold_name(name): code for name in (code, *names)})
    return states


_DATE: Final = re.compile(r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{2})(?:-(?P<day>[0-9]{2}))?)?")
_OFFSET: Final = re.compile(r"(?:UTC|GMT)[+-](?:0[0-9]|1[0-4]):[0-5][0-9]")


@lru_cache(maxsize=_CACHE_SIZE)
def check_date(text: str) -> str | None:
    """Return the problem with a date; `None` for an existing date in the form `YYYY-MM-DD`, `YYYY-MM` or `YYYY`."""
    match = _DATE.fullmatch(text)
    if match is None:
        return "expected YYYY-MM-DD, which is unambiguous; the service does not document which formats it accepts"
    try:
        date(int(match["year"]), int(match["month"] or 1), int(match["day"] or 1))
    except ValueError:
        return "the date does not exist; correct the day or the month"
    return None


@lru_cache(maxsize=_CACHE_SIZE)
def check_timezone(text: str) -> str | None:
    """Return the problem with a time zone; `None` for a name in the time zone database, or an offset such as `UTC+05:30`."""
    names = _load_timezones()
    if not names or names.get(text.casefold()) == text or _OFFSET.fullmatch(text):
        return None
    meant = _suggest(text.casefold().replace(" ", "_"), names, cutoff=0.7)
    return f"expected a name in the time zone database, such as 'Europe/Berlin'{meant}"


@cache
def _load_timezones() -> Mapping[str, str]:  # empty if neither the system nor tzdata has the database
    return {name.casefold(): name for name in available_timezones()}


_LABEL: Final = r"(?!-)[\w-]{1,63}(?<!-)"
_HOST: Final = rf"(?:{_LABEL}\.)+(?!\d+(?:[:/?\#]|\Z)){_LABEL}\.?"
_WEBSITE: Final = re.compile(rf"(?:https?://)?{_HOST}(?::\d{{1,5}})?(?:[/?\#]\S*)?", re.IGNORECASE)


def check_website(text: str) -> str | None:
    return None if _WEBSITE.fullmatch(text) else "expected an http or https URL, or a host such as www.example.com"


# Policy.

Level = Literal["error", "warn", "off"]

CHECKS: Final[Mapping[str, str]] = {
    "email": "a valid e-mail address",
    "role": "an e-mail address of a role, such as info@",
    "typo": "a domain that is probably a mistyped domain of a large e-mail provider",
    "phone": "a valid phone number: one with a calling code, or one of the row's country",
    "country": "a country by two-letter code or English name",
    "state": "a state of the United States, Canada or Australia, by code or name",
    "timezone": "a time zone by name, such as Europe/Berlin, or as UTC+hh:mm",
    "date": "an existing date as YYYY-MM-DD, YYYY-MM or YYYY",
    "website": "an http or https URL, or a host",
    "cells": "a cell that a spreadsheet or a wrong encoding has changed, or a text for a missing value, such as NULL",
    "repeat": "an e-mail address that occurs earlier in the file",
}
"""The checks by name, each with the values that pass or, for `role`, `typo`, `cells` and `repeat`, that it reports."""

LINTS: Final = frozenset({"role", "typo", "timezone", "date", "cells", "repeat"})
"""Checks that only warn with the setting `error` for all checks, because they may report values that the service accepts."""

REQUIRED_MODULES: Final[Mapping[str, str]] = {"email": "email_validator", "phone": "phonenumbers"}  # of the extra `validate`


@attrs.frozen
class CheckPolicy:
    """The level of each check: `error`, `warn` or `off`."""

    levels: Mapping[str, Level]
    missing: tuple[str, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str] = (), *, has: Callable[[str], object] = find_spec) -> CheckPolicy:
        """Parse settings: `error`, `warn` (the default) or `off` for all checks, or `check=level`. Later ones take precedence."""
        levels: dict[str, Level] = dict.fromkeys(CHECKS, "warn")
        requested: set[str] = set()
        for text in texts:
            name, sign, word = map(str.strip, text.rpartition("="))
            if word not in get_args(Level):
                raise InvalidRequest(f"check: expected error, warn or off, got {text!r}; write, for example, --check email=error")
            if sign and name not in CHECKS:
                raise InvalidRequest(f"check: unknown check in {text!r}; use one of {', '.join(CHECKS)}")
            if name == "repeat" and word == "error":
                raise InvalidRequest("check: expected repeat=warn or repeat=off, got repeat=error; pass --repeats error instead")
            level, names = cast("Level", word), {name} if sign else {*CHECKS}
            requested = requested | names if level != "off" else requested - names
            levels |= {check: "warn" if level == "error" and not sign and check in LINTS else level for check in names}
        lacking = tuple(check for check, module in REQUIRED_MODULES.items() if levels[check] != "off" and not has(module))
        if wanted := " and ".join(sorted(requested & set(lacking))):
            raise InvalidRequest(f"check: extra 'validate' is required for {wanted}; run pip install 'outreach_async[validate]'")
        return cls({**levels, **dict.fromkeys(lacking, "off")}, lacking)

    @property
    def note(self) -> str | None:
        if not self.missing:
            return None
        return f"not checked: {' and '.join(sorted(self.missing))}; to enable, run pip install 'outreach_async[validate]'"


# Rows.

ValueCheck: TypeAlias = Callable[[Any], str | None]  # takes a cell, or a pair of a cell and the row's two-letter country code
_MAX_VALUE_LENGTH: Final = 60
_CHUNK_SIZE: Final = 250


class RowFinding(NamedTuple):
    check: str
    level: Level
    code: str
    message: str


class _ColumnCheck(NamedTuple):
    at: int
    name: str
    level: Level
    code: str
    find_problem: ValueCheck


_PHONE_FIELDS: Final = ("mobile_phone", "work_phone", "home_phone", "voip_phone", "other_phone")
_VALUE_CHECKS: Final[dict[str, tuple[tuple[str, ...], ValueCheck]]] = {
    "email": (("email",), check_email),
    "role": (("email",), check_role),
    "typo": (("email",), check_typo),
    "phone": (_PHONE_FIELDS, check_phone),
    "country": (("country",), check_country),
    "state": (("state",), check_state),
    "timezone": (("timezone",), check_timezone),
    "date": (("job_start_date", "graduation_date"), check_date),
    "website": (("website", "website_2", "website_3"), check_website),
}
_QUICK_CHECKS: Final[Mapping[str, Callable[[Collection[str]], bool]]] = {  # true only if no value has a problem
    "email": _are_plain,
    "role": lambda addresses: _load_roles().isdisjoint(_split_parts(addresses)),
    "typo": lambda addresses: _load_typo_domains().keys().isdisjoint(_split_parts(addresses)),
}
_COUNTRY_CHECKS: Final = frozenset({"phone", "state"})  # need the country of the row
_MAX_DOUBTFUL: Final = 8  # values


def _find_doubtful(values: list[str], are_fine: Callable[[Collection[str]], bool]) -> list[str]:
    """Return the values of each part that is not fine: one address with a problem must not cost a check of every other."""
    if are_fine(values):
        return []
    if len(values) <= _MAX_DOUBTFUL:
        return values
    half = len(values) // 2
    return _find_doubtful(values[:half], are_fine) + _find_doubtful(values[half:], are_fine)


class Checks:
    """Checks many rows at a time. Most columns have few distinct values, so each distinct value is checked only once."""

    def __init__(self, columns: Columns, policy: CheckPolicy) -> None:
        self._columns = columns
        self._cells_level = policy.levels["cells"]
        self._checks = tuple(
            _ColumnCheck(at, name, policy.levels[name], code, find_problem)
            for name, (codes, find_problem) in _VALUE_CHECKS.items()
            for code in codes
            if policy.levels[name] != "off" and (at := columns.cell(code)) is not None
        )
        self._error_checks = tuple(check for check in self._checks if check.level == "error")
        self._country_column = columns.cell("country")

    def findings(self, rows: Sequence[Row]) -> dict[int, list[RowFinding]]:
        """Return the findings by the index of the row in `rows`. The values of rows with a `fault` are not checked."""
        rows = [*self.restored(rows)]
        sent = {at: row.sent for at, row in enumerate(rows) if row.fault is None}
        return self.find(Table.of(sent, self._columns), dict(enumerate(rows)))

    def find(self, sent: Table, rows: Mapping[int, Row]) -> dict[int, list[RowFinding]]:
        """Return the findings by row: those of the cells to be sent, and those of the warnings in `rows`."""
        return self._find(sent, rows if self._cells_level != "off" else {}, self._checks)

    def guarded(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows. The first finding of level `error` becomes the row's `fault`, so the row is not sent."""
        rows = self.restored(rows)
        with_cells = self._cells_level == "error"
        if not self._error_checks and not with_cells:
            yield from rows
            return
        for chunk in split_rows(rows, _CHUNK_SIZE):
            readable = {at: row for at, row in enumerate(chunk) if row.fault is None}
            sent = Table.of({at: row.sent for at, row in readable.items()}, self._columns)
            findings = self._find(sent, readable if with_cells else {}, self._error_checks)
            for at, row in enumerate(chunk):
                yield attrs.evolve(row, fault=findings[at][0].message) if at in findings else row

    def restored(self, rows: Iterable[Row]) -> Iterable[Row]:
        return map(self.restore, rows) if self._cells_level == "off" else rows

    def restore(self, row: Row) -> Row:
        """Return the row. Without the check `cells`, every cell is sent as it is, because no finding would show a change."""
        if self._cells_level != "off" or row.fault is not None or row.sent is row.cells:
            return row
        return attrs.evolve(row, sent=row.cells, members=None)

    def _find(self, sent: Table, remarked: Mapping[int, Row], checks: Iterable[_ColumnCheck]) -> dict[int, list[RowFinding]]:
        findings: defaultdict[int, list[RowFinding]] = defaultdict(list)
        names = [""] * len(sent.places) if self._country_column is None else sent.columns[self._country_column]
        countries = {*names}
        for check in checks:
            cells, distinct = sent.columns[check.at], sent.distinct[check.at]
            if are_fine := _QUICK_CHECKS.get(check.name):
                distinct = _find_doubtful([*distinct], are_fine)
            keys: Sequence[Hashable] = cells
            values: dict[Any, Any]
            if check.name not in _COUNTRY_CHECKS:
                values = {cell: cell.strip() for cell in distinct}
            elif len(countries) == 1:
                code = find_country_code(*countries)
                values = {cell: (cell.strip(), code) for cell in distinct}
            else:
                keys = pairs = [*zip(cells, names, strict=True)]
                values = {(cell, name): (cell.strip(), find_country_code(name)) for cell, name in {*pairs}}
            problems = {key: problem for key, value in values.items() if value and (problem := check.find_problem(value))}
            for at, key, text in zip(sent.places, keys, map(str.strip, cells), strict=True) if problems else ():
                if text and (problem := problems.get(key)):
                    message = f"{check.code}: {masked_repr(shorten(text, _MAX_VALUE_LENGTH))}: {problem}"
                    findings[at].append(RowFinding(check.name, check.level, check.code, message))
        for at, row in remarked.items():
            for remark in row.warnings:
                findings[at].append(RowFinding("cells", self._cells_level, remark.code, f"{remark.code}: {remark.message}"))
        return findings
