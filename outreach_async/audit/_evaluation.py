"""Evaluate the rules about mailboxes, domains and servers, page by page and without I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Any, Final

import attrs

from outreach_async._vocabulary import MailboxType
from outreach_async.audit._conditions import Case, DomainFacts, ServerFacts, build_missing_authentication_sign, email_domain
from outreach_async.audit._findings import GROUP_KINDS, Finding, GroupKind, build_finding
from outreach_async.audit._totals import (
    BLACKLISTED,
    OWN_SERVER,
    CompactSet,
    GroupTotals,
    MailboxColumns,
    MailboxTotals,
    digest64,
    to_thousandths,
)
from outreach_async.audit._values import valid_or_zero
from outreach_async.audit.policy import Policy
from outreach_async.models import Mailbox, Number


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
        now: Time at which the mailbox was read, in Unix seconds. It is used to compute the age of the mailbox. If
            omitted, the age is taken from the mailbox's field `age` or `created`.
        workspace: Id of the workspace, which is copied to the findings.
        domain: Facts about the mailbox's domain. By default, the domain is assumed to have no other mailbox.

    Returns:
        A finding for each rule that applies, in the order of the rules.

    Example:
        ```python
        async for mailbox in client.mailboxes.list():
            print(mailbox.email, [finding.rule for finding in check(mailbox)])
        # -> ada@north.example []
        # -> bob@north.example ['OA101']
        ```
    """
    return evaluate_mailbox(Case.of(mailbox, now, domain), policy or Policy.default(), workspace)


def evaluate_mailbox(case: Case, policy: Policy, workspace: str) -> list[Finding]:
    signs = [applies(case, thresholds) for applies, thresholds in policy.conditions]
    if not any(signs):
        return []
    mailbox, sent, domain = case.mailbox, valid_or_zero(case.mailbox.sent_30days), email_domain(case.mailbox.email)
    return [
        build_finding(rule, sign, workspace, domain, sent, mailbox=mailbox.id, email=mailbox.email)
        for rule, sign in zip(policy.mailbox_rules, signs, strict=True)
        if sign is not None
    ]


_HASH_MASK: Final = 2**64 - 1
OWN_SERVER_TYPE: Final = MailboxType.SMTP_IMAP.value


FIGURES: Final = (
    "daily_limit", "sent_today", "sent_30days", "bounced_30days", "blacklists", "opened_14days", "avg_open_rate",
)  # fmt: skip
"""Names of the numeric fields that a report shows for a mailbox with findings."""


@attrs.define(eq=False)
class FlaggedMailbox:
    """A mailbox with findings."""

    workspace: str
    id: str
    email: str
    type: str
    status: str
    server_ip: str
    figures: Sequence[Number]
    findings: list[Finding]

    @classmethod
    def of(cls, mailbox: Mailbox, workspace: str, findings: list[Finding]) -> FlaggedMailbox:
        """Create a flagged mailbox from a mailbox and its findings. Only the values that a report shows are kept."""
        figures = [valid_or_zero(getattr(mailbox, name)) for name in FIGURES]
        kind, status = str(mailbox.type), str(mailbox.status)
        return cls(workspace, mailbox.id, mailbox.email, kind, status, mailbox.server_ip, figures, findings)


MailboxFacts = tuple[int, str | None, str, str, int, int, int]
"""The values of a mailbox that are needed for the totals of its groups.

The values are: digest, domain, server, type, e-mails sent in 30 days, daily limit, and flags. The e-mails and the limit are
integers, in thousandths. The domain is `None` if the mailbox has none."""


