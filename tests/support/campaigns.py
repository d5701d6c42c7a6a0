"""Campaigns, steps and templates to audit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs
from support.audit import NOW

from outreach_async.audit import CampaignCase, CampaignRow
from outreach_async.audit.campaign_conditions import FieldNames
from outreach_async.audit.campaign_evaluation import evaluate_campaign
from outreach_async.audit.policy import Policy
from outreach_async.models import Campaign, Step, Template, WorkspaceField
from outreach_async.vocabulary import CampaignStatus, StepStatus, StepType, TemplateStatus

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
    """Return fields with these codes, and two that the service always has."""
    standard = [("First name", "first_name"), ("Company", "company_name"), ("Plan", "custom_1")]
    named = [*standard, *((code.title(), code) for code in codes)]
    return [WorkspaceField(label=label, code=code, searchable=[label.lower()]) for label, code in named]


def case(one: Campaign | None = None, steps: Sequence[Step] | None = (_STEP,), *codes: str) -> CampaignCase:
    """Return the case of a campaign with these steps."""
    return CampaignCase.of(one or _CAMPAIGN, steps, FieldNames(fields(*codes)), NOW)


def row(one: Campaign | None = None, steps: Sequence[Step] | None = (_STEP,), **changes: Any) -> CampaignRow:
    """Return the row of a campaign in a report."""
    return attrs.evolve(evaluate_campaign(case(one, steps), Policy.default(), "space_1").row, **changes)
