"""Run an audit with `audit` or `stream`: workspaces -> mailboxes -> findings -> report."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, NoReturn, Self

import anyio
import attrs
from anyio.abc import TaskGroup

from outreach_async.audit.conditions import email_domain
from outreach_async.audit.evaluation import AuditState, CompactSet, FinalFindings
from outreach_async.audit.findings import Finding
from outreach_async.audit.policy import Policy
from outreach_async.audit.report import Report
from outreach_async.audit.rules import MISSING, UNDECODABLE, UNREADABLE, Rule
from outreach_async.audit.scoring import GroupScores
from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest, OutreachError, shorten
from outreach_async.models import Mailbox, Undecodable
from outreach_async.pagination import PageCursor
from outreach_async.retry import explain_status
from outreach_async.validation import require_display, type_name
from outreach_async.vocabulary import ID_PREFIXES, MAX_MAILBOX_DISPLAY

_WORKSPACES_AT_ONCE: Final = 8
_LARGE_AT_ONCE: Final = 2
"""Maximum workspaces with more than one page read at a time; a page of 2,000 mailboxes takes 4 MB while it is decoded."""
_PAGES_AT_ONCE: Final = 2
"""Maximum pages of one workspace in flight. The client's limiter bounds the requests; this limit bounds the memory."""

_MAX_ERROR_SHOWN: Final = 400
"""Maximum characters of an error in a message; a mailbox may have as many errors as fields."""

PageCallback = Callable[[str, list[Mailbox]], Awaitable[None]]
"""Callback that receives a workspace id and mailboxes of that workspace."""


@attrs.frozen(kw_only=True)
class WorkspaceReadResult:
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
        found = [_build_undecodable_finding(self.workspace, item) for item in self.undecodable]
        if self.error is not None:
            whole = f" completely (mailboxes read: {self.mailboxes:,})" if self.mailboxes else ""
            message = f"could not be read{whole}: {shorten(str(self.error), _MAX_ERROR_SHOWN)}"
            found.append(_build_reading_finding(UNREADABLE, self.workspace, message))
        if self.missing:
            message = f"the service reports more mailboxes than it listed (missing: {self.missing:,})"
            found.append(_build_reading_finding(MISSING, self.workspace, message))
        return found


class WorkspaceReader:
    """Reads workspaces.

    Args:
        client: Client to read with.
        display: Mailboxes per page.
        take: Callback for the mailboxes of each page; each mailbox is passed once, and pages of a workspace arrive in order.
    """

    def __init__(self, client: OutreachClient, display: int, take: PageCallback) -> None:
        self._client = client
        self._display = display
        self._on_page = take
        self._large_slots = anyio.Semaphore(_LARGE_AT_ONCE)

    async def read(self, workspaces: Sequence[str]) -> list[WorkspaceReadResult]:
        """Read every mailbox of the workspaces; return the results in the order of `workspaces`."""
        readings: dict[str, WorkspaceReadResult] = {}
        waiting = iter(workspaces)

        async def work() -> None:
            # All workers share this iterator. `next` does not await, and no two workers get the same workspace.
            for workspace in waiting:
                readings[workspace] = await self._read_workspace(workspace)

        async with anyio.create_task_group() as group:
            for _ in range(min(_WORKSPACES_AT_ONCE, len(workspaces))):
                group.start_soon(work)
        return [readings[workspace] for workspace in workspaces]

    async def _read_workspace(self, workspace: str) -> WorkspaceReadResult:
        walk: PageCursor[Mailbox] = PageCursor(1, met=CompactSet())
        seen = _PageSink(workspace, walk, self._on_page, self._large_slots)
        try:
            # `keep` turns an unreadable mailbox into a finding; the default would end the whole workspace with an error.
            pager = self._client.mailboxes.list(workspace=workspace, display=self._display, undecodable="keep")
            await pager.follow(walk, seen.add_page, _PAGES_AT_ONCE)
        except OutreachError as error:
            return WorkspaceReadResult(workspace=workspace, mailboxes=seen.mailboxes, undecodable=walk.undecodable, error=error)
        finally:
            seen.close()
        return WorkspaceReadResult(
            workspace=workspace, mailboxes=seen.mailboxes, undecodable=walk.undecodable, missing=walk.missing
        )


class _PageSink:
    """Passes on the pages of one workspace, and limits how many workspaces with several pages are read at a time."""

    def __init__(self, workspace: str, walk: PageCursor[Mailbox], take: PageCallback, large: anyio.Semaphore) -> None:
        self.mailboxes = 0
        self._workspace = workspace
        self._cursor = walk
        self._on_page = take
        self._large_slots = large
        self._is_large = False

    async def add_page(self, mailboxes: list[Mailbox]) -> None:
        self.mailboxes += len(mailboxes)
        await self._on_page(self._workspace, mailboxes)
        # The size of a workspace is known only after its first page. Many small workspaces are read at a time, but a large one
        # waits here for a slot before its second page is taken. It holds the slot until it is read completely (see `close`).
        if not self._cursor.done and not self._is_large:
            await self._large_slots.acquire()
            self._is_large = True

    def close(self) -> None:
        if self._is_large:
            self._large_slots.release()


