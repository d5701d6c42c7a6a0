"""A report as plain text of at most 80 columns, for pipes and files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from textwrap import wrap
from typing import Final

from outreach_async.audit.overview import GRAVE, DomainView, Issue, Overview, counted, overview
from outreach_async.audit.report import Report

WIDTH: Final = 80
_NAME_WIDTH: Final = 42

_wrapped: Final = partial(wrap, width=WIDTH, break_on_hyphens=False)


def report_text(report: Report) -> str:
    """Write a report for people, the worst domains first."""
    return "\n".join(_lines(overview(report)))


def _lines(view: Overview) -> Iterator[str]:
    yield from _wrapped(view.headline)
    yield ", ".join(f"{count:,} {severity}" for severity, count in view.tally.items())
    yield from _unread(view)
    for domain in view.worst:
        yield ""
        yield from _domain(domain)
    if view.rest:
        yield from ("", *_brief("Further domains with errors", "score", GRAVE))
    for domain in view.rest:
        yield from _brief(domain.name, domain.points, [f"{domain.count(severity):,}" for severity in GRAVE])
    yield from ("", view.summary)
    if view.remedies:
        yield from ("", "What to do")
    for rule in view.remedies:
        yield from _entry(f"{rule.id}  {rule.title}. {rule.remedy}")
    yield from ("", "What the service's fields cannot tell")
    for line in view.unknowable:
        yield from _entry(line)


def _unread(view: Overview) -> Iterator[str]:
    if view.unread:
        yield from ("", "NOT READ, SO NOT JUDGED")
    for line in view.unread:
        yield from _entry(line)
    if view.unread_names:
        yield from _entry(f"and {', '.join(view.unread_names)}")


def _domain(view: DomainView) -> Iterator[str]:
    yield from _named(view.name, f"{view.scored}, {counted(view.mailboxes, 'mailbox', 'mailboxes')}")
    for issue in view.issues:
        yield from _issue(issue)


def _issue(issue: Issue) -> Iterator[str]:
    yield f"  {issue.severity.upper():<8}  {issue.rule.id}  {issue.title}"
    yield from _wrapped(issue.shown_example, initial_indent=" " * 12, subsequent_indent=" " * 12)


def _brief(name: str, score: str, counts: Iterable[str]) -> Iterator[str]:
    yield from _named(name, f"{score:>5}  {'  '.join(f'{count:>8}' for count in counts)}")


def _named(name: str, figures: str) -> Iterator[str]:
    """Write a name beside its figures where both have room, or above them: a name is never cut."""
    if len(name) > _NAME_WIDTH:
        yield from _wrapped(name)
        name = ""
    yield f"{name:<{_NAME_WIDTH}}  {figures}"


def _entry(text: str) -> list[str]:
    return _wrapped(text, initial_indent="  ", subsequent_indent="    ")
