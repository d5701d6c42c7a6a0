"""Prepare what only the HTML page shows: workspace cards, the findings of each task, trends and the days of campaigns."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from heapq import nsmallest
from itertools import chain
from typing import Final

import attrs

from outreach_async.audit._findings import Finding, Severity
from outreach_async.audit._report import HistoryPoint, Report, findings_of
from outreach_async.audit._totals import CompactSet
from outreach_async.audit._values import format_percent, valid_or_none
from outreach_async.audit.campaigns import CampaignRow
from outreach_async.audit.reports._campaign_view import format_share, share
from outreach_async.audit.reports._charts import Chart, draw_days, draw_line, format_day
from outreach_async.audit.reports._days import DailyFigures, Series, add_days, known_figure, last_days, total
from outreach_async.audit.reports._summary import Summary, Task, subject_name, workspace_label, worst_first_key
from outreach_async.audit.reports._view import MAX_POINTS, build_trends, score_tone
from outreach_async.audit.reports._wording import better_or_worse, figure_meaning, format_figure, replace_unprintable
from outreach_async.models import Number

MAX_STOPPED: Final = 12
"""Maximum number of subjects to stop that are always visible; the others follow on demand."""
MAX_ITEMS: Final = 100
"""Maximum number of findings that are listed for a task."""

_TREND_DAYS: Final = 30
_RECENT_DAYS: Final = 7
_TONES: Final = {"sent": "info", "replied": "good", "bounced": "critical"}
_COUNTED: Final = {Severity.CRITICAL: "critical", Severity.ERROR: "error", Severity.WARNING: "warning"}


@attrs.frozen(kw_only=True)
class Item:
    """A finding in the list of its task."""

    subject: str
    workspace: str
    message: str
    is_new: bool


@attrs.frozen(kw_only=True)
class TaskView:
    """A task with its findings. `anchor` is its id on the page."""

    task: Task
    anchor: str
    where: str
    since: str
    items: Sequence[Item]
    more: int


Opened = Mapping[tuple[str, str, str], float]
"""The time since which a finding has been open, by workspace, rule and severity."""


def view_tasks(report: Report, summary: Summary, opened: Opened) -> list[TaskView]:
    """Return the tasks of a report, each with its worst findings."""
    worst: defaultdict[tuple[str, Severity], list[Finding]] = defaultdict(list)
    for finding in report.findings:
        known = worst[finding.rule, finding.severity]
        known.append(finding)
        if len(known) > 10 * MAX_ITEMS:  # only the worst are shown
            known[:] = nsmallest(MAX_ITEMS, known, key=worst_first_key)
    label_of = _labels(report)
    return [
        view_task(task, summary, opened, sorted(worst[task.rule, task.severity], key=worst_first_key), label_of)
        for task in summary.tasks
    ]


def view_task(
    task: Task, summary: Summary, opened: Opened, findings: Sequence[Finding] = (), label_of: Callable[[str], str] = str
) -> TaskView:
    """Return a task for display; in a brief, without its findings."""
    return TaskView(
        task=task,
        anchor=f"{task.rule}-{task.severity.value}",
        where=task.extent.partition(" on ")[2] if task.mailboxes else task.extent,
        since=_describe_since(task, summary, opened),
        items=[_view_item(finding, label_of, summary.names) for finding in findings[:MAX_ITEMS]],
        more=task.findings - MAX_ITEMS if findings else 0,
    )


def _describe_since(task: Task, summary: Summary, opened: Opened) -> str:
    if summary.since is None:
        return ""
    known = [at for (_, rule, severity), at in opened.items() if (rule, severity) == (task.rule, task.severity)]
    if not known or task.new == task.findings:
        return task.news or f"before {_day_of(summary.since)}"
    return f"{_day_of(min(known))}{f', {task.news}' if task.news else ''}"


def _day_of(at: float) -> str:
    return format_day(datetime.fromtimestamp(at, UTC).date())


def _view_item(finding: Finding, label_of: Callable[[str], str], names: Mapping[str, str]) -> Item:
    unsure = " (sample too small to be certain)" if finding.confidence == "low" else ""
    return Item(
        subject=replace_unprintable(subject_name(finding, names)),
        workspace=label_of(finding.workspace),
        message=replace_unprintable(finding.message + unsure),
        is_new=finding.state == "new",
    )


def _labels(report: Report) -> Callable[[str], str]:
    """Return a function that names a workspace; the name is empty if the report is about one workspace only."""
    several = len(report.workspaces) > 1
    return lambda workspace: workspace_label(workspace, report.names) if several else ""


@attrs.frozen(kw_only=True)
class Card:
    """A workspace: its score, its figures, and the number of its tasks by severity. `page` is the file of its own page."""

    name: str
    id: str
    page: str
    score: str
    change: ScoreChange | None
    tone: str
    figures: Sequence[tuple[str, str]]
    chart: Chart | None
    tasks: Sequence[tuple[int, str]]
    unread: bool

    @property
    def is_clean(self) -> bool:
        """True if nothing is to be done: the workspace was read, and has at most notes."""
        return not self.tasks and not self.unread


def view_cards(report: Report, days: Mapping[str, Series], pages: Mapping[str, str]) -> list[Card]:
    """Return a card for each workspace, the worst first."""
    tasks = _count_tasks(report.findings)
    changes = report.diff.scores if report.diff else ()
    before = {delta.key: delta.before for delta in changes if delta.kind == "workspace"}
    worst = {group.key: group.severity for group in report.groups if group.kind == "workspace"}
    unread = set(report.unreadable)

    def worst_first(workspace: str) -> tuple[object, ...]:
        score = report.scores.workspaces.get(workspace)
        return workspace not in unread, [-tasks[workspace][each] for each in _COUNTED], score.score if score else 0.0

    def view_card(workspace: str) -> Card:
        known = report.scores.workspaces.get(workspace)
        score = known.score if known else None
        recent = last_days(days.get(workspace, {}), _TREND_DAYS)
        return Card(
            name=replace_unprintable(report.name_of(workspace)),
            id=replace_unprintable(workspace) if workspace in report.names else "",
            page=pages.get(workspace, ""),
            score="-" if score is None else f"{score:g}",
            change=describe_change(before.get(workspace), score),
            tone=score_tone(score, worst.get(workspace)),
            figures=_workspace_figures(report, workspace, recent),
            chart=_draw_trend(recent, "sent") if recent else None,
            tasks=[(count, tone) for severity, tone in _COUNTED.items() if (count := tasks[workspace][severity])],
            unread=workspace in unread,
        )

    return list(map(view_card, sorted(report.workspaces, key=worst_first)))


def _count_tasks(findings: Iterable[Finding]) -> defaultdict[str, Counter[Severity]]:
    tasks: defaultdict[str, Counter[Severity]] = defaultdict(Counter)
    for workspace, severity, _ in {(finding.workspace, finding.severity, finding.rule) for finding in findings}:
        tasks[workspace][severity] += 1
    return tasks


@attrs.frozen
class ScoreChange:
    """The change of a score, such as `+3.1`, and whether it is better."""

    text: str
    better: bool | None

    @property
    def note(self) -> str:
        """The direction of the change as text."""
        return better_or_worse(self.better)


def describe_change(before: Number | None, after: Number | None) -> ScoreChange | None:
    """Return the change of a score; `None` if it is unknown or zero."""
    if before is None or after is None or before == after:
        return None
    return ScoreChange(f"{after - before:+.1f}".replace(".0", ""), figure_meaning("score").is_better(before, after))


def _workspace_figures(report: Report, workspace: str, days: Series) -> list[tuple[str, str]]:
    """Return what was sent, replied and bounced: in the last days, or else since the start of all campaigns."""
    recent = last_days(days, _RECENT_DAYS)
    known = report.campaigns.totals.get(workspace) if report.campaigns else None
    if recent:
        sent, replied, bounced = (total(recent, name) for name in _TONES)
        label = f"Sent, {_RECENT_DAYS} days"
    elif known is not None:
        sent, replied, bounced, label = known.sent, known.replies_num, known.bounces_num, "Sent in campaigns"
    else:
        score = report.scores.workspaces.get(workspace)
        return [("Sent, 30 days", format_figure(score.sent_30days if score else None))]
    return [(label, format_figure(sent)), ("Replied", format_share(replied, sent)), ("Bounced", format_share(bounced, sent))]


@attrs.frozen(kw_only=True)
class Trends:
    """The charts beside the tasks, with what they show."""

    title: str
    charts: Sequence[Chart]
    note: str
    days: Sequence[tuple[str, DailyFigures]] = ()


def view_trends(report: Report, whole: Series) -> Trends | None:
    """Return charts of the last days, or else of the earlier audits; `None` if there are neither."""
    if whole:
        return view_days(whole)
    known = build_trends(report)
    if known is None:
        return None
    points = [*report.history, HistoryPoint.of(report)][-MAX_POINTS:]
    urgent = [(point.at, point.counts.get(Severity.CRITICAL, 0) + point.counts.get(Severity.ERROR, 0)) for point in points]
    return Trends(
        title="Earlier audits",
        charts=[
            draw_line([(point.at, point.score) for point in points], "Score", "good", top=100),
            draw_line(urgent, "Critical findings and errors", "critical"),
            draw_line([(point.at, point.mailboxes) for point in points], "Mailboxes", "info"),
        ],
        note=known.summary,
    )


def view_days(whole: Series) -> Trends | None:
    """Return charts of the last days; `None` if no day is known."""
    if not whole:
        return None
    shown = last_days(whole, _TREND_DAYS)
    estimated = any(each.estimated for each in shown.values())
    return Trends(
        title=f"Sent, replied and bounced per day, {format_day(min(shown))} to {format_day(max(shown))}",
        charts=[_draw_trend(shown, name) for name in _TONES],
        note="Pale bars are estimates: no audit read these days, or not completely." if estimated else "",
        days=[(format_day(day), figures) for day, figures in reversed(shown.items())],
    )


def _draw_trend(series: Series, name: str) -> Chart:
    last = max(series)
    latest = known_figure(series[last], name)
    sums = {each: total(series, each) for each in _TONES}
    rate = (
        ""
        if name == "sent" or share(sums[name], sums["sent"]) is None
        else f" ({format_share(sums[name], sums['sent'])} of sent)"
    )
    note = f"{format_figure(latest)} on {format_day(last)}; {format_figure(sums[name])}{rate} in {len(series):,} days"
    return draw_days(series, name, f"{name.capitalize()} per day", note, _TONES[name])


@attrs.frozen(kw_only=True)
class CampaignDays:
    """A campaign with its figures for each day."""

    row: CampaignRow
    workspace: str
    charts: Sequence[Chart]


def view_campaign_days(report: Report, days: Mapping[tuple[str, str], Series], most: int) -> list[CampaignDays]:
    """Return the campaigns with known days, in the order of the report."""
    rows = report.campaigns.rows if report.campaigns else []
    known = [row for row in rows if (row.workspace, row.id) in days]
    label_of = _labels(report)
    return [
        CampaignDays(
            row=row,
            workspace=label_of(row.workspace),
            charts=[_draw_trend(last_days(days[row.workspace, row.id], _TREND_DAYS), name) for name in _TONES],
        )
        for row in known[:most]
    ]


@attrs.frozen(kw_only=True)
class DayIndex:
    """Daily figures of everything, of each workspace and of each campaign."""

    whole: Series
    workspaces: Mapping[str, Series]
    campaigns: Mapping[tuple[str, str], Series]


def index_days(days: Iterable[DailyFigures], workspaces: Sequence[str]) -> DayIndex:
    """Sort daily figures by subject. Unknown days and workspaces that the report does not cover are left out."""
    covered = set(workspaces)
    days = [figures for figures in days if any(known_figure(figures, name) is not None for name in _TONES)]
    spaces: defaultdict[str, list[DailyFigures]] = defaultdict(list)
    campaigns: defaultdict[tuple[str, str], list[DailyFigures]] = defaultdict(list)
    for figures in days:
        if figures.workspace in covered and figures.campaign is None:
            spaces[figures.workspace].append(figures)
        elif figures.workspace in covered and figures.campaign is not None:
            campaigns[figures.workspace, figures.campaign].append(figures)
    return DayIndex(
        whole=add_days(figures for known in spaces.values() for figures in known),
        workspaces={key: add_days(known) for key, known in spaces.items()},
        campaigns={key: add_days(known) for key, known in campaigns.items()},
    )


def describe_volume(report: Report) -> str:
    """Return how much of the e-mail comes from mailboxes that must be stopped or fixed; an empty string if it is unknown."""
    seen = CompactSet()
    part: Number = 0
    for finding in chain(findings_of(report, Severity.CRITICAL), findings_of(report, Severity.ERROR)):
        if finding.mailbox is not None and seen.add((finding.workspace, finding.mailbox)):
            part += finding.sent_30days or 0
    everything = sum(score.sent_30days for score in report.scores.workspaces.values())
    if not 0 < part <= everything or valid_or_none(everything) is None:
        return ""
    return (
        f"{part:,.0f} of the {everything:,.0f} e-mails of the last 30 days ({format_percent(part / everything)}) came from "
        "mailboxes that must be stopped or fixed."
    )


def view_health(report: Report) -> list[tuple[int, str, str]]:
    """Return the number of checked mailboxes by their worst finding, each with its meaning and tone."""
    seen, counts = CompactSet(), Counter[Severity]()
    for severity in Severity:  # the first finding about a mailbox is its worst
        for finding in findings_of(report, severity):
            if finding.mailbox is not None and finding.sent_30days is not None:
                counts[severity] += seen.add((finding.workspace, finding.mailbox))
    labels = zip(Severity, ("to stop", "to fix", "to review", "with notes"), strict=True)
    boxes = [(counts[severity], label, severity.value) for severity, label in labels]
    return [*boxes, (max(0, report.mailboxes - len(seen)), "without findings", "good")]
