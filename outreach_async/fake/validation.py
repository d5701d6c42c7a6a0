"""Strict validation (rules C26 and C27): a table with one check per standard field.

Null and blank values always pass: clearing a field is allowed. Custom fields are never checked. Countries, states and time zones
are read from tables in `data`, so that results do not depend on databases of the operating system.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from datetime import date
from functools import cache
from typing import Final, Literal

from outreach_async.fake.arguments import read_table
from outreach_async.fake.errors import refusal_error
from outreach_async.fake.records import STANDARD_FIELDS

MAX_TEXT_LENGTH: Final = 1000
"""Maximum number of characters in a text field."""

_MAX_EMAIL_LENGTH: Final = 254

_LDH: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST: Final = re.compile(rf"{_LDH}(?:\.{_LDH})+")
_MAX_LABEL_LENGTH: Final = 63
_LOCAL_PART: Final = re.compile(r"[^@\s\x00-\x1f\x7f-\x9f]{1,64}")
_URL: Final = re.compile(
    r"https?://(?:[^\s/?#@]*@)?(?P<host>[^\s/?#@:\[\]]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?(?:[/?#]\S*)?", re.IGNORECASE
)
_PHONE: Final = re.compile(r"[0-9]{7,15}")
_PHONE_MARKS: Final = dict.fromkeys(map(ord, "+() -."))
_EXTENSION: Final = re.compile(r"(?:#|,|;|x|ext\.?|extension)\s*[0-9]{1,7}\s*\Z", re.IGNORECASE)
_OFFSET: Final = re.compile(r"UTC[+-](?:0[0-9]|1[0-4]):[0-5][0-9]")
_ZIP: Final = re.compile(r"[A-Za-z0-9 -]{1,12}")
_TEXT: Final = re.compile(rf"[^\x00-\x1f\x7f-\x9f]{{0,{MAX_TEXT_LENGTH}}}")
_DATE_PATTERNS: Final = (
    re.compile(r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{2})(?:-(?P<day>[0-9]{2}))?)?"),
    re.compile(r"(?P<month>[0-9]{2})/(?P<day>[0-9]{2})/(?P<year>[0-9]{4})"),
)


def is_email(text: str) -> bool:
    """Return whether a string is an e-mail address.

    An address has one `@`, a local part of up to 64 characters, and a domain with a dot. Each label of the domain has up to
    63 letters, digits and hyphens. The address has at most 254 characters in total.
    """
    local, _, domain = text.partition("@")
    return len(text) <= _MAX_EMAIL_LENGTH and _LOCAL_PART.fullmatch(local) is not None and _is_host(domain)


def _is_host(text: str) -> bool:
    if text.isascii():
        return _HOST.fullmatch(text) is not None
    labels = text.split(".")
    return len(labels) > 1 and all(map(_is_label, labels))


def _is_label(label: str) -> bool:
    # Letters of any script are accepted, for internationalised domain names. In many scripts, combining marks belong to letters.
    letters = all(c == "-" or c.isalnum() or unicodedata.category(c).startswith("M") for c in label)
    return letters and 0 < len(label) <= _MAX_LABEL_LENGTH and label[0] != "-" != label[-1]


def is_phone(text: str) -> bool:
    """Return whether a string has 7 to 15 digits, ignoring `+ ( ) - .`, spaces and an extension."""
    return any(_PHONE.fullmatch(number.translate(_PHONE_MARKS)) for number in (text, _EXTENSION.sub("", text)))


@cache
def load_countries() -> dict[str, str]:
    """Return alpha-2 country codes, keyed by the code itself and by the country's names as `fold_name` returns them."""
    codes: dict[str, str] = {}
    for code, *names in read_table("countries"):
        codes |= dict.fromkeys([code, *map(fold_name, names)], code)
    return codes


def fold_name(name: str) -> str:
    """Return a country's name in a normalized form for comparison.

    Letter case, accents, a leading "the", "&" for "and" and "St" for "Saint" make no difference.
    """
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    words = re.sub(r"[^a-z0-9]+", " ", plain.casefold().replace("&", " and ").replace("'", "").replace("\u2019", "")).split()
    if words[:1] == ["the"]:
        words = words[1:]
    return " ".join("saint" if word == "st" else word for word in words)


def find_country_code(text: str) -> str | None:
    """Return the alpha-2 code of a country given by code or English name, in any letter case; `None` if it is unknown."""
    codes = load_countries()
    return codes.get(text.strip().upper()) or codes.get(fold_name(text))


@cache
def _load_states() -> frozenset[str]:
    return frozenset(text.casefold() for state in read_table("states") for text in state)


