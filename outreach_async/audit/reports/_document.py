"""Build the content of a report or a brief as blocks, which are rendered on a console, as plain text or as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Final, TypeAlias

import attrs

from outreach_async.audit._findings import Severity
from outreach_async.audit._report import Report
from outreach_async.audit.campaigns import CampaignResults, CampaignRow
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
    campaign_label,
    count_severity,
    format_changes,
    format_headline,
    split_urgent,
    summarize,
)
from outreach_async.audit.reports._view import (
    AUTHENTICATION_RULES,
    COUNTED_SEVERITIES,
    DomainView,
    Overview,
    build_overview,
)
from outreach_async.audit.reports._wording import format_count, format_date, format_time, replace_unprintable, split_code
from outreach_async.audit.reports.brief import Brief, CampaignBrief, WorkspaceBrief

AUDIT_TITLE: Final = "Mailbox audit"
BRIEF_TITLE: Final = "Outreach brief"

CODE: Final = "code"
STRONG: Final = "strong"
SOFT: Final = "soft"

_MAX_PLACES: Final = 5
_MAX_TASKS: Final = 5
_MAX_OTHERS: Final = 8
_MAX_ACTIVE: Final = 10
_MAX_CHANGES: Final = 10
_MAX_CAMPAIGNS: Final = 20
_MAX_GAPS: Final = 5
"""Maximum number of workspaces that a brief lists as missing or out of date."""


@attrs.frozen
class Span:
    """A piece of a line, in one style."""

    text: str
    style: str = ""


Line: TypeAlias = Sequence[Span]


@attrs.frozen
class Title:
    """A heading of level 1 (the report), 2 (a section) or 3 (a domain)."""

    level: int
    line: Line


@attrs.frozen
class Paragraph:
    """Consecutive lines without a blank line between them."""

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
    """A list, numbered or with bullets."""

    entries: Sequence[Entry]
    numbered: bool = False


@attrs.frozen
class Grid:
    """A table. The first column contains names, and the other columns contain short values."""

    heads: Sequence[str]
    rows: Sequence[Line]


Block: TypeAlias = Title | Paragraph | Entries | Grid


def build_document(report: Report, *, max_domains: int | None = None) -> Iterator[Block]:
    """Yield the blocks of a report: verdict, recommended actions, changes, campaigns, domains, and the limits of the audit."""
    summary, view = summarize(report), build_overview(report)
    yield Title(1, [Span(AUDIT_TITLE)])
    yield _head(AUDIT_TITLE, summary, format_changes(summary) if summary.changes else "")
    if view.unread:
        yield from (_section("Not read and not checked"), Entries(list(_unread_entries(view))))
    if summary.tasks:
        entries = [_task_entry(task, detailed=True) for task in summary.tasks]
        yield from (_section("What to do, most urgent first"), Entries(entries, numbered=True))
    yield from _resolved_blocks(summary.resolved, None)
    yield from _change_blocks(view)
    if view.trends:
        rows = [[Span(each.name), Span(each.sparkline), Span(each.first), Span(each.last)] for each in view.trends.trends]
        yield from (_section("History"), _text(view.trends.summary), Grid(("Figure", "Trend", "First", "Now"), rows))
    if report.campaigns is not None:
        yield from _campaign_blocks(report.campaigns)
    yield from _domain_blocks(view, max_domains)
    yield Paragraph([[Span(view.rest)], [Span("The JSON and CSV reports list every finding.", SOFT)]])
    yield from (_section("What this audit cannot check"), Entries([Entry(_prose(line, SOFT)) for line in view.unknowable]))


def _head(title: str, summary: Summary, changes: str) -> Paragraph:
    counts = [
        Span(count_severity(severity, count), severity.value if count else SOFT) for severity, count in summary.counts.items()
    ]
    findings = [Span("Findings: "), *_join([span] for span in counts), Span(f". Audited {summary.audited}.")]
    lines = [[Span(format_headline(title, summary))], [Span(summary.verdict, STRONG)], findings]
    lines += [[Span(text)] for text in (changes, summary.score_note) if text]
    return Paragraph(lines)


def _section(title: str) -> Title:
    return Title(2, [Span(title)])


def _text(text: str, style: str = "") -> Paragraph:
    return Paragraph([[Span(text, style)]])


def _join(lines: Iterable[Line]) -> Iterator[Span]:
    """Yield the spans of several lines, with a comma between the lines."""
    for place, line in enumerate(lines):
        if place:
            yield Span(", ")
        yield from line


def _prose(text: str, style: str = "") -> Line:
    return [Span(part, CODE if is_code else style) for is_code, part in split_code(text)]


def _unread_entries(view: Overview) -> Iterator[Entry]:
    for name, error in view.unread:
        yield Entry([Span(name, CODE), Span(f": {error}")])
    if view.unread_names:
        yield Entry([Span("and "), *_join([Span(name, CODE)] for name in view.unread_names)])


def _extent(task: Task) -> Line:
    if len(task.groups) != 1:
        return [Span(task.extent)]
    name = Span(task.groups[0][0], CODE)
    return [Span(f"{format_count(task.mailboxes, 'mailbox')} on "), name] if task.mailboxes else [name]


def _task_entry(task: Task, *, detailed: bool) -> Entry:
    line = [Span(task.title, STRONG), Span(": "), *_extent(task)]
    if task.news:
        line += [Span(" ("), Span(task.news, STRONG), Span(")")]
    if not detailed:
        return Entry(line, (), task.severity, task.rule)
    details = [_prose(task.remedy)]
    if len(task.groups) > 1:
        details.append(list(_places(task.groups)))
        if task.new not in {0, task.findings}:
            details.append([Span("New: ", STRONG), *_places(task.new_groups)])
    return Entry(line, details, task.severity, task.rule)


def _places(groups: Sequence[tuple[str, int]]) -> Iterator[Span]:
    yield from _join([Span(name, CODE), Span(f" ({count:,})")] for name, count in groups[:_MAX_PLACES])
    if len(groups) > _MAX_PLACES:
        yield Span(f" and {len(groups) - _MAX_PLACES:,} more")


def _resolved_blocks(tasks: Sequence[Task], most: int | None, notes: int = 0) -> Iterator[Block]:
    """Yield the section of resolved findings: at most `most` tasks, and the number of resolved notes that no task contains."""
    entries = [_task_entry(task, detailed=False) for task in tasks[:most]]
    entries += _more_entries(len(tasks) - len(entries), "more task")
    entries += _more_entries(notes, "note")
    if entries:
        yield from (_section("Resolved"), Entries(entries))


def _more_entries(count: int, noun: str) -> list[Entry]:
    return [Entry([Span(f"and {format_count(count, noun)}")])] if count > 0 else []


def _change_blocks(view: Overview) -> Iterator[Block]:
    if not view.scope and not view.figure_changes:
        return
    yield _section("What changed")
    if view.scope:
        yield _text(view.scope, STRONG)
    entries = [
        Entry([Span(each.name, CODE if each.has_name else ""), Span(f": {each.figure} {each.before} -> {each.after}{each.note}")])
        for each in view.figure_changes[:_MAX_CHANGES]
    ]
    more = len(view.figure_changes) - _MAX_CHANGES
    yield Entries([*entries, *([Entry([Span(f"and {format_count(more, 'more figure')} changed")])] if more > 0 else [])])


def _campaign_blocks(results: CampaignResults) -> Iterator[Block]:
    yield from (_section("Campaigns, worst first"), _text(format_totals(results)))
    rows = results.rows[:_MAX_CAMPAIGNS]
    if rows:
        yield Grid(("Campaign", "Status", "Sent", "Replied", "Bounced", "Left", "Ends"), list(map(_campaign_row, rows)))
    if more := len(results.rows) - len(rows):
        yield _text(f"and {format_count(more, 'more campaign')}.")


def _campaign_row(row: CampaignRow) -> Line:
    replied, bounced = format_share(row.replies_num, row.sent), format_share(row.bounces_num, row.sent)
    figures = (format_amount(row.sent), replied, bounced, format_amount(row.left_to_send), format_date(row.end))
    status = Span(format_status(row.status), "" if row.severity is None else row.severity.value)
    return [Span(campaign_label(row.name, row.id), CODE), status, *map(Span, figures)]


def _domain_blocks(view: Overview, most: int | None) -> Iterator[Block]:
    domains = [*view.worst_domains, *view.other_domains]
    if not domains:
        return
    heads = ("Domain", "Score", *AUTHENTICATION_RULES, *(severity.value.capitalize() for severity in COUNTED_SEVERITIES))
    yield from (_section("Domains, worst first"), Grid(heads, list(map(_domain_row, domains[:most]))))
    if most is not None and len(domains) > most:
        yield _text(f"and {format_count(len(domains) - most, 'more domain')} with errors.")
    yield _section("Findings by domain, worst first")
    yield from chain.from_iterable(map(_domain_detail, view.worst_domains))


def _domain_row(domain: DomainView) -> Line:
    counts = [(severity, domain.count(severity)) for severity in COUNTED_SEVERITIES]
    return [
        Span(domain.name, CODE),
        Span(domain.points, f"score {domain.tone}"),
        *(Span(each.status, each.tone) for each in domain.authentication),
        *(Span(f"{count:,}", severity.value if count else SOFT) for severity, count in counts),
    ]


def _domain_detail(domain: DomainView) -> Iterator[Block]:
    size = f", {format_count(domain.mailboxes, 'mailbox')}"
    yield Title(3, [Span(domain.name, CODE), Span(": "), Span(domain.score_label, f"score {domain.tone}"), Span(size)])
    yield Entries(
        [
            Entry(
                [Span(issue.title, STRONG)],
                [[Span("for example " if issue.findings > 1 else ""), Span(issue.subject, CODE), Span(f": {issue.message}")]],
                issue.severity,
                issue.rule,
            )
            for issue in domain.visible_issues
        ]
    )


def build_brief_document(brief: Brief) -> Iterator[Block]:
    """Yield the blocks of a brief: the verdict, the open tasks, the campaigns and the resolved findings."""
    yield Title(1, [Span(BRIEF_TITLE)])
    yield _head(BRIEF_TITLE, brief, format_changes(brief))
    if gaps := list(list_gaps(brief)):
        entries = [Entry([Span(name, CODE), Span(f": {text}")] if name else [Span(text)]) for name, text in gaps]
        yield from (_section("Missing or out of date"), Entries(entries))
    urgent, others = split_urgent(brief.tasks)
    if urgent:
        yield _section("What to do, most urgent first")
        yield Entries([_task_entry(task, detailed=True) for task in urgent[:_MAX_TASKS]], numbered=True)
    if others := [*urgent[_MAX_TASKS:], *others]:
        entries = [_task_entry(task, detailed=False) for task in others[:_MAX_OTHERS]]
        yield from (_section("Less urgent"), Entries([*entries, *_more_entries(len(others) - _MAX_OTHERS, "more task")]))
    yield from _active_blocks(brief)
    yield from _resolved_blocks(brief.resolved, _MAX_TASKS, brief.resolved_notes)
    if notes := format_notes(brief):
        yield _text(notes, SOFT)


def format_notes(brief: Brief) -> str:
    """Return a sentence with the number of notes; an empty string if there are no notes."""
    count = brief.counts[Severity.INFO]
    return f"{count_severity(Severity.INFO, count)}. The audit lists every finding." if count else ""


def list_gaps(brief: Brief) -> Iterator[tuple[str, str]]:
    """Yield a workspace and a description for each gap in the data. No workspace is named if the gap concerns several."""
    gaps = [
        (brief.label_of(workspace.id), text) for workspace in brief.workspaces if (text := _describe_gap(workspace, brief.since))
    ]
    gaps += [(brief.label_of(workspace), "is no longer covered.") for workspace in brief.dropped]
    yield from ((name, replace_unprintable(text)) for name, text in gaps[:_MAX_GAPS])
    if len(gaps) > _MAX_GAPS:
        yield "", f"and {format_count(len(gaps) - _MAX_GAPS, 'more workspace')}"
    if brief.changes and brief.changes.not_judged:
        yield "", f"{format_count(brief.changes.not_judged, 'earlier finding')} could not be checked again."


def _describe_gap(workspace: WorkspaceBrief, since: float | None) -> str:
    if workspace.error is not None:
        read = f"last read {format_time(workspace.since)}" if workspace.since else "never read before"
        return f"{workspace.error} ({read})"
    if since is not None and workspace.since is None:
        return "is covered for the first time."
    if workspace.since != since:
        return f"is compared with an older audit ({format_time(workspace.since or 0)})."
    return ""


def _active_blocks(brief: Brief) -> Iterator[Block]:
    if not brief.campaigns:
        return
    yield _section("Campaigns")
    if sums := format_sums(brief):
        yield _text(sums)
    active = list_active(brief)[:_MAX_ACTIVE]
    for workspace, campaigns in groupby(active, key=attrgetter("workspace")):
        if len(brief.workspaces) > 1:
            yield Title(3, [Span(brief.label_of(workspace), CODE)])
        yield Entries([_active_entry(campaign) for campaign in campaigns])
    if hidden := format_hidden(brief, len(active)):
        yield _text(hidden, SOFT)


def _active_entry(campaign: CampaignBrief) -> Entry:
    shown = describe_status(campaign)
    status = f" ({shown})" if shown else ""
    return Entry([Span(campaign_label(campaign.name, campaign.id), STRONG), Span(f"{status}: {format_recent(campaign)}")])


def plain(line: Line) -> str:
    """Return the content of a line as a string, without styles."""
    return replace_unprintable("".join(span.text for span in line))
