"""Evaluate the rules, without I/O: those about a mailbox as it is read, and those about campaigns, their steps and workspaces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
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
from outreach_async.audit._conditions import DomainFacts, build_case, email_domain
from outreach_async.audit._findings import Finding, Rule, apply_rules, build_finding
from outreach_async.audit._rules import RULES
from outreach_async.audit._values import DAY, figure_or_none, valid_or_zero
from outreach_async.audit.campaigns import LIVE, CampaignResults, CampaignRow, sort_rows
from outreach_async.audit.policy import Policy, rules_about
from outreach_async.models import Campaign, Mailbox, Number, Step


def check(
    mailbox: Mailbox,
    policy: Policy | None = None,
    now: float | None = None,
    *,
    workspace: str = "",
    domain: DomainFacts | None = None,
) -> list[Finding]:
    """Check one mailbox against every rule about single mailboxes. For rules about several mailboxes, use `audit`.

    Args:
        mailbox: The mailbox (section "Mailbox" of the API documentation).
        policy: The policy to apply; by default, all rules with their default thresholds.
        now: Time at which the mailbox was read, in Unix seconds. If omitted, its age is taken from its field `age` or `created`.
        workspace: Id of the workspace, which is copied to the findings.
        domain: Facts about the mailbox's domain. By default, the domain is assumed to have no other mailbox.

    Example:
        ```python
        async for mailbox in client.mailboxes.list():
            print([finding.rule for finding in check(mailbox)])
        # -> []
        # -> ['OA101']
        ```
    """
    subject = {"mailbox": mailbox.id, "email": mailbox.email, "domain": email_domain(mailbox.email)}
    sent, rules = valid_or_zero(mailbox.sent_30days), rules_about(policy or Policy.default(), "mailbox")
    return apply_rules(rules, build_case(mailbox, now, domain), workspace, sent_30days=sent, **subject)


FIGURES: Final = (
    "sent_30days", "daily_limit", "sent_today", "bounced_30days", "blacklists", "opened_14days", "avg_open_rate",
)  # fmt: skip
_ABOUT_AUTHENTICATION: Final = frozenset({"OA101", "OA102", "OA103", "OA104"})


@attrs.define(eq=False, weakref_slot=False)
class CheckedMailbox:
    """A mailbox that was checked. Without findings, it has no status, and `figures` are the first two of `FIGURES`."""

    id: str
    email: str
    domain: str | None
    server_ip: str
    type: str
    is_listed: bool
    lacks: frozenset[str]
    figures: tuple[Number, ...]
    status: str = ""
    findings: Sequence[Finding] = ()


class AuditState:
    # The severity of missing SPF, DKIM or DMARC depends on the daily limit of the whole domain. Therefore, these findings and the
    # findings about domains and servers become final only after all mailboxes have been read.

    def __init__(self, workspaces: Sequence[str], policy: Policy, now: float) -> None:
        self.workspaces = workspaces
        self.policy = policy
        self.now = float(now)  # an integer would look different in a JSON report
        self.service_clock = False
        self.mailboxes: dict[str, list[CheckedMailbox]] = {workspace: [] for workspace in workspaces}
        self._rules = [(rule, rule.applies, rule.thresholds) for rule in rules_about(policy, "mailbox")]
        self._others = [each for each in self._rules if each[0].id not in _ABOUT_AUTHENTICATION]
        self._late = {rule.id for rule, *_ in self._rules if rule.lack}
        self._texts: dict[str, str] = {}  # many mailboxes share their server, and each has a copy of its address

    def add_page(self, workspace: str, mailboxes: Iterable[Mailbox]) -> list[Finding]:
        """Check a page of a workspace's mailboxes, and return the findings that later pages cannot change."""
        share, known, final = self._texts.setdefault, self.mailboxes[workspace], list[Finding]()
        for each in mailboxes:
            case = build_case(each, self.now)
            mailbox, domain, kind, server = case.mailbox, email_domain(each.email), str(each.type), each.server_ip
            domain = None if domain is None else share(domain, domain)
            # Most mailboxes have SPF, DKIM and DMARC, so the rules about them are left out.
            conditions = self._others if mailbox.spf and mailbox.dkim and mailbox.dmarc else self._rules
            violations = [
                (rule, violation)
                for rule, applies, thresholds in conditions
                if (violation := applies(case, thresholds)) is not None
            ]
            figures = valid_or_zero(mailbox.sent_30days), valid_or_zero(mailbox.daily_limit)
            lacks, is_listed = _find_lacks(mailbox.spf, mailbox.dkim, mailbox.dmarc), mailbox.blacklists >= 1
            about = CheckedMailbox(
                mailbox.id, mailbox.email, domain, share(server, server), share(kind, kind), is_listed, lacks, figures
            )
            if violations:
                status, subject = str(mailbox.status), {"mailbox": mailbox.id, "email": mailbox.email}
                about.status = share(status, status)
                about.figures = tuple([valid_or_zero(getattr(mailbox, name)) for name in FIGURES])
                about.findings = [
                    build_finding(rule, found, workspace, domain, figures[0], **subject) for rule, found in violations
                ]
                final += [finding for finding in about.findings if finding.rule not in self._late]
            known.append(about)
        return final

    def alone(self, workspace: str) -> AuditState:
        """Return the state of an audit of one of the workspaces only, after everything was read."""
        state = AuditState([workspace], self.policy, self.now)
        state.mailboxes[workspace] = self.mailboxes[workspace]
        return state


@cache  # domains share the few results
def _find_lacks(*has: bool) -> frozenset[str]:
    return frozenset(name for name, known in zip(("SPF record", "DKIM signature", "DMARC policy"), has, strict=True) if not known)


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
