"""Keep what a brief could not read: build the report with which the next brief compares. Pure."""

from __future__ import annotations

from typing import Any, Final

import attrs

from outreach_async.audit._report import Report
from outreach_async.audit._rules import INCOMPLETE
from outreach_async.audit.campaigns import MAX_CAMPAIGN_ROWS, CampaignResults, CampaignRow

FIGURES: Final = ("contacts", "sent", "replies_num", "bounces_num")
"""Campaign fields whose increase a brief shows."""


def build_baseline(report: Report, earlier: Report | None = None) -> Report | None:
    """Return the report to compare the next brief with. This function performs no I/O.

    The baseline contains the data of `report`. Data that could not be read this time is taken from `earlier`. This applies to
    findings, numbers of campaigns, and the scores of workspaces that could not be read completely.

    Args:
        report: The report of an audit.
        earlier: The baseline of the last brief; `None` for the first brief.

    Returns:
        The baseline. If nothing could be read, `earlier` is returned unchanged.

    Example:
        ```python
        first = await audit(client, ["space_1"])
        later = await audit(client, ["space_1", "space_gone"])
        print(build_baseline(later, first).workspaces, build_baseline(first) == first)  # -> ['space_1', 'space_gone'] True
        ```
    """
    unread = set(report.unreadable)
    if unread.issuperset(report.workspaces) and not report.mailboxes and not (report.campaigns and report.campaigns.checked):
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
        findings=sorted([*compared.findings, *kept], key=lambda finding: finding.severity.rank),
        scores=attrs.evolve(report.scores, workspaces=report.scores.workspaces | scores),
        campaigns=_keep_campaigns(compared, earlier),
        last_read={key: at for key, at in last_read(earlier).items() if key in covered},
    )


def _keep_campaigns(report: Report, earlier: Report) -> CampaignResults | None:
    """Return the campaigns of a report. Numbers that could not be read are taken from an earlier report."""
    if report.campaigns is None:
        return earlier.campaigns
    before = campaign_rows(earlier)
    rows = [_keep_figures(row, before.pop((row.workspace, row.id), None)) for row in report.campaigns.rows]
    # If a completely read workspace does not contain a campaign, the campaign has been deleted.
    incomplete = {finding.workspace for finding in report.findings if finding.rule in INCOMPLETE}
    missing = [row for row in before.values() if row.workspace in incomplete]
    return attrs.evolve(report.campaigns, rows=[*rows, *missing][:MAX_CAMPAIGN_ROWS])


def _keep_figures(row: CampaignRow, before: CampaignRow | None) -> CampaignRow:
    if before is None:
        return row
    figures: dict[str, Any] = {name: getattr(before, name) for name in FIGURES if getattr(row, name) is None}
    return attrs.evolve(row, **figures)


def last_read(report: Report | None) -> dict[str, float]:
    """Return the time at which each workspace of a baseline was last read completely, in Unix seconds."""
    if report is None:
        return {}
    unread = set(report.unreadable)
    return {workspace: report.at for workspace in report.workspaces if workspace not in unread} | report.last_read


def campaign_rows(report: Report | None) -> dict[tuple[str, str], CampaignRow]:
    return {(row.workspace, row.id): row for row in report.campaigns.rows} if report and report.campaigns else {}
