"""Define the rules about campaigns, steps and workspaces, and about errors while reading campaigns."""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar, Final

import attrs

from outreach_async.audit import _campaign_conditions as conditions
from outreach_async.audit._campaign_conditions import CampaignCondition, ComparisonCondition, StepCondition, WorkspaceCondition
from outreach_async.audit._findings import Rule, RuleScope, Severity, Thresholds


@attrs.frozen(kw_only=True)
class CampaignRule(Rule):
    """A rule about one campaign.

    Attributes:
        applies: The condition, a function without side effects.

    Example:
        ```python
        rule = Policy.default().campaign_rules[0]
        print(rule.id, rule.scope, rule.title)  # -> OA201 campaign Live but not sending
        ```
    """

    scope: ClassVar[RuleScope] = "campaign"

    applies: CampaignCondition = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class ComparisonRule(Rule):
    """A rule that compares a campaign in two audits. `Report.since` applies the rule.

    Attributes:
        applies: The condition, a function without side effects.

    Example:
        ```python
        (rule,) = Policy.default().comparison_rules
        print(rule.id, rule.scope, rule.title)  # -> OA204 campaign Estimated end slips
        ```
    """

    scope: ClassVar[RuleScope] = "campaign"

    applies: ComparisonCondition = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class StepRule(Rule):
    """A rule about one step of a campaign.

    Attributes:
        applies: The condition, a function without side effects.

    Example:
        ```python
        rule = Policy.default().step_rules[0]
        print(rule.id, rule.scope, rule.title)  # -> OA220 step Step without live templates
        ```
    """

    scope: ClassVar[RuleScope] = "step"

    applies: StepCondition = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class WorkspaceRule(Rule):
    """A rule about the mailboxes and campaigns of a workspace.

    Attributes:
        applies: The condition, a function without side effects.

    Example:
        ```python
        (rule,) = Policy.default().workspace_rules
        print(rule.id, rule.scope, rule.title)  # -> OA240 workspace Unused daily limits
        ```
    """

    scope: ClassVar[RuleScope] = "workspace"

    applies: WorkspaceCondition = attrs.field(repr=False)


_BOUNCE_THRESHOLDS: Final[Thresholds] = MappingProxyType({"warning": 0.02, "error": 0.05, "critical": 0.10, "sample": 50})
"""Thresholds of the bounce rate, the same as those of rule OA120 for mailboxes."""

