"""Run an audit: read mailboxes, campaigns, steps and fields, check each as it arrives, yield findings, and return the report.

The progress is measured, with an estimate of the time left.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, TypedDict, TypeVar, Unpack

import anyio
import attrs
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from outreach_async._plumbing import (
    RateEstimator,
    RunThrottle,
    describe_pace,
    is_denied,
    require_number,
    require_seconds,
    require_types,
    require_workspace_ids,
    type_name,
)
from outreach_async.audit._evaluation import AuditState, Judgement, WorkspaceUse, evaluate_campaign, needs_fields, needs_steps
from outreach_async.audit._findings import Finding, Violation, apply_rules, build_finding
from outreach_async.audit._report import Report
from outreach_async.audit._rules import (
    CAMPAIGN_UNDECODABLE,
    CAMPAIGNS_MISSING,
    CAMPAIGNS_UNREAD,
    FIELDS_UNREAD,
    MISSING,
    STEPS_UNREAD,
    UNDECODABLE,
    UNKNOWABLE,
    UNKNOWABLE_OF_CAMPAIGNS,
    UNREADABLE,
    FieldNames,
    build_campaign_case,
    email_domain,
)
from outreach_async.audit.campaigns import CampaignRow, WorkspaceCampaigns, build_results
from outreach_async.audit.history._tables import Readings, record_campaign, record_mailboxes
from outreach_async.audit.policy import Policy, rules_about
from outreach_async.client import OutreachClient
from outreach_async.errors import BulkError, DeadlineExceeded, InvalidRequest, OutreachError, shorten
from outreach_async.models import MAX_MAILBOX_DISPLAY, Campaign, Mailbox, Page, Step, Undecodable
from outreach_async.pagination import PageCursor, Pager, walk_pages
from outreach_async.resources import RunResources, open_run


@attrs.frozen(kw_only=True)
class AuditProgress:
    """The progress of an audit.

    Attributes:
        workspaces, total: Number of finished workspaces, including those
            that could not be read, and of all workspaces.
        mailboxes, campaigns: Numbers read; a campaign counts even if its
            steps could not be read.
        rate: Recent reading rate, in mailboxes per second.
        state: `running`; `throttled` while a rate limit delays requests;
            `paused` while the service is down or requested a wait.
        resumes, why: Seconds until the pause ends, and its reason; 0.0 and
            an empty string if the audit is not paused.
        eta: Estimated seconds until the last workspace is read; `None` if
            unknown.

    Example:
        ```python
        async with stream(client, ["space_1"]) as findings:
            async for _ in findings:
                print(findings.progress)  # -> 1 of 1 workspaces, 2 mailboxes, ...
        ```
    """

    workspaces: int
    total: int
    mailboxes: int
    campaigns: int = 0
    rate: float
    state: Literal["running", "throttled", "paused"]
    resumes: float
    eta: float | None
    why: str = ""

    def __str__(self) -> str:
        """As text: `3 of 9 workspaces, 1,234 mailboxes, 57/s, ETA 0:01:30`."""
        campaigns = [f"{self.campaigns:,} campaigns"] if self.campaigns else []
        counts = [f"{self.workspaces:,} of {self.total:,} workspaces", f"{self.mailboxes:,} mailboxes", *campaigns]
        return ", ".join([*counts, *describe_pace(self.rate, "/s", self.state, self.resumes, self.why, self.eta)])


class ProgressMeter:
    def __init__(self, workspaces: int, throttles: Sequence[RunThrottle], now: float) -> None:
        self._total = workspaces
        self._throttles = throttles
        self.campaigns = 0
        self._mailboxes = self._ended = self._pages_read = 0
        self._pages_left: dict[str, int] = {}  # for each workspace that was started
        self._mailbox_rate, self._page_rate = RateEstimator(now), RateEstimator(now)

    def expect_requests(self, workspace: str, count: int) -> None:
        self._pages_left[workspace] = self._pages_left.get(workspace, 0) + count

    def add_request(self, workspace: str) -> None:
        """Count a response. The estimate of the time left treats every response like a page."""
        self._pages_left[workspace] = max(0, self._pages_left.get(workspace, 0) - 1)
        self._pages_read += 1
        self._page_rate.add(1)

    def add_mailboxes(self, count: int) -> None:
        self._mailboxes += count
        self._mailbox_rate.add(count)

    def end_workspace(self, workspace: str) -> None:
        self._pages_left[workspace] = 0
        self._ended += 1

    def measure(self, now: float) -> AuditProgress:
        # Several clients are as far as the one that waits longest.
        throttle = max(self._throttles, key=lambda each: (each.opens_at, each.state(now) != "running"))
        state, pause = throttle.state(now), max(0.0, throttle.opens_at - now)
        limits = [each.limit or math.inf for each in self._throttles]
        rate = min(self._page_rate.rate(now), sum(limits))
        started, left = len(self._pages_left), float(sum(self._pages_left.values()))
        left += (self._total - started) * ((self._pages_read + left) / started if started else 1.0)
        return AuditProgress(
            workspaces=self._ended,
            total=self._total,
            mailboxes=self._mailboxes,
            campaigns=self.campaigns,
            rate=self._mailbox_rate.rate(now),
            state=state,
            resumes=pause,
            eta=pause + left / rate if rate else None,
            why=throttle.pause_reason if state == "paused" else "",
        )


T = TypeVar("T")
Item = TypeVar("Item", Mailbox, Campaign)

_MAX_ERROR_SHOWN: Final = 400  # characters of an error in a message: one about an item with many invalid fields is long
_PAGES_AT_ONCE: Final = 2  # of one workspace
_CAMPAIGNS_PER_PAGE: Final = 100  # the default of `campaigns.list`: the API documentation states no maximum
MAX_CLOCK_DIFFERENCE: Final = 60.0  # seconds from which on an audit uses the service's time
_MIN_LARGE_AT_ONCE: Final = 2
"""This many workspaces with several pages can always be read concurrently, even if they exceed `_MAX_LATER_MAILBOXES`."""
_MAX_LATER_MAILBOXES: Final = 8_000
"""Maximum number of mailboxes from second and later pages that are in memory at the same time. Decoding a page of 2,000 mailboxes
takes 4 MB."""


@attrs.frozen
class WorkspaceReading:
    """The result of reading one workspace, without its mailboxes. The report is built from those of all workspaces."""

    workspace: str
    mailboxes: int
    unreadable: bool = False
    denied: bool = False
    findings: Sequence[Finding] = ()
    campaigns: WorkspaceCampaigns | None = None


def describe_mailboxes(
    workspace: str, count: int, undecodable: Sequence[Undecodable], missing: int, error: OutreachError | None
) -> WorkspaceReading:
    findings = list(_describe_errors(workspace, "mailboxes", count, error, undecodable=undecodable, missing=missing))
    denied = error is not None and is_denied(error)
    return WorkspaceReading(workspace, count, error is not None, denied, findings)


def _describe_errors(
    workspace: str, what: str, count: int, error: OutreachError | None, *, undecodable: Sequence[Undecodable], missing: int
) -> Iterator[Finding]:
    undecodable_rule, unread_rule, missing_rule = _LIST_RULES[what]
    for item in undecodable:
        subject: dict[str, Any] = {"mailbox": item.id} if what == "mailboxes" else {"campaign": item.id}
        if what != "mailboxes":
            name = item.fields.get("name")
            subject["campaign_name"] = name if isinstance(name, str) else None
        elif isinstance(email := item.fields.get("email"), str):
            subject |= {"email": email, "domain": email_domain(email)}
        message = f"does not match the documented API: {shorten(item.error, _MAX_ERROR_SHOWN)}"
        yield build_finding(undecodable_rule, Violation(message), workspace, **subject)
    if error is not None:
        read = f" completely ({what} read: {count:,})" if count else ""
        whose = "" if what == "mailboxes" else f"its {what} "
        yield build_finding(unread_rule, Violation(f"{whose}could not be read{read}: {_shown(error)}"), workspace)
    if missing:
        message = f"the service reports more {what} than it listed (missing: {missing:,})"
        yield build_finding(missing_rule, Violation(message), workspace)


_LIST_RULES: Final = {
    "mailboxes": (UNDECODABLE, UNREADABLE, MISSING),
    "campaigns": (CAMPAIGN_UNDECODABLE, CAMPAIGNS_UNREAD, CAMPAIGNS_MISSING),
}


def _explain_end(error: OutreachError) -> OutreachError:
    cause = error.__cause__
    return cause if isinstance(error, BulkError) and isinstance(cause, OutreachError) else error


def _shown(error: OutreachError) -> str:
    return shorten(str(_explain_end(error)), _MAX_ERROR_SHOWN)


@attrs.define
class _CampaignsOf:
    """The state of a workspace while its campaigns are read. The numbers are places in the service's list."""

    workspace: str
    verdicts: dict[int, tuple[CampaignRow, list[Finding]]] = attrs.Factory(dict)
    errors: dict[int, Finding] = attrs.Factory(dict)
    fields: FieldNames | None = None
    fields_error: Finding | None = None
    fields_lock: anyio.Lock = attrs.Factory(anyio.Lock)


