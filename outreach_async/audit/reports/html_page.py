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
    Markup,
    Pick,
    View,
    bars,
    columns,
    gauge,
    joined,
    key,
    name,
    table,
    tag,
)
from outreach_async.audit.reports.summary import BANDS, Action, Changes, Health, Move, health, who, worst_first
from outreach_async.audit.reports.view import DomainView, Overview, audited, domain_views, overview, tone_of
from outreach_async.audit.reports.wording import counted, figure, moment
from outreach_async.audit.rules import CATALOGUE

_PLACES: Final = 6
_MOVES: Final = 12
_FEW: Final = 8

_TILES: Final = {
    Severity.CRITICAL: "to stop now",
    Severity.ERROR: "to fix",
    Severity.WARNING: "to review",
    Severity.INFO: "with notes only",
}
SEVERITIES: Final = {Severity.CRITICAL: "Critical", Severity.ERROR: "Error", Severity.WARNING: "Warning", Severity.INFO: "Note"}
"""Display names of the severities."""


def badge(severity: Severity) -> Markup:
    """Render a severity as a badge."""
    return tag("span", SEVERITIES[severity], class_=f"badge {severity.value}")


def section(id_: str, title: str, *content: Markup | None, lead: str | None = None) -> Markup:
    """Render a section with its heading."""
    heading = tag("h2", title, id=f"{id_}-title")
    return tag("section", heading, tag("p", lead, class_="lead") if lead else None, *content, aria_labelledby=f"{id_}-title")


def verdict(view: Overview, health: Health, score: float | None) -> Markup:
    """Render the verdict at the top of the page."""
    tiles = [_tile(health.boxes[severity], label, severity.value) for severity, label in _TILES.items()]
    words = (
        tag("h2", view.verdict, id="verdict-title"),
        tag("p", health.said, class_="soft") if health.said else None,
        tag("p", view.changes.summary, " ", tag("a", "What changed", href="#changes-title")) if view.changes else None,
        tag(
            "ul",
            *tiles,
            _tile(health.clean, "without findings", "good"),
            class_="tiles",
            aria_label="Mailboxes by worst finding",
        ),
    )
    return tag(
        "section",
        tag("div", gauge(score, tone_of(score)), tag("div", *words, class_="words"), class_=f"card verdict {view.tone}"),
        aria_labelledby="verdict-title",
    )


def unread(view: Overview) -> Markup | None:
    """Render the reading errors."""
    if not view.unread:
        return None
    more = f"and {', '.join(view.unread_names)}" if view.unread_names else None
    lines = tag("ul", *(tag("li", name(line)) for line in view.unread), tag("li", name(more)) if more else None)
    return section("unread", "Not read and not checked", tag("div", lines, class_="card alert"))


def to_do(actions: Sequence[Action]) -> Markup | None:
    """Render the actions, the most urgent first; if some are urgent, the others are collapsed."""
    if not actions:
        return None
    urgent = [action for action in actions if action.severity.reaches(Severity.ERROR)]
    later = actions[len(urgent) :]
    if not urgent:
        return section("actions", "What to do, most urgent first", _listed(later))
    fold = tag("summary", f"{counted(len(later), 'warning or note', 'warnings and notes')}, less urgent")
    rest = tag("details", fold, _listed(later, start=len(urgent)), class_="later") if later else None
    return section("actions", "What to do, most urgent first", _listed(urgent), rest)


def _listed(actions: Iterable[Action], *, start: int = 0) -> Markup:
    return tag("ol", *(_action(number, action) for number, action in enumerate(actions, start + 1)), class_="actions")


def changed(view: Changes) -> Markup:
    """Render the changes since an earlier audit."""
    lists = (_found("New", "new", view.new), _found("Resolved", "resolved", view.resolved), _moved(view.moves))
    return section("changes", "What changed", tag("div", *lists, class_="split"), lead=view.summary)


def _tile(count: int, label: str, kind: str) -> Markup:
    return tag("li", tag("b", figure(count)), label, class_=kind if count else "none")


def _action(number: int, action: Action) -> Markup:
    title = tag("div", tag("span", f"{number}", class_="number"), badge(action.severity), tag("h3", action.title), class_="title")
    body = (
        title,
        tag("p", name(action.remedy), class_="remedy"),
        tag("p", action.extent, ". ", _seen(action), class_="small soft"),
        _places(action),
        _why(action),
    )
    return tag("li", tag("div", *body, class_="body"), class_="card", id=action.rule)


