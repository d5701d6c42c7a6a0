"""Campaigns, steps and templates to audit, and a minimal service that lists them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, urlsplit

import anyio
import attrs
from hypothesis import strategies as st
from support.audit import NOW, wire
from support.audit_reports import TEXTS, drawn

from outreach_async import Progress, Request, Response
from outreach_async.audit import CampaignRow, Finding
from outreach_async.audit._evaluation import WorkspaceUse, evaluate_campaign
from outreach_async.audit._rules import CampaignCase, FieldNames, WorkspaceFacts, build_campaign_case
from outreach_async.audit.campaigns import WorkspaceCampaigns
from outreach_async.audit.policy import Policy
from outreach_async.models import (
    Campaign,
    CampaignStatus,
    Mailbox,
    Step,
    StepStatus,
    StepType,
    Template,
    TemplateStatus,
    WorkspaceField,
)

DAY: Final = 86_400

_TEMPLATE: Final = Template(
    id="temp_1",
    test_letter="A",
    name="First",
    status=TemplateStatus.LIVE,
    new_thread=True,
    subject="A question, {{first_name}}",
    body_text="Hi {{ first_name | there }}, {{#if title}}a word{{/if}}?",
    sent=1000,
    opened=40,
    opened_num=400,
    clicked=2,
    clicked_num=20,
    replied=4,
    replied_num=40,
    unsubscribed=0.2,
    unsubscribed_num=2,
)
_STEP: Final = Step(
    id="step_1",
    order=1,
    status=StepStatus.LIVE,
    type=StepType.AUTO_EMAIL,
    wait_time=0,
    left_to_send=500,
    already_sent=1000,
    out_of=1500,
    templates=[_TEMPLATE],
)
_CAMPAIGN: Final = Campaign(
    id="camp_1",
    status=CampaignStatus.LIVE,
    name="Spring",
    steps=1,
    contacts=1500,
    opens=40,
    initials=1000,
    interested=1,
    replies=4,
    bounces=0.5,
    last_activity="2 hours ago",
    opens_num=400,
    replies_num=40,
    bounces_num=5,
    interested_num=10,
    days_left=10,
    days_left_date="2025-04-10",
    days_left_display="10 days",
    created=NOW - 60 * DAY,
)


def template(letter: str = "A", **changes: Any) -> Template:
    """Return a healthy template with these changes."""
    return attrs.evolve(_TEMPLATE, **{"id": f"temp_{letter}", "test_letter": letter, **changes})


def step(*templates: Template, **changes: Any) -> Step:
    """Return a healthy step with these templates and changes."""
    return attrs.evolve(_STEP, **{"templates": list(templates or (_TEMPLATE,)), **changes})


def campaign(**changes: Any) -> Campaign:
    """Return a healthy campaign with these changes."""
    return attrs.evolve(_CAMPAIGN, **changes)


def fields(*codes: str) -> list[WorkspaceField]:
    """Return workspace fields with these codes, after two standard fields and one custom field."""
    standard = [("First name", "first_name"), ("Company", "company_name"), ("Plan", "custom_1")]
    named = [*standard, *((code.title(), code) for code in codes)]
    return [WorkspaceField(label=label, code=code, searchable=[label.lower()]) for label, code in named]


def case(
    one: Campaign | None = None,
    steps: Sequence[Step] | None = (_STEP,),
    *codes: str,
    fields_read: bool = True,
    now: float | None = NOW,
    predicted: float | None = None,
) -> CampaignCase:
    """Return the audit case of a campaign with these steps; `codes` are additional fields of the workspace."""
    found = build_campaign_case(one or _CAMPAIGN, steps, FieldNames(fields(*codes)) if fields_read else None, now)
    found.predicted = predicted
    return found


def judged(*cases: CampaignCase, policy: Policy | None = None, workspace: str = "space_1") -> WorkspaceCampaigns:
    """Audit campaigns without a service."""
    verdicts = [evaluate_campaign(each, policy or Policy.default(), workspace) for each in cases]
    return WorkspaceCampaigns(rows=[row for row, _ in verdicts], findings=[each for _, found in verdicts for each in found])


def row(one: Campaign | None = None, steps: Sequence[Step] | None = (_STEP,), **changes: Any) -> CampaignRow:
    """Return the row of a campaign in a report, with these changes."""
    return attrs.evolve(judged(case(one, steps)).rows[0], **changes)


USE: Final = WorkspaceFacts(mailboxes=10, daily_limit=400, sent_30days=2639, campaigns=2, left_to_send=2000)
"""A workspace that leaves its daily limits unused."""


def use_of(mailboxes: Sequence[Mailbox], *rows: CampaignRow) -> WorkspaceFacts:
    """Return how a workspace with these mailboxes and campaigns uses its limits."""
    use = WorkspaceUse(lambda: NOW)
    use.add_mailboxes(mailboxes)
    return use.facts(rows)


@attrs.define
class World:
    """The data of a workspace in a `CampaignService`. A number instead of a list is the error status of the response."""

    campaigns: list[dict[str, Any]] | int = attrs.Factory(list)
    mailboxes: list[dict[str, Any]] | int = attrs.Factory(list)
    fields: list[dict[str, Any]] | int = attrs.Factory(lambda: [wire(each) for each in fields()])
    uncounted: int = 0


class CampaignService:
    """A transport that serves the mailboxes, campaigns, steps and fields of workspaces."""

    def __init__(
        self, worlds: Mapping[str, World], steps: Mapping[str, list[dict[str, Any]] | int] = MappingProxyType({})
    ) -> None:
        self.worlds = worlds
        self.steps = steps
        self.requests: list[str] = []
        self.latency = 0.0
        self.in_flight = self.most_in_flight = 0

    async def send(self, request: Request, progress: Progress, /) -> Response:
        progress.sent = True
        self.requests.append(request.target)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await anyio.sleep(self.latency)
        finally:
            self.in_flight -= 1
        answer = self._answer(urlsplit(request.target))
        status, values = (answer, {"error": "no"}) if isinstance(answer, int) else (200, answer)
        return Response(status, {"content-type": "application/json"}, json.dumps(values).encode())

    def _answer(self, target: SplitResult) -> dict[str, Any] | int:
        parts, query = target.path.strip("/").split("/"), parse_qs(target.query)
        match parts:
            case ["campaigns", campaign_id, "steps"]:
                data = self.steps.get(campaign_id, [wire(_STEP)])
                days = {"days_left": 1, "days_left_date": "soon", "days_left_display": "1 day"}
                return data if isinstance(data, int) else {"status": "ok", **days, "data": data}
            case ["workspaces", workspace, "all-fields"]:
                data = self.worlds[workspace].fields
                return data if isinstance(data, int) else {"status": "ok", "data": data}
            case [kind]:
                return self._page(kind, query["workspace"][0], int(query["page"][0]), int(query["display"][0]))
        raise AssertionError(target)

    def _page(self, kind: str, workspace: str, page: int, display: int) -> dict[str, Any] | int:
        world = self.worlds.get(workspace, World(404, 404))
        items = world.campaigns if kind == "campaigns" else world.mailboxes
        if isinstance(items, int):
            return items
        more = world.uncounted if kind == "campaigns" else 0
        data, pages = items[(page - 1) * display : page * display], max(1, -(-len(items) // display))
        listing = {"status": "ok", "headers": [], "data": data, "total_found": len(items) + more}
        return {**listing, "current_page": page, "total_pages": pages}

    async def aclose(self) -> None: ...


WORKSPACE_CAMPAIGNS = st.builds(
    WorkspaceCampaigns,
    rows=st.lists(
        drawn(CampaignRow, rules=st.lists(st.sampled_from(["OA201", "OA210", "MY1"]), unique=True)),
        max_size=3,
    ),
    findings=st.lists(
        drawn(
            Finding,
            rule=st.sampled_from(["OA201", "OA222", "OA914"]),
            campaign=TEXTS,
            **dict.fromkeys(("mailbox", "email", "domain", "server_ip"), st.none()),
        ),
        max_size=3,
    ),
)
"""Campaigns of a workspace with arbitrary strings and numbers."""
