"""Read the campaigns, steps and fields of workspaces, and check each campaign as soon as its steps have been read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

import anyio
import attrs

from outreach_async.audit._campaign_conditions import CampaignCase, FieldNames
from outreach_async.audit._campaign_evaluation import CampaignVerdict, evaluate_campaign, needs_fields, needs_steps
from outreach_async.audit._findings import Finding, Rule, Violation, build_finding
from outreach_async.audit._meter import ProgressMeter
from outreach_async.audit._readings import Readings, record_campaign
from outreach_async.audit._rules import (
    CAMPAIGN_UNDECODABLE,
    CAMPAIGNS_MISSING,
    CAMPAIGNS_UNREAD,
    FIELDS_UNREAD,
    STEPS_UNREAD,
)
from outreach_async.audit._totals import CompactSet
from outreach_async.audit.campaigns import WorkspaceCampaigns
from outreach_async.audit.policy import Policy
from outreach_async.errors import BulkError, OutreachError, shorten
from outreach_async.models import Campaign, Page, Step
from outreach_async.pagination import PageCursor, walk_pages
from outreach_async.resources import Campaigns, Workspaces

T = TypeVar("T")

MAX_ERROR_SHOWN: Final = 400
"""Maximum number of characters of an error in a finding's message. An error about an item with many invalid fields is long."""

_PAGES_AT_ONCE: Final = 2
_DISPLAY: Final = 100
"""Campaigns per page: the default of `campaigns.list`, because the API documentation states no maximum."""


def explain_end(error: OutreachError) -> OutreachError:
    """Return the error to show in a finding: the cause of a `BulkError`, or `error` itself if it is of another class."""
    cause = error.__cause__
    return cause if isinstance(error, BulkError) and isinstance(cause, OutreachError) else error


class RunInTime(Protocol):
    """Awaits a request about a workspace, within the audit's deadline, and counts the request as progress."""

    async def __call__(self, workspace: str, call: Callable[[], Awaitable[T]], /) -> T:
        """Return the result of `call`; raise `DeadlineExceeded` if the audit's deadline passes first."""
        ...


@attrs.define
class _WorkspaceReading:
    """The state of a workspace while its campaigns are read."""

    workspace: str
    verdicts: dict[int, CampaignVerdict] = attrs.Factory(dict)
    errors: dict[int, Finding] = attrs.Factory(dict)
    fields: FieldNames | None = None
    fields_error: Finding | None = None
    fields_lock: anyio.Lock = attrs.Factory(anyio.Lock)

    def build_error(self, rule: Rule, message: str, **subject: Any) -> Finding:
        return build_finding(rule, Violation(message), self.workspace, **subject)


@attrs.frozen(kw_only=True)
class CampaignsRead:
    """The result of reading the campaigns of one workspace."""

    campaigns: WorkspaceCampaigns
    errors: list[Finding]
    error: OutreachError | None


