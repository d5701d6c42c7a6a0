"""Run an audit: read the mailboxes of the workspaces, check them, and build the report."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from types import MappingProxyType, TracebackType
from typing import Any, Final, NoReturn, Self, TypeVar

import anyio
import attrs
from anyio.abc import TaskGroup

from outreach_async._service.responses import parse_date
from outreach_async._service.retry import explain_status
from outreach_async._service.validation import require_display, require_seconds, type_name
from outreach_async._vocabulary import ID_PREFIXES, MAX_MAILBOX_DISPLAY
from outreach_async.audit._campaign_evaluation import WorkspaceUse, evaluate_workspace
from outreach_async.audit._campaign_reading import MAX_ERROR_SHOWN, CampaignReader, CampaignsRead, explain_end
from outreach_async.audit._conditions import email_domain
from outreach_async.audit._evaluation import AuditState, FinalFindings
from outreach_async.audit._findings import Finding, Violation, build_finding
from outreach_async.audit._meter import AuditProgress, ProgressMeter
from outreach_async.audit._readings import Readings, record_mailboxes
from outreach_async.audit._report import Report
from outreach_async.audit._rules import MISSING, UNDECODABLE, UNKNOWABLE, UNKNOWABLE_OF_CAMPAIGNS, UNREADABLE
from outreach_async.audit._scoring import GroupScores
from outreach_async.audit._totals import CompactSet
from outreach_async.audit.campaigns import WorkspaceCampaigns, build_results
from outreach_async.audit.policy import Policy
from outreach_async.client import OutreachClient
from outreach_async.errors import DeadlineExceeded, InvalidRequest, OutreachError, shorten
from outreach_async.models import Mailbox, Page, Undecodable
from outreach_async.pagination import PageCursor, walk_pages
from outreach_async.resources import open_run

T = TypeVar("T")

_PAGES_AT_ONCE: Final = 2
"""Maximum number of pages of one workspace to request concurrently."""
_MIN_LARGE_AT_ONCE: Final = 2
"""This many workspaces with several pages can always be read concurrently, even if they exceed `_MAX_LATER_MAILBOXES`."""
MAX_CLOCK_DIFFERENCE: Final = 60.0
"""An audit uses the service's time if it differs from the local time by more than this many seconds."""
_MAX_LATER_MAILBOXES: Final = 8_000
"""Maximum number of mailboxes from second and later pages that are in memory at the same time. Decoding a page of 2,000 mailboxes
takes 4 MB."""


@attrs.frozen
class ReadSummary:
    """Summary of reading one workspace. The report is built from the summaries of all workspaces."""

    workspace: str
    mailboxes: int
    unreadable: bool
    denied: bool
    findings: list[Finding]
    campaigns: WorkspaceCampaigns | None = None


@attrs.frozen(kw_only=True)
class WorkspaceReadResult:
    """The result of reading one workspace, without its mailboxes."""

    workspace: str
    mailboxes: int = 0
    undecodable: Sequence[Undecodable] = ()
    missing: int = 0
    error: OutreachError | None = None
    campaigns: CampaignsRead | None = None

    def summary(self) -> ReadSummary:
        """Return the summary for the report. Reading errors are reported as findings."""
        error = self.error
        denied = error is not None and explain_status(error.status_code).is_denied
        read, findings = self.campaigns, list(self._findings())
        if read is None:
            return ReadSummary(self.workspace, self.mailboxes, error is not None, denied, findings)
        unreadable = error is not None or read.error is not None
        return ReadSummary(self.workspace, self.mailboxes, unreadable, denied, findings + read.errors, read.campaigns)

    def _findings(self) -> Iterator[Finding]:
        for item in self.undecodable:
            value = item.fields.get("email")
            email = value if isinstance(value, str) else None
            subject: dict[str, Any] = {"mailbox": item.id, "email": email, "domain": email_domain(email) if email else None}
            message = f"does not match the documented API: {shorten(item.error, MAX_ERROR_SHOWN)}"
            yield build_finding(UNDECODABLE, Violation(message), self.workspace, **subject)
        if self.error is not None:
            read = f" completely (mailboxes read: {self.mailboxes:,})" if self.mailboxes else ""
            message = f"could not be read{read}: {shorten(str(self.error), MAX_ERROR_SHOWN)}"
            yield build_finding(UNREADABLE, Violation(message), self.workspace)
        if self.missing:
            message = f"the service reports more mailboxes than it listed (missing: {self.missing:,})"
            yield build_finding(MISSING, Violation(message), self.workspace)


