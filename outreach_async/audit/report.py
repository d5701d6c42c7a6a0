"""The outcome of an audit as one value: what was found, how it scores, and what a command exits with."""

from __future__ import annotations

from typing import Any, Final

import attrs

from outreach_async.audit.findings import Finding, Severity
from outreach_async.audit.rules import INCOMPLETE
from outreach_async.audit.scores import Scores

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
        workspaces: Ids of the workspaces, in the order given, each once.
        mailboxes: How many mailboxes were judged.
        unreadable: Ids of the workspaces that could not be read.
        findings: In the order of workspaces, mailboxes and rules.
        scores: Over all, by workspace and by domain.
        denied: Whether nothing could be read because the service answered 401 or 403 for every workspace.
    """

    workspaces: list[str]
    mailboxes: int
    unreadable: list[str]
    findings: list[Finding]
    scores: Scores
    denied: bool = False

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
        """
        bar = Severity.named(fail_on)
        if self.denied:
            return DENIED
        if self.incomplete:
            return UNFINISHED
        return FOUND if any(finding.severity.reaches(bar) for finding in self.findings) else CLEAN

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "version": VERSION,
            "mailboxes": self.mailboxes,
            "unreadable": list(self.unreadable),
            "findings": [finding.to_dict() for finding in self.findings],
            "scores": self.scores.to_dict(),
        }
