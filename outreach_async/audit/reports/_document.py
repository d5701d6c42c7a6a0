"""Build the content of a report or a brief as blocks, which are rendered on a console, as plain text or as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, TypeAlias

import attrs

from outreach_async.audit._findings import Severity, campaign_label
from outreach_async.audit._report import Report
from outreach_async.audit._values import replace_unprintable
from outreach_async.audit.campaigns import CampaignResults
from outreach_async.audit.reports._campaign_view import (
    describe_status,
    format_amount,
    format_hidden,
    format_recent,
    format_share,
    format_status,
    format_sums,
    format_totals,
    list_active,
)
from outreach_async.audit.reports._summary import (
    Summary,
    Task,
    count_severity,
    summarize,
    workspace_label,
)
from outreach_async.audit.reports._view import (
    AUTHENTICATION_RULES,
    build_authentication,
    describe_points,
    describe_scope,
    draw_sparkline,
    list_figure_changes,
    list_points,
    list_unread,
    score_tone,
)
from outreach_async.audit.reports._wording import format_date, format_figure, split_code
from outreach_async.audit.reports.brief import Brief
from outreach_async.errors import format_count
from outreach_async.models import Number

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
