"""Render a report as one self-contained HTML page. Style, script and charts are inline, and the page makes no requests."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from operator import attrgetter
from string import Template
from typing import Any, Final

from outreach_async.audit.findings import Finding, Group, Row, Severity
from outreach_async.audit.report import Report
from outreach_async.audit.reports import html_parts as parts
from outreach_async.audit.reports import summary as summaries
from outreach_async.audit.reports.html_parts import Bar, Column, Content, Filter, Markup, TableSpec, join_markup, render_name, tag
from outreach_async.audit.reports.view import Overview, build_domain_views, build_overview, format_size, score_tone
from outreach_async.audit.reports.wording import format_count, format_figure, format_time
from outreach_async.audit.rules import rule_title

_MAX_GROUPS: Final = 6
_MAX_FIGURE_CHANGES: Final = 12
_MAX_CHANGED_ACTIONS: Final = 8
_MAX_BARS: Final = 8

_TILE_LABELS: Final = dict(zip(Severity, ("to stop now", "to fix", "to review", "with notes only"), strict=True))
_SEVERITY_LABELS: Final = {"critical": "Critical", "error": "Error", "warning": "Warning", "info": "Note"}
_KIND_LABELS: Final = {"workspace": "Workspace", "domain": "Domain", "type": "Provider", "server_ip": "Server"}
_STATE_LABELS: Final = {"new": "New", "unchanged": "Unchanged"}
_BAND_TONES: Final = ("critical", "critical", "critical", "warning", "warning", "good")
"""Tone (CSS class of the colour) of each range in `SCORE_BANDS`, consistent with `score_tone`."""


def render_html(report: Report) -> str:
    """Render a report as one self-contained HTML page that makes no requests.

    The page is readable without JavaScript. JavaScript adds sorting, filters and paging. The page lists at most 2,000 findings
    and 1,000 mailboxes.
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


def _read_data(name_: str) -> str:
    return (files("outreach_async.audit.reports") / "data" / name_).read_text(encoding="utf-8")


