"""Audit mailboxes and campaigns: find problems, and report the cause and a remedy for each.

This program checks every mailbox of two workspaces. `outreach-async audit --workspace all --output-folder reports` does so for
all that a configuration file names (`outreach_async.config`), and writes a page for each, to send to a client. Whatever cannot be
read is a finding. Audits need no API key:

```python
import anyio
from outreach_async import OutreachClient
from outreach_async.audit import audit


async def main() -> None:
    async with OutreachClient() as client:
        report = await audit(client, ["space_1", "space_gone"])
    for finding in report.findings:
        print(finding.severity, finding.rule, finding.email, "-", finding.message)
    # -> error OA101 bob@north.example - no SPF record
    # -> error OA901 None - ...
    print(report.unreadable, report.exit_code())  # -> ['space_gone'] 3


anyio.run(main)
```

Rules
-----
`RULES` lists the rules. Most check one mailbox; some check all mailboxes of a domain or server. With `campaigns=True`, an audit
also checks campaigns: see `outreach_async.audit.campaigns`. `CATALOGUE` also has the rules about reading errors (`OA9..`), which
make an audit incomplete. `explain("OA170")` describes a rule and the source of its thresholds.

A finding has a severity (`critical`, `error`, `warning`, `info`), a message with the relevant numbers, and a remedy.
`confidence` is `low` if the sample is too small: 1 bounce in 10 e-mails proves little. The severity of a bounce rate therefore
depends on its exact lower bound with 95 % confidence. A mailbox scores 100, multiplied by 0.1 for each critical finding, 0.5 for
each error and 0.9 for each warning; see `Scores`. `report.exit_code("warning")` returns 77 if access was denied, 3 if the audit
is incomplete, 1 if any finding is a warning or worse, and 0 otherwise. `check(mailbox)` checks a single mailbox.

Policies
--------
A policy turns rules off and changes thresholds. Load it from a TOML file with `Policy.load`, or pass the same keys as a mapping
to `Policy.of`. Unknown keys are rejected; the error suggests a similar key. The report states the name of its policy.

To add a rule of your own, write a function that takes a `Case` (the mailbox and its context) and returns a `Violation` if it is
broken. Choose an id that does not start with `OA`; that prefix is reserved:

```python
import anyio
import attrs
from outreach_async import OutreachClient
from outreach_async.audit import Case, Policy, Rule, Severity, Violation, audit


def quiet(case: Case, thresholds: object) -> Violation | None:
    return Violation("not in any campaign") if case.mailbox.campaigns == 0 else None


policy = Policy.of({"name": "ours", "off": ["OA101"], "OA170": {"mailboxes": 1}})
about = {"title": "Without a campaign", "wording": "campaigns is 0", "source": "our own rule", "remedy": "Use it."}
rule = Rule(id="MY001", severity=Severity.INFO, applies=quiet, **about)
policy = attrs.evolve(policy, rules=(*policy.rules, rule))


async def main() -> None:
    async with OutreachClient() as client:
        report = await audit(client, ["space_1"], policy=policy)
    for finding in report.findings:
        print(finding.rule, finding.domain, finding.message)
    # -> OA170 north.example 2 mailboxes share this domain
    # -> MY001 north.example not in any campaign


anyio.run(main)
```

Comparing reports, and writing them to files
--------------------------------------------
`since` compares a report with an earlier one, and marks findings as `new` or `unchanged`. `diff` has the resolved findings, those
that could not be checked this time, and the changed numbers. `outreach_async.audit.history` stores every audit in one file, and
compares with the last. `to_dict` and `Report.from_dict` convert a report to and from JSON.

`outreach_async.audit.reports.write(report, form)` renders a report as `terminal`, `json`, `csv`, `markdown` or `html` (one page;
extra `html`); `schema()` is the JSON schema. `write_prometheus(report, "audit.prom")` writes gauges for node_exporter.
`reports.folder` writes a page for each workspace. `audit(client, ids, names={"space_1": "acme"})` shows names beside ids in
every report, and as the label `name` of gauges.

Streaming
---------
`stream` yields findings while mailboxes are being read, and waits until they have been consumed. It stores about 50 bytes for a
mailbox, 60 more if it has findings, and 200 for each domain and server. Findings about a domain or a server, and those that
depend on the whole domain (`OA101` to `OA103`), come last. The report is available once the iteration ends. Meanwhile,
`findings.progress` shows what was read, the time left, and why it is paused.

Auditing in parts
-----------------
`audit_part` audits some of the workspaces, in another process or on another host, and `merge` combines the parts into the report
that one `audit` of all workspaces would return: see `outreach_async.audit.parts`.
"""

from __future__ import annotations

from outreach_async.audit._campaign_conditions import CampaignCase, StepCase
from outreach_async.audit._campaign_evaluation import check_campaign
from outreach_async.audit._conditions import Case, DomainFacts
from outreach_async.audit._evaluation import check
from outreach_async.audit._findings import Finding, Group, Row, Rule, Severity, Violation
from outreach_async.audit._meter import AuditProgress
from outreach_async.audit._prometheus import write_prometheus
from outreach_async.audit._report import ChangeCounts, Delta, Diff, HistoryPoint, Report
from outreach_async.audit._rules import CATALOGUE, RULES
from outreach_async.audit._run import AuditRun, Findings, audit, stream
from outreach_async.audit._scoring import Score, Scores
from outreach_async.audit.campaigns import CampaignResults, CampaignRow, CampaignTotals
from outreach_async.audit.parts import AuditPart, audit_part, merge
from outreach_async.audit.policy import Policy, PolicyUsed, explain

__all__ = [
    "CATALOGUE",
    "RULES",
    "AuditPart",
    "AuditProgress",
    "AuditRun",
    "CampaignCase",
    "CampaignResults",
    "CampaignRow",
    "CampaignTotals",
    "Case",
    "ChangeCounts",
    "Delta",
    "Diff",
    "DomainFacts",
    "Finding",
    "Findings",
    "Group",
    "HistoryPoint",
    "Policy",
    "PolicyUsed",
    "Report",
    "Row",
    "Rule",
    "Score",
    "Scores",
    "Severity",
    "StepCase",
    "Violation",
    "audit",
    "audit_part",
    "check",
    "check_campaign",
    "explain",
    "merge",
    "stream",
    "write_prometheus",
]
