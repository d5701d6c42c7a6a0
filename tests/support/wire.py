"""The tables of the interface, copied by hand, and wire JSON, models and invalid JSON derived from them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from random import Random
from typing import Any, Final, TypeAlias

import attrs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from support.examples import scaled

from outreach_async import Outcome
from outreach_async.converters import OutreachConverter
from outreach_async.models import (
    Campaign,
    CampaignStatus,
    CampaignSteps,
    CreateContactResponse,
    Mailbox,
    MailboxStatus,
    MailboxType,
    Page,
    Step,
    StepStatus,
    StepType,
    Template,
    TemplateStatus,
    WorkspaceField,
    WorkspaceFields,
)

Wire: TypeAlias = dict[str, Any]

CONVERTER: Final = OutreachConverter()


def load(kind: Any, body: bytes, *, keep: bool = False) -> Any:
    """Decode a body by a converter that all tests share, as the clients of a program do."""
    return CONVERTER.loads(body, kind, keep=keep)


def faults_of(kind: Any, body: bytes, *, keep: bool = False) -> str:
    """Return what is wrong with a body."""
    with pytest.raises(ValueError, match=r"^\$") as caught:
        load(kind, body, keep=keep)
    return str(caught.value)


unhurried = settings(
    deadline=None, max_examples=scaled(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
"""Settings for properties over large values, which must also pass on a busy machine."""


def _table(text: str) -> dict[str, str]:
    """Read lines such as `id status: str`, one for each run of fields of a type."""
    lines = (line.rpartition(": ") for line in text.split("; "))
    return {name: kind for names, _, kind in lines for name in names.split()}


def _list(item: str) -> dict[str, str]:
    return _table(f"status: str; headers: [str]; data: [{item}]; total_found current_page total_pages: number")


TABLES: dict[str, dict[str, str]] = {
    "Campaign": _table(
        "id status name: str; steps contacts opens initials interested replies bounces: number; last_activity: str; "
        "opens_num replies_num bounces_num interested_num days_left: number; days_left_date: str or number; "
        "days_left_display: str; created: number"
    ),
    "Mailbox": _table(
        "id status email sender_name: str; campaigns daily_limit: number; spf dkim dmarc: bool; blacklists: number; age: str; "
        "sent_today sent_30days opened_14days sent_90days bounced_30days avg_open_rate avg_click_rate: number; "
        "last_activity type created: str; domain_ip: str or null; server_ip: str; created_at: number"
    ),
    "Step": _table(
        "id: str; order: number; status type: str; wait_time left_to_send already_sent out_of: number; templates: [Template]"
    ),
    "Template": _table(
        "id test_letter name status: str; new_thread: bool or null; subject body_text: str or null; sent opened opened_num "
        "clicked clicked_num replied replied_num unsubscribed unsubscribed_num: number"
    ),
    "WorkspaceField": _table("label code: str; searchable: [str]"),
    "CreateContactResponse": _table("status: str; id details: str or null"),
    "Page[Campaign]": _list("Campaign"),
    "Page[Mailbox]": _list("Mailbox"),
    "CampaignSteps": _table(
        "status: str; days_left: number; days_left_date: str or number; days_left_display: str; data: [Step]"
    ),
    "WorkspaceFields": _table("status: str; data: [WorkspaceField]"),
}
"""The fields of every response and resource, in the order of the interface, each with its JSON type."""

KINDS: dict[str, Any] = {
    "Campaign": Campaign,
    "Mailbox": Mailbox,
    "Step": Step,
    "Template": Template,
    "WorkspaceField": WorkspaceField,
    "CreateContactResponse": CreateContactResponse,
    "Page[Campaign]": Page[Campaign],
    "Page[Mailbox]": Page[Mailbox],
    "CampaignSteps": CampaignSteps,
    "WorkspaceFields": WorkspaceFields,
}
"""The class that each table is decoded into."""

ENUMS: dict[tuple[str, str], type[StrEnum]] = {
    ("Campaign", "status"): CampaignStatus,
    ("Mailbox", "status"): MailboxStatus,
    ("Mailbox", "type"): MailboxType,
    ("Step", "status"): StepStatus,
    ("Step", "type"): StepType,
    ("Template", "status"): TemplateStatus,
    ("CreateContactResponse", "status"): Outcome,
}

names = st.sampled_from(sorted(TABLES))
"""A strategy for names of tables."""

_SEEN = ["", "ok", "live", "draft", "paused", "active", "Google", "SMTP & IMAP", "added", "overwriten", "camp_1", "contact_1"]
_ODD = ['say "id": 1', '"a":', 'x" : y', "\\", '\\":', "Bonjour :", "é ü/%2F?#", "\U0001f600", "true", "None", "3"]

texts = st.sampled_from(_SEEN) | st.sampled_from(_ODD) | st.text(max_size=8)
numbers = st.integers(0, 100) | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.just(2**70)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=4,
)
"""A strategy for any JSON value."""

_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "str": texts,
    "number": numbers,
    "bool": st.booleans(),
    "str or number": texts | numbers,
    "str or null": texts | st.none(),
    "bool or null": st.booleans() | st.none(),
}

TAKES: dict[str, tuple[str, frozenset[type]]] = {
    "str": ("str", frozenset({str})),
    "number": ("number", frozenset({int, float})),
    "bool": ("bool", frozenset({bool})),
    "str or number": ("str or number", frozenset({str, int, float})),
    "str or null": ("str", frozenset({str, type(None)})),
    "bool or null": ("bool", frozenset({bool, type(None)})),
    "array": ("array", frozenset({list})),
    "object": ("object", frozenset({dict})),
}
"""For each JSON type in the tables: the expected type that an error names, and the accepted Python types."""

OF_EVERY_KIND = [None, True, False, 0, 1, -1.5, 3.9, 1.0, "", "true", "3", "null", [], ["x"], {}, {"a": 1}]


def wire(name: str, *, unknown: bool = True) -> st.SearchStrategy[Wire]:
    """Return a strategy for wire JSON of a table. With `unknown`, the JSON may contain members that the table lacks."""
    known = st.fixed_dictionaries({field: _drawn(kind, unknown=unknown) for field, kind in TABLES[name].items()})
    others = st.dictionaries(st.sampled_from(["extra", "undecodable", "new"]) | st.text(max_size=4), values, max_size=2)
    return st.builds(lambda new, old: {**new, **old}, others, known) if unknown else known


def _drawn(kind: str, *, unknown: bool) -> st.SearchStrategy[Any]:
    if kind.startswith("["):
        return st.lists(_drawn(kind[1:-1], unknown=unknown), max_size=2)
    return wire(kind, unknown=unknown) if kind in TABLES else _PLAIN[kind]


def write_json(value: Any, seed: int) -> bytes:
    """Encode JSON in a random style: members in any order, any whitespace, strings escaped or not."""
    random = Random(seed)  # noqa: S311 - nothing here is secret
    blanks = random.choice([[""], ["", "", "", " "], [" ", "\n\t", "\r\n", ""]])
    return _written(value, random, blanks, ascii_only=random.random() < 0.5).encode()


def _written(value: Any, random: Random, blanks: list[str], *, ascii_only: bool) -> str:
    def part(inner: Any) -> str:
        text = _written(inner, random, blanks, ascii_only=ascii_only)
        return random.choice(blanks) + text + random.choice(blanks)

    if isinstance(value, dict):
        members = random.sample(list(value.items()), len(value))
        return "{" + ",".join(f"{part(name)}:{part(member)}" for name, member in members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(part, value)) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


def build_model(name: str, value: Wire) -> Any:
    """Build the model of wire JSON without the library's decoder."""
    table = TABLES[name]
    members = {field: _made(kind, value[field]) for field, kind in table.items()}
    members |= {field: kind(value[field]) for (owner, field), kind in ENUMS.items() if owner == name}
    return KINDS[name](**members, extra={member: value[member] for member in value.keys() - table.keys()})