@attrs.define(eq=False, kw_only=True)
class WorkspaceReader:
    state: AuditState
    resources: Mapping[str, RunResources]  # by workspace; several share them if they share a client
    put: Callable[[Sequence[Finding]], Awaitable[None]]
    progress: ProgressMeter
    display: int
    deadline: float | None
    with_campaigns: bool
    may_follow_service: bool
    readings: Readings | None
    predicted: Mapping[str, float]
    _deadline_at: float = math.inf
    _workers: int = 0
    _large_slots: anyio.Semaphore = attrs.field(init=False)
    _campaign_slots: anyio.Semaphore = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        if self.deadline is not None:
            self._deadline_at = anyio.current_time() + self.deadline
        # One more than requests in flight: while a failing workspace waits for a retry, another shows whether the service works.
        self._workers = 1 + max(each.max_in_flight for each in self.resources.values())
        self._large_slots = anyio.Semaphore(max(_MIN_LARGE_AT_ONCE, _MAX_LATER_MAILBOXES // (_PAGES_AT_ONCE * self.display)))
        # Shared by all workspaces: a workspace with many campaigns uses the capacity that others do not need.
        self._campaign_slots = anyio.Semaphore(self._workers)

    async def read_all(self) -> list[WorkspaceReading]:
        workspaces = self.state.workspaces
        results: dict[str, WorkspaceReading] = {}
        waiting = iter(workspaces)

        async def work() -> None:
            # `next` does not await, so no two workers get the same workspace.
            for workspace in waiting:
                results[workspace] = await self._read(workspace)
                self.progress.end_workspace(workspace)

        async with anyio.create_task_group() as group:
            for _ in range(min(self._workers, len(workspaces))):
                group.start_soon(work)
        return [results[workspace] for workspace in workspaces]

    def settle_time(self) -> float:
        """Return the time of the audit, which is settled when it is first needed, after the first response."""
        clocks = [clocks for each in self.resources.values() if (clocks := each.throttle.read_clocks()) is not None]
        if self.may_follow_service and clocks:
            date, arrived = clocks[0]
            if abs(date - arrived) > MAX_CLOCK_DIFFERENCE:
                self.state.now, self.state.service_clock = date, True
        self.may_follow_service = False  # all mailboxes are checked at one time
        return self.state.now

    async def _read(self, workspace: str) -> WorkspaceReading:
        if not self.with_campaigns:
            return await self._read_mailboxes(workspace, None)
        use = WorkspaceUse(self.settle_time)
        result = await self._read_mailboxes(workspace, use)
        if result.unreadable and not result.mailboxes:  # its campaigns cannot be read either
            return attrs.evolve(result, campaigns=WorkspaceCampaigns())
        campaigns, errors, failed = await self._read_campaigns(workspace)
        if not result.unreadable and not failed:  # after an error, the sums would be too low
            facts, rules = use.facts(campaigns.rows), rules_about(self.state.policy, "workspace")
            campaigns.findings.extend(apply_rules(rules, facts, workspace))
        await self.put(campaigns.findings)
        unreadable, findings = result.unreadable or failed, [*result.findings, *errors]
        return attrs.evolve(result, campaigns=campaigns, unreadable=unreadable, findings=findings)

    async def _read_mailboxes(self, workspace: str, use: WorkspaceUse | None) -> WorkspaceReading:
        cursor: PageCursor[Mailbox] = PageCursor(1)
        count = 0
        is_large = False

        async def add_page(mailboxes: list[Mailbox]) -> None:
            nonlocal count, is_large
            self.settle_time()
            count += len(mailboxes)
            self.progress.add_mailboxes(len(mailboxes))
            if use is not None:
                use.add_mailboxes(mailboxes)
            if self.readings is not None:
                record_mailboxes(self.readings, workspace, mailboxes)
            found = self.state.add_page(workspace, mailboxes)
            mailboxes.clear()  # frees memory while the findings wait for the consumer
            await self.put(found)
            # The size of a workspace is known only after its first page. Many small workspaces are read concurrently, but a
            # large workspace waits here for a slot before its second page, and holds the slot until it is read completely.
            if not cursor.done and not is_large:
                await self._large_slots.acquire()
                is_large = True

        error: OutreachError | None = None
        try:
            # `keep` collects undecodable mailboxes, which become findings. By default, one such mailbox ends the reading.
            pager = self.resources[workspace].mailboxes.list(workspace=workspace, display=self.display, undecodable="keep")
            await walk_pages(self._in_time(workspace, pager), cursor, add_page, _PAGES_AT_ONCE)
        except OutreachError as raised:
            error = _explain_end(raised)
        finally:
            if is_large:
                self._large_slots.release()
        return describe_mailboxes(workspace, count, cursor.undecodable, 0 if error else cursor.missing, error)

    async def _read_campaigns(self, workspace: str) -> tuple[WorkspaceCampaigns, list[Finding], bool]:
        """Return the campaigns of a workspace, the findings about what could not be read, and whether their list was cut off."""
        reading = _CampaignsOf(workspace)
        cursor: PageCursor[Campaign] = PageCursor(1)
        count = 0

        async def add_page(campaigns: list[Campaign]) -> None:
            nonlocal count
            for place, campaign in enumerate(campaigns, count):
                if needs_steps(campaign, self.state.policy):
                    self.progress.expect_requests(workspace, 1)
                    await self._campaign_slots.acquire()  # acquired before the task starts, to limit the campaigns in memory
                    group.start_soon(self._judge, reading, place, campaign)
                else:
                    self._evaluate(reading, place, campaign, None)
            count += len(campaigns)

        error: OutreachError | None = None
        async with anyio.create_task_group() as group:
            try:
                pager = self.resources[workspace].campaigns.list(
                    workspace=workspace, display=_CAMPAIGNS_PER_PAGE, undecodable="keep"
                )
                await walk_pages(self._in_time(workspace, pager), cursor, add_page, _PAGES_AT_ONCE)
            except OutreachError as raised:
                error = _explain_end(raised)
        missing = 0 if error else cursor.missing
        errors = [*_describe_errors(workspace, "campaigns", count, error, undecodable=cursor.undecodable, missing=missing)]
        if reading.fields_error is not None:
            errors.append(reading.fields_error)
        errors += [reading.errors[place] for place in sorted(reading.errors)]
        verdicts = [reading.verdicts[place] for place in sorted(reading.verdicts)]
        rows, findings = [row for row, _ in verdicts], [finding for _, found in verdicts for finding in found]
        return WorkspaceCampaigns(rows=rows, findings=findings), errors, error is not None

    async def _judge(self, reading: _CampaignsOf, place: int, campaign: Campaign) -> None:
        try:
            steps: list[Step] | None = None
            try:
                campaigns = self.resources[reading.workspace].campaigns
                read = await self._await_in_time(reading.workspace, lambda: campaigns.steps(campaign.id))
                self.progress.add_request(reading.workspace)
                steps = read.data
                await self._read_fields(reading, steps)
            except OutreachError as error:
                message = f"its steps could not be read: {_shown(error)}"
                subject: dict[str, Any] = {"campaign": campaign.id, "campaign_name": campaign.name}
                reading.errors[place] = build_finding(STEPS_UNREAD, Violation(message), reading.workspace, **subject)
            self._evaluate(reading, place, campaign, steps)
        finally:
            self._campaign_slots.release()

    def _evaluate(self, reading: _CampaignsOf, place: int, campaign: Campaign, steps: list[Step] | None) -> None:
        case = build_campaign_case(campaign, steps, reading.fields, self.settle_time())
        case.predicted = self.predicted.get(campaign.id)
        self.progress.campaigns += 1
        row, _ = reading.verdicts[place] = evaluate_campaign(case, self.state.policy, reading.workspace)
        if self.readings is not None:
            record_campaign(self.readings, row, campaign, steps)

    async def _read_fields(self, reading: _CampaignsOf, steps: list[Step]) -> None:
        if not needs_fields(steps, self.state.policy):
            return
        async with reading.fields_lock:
            if reading.fields is not None or reading.fields_error is not None:
                return
            self.progress.expect_requests(reading.workspace, 1)
            try:
                workspaces = self.resources[reading.workspace].workspaces
                fields = await self._await_in_time(reading.workspace, lambda: workspaces.fields(workspace=reading.workspace))
                self.progress.add_request(reading.workspace)
            except OutreachError as error:
                message = f"the workspace's fields could not be read, so placeholders were not checked: {_shown(error)}"
                reading.fields_error = build_finding(FIELDS_UNREAD, Violation(message), reading.workspace)
            else:
                reading.fields = FieldNames(fields)

    def _in_time(self, workspace: str, pager: Pager[Item]) -> Pager[Item]:
        async def fetch(number: int) -> Page[Item]:
            page = await self._await_in_time(workspace, lambda: pager.fetch(number))
            if number == 1:
                self.progress.expect_requests(workspace, max(1, int(page.total_pages)))
            self.progress.add_request(workspace)
            return page

        return attrs.evolve(pager, fetch=fetch)

    async def _await_in_time(self, workspace: str, call: Callable[[], Awaitable[T]]) -> T:
        if anyio.current_time() < self._deadline_at:
            with anyio.CancelScope(deadline=self._deadline_at):
                return await call()
        cause, reason = self.resources[workspace].throttle.last_error, ""
        if cause is not None:
            # The text of an error may name another workspace than the one whose finding quotes it.
            is_harmless = cause.status_code is None or len(self.state.workspaces) == 1
            reason = f"; the last request failed: {cause if is_harmless else f'status {cause.status_code}'}"
        raise DeadlineExceeded(f"the deadline of {self.deadline:g} s for the audit passed{reason}") from cause


# The audit as a whole.


class AuditOptions(TypedDict, total=False):
    policy: Policy | None
    campaigns: bool
    display: int
    deadline: float | None
    clock: Callable[[], float] | None
    names: Mapping[str, str] | None
    readings: Readings | None
    clients: Mapping[str, OutreachClient] | None
    predicted: Mapping[str, float] | None


async def audit(client: OutreachClient, workspaces: str | Iterable[str], **options: Unpack[AuditOptions]) -> Report:
    """Read and check every mailbox of workspaces, and return a report.

    Mailboxes are read concurrently. What cannot be read becomes a finding.
    While the service is down or throttles requests, the audit waits until
    its `deadline`; the client's own does not limit these waits. Without
    one, it ends after 15 minutes without a successful request, or after a
    few attempts if it never reached the service. The remaining workspaces
    are reported as unreadable.

    Args:
        client: Client to read with, within its own limits. Its default
            workspace is ignored.
        workspaces: Ids of the workspaces, or one id; a duplicate is read
            once.
        policy: The policy to apply; by default, all rules with their
            default thresholds.
        campaigns: Whether to check campaigns as well, by default not; see
            `outreach_async.audit.campaigns`.
        display: Mailboxes per page, by default 2,000, the maximum (section
            "List mailboxes" of the API documentation).
        deadline: Limit in seconds for the whole audit; by default, none.
        clock: Function that returns the time of the audit, in Unix
            seconds, to which the ages of mailboxes are relative. By
            default the local time, or the one in the service's header
            field `Date` if they differ by more than a minute;
            `Report.service_clock` says which.
        names: Names of workspaces by id, which reports show beside the
            ids; by default, there are none.
        readings: Collects everything that is read, for `History.append`;
            see `outreach_async.audit.history`.
        clients: Clients by id of the workspace to read with them instead
            of `client`, as for workspaces with a rate of their own.
        predicted: The share of bounces, from 0 to 1, that a gate predicted
            for campaigns, by id (see `reports.brief.read_imports`).

    Raises:
        InvalidRequest: `workspaces` is empty or contains an API key or a
            value that is not a string, or `display`, `deadline`, `names`,
            `clients` or `predicted` is invalid.

    Example:
        ```python
        print((await audit(client, ["space_1", "space_gone"])).unreadable)  # -> ['space_gone']
        ```
    """
    require_types(audit, locals())
    return await AuditRun(client, workspaces, **options)


def stream(client: OutreachClient, workspaces: str | Iterable[str], **options: Unpack[AuditOptions]) -> AuditRun:
    """Return an audit that yields each finding as soon as it is final.

    The options are those of `audit`. Findings about domains and servers,
    and OA101 to OA103, which need all mailboxes of a domain, come last.

    Raises:
        InvalidRequest: An argument is invalid; see `audit`.

    Example:
        ```python
        async with stream(client, ["space_1"]) as findings:
            async for finding in findings:
                print(finding.rule, finding.severity, finding.email)  # -> OA101 error bob@north.example
        ```
    """
    require_types(stream, locals())
    return AuditRun(client, workspaces, **options)


def _require(valid: bool, name: str, expected: str, value: object) -> None:  # noqa: FBT001 - a condition
    if not valid:
        raise InvalidRequest(f"{name}: expected {expected}, got {type_name(value)}; pass one, or omit it")


def _require_clients(clients: Mapping[str, OutreachClient] | None) -> Mapping[str, OutreachClient]:
    given: Any = clients or {}
    if not isinstance(given, Mapping) or not all(isinstance(client, OutreachClient) for client in given.values()):
        raise InvalidRequest("clients: expected a mapping of ids to clients; pass for example {'space_1': client}")
    return given


def _require_shares(predicted: Mapping[str, float] | None) -> Mapping[str, float]:
    given: Any = {} if predicted is None else predicted
    if not isinstance(given, Mapping) or not all(isinstance(each, int | float) and 0 <= each <= 1 for each in given.values()):
        raise InvalidRequest("predicted: expected shares from 0 to 1 by id of the campaign; pass for example {'camp_1': 0.02}")
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
    """An audit that is ready to start.

    Enter it with `async with` to iterate over its findings, or await it
    for the report. The iteration ends when every mailbox has been read and
    checked. If the audit fails, it raises the error after the last
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
        workspaces: str | Iterable[str],
        *,
        policy: Policy | None = None,
        campaigns: bool = False,
        display: int = MAX_MAILBOX_DISPLAY,
        deadline: float | None = None,
        clock: Callable[[], float] | None = None,
        names: Mapping[str, str] | None = None,
        readings: Readings | None = None,
        clients: Mapping[str, OutreachClient] | None = None,
        predicted: Mapping[str, float] | None = None,
    ) -> None:
        ids = require_workspace_ids(workspaces)
        _require(policy is None or isinstance(policy, Policy), "policy", "a Policy", policy)
        _require(readings is None or isinstance(readings, Readings), "readings", "Readings", readings)
        _require(clock is None or callable(clock), "clock", "a function that returns Unix seconds", clock)
        _require(isinstance(campaigns, bool), "campaigns", "True or False", campaigns)
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
            predicted=_require_shares(predicted),
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
        """The current progress: what was read, rate, state, and time left."""
        self._require_started()
        return self._meter.measure(anyio.current_time())

    def separate(self) -> list[Report]:
        """Return a report for each workspace.

        It has the same findings, actions and score as the report on all. A
        domain or server that several workspaces share is judged by all of
        their mailboxes. Everything else is about this workspace only.

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
        whole = Judgement(self._state)
        return [
            build_report(Judgement(state := self._state.alone(each.workspace), whole), state, [each], self._names)
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
        """Cancel all remaining reads; exceptions of the block propagate."""
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
        """Return the next finding; after the last, raise the audit's error."""
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
        policy=state.policy,
        groups=judgement.groups(),
        totals={kind: len(totals) for kind, totals in judgement.totals.items()},
        rows=rows,
        actions=judgement.actions,
        not_judged=[*UNKNOWABLE, *(UNKNOWABLE_OF_CAMPAIGNS if campaigns else ())],
        campaigns=campaigns,
        names={workspace: names[workspace] for workspace in state.workspaces if workspace in names},
    )
