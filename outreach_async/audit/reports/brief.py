"""A daily brief of changes and tasks.

It is one page, with the changes since the last brief, and the open tasks.
The findings with the same rule and severity become one task with a remedy.
A history stores what the next brief compares with:

```python
import anyio
from outreach_async import OutreachClient
from outreach_async.audit import audit
from outreach_async.audit.history import History, Readings
from outreach_async.audit.reports import write
from outreach_async.audit.reports.brief import build_brief


async def main() -> None:
    history, readings = History("history.db"), Readings()
    async with OutreachClient() as client:
        report = await audit(client, ["space_1"], campaigns=True, readings=readings)
    brief = build_brief(report, history.baseline(report.workspaces))
    for task in brief.tasks:
        print(task.severity, task.title, "-", task.remedy)
    # -> error No SPF - Publish one TXT record ...
    for campaign in brief.campaigns or []:
        print(campaign.name, campaign.sent, campaign.new_sent)  # -> Spring 0 None
    print(write(brief, "markdown").splitlines()[0])  # -> # Outreach brief
    history.append(report, readings)


anyio.run(main)
```

The command `outreach-async brief --history history.db` does the same.

If a workspace cannot be read completely, `History.baseline` returns its
earlier reading, with which the next brief that can read it compares: each
finding is reported as new only once, and each increase of a number is
counted exactly once.
"""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import attrs

from outreach_async._plumbing import require_types
from outreach_async.audit._findings import ACTIONS, Action, Finding, Severity, campaign_label, decide, group_name, subject_name
from outreach_async.audit._report import SEVERITY_LEVELS, ChangeCounts, Report
from outreach_async.audit._rules import CATALOGUE, INCOMPLETE, rule_title
from outreach_async.audit._values import format_span, format_time, replace_unprintable, to_json_values
from outreach_async.audit.campaigns import CampaignRow
from outreach_async.audit.plan import WorkspacePlan
from outreach_async.errors import format_count
from outreach_async.models import Number
from outreach_async.store import LedgerReport, Store

__all__ = ["Brief", "CampaignBrief", "ChangeCounts", "ImportBrief", "Task", "WorkspaceBrief", "build_brief", "read_imports"]


@attrs.frozen(kw_only=True)
class Task:
    """The findings of one rule and severity, with the recommended action.

    Each finding belongs to exactly one task.

    Attributes:
        rule, title, source, condition: As of the `Rule`, with the
            thresholds of the policy.
        severity, remedy: Severity of the findings, and the recommended
            action.
        findings, mailboxes: Number of findings, and of the different
            mailboxes that they are about.
        workspaces: Names of the workspaces, each with its number of
            mailboxes that the findings are about, the most first; of
            findings, if they are not about mailboxes.
        groups: Names of the domains, servers, workspaces or campaigns,
            each with its number of findings, the most first.
        group_kind: Kind of the groups: `domain`, `server`, `workspace` or
            `campaign`.
        example: Subject and message of one of the findings.
        new, worse: Numbers of findings that the earlier report does not
            have, and that were milder in it.
        new_groups, new_workspaces: Like `groups` and `workspaces`, but
            only for new findings.

    Example:
        ```python
        task, *_ = summarize(report).tasks
        print(task.severity, task.rule, task.title, task.extent)  # -> error OA101 No SPF 1 mailbox on north.example
        ```
    """

    rule: str
    title: str
    severity: Severity
    findings: int
    mailboxes: int
    workspaces: list[tuple[str, int]]
    groups: list[tuple[str, int]]
    group_kind: str
    example: str
    remedy: str
    condition: str
    source: str
    new: int
    new_groups: list[tuple[str, int]]
    new_workspaces: list[tuple[str, int]]
    worse: int

    @property
    def where(self) -> str:
        """The name of the group, or how many there are, such as `3 domains`."""
        return self.groups[0][0] if len(self.groups) == 1 else format_count(len(self.groups), self.group_kind)

    @property
    def extent(self) -> str:
        """How many mailboxes and groups, such as `2 mailboxes on 3 domains`."""
        return f"{format_count(self.mailboxes, 'mailbox')} on {self.where}" if self.mailboxes else self.where

    @property
    def news(self) -> str:
        """New and worse findings: `5 new, 1 worse`; `new` if all of them are."""
        if self.new == self.findings:
            return "new"
        return ", ".join(f"{count:,} {word}" for word, count in (("new", self.new), ("worse", self.worse)) if count)


