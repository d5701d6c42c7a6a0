"""What an audit knows so far: it grows with findings, domains and servers, and not with mailboxes that are well."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import attrs

from outreach_async.audit.conditions import Case, domain_of, lack
from outreach_async.audit.digests import Digests
from outreach_async.audit.figures import amount
from outreach_async.audit.findings import Finding
from outreach_async.audit.groups import KINDS, Kind
from outreach_async.audit.judging import found, judge
from outreach_async.audit.policy import Policy
from outreach_async.audit.shared import DomainFacts, ServerFacts
from outreach_async.audit.tallies import Tally
from outreach_async.models import Mailbox, Number
from outreach_async.vocabulary import MailboxType

_OWN_SERVER: Final = MailboxType.SMTP_IMAP.value


@attrs.define(eq=False)
class Judged:
    """A mailbox that something was found about.

    Attributes:
        workspace: Id of the workspace that shows it.
        mailbox: The mailbox.
        findings: What was found, in the rules' order.
    """

    workspace: str
    mailbox: Mailbox
    findings: list[Finding]


class Ledger:
    """Takes mailboxes in, page by page, and tells at the end what was found.

    How bad a lack of SPF, DKIM or DMARC is hangs on what the whole domain may send: such findings, and those about domains and
    servers, are settled when everything is read.

    Attributes:
        policy: What to judge by.
        now: When the audit is made, Unix seconds.
        tallies: Sums of the judged mailboxes by what they share.
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
        self._met = Digests() if len(workspaces) > 1 else None
        self._domains, self._servers = self.tallies["domain"], self.tallies["server_ip"]
        self._again = Tally()  # by domain: what a second workspace shows again, and a domain's facts must not count twice
        self._own: Counter[str] = Counter()
        self._listed: Counter[str] = Counter()

    def take(self, workspace: str, mailboxes: Iterable[Mailbox]) -> list[Finding]:
        """Judge mailboxes of a workspace; return the findings that are settled."""
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
        """Note what went wrong with the reading of a workspace."""
        self._unread[workspace] = unread

    def _count(self, case: Case, place: int, sums: list[Number]) -> None:
        """Count a mailbox in the tallies of its domain and its server, and in the sums of its type."""
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
        """Return what was found, everything being read."""
        lacking = self._lacking()
        judged = [list(map(self._regraded, each)) for each in self._judged] if lacking else self._judged
        late = (finding for each in chain(*judged) for finding in each.findings if finding.rule in self._lacks)
        together = [*self._about_domains(lacking), *self._about_servers()]
        unread = [self._unread.get(workspace, ()) for workspace in self.workspaces]
        return Settled(judged=judged, unread=unread, together=together, late=[*late, *together])

    def _lacking(self) -> dict[str, set[str]]:
        """Return the rules about the sender's proof that mailboxes of a domain broke."""
        lacking: defaultdict[str, set[str]] = defaultdict(set)
        for finding in chain.from_iterable(each.findings for each in chain(*self._judged)):
            if finding.rule in self._lacks and finding.domain is not None:
                lacking[finding.domain].add(finding.rule)
        return lacking

    def _regraded(self, judged: Judged) -> Judged:
        """Judge lacks again, in the light of what the domain as a whole may send."""
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
        """Judge domains, in the order of their names."""
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
        """Judge servers that blacklists name, in the order of their addresses."""
        for server in sorted(self._listed):
            facts = ServerFacts(mailboxes=self._own[server], listed=self._listed[server])
            for rule in self.policy.server_rules:
                if sign := rule.applies(facts, rule.thresholds):
                    total = self._servers[server]
                    yield found(rule, sign, self.workspaces[total.first], None, total.sent_30days, server_ip=server)


@attrs.frozen(kw_only=True)
class Settled:
    """All that was found.

    Attributes:
        judged: The mailboxes that something was found about, by workspace.
        unread: What went wrong with the reading, by workspace.
        together: What was found about domains and servers.
        late: The findings that could only be settled at the end.
    """

    judged: list[list[Judged]]
    unread: list[Sequence[Finding]]
    together: list[Finding]
    late: list[Finding]

    @property
    def findings(self) -> list[Finding]:
        """Everything, in the order of a report."""
        found_here: list[Finding] = []
        for judged, unread in zip(self.judged, self.unread, strict=True):
            found_here += chain.from_iterable(each.findings for each in judged)
            found_here += unread
        return found_here + self.together
