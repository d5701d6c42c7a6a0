"""Build the content of a report or a brief as blocks, which every format renders."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from heapq import nsmallest
from itertools import groupby, islice
from operator import attrgetter
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

import attrs

from outreach_async.audit._findings import Action, Finding, Group, Row, Severity, campaign_label, subject_name
from outreach_async.audit._report import Delta, HistoryPoint, Report, findings_of, history_point
from outreach_async.audit._rules import rule_title
from outreach_async.audit._values import (
    DAY,
    format_date,
    format_figure,
    format_percent,
    format_span,
    format_time,
    replace_unprintable,
    valid_or_none,
)
from outreach_async.audit.campaigns import LIVE, CampaignResults, CampaignRow
from outreach_async.audit.history import DayFigures
from outreach_async.audit.plan import describe_held, describe_unused
from outreach_async.audit.reports._days import (
    TONES,
    Chart,
    Days,
    Series,
    day_of,
    draw_trend,
    format_day,
    format_share,
    index_days,
    last_days,
    total,
)
from outreach_async.audit.reports.brief import (
    GROWING,
    Brief,
    CampaignBrief,
    ImportBrief,
    Summary,
    Task,
    count_severity,
    group_findings,
    is_about_reading,
    summarize,
    workspace_label,
    worst_first_key,
)
from outreach_async.errors import format_count
from outreach_async.models import Number

MAX_UNREAD: Final = 10  # reading errors whose message is shown
MAX_POINTS: Final = 30  # audits of a trend
GOOD_SCORE: Final = 90
FAIR_SCORE: Final = 40
"""Lowest scores that count as good, and as fair; a lower score is critical."""
AUTHENTICATION_RULES: Final = {"SPF": "OA101", "DKIM": "OA102", "DMARC": "OA103"}
_BARS: Final = "▁▂▃▄▅▆▇█"
_MAX_NAMES: Final = 5


def describe_scope(report: Report) -> str:

    def name_some(workspaces: Sequence[str]) -> str:
        more, shown = len(workspaces) - _MAX_NAMES, [workspace_label(each, report.names) for each in workspaces[:_MAX_NAMES]]
        return f"{', '.join(shown)}{f' and {more:,} more' if more > 0 else ''}"

    diff = report.diff
    parts = {} if diff is None else {"this audit": diff.added_workspaces, "the earlier audit": diff.removed_workspaces}
    described = "; ".join(f"only {audit} covers {name_some(spaces)}" for audit, spaces in parts.items() if spaces)
    return f"The audits cover different workspaces: {described}." if described else ""


FIGURES: Final = {
    "score": ("score", 1),
    "severity": ("severity", -1),
    "critical": ("critical findings", -1),
    "error": ("errors", -1),
    "warning": ("warnings", -1),
    "info": ("notes", 0),
    "sent_30days": ("sent in 30 days", 0),
    "replied_num": ("replies", 1),
    "opened_14days": ("opened in 14 days, %", 1),
    "avg_open_rate": ("average open rate, %", 1),
    "avg_click_rate": ("average click rate, %", 1),
    "bounces_num": ("bounced", -1),
    "bounced_30days": ("bounced in 30 days", -1),
    "unsubscribed_num": ("unsubscribed", -1),
    "blacklists": ("blacklists", -1),
    "listed": ("blacklisted mailboxes", -1),
    "placeholders": ("unknown placeholders", -1),
    "days": ("delay, days", -1),
}
"""Names of figures, and whether an increase is better (1), worse (-1) or neither. Another figure is called as in JSON."""


def describe_figure(name: str) -> tuple[str, int]:
    """Return the name and the direction of a figure. One without a direction is neither better nor worse."""
    return FIGURES.get(name) or (replace_unprintable(name.replace("_", " ")), 0)


def judge_change(name: str, before: Number | None, after: Number | None) -> str:
    """Return whether a figure became `better` or `worse`; an empty string if neither, or if a value is unknown."""
    direction = describe_figure(name)[1]
    if not direction or before is None or after is None or before == after:
        return ""
    return "better" if (after > before) == (direction > 0) else "worse"


def _format_value(delta: Delta, value: Number | None) -> str:
    """Format a number for display. A severity, from 1 (info) to 4 (critical), is shown as its name."""
    if delta.figure == "severity" and value is not None and value in range(1, len(Severity) + 1):
        return list(Severity)[-int(value)].value
    return format_figure(value)


def score_tone(score: float | None, severity: Severity | None = None) -> str:
    """Return the tone of a score, which determines its colour: `good`, `warning` or `critical`; `info` if there is no score."""
    if score is None:
        return "info"
    if severity is Severity.CRITICAL:
        return "critical"
    is_good = score >= GOOD_SCORE and severity is not Severity.ERROR  # the colour is never milder than the verdict
    return "good" if is_good else "warning" if score >= FAIR_SCORE else "critical"


def describe_points(points: Sequence[HistoryPoint]) -> str:
    others = sum(point.scope != points[-1].scope for point in points)
    differ = format_count(others, "of them does not cover", "of them do not cover")
    scope = f" {differ} the same workspaces as this audit." if others else ""
    return f"{format_count(len(points), 'audit')} since {format_time(points[0].at)}.{scope}"


def draw_sparkline(values: Sequence[Number | None]) -> str:
    values = [None if value is None else valid_or_none(value) for value in values]
    known = [value for value in values if value is not None]
    low, high = min(known, default=0), max(known, default=0)
    heights = [None if value is None else (value - low) / (high - low) if high > low else 0.5 for value in values]
    return "".join("·" if height is None else _BARS[round(height * (len(_BARS) - 1))] for height in heights)


# With these limits, the table of campaigns fits into 80 columns, regardless of the service's data.
_MAX_STATUS_SHOWN: Final = 7
_MAX_AMOUNT: Final = 1_000_000


def format_totals(results: CampaignResults) -> str:
    names = ("campaigns", "live", "sent", "replies_num", "interested_num", "bounces_num", "left_to_send")
    sums = (sum(getattr(each, name) for each in results.totals.values()) for name in names)
    campaigns, live, *figures = sums
    sent, replies, interested, bounces, left = map(format_figure, figures)
    counts = f"{sent} e-mails sent, {replies} replies ({interested} interested), {bounces} bounced"
    return f"{format_count(campaigns, 'campaign')} ({live:,} live): {counts}; live campaigns have {left} left to send."


def format_status(status: str) -> str:
    return replace_unprintable(status if len(status) <= _MAX_STATUS_SHOWN else f"{status[: _MAX_STATUS_SHOWN - 1]}…")


def format_amount(value: Number | None) -> str:
    """Format a number for a narrow column; numbers of a million and more look like `1.2e+10`."""
    if value is None:
        return "-"
    return f"{value:.1e}" if value >= _MAX_AMOUNT else f"{round(value):,}"


def list_active(brief: Brief) -> list[CampaignBrief]:
    return [
        each
        for each in brief.campaigns or []
        if each.new_sent or each.new_replies or each.new_interested or each.new_bounces or each.new_contacts
        or each.status_before not in {None, each.status}
        or (each.status == LIVE and each.left_to_send != 0)
    ]  # fmt: skip


def format_recent(campaign: CampaignBrief) -> str:
    start = campaign.status_before is None
    # If the earlier report does not contain the campaign, the numbers cover the whole campaign.
    names = GROWING.values() if start else GROWING
    contacts, sent, *others = (getattr(campaign, name) for name in names)
    first = "sent unknown" if sent is None else f"{format_figure(sent)} sent" if sent else "nothing sent"
    nouns = (("reply", "replies"), ("interested", "interested"), ("bounce", ""), ("contact" if start else "new contact", ""))
    counted = [format_count(int(count), *noun) for noun, count in zip(nouns, (*others, contacts), strict=True) if count]
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
    "new_interested": ("interested", "interested"),
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


CODE: Final = "code"
STRONG: Final = "strong"
SOFT: Final = "soft"
TREND: Final = "trend"
PALE: Final = "Pale bars are estimates: no audit read these days."
SECTION: Final = 2  # level of the title of a section
_MAX_PLACES: Final = 5
_MAX_WORKSPACES: Final = 60  # that a task names
_NAMES_IN_LINE: Final = 10  # of a list outside of a page
_MAX_NAME_LINES: Final = 120
_MAX_TASKS: Final = 5
_MAX_OTHERS: Final = 8
_MAX_ACTIVE: Final = 10
_MAX_CHANGES: Final = 10
_MAX_CAMPAIGNS: Final = 20
_MAX_DOMAINS: Final = 50
_MAX_ROWS: Final = 500  # of a table of a page
_MAX_ITEMS: Final = 100  # findings of a task that a page lists
_MAX_CAMPAIGN_CHARTS: Final = 60
_TREND_DAYS: Final = 30
_RECENT_DAYS: Final = 7
_COUNTED: Final = {Severity.CRITICAL: "Critical", Severity.ERROR: "Errors", Severity.WARNING: "Warnings"}
_NAMES: Final = {severity: "note" if severity is Severity.INFO else severity.value for severity in Severity}
_SIZES: Final[dict[str, Callable[[Group], Styled]]] = {
    "Mailboxes": lambda group: Styled(format_figure(group.mailboxes)),
    "Sent, 30 days": lambda group: Styled(format_figure(group.sent_30days)),
    "Daily limit": lambda group: Styled(format_figure(group.daily_limit)),
}
_MEANING: Final = (
    "The score is the share of the e-mails of 30 days that healthy mailboxes sent: a mailbox with a warning counts nine tenths, "
    "one with an error half, and one with a critical finding a tenth."
)
_SCORING: Final = (
    "A mailbox scores 100, multiplied by 0.1 for each critical finding, 0.5 for each error and 0.9 for each warning about it, "
    "its domain or its server. Any other score is the mean of the mailboxes, weighted by the e-mails that each sent in "
    "30 days, plus 30."
)
T = TypeVar("T")


@attrs.frozen
class Styled:
    """A text in a style. A page shows the text `under` it in a table, and makes it a link to a file."""

    text: str
    style: str = ""
    under: str = ""
    link: str = ""


Line: TypeAlias = Sequence[Styled]


@attrs.frozen
class Title:
    """A heading of level 1 (the report), 2 (a section) or 3 (a workspace)."""

    level: int
    line: Line


@attrs.frozen
class Paragraph:
    lines: Sequence[Line]


@attrs.frozen
class Head(Paragraph):
    """The first lines, of which the second is the verdict. A page shows its tone, the score beside it, and further lines."""

    tone: str
    score: Styled
    change: Styled
    further: Iterable[Line] = ()


@attrs.frozen
class Entry:
    """A list item: a line with more lines below it. An item about a rule starts with the severity and the id of the rule.

    On a page, it has an anchor, a note after the line, and more on demand.
    """

    line: Line
    details: Sequence[Line] = ()
    severity: Severity | None = None
    rule: str = ""
    anchor: str = ""
    note: str = ""
    more: Aside | None = None


@attrs.frozen
class Entries:
    """A list. On a page, the entries after the first `most` are shown on demand; elsewhere, they are counted by the noun."""

    entries: Sequence[Entry]
    numbered: bool = False
    most: int | None = None
    noun: str = ""
    last: Sequence[Entry] = ()


@attrs.frozen
class Grid:
    """A table. The first column contains names, and the other columns contain short values.

    On a page, it has the columns `further`, too, and shows the rows after the first `most` on demand; elsewhere, they are counted
    by the noun, if there is one. `total` counts all rows, of which `rows` may be the first.
    """

    heads: Sequence[str]
    rows: Iterable[Line]
    further: Sequence[str] = ()
    most: int | None = None
    noun: str = ""
    total: int = 0


@attrs.frozen
class Names:
    """Names of mailboxes and campaigns to copy from a page, by workspace; the id of a single workspace is left out."""

    groups: Sequence[tuple[str, Sequence[str]]]


@attrs.frozen
class Figures:
    """Large figures by name, each with lines below it. Only a page has them."""

    figures: Mapping[str, Sequence[str]]


@attrs.frozen
class Section:
    title: str
    blocks: Iterable[Block]


@attrs.frozen
class Aside(Section):
    """A section that only a page has, and if it is folded, shows on demand."""

    folded: bool = False


Basic: TypeAlias = Title | Paragraph | Entries | Grid
Block: TypeAlias = Basic | Figures | Names | Section | Chart
Opened: TypeAlias = Mapping[tuple[str, str, str], float]  # since when findings are open, by workspace, rule and severity


@attrs.frozen(kw_only=True)
class Extra:
    """What only a page shows: figures of days, since when findings are open, and the file names of the pages of workspaces."""

    days: Iterable[DayFigures] = ()
    opened: Opened = MappingProxyType({})
    pages: Mapping[str, str] = MappingProxyType({})


def build_document(view: Report | Brief, extra: Extra = Extra()) -> Iterator[Block]:
    return _brief_blocks(view, extra) if isinstance(view, Brief) else _report_blocks(view, extra)


def outline(blocks: Iterable[Block]) -> Iterator[Basic]:
    """Yield what formats show that have nothing on demand."""
    for block in blocks:
        match block:
            case Title() | Paragraph():
                yield block
            case Entries(entries=entries, most=most):
                shown = entries[:most]
                yield Entries([*shown, *_more(len(entries) - len(shown), block.noun), *block.last], block.numbered)
            case Names(groups=groups):
                lines = [
                    ([Styled(space, STRONG), Styled(": ")] if space else [], names[at : at + _NAMES_IN_LINE])
                    for space, names in groups
                    for at in range(0, len(names), _NAMES_IN_LINE)
                ]
                named = [Entry([*first, *_join([Styled(name, CODE)] for name in part)]) for first, part in lines]
                yield from outline([Entries(named, most=_MAX_NAME_LINES, noun="more line")])
            case Grid(heads=heads, most=most):
                yield Grid(heads, [row[: len(heads)] for row in islice(block.rows, most)])
                if block.noun and most is not None and block.total > most:
                    yield _text(f"and {format_count(block.total - most, block.noun)}.")
            case Section() if not isinstance(block, Aside):
                yield from (Title(SECTION, [Styled(block.title)]), *outline(block.blocks))
            case _:
                pass


def _report_blocks(report: Report, extra: Extra) -> Iterator[Block]:
    summary, days = summarize(report), index_days(extra.days, report.workspaces)
    write = _task_writer(summary, report.workspaces, extra.opened, report.findings)
    place_of = _place_of(report.workspaces, report.names)
    yield from _head(summary, summary.changed if summary.changes else "", report.workspaces, _share_lines(report))
    yield _trend_aside(days.get((), {}))
    yield from _unread_blocks(report)
    if len(report.workspaces) > 1:
        yield Aside("Workspaces, worst first", _workspace_blocks(report, days, extra.pages))
    if summary.tasks:
        entries = [write(task, detailed=True, example=True) for task in summary.tasks]
        yield Section("What to do, most urgent first", [Entries(entries, numbered=True)])
    yield from _list_names(summary, "fix", report.workspaces)
    if summary.resolved:
        yield Section("Resolved", [Entries([_task_entry(task, report.workspaces) for task in summary.resolved])])
    yield from _change_blocks(report)
    yield from _history_blocks(report)
    if report.campaigns is not None:
        yield from _campaign_blocks(report.campaigns, days, place_of)
    yield from _domain_blocks(report)
    limits = [Entry(_prose(replace_unprintable(line), SOFT)) for line in report.not_judged]
    yield Section("What this audit cannot check", [Entries(limits)])
    yield from _group_asides(report, place_of)
    yield Aside("How this audit scores", _scoring_blocks(report), folded=True)


def _head(summary: Summary, changes: str, workspaces: Sequence[str], further: Iterable[Line] = ()) -> Iterator[Block]:
    counts = [
        Styled(count_severity(severity, count), severity.value if count else SOFT) for severity, count in summary.counts.items()
    ]
    findings = [Styled("Findings: "), *_join([span] for span in counts), Styled(f". Audited {summary.audited}.")]
    lines = [[Styled(summary.headline)], [Styled(summary.verdict, STRONG)], [Styled(summary.to_do)], findings]
    yield Title(1, [Styled(summary.title)])
    yield Head(
        [*lines, *([Styled(text)] for text in (changes, summary.score_note) if text)],
        tone=summary.tone,
        score=_score(summary.score, next((severity for severity, count in summary.counts.items() if count), None)),
        change=_score_change(summary.score_before, summary.score),
        further=[*further, [Styled(_MEANING, SOFT)]],
    )
    yield from _list_names(summary, "stop", workspaces)


_LISTED: Final[dict[Action, tuple[str, type[Section]]]] = {"stop": ("Stop now", Section), "fix": ("Fix today", Aside)}


def _list_names(summary: Summary, action: Action, workspaces: Sequence[str]) -> Iterator[Section]:
    """Yield the list of what to stop, or to fix, by workspace. Only a page has the second."""
    boxes, campaigns = summary.actions[action], summary.campaign_actions[action]
    named = {space: [f"campaign {name}" for name in names] for space, names in campaigns.items()}
    groups = [
        (summary.names.get(space, space if len(workspaces) > 1 else ""), boxes.get(space, []) + named.get(space, []))
        for space in workspaces
        if space in boxes or space in named
    ]
    counts = {"mailbox": sum(map(len, boxes.values())), "campaign": sum(map(len, campaigns.values()))}
    if groups:
        (title, kind), counted = _LISTED[action], (format_count(count, noun) for noun, count in counts.items() if count)
        yield kind(f"{title}: {', '.join(counted)}", [Names(groups)])


def _text(text: str, style: str = "") -> Paragraph:
    return Paragraph([[Styled(text, style)]])


def _named(name: str, text: str, style: str = CODE) -> Entry:
    return Entry([Styled(name, style), Styled(f": {text}")])


def _join(lines: Iterable[Line]) -> Iterator[Styled]:
    for place, line in enumerate(lines):
        if place:
            yield Styled(", ")
        yield from line


def _prose(text: str, style: str = "") -> Line:
    return [Styled(part, CODE if place % 2 else style) for place, part in enumerate(text.split("`")) if part]


def _more(count: int, noun: str) -> list[Entry]:
    return [Entry([Styled(f"and {format_count(count, noun)}")])] if count > 0 else []


def _table(
    items: Sequence[T],
    columns: Mapping[str, Callable[[T], Styled]],
    further: Mapping[str, Callable[[T], Styled]] = MappingProxyType({}),
    *,
    most: int | None = None,
    noun: str = "",
) -> Grid:
    rows = ([column(item) for column in (*columns.values(), *further.values())] for item in items[:_MAX_ROWS])
    return Grid(tuple(columns), rows, tuple(further), most, noun, len(items))


def _figure(value: Number | None) -> Styled:
    return Styled(format_figure(value))


def _score(score: float | None, severity: Severity | None) -> Styled:
    return Styled("-" if score is None else f"{score:g}", f"score {score_tone(score, severity)}")


def _score_change(before: Number | None, after: Number | None) -> Styled:
    if before is None or after is None or before == after:
        return Styled("")
    judged = judge_change("score", before, after)
    return Styled(f"{after - before:+.1f} ({judged})".replace(".0", ""), judged)


def _score_of(row: Row | Group) -> Styled:
    return _score(row.score, row.severity)


def _worst(row: Row | Group | CampaignRow) -> Styled:
    return Styled("clean", "good") if row.severity is None else Styled(_NAMES[row.severity], row.severity.value)


def _place_of(workspaces: Sequence[str], names: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that names a workspace where there are several."""
    return partial(workspace_label, names=names) if len(workspaces) > 1 else lambda _: ""


