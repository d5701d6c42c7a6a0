"""The report of an audit: findings, scores and the exit code for a command."""

from __future__ import annotations

from typing import Any, Final, Self

import attrs
import msgspec

from outreach_async.audit.diff import Diff, compare
from outreach_async.audit.findings import Finding, Severity
from outreach_async.audit.groups import Group, Kind, Row
from outreach_async.audit.plain import plain
from outreach_async.audit.policy import PolicyUsed
from outreach_async.audit.rules import INCOMPLETE, UNKNOWABLE
from outreach_async.audit.scores import Scores
from outreach_async.errors import InvalidRequest

VERSION: Final = 1
"""Version of the JSON format."""

CLEAN: Final = 0
FOUND: Final = 1
UNFINISHED: Final = 3
DENIED: Final = 77


@attrs.frozen(kw_only=True)
class Report:
    """The result of an audit.

    Attributes:
        mailboxes: Number of checked mailboxes.
        unreadable: Ids of the workspaces that could not be read completely.
        findings: Findings in the order of workspaces, mailboxes and rules; those about domains and servers come last.
        scores: Scores overall, by workspace and by domain.
        workspaces: Ids of the workspaces, in the order given, without duplicates.
        denied: Whether nothing could be read because the service answered 401 or 403 for every workspace.
        at: Time of the audit, in Unix seconds.
        policy: The policy of the audit.
        groups: Groups of mailboxes by workspace, domain, type and server_ip, the worst first; at most 1,000 of each kind.
        totals: Number of groups of each kind.
        rows: Mailboxes with findings, the worst first; at most 1,000.
        not_judged: Properties that the service's fields do not show and the audit cannot check.
        diff: Changes since an earlier audit; `None` if the report was not compared with one.

    Example:
        ```python
        report = await audit(client, ["space_1"])
        print(report.mailboxes, report.scores.overall, [finding.rule for finding in report.findings])  # -> 2 89.8 ['OA101']
        ```
    """

    mailboxes: int
    unreadable: list[str]
    findings: list[Finding]
    scores: Scores
    workspaces: list[str] = attrs.field(factory=list)
    denied: bool = False
    at: float = 0.0
    policy: PolicyUsed = attrs.field(factory=PolicyUsed)
    groups: list[Group] = attrs.field(factory=list)
    totals: dict[Kind, int] = attrs.field(factory=dict)
    rows: list[Row] = attrs.field(factory=list)
    not_judged: list[str] = attrs.field(factory=lambda: list(UNKNOWABLE))
    diff: Diff | None = None

    @property
    def incomplete(self) -> bool:
        """True if some mailboxes could not be read and were not checked."""
        return any(finding.rule in INCOMPLETE for finding in self.findings)

    def exit_code(self, fail_on: str = "error") -> int:
        """Return the exit code for a command: 0 clean, 1 findings, 3 incomplete (even with findings), 77 access denied.

        Args:
            fail_on: The mildest severity that counts as a finding.

        Raises:
            InvalidRequest: `fail_on` is not the name of a severity.

        Example:
            ```python
            report = await audit(client, ["space_1"])
            print(report.exit_code(), report.exit_code("critical"))  # -> 1 0
            ```
        """
        bar = Severity.named(fail_on)
        if self.denied:
            return DENIED
        if self.incomplete:
            return UNFINISHED
        return FOUND if any(finding.severity.reaches(bar) for finding in self.findings) else CLEAN

    def since(self, earlier: Report) -> Report:
        """Return this report with the changes since an earlier one; its findings are `new` or `unchanged`.

        Example:
            ```python
            report = await audit(client, ["space_1"])
            print((await audit(client, ["space_1"])).since(report).findings[0].state)  # -> unchanged
            ```
        """
        findings, diff = compare(earlier, self)
        return attrs.evolve(self, findings=findings, diff=diff)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible values; `from_dict` reads them back.

        Example:
            ```python
            report = await audit(client, ["space_1"])
            Path("audit.json").write_text(json.dumps(report.to_dict()))
            ```
        """
        return {"version": VERSION, **plain(self)}

    @classmethod
    def from_dict(cls, values: object) -> Self:
        """Create a report from JSON values. Optional members may be missing; early reports of version 1 lack most of them.

        Raises:
            InvalidRequest: The values are not a report, or have an unknown version.

        Example:
            ```python
            report = await audit(client, ["space_1"])
            print(Report.from_dict(report.to_dict()) == report)  # -> True
            ```
        """
        version = values.get("version") if isinstance(values, dict) else None
        if version != VERSION:
            raise InvalidRequest(f"report: expected audit JSON of version {VERSION}; pass the output of `audit --json`")
        try:
            return msgspec.convert(values, cls)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"report: {error}; pass the output of `audit --json`") from None
