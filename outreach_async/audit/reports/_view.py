"""The parts of a report that several formats show: reading errors, changed figures, authentication and trends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from outreach_async.audit._findings import Severity
from outreach_async.audit._report import Delta, HistoryPoint, Report, findings_of, history_point
from outreach_async.audit._values import replace_unprintable
from outreach_async.audit.reports._summary import is_about_reading, workspace_label
from outreach_async.audit.reports._wording import describe_figure, format_figure, format_time, judge_change
from outreach_async.errors import format_count
from outreach_async.models import Number

MAX_UNREAD: Final = 10  # reading errors whose message is shown
MAX_POINTS: Final = 30  # audits of a trend
GOOD_SCORE: Final = 90
FAIR_SCORE: Final = 40
"""Lowest scores that count as good, and as fair; a lower score is critical."""
AUTHENTICATION_RULES: Final = {"SPF": "OA101", "DKIM": "OA102", "DMARC": "OA103"}
_TONES: Final = {"yes": "good", "some": "warning", "no": "error"}
_BARS: Final = "▁▂▃▄▅▆▇█"
_MAX_NAMES: Final = 5


def list_unread(report: Report) -> tuple[list[tuple[str, str]], list[str]]:
    unread = [finding for finding in findings_of(report, Severity.ERROR) if is_about_reading(finding)]
    names = [workspace_label(finding.workspace, report.names) for finding in unread]
    errors = [replace_unprintable(finding.message) for finding in unread[:MAX_UNREAD]]
    return list(zip(names, errors, strict=False)), names[MAX_UNREAD:]


def describe_scope(report: Report) -> str:

    def name_some(workspaces: Sequence[str]) -> str:
        more, shown = len(workspaces) - _MAX_NAMES, [workspace_label(each, report.names) for each in workspaces[:_MAX_NAMES]]
        return f"{', '.join(shown)}{f' and {more:,} more' if more > 0 else ''}"

    diff = report.diff
    parts = {} if diff is None else {"this audit": diff.added_workspaces, "the earlier audit": diff.removed_workspaces}
    described = "; ".join(f"only {audit} covers {name_some(spaces)}" for audit, spaces in parts.items() if spaces)
    return f"The audits cover different workspaces: {described}." if described else ""


@attrs.frozen(kw_only=True)
class FigureChange:
    """A number that changed since an earlier audit, prepared for display. `judged` is `better`, `worse` or empty."""

    name: str
    is_overall: bool
    figure: str
    before: str
    after: str
    judged: str

    @property
    def note(self) -> str:
        return f" ({self.judged})" if self.judged else ""


def list_figure_changes(report: Report) -> list[FigureChange]:
    def importance(delta: Delta) -> tuple[bool, bool, float, str]:
        gain = 0.0 if delta.before is None or delta.after is None else delta.after - delta.before
        return delta.kind != "audit", delta.figure != "score", describe_figure(delta.figure)[1] * gain, delta.key

    deltas = (*report.diff.scores, *report.diff.deltas) if report.diff else ()
    return [
        FigureChange(
            name="Overall" if delta.kind == "audit" else replace_unprintable(delta.name or delta.key),
            is_overall=delta.kind == "audit",
            figure=describe_figure(delta.figure)[0],
            before=_format_value(delta, delta.before),
            after=_format_value(delta, delta.after),
            judged=judge_change(delta.figure, delta.before, delta.after),
        )
        for delta in sorted(deltas, key=importance)
    ]


def _format_value(delta: Delta, value: Number | None) -> str:
    """Format a number for display. A severity, from 1 (info) to 4 (critical), is shown as its name."""
    if delta.figure == "severity" and value is not None and value in range(1, len(Severity) + 1):
        return list(Severity)[-int(value)].value
    return format_figure(value)


def score_tone(score: float | None, severity: Severity | None = None) -> str:
    """Return the tone of a score, which determines its colour: `good`, `warning` or `critical`; `info` if there is no score."""
    if score is None:
        return "info"
    if severity is Severity.CRITICAL:
        return "critical"
    is_good = score >= GOOD_SCORE and severity is not Severity.ERROR  # the colour is never milder than the verdict
    return "good" if is_good else "warning" if score >= FAIR_SCORE else "critical"


@attrs.frozen
class Authentication:
    """A mechanism (SPF, DKIM or DMARC) of a domain. `status` is `yes`, `some` or `no` for its mailboxes, or `-` if unknown."""

    name: str
    status: str
    detail: str = ""

    @property
    def tone(self) -> str:
        return _TONES.get(self.status, "unknown")


def build_authentication(report: Report) -> Callable[[str, int], list[Authentication]]:
    """Return a function of a domain and its number of checked mailboxes, which returns the state of each mechanism."""
    rules = set(AUTHENTICATION_RULES.values()) - set(report.policy.off)
    counts = Counter((finding.domain, finding.rule) for finding in report.findings if finding.rule in rules)

    def describe(name: str, rule: str, domain: str, mailboxes: int) -> Authentication:
        having = max(0, mailboxes - counts[domain, rule])
        if rule not in rules or not mailboxes:
            return Authentication(name, "-")
        if 0 < having < mailboxes:
            return Authentication(name, "some", f"{having:,} of {mailboxes:,}")
        return Authentication(name, "yes" if having else "no")

    return lambda domain, mailboxes: [describe(*mechanism, domain, mailboxes) for mechanism in AUTHENTICATION_RULES.items()]


def list_points(report: Report) -> list[HistoryPoint]:
    return [*report.history, history_point(report)][-MAX_POINTS:] if report.history else []


def describe_points(points: Sequence[HistoryPoint]) -> str:
    others = sum(point.scope != points[-1].scope for point in points)
    differ = format_count(others, "of them does not cover", "of them do not cover")
    scope = f" {differ} the same workspaces as this audit." if others else ""
    return f"{format_count(len(points), 'audit')} since {format_time(points[0].at)}.{scope}"


def draw_sparkline(values: Sequence[Number | None]) -> str:
    known = [value for value in values if value is not None]
    low, high = min(known, default=0), max(known, default=0)
    heights = [None if value is None else (value - low) / (high - low) if high > low else 0.5 for value in values]
    return "".join("·" if height is None else _BARS[round(height * (len(_BARS) - 1))] for height in heights)
