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

from outreach_async.audit.conditions import domain_of
from outreach_async.audit.evaluation import Digests, Ledger, Settled
from outreach_async.audit.findings import Finding
from outreach_async.audit.policy import Policy
from outreach_async.audit.report import Report
from outreach_async.audit.rules import MISSING, UNDECODABLE, UNREADABLE, Rule
from outreach_async.audit.scoring import Standing
from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest, OutreachError
from outreach_async.models import Mailbox, Undecodable
from outreach_async.pagination import Walk
from outreach_async.validation import kind, require_display
from outreach_async.vocabulary import ID_PREFIXES, MAX_MAILBOX_DISPLAY

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


_DENIALS: Final = frozenset({401, 403})


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
    ledger = Ledger(_ids(workspaces), policy or Policy.default(), clock())
    return AuditRun(client, ledger, require_display("display", display, mailboxes=True))


def _ids(workspaces: Iterable[str]) -> list[str]:
    given: list[Any] = [workspaces] if isinstance(workspaces, str) else list(workspaces)
    if not given:
        raise InvalidRequest("workspaces: expected at least one workspace id, got none; pass ids such as 'space_1'")
    if others := [workspace for workspace in given if not isinstance(workspace, str)]:
        raise InvalidRequest(f"workspaces: expected strings, got {kind(others[0])}; pass ids such as 'space_1'")
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

    def __init__(self, client: OutreachClient, ledger: Ledger, display: int) -> None:
        self._client = client
        self._ledger = ledger
        self._display = display
        self._group: TaskGroup
        self._findings: Findings | None = None

    def __await__(self) -> Generator[Any, Any, Report]:
        """Run the audit to its end and return the report."""
        return self._to_end().__await__()

    async def _to_end(self) -> Report:
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
        self._group.start_soon(self._read, self._findings)
        return self._findings

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Cancel all remaining reads. An exception of the block propagates unchanged."""
        self._group.cancel_scope.cancel()
        # The group does not see the block's exception: it would raise it again inside an exception group.
        await self._group.__aexit__(None, None, None)

    def __aiter__(self) -> NoReturn:
        """Raise an error that explains the usage: reading needs a block that ends it."""
        raise InvalidRequest("stream: expected `async with ... as findings`, got `async for`; iterate over `findings` inside it")

    async def _read(self, findings: Findings) -> None:
        ledger = self._ledger

        async def take(workspace: str, mailboxes: list[Mailbox]) -> None:
            await findings.put(ledger.take(workspace, mailboxes))

        try:
            readings = await Reader(self._client, self._display, take).read(ledger.workspaces)
            settled = closed(ledger, readings)
            await findings.put([*(finding for unread in settled.unread for finding in unread), *settled.late])
            findings.end(report_of(ledger, readings, settled))
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
        self._news = self._taken = anyio.Event()
        self._end: Report | Exception | None = None

    @property
    def report(self) -> Report:
        """The report of the finished audit.

        Raises:
            InvalidRequest: The iteration has not finished.
        """
        if not isinstance(self._end, Report) or self._ready:
            raise InvalidRequest("report: the audit has not finished; iterate over all of its findings first")
        return self._end

    async def put(self, findings: Sequence[Finding]) -> None:
        """Pass findings to the iteration, and wait until it has taken them."""
        if not findings:
            return
        # Backpressure: each reader waits here until the queue is empty, and takes in no further page until then. This bounds the
        # memory when the consumer is slow. Readers that find findings in the queue wait for the event that the first one created.
        if not self._ready:
            self._taken = anyio.Event()
        self._ready.extend(findings)
        self._news.set()
        await self._taken.wait()

    def end(self, end: Report | Exception) -> None:
        """Finish with the report, or with the error to raise from the iteration."""
        self._end = end
        self._news.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Finding:
        """Return the next finding. If the audit failed, raise its error after the last finding."""
        while not self._ready:
            if isinstance(self._end, Exception):
                raise self._end
            if self._end is not None:
                raise StopAsyncIteration
            # No `await` stands between the checks above and the new event: a `put` or `end` in between cannot be missed.
            self._news = anyio.Event()
            await self._news.wait()
        finding = self._ready.popleft()
        if not self._ready:
            self._taken.set()
        return finding


def closed(ledger: Ledger, readings: Iterable[Reading]) -> Settled:
    """Return all findings once the readings are complete. Performs no I/O."""
    for reading in readings:
        ledger.note(reading.workspace, reading.findings())
    return ledger.settle()


def report_of(ledger: Ledger, readings: Sequence[Reading], settled: Settled) -> Report:
    """Build the report. Performs no I/O."""
    standing = Standing(ledger.tallies, settled)
    errors = {reading.workspace: reading.error for reading in readings if reading.error is not None}
    judged = sum(reading.mailboxes for reading in readings)
    refused = all(error.status_code in _DENIALS for error in errors.values())
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
