"""Evaluation of the rules: mailboxes in, findings out, without I/O."""

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
