"""Define the report of an audit, and compare two reports."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, Literal, Self, cast

import attrs
import msgspec

from outreach_async._plumbing import require_types, show_name, type_name
from outreach_async.audit._evaluation import Scores, compare_campaigns
from outreach_async.audit._findings import Finding, Group, GroupKind, MailboxAction, Row, Severity, subject_name
from outreach_async.audit._rules import ABOUT_CAMPAIGNS, CATALOGUE, INCOMPLETE, UNKNOWABLE, UNREADABLE
from outreach_async.audit._values import require_time, to_json_values
from outreach_async.audit.campaigns import CampaignResults
from outreach_async.audit.policy import Policy, rules_about
from outreach_async.errors import InvalidRequest, shorten
from outreach_async.models import Number, TabularReport

REPORT_VERSION: Final = 1  # of the JSON format
MAX_HISTORY: Final = 100  # earlier audits in the history of a report


SubjectKind = Literal["audit", "workspace", "domain", "server_ip", "mailbox", "campaign", "step"]


@attrs.frozen(kw_only=True)
class Delta:
    """A number, such as a score, that changed between two audits.

    Attributes:
        kind, key: Kind of the subject, and its id, domain or address; the
            key is empty for the whole audit.
        name: Address of the mailbox, name of the campaign or workspace,
            otherwise the key.
        rule: Id of the rule whose finding contains the number; `None` if
            the number is not part of a finding.
        figure: Name of the number, such as `score`, `blacklists` or
            `severity`. Severities range from 1 (info) to 4 (critical).
        before, after: Earlier and current value; `None` if there is none.

    Example:
        ```python
        fake.set_mailbox("mailbox_2", spf=True)
        delta, *_ = (await audit(client, ["space_1"])).since(report).diff.scores
        print(delta.figure, delta.before, delta.after)  # -> score 74.5 100.0
        ```
    """

    kind: SubjectKind
    key: str
    name: str
    rule: str | None = None
    figure: str
    before: Number | None
    after: Number | None


@attrs.frozen(kw_only=True)
class ChangeCounts:
    """The numbers of findings in a `Diff`.

    `before == unchanged + resolved + not_judged`, and
    `after == unchanged + new`.

    Attributes:
        before, after: Numbers of findings in the earlier and in the later
            audit.
        new, unchanged, resolved, not_judged: Numbers of findings in each
            list of the `Diff`.

    Example:
        ```python
        print(report.since(report).diff.counts.unchanged)  # -> 1
        ```
    """

    before: int
    after: int
    new: int
    unchanged: int
    resolved: int
    not_judged: int


@attrs.frozen(kw_only=True)
class Diff:
    """The changes since an earlier audit.

    Attributes:
        at: Time of the earlier audit, in Unix seconds.
        new, unchanged: Findings that only this audit has, and those that
            both have, even if their numbers have changed.
        resolved: Earlier findings that no longer apply.
        not_judged: Earlier findings that may still apply: their subject
            was not read, or their rule was turned off.
        deltas, scores: Changes of the numbers in unchanged findings, and
            of scores and totals.
        added_workspaces, removed_workspaces: Ids of workspaces that only
            the later, or only the earlier audit covers.

    Example:
        ```python
        fake.set_mailbox("mailbox_2", spf=True)
        print((await audit(client, ["space_1"])).since(report).diff.resolved[0].rule)  # -> OA101
        ```
    """

    at: float = attrs.field(validator=require_time)
    new: list[Finding]
    unchanged: list[Finding]
    resolved: list[Finding]
    not_judged: list[Finding] = attrs.field(factory=list)
    deltas: list[Delta] = attrs.field(factory=list)
    scores: list[Delta] = attrs.field(factory=list)
    added_workspaces: list[str] = attrs.field(factory=list)
    removed_workspaces: list[str] = attrs.field(factory=list)

    @property
    def counts(self) -> ChangeCounts:
        """The numbers of findings before and after, and how they add up."""
        new, unchanged, resolved, not_judged = map(len, (self.new, self.unchanged, self.resolved, self.not_judged))
        return ChangeCounts(
            before=unchanged + resolved + not_judged,
            after=unchanged + new,
            new=new,
            unchanged=unchanged,
            resolved=resolved,
            not_judged=not_judged,
        )

    @property
    def empty(self) -> bool:
        """True if nothing has changed, and all earlier findings were checked."""
        return not (self.new or self.resolved or self.not_judged or self.deltas or self.scores)


@attrs.frozen(kw_only=True)
class HistoryPoint:
    """Score and counts of one audit, for the history in later reports.

    Attributes:
        at, mailboxes, counts: As in `Report`.
        score: Score of all mailboxes; `None` if no mailbox was checked.
        scope: Hash of the ids of the workspaces; audits of the same
            workspaces have the same hash.

    Example:
        ```python
        fake.advance(seconds=60)
        (point,) = (await audit(client, ["space_1"])).since(report).history
        print(point.score, point.counts["error"])  # -> 74.5 1
        ```
    """

    at: float = attrs.field(validator=require_time)
    score: float | None
    mailboxes: int
    counts: dict[Severity, int]
    scope: str


@attrs.frozen(kw_only=True)
class Report(TabularReport):
    """The result of an audit.

    Attributes:
        mailboxes: Number of checked mailboxes.
        workspaces, unreadable: Ids of the workspaces, without duplicates,
            and of those that could not be read completely.
        findings: The findings: the worst first, then in the order of
            workspaces, mailboxes and rules.
        scores: Scores overall, by workspace and by domain.
        denied: True if nothing could be read because the service responded
            with 401 or 403 for every workspace.
        at: Time of the audit, in Unix seconds.
        service_clock: True if `at` is the service's time, because its
            clock and the local clock differ by more than a minute. Of
            several services, the first workspace's that has answered.
        policy, not_judged: The policy of the audit, and descriptions of
            what it cannot check, such as complaint rates.
        groups, totals: Groups of mailboxes by workspace, domain, type and
            server_ip, the lowest score first, at most 1,000 of each kind;
            and the number of all groups of each kind.
        rows: Mailboxes with findings, the lowest score first, up to 1,000.
        actions: What to do with each mailbox that needs something, those
            to stop first.
        diff: Changes since an earlier audit; `None` if the report was not
            compared with an earlier report.
        history: Scores and counts of at most 100 earlier audits, oldest
            first, which `since` collects.
        last_read: Times in Unix seconds of the last complete readings, by
            id of the workspace; only in `History.baseline`.
        campaigns: The campaigns and their totals; `None` if the audit did
            not read campaigns.
        names: Names of workspaces by id, of those that have a name.

    Example:
        ```python
        print(report.mailboxes, report.scores.overall, [finding.rule for finding in report.findings])  # -> 2 74.5 ['OA101']
        ```
    """

    mailboxes: int
    unreadable: list[str]
    findings: list[Finding]
    scores: Scores
    workspaces: list[str] = attrs.field(factory=list)
    denied: bool = False
    at: float = attrs.field(default=0.0, validator=require_time)
    policy: Policy = attrs.field(factory=Policy)
    groups: list[Group] = attrs.field(factory=list)
    totals: dict[GroupKind, int] = attrs.field(factory=dict)
    rows: list[Row] = attrs.field(factory=list)
    actions: list[MailboxAction] = attrs.field(factory=list)
    not_judged: list[str] = attrs.field(factory=lambda: list(UNKNOWABLE))
    diff: Diff | None = None
    history: list[HistoryPoint] = attrs.field(factory=list)
    last_read: dict[str, float] = attrs.field(factory=dict)
    campaigns: CampaignResults | None = None
    names: dict[str, str] = attrs.field(factory=dict)
    service_clock: bool = False

    def __repr__(self) -> str:
        """Show numbers only: Python 3.11 and 3.12 build it in `asyncio.run`."""
        counts = " ".join(f"{severity}={count}" for severity, count in self.counts.items())
        scope = f"workspaces={len(self.workspaces)} unreadable={len(self.unreadable)} mailboxes={self.mailboxes}"
        return f"<{type(self).__name__} {scope} score={self.scores.overall} {counts}>"

    def _table(self) -> Sequence[Any]:
        return self.findings

    @property
    def counts(self) -> dict[Severity, int]:
        """Number of findings by severity, the worst severity first."""
        counted = Counter(finding.severity for finding in self.findings)
        return {severity: counted[severity] for severity in Severity}

    def name_of(self, workspace: str) -> str:
        """Return the name of a workspace; its id if it has no name.

        Example:
            ```python
            print(report.name_of("space_1"))  # -> space_1
            ```
        """
        return self.names.get(workspace, workspace)

    def subject_of(self, finding: Finding) -> str:
        """Return what a finding is about: an address or a name.

        The name is of a campaign, a domain, a server or a workspace.

        Example:
            ```python
            print(report.subject_of(report.findings[0]))  # -> bob@north.example
            ```
        """
        return subject_name(finding, self.names)

    @property
    def incomplete(self) -> bool:
        """True if something, such as a mailbox, could not be read or checked."""
        return any(finding.rule in INCOMPLETE for finding in findings_of(self, Severity.ERROR))

    def exit_code(self, fail_on: str = "error") -> int:
        """Return an exit code: 0 clean, 1 findings, 3 incomplete, 77 denied.

        A report that is incomplete has 3 even with findings. It has 77
        only if the service denied access to every workspace.

        Args:
            fail_on: The mildest severity that results in exit code 1.

        Raises:
            InvalidRequest: `fail_on` is not the name of a severity.

        Example:
            ```python
            print(report.exit_code(), report.exit_code("critical"))  # -> 1 0
            ```
        """
        require_types(Report.exit_code, locals())
        if fail_on not in list(Severity):
            raise InvalidRequest(f"severity: expected one of {', '.join(Severity)}, got {show_name(fail_on)}; pass one of them")
        if self.denied:
            return 77
        if self.incomplete:
            return 3
        bar = Severity(fail_on)
        return int(any(count and severity.reaches(bar) for severity, count in self.counts.items()))

    def since(self, earlier: Report, *others: Report) -> Report:
        """Return a copy of this report with the changes since an earlier one.

        Findings of the copy are `new` or `unchanged`. If both have
        campaigns, the copy also has a finding for each live campaign whose
        estimated end slipped (`OA204`). Of several earlier reports, `diff`
        compares with the latest; `history` covers them all.

        Example:
            ```python
            print((await audit(client, ["space_1"])).since(report).findings[0].state)  # -> unchanged
            ```
        """
        reports, later = [earlier, *others], self
        latest = max(reports, key=lambda report: report.at)
        if latest.campaigns is not None and self.campaigns is not None:
            rules = rules_about(self.policy, "comparison")
            campaigns, found = compare_campaigns(latest.campaigns, self.campaigns, self.findings, rules)
            later = attrs.evolve(self, campaigns=campaigns, findings=found)
        findings, diff = _compare_reports(latest, later)
        points = {(point.at, point.scope): point for report in reports for point in (*report.history, history_point(report))}
        history = sorted((point for point in points.values() if 0 < point.at < self.at), key=lambda point: point.at)
        names = {**latest.names, **self.names}
        return attrs.evolve(later, findings=findings, diff=diff, history=history[-MAX_HISTORY:], names=names)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible values, for `from_dict`.

        Example:
            ```python
            Path("audit.json").write_text(json.dumps(report.to_dict()))
            ```
        """
        changes = {"changes": attrs.asdict(self.diff.counts) if self.diff else None}
        values = {**to_json_values(attrs.evolve(self, findings=[])), "findings": [each.to_dict() for each in self.findings]}
        counts = {severity.value: count for severity, count in self.counts.items()}
        return {"version": REPORT_VERSION, **values, "counts": counts, **changes}

    @classmethod
    def from_dict(cls, values: object) -> Self:
        """Create a report from JSON values.

        Optional keys may be missing, as in early reports of version 1.

        Raises:
            InvalidRequest: The values are not a report, or have an unknown
                version.

        Example:
            ```python
            print(Report.from_dict(report.to_dict()) == report)  # -> True
            ```
        """
        if not isinstance(values, dict) or values.get("version") != REPORT_VERSION:
            got = f"version {shorten(repr(values.get('version')), 40)}" if isinstance(values, dict) else type_name(values)
            raise InvalidRequest(
                f"report: expected audit JSON of version {REPORT_VERSION}, got {got}; pass the output of `audit --json`"
            )
        try:
            return msgspec.convert(values, cls)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:  # the latter of a lone surrogate
            raise InvalidRequest(f"report: not the JSON of an audit ({error}); pass the output of `audit --json`") from None


