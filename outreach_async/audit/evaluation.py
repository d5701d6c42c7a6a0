"""Evaluate the rules: mailboxes in, findings out, without I/O. Memory does not grow with the number of healthy mailboxes."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import chain
from typing import Final

import attrs

from outreach_async.audit.conditions import Case, DomainFacts, ServerFacts, Sign, domain_of, lack
from outreach_async.audit.findings import KINDS, Finding, Kind, Tally
from outreach_async.audit.policy import Policy
from outreach_async.audit.rules import Rule
from outreach_async.audit.values import amount
from outreach_async.models import Mailbox, Number
from outreach_async.vocabulary import MailboxType

_LEAST: Final = 1_024
_BITS: Final = 2**64 - 1


class Digests:
    """A set of seen names, stored as 64-bit hashes in an open-addressing table that is at most three quarters full.

    The chance that any two of a million names collide is about one in forty million. Python randomizes string hashes in each
    process, which prevents deliberate collisions.
    """

    def __init__(self) -> None:
        self._slots = _empty(_LEAST)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add_new(self, names: AbstractSet[Hashable], /) -> AbstractSet[Hashable]:
        """Add names; return those that were new."""
        return {name for name in names if self.add(name)}

    def add(self, name: Hashable) -> bool:
        """Add a name; return whether it was new."""
        if not _place(self._slots, hash(name) & _BITS or 1):  # 0 marks an empty slot
            return False
        self._count += 1
        if 4 * self._count > 3 * len(self._slots):
            self._grow()
        return True

    def _grow(self) -> None:
        held, self._slots = self._slots, _empty(2 * len(self._slots))
        for digest in filter(None, held):
            _place(self._slots, digest)


def _empty(slots: int) -> array[int]:
    return array("Q", bytes(8 * slots))


def _place(slots: array[int], digest: int) -> bool:
    """Put a digest into its slot or the next free one; return whether it was new."""
    last = len(slots) - 1  # the size is a power of two: `&` takes the remainder
    at = digest & last
    while held := slots[at]:
        if held == digest:
            return False
        at = (at + 1) & last
    slots[at] = digest
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
        mailbox: The mailbox (section "Mailbox" of the interface).
        policy: The policy to apply; by default, all rules with their default thresholds.
        now: Time at which the mailbox was read, in Unix seconds. Without it, the age comes from `age` or `created`.
        workspace: Id of the workspace, for the findings.
        domain: Facts about the mailbox's domain; by default, a domain with this mailbox only.

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
    return judge(Case.of(mailbox, now, domain), policy or Policy.default(), workspace)


def judge(case: Case, policy: Policy, workspace: str) -> list[Finding]:
    """Evaluate the mailbox rules of a policy."""
    signs = [applies(case, at) for applies, at in policy.conditions]
    if not any(signs):
        return []
    mailbox, sent, domain = case.mailbox, amount(case.mailbox.sent_30days), domain_of(case.mailbox.email)
    return [
        found(rule, sign, workspace, domain, sent, mailbox=mailbox)
        for rule, sign in zip(policy.mailbox_rules, signs, strict=True)
        if sign is not None
    ]


def found(
    rule: Rule,
    sign: Sign,
    workspace: str,
    domain: str | None,
    sent_30days: Number,
    *,
    mailbox: Mailbox | None = None,
    server_ip: str | None = None,
) -> Finding:
    """Return the finding of a rule about a mailbox, or about the mailboxes of a domain or a server."""
    return Finding(
        rule=rule.id,
        severity=sign.severity or rule.severity,
        workspace=workspace,
        mailbox=mailbox.id if mailbox else None,
        email=mailbox.email if mailbox else None,
        domain=domain,
        message=sign.message,
        remedy=_remedy(rule.remedy, domain),
        confidence="high" if sign.sure else "low",
        sent_30days=sent_30days,
        server_ip=server_ip,
        figures=sign.figures,
    )


@lru_cache(maxsize=4_096)  # findings of the same rule and domain share one string
def _remedy(remedy: str, domain: str | None) -> str:
    return remedy.replace("<domain>", domain) if domain else remedy


_OWN_SERVER: Final = MailboxType.SMTP_IMAP.value


@attrs.define(eq=False)
class Judged:
    """A mailbox with findings.

    Attributes:
        workspace: Id of the workspace that lists it.
        mailbox: The mailbox.
        findings: Its findings, in the order of the rules.
    """

    workspace: str
    mailbox: Mailbox
    findings: list[Finding]


class Ledger:
    """Checks mailboxes page by page and returns all findings at the end.

    The severity of a missing SPF, DKIM or DMARC depends on the daily limit of the whole domain. These findings, and those about
    domains and servers, become final when every mailbox is read.

    Attributes:
        workspaces: Ids of the workspaces, in the order of the audit.
        policy: The policy to apply.
        now: Time of the audit, in Unix seconds.
        tallies: Sums of the checked mailboxes by workspace, domain, type and server.
    """

    def __init__(self, workspaces: Sequence[str], policy: Policy, now: float) -> None:
        self.workspaces = workspaces
        self.policy = policy
        self.now = now
        self.tallies: dict[Kind, Tally] = {kind: Tally() for kind in KINDS}
        self._places = {workspace: place for place, workspace in enumerate(workspaces)}
        self._judged: list[list[Judged]] = [[] for _ in workspaces]
        self._unread: dict[str, Sequence[Finding]] = {}
        self._lacks = {rule.id: rule for rule in policy.mailbox_rules if rule.lack}
        # Only several workspaces can list a mailbox twice: within one, the page walk already drops duplicates.
        self._met = Digests() if len(workspaces) > 1 else None
        self._domains, self._servers = self.tallies["domain"], self.tallies["server_ip"]
        self._again = Tally()  # by domain: mailboxes listed by a further workspace, subtracted from the domain's facts
        self._own: Counter[str] = Counter()
        self._listed: Counter[str] = Counter()

    def take(self, workspace: str, mailboxes: Iterable[Mailbox]) -> list[Finding]:
        """Check mailboxes of a workspace; return the findings that are final."""
        place, policy, now = self._places[workspace], self.policy, self.now
        judged, settled = self._judged[place], list[Finding]()
        sums: defaultdict[str, list[Number]] = defaultdict(lambda: [0, 0, 0])
        for mailbox in mailboxes:
            case = Case.of(mailbox, now)
            self._count(case, place, sums[mailbox.type])
            if findings := judge(case, policy, workspace):
                judged.append(Judged(workspace, mailbox, findings))
                settled += [finding for finding in findings if finding.rule not in self._lacks]
        for kind, (count, sent, limit) in sums.items():
            self.tallies["type"].add(kind, sent, limit, place, int(count))
            self.tallies["workspace"].add(workspace, sent, limit, place, int(count))
        return settled

    def note(self, workspace: str, unread: Sequence[Finding]) -> None:
        """Store the reading errors of a workspace."""
        self._unread[workspace] = unread

    def _count(self, case: Case, place: int, sums: list[Number]) -> None:
        """Add a mailbox to the tallies of its domain and server, and to the sums of its type."""
        mailbox = case.mailbox
        sent, limit, server = mailbox.sent_30days, mailbox.daily_limit, mailbox.server_ip
        if case.doubts:
            sent, limit = amount(sent), amount(limit)
        sums[0] += 1
        sums[1] += sent
        sums[2] += limit
        self._servers.add(server, sent, limit, place)
        once = self._met is None or self._met.add((mailbox.id, mailbox.email))
        if (domain := domain_of(mailbox.email)) is not None:
            self._domains.add(domain, sent, limit, place)
            if not once:
                self._again.add(domain, sent, limit, place)
        if once and mailbox.type == _OWN_SERVER:
            self._own[server] += 1
            if mailbox.blacklists >= 1:
                self._listed[server] += 1

    def settle(self) -> Settled:
        """Return all findings; call this when every mailbox is read."""
        # Only now is the daily limit of every domain complete, which decides the severity of a missing SPF, DKIM or DMARC.
        lacking = self._lacking()
        judged = [list(map(self._regraded, each)) for each in self._judged] if lacking else self._judged
        late = (finding for each in chain(*judged) for finding in each.findings if finding.rule in self._lacks)
        together = [*self._about_domains(lacking), *self._about_servers()]
        unread = [self._unread.get(workspace, ()) for workspace in self.workspaces]
        return Settled(judged=judged, unread=unread, together=together, late=[*late, *together])

    def _lacking(self) -> dict[str, set[str]]:
        """Return, by domain, the ids of the authentication rules that apply to its mailboxes."""
        lacking: defaultdict[str, set[str]] = defaultdict(set)
        for finding in chain.from_iterable(each.findings for each in chain(*self._judged)):
            if finding.rule in self._lacks and finding.domain is not None:
                lacking[finding.domain].add(finding.rule)
        return lacking

    def _regraded(self, judged: Judged) -> Judged:
        """Recompute the severity of authentication findings from the domain's total daily limit."""
        domain = judged.findings[0].domain
        if domain is None or not any(finding.rule in self._lacks for finding in judged.findings):
            return judged
        facts = self._facts(domain, {})
        return attrs.evolve(judged, findings=[self._graded(finding, facts) for finding in judged.findings])

    def _graded(self, finding: Finding, facts: DomainFacts) -> Finding:
        rule = self._lacks.get(finding.rule)
        if rule is None or rule.lack is None:
            return finding
        sign = lack(rule.lack, facts, rule.thresholds)
        if sign.message == finding.message:
            return finding
        return attrs.evolve(finding, severity=sign.severity or rule.severity, message=sign.message)

    def _about_domains(self, lacking: dict[str, set[str]]) -> Iterator[Finding]:
        """Check domains, in the order of their names."""
        found_here = ((domain, self._facts(domain, lacking)) for domain in sorted(self._domains))
        for domain, facts in found_here:
            for rule in self.policy.domain_rules:
                if sign := rule.applies(facts, rule.thresholds):
                    total = self._domains[domain]
                    yield found(rule, sign, self.workspaces[total.first], domain, total.sent_30days)

    def _facts(self, domain: str, lacking: dict[str, set[str]]) -> DomainFacts:
        total, again, broken = self._domains[domain], self._again[domain], lacking.get(domain, ())
        return DomainFacts(
            daily_limit=total.daily_limit - again.daily_limit,
            mailboxes=total.mailboxes - again.mailboxes,
            sent_30days=total.sent_30days - again.sent_30days,
            lacking=tuple(rule.lack for rule in self._lacks.values() if rule.lack and rule.id in broken) if broken else (),
        )

    def _about_servers(self) -> Iterator[Finding]:
        """Check servers with a blacklisted mailbox, in the order of their addresses."""
        for server in sorted(self._listed):
            facts = ServerFacts(mailboxes=self._own[server], listed=self._listed[server])
            for rule in self.policy.server_rules:
                if sign := rule.applies(facts, rule.thresholds):
                    total = self._servers[server]
                    yield found(rule, sign, self.workspaces[total.first], None, total.sent_30days, server_ip=server)


@attrs.frozen(kw_only=True)
class Settled:
    """All findings of an audit.

    Attributes:
        judged: The mailboxes with findings, by workspace.
        unread: The reading errors, by workspace.
        together: The findings about domains and servers.
        late: The findings that became final only at the end.
    """

    judged: list[list[Judged]]
    unread: list[Sequence[Finding]]
    together: list[Finding]
    late: list[Finding]

    @property
    def findings(self) -> list[Finding]:
        """All findings, in the order of a report."""
        found_here: list[Finding] = []
        for judged, unread in zip(self.judged, self.unread, strict=True):
            found_here += chain.from_iterable(each.findings for each in judged)
            found_here += unread
        return found_here + self.together