def is_us_state(text: str) -> bool:
    """Return whether a string is the two-letter code or the name of a US state or territory, in any letter case."""
    return " ".join(text.split()).casefold() in _load_states()


@cache
def load_timezones() -> frozenset[str]:
    """Return the names of IANA time zones, including links (alternative names)."""
    return frozenset(name for (name,) in read_table("timezones"))


def is_state(text: str, country: str | None) -> bool:
    """Return whether a string is a valid state: a US state if the country is the US or missing, else a name without digits."""
    if not country or not country.strip() or find_country_code(country) == "US":
        return is_us_state(text)
    return _TEXT.fullmatch(text) is not None and any(c.isalpha() for c in text) and not any(c.isdigit() for c in text)


def is_timezone(text: str) -> bool:
    """Return whether a string is an IANA time zone name, or an offset such as `UTC+05:30`."""
    return text in load_timezones() or _OFFSET.fullmatch(text) is not None


def is_date(text: str) -> bool:
    """Return whether a string is an existing date as `YYYY-MM-DD`, `YYYY-MM`, `YYYY` or `MM/DD/YYYY`."""
    for form in _DATE_PATTERNS:
        if match := form.fullmatch(text):
            try:
                date(int(match["year"]), int(match["month"] or 1), int(match["day"] or 1))
            except ValueError:
                return False
            return True
    return False


def is_website(text: str) -> bool:
    """Return whether a string is an http or https URL, or a host with a dot."""
    return _URL.fullmatch(text) is not None or _is_host(text)


def is_stack_overflow(text: str) -> bool:
    """Return whether a string is a URL on stackoverflow.com, or a handle without spaces."""
    if "://" in text:
        url = _URL.fullmatch(text)
        return url is not None and f".{url['host'].lower()}".endswith(".stackoverflow.com")
    return not any(c.isspace() for c in text)


FieldCheck = tuple[Callable[[str], object], str]
"""A pair of a predicate, which returns a true value for a valid string, and a description of valid strings for the error."""

_TEXT_CHECK: Final[FieldCheck] = (_TEXT.fullmatch, f"a string of at most {MAX_TEXT_LENGTH} characters without control characters")

FIELD_CHECKS: Final[Mapping[str, FieldCheck]] = {
    **dict.fromkeys(STANDARD_FIELDS, _TEXT_CHECK),
    "email": (is_email, "an e-mail address"),
    **dict.fromkeys((code for code in STANDARD_FIELDS if "phone" in code), (is_phone, "a phone number of 7 to 15 digits")),
    "country": (find_country_code, "an ISO 3166 alpha-2 code or an English country name"),
    "timezone": (is_timezone, "an IANA time zone name or an offset such as UTC+05:30"),
    **dict.fromkeys(("job_start_date", "graduation_date"), (is_date, "a date as YYYY-MM-DD, YYYY-MM, YYYY or MM/DD/YYYY")),
    **dict.fromkeys(("website", "website_2", "website_3"), (is_website, "an http or https URL, or a host with a dot")),
    "stack_overflow": (is_stack_overflow, "a URL on stackoverflow.com or a handle"),
    "state": (is_us_state, "the code or name of a US state or, in another country, a name without digits"),
    "zip": (_ZIP.fullmatch, "at most 12 letters, digits, spaces and hyphens"),
}
"""The check of each standard field. `is_state` replaces the check of `state`, because it depends on `country`."""


def find_failures(email: str, fields: Mapping[str, str | None], strict_fields: Literal["all"] | frozenset[str]) -> dict[str, str]:
    """Return every field that fails strict validation.

    Args:
        email: The e-mail, trimmed.
        fields: The values sent, by code.
        strict_fields: Codes of the fields to check, or `all`.

    Returns:
        A description of valid values for each failed field. It never contains the value sent, which is personal data.
    """
    failures = {}
    for code, value in (("email", email), *fields.items()):
        if not value or code not in FIELD_CHECKS:
            continue
        is_valid, reason = FIELD_CHECKS[code]
        passed = is_state(value, fields.get("country")) if code == "state" else is_valid(value)
        if not passed and not value.isspace() and (strict_fields == "all" or code in strict_fields):
            failures[code] = reason
    return failures


def validate(email: str, fields: Mapping[str, str | None], strict_fields: Literal["all"] | frozenset[str]) -> None:
    """Validate the fields of a create request strictly.

    Raises:
        RequestRefused: 422 with a message that lists every failure.
    """
    if failures := find_failures(email, fields, strict_fields):
        message = "; ".join(f"{field} must be {reason}" for field, reason in failures.items())
        raise refusal_error(422, "validation_failed", message, next(iter(failures)))