def _problems(row: Row | CampaignRow, place_of: Callable[[str], str]) -> str:
    return " · ".join(filter(None, (place_of(row.workspace), ", ".join(map(rule_title, row.rules)))))


def _task_entry(task: Task, workspaces: Sequence[str], *, detailed: bool = False, example: bool = False) -> Entry:
    extent = f": {format_count(task.mailboxes, 'mailbox')} on " if task.mailboxes else ": "
    line = [Styled(task.title, STRONG), Styled(extent), Styled(task.where, CODE if len(task.groups) == 1 else "")]
    if task.news:
        line += [Styled(" ("), Styled(task.news, STRONG), Styled(")")]
    details = [_prose(task.remedy)] if detailed else []
    if example:
        details.append([Styled(f"{'For example ' if task.findings > 1 else ''}{task.example}")])
    places, new, most = task.groups, task.new_groups, _MAX_PLACES
    if several := len(workspaces) > 1:
        places, new, most = task.workspaces, task.new_workspaces, _MAX_WORKSPACES
    if several or (detailed and len(places) > 1):
        details.append(list(_places(places, most)))
        if detailed and task.new not in {0, task.findings}:
            details.append([Styled("New: ", STRONG), *_places(new, most)])
    return Entry(line, details, task.severity, task.rule)


