"""Parse a request that creates a contact, validate its values, and compute the contact to store (rules C1 to C27, A4).

The functions change no stored data. The first check that fails decides the error response.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from datetime import date
from functools import cache
from typing import Any, Final, Literal

import attrs

from outreach_async.fake._arguments import check_id, read_table, suggest_similar
from outreach_async.fake._error_responses import refusal_error, sanitize_name
from outreach_async.fake._stored_records import (
    CUSTOM_CODE,
    RESERVED_MEMBERS,
    STANDARD_FIELDS,
    Contact,
    Enrolment,
    Workspace,
    custom_number,
)
from outreach_async.fake.behaviour import Behaviour

ADDED: Final = "added"

# The outcome for a duplicate, by value of the `duplicates` option (rule C2).
DUPLICATE_OUTCOMES: Final[Mapping[str, str]] = {
    "skip": "skipped",
    "overwrite": "overwriten",  # the API documentation's spelling
    "update_missing_fields": "updated_missing_fields",
}

DUPLICATE_DETAILS: Final = "a contact with this email exists in the workspace"


def email_key(behaviour: Behaviour) -> Callable[[str], str]:
    """Return the function that normalizes an e-mail. Two e-mails are duplicates if their normalized forms are equal (rule C4)."""
    reading = behaviour.email_key
    return _EMAIL_KEYS[reading] if isinstance(reading, str) else reading


def _lower_domain(email: str) -> str:
    local, at, domain = email.rpartition("@")
    return local + at + domain.lower()


def _normalize_gmail(email: str) -> str:
    # In a Gmail address, also remove dots and everything after a plus sign from the local part.
    local, at, domain = email.lower().rpartition("@")
    if domain in {"gmail.com", "googlemail.com"}:
        return local.partition("+")[0].replace(".", "") + "@gmail.com"
    return local + at + domain


_EMAIL_KEYS: Final[Mapping[str, Callable[[str], str]]] = {
    "lower": str.lower,
    "exact": str,
    "domain_lower": _lower_domain,
    "gmail": _normalize_gmail,
}


def merge_contact(contact: Contact, creation: Creation, fields: SentFields, behaviour: Behaviour, now: float) -> Contact:
    # If the option `duplicates` is `skip` and the contact does not change, the function returns `contact` itself.
    if creation.duplicates == "skip":
        return _enrol(contact, creation.campaign, behaviour, now) if behaviour.skip_enrols else contact
    if creation.duplicates == "overwrite":
        contact = attrs.evolve(contact, email=creation.email, fields=_overwrite_fields(contact.fields, fields, behaviour))
    else:
        missing = {code: value for code, value in fields.items() if not _is_blank(value) and _is_blank(contact.fields.get(code))}
        contact = attrs.evolve(contact, fields={**contact.fields, **missing})
    return _enrol(contact, creation.campaign, behaviour, now)


def _overwrite_fields(stored: Mapping[str, str | None], sent: SentFields, behaviour: Behaviour) -> SentFields:
    fields = dict(stored) if behaviour.overwrite_unsent == "keep" else {code: stored[code] for code in sent if code in stored}
    for code, value in sent.items():
        if not _is_blank(value) or behaviour.overwrite_blank == "store":
            fields[code] = value
        elif behaviour.overwrite_blank == "clear":
            fields.pop(code, None)
    return fields


def _is_blank(value: str | None) -> bool:
    return value is None or not value.strip()


def _enrol(contact: Contact, campaign: str | None, behaviour: Behaviour, now: float) -> Contact:
    if campaign is None:
        return contact
    if campaign not in contact.campaigns:
        return attrs.evolve(contact, enrolments=(*contact.enrolments, Enrolment(campaign, now)))
    if behaviour.reenrol == "error":
        field, message = "upload_options.campaign", "the contact is already in this campaign"
        raise refusal_error(409, "already_enrolled", message, field, knob="reenrol")
    return contact


_REQUIRED_MEMBERS: Final = ("owner_key", "workspace", "email", "upload_options")
_UPLOAD_OPTIONS: Final = ("duplicates", "strict_validation", "campaign")

_MAX_SUGGESTIONS: Final = 20  # finding a similar name is slow

SentFields = dict[str, str | None]


@attrs.define
class Creation:
    owner_key: str = attrs.field(repr=False)
    workspace: str
    email: str
    duplicates: str
    strict: bool
    campaign: str | None


def parse_creation(body: Mapping[str, Any], behaviour: Behaviour) -> Creation:
    _require_members(body, _REQUIRED_MEMBERS, "")
    options = _require_type(body, "upload_options", dict, "an object")
    is_optional = behaviour.missing_campaign == "null"
    _require_members(options, _UPLOAD_OPTIONS[:2] if is_optional else _UPLOAD_OPTIONS, "upload_options.")
    campaign = (options.get("campaign") or None) if is_optional else options["campaign"]
    is_checked = behaviour.owner_key != "off"
    owner_key = _require_type(body, "owner_key", str if is_checked else object, "a string")
    workspace = _require_type(body, "workspace", str, "a string")
    email = _require_type(body, "email", str, "a string").strip()
    if not email:
        raise refusal_error(400, "blank_email", "email must not be blank", "email")
    duplicates, names = options["duplicates"], list(DUPLICATE_OUTCOMES)
    if not isinstance(duplicates, str) or duplicates not in names:
        hint = suggest_similar(duplicates.lower(), names) if isinstance(duplicates, str) else ""
        field = "upload_options.duplicates"
        message = f"{field} must be one of {', '.join(names)}"
        raise refusal_error(400, "invalid_duplicates", message, field, hints=(hint,) if hint else ())
    strict = _require_type(options, "strict_validation", bool, "true or false", "upload_options.")
    if campaign is not None:
        _require_type(options, "campaign", str, "a string or null", "upload_options.")
    if is_checked and not owner_key.startswith("key_"):
        # The error has no hint about the value, because the value may be a secret.
        raise refusal_error(400, "invalid_owner_key", "owner_key must start with key_", "owner_key")
    check_id(workspace, "space_", "workspace")
    if campaign is not None:
        check_id(campaign, "camp_", "upload_options.campaign")
    return Creation(owner_key if isinstance(owner_key, str) else "", workspace, email, duplicates, strict, campaign)


def _require_members(members: Mapping[str, Any], names: tuple[str, ...], prefix: str) -> None:
    for name in names:
        if name not in members or (name == "campaign" and members[name] == ""):
            knob = "missing_campaign" if name == "campaign" else ""
            raise refusal_error(400, "missing_field", f"{prefix}{name} is required", prefix + name, knob=knob)


def _require_type(members: Mapping[str, Any], name: str, kind: type, expected: str, prefix: str = "") -> Any:
    if not isinstance(members[name], kind):
        raise refusal_error(400, "invalid_type", f"{prefix}{name} must be {expected}", prefix + name)
    return members[name]


def parse_fields(body: Mapping[str, Any], workspace: Workspace, behaviour: Behaviour, hints: list[str]) -> SentFields:
    fields: SentFields = {}
    codes = workspace.codes
    for name, value in body.items():
        code = codes.get(name)
        if code is None and (
            name in RESERVED_MEMBERS or (code := _resolve_unknown_field(name, workspace, behaviour, hints)) is None
        ):
            continue
        if value is not None and type(value) is not str:
            raise refusal_error(400, "invalid_type", f"{sanitize_name(name)} must be a string", sanitize_name(name))
        fields[code] = value
    for name in body["upload_options"]:
        if name not in _UPLOAD_OPTIONS:
            _ignore_field("upload_options." + name, [f"upload_options.{option}" for option in _UPLOAD_OPTIONS], behaviour, hints)
    return fields


def _resolve_unknown_field(name: str, workspace: Workspace, behaviour: Behaviour, hints: list[str]) -> str | None:
    """Return the code under which to store a field that the workspace does not have; `None` if the field is ignored."""
    is_custom = name.startswith("custom_")
    if is_custom and not CUSTOM_CODE.fullmatch(name):
        shown = sanitize_name(name)
        raise refusal_error(400, "invalid_custom_field", f"{shown} must have the form custom_<n>, such as custom_1", shown)
    if (behaviour.unknown_custom if is_custom else behaviour.unknown_body) == "store":
        return name
    if not is_custom:
        _ignore_field(name, [*workspace.codes, *RESERVED_MEMBERS], behaviour, hints)
        return None
    if behaviour.unknown_custom == "reject":
        known = ", ".join(sorted(workspace.custom_fields, key=custom_number)) or "none"
        message = f"the workspace has no {name}; its custom fields: {known}"
        raise refusal_error(400, "unknown_custom_field", message, name, knob="unknown_custom")
    hints.append(f"unknown field {name} ignored")
    return None


def _ignore_field(name: str, known: list[str], behaviour: Behaviour, hints: list[str]) -> None:
    guess = suggest_similar(name, known) if len(hints) < _MAX_SUGGESTIONS else ""
    shown = sanitize_name(name)
    if behaviour.unknown_body == "reject":
        message, similar = f"{shown} is not a field of a contact", (guess,) if guess else ()
        raise refusal_error(400, "unknown_field", message, shown, hints=similar, knob="unknown_body")
    hints.append(f"unknown field {shown} ignored" + (f", {guess}" if guess else ""))


# Strict validation (rules C26 and C27): a table with one check per standard field. Null and blank values always pass: clearing a
# field is allowed. Custom fields are never checked. Countries, states and time zones are read from tables in `data`, so that
# results do not depend on databases of the operating system.

MAX_TEXT_LENGTH: Final = 1000

_MAX_EMAIL_LENGTH: Final = 254

_LDH: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST: Final = re.compile(rf"{_LDH}(?:\.{_LDH})+")
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
    # An address has one `@`, a local part of up to 64 characters, and a domain with a dot. Each label of the domain has up to 63
    # letters, digits and hyphens. The address has at most 254 characters in total.
    local, _, domain = text.partition("@")
    return len(text) <= _MAX_EMAIL_LENGTH and _LOCAL_PART.fullmatch(local) is not None and _is_host(domain)


def _is_host(text: str) -> bool:
    # Letters of any script are accepted, for internationalised domain names. In many scripts, combining marks belong to letters.
    plain = (
        text if text.isascii() else "".join("a" if c.isalnum() or unicodedata.category(c).startswith("M") else c for c in text)
    )
    return _HOST.fullmatch(plain) is not None


@cache
def load_countries() -> dict[str, str]:
    """Return a dict that maps alpha-2 codes and normalized country names (see `fold_name`) to alpha-2 codes."""
    codes: dict[str, str] = {}
    for code, *names in read_table("countries"):
        codes |= dict.fromkeys([code, *map(fold_name, names)], code)
    return codes


def fold_name(name: str) -> str:
    # The function ignores letter case, accents and a leading "the". It replaces "&" by "and", and "St" by "Saint".
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    words = re.sub(r"[^a-z0-9]+", " ", plain.casefold().replace("&", " and ").replace("'", "").replace("\u2019", "")).split()
    if words[:1] == ["the"]:
        words = words[1:]
    return " ".join("saint" if word == "st" else word for word in words)


def find_country_code(text: str) -> str | None:
    codes = load_countries()
    return codes.get(text.strip().upper()) or codes.get(fold_name(text))


@cache
def _load_states() -> frozenset[str]:
    return frozenset(text.casefold() for state in read_table("states") for text in state)


@cache
def load_timezones() -> frozenset[str]:
    return frozenset(name for (name,) in read_table("timezones"))


def is_state(text: str, country: str | None = None) -> bool:
    # If the country is the US or missing, the string must be a US state. Otherwise, it must be a name without digits.
    if not country or not country.strip() or find_country_code(country) == "US":
        return " ".join(text.split()).casefold() in _load_states()
    return _TEXT.fullmatch(text) is not None and any(c.isalpha() for c in text) and not any(c.isdigit() for c in text)


def is_date(text: str) -> bool:
    for form in _DATE_PATTERNS:
        if match := form.fullmatch(text):
            try:
                date(int(match["year"]), int(match["month"] or 1), int(match["day"] or 1))
            except ValueError:
                return False
            return True
    return False


def is_stack_overflow(text: str) -> bool:
    if "://" in text:
        url = _URL.fullmatch(text)
        return url is not None and f".{url['host'].lower()}".endswith(".stackoverflow.com")
    return not any(c.isspace() for c in text)


# A predicate that is true for a valid string, and what is valid, as the error says it. That of `state` also takes the country.
FieldCheck = tuple[Callable[..., object], str]

_TEXT_CHECK: Final[FieldCheck] = (_TEXT.fullmatch, f"a string of at most {MAX_TEXT_LENGTH} characters without control characters")

FIELD_CHECKS: Final[Mapping[str, FieldCheck]] = {
    **dict.fromkeys(STANDARD_FIELDS, _TEXT_CHECK),
    "email": (is_email, "an e-mail address"),
    **dict.fromkeys(
        (code for code in STANDARD_FIELDS if "phone" in code),
        (
            lambda text: any(_PHONE.fullmatch(number.translate(_PHONE_MARKS)) for number in (text, _EXTENSION.sub("", text))),
            "a phone number of 7 to 15 digits",
        ),
    ),
    "country": (find_country_code, "an ISO 3166 alpha-2 code or an English country name"),
    "timezone": (
        lambda text: text in load_timezones() or _OFFSET.fullmatch(text),
        "an IANA time zone name or an offset such as UTC+05:30",
    ),
    **dict.fromkeys(("job_start_date", "graduation_date"), (is_date, "a date as YYYY-MM-DD, YYYY-MM, YYYY or MM/DD/YYYY")),
    **dict.fromkeys(
        ("website", "website_2", "website_3"),
        (lambda text: _URL.fullmatch(text) or _is_host(text), "an http or https URL, or a host with a dot"),
    ),
    "stack_overflow": (is_stack_overflow, "a URL on stackoverflow.com or a handle"),
    "state": (is_state, "the code or name of a US state or, in another country, a name without digits"),
    "zip": (_ZIP.fullmatch, "at most 12 letters, digits, spaces and hyphens"),
}


def find_failures(email: str, fields: Mapping[str, str | None], strict_fields: Literal["all"] | frozenset[str]) -> dict[str, str]:
    """Return a description of valid values for every field that fails strict validation."""
    failures = {}
    for code, value in (("email", email), *fields.items()):
        if not value or code not in FIELD_CHECKS:
            continue
        is_valid, reason = FIELD_CHECKS[code]
        passed = is_state(value, fields.get("country")) if code == "state" else is_valid(value)
        if not passed and not value.isspace() and (strict_fields == "all" or code in strict_fields):
            failures[code] = reason
    return failures
