"""Concurrent reading of the mailboxes of many workspaces. A workspace that cannot be read is a result, not an exception."""

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
"""Maximum workspaces with more than one page read at a time; a page of 2,000 mailboxes takes 4 MB while it is decoded."""
_PAGES_AT_ONCE: Final = 2
"""Maximum pages of one workspace in flight. The client's limiter bounds the requests; this limit bounds the memory."""

_FAULTS_SHOWN: Final = 400
"""Maximum characters of an error in a message; a mailbox may have as many errors as fields."""

Take = Callable[[str, list[Mailbox]], Awaitable[None]]
"""Callback that receives a workspace id and mailboxes of that workspace."""


@attrs.frozen(kw_only=True)
class Reading:
    """Result of reading one workspace, without its mailboxes.

    Attributes:
        workspace: Id of the workspace.
        mailboxes: Number of mailboxes read.
        undecodable: Mailboxes that do not match the interface; each is listed once if its id is readable.
        missing: Number of mailboxes that `total_found` counts but the pages did not contain.
        error: The error that ended the reading early; `None` if the workspace was read completely.
    """

    workspace: str
    mailboxes: int = 0
    undecodable: Sequence[Undecodable] = ()
    missing: int = 0
    error: OutreachError | None = None

    def findings(self) -> list[Finding]:
        """Return the findings about the reading itself."""
        found = [_undecodable(self.workspace, item) for item in self.undecodable]
        if self.error is not None:
            whole = f" completely (mailboxes read: {self.mailboxes:,})" if self.mailboxes else ""
            found.append(_finding(UNREADABLE, self.workspace, f"could not be read{whole}: {_short(str(self.error))}"))
        if self.missing:
            message = f"the service reports more mailboxes than it listed (missing: {self.missing:,})"
            found.append(_finding(MISSING, self.workspace, message))
        return found


class Reader:
    """Reads workspaces.

    Args:
        client: Client to read with.
        display: Mailboxes per page.
        take: Callback for the mailboxes of each page; each mailbox is passed once, and pages of a workspace arrive in order.
    """

    def __init__(self, client: OutreachClient, display: int, take: Take) -> None:
        self._client = client
        self._display = display
        self._take = take
        self._large = anyio.Semaphore(_LARGE_AT_ONCE)

    async def read(self, workspaces: Sequence[str]) -> list[Reading]:
        """Read every mailbox of the workspaces; return the results in the order of `workspaces`."""
        readings: dict[str, Reading] = {}
        waiting = iter(workspaces)

        async def work() -> None:
            # All workers share this iterator. `next` does not await, and no two workers get the same workspace.
            for workspace in waiting:
                readings[workspace] = await self._read(workspace)

        async with anyio.create_task_group() as group:
            for _ in range(min(_WORKSPACES_AT_ONCE, len(workspaces))):
                group.start_soon(work)
        return [readings[workspace] for workspace in workspaces]

    async def _read(self, workspace: str) -> Reading:
        walk: Walk[Mailbox] = Walk(1, met=Digests())
        seen = _Seen(workspace, walk, self._take, self._large)
        try:
            # `keep` turns an unreadable mailbox into a finding; the default would end the whole workspace with an error.
            pager = self._client.mailboxes.list(workspace=workspace, display=self._display, undecodable="keep")
            await pager.follow(walk, seen.take, _PAGES_AT_ONCE)
        except OutreachError as error:
            return Reading(workspace=workspace, mailboxes=seen.mailboxes, undecodable=walk.undecodable, error=error)
        finally:
            seen.close()
        return Reading(workspace=workspace, mailboxes=seen.mailboxes, undecodable=walk.undecodable, missing=walk.missing)


class _Seen:
    """Passes on the pages of one workspace, and limits how many workspaces with several pages are read at a time."""

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
        # The size of a workspace is known only after its first page. Many small workspaces are read at a time, but a large one
        # waits here for a slot before its second page is taken. It holds the slot until it is read completely (see `close`).
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
    message = f"does not match the interface: {_short(item.error)}"
    return _finding(UNDECODABLE, workspace, message, mailbox=item.id, email=email, domain=domain)


def _finding(rule: Rule, workspace: str, message: str, **about: Any) -> Finding:
    return Finding(rule=rule.id, severity=rule.severity, workspace=workspace, message=message, remedy=rule.remedy, **about)


def _short(text: str) -> str:
    return text if len(text) <= _FAULTS_SHOWN else f"{text[:_FAULTS_SHOWN]}..."
