"""Tables of the page: groups, mailboxes and findings."""

from __future__ import annotations

from typing import Final

from outreach_async.audit.findings import Finding, Severity
from outreach_async.audit.groups import Group, Row
from outreach_async.audit.outputs.actions import who, worst_first
from outreach_async.audit.outputs.overview import tone_of
from outreach_async.audit.outputs.page.markup import Content, Markup, joined, name, tag
from outreach_async.audit.outputs.page.sections import SEVERITIES, badge, section
from outreach_async.audit.outputs.page.tables import Column, Pick, View, table
from outreach_async.audit.outputs.words import figure
from outreach_async.audit.report import Report
from outreach_async.audit.rules import CATALOGUE

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
