"""Read-only tools: list the contents of workspaces, audit them, explain rules, and check rows without sending them."""

# No `from __future__ import annotations`: the MCP SDK builds the schemas of the tools from the evaluated annotations.

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, Final

import anyio.to_thread
import attrs
from pydantic import Field

from outreach_async.audit import CATALOGUE, Finding, Report, audit, explain
from outreach_async.audit.history import History, Kind
from outreach_async.audit.policy import require_rule
from outreach_async.audit.reports import Summary, Task, format_time, summarize
from outreach_async.audit.reports.brief import Brief, CampaignBrief, build_brief, index_actions
from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest
from outreach_async.importer import CheckPolicy, UnmappedColumns, columns_for, open_file, read_exclusions
from outreach_async.mcp_server._answers import MAX_PROSE, PAGE_SIZE, AnswerWriter, NamedWorkspaces, cut_page, pick
from outreach_async.models import Page

MAX_CONTACTS: Final = 50  # contacts in a call, and fields of a contact: a person must be able to read all of them
MAX_FIELDS: Final = 50

PageNumber = Annotated[int, Field(ge=1)]
Contacts = Annotated[list[Annotated[dict[str, Any], Field(max_length=MAX_FIELDS)]], Field(min_length=1, max_length=MAX_CONTACTS)]

_CAMPAIGN: Final = (
    *("id", "name", "status", "steps", "contacts", "opens", "replies", "bounces", "replies_num", "interested_num"),
    *("days_left_display", "last_activity"),
)
_MAILBOX: Final = (
    *("id", "email", "status", "type", "daily_limit", "sent_today", "sent_30days", "bounced_30days", "blacklists"),
    *("spf", "dkim", "dmarc"),
)
_STEP: Final = ("order", "status", "wait_time", "left_to_send", "already_sent")
_TEMPLATE: Final = (
    *("test_letter", "status", "subject", "body_text", "sent", "opened", "clicked", "replied", "replied_num", "unsubscribed"),
)
_CAMPAIGN_NEWS: Final = (
    *("id", "name", "workspace", "status", "contacts", "sent", "replies_num", "interested_num", "bounces_num", "left_to_send"),
    *("new_contacts", "new_sent", "new_replies", "new_interested", "new_bounces"),
)
MAX_DAYS: Final = 100  # rows of an answer about the history: a day of several workspaces has several
_HISTORY_NOTE: Final = (
    "Figures of each day in UTC. A missing figure is not known. If spread_over is above 1, days had no audit, and the difference "
    "was divided among them."
)
_NO_RULE: Final = "call explain_rule without arguments for a list of the rules"
_MAX_PLACES: Final = 3  # domains, servers or campaigns that a task lists


