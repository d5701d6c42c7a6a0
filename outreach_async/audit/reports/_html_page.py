"""Render a report or a brief as one self-contained HTML page (extra `html`).

The folder `templates` contains the markup, style and script of the pages. The script only copies the list of what to stop.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from outreach_async.audit._report import Report
from outreach_async.audit._rules import rule_title
from outreach_async.audit.reports import _campaign_view as campaign_view
from outreach_async.audit.reports._days import DailyFigures
from outreach_async.audit.reports._document import AUDIT_TITLE, BRIEF_TITLE, format_notes, list_gaps
from outreach_async.audit.reports._page_view import (
    MAX_STOPPED,
    Opened,
    describe_change,
    describe_volume,
    index_days,
    view_campaign_days,
    view_cards,
    view_days,
    view_health,
    view_task,
    view_tasks,
    view_trends,
)
from outreach_async.audit.reports._summary import (
    Summary,
    campaign_label,
    format_changes,
    format_counts,
    summarize,
    workspace_label,
)
from outreach_async.audit.reports._view import build_authentication, build_overview, score_tone
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

_MAX_FIGURE_CHANGES: Final = 12
_MAX_CHANGED_TASKS: Final = 8
_MAX_CAMPAIGNS: Final = 200
_MAX_VISIBLE_CAMPAIGNS: Final = 15
_MAX_CAMPAIGN_CHARTS: Final = 60
_MAX_ROWS: Final = 500
"""Maximum number of rows of each table that opens on demand."""

_UNIT: Final = re.compile(r"(?<=\d) (?=(?:%|s|(?:second|minute|hour|day|week|month|year)s?|UTC)(?!\w))")
"""The space between a number and its unit, where a line must not break."""

_SEVERITY_LABELS: Final = {"critical": "Critical", "error": "Error", "warning": "Warning", "info": "Note"}
_KIND_LABELS: Final = {"type": "Provider", "server_ip": "Server"}


def iterate_html(
    report: Report,
    *,
    days: Iterable[DailyFigures] = (),
    pages: Mapping[str, str] = MappingProxyType({}),
    opened: Opened = MappingProxyType({}),
) -> Iterator[str]:
    """Render a report as one self-contained HTML page that makes no requests, in pieces.

    `days` are daily figures, for the trends. `pages` are the file names of the pages of single workspaces, to link to. `opened`
    says since when findings are open.
    """
    opened = _select(opened, report.workspaces)
    summary, known = summarize(report), index_days(days, report.workspaces)
    cards = view_cards(report, known.workspaces, pages)
    authentication = build_authentication(report)
    groups = {kind: [group for group in report.groups if group.kind == kind] for kind in ("domain", *_KIND_LABELS)}
    return _render(
        "page.html",
        AUDIT_TITLE,
        summary,
        report=report,
        view=build_overview(report),
        label_of=partial(workspace_label, names=report.names),
        subject=workspace_label(report.workspaces[0], report.names) if len(report.workspaces) == 1 else "",
        health=view_health(report),
        volume=describe_volume(report),
        tasks=view_tasks(report, summary, opened),
        trends=view_trends(report, known.whole),
        cards=cards,
        campaign_days=view_campaign_days(report, known.campaigns, _MAX_CAMPAIGN_CHARTS),
        domains=[(group, authentication(group.key, group.mailboxes)) for group in groups.pop("domain")],
        groups=[group for known_groups in groups.values() for group in known_groups],
        facts=list(_policy_facts(report)),
    )


def _select(opened: Opened, workspaces: Iterable[str]) -> Opened:
    covered = set(workspaces)
    return {key: at for key, at in opened.items() if key[0] in covered}


def render_html(report: Report, **about: Any) -> str:
    """Render a report as one self-contained HTML page; see `iterate_html`."""
    return "".join(iterate_html(report, **about))


def render_brief_html(brief: Brief, *, days: Iterable[DailyFigures] = (), opened: Opened = MappingProxyType({})) -> str:
    """Render a brief as one self-contained HTML page, in the style of the HTML report of an audit."""
    workspaces = [workspace.id for workspace in brief.workspaces]
    opened = _select(opened, workspaces)
    campaigns = campaign_view.list_active(brief)[:_MAX_CAMPAIGNS]
    return "".join(
        _render(
            "brief.html",
            BRIEF_TITLE,
            brief,
            subject=brief.label_of(brief.workspaces[0].id) if len(brief.workspaces) == 1 else "",
            tasks=[view_task(task, brief, opened) for task in brief.tasks],
            trends=view_days(index_days(days, workspaces).whole),
            campaigns=campaigns,
            hidden=campaign_view.format_hidden(brief, len(campaigns)),
            sums=campaign_view.format_sums(brief),
            gaps=list(list_gaps(brief)),
            notes=format_notes(brief),
        )
    )


def _render(template: str, title: str, summary: Summary, **values: Any) -> Iterator[str]:
    """Render a page with the values that both pages show."""
    return (
        load_templates()
        .get_template(template)
        .generate(
            summary=summary,
            title=title,
            at=format_time(summary.at),
            counts=format_counts(summary.counts),
            changes=format_changes(summary),
            score_change=describe_change(summary.score_before, summary.score),
            score_tone=score_tone(summary.score, next((each for each, count in summary.counts.items() if count), None)),
            max_stopped=MAX_STOPPED,
            max_rows=_MAX_ROWS,
            max_campaigns=_MAX_VISIBLE_CAMPAIGNS,
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


def _format_percentage(share: float | None) -> str:
    return "-" if share is None else f"{share:.1f} %"


_FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "campaign_label": lambda campaign: campaign_label(campaign.name, campaign.id),
    "campaign_status": lambda row: campaign_view.format_status(row.status),
    "code_spans": split_code,
    "counted": format_count,
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
    "totals": campaign_view.format_totals,
}


def _policy_facts(report: Report) -> Iterator[tuple[str, str]]:
    used = report.policy
    changed: Iterable[str] = (
        f"{rule} {name} = {value:g}" for rule, figures in used.thresholds.items() for name, value in figures.items()
    )
    yield "Policy", f"{used.name} {used.fingerprint}".strip()
    yield "Rules turned off", ", ".join(f"{rule} {rule_title(rule)}" for rule in used.off)
    yield "Thresholds changed", ", ".join(changed)
    mailbox = "A mailbox scores 100, multiplied by 0.1 for each critical finding, 0.5 for each error and 0.9 for each warning."
    groups = (
        "Any other score is the mean of the mailboxes, including the findings about their domains and servers. Each mailbox is "
        "weighted by the e-mails that it sent in 30 days, plus 30."
    )
    yield "Scores", f"{mailbox} {groups}"
