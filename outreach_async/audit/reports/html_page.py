"""A report as one self-contained HTML page: style, script and charts are inline, and the page makes no requests."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from importlib.resources import files
from string import Template
from typing import Final

from outreach_async.audit.findings import Finding, Group, Row, Severity
from outreach_async.audit.report import Report
from outreach_async.audit.reports.html_parts import (
    Bar,
    Column,
    Content,
    Filter,
    Markup,
    TableSpec,
    join_markup,
    render_bars,
    render_columns,
    render_gauge,
    render_legend,
    render_name,
    render_table,
    tag,
)
from outreach_async.audit.reports.summary import (
    SCORE_BANDS,
    Action,
    Changes,
    FigureChange,
    MailboxHealth,
    build_health,
    subject_name,
    worst_first_key,
)
from outreach_async.audit.reports.view import DomainView, Overview, build_domain_views, build_overview, format_size, score_tone
from outreach_async.audit.reports.wording import format_count, format_figure, format_time
from outreach_async.audit.rules import CATALOGUE

_MAX_GROUPS: Final = 6
_MAX_FIGURE_CHANGES: Final = 12
_MAX_CHANGED_ACTIONS: Final = 8

_TILE_LABELS: Final = {
    Severity.CRITICAL: "to stop now",
    Severity.ERROR: "to fix",
    Severity.WARNING: "to review",
    Severity.INFO: "with notes only",
}
SEVERITY_LABELS: Final = {
    Severity.CRITICAL: "Critical",
    Severity.ERROR: "Error",
    Severity.WARNING: "Warning",
    Severity.INFO: "Note",
}
"""Display names of the severities."""


def render_badge(severity: Severity) -> Markup:
    """Render a severity as a badge."""
    return tag("span", SEVERITY_LABELS[severity], class_=f"badge {severity.value}")


def render_section(id_: str, title: str, *content: Markup | None, lead: str | None = None) -> Markup:
    """Render a section with its heading."""
    heading = tag("h2", title, id=f"{id_}-title")
    return tag("section", heading, tag("p", lead, class_="lead") if lead else None, *content, aria_labelledby=f"{id_}-title")


def render_verdict(view: Overview, health: MailboxHealth, score: float | None) -> Markup:
    """Render the verdict at the top of the page."""
    tiles = [_render_tile(health.boxes[severity], label, severity.value) for severity, label in _TILE_LABELS.items()]
    words = (
        tag("h2", view.verdict, id="verdict-title"),
        tag("p", health.summary, class_="soft") if health.summary else None,
        tag("p", view.changes.summary, " ", tag("a", "What changed", href="#changes-title")) if view.changes else None,
        tag(
            "ul",
            *tiles,
            _render_tile(health.clean, "without findings", "good"),
            class_="tiles",
            aria_label="Mailboxes by worst finding",
        ),
    )
    return tag(
        "section",
        tag(
            "div", render_gauge(score, score_tone(score)), tag("div", *words, class_="words"), class_=f"card verdict {view.tone}"
        ),
        aria_labelledby="verdict-title",
    )


def render_unread(view: Overview) -> Markup | None:
    """Render the reading errors."""
    if not view.unread:
        return None
    more = f"and {', '.join(view.unread_names)}" if view.unread_names else None
    lines = tag("ul", *(tag("li", render_name(line)) for line in view.unread), tag("li", render_name(more)) if more else None)
    return render_section("unread", "Not read and not checked", tag("div", lines, class_="card alert"))


def render_actions(actions: Sequence[Action]) -> Markup | None:
    """Render the actions, the most urgent first; if some are urgent, the others are collapsed."""
    if not actions:
        return None
    urgent = [action for action in actions if action.severity.reaches(Severity.ERROR)]
    later = actions[len(urgent) :]
    if not urgent:
        return render_section("actions", "What to do, most urgent first", _render_action_list(later))
    fold = tag("summary", f"{format_count(len(later), 'warning or note', 'warnings and notes')}, less urgent")
    rest = tag("details", fold, _render_action_list(later, start=len(urgent)), class_="later") if later else None
    return render_section("actions", "What to do, most urgent first", _render_action_list(urgent), rest)


def _render_action_list(actions: Iterable[Action], *, start: int = 0) -> Markup:
    return tag("ol", *(_render_action(number, action) for number, action in enumerate(actions, start + 1)), class_="actions")


def render_changes(view: Changes) -> Markup:
    """Render the changes since an earlier audit."""
    lists = (
        _render_changed_actions("New", "new", view.new),
        _render_changed_actions("Resolved", "resolved", view.resolved),
        _render_figure_changes(view.figure_changes),
    )
    return render_section("changes", "What changed", tag("div", *lists, class_="split"), lead=view.summary)


def _render_tile(count: int, label: str, kind: str) -> Markup:
    return tag("li", tag("b", format_figure(count)), label, class_=kind if count else "none")


def _render_action(number: int, action: Action) -> Markup:
    title = tag(
        "div", tag("span", f"{number}", class_="number"), render_badge(action.severity), tag("h3", action.title), class_="title"
    )
    body = (
        title,
        tag("p", render_name(action.remedy), class_="remedy"),
        tag("p", action.extent, ". ", _render_example(action), class_="small soft"),
        _render_action_groups(action),
        _render_source(action),
    )
    return tag("li", tag("div", *body, class_="body"), class_="card", id=action.rule)


def _render_example(action: Action) -> Markup:
    first = action.examples[0]
    return join_markup(("For example " if action.findings > 1 else "", render_name(first), "."))


def _render_action_groups(action: Action) -> Markup | None:
    if len(action.groups) == 1:
        return None
    shown = [
        tag("li", render_name(place), " ", tag("b", f"{count:,}") if count > 1 else None)
        for place, count in action.groups[:_MAX_GROUPS]
    ]
    more = len(action.groups) - _MAX_GROUPS
    return tag("ul", *shown, tag("li", f"and {more:,} more") if more > 0 else None, class_="chips", aria_label="Where")


def _render_source(action: Action) -> Markup:
    facts = (("Rule", action.rule), ("Applies when", action.condition), ("Source", action.source))
    told = [join_markup((tag("dt", term), tag("dd", text))) for term, text in facts if text]
    return tag("details", tag("summary", "Rule and source"), tag("dl", *told))


def _render_changed_actions(title: str, kind: str, found: Sequence[Action]) -> Markup:
    lines = [
        tag("li", render_badge(each.severity), " ", tag("b", each.title), ": ", render_name(each.extent))
        for each in found[:_MAX_CHANGED_ACTIONS]
    ]
    more = _render_more(len(found) - _MAX_CHANGED_ACTIONS, "more rule")
    nothing = tag("li", f"Nothing {title.lower()}.", class_="soft") if not found else None
    heading = tag("h3", title, " ", tag("span", f"{sum(each.findings for each in found):,}", class_=f"badge {kind}"))
    return tag("div", heading, tag("ul", *lines, more, nothing, class_="plain"), class_="card")


def _render_figure_changes(moves: Sequence[FigureChange]) -> Markup | None:
    if not moves:
        return None
    more = _render_more(len(moves) - _MAX_FIGURE_CHANGES, "more figure")
    return tag(
        "div",
        tag("h3", "Changed figures"),
        tag("ul", *_figure_change_items(moves[:_MAX_FIGURE_CHANGES]), more, class_="plain"),
        class_="card",
    )


def _figure_change_items(moves: Iterable[FigureChange]) -> Iterable[Markup]:
    for move in moves:
        arrow = {True: "up", False: "down", None: None}[move.better]
        judged = {True: " (better)", False: " (worse)", None: ""}[move.better]
        yield tag(
            "li", render_name(move.name), f": {move.figure} ", tag("b", f"{move.before} → {move.after}{judged}", class_=arrow)
        )


def _render_more(count: int, noun: str) -> Markup | None:
    return tag("li", f"and {format_count(count, noun)}", class_="soft") if count > 0 else None


_KIND_LABELS: Final = {"workspace": "Workspace", "domain": "Domain", "type": "Provider", "server_ip": "Server"}
_STATE_LABELS: Final = {"new": "New", "unchanged": "Unchanged"}
_SEVERITY_OPTIONS: Final = {severity.value: label for severity, label in SEVERITY_LABELS.items()}
_KIND_ORDER: Final = ("domain", "workspace", "type", "server_ip")


def render_groups(report: Report) -> Markup | None:
    """Render the table of domains, workspaces, providers and servers."""
    rows = [group for kind in _KIND_ORDER for group in report.groups if group.kind == kind]
    if not rows:
        return None
    return render_section("groups", "Domains, workspaces, providers and servers", render_table(_GROUPS_TABLE, rows))


def render_mailboxes(report: Report) -> Markup | None:
    """Render the table of mailboxes with findings."""
    return (
        render_section("mailboxes", "Mailboxes with findings", render_table(_MAILBOXES_TABLE, report.rows))
        if report.rows
        else None
    )


def render_findings(report: Report) -> Markup | None:
    """Render the table of findings."""
    if not report.findings:
        return None
    view = _FINDINGS_TABLE if report.diff is None else _COMPARED_FINDINGS_TABLE
    return render_section("findings", "All findings", render_table(view, sorted(report.findings, key=worst_first_key)))


def _severity_cell(severity: Severity | None) -> Content:
    return render_badge(severity) if severity else tag("span", "Clean", class_="badge good")


def _severity_rank(severity: Severity | None) -> float:
    return len(Severity) if severity is None else severity.rank


def _score_cell(score: float) -> Markup:
    return tag("b", f"{score:g}", class_=f"score {score_tone(score)}")


def _bounce_percentage(row: Row) -> float | None:
    return 100 * row.bounced_30days / row.sent_30days if row.sent_30days else None


def _format_percentage(share: float | None) -> str:
    return "-" if share is None else f"{share:.1f} %"


def _sent_today_cell(row: Row) -> str:
    return f"{format_figure(row.sent_today)} of {format_figure(row.daily_limit)}"


def _mailbox_cell(row: Row) -> Markup:
    return join_markup((render_name(row.email or row.id), tag("span", render_name(row.workspace), class_="under")))


def _rules_cell(row: Row) -> Markup:
    return tag("span", *(join_markup((_render_rule_link(rule), " ")) for rule in row.rules))


def _render_rule_link(rule: str) -> Markup:
    """Render a rule's id as a link to its recommended action."""
    return tag("a", rule, href=f"#{rule}", class_="rule")


