"""Prepare the campaigns of a report for display, as strings for every human-readable format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from outreach_async.audit._findings import Severity
from outreach_async.audit._values import format_percent
from outreach_async.audit.campaigns import CampaignResults, CampaignRow, CampaignTotals, StepComparison, Variant
from outreach_async.audit.reports._wording import format_count, format_date, format_figure, replace_unprintable
from outreach_async.errors import shorten
from outreach_async.models import Number

MAX_NAME_SHOWN: Final = 60
"""Maximum number of characters of a campaign's name in a human-readable report."""

# With these limits, the table of campaigns fits into 80 columns, regardless of the service's data.
_MAX_STATUS_SHOWN: Final = 7
_MAX_AMOUNT: Final = 10_000_000


@attrs.frozen(kw_only=True)
class CampaignLine:
    """A campaign, formatted for display."""

    row: CampaignRow
    name: str
    status: str
    severity: Severity | None
    sent: str
    reply_rate: float | None
    replied: str
    bounce_rate: float | None
    bounced: str
    left: str
    end: str


@attrs.frozen(kw_only=True)
class ComparisonLine:
    """The comparison of a step's variants, formatted for display."""

    comparison: StepComparison
    name: str
    verdict: str
    variants: str


@attrs.frozen(kw_only=True)
class CampaignView:
    """The campaigns of a report, formatted for display."""

    summary: str
    campaigns: list[CampaignLine]
    comparisons: list[ComparisonLine]


def build_campaign_view(results: CampaignResults | None) -> CampaignView | None:
    """Prepare the campaigns of a report; return `None` if the audit did not read campaigns."""
    if results is None:
        return None
    return CampaignView(
        summary=_summarize(results.totals.values()),
        campaigns=[_build_line(row) for row in results.rows],
        comparisons=[_build_comparison(comparison) for comparison in results.comparisons],
    )


def campaign_label(name: str | None, campaign: str) -> str:
    """Return the name of a campaign for display; its id if it has no name."""
    return replace_unprintable(shorten(name or campaign, MAX_NAME_SHOWN))


def _summarize(totals: Iterable[CampaignTotals]) -> str:
    known = list(totals)
    live, sent = sum(each.live for each in known), sum(each.sent for each in known)
    replies, bounces = sum(each.replies_num for each in known), sum(each.bounces_num for each in known)
    count = format_count(sum(each.campaigns for each in known), "campaign")
    left = format_figure(sum(each.left_to_send for each in known))
    figures = f"{format_figure(sent)} e-mails sent, {format_figure(replies)} replies, {format_figure(bounces)} bounced"
    return f"{count} ({live:,} live): {figures}; live campaigns have {left} left to send."


def _build_line(row: CampaignRow) -> CampaignLine:
    reply_rate, bounce_rate = (_share(part, row.sent) for part in (row.replies_num, row.bounces_num))
    return CampaignLine(
        row=row,
        name=campaign_label(row.name, row.id),
        status=replace_unprintable(shorten(row.status, _MAX_STATUS_SHOWN)),
        severity=row.severity,
        sent=_format_amount(row.sent),
        reply_rate=reply_rate,
        replied=_format_share(reply_rate),
        bounce_rate=bounce_rate,
        bounced=_format_share(bounce_rate),
        left=_format_amount(row.left_to_send),
        end=format_date(row.end),
    )


def _format_amount(value: Number | None) -> str:
    """Format a number for a narrow column; numbers of ten million and more look like `1.2e+10`."""
    if value is None:
        return "-"
    return f"{value:.1e}" if value >= _MAX_AMOUNT else f"{round(value):,}"


def _share(part: Number | None, whole: Number | None) -> float | None:
    return None if part is None or not whole or part > whole else part / whole


def _format_share(share: float | None) -> str:
    return "-" if share is None else format_percent(share)


_UNDECIDED: Final = {
    "too_few_days": "too early to tell; the campaign is too young for a verdict",
    "unequal_sends": "not compared yet: the numbers of e-mails sent differ too much",
    "not_compared": "not compared: fewer than two variants can be compared",
}


def _build_comparison(comparison: StepComparison) -> ComparisonLine:
    name = f"{campaign_label(comparison.campaign_name, comparison.campaign)}, step {format_figure(comparison.order)}"
    variants = ", ".join(map(_describe_variant, comparison.variants))
    return ComparisonLine(comparison=comparison, name=name, verdict=format_variant_verdict(comparison), variants=variants)


def format_variant_verdict(comparison: StepComparison) -> str:
    """Return the conclusion about the variants of a step, such as `B gets more replies than A`."""
    if comparison.better is not None:
        worse = _join_letters(comparison.worse)
        return f"{_letter(comparison.better)} gets more replies than {worse}"
    if comparison.verdict in _UNDECIDED:
        return _UNDECIDED[comparison.verdict]
    if comparison.sends_needed is None:
        return "too early to tell; the replies hardly differ"
    return f"too early to tell; at these rates, about {comparison.sends_needed:,} more e-mails per variant are needed"


def _join_letters(letters: Sequence[str]) -> str:
    return " and ".join(map(_letter, letters))


def _letter(letter: str) -> str:
    return replace_unprintable(shorten(letter, MAX_NAME_SHOWN))


def _describe_variant(variant: Variant) -> str:
    share = _format_share(_share(variant.replied_num, variant.sent))
    figures = f"{format_figure(variant.replied_num)} of {format_figure(variant.sent)}"
    return f"{_letter(variant.letter)} {share} ({figures}{'' if variant.compared else '; not compared'})"