def _places(groups: Sequence[tuple[str, int]], most: int) -> Iterator[Styled]:
    yield from _join([Styled(name, CODE), Styled(f" ({count:,})")] for name, count in groups[:most])
    if len(groups) > most:
        yield Styled(f" and {len(groups) - most:,} more")


def _task_writer(
    summary: Summary, workspaces: Sequence[str], opened: Opened, findings: Sequence[Finding] = ()
) -> Callable[..., Entry]:
    """Return a function that makes the entries of open tasks, with what a page shows of them."""
    covered, first, place_of = set(workspaces), dict[tuple[str, str], float](), _place_of(workspaces, summary.names)
    group = cache(partial(group_findings, findings))
    for (workspace, rule, severity), at in opened.items():
        if workspace in covered:
            first[rule, severity] = min(at, first.get((rule, severity), at))

    def details(task: Task, *, detailed: bool) -> Iterator[Block]:
        if not detailed:
            yield Paragraph([_prose(task.remedy)])
        if found := group().get((task.rule, task.severity), []):
            worst = nsmallest(_MAX_ITEMS, found, key=worst_first_key)
            entries = [_finding_entry(each, summary.names, place_of) for each in worst]
            yield Entries([*entries, *_more(len(found) - len(entries), "more finding")])
        else:
            entries = [Entry([Styled(name, CODE), Styled(f" ({count:,})")]) for name, count in task.groups[:_MAX_ITEMS]]
            yield Entries([*entries, *_more(len(task.groups) - len(entries), f"more {task.group_kind}")])
        facts = {"Applies when": task.condition, "Source": task.source, "For example": "" if found else task.example}
        yield Entries([_named(term, fact, STRONG) for term, fact in facts.items() if fact])

    def write(task: Task, *, detailed: bool = False, example: bool = False) -> Entry:
        since, what = "", format_count(task.findings, "finding") if findings else "Places"
        if summary.since is not None and (at := first.get((task.rule, task.severity))) and task.new != task.findings:
            since = f"open since {format_day(day_of(at))}"
        elif summary.since is not None and not task.news:
            since = f"open since before {format_day(day_of(summary.since))}"
        return attrs.evolve(
            _task_entry(task, workspaces, detailed=detailed, example=example),
            anchor=f"{task.rule}-{task.severity.value}",
            note=since,
            more=Aside(f"{what}, rule and source", details(task, detailed=detailed), folded=True),
        )

    return write