def _subject_cell(finding: Finding) -> Markup:
    return join_markup((render_name(subject_name(finding)), tag("span", render_name(finding.workspace), class_="under")))


def _message_cell(finding: Finding) -> Markup:
    rule = CATALOGUE.get(finding.rule)
    unsure = " (sample too small to be certain)" if finding.confidence == "low" else ""
    return join_markup(
        (
            tag("b", rule.title if rule else finding.rule),
            tag("span", render_name(f"{finding.message}{unsure}"), " ", _render_rule_link(finding.rule), class_="under"),
        )
    )


def _build_count_column(head: str, severity: Severity) -> Column[Group]:
    def count(group: Group) -> float:
        return group.counts.get(severity, 0)

    return Column(head=head, cell=lambda group: format_figure(count(group)), sort_value=count, figure=True, minor=True)


_GROUPS_TABLE: Final = TableSpec[Group](
    id="groups",
    caption="Worst first within each kind.",
    columns=(
        Column(head="Name", cell=lambda group: render_name(group.key)),
        Column(head="Kind", cell=lambda group: _KIND_LABELS[group.kind]),
        Column(head="Score", cell=lambda group: _score_cell(group.score), sort_value=lambda group: group.score, figure=True),
        Column(
            head="Worst",
            cell=lambda group: _severity_cell(group.severity),
            sort_value=lambda group: _severity_rank(group.severity),
        ),
        Column(
            head="Mailboxes", cell=lambda group: f"{group.mailboxes:,}", sort_value=lambda group: group.mailboxes, figure=True
        ),
        _build_count_column("Critical", Severity.CRITICAL),
        _build_count_column("Errors", Severity.ERROR),
        _build_count_column("Warnings", Severity.WARNING),
        Column(
            head="Sent, 30 days",
            cell=lambda group: format_figure(group.sent_30days),
            sort_value=lambda group: group.sent_30days,
            figure=True,
        ),
        Column(
            head="Daily limit",
            cell=lambda group: format_figure(group.daily_limit),
            sort_value=lambda group: group.daily_limit,
            figure=True,
            minor=True,
        ),
    ),
    filters=(
        Filter(name="kind", label="Kind", value=lambda group: group.kind, options=_KIND_LABELS),
        Filter(
            name="severity",
            label="Worst finding",
            value=lambda group: group.severity.value if group.severity else "none",
            options={**_SEVERITY_OPTIONS, "none": "Clean"},
        ),
    ),
)