async def audit(
    client: OutreachClient,
    workspaces: Iterable[str],
    *,
    policy: Policy | None = None,
    campaigns: bool = False,
    display: int = MAX_MAILBOX_DISPLAY,
    deadline: float | None = None,
    clock: Callable[[], float] | None = None,
    names: Mapping[str, str] | None = None,
    readings: Readings | None = None,
) -> Report:
    """Read and check every mailbox of the workspaces, and return a report.

    Workspaces and pages are read concurrently, within the client's own limits. Anything that cannot be read becomes a finding,
    and everything else is still checked. The audit stores about 50 bytes for every mailbox, 60 more for one with findings, and
    about 200 bytes for each domain and server.

    While the service is down or throttles requests, the audit waits; the client's deadline does not limit these waits. With
    `deadline`, the audit waits until that deadline. Without it, the audit ends after 15 minutes without a successful request, or
    after a few attempts if it never reached the service. The remaining workspaces are reported as unreadable.

    Args:
        client: Client to read with. Its default workspace is ignored.
        workspaces: Ids of the workspaces; a duplicate is read once.
        policy: The policy to apply; by default, all rules with their default thresholds.
        campaigns: Whether to check the campaigns of the workspaces as well. This takes additional requests, such as one for the
            steps of each campaign; see `outreach_async.audit.campaigns`.
        display: Mailboxes per page, at most 2,000 (section "List mailboxes" of the API documentation).
        deadline: Limit in seconds for the whole audit; `None` for no limit. Workspaces that are not read by then are reported as
            unreadable.
        clock: Function that returns the time of the audit, in Unix seconds. The ages of mailboxes are relative to this time. By
            default, it is the local time, or the time in the service's header field `Date` if the two differ by more than a
            minute; `Report.service_clock` says which.
        names: Names of workspaces by id, which reports show beside the ids.
        readings: Collects everything that is read, for `History.append`; see `outreach_async.audit.history`.

    Raises:
        InvalidRequest: `workspaces` is empty or contains an API key or a value that is not a string, or `display`, `deadline` or
            `names` is invalid.

    Example:
        ```python
        report = await audit(client, ["space_1", "space_gone"])
        print(report.mailboxes, report.unreadable, report.exit_code())  # -> 2 ['space_gone'] 3
        ```
    """
    return await stream(
        client,
        workspaces,
        policy=policy,
        campaigns=campaigns,
        display=display,
        deadline=deadline,
        clock=clock,
        names=names,
        readings=readings,
    )


def stream(
    client: OutreachClient,
    workspaces: Iterable[str],
    *,
    policy: Policy | None = None,
    campaigns: bool = False,
    display: int = MAX_MAILBOX_DISPLAY,
    deadline: float | None = None,
    clock: Callable[[], float] | None = None,
    names: Mapping[str, str] | None = None,
    readings: Readings | None = None,
) -> AuditRun:
    """Return an audit that works like `audit`, but yields each finding as soon as the finding is final.

    Each finding of the report is yielded once. Findings about domains and servers are yielded after all mailboxes have been
    read. The same applies to OA101 to OA103, which depend on all mailboxes of a domain.

    Args:
        client: Client to read with. Its default workspace is ignored.
        workspaces: Ids of the workspaces; a duplicate is read once.
        policy: The policy to apply; by default, all rules with their default thresholds.
        campaigns: Whether to check the campaigns of the workspaces as well. This takes additional requests, such as one for the
            steps of each campaign; see `outreach_async.audit.campaigns`.
        display: Mailboxes per page, at most 2,000 (section "List mailboxes" of the API documentation).
        deadline: Limit in seconds for the whole audit; `None` for no limit. Workspaces that are not read by then are reported as
            unreadable.
        clock: Function that returns the time of the audit, in Unix seconds. The ages of mailboxes are relative to this time. By
            default, it is the local time, or the time in the service's header field `Date` if the two differ by more than a
            minute; `Report.service_clock` says which.
        names: Names of workspaces by id, which reports show beside the ids.
        readings: Collects everything that is read, for `History.append`; see `outreach_async.audit.history`.

    Raises:
        InvalidRequest: `workspaces` is empty or contains an API key or a value that is not a string, or `display`, `deadline` or
            `names` is invalid.

    Example:
        ```python
        async with stream(client, ["space_1"]) as findings:
            async for finding in findings:
                print(finding.rule, finding.severity, finding.email)  # -> OA101 error bob@north.example
        ```
    """
    state = AuditState(require_workspace_ids(workspaces), policy or Policy.default(), (clock or time.time)())
    display = require_display("display", display, mailboxes=True)
    limit = require_seconds("deadline", deadline)
    shown = require_names(names, state.workspaces)
    return AuditRun(
        client, state, display, limit, campaigns=campaigns, names=shown, follow_service=clock is None, readings=readings
    )


