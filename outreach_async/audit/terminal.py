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
from outreach_async.audit.overview import GRAVE, DomainView, Overview, counted, overview
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
    for domain in view.worst:
        yield from _domain(domain)
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


def _domain(view: DomainView) -> Iterator[RenderableType]:
    mailboxes = counted(view.mailboxes, "mailbox", "mailboxes")
    yield Text.assemble("\n", (view.name, "bold"), "  ", (view.scored, _style(view)), f", {mailboxes}")
    table = Table.grid(padding=(0, 2, 0, 0))
    for issue in view.issues:
        label = Text(issue.severity.upper(), style=_STYLES[issue.severity])
        table.add_row(label, issue.rule.id, Text.assemble((f"{issue.title}\n", "bold"), issue.shown_example))
    yield Padding(table, (0, 0, 0, 2))


def _rest(views: Iterable[DomainView]) -> Table:
    table = Table(
        title="\nFurther domains with errors",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        expand=True,
    )
    table.add_column("domain", overflow="fold", ratio=1)
    for heading in ("score", *GRAVE):
        table.add_column(heading, justify="right", no_wrap=True)
    for view in views:
        counts = (
            Text(f"{view.count(severity):,}", style=_STYLES[severity] if view.count(severity) else "dim") for severity in GRAVE
        )
        table.add_row(Text(view.name), Text(view.points, style=_style(view)), *counts)
    return table


def _style(view: DomainView) -> str:
    if view.score is None:
        return "dim"
    return "green" if view.score >= _GOOD else "yellow" if view.score >= _POOR else "red"