def _seen(action: Action) -> Markup:
    first = action.examples[0]
    return joined(("For example " if action.findings > 1 else "", name(first), "."))


def _places(action: Action) -> Markup | None:
    if len(action.places) == 1:
        return None
    shown = [
        tag("li", name(place), " ", tag("b", f"{count:,}") if count > 1 else None) for place, count in action.places[:_PLACES]
    ]
    more = len(action.places) - _PLACES
    return tag("ul", *shown, tag("li", f"and {more:,} more") if more > 0 else None, class_="chips", aria_label="Where")


def _why(action: Action) -> Markup:
    facts = (("Rule", action.rule), ("Applies when", action.condition), ("Source", action.source))
    told = [joined((tag("dt", term), tag("dd", text))) for term, text in facts if text]
    return tag("details", tag("summary", "Rule and source"), tag("dl", *told))


def _found(title: str, kind: str, found: Sequence[Action]) -> Markup:
    lines = [tag("li", badge(each.severity), " ", tag("b", each.title), ": ", name(each.extent)) for each in found[:_FEW]]
    more = _more(len(found) - _FEW, "more rule")
    nothing = tag("li", f"Nothing {title.lower()}.", class_="soft") if not found else None
    heading = tag("h3", title, " ", tag("span", f"{sum(each.findings for each in found):,}", class_=f"badge {kind}"))
    return tag("div", heading, tag("ul", *lines, more, nothing, class_="plain"), class_="card")


def _moved(moves: Sequence[Move]) -> Markup | None:
    if not moves:
        return None
    more = _more(len(moves) - _MOVES, "more figure")
    return tag("div", tag("h3", "Changed figures"), tag("ul", *_lines(moves[:_MOVES]), more, class_="plain"), class_="card")


def _lines(moves: Iterable[Move]) -> Iterable[Markup]:
    for move in moves:
        arrow = {True: "up", False: "down", None: None}[move.better]
        judged = {True: " (better)", False: " (worse)", None: ""}[move.better]
        yield tag("li", name(move.name), f": {move.figure} ", tag("b", f"{move.before} → {move.after}{judged}", class_=arrow))


def _more(count: int, noun: str) -> Markup | None:
    return tag("li", f"and {counted(count, noun)}", class_="soft") if count > 0 else None


_KINDS: Final = {"workspace": "Workspace", "domain": "Domain", "type": "Provider", "server_ip": "Server"}
_STATES: Final = {"new": "New", "unchanged": "Unchanged"}
_SEVERITY_OPTIONS: Final = {severity.value: label for severity, label in SEVERITIES.items()}
_ORDER: Final = ("domain", "workspace", "type", "server_ip")


def groups(report: Report) -> Markup | None:
    """Render the table of domains, workspaces, providers and servers."""
    rows = [group for kind in _ORDER for group in report.groups if group.kind == kind]
    if not rows:
        return None
    return section("groups", "Domains, workspaces, providers and servers", table(_GROUPS, rows))


def mailboxes(report: Report) -> Markup | None:
    """Render the table of mailboxes with findings."""
    return section("mailboxes", "Mailboxes with findings", table(_MAILBOXES, report.rows)) if report.rows else None


def findings(report: Report) -> Markup | None:
    """Render the table of findings."""
    if not report.findings:
        return None
    view = _FINDINGS if report.diff is None else _COMPARED
    return section("findings", "All findings", table(view, sorted(report.findings, key=worst_first)))


def _graded(severity: Severity | None) -> Content:
    return badge(severity) if severity else tag("span", "Clean", class_="badge good")


def _rank(severity: Severity | None) -> float:
    return len(Severity) if severity is None else severity.rank


def _scored(score: float) -> Markup:
    return tag("b", f"{score:g}", class_=f"score {tone_of(score)}")


def _share(row: Row) -> float | None:
    return 100 * row.bounced_30days / row.sent_30days if row.sent_30days else None


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1f} %"


def _today(row: Row) -> str:
    return f"{figure(row.sent_today)} of {figure(row.daily_limit)}"


def _box(row: Row) -> Markup:
    return joined((name(row.email or row.id), tag("span", name(row.workspace), class_="under")))


def _rules(row: Row) -> Markup:
    return tag("span", *(joined((_rule(rule), " ")) for rule in row.rules))


