"""The five operations as values: what to send, how to read the answer, and when a repeat is safe. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

import attrs

from outreach_async.checks import (
    check_contact,
    require_body,
    require_display,
    require_id,
    require_method,
    require_number,
    require_options,
    require_target,
)
from outreach_async.contacts import CreateAnswer, CreatedContact, NewContact, possible_outcomes
from outreach_async.converters import DecodeError, encode, encode_contact, loads, loads_each
from outreach_async.models import Campaign, CampaignSteps, Mailbox, Page, WorkspaceFields
from outreach_async.refusals import masked_text, secret_parts, spotter, unexpected
from outreach_async.retry import Repeat
from outreach_async.secret import Secret, reveal
from outreach_async.transport.wire import Request, Response
from outreach_async.vocabulary import DUPLICATE_OUTCOMES, ID_PREFIXES, SERVICE_OUTCOMES, Outcome

T = TypeVar("T")

_WORKSPACE_REMEDY: Final = "pass workspace= or set OUTREACH_WORKSPACE"
_KEY_REMEDY: Final = "pass owner_key= or set OUTREACH_OWNER_KEY"


@attrs.define
class Trail:
    """What the engine knows of one call when its answer arrives.

    Attributes:
        attempts: Tries so far, the answered one included.
        tainted: Whether an earlier try may have been carried out.
        possible: What an answer that cannot be trusted leaves possible; `None` if its status tells.
    """

    attempts: int
    tainted: bool
    possible: frozenset[Outcome] | None = None


@attrs.define
class Operation(Generic[T]):
    """One call of the service.

    Attributes:
        name: As errors and logs name it.
        request: What to send.
        parse: Reads an answer of 2xx; raises UnexpectedResponse.
        repeat: When it may be sent again.
        secrets: What must not appear in an error.
        any_status: Whether an answer of any status is handed to `parse`.
    """

    name: str
    request: Request
    parse: Callable[[Response, Trail], T] = attrs.field(repr=False)
    repeat: Repeat = Repeat.FREELY
    secrets: tuple[str | Secret, ...] = attrs.field(default=(), repr=False)
    any_status: bool = False


@attrs.frozen(repr=False)
class Dialect:
    """How a client words its requests: header fields, and the secrets in them.

    Attributes:
        read: Header fields of a request without a body, by lower-case name.
        write: Header fields of a request with a JSON body.
        secrets: What must not appear in an error.
    """

    read: Mapping[str, str] = attrs.field(repr=False)  # tools such as rich show the fields of a class whose repr hides them
    write: Mapping[str, str] = attrs.field(repr=False)
    secrets: tuple[str | Secret, ...] = attrs.field(repr=False)

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Dialect:
        """Return the dialect with these extra header fields, by lower-case name."""
        read = {"accept": "application/json", "accept-encoding": "gzip, deflate", "user-agent": "outreach_async/0.1.0", **headers}
        return cls(read, {"content-type": "application/json", **read}, tuple(map(Secret, secret_parts(headers))))


def list_campaigns(
    workspace: object, page: object, display: object, dialect: Dialect, *, keep: bool
) -> Operation[Page[Campaign]]:
    """List campaigns (section "List campaigns")."""
    display = require_display("display", display, mailboxes=False)
    target = f"/campaigns?{_paging(workspace, page, display)}"
    return _listing("list_campaigns", target, Page[Campaign], dialect, keep=keep)


def list_mailboxes(workspace: object, page: object, display: object, dialect: Dialect, *, keep: bool) -> Operation[Page[Mailbox]]:
    """List mailboxes (section "List mailboxes"); `display` is at most 2,000."""
    display = require_display("display", display, mailboxes=True)
    target = f"/mailboxes?{_paging(workspace, page, display)}"
    return _listing("list_mailboxes", target, Page[Mailbox], dialect, keep=keep)


def list_steps(campaign: object, dialect: Dialect) -> Operation[CampaignSteps]:
    """List the steps of a campaign (section "List steps of a campaign")."""
    campaign = require_id("campaign", campaign, "campaign", "pass the id of a campaign, as client.campaigns.list() shows it")
    return _read("list_steps", f"/campaigns/{quote(campaign, safe='')}/steps", CampaignSteps, loads, dialect)


def list_fields(workspace: object, dialect: Dialect) -> Operation[WorkspaceFields]:
    """List the fields of a workspace (section "List fields of a workspace")."""
    workspace = require_id("workspace", workspace, "workspace", _WORKSPACE_REMEDY)
    return _read("list_fields", f"/workspaces/{quote(workspace, safe='')}/all-fields", WorkspaceFields, loads, dialect)


def _paging(workspace: object, page: object, display: int) -> str:
    workspace = require_id("workspace", workspace, "workspace", _WORKSPACE_REMEDY)
    number = require_number("page", page, least=0)  # whether the first page is 0 or 1 is not shown
    return urlencode({"workspace": workspace, "page": number, "display": display}, quote_via=quote, safe="")


def _listing(name: str, target: str, kind: type[Page[T]], dialect: Dialect, *, keep: bool) -> Operation[Page[T]]:
    return _read(name, target, kind, loads_each if keep else loads, dialect)


def _read(name: str, target: str, kind: type[T], load: Callable[[type[T], bytes], T], dialect: Dialect) -> Operation[T]:
    def parse(response: Response, _trail: Trail) -> T:
        model: Any = _loaded(load, kind, response.body)
        if isinstance(model, DecodeError):
            raise unexpected(name, response, dialect.secrets, model)
        if model.status != "ok":
            raise unexpected(name, response, dialect.secrets, f"status {model.status!r} instead of 'ok'")
        return model  # type: ignore[no-any-return]  # T has a status: the four lists all do

    return Operation(name, Request("GET", target, dialect.read), parse, secrets=dialect.secrets)


def _loaded(load: Callable[[type[T], bytes], T], kind: type[T], body: bytes) -> T | DecodeError:
    """Return the error rather than raise it: as another's context it would keep the body, unmasked."""
    try:
        return load(kind, body)
    except DecodeError as error:
        return error.with_traceback(None)  # which holds this frame, whose caller is about to hold the error


