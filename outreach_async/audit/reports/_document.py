"""Build the content of a report or a brief as blocks, which are rendered on a console, as plain text or as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Final, TypeAlias

import attrs

from outreach_async.audit._findings import Severity
from outreach_async.audit._report import Report
from outreach_async.audit.reports._brief_view import (
    BRIEF_TITLE,
    ActiveCampaign,
    format_brief_changes,
    format_brief_headline,
    format_campaign_sums,
    format_hidden,
    format_news,
    format_notes,
    list_campaigns,
    list_gaps,
    split_urgent,
)
from outreach_async.audit.reports._campaign_view import CampaignLine, CampaignView
from outreach_async.audit.reports._summary import Action, Changes
from outreach_async.audit.reports._view import (
    AUTHENTICATION_RULES,
    COUNTED_SEVERITIES,
    DomainView,
    Overview,
    build_overview,
    count_severity,
)
from outreach_async.audit.reports._wording import format_count, replace_unprintable, split_code
from outreach_async.audit.reports.brief import Brief, Task

CODE: Final = "code"
STRONG: Final = "strong"
SOFT: Final = "soft"

_MAX_PLACES: Final = 5
_MAX_TASKS: Final = 5
_MAX_OTHERS: Final = 8
_MAX_ACTIVE: Final = 10
_MAX_CHANGES: Final = 10
_MAX_CAMPAIGNS: Final = 20


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
    view = build_overview(report)
    yield Title(1, [Span("Mailbox audit")])
    yield Paragraph([[Span(view.headline)], [Span(view.verdict, STRONG)], _counts_line(view)])
    if view.unread:
        yield from (_section("Not read and not checked"), Entries(list(_unread_entries(view))))
    if view.actions:
        yield from (_section("What to do, most urgent first"), Entries(list(map(_action_entry, view.actions)), numbered=True))
    if view.changes:
        scope = [[Span(view.changes.scope, STRONG)]] if view.changes.scope else []
        yield from (_section("What changed"), Paragraph([[Span(view.changes.summary)], *scope]))
        yield Entries([Entry(line) for line in _change_lines(view.changes)])
    if view.trends:
        rows = [[Span(each.name), Span(each.sparkline), Span(each.first), Span(each.last)] for each in view.trends.trends]
        yield from (
            _section("History"),
            Paragraph([[Span(view.trends.summary)]]),
            Grid(("Figure", "Trend", "First", "Now"), rows),
        )
    yield from _campaign_blocks(view.campaigns)
    yield from _domain_blocks(view, max_domains)
    yield Paragraph([[Span(view.summary)], [Span("The JSON and CSV reports list every finding.", SOFT)]])
    yield from (_section("What this audit cannot check"), Entries([Entry(_prose(line, SOFT)) for line in view.unknowable]))


def _section(title: str) -> Title:
    return Title(2, [Span(title)])


def _counts_line(view: Overview) -> Line:
    counts = [Span(count_severity(severity, count), severity.value if count else SOFT) for severity, count in view.counts.items()]
    return [Span("Findings: "), *_join([span] for span in counts), Span(f". Audited {view.audited_at}.")]


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


def _extent(action: Action) -> Line:
    if len(action.groups) != 1:
        return [Span(action.extent)]
    name = Span(action.groups[0][0], CODE)
    return [Span(f"{format_count(action.mailboxes, 'mailbox')} on "), name] if action.mailboxes else [name]


def _action_entry(action: Action) -> Entry:
    details = [_prose(action.remedy)]
    if len(action.groups) > 1:
        details.append(list(_places(action.groups)))
    line = [Span(action.title, STRONG), Span(": "), *_extent(action)]
    return Entry(line, details, action.severity, action.rule)


def _places(groups: Sequence[tuple[str, int]]) -> Iterator[Span]:
    yield from _join([Span(name, CODE), Span(f" ({count:,})")] for name, count in groups[:_MAX_PLACES])
    if len(groups) > _MAX_PLACES:
        yield Span(f" and {len(groups) - _MAX_PLACES:,} more")


def _change_lines(changes: Changes) -> Iterator[Line]:
    for label, actions in (("New", changes.new), ("Resolved", changes.resolved)):
        for action in actions:
            severity = Span(action.severity.upper(), action.severity.value)
            yield [Span(f"{label}: "), severity, Span(f" {action.rule} {action.title}: "), *_extent(action)]
    for change in changes.figure_changes[:_MAX_CHANGES]:
        name = Span(change.name, CODE if change.has_name else "")
        yield [name, Span(f": {change.figure} {change.before} -> {change.after}")]
    more = len(changes.figure_changes) - _MAX_CHANGES
    if more > 0:
        yield [Span(f"and {format_count(more, 'more figure')} changed")]


def _campaign_blocks(view: CampaignView | None) -> Iterator[Block]:
    if view is None:
        return
    yield from (_section("Campaigns, worst first"), Paragraph([[Span(view.summary)]]))
    if view.campaigns:
        heads = ("Campaign", "Status", "Sent", "Replied", "Bounced", "Left", "Ends")
        yield Grid(heads, [_campaign_row(line) for line in view.campaigns[:_MAX_CAMPAIGNS]])
    if len(view.campaigns) > _MAX_CAMPAIGNS:
        yield Paragraph([[Span(f"and {format_count(len(view.campaigns) - _MAX_CAMPAIGNS, 'more campaign')}.")]])
    if view.comparisons:
        yield _section("A/B variants")
        shown = view.comparisons[:_MAX_CAMPAIGNS]
        yield Entries([Entry([Span(each.name, CODE), Span(f": {each.verdict}. Replies: {each.variants}.")]) for each in shown])
    if len(view.comparisons) > _MAX_CAMPAIGNS:
        yield Paragraph([[Span(f"and {format_count(len(view.comparisons) - _MAX_CAMPAIGNS, 'more step')} with variants.")]])


def _campaign_row(line: CampaignLine) -> Line:
    style = "" if line.severity is None else line.severity.value
    figures = (line.sent, line.replied, line.bounced, line.left, line.end)
    return [Span(line.name, CODE), Span(line.status, style), *map(Span, figures)]


def _domain_blocks(view: Overview, most: int | None) -> Iterator[Block]:
    domains = [*view.worst_domains, *view.other_domains]
    if not domains:
        return
    heads = ("Domain", "Score", *AUTHENTICATION_RULES, *(severity.value.capitalize() for severity in COUNTED_SEVERITIES))
    yield from (_section("Domains, worst first"), Grid(heads, list(map(_domain_row, domains[:most]))))
    if most is not None and len(domains) > most:
        yield Paragraph([[Span(f"and {format_count(len(domains) - most, 'more domain')} with errors.")]])
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
    yield Paragraph([[Span(format_brief_headline(brief))], [Span(brief.verdict, STRONG)], [Span(format_brief_changes(brief))]])
    if gaps := list(list_gaps(brief)):
        entries = [Entry([Span(name, CODE), Span(f": {text}")] if name else [Span(text)]) for name, text in gaps]
        yield from (_section("Missing or out of date"), Entries(entries))
    urgent, others = split_urgent(brief)
    if urgent:
        yield _section("What to do, most urgent first")
        yield Entries([_task_entry(task, detailed=True) for task in urgent[:_MAX_TASKS]], numbered=True)
    if others := [*urgent[_MAX_TASKS:], *others]:
        entries = [_task_entry(task, detailed=False) for task in others[:_MAX_OTHERS]]
        yield from (_section("Less urgent"), Entries([*entries, *_more_entries(len(others) - _MAX_OTHERS)]))
    yield from _active_blocks(brief)
    if brief.resolved:
        entries = [Entry([Span(f"{task.title}: "), *_extent(task)]) for task in brief.resolved[:_MAX_TASKS]]
        yield from (_section("Resolved"), Entries([*entries, *_more_entries(len(brief.resolved) - _MAX_TASKS)]))
    if notes := format_notes(brief):
        yield Paragraph([[Span(notes, SOFT)]])


def _task_entry(task: Task, *, detailed: bool) -> Entry:
    entry, news = _action_entry(task), format_news(task)
    line = [*entry.line, Span(" ("), Span(news, STRONG), Span(")")] if news else entry.line
    if not detailed:
        return Entry(line, (), task.severity, task.rule)
    if len(task.groups) == 1 or task.new in {0, task.findings}:
        return attrs.evolve(entry, line=line)
    return attrs.evolve(entry, line=line, details=[*entry.details, [Span("New: ", STRONG), *_places(task.new_groups)]])


def _active_blocks(brief: Brief) -> Iterator[Block]:
    if not brief.campaigns:
        return
    yield _section("Campaigns")
    if sums := format_campaign_sums(brief):
        yield Paragraph([[Span(sums)]])
    lines = list_campaigns(brief)
    for workspace, campaigns in groupby(lines[:_MAX_ACTIVE], key=attrgetter("workspace")):
        if len(brief.workspaces) > 1:
            yield Title(3, [Span(workspace, CODE)])
        yield Entries([_active_entry(campaign) for campaign in campaigns])
    if hidden := format_hidden(brief, min(len(lines), _MAX_ACTIVE)):
        yield Paragraph([[Span(hidden, SOFT)]])


def _active_entry(campaign: ActiveCampaign) -> Entry:
    status = f" ({campaign.status})" if campaign.status else ""
    return Entry([Span(campaign.name, STRONG), Span(f"{status}: {campaign.summary}")])


def _more_entries(count: int) -> list[Entry]:
    return [Entry([Span(f"and {format_count(count, 'more rule')}")])] if count > 0 else []


def plain(line: Line) -> str:
    """Return the content of a line as a string, without styles."""
    return replace_unprintable("".join(span.text for span in line))