def _csp_hash(text: str) -> str:
    """Return the hash that allows an inline style or script in the page's content security policy."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _render_body(report: Report) -> Markup:
    view, health = build_overview(report), summaries.build_health(report)
    size = tag("p", f"{format_time(report.at)} · {format_size(report)}", class_="small soft")
    theme = tag("button", type="button", class_="theme", hidden=True)
    sections = (
        _render_verdict(view, health, report.scores.overall),
        _render_unread(view),
        _render_actions(view.actions),
        _render_changes(view.changes) if view.changes else None,
        _render_charts(report, view, health) if report.mailboxes else None,
        *_render_tables(report),
        _render_method(report, view),
    )
    return join_markup((tag("header", tag("div", tag("h1", "Mailbox audit"), size), theme), tag("main", *sections, id="main")))


def _render_section(id_: str, title: str, *content: Markup | None) -> Markup:
    return tag("section", tag("h2", title, id=f"{id_}-title"), *content, aria_labelledby=f"{id_}-title")


def _render_verdict(view: Overview, health: summaries.MailboxHealth, score: float | None) -> Markup:
    tiles = [(health.boxes[severity], label, severity.value) for severity, label in _TILE_LABELS.items()]
    tiles.append((health.clean, "without findings", "good"))
    items = [tag("li", tag("b", format_figure(n)), label, class_=kind if n else "none") for n, label, kind in tiles]
    words = (
        tag("h2", view.verdict, id="verdict-title"),
        tag("p", f"Findings: {view.counts_line}."),
        tag("p", health.summary, class_="soft") if health.summary else None,
        tag("p", view.changes.summary, " ", tag("a", "What changed", href="#changes-title")) if view.changes else None,
        tag("ul", *items, class_="tiles", aria_label="Mailboxes by worst finding"),
    )
    gauge = parts.render_gauge(score, view.tone)
    card = tag("div", gauge, tag("div", *words, class_="words"), class_=f"card verdict {view.tone}")
    return tag("section", card, aria_labelledby="verdict-title")


def _render_unread(view: Overview) -> Markup | None:
    if not view.unread:
        return None
    lines = tag("ul", *(tag("li", render_name(line)) for line in view.unread_lines))
    return _render_section("unread", "Not read and not checked", tag("div", lines, class_="card alert"))


def _render_actions(actions: Sequence[summaries.Action]) -> Markup | None:
    """Render the actions, the most urgent first. If some have the severity `error` or worse, the milder actions are collapsed."""
    if not actions:
        return None
    items = [_render_action(number, action) for number, action in enumerate(actions, 1)]
    urgent = sum(action.severity.reaches(Severity.ERROR) for action in actions)
    shown, later = (items[:urgent], items[urgent:]) if urgent else (items, [])
    summary = tag("summary", f"{format_count(len(later), 'warning or note', 'warnings and notes')}, less urgent")
    rest = tag("details", summary, tag("ol", *later, class_="actions"), class_="later") if later else None
    return _render_section("actions", "What to do, most urgent first", tag("ol", *shown, class_="actions"), rest)


def _render_action(number: int, action: summaries.Action) -> Markup:
    heading = (tag("span", f"{number}", class_="number"), _render_badge(action.severity), tag("h3", action.title))
    example = join_markup(("For example " if action.findings > 1 else "", render_name(action.example), "."))
    facts = {"Rule": action.rule, "Applies when": action.condition, "Source": action.source}
    body = (
        tag("div", *heading, class_="title"),
        tag("p", render_name(action.remedy), class_="remedy"),
        tag("p", action.extent, ". ", example, class_="small soft"),
        _render_action_groups(action) if len(action.groups) > 1 else None,
        tag("details", tag("summary", "Rule and source"), _render_facts(facts)),
    )
    return tag("li", tag("div", *body, class_="body"), class_="card", id=action.rule)


def _render_action_groups(action: summaries.Action) -> Markup:
    shown = [
        tag("li", render_name(group), " ", tag("b", f"{count:,}") if count > 1 else None)
        for group, count in action.groups[:_MAX_GROUPS]
    ]
    more = len(action.groups) - _MAX_GROUPS
    return tag("ul", *shown, tag("li", f"and {more:,} more") if more > 0 else None, class_="chips", aria_label="Where")


def _render_facts(facts: Mapping[str, Content], class_: str | None = None) -> Markup:
    return tag("dl", *(join_markup((tag("dt", term), tag("dd", fact))) for term, fact in facts.items() if fact), class_=class_)


def _render_badge(severity: Severity) -> Markup:
    return tag("span", _SEVERITY_LABELS[severity], class_=f"badge {severity.value}")


def _render_changes(view: summaries.Changes) -> Markup:
    lists = (
        _render_changed_actions("New", "new", view.new),
        _render_changed_actions("Resolved", "resolved", view.resolved),
        _render_figure_changes(view.figure_changes) if view.figure_changes else None,
    )
    return _render_section("changes", "What changed", tag("p", view.summary, class_="lead"), tag("div", *lists, class_="split"))


def _render_changed_actions(title: str, kind: str, actions: Sequence[summaries.Action]) -> Markup:
    lines = [
        tag("li", _render_badge(action.severity), " ", tag("b", action.title), ": ", render_name(action.extent))
        for action in actions[:_MAX_CHANGED_ACTIONS]
    ]
    more = _render_more(len(actions) - _MAX_CHANGED_ACTIONS, "more rule")
    nothing = None if actions else tag("li", f"Nothing {title.lower()}.", class_="soft")
    heading = tag("h3", title, " ", tag("span", f"{sum(action.findings for action in actions):,}", class_=f"badge {kind}"))
    return tag("div", heading, tag("ul", *lines, more, nothing, class_="plain"), class_="card")


def _render_figure_changes(changes: Sequence[summaries.FigureChange]) -> Markup:
    items: list[Markup | None] = []
    for change in changes[:_MAX_FIGURE_CHANGES]:
        class_, note = {True: ("up", " (better)"), False: ("down", " (worse)"), None: (None, "")}[change.better]
        values = tag("b", f"{change.before} → {change.after}{note}", class_=class_)
        items.append(tag("li", render_name(change.name), f": {change.figure} ", values))
    items.append(_render_more(len(changes) - _MAX_FIGURE_CHANGES, "more figure"))
    return tag("div", tag("h3", "Changed figures"), tag("ul", *items, class_="plain"), class_="card")


def _render_more(count: int, noun: str) -> Markup | None:
    return tag("li", f"and {format_count(count, noun)}", class_="soft") if count > 0 else None


def _render_charts(report: Report, view: Overview, health: summaries.MailboxHealth) -> Markup:
    scored = [domain for domain in build_domain_views(report) if domain.score is not None][:_MAX_BARS]
    domains = [Bar(domain.name, domain.score or 0.0, domain.points, score_tone(domain.score)) for domain in scored]
    labels = (f"{low}" if low == high else f"{low}-{high}" for low, high in summaries.SCORE_BANDS)
    bands = list(zip(labels, health.bands, _BAND_TONES, strict=True))
    actions = view.actions[:_MAX_BARS]
    rules = [Bar(action.title, action.findings, f"{action.findings:,}", action.severity.value) for action in actions]
    domain_note = "Score from 0 to 100; at most 40 with a critical finding"
    rule_note = "Number of findings of each rule, coloured by the worst severity"
    charts = (
        parts.render_bars("Worst domains", domain_note, domains, full=100) if domains else None,
        parts.render_columns("Mailboxes by score", "Number of mailboxes in each score range; 100 means no deductions", bands),
        parts.render_bars("Findings by rule", rule_note, rules, legend=_SEVERITY_LABELS) if rules else None,
    )
    return _render_section("charts", "At a glance", tag("div", *charts, class_="charts"))


def _render_method(report: Report, view: Overview) -> Markup:
    used = report.policy
    changed = (f"{rule} {name} = {value:g}" for rule, figures in used.thresholds.items() for name, value in figures.items())
    facts = {
        "Policy": f"{used.name} {used.fingerprint}".strip(),
        "Rules turned off": ", ".join(used.off),
        "Thresholds changed": ", ".join(changed),
        "Scores": "100 minus 40 for each critical finding, 20 for an error, 8 for a warning; groups: mean, weighted by e-mails "
        "sent; the total and a domain: at most 40 with a critical finding",
    }
    unknown = tag("ul", *(tag("li", line) for line in view.unknowable))
    method = _render_facts({term: render_name(fact) for term, fact in facts.items() if fact}, class_="facts")
    title = "What this audit cannot check, and how it scores"
    return _render_section("judging", title, tag("div", unknown, method, class_="card judging"))


def _render_tables(report: Report) -> Iterator[Markup]:
    """Render the tables that have rows: groups, mailboxes with findings, and findings."""
    groups = [group for kind in ("domain", "workspace", "type", "server_ip") for group in report.groups if group.kind == kind]
    findings = sorted(report.findings, key=summaries.worst_first_key)
    tables: tuple[tuple[str, TableSpec[Any], Sequence[Any]], ...] = (
        ("Domains, workspaces, providers and servers", _GROUPS_TABLE, groups),
        ("Mailboxes with findings", _MAILBOXES_TABLE, report.rows),
        ("All findings", _FINDINGS_TABLE if report.diff is None else _COMPARED_FINDINGS_TABLE, findings),
    )
    for title, table, rows in tables:
        if rows:
            yield _render_section(table.id, title, parts.render_table(table, rows))


def _figure_column(
    head: str, get: Callable[[Any], Any], form: Callable[[Any], str] = format_figure, *, minor: bool = False
) -> Column[Any]:
    return Column(head=head, cell=lambda row: form(get(row)), sort_value=get, classes="figure minor" if minor else "figure")


def _format_percentage(share: float | None) -> str:
    return "-" if share is None else f"{share:.1f} %"


def _bounce_percentage(row: Row) -> float | None:
    return 100 * row.bounced_30days / row.sent_30days if row.sent_30days else None


def _name_cell(name: str, workspace: str) -> Markup:
    return join_markup((render_name(name), tag("span", render_name(workspace), class_="under")))


def _render_rule_link(rule: str) -> Markup:
    """Render a rule's id as a link to its recommended action."""
    return tag("a", rule, href=f"#{rule}", class_="rule")


