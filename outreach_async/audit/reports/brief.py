"""Build a daily brief: a one-page summary of the changes since the last brief, and of the open tasks.

The findings with the same rule and severity become one task with a remedy. A history stores what the next brief compares with:

```python
import anyio
from outreach_async import OutreachClient
from outreach_async.audit import audit
from outreach_async.audit.history import History, Readings
from outreach_async.audit.reports import write
from outreach_async.audit.reports.brief import build_brief


async def main() -> None:
    history, readings = History("history.db"), Readings()
    async with OutreachClient() as client:
        report = await audit(client, ["space_1"], campaigns=True, readings=readings)
    brief = build_brief(report, history.baseline(report.workspaces))
    for task in brief.tasks:
        print(task.severity, task.title, "-", task.remedy)
    # -> error No SPF - Publish one TXT record ...
    for campaign in brief.campaigns or []:
        print(campaign.name, campaign.sent, campaign.new_sent)  # -> Spring 0 None
    print(write(brief, "markdown").splitlines()[0])  # -> # Outreach brief
    history.append(report, readings)


anyio.run(main)
```

The command `outreach-async brief --history history.db` does the same.

If a workspace cannot be read completely, `History.baseline` returns its earlier reading, with which the next brief that can read
it compares: each finding is reported as new only once, and each increase of a number is counted exactly once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import attrs

from outreach_async.audit._findings import Severity
from outreach_async.audit._report import ChangeCounts, Report
from outreach_async.audit._rules import INCOMPLETE
from outreach_async.audit._values import format_time, replace_unprintable, to_json_values
from outreach_async.audit.campaigns import CampaignRow
from outreach_async.audit.reports._summary import Summary, Task, summarize, workspace_label
from outreach_async.errors import format_count
from outreach_async.models import Number

__all__ = ["Brief", "CampaignBrief", "ChangeCounts", "Task", "WorkspaceBrief", "build_brief"]

BRIEF_VERSION: Final = 1
_MAX_GAPS: Final = 5  # workspaces that a brief lists as missing or out of date
_GROWING: Final = {"new_contacts": "contacts", "new_sent": "sent", "new_replies": "replies_num", "new_bounces": "bounces_num"}
_COPIED: Final = ("id", "name", "workspace", "status", *_GROWING.values(), "left_to_send", "end")


@attrs.frozen(kw_only=True)
class WorkspaceBrief:
    """A workspace in a brief: its score, and whether it could be read.

    Attributes:
        id: Id of the workspace.
        mailboxes: Number of checked mailboxes.
        score, score_before: Score of its mailboxes, and in the earlier report; `None` without checked mailboxes.
        error: Description of the error, if the workspace could not be read completely; otherwise `None`.
        since: Start of the period whose changes are counted, in Unix seconds; `None` if the earlier report does not cover it.

    Example:
        ```python
        print(build_brief(report).workspaces[0].score)  # -> 74.5
        ```
    """

    id: str
    mailboxes: int
    score: float | None
    score_before: float | None
    error: str | None
    since: float | None


@attrs.frozen(kw_only=True)
class CampaignBrief:
    """A campaign in a brief. Unknown numbers are `None`.

    Attributes:
        id, name, workspace, status, contacts, sent, replies_num, bounces_num, left_to_send: As in `CampaignRow`.
        status_before: Status in the earlier report; `None` if the earlier report does not contain the campaign.
        new_contacts, new_sent, new_replies, new_bounces: Increase of each number since the earlier report; `None` if the number
            has decreased.
        end, end_before: Estimated end, now and in the earlier report, in Unix seconds; `None` if it has ended or has no estimate.

    Example:
        ```python
        fake.advance(days=1)
        (campaign,) = build_brief(await audit(client, ["space_1"], campaigns=True), report).campaigns
        print(campaign.name, campaign.status, campaign.new_sent)  # -> Spring live 40
        ```
    """

    id: str
    name: str
    workspace: str
    status: str
    status_before: str | None
    contacts: Number | None
    sent: Number | None
    replies_num: Number | None
    bounces_num: Number | None
    left_to_send: Number | None
    new_contacts: Number | None
    new_sent: Number | None
    new_replies: Number | None
    new_bounces: Number | None
    end: Number | None
    end_before: Number | None


@attrs.frozen(kw_only=True)
class Brief(Summary):
    """A one-page summary of changes and open tasks. An audit of the same workspaces has the same verdict, counts and tasks.

    Attributes:
        at, since: Times of the audit and of the earlier one, in Unix seconds; `since` is `None` in the first brief.
        size, verdict: Numbers of mailboxes, domains, workspaces and campaigns, and the conclusion, as text.
        mailboxes, names, service_clock: As in `Report`.
        score, score_before: Score of all mailboxes, and in the earlier report; `None` without checked mailboxes.
        counts: Number of findings by severity.
        changes: How the findings of the earlier report and of this one add up; `None` in the first brief.
        stop: Subjects of critical findings, such as the addresses of mailboxes that must stop sending.
        workspaces: The workspaces, in the order of the audit.
        dropped: Ids of workspaces that only the earlier report covers.
        tasks: The open tasks, the most severe first, and within a severity those with news. Notes are in it only if some are new.
        resolved: Earlier findings that no longer apply, by rule and severity, without notes.
        campaigns: The campaigns, grouped by workspace, those that sent most since the earlier report first; `None` if not read.

    Example:
        ```python
        fake.set_mailbox("mailbox_2", spf=True)
        brief = build_brief(await audit(client, ["space_1"]), report)
        print(brief.verdict, [task.title for task in brief.resolved])  # -> No problems found. ['No SPF']
        ```
    """

    title: ClassVar[str] = "Outreach brief"

    workspaces: list[WorkspaceBrief]
    dropped: list[str]
    campaigns: list[CampaignBrief] | None

    @property
    def gaps(self) -> list[tuple[str, str]]:
        """A workspace and a description for each gap in the data. No workspace is named if the gap concerns several."""
        described = ((workspace.id, _describe_gap(workspace, self.since)) for workspace in self.workspaces)
        gaps = [(id_, text) for id_, text in described if text] + [(id_, "is no longer covered.") for id_ in self.dropped]
        shown = [(workspace_label(id_, self.names), replace_unprintable(text)) for id_, text in gaps[:_MAX_GAPS]]
        if len(gaps) > _MAX_GAPS:
            shown.append(("", f"and {format_count(len(gaps) - _MAX_GAPS, 'more workspace')}"))
        if self.changes and self.changes.not_judged:
            shown.append(("", f"{format_count(self.changes.not_judged, 'earlier finding')} could not be checked again."))
        return shown

    @property
    def resolved_notes(self) -> int:
        """Number of resolved notes, which `resolved` leaves out."""
        return self.changes.resolved - sum(task.findings for task in self.resolved) if self.changes else 0

    def to_dict(self) -> dict[str, Any]:
        """Return the brief as JSON-compatible values; `outreach_async.audit.reports.schema(Brief)` describes them.

        Example:
            ```python
            print(build_brief(report).to_dict()["counts"]["error"])  # -> 1
            ```
        """
        return {"version": BRIEF_VERSION, **to_json_values(self)}


def build_brief(report: Report, earlier: Report | None = None) -> Brief:
    """Summarize a report, and compare it with an earlier report. This function performs no I/O.

    Args:
        report: The report of an audit.
        earlier: The baseline in a history, or any earlier report; `None` for the first brief.

    Example:
        ```python
        print(build_brief(report).verdict)  # -> Fix 1 mailbox on 1 domain today; nothing is critical.
        ```
    """
    compared = report.since(earlier) if earlier else attrs.evolve(report, diff=None)
    summary = summarize(compared)
    about = attrs.asdict(summary, recurse=False)
    about |= {
        "tasks": [task for task in summary.tasks if task.severity.reaches(Severity.WARNING) or task.new],
        "resolved": [task for task in summary.resolved if task.severity.reaches(Severity.WARNING)],
    }
    # The first error about each workspace. Those about single mailboxes are none of the workspace.
    unread = [finding for finding in report.findings if finding.rule in INCOMPLETE and not finding.mailbox]
    errors = {finding.workspace: finding.message for finding in reversed(unread)}
    return Brief(
        workspaces=[_build_workspace(workspace, report, earlier, errors) for workspace in report.workspaces],
        dropped=compared.diff.removed_workspaces if compared.diff else [],
        campaigns=_build_campaigns(report, earlier),
        **about,
    )


def _describe_gap(workspace: WorkspaceBrief, since: float | None) -> str:
    if workspace.error is not None:
        read = f"last read {format_time(workspace.since)}" if workspace.since else "never read before"
        return f"{workspace.error} ({read})"
    if since is not None and workspace.since is None:
        return "is covered for the first time."
    if workspace.since != since:
        return f"is compared with an older audit ({format_time(workspace.since or 0)})."
    return ""


def _build_workspace(workspace: str, report: Report, earlier: Report | None, errors: Mapping[str, str]) -> WorkspaceBrief:
    score = report.scores.workspaces.get(workspace)
    before = earlier.scores.workspaces.get(workspace) if earlier else None
    since = None
    if earlier:
        was_read = workspace in earlier.workspaces and workspace not in earlier.unreadable
        since = earlier.last_read.get(workspace, earlier.at if was_read else None)
    return WorkspaceBrief(
        id=workspace,
        mailboxes=score.mailboxes if score else 0,
        score=score.score if score else None,
        score_before=before.score if before else None,
        error=errors.get(workspace) if workspace in report.unreadable else None,
        since=since,
    )


def _build_campaigns(report: Report, earlier: Report | None) -> list[CampaignBrief] | None:
    if report.campaigns is None:
        return None
    before = {(row.workspace, row.id): row for row in earlier.campaigns.rows} if earlier and earlier.campaigns else {}
    since = earlier.at if earlier else math.inf
    places = {workspace: place for place, workspace in enumerate(report.workspaces)}
    campaigns = [_build_campaign(row, before.get((row.workspace, row.id)), since) for row in report.campaigns.rows]
    return sorted(campaigns, key=lambda campaign: (places.get(campaign.workspace, len(places)), -(campaign.new_sent or 0)))


def _build_campaign(row: CampaignRow, before: CampaignRow | None, since: float) -> CampaignBrief:
    # If the campaign was created after the earlier audit, all of its numbers are new.
    start = 0 if (row.created or 0) > since else None
    figures: dict[str, Any] = {}
    for new, name in _GROWING.items():
        now, was = getattr(row, name), getattr(before, name) if before else start
        figures[new] = None if now is None or was is None or now < was else now - was
    return CampaignBrief(
        **{name: getattr(row, name) for name in _COPIED},
        **figures,
        status_before=before.status if before else None,
        end_before=before.end if before else None,
    )
