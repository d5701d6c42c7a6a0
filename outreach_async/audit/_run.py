"""Run an audit: `audit`, `stream`, the iteration over its findings, and the report at its end."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Any, Self, TypeAlias, TypedDict, Unpack

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from outreach_async._plumbing import require_number, require_seconds, require_workspace_ids
from outreach_async.audit._evaluation import AuditState, Judgement
from outreach_async.audit._findings import Finding
from outreach_async.audit._reading import AuditProgress, ProgressMeter, WorkspaceReader, WorkspaceReading
from outreach_async.audit._report import Report
from outreach_async.audit._rules import UNKNOWABLE, UNKNOWABLE_OF_CAMPAIGNS
from outreach_async.audit.campaigns import build_results
from outreach_async.audit.history._tables import Readings
from outreach_async.audit.policy import Policy
from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest
from outreach_async.models import MAX_MAILBOX_DISPLAY
from outreach_async.resources import open_run


class AuditOptions(TypedDict, total=False):
    policy: Policy | None
    campaigns: bool
    display: int
    deadline: float | None
    clock: Callable[[], float] | None
    names: Mapping[str, str] | None
    readings: Readings | None
    clients: Mapping[str, OutreachClient] | None


async def audit(client: OutreachClient, workspaces: Iterable[str], **options: Unpack[AuditOptions]) -> Report:
    """Read and check every mailbox of the workspaces, concurrently, and return a report. What cannot be read becomes a finding.

    While the service is down or throttles requests, the audit waits until its `deadline`; the client's own does not limit these
    waits. Without one, it ends after 15 minutes without a successful request, or after a few attempts if it never reached the
    service. The remaining workspaces are reported as unreadable.

    Args:
        client: Client to read with, within its own limits. Its default workspace is ignored.
        workspaces: Ids of the workspaces; a duplicate is read once.
        policy: The policy to apply; by default, all rules with their default thresholds.
        campaigns: Whether to check campaigns as well, by default not; see `outreach_async.audit.campaigns`.
        display: Mailboxes per page, by default 2,000, the maximum (section "List mailboxes" of the API documentation).
        deadline: Limit in seconds for the whole audit; by default, there is none.
        clock: Function that returns the time of the audit, in Unix seconds, to which the ages of mailboxes are relative. By
            default the local time, or the one in the service's header field `Date` if they differ by more than a minute;
            `Report.service_clock` says which.
        names: Names of workspaces by id, which reports show beside the ids; by default, there are none.
        readings: Collects everything that is read, for `History.append`; see `outreach_async.audit.history`.
        clients: Clients by id of the workspace to read with them instead of `client`, as for workspaces with a rate of their own.

    Raises:
        InvalidRequest: `workspaces` is empty or contains an API key or a value that is not a string, or `display`, `deadline`,
            `names` or `clients` is invalid.

    Example:
        ```python
        print((await audit(client, ["space_1", "space_gone"])).unreadable)  # -> ['space_gone']
        ```
    """
    return await AuditRun(client, workspaces, **options)


def stream(client: OutreachClient, workspaces: Iterable[str], **options: Unpack[AuditOptions]) -> AuditRun:
    """Return an audit that takes the options of `audit`, but yields each finding as soon as it is final.

    Those about domains and servers, and OA101 to OA103, which depend on all mailboxes of a domain, come last.

    Raises:
        InvalidRequest: An argument is invalid; see `audit`.

    Example:
        ```python
        async with stream(client, ["space_1"]) as findings:
            async for finding in findings:
                print(finding.rule, finding.severity, finding.email)  # -> OA101 error bob@north.example
        ```
    """
    return AuditRun(client, workspaces, **options)


def _require_clients(clients: Mapping[str, OutreachClient] | None) -> Mapping[str, OutreachClient]:
    given: Any = clients or {}
    if not isinstance(given, Mapping) or not all(isinstance(client, OutreachClient) for client in given.values()):
        raise InvalidRequest("clients: expected a mapping of ids to clients; pass for example {'space_1': client}")
    return given


def require_names(names: Mapping[str, str] | None, workspaces: Iterable[str]) -> dict[str, str]:
    if names is None:
        return {}
    given: Any = names
    if not isinstance(given, Mapping) or not all(isinstance(text, str) for pair in given.items() for text in pair):
        raise InvalidRequest("names: expected a mapping of ids to names; pass for example {'space_1': 'acme'}")
    return {workspace: names[workspace] for workspace in workspaces if workspace in names}


_Batch: TypeAlias = tuple[deque[Finding], anyio.Event]  # the findings of a page, and whether all of them were taken


class AuditRun(AsyncIterator[Finding]):
    """An audit that is ready to start. Enter it with `async with` to iterate over its findings, or await it for the report.

    The iteration ends when every mailbox has been read and checked. If the audit fails, it raises the error after the last
    finding.

    Example:
        ```python
        async with stream(client, ["space_1"]) as findings:
            print([finding.rule async for finding in findings], findings.report.mailboxes)  # -> ['OA101'] 2
        ```
    """

    def __init__(
        self,
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
        clients: Mapping[str, OutreachClient] | None = None,
    ) -> None:
        ids = require_workspace_ids(workspaces)
        self._state = AuditState(ids, policy or Policy.default(), (clock or time.time)())
        deadline = require_seconds("deadline", deadline)
        # With a deadline, the deadline alone limits how long the audit waits for a service that is down.
        max_outage = None if deadline is None else math.inf
        own = _require_clients(clients)
        chosen = {workspace: own.get(workspace, client) for workspace in ids}
        runs = {
            id(each): open_run(each.campaigns, each.mailboxes, each.workspaces, max_outage=max_outage) for each in chosen.values()
        }
        self._resources = {workspace: runs[id(each)] for workspace, each in chosen.items()}
        self._reader = partial(
            WorkspaceReader,
            state=self._state,
            resources=self._resources,
            put=self._put,
            display=require_number("display", display, least=1, most=MAX_MAILBOX_DISPLAY),
            deadline=deadline,
            with_campaigns=campaigns,
            readings=readings,
            may_follow_service=clock is None,
        )
        self._names = require_names(names, ids)
        self._group: TaskGroup
        self._meter: ProgressMeter
        self._discards = self._started = False
        self._readings: list[WorkspaceReading] = []
        self._sender: MemoryObjectSendStream[_Batch]
        self._receiver: MemoryObjectReceiveStream[_Batch]
        self._batch: deque[Finding] = deque()
        self._taken: anyio.Event
        self._guard = anyio.ResourceGuard("iterating over")  # rejects a second task, which would overwrite the batch
        self._result: Report | Exception | None = None

    @property
    def report(self) -> Report:
        """The report of the finished audit.

        Raises:
            InvalidRequest: The iteration has not finished.
        """
        if not isinstance(self._result, Report):
            raise InvalidRequest("report: the audit has not finished; iterate over all of its findings first")
        return self._result

    @property
    def progress(self) -> AuditProgress:
        """The current progress: workspaces and mailboxes read, rate, state and estimated time left."""
        self._require_started()
        return self._meter.measure(anyio.current_time())

    def separate(self) -> list[Report]:
        """Return a report for each workspace: the one that an audit of this workspace alone would return.

        A domain or server that several workspaces share is judged by the mailboxes of this one.

        Raises:
            InvalidRequest: The audit has not finished.

        Example:
            ```python
            run = stream(client, ["space_1", "space_2"])
            await run
            print([report.mailboxes for report in run.separate()])  # -> [2, 0]
            ```
        """
        if not self._readings:
            raise InvalidRequest("separate: the audit has not finished; await it, or iterate over all of its findings first")
        return [
            build_report(Judgement(state := self._state.alone(each.workspace)), state, [each], self._names)
            for each in self._readings
        ]

    def __await__(self) -> Generator[Any, Any, Report]:
        return self._run_to_end().__await__()

    async def _run_to_end(self) -> Report:
        self._discards = True  # nobody reads the findings one by one, so they need not be built
        async with self:
            await anext(self, None)  # returns when the audit has ended
        return self.report

    async def __aenter__(self) -> Self:
        if self._started:
            raise InvalidRequest("stream: this audit has already started; call stream() again to start another")
        self._started = True
        throttles = {run.throttle: None for run in self._resources.values()}
        self._meter = ProgressMeter(len(self._state.workspaces), list(throttles), anyio.current_time())
        # The stream has no buffer, so a batch is sent only when the iteration requests it.
        self._sender, self._receiver = anyio.create_memory_object_stream[_Batch](0)
        reader = self._reader(progress=self._meter)
        # The group is entered manually, because it must outlive this method. `__aexit__` exits the group.
        self._group = await anyio.create_task_group().__aenter__()
        self._group.start_soon(self._run, reader)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Cancel all remaining reads. An exception that the block raised propagates unchanged."""
        self._group.cancel_scope.cancel()
        # The block's exception is not passed to the group, which would raise it again inside an exception group.
        try:
            await self._group.__aexit__(None, None, None)
        finally:
            self._sender.close()
            self._receiver.close()

    async def _run(self, reader: WorkspaceReader) -> None:
        try:
            self._readings = await reader.read_all()
            reader.settle_time()
            judgement = Judgement(self._state)
            if not self._discards:
                errors = chain.from_iterable(each.findings for each in self._readings)
                await self._put([*errors, *judgement.late_findings(), *judgement.about_groups])
            self._result = build_report(judgement, self._state, self._readings, self._names)
        # If this task raised the error, the block would be cancelled and the caller would get an exception group.
        except Exception as error:  # noqa: BLE001 - raised again by the iteration
            self._result = error
        self._sender.close()  # ends the iteration

    async def _put(self, findings: Sequence[Finding]) -> None:
        if findings and not self._discards:
            # Backpressure: `send` returns when the iteration receives the batch, and the event is set when the last finding is
            # consumed. Until then no further page is checked, which bounds memory if the consumer is slow.
            taken = anyio.Event()
            await self._sender.send((deque(findings), taken))
            await taken.wait()

    def __aiter__(self) -> Self:
        self._require_started()
        return self

    def _require_started(self) -> None:
        if not self._started:  # the end of the block cancels the remaining reads
            raise InvalidRequest(
                "stream: expected `async with ... as findings`, got `async for`; iterate over `findings` inside the block"
            )

    async def __anext__(self) -> Finding:
        """Return the next finding. If the audit failed, raise the audit's error after the last finding."""
        if not self._batch:
            self._require_started()
            # Both exceptions mean that there are no more findings: the audit has ended, or its block was exited.
            with self._guard, suppress(anyio.EndOfStream, anyio.ClosedResourceError):
                self._batch, self._taken = await self._receiver.receive()
        if not self._batch:
            raise self._result if isinstance(self._result, Exception) else StopAsyncIteration
        finding = self._batch.popleft()
        if not self._batch:
            self._taken.set()
        return finding


def build_report(
    judgement: Judgement, state: AuditState, readings: Sequence[WorkspaceReading], names: Mapping[str, str]
) -> Report:
    others = {each.workspace: [*(each.campaigns.findings if each.campaigns else ()), *each.findings] for each in readings}
    findings, rows = judgement.score(others)
    checked = sum(each.mailboxes for each in readings)
    campaigns = build_results(state.workspaces, [each.campaigns for each in readings])
    nothing_read = not checked and not (campaigns and campaigns.checked)
    return Report(
        workspaces=list(state.workspaces),
        mailboxes=checked,
        unreadable=[each.workspace for each in readings if each.unreadable],
        findings=findings,
        scores=judgement.scores(),
        denied=nothing_read and all(each.denied for each in readings),
        at=state.now,
        service_clock=state.service_clock,
        policy=state.policy.used,
        groups=judgement.groups(),
        totals={kind: len(totals) for kind, totals in judgement.totals.items()},
        rows=rows,
        not_judged=[*UNKNOWABLE, *(UNKNOWABLE_OF_CAMPAIGNS if campaigns else ())],
        campaigns=campaigns,
        names={workspace: names[workspace] for workspace in state.workspaces if workspace in names},
    )
