"""Sections of the page above its tables: verdict, reading errors, actions and changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from outreach_async.audit.findings import Severity
from outreach_async.audit.outputs.actions import Action
from outreach_async.audit.outputs.changes import Changes, Move
from outreach_async.audit.outputs.health import Health
from outreach_async.audit.outputs.overview import Overview, tone_of
from outreach_async.audit.outputs.page.charts import gauge
from outreach_async.audit.outputs.page.markup import Markup, joined, name, tag
from outreach_async.audit.outputs.words import counted, figure

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
