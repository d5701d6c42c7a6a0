"""The mailbox audit: which mailboxes are unsafe, why, and what to do about it.

The smallest program reads every mailbox of some workspaces and judges it. What cannot be read is a finding, and the rest is
judged all the same. Programs here take the service from `OUTREACH_BASE_URL`; reading needs no key:

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
`RULES` holds every rule: most judge one mailbox, some the mailboxes of a domain or a sending server together. `CATALOGUE` has
them by id, with the three that say something was not read (`OA901` to `OA903`). `explain` tells what a rule finds, from which
figures on, where those come from, and what to do:

```python
from outreach_async.audit import RULES, explain

print(len(RULES), "rules")  # -> 20 rules
print(explain("OA170"))
# -> OA170  Too many mailboxes on a domain
# -> Severity: warning
# -> Condition: more than 5 mailboxes share a domain
# -> Thresholds: mailboxes 5
# -> Source: ...
# -> Remedy: Send from more domains with fewer mailboxes each: what one of them does harms all on <domain>.
```

A finding has a severity (`critical`, `error`, `warning`, `info`), a message with its figures, and a remedy. `confidence` is
`low` where the figures are too few to be sure: 1 bounce of 10 proves little, so rates count by their lower 95 % bound. A
mailbox has 100 points, from which each rule takes 40, 20, 8 or 0 by its severity; `report.scores` has the means, weighted by
what was sent, by workspace and domain. `report.exit_code("warning")` is what a command should exit with: 0 clean, 1 findings
from that severity on, 3 incomplete, 77 nothing may be read.

One mailbox at hand needs no audit: `check(mailbox)` judges it by the rules about one mailbox.

Policies
--------
A policy turns rules off and moves thresholds; from a TOML file by `Policy.load`, or from the same keys as a mapping. Wrong keys
are refused with a guess at what was meant. The report says which policy it was judged by. A rule of your own is a function of
what is known of a mailbox, `Case`, that returns a `Sign` where it applies. Ids that begin with other letters than `OA` stay
yours:

```python
import anyio
import attrs
from outreach_async import OutreachClient
from outreach_async.audit import Case, MailboxRule, Policy, Severity, Sign, audit


def quiet(case: Case, thresholds: object) -> Sign | None:
    return Sign("it is in no campaign") if case.mailbox.campaigns == 0 else None


policy = Policy.of({"name": "ours", "off": ["OA101"], "OA170": {"mailboxes": 1}})
about = {"title": "Without a campaign", "wording": "campaigns is 0", "source": "what we agreed on", "remedy": "Use it."}
rule = MailboxRule(id="MY001", severity=Severity.INFO, applies=quiet, **about)
policy = attrs.evolve(policy, mailbox_rules=(*policy.mailbox_rules, rule))


async def main() -> None:
    async with OutreachClient() as client:
        report = await audit(client, ["space_1"], policy=policy)
    for finding in report.findings:
        print(finding.rule, finding.domain, finding.message)
    # -> MY001 north.example it is in no campaign
    # -> OA170 north.example 2 mailboxes share this domain


anyio.run(main)
```

Comparing, and reports for people
---------------------------------
`since` compares a report with an earlier one: each finding is `new` or `unchanged`, and `diff` has what is resolved, what could
not be judged this time, and which figures moved. `to_dict` and `from_dict` carry a report over as JSON:

```python
import json
from pathlib import Path

import anyio
from outreach_async import OutreachClient
from outreach_async.audit import Report, audit
from outreach_async.audit.outputs import write


async def main() -> None:
    async with OutreachClient() as client:
        today = await audit(client, ["space_1"])
    Path("audit.json").write_text(json.dumps(today.to_dict()))
    yesterday = Report.from_dict(json.loads(Path("audit.json").read_text()))
    compared = today.since(yesterday)
    print(len(compared.diff.new), "new,", len(compared.diff.unchanged), "unchanged,", len(compared.diff.resolved), "resolved")
    # -> 0 new, 1 unchanged, 0 resolved
    print(write(compared, "csv").splitlines()[1])  # -> OA101,error,space_1,mailbox_2,bob@north.example,...


anyio.run(main)
```

`outreach_async.audit.outputs.write(report, form)` writes `terminal`, `json`, `csv`, `markdown` or `html`, the last one a page
that needs nothing beside it; `format_of("audit.html")` tells the form by a file's name, and `schema()` is the JSON Schema of
`json`.

Streaming
---------
`stream` hands findings out while mailboxes are read, in bounded memory: mailboxes are not kept, and nobody reads on while nobody
listens. Those about a domain or a server, and some that need the whole domain, come last; the report is there at the end.

```python
import anyio
from outreach_async import OutreachClient
from outreach_async.audit import stream


async def main() -> None:
    async with OutreachClient() as client:
        async with stream(client, ["space_1"]) as findings:
            async for finding in findings:
                print(finding.rule, finding.email)  # -> OA101 bob@north.example
            print(findings.report.scores.overall)  # -> 89.8


anyio.run(main)
```
"""

from __future__ import annotations

from outreach_async.audit.conditions import Case
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
from outreach_async.audit.shared import DomainFacts, ServerFacts, Sign

__all__ = [
    "CATALOGUE",
    "RULES",
    "AuditRun",
    "Case",
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
    "Sign",
    "audit",
    "check",
    "explain",
    "mailbox_score",
    "stream",
]
