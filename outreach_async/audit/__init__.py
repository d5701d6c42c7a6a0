"""The mailbox audit: which mailboxes are unsafe, why, and what to do about it.

    report = await audit(client, ["space_1", "space_2"])

`check` judges one mailbox. `text.report_text` and `terminal.report_renderable` write a report for people.
"""

from __future__ import annotations

from outreach_async.audit.conditions import DomainFacts
from outreach_async.audit.findings import Finding, Severity
from outreach_async.audit.judging import check
from outreach_async.audit.report import Report
from outreach_async.audit.rules import CATALOGUE, RULES, MailboxRule, Rule
from outreach_async.audit.run import audit
from outreach_async.audit.scores import Score, Scores, mailbox_score

__all__ = [
    "CATALOGUE",
    "RULES",
    "DomainFacts",
    "Finding",
    "MailboxRule",
    "Report",
    "Rule",
    "Score",
    "Scores",
    "Severity",
    "audit",
    "check",
    "mailbox_score",
]
