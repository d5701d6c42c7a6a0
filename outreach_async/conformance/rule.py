"""What a rule of the interface is, and the tables that rules refer to: fields, types (rule W4) and valid values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from outreach_async.conformance.calibration import Measured
from outreach_async.conformance.read_probes import Asked
from outreach_async.conformance.target import document

Kind = tuple[str, Callable[[Any], bool]]
"""The name of a kind of value, and a function that returns whether a value is of that kind."""

_HUNDRED: Final = 100
_FIRST_MOMENT: Final = 10**9
"""September 2001 in Unix seconds. Lower numbers are years or dates written as numbers; times in milliseconds are higher."""

_ABSOLUTE: Final = re.compile(
    r"""\s*(?: [0-9.]+                              # a timestamp
        | [0-9]{4}-[0-9]{2}.*                     # 2026-01-31T12:00:00Z
        | [0-9]{1,2}([/.])[0-9]{1,2}\1[0-9]{2}.*  # 01/31/2026
        | [^\W\d_]{3,9}\.?\ [0-9]{1,2},?\ [0-9]{4}   # Jan 31, 2026
        | [0-9]{1,2}\.?\ [^\W\d_]{3,9}\.?,?\ [0-9]{4} # 31 January 2026
    )\s*""",
    re.DOTALL | re.VERBOSE,
)
"""Matches absolute times, which are not relative texts such as `5 minutes ago`."""

_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")
_LETTER: Final = re.compile(r"[A-Z]+")


def _is_number(value: Any) -> bool:
    return type(value) in {int, float}


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def is_count(value: Any) -> bool:
    """Return whether a value is a count: a whole number of 0 or more, possibly written as a float."""
    return _is_number(value) and value >= 0 and (type(value) is int or value.is_integer())


TEXT: Final[Kind] = ("a string", lambda value: isinstance(value, str))
NUMBER: Final[Kind] = ("a number", _is_number)
FLAG: Final[Kind] = ("a boolean", lambda value: isinstance(value, bool))
TEXTS: Final[Kind] = ("an array of strings", _is_texts)
ITEMS: Final[Kind] = ("an array", lambda value: isinstance(value, list))
TEXT_OR_NULL: Final[Kind] = ("a string or null", lambda value: value is None or isinstance(value, str))
FLAG_OR_NULL: Final[Kind] = ("a boolean or null", lambda value: value is None or isinstance(value, bool))
TEXT_OR_NUMBER: Final[Kind] = ("a string or a number", lambda value: isinstance(value, str) or _is_number(value))

COUNT: Final[Kind] = ("a whole number of 0 or more", is_count)
PERCENTAGE: Final[Kind] = ("a percentage from 0 to 100", lambda value: 0 <= value <= _HUNDRED)
AMOUNT: Final[Kind] = ("a finite number of 0 or more", lambda value: 0 <= value < math.inf)
MOMENT: Final[Kind] = ("a Unix timestamp", lambda value: _FIRST_MOMENT <= value < math.inf)
MOMENT_OR_TEXT: Final[Kind] = (MOMENT[0], lambda value: isinstance(value, str) or MOMENT[1](value))
AGO: Final[Kind] = ("a relative text", lambda value: not _ABSOLUTE.fullmatch(value))
EMAIL: Final[Kind] = ("an e-mail address", lambda value: _EMAIL.fullmatch(value) is not None)
STATUS: Final[Kind] = ("draft, live or paused", lambda value: value in {"draft", "live", "paused"})
AUTO_EMAIL: Final[Kind] = ("auto_email", lambda value: value == "auto_email")
SOME: Final[Kind] = ("a non-empty array", bool)
LETTER: Final[Kind] = ("a letter or PER", lambda value: _LETTER.fullmatch(value) is not None)

Shape = Mapping[str, Kind]


def _all(names: str, kind: Kind) -> dict[str, Kind]:
    return dict.fromkeys(names.split(), kind)


CAMPAIGN: Final[Shape] = {
    **_all("id status name last_activity days_left_display", TEXT),
    **_all("steps contacts opens initials interested replies bounces", NUMBER),
    **_all("opens_num replies_num bounces_num interested_num days_left created", NUMBER),
    "days_left_date": TEXT_OR_NUMBER,
}

MAILBOX: Final[Shape] = {
    **_all("id status email sender_name age last_activity type created server_ip", TEXT),
    **_all("campaigns daily_limit blacklists sent_today sent_30days opened_14days sent_90days", NUMBER),
    **_all("bounced_30days avg_open_rate avg_click_rate created_at", NUMBER),
    **_all("spf dkim dmarc", FLAG),
    "domain_ip": TEXT_OR_NULL,
}

STEP: Final[Shape] = {
    **_all("id status type", TEXT),
    **_all("order wait_time left_to_send already_sent out_of", NUMBER),
    "templates": ITEMS,
}

TEMPLATE: Final[Shape] = {
    **_all("id test_letter name status", TEXT),
    **_all("sent opened opened_num clicked clicked_num replied replied_num unsubscribed unsubscribed_num", NUMBER),
    **_all("subject body_text", TEXT_OR_NULL),
    "new_thread": FLAG_OR_NULL,
}

FIELD: Final[Shape] = {**_all("label code", TEXT), "searchable": TEXTS}

PAGE: Final[Shape] = {**_all("total_found current_page total_pages", NUMBER), "headers": TEXTS, "data": ITEMS}

STEPS: Final[Shape] = {"days_left": NUMBER, **_all("days_left_date days_left_display", TEXT), "data": ITEMS}


def misfits(value: Any, shape: Shape) -> Iterator[str]:
    """Yield how a value deviates from a shape. Additional members are allowed."""
    if not isinstance(value, dict):
        yield f"is {kind_of(value)}, not an object"
        return
    for name, (called, is_one) in shape.items():
        if name not in value:
            yield f"has no {name}"
        elif not is_one(value[name]):
            yield f"{name} is {kind_of(value[name])}, not {called}"


def kind_of(value: Any) -> str:
    """Return the name of a JSON type with its article."""
    if value is None:
        return "null"
    kinds: Iterable[tuple[type, str]] = ((bool, "a boolean"), (str, "a string"), (list, "an array"), (dict, "an object"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "a number")


_SHOWN: Final = 60


@attrs.frozen
class Subject:
    """One thing to which a rule applies.

    Attributes:
        asked: The request and response in which it was found.
        where: Its place in the response.
        value: The thing itself.
    """

    asked: Asked
    where: str
    value: Any


@attrs.frozen
class Rule:
    """A rule that the interface states.

    Attributes:
        id: Its id.
        says: What the interface says.
        subjects: Yields the things to which the rule applies.
        faults: Yields what is wrong with one of them; nothing if it conforms.
        writes: Whether the rule can be observed only by creating contacts.
    """

    id: str
    says: str
    subjects: Callable[[Measured], Iterator[Subject]]
    faults: Callable[[Any], Iterator[str]]
    writes: bool = False


def shown(value: object) -> str:
    """Return a short representation of a value from a response."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def no_success(asked: Asked, statuses: Collection[int]) -> Iterator[str]:
    """Yield why a response is not a success."""
    if asked.answer is None:
        yield "did not arrive"
    elif asked.answer.status not in statuses:
        yield f"has the status {asked.answer.status}"
    elif not isinstance(document(asked.answer), dict):
        yield "is not a JSON object"
