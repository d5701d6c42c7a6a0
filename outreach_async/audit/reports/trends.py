"""Build trend lines from the figures of earlier audits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from outreach_async.audit.findings import Severity
from outreach_async.audit.report import HistoryPoint, Report
from outreach_async.audit.reports.wording import format_count, format_figure, format_time
from outreach_async.models import Number

MAX_POINTS: Final = 30
"""Maximum number of audits that a trend line shows."""

_BARS: Final = "▁▂▃▄▅▆▇█"
_COUNT_NAMES: Final = {Severity.CRITICAL: "Critical", Severity.ERROR: "Errors", Severity.WARNING: "Warnings"}


@attrs.frozen
class Trend:
    """One figure over several audits.

    Attributes:
        name: Display name of the figure.
        values: The figure in each audit, oldest first; `None` if an audit does not have it.
    """

    name: str
    values: Sequence[Number | None]

    @property
    def first(self) -> str:
        """The oldest figure."""
        return format_figure(self.values[0])

    @property
    def last(self) -> str:
        """The latest figure."""
        return format_figure(self.values[-1])

    @property
    def heights(self) -> list[float | None]:
        """The values, scaled so that the lowest is 0 and the highest is 1; 0.5 if all are equal."""
        known = [value for value in self.values if value is not None]
        low, high = min(known, default=0), max(known, default=0)
        return [None if value is None else (value - low) / (high - low) if high > low else 0.5 for value in self.values]

    @property
    def sparkline(self) -> str:
        """The values as a line of bars; a middle dot stands for a missing value."""
        return "".join("·" if height is None else _BARS[round(height * (len(_BARS) - 1))] for height in self.heights)


@attrs.frozen
class Trends:
    """The history of an audit, prepared for display.

    Attributes:
        summary: Number of audits, time of the first audit, and the number of audits that cover other workspaces.
        trends: Trends of the score, of the findings by severity, and of the number of mailboxes.
    """

    summary: str
    trends: list[Trend]


def build_trends(report: Report) -> Trends | None:
    """Return the trends over the history of a report and the report itself; `None` if it has no history."""
    if not report.history:
        return None
    points = [*report.history, HistoryPoint.of(report)][-MAX_POINTS:]
    others = sum(point.scope != points[-1].scope for point in points)
    scope = f" {format_count(others, 'of them covers', 'of them cover')} other workspaces than this one." if others else ""
    counts = [Trend(name, [point.counts.get(severity, 0) for point in points]) for severity, name in _COUNT_NAMES.items()]
    return Trends(
        summary=f"{format_count(len(points), 'audit')} since {format_time(points[0].at)}.{scope}",
        trends=[
            Trend("Score", [point.score for point in points]),
            *counts,
            Trend("Mailboxes", [point.mailboxes for point in points]),
        ],
    )