@attrs.frozen(kw_only=True)
class Summary:
    """The conclusion of an audit in all formats: verdict, counts and tasks.

    Attributes:
        at, since: Times of the audit and of the earlier one, in Unix
            seconds; `since` is `None` without an earlier one.
        size, verdict: Numbers of mailboxes, domains, workspaces and
            campaigns, and the conclusion, as text.
        mailboxes, names, service_clock: As in `Report`.
        score, score_before: Score of all mailboxes, and in the earlier
            report; `None` without checked mailboxes.
        counts: Number of findings by severity.
        changes: How the findings of the earlier report and of this one add
            up; `None` without an earlier one.
        actions, campaign_actions: The addresses of the mailboxes to stop,
            to fix and to watch, and the names of the campaigns, by the ids
            of their workspaces.
        tasks: The open tasks, the most severe first, and within a severity
            those with news.
        resolved: Earlier findings that no longer apply, by rule and
            severity.

    Example:
        ```python
        print(summarize(report).headline)  # -> Mailbox audit: 2 mailboxes, 1 domain, ... Score 74.5 of 100.
        ```
    """

    title: ClassVar[str] = "Mailbox audit"

    at: float
    since: float | None
    size: str
    verdict: str
    mailboxes: int
    score: float | None
    score_before: float | None
    counts: dict[Severity, int]
    changes: ChangeCounts | None
    actions: dict[Action, dict[str, list[str]]]
    campaign_actions: dict[Action, dict[str, list[str]]]
    tasks: list[Task]
    resolved: list[Task]
    names: dict[str, str]
    service_clock: bool

    @property
    def headline(self) -> str:
        """The size and the score in one line."""
        score, before = self.score, self.score_before
        was = "" if before in {None, score} else f", was {before:g}"
        return f"{self.title}: {self.size}. {'No score.' if score is None else f'Score {score:g} of 100{was}.'}"

    @property
    def counted(self) -> str:
        """Findings by severity: `0 critical, 1 error, 0 warnings, 2 notes`."""
        return ", ".join(count_severity(severity, count) for severity, count in self.counts.items())

    @property
    def to_do(self) -> str:
        """The numbers of mailboxes by what to do with them, as a sentence."""
        counts = {action: sum(map(len, listed.values())) for action, listed in self.actions.items()}
        parts = [f"{count:,} to {action}" for action, count in counts.items()]
        return f"Mailboxes: {', '.join(parts)}, {max(0, self.mailboxes - sum(counts.values())):,} with nothing to do."

    @property
    def changed(self) -> str:
        """The numbers of new, resolved and unchanged findings, as a sentence."""
        changes = self.changes
        if changes is None or self.since is None:
            return "There is no earlier brief to compare with."
        since = f"Since {format_time(self.since)} ({format_span(self.at - self.since)})"
        unchecked = f", {changes.not_judged:,} not checked this time" if changes.not_judged else ""
        parts = f"{changes.new:,} new, {changes.resolved:,} resolved, {changes.unchanged:,} unchanged{unchecked}"
        return f"{since}: {format_count(changes.after, 'finding')}, {changes.before:,} before; {parts}."

    @property
    def audited(self) -> str:
        """The time of the audit, and whose clock it is if the clocks differ."""
        clocks = " by the service's clock, from which this computer's differs by more than a minute"
        return f"{format_time(self.at)}{clocks if self.service_clock else ''}"

    @property
    def score_note(self) -> str:
        """A note if campaigns decide the verdict, not the score; else empty."""
        urgent = any(task.group_kind == "campaign" and task.severity.reaches(Severity.ERROR) for task in self.tasks)
        return "The score is about mailboxes: problems of campaigns do not lower it." if urgent else ""

    @property
    def tone(self) -> str:
        """The worst severity with findings, for colours; `good` without any."""
        return next((severity.value for severity, count in self.counts.items() if count), "good")


