"""Export the metrics of an audit to Prometheus, in a file for the textfile collector of node_exporter.

All metrics are gauges for the whole audit, a workspace or a domain. There are no metrics for single mailboxes or campaigns: a
hundred thousand mailboxes would need as many time series, which would overload a Prometheus server.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

from outreach_async._plumbing import require_module
from outreach_async.audit._findings import ACTIONS, GroupKind, Severity
from outreach_async.audit._report import Report

Gauge: TypeAlias = tuple[str, str, tuple[str, ...], Mapping[Any, float]]
"""The name, the description and the labels of a metric, and its values by the values of the labels."""

PROMETHEUS: Final = "prometheus_client", "outreach_async[prometheus]"  # the module and its extra
_GROUP_FIGURES: Final = (
    ("score", "Share of the e-mails of the {kind} that healthy mailboxes send, from 0 to 100", "score"),
    ("mailboxes", "Checked mailboxes of the {kind}", "mailboxes"),
    ("sent_30days_emails", "E-mails that the mailboxes of the {kind} sent in the last 30 days", "sent_30days"),
    ("daily_limit_emails", "Sum of the daily limits of the {kind}, in e-mails per day", "daily_limit"),
)  # the name, the help text, and the field of `Group` with the value

_UNSAFE: Final = re.compile(r"[\\\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def render_prometheus(report: Report) -> str:
    # Gauges of workspaces and domains cover those in `Report.groups`: at most the 1,000 worst workspaces and the 1,000 worst
    # domains. There are two exceptions. Gauges about campaigns cover the 1,000 workspaces with the most campaigns. The gauge
    # `workspace_unreadable` covers every workspace.
    require_module(*PROMETHEUS)
    from prometheus_client import generate_latest
    from prometheus_client.core import GaugeMetricFamily

    families = []
    groups = chain(_group_gauges(report, "workspace"), _group_gauges(report, "domain"))
    for name, description, labels, samples in chain(_audit_gauges(report), groups, _campaign_gauges(report)):
        # Without names, a label for them would only be blank.
        named = ("name",) if report.names and labels[:1] == ("workspace",) else ()
        family = GaugeMetricFamily(f"outreach_audit_{name}", f"{description}.", labels=(*labels, *named))
        for values, figure in samples.items():
            family.add_metric([escape_label(value) for value in (*values, *(report.name_of(values[0]) for _ in named))], figure)
        families.append(family)
    registry: Any = SimpleNamespace(collect=lambda: families)  # `generate_latest` uses no other attribute of a registry
    return generate_latest(registry).decode()


def escape_label(value: str) -> str:
    r"""Escape backslashes, control characters (such as `\x1b`), lone surrogates and bidirectional marks in a label value."""
    # Different values are never escaped to the same string, because node_exporter rejects a file with a duplicate time series.
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), value)


def _audit_gauges(report: Report) -> Iterator[Gauge]:
    unreadable = set(report.unreadable)
    score = math.nan if report.scores.overall is None else report.scores.overall
    yield "timestamp_seconds", "Time of the audit, in Unix seconds", (), {(): report.at}
    yield "score", "Share of all e-mails that healthy mailboxes send, from 0 to 100, or NaN", (), {(): score}
    yield "mailboxes", "Checked mailboxes", (), {(): report.mailboxes}
    for kind in ("workspace", "domain"):
        description = f"Number of {kind}s with checked mailboxes; only the 1,000 worst have their own gauges"
        yield f"{kind}s", description, (), {(): report.totals.get(kind, 0)}
    yield "unreadable_workspaces", "Number of workspaces that could not be read completely", (), {(): len(unreadable)}
    yield "findings", "Findings by severity", ("severity",), {(each.value,): count for each, count in report.counts.items()}
    actions = Counter(each.action for each in report.actions)
    yield "mailbox_actions", "Mailboxes by what to do with them", ("action",), {(each,): actions[each] for each in ACTIONS}
    states = {(workspace,): int(workspace in unreadable) for workspace in report.workspaces}
    yield "workspace_unreadable", "1 if the workspace could not be read completely, otherwise 0", ("workspace",), states


_MAX_WORKSPACES: Final = 1_000
_CAMPAIGN_FIGURES: Final = (
    ("campaigns", "Campaigns of the workspace", "campaigns"),
    ("live_campaigns", "Live campaigns of the workspace", "live"),
    ("campaign_sent_emails", "E-mails that the campaigns of the workspace have sent", "sent"),
    ("campaign_replies", "Replies to the campaigns of the workspace", "replies_num"),
    ("campaign_interested_replies", "Interested replies to the campaigns of the workspace", "interested_num"),
    ("campaign_bounces", "Bounced e-mails of the campaigns of the workspace", "bounces_num"),
    ("campaign_left_to_send_emails", "E-mails left to send by the live campaigns of the workspace", "left_to_send"),
)  # the name, the help text, and the field of `CampaignTotals` with the value


def _campaign_gauges(report: Report) -> Iterator[Gauge]:
    totals = report.campaigns.totals if report.campaigns else {}
    kept = sorted(totals.items(), key=lambda item: -item[1].campaigns)[:_MAX_WORKSPACES]
    for name, description, figure in _CAMPAIGN_FIGURES if report.campaigns else ():
        yield f"workspace_{name}", description, ("workspace",), {(space,): getattr(total, figure) for space, total in kept}


def _group_gauges(report: Report, kind: GroupKind) -> Iterator[Gauge]:
    groups = {group.key: group for group in report.groups if group.kind == kind}
    for name, description, figure in _GROUP_FIGURES:
        samples = {(key,): getattr(group, figure) for key, group in groups.items()}
        yield f"{kind}_{name}", description.format(kind=kind), (kind,), samples
    counts = {(key, severity.value): group.counts.get(severity, 0) for key, group in groups.items() for severity in Severity}
    yield f"{kind}_findings", f"Findings about the {kind} by severity", (kind, "severity"), counts
