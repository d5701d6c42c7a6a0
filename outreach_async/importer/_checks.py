"""Check values: functions that check a single value or a column of them, and the level of each check."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, get_args
from zoneinfo import available_timezones

import attrs

from outreach_async._plumbing import PHONE_EXTENSION, find_odd, require_types, show_name
from outreach_async.errors import InvalidRequest
from outreach_async.importer._known_exports import fold_name
from outreach_async.models import STANDARD_FIELDS

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
    return "the address of a role; use the address of a person" if local in _load_roles() else None


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
_DIGITS: Final = re.compile("[0-9]{7,15}")
_NUMBER_KINDS: Final = ("fixed_line", "mobile")  # of nearly all people; the fast check recognises no other kinds
_MAX_CODE_LENGTH: Final = 3  # digits of a country calling code


def check_phone(number: tuple[str, str | None]) -> str | None:
    text, country = number
    return None if not text or _is_plainly_valid(text, country or None) else _validate_phone(text, country or None)


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
    if not phonenumbers.is_valid_number(number):
        return f"not a valid number for calling code +{number.country_code}; check the digits"
    if any(_DIGITS.fullmatch(each.translate(_PUNCTUATION)) for each in (text, PHONE_EXTENSION.sub("", text))):
        return None
    return "expected only digits, blanks and + ( ) - . in the number; remove the other signs"


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


SUGGESTION: Final = "; did you mean "  # what follows in a message differs from row to row
_MAX_SUGGESTED: Final = 3
_NOT_ISO: Final = {"uk": "GB", "el": "GR"}  # common codes, with those of ISO 3166


def find_country_code(text: str) -> str | None:
    """Return the two-letter code of a country given by code or name; `None` if the country is unknown."""
    return _resolve_country(text.strip())[0]


def check_country(text: str) -> str | None:
    return _resolve_country(text.strip())[1]


@lru_cache(maxsize=_CACHE_SIZE)
def check_state(state: tuple[str, str | None]) -> str | None:
    """Return the problem with a state; `None` if it is valid, or may be one of its country. A blank country is `""`."""
    text, country = state
    states, key = _load_states().get(country or "US"), _fold_state(country or "US", text)
    if country is None or (states is not None and key in states):
        return None
    if states is None:
        is_name = any(map(str.isalpha, text)) and not any(map(str.isdigit, text))
        return None if is_name else f"expected a name without digits in {country}"
    if not country:
        return "not a state of the US, and the row has no country; add the country"
    return f"not a state of {country}{_suggest(key, states)}"


def _fold_state(country: str, name: str) -> str:
    return name.casefold() if country == "US" else fold_name(name)  # other spellings of states are rarely known


@lru_cache(maxsize=_CACHE_SIZE)
def _resolve_country(text: str) -> tuple[str | None, str | None]:
    """Return the two-letter code of a country and the problem with `text`, each if there is one."""
    key = fold_name(text)
    codes, names, longer = _load_countries()
    if text.casefold() in codes:
        return codes[key], None
    if found := names.get(key) or names.get(key.removeprefix("the")):
        return found, None
    if found := codes.get(key) or longer.get(key) or _NOT_ISO.get(key):
        return found, f"expected a two-letter code or a name{SUGGESTION}{found!r}?"
    return None, f"expected a country's two-letter code or name{_suggest(key, names)}"


def _suggest(name: str, known: Mapping[str, str], cutoff: float = 0.8) -> str:
    # The most similar name may be another one than the one that is meant: 'W Virginia' is more similar to Virginia.
    near = dict.fromkeys(known[match] for match in get_close_matches(name, known, n=_MAX_SUGGESTED, cutoff=cutoff))
    return f"{SUGGESTION}{' or '.join(map(repr, near))}?" if near else ""


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
        states.setdefault(country, {}).update({_fold_state(country, name): code for name in (code, *names)})
    return states


_DATE: Final = re.compile(r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{2})(?:-(?P<day>[0-9]{2}))?)?")
_OFFSET: Final = re.compile(r"UTC[+-](?:0[0-9]|1[0-4]):[0-5][0-9]")


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


_ANY_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?\s*([+\-\u2212])\s*(\d{1,2})(?::?([0-5]\d))?", re.IGNORECASE)
_WESTERNMOST, _EASTERNMOST = -12 * 60, 14 * 60  # minutes
_WITHOUT_SUMMER_TIME: Final = {"EST": "America/New_York", "MST": "America/Denver"}
"""Names in the time zone database that are not what people mean by them."""


@lru_cache(maxsize=_CACHE_SIZE)
def check_timezone(text: str) -> str | None:
    """Return the problem with a time zone; `None` for a name in the time zone database, or an offset such as `UTC+05:30`."""
    names = _load_timezones()
    if not names or _OFFSET.fullmatch(text):
        return None
    if meant := _WITHOUT_SUMMER_TIME.get(text):
        return f"{text} has no summer time{SUGGESTION}{meant!r}?"
    if names.get(text.casefold()) == text:
        return None
    expected = "expected a name in the time zone database, such as 'Europe/Berlin'"
    if offset := _ANY_OFFSET.fullmatch(text.strip()):
        return f"{expected}, or an offset, such as UTC+05:30{_propose_offset(*offset.groups('0'))}"
    folded = text.strip().casefold().replace(" ", "_")
    known = {folded: names[folded]} if folded in names else _load_regions()
    return expected + _suggest(folded, known, cutoff=0.85)


def _propose_offset(sign: str, hours: str, minutes: str) -> str:
    """Propose the notation that is accepted: in names of the time zone database, `Etc/GMT+2` is two hours behind UTC."""
    total = (int(hours) * 60 + int(minutes)) * (1 if sign == "+" else -1)
    if not _WESTERNMOST <= total <= _EASTERNMOST:
        return ""
    return f"{SUGGESTION}'UTC{'-' if total < 0 else '+'}{abs(total) // 60:02}:{abs(total) % 60:02}'?"


@cache
def _load_timezones() -> Mapping[str, str]:  # empty if neither the system nor tzdata has the database
    return {name.casefold(): name for name in available_timezones() - {"localtime", "Factory"}}  # not names of zones


@cache
def _load_regions() -> Mapping[str, str]:
    """Return the names of places: an abbreviation or an offset that looks similar may be many hours away."""
    return {folded: name for folded, name in _load_timezones().items() if "/" in name and not name.startswith("Etc/")}


_LABEL: Final = r"(?!-)[\w-]{1,63}(?<!-)"
_HOST: Final = rf"(?:{_LABEL}\.)+(?!\d+(?:[:/?\#]|\Z)){_LABEL}"
_WEBSITE: Final = re.compile(rf"https?://{_HOST}\.?(?::\d{{1,5}})?(?:[/?\#]\S*)?|(?!\S*_){_HOST}", re.IGNORECASE)


def check_website(text: str) -> str | None:
    return None if _WEBSITE.fullmatch(text) else "expected an http or https URL, or a host such as www.example.com"


_STACK_OVERFLOW: Final = re.compile(r"https?://(?:[\w-]+\.)*stackoverflow\.com(?:[/?#]\S*)?|(?!\S*://)\S+", re.IGNORECASE)
_ZIP: Final = re.compile(r"[A-Za-z0-9 -]{1,12}")
_ZIP_LINES: Final = re.compile(rf"(?:(?:{_ZIP.pattern})?\n)*")
_MOST_CHARACTERS: Final = 1000
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_stack_overflow(text: str) -> str | None:
    return None if _STACK_OVERFLOW.fullmatch(text) else "expected a URL on stackoverflow.com, or a handle without blanks"


def check_zip(text: str) -> str | None:
    return None if _ZIP.fullmatch(text) else "expected at most 12 letters, digits, blanks and hyphens"


def check_text(text: str) -> str | None:
    if len(text) > _MOST_CHARACTERS:
        return f"expected at most {_MOST_CHARACTERS:,} characters; shorten the text"
    return "the text has a line break, a tab or another control character; remove it" if _CONTROL.search(text) else None


def _are_plain_texts(texts: Collection[str]) -> bool:
    return max(map(len, texts), default=0) <= _MOST_CHARACTERS and not _CONTROL.search("".join(texts))


# Columns of values.

ValueCheck: TypeAlias = Callable[[Any], str | None]  # takes a value, or a pair of a value and the row's two-letter country code

VALUE_CHECKS: Final[dict[str, tuple[tuple[str, ...], ValueCheck]]] = {  # the country first, which others need
    "email": (("email",), check_email),
    "role": (("email",), check_role),
    "typo": (("email",), check_typo),
    "country": (("country",), check_country),
    "phone": (tuple(code for code in STANDARD_FIELDS if code.endswith("_phone")), check_phone),
    "state": (("state",), check_state),
    "timezone": (("timezone",), check_timezone),
    "date": (("job_start_date", "graduation_date"), check_date),
    "website": (("website", "website_2", "website_3"), check_website),
    "stack_overflow": (("stack_overflow",), check_stack_overflow),
    "zip": (("zip",), check_zip),
}
_CHECKED: Final = {code for codes, _ in VALUE_CHECKS.values() for code in codes}
VALUE_CHECKS["text"] = (tuple(code for code in STANDARD_FIELDS if code not in _CHECKED), check_text)
CHECK_OF_FIELD: Final = {code: name for name, (codes, _) in reversed(VALUE_CHECKS.items()) for code in codes}
"""The check of each standard field; of an e-mail address, the first of its checks."""
_QUICK_CHECKS: Final[Mapping[str, Callable[[Collection[str]], bool]]] = {  # true only if no value has a problem
    "email": _are_plain,
    "role": lambda addresses: _load_roles().isdisjoint(_split_parts(addresses)),
    "typo": lambda addresses: _load_typo_domains().keys().isdisjoint(_split_parts(addresses)),
    "zip": lambda texts: (lines := "\n".join((*texts, ""))).count("\n") == len(texts) and _ZIP_LINES.fullmatch(lines) is not None,
    "text": _are_plain_texts,
}
_COUNTRY_CHECKS: Final = frozenset({"phone", "state"})  # need the country of the row


def find_problems(name: str, texts: Sequence[str], countries: Sequence[str]) -> dict[int, str]:
    """Return the problems that a check finds in a column, by row. Each distinct value is checked once."""
    distinct: Collection[str] = {*texts}
    if are_fine := _QUICK_CHECKS.get(name):
        distinct = find_odd(distinct, are_fine)
    find_problem, problems = VALUE_CHECKS[name][1], dict[Any, str | None]()
    keys: Sequence[Any] = texts
    if name not in _COUNTRY_CHECKS:
        problems = {text: find_problem(text) for text in distinct if text and not text.isspace()}
    else:
        codes = {country: find_country_code(country) if country.strip() else "" for country in {*countries}}
        keys = [*zip(texts, countries, strict=True)]
        problems = {key: find_problem((key[0], codes[key[1]])) for key in {*keys} if key[0] and not key[0].isspace()}
    if not any(problems.values()):
        return {}
    return {row: problem for row, key in enumerate(keys) if (problem := problems.get(key))}


# Policy.

Level = Literal["error", "drop", "warn", "off"]

CHECKS: Final = (*VALUE_CHECKS, "cells", "repeat", "consent")
"""The names of all checks: of values, of what happened to cells, of repeated e-mails, and of who must not be written to."""

LINTS: Final = frozenset({"role", "typo", "timezone", "date", "zip", "text", "cells", "repeat"})
"""Checks that only warn with the setting `error` for all checks, because they may report values that the service accepts."""
DROPS: Final = frozenset(VALUE_CHECKS) - {"email", "role", "typo"}  # of fields that a contact does not need

REQUIRED_MODULES: Final[Mapping[str, str]] = {"email": "email_validator", "phone": "phonenumbers"}  # of the extra `validate`


@attrs.frozen
class CheckPolicy:
    """The level of each check: `error`, `drop`, `warn` or `off`.

    With `error`, the check `consent` excludes rows.

    Attributes:
        levels: The levels by the names of all checks.
        missing: The checks that are off because their extra is not
            installed.

    Example:
        ```python
        print(CheckPolicy.of(["phone=error"]).levels["phone"])  # -> error
        ```
    """

    levels: Mapping[str, Level]
    missing: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        require_types(CheckPolicy, attrs.asdict(self, recurse=False))

    @classmethod
    def of(cls, texts: Iterable[str] | CheckPolicy = (), *, has: Callable[[str], object] = find_spec) -> CheckPolicy:
        """Parse settings, each a level for all checks or `check=level`.

        The default is `warn`, and later settings take precedence. A level
        for all checks is not one of `consent`: nobody gets e-mail that
        they declined because other checks are off.

        Args:
            texts: The settings; a policy is returned as it is.
            has: Function that returns whether a module is installed.

        Raises:
            InvalidRequest: A check or a level is unknown, or a check needs
                an extra that is not installed.

        Example:
            ```python
            print(CheckPolicy.of(["drop", "zip=warn"]).levels["zip"])  # -> warn
            ```
        """
        require_types(CheckPolicy.of, locals())
        if isinstance(texts, CheckPolicy):
            return texts
        levels: dict[str, Level] = {**dict.fromkeys(CHECKS, "warn"), "consent": "error"}
        requested: set[str] = set()
        for text in texts:
            name, level = _parse_setting(text)
            names = {name} if name else {*CHECKS} - {"consent"}
            requested = requested | names if level != "off" else requested - names
            if not name and level in {"error", "drop"}:
                strictest = DROPS if level == "drop" else names - LINTS
                levels |= {check: level if check in strictest else "warn" for check in names}
            else:
                levels |= dict.fromkeys(names, level)
        lacking = tuple(check for check, module in REQUIRED_MODULES.items() if levels[check] != "off" and not has(module))
        if wanted := " and ".join(sorted(requested & set(lacking))):
            raise InvalidRequest(f"check: extra 'validate' is required for {wanted}; run pip install 'outreach_async[validate]'")
        return cls({**levels, **dict.fromkeys(lacking, "off")}, lacking)

    @property
    def note(self) -> str | None:
        """What is not checked, and how to check it; `None` if all is checked."""
        if not self.missing:
            return None
        return f"not checked: {' and '.join(sorted(self.missing))}; to enable, run pip install 'outreach_async[validate]'"


def _parse_setting(text: str) -> tuple[str, Level]:
    """Return the check that a setting is for, empty for all checks, and its level."""
    name, sign, word = map(str.strip, text.rpartition("="))
    if word not in get_args(Level):
        got = f"expected error, drop, warn or off, got {show_name(text)}"
        raise InvalidRequest(f"check: {got}; write, for example, --check email=error")
    if sign and name not in CHECKS:
        raise InvalidRequest(f"check: unknown check in {text!r}; use one of {', '.join(CHECKS)}")
    if name == "repeat" and word == "error":
        raise InvalidRequest("check: expected repeat=warn or repeat=off, got repeat=error; pass --repeats error instead")
    if sign and word == "drop" and name not in DROPS:
        raise InvalidRequest(f"check: expected error, warn or off for {name}, got drop; use {name}=warn")
    return name, cast("Level", word)
