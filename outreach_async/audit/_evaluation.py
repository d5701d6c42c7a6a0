"""Evaluate the rules about mailboxes, domains and servers, page by page and without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from outreach_async.audit._conditions import Case, DomainFacts, ServerFacts, build_case, email_domain
from outreach_async.audit._findings import GROUP_KINDS, Finding, GroupKind, Rule, apply_rules
from outreach_async.audit._flagged import FIGURES, Flagged, FlaggedMailboxes, MailboxFindings, StoredViolation
from outreach_async.audit._totals import (
    BLACKLISTED,
    HASH_MASK,
    LACKS_DKIM,
    LACKS_DMARC,
    LACKS_SPF,
    OWN_SERVER,
    CompactSet,
    GroupTotals,
    MailboxColumns,
    MailboxTotals,
    digest64,
    to_thousandths,
)
from outreach_async.audit._values import valid_or_zero
from outreach_async.audit.policy import Policy, rules_about
from outreach_async.models import Mailbox, MailboxType


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


_PAGE_SIZE: Final = 2_000
OWN_SERVER_TYPE: Final = MailboxType.SMTP_IMAP.value
_ABOUT_AUTHENTICATION: Final = frozenset({"OA101", "OA102", "OA103", "OA104"})
_LACK_FLAGS: Final = {"SPF record": LACKS_SPF, "DKIM signature": LACKS_DKIM, "DMARC policy": LACKS_DMARC}

MailboxFacts = tuple[int, str | None, str, str, int, int, int]
"""The digest, domain, server, type, e-mails sent in 30 days, daily limit and flags of a mailbox. Numbers are in thousandths."""


class AuditState:
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
        self.flagged = [FlaggedMailboxes() for _ in workspaces]
        self.columns = [MailboxColumns() for _ in workspaces]
        self._indexes = {workspace: place for place, workspace in enumerate(workspaces)}
        self.rules = rules_about(policy, "mailbox")
        self._conditions = [(place, rule.applies, rule.thresholds, rule.severity) for place, rule in enumerate(self.rules)]
        self._others = [each for each in self._conditions if self.rules[each[0]].id not in _ABOUT_AUTHENTICATION]
        self._lacking = {rule.lack: rule for rule in self.rules if rule.lack}
        self.builder = MailboxFindings(self.rules, workspaces, self.flagged)
        self.key = key
        # A mailbox can occur in several workspaces. Within one workspace, the page walk already drops duplicates.
        self._can_repeat = len(workspaces) > 1
        self._domains, self._servers = self.totals["domain"], self.totals["server_ip"]

    def add_page(self, workspace: str, mailboxes: Iterable[Mailbox], *, wanted: bool = True) -> list[Finding]:
        """Check a page of a workspace's mailboxes. If `wanted`, return the findings that later pages cannot change."""
        place, now = self._indexes[workspace], self.now
        flagged, facts, final = self.flagged[place], list[MailboxFacts](), list[Finding]()
        for row, mailbox in enumerate(mailboxes, len(self.columns[place].digests)):
            case = build_case(mailbox, now)
            facts.append(self._facts(case))
            # Most mailboxes have SPF, DKIM and DMARC, so the rules about them are left out.
            conditions = self._others if mailbox.spf and mailbox.dkim and mailbox.dmarc else self._conditions
            violations = [
                StoredViolation(rule, violation.message, violation.figures, (violation.severity or severity).rank, violation.sure)
                for rule, applies, thresholds, severity in conditions
                if (violation := applies(case, thresholds)) is not None
            ]
            if violations:
                figures = tuple([valid_or_zero(getattr(mailbox, name)) for name in FIGURES])
                about = Flagged(row, mailbox.id, mailbox.email, str(mailbox.status), figures, violations)
                flagged.append(about)
                if wanted:
                    final += [self.builder.build(place, about, each) for each in violations if self.rules[each.rule].lack is None]
        self.add_facts(workspace, facts)
        return final

    def _facts(self, case: Case) -> MailboxFacts:
        mailbox = case.mailbox
        sent, limit = mailbox.sent_30days, mailbox.daily_limit
        if case.invalid:
            sent, limit = valid_or_zero(sent), valid_or_zero(limit)
        digest = hash((mailbox.id, mailbox.email)) & HASH_MASK
        if self.key is not None:
            digest = digest64(f"{len(mailbox.id)}:{mailbox.id}{mailbox.email}", self.key)
        flags = OWN_SERVER * (mailbox.type == OWN_SERVER_TYPE) | BLACKLISTED * (mailbox.blacklists >= 1)
        if not (mailbox.spf and mailbox.dkim and mailbox.dmarc):
            flags |= LACKS_SPF * (not mailbox.spf) | LACKS_DKIM * (not mailbox.dkim) | LACKS_DMARC * (not mailbox.dmarc)
        domain, kind = email_domain(mailbox.email), str(mailbox.type)
        return digest, domain, mailbox.server_ip, kind, to_thousandths(sent), to_thousandths(limit), flags

    def add_facts(self, workspace: str, facts: Iterable[MailboxFacts]) -> None:
        place, facts = self._indexes[workspace], iter(facts)
        while page := list(islice(facts, _PAGE_SIZE)):
            digests, domains, servers, types, sent, limits, flags = zip(*page, strict=True)
            groups = (self._domains, domains), (self._servers, servers), (self.totals["type"], types)
            indexes = [totals.add_all(keys, sent, limits, place) for totals, keys in groups]
            self.columns[place].extend((digests, *indexes, sent, limits, flags))
            self.totals["workspace"].add(workspace, sum(sent), sum(limits), place, len(page))

    def facts(self, place: int) -> Iterator[MailboxFacts]:
        """Yield what was passed to `add_facts` for the workspace with this place."""
        domains, servers, types = [*self._domains, None], list(self._servers), list(self.totals["type"])
        for digest, domain, server, kind, sent, limit, flags in self.columns[place].rows():
            yield digest, domains[domain], servers[server], types[kind], sent, limit, flags

    def alone(self, place: int) -> AuditState:
        """Return the state of an audit of one of the workspaces only, after everything was read."""
        state = AuditState([self.workspaces[place]], self.policy, self.now)
        state.add_facts(self.workspaces[place], self.facts(place))
        state.flagged[0] = self.flagged[place]
        return state

    def _count_once(self) -> dict[int, int]:
        """Count each mailbox only once in the figures of its domain and its server, even if several workspaces list it.

        Return the flags for SPF, DKIM and DMARC that mailboxes lack, by the index of their domain.
        """
        # The values from the first of these workspaces are used.
        seen, lacking = CompactSet(), dict[int, int]()
        mask = sum(_LACK_FLAGS[lack] for lack in self._lacking)
        for columns in self.columns:
            for digest, domain, server, _, sent, limit, flags in columns.rows():
                if flags & mask and domain >= 0:
                    lacking[domain] = lacking.get(domain, 0) | flags
                if not self._can_repeat or seen.add(digest):
                    if flags & OWN_SERVER:
                        self._servers.add_own(server, listed=flags & BLACKLISTED > 0)
                elif domain >= 0:
                    self._domains.add_repeated(domain, sent, limit)
        return lacking

    def finish(self) -> list[Finding]:
        """Return the findings about domains and servers. Call this method once, after all mailboxes have been read."""
        lacking = self._count_once()
        # The severity of missing SPF, DKIM or DMARC depends on the daily limit of the domain, which is complete only now.
        names = list(self._domains) if lacking else []
        enough = min((rule.thresholds["critical"] for rule in self._lacking.values()), default=0)
        limits = {name: self._domains.once(name).daily_limit for name in map(names.__getitem__, lacking)}
        self.builder.limits = {name: limit for name, limit in limits.items() if limit >= enough}
        return list(self._check_groups({names[domain]: flags for domain, flags in lacking.items()}))

    def late_findings(self) -> Iterator[Finding]:
        for place, flagged in enumerate(self.flagged):
            for mailbox in flagged:
                late = (each for each in mailbox.violations if self.rules[each.rule].lack is not None)
                yield from (self.builder.build(place, mailbox, each) for each in late)

    def _check_groups(self, lacking: Mapping[str, int]) -> Iterator[Finding]:
        domain_rules, server_rules = rules_about(self.policy, "domain"), rules_about(self.policy, "server_ip")
        for domain in sorted(self._domains):
            once, lacks = self._domains.once(domain), lacking.get(domain, 0)
            facts = DomainFacts(
                daily_limit=once.daily_limit,
                mailboxes=once.mailboxes,
                sent_30days=once.sent_30days,
                lacking=tuple(lack for lack in self._lacking if lacks & _LACK_FLAGS[lack]) if lacks else (),
            )
            yield from self._apply(domain_rules, facts, self._domains[domain], domain=domain)
        for server, mailboxes, listed in sorted(self._servers.own_counts()):
            own = ServerFacts(mailboxes=mailboxes, listed=listed)
            yield from self._apply(server_rules, own, self._servers[server], server_ip=server)

    def _apply(self, rules: Iterable[Rule], facts: object, total: MailboxTotals, **subject: str) -> list[Finding]:
        return apply_rules(rules, facts, self.workspaces[total.first], sent_30days=total.sent_30days, **subject)
