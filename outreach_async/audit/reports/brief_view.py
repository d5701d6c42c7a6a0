"""Prepare a brief for display: the sentences and selections that every format of a brief shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from outreach_async.audit.findings import Severity
from outreach_async.audit.reports.brief import Brief, Task, WorkspaceBrief
from outreach_async.audit.reports.view import count_severity
from outreach_async.audit.reports.wording import format_count, format_time, replace_unprintable

BRIEF_TITLE: Final = "Outreach brief"

MAX_GAPS: Final = 5
"""Maximum number of workspaces that are named because they are not up to date."""

_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400


def format_brief_headline(brief: Brief) -> str:
    """Return the size of the audit and its score, in one line."""
    score = "No score." if brief.score is None else f"Score {format_score(brief.score, brief.score_before)}."
    return f"{BRIEF_TITLE}: {format_brief_size(brief)}. {score}"


def format_brief_size(brief: Brief) -> str:
    """Return the number of mailboxes and workspaces."""
    sizes = {"mailbox": brief.mailboxes, "workspace": len(brief.workspaces)}
    return ", ".join(format_count(count, noun) for noun, count in sizes.items())


def format_score(score: float, before: float | None) -> str:
    """Return a score, and the earlier score if it differs."""
    return f"{score:g} of 100" if before in {None, score} else f"{score:g} of 100, was {before:g}"


def format_brief_changes(brief: Brief) -> str:
    """Return the time of the brief and the number of changed findings, in one or two sentences."""
    if brief.since is None:
        return f"Audited {format_time(brief.at)}. There is no earlier brief to compare with."
    resolved = sum(task.findings for task in brief.resolved)
    counts = f"{format_count(brief.new, 'new finding')}, {resolved:,} resolved, {brief.unchanged:,} unchanged"
    return f"Since {format_time(brief.since)} ({format_span(brief.at - brief.since)}): {counts}."


def format_span(seconds: float) -> str:
    """Format a span of time in whole minutes, hours or days, such as `26 hours` or `2 days`."""
    if seconds < 2 * _HOUR:
        return format_count(max(0, round(seconds / _MINUTE)), "minute")
    return format_count(round(seconds / _HOUR), "hour") if seconds < 2 * _DAY else format_count(round(seconds / _DAY), "day")


def format_news(task: Task) -> str:
    """Return how many findings of a task are new or worse, such as `new` or `5 new, 1 worse`; empty if there are none."""
    if task.new == task.findings:
        return "new"
    return ", ".join(f"{count:,} {word}" for word, count in (("new", task.new), ("worse", task.worse)) if count)


def split_urgent(brief: Brief) -> tuple[Sequence[Task], Sequence[Task]]:
    """Split the tasks into urgent and less urgent ones. If no task is an error or worse, all tasks are urgent."""
    urgent = sum(task.severity.reaches(Severity.ERROR) for task in brief.tasks) or len(brief.tasks)
    return brief.tasks[:urgent], brief.tasks[urgent:]


def format_notes(brief: Brief) -> str:
    """Return the number of notes, which need nobody; empty if there are none."""
    count = brief.counts[Severity.INFO]
    return f"{count_severity(Severity.INFO, count)}. The audit lists every finding." if count else ""


def list_gaps(brief: Brief) -> Iterator[tuple[str, str]]:
    """Yield the name of each workspace that is not up to date, and a description. The name is empty if there is none."""
    gaps = [(workspace.id, text) for workspace in brief.workspaces if (text := _describe_gap(workspace, brief.since))]
    gaps += [(workspace, "is no longer covered.") for workspace in brief.dropped]
    yield from ((replace_unprintable(name), replace_unprintable(text)) for name, text in gaps[:MAX_GAPS])
    if len(gaps) > MAX_GAPS:
        yield "", f"and {format_count(len(gaps) - MAX_GAPS, 'more workspace')}"
    if brief.not_judged:
        yield "", f"{format_count(brief.not_judged, 'earlier finding')} could not be checked again."


def _describe_gap(workspace: WorkspaceBrief, since: float | None) -> str:
    if workspace.error is not None:
        read = f"last read {format_time(workspace.since)}" if workspace.since else "never read before"
        return f"{workspace.error} ({read})"
    if since is not None and workspace.since is None:
        return "is covered for the first time."
    if workspace.since != since:
        return f"its changes are since {format_time(workspace.since or 0)}, when it was last read."
    return ""