def require_workspace_ids(workspaces: Iterable[str]) -> list[str]:
    """Check the workspace ids of an audit, and return the ids without duplicates."""
    ids: list[Any] = [workspaces] if isinstance(workspaces, str) else list(workspaces)
    if not ids:
        raise InvalidRequest("workspaces: expected at least one workspace id, got none; pass ids such as 'space_1'")
    if others := [workspace for workspace in ids if not isinstance(workspace, str)]:
        raise InvalidRequest(f"workspaces: expected strings, got {type_name(others[0])}; pass ids such as 'space_1'")
    if any(workspace.startswith(ID_PREFIXES["owner_key"]) for workspace in ids):  # findings would show the key
        raise InvalidRequest("workspaces: expected workspace ids, got what looks like an API key; pass ids such as 'space_1'")
    return list(dict.fromkeys(ids))


def require_names(names: Mapping[str, str] | None, workspaces: Iterable[str]) -> dict[str, str]:
    """Check the names of workspaces, and return those of the audited workspaces."""
    if names is None:
        return {}
    given: Any = names
    if not isinstance(given, Mapping) or not all(isinstance(text, str) for pair in given.items() for text in pair):
        raise InvalidRequest("names: expected a mapping of ids to names; pass for example {'space_1': 'acme'}")
    return {workspace: names[workspace] for workspace in workspaces if workspace in names}