def _message_cell(finding: Finding) -> Markup:
    unsure = " (sample too small to be certain)" if finding.confidence == "low" else ""
    message = (render_name(f"{finding.message}{unsure}"), " ", _render_rule_link(finding.rule))
    return join_markup((tag("b", rule_title(finding.rule)), tag("span", *message, class_="under")))


def _state_cell(finding: Finding) -> Markup | None:
    state = finding.state
    return tag("span", _STATE_LABELS.get(state, state), class_=f"badge {state}") if state else None


_SCORE_COLUMN: Final = Column[Any](
    head="Score",
    cell=lambda row: tag("b", f"{row.score:g}", class_=f"score {score_tone(row.score)}"),
    sort_value=attrgetter("score"),
    classes="figure",
)
_WORST_COLUMN: Final = Column[Any](
    head="Worst",
    cell=lambda row: _render_badge(row.severity) if row.severity else tag("span", "Clean", class_="badge good"),
    sort_value=lambda row: row.severity.rank if row.severity else len(Severity),
)
_WORKSPACE_FILTER: Final = Filter[Any](name="workspace", label="Workspace", value=attrgetter("workspace"))

_GROUPS_TABLE: Final = TableSpec[Group](
    id="groups",
    caption="Worst first within each kind.",
    columns=(
        Column(head="Name", cell=lambda group: render_name(group.key)),
        Column(head="Kind", cell=lambda group: _KIND_LABELS[group.kind]),
        _SCORE_COLUMN,
        _WORST_COLUMN,
        _figure_column("Mailboxes", attrgetter("mailboxes")),
        _figure_column("Critical", lambda group: group.counts.get(Severity.CRITICAL, 0), minor=True),
        _figure_column("Errors", lambda group: group.counts.get(Severity.ERROR, 0), minor=True),
        _figure_column("Warnings", lambda group: group.counts.get(Severity.WARNING, 0), minor=True),
        _figure_column("Sent, 30 days", attrgetter("sent_30days")),
        _figure_column("Daily limit", attrgetter("daily_limit"), minor=True),
    ),
    filters=(
        Filter(name="kind", label="Kind", value=lambda group: group.kind, options=_KIND_LABELS),
        Filter(
            name="severity",
            label="Worst finding",
            value=lambda group: group.severity.value if group.severity else "none",
            options={**_SEVERITY_LABELS, "none": "Clean"},
        ),
    ),
)