def _finding_entry(finding: Finding, names: Mapping[str, str], place_of: Callable[[str], str]) -> Entry:
    subject, place = subject_name(finding, names), place_of(finding.workspace)
    line = [Styled(subject, STRONG), Styled(": "), Styled(finding.message)]
    if place and place != subject:
        line[1:1] = [Styled(f" ({place})", SOFT)]
    if finding.confidence == "low":
        line.append(Styled(" (sample too small to be certain)"))
    return Entry([*line, *([Styled(" new", STRONG)] if finding.state == "new" else [])])


def _share_lines(report: Report) -> Iterator[Line]:
    """Yield how much of the e-mail comes from mailboxes to stop or to fix."""
    part = sum(each.sent_30days for each in report.actions if each.action != "watch")
    everything = sum(score.sent_30days for score in report.scores.workspaces.values())
    if 0 < part <= everything and valid_or_none(everything) is not None:
        share = f"{part:,.0f} of the {everything:,.0f} e-mails of the last 30 days ({format_percent(part / everything)})"
        yield [Styled(f"{share} came from mailboxes that must be stopped or fixed.")]


def _trend_aside(whole: Series) -> Aside:
    if not whole:
        start = "The service reports the totals of today only. With a history ("
        rest = "), the next audits show here what was sent, replied and bounced each day, and which replies were interested."
        return Aside("No trend yet", [Paragraph([[Styled(start), Styled("--history FILE", CODE), Styled(rest)]])])
    shown, names = last_days(whole, _TREND_DAYS), (*TONES, "opened")
    estimates = {day: " (estimate)" if each.spread_over > 1 else "" for day, each in shown.items()}
    rows = [
        [Styled(f"{format_day(day)}{estimates[day]}"), *(_figure(getattr(each, name)) for name in names)]
        for day, each in reversed(shown.items())
    ]
    note = [_text(PALE, SOFT)] if any(estimates.values()) else []
    grid = Grid(("Day", *map(str.capitalize, names)), rows, most=0, noun="daily figure", total=len(rows))
    title = f"Sent, replied, interested and bounced per day, {format_day(min(shown))} to {format_day(max(shown))}"
    return Aside(title, [*(draw_trend(shown, name) for name in TONES), *note, grid])


