"""Render a report or a brief as one self-contained HTML page (extra `html`).

The folder `templates` contains the markup, style and script of both pages.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import attrs

from outreach_async.audit._findings import Severity
from outreach_async.audit._report import Report
from outreach_async.audit._rules import rule_title
from outreach_async.audit.reports import _campaign_view as campaign_view
from outreach_async.audit.reports._document import AUDIT_TITLE, BRIEF_TITLE, format_notes, list_gaps
from outreach_async.audit.reports._summary import (
    Summary,
    campaign_label,
    format_changes,
    format_counts,
    split_urgent,
    subject_name,
    summarize,
    workspace_label,
    worst_first_key,
)
from outreach_async.audit.reports._view import (
    SCORE_BANDS,
    MailboxHealth,
    build_authentication,
    build_domain_views,
    build_health,
    build_overview,
    score_tone,
)
from outreach_async.audit.reports._wording import (
    format_count,
    format_date,
    format_figure,
    format_time,
    replace_unprintable,
    split_code,
)
from outreach_async.audit.reports.brief import Brief
from outreach_async.errors import InvalidRequest

if TYPE_CHECKING:
    from jinja2 import Environment

_MAX_GROUPS: Final = 6
_MAX_FIGURE_CHANGES: Final = 12
_MAX_CHANGED_TASKS: Final = 8
_MAX_BARS: Final = 8
_MAX_CAMPAIGNS: Final = 200
_MAX_MAILBOXES: Final = 1000
_MAX_ROWS: Final = 2000
"""Maximum number of rows of each table of a report, except the table of mailboxes."""

_UNIT: Final = re.compile(r"(?<=\d) (?=(?:%|s|(?:second|minute|hour|day|week|month|year)s?|UTC)(?!\w))")
"""The space between a number and its unit, where a line must not break."""

_TILE_LABELS: Final = dict(zip(Severity, ("to stop now", "to fix", "to review", "with notes only"), strict=True))
_SEVERITY_LABELS: Final = {"critical": "Critical", "error": "Error", "warning": "Warning", "info": "Note"}
_KIND_LABELS: Final = {"workspace": "Workspace", "type": "Provider", "server_ip": "Server"}
_VERDICT_LABELS: Final = {
    "better": "A variant is better",
    "too_early": "Too early to tell",
    "too_few_days": "Too few days",
    "unequal_sends": "Unequal e-mails sent",
    "not_compared": "Not compared",
}
_BAND_TONES: Final = ("critical", "critical", "critical", "warning", "warning", "good")
"""Tone (CSS class of the colour) of each range in `SCORE_BANDS`, consistent with `score_tone`."""


def render_html(report: Report) -> str:
    """Render a report as one self-contained HTML page that makes no requests."""
    # The page is readable without JavaScript. JavaScript adds sorting, filters and paging. The page lists at most 2,000 findings
    # and 1,000 mailboxes.
    summary, health = summarize(report), build_health(report)
    tiles = [(health.boxes[severity], label, severity.value) for severity, label in _TILE_LABELS.items()]
    return _render(
        "page.html",
        AUDIT_TITLE,
        summary,
        report=report,
        view=build_overview(report),
        health=health,
        tiles=[*tiles, (health.clean, "without findings", "good")],
        **_chart_values(report, summary, health),
        **_table_values(report),
        facts=list(_policy_facts(report)),
    )


def render_brief_html(brief: Brief) -> str:
    """Render a brief as one self-contained HTML page, in the style of the HTML report of an audit."""
    campaigns = campaign_view.list_active(brief)[:_MAX_CAMPAIGNS]
    changes = brief.changes
    found = [(changes.new, "new findings", "error"), (changes.resolved, "resolved", "good")] if changes else []
    return _render(
        "brief.html",
        BRIEF_TITLE,
        brief,
        tiles=[*found, *((count, noun, "info") for count, noun in campaign_view.sum_campaigns(brief))],
        campaigns=campaigns,
        hidden=campaign_view.format_hidden(brief, len(campaigns)),
        sums=campaign_view.format_sums(brief),
        gaps=list(list_gaps(brief)),
        notes=format_notes(brief),
    )


def _render(template: str, title: str, summary: Summary, **values: Any) -> str:
    """Render a page with the values that both pages show."""
    urgent, later = split_urgent(summary.tasks)
    return (
        load_templates()
        .get_template(template)
        .render(
            summary=summary,
            title=title,
            at=format_time(summary.at),
            counts=format_counts(summary.counts),
            changes=format_changes(summary),
            urgent=urgent,
            later=later,
            # The tables link to the worst task of a rule.
            anchors={task.rule: task for task in reversed(summary.tasks)},
            max_groups=_MAX_GROUPS,
            max_changed_tasks=_MAX_CHANGED_TASKS,
            max_figure_changes=_MAX_FIGURE_CHANGES,
            **values,
        )
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
        return _finalize(value) if isinstance(value, str) and not isinstance(value, Markup) else value

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
    style, script = _read_template("page.css"), _read_template("page.js")
    templates.globals |= {"severity_labels": _SEVERITY_LABELS, "kind_labels": _KIND_LABELS, "style": style, "script": script}
    templates.globals |= {"style_hash": _csp_hash(style), "script_hash": _csp_hash(script)}
    return templates


def _finalize(text: str) -> str:
    """Return a string without unprintable characters, and with a no-break space between a number and its unit."""
    return _UNIT.sub("\N{NO-BREAK SPACE}", replace_unprintable(text))


def _read_template(name: str) -> str:
    return (files("outreach_async.audit.reports") / "templates" / name).read_text(encoding="utf-8")


def _csp_hash(text: str) -> str:
    """Return the hash that allows an inline style or script in the page's content security policy."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _format_percentage(share: float | None) -> str:
    return "-" if share is None else f"{share:.1f} %"


_FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "amount": campaign_view.format_amount,
    "campaign_label": lambda campaign: campaign_label(campaign.name, campaign.id),
    "campaign_status": lambda row: campaign_view.format_status(row.status),
    "code_spans": split_code,
    "counted": format_count,
    "cut": _cut,
    "date": format_date,
    "end": campaign_view.describe_end,
    "figure": format_figure,
    "percentage": _format_percentage,
    "recent_figures": campaign_view.recent_figures,
    "rule_title": rule_title,
    "score_tone": lambda row: score_tone(row.score, row.severity),
    "share": campaign_view.share,
    "share_text": campaign_view.format_share,
    "status_change": campaign_view.describe_status,
    "step_label": campaign_view.step_label,
    "subject_name": subject_name,
    "totals": campaign_view.format_totals,
    "variant_verdict": campaign_view.format_variant_verdict,
    "variants": campaign_view.format_variants,
}


@attrs.frozen
class _Bar:
    """A bar of a bar chart: its label, its length, the number at its end, and the CSS class of its colour."""

    label: str
    length: float
    figure: str
    tone: str


def _chart_values(report: Report, summary: Summary, health: MailboxHealth) -> dict[str, Any]:
    scored = [domain for domain in build_domain_views(report) if domain.score is not None][:_MAX_BARS]
    labels = (f"{low}" if low == high else f"{low}-{high}" for low, high in SCORE_BANDS)
    return {
        "domain_bars": [_Bar(domain.name, domain.score or 0.0, domain.points, domain.tone) for domain in scored],
        "bands": list(zip(labels, health.bands, _BAND_TONES, strict=True)),
        "rule_bars": [
            _Bar(task.title, task.findings, f"{task.findings:,}", task.severity.value) for task in summary.tasks[:_MAX_BARS]
        ],
    }


T = TypeVar("T")


@attrs.frozen
class _Filter:
    """A drop-down list that filters rows by a `data-` attribute. Each option has a value and a label."""

    name: str
    label: str
    options: Sequence[tuple[str, str]]


@attrs.frozen
class _Table(Generic[T]):
    """A table on the page: its rows, the total number of rows including omitted rows, and its filters."""

    rows: Sequence[T]
    total: int
    filters: Sequence[_Filter]
    label_of: Callable[[str], str]


def _build_table(
    rows: Sequence[T],
    most: int,
    label_of: Callable[[str], str],
    **filters: tuple[str, Mapping[str, str] | Callable[[T], str]],
) -> _Table[T]:
    """Return a table of the first `most` rows."""
    shown = rows[:most]
    return _Table(
        shown,
        len(rows),
        [
            _Filter(name, label, [(value, label_of(value)) for value in sorted(set(map(options, shown)), key=label_of)])
            if callable(options)
            else _Filter(name, label, list(options.items()))
            for name, (label, options) in filters.items()
        ],
        label_of,
    )


def _table_values(report: Report) -> dict[str, _Table[Any]]:
    label_of = partial(workspace_label, names=report.names)
    authentication = build_authentication(report)
    domains = [(group, authentication(group.key, group.mailboxes)) for group in report.groups if group.kind == "domain"]
    groups = [group for kind in _KIND_LABELS for group in report.groups if group.kind == kind]
    findings = sorted(report.findings, key=worst_first_key)
    worst = "Worst finding", {**_SEVERITY_LABELS, "none": "Clean"}
    state: dict[str, Any] = {} if report.diff is None else {"state": ("Change", {"new": "New", "unchanged": "Unchanged"})}
    return {
        "domains": _build_table(domains, _MAX_ROWS, label_of, severity=worst),
        "groups": _build_table(groups, _MAX_ROWS, label_of, kind=("Kind", _KIND_LABELS), severity=worst),
        "mailboxes": _build_table(
            report.rows,
            _MAX_MAILBOXES,
            label_of,
            severity=("Worst finding", _SEVERITY_LABELS),
            workspace=("Workspace", lambda row: row.workspace),
            type=("Provider", lambda row: row.type),
        ),
        "campaigns": _build_table(
            report.campaigns.rows if report.campaigns else [],
            _MAX_ROWS,
            label_of,
            severity=worst,
            status=("Status", lambda row: campaign_view.format_status(row.status)),
            workspace=("Workspace", lambda row: row.workspace),
        ),
        "comparisons": _build_table(
            report.campaigns.comparisons if report.campaigns else [],
            _MAX_ROWS,
            label_of,
            verdict=("Verdict", _VERDICT_LABELS),
        ),
        "findings": _build_table(
            findings,
            _MAX_ROWS,
            label_of,
            severity=("Severity", _SEVERITY_LABELS),
            **state,
            rule=("Rule", lambda finding: finding.rule),
            workspace=("Workspace", lambda finding: finding.workspace),
        ),
    }


def _policy_facts(report: Report) -> Iterator[tuple[str, str]]:
    used = report.policy
    changed: Iterable[str] = (
        f"{rule} {name} = {value:g}" for rule, figures in used.thresholds.items() for name, value in figures.items()
    )
    yield "Policy", f"{used.name} {used.fingerprint}".strip()
    yield "Rules turned off", ", ".join(f"{rule} {rule_title(rule)}" for rule in used.off)
    yield "Thresholds changed", ", ".join(changed)
    points = "A mailbox has 100 points, minus 40 for each critical finding, 20 for each error and 8 for each warning."
    groups = "The score of a group is the mean score of its mailboxes, weighted by the e-mails sent."
    limits = (
        "A critical finding limits the overall score to 40. If the finding is about a domain or one of its mailboxes, the "
        "domain's score is also limited to 40."
    )
    yield "Scores", f"{points} {groups} {limits}"
