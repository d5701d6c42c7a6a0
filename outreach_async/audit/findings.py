"""Findings of an audit: severity, message and remedy."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, Literal

import attrs

from outreach_async.audit.plain import plain
from outreach_async.errors import InvalidRequest
from outreach_async.models import Number

Confidence = Literal["high", "low"]

State = Literal["new", "unchanged", "resolved"]
"""State of a finding compared with an earlier audit; the values are those of SARIF's `baselineState`."""


class Severity(StrEnum):
    """Severity of a finding, in order from the worst.

    Example:
        ```python
        print([severity.value for severity in Severity], Severity.ERROR.rank)  # -> ['critical', 'error', 'warning', 'info'] 1
        ```
    """

    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """Position in the order of severity; 0 is the worst."""
        return _RANKS[self]

    def reaches(self, bar: Severity) -> bool:
        """Return whether this severity is as bad as `bar`, or worse.

        Example:
            ```python
            print(Severity.CRITICAL.reaches(Severity.ERROR), Severity.INFO.reaches(Severity.ERROR))  # -> True False
            ```
        """
        return self.rank <= bar.rank

    @classmethod
    def named(cls, name: str) -> Severity:
        """Return the severity with this name.

        Raises:
            InvalidRequest: No severity has this name.

        Example:
            ```python
            print(Severity.named("warning") is Severity.WARNING)  # -> True
            ```
        """
        if name not in list(cls):
            raise InvalidRequest(f"severity: expected one of {', '.join(cls)}, got {name!r}; pass one of them")
        return cls(name)


_RANKS: Final = {severity: rank for rank, severity in enumerate(Severity)}


@attrs.frozen(kw_only=True)
class Finding:
    """A problem that an audit found.

    Attributes:
        rule: Id of the rule, such as `OA101`.
        severity: Severity of the finding.
        workspace: Id of the workspace.
        mailbox: Id of the mailbox; `None` if the finding is about several mailboxes (the rule's `scope` says what they share), or
            if the id could not be read.
        email: Address of the mailbox, as the service returned it.
        domain: Part of the address after the `@`, in lower case.
        message: Description of the problem, with its figures.
        remedy: Recommended action.
        confidence: `low` if the sample is too small to be certain.
        sent_30days: Weight of the finding's subject in a score; `None` if the finding does not affect any score.
        server_ip: Address of the sending server, if the finding is about the mailboxes that share it.
        figures: The numbers behind the finding, under the service's field names where it has one.
        state: State compared with an earlier audit; `None` if the report was not compared.

    Example:
        ```python
        (finding,) = check((await client.mailboxes.list()).data[1])
        print(finding.rule, finding.severity, finding.message)  # -> OA101 error no SPF record
        ```
    """

    rule: str
    severity: Severity
    workspace: str
    mailbox: str | None = None
    email: str | None = None
    domain: str | None = None
    message: str
    remedy: str
    confidence: Confidence = "high"
    sent_30days: Number | None = None
    server_ip: str | None = None
    figures: dict[str, Number] = attrs.field(factory=dict, hash=False)
    state: State | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON-compatible values.

        Example:
            ```python
            (finding,) = check((await client.mailboxes.list()).data[1])
            print(finding.to_dict()["email"])  # -> bob@north.example
            ```
        """
        values: dict[str, Any] = plain(self)
        return values