def _unread_blocks(report: Report) -> Iterator[Block]:
    unread = [finding for finding in findings_of(report, Severity.ERROR) if is_about_reading(finding)]
    if unread:
        names = [workspace_label(finding.workspace, report.names) for finding in unread]
        entries = [
            _named(name, replace_unprintable(each.message)) for name, each in zip(names, unread[:MAX_UNREAD], strict=False)
        ]
        more = [Entry([Styled("and "), *_join([Styled(name, CODE)] for name in names[MAX_UNREAD:])])]
        yield Section("Not read and not checked", [Entries([*entries, *(more if len(unread) > MAX_UNREAD else [])])])


def _workspace_blocks(report: Report, days: Days, pages: Mapping[str, str]) -> Iterator[Block]:
    tasks: defaultdict[str, Counter[Severity]] = defaultdict(Counter)
    for workspace, severity, _ in {(each.workspace, each.severity, each.rule) for each in report.findings}:
        tasks[workspace][severity] += severity in _COUNTED
    before = {delta.key: delta.before for delta in (report.diff.scores if report.diff else ()) if delta.kind == "workspace"}
    scores, unread, (period, volume) = report.scores.workspaces, set(report.unreadable), _workspace_volume(report, days)

    def worst_first(workspace: str) -> tuple[object, ...]:
        counts, score = tasks[workspace], scores[workspace].score if workspace in scores else math.inf
        return workspace not in unread, not counts.total(), score, [-counts[each] for each in _COUNTED]

    def row(workspace: str) -> Line:
        counts, known = tasks[workspace], scores.get(workspace)
        worst, score = next((each for each in _COUNTED if counts[each]), None), known.score if known else None
        parts = ["not read completely"] if workspace in unread else []
        parts += (count_severity(each, counts[each]) for each in _COUNTED if counts[each])
        named = workspace if workspace in report.names else ""
        return [
            Styled(report.name_of(workspace), STRONG, named, pages.get(workspace, "")),
            _score(score, worst),
            Styled(", ".join(parts) or "no tasks", worst or ("error" if parts else "good")),
            *([_score_change(before.get(workspace), score)] if before else []),
            _figure(known.sent_30days if known else None),
            *volume(workspace),
        ]

    listed = sorted(report.workspaces, key=worst_first)
    most = sum(each in unread or tasks[each].total() > 0 for each in listed)
    heads = ("Workspace", "Score", "Tasks", *(["Change"] if before else []), "Sent, 30 days", *period)
    yield Grid(heads, map(row, listed), most=most, noun="more workspace", total=len(listed))


