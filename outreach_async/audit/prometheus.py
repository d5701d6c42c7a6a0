"""Figures of an audit for Prometheus, in a file for the textfile collector of node_exporter.

All figures are gauges of the audit as a whole, of a workspace or of a domain. None is about a single mailbox: a time series for
each of a million mailboxes would overload a Prometheus server.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

import attrs

from outreach_async.atomic import atomic_write
from outreach_async.audit.findings import Group, GroupKind, Severity
from outreach_async.audit.report import Report
from outreach_async.errors import InvalidRequest

Samples: TypeAlias = Mapping[tuple[str, ...], float]
"""Figures by the values of their labels."""


@attrs.frozen
class Gauge:
    """A metric with its samples.

    Attributes:
        name: Name of the metric without its prefix; it ends in the unit.
        description: One sentence for people, without a period.
        labels: Names of the labels.
        samples: Figures by the values of the labels.
    """

    name: str
    description: str
    labels: tuple[str, ...]
    samples: Samples


GroupFigure: TypeAlias = Callable[[Group], float]

_GROUP_FIGURES: Final[tuple[tuple[str, str, GroupFigure], ...]] = (
    ("score", "Score of the {kind}, from 0 to 100", lambda group: group.score),
    ("mailboxes", "Checked mailboxes of the {kind}", lambda group: group.mailboxes),
    ("sent_30days_emails", "E-mails that the mailboxes of the {kind} sent in 30 days", lambda group: group.sent_30days),
    ("daily_limit_emails", "Sum of the daily limits of the {kind}, in e-mails per day", lambda group: group.daily_limit),
)

_UNSAFE: Final = re.compile(r"[\\\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def render_prometheus(report: Report) -> str:
    """Render the figures of a report in Prometheus' text format.

    Workspaces and domains are those of `Report.groups`: at most the 1,000 worst of each kind.

    Raises:
        InvalidRequest: The extra `prometheus` is not installed.
    """
    require_client()
    from prometheus_client import generate_latest
    from prometheus_client.core import GaugeMetricFamily

    families = []
    for gauge in (*_audit_gauges(report), *_group_gauges(report, "workspace"), *_group_gauges(report, "domain")):
        family = GaugeMetricFamily(f"outreach_audit_{gauge.name}", f"{gauge.description}.", labels=gauge.labels)
        for values, figure in gauge.samples.items():
            family.add_metric([escape_label(value) for value in values], figure)
        families.append(family)
    registry: Any = SimpleNamespace(collect=lambda: families)  # all that `generate_latest` needs of a registry
    return generate_latest(registry).decode()


def write_prometheus(report: Report, path: str | os.PathLike[str]) -> None:
    """Write the figures of a report to a file for node_exporter, which reads each file `*.prom` in its textfile folder.

    The file is replaced as a whole, so that node_exporter never reads an incomplete file.

    Args:
        report: The report of an audit.
        path: Path of the file.

    Raises:
        InvalidRequest: The extra `prometheus` is not installed.
        OSError: The file cannot be written; an existing file is unchanged.

    Example:
        ```python
        write_prometheus(await audit(client, ["space_1"]), "outreach.prom")
        print([line for line in Path("outreach.prom").read_text().splitlines() if line.startswith("outreach_audit_domain_score")])
        # -> ['outreach_audit_domain_score{domain="north.example"} 89.8']
        ```
    """
    atomic_write(path, render_prometheus(report))


def require_client() -> None:
    """Check that the library for Prometheus is installed.

    Raises:
        InvalidRequest: It is not installed; the message has the pip command.
    """
    try:
        import prometheus_client  # noqa: F401 - only whether it can be imported
    except ImportError:
        raise InvalidRequest("prometheus_client is not installed; run: pip install 'outreach_async[prometheus]'") from None


def escape_label(value: str) -> str:
    r"""Escape control characters, lone surrogates and marks of direction, such as `\x1b`. Backslashes are doubled.

    Two different values stay different: node_exporter rejects a file in which a time series occurs twice.
    """
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), value)


def _audit_gauges(report: Report) -> Iterator[Gauge]:
    """Yield the gauges of the audit as a whole, and whether each workspace could be read."""
    counts = Counter(finding.severity for finding in report.findings)
    unreadable = set(report.unreadable)
    score = math.nan if report.scores.overall is None else report.scores.overall
    yield Gauge("timestamp_seconds", "Time of the audit, in Unix seconds", (), {(): report.at})
    yield Gauge("score", "Score of all mailboxes, from 0 to 100; NaN if none was checked", (), {(): score})
    yield Gauge("mailboxes", "Checked mailboxes", (), {(): report.mailboxes})
    for kind in ("workspace", "domain"):
        description = f"Number of {kind}s with checked mailboxes; at most 1,000 have gauges of their own"
        yield Gauge(f"{kind}s", description, (), {(): report.totals.get(kind, 0)})
    yield Gauge("unreadable_workspaces", "Number of workspaces that could not be read completely", (), {(): len(unreadable)})
    severities: Samples = {(severity.value,): counts[severity] for severity in Severity}
    yield Gauge("findings", "Findings by severity", ("severity",), severities)
    states: Samples = {(workspace,): int(workspace in unreadable) for workspace in report.workspaces}
    yield Gauge("workspace_unreadable", "1 if the workspace could not be read completely, otherwise 0", ("workspace",), states)


def _group_gauges(report: Report, kind: GroupKind) -> Iterator[Gauge]:
    """Yield the gauges of the workspaces or of the domains."""
    groups = {group.key: group for group in report.groups if group.kind == kind}
    for name, description, figure in _GROUP_FIGURES:
        samples: Samples = {(key,): figure(group) for key, group in groups.items()}
        yield Gauge(f"{kind}_{name}", description.format(kind=kind), (kind,), samples)
    counts: Samples = {
        (key, severity.value): group.counts.get(severity, 0) for key, group in groups.items() for severity in Severity
    }
    yield Gauge(f"{kind}_findings", f"Findings about the {kind} by severity", (kind, "severity"), counts)
