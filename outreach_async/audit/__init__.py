"""Audit mailboxes and campaigns for problems.

Each problem is reported with its cause and a remedy.
`outreach-async audit --workspace all --output-folder reports` checks all
workspaces that a configuration file names (`outreach_async.config`), and
writes a page for each, to send to a client. Audits need no API key, and
whatever cannot be read is a finding:

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
`RULES` lists the rules about mailboxes, their domains and servers, and,
with `campaigns=True`, about campaigns (`outreach_async.audit.campaigns`).
`CATALOGUE` also has those about reading errors (`OA9..`), which make an
audit incomplete. `explain("OA170")` describes a rule and the source of its
thresholds. `check(mailbox)` checks a single mailbox.

A finding has a severity (`critical`, `error`, `warning`, `info`), a
message with the relevant numbers, and a remedy. `report.actions` says what
to do with each mailbox, from all findings about it, its domain and its
server: `stop` sending after a critical one, `fix` it today after an error,
`watch` it after a warning. The headline, every list of what to pause, CSV,
Slack and histories take it from there. `confidence` is `low` if
the sample is too small: 1 bounce in 10 e-mails proves little. The severity
of a bounce rate therefore depends on its exact lower bound with 95 %
confidence. A mailbox scores 100, multiplied by 0.1 for each critical
finding, 0.5 for each error and 0.9 for each warning; see `Scores`.
`report.exit_code("warning")` returns 77 if the service denied access to
every workspace, 3 if the audit is incomplete, 1 if any finding is a
warning or worse, and 0 otherwise. `pandas.DataFrame(report.findings)` is a
table of the findings; the same works for `actions`, `rows`, `groups` and
`campaigns.rows`, and with `polars.DataFrame`.

Policies
--------
A policy turns rules off and changes thresholds: `Policy.load` reads it
from a TOML file, and `Policy.of` takes the same keys, as in
`Policy.of({"name": "ours", "off": ["OA101"], "OA170": {"mailboxes": 1}})`.

Comparing reports, and writing them to files
--------------------------------------------
`since` compares a report with an earlier one, and marks findings as `new`
or `unchanged`. `diff` has the resolved findings, those that could not be
checked this time, and the changed numbers. `outreach_async.audit.history`
stores every audit in one file, and compares with the last.

`outreach_async.audit.reports.write(report, form)` renders a report as
`terminal`, `json` (`schema()` describes it), `csv`, `markdown`, `html`
(one page; extra `html`) or `prometheus` (gauges for the textfile collector
of node_exporter), and `render_folder` a page for each workspace. Write
gauges to a temporary file in the same folder under a name without `.prom`,
and rename it with `os.replace`: node_exporter may read a file that is half
written. `audit --output FILE.prom` does that. `audit(client, ids,
names={"space_1": "acme"})` shows names beside ids everywhere, and as the
label `name` of gauges.

Streaming
---------
`stream` yields findings while mailboxes are being read, and waits until
they have been consumed. 100,000 mailboxes, all with findings, take at most
200 MiB. `findings.progress` shows what was read, the time left, and why it
is paused; the report is available once the iteration ends. `clients` names
a client for each workspace that has a rate of its own.
"""

from __future__ import annotations

from outreach_async.audit._evaluation import Score, Scores, check
from outreach_async.audit._findings import Finding, Group, MailboxAction, Row, Rule, Severity
from outreach_async.audit._report import ChangeCounts, Delta, Diff, HistoryPoint, Report
from outreach_async.audit._rules import CATALOGUE, RULES
from outreach_async.audit._run import AuditProgress, AuditRun, audit, stream
from outreach_async.audit.campaigns import CampaignResults, CampaignRow, CampaignTotals
from outreach_async.audit.policy import Policy, explain

__all__ = [
    "CATALOGUE",
    "RULES",
    "AuditProgress",
    "AuditRun",
    "CampaignResults",
    "CampaignRow",
    "CampaignTotals",
    "ChangeCounts",
    "Delta",
    "Diff",
    "Finding",
    "Group",
    "HistoryPoint",
    "MailboxAction",
    "Policy",
    "Report",
    "Row",
    "Rule",
    "Score",
    "Scores",
    "Severity",
    "audit",
    "check",
    "explain",
    "stream",
]
