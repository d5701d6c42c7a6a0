"""Evaluate the rules for mailboxes. This module performs no I/O, and does not store mailboxes without findings."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import attrs

from outreach_async.audit.conditions import Case, DomainFacts, ServerFacts, Sign, build_missing_authentication_sign, email_domain
from outreach_async.audit.findings import GROUP_KINDS, Finding, GroupKind, GroupTotals, MailboxTotals
from outreach_async.audit.policy import Policy
from outreach_async.audit.rules import Rule
from outreach_async.audit.values import valid_or_zero
from outreach_async.models import Mailbox, Number
from outreach_async.vocabulary import MailboxType

_MIN_SLOTS: Final = 1_024
_HASH_MASK: Final = 2**64 - 1


class CompactSet:
    """A set that stores only the 64-bit hashes of the added names, in an open-addressing hash table.

    The probability that any two of a million hashes are equal is about one in forty million. Python randomizes string hashes in
    each process, which prevents deliberate collisions. The table is at most three quarters full.
    """

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * _MIN_SLOTS))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add_new(self, names: AbstractSet[Hashable], /) -> AbstractSet[Hashable]:
        """Add names, and return the names that were not in the set before."""
        return {name for name in names if self.add(name)}

    def add(self, name: Hashable) -> bool:
        """Add a name, and return whether the name was not in the set before."""
        if not self._insert(hash(name) & _HASH_MASK or 1):  # 0 marks an empty slot
            return False
        self._count += 1
        if 4 * self._count > 3 * len(self._slots):
            full, self._slots = self._slots, array("Q", bytes(2 * 8 * len(self._slots)))
            for digest in filter(None, full):
                self._insert(digest)
        return True

    def _insert(self, digest: int) -> bool:
        """Store a digest in its slot or in the next free slot, and return whether the digest was not in the table before."""
        slots = self._slots
        last = len(slots) - 1  # the size is a power of two, so `&` computes the remainder
        slot = digest & last
        while held := slots[slot]:
            if held == digest:
                return False
            slot = (slot + 1) & last
        slots[slot] = digest
        return True


def check(
    mailbox: Mailbox,
    policy: Policy | None = None,
    now: float | None = None,
    *,
    workspace: str = "",
    domain: DomainFacts | None = None,
) -> list[Finding]:
    """Check one mailbox against every rule about single mailboxes. Rules about several mailboxes need `audit`.

    Args:
        mailbox: The mailbox (section "Mailbox" of the service's interface).
        policy: The policy to apply; by default, all rules with their default thresholds.
        now: Time at which the mailbox was read, in Unix seconds. If omitted, the mailbox's age is taken from `age` or `created`.
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
    """Evaluate the mailbox rules of a policy for one mailbox, and return the findings."""
    signs = [applies(case, thresholds) for applies, thresholds in policy.conditions]
    if not any(signs):
        return []
    mailbox, sent, domain = case.mailbox, valid_or_zero(case.mailbox.sent_30days), email_domain(case.mailbox.email)
    return [
        build_finding(rule, sign, workspace, domain, sent, mailbox=mailbox.id, email=mailbox.email)
        for rule, sign in zip(policy.mailbox_rules, signs, strict=True)
        if sign is not None
    ]


def build_finding(rule: Rule, sign: Sign, workspace: str, domain: str | None, sent_30days: Number, **subject: Any) -> Finding:
    """Build a finding from a rule and the sign that its condition returned; `subject` holds further fields of the finding."""
    return Finding(
        rule=rule.id,
        severity=sign.severity or rule.severity,
        workspace=workspace,
        domain=domain,
        message=sign.message,
        remedy=_fill_remedy(rule.remedy, domain),
        confidence="high" if sign.sure else "low",
        sent_30days=sent_30days,
        figures=sign.figures,
        **subject,
    )


@lru_cache(maxsize=4_096)  # findings of the same rule and domain share one string
def _fill_remedy(remedy: str, domain: str | None) -> str:
    return remedy.replace("<domain>", domain) if domain else remedy


_OWN_SERVER_TYPE: Final = MailboxType.SMTP_IMAP.value


@attrs.define(eq=False)
class FlaggedMailbox:
    """A mailbox with findings.

    Attributes:
        workspace: Id of the workspace that lists the mailbox.
        mailbox: The mailbox.
        findings: Findings about the mailbox, in the order of the rules.
    """

    workspace: str
    mailbox: Mailbox
    findings: list[Finding]


class AuditState:
    """The state of a running audit, with methods that check mailboxes page by page and collect the findings and totals.

    The severity of missing SPF, DKIM or DMARC depends on the daily limit of the whole domain. Therefore, these findings and the
    findings about domains and servers become final only after every mailbox has been read.

    Attributes:
        workspaces: Ids of the workspaces, in the order of the audit.
        policy: The policy to apply.
        now: Time of the audit, in Unix seconds.
        totals: Totals of the checked mailboxes, by workspace, domain, type and server.
    """

    def __init__(self, workspaces: Sequence[str], policy: Policy, now: float) -> None:
        self.workspaces = workspaces
        self.policy = policy
        self.now = now
        self.totals: dict[GroupKind, GroupTotals] = {kind: GroupTotals() for kind in GROUP_KINDS}
        self._indexes = {workspace: place for place, workspace in enumerate(workspaces)}
        self._flagged: list[list[FlaggedMailbox]] = [[] for _ in workspaces]
        self._authentication_rules = {rule.id: rule for rule in policy.mailbox_rules if rule.lack}
        # A mailbox can occur in several workspaces. Within one workspace, the page walk already drops duplicates.
        self._seen = CompactSet() if len(workspaces) > 1 else None
        self._domains, self._servers = self.totals["domain"], self.totals["server_ip"]
        self._repeated = GroupTotals()  # by domain: mailboxes already counted in another workspace
        self._own_server_counts: Counter[str] = Counter()
        self._blacklisted_counts: Counter[str] = Counter()

    def add_page(self, workspace: str, mailboxes: Iterable[Mailbox]) -> list[Finding]:
        """Check a page of a workspace's mailboxes, and return the findings that later pages cannot change."""
        place, policy, now = self._indexes[workspace], self.policy, self.now
        flagged, final = self._flagged[place], list[Finding]()
        sums: defaultdict[str, list[Number]] = defaultdict(lambda: [0, 0, 0])
        for mailbox in mailboxes:
            case = Case.of(mailbox, now)
            self._add_totals(case, place, sums[mailbox.type])
            if findings := evaluate_mailbox(case, policy, workspace):
                flagged.append(FlaggedMailbox(workspace, mailbox, findings))
                final += [finding for finding in findings if finding.rule not in self._authentication_rules]
        for kind, (count, sent, limit) in sums.items():
            self.totals["type"].add(kind, sent, limit, place, int(count))
            self.totals["workspace"].add(workspace, sent, limit, place, int(count))
        return final

    def _add_totals(self, case: Case, place: int, sums: list[Number]) -> None:
        """Add a mailbox to the totals of its domain and server, and to `sums`, the totals of its type on this page."""
        mailbox = case.mailbox
        sent, limit, server = mailbox.sent_30days, mailbox.daily_limit, mailbox.server_ip
        if case.doubts:
            sent, limit = valid_or_zero(sent), valid_or_zero(limit)
        sums[0] += 1
        sums[1] += sent
        sums[2] += limit
        self._servers.add(server, sent, limit, place)
        once = self._seen is None or self._seen.add((mailbox.id, mailbox.email))
        if (domain := email_domain(mailbox.email)) is not None:
            self._domains.add(domain, sent, limit, place)
            if not once:
                self._repeated.add(domain, sent, limit, place)
        if once and mailbox.type == _OWN_SERVER_TYPE:
            self._own_server_counts[server] += 1
            if mailbox.blacklists >= 1:
                self._blacklisted_counts[server] += 1

    def finish(self, reading_errors: Mapping[str, Sequence[Finding]]) -> FinalFindings:
        """Return all findings of the audit. Call this method after every mailbox has been read.

        Args:
            reading_errors: Findings about errors while reading, by workspace.
        """
        # The severity of missing SPF, DKIM or DMARC depends on the daily limit of the domain, which is complete only now.
        lacking: defaultdict[str, set[str]] = defaultdict(set)  # ids of the authentication rules that apply, by domain
        for finding in chain.from_iterable(flagged.findings for flagged in chain(*self._flagged)):
            if finding.rule in self._authentication_rules and finding.domain is not None:
                lacking[finding.domain].add(finding.rule)
        mailboxes = [list(map(self._regrade_mailbox, flagged)) for flagged in self._flagged] if lacking else self._flagged
        findings = chain.from_iterable(flagged.findings for flagged in chain(*mailboxes))
        late = [finding for finding in findings if finding.rule in self._authentication_rules]
        group_findings = list(self._check_groups(lacking))
        errors = [reading_errors.get(workspace, ()) for workspace in self.workspaces]
        return FinalFindings(flagged=mailboxes, errors=errors, group_findings=group_findings, deferred=late + group_findings)

    def _regrade_mailbox(self, flagged: FlaggedMailbox) -> FlaggedMailbox:
        """Return a mailbox with the severity of its authentication findings recomputed from the domain's total daily limit."""
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
        for server in sorted(self._blacklisted_counts):
            facts = ServerFacts(mailboxes=self._own_server_counts[server], listed=self._blacklisted_counts[server])
            yield from self._apply(self.policy.server_rules, facts, self._servers[server], domain=None, server_ip=server)

    def _apply(self, rules: Iterable[Any], facts: Any, total: MailboxTotals, **subject: Any) -> Iterator[Finding]:
        for rule in rules:
            if sign := rule.applies(facts, rule.thresholds):
                yield build_finding(rule, sign, self.workspaces[total.first], sent_30days=total.sent_30days, **subject)

    def _domain_facts(self, domain: str, lacking: Collection[str]) -> DomainFacts:
        total, repeated, rules = self._domains[domain], self._repeated[domain], self._authentication_rules.values()
        return DomainFacts(
            daily_limit=total.daily_limit - repeated.daily_limit,
            mailboxes=total.mailboxes - repeated.mailboxes,
            sent_30days=total.sent_30days - repeated.sent_30days,
            lacking=tuple(rule.lack for rule in rules if rule.lack and rule.id in lacking) if lacking else (),
        )


@attrs.frozen(kw_only=True)
class FinalFindings:
    """All findings of an audit.

    Attributes:
        flagged: For each workspace, its mailboxes with findings.
        errors: For each workspace, the findings about errors while reading it.
        group_findings: The findings about domains and servers.
        deferred: The findings that became final only after every mailbox was read.
    """

    flagged: list[list[FlaggedMailbox]]
    errors: list[Sequence[Finding]]
    group_findings: list[Finding]
    deferred: list[Finding]

    @property
    def findings(self) -> list[Finding]:
        """All findings, in the order of a report."""
        findings: list[Finding] = []
        for mailboxes, errors in zip(self.flagged, self.errors, strict=True):
            findings += chain.from_iterable(flagged.findings for flagged in mailboxes)
            findings += errors
        return findings + self.group_findings
