"""A report for a terminal, drawn by rich, which the extra `cli` brings; nothing else of the audit imports this module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from outreach_async.audit.findings import Severity
from outreach_async.audit.overview import DomainView, Overview, counted, overview
from outreach_async.audit.report import Report

_STYLES: Final = {
    Severity.CRITICAL: "bold white on red",
    Severity.ERROR: "bold red",
    Severity.WARNING: "yellow",
    Severity.INFO: "cyan",
}
_GOOD: Final = 90
_POOR: Final = 60


def report_renderable(report: Report) -> RenderableType:
    """Draw a report for people, the worst domains first; print it with a rich console of 80 columns or more."""
    return Group(*_parts(overview(report)))


def _parts(view: Overview) -> Iterator[RenderableType]:
    yield Text(view.headline, style="bold")
    yield _tally(view)
    if view.unread:
        yield from _listed("Not read, so not judged", _unread(view), "bold red")
    if view.worst:
        yield _worst(view.worst)
    if view.rest:
        yield _rest(view.rest)
    yield Text(f"\n{view.summary}")
    if view.remedies:
        remedies = (Text.assemble((f"{rule.id} {rule.title}. ", "bold"), rule.remedy) for rule in view.remedies)
        yield from _listed("What to do", remedies, "bold")
    yield from _listed("What the service's fields cannot tell", (Text(line, style="dim") for line in view.unknowable), "dim")


def _tally(view: Overview) -> Text:
    parts = [Text(f"{count:,} {severity}", style=_STYLES[severity] if count else "dim") for severity, count in view.tally.items()]
    return Text(", ").join(parts)


def _unread(view: Overview) -> Iterator[Text]:
    yield from map(Text, view.unread)
    if view.unread_names:
        yield Text(f"and {', '.join(view.unread_names)}")


def _listed(title: str, lines: Iterable[Text], style: str) -> Iterator[RenderableType]:
    yield Text(f"\n{title}", style=style)
    for line in lines:
        yield Padding(line, (0, 0, 0, 2))


def _worst(views: Iterable[DomainView]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True, show_header=False)
    table.add_column(width=8)
    table.add_column(width=5)
    table.add_column(ratio=1, overflow="fold")
    for view in views:
        table.add_section()
        mailboxes = Text(f", {counted(view.mailboxes, 'mailbox', 'mailboxes')}")
        table.add_row("", "", Text.assemble((view.name, "bold"), "  ", _scored(view), mailboxes))
        for issue in view.issues:
            also = f" (and {issue.mailboxes - 1:,} more)" if issue.mailboxes > 1 else ""
            table.add_row(
                Text(issue.severity.upper(), style=_STYLES[issue.severity]),
                Text(issue.rule.id),
                Text.assemble((f"{issue.rule.title}. ", "bold"), f"{issue.example}{also}"),
            )
    return table


def _rest(views: Iterable[DomainView]) -> Table:
    table = Table(title="Further domains with errors", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("domain", "score", "findings"):
        table.add_column(heading, overflow="fold")
    for view in views:
        counts = (Text(f"{issue.rule.id} x{issue.mailboxes}", style=_STYLES[issue.severity]) for issue in view.issues)
        table.add_row(Text(view.name), _scored(view), Text(", ").join(counts))
    return table


def _scored(view: DomainView) -> Text:
    if view.score is None:
        return Text(view.scored, style="dim")
    return Text(view.scored, style="green" if view.score >= _GOOD else "yellow" if view.score >= _POOR else "red")