CAMPAIGN_RULES: Final[tuple[CampaignRule, ...]] = (
    CampaignRule(
        id="OA201",
        title="Live but not sending",
        severity=Severity.ERROR,
        wording="status is live, e-mails are left to send, and the time since last_activity is longer than {days} days plus the "
        "longest wait_time of the steps; last_activity is rounded, and the rule uses the shortest time that it allows; if "
        "nothing was sent and last_activity is unknown, the rule uses the age of the campaign",
        thresholds=MappingProxyType({"days": 4}),
        applies=conditions.check_sending,
        source="our own threshold: four days without sending are longer than a weekend with a public holiday",
        remedy="Check that the campaign's mailboxes are connected and below their daily limits, and that its schedule has "
        "sending times.",
    ),
    CampaignRule(
        id="OA202",
        title="Live without steps or contacts",
        severity=Severity.WARNING,
        wording="status is live, and steps is 0 or contacts is 0",
        applies=conditions.check_content,
        source="a campaign sends the e-mails of its steps to its contacts",
        remedy="Add the missing steps or contacts, or pause the campaign.",
    ),
    CampaignRule(
        id="OA203",
        title="Live, but everything is sent",
        severity=Severity.INFO,
        wording="status is live, e-mails were sent, and left_to_send of every step is 0",
        applies=conditions.check_end,
        source='section "Step" of the API documentation: left_to_send is the number of contacts that still have to go through '
        "the step",
        remedy="Add contacts, or pause the campaign.",
    ),
    CampaignRule(
        id="OA205",
        title="Stale draft",
        severity=Severity.INFO,
        wording="status is draft, the campaign was created more than {days} days ago, and last_activity is unknown or more than "
        "{days} days ago; last_activity is rounded, and the rule uses the shortest time that it allows",
        thresholds=MappingProxyType({"days": 30}),
        applies=conditions.check_stale_draft,
        source="our own threshold: contacts and offers that are a month old need a review before use",
        remedy="Review and start the campaign, or delete it.",
    ),
    CampaignRule(
        id="OA206",
        title="Paused for long",
        severity=Severity.INFO,
        wording="status is paused, e-mails are left to send, the campaign was created more than {days} days ago, and "
        "last_activity is unknown or more than {days} days ago; last_activity is rounded, so the shortest time that it can mean "
        "counts",
        thresholds=MappingProxyType({"days": 30}),
        applies=conditions.check_paused,
        source="our own threshold: follow-ups after a month without contact read like new e-mails",
        remedy="Resume the campaign if its contacts are still current, or delete it.",
    ),
    CampaignRule(
        id="OA210",
        title="High bounce rate of a campaign",
        severity=Severity.WARNING,
        wording="at least {sample} e-mails were sent, and the lower 95 % confidence bound (Clopper-Pearson) of bounces_num / "
        "e-mails sent is {warning:.1%} or more; error if {error:.1%} or more, critical if {critical:.1%} or more",
        thresholds=_BOUNCE_THRESHOLDS,
        applies=conditions.check_campaign_bounces,
        source="Amazon SES recommends a bounce rate below 2 %, reviews accounts from 5 % and may pause them from 10 % (AWS "
        "reputation metrics); the minimum sample of 50 e-mails follows WarmySender",
        remedy="Pause the campaign, verify the addresses of its remaining contacts, and remove those that fail.",
    ),
    CampaignRule(
        id="OA211",
        title="Low reply rate",
        severity=Severity.WARNING,
        wording="the upper 95 % confidence bound (Clopper-Pearson) of replies / e-mails sent is below {warning:.1%}, and the "
        "campaign was created {days} days ago or earlier",
        thresholds=MappingProxyType({"warning": 0.01, "days": 7}),
        applies=conditions.check_replies,
        source="a reply rate below 1 % indicates significant problems with targeting, message or deliverability "
        "(suplexmail.com); the average is 3.4 % (Instantly, 2026); the minimum age of 7 days is our own threshold: contacts need "
        "time to reply",
        remedy="Test inbox placement first; then narrow the list of contacts, or rewrite the first e-mail.",
    ),
    CampaignRule(
        id="OA212",
        title="High unsubscribe rate",
        severity=Severity.WARNING,
        wording="at least {sample} e-mails were sent, and the lower 95 % confidence bound (Clopper-Pearson) of unsubscribes / "
        "e-mails sent is {warning:.1%} or more; error if {error:.1%} or more",
        thresholds=MappingProxyType({"warning": 0.01, "error": 0.02, "sample": 50}),
        applies=conditions.check_unsubscribes,
        source="for cold e-mail, an unsubscribe rate below 0.5 % is good, and a rate above 1 % is a problem (firstsales.io; "
        "automatedbdr.com); if the rate is above 2 %, the contacts do not match the offer (mailwarm.com)",
        remedy="Narrow the list of contacts to those that the offer fits, and send fewer follow-ups.",
    ),
    CampaignRule(
        id="OA213",
        title="Impossible figures of a campaign",
        severity=Severity.ERROR,
        wording="bounces_num is above the number of e-mails sent, or a figure is negative, not a number or implausibly large",
        applies=conditions.check_campaign_figures,
        source='sections "Campaign", "Step" and "Template" of the API documentation: the figures are counts, percentages and '
        "times",
        remedy="Do not rely on the figures of this campaign; report the figures named in the message to the service's support.",
    ),
    CampaignRule(
        id="OA290",
        title="Unknown campaign status or step type",
        severity=Severity.INFO,
        wording="the campaign's status or a step's type has a value that is not in the API documentation",
        applies=conditions.check_known_states,
        source="the API documentation shows the statuses draft, live and paused, and the type auto_email",
        remedy="Inspect the campaign in the service; if the value is normal, turn this rule off in the policy.",
    ),
)
"""The rules about one campaign, in the order in which a campaign's findings are listed."""

COMPARISON_RULES: Final[tuple[ComparisonRule, ...]] = (
    ComparisonRule(
        id="OA204",
        title="Estimated end slips",
        severity=Severity.WARNING,
        wording="status is live, and the estimated end slipped by {days} days or more since contacts were last added; checked "
        "only if the report is compared with an earlier one",
        thresholds=MappingProxyType({"days": 3}),
        applies=conditions.check_slip,
        source="our own threshold: the service rounds the estimate to days, and weekends shift it by up to two days",
        remedy="Add mailboxes to the campaign, raise their daily limits safely, or accept the later end.",
    ),
)
"""The rules that compare a campaign in two audits."""

