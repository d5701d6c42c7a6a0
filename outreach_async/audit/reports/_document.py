"""Build the content of a report or a brief as blocks, and render them on a console, as plain text, as Markdown or for Slack.

The Markdown source is easy to read too, because some chats and issue trackers show the source. Importing this module does not
import rich (extra `cli`); rich is needed only to render a `StyledReport` on a console.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from outreach_async.audit._findings import Severity, campaign_label
from outreach_async.audit._report import Delta, HistoryPoint, Report, findings_of, history_point
from outreach_async.audit._values import (
    DAY,
    format_date,
    format_figure,
    format_percent,
    format_span,
    format_time,
    replace_unprintable,
)
from outreach_async.audit.campaigns import LIVE, CampaignResults
from outreach_async.audit.reports.brief import (
    Brief,
    CampaignBrief,
    Summary,
    Task,
    count_severity,
    is_about_reading,
    summarize,
    workspace_label,
)
from outreach_async.errors import format_count, shorten
from outreach_async.models import Number

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


MAX_UNREAD: Final = 10  # reading errors whose message is shown
MAX_POINTS: Final = 30  # audits of a trend
GOOD_SCORE: Final = 90
FAIR_SCORE: Final = 40
"""Lowest scores that count as good, and as fair; a lower score is critical."""
AUTHENTICATION_RULES: Final = {"SPF": "OA101", "DKIM": "OA102", "DMARC": "OA103"}
_TONES: Final = {"yes": "good", "some": "warning", "no": "error"}
_BARS: Final = "▁▂▃▄▅▆▇█"
_MAX_NAMES: Final = 5


def list_unread(report: Report) -> tuple[list[tuple[str, str]], list[str]]:
    unread = [finding for finding in findings_of(report, Severity.ERROR) if is_about_reading(finding)]
    names = [workspace_label(finding.workspace, report.names) for finding in unread]
    errors = [replace_unprintable(finding.message) for finding in unread[:MAX_UNREAD]]
    return list(zip(names, errors, strict=False)), names[MAX_UNREAD:]


def describe_scope(report: Report) -> str:

    def name_some(workspaces: Sequence[str]) -> str:
        more, shown = len(workspaces) - _MAX_NAMES, [workspace_label(each, report.names) for each in workspaces[:_MAX_NAMES]]
        return f"{', '.join(shown)}{f' and {more:,} more' if more > 0 else ''}"

    diff = report.diff
    parts = {} if diff is None else {"this audit": diff.added_workspaces, "the earlier audit": diff.removed_workspaces}
    described = "; ".join(f"only {audit} covers {name_some(spaces)}" for audit, spaces in parts.items() if spaces)
    return f"The audits cover different workspaces: {described}." if described else ""


def split_code(text: str) -> list[tuple[bool, str]]:
    return [(place % 2 == 1, part) for place, part in enumerate(text.split("`")) if part]


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


@attrs.frozen(kw_only=True)
class FigureChange:
    """A number that changed since an earlier audit, prepared for display. `judged` is `better`, `worse` or empty."""

    name: str
    is_overall: bool
    figure: str
    before: str
    after: str
    judged: str

    @property
    def note(self) -> str:
        return f" ({self.judged})" if self.judged else ""


def list_figure_changes(report: Report) -> list[FigureChange]:
    def importance(delta: Delta) -> tuple[bool, bool, float, str]:
        gain = 0.0 if delta.before is None or delta.after is None else delta.after - delta.before
        return delta.kind != "audit", delta.figure != "score", describe_figure(delta.figure)[1] * gain, delta.key

    deltas = (*report.diff.scores, *report.diff.deltas) if report.diff else ()
    return [
        FigureChange(
            name="Overall" if delta.kind == "audit" else replace_unprintable(delta.name or delta.key),
            is_overall=delta.kind == "audit",
            figure=describe_figure(delta.figure)[0],
            before=_format_value(delta, delta.before),
            after=_format_value(delta, delta.after),
            judged=judge_change(delta.figure, delta.before, delta.after),
        )
        for delta in sorted(deltas, key=importance)
    ]


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


@attrs.frozen
class Authentication:
    """A mechanism (SPF, DKIM or DMARC) of a domain. `status` is `yes`, `some` or `no` for its mailboxes, or `-` if unknown."""

    name: str
    status: str
    detail: str = ""

    @property
    def tone(self) -> str:
        return _TONES.get(self.status, "unknown")


def build_authentication(report: Report) -> Callable[[str, int], list[Authentication]]:
    """Return a function of a domain and its number of checked mailboxes, which returns the state of each mechanism."""
    rules = set(AUTHENTICATION_RULES.values()) - set(report.policy.off)
    counts = Counter((finding.domain, finding.rule) for finding in report.findings if finding.rule in rules)

    def describe(name: str, rule: str, domain: str, mailboxes: int) -> Authentication:
        having = max(0, mailboxes - counts[domain, rule])
        if rule not in rules or not mailboxes:
            return Authentication(name, "-")
        if 0 < having < mailboxes:
            return Authentication(name, "some", f"{having:,} of {mailboxes:,}")
        return Authentication(name, "yes" if having else "no")

    return lambda domain, mailboxes: [describe(*mechanism, domain, mailboxes) for mechanism in AUTHENTICATION_RULES.items()]


def list_points(report: Report) -> list[HistoryPoint]:
    return [*report.history, history_point(report)][-MAX_POINTS:] if report.history else []


def describe_points(points: Sequence[HistoryPoint]) -> str:
    others = sum(point.scope != points[-1].scope for point in points)
    differ = format_count(others, "of them does not cover", "of them do not cover")
    scope = f" {differ} the same workspaces as this audit." if others else ""
    return f"{format_count(len(points), 'audit')} since {format_time(points[0].at)}.{scope}"


def draw_sparkline(values: Sequence[Number | None]) -> str:
    known = [value for value in values if value is not None]
    low, high = min(known, default=0), max(known, default=0)
    heights = [None if value is None else (value - low) / (high - low) if high > low else 0.5 for value in values]
    return "".join("·" if height is None else _BARS[round(height * (len(_BARS) - 1))] for height in heights)


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


def format_share(part: Number | None, whole: Number | None) -> str:
    return "-" if part is None or not whole or part > whole else format_percent(part / whole)


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


CODE: Final = "code"
STRONG: Final = "strong"
SOFT: Final = "soft"
_MAX_PLACES: Final = 5
_MAX_TASKS: Final = 5
_MAX_OTHERS: Final = 8
_MAX_ACTIVE: Final = 10
_MAX_CHANGES: Final = 10
_MAX_CAMPAIGNS: Final = 20
_MAX_DOMAINS: Final = 50
_COUNTED: Final = {Severity.CRITICAL: "Critical", Severity.ERROR: "Errors", Severity.WARNING: "Warnings"}


@attrs.frozen
class Span:
    text: str
    style: str = ""


Line: TypeAlias = Sequence[Span]


@attrs.frozen
class Title:
    """A heading of level 1 (the report), 2 (a section) or 3 (a workspace)."""

    level: int
    line: Line


@attrs.frozen
class Paragraph:
    lines: Sequence[Line]


@attrs.frozen
class Entry:
    """A list item: a line with more lines below it. An item about a rule starts with the severity and the id of the rule."""

    line: Line
    details: Sequence[Line] = ()
    severity: Severity | None = None
    rule: str = ""


@attrs.frozen
class Entries:
    entries: Sequence[Entry]
    numbered: bool = False


@attrs.frozen
class Grid:
    """A table. The first column contains names, and the other columns contain short values."""

    heads: Sequence[str]
    rows: Sequence[Line]


Block: TypeAlias = Title | Paragraph | Entries | Grid


def build_document(view: Report | Brief) -> Iterator[Block]:
    return _brief_blocks(view) if isinstance(view, Brief) else _report_blocks(view)


def _report_blocks(report: Report) -> Iterator[Block]:
    summary, (unread, unread_names) = summarize(report), list_unread(report)
    yield from _head(summary, summary.changed if summary.changes else "")
    if unread:
        others = [Entry([Span("and "), *_join([Span(name, CODE)] for name in unread_names)])] if unread_names else []
        yield from _section("Not read and not checked", Entries([*(_named(name, error) for name, error in unread), *others]))
    if summary.tasks:
        entries = [_task_entry(task, detailed=True, example=True) for task in summary.tasks]
        yield from _section("What to do, most urgent first", Entries(entries, numbered=True))
    if summary.resolved:
        yield from _section("Resolved", Entries([_task_entry(task) for task in summary.resolved]))
    yield from _change_blocks(report)
    yield from _history_blocks(report)
    if report.campaigns is not None:
        yield from _campaign_blocks(report.campaigns)
    yield from _domain_blocks(report)
    limits = [Entry(_prose(replace_unprintable(line), SOFT)) for line in report.not_judged]
    yield from _section("What this audit cannot check", Entries(limits))


def _head(summary: Summary, changes: str) -> Iterator[Block]:
    counts = [
        Span(count_severity(severity, count), severity.value if count else SOFT) for severity, count in summary.counts.items()
    ]
    findings = [Span("Findings: "), *_join([span] for span in counts), Span(f". Audited {summary.audited}.")]
    lines = [[Span(summary.headline)], [Span(summary.verdict, STRONG)], findings]
    yield Title(1, [Span(summary.title)])
    yield Paragraph([*lines, *([Span(text)] for text in (changes, summary.score_note) if text)])


def _section(title: str, *blocks: Block) -> Iterator[Block]:
    yield from (Title(2, [Span(title)]), *blocks)


def _text(text: str, style: str = "") -> Paragraph:
    return Paragraph([[Span(text, style)]])


def _named(name: str, text: str, style: str = CODE) -> Entry:
    return Entry([Span(name, style), Span(f": {text}")])


def _join(lines: Iterable[Line]) -> Iterator[Span]:
    for place, line in enumerate(lines):
        if place:
            yield Span(", ")
        yield from line


def _prose(text: str, style: str = "") -> Line:
    return [Span(part, CODE if is_code else style) for is_code, part in split_code(text)]


def _task_entry(task: Task, *, detailed: bool = False, example: bool = False) -> Entry:
    line = [Span(task.title, STRONG), Span(": ")]
    if len(task.groups) == 1:
        line += [Span(f"{format_count(task.mailboxes, 'mailbox')} on " if task.mailboxes else ""), Span(task.where, CODE)]
    else:
        line.append(Span(task.extent))
    if task.news:
        line += [Span(" ("), Span(task.news, STRONG), Span(")")]
    details = [_prose(task.remedy)] if detailed else []
    if example:
        details.append([Span(f"{'For example ' if task.findings > 1 else ''}{task.example}")])
    if detailed and len(task.groups) > 1:
        details.append(list(_places(task.groups)))
        if task.new not in {0, task.findings}:
            details.append([Span("New: ", STRONG), *_places(task.new_groups)])
    return Entry(line, details, task.severity, task.rule)


def _places(groups: Sequence[tuple[str, int]]) -> Iterator[Span]:
    yield from _join([Span(name, CODE), Span(f" ({count:,})")] for name, count in groups[:_MAX_PLACES])
    if len(groups) > _MAX_PLACES:
        yield Span(f" and {len(groups) - _MAX_PLACES:,} more")


def _cut(entries: Sequence[Entry], most: int, noun: str) -> list[Entry]:
    return [*entries[:most], *_more(len(entries) - most, noun)]


def _more(count: int, noun: str) -> list[Entry]:
    return [Entry([Span(f"and {format_count(count, noun)}")])] if count > 0 else []


def _change_blocks(report: Report) -> Iterator[Block]:
    scope, changes = describe_scope(report), list_figure_changes(report)
    if scope or changes:
        entries = [
            _named(each.name, f"{each.figure} {each.before} -> {each.after}{each.note}", "" if each.is_overall else CODE)
            for each in changes
        ]
        warning = [_text(scope, STRONG)] if scope else []
        yield from _section("What changed", *warning, Entries(_cut(entries, _MAX_CHANGES, "more changed figure")))


def _history_blocks(report: Report) -> Iterator[Block]:
    if not (points := list_points(report)):
        return
    trends: dict[str, list[Number | None]] = {
        "Score": [point.score for point in points],
        **{name: [point.counts.get(severity, 0) for point in points] for severity, name in _COUNTED.items()},
        "Mailboxes": [point.mailboxes for point in points],
    }
    rows = [
        [Span(text) for text in (name, draw_sparkline(values), format_figure(values[0]), format_figure(values[-1]))]
        for name, values in trends.items()
    ]
    yield from _section("History", _text(describe_points(points)), Grid(("Figure", "Trend", "First", "Now"), rows))


def _campaign_blocks(results: CampaignResults) -> Iterator[Block]:
    yield from _section("Campaigns, worst first", _text(format_totals(results)))
    lines = []
    for row in results.rows[:_MAX_CAMPAIGNS]:
        replied, bounced = format_share(row.replies_num, row.sent), format_share(row.bounces_num, row.sent)
        figures = (format_amount(row.sent), replied, bounced, format_amount(row.left_to_send), format_date(row.end))
        status = Span(format_status(row.status), "" if row.severity is None else row.severity.value)
        lines.append([Span(campaign_label(row.name, row.id), CODE), status, *map(Span, figures)])
    if lines:
        yield Grid(("Campaign", "Status", "Sent", "Replied", "Bounced", "Left", "Ends"), lines)
    if more := len(results.rows) - len(lines):
        yield _text(f"and {format_count(more, 'more campaign')}.")


def _domain_blocks(report: Report) -> Iterator[Block]:
    shown = [group for group in report.groups if group.kind == "domain" and group.severity is not None][:_MAX_DOMAINS]
    authentication = build_authentication(report)
    rows = []
    for group in shown:
        row = [
            Span(replace_unprintable(group.key), CODE),
            Span(f"{group.score:g}", f"score {score_tone(group.score, group.severity)}"),
        ]
        row += [Span(each.status, each.tone) for each in authentication(group.key, group.mailboxes)]
        counts = [(severity, group.counts[severity]) for severity in _COUNTED]
        rows.append([*row, *(Span(f"{count:,}", severity.value if count else SOFT) for severity, count in counts)])
    if shown:
        heads = ("Domain", "Score", *AUTHENTICATION_RULES, *_COUNTED.values())
        yield from _section("Domains, worst first", Grid(heads, rows))
    clean = len(report.scores.domains.keys() - {finding.domain for finding in report.findings})
    more = max(0, len(report.scores.domains) - clean - len(shown))
    further = f"{format_count(more, 'more domain')} with findings; " if more else ""
    rest = f"{further}{format_count(clean, 'domain')} without findings."
    yield Paragraph([[Span(rest)], [Span("The JSON and CSV reports list every finding.", SOFT)]])


def _brief_blocks(brief: Brief) -> Iterator[Block]:
    yield from _head(brief, brief.changed)
    if gaps := brief.gaps:
        entries = [_named(name, text) if name else Entry([Span(text)]) for name, text in gaps]
        yield from _section("Missing or out of date", Entries(entries))
    # Tasks of severity `error` or worse are urgent; if there are none, all are.
    urgent = min(_MAX_TASKS, sum(task.severity.reaches(Severity.ERROR) for task in brief.tasks) or len(brief.tasks))
    if urgent:
        entries = [_task_entry(task, detailed=True) for task in brief.tasks[:urgent]]
        yield from _section("What to do, most urgent first", Entries(entries, numbered=True))
    if entries := [_task_entry(task) for task in brief.tasks[urgent:]]:
        yield from _section("Less urgent", Entries(_cut(entries, _MAX_OTHERS, "more task")))
    yield from _active_blocks(brief)
    resolved = _cut([_task_entry(task) for task in brief.resolved], _MAX_TASKS, "more task")
    if resolved or brief.resolved_notes:
        yield from _section("Resolved", Entries([*resolved, *_more(brief.resolved_notes, "note")]))
    if notes := format_notes(brief):
        yield _text(notes, SOFT)


def format_notes(brief: Brief) -> str:
    count = brief.counts[Severity.INFO]
    return f"{count_severity(Severity.INFO, count)}. The audit lists every finding." if count else ""


def _active_blocks(brief: Brief) -> Iterator[Block]:
    if not brief.campaigns:
        return
    sums = format_sums(brief)
    yield from _section("Campaigns", *([_text(sums)] if sums else []))
    active = list_active(brief)[:_MAX_ACTIVE]
    for workspace, campaigns in groupby(active, key=attrgetter("workspace")):
        if len(brief.workspaces) > 1:
            yield Title(3, [Span(workspace_label(workspace, brief.names), CODE)])
        entries = []
        for campaign in campaigns:
            status = describe_status(campaign)
            text = f"{f' ({status})' if status else ''}: {format_recent(campaign)}"
            entries.append(Entry([Span(campaign_label(campaign.name, campaign.id), STRONG), Span(text)]))
        yield Entries(entries)
    if hidden := format_hidden(brief, len(active)):
        yield _text(hidden, SOFT)


def plain(line: Line) -> str:
    return replace_unprintable("".join(span.text for span in line))


# Text, Markdown and Slack.

WIDTH: Final = 80  # of plain text, in characters
_LABEL_WIDTH: Final = 8  # the longest name of a severity
_RULE_INDENT: Final = " " * 12  # of the lines below the first line of a finding
_MIN_NAME_WIDTH: Final = 16  # of the first column of a table
_NO_BREAK: Final = "\0"  # placeholder for a non-breaking space; spans have no control characters

_STYLES: Final = {
    "critical": "bold white on red",
    "error": "bold red",
    "warning": "yellow",
    "info": "cyan",
    "good": "green",
    "score critical": "red",
    "score warning": "yellow",
    "score good": "green",
    "score info": "dim",
    STRONG: "bold",
    SOFT: "dim",
}

_SPECIAL_CHARACTERS: Final = re.compile(
    r"[\\`*\[\]<|~$@]"
    r"|(?<![^\W_])_|_(?![^\W_])"  # an underscore, except within a word such as space_1
    r"|&(?=#?\w+;)"  # a character reference
    r"|(?<!\d):(?=\S)|(?<=www)\."  # a URL, which would become a link, or the name of an emoji
    r"|#(?=\w)"  # a reference to an issue, such as #1
)

_SPECIAL_STARTS: Final = frozenset("-+#=>")  # begin a list, a heading, an underline or a quotation at the start of a line
_NUMBERED: Final = re.compile(r"\d+[.)]")  # would become a numbered item
_BACKTICKS: Final = re.compile("`+")
_PLAIN_STYLES: Final = {"", SOFT}


def render_text(view: Report | Brief) -> str:
    return "".join(f"{plain(line)}\n" for line in lay_out(build_document(view), WIDTH, upper=True))


@attrs.frozen
class StyledReport:
    """A report or a brief that a console of rich prints in colours, as wide as the console.

    Attributes:
        report: The `Report` or `Brief` to print.

    Example:
        ```python
        from rich.console import Console

        with Path("audit.txt").open("w") as file:
            Console(file=file).print(StyledReport(report))
        ```
    """

    report: Report | Brief

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        for line in lay_out(build_document(self.report), options.max_width):
            yield Text.assemble(*((span.text, _STYLES.get(span.style, "")) for span in line), overflow="fold")


def lay_out(blocks: Iterable[Block], width: int, *, upper: bool = False) -> Iterator[Line]:
    earlier: Block | None = None
    for block in blocks:
        if isinstance(block, Paragraph) and isinstance(earlier, Entries | Grid):
            yield []
        earlier = block
        yield from _lay_out_block(block, width, upper=upper)


def _lay_out_block(block: Block, width: int, *, upper: bool) -> Iterator[Line]:
    match block:
        case Title(level=1):
            pass  # the first line of the report already contains the title
        case Title(level=2, line=line):
            yield []
            title = plain(line)
            yield [Span(title.upper() if upper else title, STRONG)]
        case Title(line=line):
            yield from wrap_line([Span(span.text, STRONG if span.style == CODE else span.style) for span in line], width)
        case Paragraph(lines=lines):
            for line in lines:
                yield from wrap_line(line, width)
        case Entries(entries=entries):
            for entry in entries:
                label, indent = list[Span](), "    "
                if entry.severity is not None:
                    label = [Span(f"{entry.severity.upper():<{_LABEL_WIDTH}}", entry.severity.value), Span(f"  {entry.rule}  ")]
                    indent = _RULE_INDENT
                yield from wrap_line([*label, *entry.line], width, "  ", indent)
                for line in entry.details:
                    yield from wrap_line(line, width, indent, indent)
        case _:
            yield from _lay_out_grid(block, width)


def _lay_out_grid(grid: Grid, width: int) -> Iterator[Line]:
    """Yield the rows of a table. A long name gets its own line; names are never truncated."""
    columns = list(zip([Span(head) for head in grid.heads], *grid.rows, strict=True))
    widths = [max(len(cell.text) for cell in column) for column in columns]
    room = width - sum(each + 2 for each in widths[1:])
    widths[0] = min(max(_MIN_NAME_WIDTH, room), widths[0])
    for name, *cells in zip(*columns, strict=True):
        shown = name
        if len(name.text) > widths[0]:
            yield from wrap_line([name], width)
            shown = Span("")
        row = [Span(f"{shown.text:<{widths[0]}}", shown.style)]
        for cell, each in zip(cells, widths[1:], strict=True):
            row += [Span("  " + " " * (each - len(cell.text))), cell]
        yield row


def wrap_line(line: Line, width: int, first: str = "", indent: str = "") -> Iterator[Line]:
    """Wrap a line to a width, and yield the resulting lines. Code spans, such as DNS records, stay on one line if they fit."""
    room = width - len(indent)
    kept = (span.text.replace(" ", _NO_BREAK) if span.style == CODE and len(span.text) <= room else span.text for span in line)
    styles = iter([(character, span.style) for span in line for character in span.text])
    text = "".join(kept)
    for place, wrapped in enumerate(wrap(text, width, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)):
        margin = indent if place else first
        shown = wrapped[len(margin) :].replace(_NO_BREAK, " ")
        # Wrapping removes only spaces at the ends of lines, so the styles of the characters follow in order.
        styled = [(character, next(style for other, style in styles if other == character)) for character in shown]
        groups = groupby(styled, key=itemgetter(1))
        yield [Span(margin), *(Span("".join(character for character, _ in part), style) for style, part in groups)]


def render_markdown(view: Report | Brief) -> str:
    lines = [line for block in build_document(view) for line in (*_markdown_block(block), "")]
    return "".join(f"{line}\n" for line in lines[:-1])


def _markdown_block(block: Block) -> Iterator[str]:
    match block:
        case Title(level=level, line=line):
            yield f"{'#' * level} {_markdown_line(line)}"
        case Paragraph(lines=lines):
            yield from _hard_breaks(map(_markdown_start, lines))
        case Entries(entries=entries, numbered=numbered):
            for number, entry in enumerate(entries, 1):
                yield from _markdown_entry(entry, f"{number}. " if numbered else "- ")
        case _:
            rows = [[escape_markdown(head) for head in block.heads]]
            rows += [[_markdown_span(span, in_table=True) for span in row] for row in block.rows]
            widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
            rows.insert(1, ["-" * width for width in widths])
            for row in rows:
                yield f"| {' | '.join(f'{cell:<{width}}' for cell, width in zip(row, widths, strict=True))} |"


def _markdown_entry(entry: Entry, marker: str) -> Iterator[str]:
    label = [] if entry.severity is None else [Span(entry.severity.upper(), entry.severity.value), Span(f" {entry.rule} ")]
    lines = [_markdown_start([*label, *entry.line]), *map(_markdown_start, entry.details)]
    for place, shown in enumerate(_hard_breaks(lines)):
        yield f"{' ' * len(marker) if place else marker}{shown}"


def _hard_breaks(lines: Iterable[str]) -> Iterator[str]:
    shown = [line for line in lines if line]
    yield from (f"{line}  " for line in shown[:-1])
    yield from shown[-1:]


def _markdown_start(line: Line) -> str:
    """Return a line as Markdown. Escape its start if Markdown would render the line as a list, a heading or a quotation."""
    text = _markdown_line(line).strip()
    if text[:1] in _SPECIAL_STARTS:
        return f"\\{text}"
    number = _NUMBERED.match(text)
    return f"{text[: number.end() - 1]}\\{text[number.end() - 1 :]}" if number else text


def _markdown_line(line: Line) -> str:
    return "".join(map(_markdown_span, line))


def _markdown_span(span: Span, *, in_table: bool = False) -> str:
    if span.style == CODE:
        return format_code(span.text, in_table=in_table)
    text = escape_markdown(span.text)
    return text if in_table or span.style in _PLAIN_STYLES else f"**{text}**"


def escape_markdown(text: str) -> str:
    return _SPECIAL_CHARACTERS.sub(r"\\\g<0>", replace_unprintable(text))


def format_code(text: str, *, in_table: bool = False) -> str:
    shown = replace_unprintable(text)
    shown = shown.replace("|", "\\|") if in_table else shown
    fence = "`" * (1 + max((len(ticks) for ticks in _BACKTICKS.findall(shown)), default=0))
    return f"{fence} {shown} {fence}" if "`" in shown or not shown.strip() else f"{fence}{shown}{fence}"


MAX_BLOCKS: Final = 50
MAX_SECTION: Final = 3_000
MAX_HEADER: Final = 150
"""Limits of Slack: blocks of a message, and characters of the text of a section and of a header. It rejects a longer message."""

_MAX_LINE: Final = 1_000
_MAX_STOPPED: Final = 30
_SECTION: Final = 2  # level of the title of a section
_SIGNS: Final = {
    Severity.CRITICAL: ":red_circle:",
    Severity.ERROR: ":large_orange_circle:",
    Severity.WARNING: ":large_yellow_circle:",
    Severity.INFO: ":large_blue_circle:",
}
_MARKS: Final = {CODE: "`", STRONG: "*"}
_ESCAPES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def render_brief_slack(brief: Brief) -> str:
    """Render a brief as the JSON of a Slack message, whose text is shown where blocks are not, as in notifications."""
    _, head, *rest = build_document(brief)
    sections = [list(_mark_block(head))]
    if brief.stop:
        sections[0].append(f"*Stop now: {len(brief.stop):,}*")
        sections[0] += [_mark([Span(subject, CODE)]) for subject in brief.stop[:_MAX_STOPPED]]
        if len(brief.stop) > _MAX_STOPPED:
            sections[0].append(f"and {len(brief.stop) - _MAX_STOPPED:,} more")
    for block in rest:
        if len(sections) == 1 or (isinstance(block, Title) and block.level == _SECTION):
            sections.append([])
        sections[-1] += _mark_block(block)
    header = shorten(f"{brief.title}: {brief.verdict}", MAX_HEADER - 3)
    blocks = [{"type": "header", "text": {"type": "plain_text", "text": header}}]
    for lines in sections:
        blocks += map(_slack_section, _pack(lines))
    if len(blocks) > MAX_BLOCKS:
        blocks = [
            *blocks[: MAX_BLOCKS - 1],
            _slack_section("The message is too long; the other formats of the brief are complete."),
        ]
    return f"{json.dumps({'text': _escape(f'{brief.title}: {brief.verdict}'), 'blocks': blocks}, indent=1)}\n"


def _slack_section(text: str) -> dict[str, Any]:
    # With `verbatim`, Slack does not turn addresses and names of channels into links.
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def _mark_block(block: Block) -> Iterator[str]:
    match block:
        case Title(line=line):
            yield _mark([Span(span.text, STRONG) for span in line])
        case Paragraph(lines=lines):
            yield from map(_mark, lines)
        case Entries(entries=entries):
            for entry in entries:
                yield f"{_SIGNS[entry.severity] if entry.severity else '•'} {_mark(entry.line)}"
                yield from (f"      {_mark(line)}" for line in entry.details)
        case _:  # pragma: no cover - briefs have no tables
            raise AssertionError(block)


def _mark(line: Line) -> str:
    marked = ""
    for span in line:
        mark, text = _MARKS.get(span.style, ""), replace_unprintable(shorten(span.text, _MAX_LINE // 4))
        # Slack has no escape for its marks, so those within a marked text are replaced.
        text = text.replace(mark, "'") if mark else text
        marked += f"{mark}{_escape(text)}{mark}" if text.strip() else text
    return marked


def _escape(text: str) -> str:
    return replace_unprintable(text).translate(_ESCAPES)


def _pack(lines: Iterable[str]) -> Iterator[str]:
    packed = ""
    for line in lines:
        fitting = line if len(line) <= MAX_SECTION else f"{line[: MAX_SECTION - 1]}…"
        if packed and len(packed) + 1 + len(fitting) > MAX_SECTION:
            yield packed
            packed = ""
        packed = f"{packed}\n{fitting}" if packed else fitting
    yield packed