class AuditState:
    """Checks mailboxes page by page, and collects the findings and totals of an audit."""

    # The severity of missing SPF, DKIM or DMARC depends on the daily limit of the whole domain. Therefore, these findings and the
    # findings about domains and servers become final only after all mailboxes have been read.
    # The result does not depend on the order in which the workspaces are read. If several workspaces list a mailbox, the rules
    # about its domain and its server count the mailbox once, with its values in the first of these workspaces.

    def __init__(self, workspaces: Sequence[str], policy: Policy, now: float, *, key: bytes | None = None) -> None:
        self.workspaces = workspaces
        self.policy = policy
        self.now = float(now)  # an integer would look different in a JSON report
        self.service_clock = False
        self.totals: dict[GroupKind, GroupTotals] = {kind: GroupTotals() for kind in GROUP_KINDS}
        self.flagged: list[list[FlaggedMailbox]] = [[] for _ in workspaces]
        self.columns = [MailboxColumns() for _ in workspaces]
        self._indexes = {workspace: place for place, workspace in enumerate(workspaces)}
        self._authentication_rules = {rule.id: rule for rule in policy.mailbox_rules if rule.lack}
        self.key = key
        # A mailbox can occur in several workspaces. Within one workspace, the page walk already drops duplicates.
        self._can_repeat = len(workspaces) > 1
        self._domains, self._servers = self.totals["domain"], self.totals["server_ip"]

    def add_page(self, workspace: str, mailboxes: Iterable[Mailbox]) -> list[Finding]:
        """Check a page of a workspace's mailboxes, and return the findings that later pages cannot change."""
        place, policy, now = self._indexes[workspace], self.policy, self.now
        flagged, final, facts = self.flagged[place], list[Finding](), list[MailboxFacts]()
        for mailbox in mailboxes:
            case = Case.of(mailbox, now)
            facts.append(self._facts(case))
            if findings := evaluate_mailbox(case, policy, workspace):
                flagged.append(FlaggedMailbox.of(mailbox, workspace, findings))
                final += [finding for finding in findings if finding.rule not in self._authentication_rules]
        self.add_facts(workspace, facts)
        return final

    def add_flagged(self, workspace: str, flagged: Iterable[FlaggedMailbox]) -> None:
        """Add the flagged mailboxes of a workspace, decoded from a part of this audit."""
        self.flagged[self._indexes[workspace]] += flagged

    def _facts(self, case: Case) -> MailboxFacts:
        mailbox = case.mailbox
        sent, limit = mailbox.sent_30days, mailbox.daily_limit
        if case.invalid:
            sent, limit = valid_or_zero(sent), valid_or_zero(limit)
        digest = hash((mailbox.id, mailbox.email)) & _HASH_MASK
        if self.key is not None:
            digest = digest64(f"{len(mailbox.id)}:{mailbox.id}{mailbox.email}", self.key)
        flags = OWN_SERVER * (mailbox.type == OWN_SERVER_TYPE) | BLACKLISTED * (mailbox.blacklists >= 1)
        domain, kind = email_domain(mailbox.email), str(mailbox.type)
        return digest, domain, mailbox.server_ip, kind, to_thousandths(sent), to_thousandths(limit), flags

    def add_facts(self, workspace: str, facts: Iterable[MailboxFacts]) -> None:
        """Add mailboxes to the totals of their groups."""
        place = self._indexes[workspace]
        columns, types = self.columns[place], self.totals["type"]
        all_sent = all_limits = count = 0
        for digest, domain_name, server_ip, kind, sent, limit, flags in facts:
            server = self._servers.add(server_ip, sent, limit, place)
            domain = -1 if domain_name is None else self._domains.add(domain_name, sent, limit, place)
            type_ = types.add(kind, sent, limit, place)
            all_sent, all_limits, count = all_sent + sent, all_limits + limit, count + 1
            columns.append(digest, domain, server, type_, sent, limit, flags)
        if count:
            self.totals["workspace"].add(workspace, all_sent, all_limits, place, count)

    def alone(self, place: int) -> AuditState:
        """Return the state of an audit of one of the workspaces only, after everything was read."""
        workspace, columns = self.workspaces[place], self.columns[place]
        domains, servers, types = [*self._domains, None], list(self._servers), list(self.totals["type"])
        state = AuditState([workspace], self.policy, self.now)
        state.add_facts(
            workspace,
            (
                (digest, domains[domain], servers[server], types[kind], sent, limit, flags)
                for digest, domain, server, kind, sent, limit, flags in columns.rows()
            ),
        )
        state.add_flagged(workspace, self.flagged[place])
        return state

    def _count_once(self) -> None:
        """Count each mailbox only once in the figures of its domain and its server, even if several workspaces list it."""
        # The values from the first of these workspaces are used.
        seen = CompactSet()
        for columns in self.columns:
            for digest, domain, server, _, sent, limit, flags in columns.rows():
                if not self._can_repeat or seen.add(digest):
                    if flags & OWN_SERVER:
                        self._servers.add_own(server, listed=flags & BLACKLISTED > 0)
                elif domain >= 0:
                    self._domains.add_repeated(domain, sent, limit)

    def finish(
        self, reading_errors: Mapping[str, Sequence[Finding]], campaign_findings: Mapping[str, Sequence[Finding]]
    ) -> FinalFindings:
        """Return all findings of the audit. Call this method once, after all mailboxes have been read."""
        self._count_once()
        # The severity of missing SPF, DKIM or DMARC depends on the daily limit of the domain, which is complete only now.
        lacking: defaultdict[str, set[str]] = defaultdict(set)  # ids of the authentication rules that apply, by domain
        for finding in chain.from_iterable(flagged.findings for flagged in chain(*self.flagged)):
            if finding.rule in self._authentication_rules and finding.domain is not None:
                lacking[finding.domain].add(finding.rule)
        mailboxes = [list(map(self._regrade_mailbox, flagged)) for flagged in self.flagged] if lacking else self.flagged
        findings = chain.from_iterable(flagged.findings for flagged in chain(*mailboxes))
        late = [finding for finding in findings if finding.rule in self._authentication_rules]
        group_findings = list(self._check_groups(lacking))
        errors = [reading_errors.get(workspace, ()) for workspace in self.workspaces]
        about_campaigns = [campaign_findings.get(workspace, ()) for workspace in self.workspaces]
        return FinalFindings(
            flagged=mailboxes,
            campaigns=about_campaigns,
            errors=errors,
            group_findings=group_findings,
            deferred=late + group_findings,
        )

    def _regrade_mailbox(self, flagged: FlaggedMailbox) -> FlaggedMailbox:
        """Recompute the severity of a mailbox's authentication findings, and return the mailbox with the new findings."""
        # The severity depends on the total daily limit of the domain.
        domain = flagged.findings[0].domain
        if domain is None or not any(finding.rule in self._authentication_rules for finding in flagged.findings):
            return flagged
        facts = self._domain_facts(domain, ())
        return attrs.evolve(flagged, findings=[self._regrade_finding(finding, facts) for finding in flagged.findings])

    def _regrade_finding(self, finding: Finding, facts: DomainFacts) -> Finding:
        rule = self._authentication_rules.get(finding.rule)
        if rule is None or rule.lack is None:
            return finding
        sign = build_missing_authentication_sign(rule.lack, facts, rule.thresholds)
        if sign.message == finding.message:  # equal messages have the same severity, because a critical one contains the limit
            return finding
        return attrs.evolve(finding, severity=sign.severity or rule.severity, message=sign.message)

    def _check_groups(self, lacking: Mapping[str, AbstractSet[str]]) -> Iterator[Finding]:
        """Yield the findings about domains, sorted by name, and then the findings about servers with a blacklisted mailbox."""
        for domain in sorted(self._domains):
            domain_facts = self._domain_facts(domain, lacking.get(domain, ()))
            yield from self._apply(self.policy.domain_rules, domain_facts, self._domains[domain], domain=domain)
        for server, mailboxes, listed in sorted(self._servers.own_counts()):
            facts = ServerFacts(mailboxes=mailboxes, listed=listed)
            yield from self._apply(self.policy.server_rules, facts, self._servers[server], domain=None, server_ip=server)

    def _apply(self, rules: Iterable[Any], facts: Any, total: MailboxTotals, **subject: Any) -> Iterator[Finding]:
        for rule in rules:
            if sign := rule.applies(facts, rule.thresholds):
                yield build_finding(rule, sign, self.workspaces[total.first], sent_30days=total.sent_30days, **subject)

    def _domain_facts(self, domain: str, lacking: Collection[str]) -> DomainFacts:
        total, rules = self._domains.once(domain), self._authentication_rules.values()
        return DomainFacts(
            daily_limit=total.daily_limit,
            mailboxes=total.mailboxes,
            sent_30days=total.sent_30days,
            lacking=tuple(rule.lack for rule in rules if rule.lack and rule.id in lacking) if lacking else (),
        )


@attrs.frozen(kw_only=True)
class FinalFindings:
    """All findings of an audit."""

    flagged: list[list[FlaggedMailbox]]
    campaigns: list[Sequence[Finding]]
    errors: list[Sequence[Finding]]
    group_findings: list[Finding]
    deferred: list[Finding]

    @property
    def findings(self) -> list[Finding]:
        """All findings, the worst first. Findings of equal severity are in the order of workspaces, mailboxes and rules."""
        findings: list[Finding] = []
        for mailboxes, campaigns, errors in zip(self.flagged, self.campaigns, self.errors, strict=True):
            findings += chain.from_iterable(flagged.findings for flagged in mailboxes)
            findings += campaigns
            findings += errors
        return sorted(findings + self.group_findings, key=lambda finding: finding.severity.rank)