_MAILBOXES_TABLE: Final = TableSpec[Row](
    id="mailboxes",
    caption="Worst first. The figures are those of the service.",
    columns=(
        Column(head="Mailbox", cell=_mailbox_cell),
        Column(head="Score", cell=lambda row: _score_cell(row.score), sort_value=lambda row: row.score, figure=True),
        Column(head="Worst", cell=lambda row: _severity_cell(row.severity), sort_value=lambda row: _severity_rank(row.severity)),
        Column(head="Rules", cell=_rules_cell, rules=True),
        Column(head="Sent today", cell=_sent_today_cell, sort_value=lambda row: row.sent_today, figure=True),
        Column(
            head="Sent, 30 days",
            cell=lambda row: format_figure(row.sent_30days),
            sort_value=lambda row: row.sent_30days,
            figure=True,
        ),
        Column(
            head="Bounced",
            cell=lambda row: _format_percentage(_bounce_percentage(row)),
            sort_value=_bounce_percentage,
            figure=True,
        ),
        Column(
            head="Blacklists", cell=lambda row: format_figure(row.blacklists), sort_value=lambda row: row.blacklists, figure=True
        ),
        Column(
            head="Opened",
            cell=lambda row: _format_percentage(row.opened_14days),
            sort_value=lambda row: row.opened_14days,
            figure=True,
            minor=True,
        ),
    ),
    filters=(
        Filter(name="severity", label="Worst finding", value=lambda row: row.severity.value, options=_SEVERITY_OPTIONS),
        Filter(name="workspace", label="Workspace", value=lambda row: row.workspace),
        Filter(name="type", label="Provider", value=lambda row: row.type),
    ),
    max_rows=1000,
)