def summarize(report: Report) -> Summary:
    """Return the conclusion of a report, and of what `Report.since` found.

    Example:
        ```python
        print(summarize(report).verdict)  # -> Fix 1 mailbox on 1 domain today; nothing is critical.
        ```
    """
    diff, score = report.diff, report.scores.overall
    old = {(delta.kind, delta.figure): delta.before for delta in diff.scores} if diff else {}
    worse = Counter(
        (delta.rule, delta.after)
        for delta in (diff.deltas if diff else ())
        if delta.figure == "severity" and (delta.before or 0) < (delta.after or 0)
    )
    return Summary(
        at=report.at,
        service_clock=report.service_clock,
        since=diff.at if diff else None,
        size=_format_size(report),
        verdict=_format_verdict(report),
        mailboxes=report.mailboxes,
        score=score,
        score_before=old.get(("audit", "score"), score) if diff else None,
        counts=report.counts,
        changes=diff.counts if diff else None,
        actions=_group_names((each.action, each.workspace, each.email or each.mailbox) for each in report.actions),
        campaign_actions=_group_names(
            (decide([each]), each.workspace, campaign_label(each.campaign_name, each.campaign))
            for each in _other_subjects(report)
            if each.campaign
        ),
        tasks=_build_tasks(report.findings, report, worse if diff else None),
        resolved=_build_tasks(diff.resolved if diff else (), report, None),
        names=report.names,
    )


def count_severity(severity: Severity, count: int) -> str:
    noun = "note" if severity is Severity.INFO else severity.value
    return f"{count:,} critical" if severity is Severity.CRITICAL else format_count(count, noun)


def _format_size(report: Report) -> str:
    domains = report.totals.get("domain", len(report.scores.domains))
    sizes = {"mailbox": report.mailboxes, "domain": domains, "workspace": len(report.workspaces)}
    if report.campaigns is not None:
        sizes["campaign"] = report.campaigns.checked
    return ", ".join(format_count(count, noun) for noun, count in sizes.items())


_VERDICTS: Final[dict[Action, str]] = {
    "stop": "Stop sending from {extent} until the problem is fixed.",
    "fix": "Fix {extent} today; nothing is critical.",
    "watch": "Watch {extent}; nothing is broken.",
}


def _format_verdict(report: Report) -> str:
    if report.denied:
        return "Nothing could be read: the service denied access to every workspace."
    partly = "Not everything could be read. " if report.incomplete else ""
    others = Counter((decide([each]), "campaign" if each.campaign else "workspace") for each in _other_subjects(report))
    for action, verdict in _VERDICTS.items():
        boxes, parts = [each for each in report.actions if each.action == action], list[str]()
        if boxes:
            domains = {each.domain for each in boxes if each.domain}
            on = f" on {format_count(len(domains), 'domain')}" if domains else ""
            parts.append(f"{format_count(len(boxes), 'mailbox')}{on}")
        parts += [format_count(others[action, kind], kind) for kind in ("campaign", "workspace") if others[action, kind]]
        if parts:
            return f"{partly}{verdict.format(extent=' and '.join(parts))}"
    if notes := report.counts[Severity.INFO]:
        return f"{partly}No risks found; there {'is' if notes == 1 else 'are'} {count_severity(Severity.INFO, notes)}."
    checked = report.mailboxes or (report.campaigns and report.campaigns.checked)
    return f"{partly}{'No problems found.' if checked else 'No mailboxes were checked.'}"


def _other_subjects(report: Report) -> list[Finding]:
    """Return the worst finding about each campaign, and about each workspace itself, without errors while reading."""
    found = [each for each in reversed(report.findings) if each.rule not in INCOMPLETE]  # the worst last
    alone = (each for each in found if each.campaign or not (each.mailbox or each.email or each.domain or each.server_ip))
    return list({(each.workspace, each.campaign): each for each in alone}.values())


def index_actions(report: Report) -> Callable[[Finding], Action | None]:
    """Return a function that says what to do with what a finding is about. The worst finding about a mailbox decides."""
    known = {(each.workspace, each.mailbox): each.action for each in report.actions}

    def action_of(finding: Finding) -> Action | None:
        if finding.mailbox:
            return known.get((finding.workspace, finding.mailbox))
        return None if finding.rule in INCOMPLETE else decide([finding])

    return action_of


