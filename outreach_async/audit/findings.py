"""What an audit says of a mailbox: how bad, what, and what to do about it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import attrs

from outreach_async.errors import InvalidRequest
from outreach_async.models import Number

Confidence = Literal["high", "low"]


class Severity(StrEnum):
    """How bad a finding is, the worst first."""

    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)

    def reaches(self, bar: Severity) -> bool:
        """Tell whether this is as bad as the bar, or worse."""
        return self.rank <= bar.rank

    @classmethod
    def named(cls, name: str) -> Severity:
        """Return the severity of that name.

        Raises:
            InvalidRequest: There is none.
        """
        if name not in list(cls):
            raise InvalidRequest(f"severity: expected one of {', '.join(cls)}, got {name!r}; pass one of them")
        return cls(name)


@attrs.frozen(kw_only=True)
class Finding:
    """One thing found, ready for a report.

    Attributes:
        rule: Id of the rule, such as `OA101`.
        severity: How bad it is.
        workspace: Id of the workspace.
        mailbox: Id of the mailbox; `None` where the finding is about a workspace, or the id could not be read.
        email: Address of the mailbox, as the service spells it.
        domain: What follows the `@`, in lower case.
        message: What was found, with its figures.
        remedy: What to do.
        confidence: `low` where the figures are too few to be sure.
        sent_30days: How much the mailbox weighs in a score; `None` where the finding deducts nothing from any.
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

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        return {**attrs.asdict(self), "severity": self.severity.value}
