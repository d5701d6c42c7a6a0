"""Render a report or a brief as one self-contained HTML page (extra `html`).

The folder `templates` contains the markup, style and script of the pages. The templates only draw charts that are laid out here,
and the script only copies the list of what to stop.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from hashlib import sha256
from heapq import nsmallest
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs

from outreach_async.audit._findings import Finding, Severity, campaign_label, subject_name
from outreach_async.audit._report import Report
from outreach_async.audit._rules import rule_title
from outreach_async.audit._values import (
    format_date,
    format_figure,
    format_percent,
    format_time,
    replace_unprintable,
    sum_or_none,
    valid_or_none,
)
from outreach_async.audit.history import DayFigures
from outreach_async.audit.reports._document import (
    build_authentication,
    describe_end,
    describe_points,
    describe_scope,
    describe_status,
    format_hidden,
    format_notes,
    format_share,
    format_status,
    format_sums,
    format_totals,
    judge_change,
    list_active,
    list_figure_changes,
    list_points,
    list_unread,
    recent_figures,
    score_tone,
    split_code,
)
from outreach_async.audit.reports.brief import Brief, Summary, summarize, workspace_label, worst_first_key
from outreach_async.errors import InvalidRequest, format_count
from outreach_async.models import Number

if TYPE_CHECKING:
    from jinja2 import Environment

_LIMITS: Final = {
    "max_stopped": 12,  # subjects to stop that are always visible; the others follow on demand
    "max_changed_tasks": 8,
    "max_figure_changes": 12,
    "max_campaigns": 15,  # always visible
    "max_rows": 500,  # of each table that opens on demand
}
_MAX_ITEMS: Final = 100  # findings that are listed for a task
_MAX_CAMPAIGNS: Final = 200
_MAX_CAMPAIGN_CHARTS: Final = 60
_TREND_DAYS: Final = 30
_HISTORY_DAYS: Final = 90
_RECENT_DAYS: Final = 7
_COUNTED: Final = {Severity.CRITICAL: "critical", Severity.ERROR: "error", Severity.WARNING: "warning"}
_SEVERITY_LABELS: Final = {"critical": "Critical", "error": "Error", "warning": "Warning", "info": "Note"}
_UNIT: Final = re.compile(r"(?<=\d) (?=(?:%|s|(?:second|minute|hour|day|week|month|year)s?|UTC)(?!\w))")
"""The space between a number and its unit, where a line must not break."""

Opened = Mapping[tuple[str, str, str], float]  # since when findings are open, by workspace, rule and severity
LEFT: Final = 46
RIGHT: Final = 416
TOP: Final = 9
FLOOR: Final = 72
"""The area of the values, in units of the chart's viewBox."""
TONES: Final = {"sent": "info", "replied": "good", "bounced": "critical"}
_MAX_DATES: Final = 4
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

Series = dict[date, DayFigures]
"""The figures of the known days. If `spread_over` is above 1, they are estimates."""
Days = Mapping[tuple[str, ...], Series]
"""Series by `()` of everything, by `(workspace,)`, and by `(workspace, campaign)`."""