def _rule(rule: str) -> Markup:
    """Render a rule's id as a link to its recommended action."""
    return tag("a", rule, href=f"#{rule}", class_="rule")


def _subject(finding: Finding) -> Markup:
    return joined((name(who(finding)), tag("span", name(finding.workspace), class_="under")))


def _said(finding: Finding) -> Markup:
    rule = CATALOGUE.get(finding.rule)
    unsure = " (sample too small to be certain)" if finding.confidence == "low" else ""
    return joined(
        (
            tag("b", rule.title if rule else finding.rule),
            tag("span", name(f"{finding.message}{unsure}"), " ", _rule(finding.rule), class_="under"),
        )
    )


def _counted(head: str, severity: Severity) -> Column[Group]:
    def count(group: Group) -> float:
        return group.counts.get(severity, 0)

    return Column(head=head, cell=lambda group: figure(count(group)), order=count, figure=True, minor=True)


_GROUPS: Final = View[Group](
    id="groups",
    caption="Worst first within each kind.",
    columns=(
        Column(head="Name", cell=lambda group: name(group.key)),
        Column(head="Kind", cell=lambda group: _KINDS[group.kind]),
        Column(head="Score", cell=lambda group: _scored(group.score), order=lambda group: group.score, figure=True),
        Column(head="Worst", cell=lambda group: _graded(group.severity), order=lambda group: _rank(group.severity)),
        Column(head="Mailboxes", cell=lambda group: f"{group.mailboxes:,}", order=lambda group: group.mailboxes, figure=True),
        _counted("Critical", Severity.CRITICAL),
        _counted("Errors", Severity.ERROR),
        _counted("Warnings", Severity.WARNING),
        Column(
            head="Sent, 30 days", cell=lambda group: figure(group.sent_30days), order=lambda group: group.sent_30days, figure=True
        ),
        Column(
            head="Daily limit",
            cell=lambda group: figure(group.daily_limit),
            order=lambda group: group.daily_limit,
            figure=True,
            minor=True,
        ),
    ),
    picks=(
        Pick(name="kind", label="Kind", value=lambda group: group.kind, options=_KINDS),
        Pick(
            name="severity",
            label="Worst finding",
            value=lambda group: group.severity.value if group.severity else "none",
            options={**_SEVERITY_OPTIONS, "none": "Clean"},
        ),
    ),
)

_MAILBOXES: Final = View[Row](
    id="mailboxes",
    caption="Worst first. The figures are those of the service.",
    columns=(
        Column(head="Mailbox", cell=_box),
        Column(head="Score", cell=lambda row: _scored(row.score), order=lambda row: row.score, figure=True),
        Column(head="Worst", cell=lambda row: _graded(row.severity), order=lambda row: _rank(row.severity)),
        Column(head="Rules", cell=_rules, rules=True),
        Column(head="Sent today", cell=_today, order=lambda row: row.sent_today, figure=True),
        Column(head="Sent, 30 days", cell=lambda row: figure(row.sent_30days), order=lambda row: row.sent_30days, figure=True),
        Column(head="Bounced", cell=lambda row: _percent(_share(row)), order=_share, figure=True),
        Column(head="Blacklists", cell=lambda row: figure(row.blacklists), order=lambda row: row.blacklists, figure=True),
        Column(
            head="Opened",
            cell=lambda row: _percent(row.opened_14days),
            order=lambda row: row.opened_14days,
            figure=True,
            minor=True,
        ),
    ),
    picks=(
        Pick(name="severity", label="Worst finding", value=lambda row: row.severity.value, options=_SEVERITY_OPTIONS),
        Pick(name="workspace", label="Workspace", value=lambda row: row.workspace),
        Pick(name="type", label="Provider", value=lambda row: row.type),
    ),
    most=1000,
)

_SUBJECT: Final = Column(head="Mailbox", cell=_subject)
_GRADE: Final = Column[Finding](
    head="Severity", cell=lambda found: badge(found.severity), order=lambda found: found.severity.rank
)
_SAID: Final = Column(head="Finding", cell=_said, what=True)
_DOMAIN: Final = Column[Finding](head="Domain", cell=lambda found: name(found.domain) if found.domain else None)
_STATE: Final = Column[Finding](
    head="Change",
    cell=lambda found: tag("span", _STATES.get(found.state, found.state), class_=f"badge {found.state}") if found.state else None,
)
_BY_SEVERITY: Final = Pick[Finding](
    name="severity", label="Severity", value=lambda found: found.severity.value, options=_SEVERITY_OPTIONS
)
_BY_RULE: Final = Pick[Finding](name="rule", label="Rule", value=lambda found: found.rule)
_BY_WORKSPACE: Final = Pick[Finding](name="workspace", label="Workspace", value=lambda found: found.workspace)
_BY_STATE: Final = Pick[Finding](name="state", label="Change", value=lambda found: found.state or "", options=_STATES)

