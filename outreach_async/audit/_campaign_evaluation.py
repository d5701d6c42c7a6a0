"""Evaluate the rules for campaigns, their steps and workspaces. This module performs no I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import attrs

from outreach_async.audit._campaign_conditions import (
    DRAFT,
    CampaignCase,
    StepCase,
    WorkspaceFacts,
    estimate_end,
    find_placeholders,
)
from outreach_async.audit._conditions import build_case
from outreach_async.audit._findings import Finding, Rule, apply_rules
from outreach_async.audit._rules import RULES
from outreach_async.audit._values import DAY, figure_or_none, valid_or_zero
from outreach_async.audit.campaigns import LIVE, CampaignResults, CampaignRow, sort_rows
from outreach_async.audit.policy import Policy, rules_about
from outreach_async.models import Campaign, Mailbox, Number, Step

_LIVE_STEP_RULE: Final = "OA221"  # never applies to a draft
_PLACEHOLDER_RULE: Final = "OA222"
_COMPARISON_IDS: Final = frozenset(rule.id for rule in RULES if rule.scope == "comparison")
_MIN_AGE: Final = 30 * DAY  # of mailboxes and campaigns in `WorkspaceFacts`, because `sent_30days` covers 30 days


def needs_steps(campaign: Campaign, policy: Policy) -> bool:
    if figure_or_none(campaign.steps) == 0:
        return False
    return campaign.status != DRAFT or any(rule.id != _LIVE_STEP_RULE for rule in rules_about(policy, "step"))


def needs_fields(steps: Iterable[Step], policy: Policy) -> bool:
    is_on = any(rule.id == _PLACEHOLDER_RULE for rule in policy.rules)
    return is_on and any(find_placeholders(step) for step in steps)


def evaluate_campaign(case: CampaignCase, policy: Policy, workspace: str) -> tuple[CampaignRow, list[Finding]]:
    campaign, end = case.campaign, estimate_end(case)
    subject: dict[str, Any] = {"campaign": campaign.id, "campaign_name": campaign.name}
    findings = apply_rules(rules_about(policy, "campaign"), case, workspace, **subject)
    about_steps = rules_about(policy, "step")
    for step in case.steps or ():
        findings += apply_rules(about_steps, StepCase(step=step, of=case), workspace, **subject, step=step.id)
    names = ("steps", "contacts", "opens", "replies_num", "interested_num", "bounces_num", "created")
    figures: dict[str, Any] = {name: figure_or_none(getattr(campaign, name)) for name in names}
    row = CampaignRow(
        id=campaign.id,
        name=campaign.name,
        workspace=workspace,
        status=str(campaign.status),
        severity=None,
        rules=[],
        sent=case.sent,
        unsubscribed_num=case.unsubscribed,
        left_to_send=case.left,
        end=end,
        planned_end=end,
        last_activity=campaign.last_activity,
        **figures,
    )
    return _mark(row, findings), findings


def _mark(row: CampaignRow, findings: Sequence[Finding]) -> CampaignRow:
    severity = min((finding.severity for finding in findings), key=lambda severity: severity.rank, default=None)
    return attrs.evolve(row, severity=severity, rules=list(dict.fromkeys(finding.rule for finding in findings)))


class WorkspaceUse:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._mailboxes = self._campaigns = 0
        self._daily_limit: Number = 0
        self._sent: Number = 0
        self._left: Number = 0

    def add_mailboxes(self, mailboxes: Iterable[Mailbox]) -> None:
        now = self._now()
        for mailbox in mailboxes:
            if build_case(mailbox, now).older(_MIN_AGE / DAY):
                self._mailboxes += 1
                self._daily_limit += valid_or_zero(mailbox.daily_limit)
                self._sent += valid_or_zero(mailbox.sent_30days)

    def facts(self, rows: Iterable[CampaignRow]) -> WorkspaceFacts:
        oldest = self._now() - _MIN_AGE
        live = [row for row in rows if row.status == LIVE and row.left_to_send and row.created and row.created <= oldest]
        return WorkspaceFacts(
            mailboxes=self._mailboxes,
            daily_limit=self._daily_limit,
            sent_30days=self._sent,
            campaigns=len(live),
            left_to_send=sum(row.left_to_send or 0 for row in live),
        )


def compare_campaigns(
    earlier: CampaignResults, later: CampaignResults, findings: Sequence[Finding], rules: Sequence[Rule]
) -> tuple[CampaignResults, list[Finding]]:
    """Copy the `planned_end` of each campaign from an earlier report, and apply the rules that compare two audits."""
    before, rows = {(row.workspace, row.id): row for row in earlier.rows}, list[CampaignRow]()
    for row in later.rows:
        old = before.get((row.workspace, row.id))
        plan = old.planned_end if old and (row.contacts or 0) <= (old.contacts or 0) else None
        # After contacts were added, or without an earlier estimate, the present estimate is the first.
        rows.append(attrs.evolve(row, planned_end=row.end if plan is None else plan))
    # A report that was compared before contains findings of that comparison, which are replaced.
    kept = [finding for finding in findings if finding.rule not in _COMPARISON_IDS]
    for row in rows:
        kept += apply_rules(rules, row, row.workspace, campaign=row.id, campaign_name=row.name)
    found = sorted(kept, key=lambda finding: finding.severity.rank)
    by_campaign: defaultdict[tuple[str, str | None], list[Finding]] = defaultdict(list)
    for finding in found:
        by_campaign[finding.workspace, finding.campaign].append(finding)
    marked = [_mark(row, by_campaign[row.workspace, row.id]) for row in rows]
    return attrs.evolve(later, rows=sort_rows(marked)), found