def iterate_html(
    view: Report | Brief,
    *,
    days: Iterable[DayFigures] = (),
    opened: Opened = MappingProxyType({}),
    pages: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    """Render a page that makes no requests, in pieces.

    `days` are daily figures, for the trends. `opened` says since when findings are open. `pages` are the file names of the pages
    of single workspaces, to link to.
    """
    if isinstance(view, Brief):
        summary: Summary = view
        workspaces = [workspace.id for workspace in view.workspaces]
        known = index_days(days, workspaces)
        about, findings = _view_brief(view, known), dict[tuple[str, Severity], list[Finding]]()
    else:
        summary, workspaces = summarize(view), view.workspaces
        known = index_days(days, workspaces)
        about, findings = _view_report(view, known, pages), _list_worst(view)
    label_of = partial(workspace_label, names=summary.names)
    return (
        load_templates()
        .get_template("brief.html" if isinstance(view, Brief) else "page.html")
        .generate(
            summary=summary,
            subject=label_of(workspaces[0]) if len(workspaces) == 1 else "",
            label_of=label_of,
            place_of=label_of if len(workspaces) > 1 else lambda _: "",
            score_change=_describe_change(summary.score_before, summary.score),
            score_tone=score_tone(summary.score, next((each for each, count in summary.counts.items() if count), None)),
            tasks=_view_tasks(summary, workspaces, opened, findings),
            **about,
        )
    )


def _view_brief(brief: Brief, days: Days) -> dict[str, Any]:
    campaigns = list_active(brief)[:_MAX_CAMPAIGNS]
    hidden, sums, notes = format_hidden(brief, len(campaigns)), format_sums(brief), format_notes(brief)
    return {"trends": _view_days(days.get((), {})), "campaigns": campaigns, "hidden": hidden, "sums": sums, "notes": notes}


def _view_report(report: Report, days: Days, pages: Mapping[str, str]) -> dict[str, Any]:
    health, volume = _view_health(report)
    unread, unread_names = list_unread(report)
    rows = report.campaigns.rows if report.campaigns else []
    dated = [(row, days[key]) for row in rows if (key := (row.workspace, row.id)) in days][:_MAX_CAMPAIGN_CHARTS]
    recent = [(row, last_days(series, _TREND_DAYS)) for row, series in dated]
    return {
        "report": report,
        "health": health,
        "volume": volume,
        "unread": unread,
        "unread_names": unread_names,
        "scope": describe_scope(report),
        "figure_changes": list_figure_changes(report),
        "trends": _view_trends(report, days.get((), {})),
        "cards": _view_cards(report, days, pages),
        "campaign_days": [(row, [_draw_trend(series, name) for name in TONES]) for row, series in recent],
        "authentication": build_authentication(report),
    }


def _list_worst(report: Report) -> dict[tuple[str, Severity], list[Finding]]:
    found: defaultdict[tuple[str, Severity], list[Finding]] = defaultdict(list)
    for finding in report.findings:
        found[finding.rule, finding.severity].append(finding)
    return {key: nsmallest(_MAX_ITEMS, known, key=worst_first_key) for key, known in found.items()}


def _view_tasks(
    summary: Summary, workspaces: Collection[str], opened: Opened, findings: Mapping[tuple[str, Severity], Sequence[Finding]]
) -> list[dict[str, Any]]:
    covered, first = set(workspaces), dict[tuple[str, str], float]()
    for (workspace, rule, severity), at in opened.items():
        if workspace in covered:
            first[rule, severity] = min(at, first.get((rule, severity), at))
    views = []
    for task in summary.tasks:
        key = task.rule, task.severity
        began = format_day(day_of(first[key])) if key in first and task.new != task.findings else ""
        since = ", ".join(filter(None, (began, task.news)))
        if summary.since is None:
            since = ""
        elif not since:
            since = f"before {format_day(day_of(summary.since))}"
        views.append({"task": task, "since": since, "findings": findings.get(key, ())})
    return views


def _describe_change(before: Number | None, after: Number | None) -> tuple[str, str] | None:
    """Return whether a change of a score is `better` or `worse`, and its text; `None` if it is unknown or zero."""
    judged = judge_change("score", before, after)
    if not judged or before is None or after is None:
        return None
    return judged, f"{after - before:+.1f} ({judged})".replace(".0", "")


def _view_cards(report: Report, days: Days, pages: Mapping[str, str]) -> list[dict[str, Any]]:
    tasks: defaultdict[str, Counter[Severity]] = defaultdict(Counter)
    for workspace, severity, _ in {(finding.workspace, finding.severity, finding.rule) for finding in report.findings}:
        tasks[workspace][severity] += 1
    changes = report.diff.scores if report.diff else ()
    before = {delta.key: delta.before for delta in changes if delta.kind == "workspace"}
    worst = {group.key: group.severity for group in report.groups if group.kind == "workspace"}
    unread = set(report.unreadable)
    scores = {key: score.score for key, score in report.scores.workspaces.items()}

    def worst_first(workspace: str) -> tuple[object, ...]:
        return workspace not in unread, [-tasks[workspace][each] for each in _COUNTED], scores.get(workspace, 0.0)

    cards = []
    for workspace in sorted(report.workspaces, key=worst_first):
        score, recent = scores.get(workspace), last_days(days.get((workspace,), {}), _TREND_DAYS)
        counts = [(count, tone) for severity, tone in _COUNTED.items() if (count := tasks[workspace][severity])]
        card = {
            "id": workspace,
            "page": pages.get(workspace, ""),
            "score": score,
            "change": _describe_change(before.get(workspace), score),
            "tone": score_tone(score, worst.get(workspace)),
            "figures": _workspace_figures(report, workspace, recent),
            "chart": _draw_trend(recent, "sent") if recent else None,
            "tasks": counts,
            "unread": workspace in unread,
            "is_clean": not counts and workspace not in unread,
        }
        cards.append(card)
    return cards


def _workspace_figures(report: Report, workspace: str, days: Series) -> list[tuple[str, str]]:
    known = report.campaigns.totals.get(workspace) if report.campaigns else None
    if recent := last_days(days, _RECENT_DAYS):
        sent, replied, bounced = (total(recent, name) for name in TONES)
        label = f"Sent, {_RECENT_DAYS} days"
    elif known is not None:
        sent, replied, bounced, label = known.sent, known.replies_num, known.bounces_num, "Sent in campaigns"
    else:
        score = report.scores.workspaces.get(workspace)
        return [("Sent, 30 days", format_figure(score.sent_30days if score else None))]
    shares = (format_share(part, sent) for part in (replied, bounced))
    return [(label, format_figure(sent)), *zip(("Replied", "Bounced"), shares, strict=True)]


def _view_trends(report: Report, whole: Series) -> dict[str, Any] | None:
    points = list_points(report)
    if whole or not points:
        return _view_days(whole)
    newest = max(day_of(point.at) for point in points)
    points = [point for point in points if (newest - day_of(point.at)).days < _HISTORY_DAYS]
    shown = {day_of(point.at): point for point in points}

    def draw(title: str, tone: str, values: Iterable[Number | None]) -> Chart:
        known = dict(zip(shown, values, strict=True))
        return draw_days(known, title, format_figure(known[max(known)]), tone)

    urgent = [sum(point.counts.get(each, 0) for each in list(_COUNTED)[:2]) for point in shown.values()]
    charts = [
        draw("Score", "good", (point.score for point in shown.values())),
        draw("Critical findings and errors", "critical", urgent),
        draw("Mailboxes", "info", (point.mailboxes for point in shown.values())),
    ]
    return {"title": "Earlier audits", "charts": charts, "note": describe_points(points), "days": ()}


def _view_days(whole: Series) -> dict[str, Any] | None:
    if not whole:
        return None
    shown = last_days(whole, _TREND_DAYS)
    estimated = any(each.spread_over > 1 for each in shown.values())
    return {
        "title": f"Sent, replied and bounced per day, {format_day(min(shown))} to {format_day(max(shown))}",
        "charts": [_draw_trend(shown, name) for name in TONES],
        "note": "Pale bars are estimates: no audit read these days." if estimated else "",
        "days": [(format_day(day), figures) for day, figures in reversed(shown.items())],
    }


def _draw_trend(series: Series, name: str) -> Chart:
    last, part, sent = max(series), total(series, name), total(series, "sent")
    rate = "" if name == "sent" else format_share(part, sent)
    of_sent = f" ({rate} of sent)" if rate not in {"", "-"} else ""
    values = {day: getattr(each, name) for day, each in series.items()}
    note = f"{format_figure(values[last])} on {format_day(last)}; {format_figure(part)}{of_sent} in {len(series):,} days"
    estimated = {day for day, each in series.items() if each.spread_over > 1}
    return draw_days(values, f"{name.capitalize()} per day", note, TONES[name], estimated=estimated)


def _view_health(report: Report) -> tuple[list[tuple[int, str, str]], str]:
    """Return the numbers of mailboxes by their worst finding, and how much of the e-mail comes from those to stop or to fix."""
    worst = dict[tuple[str, str], Finding]()
    for finding in report.findings:  # the worst first
        if finding.mailbox is not None and finding.sent_30days is not None:
            worst.setdefault((finding.workspace, finding.mailbox), finding)
    counts = Counter(finding.severity for finding in worst.values())
    part = sum(finding.sent_30days or 0 for finding in worst.values() if finding.severity.reaches(Severity.ERROR))
    labels = zip(Severity, ("to stop", "to fix", "to review", "with notes"), strict=True)
    boxes = [(counts[severity], label, severity.value) for severity, label in labels]
    health = [*boxes, (max(0, report.mailboxes - len(worst)), "without findings", "good")]
    everything = sum(score.sent_30days for score in report.scores.workspaces.values())
    if not 0 < part <= everything or valid_or_none(everything) is None:
        return health, ""
    share = f"{part:,.0f} of the {everything:,.0f} e-mails of the last 30 days ({format_percent(part / everything)})"
    return health, f"{share} came from mailboxes that must be stopped or fixed."


def index_days(days: Iterable[DayFigures], workspaces: Collection[str]) -> Days:
    covered = set(workspaces)
    found = defaultdict[tuple[str, ...], defaultdict[date, list[DayFigures]]](lambda: defaultdict(list))
    for each in days:
        if each.workspace in covered:
            subjects = [(), (each.workspace,)] if each.id == each.workspace else [(each.workspace, each.id)]
            for subject in subjects:
                found[subject][date.fromisoformat(each.date)].append(each)
    series = dict[tuple[str, ...], Series]()
    for subject, known in found.items():
        sums = {day: _add_up(known[day]) for day in sorted(known)}
        if kept := {day: each for day, each in sums.items() if any(getattr(each, name) is not None for name in TONES)}:
            series[subject] = kept
    return series


def _add_up(known: Sequence[DayFigures]) -> DayFigures:
    # A sum that lacks a part looks like a bad day.
    sums: dict[str, Any] = {name: sum_or_none(getattr(each, name) for each in known) for name in (*TONES, "opened")}
    return attrs.evolve(known[0], **sums, spread_over=max(each.spread_over for each in known))


def total(series: Series, name: str) -> Number | None:
    known = [figure for each in series.values() if (figure := getattr(each, name)) is not None]
    return sum(known) if known else None


def last_days(series: Series, most: int) -> Series:
    last = max(series, default=None)
    return {day: each for day, each in series.items() if last is not None and (last - day).days < most}


@attrs.frozen(kw_only=True)
class Chart:
    """A chart over time. The paths, each with its style, are in units of the viewBox; `spoken` is the text alternative."""

    title: str
    note: str
    tone: str
    paths: list[tuple[str, str]]
    ticks: list[tuple[float, str]]
    dates: list[tuple[float, str, str]]
    spoken: str


def format_day(day: date) -> str:
    return f"{day.day} {_MONTHS[day.month - 1]}"


def day_of(at: float) -> date:
    return datetime.fromtimestamp(at, UTC).date()


def draw_days(
    known: Mapping[date, Number | None], title: str, note: str, tone: str, *, estimated: Collection[date] = ()
) -> Chart:
    """Draw a bar for each day. An estimate is paler, and a mark on the axis stands for an unknown day."""
    first, last = min(known), max(known)
    days = [first + timedelta(days=place) for place in range((last - first).days + 1)]
    values = [None if (value := known.get(day)) is None else valid_or_none(value) for day in days]
    most = max((value for value in values if value is not None), default=0)
    # The scale ends at 1, 2 or 5 times a power of ten.
    unit: int = 10 ** math.floor(math.log10(most)) if most > 1 else 1
    top, step = next(each * unit for each in (1, 2, 5, 10) if each * unit >= most), (RIGHT - LEFT) / len(days)
    width = max(1.0, step - min(2.0, step / 4))
    paths = {"gap": "", tone: "", f"{tone} pale": ""}
    for place, (day, value) in enumerate(zip(days, values, strict=True)):
        x = LEFT + place * step
        if value is None:
            paths["gap"] += f"M{x:.1f} {FLOOR}h{width:.1f}"
        elif value:
            height = max(1.0, (FLOOR - TOP) * (value / top))
            paths[f"{tone} pale" if day in estimated else tone] += f"M{x:.1f} {FLOOR}v{-height:.1f}h{width:.1f}v{height:.1f}z"
    # The first and the last day have a date, and some between, evenly.
    count = min(len(days), _MAX_DATES)
    shown = sorted({round(place * (len(days) - 1) / max(1, count - 1)) for place in range(count)})
    anchors = {0: "start", len(days) - 1: "end"} if len(days) > _MAX_DATES else {}
    ticks = [0, top] if top == 1 else [0, top / 2, top]
    return Chart(
        title=title,
        note=note,
        tone=tone,
        paths=[(style, path) for style, path in paths.items() if path],
        ticks=[(FLOOR - (FLOOR - TOP) * value / top, format_figure(value)) for value in ticks],
        dates=[(LEFT + (place + 0.5) * step, format_day(days[place]), anchors.get(place, "middle")) for place in shown],
        spoken=f"{title}, {format_day(first)} to {format_day(last)}: {', '.join(map(format_figure, values))}",
    )


@cache
def load_templates() -> Environment:
    """Return the templates of the pages. The templates escape values, and replace unprintable characters in them."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise InvalidRequest("form: html needs the extra 'html'; run pip install 'outreach_async[html]'") from None

    def finalize(value: object) -> object:
        if not isinstance(value, str) or isinstance(value, Markup):
            return value
        return _UNIT.sub("\N{NO-BREAK SPACE}", replace_unprintable(value))

    templates = Environment(
        loader=PackageLoader("outreach_async.audit.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= _FILTERS
    templates.globals |= {**_LIMITS, "severity_labels": _SEVERITY_LABELS}
    for name, file in (("style", "page.css"), ("script", "page.js")):
        text = (files("outreach_async.audit.reports") / "templates" / file).read_text(encoding="utf-8")
        # The hash allows an inline style or script in the page's content security policy.
        digest = b64encode(sha256(text.encode()).digest()).decode()
        templates.globals |= {name: text, f"{name}_hash": f"sha256-{digest}"}
    return templates


_FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "campaign_label": lambda campaign: campaign_label(campaign.name, campaign.id),
    "campaign_status": lambda row: format_status(row.status),
    "code_spans": split_code,
    "counted": format_count,
    "date": format_date,
    "end": describe_end,
    "figure": format_figure,
    "percentage": lambda share: "-" if share is None else f"{share:.1f} %",
    "recent_figures": recent_figures,
    "rule_title": rule_title,
    "score_tone": lambda row: score_tone(row.score, row.severity),
    "share_text": format_share,
    "status_change": describe_status,
    "subject_name": subject_name,
    "time": format_time,
    "totals": format_totals,
}
