"""What an audit says of a mailbox: how bad, what, and what to do about it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, Literal

import attrs

from outreach_async.audit.plain import plain
from outreach_async.errors import InvalidRequest
from outreach_async.models import Number

Confidence = Literal["high", "low"]

State = Literal["new", "unchanged", "resolved"]
"""What became of a finding since an earlier audit, in the words of SARIF's `baselineState`."""


class Severity(StrEnum):
    """How bad a finding is, the worst first.

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
        """0 for the worst."""
        return _RANKS[self]

    def reaches(self, bar: Severity) -> bool:
        """Tell whether this is as bad as the bar, or worse.

        Example:
            ```python
            print(Severity.CRITICAL.reaches(Severity.ERROR), Severity.INFO.reaches(Severity.ERROR))  # -> True False
            ```
        """
        return self.rank <= bar.rank

    @classmethod
    def named(cls, name: str) -> Severity:
        """Return the severity of that name.

        Raises:
            InvalidRequest: There is none.

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
    """One thing found, ready for a report.

    Attributes:
        rule: Id of the rule, such as `OA101`.
        severity: How bad it is.
        workspace: Id of the workspace.
        mailbox: Id of the mailbox; `None` where the finding is about several (its rule's `scope` says what they share), or the id
            could not be read.
        email: Address of the mailbox, as the service spells it.
        domain: What follows the `@`, in lower case.
        message: What was found, with its figures.
        remedy: What to do.
        confidence: `low` where the figures are too few to be sure.
        sent_30days: How much what the finding is about weighs in a score; `None` where the finding deducts nothing from any.
        server_ip: Address of the sending server, where the finding is about the mailboxes that share it.
        figures: What the finding rests on, by the wire's names where it has one for it.
        state: What became of it since the earlier audit; `None` where there was nothing to compare with.

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
        """Return the finding as JSON values.

        Example:
            ```python
            (finding,) = check((await client.mailboxes.list()).data[1])
            print(finding.to_dict()["email"])  # -> bob@north.example
            ```
        """
        values: dict[str, Any] = plain(self)
        return values
