"""The changes since an earlier audit, prepared for display."""

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
"""Maximum changed figures in the terminal, text and Markdown formats."""

_SCORE: Final = "score"
_SEVERITY: Final = "severity"


@attrs.frozen(kw_only=True)
class Move:
    """A changed figure.

    Attributes:
        name: Subject of the figure.
        figure: Display name of the figure.
        before: Earlier value.
        after: Current value.
        better: Whether the change is an improvement; `None` if it is neither better nor worse.
    """

    name: str
    figure: str
    before: str
    after: str
    better: bool | None

    @property
    def said(self) -> str:
        """The change as one line."""
        return f"{self.name}: {self.figure} {self.before} -> {self.after}"


@attrs.frozen(kw_only=True)
class Changes:
    """The changes since an earlier audit.

    Attributes:
        since: Time of the earlier audit.
        summary: Number of changes, in one sentence.
        new: New findings by rule, the most urgent first.
        resolved: Resolved findings by rule, the most urgent first.
        counts: Number of new, resolved and unchanged findings.
        moves: Changed figures: those of the whole audit first, then scores, the largest loss first.
    """

    since: str
    summary: str
    new: list[Action]
    resolved: list[Action]
    counts: dict[str, int]
    moves: list[Move]


def changes(report: Report) -> Changes | None:
    """Return the changes of a report; `None` if it was not compared with an earlier one."""
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
        told.append(f"{len(diff.not_judged):,} not checked this time")
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
    """Format a figure; severities are numbered from 1, the mildest."""
    if delta.figure == _SEVERITY and value is not None and value in range(1, len(Severity) + 1):
        return list(Severity)[-int(value)].value
    return figure(value)


def _importance(delta: Delta) -> tuple[bool, bool, float, str]:
    return delta.kind != "audit", delta.figure != _SCORE, _gain(delta), delta.key


def _gain(delta: Delta) -> float:
    return 0.0 if delta.before is None or delta.after is None else float(delta.after) - float(delta.before)


def _better(delta: Delta) -> bool | None:
    """Return whether a change is an improvement: a higher score, or a lower figure of a finding."""
    gain = _gain(delta) if delta.figure == _SCORE else -_gain(delta) if delta.rule else 0.0
    return gain > 0 if gain else None