_SUBJECT_COLUMN: Final = Column(head="Mailbox", cell=_subject_cell)
_SEVERITY_COLUMN: Final = Column[Finding](
    head="Severity", cell=lambda found: render_badge(found.severity), sort_value=lambda found: found.severity.rank
)
_MESSAGE_COLUMN: Final = Column(head="Finding", cell=_message_cell, what=True)
_DOMAIN_COLUMN: Final = Column[Finding](head="Domain", cell=lambda found: render_name(found.domain) if found.domain else None)
_STATE_COLUMN: Final = Column[Finding](
    head="Change",
    cell=lambda found: (
        tag("span", _STATE_LABELS.get(found.state, found.state), class_=f"badge {found.state}") if found.state else None
    ),
)
_SEVERITY_FILTER: Final = Filter[Finding](
    name="severity", label="Severity", value=lambda found: found.severity.value, options=_SEVERITY_OPTIONS
)
_RULE_FILTER: Final = Filter[Finding](name="rule", label="Rule", value=lambda found: found.rule)
_WORKSPACE_FILTER: Final = Filter[Finding](name="workspace", label="Workspace", value=lambda found: found.workspace)
_STATE_FILTER: Final = Filter[Finding](name="state", label="Change", value=lambda found: found.state or "", options=_STATE_LABELS)

_FINDINGS_TABLE: Final = TableSpec[Finding](
    id="findings",
    caption="Worst first.",
    columns=(_SUBJECT_COLUMN, _SEVERITY_COLUMN, _MESSAGE_COLUMN, _DOMAIN_COLUMN),
    filters=(_SEVERITY_FILTER, _RULE_FILTER, _WORKSPACE_FILTER),
)
_COMPARED_FINDINGS_TABLE: Final = TableSpec[Finding](
    id="findings",
    caption="Worst first, with the change since the earlier audit.",
    columns=(_SUBJECT_COLUMN, _SEVERITY_COLUMN, _STATE_COLUMN, _MESSAGE_COLUMN, _DOMAIN_COLUMN),
    filters=(_SEVERITY_FILTER, _STATE_FILTER, _RULE_FILTER, _WORKSPACE_FILTER),
)


