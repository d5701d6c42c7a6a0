"""A report as plain text of at most 80 columns, and as Markdown with GitHub tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from textwrap import wrap
from typing import Final

from outreach_async.audit.findings import Finding
from outreach_async.audit.report import Report
from outreach_async.audit.reports.summary import FEW, Action, Changes, who, worst_first
from outreach_async.audit.reports.view import GRAVE, DomainView, Issue, Overview, overview
from outreach_async.audit.reports.wording import counted, figure, mailboxes, moment, printable

WIDTH: Final = 80
_NAME_WIDTH: Final = 42

_wrapped: Final = partial(wrap, width=WIDTH, break_on_hyphens=False)


def report_text(report: Report) -> str:
    """Render a report as plain text, with actions first."""
    return "".join(f"{line}\n" for line in _lines(overview(report)))


def _lines(view: Overview) -> Iterator[str]:
    yield from _wrapped(view.headline)
    yield from _wrapped(view.verdict)
    yield from _wrapped(f"{', '.join(f'{count:,} {severity}' for severity, count in view.tally.items())}. Audited {view.when}.")
    yield from _unread(view)
    if view.changes:
        yield from _changes(view.changes)
    if view.actions:
        yield from ("", "WHAT TO DO, MOST URGENT FIRST")
    for action in view.actions:
        yield from _action(action)
    if view.worst:
        yield from ("", "FINDINGS BY DOMAIN, WORST FIRST")
    for domain in view.worst:
        yield from _domain(domain)
    if view.rest:
        yield from ("", *_brief("Other domains with errors", "score", GRAVE))
    for domain in view.rest:
        yield from _brief(domain.name, domain.points, [f"{domain.count(severity):,}" for severity in GRAVE])
    yield from ("", *_wrapped(view.summary))
    yield from ("", "WHAT THIS AUDIT CANNOT CHECK")
    for line in view.unknowable:
        yield from _entry(line)


def _unread(view: Overview) -> Iterator[str]:
    if view.unread:
        yield from ("", "NOT READ AND NOT CHECKED")
    for line in view.unread:
        yield from _entry(line)
    if view.unread_names:
        yield from _entry(f"and {', '.join(view.unread_names)}")


def _changes(view: Changes) -> Iterator[str]:
    yield from ("", "WHAT CHANGED")
    yield from _entry(view.summary)
    for line in change_lines(view):
        yield from _entry(line)


def change_lines(view: Changes) -> Iterator[str]:
    """Yield a line for each new and resolved finding by rule, and for each changed figure."""
    for label, found in (("New", view.new), ("Resolved", view.resolved)):
        for action in found:
            yield f"{label}: {action.severity.upper()} {action.rule} {action.title}: {action.extent}"
    yield from (move.said for move in view.moves[:FEW])
    if len(view.moves) > FEW:
        yield f"and {counted(len(view.moves) - FEW, 'more figure')} changed"


def _action(action: Action) -> Iterator[str]:
    label = f"  {action.severity.upper():<8}  {action.rule}  {action.title}: {action.extent}"
    yield from _wrapped(label, subsequent_indent=" " * 12)
    yield from _wrapped(action.remedy, initial_indent=" " * 12, subsequent_indent=" " * 12)


def _domain(view: DomainView) -> Iterator[str]:
    yield from _named(view.name, f"{view.scored}, {mailboxes(view.mailboxes)}")
    for issue in view.told:
        yield from _issue(issue)


def _issue(issue: Issue) -> Iterator[str]:
    yield f"  {issue.severity.upper():<8}  {issue.rule}  {issue.title}"
    yield from _wrapped(issue.shown_example, initial_indent=" " * 12, subsequent_indent=" " * 12)


def _brief(name: str, score: str, counts: Iterable[str]) -> Iterator[str]:
    yield from _named(name, f"{score:>5}  {'  '.join(f'{count:>8}' for count in counts)}")


def _named(name: str, figures: str) -> Iterator[str]:
    """Yield a name and its figures on one line, or on two if the name is too long; a name is never cut."""
    if len(name) > _NAME_WIDTH:
        yield from _wrapped(name)
        name = ""
    yield f"{name:<{_NAME_WIDTH}}  {figures}"


def _entry(text: str) -> list[str]:
    return _wrapped(text, initial_indent="  ", subsequent_indent="    ")


FINDINGS: Final = 200
"""Maximum findings in the report; nobody reads a longer page."""

_PLACES: Final = 5
_DOMAINS: Final = 25

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>()#+\-!|~&$^=:@])")
_TICKS: Final = re.compile("`+")


def report_markdown(report: Report) -> str:
    """Render a report as Markdown: actions first, and the worst 200 findings."""
    return "".join(f"{line}\n" for line in _markdown_lines(report, overview(report)))


def plain(text: str) -> str:
    """Escape a string so that Markdown shows it verbatim."""
    return _SPECIAL.sub(r"\\\1", printable(text)).strip()


def code(text: str) -> str:
    """Return a name as a code span, which cannot contain links or markup."""
    shown = printable(text).replace("|", "\\|")
    fence = "`" * (1 + max((len(ticks) for ticks in _TICKS.findall(shown)), default=0))
    return f"{fence} {shown} {fence}" if "`" in shown or not shown.strip() else f"{fence}{shown}{fence}"


def _markdown_lines(report: Report, view: Overview) -> Iterator[str]:
    yield from ("# Mailbox audit", "", f"**{plain(view.verdict)}**", "", f"{plain(view.headline)}  ")
    yield f"{moment(report.at)}: {', '.join(f'{count:,} {severity}' for severity, count in view.tally.items())}"
    yield from _markdown_unread(view)
    if view.actions:
        yield from ("", "## What to do, most urgent first", "", *_actions(view.actions))
    if view.changes:
        yield from ("", "## What changed", "", *_markdown_changes(view.changes))
    yield from _domains(view)
    if report.findings:
        yield from ("", "## Findings", "", *_findings(report))
    yield from ("", "## What this audit cannot check", "", *(f"- {plain(line)}" for line in view.unknowable))


def _markdown_unread(view: Overview) -> Iterator[str]:
    if view.unread:
        yield from ("", "## Not read and not checked", "", *(f"- {plain(line)}" for line in view.unread))
    if view.unread_names:
        yield f"- and {', '.join(map(code, view.unread_names))}"


def _actions(actions: Sequence[Action]) -> Iterator[str]:
    for number, action in enumerate(actions, 1):
        places = ", ".join(f"{code(place)} ({count:,})" for place, count in action.places[:_PLACES])
        more = len(action.places) - _PLACES
        yield f"{number}. **{plain(action.title)}** ({action.severity}, {action.rule}): {plain(action.remedy)}  "
        yield f"   {places}{f' and {more:,} more' if more > 0 else ''}"


def _markdown_changes(view: Changes) -> Iterator[str]:
    yield plain(view.summary)
    yield ""
    for label, found in (("New", view.new), ("Resolved", view.resolved)):
        for action in found:
            yield f"- {label}: {action.severity}, {plain(action.title)} ({action.rule}): {plain(action.extent)}"
    for move in view.moves[:FEW]:
        yield f"- {plain(move.said)}"
    if len(view.moves) > FEW:
        yield f"- and {counted(len(view.moves) - FEW, 'more figure')} changed"


def _domains(view: Overview) -> Iterator[str]:
    domains = [*view.worst, *view.rest]
    if domains:
        yield from ("", "## Domains, worst first", "")
        rows = ([code(each.name), each.points, each.severity.value, f"{each.mailboxes:,}"] for each in domains[:_DOMAINS])
        yield from _table(("Domain", "Score", "Worst finding", "Mailboxes"), rows)
        yield ""
    if len(domains) > _DOMAINS:
        yield f"{counted(len(domains) - _DOMAINS, 'more domain')} with errors; "
    yield from ("", plain(view.summary))


def _findings(report: Report) -> Iterator[str]:
    ordered = sorted(report.findings, key=worst_first)
    yield from _table(("Severity", "Rule", "Mailbox", "Finding", "Workspace"), map(_finding, ordered[:FINDINGS]))
    if len(ordered) > FINDINGS:
        yield from ("", f"The worst {FINDINGS} of {figure(len(ordered))}; the JSON and CSV formats contain all of them.")


def _finding(finding: Finding) -> list[str]:
    state = " (new)" if finding.state == "new" else ""
    return [f"{finding.severity}{state}", finding.rule, code(who(finding)), plain(finding.message), code(finding.workspace)]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _row(heads)
    yield _row(["---"] * len(heads))
    yield from map(_row, rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