@attrs.frozen(repr=False)
class Creation:
    """Creates contacts under one set of options, which are checked and encoded once (section "Create contact").

    Attributes:
        duplicates: The duplicates option.
    """

    duplicates: str
    _prefix: bytes = attrs.field(repr=False)
    _dialect: Dialect
    _secrets: tuple[str | Secret, ...] = attrs.field(repr=False)
    _may_show: Callable[[str], bool] = attrs.field(repr=False)
    _may_echo: Callable[[str], bool] = attrs.field(repr=False)

    @classmethod
    def under(
        cls,
        owner_key: object,
        workspace: object,
        dialect: Dialect,
        *,
        duplicates: object,
        strict_validation: object,
        campaign: object,
    ) -> Creation:
        """Check the options.

        Raises:
            InvalidRequest: One of them is not of the interface's kind.
        """
        key = Secret(require_id("owner_key", reveal(owner_key), "owner_key", _KEY_REMEDY))
        workspace = require_id("workspace", workspace, "workspace", _WORKSPACE_REMEDY)
        require_options(duplicates, strict_validation, campaign)
        options = {"duplicates": duplicates, "strict_validation": strict_validation, "campaign": campaign}
        prefix = encode({"owner_key": key.reveal(), "workspace": workspace, "upload_options": options})
        return cls(
            str(duplicates), prefix[:-1] + b",", dialect, (key, *dialect.secrets), spotter(key), spotter(key, *dialect.secrets)
        )

    @property
    def head(self) -> int:
        """Bytes of a request's body before the contact's own members."""
        return len(self._prefix)

    def of(self, contact: NewContact) -> Operation[CreatedContact]:
        """Return the operation that creates this contact.

        Raises:
            InvalidRequest: The contact can never be right.
        """
        return self._creating(contact, self._created)

    def row(self, contact: NewContact) -> Operation[tuple[CreateAnswer, Trail]]:
        """Return the same for a row of a bulk run, which makes something else of the answer.

        Raises:
            InvalidRequest: The contact can never be right.
        """
        return self._creating(contact, self._answered)

    def _creating(self, contact: NewContact, parse: Callable[[Response, Trail], T]) -> Operation[T]:
        check_contact(contact)
        request = Request("POST", "/contacts", self._dialect.write, self._prefix + encode_contact(contact)[1:])
        return Operation("create_contact", request, parse, Repeat.KNOWINGLY, self._secrets)

    def _created(self, response: Response, trail: Trail) -> CreatedContact:
        answer, trail = self._answered(response, trail)
        details, request_id = answer.details, response.headers.get("x-request-id")
        if details is not None and self._may_echo(details):
            details = masked_text(details, self._secrets)
        if request_id is not None and self._may_echo(request_id):
            request_id = masked_text(request_id, self._secrets)
        return CreatedContact(
            status=answer.status,
            id=answer.id,
            details=details,
            possible=trail.possible or possible_outcomes(answer.status, tainted=trail.tainted),
            request_id=request_id,
            attempts=trail.attempts,
            extra=answer.extra,
        )

    def _answered(self, response: Response, trail: Trail) -> tuple[CreateAnswer, Trail]:
        answer = _loaded(loads, CreateAnswer, response.body)
        if isinstance(answer, DecodeError):
            raise unexpected("create_contact", response, self._secrets, answer)
        known = answer.status in SERVICE_OUTCOMES
        if not known or self._may_show(answer.id or ""):
            answer, trail = self._without_key(answer, trail)
        if not known and not (answer.id or "").startswith(ID_PREFIXES["contact"]):  # a new outcome is proved by an id
            raise unexpected("create_contact", response, self._secrets, f"status {answer.status.value!r}, which is no outcome")
        return answer, trail

    def _without_key(self, answer: CreateAnswer, trail: Trail) -> tuple[CreateAnswer, Trail]:
        """Drop an id with the key in it, or beside a status with the key in it: what such an answer says proves nothing."""
        if answer.id is None or not (self._shows(answer.id) or self._shows(answer.status.value)):
            return answer, trail
        possible = {answer.status, Outcome.NOT_APPLIED, Outcome.ADDED, DUPLICATE_OUTCOMES[self.duplicates]}
        return attrs.evolve(answer, id=None), attrs.evolve(trail, possible=frozenset(possible))

    def _shows(self, text: str) -> bool:
        return masked_text(text, self._secrets[:1]) != text


def raw(method: object, target: object, body: object, headers: Mapping[str, str], dialect: Dialect) -> Operation[Response]:
    """Send anything: any status is an answer, and nothing is repeated once a byte may have left."""
    fields = {**(dialect.write if body else dialect.read), **headers}
    request = Request(require_method(method), require_target(target), fields, require_body(body))
    secrets = (*dialect.secrets, *map(Secret, secret_parts(headers)))
    return Operation("request", request, lambda response, _trail: response, Repeat.UNSENT, secrets, any_status=True)
