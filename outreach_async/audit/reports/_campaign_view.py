"""Format the campaigns of a report or a brief for display. Every string is safe to print."""

from __future__ import annotations

from typing import Final

from outreach_async.audit._values import DAY, format_percent, replace_unprintable
from outreach_async.audit.campaigns import LIVE, CampaignResults
from outreach_async.audit.reports._wording import format_date, format_figure, format_span
from outreach_async.audit.reports.brief import Brief, CampaignBrief
from outreach_async.errors import format_count, shorten
from outreach_async.models import Number

# With these limits, the table of campaigns fits into 80 columns, regardless of the service's data.
_MAX_STATUS_SHOWN: Final = 7
_MAX_AMOUNT: Final = 10_000_000


def format_totals(results: CampaignResults) -> str:
    known = list(results.totals.values())
    live, sent = sum(each.live for each in known), sum(each.sent for each in known)
    replies, bounces = sum(each.replies_num for each in known), sum(each.bounces_num for each in known)
    count = format_count(sum(each.campaigns for each in known), "campaign")
    left = format_figure(sum(each.left_to_send for each in known))
    figures = f"{format_figure(sent)} e-mails sent, {format_figure(replies)} replies, {format_figure(bounces)} bounced"
    return f"{count} ({live:,} live): {figures}; live campaigns have {left} left to send."


def format_status(status: str) -> str:
    return replace_unprintable(shorten(status, _MAX_STATUS_SHOWN))


def format_amount(value: Number | None) -> str:
    """Format a number for a narrow column; numbers of ten million and more look like `1.2e+10`."""
    if value is None:
        return "-"
    return f"{value:.1e}" if value >= _MAX_AMOUNT else f"{round(value):,}"


def share(part: Number | None, whole: Number | None) -> float | None:
    return None if part is None or not whole or part > whole else part / whole


def format_share(part: Number | None, whole: Number | None) -> str:
    rate = share(part, whole)
    return "-" if rate is None else format_percent(rate)


def list_active(brief: Brief) -> list[CampaignBrief]:
    return [
        each
        for each in brief.campaigns or []
        if each.new_sent or each.new_replies or each.new_bounces or each.new_contacts
        or each.status_before not in {None, each.status}
        or (each.status == LIVE and each.left_to_send != 0)
    ]  # fmt: skip


def recent_figures(campaign: CampaignBrief) -> tuple[Number | None, ...]:
    # If the earlier report does not contain the campaign, the numbers cover the whole campaign.
    if campaign.status_before is None:
        return campaign.sent, campaign.replies_num, campaign.bounces_num, campaign.contacts
    return campaign.new_sent, campaign.new_replies, campaign.new_bounces, campaign.new_contacts


def format_recent(campaign: CampaignBrief) -> str:
    sent, *others = recent_figures(campaign)
    start = campaign.status_before is None
    first = "sent unknown" if sent is None else f"{format_figure(sent)} sent" if sent else "nothing sent"
    nouns = (("reply", "replies"), ("bounce", ""), ("contact" if start else "new contact", ""))
    counted = [format_count(int(count), *noun) for noun, count in zip(nouns, others, strict=True) if count]
    end = describe_end(campaign)
    return f"{', '.join([first, *counted])}{' so far' if start else ''}{f'; {end}' if end else ''}"


def describe_status(campaign: CampaignBrief) -> str:
    if campaign.status_before not in {None, campaign.status}:
        return replace_unprintable(f"{campaign.status}, was {campaign.status_before}")
    return "" if campaign.status == LIVE else replace_unprintable(campaign.status)


def describe_end(campaign: CampaignBrief) -> str:
    if campaign.left_to_send == 0:
        return "all sent"
    if campaign.end is None or campaign.status != LIVE:
        return ""
    days = 0 if campaign.end_before is None else round((campaign.end - campaign.end_before) / DAY)
    moved = f", {format_count(abs(days), 'day')} {'later' if days > 0 else 'earlier'}" if days else ""
    return f"ends {format_date(campaign.end)}{moved}"


def format_hidden(brief: Brief, shown: int) -> str:
    hidden, active = len(brief.campaigns or []) - shown, len(list_active(brief))
    quiet = " sends nothing" if hidden == 1 else " send nothing"
    return f"{format_count(hidden, 'more campaign')}{quiet if shown == active else ''}." if hidden else ""


_SUMS: Final = {
    "new_sent": ("e-mail sent", "e-mails sent"),
    "new_replies": ("reply", "replies"),
    "new_bounces": ("bounce", "bounces"),
    "new_contacts": ("new contact", "new contacts"),
}


def format_sums(brief: Brief) -> str:
    campaigns = brief.campaigns
    if brief.since is None or not campaigns:  # if no campaigns were read, zeros would be misleading
        return ""
    counts = (int(sum(getattr(campaign, name) or 0 for campaign in campaigns)) for name in _SUMS)
    sums = ", ".join(format_count(count, *nouns) for count, nouns in zip(counts, _SUMS.values(), strict=True))
    # The sums may be too small if a workspace or the steps of a campaign could not be read.
    unread = any(workspace.error is not None for workspace in brief.workspaces)
    unknown = any(campaign.new_sent is None and campaign.status_before is not None for campaign in campaigns)
    return f"In {format_span(brief.at - brief.since)}{' (incomplete data)' if unread or unknown else ''}: {sums}."
