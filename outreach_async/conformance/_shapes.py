"""The kinds of values that rules expect, and the documented fields of each object."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

ValueKind = tuple[str, Callable[[Any], bool]]
"""A kind of value: its name, and a function that returns whether a value is of that kind."""
Shape = Mapping[str, ValueKind]
"""The fields of a JSON object, each with its kind of value."""

_MAX_PERCENTAGE: Final = 100
_FIRST_TIMESTAMP: Final = 10**9
"""Smallest plausible Unix timestamp: September 2001. Smaller numbers are probably years, or dates such as 20260131."""

_ABSOLUTE_TIME: Final = re.compile(
    r"""\s*(?: [0-9.]+                              # a timestamp
        | [0-9]{4}-[0-9]{2}.*                     # 2026-01-31T12:00:00Z
        | [0-9]{1,2}([/.])[0-9]{1,2}\1[0-9]{2}.*  # 01/31/2026
        | [^\W\d_]{3,9}\.?\ [0-9]{1,2},?\ [0-9]{4}   # Jan 31, 2026
        | [0-9]{1,2}\.?\ [^\W\d_]{3,9}\.?,?\ [0-9]{4} # 31 January 2026
    )\s*""",
    re.DOTALL | re.VERBOSE,
)
"""Pattern of absolute times, as opposed to relative times such as `5 minutes ago`."""

_EMAIL_PATTERN: Final = re.compile(r"[^@\s]+@[^@\s]+")
_LETTER_PATTERN: Final = re.compile(r"[A-Z]+")


def is_number(value: Any) -> bool:
    return type(value) in {int, float}


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number of 0 or more. A float such as `3.0` counts as a whole number."""
    return is_number(value) and value >= 0 and (type(value) is int or value.is_integer())


STRING: Final[ValueKind] = ("a string", lambda value: isinstance(value, str))
NUMBER: Final[ValueKind] = ("a number", is_number)
BOOLEAN: Final[ValueKind] = ("a boolean", lambda value: isinstance(value, bool))
ARRAY: Final[ValueKind] = ("an array", lambda value: isinstance(value, list))
STRINGS: Final[ValueKind] = ("an array of strings", lambda value: ARRAY[1](value) and all(map(STRING[1], value)))
OBJECTS: Final[ValueKind] = ("an array of objects", lambda value: ARRAY[1](value) and all(isinstance(one, dict) for one in value))
STRING_OR_NULL: Final[ValueKind] = ("a string or null", lambda value: value is None or isinstance(value, str))
BOOLEAN_OR_NULL: Final[ValueKind] = ("a boolean or null", lambda value: value is None or isinstance(value, bool))
STRING_OR_NUMBER: Final[ValueKind] = ("a string or a number", lambda value: isinstance(value, str) or is_number(value))

COUNT: Final[ValueKind] = ("a whole number of 0 or more", is_count)
PERCENTAGE: Final[ValueKind] = ("a percentage from 0 to 100", lambda value: 0 <= value <= _MAX_PERCENTAGE)
NON_NEGATIVE: Final[ValueKind] = ("a finite number of 0 or more", lambda value: 0 <= value < math.inf)
TIMESTAMP: Final[ValueKind] = ("a Unix timestamp", lambda value: _FIRST_TIMESTAMP <= value < math.inf)
TIMESTAMP_OR_STRING: Final[ValueKind] = (TIMESTAMP[0], lambda value: isinstance(value, str) or TIMESTAMP[1](value))
RELATIVE_TIME: Final[ValueKind] = ("a relative time", lambda value: not _ABSOLUTE_TIME.fullmatch(value))
EMAIL: Final[ValueKind] = ("an e-mail address", lambda value: _EMAIL_PATTERN.fullmatch(value) is not None)
STATUS: Final[ValueKind] = ("draft, live or paused", lambda value: value in {"draft", "live", "paused"})
AUTO_EMAIL: Final[ValueKind] = ("auto_email", lambda value: value == "auto_email")
NON_EMPTY_ARRAY: Final[ValueKind] = ("a non-empty array", bool)
LETTER: Final[ValueKind] = ("an upper-case letter or PER", lambda value: _LETTER_PATTERN.fullmatch(value) is not None)


def _fields_of_kind(names: str, kind: ValueKind) -> dict[str, ValueKind]:
    return dict.fromkeys(names.split(), kind)


CAMPAIGN: Final[Shape] = {
    **_fields_of_kind("id status name last_activity days_left_display", STRING),
    **_fields_of_kind("steps contacts opens initials interested replies bounces", NUMBER),
    **_fields_of_kind("opens_num replies_num bounces_num interested_num days_left created", NUMBER),
    "days_left_date": STRING_OR_NUMBER,
}

MAILBOX: Final[Shape] = {
    **_fields_of_kind("id status email sender_name age last_activity type created server_ip", STRING),
    **_fields_of_kind("campaigns daily_limit blacklists sent_today sent_30days opened_14days sent_90days", NUMBER),
    **_fields_of_kind("bounced_30days avg_open_rate avg_click_rate created_at", NUMBER),
    **_fields_of_kind("spf dkim dmarc", BOOLEAN),
    "domain_ip": STRING_OR_NULL,
}

STEP: Final[Shape] = {
    **_fields_of_kind("id status type", STRING),
    **_fields_of_kind("order wait_time left_to_send already_sent out_of", NUMBER),
    "templates": OBJECTS,
}

TEMPLATE: Final[Shape] = {
    **_fields_of_kind("id test_letter name status", STRING),
    **_fields_of_kind("sent opened opened_num clicked clicked_num replied replied_num unsubscribed unsubscribed_num", NUMBER),
    **_fields_of_kind("subject body_text", STRING_OR_NULL),
    "new_thread": BOOLEAN_OR_NULL,
}

FIELD: Final[Shape] = {**_fields_of_kind("label code", STRING), "searchable": STRINGS}

PAGE: Final[Shape] = {**_fields_of_kind("total_found current_page total_pages", NUMBER), "headers": STRINGS, "data": ARRAY}

STEPS: Final[Shape] = {"days_left": NUMBER, **_fields_of_kind("days_left_date days_left_display", STRING), "data": ARRAY}

BY_ITEM: Final = {"campaign": CAMPAIGN, "mailbox": MAILBOX, "field": FIELD, "step": STEP, "template": TEMPLATE, "steps": STEPS}
ID_PREFIXES: Final = {"campaign": "camp_", "mailbox": "mailbox_", "field": "", "step": "step_", "template": "temp_"}


def find_misfits(value: Any, shape: Shape) -> Iterator[str]:
    """Yield a description of each field of `shape` that is missing from a value or has the wrong type. Other keys are allowed."""
    if not isinstance(value, dict):
        yield f"is {name_json_type(value)}, not an object"
        return
    for name, (called, is_one) in shape.items():
        if name not in value:
            yield f"has no {name}"
        elif not is_one(value[name]):
            yield f"{name} is {name_json_type(value[name])}, not {called}"


def name_json_type(value: Any) -> str:
    names = {type(None): "null", bool: "a boolean", str: "a string", list: "an array", dict: "an object"}
    return names.get(type(value), "a number")
