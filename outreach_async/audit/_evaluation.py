"""Evaluate the rules, without I/O: about a mailbox as it is read, about campaigns, and about domains and servers at the end.

Then decide from the findings what to do with each mailbox, and compute scores from 0 to 100: for all mailboxes, and for each
group of mailboxes.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from heapq import nsmallest
from operator import itemgetter
from typing import Any, Final, Literal, TypeAlias

import attrs

from outreach_async._plumbing import require_types
from outreach_async.audit._findings import (
    ACTIONS,
    GROUP_KINDS,
    HEALTHY_PERCENT,
    Action,
    Finding,
    Group,
    GroupKind,
    MailboxAction,
    Row,
    Rule,
    Severity,
    apply_rules,
    build_finding,
    decide,
    fill_remedy,
)
from outreach_async.audit._rules import (
    DRAFT,
    RULES,
    CampaignCase,
    DomainFacts,
    ServerFacts,
    StepCase,
    WorkspaceFacts,
    build_case,
    build_missing_authentication,
    email_domain,
    estimate_end,
    find_placeholders,
)
from outreach_async.audit._values import DAY, figure_or_none, valid_or_zero
from outreach_async.audit.campaigns import LIVE, CampaignResults, CampaignRow, sort_rows
from outreach_async.audit.policy import Policy, rules_about
from outreach_async.models import Campaign, Mailbox, MailboxType, Number, Step


def check(
    mailbox: Mailbox,
    policy: Policy | None = None,
    now: float | None = None,
    *,
    workspace: str = "",
    domain_limit: Number | None = None,
) -> list[Finding]:
    """Check one mailbox against every rule about single mailboxes.

    For rules about several mailboxes, use `audit`.

    Args:
        mailbox: The mailbox (section "Mailbox" of the API documentation).
        policy: The policy to apply; by default, all rules with their
            default thresholds.
        now: Time at which the mailbox was read, in Unix seconds. If
            omitted, its age is taken from its field `age` or `created`.
        workspace: Id of the workspace, which is copied to the findings.
        domain_limit: Sum of the daily limits of the domain's mailboxes. By
            default, the domain is assumed to have no other.

    Raises:
        InvalidRequest: An argument is of another type.

    Example:
        ```python
        async for mailbox in client.mailboxes.list():
            print([finding.rule for finding in check(mailbox)])
        # -> []
        # -> ['OA101']
        ```
    """
    require_types(check, locals())
    subject = {"mailbox": mailbox.id, "email": mailbox.email, "domain": email_domain(mailbox.email)}
    sent, rules = valid_or_zero(mailbox.sent_30days), rules_about(policy or Policy.default(), "mailbox")
    return apply_rules(rules, build_case(mailbox, now, domain_limit), workspace, sent_30days=sent, **subject)


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
        """Return the state of one of the workspaces, after everything was read."""
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
        self._mailboxes = 0
        self._daily_limit: Number = 0
        self._sent: Number = 0

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


MAX_SCORE: Final = 100
BASE_EMAILS: Final = 30
"""E-mails that every mailbox counts for, besides those it sent in 30 days, so that one that has sent nothing counts too."""

_OWN_SERVER: Final = MailboxType.SMTP_IMAP.value
_KEPT_PERCENT: Final = tuple(HEALTHY_PERCENT[severity] for severity in Severity)
_WHOLE: Final = 1_000_000
"""The share of a healthy mailbox. Shares are integers, because sums of integers do not depend on the order of addition."""

MAX_SCORED_DOMAINS: Final = 10_000  # in a report: the worst
MAX_GROUPS: Final = 1_000  # of each kind in a report, the worst
MAX_ROWS: Final = 1_000  # mailboxes that a report lists individually, the worst


@attrs.frozen(kw_only=True)
class Score:
    """The score of a group of mailboxes.

    Attributes:
        score: Mean of the mailboxes' scores, weighted by the e-mails sent;
            see `Scores`.
        mailboxes, sent_30days: Number of checked mailboxes, and of the
            e-mails that they sent in 30 days.

    Example:
        ```python
        print(report.scores.workspaces["space_1"].score)  # -> 74.5
        ```
    """

    score: float
    mailboxes: int
    sent_30days: Number


@attrs.frozen(kw_only=True)
class Scores:
    """The scores of an audit.

    Workspaces and domains without checked mailboxes have no score. A score
    is the mean of the mailboxes' scores, in which the findings about a
    mailbox's domain and server count as its own. The weight of a mailbox
    is the number of e-mails that it sent in 30 days, plus 30, so that one
    that has sent nothing counts too. Means are rounded down to one
    decimal: 100 means that there is no warning or worse.

    Each further finding lowers the score, and each resolved one raises it:
    with 1 critical mailbox of 201 that send equally, the score is 99.5;
    with 100 of 300, it is 70. A severity says how urgent a problem is, and
    the score says how much of the sending is affected. Findings about
    campaigns do not count, because the service does not say which
    mailboxes send for a campaign.

    Attributes:
        overall: Score of all mailboxes, computed like that of any group;
            `None` if no mailbox was checked.
        workspaces: Scores by workspace id, in the order of the audit.
        domains: Scores of at most 10,000 domains, the lowest first.

    Example:
        ```python
        print(report.scores.overall)  # -> 74.5
        ```
    """

    overall: float | None
    workspaces: dict[str, Score]
    domains: dict[str, Score]


def _to_thousandths(figure: Number) -> int:
    """Return a number in thousandths, rounded to an integer. Sums of integers do not depend on the order of addition."""
    return round(figure * 1000)


def _from_thousandths(total: int) -> Number:
    return total / 1000 if total % 1000 else total // 1000


_BASE: Final = _to_thousandths(BASE_EMAILS)


@cache
def _share_of(ranks: tuple[int, ...]) -> int:
    return int(_WHOLE * math.prod(_KEPT_PERCENT[rank] for rank in ranks) // 100 ** len(ranks))


_unite = cache(frozenset[str].union)


@attrs.define(eq=False)
class GroupTotals:
    """The mailboxes of a group: sums in thousandths, the number of findings by severity, and what the group loses to them.

    The loss is a sum of shares multiplied by weights.
    """

    mailboxes: int = 0
    sent: int = 0
    limit: int = 0
    lost: int = 0
    counts: list[int] = attrs.Factory(lambda: [0] * len(Severity))

    def add(self, sent: int, limit: int) -> None:
        self.mailboxes += 1
        self.sent += sent
        self.limit += limit

    def count(self, findings: Iterable[Finding], lost: int = 0) -> None:
        self.lost += lost
        for finding in findings:
            self.counts[finding.severity.rank] += 1

    @property
    def severity(self) -> Severity | None:
        return next((severity for severity, count in zip(Severity, self.counts, strict=True) if count), None)

    @property
    def mean_score(self) -> float:
        whole = _WHOLE * (self.sent + _BASE * self.mailboxes)
        return max(0, 10 * MAX_SCORE * (whole - self.lost) // whole) / 10

    def score(self) -> Score:
        return Score(score=self.mean_score, mailboxes=self.mailboxes, sent_30days=_from_thousandths(self.sent))

    def describe(self, kind: GroupKind, key: str) -> Group:
        return Group(
            kind=kind,
            key=key,
            mailboxes=self.mailboxes,
            score=self.mean_score,
            severity=self.severity,
            counts=dict(zip(Severity, self.counts, strict=True)),
            sent_30days=_from_thousandths(self.sent),
            daily_limit=_from_thousandths(self.limit),
        )


_Judged: TypeAlias = tuple[str, CheckedMailbox, Sequence[Finding], int]  # with the id of the workspace, and the share left
_Subject: TypeAlias = tuple[Literal["domain", "server_ip"], str]


class Judgement:
    """The findings, actions, scores and groups of an audit, which are final only after all mailboxes have been read."""

    # The result does not depend on the order in which the workspaces are read. If several workspaces list a mailbox, the rules
    # about its domain and its server count the mailbox once, with its values in the first of these workspaces.
    # A domain or server is judged by the mailboxes of all workspaces, and each workspace with some of them has the finding. It
    # counts for each of these mailboxes, with or without findings of their own.

    def __init__(self, state: AuditState, whole: Judgement | None = None) -> None:
        """Judge what was read. `whole` has judged all workspaces of the audit, if the state is only one of them."""
        self._state = state
        self.totals: dict[GroupKind, dict[str, GroupTotals]] = {kind: {} for kind in GROUP_KINDS}
        # By domain. In one workspace, each mailbox is listed once: a walk over its pages drops repeated ones.
        self._once: dict[str, GroupTotals] = {} if len(state.workspaces) > 1 else self.totals["domain"]
        self._lacking: dict[str, frozenset[str]] = {}  # by domain
        self._own, self._listed = Counter[str](), Counter[str]()  # mailboxes of type `SMTP & IMAP`, by server
        self._limits: dict[str, Number] = whole._limits if whole else {}  # noqa: SLF001 - by domain; of the same class
        self._late = {rule.id: rule for rule in rules_about(state.policy, "mailbox") if rule.lack}
        self._count_mailboxes()
        found = whole.about_groups if whole else self._check_groups()
        self.about_groups: list[Finding] = [finding for finding in found if finding.workspace in state.mailboxes]
        self.actions: list[MailboxAction] = []
        self._shared = self._count_group_findings()

    def _mailboxes(self) -> Iterator[tuple[str, CheckedMailbox]]:
        return ((workspace, mailbox) for workspace, known in self._state.mailboxes.items() for mailbox in known)

    def _count_mailboxes(self) -> None:
        seen, kinds = set[tuple[str, str]](), list(self.totals.values())
        for workspace, mailbox in self._mailboxes():
            sent, limit = _to_thousandths(mailbox.figures[0]), _to_thousandths(mailbox.figures[1])
            keys = (workspace, mailbox.domain, mailbox.type, mailbox.server_ip)
            for totals, key in zip(kinds, keys, strict=True):
                if key is not None:
                    (totals.get(key) or totals.setdefault(key, GroupTotals())).add(sent, limit)
            if mailbox.domain is not None and mailbox.lacks:
                self._lacking[mailbox.domain] = _unite(self._lacking.get(mailbox.domain, mailbox.lacks), mailbox.lacks)
            if len(self._state.workspaces) > 1:
                if (mailbox.id, mailbox.email) in seen:
                    continue
                seen.add((mailbox.id, mailbox.email))
                if mailbox.domain is not None:
                    self._once.setdefault(mailbox.domain, GroupTotals()).add(sent, limit)
            if mailbox.type == _OWN_SERVER:
                self._own[mailbox.server_ip] += 1
                self._listed[mailbox.server_ip] += mailbox.is_listed

    def _check_groups(self) -> Iterator[Finding]:
        found = [
            (subject, rule, violation)
            for subject, facts in self._group_facts()
            for rule in rules_about(self._state.policy, subject[0])
            if (violation := rule.applies(facts, rule.thresholds)) is not None
        ]
        parts: dict[_Subject, dict[str, GroupTotals]] = {subject: {} for subject, *_ in found}
        for workspace, mailbox in self._mailboxes() if parts else ():
            for subject in _subjects_of(mailbox):
                if subject in parts:
                    parts[subject].setdefault(workspace, GroupTotals()).add(_to_thousandths(mailbox.figures[0]), 0)
        for subject, rule, violation in found:
            for workspace, part in parts[subject].items():
                about: dict[str, Any] = {subject[0]: subject[1], "sent_30days": _from_thousandths(part.sent)}
                yield build_finding(rule, violation, workspace, mailboxes=part.mailboxes, **about)

    def _group_facts(self) -> Iterator[tuple[_Subject, object]]:
        for domain in sorted(self.totals["domain"]):
            once, lacks = self._once[domain], self._lacking.get(domain, ())
            self._limits[domain] = _from_thousandths(once.limit)
            yield (
                ("domain", domain),
                DomainFacts(
                    mailboxes=once.mailboxes,
                    sent_30days=_from_thousandths(once.sent),
                    lacking=tuple(rule.lack for rule in self._late.values() if rule.lack and rule.lack in lacks),
                ),
            )
        for server in sorted(self._own):
            yield ("server_ip", server), ServerFacts(mailboxes=self._own[server], listed=self._listed[server])

    def _count_group_findings(self) -> dict[tuple[str, _Subject], list[Finding]]:
        """Count the findings about domains and servers, and return them by workspace and subject."""
        shared: defaultdict[tuple[str, _Subject], list[Finding]] = defaultdict(list)
        for finding in self.about_groups:
            server, domain = finding.server_ip, finding.domain or ""
            subject: _Subject = ("domain", domain) if server is None else ("server_ip", server)
            shared[finding.workspace, subject].append(finding)
            self.totals[subject[0]][subject[1]].count([finding])
            self.totals["workspace"][finding.workspace].count([finding])
        return shared

    def _findings_of(self, mailbox: CheckedMailbox) -> Sequence[Finding]:
        """Return the findings about a mailbox, with the severity that missing SPF, DKIM and DMARC have on its domain."""
        if mailbox.domain is None or not any(finding.rule in self._late for finding in mailbox.findings):
            return mailbox.findings
        return [self._judge(finding, mailbox.domain) for finding in mailbox.findings]

    def _judge(self, finding: Finding, domain: str) -> Finding:
        rule = self._late.get(finding.rule)
        if rule is None or rule.lack is None:
            return finding
        violation = build_missing_authentication(rule.lack, self._limits[domain], rule.thresholds)
        severity = violation.severity or rule.severity
        if severity is finding.severity and violation.message == finding.message:
            return finding
        remedy = fill_remedy(rule.scope, rule.remedy, severity, domain)
        return attrs.evolve(finding, severity=severity, message=violation.message, remedy=remedy)

    def late_findings(self) -> Iterator[Finding]:
        """Yield the findings about SPF, DKIM and DMARC, which `AuditState.add_page` does not return."""
        for _, mailbox in self._mailboxes():
            yield from (finding for finding in self._findings_of(mailbox) if finding.rule in self._late)

    def score(self, others: Mapping[str, Sequence[Finding]]) -> tuple[list[Finding], list[Row]]:
        """Return all findings and the worst mailboxes, the worst first, and complete totals and actions. Call this method once.

        `others` are the findings about workspaces and campaigns, by workspace.
        """
        findings: list[Finding] = []
        worst = nsmallest(MAX_ROWS, self._score_mailboxes(others, findings), key=itemgetter(0, 1, 2))
        findings += self.about_groups
        self.actions.sort(key=lambda each: ACTIONS.index(each.action))
        return sorted(findings, key=lambda finding: finding.severity.rank), [_build_row(*judged) for *_, judged in worst]

    def _score_mailboxes(
        self, others: Mapping[str, Sequence[Finding]], findings: list[Finding]
    ) -> Iterator[tuple[int, int, Number, _Judged]]:
        """Add all findings in their order. Yield the mailboxes with findings, each with a key for sorting."""
        for workspace, mailboxes in self._state.mailboxes.items():
            for mailbox in mailboxes:
                about = [] if not self._shared else [
                    finding for subject in _subjects_of(mailbox) for finding in self._shared.get((workspace, subject), ())
                ]  # fmt: skip
                if not mailbox.findings and not about:
                    continue
                found = self._findings_of(mailbox)
                left = _share_of(tuple([finding.severity.rank for finding in (*found, *about)]))
                lost = (_WHOLE - left) * (_to_thousandths(mailbox.figures[0]) + _BASE)
                keys = (workspace, mailbox.domain, mailbox.type, mailbox.server_ip)
                for totals, key in zip(self.totals.values(), keys, strict=True):
                    if key is not None:
                        totals[key].count(found, lost)
                if action := decide([*found, *about]):
                    self.actions.append(_build_action(action, workspace, mailbox))
                if found:
                    findings += found
                    yield left, min(each.severity.rank for each in found), -mailbox.figures[0], (workspace, mailbox, found, left)
            known = others.get(workspace, ())
            findings += known
            if workspace in self.totals["workspace"]:
                self.totals["workspace"][workspace].count(known)

    def scores(self) -> Scores:
        totals = self.totals["workspace"]
        whole = GroupTotals()
        for name in ("mailboxes", "sent", "lost"):
            setattr(whole, name, sum(getattr(total, name) for total in totals.values()))
        worst = self._worst_first("domain")[:MAX_SCORED_DOMAINS]
        return Scores(
            overall=whole.mean_score if whole.mailboxes else None,
            workspaces={key: total.score() for key, total in totals.items()},
            domains={key: total.score() for key, total in worst},
        )

    def groups(self) -> list[Group]:
        return [total.describe(kind, key) for kind in GROUP_KINDS for key, total in self._worst_first(kind)[:MAX_GROUPS]]

    def _worst_first(self, kind: GroupKind) -> list[tuple[str, GroupTotals]]:
        def rank(item: tuple[str, GroupTotals]) -> tuple[float, int, int, str]:
            key, total = item
            severity = len(Severity) if total.severity is None else total.severity.rank
            return total.mean_score, severity, -total.mailboxes, key

        return sorted(self.totals[kind].items(), key=rank)


def _build_action(action: Action, workspace: str, mailbox: CheckedMailbox) -> MailboxAction:
    about: dict[str, Any] = {"mailbox": mailbox.id, "email": mailbox.email, "domain": mailbox.domain}
    return MailboxAction(action=action, workspace=workspace, sent_30days=mailbox.figures[0], **about)


def _subjects_of(mailbox: CheckedMailbox) -> Iterator[_Subject]:
    """Yield the domain and the server whose findings are about a mailbox, too."""
    if mailbox.domain is not None:
        yield "domain", mailbox.domain
    if mailbox.type == _OWN_SERVER:
        yield "server_ip", mailbox.server_ip


def _build_row(workspace: str, mailbox: CheckedMailbox, findings: Sequence[Finding], left: int) -> Row:
    figures: dict[str, Any] = dict(zip(FIGURES, mailbox.figures, strict=True))
    return Row(
        id=mailbox.id,
        email=mailbox.email,
        workspace=workspace,
        domain=mailbox.domain,
        type=mailbox.type,
        status=mailbox.status,
        server_ip=mailbox.server_ip,
        score=round(MAX_SCORE * left / _WHOLE),
        severity=min((finding.severity for finding in findings), key=lambda severity: severity.rank),
        rules=[finding.rule for finding in findings],
        **figures,
    )