def _group_names(named: Iterable[tuple[Action | None, str, str]]) -> dict[Action, dict[str, list[str]]]:
    """Group names by what to do with them and the ids of their workspaces."""
    groups: dict[Action, dict[str, list[str]]] = {action: {} for action in ACTIONS}
    for action, workspace, name in named:
        if action:
            groups[action].setdefault(workspace, []).append(replace_unprintable(name))
    return groups


def _count_mailboxes(findings: Iterable[Finding]) -> int:
    single = {(each.workspace, each.mailbox, each.email) for each in findings if each.mailbox or each.email}
    return len(single) + sum(each.mailboxes or 0 for each in findings)


def _name_workspaces(findings: Iterable[Finding], names: Mapping[str, str]) -> list[tuple[str, int]]:
    parts: defaultdict[str, list[Finding]] = defaultdict(list)
    for each in findings:
        parts[each.workspace].append(each)
    counts = {workspace: _count_mailboxes(part) or len(part) for workspace, part in parts.items()}
    named = [(replace_unprintable(names.get(workspace, workspace)), count) for workspace, count in counts.items()]
    return sorted(named, key=lambda each: (-each[1], each[0]))


def _name_groups(findings: Sequence[Finding], names: Mapping[str, str]) -> list[tuple[str, int]]:
    counts = Counter(_group_of(finding)[1] for finding in findings)
    named = {_group_of(finding)[1]: replace_unprintable(group_name(finding, names)) for finding in findings}
    return sorted(((named[key], count) for key, count in counts.items()), key=lambda group: (-group[1], group[0]))


def is_about_reading(finding: Finding) -> bool:
    """Return whether a finding reports an error while reading a whole list, such as the mailboxes of a workspace."""
    subjects = (finding.domain, finding.mailbox, finding.email, finding.server_ip)
    return finding.rule in INCOMPLETE and not any(subjects) and finding.campaign is None


def workspace_label(workspace: str, names: Mapping[str, str]) -> str:
    name = names.get(workspace)
    return replace_unprintable(workspace if name is None else f"{name} ({workspace})")


def worst_first_key(finding: Finding) -> tuple[int, str, str, str]:
    return finding.severity.rank, finding.domain or "", subject_name(finding), finding.rule


def _group_of(finding: Finding) -> tuple[str, Hashable]:
    """Return the kind and the key of a finding's group. Names of campaigns and workspaces may not be unique, but ids are."""
    if finding.campaign is not None:
        return "campaign", (finding.workspace, finding.campaign)
    if finding.domain:
        return "domain", finding.domain
    return ("server", finding.server_ip) if finding.server_ip else ("workspace", finding.workspace)


Worse = Mapping[tuple[str | None, float | None], int]
"""Number of findings that became more severe, by rule and new severity level."""


def group_findings(findings: Iterable[Finding]) -> dict[tuple[str, Severity], list[Finding]]:
    found: defaultdict[tuple[str, Severity], list[Finding]] = defaultdict(list)
    for finding in findings:
        found[finding.rule, finding.severity].append(finding)
    return found


def _build_tasks(findings: Iterable[Finding], report: Report, worse: Worse | None) -> list[Task]:
    tasks = [_build_task(each, report, worse) for each in group_findings(findings).values()]
    return sorted(tasks, key=lambda task: (task.severity.rank, not (task.new or task.worse), -task.findings, task.rule))


