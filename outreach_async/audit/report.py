"""The outcome of an audit as one value: what was found, how it scores, and what a command exits with."""

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
"""Of the JSON's shape."""

CLEAN: Final = 0
FOUND: Final = 1
UNFINISHED: Final = 3
DENIED: Final = 77


@attrs.frozen(kw_only=True)
class Report:
    """What an audit found.

    Attributes:
        mailboxes: How many mailboxes were judged.
        unreadable: Ids of the workspaces that could not be read to their end.
        findings: In the order of workspaces, mailboxes and rules; those about domains and servers come last.
        scores: Over all, by workspace and by domain.
        workspaces: Ids of the workspaces, in the order given, each once.
        denied: Whether nothing could be read because the service answered 401 or 403 for every workspace.
        at: When the audit was made, Unix seconds.
        policy: What it was judged by.
        groups: Mailboxes by workspace, domain, type and server_ip, the worst first; of one kind 1,000 at most.
        totals: How many groups of each kind there are.
        rows: The mailboxes that something was found about, the worst first; 1,000 at most.
        not_judged: What the service's fields cannot tell.
        diff: What changed since an earlier audit, if it was compared with one.

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
        """Whether something could not be read, and so was not judged."""
        return any(finding.rule in INCOMPLETE for finding in self.findings)

    def exit_code(self, fail_on: str = "error") -> int:
        """Return what a command exits with: 0 clean, 1 findings, 3 incomplete (which beats 1), 77 nothing allowed.

        Args:
            fail_on: The mildest severity that counts.

        Raises:
            InvalidRequest: It is no severity.

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
        """Return this report with what changed since an earlier one; its findings are `new` or `unchanged`.

        Example:
            ```python
            report = await audit(client, ["space_1"])
            print((await audit(client, ["space_1"])).since(report).findings[0].state)  # -> unchanged
            ```
        """
        findings, diff = compare(earlier, self)
        return attrs.evolve(self, findings=findings, diff=diff)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values, which `from_dict` reads back.

        Example:
            ```python
            report = await audit(client, ["space_1"])
            Path("audit.json").write_text(json.dumps(report.to_dict()))
            ```
        """
        return {"version": VERSION, **plain(self)}

    @classmethod
    def from_dict(cls, values: object) -> Self:
        """Read a report back from JSON values; those of the first version of the shape lacked most members.

        Raises:
            InvalidRequest: They are no report, or one of a shape that is not known yet.

        Example:
            ```python
            report = await audit(client, ["space_1"])
            print(Report.from_dict(report.to_dict()) == report)  # -> True
            ```
        """
        version = values.get("version") if isinstance(values, dict) else None
        if version != VERSION:
            raise InvalidRequest(f"report: expected the JSON of an audit of version {VERSION}; pass what `audit --json` wrote")
        try:
            return msgspec.convert(values, cls)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"report: {error}; pass what `audit --json` wrote") from None
