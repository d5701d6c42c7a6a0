"""The mailbox audit: which mailboxes are unsafe, why, and what to do about it.

    report = await audit(client, ["space_1", "space_2"])
    report = report.since(Report.from_dict(yesterday))

`check` judges one mailbox, `stream` hands findings out while mailboxes are read, `Policy` says by which rules, and `explain` says
what a rule rests on.
"""

from __future__ import annotations

from outreach_async.audit.diff import Delta, Diff
from outreach_async.audit.findings import Finding, Severity
from outreach_async.audit.groups import Group, Row
from outreach_async.audit.judging import check
from outreach_async.audit.policy import Policy, PolicyUsed, explain
from outreach_async.audit.report import Report
from outreach_async.audit.rule import DomainRule, MailboxRule, Rule, ServerRule
from outreach_async.audit.rules import CATALOGUE, RULES
from outreach_async.audit.run import AuditRun, Findings, audit, stream
from outreach_async.audit.scores import Score, Scores, mailbox_score
from outreach_async.audit.shared import DomainFacts, ServerFacts

__all__ = [
    "CATALOGUE",
    "RULES",
    "AuditRun",
    "Delta",
    "Diff",
    "DomainFacts",
    "DomainRule",
    "Finding",
    "Findings",
    "Group",
    "MailboxRule",
    "Policy",
    "PolicyUsed",
    "Report",
    "Row",
    "Rule",
    "Score",
    "Scores",
    "ServerFacts",
    "ServerRule",
    "Severity",
    "audit",
    "check",
    "explain",
    "mailbox_score",
    "stream",
]