def _build_task(findings: Sequence[Finding], report: Report, worse: Worse | None) -> Task:
    first = min(findings, key=worst_first_key)
    rule = CATALOGUE.get(first.rule)  # a report of another version may contain unknown rules
    if rule:
        rule = attrs.evolve(rule, thresholds={**rule.thresholds, **report.policy.thresholds.get(rule.id, {})})
    others = len({finding.remedy for finding in findings}) - 1
    more = f" The same for {format_count(others, 'other domain')}." if others else ""
    # The states of a report that is not compared are those of an earlier comparison.
    new = [finding for finding in findings if finding.state == "new"] if worse is not None else []
    return Task(
        rule=first.rule,
        title=rule_title(first.rule),
        severity=first.severity,
        findings=len(findings),
        mailboxes=_count_mailboxes(findings),
        workspaces=_name_workspaces(findings, report.names),
        groups=_name_groups(findings, report.names),
        group_kind=_group_of(first)[0],
        example=replace_unprintable(f"{subject_name(first, report.names)}: {first.message}"),
        remedy=replace_unprintable(f"{first.remedy}{more}"),
        condition=rule.condition if rule else "",
        source=rule.source if rule else "",
        new=len(new),
        new_groups=_name_groups(new, report.names),
        new_workspaces=_name_workspaces(new, report.names),
        worse=worse.get((first.rule, SEVERITY_LEVELS[first.severity]), 0) if worse else 0,
    )


BRIEF_VERSION: Final = 1
_MAX_GAPS: Final = 5  # workspaces that a brief lists as missing or out of date
GROWING: Final = {
    "new_contacts": "contacts",
    "new_sent": "sent",
    "new_replies": "replies_num",
    "new_interested": "interested_num",
    "new_bounces": "bounces_num",
}
_COPIED: Final = ("id", "name", "workspace", "status", *GROWING.values(), "left_to_send", "end")


@attrs.frozen(kw_only=True)
class WorkspaceBrief:
    """A workspace in a brief: its score, and whether it could be read.

    Attributes:
        id: Id of the workspace.
        mailboxes: Number of checked mailboxes.
        score, score_before: Score of its mailboxes, and in the earlier
            report; `None` without checked mailboxes.
        error: Description of the error, if the workspace could not be read
            completely; otherwise `None`.
        since: Start of the period whose changes are counted, in Unix
            seconds; `None` if the earlier report does not cover it.

    Example:
        ```python
        print(build_brief(report).workspaces[0].score)  # -> 74.5
        ```
    """

    id: str
    mailboxes: int
    score: float | None
    score_before: float | None
    error: str | None
    since: float | None


@attrs.frozen(kw_only=True)
class CampaignBrief:
    """A campaign in a brief. Unknown numbers are `None`.

    Attributes:
        id, name, workspace, status, left_to_send: As in `CampaignRow`.
        contacts, sent: As in `CampaignRow`.
        replies_num, interested_num, bounces_num: As in `CampaignRow`.
        status_before: Status in the earlier report; `None` if the earlier
            report does not contain the campaign.
        new_contacts, new_sent: Increase of each number since the earlier
            report; `None` if the number has decreased.
        new_replies, new_interested, new_bounces: The same.
        end, end_before: Estimated end, now and in the earlier report, in
            Unix seconds; `None` if it has ended or has no estimate.

    Example:
        ```python
        fake.advance(days=1)
        (campaign,) = build_brief(await audit(client, ["space_1"], campaigns=True), report).campaigns
        print(campaign.name, campaign.status, campaign.new_sent)  # -> Spring live 40
        ```
    """

    id: str
    name: str
    workspace: str
    status: str
    status_before: str | None
    contacts: Number | None
    sent: Number | None
    replies_num: Number | None
    interested_num: Number | None
    bounces_num: Number | None
    left_to_send: Number | None
    new_contacts: Number | None
    new_sent: Number | None
    new_replies: Number | None
    new_interested: Number | None
    new_bounces: Number | None
    end: Number | None
    end_before: Number | None


@attrs.frozen(kw_only=True)
class ImportBrief:
    """The last import with a ledger: how many people were not written to.

    Attributes:
        ledger: The location of the ledger.
        workspaces: Ids of the workspaces of its contacts.
        at: Time of its last import, in Unix seconds.
        excluded: Number of rows that were not sent, because the person
            must not be written to; with those of `held` and `gated`.
        held, gated: Number of rows that another workspace held, and that
            the gate of the list withheld.
        predicted: The share of sent rows that may bounce, by the gates of
            its imports; `None` without a prediction.
        campaigns: Ids of the campaigns of its contacts.

    Example:
        ```python
        rows = [{"email": "ann@company.example"}, {"email": "bo@acme.example"}]
        await client.contacts.create_many(rows, ledger="acme.ledger", changed="ignore", exclude=["acme.example"])
        (last,) = read_imports([Store("acme.ledger")])
        print(last.excluded, last.held, last.gated, last.predicted)  # -> 1 0 0 None
        ```
    """

    ledger: str
    workspaces: list[str]
    at: float
    excluded: int
    held: int
    gated: int
    predicted: float | None
    campaigns: list[str]


