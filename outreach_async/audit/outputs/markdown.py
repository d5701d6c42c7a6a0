"""A report as Markdown with GitHub tables, for tickets, wikis and chats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from outreach_async.audit.findings import Finding
from outreach_async.audit.outputs.actions import Action, who, worst_first
from outreach_async.audit.outputs.changes import FEW, Changes
from outreach_async.audit.outputs.overview import Overview, overview
from outreach_async.audit.outputs.words import counted, figure, moment, printable
from outreach_async.audit.report import Report

FINDINGS: Final = 200
"""Maximum findings in the report; nobody reads a longer page."""

_PLACES: Final = 5
_DOMAINS: Final = 25

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>()#+\-!|~&$^=:@])")
_TICKS: Final = re.compile("`+")


def report_markdown(report: Report) -> str:
    """Render a report as Markdown: actions first, and the worst 200 findings."""
    return "".join(f"{line}\n" for line in _lines(report, overview(report)))


def plain(text: str) -> str:
    """Escape a string so that Markdown shows it verbatim."""
    return _SPECIAL.sub(r"\\\1", printable(text)).strip()


def code(text: str) -> str:
    """Return a name as a code span, which cannot contain links or markup."""
    shown = printable(text).replace("|", "\\|")
    fence = "`" * (1 + max((len(ticks) for ticks in _TICKS.findall(shown)), default=0))
    return f"{fence} {shown} {fence}" if "`" in shown or not shown.strip() else f"{fence}{shown}{fence}"


def _lines(report: Report, view: Overview) -> Iterator[str]:
    yield from ("# Mailbox audit", "", f"**{plain(view.verdict)}**", "", f"{plain(view.headline)}  ")
    yield f"{moment(report.at)}: {', '.join(f'{count:,} {severity}' for severity, count in view.tally.items())}"
    yield from _unread(view)
    if view.actions:
        yield from ("", "## What to do, most urgent first", "", *_actions(view.actions))
    if view.changes:
        yield from ("", "## What changed", "", *_changes(view.changes))
    yield from _domains(view)
    if report.findings:
        yield from ("", "## Findings", "", *_findings(report))
    yield from ("", "## What this audit cannot check", "", *(f"- {plain(line)}" for line in view.unknowable))


def _unread(view: Overview) -> Iterator[str]:
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


def _changes(view: Changes) -> Iterator[str]:
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
