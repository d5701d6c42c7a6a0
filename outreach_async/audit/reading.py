"""Reading the mailboxes of many workspaces side by side; a workspace that cannot be read is a value, not an exception."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import anyio
import attrs

from outreach_async.audit.conditions import domain_of
from outreach_async.audit.digests import Digests
from outreach_async.audit.findings import Finding
from outreach_async.audit.rules import MISSING, UNDECODABLE, UNREADABLE, Rule
from outreach_async.client import OutreachClient
from outreach_async.errors import OutreachError
from outreach_async.models import Mailbox, Undecodable
from outreach_async.pages import Walk

_WORKSPACES_AT_ONCE: Final = 8
_LARGE_AT_ONCE: Final = 2
"""Workspaces of more than one page: a page of 2,000 mailboxes takes 4 MB while it is decoded."""
_PAGES_AT_ONCE: Final = 2
"""Of one workspace. The client's limiter bounds the requests; this bounds what is held."""

_FAULTS_SHOWN: Final = 400
"""Characters of a fault that a message repeats: an item may have as many faults as fields."""

Take = Callable[[str, list[Mailbox]], Awaitable[None]]
"""Takes mailboxes of the workspace of that id."""


@attrs.frozen(kw_only=True)
class Reading:
    """What came of reading one workspace, beside its mailboxes.

    Attributes:
        workspace: Its id.
        mailboxes: How many were read.
        undecodable: Mailboxes that are not what the interface says, each once where an id tells.
        missing: Mailboxes that the service counts and did not show.
        error: Why it could not be read to the end.
    """

    workspace: str
    mailboxes: int = 0
    undecodable: Sequence[Undecodable] = ()
    missing: int = 0
    error: OutreachError | None = None

    def findings(self) -> list[Finding]:
        """Return what went wrong with the reading itself."""
        found = [_undecodable(self.workspace, item) for item in self.undecodable]
        if self.error is not None:
            whole = f" to its end, {self.mailboxes:,} of its mailboxes were" if self.mailboxes else ""
            found.append(_finding(UNREADABLE, self.workspace, f"could not be read{whole}: {_short(str(self.error))}"))
        if self.missing:
            message = f"the service counts {self.missing:,} more than its pages showed"
            found.append(_finding(MISSING, self.workspace, message))
        return found


class Reader:
    """Reads workspaces.

    Args:
        client: Where to read.
        display: Mailboxes per page.
        take: Is given each page's mailboxes, each mailbox once; pages of one workspace come in the list's order.
    """

    def __init__(self, client: OutreachClient, display: int, take: Take) -> None:
        self._client = client
        self._display = display
        self._take = take
        self._large = anyio.Semaphore(_LARGE_AT_ONCE)

    async def read(self, workspaces: Sequence[str]) -> list[Reading]:
        """Read every mailbox of the workspaces; the order is theirs, whatever ends first."""
        readings: dict[str, Reading] = {}
        waiting = iter(workspaces)

        async def work() -> None:
            for workspace in waiting:  # shared by all workers: each takes the next one
                readings[workspace] = await self._read(workspace)

        async with anyio.create_task_group() as group:
            for _ in range(min(_WORKSPACES_AT_ONCE, len(workspaces))):
                group.start_soon(work)
        return [readings[workspace] for workspace in workspaces]

    async def _read(self, workspace: str) -> Reading:
        walk: Walk[Mailbox] = Walk(1, met=Digests())
        seen = _Seen(workspace, walk, self._take, self._large)
        try:
            pager = self._client.mailboxes.list(workspace=workspace, display=self._display, undecodable="keep")
            await pager.follow(walk, seen.take, _PAGES_AT_ONCE)
        except OutreachError as error:
            return Reading(workspace=workspace, mailboxes=seen.mailboxes, undecodable=walk.undecodable, error=error)
        finally:
            seen.close()
        return Reading(workspace=workspace, mailboxes=seen.mailboxes, undecodable=walk.undecodable, missing=walk.missing)


class _Seen:
    """The pages of one workspace, passed on; before its second one it waits until few others are as large."""

    def __init__(self, workspace: str, walk: Walk[Mailbox], take: Take, large: anyio.Semaphore) -> None:
        self.mailboxes = 0
        self._workspace = workspace
        self._walk = walk
        self._take = take
        self._large = large
        self._is_large = False

    async def take(self, mailboxes: list[Mailbox]) -> None:
        self.mailboxes += len(mailboxes)
        await self._take(self._workspace, mailboxes)
        if not self._walk.done and not self._is_large:
            await self._large.acquire()
            self._is_large = True

    def close(self) -> None:
        if self._is_large:
            self._large.release()


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