_MAILBOXES_TABLE: Final = TableSpec[Row](
    id="mailboxes",
    caption="Worst first. The figures are those of the service.",
    columns=(
        Column(head="Mailbox", cell=lambda row: _name_cell(row.email or row.id, row.workspace)),
        _SCORE_COLUMN,
        _WORST_COLUMN,
        Column(
            head="Rules",
            cell=lambda row: tag("span", *(join_markup((_render_rule_link(rule), " ")) for rule in row.rules)),
            classes="rules",
        ),
        Column(
            head="Sent today",
            cell=lambda row: f"{format_figure(row.sent_today)} of {format_figure(row.daily_limit)}",
            sort_value=lambda row: row.sent_today,
            classes="figure",
        ),
        _figure_column("Sent, 30 days", attrgetter("sent_30days")),
        _figure_column("Bounced", _bounce_percentage, _format_percentage),
        _figure_column("Blacklists", attrgetter("blacklists")),
        _figure_column("Opened", attrgetter("opened_14days"), _format_percentage, minor=True),
    ),
    filters=(
        Filter(name="severity", label="Worst finding", value=lambda row: row.severity.value, options=_SEVERITY_LABELS),
        _WORKSPACE_FILTER,
        Filter(name="type", label="Provider", value=lambda row: row.type),
    ),
    max_rows=1000,
)


def _build_findings_table(
    caption: str, columns: Iterable[Column[Finding]], filters: Iterable[Filter[Finding]]
) -> TableSpec[Finding]:
    """Return the definition of the table of findings, with additional columns and filters."""
    severity = Column[Finding](
        head="Severity", cell=lambda finding: _render_badge(finding.severity), sort_value=lambda finding: finding.severity.rank
    )
    return TableSpec(
        id="findings",
        caption=caption,
        columns=(
            Column(head="Mailbox", cell=lambda finding: _name_cell(summaries.subject_name(finding), finding.workspace)),
            severity,
            *columns,
            Column(head="Finding", cell=_message_cell, classes="what"),
            Column(head="Domain", cell=lambda finding: render_name(finding.domain) if finding.domain else None),
        ),
        filters=(
            Filter(name="severity", label="Severity", value=lambda finding: finding.severity.value, options=_SEVERITY_LABELS),
            *filters,
            Filter(name="rule", label="Rule", value=lambda finding: finding.rule),
            _WORKSPACE_FILTER,
        ),
    )


_FINDINGS_TABLE: Final = _build_findings_table("Worst first.", (), ())
_COMPARED_FINDINGS_TABLE: Final = _build_findings_table(
    "Worst first, with the change since the earlier audit.",
    [Column(head="Change", cell=_state_cell)],
    [Filter(name="state", label="Change", value=lambda finding: finding.state or "", options=_STATE_LABELS)],
)
