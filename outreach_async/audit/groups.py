"""Groups of mailboxes with the same workspace, domain, type or sending server, and rows of mailboxes with findings."""

from __future__ import annotations

from typing import Final, Literal

import attrs

from outreach_async.audit.findings import Severity
from outreach_async.models import Number

Kind = Literal["workspace", "domain", "type", "server_ip"]

KINDS: Final[tuple[Kind, ...]] = ("workspace", "domain", "type", "server_ip")

GROUPS_KEPT: Final = 1_000
"""Maximum groups of one kind in a report, the worst ones; a million mailboxes may use a quarter of a million domains."""

ROWS_KEPT: Final = 1_000
"""Maximum mailboxes that a report lists individually, the worst ones."""


@attrs.frozen(kw_only=True)
class Group:
    """A group of mailboxes with the same workspace, domain, type or sending server.

    Attributes:
        kind: The property that the mailboxes share.
        key: The workspace id, the domain, the type as the service returned it, or the server's address.
        mailboxes: Number of checked mailboxes; a mailbox listed in two workspaces counts twice.
        score: Score from 0 to 100.
        severity: Severity of the worst finding; `None` if there are no findings.
        counts: Number of findings by severity, about single mailboxes and about the group.
        sent_30days: E-mails sent in 30 days.
        daily_limit: Sum of the daily limits, in e-mails per day.

    Example:
        ```python
        report = await audit(client, ["space_1"])
        print([(group.key, group.mailboxes, group.score) for group in report.groups if group.kind == "domain"])
        # -> [('north.example', 2, 89.8)]
        ```
    """

    kind: Kind
    key: str
    mailboxes: int
    score: float
    severity: Severity | None
    counts: dict[Severity, int]
    sent_30days: Number
    daily_limit: Number


@attrs.frozen(kw_only=True)
class Row:
    """A mailbox with findings, for tables and charts. Invalid figures are 0.

    Attributes:
        id: Id of the mailbox.
        email: Address of the mailbox.
        workspace: Id of the workspace.
        domain: Part of the address after the `@`, in lower case.
        type: Type as the service returned it.
        status: Status as the service returned it.
        server_ip: Address of the sending server.
        score: Score from 0 to 100.
        severity: Severity of the worst finding.
        rules: Ids of the rules that apply.
        daily_limit: Maximum e-mails per day.
        sent_today: E-mails sent today.
        sent_30days: E-mails sent in 30 days.
        bounced_30days: E-mails bounced in 30 days.
        blacklists: Number of blacklists that list the mailbox.
        opened_14days: Open rate of the last 14 days, in percent.
        avg_open_rate: Average open rate, in percent.

    Example:
        ```python
        report = await audit(client, ["space_1"])
        print([(row.email, row.score, row.rules) for row in report.rows])  # -> [('bob@north.example', 80, ['OA101'])]
        ```
    """

    id: str
    email: str
    workspace: str
    domain: str | None
    type: str
    status: str
    server_ip: str
    score: int
    severity: Severity
    rules: list[str]
    daily_limit: Number
    sent_today: Number
    sent_30days: Number
    bounced_30days: Number
    blacklists: Number
    opened_14days: Number
    avg_open_rate: Number
