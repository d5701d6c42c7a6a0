"""A report as plain text of at most 80 columns, and as Markdown with GitHub tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from textwrap import wrap
from typing import Final

from outreach_async.audit.findings import Finding
from outreach_async.audit.report import Report
from outreach_async.audit.reports.summary import MAX_CHANGES, Action, Changes, subject_name, worst_first_key
from outreach_async.audit.reports.view import COUNTED_SEVERITIES, DomainView, Issue, Overview, build_overview
from outreach_async.audit.reports.wording import format_count, format_figure, format_mailboxes, format_time, replace_unprintable

WIDTH: Final = 80
_NAME_WIDTH: Final = 42

_wrap: Final = partial(wrap, width=WIDTH, break_on_hyphens=False)


def render_text(report: Report) -> str:
    """Render a report as plain text, with actions first."""
    return "".join(f"{line}\n" for line in _text_lines(build_overview(report)))


def _text_lines(view: Overview) -> Iterator[str]:
    yield from _wrap(view.headline)
    yield from _wrap(view.verdict)
    yield from _wrap(
        f"{', '.join(f'{count:,} {severity}' for severity, count in view.counts.items())}. Audited {view.audited_at}."
    )
    yield from _text_unread(view)
    if view.changes:
        yield from _text_changes(view.changes)
    if view.actions:
        yield from ("", "WHAT TO DO, MOST URGENT FIRST")
    for action in view.actions:
        yield from _text_action(action)
    if view.worst_domains:
        yield from ("", "FINDINGS BY DOMAIN, WORST FIRST")
    for domain in view.worst_domains:
        yield from _text_domain(domain)
    if view.other_domains:
        yield from ("", *_text_domain_row("Other domains with errors", "score", COUNTED_SEVERITIES))
    for domain in view.other_domains:
        yield from _text_domain_row(
            domain.name, domain.points, [f"{domain.count(severity):,}" for severity in COUNTED_SEVERITIES]
        )
    yield from ("", *_wrap(view.summary))
    yield from ("", "WHAT THIS AUDIT CANNOT CHECK")
    for line in view.unknowable:
        yield from _text_entry(line)


def _text_unread(view: Overview) -> Iterator[str]:
    if view.unread:
        yield from ("", "NOT READ AND NOT CHECKED")
    for line in view.unread:
        yield from _text_entry(line)
    if view.unread_names:
        yield from _text_entry(f"and {', '.join(view.unread_names)}")


def _text_changes(view: Changes) -> Iterator[str]:
    yield from ("", "WHAT CHANGED")
    yield from _text_entry(view.summary)
    for line in format_changes(view):
        yield from _text_entry(line)


def format_changes(view: Changes) -> Iterator[str]:
    """Yield a line for each new and resolved finding by rule, and for each changed figure."""
    for label, found in (("New", view.new), ("Resolved", view.resolved)):
        for action in found:
            yield f"{label}: {action.severity.upper()} {action.rule} {action.title}: {action.extent}"
    yield from (move.description for move in view.figure_changes[:MAX_CHANGES])
    if len(view.figure_changes) > MAX_CHANGES:
        yield f"and {format_count(len(view.figure_changes) - MAX_CHANGES, 'more figure')} changed"


def _text_action(action: Action) -> Iterator[str]:
    label = f"  {action.severity.upper():<8}  {action.rule}  {action.title}: {action.extent}"
    yield from _wrap(label, subsequent_indent=" " * 12)
    yield from _wrap(action.remedy, initial_indent=" " * 12, subsequent_indent=" " * 12)


def _text_domain(view: DomainView) -> Iterator[str]:
    yield from _text_name_row(view.name, f"{view.score_label}, {format_mailboxes(view.mailboxes)}")
    for issue in view.visible_issues:
        yield from _text_issue(issue)


def _text_issue(issue: Issue) -> Iterator[str]:
    yield f"  {issue.severity.upper():<8}  {issue.rule}  {issue.title}"
    yield from _wrap(issue.labelled_example, initial_indent=" " * 12, subsequent_indent=" " * 12)


def _text_domain_row(name: str, score: str, counts: Iterable[str]) -> Iterator[str]:
    yield from _text_name_row(name, f"{score:>5}  {'  '.join(f'{count:>8}' for count in counts)}")


def _text_name_row(name: str, figures: str) -> Iterator[str]:
    """Yield a name and its figures on one line, or on two if the name is too long; a name is never cut."""
    if len(name) > _NAME_WIDTH:
        yield from _wrap(name)
        name = ""
    yield f"{name:<{_NAME_WIDTH}}  {figures}"


def _text_entry(text: str) -> list[str]:
    return _wrap(text, initial_indent="  ", subsequent_indent="    ")


MAX_FINDINGS: Final = 200
"""Maximum findings in the report; nobody reads a longer page."""

_MAX_GROUPS: Final = 5
_MAX_DOMAINS: Final = 25

_SPECIAL_CHARACTERS: Final = re.compile(r"([\\`*_{}\[\]<>()#+\-!|~&$^=:@])")
_BACKTICKS: Final = re.compile("`+")


def render_markdown(report: Report) -> str:
    """Render a report as Markdown: actions first, and the worst 200 findings."""
    return "".join(f"{line}\n" for line in _markdown_lines(report, build_overview(report)))


def escape_markdown(text: str) -> str:
    """Escape a string so that Markdown shows it verbatim."""
    return _SPECIAL_CHARACTERS.sub(r"\\\1", replace_unprintable(text)).strip()


def format_code(text: str) -> str:
    """Return a name as a code span, which cannot contain links or markup."""
    shown = replace_unprintable(text).replace("|", "\\|")
    fence = "`" * (1 + max((len(ticks) for ticks in _BACKTICKS.findall(shown)), default=0))
    return f"{fence} {shown} {fence}" if "`" in shown or not shown.strip() else f"{fence}{shown}{fence}"


def _markdown_lines(report: Report, view: Overview) -> Iterator[str]:
    yield from ("# Mailbox audit", "", f"**{escape_markdown(view.verdict)}**", "", f"{escape_markdown(view.headline)}  ")
    yield f"{format_time(report.at)}: {', '.join(f'{count:,} {severity}' for severity, count in view.counts.items())}"
    yield from _markdown_unread(view)
    if view.actions:
        yield from ("", "## What to do, most urgent first", "", *_markdown_actions(view.actions))
    if view.changes:
        yield from ("", "## What changed", "", *_markdown_changes(view.changes))
    yield from _markdown_domains(view)
    if report.findings:
        yield from ("", "## Findings", "", *_markdown_findings(report))
    yield from ("", "## What this audit cannot check", "", *(f"- {escape_markdown(line)}" for line in view.unknowable))


def _markdown_unread(view: Overview) -> Iterator[str]:
    if view.unread:
        yield from ("", "## Not read and not checked", "", *(f"- {escape_markdown(line)}" for line in view.unread))
    if view.unread_names:
        yield f"- and {', '.join(map(format_code, view.unread_names))}"


def _markdown_actions(actions: Sequence[Action]) -> Iterator[str]:
    for number, action in enumerate(actions, 1):
        places = ", ".join(f"{format_code(place)} ({count:,})" for place, count in action.groups[:_MAX_GROUPS])
        more = len(action.groups) - _MAX_GROUPS
        title, remedy = escape_markdown(action.title), escape_markdown(action.remedy)
        yield f"{number}. **{title}** ({action.severity}, {action.rule}): {remedy}  "
        yield f"   {places}{f' and {more:,} more' if more > 0 else ''}"


def _markdown_changes(view: Changes) -> Iterator[str]:
    yield escape_markdown(view.summary)
    yield ""
    for label, found in (("New", view.new), ("Resolved", view.resolved)):
        for action in found:
            title, extent = escape_markdown(action.title), escape_markdown(action.extent)
            yield f"- {label}: {action.severity}, {title} ({action.rule}): {extent}"
    for move in view.figure_changes[:MAX_CHANGES]:
        yield f"- {escape_markdown(move.description)}"
    if len(view.figure_changes) > MAX_CHANGES:
        yield f"- and {format_count(len(view.figure_changes) - MAX_CHANGES, 'more figure')} changed"


def _markdown_domains(view: Overview) -> Iterator[str]:
    domains = [*view.worst_domains, *view.other_domains]
    if domains:
        yield from ("", "## Domains, worst first", "")
        rows = (
            [format_code(each.name), each.points, each.severity.value, f"{each.mailboxes:,}"] for each in domains[:_MAX_DOMAINS]
        )
        yield from _markdown_table(("Domain", "Score", "Worst finding", "Mailboxes"), rows)
        yield ""
    if len(domains) > _MAX_DOMAINS:
        yield f"{format_count(len(domains) - _MAX_DOMAINS, 'more domain')} with errors; "
    yield from ("", escape_markdown(view.summary))


def _markdown_findings(report: Report) -> Iterator[str]:
    ordered = sorted(report.findings, key=worst_first_key)
    yield from _markdown_table(
        ("Severity", "Rule", "Mailbox", "Finding", "Workspace"), map(_finding_cells, ordered[:MAX_FINDINGS])
    )
    if len(ordered) > MAX_FINDINGS:
        yield from (
            "",
            f"The worst {MAX_FINDINGS} of {format_figure(len(ordered))}; the JSON and CSV formats contain all of them.",
        )


def _finding_cells(finding: Finding) -> list[str]:
    state = " (new)" if finding.state == "new" else ""
    return [
        f"{finding.severity}{state}",
        finding.rule,
        format_code(subject_name(finding)),
        escape_markdown(finding.message),
        format_code(finding.workspace),
    ]


def _markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _markdown_row(heads)
    yield _markdown_row(["---"] * len(heads))
    yield from map(_markdown_row, rows)


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
