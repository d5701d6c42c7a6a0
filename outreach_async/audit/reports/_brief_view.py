"""Prepare a brief for display: the sentences, tasks and campaigns that every format of a brief shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from outreach_async.audit._findings import Severity
from outreach_async.audit.campaigns import LIVE
from outreach_async.audit.reports._campaign_view import campaign_label
from outreach_async.audit.reports._view import count_severity
from outreach_async.audit.reports._wording import format_count, format_figure, format_time, replace_unprintable
from outreach_async.audit.reports.brief import Brief, CampaignBrief, Task, WorkspaceBrief
from outreach_async.models import Number

BRIEF_TITLE: Final = "Outreach brief"

MAX_GAPS: Final = 5
"""Maximum number of workspaces that a brief lists as missing or out of date."""

_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400


def format_brief_headline(brief: Brief) -> str:
    """Return the title, the size of the audit and its score, in one line."""
    score = "No score." if brief.score is None else f"Score {format_score(brief.score, brief.score_before)}."
    return f"{BRIEF_TITLE}: {format_brief_size(brief)}. {score}"


def format_brief_size(brief: Brief) -> str:
    """Return the numbers of mailboxes, workspaces and, if the audit read them, campaigns."""
    sizes = {"mailbox": brief.mailboxes, "workspace": len(brief.workspaces)}
    if brief.campaigns is not None:
        sizes = {"mailbox": brief.mailboxes, "campaign": len(brief.campaigns), "workspace": len(brief.workspaces)}
    return ", ".join(format_count(count, noun) for noun, count in sizes.items())


def format_score(score: float, before: float | None) -> str:
    """Return a score as a string, with the earlier score if the score has changed."""
    return f"{score:g} of 100" if before in {None, score} else f"{score:g} of 100, was {before:g}"


def format_brief_changes(brief: Brief) -> str:
    """Return the numbers of new, resolved and unchanged findings; for a first brief, the time of the audit instead."""
    if brief.since is None:
        return f"Audited {format_time(brief.at)}. There is no earlier brief to compare with."
    resolved = sum(task.findings for task in brief.resolved)
    counts = f"{format_count(brief.new, 'new finding')}, {resolved:,} resolved, {brief.unchanged:,} unchanged"
    return f"Since {format_time(brief.since)} ({format_span(brief.at - brief.since)}): {counts}."


def format_span(seconds: float) -> str:
    """Format a duration in seconds as whole minutes, hours or days, such as `26 hours` or `2 days`."""
    if seconds < 2 * _HOUR:
        return format_count(max(0, round(seconds / _MINUTE)), "minute")
    return format_count(round(seconds / _HOUR), "hour") if seconds < 2 * _DAY else format_count(round(seconds / _DAY), "day")


def format_news(task: Task) -> str:
    """Return the numbers of new and worse findings of a task, such as `5 new, 1 worse`."""
    # The result is `new` if all findings are new, and empty if no finding is new or worse.
    if task.new == task.findings:
        return "new"
    return ", ".join(f"{count:,} {word}" for word, count in (("new", task.new), ("worse", task.worse)) if count)


def split_urgent(brief: Brief) -> tuple[Sequence[Task], Sequence[Task]]:
    """Return the urgent tasks and the other tasks."""
    # Tasks of severity `error` or worse are urgent. If there are no such tasks, all tasks count as urgent.
    urgent = sum(task.severity.reaches(Severity.ERROR) for task in brief.tasks) or len(brief.tasks)
    return brief.tasks[:urgent], brief.tasks[urgent:]


def format_notes(brief: Brief) -> str:
    """Return a sentence with the number of notes; an empty string if there are no notes."""
    count = brief.counts[Severity.INFO]
    return f"{count_severity(Severity.INFO, count)}. The audit lists every finding." if count else ""


def list_gaps(brief: Brief) -> Iterator[tuple[str, str]]:
    """Yield a workspace id and a description for each gap in the data. The id is empty if the gap concerns several workspaces."""
    gaps = [(workspace.id, text) for workspace in brief.workspaces if (text := _describe_gap(workspace, brief.since))]
    gaps += [(workspace, "is no longer covered.") for workspace in brief.dropped]
    yield from ((replace_unprintable(name), replace_unprintable(text)) for name, text in gaps[:MAX_GAPS])
    if len(gaps) > MAX_GAPS:
        yield "", f"and {format_count(len(gaps) - MAX_GAPS, 'more workspace')}"
    if brief.not_judged:
        yield "", f"{format_count(brief.not_judged, 'earlier finding')} could not be checked again."


def _describe_gap(workspace: WorkspaceBrief, since: float | None) -> str:
    if workspace.error is not None:
        read = f"last read {format_time(workspace.since)}" if workspace.since else "never read before"
        return f"{workspace.error} ({read})"
    if since is not None and workspace.since is None:
        return "is covered for the first time."
    if workspace.since != since:
        return f"is compared with an older audit ({format_time(workspace.since or 0)})."
    return ""


@attrs.frozen
class ActiveCampaign:
    """A campaign, prepared for display. Every string is safe to print."""

    # The numbers cover the time since the report that the brief is compared with. If there is no such report, or if it does not
    # contain the campaign, the numbers cover the whole campaign. A number is `None` if it is unknown.

    workspace: str
    name: str
    status: str
    sent: Number | None
    replies: Number | None
    bounces: Number | None
    contacts: Number | None
    since_start: bool
    end: str

    @property
    def summary(self) -> str:
        """The numbers of the campaign and its estimated end, in one phrase."""
        sent = "sent unknown" if self.sent is None else f"{format_figure(self.sent)} sent" if self.sent else "nothing sent"
        contact = "contact" if self.since_start else "new contact"
        counts = (("reply", "replies", self.replies), ("bounce", "", self.bounces), (contact, "", self.contacts))
        figures = ", ".join([sent, *(format_count(int(count), noun, plural) for noun, plural, count in counts if count)])
        return f"{figures}{' so far' if self.since_start else ''}{f'; {self.end}' if self.end else ''}"


def list_campaigns(brief: Brief) -> list[ActiveCampaign]:
    """Return the campaigns that are live and have e-mails left to send, or that have changed."""
    return [_build_line(campaign) for campaign in brief.campaigns or [] if _is_active(campaign)]


def _is_active(campaign: CampaignBrief) -> bool:
    changed = campaign.new_sent or campaign.new_replies or campaign.new_bounces or campaign.new_contacts
    renamed = campaign.status_before not in {None, campaign.status}
    return bool(changed) or renamed or (campaign.status == LIVE and campaign.left_to_send != 0)


def format_hidden(brief: Brief, shown: int) -> str:
    """Return a sentence with the number of campaigns that are not shown; an empty string if all are shown."""
    hidden, active = len(brief.campaigns or []) - shown, len(list_campaigns(brief))
    quiet = " sends nothing" if hidden == 1 else " send nothing"
    return f"{format_count(hidden, 'more campaign')}{quiet if shown == active else ''}." if hidden else ""


def _build_line(campaign: CampaignBrief) -> ActiveCampaign:
    first = campaign.status_before is None
    return ActiveCampaign(
        workspace=replace_unprintable(campaign.workspace),
        name=campaign_label(campaign.name, campaign.id),
        status=replace_unprintable(_describe_status(campaign)),
        sent=campaign.sent if first else campaign.new_sent,
        replies=campaign.replies_num if first else campaign.new_replies,
        bounces=campaign.bounces_num if first else campaign.new_bounces,
        contacts=campaign.contacts if first else campaign.new_contacts,
        since_start=first,
        end=_describe_end(campaign),
    )


def _describe_status(campaign: CampaignBrief) -> str:
    if campaign.status_before not in {None, campaign.status}:
        return f"{campaign.status}, was {campaign.status_before}"
    return "" if campaign.status == LIVE else campaign.status


def _describe_end(campaign: CampaignBrief) -> str:
    if campaign.left_to_send == 0:
        return "all sent"
    if campaign.end is None or campaign.status != LIVE:
        return ""
    day = format_time(campaign.end).partition(" ")[0]
    days = 0 if campaign.end_before is None else round((campaign.end - campaign.end_before) / _DAY)
    moved = f", {format_count(abs(days), 'day')} {'later' if days > 0 else 'earlier'}" if days else ""
    return f"ends {day}{moved}"


def sum_campaigns(brief: Brief) -> list[tuple[int, str]]:
    """Return the numbers of e-mails, replies, bounces and contacts that all campaigns have gained since the earlier report."""
    # The result is a list of pairs (number, noun). It is empty if there is no earlier report, or if no campaign was read.
    if brief.since is None or not brief.campaigns:  # if no campaigns were read, zeros would be misleading
        return []
    each = brief.campaigns
    sums = {
        ("e-mail sent", "e-mails sent"): sum(campaign.new_sent or 0 for campaign in each),
        ("reply", "replies"): sum(campaign.new_replies or 0 for campaign in each),
        ("bounce", "bounces"): sum(campaign.new_bounces or 0 for campaign in each),
        ("new contact", "new contacts"): sum(campaign.new_contacts or 0 for campaign in each),
    }
    return [(int(count), noun if count == 1 else plural) for (noun, plural), count in sums.items()]


def format_campaign_sums(brief: Brief) -> str:
    """Return the numbers from `sum_campaigns` as one sentence; an empty string if there are none."""
    sums = ", ".join(f"{count:,} {noun}" for count, noun in sum_campaigns(brief))
    known = " (incomplete data)" if _is_missing_figures(brief) else ""
    return f"In {format_span(brief.at - (brief.since or 0))}{known}: {sums}." if sums else ""


def _is_missing_figures(brief: Brief) -> bool:
    """Return whether the sums may be too small because a workspace or the steps of a campaign could not be read."""
    unknown = (campaign.new_sent is None and campaign.status_before is not None for campaign in brief.campaigns or [])
    return any(workspace.error is not None for workspace in brief.workspaces) or any(unknown)