@attrs.define(eq=False)
class ReadTools:
    """The tools. `_tool_server` describes each to assistants."""

    _client: OutreachClient
    _workspaces: NamedWorkspaces
    _deadline: float
    _clock: Callable[[], float] | None
    _history: History | None
    _answers: AnswerWriter
    _exclude: Sequence[str | Path]
    _report: Report | None = None
    _brief: Brief | None = None

    async def list_campaigns(self, workspace: str | None = None, page: PageNumber = 1) -> str:
        return await self._list(self._client.campaigns.list, "campaigns", _CAMPAIGN, workspace, page)

    async def campaign_steps(self, campaign: str, page: PageNumber = 1) -> str:
        steps, templates = await self._client.campaigns.steps(campaign), list[dict[str, Any]]()
        for step in steps.data:
            row = {f"step_{name}": value for name, value in pick(step, _STEP).items()}
            templates += [{**row, **pick(template, _TEMPLATE)} for template in step.templates] or [row]
        rows = cut_page("templates", templates, page, dict)
        return self._answers.write(campaign=campaign, **pick(steps, ("days_left", "days_left_display")), **rows)

    async def list_mailboxes(self, workspace: str | None = None, page: PageNumber = 1) -> str:
        return await self._list(self._client.mailboxes.list, "mailboxes", _MAILBOX, workspace, page)

    async def _list(
        self, read: Callable[..., Awaitable[Page[Any]]], name: str, members: Sequence[str], workspace: str | None, page: int
    ) -> str:
        space = self._choose_workspace(workspace)
        found = await read(workspace=space, page=page, display=PAGE_SIZE, undecodable="keep")
        return self._answers.write(
            **self._workspaces.describe(space),
            page=page,
            pages=found.total_pages,
            total=found.total_found,
            **({"unreadable": len(found.undecodable)} if found.undecodable else {}),
            **{name: [pick(item, members) for item in found.data[:PAGE_SIZE]]},
        )

    async def list_fields(self, workspace: str | None = None, page: PageNumber = 1) -> str:
        space = self._choose_workspace(workspace)
        fields = await self._client.with_options(workspace=space).workspaces.fields()
        rows = cut_page("fields", fields, page, lambda field: pick(field, ("code", "label")))
        return self._answers.write(**self._workspaces.describe(space), **rows)

    async def audit(
        self,
        workspaces: list[str] | None = None,
        campaigns: bool = False,  # noqa: FBT001, FBT002 - the arguments of a tool have names
        rule: str | None = None,
        page: PageNumber = 1,
    ) -> str:
        spaces = self._choose_workspaces(workspaces)
        if rule is not None:
            known = require_rule(rule, _NO_RULE)
            rule, campaigns = known.id, campaigns or known.about_campaigns
        report = self._report if rule is not None or page > 1 else None
        if report is None or report.workspaces != spaces or (campaigns and report.campaigns is None):
            report = await self._audit(spaces, campaigns=campaigns)
        return self._write_actions(report, page) if rule is None else self._write_findings(report, rule, page)

    async def brief(self, workspaces: list[str] | None = None, page: PageNumber = 1) -> str:
        spaces = self._choose_workspaces(workspaces)
        brief = self._brief if page > 1 else None
        if brief is None or [space.id for space in brief.workspaces] != spaces:
            # An audit of minutes is not started if its history cannot be read.
            earlier = await anyio.to_thread.run_sync(self._history.baseline, spaces) if self._history else None
            brief = self._brief = build_brief(await self._audit(spaces, campaigns=True), earlier)
        return self._write_brief(brief, page)

    async def _audit(self, workspaces: Sequence[str], *, campaigns: bool) -> Report:
        self._report = await audit(
            self._client,
            workspaces,
            campaigns=campaigns,
            deadline=self._deadline,
            clock=self._clock,
            names=self._workspaces.names,
        )
        return self._report

    async def history(
        self,
        workspace: str | None = None,
        campaign: str | None = None,
        domain: str | None = None,
        days: Annotated[int, Field(ge=1, le=PAGE_SIZE)] = 14,
    ) -> str:
        assert self._history is not None  # noqa: S101 - the tool is offered only with a history
        spaces = [self._choose_workspace(workspace)] if workspace else list(self._workspaces.ids)
        if campaign is not None and domain is not None:
            raise InvalidRequest("campaign and domain: expected one of them, got both; omit one")
        kind: Kind = "campaign" if campaign is not None else "domain" if domain is not None else "workspace"
        read = partial(self._history.daily, kind, campaign or domain, workspaces=spaces, days=days)
        found = await anyio.to_thread.run_sync(read)
        shown = found[-MAX_DAYS:]
        return self._answers.write(
            about=_HISTORY_NOTE,
            days=[{name: value for name, value in attrs.asdict(day).items() if value is not None} for day in shown],
            **({"omitted": len(found) - len(shown)} if len(found) > len(shown) else {}),
        )

    async def explain_rule(self, rule: str | None = None) -> str:
        if rule is not None:
            return explain(require_rule(rule, _NO_RULE).id)
        rules = [CATALOGUE[name] for name in sorted(CATALOGUE)]
        return json.dumps([{"rule": each.id, "severity": each.severity_range, "title": each.title} for each in rules])

    async def check_contacts(
        self, contacts: Contacts, workspace: str | None = None, columns: dict[str, str] | None = None
    ) -> str:
        space = self._choose_workspace(workspace)
        lines = "\n".join(map(json.dumps, contacts)).encode()
        file = await anyio.to_thread.run_sync(partial(open_file, BytesIO(lines), format="jsonl"))
        try:
            mapped = await columns_for(self._client.with_options(workspace=space), file.headers, columns)
        except UnmappedColumns as error:
            proposed = {**(columns or {}), **{column.header: column.proposals[0] for column in error.columns}}
            named = "; ".join(
                f"{column.header!r} {column.remark}" for column in error.columns if column.remark.startswith("looks")
            )
            raise InvalidRequest(
                f"columns: expected known columns, got {len(error.columns):,} unknown or ambiguous{named and f' ({named})'}; "
                f"call the tool again with columns={json.dumps(proposed)}, or with other field codes from list_fields; "
                f"replace CODE, or pass 'ignore' if the column is not needed"
            ) from None
        policy, results, lists = CheckPolicy.of(), list[dict[str, Any]](), [*map(read_exclusions, self._exclude)]
        for row, findings in file.check(mapped, checks=policy):
            # Without the values, which would be cut and cleaned: an assistant might copy an altered value into a contact.
            listed = (str(found) for each in lists if (found := each(row.email)) is not None)
            reason = row.excluded or row.fault or next(listed, None)
            why = {} if reason is None else {"reason": reason}
            messages = [found.message for found in findings]
            results.append({"row": row.line, "sendable": reason is None, **why, "findings": messages})
        return self._answers.write(
            MAX_PROSE,
            **self._workspaces.describe(space),
            columns=dict(zip(file.headers, [code or "ignored" for code in mapped.codes], strict=True)),
            sendable=sum(result["sendable"] for result in results),
            not_checked=policy.note,
            contacts=results,
        )

    def _choose_workspace(self, given: str | None) -> str:
        return self._workspaces.require(given or None)

    def _choose_workspaces(self, given: list[str] | None) -> list[str]:
        """Return the given workspaces without duplicates, or by default all workspaces that the server may read."""
        return list(dict.fromkeys(self._choose_workspace(space) for space in given or self._workspaces.ids))

    def _write_actions(self, report: Report, page: int) -> str:
        summary = summarize(report)
        return self._answers.write(
            MAX_PROSE,
            summary=f"{summary.headline} {summary.verdict} {summary.to_do} Findings: {summary.counted}.",
            workspaces=len(report.workspaces),
            unreadable=[self._workspaces.label_of(space) for space in report.unreadable[:PAGE_SIZE]],
            stop=self._list_stopped(summary),
            **cut_page("tasks", summary.tasks, page, _describe_task),
        )

    def _write_brief(self, brief: Brief, page: int) -> str:
        def describe_campaign(campaign: CampaignBrief) -> dict[str, Any]:
            dates = {name: None if at is None else format_time(at) for name, at in pick(campaign, ("end", "end_before")).items()}
            return {**pick(campaign, _CAMPAIGN_NEWS), **dates, **self._workspaces.describe(campaign.workspace)}

        tasks = cut_page("tasks", brief.tasks, page, lambda task: {**_describe_task(task), "new": task.new, "worse": task.worse})
        resolved = cut_page("resolved", brief.resolved, page, lambda task: pick(task, ("rule", "title", "findings")))
        campaigns = cut_page("campaigns", brief.campaigns or [], page, describe_campaign)
        largest = {name: max(tasks[name], campaigns[name]) for name in ("pages", "total")}
        return self._answers.write(
            MAX_PROSE,
            summary=f"{brief.headline} {brief.verdict} {brief.to_do} {brief.changed}",
            stop=self._list_stopped(brief),
            not_up_to_date=[f"{name} {text}".strip() for name, text in brief.gaps],
            **{**resolved, **campaigns, **tasks, **largest},
        )

    def _list_stopped(self, summary: Summary) -> dict[str, list[str]]:
        """Return the first mailboxes to stop of each workspace."""
        return {self._workspaces.label_of(space): names[:PAGE_SIZE] for space, names in summary.actions["stop"].items()}

    def _write_findings(self, report: Report, name: str, page: int) -> str:
        action_of = index_actions(report)

        def describe(finding: Finding) -> dict[str, Any]:
            about = {"subject": report.subject_of(finding), "severity": finding.severity.value, "message": finding.message}
            return {
                **self._workspaces.describe(finding.workspace),
                **about,
                "action": action_of(finding),
            }

        found = [finding for finding in report.findings if finding.rule == name]
        return self._answers.write(MAX_PROSE, rule=name, **cut_page("findings", found, page, describe))


def _describe_task(task: Task) -> dict[str, Any]:
    def name(groups: Sequence[tuple[str, int]], most: int) -> list[str]:
        places = [f"{name} ({count})" for name, count in groups[:most]]
        more = len(groups) - len(places)
        return [*places, *([f"and {more:,} more"] if more else [])]

    where = {"where": name(task.groups, _MAX_PLACES), "workspaces": name(task.workspaces, PAGE_SIZE)}
    return pick(task, ("rule", "title", "severity", "findings", "mailboxes")) | where | pick(task, ("example", "remedy"))
