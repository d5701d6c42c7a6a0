"""The tool that creates contacts in the allowed workspaces. A person confirms every call before anything is sent."""

# No `from __future__ import annotations`: the MCP SDK reads the schema and the resolvers from the evaluated annotations.

import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import anyio
import attrs
from mcp.server.mcpserver import AcceptedElicitation, Context, Elicit, ElicitationResult, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.request_state import InvalidRequestState
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel, Field

from outreach_async import NewContact, Outcome
from outreach_async._plumbing import checked_contact, require_id, show_name, unsent_outcome
from outreach_async.bulk import BulkRun, ContactOutcome, Outcomes
from outreach_async.client import OutreachClient
from outreach_async.errors import BulkError, BulkStopped, InvalidRequest
from outreach_async.importer import read_exclusions
from outreach_async.mcp_server._answers import MAX_PROSE, AnswerWriter, NamedWorkspaces, clean_text
from outreach_async.mcp_server._read_tools import MAX_FIELDS, Contacts
from outreach_async.models import FAILED_OUTCOMES

Duplicates = Literal["skip", "update_missing_fields"]  # neither policy overwrites a field

_CANNOT_ASK: Final = (
    "create_contacts: this client cannot ask a person for confirmation (MCP elicitation), so nothing was sent; "
    "use a client that supports elicitation, or import the contacts with the command 'outreach-async import'"
)
_ADDRESS: Final = re.compile(r"[^\s@,;<>]+@[^\s@,;<>]+\.[^\s@,;<>.]+")  # other addresses are for the service to judge
_MAX_SHOWN: Final = 40  # characters of a value in the confirmation question
_MAX_PROBLEMS: Final = 5  # invalid contacts that an error message names
_MAX_OPEN: Final = 1_000  # questions that await an answer; the oldest are dropped


class Confirmation(BaseModel):
    create: bool = Field(description="Create these contacts")


class OpenQuestions:
    """The state of each question that awaits an answer. The client gets a token for it, which is valid for one answer."""

    # Since version 2026-07-28 of the protocol, an answer is a second call, which a client can repeat. By default, the SDK accepts
    # the token of a question again and again.

    def __init__(self) -> None:
        self._states: dict[str, bytes] = {}

    def seal(self, payload: bytes) -> str:
        if len(self._states) == _MAX_OPEN:
            del self._states[next(iter(self._states))]
        token = secrets.token_urlsafe()
        self._states[token] = payload
        return token

    def unseal(self, token: str) -> bytes:
        if (state := self._states.pop(token, None)) is None:
            raise InvalidRequestState("unknown, or answered before")
        return state


@attrs.frozen
class WriteTool:
    _client: OutreachClient
    _workspaces: NamedWorkspaces
    _deadline: float
    _answers: AnswerWriter
    _exclude: Sequence[str | Path]

    def build_question(
        self, workspace: str, contacts: Sequence[Mapping[str, Any]], campaign: str | None, duplicates: str
    ) -> Elicit[Confirmation]:
        """Return the confirmation question, which lists every contact. Long values are cut, and followed by their full length."""
        label = self._workspaces.label_of(self._require_workspace(workspace))
        campaign = _require_campaign(campaign)
        checked = _check_contacts(contacts)
        for listed in map(read_exclusions, self._exclude):  # as they are now: a server runs for weeks
            if found := listed.find([contact.email for contact in checked]):
                shown = "; ".join(f"contact {at + 1} must not be written to: {error}" for at, error in found.items())
                raise InvalidRequest(f"{shown}; nothing was sent; leave them out")
        into = f"campaign {clean_text(campaign)} of workspace {label}" if campaign else f"workspace {label} without a campaign"
        existing = "are left unchanged" if duplicates == "skip" else "get values only for missing fields"
        count = "1 contact" if len(contacts) == 1 else f"{len(contacts)} contacts"
        head = f"Create {count} in {into}? Existing contacts {existing}."
        lines = [head]
        for contact in checked:
            members = contact.to_dict()
            email = clean_text(str(members.pop("email")))
            values = [f"{clean_text(code)}={clean_text(str(value), _MAX_SHOWN)}" for code, value in members.items()]
            lines.append(f"- {email}" + (f" ({', '.join(values)})" if values else ""))
        return Elicit(self._answers.mask("\n".join(lines)), Confirmation)

    async def create(
        self, workspace: str, contacts: Sequence[Mapping[str, Any]], campaign: str | None, duplicates: Duplicates
    ) -> CallToolResult:
        """Create the contacts. If the run stops early, the result is an error, but has the outcome of each contact, too."""
        half, space, campaign = self._deadline / 2, self._require_workspace(workspace), _require_campaign(campaign)
        run = self._client.contacts.create_many(
            contacts,
            workspace=space,
            campaign=campaign,
            duplicates=duplicates,
            order="input",
            stop_after_rejects=None,
            exclude=[*map(read_exclusions, self._exclude)] or None,
            max_outage=half,
            deadline=half,
        )
        outcomes, stopped = await _collect(run, half)
        # A stopped run reads no further rows, so the remaining contacts were certainly not sent.
        outcomes += [
            unsent_outcome(index, contacts[index], Outcome.NOT_APPLIED, stopped) for index in range(len(outcomes), len(contacts))
        ]
        if not any(outcome.status in FAILED_OUTCOMES for outcome in outcomes):
            stopped = None  # every response arrived although the time limit had passed
        rows = [self._describe_outcome(outcome, contacts[outcome.index]) for outcome in outcomes]
        reason = {} if stopped is None else {"error": self._answers.describe(stopped)}
        text = self._answers.write(MAX_PROSE, **self._workspaces.describe(space), campaign=campaign, **reason, contacts=rows)
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=stopped is not None)

    def _require_workspace(self, given: str) -> str:
        remedy = "pass one of them. Only the person who runs this server can allow other workspaces, with --allow-writes"
        return self._workspaces.require(given, f"got another id, so nothing was sent; {remedy}")

    def _describe_outcome(self, outcome: ContactOutcome, contact: Mapping[str, Any]) -> dict[str, Any]:
        label = {
            "row": outcome.index + 1,
            "email": contact["email"],
            "status": outcome.status.value,
            "certain": outcome.certain,
            "possible": sorted(status.value for status in outcome.possible),
            "id": outcome.id,
        }
        return label if outcome.error is None else {**label, "error": self._answers.write_error(str(outcome.error))}


