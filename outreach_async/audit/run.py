"""`audit` and `stream`: workspaces -> mailboxes -> findings -> report."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, NoReturn, Self

import anyio
from anyio.abc import TaskGroup

from outreach_async.audit.findings import Finding
from outreach_async.audit.ledger import Ledger, Settled
from outreach_async.audit.policy import Policy
from outreach_async.audit.reading import Reader, Reading
from outreach_async.audit.report import Report
from outreach_async.audit.standing import Standing
from outreach_async.checks import kind, require_display
from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest
from outreach_async.models import Mailbox
from outreach_async.vocabulary import ID_PREFIXES, MAX_MAILBOX_DISPLAY

_DENIALS: Final = frozenset({401, 403})


async def audit(
    client: OutreachClient,
    workspaces: Iterable[str],
    *,
    policy: Policy | None = None,
    display: int = MAX_MAILBOX_DISPLAY,
    clock: Callable[[], float] = time.time,
) -> Report:
    """Read and judge every mailbox of the workspaces, workspaces and pages side by side under the client's own limiter.

    What cannot be read is a finding, and the rest is judged. Mailboxes are not kept, so their number is not bounded.

    Args:
        client: Where to read. Its own workspace plays no part.
        workspaces: Ids of the workspaces; a repeated one is read once.
        policy: What to judge by; the default's rules if not given.
        display: Mailboxes per page, at most 2,000 (section "List mailboxes" of the interface).
        clock: Tells when the audit is made, Unix seconds; the ages of mailboxes are worked out from it.

    Raises:
        InvalidRequest: There is no workspace, one is no text or an API key, or `display` can never be right.

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
    """Make the same audit, and hand its findings out as they are settled.

    Every finding of the report comes once. Those that hang on what a domain or a server does as a whole come when everything is
    read: OA101 to OA103 and those about domains and servers.

    Args:
        client: Where to read. Its own workspace plays no part.
        workspaces: Ids of the workspaces; a repeated one is read once.
        policy: What to judge by; the default's rules if not given.
        display: Mailboxes per page, at most 2,000 (section "List mailboxes" of the interface).
        clock: Tells when the audit is made, Unix seconds; the ages of mailboxes are worked out from it.

    Raises:
        InvalidRequest: There is no workspace, one is no text or an API key, or `display` can never be right.

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
        raise InvalidRequest("workspaces: there is none to audit; pass at least one id")
    if others := [workspace for workspace in given if not isinstance(workspace, str)]:
        raise InvalidRequest(f"workspaces: expected texts, got {kind(others[0])}; pass ids such as 'space_1'")
    if any(workspace.startswith(ID_PREFIXES["owner_key"]) for workspace in given):  # a finding would print it
        raise InvalidRequest("workspaces: one looks like an API key; pass ids such as 'space_1'")
    return list(dict.fromkeys(given))


class AuditRun:
    """An audit that has not begun: enter it for the findings, or await it for the report.

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
        """Run to the end and return the report."""
        return self._to_end().__await__()

    async def _to_end(self) -> Report:
        async with self as findings:
            async for _ in findings:
                pass
        return findings.report

    async def __aenter__(self) -> Findings:
        """Start to read."""
        if self._findings is not None:
            raise InvalidRequest("stream: this audit was started before; call stream again for another")
        self._findings = Findings()
        self._group = await anyio.create_task_group().__aenter__()
        self._group.start_soon(self._read, self._findings)
        return self._findings

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Cancel what is still being read; the block's own error passes through as it is."""
        self._group.cancel_scope.cancel()
        await self._group.__aexit__(None, None, None)

    def __aiter__(self) -> NoReturn:
        """Say how to iterate: what reads needs a block that ends it."""
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
        except Exception as error:  # noqa: BLE001 - raised to whoever iterates
            findings.end(error)


class Findings(AsyncIterator[Finding]):
    """The findings of an audit under way. Iterating ends when everything is read and judged.

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
        """The report.

        Raises:
            InvalidRequest: The iteration has not come to its end.
        """
        if not isinstance(self._end, Report) or self._ready:
            raise InvalidRequest("report: the audit has not come to its end; iterate over its findings first")
        return self._end

    async def put(self, findings: Sequence[Finding]) -> None:
        """Hand findings out, and wait until they are taken: nobody reads on while nobody listens."""
        if not findings:
            return
        if not self._ready:
            self._taken = anyio.Event()
        self._ready.extend(findings)
        self._news.set()
        await self._taken.wait()

    def end(self, end: Report | Exception) -> None:
        """Come to the end."""
        self._end = end
        self._news.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Finding:
        """Return the next finding; at the end, raise what the client's own code raised, if it did."""
        while not self._ready:
            if isinstance(self._end, Exception):
                raise self._end
            if self._end is not None:
                raise StopAsyncIteration
            self._news = anyio.Event()
            await self._news.wait()
        finding = self._ready.popleft()
        if not self._ready:
            self._taken.set()
        return finding


def closed(ledger: Ledger, readings: Iterable[Reading]) -> Settled:
    """Settle what was found, the readings having come to their end; pure."""
    for reading in readings:
        ledger.note(reading.workspace, reading.findings())
    return ledger.settle()


def report_of(ledger: Ledger, readings: Sequence[Reading], settled: Settled) -> Report:
    """Report what was found; pure."""
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
