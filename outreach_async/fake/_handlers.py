"""Execute the five operations of the service (rule W1). Every error is raised as `Refusal`.

In this order: rate limits (rule E4) and pages (P1 to P11), the rendering of records as JSON items (W4), the creation of contacts
(C1 to C27), and the operations, with authentication (A2 to A4).
"""

from __future__ import annotations

import math
import re
import unicodedata
import zlib
from collections.abc import Callable, Mapping
from datetime import date
from fractions import Fraction
from functools import cache, lru_cache, partial
from typing import Any, Final, Literal

import attrs

from outreach_async.fake._arguments import check_id, read_table, suggest_similar
from outreach_async.fake._clock import DAY, format_age, format_date
from outreach_async.fake._messages import ParsedRequest, Query, Refusal, format_http_date, require_parameter, sanitize_name
from outreach_async.fake._records import (
    CAMPAIGN_HEADERS,
    COUNT_NAMES,
    CUSTOM_CODE,
    MAILBOX_HEADERS,
    RESERVED_MEMBERS,
    STANDARD_FIELDS,
    Campaign,
    Contact,
    Enrolment,
    Mailbox,
    Share,
    Step,
    Workspace,
    custom_number,
)
from outreach_async.fake._simulation import NO_STATS, CampaignFlow, ListKind, World
from outreach_async.fake.behaviour import Behaviour, RateLimit

_NO_WORKSPACE: Final = "no workspace has this id"


def find_workspace(workspace: str, world: World, knob: str = "") -> Workspace:
    record = world.workspaces.get(workspace)
    if record is None:
        raise Refusal(404, "workspace_not_found", _NO_WORKSPACE, "workspace", knob=knob)
    return record


def _find_listed_workspace(workspace: str, call: ParsedRequest, context: Context) -> Workspace | None:
    """Return the workspace of a list; `None` if it is unknown and its list is empty (rule P13)."""
    if context.behaviour.unknown_workspace == "empty" and workspace not in context.world.workspaces:
        call.hints.append(_NO_WORKSPACE)
        return None
    return find_workspace(workspace, context.world, "unknown_workspace")


def find_campaign(campaign: str, world: World, field: str, workspace: str | None = None) -> Campaign:
    record = world.campaigns.get(campaign)
    if record is None or workspace not in {None, record.workspace}:
        raise Refusal(404, "campaign_not_found", "no campaign has this id", field)
    return record


# Limits.


class Limiter:
    def __init__(self) -> None:
        self._window = -1
        self._counts: dict[str, int] = {}

    def admit(self, scope: str, limit: RateLimit, now: float) -> None:
        window = math.floor(now / limit.per)
        if window != self._window:
            self._window = window
            self._counts.clear()  # every scope has the same windows, so old counts are no longer needed
        if self._counts.get(scope, 0) >= limit.limit:
            end = (window + 1) * limit.per
            wait = format_http_date(math.ceil(end)) if limit.retry_after == "date" else str(max(1, math.ceil(end - now)))
            message = "too many requests; retry after the time in the header retry-after"
            raise Refusal(429, "rate_limited", message, headers={"retry-after": wait})
        self._counts[scope] = self._counts.get(scope, 0) + 1


MAX_MAILBOXES: Final = 2000  # as the API documentation states

DEFAULT_DISPLAY: Final = 10  # with `behaviour.bad_number` = `default`

_NUMBER_PATTERN: Final = re.compile(r"[0-9]{1,9}", re.ASCII)  # int() alone would accept " ٣_0 "


def parse_page_query(query: Query, maximum: int | None, behaviour: Behaviour) -> tuple[str, int, int]:
    workspace, display_text, page_text = (require_parameter(query, name) for name in ("workspace", "display", "page"))
    display = _parse_number("display", display_text, 1, DEFAULT_DISPLAY, behaviour)
    page = _parse_number("page", page_text, behaviour.first_page, behaviour.first_page, behaviour)
    check_id(workspace, "space_", "workspace")
    if maximum is not None and display > maximum and behaviour.over_max != "serve":
        if behaviour.over_max == "reject":
            raise Refusal(400, "display_too_large", f"display must be at most {maximum}", "display", knob="over_max")
        display = maximum
    return workspace, display, page


