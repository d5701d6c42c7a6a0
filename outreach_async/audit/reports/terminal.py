"""A report for a terminal, rendered with rich (extra `cli`). No other module of the audit imports this one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from outreach_async.audit.findings import Severity
from outreach_async.audit.report import Report
from outreach_async.audit.reports.summary import Action, Changes
from outreach_async.audit.reports.text import change_lines
from outreach_async.audit.reports.view import GRAVE, DomainView, Overview, overview, tone_of
from outreach_async.audit.reports.wording import mailboxes

_STYLES: Final = {
    Severity.CRITICAL: "bold white on red",
    Severity.ERROR: "bold red",
    Severity.WARNING: "yellow",
    Severity.INFO: "cyan",
}
_TONES: Final = {"good": "green", "warning": "yellow", "critical": "red", "info": "dim"}


def report_renderable(report: Report) -> RenderableType:
    """Render a report, with actions first; print the result on a rich console of at least 80 columns."""
    return Group(*_parts(overview(report)))


def _parts(view: Overview) -> Iterator[RenderableType]:
    yield Text(view.headline)
    yield Text(view.verdict, style="bold")
    yield _tally(view)
    if view.unread:
        yield from _listed("Not read and not checked", _unread(view), "bold red")
    if view.changes:
        yield from _listed("What changed", _changes(view.changes), "bold")
    if view.actions:
        yield Text("\nWhat to do, most urgent first", style="bold")
        yield Padding(_actions(view.actions), (0, 0, 0, 2))
    if view.worst:
        yield Text("\nFindings by domain, worst first", style="bold")
    for domain in view.worst:
        yield from _domain(domain)
    if view.rest:
        yield _rest(view.rest)
    yield Text(f"\n{view.summary}")
    yield from _listed("What this audit cannot check", (Text(line, style="dim") for line in view.unknowable), "dim")


def _tally(view: Overview) -> Text:
    parts = [Text(f"{count:,} {severity}", style=_STYLES[severity] if count else "dim") for severity, count in view.tally.items()]
    return Text.assemble(Text(", ").join(parts), f". Audited {view.when}.")


def _unread(view: Overview) -> Iterator[Text]:
    yield from map(Text, view.unread)
    if view.unread_names:
        yield Text(f"and {', '.join(view.unread_names)}")


def _changes(view: Changes) -> Iterator[Text]:
    yield Text(view.summary)
    yield from map(Text, change_lines(view))


def _actions(actions: Iterable[Action]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for action in actions:
        label = Text(action.severity.upper(), style=_STYLES[action.severity])
        title = Text.assemble((f"{action.title}: ", "bold"), f"{action.extent}\n", action.remedy)
        table.add_row(label, action.rule, title)
    return table


def _listed(title: str, lines: Iterable[Text], style: str) -> Iterator[RenderableType]:
    yield Text(f"\n{title}", style=style)
    for line in lines:
        yield Padding(line, (0, 0, 0, 2))


def _domain(view: DomainView) -> Iterator[RenderableType]:
    yield Text.assemble((view.name, "bold"), "  ", (view.scored, _style(view)), f", {mailboxes(view.mailboxes)}")
    table = Table.grid(padding=(0, 2, 0, 0))
    for issue in view.told:
        label = Text(issue.severity.upper(), style=_STYLES[issue.severity])
        table.add_row(label, issue.rule, Text.assemble((f"{issue.title}\n", "bold"), issue.shown_example))
    yield Padding(table, (0, 0, 1, 2))


def _rest(views: Iterable[DomainView]) -> Table:
    table = Table(
        title="Other domains with errors",
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
    return _TONES[tone_of(view.score)]
