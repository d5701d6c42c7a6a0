"""What changed since an earlier audit, arranged for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from outreach_async.audit.diff import Delta, Diff
from outreach_async.audit.findings import Severity
from outreach_async.audit.outputs.actions import Action, actions
from outreach_async.audit.outputs.words import figure, figure_name, moment, printable
from outreach_async.audit.report import Report
from outreach_async.models import Number

FEW: Final = 10
"""Moved figures that a text names."""

_SCORE: Final = "score"
_SEVERITY: Final = "severity"


@attrs.frozen(kw_only=True)
class Move:
    """A figure that moved.

    Attributes:
        name: What it is a figure of.
        figure: What it counts.
        before: What it was.
        after: What it is.
        better: Whether that is good news; `None` where it is neither.
    """

    name: str
    figure: str
    before: str
    after: str
    better: bool | None

    @property
    def said(self) -> str:
        """The move in a line."""
        return f"{self.name}: {self.figure} {self.before} -> {self.after}"


@attrs.frozen(kw_only=True)
class Changes:
    """What changed since an earlier audit.

    Attributes:
        since: When that was made.
        summary: How much changed, in a sentence.
        new: What was not found then, by rule, the most urgent first.
        resolved: What was found then and is no more.
        counts: How many findings are new, resolved and unchanged.
        moves: Figures that moved: the whole audit's first, then scores, the biggest loss first.
    """

    since: str
    summary: str
    new: list[Action]
    resolved: list[Action]
    counts: dict[str, int]
    moves: list[Move]


def changes(report: Report) -> Changes | None:
    """Arrange what changed; `None` if the report was compared with nothing."""
    diff = report.diff
    if diff is None:
        return None
    counts = {
        "new": len(diff.new),
        "resolved": len(diff.resolved),
        "unchanged": len(diff.unchanged),
    }
    since = moment(diff.at)
    return Changes(
        since=since,
        summary=_summary(diff, counts, since),
        new=actions(diff.new, report.policy),
        resolved=actions(diff.resolved, report.policy),
        counts=counts,
        moves=list(_moves((*diff.scores, *diff.deltas))),
    )


def _summary(diff: Diff, counts: dict[str, int], since: str) -> str:
    if diff.empty:
        return f"Nothing changed since {since}."
    told = [f"{counts['new']:,} new", f"{counts['resolved']:,} resolved", f"{counts['unchanged']:,} unchanged"]
    if diff.not_judged:
        told.append(f"{len(diff.not_judged):,} not judged this time")
    return f"Findings since {since}: {', '.join(told)}."


def _moves(deltas: Iterable[Delta]) -> Iterable[Move]:
    for delta in sorted(deltas, key=_importance):
        yield Move(
            name="Overall" if delta.kind == "audit" else printable(delta.name or delta.key),
            figure=figure_name(delta.figure),
            before=_shown(delta, delta.before),
            after=_shown(delta, delta.after),
            better=_better(delta),
        )


def _shown(delta: Delta, value: Number | None) -> str:
    """Write a figure; the audit numbers severities from 1, the mildest."""
    if delta.figure == _SEVERITY and value is not None and value in range(1, len(Severity) + 1):
        return list(Severity)[-int(value)].value
    return figure(value)


def _importance(delta: Delta) -> tuple[bool, bool, float, str]:
    return delta.kind != "audit", delta.figure != _SCORE, _gain(delta), delta.key


def _gain(delta: Delta) -> float:
    return 0.0 if delta.before is None or delta.after is None else float(delta.after) - float(delta.before)


def _better(delta: Delta) -> bool | None:
    """Tell whether a move is good: of scores the higher, of what a rule counts the lower."""
    gain = _gain(delta) if delta.figure == _SCORE else -_gain(delta) if delta.rule else 0.0
    return gain > 0 if gain else None
