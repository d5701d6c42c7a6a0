"""Rules applied: mailboxes in, findings out. Nothing here does I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import attrs

from outreach_async.audit.conditions import Case, DomainFacts, domain_of
from outreach_async.audit.figures import amount
from outreach_async.audit.findings import Finding
from outreach_async.audit.rules import RULES, MailboxRule
from outreach_async.models import Mailbox, Number


@attrs.frozen
class Seen:
    """A mailbox and the workspace that showed it.

    Attributes:
        workspace: Id of the workspace.
        mailbox: The mailbox.
        domain: What follows the `@` of its address.
    """

    workspace: str
    mailbox: Mailbox
    domain: str | None = attrs.field(init=False)

    @domain.default
    def _domain(self) -> str | None:
        return domain_of(self.mailbox.email)


def check(mailbox: Mailbox, *, workspace: str = "", domain: DomainFacts | None = None) -> list[Finding]:
    """Judge one mailbox by every rule.

    Args:
        mailbox: The mailbox (section "Mailbox" of the interface).
        workspace: Id of its workspace, for the findings.
        domain: What is known of its domain; by default, that it sends from this mailbox alone.

    Returns:
        A finding for each rule that applies, in the rules' order.
    """
    return judge(Seen(workspace, mailbox), domain)


def judge(box: Seen, facts: DomainFacts | None) -> list[Finding]:
    """Judge a mailbox in the light of what is known of its domain."""
    case = Case(box.mailbox, facts or DomainFacts(daily_limit=amount(box.mailbox.daily_limit)))
    return [finding for rule in RULES if (finding := _apply(rule, box, case))]


def domain_facts(seen: Iterable[Seen]) -> dict[str, DomainFacts]:
    """Return what is known of each domain; a mailbox that two workspaces share counts once."""
    limits: defaultdict[str, dict[tuple[str, str], Number]] = defaultdict(dict)
    for box in seen:
        if box.domain is not None:
            limits[box.domain][box.mailbox.id, box.mailbox.email] = amount(box.mailbox.daily_limit)
    return {domain: DomainFacts(daily_limit=sum(each.values())) for domain, each in limits.items()}


def _apply(rule: MailboxRule, box: Seen, case: Case) -> Finding | None:
    sign = rule.applies(case, rule.thresholds)
    if sign is None:
        return None
    return Finding(
        rule=rule.id,
        severity=rule.grade(sign.figure),
        workspace=box.workspace,
        mailbox=box.mailbox.id,
        email=box.mailbox.email,
        domain=box.domain,
        message=sign.message,
        remedy=rule.remedy_for(box.domain),
        confidence="high" if sign.sure else "low",
        sent_30days=amount(box.mailbox.sent_30days),
    )