def findings_of(report: Report, severity: Severity) -> list[Finding]:
    return [finding for finding in report.findings if finding.severity is severity]


def history_point(report: Report) -> HistoryPoint:
    scope = blake2b("\n".join(sorted(report.workspaces)).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    score, counts = report.scores.overall, report.counts
    return HistoryPoint(at=report.at, score=score, mailboxes=report.mailboxes, counts=counts, scope=scope)


def _compare_reports(earlier: Report, later: Report) -> tuple[list[Finding], Diff]:
    # Two findings match if they have the same rule and the same subject. Mailboxes, campaigns and steps are matched by id, first
    # within the same workspace, then across workspaces. Findings about several mailboxes are matched by their domain, server or
    # workspace.
    matches, gone = match_findings(earlier.findings, later.findings)
    findings = [
        attrs.evolve(after, state="unchanged" if before else "new") for before, after in zip(matches, later.findings, strict=True)
    ]
    pairs = [(before, after) for before, after in zip(matches, findings, strict=True) if before]
    is_unchecked = find_unchecked(later)
    was_covered, is_covered = set(earlier.workspaces), set(later.workspaces)
    return findings, Diff(
        at=earlier.at,
        new=[finding for finding in findings if finding.state == "new"],
        unchanged=[after for _, after in pairs],
        resolved=[attrs.evolve(finding, state="resolved") for finding in gone if not is_unchecked(finding)],
        not_judged=[attrs.evolve(finding, state=None) for finding in gone if is_unchecked(finding)],
        deltas=[delta for before, after in pairs for delta in _changed_figures(before, after)],
        scores=list(_changed_scores(earlier, later)),
        # An early report of version 1 does not list the workspaces it covers.
        added_workspaces=[each for each in later.workspaces if each not in was_covered] if was_covered else [],
        removed_workspaces=[each for each in earlier.workspaces if each not in is_covered],
    )


def match_findings(earlier: Sequence[Finding], later: Sequence[Finding]) -> tuple[list[Finding | None], list[Finding]]:
    # Findings in different workspaces match by the second key, which has the workspace only if the finding is about it.
    def exact_key(finding: Finding) -> Hashable:
        campaign = finding.campaign, finding.step
        return finding.rule, finding.workspace, finding.mailbox, finding.domain, finding.server_ip, finding.email, campaign

    def subject_key(finding: Finding) -> Hashable:
        shared = finding.step or finding.campaign or finding.domain or finding.server_ip
        return finding.rule, finding.mailbox or shared or finding.email or ("workspace", finding.workspace)

    matches: list[Finding | None] = [None] * len(later)
    left = dict(enumerate(earlier))
    for key in (exact_key, subject_key):
        waiting: defaultdict[Hashable, deque[int]] = defaultdict(deque)
        for place, finding in left.items():
            waiting[key(finding)].append(place)
        for index, finding in enumerate(later):
            if matches[index] is None and waiting[key(finding)]:
                matches[index] = left.pop(waiting[key(finding)].popleft())
    return matches, list(left.values())


def find_unchecked(report: Report) -> Callable[[Finding], bool]:
    """Return a check whether an earlier finding may still apply, although the later `report` does not contain it."""
    # An audit does not check everything: rules may be off, and workspaces or mailboxes may not have been read.
    errors = [finding for finding in report.findings if finding.rule in INCOMPLETE]
    unread = [finding for finding in errors if finding.rule not in ABOUT_CAMPAIGNS]
    about_campaigns = [finding for finding in errors if finding.rule in ABOUT_CAMPAIGNS]
    unread_campaigns = {(finding.workspace, finding.campaign) for finding in about_campaigns}
    # If no mailbox of a workspace could be read, its campaigns were not read either, and no finding reports this.
    unread_campaigns |= {(finding.workspace, None) for finding in unread if finding.rule == UNREADABLE.id}
    mailboxes = {finding.mailbox for finding in unread if finding.mailbox is not None}
    workspaces = {finding.workspace for finding in unread if finding.mailbox is None}
    off, checked = set(report.policy.off), set(report.workspaces) - workspaces

    def is_unchecked(finding: Finding) -> bool:
        if finding.rule in off or finding.workspace not in checked:
            return True
        if finding.campaign is not None or finding.rule in ABOUT_CAMPAIGNS:
            subjects = {(finding.workspace, finding.campaign), (finding.workspace, None)}
            return report.campaigns is None or not subjects.isdisjoint(unread_campaigns)
        return finding.mailbox in mailboxes or (finding.mailbox is None and bool(unread))

    return is_unchecked


SEVERITY_LEVELS: Final = {severity: len(Severity) - severity.rank for severity in Severity}  # a higher number is a worse severity


def _changed_figures(before: Finding, after: Finding) -> Iterator[Delta]:
    old, new = ({"severity": SEVERITY_LEVELS[finding.severity], **finding.figures} for finding in (before, after))
    if after.campaign is not None:
        kind: SubjectKind = "campaign" if after.step is None else "step"
    else:
        scope = CATALOGUE[after.rule].scope if after.rule in CATALOGUE and after.mailbox is None else "mailbox"
        kind = cast("SubjectKind", scope)
    key = after.mailbox or after.step or after.campaign or after.domain or after.server_ip or after.workspace
    about: dict[str, Any] = {"kind": kind, "key": key, "name": after.email or after.campaign_name or key, "rule": after.rule}
    for figure in dict.fromkeys([*old, *new]):
        if old.get(figure) != new.get(figure):
            yield Delta(**about, figure=figure, before=old.get(figure), after=new.get(figure))


def _changed_scores(earlier: Report, later: Report) -> Iterator[Delta]:
    old, new = _report_figures(earlier), _report_figures(later)
    for kind, key, figure in dict.fromkeys([*new, *old]):
        before, after = old.get((kind, key, figure)), new.get((kind, key, figure))
        if before != after:
            name = later.name_of(key) if kind == "workspace" else key
            yield Delta(kind=kind, key=key, name=name, figure=figure, before=before, after=after)


def _report_figures(report: Report) -> dict[tuple[SubjectKind, str, str], Number | None]:
    figures: dict[tuple[SubjectKind, str, str], Number | None] = {("audit", "", "score"): report.scores.overall}
    figures["audit", "", "mailboxes"] = report.mailboxes
    if report.campaigns is not None:
        figures["audit", "", "campaigns"] = report.campaigns.checked
    figures |= {("audit", "", severity.value): count for severity, count in report.counts.items()}
    figures |= {("workspace", key, "score"): score.score for key, score in report.scores.workspaces.items()}
    figures |= {("domain", key, "score"): score.score for key, score in report.scores.domains.items()}
    return figures
