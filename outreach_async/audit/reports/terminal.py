"""Render a report for a terminal with rich (extra `cli`). No other module of the audit imports this module."""

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
from outreach_async.audit.reports.summary import Action
from outreach_async.audit.reports.view import COUNTED_SEVERITIES, DomainView, Overview, build_overview, count_severity, score_tone
from outreach_async.audit.reports.wording import format_count

_SEVERITY_STYLES: Final = dict(zip(Severity, ("bold white on red", "bold red", "yellow", "cyan"), strict=True))
_TONE_STYLES: Final = {"good": "green", "warning": "yellow", "critical": "red", "info": "dim"}


def build_renderable(report: Report) -> RenderableType:
    """Return a report as a rich renderable for a console of at least 80 columns. The recommended actions come first."""
    return Group(*_rich_parts(build_overview(report)))


def _rich_parts(view: Overview) -> Iterator[RenderableType]:
    yield Text(view.headline)
    yield Text(view.verdict, style="bold")
    counts = [
        Text(count_severity(severity, count), style=_SEVERITY_STYLES[severity] if count else "dim")
        for severity, count in view.counts.items()
    ]
    yield Text.assemble(Text(", ").join(counts), f". Audited {view.audited_at}.")
    if view.unread:
        yield from _rich_list("Not read and not checked", view.unread_lines, "bold red")
    if view.changes:
        yield from _rich_list("What changed", view.changes.lines, "bold")
    if view.actions:
        yield Text("\nWhat to do, most urgent first", style="bold")
        yield Padding(_rich_actions(view.actions), (0, 0, 0, 2))
    if view.worst_domains:
        yield Text("\nFindings by domain, worst first", style="bold")
    for domain in view.worst_domains:
        yield from _rich_domain(domain)
    if view.other_domains:
        yield _rich_other_domains(view.other_domains)
    yield Text(f"\n{view.summary}")
    yield from _rich_list("What this audit cannot check", view.unknowable, "dim", "dim")


def _rich_actions(actions: Iterable[Action]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for action in actions:
        label = Text(action.severity.upper(), style=_SEVERITY_STYLES[action.severity])
        table.add_row(label, action.rule, Text.assemble((f"{action.title}: ", "bold"), f"{action.extent}\n", action.remedy))
    return table


def _rich_list(title: str, lines: Iterable[str], title_style: str, style: str = "") -> Iterator[RenderableType]:
    yield Text(f"\n{title}", style=title_style)
    for line in lines:
        yield Padding(Text(line, style=style), (0, 0, 0, 2))


def _rich_domain(view: DomainView) -> Iterator[RenderableType]:
    size = f", {format_count(view.mailboxes, 'mailbox')}"
    yield Text.assemble((view.name, "bold"), "  ", (view.score_label, _score_style(view)), size)
    table = Table.grid(padding=(0, 2, 0, 0))
    for issue in view.visible_issues:
        label = Text(issue.severity.upper(), style=_SEVERITY_STYLES[issue.severity])
        table.add_row(label, issue.rule, Text.assemble((f"{issue.title}\n", "bold"), issue.example))
    yield Padding(table, (0, 0, 1, 2))


def _rich_other_domains(views: Iterable[DomainView]) -> Table:
    table = Table(
        title="Other domains with errors",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        expand=True,
    )
    table.add_column("domain", overflow="fold", ratio=1)
    for heading in ("score", *COUNTED_SEVERITIES):
        table.add_column(heading, justify="right", no_wrap=True)
    for view in views:
        counts = (
            Text(f"{view.count(severity):,}", style=_SEVERITY_STYLES[severity] if view.count(severity) else "dim")
            for severity in COUNTED_SEVERITIES
        )
        table.add_row(Text(view.name), Text(view.points, style=_score_style(view)), *counts)
    return table


def _score_style(view: DomainView) -> str:
    return _TONE_STYLES[score_tone(view.score)]
