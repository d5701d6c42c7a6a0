"""Renders the whole HTML page of a report."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from string import Template
from typing import Final

from outreach_async.audit.findings import Severity
from outreach_async.audit.outputs.actions import Action
from outreach_async.audit.outputs.health import BANDS, Health, health
from outreach_async.audit.outputs.overview import DomainView, Overview, audited, domain_views, overview, tone_of
from outreach_async.audit.outputs.page import listings, sections
from outreach_async.audit.outputs.page.charts import Bar, bars, columns, key
from outreach_async.audit.outputs.page.markup import Markup, joined, name, tag
from outreach_async.audit.outputs.words import moment
from outreach_async.audit.report import Report

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
                sections.verdict(view, fares, report.scores.overall),
                sections.unread(view),
                sections.to_do(view.actions),
                sections.changed(view.changes) if view.changes else None,
                _charts(report, view, fares),
                listings.groups(report),
                listings.mailboxes(report),
                listings.findings(report),
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
    return sections.section("charts", "At a glance", tag("div", *drawn, class_="charts"))


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
    legend = key((severity.value, sections.SEVERITIES[severity]) for severity in Severity)
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
    return sections.section(
        "judging",
        "What this audit cannot check, and how it scores",
        tag("div", tag("ul", *unknown), tag("dl", *told, class_="facts"), class_="card judging"),
    )


def _data(name_: str) -> str:
    return (files("outreach_async.audit.outputs.page") / "data" / name_).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the hash that allows an inline style or script in the content security policy; everything else is blocked."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
