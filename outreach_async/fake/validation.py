"""Strict validation (rules C26 and C27): a table from field to the reason why a value is refused. Pure.

Null and blank values are no values: clearing a field is always allowed. Custom fields are never looked at.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from datetime import date
from typing import Final, Literal
from urllib.parse import urlsplit

from outreach_async.fake.countries import country_code
from outreach_async.fake.fields import STANDARD
from outreach_async.fake.refusals import refuse
from outreach_async.fake.states import is_us_state
from outreach_async.fake.timezones import TIMEZONES

MAX_TEXT: Final = 1000
"""Characters of a text field at most."""

_LOCAL: Final = 64
_LABEL: Final = 63
_EMAIL: Final = 254

_PHONE: Final = re.compile(r"[0-9]{7,15}")
_EXTENSION: Final = re.compile(r"(?:#|,|;|x|ext\.?|extension)\s*[0-9]{1,7}\Z", re.IGNORECASE)
_OFFSET: Final = re.compile(r"UTC[+-](?:0[0-9]|1[0-4]):[0-5][0-9]")
_ZIP: Final = re.compile(r"[A-Za-z0-9 -]{1,12}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DATES: Final = (
    re.compile(r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{2})(?:-(?P<day>[0-9]{2}))?)?"),
    re.compile(r"(?P<month>[0-9]{2})/(?P<day>[0-9]{2})/(?P<year>[0-9]{4})"),
)


def is_email(text: str) -> bool:
    """One @; a local part of up to 64 characters; labels of letters, digits and hyphens up to 63; a dot; 254 in all."""
    local, _, domain = text.partition("@")
    return (
        0 < len(local) <= _LOCAL
        and len(text) <= _EMAIL
        and "@" not in domain
        and not any(c.isspace() for c in local)
        and not _CONTROL.search(local)
        and _is_host(domain)
    )


def _is_host(text: str) -> bool:
    labels = text.split(".")
    return len(labels) > 1 and all(_is_label(label) for label in labels)


def _is_label(label: str) -> bool:
    # Letters of any script: internationalised names are names too. Marks are part of letters in many of them.
    letters = all(c == "-" or c.isalnum() or unicodedata.category(c).startswith("M") for c in label)
    return letters and 0 < len(label) <= _LABEL and label[0] != "-" != label[-1]


def is_phone(text: str) -> bool:
    """7 to 15 digits, but for `+ ( ) - .`, spaces and an extension."""
    number = _EXTENSION.sub("", text.rstrip())
    return _PHONE.fullmatch(re.sub(r"[+(). -]", "", number)) is not None


def is_country(text: str) -> bool:
    """An ISO 3166 alpha-2 code or an English name."""
    return country_code(text) is not None


def is_state(text: str, country: str | None) -> bool:
    """In the United States, or in no country, one of its states; elsewhere 2 or 3 letters or a name without digits."""
    if not country or not country.strip() or country_code(country) == "US":
        return is_us_state(text)
    return any(c.isalpha() for c in text) and not any(c.isdigit() for c in text) and is_text(text)


def is_timezone(text: str) -> bool:
    """An IANA name, or an offset such as `UTC+05:30`."""
    return text in TIMEZONES or _OFFSET.fullmatch(text) is not None


def is_date(text: str) -> bool:
    """A real date as `YYYY-MM-DD`, `YYYY-MM`, `YYYY` or `MM/DD/YYYY`."""
    for form in _DATES:
        match = form.fullmatch(text)
        if match:
            return _exists(int(match["year"]), int(match["month"] or 1), int(match["day"] or 1))
    return False


def _exists(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


def is_website(text: str) -> bool:
    """An http or https URL, or a bare host with a dot."""
    return bool(_host(text)) if "://" in text else _is_host(text)


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        return (parts.hostname or "") if parts.scheme in {"http", "https"} and not re.search(r"\s", url) else ""
    except ValueError:  # brackets that hold no address
        return ""


def is_stack_overflow(text: str) -> bool:
    """A URL on stackoverflow.com, or a handle without spaces."""
    if "://" in text:
        host = _host(text)
        return host == "stackoverflow.com" or host.endswith(".stackoverflow.com")
    return not any(c.isspace() for c in text)


def is_zip(text: str) -> bool:
    """At most 12 letters, digits, spaces and hyphens."""
    return _ZIP.fullmatch(text) is not None


def is_text(text: str) -> bool:
    """At most 1,000 characters, none of them a control character."""
    return len(text) <= MAX_TEXT and not _CONTROL.search(text)


Check = tuple[Callable[[str], bool], str]
"""A test, and what passes it."""

_TEXT: Final[Check] = (is_text, f"a text of at most {MAX_TEXT} characters, without control characters")
_PHONES: Final[Check] = (is_phone, "a phone number of 7 to 15 digits")
_WEBSITES: Final[Check] = (is_website, "an http or https URL, or a host with a dot")
_DATE: Final[Check] = (is_date, "a date as YYYY-MM-DD, YYYY-MM, YYYY or MM/DD/YYYY")

CHECKS: Final[Mapping[str, Check]] = {
    **dict.fromkeys(STANDARD, _TEXT),
    "email": (is_email, "an e-mail address"),
    "mobile_phone": _PHONES,
    "work_phone": _PHONES,
    "home_phone": _PHONES,
    "voip_phone": _PHONES,
    "other_phone": _PHONES,
    "country": (is_country, "an ISO 3166 alpha-2 code or an English country name"),
    "timezone": (is_timezone, "an IANA name or UTC+-hh:mm"),
    "job_start_date": _DATE,
    "graduation_date": _DATE,
    "website": _WEBSITES,
    "website_2": _WEBSITES,
    "website_3": _WEBSITES,
    "stack_overflow": (is_stack_overflow, "a URL on stackoverflow.com or a handle"),
    "zip": (is_zip, "at most 12 letters, digits, spaces and hyphens"),
}
"""The check of each standard field; that of `state` depends on the country beside it."""

_STATE: Final = "a US state by code or name, or in another country a name without digits"


def failures(email: str, fields: Mapping[str, str | None], strict_fields: Literal["all"] | frozenset[str]) -> dict[str, str]:
    """Find every field that strict validation refuses.

    Args:
        email: The e-mail, trimmed.
        fields: Sent values by code.
        strict_fields: The fields to look at.

    Returns:
        What is wanted instead, by field; never the value, which is somebody's.
    """
    wanted = {}
    for code, value in (("email", email), *fields.items()):
        if (strict_fields == "all" or code in strict_fields) and value and not value.isspace():
            reason = _failure(code, value, fields)
            if reason:
                wanted[code] = reason
    return wanted


def _failure(code: str, value: str, fields: Mapping[str, str | None]) -> str:
    if code == "state":
        return "" if is_state(value, fields.get("country")) else _STATE
    check = CHECKS.get(code)
    return "" if check is None or check[0](value) else check[1]


def validate(email: str, fields: Mapping[str, str | None], strict_fields: Literal["all"] | frozenset[str]) -> None:
    """Validate strictly.

    Raises:
        Refused: 422 that lists every failure.
    """
    wanted = failures(email, fields, strict_fields)
    if wanted:
        listed = "; ".join(f"{field} must be {reason}" for field, reason in wanted.items())
        refuse(422, "validation_failed", listed, next(iter(wanted)))