def _build_undecodable_finding(workspace: str, item: Undecodable) -> Finding:
    given = item.fields.get("email")
    email = given if isinstance(given, str) else None
    domain = None if email is None else email_domain(email)
    message = f"does not match the interface: {shorten(item.error, _MAX_ERROR_SHOWN)}"
    return _build_reading_finding(UNDECODABLE, workspace, message, mailbox=item.id, email=email, domain=domain)


def _build_reading_finding(rule: Rule, workspace: str, message: str, **about: Any) -> Finding:
    return Finding(rule=rule.id, severity=rule.severity, workspace=workspace, message=message, remedy=rule.remedy, **about)


async def audit(
    client: OutreachClient,
    workspaces: Iterable[str],
    *,
    policy: Policy | None = None,
    display: int = MAX_MAILBOX_DISPLAY,
    clock: Callable[[], float] = time.time,
) -> Report:
    """Read and check every mailbox of the workspaces.

    Workspaces and pages are read concurrently, within the client's own limits. Anything that cannot be read becomes a finding,
    and the rest is checked. Mailboxes without findings are not stored: the number of mailboxes is not limited.

    Args:
        client: Client to read with. Its default workspace is ignored.
        workspaces: Ids of the workspaces; a duplicate is read once.
        policy: The policy to apply; by default, all rules with their default thresholds.
        display: Mailboxes per page, at most 2,000 (section "List mailboxes" of the interface).
        clock: Returns the time of the audit, in Unix seconds; the ages of mailboxes are computed from it.

    Raises:
        InvalidRequest: `workspaces` is empty or contains a value that is not a string or is an API key, or `display` is invalid.

    Example:
        ```python
        report = await audit(client, ["space_1", "space_gone"])
        print(report.mailboxes, report.unreadable, report.exit_code())  # -> 2 ['space_gone'] 3
        ```
    """
    return await stream(client, workspaces, policy=policy, display=display, clock=clock)


def stream(
    client: OutreachClient,
    workspaces: Iterable[str],
    *,
    policy: Policy | None = None,
    display: int = MAX_MAILBOX_DISPLAY,
    clock: Callable[[], float] = time.time,
) -> AuditRun:
    """Run the same audit as `audit`, and yield its findings as soon as they are final.

    Each finding of the report is yielded once. Findings that depend on a whole domain or server (OA101 to OA103, and those about
    domains and servers) are yielded after every mailbox is read.

    Args:
        client: Client to read with. Its default workspace is ignored.
        workspaces: Ids of the workspaces; a duplicate is read once.
        policy: The policy to apply; by default, all rules with their default thresholds.
        display: Mailboxes per page, at most 2,000 (section "List mailboxes" of the interface).
        clock: Returns the time of the audit, in Unix seconds; the ages of mailboxes are computed from it.

    Raises:
        InvalidRequest: `workspaces` is empty or contains a value that is not a string or is an API key, or `display` is invalid.

    Example:
        ```python
        async with stream(client, ["space_1"]) as findings:
            async for finding in findings:
                print(finding.rule, finding.severity, finding.email)  # -> OA101 error bob@north.example
        ```
    """
    ledger = AuditState(_require_workspace_ids(workspaces), policy or Policy.default(), clock())
    return AuditRun(client, ledger, require_display("display", display, mailboxes=True))


def _require_workspace_ids(workspaces: Iterable[str]) -> list[str]:
    given: list[Any] = [workspaces] if isinstance(workspaces, str) else list(workspaces)
    if not given:
        raise InvalidRequest("workspaces: expected at least one workspace id, got none; pass ids such as 'space_1'")
    if others := [workspace for workspace in given if not isinstance(workspace, str)]:
        raise InvalidRequest(f"workspaces: expected strings, got {type_name(others[0])}; pass ids such as 'space_1'")
    if any(workspace.startswith(ID_PREFIXES["owner_key"]) for workspace in given):  # a finding would print it
        raise InvalidRequest("workspaces: expected workspace ids, got what looks like an API key; pass ids such as 'space_1'")
    return list(dict.fromkeys(given))