def _workspace_volume(report: Report, days: Days) -> tuple[Sequence[str], Callable[[str], Line]]:
    """Return the columns of what workspaces sent in the last days; without figures of days, in all campaigns."""
    recent = {each: last_days(days[each,], _TREND_DAYS) for each in report.workspaces if (each,) in days}
    weeks = {each: last_days(series, _RECENT_DAYS) for each, series in recent.items()}
    amounts: dict[str, list[Number | None]] = {each: [total(week, name) for name in TONES] for each, week in weeks.items()}
    if not weeks and report.campaigns:
        amounts = {
            key: [each.sent, each.replies_num, each.interested_num, each.bounces_num]
            for key, each in report.campaigns.totals.items()
            if each.campaigns or key not in report.unreadable
        }

    def volume(workspace: str) -> Line:
        sent, replied, interested, bounced = amounts.get(workspace, [None] * len(TONES))
        trend = draw_sparkline([each.sent for each in recent.get(workspace, {}).values()])
        return [
            _figure(sent),
            Styled(format_share(replied, sent)),
            _figure(interested),
            Styled(format_share(bounced, sent)),
            *([Styled(trend, TREND)] if weeks else []),
        ]

    first = f"Sent, {_RECENT_DAYS} days" if weeks else "Sent in campaigns"
    heads = (first, "Replied", "Interested", "Bounced", *(["Trend"] if weeks else []))
    return (heads, volume) if amounts else ((), lambda _: [])


def _change_blocks(report: Report) -> Iterator[Block]:
    def importance(delta: Delta) -> tuple[bool, bool, float, str]:
        gain = 0.0 if delta.before is None or delta.after is None else delta.after - delta.before
        return delta.kind != "audit", delta.figure != "score", describe_figure(delta.figure)[1] * gain, delta.key

    scope = describe_scope(report)
    deltas = sorted((*report.diff.scores, *report.diff.deltas) if report.diff else (), key=importance)
    if scope or deltas:
        entries = [*map(_change_entry, deltas[:_MAX_CHANGES]), *_more(len(deltas) - _MAX_CHANGES, "more changed figure")]
        yield Section("What changed", [*([_text(scope, STRONG)] if scope else []), Entries(entries)])


def _change_entry(delta: Delta) -> Entry:
    judged, is_overall = judge_change(delta.figure, delta.before, delta.after), delta.kind == "audit"
    figures = f"{_format_value(delta, delta.before)} -> {_format_value(delta, delta.after)}"
    text = f"{describe_figure(delta.figure)[0]} {figures}{f' ({judged})' if judged else ''}"
    name = "Overall" if is_overall else replace_unprintable(delta.name or delta.key)
    return _named(name, text, "" if is_overall else CODE)


def _history_blocks(report: Report) -> Iterator[Block]:
    if not report.history:
        return
    points = [*report.history, history_point(report)][-MAX_POINTS:]
    trends: dict[str, list[Number | None]] = {
        "Score": [point.score for point in points],
        **{name: [point.counts.get(severity, 0) for point in points] for severity, name in _COUNTED.items()},
        "Mailboxes": [point.mailboxes for point in points],
    }
    rows = [
        [Styled(name), Styled(draw_sparkline(values), TREND), _figure(values[0]), _figure(values[-1])]
        for name, values in trends.items()
    ]
    yield Section("History", [_text(describe_points(points)), Grid(("Figure", "Trend", "First", "Now"), rows)])


