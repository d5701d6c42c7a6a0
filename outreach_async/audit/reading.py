"""Reading the mailboxes of many workspaces side by side; a workspace that cannot be read is a value, not an exception."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import anyio
import attrs

from outreach_async.audit.conditions import domain_of
from outreach_async.audit.findings import Finding
from outreach_async.audit.rules import MISSING, UNDECODABLE, UNREADABLE, Rule
from outreach_async.client import OutreachClient
from outreach_async.errors import OutreachError
from outreach_async.models import Mailbox, Undecodable

_WORKSPACES_AT_ONCE: Final = 8
_PAGES_AT_ONCE: Final = 4
"""Of one workspace. The client's limiter bounds all of them; these bound how many pages wait for it, or are held undecoded."""

_FAULTS_SHOWN: Final = 400
"""Characters of a fault that a message repeats: an item may have as many faults as fields."""


@attrs.frozen(kw_only=True)
class Reading:
    """What came of reading one workspace.

    Attributes:
        workspace: Its id.
        mailboxes: Each once, in the list's order.
        undecodable: Mailboxes that are not what the interface says, each once where an id tells.
        missing: Mailboxes that the service counts and did not show.
        error: Why it could not be read.
    """

    workspace: str
    mailboxes: Sequence[Mailbox] = ()
    undecodable: Sequence[Undecodable] = ()
    missing: int = 0
    error: OutreachError | None = None


async def read_all(client: OutreachClient, workspaces: Sequence[str], *, display: int) -> list[Reading]:
    """Read every mailbox of the workspaces; the order is theirs, whatever ends first."""
    readings: dict[str, Reading] = {}
    waiting = iter(workspaces)

    async def work() -> None:
        for workspace in waiting:  # shared by all workers: each takes the next one
            readings[workspace] = await _read(client, workspace, display)

    async with anyio.create_task_group() as group:
        for _ in range(min(_WORKSPACES_AT_ONCE, len(workspaces))):
            group.start_soon(work)
    return [readings[workspace] for workspace in workspaces]


async def _read(client: OutreachClient, workspace: str, display: int) -> Reading:
    try:
        pager = client.mailboxes.list(workspace=workspace, display=display, undecodable="keep")
        found = await pager.collect(prefetch=_PAGES_AT_ONCE)
    except OutreachError as error:
        return Reading(workspace=workspace, error=error)
    return Reading(workspace=workspace, mailboxes=found, undecodable=found.undecodable, missing=found.missing)


def findings_of(reading: Reading) -> list[Finding]:
    """Return what went wrong with the reading itself."""
    workspace = reading.workspace
    found = [_undecodable(workspace, item) for item in reading.undecodable]
    if reading.error is not None:
        found.append(_finding(UNREADABLE, workspace, f"could not be read: {_short(str(reading.error))}"))
    if reading.missing:
        found.append(_finding(MISSING, workspace, f"the service counts {reading.missing:,} more than its pages showed"))
    return found


def _undecodable(workspace: str, item: Undecodable) -> Finding:
    given = item.fields.get("email")
    email = given if isinstance(given, str) else None
    domain = None if email is None else domain_of(email)
    message = f"not what the interface says: {_short(item.error)}"
    return _finding(UNDECODABLE, workspace, message, mailbox=item.id, email=email, domain=domain)


def _finding(rule: Rule, workspace: str, message: str, **about: Any) -> Finding:
    return Finding(rule=rule.id, severity=rule.severity, workspace=workspace, message=message, remedy=rule.remedy, **about)


def _short(text: str) -> str:
    return text if len(text) <= _FAULTS_SHOWN else f"{text[:_FAULTS_SHOWN]}..."