def _parse_number(name: str, text: str, least: int, default: int, behaviour: Behaviour) -> int:
    if _NUMBER_PATTERN.fullmatch(text) and int(text) >= least:
        return int(text)
    if behaviour.bad_number == "default":
        return default
    message = f"{name} must be an integer of at least {least} with at most 9 digits"
    raise Refusal(400, "invalid_number", message, name, knob="bad_number")


# Rendering.


@lru_cache(maxsize=16_384)  # a page of mailboxes has thousands of percentages, and the next page repeats most of them
def _round_percent(n: int, of: int, digits: int) -> float:
    # Integer arithmetic: the float 100 * n / of is rarely exact, and would round some halves to the wrong side.
    if of <= 0:
        return 0.0
    scale = 10**digits
    quotient, rest = divmod(100 * scale * n, of)
    if 2 * rest > of or (2 * rest == of and quotient % 2):
        quotient += 1
    return float(quotient / scale)


_DAY_MS: Final = DAY * 1000
_TEMPLATE_FIELDS: Final = ("id", "test_letter", "name", "status", "new_thread", "subject", "body_text")


@attrs.define
class Context:
    """The state with which a request is executed. Its methods render records as JSON items."""

    world: World = attrs.field(repr=False)
    behaviour: Behaviour
    limiter: Limiter
    seed: int
    now: float

    def percent(self, n: int, of: int, salt: str) -> float:
        value = _round_percent(n, of, self.behaviour.percent_digits)
        numbers, is_whole = self.behaviour.numbers, value.is_integer() and self.behaviour.numbers != "float"
        return int(value) if is_whole and (numbers == "int_when_whole" or zlib.crc32(salt.encode()) & 1) else value

    def render_campaign(self, campaign: Campaign) -> dict[str, Any]:
        flow = self.world.simulation.flows[campaign.id]
        sent, opens, replies = (flow.total(COUNT_NAMES.index(count)) for count in ("sent", "opened_num", "replied_num"))
        return {
            "id": campaign.id,
            "status": campaign.status,
            "name": campaign.name,
            "steps": len(campaign.steps),
            "contacts": campaign.contacts + self.world.enrolled_counts[campaign.id],
            "opens": self.percent(opens, sent, f"{campaign.id}.opens"),
            "initials": flow.sent(0) if campaign.steps else 0,
            "interested": self.percent(flow.interested, sent, f"{campaign.id}.interested"),
            "replies": self.percent(replies, sent, f"{campaign.id}.replies"),
            "bounces": self.percent(flow.bounces, sent, f"{campaign.id}.bounces"),
            "last_activity": format_age(self.world.last_activity("campaign", campaign.id), self.now),
            "opens_num": opens,
            "replies_num": replies,
            "bounces_num": flow.bounces,
            "interested_num": flow.interested,
            **self.render_end(campaign, self.behaviour.list_date),
            "created": campaign.created,
        }

    def render_mailbox(self, mailbox: Mailbox) -> dict[str, Any]:
        ledger = self.world.simulation.stats.get(mailbox.id, NO_STATS)
        item = {**mailbox.values, **ledger.item_values(mailbox, int(self.now // DAY))}
        for name in ("opened_14days", "avg_open_rate", "avg_click_rate"):
            share = item[name]
            if isinstance(share, Share):
                item[name] = self.percent(share.part, share.whole, f"{mailbox.id}.{name}")
        if item["campaigns"] is None:
            item["campaigns"] = self.world.usage[0][mailbox.id]
        for name in ("age", "created"):
            if item[name] is None:
                item[name] = format_age(mailbox.created, self.now)
        if not isinstance(item["last_activity"], str):
            item["last_activity"] = format_age(self.world.last_activity("mailbox", mailbox.id), self.now)
        return item

    def render_end(self, campaign: Campaign, date_format: str) -> dict[str, Any]:
        world, lefts = self.world, self.world.simulation.flows[campaign.id].left_to_send
        days, word = 0, ""
        if not campaign.contacts + world.enrolled_counts[campaign.id]:
            word = "Not started"
        elif not sum(lefts):
            word = "Complete"
        elif not (capacity := world.capacity(campaign)):
            days, word = 9999, "Unknown"
        else:
            # Contacts wait for a step while others still get the one before: it takes the longer of its wait and its sending.
            # Only the first step takes both, because everybody may join at the same time.
            waits = [Fraction(step.wait_time, _DAY_MS) for step in campaign.steps]
            spans = [max(wait, left / capacity) for wait, left in zip(waits, lefts, strict=True) if left]
            days = max(1, math.ceil(sum(spans) + min(waits[0], lefts[0] / capacity)))
        ends = int(self.now) + days * DAY
        date: int | str = ends
        # Without a date, the list has the same word as list-steps, because a timestamp would look like an estimate.
        if word or date_format == "text" or (date_format == "mixed" and not zlib.crc32(campaign.id.encode()) & 1):
            date = word or format_date(ends)
        display = word or f"{days} day{'' if days == 1 else 's'}"
        return {"days_left": days, "days_left_date": date, "days_left_display": display}

    def render_step(self, step: Step, place: int, flow: CampaignFlow) -> dict[str, Any]:
        # `out_of` does not include contacts that left the campaign before this step (rule T4).
        left, sent, templates = flow.left_to_send[place], flow.sent(place), []
        for template, counts in zip(step.templates, flow.counts[place], strict=True):
            item = {name: getattr(template, name) for name in _TEMPLATE_FIELDS} | {"sent": counts[0]}
            for name, n in zip(COUNT_NAMES[1:], counts[1:], strict=True):
                share = name.removesuffix("_num")
                item |= {share: self.percent(n, counts[0], f"{template.id}.{share}"), name: n}
            templates.append(item)
        return {
            "id": step.id,
            "order": place + 1,
            "status": step.status,
            "type": "auto_email",
            "wait_time": step.wait_time,
            "left_to_send": left,
            "already_sent": sent,
            "out_of": left + sent,
            "templates": templates,
        }


# Creating contacts (rules C1 to C27, A4). These functions change no stored data. The first check that fails decides the response.

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
        raise Refusal(409, "already_enrolled", message, field, knob="reenrol")
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
        raise Refusal(400, "blank_email", "email must not be blank", "email")
    duplicates, names = options["duplicates"], list(DUPLICATE_OUTCOMES)
    if not isinstance(duplicates, str) or duplicates not in names:
        hint = suggest_similar(duplicates.lower(), names) if isinstance(duplicates, str) else ""
        field = "upload_options.duplicates"
        message = f"{field} must be one of {', '.join(names)}"
        raise Refusal(400, "invalid_duplicates", message, field, hints=(hint,) if hint else ())
    strict = _require_type(options, "strict_validation", bool, "true or false", "upload_options.")
    if campaign is not None:
        _require_type(options, "campaign", str, "a string or null", "upload_options.")
    if is_checked and not owner_key.startswith("key_"):
        # The error has no hint about the value, because the value may be a secret.
        raise Refusal(400, "invalid_owner_key", "owner_key must start with key_", "owner_key")
    check_id(workspace, "space_", "workspace")
    if campaign is not None:
        check_id(campaign, "camp_", "upload_options.campaign")
    return Creation(owner_key if isinstance(owner_key, str) else "", workspace, email, duplicates, strict, campaign)


def _require_members(members: Mapping[str, Any], names: tuple[str, ...], prefix: str) -> None:
    for name in names:
        if name not in members or (name == "campaign" and members[name] == ""):
            knob = "missing_campaign" if name == "campaign" else ""
            raise Refusal(400, "missing_field", f"{prefix}{name} is required", prefix + name, knob=knob)


def _require_type(members: Mapping[str, Any], name: str, kind: type, expected: str, prefix: str = "") -> Any:
    if not isinstance(members[name], kind):
        raise Refusal(400, "invalid_type", f"{prefix}{name} must be {expected}", prefix + name)
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
            raise Refusal(400, "invalid_type", f"{sanitize_name(name)} must be a string", sanitize_name(name))
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
        raise Refusal(400, "invalid_custom_field", f"{shown} must have the form custom_<n>, such as custom_1", shown)
    if (behaviour.unknown_custom if is_custom else behaviour.unknown_body) == "store":
        return name
    if not is_custom:
        _ignore_field(name, [*workspace.codes, *RESERVED_MEMBERS], behaviour, hints)
        return None
    if behaviour.unknown_custom == "reject":
        known = ", ".join(sorted(workspace.custom_fields, key=custom_number)) or "none"
        message = f"the workspace has no {name}; its custom fields: {known}"
        raise Refusal(400, "unknown_custom_field", message, name, knob="unknown_custom")
    hints.append(f"unknown field {name} ignored")
    return None


def _ignore_field(name: str, known: list[str], behaviour: Behaviour, hints: list[str]) -> None:
    guess = suggest_similar(name, known) if len(hints) < _MAX_SUGGESTIONS else ""
    shown = sanitize_name(name)
    if behaviour.unknown_body == "reject":
        message, similar = f"{shown} is not a field of a contact", (guess,) if guess else ()
        raise Refusal(400, "unknown_field", message, shown, hints=similar, knob="unknown_body")
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


# Operations.

HandlerResult = tuple[int, dict[str, Any]]


def execute(call: ParsedRequest, context: Context) -> HandlerResult:
    behaviour = context.behaviour
    if call.routing_error is not None:
        raise call.routing_error
    if (auth := behaviour.auth) is not None:
        scheme, _, token = call.request.headers.get(auth.header, "").rpartition(" ")
        known = token in auth.tokens if auth.tokens else token in context.world.owner_keys
        if not known or scheme.lower() != auth.scheme.lower():
            challenge = {"www-authenticate": auth.scheme} if auth.scheme else {}
            message = f"the header {auth.header} must contain a known credential"
            raise Refusal(401, "unauthorized", message, headers=challenge)
    if behaviour.rate_limit is not None:
        scope = _find_scope(call, behaviour.rate_limit.scope, context.world)
        context.limiter.admit(scope, behaviour.rate_limit, context.now)
    if call.body_error is not None:
        raise call.body_error
    return HANDLERS[call.operation](call, context)


def _find_scope(call: ParsedRequest, scope: str, world: World) -> str:
    """Return the name under which the rate limit counts a request: an owner key, a workspace id, or an empty string."""
    if scope == "all":
        return ""
    if scope == "key" or call.body is not None:
        return str((call.body or {}).get("owner_key" if scope == "key" else "workspace"))
    if len(call.target.segments) == 1:
        return "".join(call.target.query.get("workspace", ()))
    campaign = world.campaigns.get(call.target.id)
    return campaign.workspace if campaign else call.target.id


def _list_page(call: ParsedRequest, context: Context, kind: ListKind) -> HandlerResult:
    behaviour, world = context.behaviour, context.world
    maximum = MAX_MAILBOXES if kind == "mailbox" else behaviour.campaign_max_display
    id_, display, page = parse_page_query(call.target.query, maximum, behaviour)
    total = len(world.creation_order[id_, kind]) if _find_listed_workspace(id_, call, context) else 0
    pages = -(-total // display)
    last = max(pages - 1, 0)  # the first page exists even for an empty list
    index = page - behaviour.first_page
    if index > last and behaviour.past_end == "error":
        raise Refusal(404, "page_not_found", f"page {page} is past the end; total_pages is {pages}", "page", knob="past_end")
    if index > last and behaviour.past_end == "clamp":
        index = last
    ids = _select_page_ids(context, id_, kind, index * display, display) if total else []
    if kind == "campaign":
        data = [context.render_campaign(world.campaigns[id_]) for id_ in ids]
    else:
        data = [context.render_mailbox(world.mailboxes[id_]) for id_ in ids]
    return 200, {
        "status": "ok",
        "headers": CAMPAIGN_HEADERS if kind == "campaign" else MAILBOX_HEADERS,
        "data": data,
        "total_found": total,
        "current_page": index + behaviour.first_page,
        "total_pages": pages,
    }


def _select_page_ids(context: Context, workspace: str, kind: ListKind, start: int, count: int) -> list[str]:
    """Return the ids of the items on one page of the list in its current state (rule P11)."""
    order = context.world.creation_order[workspace, kind]
    if context.behaviour.order == "newest":
        stop = max(len(order) - start, 0)
        return [id_ for _, id_ in reversed(order[max(stop - count, 0) : stop])]
    if context.behaviour.order == "last_activity":
        order = sorted(order, key=lambda created: -(context.world.last_activity(kind, created[1]) or 0))
    return [id_ for _, id_ in order[start : start + count]]


def _create_contact(call: ParsedRequest, context: Context) -> HandlerResult:
    body, behaviour, world = call.body or {}, context.behaviour, context.world
    creation = parse_creation(body, behaviour)
    is_checked, owner_key = behaviour.owner_key == "check", creation.owner_key
    if is_checked and owner_key not in world.owner_keys:
        raise Refusal(401, "unknown_owner_key", "owner_key is not a known owner key", "owner_key")
    workspace = find_workspace(creation.workspace, world)
    if is_checked and workspace.id not in world.owner_keys[owner_key]:
        raise Refusal(403, "workspace_denied", "the user of owner_key has no access to this workspace", "workspace")
    if creation.campaign is not None:
        find_campaign(creation.campaign, world, "upload_options.campaign", workspace.id)
    fields = parse_fields(body, workspace, behaviour, call.hints)
    if creation.strict and (failures := find_failures(creation.email, fields, behaviour.strict_fields)):
        message = "; ".join(f"{field} must be {reason}" for field, reason in failures.items())
        raise Refusal(422, "validation_failed", message, next(iter(failures)))
    return _store_contact(creation, fields, context)


def _store_contact(creation: Creation, fields: SentFields, context: Context) -> HandlerResult:
    world, behaviour, now = context.world, context.behaviour, context.now
    key = email_key(behaviour)(creation.email)
    existing = world.contacts[creation.workspace].get(key)
    if existing is None:
        outcome = ADDED
        # A null field is left out (rule C14).
        given = fields if None not in fields.values() else {code: value for code, value in fields.items() if value is not None}
        enrolments = () if creation.campaign is None else (Enrolment(creation.campaign, now),)
        id_ = world.new_id(context.seed, "contact_")
        contact = Contact(id_, creation.email, creation.owner_key, int(now), given, enrolments)
    else:
        outcome = DUPLICATE_OUTCOMES[creation.duplicates]
        contact = merge_contact(existing, creation, fields, behaviour, now)
    if contact is not existing:
        world.store_contact(creation.workspace, key, contact)
    created = behaviour.created_status
    statuses = created if isinstance(created, Mapping) else {ADDED: created}
    status = statuses.get(outcome, 201 if outcome == ADDED else 200)
    if outcome == DUPLICATE_OUTCOMES["skip"]:
        return status, {"status": outcome, "id": None, "details": DUPLICATE_DETAILS}
    return status, {"status": outcome, "id": contact.id, "details": None}


def _list_steps(call: ParsedRequest, context: Context) -> HandlerResult:
    check_id(call.target.id, "camp_", "campaign_id")
    campaign = find_campaign(call.target.id, context.world, "campaign_id")
    flow = context.world.simulation.flows[campaign.id]
    data = [context.render_step(step, place, flow) for place, step in enumerate(campaign.steps)]
    return 200, {"status": "ok", **context.render_end(campaign, "text"), "data": data}


def _list_fields(call: ParsedRequest, context: Context) -> HandlerResult:
    check_id(call.target.id, "space_", "workspace_id")
    workspace = _find_listed_workspace(call.target.id, call, context)
    if workspace is None:
        return 200, {"status": "ok", "data": []}
    by_number = dict(sorted(workspace.custom_fields.items(), key=lambda field: custom_number(field[0])))
    labels = {"email": "Email", **STANDARD_FIELDS, **workspace.extra_fields, **by_number}  # in this order (rule F2)
    data = [
        {"label": label, "code": code, "searchable": list(dict.fromkeys([name, code.lower(), name.replace(" ", "")]))}
        for code, label in labels.items()
        for name in [label.lower()]
    ]
    return 200, {"status": "ok", "data": data}


HANDLERS: Final[Mapping[str, Callable[[ParsedRequest, Context], HandlerResult]]] = {
    "list_campaigns": partial(_list_page, kind="campaign"),
    "list_mailboxes": partial(_list_page, kind="mailbox"),
    "create_contact": _create_contact,
    "list_steps": _list_steps,
    "list_fields": _list_fields,
}