def _made(kind: str, value: Any) -> Any:
    if kind.startswith("["):
        return [_made(kind[1:-1], item) for item in value]
    return build_model(kind, value) if kind in TABLES else value


def exactly(value: Any) -> Any:
    """Convert a value so that `==` detects all differences: of 1, 1.0 and True, of an enum and its text, and in `extra`."""
    if attrs.has(type(value)):
        return type(value), {
            field.alias: exactly(getattr(value, str(field.alias)))
            for field in attrs.fields(type(value))
            if field.name not in {"_link", "_response"}  # not data
        }
    if isinstance(value, dict):
        return {name: exactly(member) for name, member in value.items()}
    if isinstance(value, list):
        return [exactly(item) for item in value]
    return type(value), repr(value)


@attrs.frozen
class Place:
    """A place in wire JSON: its path in an error, the keys that lead to it, and the expected and the accepted types."""

    path: str
    way: tuple[str | int, ...]
    expected: str
    takes: frozenset[type]


def places(name: str, value: Wire) -> list[Place]:
    """Return every place that a table describes, starting with the whole document."""
    return list(_places(name, value, Place("$", (), *TAKES["object"])))


def _places(kind: str, value: Any, place: Place) -> Iterator[Place]:
    inner: Any = ()
    yield place
    if kind in TABLES:
        inner = [(f".{field}", field, below, value[field]) for field, below in TABLES[kind].items()]
    elif kind.startswith("["):
        inner = [(f"[{at}]", at, kind[1:-1], item) for at, item in enumerate(value)]
    for path, step, below, member in inner:
        sort = "array" if below.startswith("[") else "object" if below in TABLES else below
        yield from _places(below, member, Place(place.path + path, (*place.way, step), *TAKES[sort]))


def with_value(value: Any, way: tuple[str | int, ...], put: Any) -> Any:
    """Return a copy of JSON with another value at a place."""
    if not way:
        return put
    copy: Any = value.copy()
    copy[way[0]] = with_value(value[way[0]], way[1:], put)
    return copy


def without_member(value: Any, way: tuple[str | int, ...]) -> Any:
    """Return a copy of JSON without the member at a place."""
    *owner, name = way
    current: Any = value
    for step in owner:
        current = current[step]
    return with_value(value, tuple(owner), {member: inner for member, inner in current.items() if member != name})


def kind_of(value: object) -> str:
    """Return the type of a JSON value as errors name it."""
    return "None" if value is None else type(value).__name__