class AuditRun:
    """An audit that is ready to start. Enter it with `async with` to iterate over the findings, or await it for the report.

    Example:
        ```python
        report = await stream(client, ["space_1"])
        print(report.mailboxes)  # -> 2
        ```
    """

    def __init__(
        self,
        client: OutreachClient,
        state: AuditState,
        display: int,
        deadline: float | None,
        *,
        campaigns: bool = False,
        names: Mapping[str, str] = MappingProxyType({}),
        follow_service: bool = False,
        readings: Readings | None = None,
    ) -> None:
        # With a deadline, the deadline alone limits how long the audit waits for a service that is down.
        max_outage = None if deadline is None else math.inf
        self._resources = open_run(client.campaigns, client.mailboxes, client.workspaces, max_outage=max_outage)
        # One more than requests in flight: while a failing workspace waits for a retry, another shows whether the service works.
        self._workers = self._resources.max_in_flight + 1
        self._with_campaigns = campaigns
        self._campaigns: CampaignReader | None = None
        self._state = state
        self._may_follow_service = follow_service
        self._names = names
        self._readings = readings
        self._display = display
        self._deadline = deadline
        self._deadline_at = math.inf
        self._large_slots = anyio.Semaphore(max(_MIN_LARGE_AT_ONCE, _MAX_LATER_MAILBOXES // (_PAGES_AT_ONCE * display)))
        self._group: TaskGroup
        self._progress: ProgressMeter
        self._channel: FindingsChannel
        self._discards = False
        self.summaries: list[ReadSummary] = []
        self._started = False

    def __await__(self) -> Generator[Any, Any, Report]:
        """Run the whole audit and return its report."""
        return self._run_to_end().__await__()

    async def _run_to_end(self) -> Report:
        self._discards = True  # nobody reads the findings one by one, so they need not be built
        async with self as findings:
            await anext(findings, None)  # returns when the audit has ended
        return findings.report

    async def __aenter__(self) -> Findings:
        """Start reading the workspaces, and return an iterator over the findings."""
        if self._started:
            raise InvalidRequest("stream: this audit has already started; call stream() again to start another")
        self._started = True
        if self._deadline is not None:
            self._deadline_at = anyio.current_time() + self._deadline
        self._progress = ProgressMeter(len(self._state.workspaces), self._resources.throttle, anyio.current_time())
        self._channel = FindingsChannel(discards=self._discards)
        if self._with_campaigns:
            self._campaigns = self._build_campaign_reader()
        # The group is entered manually, because it must outlive this method. `__aexit__` exits the group.
        self._group = await anyio.create_task_group().__aenter__()
        self._group.start_soon(self._run, self._channel)
        return Findings(self._channel, self._progress)

    def separate(self) -> list[Report]:
        """Return a report for each workspace: the one that an audit of this workspace alone would return.

        It contains nothing of the other workspaces. A domain or server that several workspaces share is judged by the mailboxes
        of this one.

        Raises:
            InvalidRequest: The audit has not finished.

        Example:
            ```python
            run = stream(client, ["space_1", "space_2"])
            whole = await run
            print([(report.workspaces, report.mailboxes) for report in run.separate()])  # -> [(['space_1'], 2), (['space_2'], 0)]
            ```
        """
        if not self.summaries:
            raise InvalidRequest("separate: the audit has not finished; await it, or iterate over all of its findings first")
        reports = []
        for place, summary in enumerate(self.summaries):
            alone = self._state.alone(place)
            names = {key: name for key, name in self._names.items() if key == summary.workspace}
            reports.append(build_report(alone, [summary], finish_reading(alone, [summary]), names))
        return reports

    def _build_campaign_reader(self) -> CampaignReader:
        return CampaignReader(
            campaigns=self._resources.campaigns,
            workspaces=self._resources.workspaces,
            policy=self._state.policy,
            now=self._settle_time,
            at_once=self._workers,
            in_time=self._run_in_time,
            progress=self._progress,
            readings=self._readings,
        )

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Cancel all remaining reads. An exception that the block raised propagates unchanged."""
        self._group.cancel_scope.cancel()
        # The block's exception is not passed to the group, which would raise it again inside an exception group.
        try:
            await self._group.__aexit__(None, None, None)
        finally:
            self._channel.close()

    def __aiter__(self) -> NoReturn:
        """Raise `InvalidRequest`. An audit needs `async with`, because the end of the block cancels the remaining reads."""
        raise InvalidRequest(
            "stream: expected `async with ... as findings`, got `async for`; iterate over `findings` inside the block"
        )

    async def _run(self, findings: FindingsChannel) -> None:
        try:
            self.summaries = [result.summary() for result in await self._read_workspaces(findings)]
            self._settle_time()
            final = finish_reading(self._state, self.summaries)
            if not findings.discards:
                late = self._state.late_findings()
                await findings.put([*chain.from_iterable(final.errors), *late, *final.group_findings])
            findings.end(build_report(self._state, self.summaries, final, self._names))
        # If this task raised the error, the block would be cancelled and the caller would get an exception group.
        except Exception as error:  # noqa: BLE001 - raised again by the iteration
            findings.end(error)

    def _settle_time(self) -> float:
        """Return the time of the audit, which is settled when it is first needed, after the first response."""
        if self._may_follow_service and (dated := self._resources.throttle.dated) is not None:
            date, arrived = parse_date(dated[0]), dated[1]
            if date is not None and abs(date - arrived) > MAX_CLOCK_DIFFERENCE:
                self._state.now, self._state.service_clock = date, True
        self._may_follow_service = False  # all mailboxes are checked at one time
        return self._state.now

    async def _read_workspaces(self, findings: FindingsChannel) -> list[WorkspaceReadResult]:
        workspaces = self._state.workspaces
        results: dict[str, WorkspaceReadResult] = {}
        waiting = iter(workspaces)

        async def work() -> None:
            # All workers share this iterator. `next` does not await, so no two workers get the same workspace.
            for workspace in waiting:
                results[workspace] = await self._read_everything(workspace, findings)
                self._progress.end_workspace(workspace)

        async with anyio.create_task_group() as group:
            for _ in range(min(self._workers, len(workspaces))):
                group.start_soon(work)
        return [results[workspace] for workspace in workspaces]

    async def _read_everything(self, workspace: str, findings: FindingsChannel) -> WorkspaceReadResult:
        """Read the mailboxes of a workspace and then, if the audit reads campaigns, its campaigns."""
        if self._campaigns is None:
            return await self._read_mailboxes(workspace, findings, None)
        use = WorkspaceUse(self._settle_time)
        result = await self._read_mailboxes(workspace, findings, use)
        if result.error is not None and not result.mailboxes:  # its campaigns cannot be read either
            return attrs.evolve(result, campaigns=CampaignsRead(campaigns=WorkspaceCampaigns(), errors=[], error=result.error))
        read = await self._campaigns.read(workspace)
        if result.error is None and read.error is None:  # after an error, the sums would be too low
            found = evaluate_workspace(use.facts(read.campaigns.rows), self._state.policy, workspace)
            judged = attrs.evolve(read.campaigns, findings=[*read.campaigns.findings, *found])
            read = attrs.evolve(read, campaigns=judged)
        await findings.put(read.campaigns.findings)
        return attrs.evolve(result, campaigns=read)

    async def _read_mailboxes(self, workspace: str, findings: FindingsChannel, use: WorkspaceUse | None) -> WorkspaceReadResult:
        cursor: PageCursor[Mailbox] = PageCursor(1, met=CompactSet())
        count = 0
        is_large = False

        async def add_page(mailboxes: list[Mailbox]) -> None:
            nonlocal count, is_large
            self._settle_time()
            count += len(mailboxes)
            self._progress.add_mailboxes(len(mailboxes))
            if use is not None:
                use.add_mailboxes(mailboxes)
            if self._readings is not None:
                record_mailboxes(self._readings, workspace, mailboxes)
            found = self._state.add_page(workspace, mailboxes, wanted=not findings.discards)
            mailboxes.clear()  # frees memory while the findings wait for the consumer
            await findings.put(found)
            # The size of a workspace is known only after its first page. Many small workspaces are read concurrently, but a
            # large workspace waits here for a slot before its second page, and holds the slot until it is read completely.
            if not cursor.done and not is_large:
                await self._large_slots.acquire()
                is_large = True

        error: OutreachError | None = None
        try:
            # `keep` collects undecodable mailboxes, which become findings. By default, one such mailbox ends the reading.
            pager = self._resources.mailboxes.list(workspace=workspace, display=self._display, undecodable="keep")
            pager = attrs.evolve(pager, fetch=partial(self._fetch_in_time, workspace, pager.fetch))
            await walk_pages(pager, cursor, add_page, _PAGES_AT_ONCE)
        except OutreachError as raised:
            error = explain_end(raised)
        finally:
            if is_large:
                self._large_slots.release()
        missing, undecodable = 0 if error else cursor.missing, cursor.undecodable
        return WorkspaceReadResult(workspace=workspace, mailboxes=count, undecodable=undecodable, missing=missing, error=error)

    async def _fetch_in_time(
        self, workspace: str, fetch: Callable[[int], Awaitable[Page[Mailbox]]], number: int
    ) -> Page[Mailbox]:
        """Fetch a page of mailboxes; raise `DeadlineExceeded` if the audit's deadline passes first."""
        page = await self._await_in_time(lambda: fetch(number))
        self._progress.add_page(workspace, page)
        return page

    async def _run_in_time(self, workspace: str, call: Callable[[], Awaitable[T]]) -> T:
        """Await a request for campaigns, steps or fields; raise `DeadlineExceeded` if the audit's deadline passes first."""
        result = await self._await_in_time(call)
        self._progress.add_request(workspace)
        return result

    async def _await_in_time(self, call: Callable[[], Awaitable[T]]) -> T:
        if anyio.current_time() < self._deadline_at:
            with anyio.CancelScope(deadline=self._deadline_at):
                return await call()
        cause = self._resources.throttle.last_error
        reason = "" if cause is None else f"; the last request failed: {self._describe(cause)}"
        raise DeadlineExceeded(f"the deadline of {self._deadline:g} s for the audit passed{reason}") from cause

    def _describe(self, cause: OutreachError) -> str:
        """Describe an error, whose text may name another workspace than the one whose finding quotes it."""
        return str(cause) if cause.status_code is None or len(self._state.workspaces) == 1 else f"status {cause.status_code}"


class FindingsChannel:
    """Passes findings from the tasks of an audit to its consumer, and keeps the result."""

    def __init__(self, *, discards: bool) -> None:
        # The stream has no buffer, so a batch is sent only when the iteration requests it.
        self._sender, self._receiver = anyio.create_memory_object_stream[tuple[deque[Finding], anyio.Event]](0)
        self._batch: deque[Finding] = deque()
        self._taken: anyio.Event
        self._guard = anyio.ResourceGuard("iterating over")  # rejects a second task, which would overwrite the batch
        self.result: Report | Exception | None = None
        self.discards = discards

    async def put(self, findings: Sequence[Finding]) -> None:
        """Pass findings to the consumer, and wait until all of them have been consumed."""
        if findings and not self.discards:
            # Backpressure: `send` returns when the iteration receives the batch, and the event is set when the last finding is
            # consumed. Until then no further page is checked, which bounds memory if the consumer is slow.
            taken = anyio.Event()
            await self._sender.send((deque(findings), taken))
            await taken.wait()

    def end(self, result: Report | Exception) -> None:
        """Store the result, and end the iteration. A result that is an exception is raised after the last finding."""
        self.result = result
        self._sender.close()

    def close(self) -> None:
        """End the iteration, even if the audit has not finished."""
        self._sender.close()
        self._receiver.close()

    async def next(self) -> Finding:
        if not self._batch:
            # Both exceptions mean that there are no more findings: the audit has ended, or its block was exited.
            with self._guard, suppress(anyio.EndOfStream, anyio.ClosedResourceError):
                self._batch, self._taken = await self._receiver.receive()
        if not self._batch:
            raise self.result if isinstance(self.result, Exception) else StopAsyncIteration
        finding = self._batch.popleft()
        if not self._batch:
            self._taken.set()
        return finding


class Findings(AsyncIterator[Finding]):
    """An iterator over the findings of a running audit. The iteration ends when every mailbox has been read and checked.

    Example:
        ```python
        async with stream(client, ["space_1"]) as findings:
            print([finding.rule async for finding in findings])  # -> ['OA101']
        print(findings.report.exit_code())  # -> 1
        ```
    """

    def __init__(self, channel: FindingsChannel, progress: ProgressMeter) -> None:
        self._channel = channel
        self._progress = progress

    @property
    def report(self) -> Report:
        """The report of the finished audit.

        Raises:
            InvalidRequest: The iteration has not finished.
        """
        if not isinstance(self._channel.result, Report):
            raise InvalidRequest("report: the audit has not finished; iterate over all of its findings first")
        return self._channel.result

    @property
    def progress(self) -> AuditProgress:
        """The current progress: workspaces and mailboxes read, rate, state and estimated time left."""
        return self._progress.measure(anyio.current_time())

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Finding]:
        """Return the next finding. If the audit failed, raise the audit's error after the last finding."""
        return self._channel.next()


def finish_reading(state: AuditState, summaries: Iterable[ReadSummary]) -> FinalFindings:
    """Return all findings of an audit from the results of reading its workspaces. This function performs no I/O."""
    known = list(summaries)
    campaigns = {each.workspace: each.campaigns.findings for each in known if each.campaigns is not None}
    return state.finish({summary.workspace: summary.findings for summary in known}, campaigns)


def build_report(
    state: AuditState, summaries: Sequence[ReadSummary], final: FinalFindings, names: Mapping[str, str] = MappingProxyType({})
) -> Report:
    """Build the report of an audit. This function performs no I/O."""
    scores = GroupScores(state, final)
    checked = sum(summary.mailboxes for summary in summaries)
    campaigns = build_results(state.workspaces, [summary.campaigns for summary in summaries])
    nothing_read = not checked and not (campaigns and campaigns.checked)
    return Report(
        workspaces=list(state.workspaces),
        mailboxes=checked,
        unreadable=[summary.workspace for summary in summaries if summary.unreadable],
        findings=scores.findings,
        scores=scores.scores(),
        denied=nothing_read and all(summary.denied for summary in summaries),
        at=state.now,
        service_clock=state.service_clock,
        policy=state.policy.used,
        groups=scores.groups(),
        totals={kind: len(totals) for kind, totals in state.totals.items()},
        rows=scores.rows(),
        not_judged=[*UNKNOWABLE, *(UNKNOWABLE_OF_CAMPAIGNS if campaigns else ())],
        campaigns=campaigns,
        names=dict(names),
    )
