"""A report as plain text of at most 80 columns, for pipes and files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from textwrap import wrap
from typing import Final

from outreach_async.audit.outputs.actions import Action
from outreach_async.audit.outputs.changes import FEW, Changes
from outreach_async.audit.outputs.overview import GRAVE, DomainView, Issue, Overview, overview
from outreach_async.audit.outputs.words import counted, mailboxes
from outreach_async.audit.report import Report

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
