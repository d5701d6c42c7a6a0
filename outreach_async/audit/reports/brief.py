"""Daily brief: one page on what has changed since the last brief, and what needs a person.

A brief summarizes a report and compares it with an earlier one. Findings of one rule become one task with a remedy, however many
mailboxes they are about. `build_brief` and `build_baseline` are pure functions: read and write the files as you like.

```python
import json
from pathlib import Path

import anyio
from outreach_async import OutreachClient
from outreach_async.atomic import atomic_write
from outreach_async.audit import Report, audit
from outreach_async.audit.reports.brief import build_baseline, build_brief
from outreach_async.audit.reports import write_brief


async def main() -> None:
    path = Path("last.json")
    earlier = Report.from_dict(json.loads(path.read_bytes())) if path.exists() else None
    async with OutreachClient() as client:
        report = await audit(client, ["space_1"])
    brief = build_brief(report, earlier)
    for task in brief.tasks:
        print(task.severity, task.title, task.mailboxes, task.new)  # -> error No SPF 1 0
    print(write_brief(brief, "markdown").splitlines()[0])  # -> # Outreach brief
    if baseline := build_baseline(report, earlier):
        atomic_write(path, json.dumps(baseline.to_dict()))


anyio.run(main)
```

The command `outreach-async brief --since last.json` does the same. The file is a JSON report, such as `audit --output` writes.

Workspaces that cannot be read
------------------------------
If a workspace cannot be read completely, `build_baseline` keeps what the earlier report knew about it: its findings, unless they
were checked again, and its campaigns. The next brief that can read the workspace compares it with that. Nothing is reported as
new twice, and no e-mail or reply is missing from the sums. `Report.last_read` holds the times. If nothing could be read, the
baseline is the earlier report, unchanged. A workspace that the later audit does not cover is dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from outreach_async.audit.findings import Finding, Severity
from outreach_async.audit.report import Delta, Diff, Report, compare_reports
from outreach_async.audit.reports.summary import Action, build_actions
from outreach_async.audit.reports.view import format_verdict
from outreach_async.audit.rules import UNREADABLE
from outreach_async.audit.values import to_json_values

__all__ = ["Brief", "Task", "WorkspaceBrief", "build_baseline", "build_brief"]

BRIEF_VERSION: Final = 1
"""Version of the JSON format of briefs."""


@attrs.frozen(kw_only=True)
class Task(Action):
    """The findings of one rule, with the action that they need. The other attributes are those of an action in a report.

    Attributes:
        new: Number of findings that the earlier report does not have.
        new_groups: Domains, servers or workspaces of the new findings, each with its number of findings.
        worse: Number of findings that were milder in the earlier report.

    Example:
        ```python
        (task,) = build_brief(await audit(client, ["space_1"])).tasks
        print(task.severity, task.rule, task.title, task.extent)  # -> error OA101 No SPF 1 mailbox on north.example
        ```
    """

    new: int
    new_groups: list[tuple[str, int]]
    worse: int


@attrs.frozen(kw_only=True)
class WorkspaceBrief:
    """A workspace in a brief.

    Attributes:
        id: Id of the workspace.
        mailboxes: Number of checked mailboxes.
        score: Score of its mailboxes; `None` if no mailbox was checked.
        score_before: Score in the earlier report; `None` if there was none.
        error: Description of the error, if the workspace could not be read completely; otherwise `None`.
        since: Time since which its changes are counted, in Unix seconds; `None` if the earlier report does not cover it.

    Example:
        ```python
        brief = build_brief(await audit(client, ["space_1"]))
        print(brief.workspaces[0].id, brief.workspaces[0].score, brief.workspaces[0].since)  # -> space_1 89.8 None
        ```
    """

    id: str
    mailboxes: int
    score: float | None
    score_before: float | None
    error: str | None
    since: float | None


@attrs.frozen(kw_only=True)
class Brief:
    """One page on what has changed, and what needs a person.

    Attributes:
        at: Time of the audit, in Unix seconds.
        since: Time of the earlier audit, in Unix seconds; `None` in the first brief.
        verdict: Conclusion in one or two sentences.
        mailboxes: Number of checked mailboxes.
        score: Score of all mailboxes; `None` if no mailbox was checked.
        score_before: Score in the earlier report; `None` if there was none.
        counts: Number of findings by severity.
        new: Number of findings that the earlier report does not have.
        unchanged: Number of findings that both reports have.
        not_judged: Number of earlier findings that could not be checked again.
        workspaces: The workspaces, in the order of the audit.
        dropped: Ids of workspaces that only the earlier report covers.
        tasks: What needs a person, the most urgent first: warnings or worse. Of one severity, new and worse findings come first.
        resolved: Earlier findings that no longer apply, by rule.

    Example:
        ```python
        before = await audit(client, ["space_1"])
        fake.set_mailbox("mailbox_2", spf=True)
        brief = build_brief(await audit(client, ["space_1"]), before)
        print(brief.verdict, [task.title for task in brief.resolved])  # -> No problems found. ['No SPF']
        ```
    """

    at: float
    since: float | None
    verdict: str
    mailboxes: int
    score: float | None
    score_before: float | None
    counts: dict[Severity, int]
    new: int
    unchanged: int
    not_judged: int
    workspaces: list[WorkspaceBrief]
    dropped: list[str]
    tasks: list[Task]
    resolved: list[Task]

    def to_dict(self) -> dict[str, Any]:
        """Return the brief as JSON-compatible values; `outreach_async.audit.reports.brief_schema()` describes them.

        Example:
            ```python
            brief = build_brief(await audit(client, ["space_1"]))
            print(brief.to_dict()["version"], brief.to_dict()["counts"]["error"])  # -> 1 1
            ```
        """
        return {"version": BRIEF_VERSION, **to_json_values(self)}


def build_brief(report: Report, earlier: Report | None = None) -> Brief:
    """Summarize a report, and compare it with an earlier one. This function performs no I/O.

    Args:
        report: The report of an audit.
        earlier: The baseline of the last brief, or any earlier report; `None` for the first brief.

    Example:
        ```python
        brief = build_brief(await audit(client, ["space_1"]))
        print(brief.verdict, brief.since)  # -> Fix 1 mailbox on north.example today; nothing is critical. None
        ```
    """
    findings, diff = _compare(report, earlier)
    worse = Counter(delta.rule for delta in diff.deltas if _is_worse(delta))
    return Brief(
        at=report.at,
        since=earlier.at if earlier else None,
        verdict=format_verdict(report),
        mailboxes=report.mailboxes,
        score=report.scores.overall,
        score_before=earlier.scores.overall if earlier else None,
        counts=report.counts,
        new=len(diff.new),
        unchanged=len(diff.unchanged),
        not_judged=len(diff.not_judged),
        workspaces=[_build_workspace(workspace, report, earlier) for workspace in report.workspaces],
        dropped=diff.removed_workspaces,
        tasks=_build_tasks([finding for finding in findings if finding.severity.reaches(Severity.WARNING)], worse, report),
        resolved=_build_tasks(diff.resolved, Counter(), report),
    )


def _compare(report: Report, earlier: Report | None) -> tuple[list[Finding], Diff]:
    if earlier is None:
        return report.findings, Diff(at=0.0, new=[], unchanged=[], resolved=[])
    return compare_reports(earlier, report)


def _is_worse(delta: Delta) -> bool:
    return delta.figure == "severity" and (delta.before or 0) < (delta.after or 0)


def _build_tasks(findings: Sequence[Finding], worse: Mapping[str | None, int], report: Report) -> list[Task]:
    used = report.policy
    news = {action.rule: action for action in build_actions([each for each in findings if each.state == "new"], used)}
    tasks = [
        Task(
            **attrs.asdict(action, recurse=False),
            new=news[action.rule].findings if action.rule in news else 0,
            new_groups=news[action.rule].groups if action.rule in news else [],
            worse=worse.get(action.rule, 0),
        )
        for action in build_actions(findings, used)
    ]
    return sorted(tasks, key=lambda task: (task.severity.rank, not (task.new or task.worse)))


def _build_workspace(workspace: str, report: Report, earlier: Report | None) -> WorkspaceBrief:
    score = report.scores.workspaces.get(workspace)
    before = earlier.scores.workspaces.get(workspace) if earlier else None
    errors = [finding.message for finding in report.findings if finding.rule == UNREADABLE.id and finding.workspace == workspace]
    return WorkspaceBrief(
        id=workspace,
        mailboxes=score.mailboxes if score else 0,
        score=score.score if score else None,
        score_before=before.score if before else None,
        error=next(iter(errors), None),
        since=_last_read(earlier).get(workspace),
    )


def _last_read(report: Report | None) -> dict[str, float]:
    """Return the time at which each workspace of a baseline was last read completely, in Unix seconds."""
    if report is None:
        return {}
    unread = set(report.unreadable)
    return {workspace: report.at for workspace in report.workspaces if workspace not in unread} | report.last_read


def build_baseline(report: Report, earlier: Report | None = None) -> Report | None:
    """Return the report to compare the next brief with. This function performs no I/O.

    It is `report`, with what `earlier` knew about everything that could not be read this time: earlier findings that could not be
    checked again, and the score of each workspace that could not be read completely.

    Args:
        report: The report of an audit.
        earlier: The earlier baseline; `None` for the first brief.

    Returns:
        The baseline. If nothing could be read, it is `earlier`, unchanged.

    Example:
        ```python
        first = await audit(client, ["space_1"])
        later = await audit(client, ["space_1", "space_gone"])
        print(build_baseline(later, first).workspaces, build_baseline(first) == first)  # -> ['space_1', 'space_gone'] True
        ```
    """
    unread = set(report.unreadable)
    if report.mailboxes == 0 and unread.issuperset(report.workspaces):
        return earlier
    if earlier is None:
        return report
    compared = report.since(earlier)
    covered, off = unread.intersection(earlier.workspaces), set(report.policy.off)
    unchecked = compared.diff.not_judged if compared.diff else []
    kept = [finding for finding in unchecked if finding.workspace in report.workspaces and finding.rule not in off]
    scores = {key: score for key, score in earlier.scores.workspaces.items() if key in covered}
    return attrs.evolve(
        compared,
        diff=None,
        findings=sorted([*report.findings, *kept], key=lambda finding: finding.severity.rank),
        scores=attrs.evolve(report.scores, workspaces=report.scores.workspaces | scores),
        last_read={key: at for key, at in _last_read(earlier).items() if key in covered},
    )
