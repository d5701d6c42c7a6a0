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
    MailboxAction,
    Policy,
    Report,
    Row,
    Score,
    Scores,
    Severity,
)
from outreach_async.audit.plan import CampaignPlan, WorkspacePlan
from outreach_async.audit.reports import schema, write
from outreach_async.audit.reports.brief import Brief, CampaignBrief, Task, WorkspaceBrief
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
    for each in described.values() if isinstance(described, dict) else described if isinstance(described, list) else ():
        yield from objects(each)
    if isinstance(described, dict) and isinstance(described.get("properties"), dict) and "required" in described:
        yield described


@pytest.mark.thorough
@given(st.one_of(REPORTS, HOSTILE_REPORTS))
@settings(max_examples=scaled(25), phases=WITHOUT_SHRINKING)
def test_every_report_conforms_to_the_schema(found: Report) -> None:
    STRICT.validate(json.loads(write(found, "json")))


REPORT_MODELS: dict[str, type[attrs.AttrsInstance]] = {
    "finding": Finding,
    "score": Score,
    "group": Group,
    "row": Row,
    "mailbox_action": MailboxAction,
    "diff": Diff,
    "delta": Delta,
    "history_point": HistoryPoint,
    "change_counts": ChangeCounts,
    "campaigns": CampaignResults,
    "campaign_row": CampaignRow,
    "campaign_totals": CampaignTotals,
}
BRIEF_MODELS: dict[str, type[attrs.AttrsInstance]] = {
    "task": Task,
    "workspace": WorkspaceBrief,
    "campaign": CampaignBrief,
    "change_counts": ChangeCounts,
    "plan": WorkspacePlan,
    "campaign_plan": CampaignPlan,
}


@pytest.mark.parametrize(
    ("described", "whole", "added", "models"),
    [(schema(), Report, {"version", "counts", "changes"}, REPORT_MODELS), (schema(Brief), Brief, {"version"}, BRIEF_MODELS)],
    ids=["report", "brief"],
)
def test_a_schema_describes_and_requires_every_field(
    described: Any, whole: Any, added: set[str], models: dict[str, type[attrs.AttrsInstance]]
) -> None:
    Draft202012Validator.check_schema(described)
    assert described["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    for part, model in [(described, whole), *((described["$defs"][name], model) for name, model in models.items())]:
        members = {field.name for field in attrs.fields(model)} | (added if part is described else set())
        assert set(part["properties"]) == set(part["required"]) == members
    parts = [item for each in objects(described) for item in each["properties"].items()]
    assert {name for name, about in parts if not about.get("description") and "$ref" not in about} <= set(Severity)
    for name, model in ("policy", Policy), ("scores", Scores):
        assert set(schema()["properties"][name]["properties"]) == {field.name for field in attrs.fields(model)}


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
def test_the_schema_rejects_what_is_not_a_report_but_accepts_later_fields(damage: dict[str, Any]) -> None:
    values = json.loads(write(fleet(20, sick=1.0), "json"))
    assert Draft202012Validator(schema()).is_valid({**values, "later": 1})
    assert not Draft202012Validator(schema()).is_valid({**values, **damage})


def test_the_json_begins_with_the_most_used_fields() -> None:
    found = report(
        reading(mailboxes(1, blacklists=1, sent_30days=10.5)), reading([], workspace="space_2", error=StatusError("refused"))
    )
    values = json.loads(write(found, "json"))

    assert list(values)[:4] == ["version", "mailboxes", "unreadable", "findings"]
    assert (values["mailboxes"], values["unreadable"]) == (1, ["space_2"])
    expected = {"rule": "OA110", "severity": "error", "workspace": "space_1", "message": "on 1 blacklist"}
    expected |= {"mailbox": "mailbox_one.example_0", "email": "m0@one.example", "domain": "one.example"}
    assert values["findings"][0].items() >= expected.items()
    assert values["findings"][0]["remedy"].startswith("Look up one.example and the address of the mailbox's server at")
    assert values["scores"]["domains"] == {"one.example": {"score": 50.0, "mailboxes": 1, "sent_30days": 10.5}}


@pytest.mark.thorough
@given(st.one_of(REPORTS, HOSTILE_REPORTS))
@settings(max_examples=scaled(30), phases=WITHOUT_SHRINKING)
def test_a_written_report_reads_back_as_the_same_report(found: Report) -> None:
    assert Report.from_dict(json.loads(write(found, "json"))) == found


def test_a_number_that_json_cannot_represent_is_refused() -> None:
    found = fleet(10, sick=1.0)
    odd = attrs.evolve(found, scores=attrs.evolve(found.scores, overall=math.nan))
    with pytest.raises(ValueError, match="Out of range float"):
        write(odd, "json")
