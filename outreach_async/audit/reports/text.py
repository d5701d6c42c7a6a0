"""Render a report as plain text of at most 80 columns, or as Markdown with GitHub tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from textwrap import wrap
from typing import Final

from outreach_async.audit.findings import Finding
from outreach_async.audit.report import Report
from outreach_async.audit.reports.summary import Action, Changes, subject_name, worst_first_key
from outreach_async.audit.reports.view import COUNTED_SEVERITIES, DomainView, Overview, build_overview
from outreach_async.audit.reports.wording import format_count, format_figure, format_time, replace_unprintable

WIDTH: Final = 80
_NAME_WIDTH: Final = 42

_wrap: Final = partial(wrap, width=WIDTH, break_on_hyphens=False)


def render_text(report: Report) -> str:
    """Render a report as plain text, with the recommended actions before the findings."""
    return "".join(f"{line}\n" for line in _text_lines(build_overview(report)))


def _text_lines(view: Overview) -> Iterator[str]:
    for line in (view.headline, view.verdict, f"{view.counts_line}. Audited {view.audited_at}."):
        yield from _wrap(line)
    if view.unread:
        yield from _text_list("Not read and not checked", view.unread_lines)
    if view.changes:
        yield from _text_list("What changed", view.changes.lines)
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
        counts = [f"{domain.count(severity):,}" for severity in COUNTED_SEVERITIES]
        yield from _text_domain_row(domain.name, domain.points, counts)
    yield from ("", *_wrap(view.summary))
    yield from _text_list("What this audit cannot check", view.unknowable)


def _text_list(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield from ("", title.upper())
    for line in lines:
        yield from _wrap(line, initial_indent="  ", subsequent_indent="    ")


def _text_action(action: Action) -> Iterator[str]:
    label = f"  {action.severity.upper():<8}  {action.rule}  {action.title}: {action.extent}"
    yield from _wrap(label, subsequent_indent=" " * 12)
    yield from _wrap(action.remedy, initial_indent=" " * 12, subsequent_indent=" " * 12)


def _text_domain(view: DomainView) -> Iterator[str]:
    yield from _text_name_row(view.name, f"{view.score_label}, {format_count(view.mailboxes, 'mailbox')}")
    for issue in view.visible_issues:
        yield f"  {issue.severity.upper():<8}  {issue.rule}  {issue.title}"
        yield from _wrap(issue.example, initial_indent=" " * 12, subsequent_indent=" " * 12)


def _text_domain_row(name: str, score: str, counts: Iterable[str]) -> Iterator[str]:
    yield from _text_name_row(name, f"{score:>5}  {'  '.join(f'{count:>8}' for count in counts)}")


def _text_name_row(name: str, figures: str) -> Iterator[str]:
    """Yield a name and its figures on one line, or on two lines if the name is too long. A name is never truncated."""
    if len(name) > _NAME_WIDTH:
        yield from _wrap(name)
        name = ""
    yield f"{name:<{_NAME_WIDTH}}  {figures}"


MAX_FINDINGS: Final = 200
"""Maximum number of findings in a Markdown report. A longer page is hard to read."""

_MAX_GROUPS: Final = 5
_MAX_DOMAINS: Final = 25

_SPECIAL_CHARACTERS: Final = re.compile(r"([\\`*_{}\[\]<>()#+\-!|~&$^=:@])")
_BACKTICKS: Final = re.compile("`+")


def render_markdown(report: Report) -> str:
    """Render a report as Markdown: the recommended actions, and then at most 200 findings, the worst first."""
    return "".join(f"{line}\n" for line in _markdown_lines(report, build_overview(report)))


def escape_markdown(text: str) -> str:
    """Escape a string so that Markdown shows it verbatim."""
    return _SPECIAL_CHARACTERS.sub(r"\\\1", replace_unprintable(text)).strip()


def format_code(text: str) -> str:
    """Return a name as a Markdown code span, in which links and markup have no effect."""
    shown = replace_unprintable(text).replace("|", "\\|")
    fence = "`" * (1 + max((len(ticks) for ticks in _BACKTICKS.findall(shown)), default=0))
    return f"{fence} {shown} {fence}" if "`" in shown or not shown.strip() else f"{fence}{shown}{fence}"


def _markdown_lines(report: Report, view: Overview) -> Iterator[str]:
    yield from ("# Mailbox audit", "", f"**{escape_markdown(view.verdict)}**", "", f"{escape_markdown(view.headline)}  ")
    yield f"{format_time(report.at)}: {view.counts_line}"
    if view.unread:
        yield from ("", "## Not read and not checked", "", *(f"- {escape_markdown(line)}" for line in view.unread))
    if view.unread_names:
        yield f"- and {', '.join(map(format_code, view.unread_names))}"
    if view.actions:
        yield from ("", "## What to do, most urgent first", "", *_markdown_actions(view.actions))
    if view.changes:
        yield from ("", "## What changed", "", *_markdown_changes(view.changes))
    yield from _markdown_domains(view)
    if report.findings:
        yield from ("", "## Findings", "", *_markdown_findings(report))
    yield from ("", "## What this audit cannot check", "", *(f"- {escape_markdown(line)}" for line in view.unknowable))


def _markdown_actions(actions: Sequence[Action]) -> Iterator[str]:
    for number, action in enumerate(actions, 1):
        places = ", ".join(f"{format_code(place)} ({count:,})" for place, count in action.groups[:_MAX_GROUPS])
        more = len(action.groups) - _MAX_GROUPS
        title, remedy = escape_markdown(action.title), escape_markdown(action.remedy)
        yield f"{number}. **{title}** ({action.severity}, {action.rule}): {remedy}  "
        yield f"   {places}{f' and {more:,} more' if more > 0 else ''}"


def _markdown_changes(view: Changes) -> Iterator[str]:
    yield from (escape_markdown(view.summary), "")
    for label, action in view.labelled_actions:
        title, extent = escape_markdown(action.title), escape_markdown(action.extent)
        yield f"- {label}: {action.severity}, {title} ({action.rule}): {extent}"
    for line in view.figure_lines:
        yield f"- {escape_markdown(line)}"


def _markdown_domains(view: Overview) -> Iterator[str]:
    domains = [*view.worst_domains, *view.other_domains]
    if domains:
        yield from ("", "## Domains, worst first", "")
        rows = (
            [format_code(domain.name), domain.points, domain.severity.value, f"{domain.mailboxes:,}"]
            for domain in domains[:_MAX_DOMAINS]
        )
        yield from _markdown_table(("Domain", "Score", "Worst finding", "Mailboxes"), rows)
        yield ""
    if len(domains) > _MAX_DOMAINS:
        yield f"{format_count(len(domains) - _MAX_DOMAINS, 'more domain')} with errors."
    yield from ("", escape_markdown(view.summary))


def _markdown_findings(report: Report) -> Iterator[str]:
    ordered = sorted(report.findings, key=worst_first_key)
    heads = ("Severity", "Rule", "Mailbox", "Finding", "Workspace")
    yield from _markdown_table(heads, map(_finding_cells, ordered[:MAX_FINDINGS]))
    if len(ordered) > MAX_FINDINGS:
        total = format_figure(len(ordered))
        yield from ("", f"The worst {MAX_FINDINGS} of {total}; the JSON and CSV formats contain all of them.")


def _finding_cells(finding: Finding) -> list[str]:
    return [
        f"{finding.severity}{' (new)' if finding.state == 'new' else ''}",
        finding.rule,
        format_code(subject_name(finding)),
        escape_markdown(finding.message),
        format_code(finding.workspace),
    ]


def _markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for cells in (heads, ["---"] * len(heads), *rows):
        yield f"| {' | '.join(cells)} |"