def _require_campaign(campaign: str | None) -> str | None:
    remedy = "pass the id of a campaign from list_campaigns, or omit the argument"
    return None if campaign is None else require_id("campaign", campaign, "campaign", remedy)


async def _collect(run: BulkRun, seconds: float) -> tuple[list[ContactOutcome], BulkError | None]:
    """Return the outcomes of a run, and the error that stopped it early. The error is `None` if the run completed.

    After `seconds`, no further contact is sent, because a person is waiting. Requests in flight still complete.
    """
    outcomes: list[ContactOutcome] = []
    stopped: BulkError | None = None

    async def stop_in_time(found: Outcomes) -> None:
        nonlocal stopped
        await anyio.sleep(seconds)
        stopped = BulkStopped(f"the time limit of {seconds:g} s has passed; contacts with the status not_applied were not sent")
        found.drain()

    async with run as found, anyio.create_task_group() as group:
        group.start_soon(stop_in_time, found)
        try:
            async for outcome in found:
                outcomes.append(outcome)  # noqa: PERF401 - outcomes before an error must be returned too
        except BulkError as error:
            stopped = error
        group.cancel_scope.cancel()
    return outcomes, stopped


def _check_contacts(contacts: Sequence[Mapping[str, Any]]) -> list[NewContact]:
    checked, problems = [], []
    for number, row in enumerate(contacts, 1):
        try:
            contact = checked_contact(row)
        except InvalidRequest as error:
            problems.append(f"contact {number}: {error}")
            continue
        checked.append(contact)
        if not _ADDRESS.fullmatch(contact.email.strip()):
            got = f"got {show_name(contact.email)}"
            problems.append(f"contact {number}: email: expected an address such as ann@company.example, {got}")
        if (count := len(contact.to_dict())) > MAX_FIELDS:  # the schema does not count the fields inside `custom` and `extra`
            problems.append(f"contact {number}: expected at most {MAX_FIELDS} fields, got {count}; omit fields")
    if problems:
        more = f"; and {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
        shown = "; ".join(problems[:_MAX_PROBLEMS])
        raise InvalidRequest(f"{shown}{more}; nothing was sent; correct the contacts and call again")
    return checked


def build_create_function(tool: WriteTool) -> Any:
    # The SDK calls two resolvers first: `ask` returns the question, or raises an error. `require_approval` raises an error unless
    # the user has confirmed the call. The body of the function therefore runs only after a confirmation.

    async def ask(
        context: Context, workspace: str, contacts: Contacts, campaign: str | None, duplicates: Duplicates
    ) -> Elicit[Confirmation]:
        question = tool.build_question(workspace, contacts, campaign, duplicates)
        asking = context.client_capabilities and context.client_capabilities.elicitation
        # A client that declares no modes predates them, and supports forms.
        if not asking or (asking.form is None and asking.url is not None):
            raise ToolError(_CANNOT_ASK)
        return question

    async def require_approval(answer: Annotated[ElicitationResult[Confirmation], Resolve(ask)]) -> bool:
        if not isinstance(answer, AcceptedElicitation) or not answer.data.create:
            raise ToolError(
                "create_contacts: the user did not confirm, so nothing was sent; ask the user what to change before calling again"
            )
        return True

    async def create_contacts(
        workspace: str,
        contacts: Contacts,
        approval: Annotated[bool, Resolve(require_approval)],
        campaign: str | None = None,
        duplicates: Duplicates = "skip",
    ) -> CallToolResult:
        del approval  # the resolver raised an error unless the user confirmed
        return await tool.create(workspace, contacts, campaign, duplicates)

    return create_contacts
