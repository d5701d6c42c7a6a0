"""Read the workspaces of an audit: their mailboxes, and their campaigns with steps and fields. Each is checked as it arrives.

The progress is measured, with an estimate of the time left.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

import anyio
import attrs

from outreach_async._plumbing import RateEstimator, RunThrottle, describe_pace, is_denied
from outreach_async.audit._evaluation import AuditState, WorkspaceUse, evaluate_campaign, needs_fields, needs_steps
from outreach_async.audit._findings import Finding, Violation, apply_rules, build_finding
from outreach_async.audit._rules import (
    CAMPAIGN_UNDECODABLE,
    CAMPAIGNS_MISSING,
    CAMPAIGNS_UNREAD,
    FIELDS_UNREAD,
    MISSING,
    STEPS_UNREAD,
    UNDECODABLE,
    UNREADABLE,
    FieldNames,
    build_campaign_case,
    email_domain,
)
from outreach_async.audit.campaigns import CampaignRow, WorkspaceCampaigns
from outreach_async.audit.history._tables import Readings, record_campaign, record_mailboxes
from outreach_async.audit.policy import rules_about
from outreach_async.errors import BulkError, DeadlineExceeded, OutreachError, shorten
from outreach_async.models import Campaign, Mailbox, Page, Step, Undecodable
from outreach_async.pagination import PageCursor, Pager, walk_pages
from outreach_async.resources import RunResources


@attrs.frozen(kw_only=True)
class AuditProgress:
    """The progress of an audit.

    Attributes:
        workspaces, total: Number of finished workspaces, including those that could not be read, and of all workspaces.
        mailboxes, campaigns: Numbers read; a campaign counts even if its steps could not be read.
        rate: Recent reading rate, in mailboxes per second.
        state: `running`; `throttled` while a rate limit delays requests; `paused` while the service is down or requested a wait.
        resumes, why: Seconds until the pause ends, and its reason; 0.0 and an empty string if the audit is not paused.
        eta: Estimated seconds until the last workspace is read; `None` if unknown.

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
        """Return the progress as text: `3 of 9 workspaces, 1,234 mailboxes, 57/s, ETA 0:01:30`."""
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