STEP_RULES: Final[tuple[StepRule, ...]] = (
    StepRule(
        id="OA220",
        title="Step without live templates",
        severity=Severity.ERROR,
        others=(Severity.WARNING,),
        wording="a live step has no live template, although contacts still have to go through the step or the campaign is a "
        "draft; error if the campaign is live, otherwise warning",
        applies=conditions.check_live_templates,
        source="the service sends live templates only; contacts wait at a step without one",
        remedy="Make one of the step's templates live, or delete the step.",
    ),
    StepRule(
        id="OA221",
        title="Step not live",
        severity=Severity.WARNING,
        wording="the campaign is live, contacts still have to go through the step, and the step's status is not live",
        applies=conditions.check_step_status,
        source='section "Step" of the API documentation: live means running',
        remedy="Make the step live, or delete it; until then, its contacts wait.",
    ),
    StepRule(
        id="OA222",
        title="Unknown placeholder",
        severity=Severity.ERROR,
        others=(Severity.WARNING,),
        wording="a live template has a placeholder in double curly braces that matches no field code of the workspace; the rule "
        "checks the steps of drafts, and other steps only if contacts still have to go through them; the severity is error if "
        "the placeholder resembles a field code, otherwise warning",
        applies=conditions.check_placeholders,
        source='section "Workspace field" of the API documentation lists every field and variable of a workspace',
        remedy="Correct the placeholder, or create the field; until then, recipients may see the placeholder itself.",
    ),
    StepRule(
        id="OA230",
        title="A variant gets more replies",
        severity=Severity.INFO,
        wording="contacts still have to go through the step, and a live variant gets more replies than another, with an e-value "
        "of at least {odds} times the number of pairs of variants; two variants are compared only if the numbers of e-mails that "
        "they sent differ by at most {difference:.1%}, and the campaign was created {days} days ago or earlier",
        thresholds=MappingProxyType({"odds": 20, "difference": 0.10, "days": 7}),
        applies=conditions.check_variants,
        source="if two variants have the same reply rate, and recipients get their variants independently of each other, their "
        "e-value reaches 20 in at most 5 % of tests, even if it is computed every day (Ville's inequality; Turner, Ly and "
        "Grünwald, arXiv 2106.02693); the limits on the difference in e-mails sent and on the days are our own",
        remedy="Check that the service assigns variants independently of the recipients (not by company, list or mailbox), and "
        "that each variant was sent on as many days as the message says. Then turn off the variants with fewer replies.",
    ),
)
"""The rules about one step, in the order in which a step's findings are listed."""

WORKSPACE_RULES: Final[tuple[WorkspaceRule, ...]] = (
    WorkspaceRule(
        id="OA240",
        title="Unused daily limits",
        severity=Severity.WARNING,
        wording="in the last 30 days, the workspace's mailboxes sent less than {share:.1%} of their capacity (daily limits x 22 "
        "working days), and sending the remaining e-mails of the live campaigns takes at least {days} days at the full "
        "daily limits; mailboxes and campaigns younger than 30 days do not count",
        thresholds=MappingProxyType({"share": 0.30, "days": 5}),
        applies=conditions.check_unused_limits,
        source="our own thresholds: less than a third of the limits is used, and the remaining e-mails take a working week or "
        "more",
        remedy="Add the idle mailboxes to the live campaigns, and check the sending times of their schedules.",
    ),
)
"""The rules about a workspace."""

CAMPAIGNS_UNREAD: Final = Rule(
    id="OA911",
    title="Campaigns not read",
    severity=Severity.ERROR,
    wording="a page of the workspace's campaigns could not be read",
    source="campaigns that cannot be read cannot be checked",
    remedy="Check the permission to read the workspace and the connection to the service, then run the audit again.",
)
CAMPAIGN_UNDECODABLE: Final = Rule(
    id="OA912",
    title="Campaign not readable",
    severity=Severity.ERROR,
    wording="a campaign does not match the API documentation",
    source='section "Campaign" of the API documentation',
    remedy="Inspect the campaign in the service, and report the fields named in the message to the service's support.",
)
CAMPAIGNS_MISSING: Final = Rule(
    id="OA913",
    title="Campaigns not listed",
    severity=Severity.ERROR,
    wording="total_found is higher than the number of campaigns listed",
    source='section "List campaigns" of the API documentation',
    remedy="Run the audit again: campaigns may have been added during the audit. If the finding persists, report the figures to "
    "the service's support.",
)
STEPS_UNREAD: Final = Rule(
    id="OA914",
    title="Steps not read",
    severity=Severity.ERROR,
    wording="the steps of a campaign could not be read",
    source='section "List steps of a campaign" of the API documentation',
    remedy="Run the audit again: the campaign may have been deleted during the audit. If the finding persists, report the error "
    "to the service's support.",
)
FIELDS_UNREAD: Final = Rule(
    id="OA915",
    title="Fields not read",
    severity=Severity.ERROR,
    wording="the fields of the workspace could not be read, so placeholders were not checked",
    source='section "List fields of a workspace" of the API documentation',
    remedy="Check the permission to read the workspace's fields, then run the audit again.",
)

CAMPAIGN_READING_RULES: Final[tuple[Rule, ...]] = (
    CAMPAIGNS_UNREAD,
    CAMPAIGN_UNDECODABLE,
    CAMPAIGNS_MISSING,
    STEPS_UNREAD,
    FIELDS_UNREAD,
)
"""Rules about errors while reading campaigns. A policy cannot turn them off. Their findings make the audit incomplete."""