class CampaignReader:
    """Reads the campaigns of workspaces for one audit."""

    def __init__(
        self,
        *,
        campaigns: Campaigns,
        workspaces: Workspaces,
        policy: Policy,
        now: Callable[[], float],
        at_once: int,
        in_time: RunInTime,
        progress: ProgressMeter,
        readings: Readings | None,
    ) -> None:
        self._campaigns = campaigns
        self._workspaces = workspaces
        self._policy = policy
        self._now = now
        # Shared by all workspaces: a workspace with many campaigns uses the capacity that others do not need.
        self._slots = anyio.Semaphore(at_once)
        self._in_time = in_time
        self._progress = progress
        self._readings = readings

    async def read(self, workspace: str) -> CampaignsRead:
        reading = _WorkspaceReading(workspace)
        cursor: PageCursor[Campaign] = PageCursor(1, met=CompactSet())
        count = 0

        async def add_page(campaigns: list[Campaign]) -> None:
            nonlocal count
            for place, campaign in enumerate(campaigns, count):
                if needs_steps(campaign, self._policy):
                    self._progress.expect_requests(workspace, 1)
                    await self._slots.acquire()  # acquired before the task starts, to limit the campaigns in memory
                    group.start_soon(self._judge, reading, place, campaign)
                else:
                    reading.verdicts[place] = self._evaluate(reading, campaign, None)
            count += len(campaigns)

        error: OutreachError | None = None
        async with anyio.create_task_group() as group:
            try:
                pager = self._campaigns.list(workspace=workspace, display=_DISPLAY, undecodable="keep")

                async def fetch(number: int) -> Page[Campaign]:
                    page = await self._in_time(workspace, lambda: pager.fetch(number))
                    if number == 1:
                        self._progress.expect_requests(workspace, max(1, int(page.total_pages)))
                    return page

                await walk_pages(attrs.evolve(pager, fetch=fetch), cursor, add_page, _PAGES_AT_ONCE)
            except OutreachError as raised:
                error = explain_end(raised)
        return CampaignsRead(campaigns=_collect(reading), errors=_describe_errors(reading, cursor, error, count), error=error)

    async def _judge(self, reading: _WorkspaceReading, place: int, campaign: Campaign) -> None:
        try:
            steps: list[Step] | None = None
            try:
                read = await self._in_time(reading.workspace, lambda: self._campaigns.steps(campaign.id))
                steps = read.data
                await self._read_fields(reading, steps)
            except OutreachError as error:
                message = f"its steps could not be read: {_shown(error)}"
                subject = {"campaign": campaign.id, "campaign_name": campaign.name}
                reading.errors[place] = reading.build_error(STEPS_UNREAD, message, **subject)
            reading.verdicts[place] = self._evaluate(reading, campaign, steps)
        finally:
            self._slots.release()

    def _evaluate(self, reading: _WorkspaceReading, campaign: Campaign, steps: list[Step] | None) -> CampaignVerdict:
        case = CampaignCase.of(campaign, steps, reading.fields, self._now())
        self._progress.add_campaign()
        verdict = evaluate_campaign(case, self._policy, reading.workspace)
        if self._readings is not None:
            record_campaign(self._readings, verdict.row, campaign, steps)
        return verdict

    async def _read_fields(self, reading: _WorkspaceReading, steps: list[Step]) -> None:
        """Read the fields of the workspace if checking these steps requires them, at most once per workspace."""
        if not needs_fields(steps, self._policy):
            return
        async with reading.fields_lock:
            if reading.fields is not None or reading.fields_error is not None:
                return
            self._progress.expect_requests(reading.workspace, 1)
            try:
                read = self._workspaces.fields
                fields = await self._in_time(reading.workspace, lambda: read(workspace=reading.workspace))
            except OutreachError as error:
                message = f"the workspace's fields could not be read, so placeholders were not checked: {_shown(error)}"
                reading.fields_error = reading.build_error(FIELDS_UNREAD, message)
            else:
                reading.fields = FieldNames(fields)


def _shown(error: OutreachError) -> str:
    return shorten(str(explain_end(error)), MAX_ERROR_SHOWN)


def _collect(reading: _WorkspaceReading) -> WorkspaceCampaigns:
    """Return the results in the order of the service's list, regardless of the order in which the campaigns were checked."""
    verdicts = [verdict for _, verdict in sorted(reading.verdicts.items())]
    return WorkspaceCampaigns(
        rows=[verdict.row for verdict in verdicts],
        findings=[finding for verdict in verdicts for finding in verdict.findings],
    )


def _describe_errors(
    reading: _WorkspaceReading, cursor: PageCursor[Campaign], error: OutreachError | None, count: int
) -> list[Finding]:
    errors = []
    for item in cursor.undecodable:
        name = item.fields.get("name")
        message = f"does not match the documented API: {shorten(item.error, MAX_ERROR_SHOWN)}"
        subject = {"campaign": item.id, "campaign_name": name if isinstance(name, str) else None}
        errors.append(reading.build_error(CAMPAIGN_UNDECODABLE, message, **subject))
    if error is not None:
        read = f" completely (campaigns read: {count:,})" if count else ""
        errors.append(reading.build_error(CAMPAIGNS_UNREAD, f"its campaigns could not be read{read}: {_shown(error)}"))
    elif cursor.missing:
        message = f"the service reports more campaigns than it listed (missing: {cursor.missing:,})"
        errors.append(reading.build_error(CAMPAIGNS_MISSING, message))
    if reading.fields_error is not None:
        errors.append(reading.fields_error)
    return [*errors, *(finding for _, finding in sorted(reading.errors.items()))]
