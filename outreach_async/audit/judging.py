"""Rules applied: mailboxes in, findings out. Nothing here does I/O."""

from __future__ import annotations

from functools import lru_cache

from outreach_async.audit.conditions import Case, domain_of
from outreach_async.audit.figures import amount
from outreach_async.audit.findings import Finding
from outreach_async.audit.policy import Policy
from outreach_async.audit.rule import Rule
from outreach_async.audit.shared import DomainFacts, Sign
from outreach_async.models import Mailbox, Number


def check(
    mailbox: Mailbox,
    policy: Policy | None = None,
    now: float | None = None,
    *,
    workspace: str = "",
    domain: DomainFacts | None = None,
) -> list[Finding]:
    """Judge one mailbox by every rule that is about one; those about several need `audit`.

    Args:
        mailbox: The mailbox (section "Mailbox" of the interface).
        policy: What to judge by; the default's rules if not given.
        now: When the mailbox was read, Unix seconds. Without it the service's own words tell how old it is.
        workspace: Id of its workspace, for the findings.
        domain: What is known of its domain; by default, that it sends from this mailbox alone.

    Returns:
        A finding for each rule that applies, in the rules' order.

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
    """Judge a mailbox by the rules of a policy."""
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
    """Return what a rule found about a mailbox, or else about the mailboxes of a domain or a server."""
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


@lru_cache(maxsize=4_096)  # one text for all findings of a rule on a domain
def _remedy(remedy: str, domain: str | None) -> str:
    return remedy.replace("<domain>", domain) if domain else remedy