def read_imports(ledgers: Iterable[Store]) -> list[ImportBrief]:
    """Return what the last import of each ledger excluded and predicted.

    A ledger that does not exist, or has no finished import, is left out.

    Raises:
        InvalidRequest: A file is not a ledger.
        JournalError: A ledger is damaged or cannot be read.

    Example:
        ```python
        print(read_imports([Store("none.ledger")]))  # -> []
        ```
    """
    found = [(each, each.contacts()) for each in ledgers if each.exists()]
    return [_build_import(os.fspath(ledger.location), report) for ledger, report in found if report.runs]


def _build_import(ledger: str, report: LedgerReport) -> ImportBrief:
    _, at, counts = report.runs[0]
    # Not of the last run alone: it may have sent nothing, while the e-mails of the others bounce.
    judged, open_ = (sum(run.get(name, 0) for _, _, run in report.runs) for name in ("gate_rows", "gate_unknown"))
    return ImportBrief(
        ledger=ledger,
        workspaces=list(dict.fromkeys(workspace for workspace, _ in report.targets if workspace)),
        at=at.timestamp(),
        **{name: counts.get(name, 0) for name in ("excluded", "held", "gated")},
        predicted=open_ / judged if judged else None,
        campaigns=[campaign for _, campaign in report.targets if campaign],
    )


@attrs.frozen(kw_only=True)
class Brief(Summary):
    """A one-page summary of changes and open tasks.

    An audit of the same workspaces has the same verdict, counts and tasks.

    Attributes:
        tasks: As in `Summary`, but notes only if some are new.
        resolved: As in `Summary`, but without notes.
        workspaces: The workspaces, in the order of the audit.
        dropped: Ids of workspaces that only the earlier report covers.
        campaigns: The campaigns, grouped by workspace, those that sent
            most since the earlier report first; `None` if not read.
        plans, imports: The plans and imports passed to `build_brief`.

    All other attributes are those of `Summary`.

    Example:
        ```python
        fake.set_mailbox("mailbox_2", spf=True)
        brief = build_brief(await audit(client, ["space_1"]), report)
        print(brief.verdict, [task.title for task in brief.resolved])  # -> No problems found. ['No SPF']
        ```
    """

    title: ClassVar[str] = "Outreach brief"

    workspaces: list[WorkspaceBrief]
    dropped: list[str]
    campaigns: list[CampaignBrief] | None
    plans: list[WorkspacePlan]
    imports: list[ImportBrief]

    @property
    def gaps(self) -> list[tuple[str, str]]:
        """A workspace (none if several) and a description for each data gap."""
        described = ((workspace.id, _describe_gap(workspace, self.since)) for workspace in self.workspaces)
        gaps = [(id_, text) for id_, text in described if text] + [(id_, "is no longer covered.") for id_ in self.dropped]
        shown = [(workspace_label(id_, self.names), replace_unprintable(text)) for id_, text in gaps[:_MAX_GAPS]]
        if len(gaps) > _MAX_GAPS:
            shown.append(("", f"and {format_count(len(gaps) - _MAX_GAPS, 'more workspace')}"))
        if self.changes and self.changes.not_judged:
            shown.append(("", f"{format_count(self.changes.not_judged, 'earlier finding')} could not be checked again."))
        return shown

    @property
    def resolved_notes(self) -> int:
        """Number of resolved notes, which `resolved` leaves out."""
        return self.changes.resolved - sum(task.findings for task in self.resolved) if self.changes else 0

    def to_dict(self) -> dict[str, Any]:
        """Return the brief as JSON values (see `reports.schema(Brief)`).

        Example:
            ```python
            print(build_brief(report).to_dict()["counts"]["error"])  # -> 1
            ```
        """
        return {"version": BRIEF_VERSION, **to_json_values(self)}