def _campaign_blocks(results: CampaignResults, days: Days, place_of: Callable[[str], str]) -> Iterator[Block]:
    columns: dict[str, Callable[[CampaignRow], Styled]] = {
        "Campaign": lambda row: Styled(campaign_label(row.name, row.id), CODE, _problems(row, place_of)),
        "Status": lambda row: Styled(format_status(row.status), "" if row.severity is None else row.severity.value),
        "Sent": lambda row: Styled(format_amount(row.sent)),
        "Replied": lambda row: Styled(format_share(row.replies_num, row.sent)),
        "Interested": lambda row: Styled(format_amount(row.interested_num)),
        "Bounced": lambda row: Styled(format_share(row.bounces_num, row.sent)),
        "Left": lambda row: Styled(format_amount(row.left_to_send)),
        "Ends": lambda row: Styled(format_date(row.end)),
    }
    grid = _table(results.rows, columns, {"Worst": _worst}, most=_MAX_CAMPAIGNS, noun="more campaign")
    yield Section("Campaigns, worst first", [_text(format_totals(results)), *([grid] if results.rows else [])])
    known = [(row, days[key]) for row in results.rows if (key := (row.workspace, row.id)) in days]
    charts = list[Block]()
    for row, series in known[:_MAX_CAMPAIGN_CHARTS]:
        charts.append(Title(3, [Styled(campaign_label(row.name, row.id), CODE), Styled(f" {place_of(row.workspace)}", SOFT)]))
        charts += (draw_trend(last_days(series, _TREND_DAYS), name) for name in TONES)
    if charts:
        yield Aside("Campaigns per day", charts, folded=True)


def _domain_blocks(report: Report) -> Iterator[Block]:
    groups = [group for group in report.groups if group.kind == "domain"]
    shown = [group for group in groups if group.severity is not None]
    columns: dict[str, Callable[[Group], Styled]] = {
        "Domain": lambda group: Styled(replace_unprintable(group.key), CODE),
        "Score": _score_of,
        **_authentication_columns(report),
        **{name: partial(_count_of, severity=severity) for severity, name in _COUNTED.items()},
    }
    most = min(len(shown), _MAX_DOMAINS)
    grid = _table([*shown, *(group for group in groups if group.severity is None)], columns, _SIZES, most=most)
    if shown:
        yield Section("Domains, worst first", [grid])
    elif groups:
        yield Aside("Domains", [grid])
    clean = len(report.scores.domains.keys() - {finding.domain for finding in report.findings})
    more = max(0, len(report.scores.domains) - clean - most)
    further = f"{format_count(more, 'more domain')} with findings; " if more else ""
    rest = f"{further}{format_count(clean, 'domain')} without findings."
    yield Paragraph([[Styled(rest)], [Styled("The JSON and CSV reports list every finding.", SOFT)]])


def _count_of(group: Group, severity: Severity) -> Styled:
    count = group.counts[severity]
    return Styled(f"{count:,}", severity.value if count else SOFT)


def _authentication_columns(report: Report) -> dict[str, Callable[[Group], Styled]]:
    """Return the columns that say whether the mailboxes of a domain have SPF, DKIM and DMARC: `yes`, `some`, `no` or `-`."""
    rules = set(AUTHENTICATION_RULES.values()) - set(report.policy.off)
    counts = Counter((finding.domain, finding.rule) for finding in report.findings if finding.rule in rules)

    def describe(group: Group, rule: str) -> Styled:
        having = max(0, group.mailboxes - counts[group.key, rule])
        if rule not in rules or not group.mailboxes:
            return Styled("-", "unknown")
        if 0 < having < group.mailboxes:
            return Styled("some", "warning", f"{having:,} of {group.mailboxes:,}")
        return Styled("yes", "good") if having else Styled("no", "error")

    return {name: partial(describe, rule=rule) for name, rule in AUTHENTICATION_RULES.items()}


def _group_asides(report: Report, place_of: Callable[[str], str]) -> Iterator[Aside]:
    actions = {(each.workspace, each.mailbox): each.action for each in report.actions}
    mailboxes: dict[str, Callable[[Row], Styled]] = {
        "Mailbox": lambda row: Styled(row.email or row.id, CODE, _problems(row, place_of)),
        "Score": _score_of,
        "Action": lambda row: Styled(actions.get((row.workspace, row.id), "nothing"), row.severity.value),
        "Sent today": lambda row: Styled(f"{format_figure(row.sent_today)} of {format_figure(row.daily_limit)}"),
        "Sent, 30 days": lambda row: _figure(row.sent_30days),
        "Bounced": lambda row: Styled(format_percent(row.bounced_30days / row.sent_30days) if row.sent_30days else "-"),
        "Blacklists": lambda row: _figure(row.blacklists),
        "Opened": lambda row: Styled(f"{row.opened_14days:.1f} %"),
    }
    if report.rows:
        note = _text("Worst first. The figures come from the service.", SOFT)
        yield Aside("Mailboxes with findings", [note, _table(report.rows, mailboxes)], folded=True)
    kinds = {"type": "Provider", "server_ip": "Server"}
    groups = [group for kind in kinds for group in report.groups if group.kind == kind]
    columns: dict[str, Callable[[Group], Styled]] = {
        "Name": lambda group: Styled(group.key, CODE, kinds[group.kind]),
        "Score": _score_of,
        "Worst": _worst,
        **_SIZES,
    }
    if groups:
        note = _text("Worst first within each kind.", SOFT)
        yield Aside("Providers and servers", [note, _table(groups, columns)], folded=True)