_FINDINGS: Final = View[Finding](
    id="findings",
    caption="Worst first.",
    columns=(_SUBJECT, _GRADE, _SAID, _DOMAIN),
    picks=(_BY_SEVERITY, _BY_RULE, _BY_WORKSPACE),
)
_COMPARED: Final = View[Finding](
    id="findings",
    caption="Worst first, with the change since the earlier audit.",
    columns=(_SUBJECT, _GRADE, _STATE, _SAID, _DOMAIN),
    picks=(_BY_SEVERITY, _BY_STATE, _BY_RULE, _BY_WORKSPACE),
)


_WORST: Final = 8
_TONES: Final = ("critical", "critical", "critical", "warning", "warning", "good")
"""Tone of each of `BANDS`, consistent with `tone_of`."""


def report_html(report: Report) -> str:
    """Render a report as one self-contained HTML page that makes no requests.

    The page is readable without JavaScript, which adds sorting, filters and paging. It lists at most 2,000 findings and 1,000
    mailboxes.
    """
    style, script = _data("page.css"), _data("page.js")
    return Template(_data("page.html")).substitute(
        title=f"Mailbox audit, {moment(report.at)}",
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        body=_body(report),
    )


def _body(report: Report) -> Markup:
    view, fares = overview(report), health(report)
    return joined(
        (
            _header(report),
            tag(
                "main",
                verdict(view, fares, report.scores.overall),
                unread(view),
                to_do(view.actions),
                changed(view.changes) if view.changes else None,
                _charts(report, view, fares),
                groups(report),
                mailboxes(report),
                findings(report),
                _judging(report, view),
                id="main",
            ),
        )
    )


def _header(report: Report) -> Markup:
    told = tag("p", f"{moment(report.at)} · {audited(report)}", class_="small soft")
    button = tag("button", type="button", class_="theme", hidden=True)
    return tag("header", tag("div", tag("h1", "Mailbox audit"), told), button)


def _charts(report: Report, view: Overview, fares: Health) -> Markup | None:
    if not report.mailboxes:
        return None
    drawn = (_worst_domains(domain_views(report)), _spread(fares), _kinds(view.actions))
    return section("charts", "At a glance", tag("div", *drawn, class_="charts"))


def _worst_domains(views: list[DomainView]) -> Markup | None:
    scored = [view for view in views if view.score is not None][:_WORST]
    lines = [Bar(view.name, {tone_of(view.score): view.score or 0.0}, view.points) for view in scored]
    return bars("Worst domains", "Score from 0 to 100; at most 40 with a critical finding", lines, full=100) if lines else None


def _spread(fares: Health) -> Markup:
    labels = (f"{low}" if low == high else f"{low}-{high}" for low, high in BANDS)
    counts = list(zip(labels, fares.bands, _TONES, strict=True))
    return columns("Mailboxes by score", "Number of mailboxes in each score range; 100 means no deductions", counts)


def _kinds(actions: list[Action]) -> Markup | None:
    lines = [Bar(action.title, {action.severity.value: action.findings}, f"{action.findings:,}") for action in actions[:_WORST]]
    if not lines:
        return None
    legend = key((severity.value, SEVERITIES[severity]) for severity in Severity)
    return bars("Findings by rule", "Number of findings of each rule, coloured by the worst severity", lines, legend=legend)


def _judging(report: Report, view: Overview) -> Markup:
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
    told = (joined((tag("dt", term), tag("dd", name(text)))) for term, text in facts if text)
    unknown = (tag("li", line) for line in view.unknowable)
    return section(
        "judging",
        "What this audit cannot check, and how it scores",
        tag("div", tag("ul", *unknown), tag("dl", *told, class_="facts"), class_="card judging"),
    )


def _data(name_: str) -> str:
    return (files("outreach_async.audit.reports") / "data" / name_).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the hash that allows an inline style or script in the content security policy; everything else is blocked."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
