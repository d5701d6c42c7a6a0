"""Mailboxes that share something: their workspace, their domain, their kind, their sending server."""

from __future__ import annotations

from typing import Final, Literal

import attrs

from outreach_async.audit.findings import Severity
from outreach_async.models import Number

Kind = Literal["workspace", "domain", "type", "server_ip"]

KINDS: Final[tuple[Kind, ...]] = ("workspace", "domain", "type", "server_ip")

GROUPS_KEPT: Final = 1_000
"""Groups of one kind that a report holds at most, the worst ones: somebody may have a domain for every fourth of a million."""

ROWS_KEPT: Final = 1_000
"""Mailboxes that a report shows one by one at most, the worst ones."""


@attrs.frozen(kw_only=True)
class Group:
    """What mailboxes that share something have in common.

    Attributes:
        kind: What they share.
        key: The workspace's id, the domain, the type as the service spells it, or the server's address.
        mailboxes: How many were judged; one that two workspaces show counts twice.
        score: From 0 to 100.
        severity: The worst finding's; `None` if there is none.
        counts: How many findings there are of each severity, about them one by one or together.
        sent_30days: What they sent.
        daily_limit: What they may send a day.

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
    """A mailbox that something was found about, for tables and charts. Figures that count nothing are 0.

    Attributes:
        id: Its id.
        email: Its address.
        workspace: Id of the workspace.
        domain: What follows the `@`, in lower case.
        type: As the service spells it.
        status: As the service spells it.
        server_ip: Address of its sending server.
        score: From 0 to 100.
        severity: The worst finding's.
        rules: Ids of the rules that found something.
        daily_limit: E-mails a day at most.
        sent_today: E-mails sent today.
        sent_30days: E-mails sent in 30 days.
        bounced_30days: E-mails bounced in 30 days.
        blacklists: Blacklists that name it.
        opened_14days: Opens of 14 days, in percent.
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