def _scoring_blocks(report: Report) -> Iterator[Block]:
    policy = report.policy
    thresholds = [
        f"{rule} {figure} = {value:g}" for rule, figures in policy.thresholds.items() for figure, value in figures.items()
    ]
    facts = {
        "Policy": f"{policy.name} {policy.fingerprint}".strip(),
        "Rules turned off": ", ".join(f"{rule} {rule_title(rule)}" for rule in policy.off),
        "Thresholds changed": ", ".join(thresholds),
        "Scores": _SCORING,
    }
    yield Entries([_named(term, fact, STRONG) for term, fact in facts.items() if fact])


def _brief_blocks(brief: Brief, extra: Extra) -> Iterator[Block]:
    workspaces = [workspace.id for workspace in brief.workspaces]
    write = _task_writer(brief, workspaces, extra.opened)
    yield from _head(brief, brief.changed, workspaces)
    yield _trend_aside(index_days(extra.days, workspaces).get((), {}))
    if gaps := brief.gaps:
        entries = [_named(name, text) if name else Entry([Styled(text)]) for name, text in gaps]
        yield Section("Missing or out of date", [Entries(entries)])
    # Tasks of severity `error` or worse are urgent; if there are none, all are.
    urgent = min(_MAX_TASKS, sum(task.severity.reaches(Severity.ERROR) for task in brief.tasks) or len(brief.tasks))
    if urgent:
        entries = [write(task, detailed=True) for task in brief.tasks[:urgent]]
        yield Section("What to do, most urgent first", [Entries(entries, numbered=True)])
    yield from _list_names(brief, "fix", workspaces)
    if entries := list(map(write, brief.tasks[urgent:])):
        yield Section("Less urgent", [Entries(entries, most=_MAX_OTHERS, noun="more task")])
    if brief.campaigns:
        yield Section("Campaigns", _active_blocks(brief))
    if any(plan.campaigns for plan in brief.plans):
        yield Section("What will happen", _plan_blocks(brief))
    if brief.imports:
        entries = [_import_entry(each, brief.names) for each in brief.imports]
        yield Section("Not written to, in the last import", [Entries(entries, most=_MAX_ACTIVE, noun="more ledger")])
    if brief.resolved or brief.resolved_notes:
        resolved = [_task_entry(task, workspaces) for task in brief.resolved]
        notes = _more(brief.resolved_notes, "note")
        yield Section("Resolved", [Entries(resolved, most=_MAX_TASKS, noun="more task", last=notes)])
    if count := brief.counts[Severity.INFO]:
        yield _text(f"{count_severity(Severity.INFO, count)}. The audit lists every finding.", SOFT)
    if more := list_active(brief)[_MAX_ACTIVE:_MAX_ROWS]:
        yield Aside("More campaigns", _campaign_lists(brief, more), folded=True)


def _plan_blocks(brief: Brief) -> Iterator[Block]:
    planned = [(each, plan.workspace) for plan in brief.plans for each in plan.campaigns]
    entries = []
    for each, workspace in sorted(planned, key=lambda pair: pair[0].last or pair[0].first or ""):  # first those that never end
        place = f" ({replace_unprintable(brief.names.get(workspace, workspace))})" if len(brief.workspaces) > 1 else ""
        text = f"never ends, because {each.reason}" if each.reason else f"ends {each.ends}, limited by {each.limit}"
        entries.append(_named(campaign_label(each.name, each.id), f"{text}{place}", STRONG))
    yield Entries(entries, most=_MAX_ACTIVE, noun="more campaign")
    yield _text(" ".join(filter(None, (describe_unused(brief.plans), describe_held(brief.plans)))))
    yield _text(brief.plans[0].assumptions, SOFT)


def _import_entry(last: ImportBrief, names: Mapping[str, str]) -> Entry:
    name = ", ".join(replace_unprintable(names.get(each, each)) for each in last.workspaces) or replace_unprintable(last.ledger)
    found = {"excluded": last.excluded - last.held - last.gated, "held": last.held, "gated": last.gated}
    return _named(name, f"{', '.join(f'{count:,} {word}' for word, count in found.items())} ({format_time(last.at)})", STRONG)


def _active_blocks(brief: Brief) -> Iterator[Block]:
    if sums := format_sums(brief):
        yield _text(sums)
    active = list_active(brief)[:_MAX_ACTIVE]
    yield from _campaign_lists(brief, active)
    if hidden := format_hidden(brief, len(active)):
        yield _text(hidden, SOFT)


def _campaign_lists(brief: Brief, listed: Sequence[CampaignBrief]) -> Iterator[Block]:
    for workspace, campaigns in groupby(listed, key=attrgetter("workspace")):
        if len(brief.workspaces) > 1:
            yield Title(3, [Styled(workspace_label(workspace, brief.names), CODE)])
        entries = []
        for campaign in campaigns:
            status = describe_status(campaign)
            text = f"{f' ({status})' if status else ''}: {format_recent(campaign)}"
            entries.append(Entry([Styled(campaign_label(campaign.name, campaign.id), STRONG), Styled(text)]))
        yield Entries(entries)


def plain(line: Line) -> str:
    return replace_unprintable("".join(span.text for span in line))