_MAX_BARS: Final = 8
_BAND_TONES: Final = ("critical", "critical", "critical", "warning", "warning", "good")
"""Tone of each of `SCORE_BANDS`, consistent with `score_tone`."""


def render_html(report: Report) -> str:
    """Render a report as one self-contained HTML page that makes no requests.

    The page is readable without JavaScript, which adds sorting, filters and paging. It lists at most 2,000 findings and 1,000
    mailboxes.
    """
    style, script = _read_data("page.css"), _read_data("page.js")
    return Template(_read_data("page.html")).substitute(
        title=f"Mailbox audit, {format_time(report.at)}",
        style=style,
        style_hash=_csp_hash(style),
        script=script,
        script_hash=_csp_hash(script),
        body=_render_body(report),
    )


def _render_body(report: Report) -> Markup:
    view, fares = build_overview(report), build_health(report)
    return join_markup(
        (
            _render_header(report),
            tag(
                "main",
                render_verdict(view, fares, report.scores.overall),
                render_unread(view),
                render_actions(view.actions),
                render_changes(view.changes) if view.changes else None,
                _render_charts(report, view, fares),
                render_groups(report),
                render_mailboxes(report),
                render_findings(report),
                _render_method(report, view),
                id="main",
            ),
        )
    )


def _render_header(report: Report) -> Markup:
    told = tag("p", f"{format_time(report.at)} · {format_size(report)}", class_="small soft")
    button = tag("button", type="button", class_="theme", hidden=True)
    return tag("header", tag("div", tag("h1", "Mailbox audit"), told), button)


def _render_charts(report: Report, view: Overview, fares: MailboxHealth) -> Markup | None:
    if not report.mailboxes:
        return None
    drawn = (_render_worst_domains(build_domain_views(report)), _render_score_bands(fares), _render_rule_counts(view.actions))
    return render_section("charts", "At a glance", tag("div", *drawn, class_="charts"))


def _render_worst_domains(views: list[DomainView]) -> Markup | None:
    scored = [view for view in views if view.score is not None][:_MAX_BARS]
    lines = [Bar(view.name, {score_tone(view.score): view.score or 0.0}, view.points) for view in scored]
    return (
        render_bars("Worst domains", "Score from 0 to 100; at most 40 with a critical finding", lines, full=100)
        if lines
        else None
    )


def _render_score_bands(fares: MailboxHealth) -> Markup:
    labels = (f"{low}" if low == high else f"{low}-{high}" for low, high in SCORE_BANDS)
    counts = list(zip(labels, fares.bands, _BAND_TONES, strict=True))
    return render_columns("Mailboxes by score", "Number of mailboxes in each score range; 100 means no deductions", counts)


def _render_rule_counts(actions: list[Action]) -> Markup | None:
    lines = [
        Bar(action.title, {action.severity.value: action.findings}, f"{action.findings:,}") for action in actions[:_MAX_BARS]
    ]
    if not lines:
        return None
    legend = render_legend((severity.value, SEVERITY_LABELS[severity]) for severity in Severity)
    return render_bars(
        "Findings by rule", "Number of findings of each rule, coloured by the worst severity", lines, legend=legend
    )


def _render_method(report: Report, view: Overview) -> Markup:
    used = report.policy
    moved = (f"{rule} {threshold} = {value:g}" for rule, moved in used.thresholds.items() for threshold, value in moved.items())
    facts = (
        ("Policy", f"{used.name} {used.fingerprint}".strip()),
        ("Rules turned off", ", ".join(used.off)),
        ("Thresholds changed", ", ".join(moved)),
        (
            "Scores",
            "100 minus 40 for each critical finding, 20 for an error, 8 for a warning; groups: mean, weighted by e-mails sent",
        ),
    )
    told = (join_markup((tag("dt", term), tag("dd", render_name(text)))) for term, text in facts if text)
    unknown = (tag("li", line) for line in view.unknowable)
    return render_section(
        "judging",
        "What this audit cannot check, and how it scores",
        tag("div", tag("ul", *unknown), tag("dl", *told, class_="facts"), class_="card judging"),
    )


def _read_data(name_: str) -> str:
    return (files("outreach_async.audit.reports") / "data" / name_).read_text(encoding="utf-8")


def _csp_hash(text: str) -> str:
    """Return the hash that allows an inline style or script in the content security policy; everything else is blocked."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