class AuditRun:
    """An audit that is ready to start. Enter it with `async with` to iterate over the findings, or await it for the report.

    Example:
        ```python
        report = await stream(client, ["space_1"])
        print(report.mailboxes)  # -> 2
        ```
    """

    def __init__(self, client: OutreachClient, ledger: AuditState, display: int) -> None:
        self._client = client
        self._state = ledger
        self._display = display
        self._group: TaskGroup
        self._findings: Findings | None = None

    def __await__(self) -> Generator[Any, Any, Report]:
        """Run the audit to its end and return the report."""
        return self._run_to_end().__await__()

    async def _run_to_end(self) -> Report:
        async with self as findings:
            async for _ in findings:
                pass
        return findings.report

    async def __aenter__(self) -> Findings:
        """Start reading; return the findings to iterate over."""
        if self._findings is not None:
            raise InvalidRequest("stream: this audit was already started; call stream() again")
        self._findings = Findings()
        # Entered by hand, because the group must outlive this method; `__aexit__` leaves it.
        self._group = await anyio.create_task_group().__aenter__()
        self._group.start_soon(self._run, self._findings)
        return self._findings

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Cancel all remaining reads. An exception of the block propagates unchanged."""
        self._group.cancel_scope.cancel()
        # The group does not see the block's exception: it would raise it again inside an exception group.
        await self._group.__aexit__(None, None, None)

    def __aiter__(self) -> NoReturn:
        """Raise an error that explains the usage: reading needs a block that ends it."""
        raise InvalidRequest("stream: expected `async with ... as findings`, got `async for`; iterate over `findings` inside it")

    async def _run(self, findings: Findings) -> None:
        ledger = self._state

        async def take(workspace: str, mailboxes: list[Mailbox]) -> None:
            await findings.put(ledger.add_page(workspace, mailboxes))

        try:
            readings = await WorkspaceReader(self._client, self._display, take).read(ledger.workspaces)
            settled = finish_reading(ledger, readings)
            await findings.put([*(finding for unread in settled.errors for finding in unread), *settled.deferred])
            findings.end(build_report(ledger, readings, settled))
        # Raised from the task, an error would cancel the block and reach the caller in an exception group.
        except Exception as error:  # noqa: BLE001 - raised again by the iteration
            findings.end(error)


class Findings(AsyncIterator[Finding]):
    """The findings of a running audit. The iteration ends when every mailbox is read and checked.

    Example:
        ```python
        async with stream(client, ["space_1"]) as findings:
            print([finding.rule async for finding in findings])  # -> ['OA101']
        print(findings.report.exit_code())  # -> 1
        ```
    """

    def __init__(self) -> None:
        self._ready: deque[Finding] = deque()
        self._changed = self._drained = anyio.Event()
        self._result: Report | Exception | None = None

    @property
    def report(self) -> Report:
        """The report of the finished audit.

        Raises:
            InvalidRequest: The iteration has not finished.
        """
        if not isinstance(self._result, Report) or self._ready:
            raise InvalidRequest("report: the audit has not finished; iterate over all of its findings first")
        return self._result

    async def put(self, findings: Sequence[Finding]) -> None:
        """Pass findings to the iteration, and wait until it has taken them."""
        if not findings:
            return
        # Backpressure: each reader waits here until the queue is empty, and takes in no further page until then. This bounds the
        # memory when the consumer is slow. Readers that find findings in the queue wait for the event that the first one created.
        if not self._ready:
            self._drained = anyio.Event()
        self._ready.extend(findings)
        self._changed.set()
        await self._drained.wait()

    def end(self, end: Report | Exception) -> None:
        """Finish with the report, or with the error to raise from the iteration."""
        self._result = end
        self._changed.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Finding:
        """Return the next finding. If the audit failed, raise its error after the last finding."""
        while not self._ready:
            if isinstance(self._result, Exception):
                raise self._result
            if self._result is not None:
                raise StopAsyncIteration
            # No `await` stands between the checks above and the new event: a `put` or `end` in between cannot be missed.
            self._changed = anyio.Event()
            await self._changed.wait()
        finding = self._ready.popleft()
        if not self._ready:
            self._drained.set()
        return finding


def finish_reading(ledger: AuditState, readings: Iterable[WorkspaceReadResult]) -> FinalFindings:
    """Return all findings once the readings are complete. Performs no I/O."""
    for reading in readings:
        ledger.add_errors(reading.workspace, reading.findings())
    return ledger.finish()


def build_report(ledger: AuditState, readings: Sequence[WorkspaceReadResult], settled: FinalFindings) -> Report:
    """Build the report. Performs no I/O."""
    standing = GroupScores(ledger.totals, settled)
    errors = {reading.workspace: reading.error for reading in readings if reading.error is not None}
    judged = sum(reading.mailboxes for reading in readings)
    refused = all(explain_status(error.status_code).is_denied for error in errors.values())
    return Report(
        workspaces=list(ledger.workspaces),
        mailboxes=judged,
        unreadable=list(errors),
        findings=settled.findings,
        scores=standing.scores(),
        denied=not judged and len(errors) == len(readings) and refused,
        at=ledger.now,
        policy=ledger.policy.used,
        groups=standing.groups(),
        totals=standing.totals(),
        rows=standing.rows(),
    )
