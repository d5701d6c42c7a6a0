"""Report the campaigns of an audit: their problems and their numbers.

`audit(client, spaces, campaigns=True)`, or `outreach-async audit --campaigns`, also reads the campaigns of each workspace: one
request for each page of 100 campaigns, one for the steps of each, and one for the fields of a workspace whose templates contain
placeholders. A finding about a campaign has its id and name, such as `error OA201 Spring - no activity for 9 days`.

The rules `OA201` to `OA290` check campaigns, their steps, and whether a workspace leaves its daily limits unused. They affect the
verdict and the exit code, but no score: scores describe mailboxes. No rule uses open rates: Apple Mail loads the images of
unopened e-mails, and causes 50 to 60 % of recorded opens (benchmarkemail 2025, citing Litmus). Every reading error is a finding
(`OA911` to `OA915`) and makes the audit incomplete; everything else is still checked.

`report.campaigns` is `None` unless the audit read campaigns. `tuesday.since(monday)` copies the first estimate of each end from
the earlier report, and rule `OA204` reports campaigns whose end slips.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs

from outreach_async.audit._findings import Finding, Severity
from outreach_async.audit._values import table_row
from outreach_async.models import CampaignStatus, Number

MAX_CAMPAIGN_ROWS: Final = 10_000  # campaigns that a report lists individually, the worst
LIVE: Final = CampaignStatus.LIVE.value


@table_row
@attrs.frozen(kw_only=True)
class CampaignRow:
    """A campaign in a report.

    A number is `None` if it is invalid, or if it is a total over steps and
    the steps were not read.

    Attributes:
        id, name, status: As the service returned them.
        workspace: Id of the workspace.
        severity: Severity of the worst finding; `None` without findings.
        rules: Ids of the rules that apply to the campaign or its steps,
            without duplicates.
        steps, contacts, replies_num, interested_num, bounces_num: Numbers
            of each, as the service counts them.
        sent, unsubscribed_num, left_to_send: E-mails sent, unsubscribes,
            and e-mails left to send, over all steps.
        opens: Open rate, in percent; no rule uses it.
        end: Estimated end, in Unix seconds; `None` if the campaign has
            ended or has no estimate.
        planned_end: First estimate of the end since contacts were last
            added, in Unix seconds; copied by `Report.since`.
        created: Creation time, in Unix seconds.
        last_activity: Time since the last activity, as text for people.

    Example:
        ```python
        print([(row.name, row.status, row.left_to_send) for row in report.campaigns.rows])  # -> [('Spring', 'live', 80)]
        ```
    """

    id: str
    name: str
    workspace: str
    status: str
    severity: Severity | None
    rules: list[str]
    steps: Number | None
    contacts: Number | None
    sent: Number | None
    opens: Number | None
    replies_num: Number | None
    interested_num: Number | None
    bounces_num: Number | None
    unsubscribed_num: Number | None
    left_to_send: Number | None
    end: Number | None
    planned_end: Number | None
    created: Number | None
    last_activity: str


@attrs.frozen(kw_only=True)
class CampaignTotals:
    """The sums over the campaigns of a workspace.

    Missing and invalid numbers count as 0.

    Attributes:
        campaigns, live: Number of campaigns, and of those that are `live`.
        contacts: Number of contacts; one in two campaigns counts twice.
        sent, replies_num, interested_num, bounces_num: Numbers of e-mails
            sent, replies, interested replies and bounces.
        left_to_send: E-mails left to send in live campaigns.

    Example:
        ```python
        print(report.campaigns.totals["space_1"].live)  # -> 1
        ```
    """

    campaigns: int = 0
    live: int = 0
    contacts: Number = 0
    sent: Number = 0
    replies_num: Number = 0
    interested_num: Number = 0
    bounces_num: Number = 0
    left_to_send: Number = 0


def add_up(rows: Sequence[CampaignRow]) -> CampaignTotals:
    """Return the sums over the rows of a workspace."""
    live = [row for row in rows if row.status == LIVE]
    names = ("contacts", "sent", "replies_num", "interested_num", "bounces_num")
    sums: dict[str, Any] = {name: sum(getattr(row, name) or 0 for row in rows) for name in names}
    return CampaignTotals(campaigns=len(rows), live=len(live), left_to_send=sum(row.left_to_send or 0 for row in live), **sums)


@attrs.frozen(kw_only=True)
class CampaignResults:
    """The campaigns of an audit.

    Attributes:
        checked: Number of campaigns read.
        totals: Sums by workspace id, in the order of the audit; a
            workspace without campaigns has zeros.
        rows: At most 10,000 campaigns: those with findings, the worst
            first, then live campaigns, then all others.

    Example:
        ```python
        print(report.campaigns.checked)  # -> 1
        ```
    """

    checked: int
    totals: dict[str, CampaignTotals]
    rows: list[CampaignRow]


@attrs.frozen(kw_only=True)
class WorkspaceCampaigns:
    """The results for the campaigns of one workspace."""

    rows: list[CampaignRow] = attrs.field(factory=list)
    findings: list[Finding] = attrs.field(factory=list)


def build_results(workspaces: Sequence[str], parts: Sequence[WorkspaceCampaigns | None]) -> CampaignResults | None:
    """Combine the campaigns of the workspaces; return `None` if the audit did not read campaigns."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    rows = [row for part in known for row in part.rows]
    return CampaignResults(
        checked=len(rows),
        totals={space: add_up(part.rows) for space, part in zip(workspaces, parts, strict=True) if part is not None},
        rows=sort_rows(rows)[:MAX_CAMPAIGN_ROWS],
    )


def sort_rows(rows: Iterable[CampaignRow]) -> list[CampaignRow]:
    """Sort rows: those with findings, the worst first, then live campaigns, then all others. The sort is stable."""
    return sorted(rows, key=lambda row: (len(Severity) if row.severity is None else row.severity.rank, row.status != LIVE))
