"""The JSON report and its published schema."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support.audit import REPORTS, mailboxes, reading, report
from support.audit_reports import HOSTILE_REPORTS, fleet
from support.examples import WITHOUT_SHRINKING, scaled

from outreach_async.audit import (
    CampaignResults,
    CampaignRow,
    CampaignTotals,
    ChangeCounts,
    Delta,
    Diff,
    Finding,
    Group,
    HistoryPoint,
    Report,
    Row,
    Score,
    Scores,
)
from outreach_async.audit.policy import PolicyUsed
from outreach_async.audit.reports import schema, write
from outreach_async.errors import StatusError


def closed(described: Any) -> Any:
    """Return the schema without additional properties: a report may contain only what the schema describes."""
    match described:
        case {"type": "object", "properties": _}:
            return {**{key: closed(value) for key, value in described.items()}, "additionalProperties": False}
        case dict():
            return {key: closed(value) for key, value in described.items()}
        case list():
            return [closed(each) for each in described]
        case _:
            return described


STRICT = Draft202012Validator(closed(schema()))


def objects(described: Any) -> Iterator[dict[str, Any]]:
    """Yield every object that the schema describes by its properties."""
    for each in described.values() if isinstance(described, dict) else described if isinstance(described, list) else ():
        yield from objects(each)
    if isinstance(described, dict) and isinstance(described.get("properties"), dict) and "required" in described:
        yield described


def test_the_schema_is_valid_draft_2020_12() -> None:
    assert schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(schema())


@pytest.mark.thorough
@given(st.one_of(REPORTS, HOSTILE_REPORTS))
@settings(max_examples=scaled(25), phases=WITHOUT_SHRINKING)
def test_every_report_conforms_to_the_schema(found: Report) -> None:
    STRICT.validate(json.loads(write(found, "json")))


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("finding", Finding),
        ("score", Score),
        ("group", Group),
        ("row", Row),
        ("diff", Diff),
        ("delta", Delta),
        ("history_point", HistoryPoint),
        ("change_counts", ChangeCounts),
        ("campaigns", CampaignResults),
        ("campaign_row", CampaignRow),
        ("campaign_totals", CampaignTotals),
    ],
)
def test_the_schema_describes_and_requires_every_field_of_every_value(name: str, model: type[attrs.AttrsInstance]) -> None:
    members = {field.name for field in attrs.fields(model)}

    assert set(schema()["$defs"][name]["properties"]) == set(schema()["$defs"][name]["required"]) == members


def test_the_schema_describes_and_requires_every_field_of_a_report() -> None:
    members = {field.name for field in attrs.fields(Report)} | {"version", "counts", "changes"}
    described = schema()

    assert set(described["properties"]) == set(described["required"]) == members
    assert set(described["properties"]["policy"]["properties"]) == {field.name for field in attrs.fields(PolicyUsed)}
    assert set(described["properties"]["scores"]["properties"]) == {field.name for field in attrs.fields(Scores)}


def test_every_field_has_a_description() -> None:
    members = [(name, member) for each in objects(schema()) for name, member in each["properties"].items()]

    assert len(members) > 60
    assert not [name for name, member in members if not member.get("description") and "$ref" not in member]


@pytest.mark.parametrize(
    "damage",
    [
        {"version": 2},
        {"mailboxes": -1},
        {"unreadable": ["space_1", "space_1"]},
        {"findings": [{"rule": "OA101"}]},
        {"groups": [{"kind": "planet"}]},
        {"diff": {}},
        {"scores": {"overall": 101, "workspaces": {}, "domains": {}}},
    ],
    ids=lambda damage: next(iter(damage)),
)
def test_the_schema_rejects_what_is_not_a_report(damage: dict[str, Any]) -> None:
    values = json.loads(write(fleet(20, sick=1.0), "json"))
    assert Draft202012Validator(schema()).is_valid(values)

    assert not Draft202012Validator(schema()).is_valid({**values, **damage})


def test_the_schema_accepts_fields_added_by_later_versions() -> None:
    values = json.loads(write(fleet(20), "json"))

    assert Draft202012Validator(schema()).is_valid({**values, "later": 1})


def test_the_json_begins_with_the_most_used_fields() -> None:
    found = report(
        reading(mailboxes(1, blacklists=1, sent_30days=10.5)), reading([], workspace="space_2", error=StatusError("refused"))
    )
    values = json.loads(write(found, "json"))

    assert (values["version"], values["mailboxes"], values["unreadable"]) == (1, 1, ["space_2"])
    first = values["findings"][0]
    assert {name: first[name] for name in ("rule", "severity", "workspace", "mailbox", "email", "domain", "message")} == {
        "rule": "OA110",
        "severity": "error",
        "workspace": "space_1",
        "mailbox": "mailbox_one.example_0",
        "email": "m0@one.example",
        "domain": "one.example",
        "message": "on 1 blacklist",
    }
    assert first["remedy"].startswith("Pause the mailbox's campaigns, look up one.example and the server_ip")
    assert values["scores"]["domains"] == {"one.example": {"score": 50.0, "mailboxes": 1, "sent_30days": 10.5}}


@pytest.mark.thorough
@given(st.one_of(REPORTS, HOSTILE_REPORTS))
@settings(max_examples=scaled(30), phases=WITHOUT_SHRINKING)
def test_a_written_report_reads_back_as_the_same_report(found: Report) -> None:
    assert Report.from_dict(json.loads(write(found, "json"))) == found


def test_a_number_that_json_cannot_represent_is_refused() -> None:
    odd = attrs.evolve(fleet(10, sick=1.0), at=math.nan)

    with pytest.raises(ValueError, match="Out of range float"):
        write(odd, "json")
