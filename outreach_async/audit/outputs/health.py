"""Number of mailboxes by worst finding and by score, and the share of e-mails sent by unsafe mailboxes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from outreach_async.audit.findings import Finding, Severity
from outreach_async.audit.report import Report
from outreach_async.audit.scores import FULL, mailbox_score
from outreach_async.models import Number

BANDS: Final = ((0, 19), (20, 39), (40, 59), (60, 79), (80, 99), (FULL, FULL))
"""Ranges of scores that are counted together, both ends included."""


@attrs.frozen(kw_only=True)
class Health:
    """Summary of the checked mailboxes.

    Attributes:
        boxes: Number of mailboxes by the severity of their worst finding.
        clean: Number of mailboxes without findings.
        bands: Number of mailboxes with a score in each of `BANDS`.
        unsafe_sent: E-mails sent in 30 days by mailboxes with a critical finding or an error.
        sent: E-mails sent in 30 days by all mailboxes.
    """

    boxes: Mapping[Severity, int]
    clean: int
    bands: Sequence[int]
    unsafe_sent: Number
    sent: Number

    @property
    def said(self) -> str | None:
        """The share of e-mails sent by unsafe mailboxes, in one sentence; `None` if it is zero or inconsistent."""
        if not 0 < self.unsafe_sent <= self.sent:
            return None
        share = 100 * self.unsafe_sent / self.sent
        return (
            f"Mailboxes to stop or fix sent {self.unsafe_sent:,.0f} of the {self.sent:,.0f} e-mails of the last 30 days "
            f"({share:.1f} %)."
        )


def health(report: Report) -> Health:
    """Summarize the checked mailboxes; findings about a domain or server as a whole are not included."""
    found = _by_mailbox(report.findings)
    worst = {
        key: min((each.severity for each in findings), key=lambda severity: severity.rank) for key, findings in found.items()
    }
    scores = Counter(_band(mailbox_score(findings)) for findings in found.values())
    clean = max(0, report.mailboxes - len(found))
    scores[_band(FULL)] += clean
    boxes = Counter(worst.values())
    unsafe = (found[key][0].sent_30days or 0 for key, severity in worst.items() if severity.reaches(Severity.ERROR))
    return Health(
        boxes={severity: boxes[severity] for severity in Severity},
        clean=clean,
        bands=[scores[at] for at in range(len(BANDS))],
        unsafe_sent=sum(unsafe),
        sent=sum(score.sent_30days for score in report.scores.workspaces.values()),
    )


def _by_mailbox(findings: Iterable[Finding]) -> dict[tuple[str, str], list[Finding]]:
    found: defaultdict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.mailbox is not None and finding.sent_30days is not None:
            found[finding.workspace, finding.mailbox].append(finding)
    return found


def _band(score: int) -> int:
    return next(at for at, (_, highest) in enumerate(BANDS) if score <= highest)