def build_brief(
    report: Report,
    earlier: Report | None = None,
    plans: Iterable[WorkspacePlan] = (),
    imports: Iterable[ImportBrief] = (),
) -> Brief:
    """Summarize a report, and compare it with an earlier report.

    This function performs no I/O.

    Args:
        report: The report of an audit.
        earlier: The baseline in a history, or any earlier report; `None`
            for the first brief.
        plans: When campaigns end, from `outreach_async.audit.plan`.
        imports: The last imports, from `read_imports`.

    Raises:
        InvalidRequest: An argument is of another type.

    Example:
        ```python
        print(build_brief(report).verdict)  # -> Fix 1 mailbox on 1 domain today; nothing is critical.
        ```
    """
    require_types(build_brief, locals())
    compared = report.since(earlier) if earlier else attrs.evolve(report, diff=None)
    summary = summarize(compared)
    about = attrs.asdict(summary, recurse=False)
    about |= {
        "tasks": [task for task in summary.tasks if task.severity.reaches(Severity.WARNING) or task.new],
        "resolved": [task for task in summary.resolved if task.severity.reaches(Severity.WARNING)],
    }
    # The first error about each workspace. Those about single mailboxes are none of the workspace.
    unread = [finding for finding in report.findings if finding.rule in INCOMPLETE and not finding.mailbox]
    errors = {finding.workspace: finding.message for finding in reversed(unread)}
    return Brief(
        workspaces=[_build_workspace(workspace, report, earlier, errors) for workspace in report.workspaces],
        dropped=compared.diff.removed_workspaces if compared.diff else [],
        campaigns=_build_campaigns(report, earlier),
        plans=list(plans),
        imports=list(imports),
        **about,
    )


def _describe_gap(workspace: WorkspaceBrief, since: float | None) -> str:
    if workspace.error is not None:
        read = f"last read {format_time(workspace.since)}" if workspace.since else "never read before"
        return f"{workspace.error} ({read})"
    if since is not None and workspace.since is None:
        return "is covered for the first time."
    if workspace.since != since:
        return f"is compared with an older audit ({format_time(workspace.since or 0)})."
    return ""


def _build_workspace(workspace: str, report: Report, earlier: Report | None, errors: Mapping[str, str]) -> WorkspaceBrief:
    score = report.scores.workspaces.get(workspace)
    before = earlier.scores.workspaces.get(workspace) if earlier else None
    since = None
    if earlier:
        was_read = workspace in earlier.workspaces and workspace not in earlier.unreadable
        since = earlier.last_read.get(workspace, earlier.at if was_read else None)
    return WorkspaceBrief(
        id=workspace,
        mailboxes=score.mailboxes if score else 0,
        score=score.score if score else None,
        score_before=before.score if before else None,
        error=errors.get(workspace) if workspace in report.unreadable else None,
        since=since,
    )


def _build_campaigns(report: Report, earlier: Report | None) -> list[CampaignBrief] | None:
    if report.campaigns is None:
        return None
    before = {(row.workspace, row.id): row for row in earlier.campaigns.rows} if earlier and earlier.campaigns else {}
    since = earlier.at if earlier else math.inf
    places = {workspace: place for place, workspace in enumerate(report.workspaces)}
    campaigns = [_build_campaign(row, before.get((row.workspace, row.id)), since) for row in report.campaigns.rows]
    return sorted(campaigns, key=lambda campaign: (places.get(campaign.workspace, len(places)), -(campaign.new_sent or 0)))


def _build_campaign(row: CampaignRow, before: CampaignRow | None, since: float) -> CampaignBrief:
    # If the campaign was created after the earlier audit, all of its numbers are new.
    start = 0 if (row.created or 0) > since else None
    figures: dict[str, Any] = {}
    for new, name in GROWING.items():
        now, was = getattr(row, name), getattr(before, name) if before else start
        figures[new] = None if now is None or was is None or now < was else now - was
    return CampaignBrief(
        **{name: getattr(row, name) for name in _COPIED},
        **figures,
        status_before=before.status if before else None,
        end_before=before.end if before else None,
    )
