"""The operations as values: the request, the parser of its response, and when a retry is safe. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

import attrs

from outreach_async.codec import DecodeError, encode, encode_contact, loads, loads_each
from outreach_async.contacts import CreateAnswer, CreatedContact, NewContact, possible_outcomes
from outreach_async.models import Campaign, CampaignSteps, Mailbox, Page, WorkspaceFields
from outreach_async.responses import masked_text, secret_parts, spotter, unexpected
from outreach_async.retry import Repeat
from outreach_async.secret import Secret, reveal
from outreach_async.transport.wire import Request, Response
from outreach_async.validation import (
    check_contact,
    require_body,
    require_display,
    require_id,
    require_method,
    require_number,
    require_options,
    require_target,
)
from outreach_async.vocabulary import DUPLICATE_OUTCOMES, ID_PREFIXES, SERVICE_OUTCOMES, Outcome

T = TypeVar("T")

_WORKSPACE_REMEDY: Final = "pass a workspace id or set OUTREACH_WORKSPACE"
_KEY_REMEDY: Final = "pass an owner key or set OUTREACH_OWNER_KEY"


@attrs.define
class Trail:
    """The state of a call when its response arrives.

    Attributes:
        attempts: Number of attempts so far, including the one with this response.
        tainted: Whether an earlier attempt may have been applied.
        possible: Outcomes that remain possible if the response cannot be trusted; `None` if its status decides.
    """

    attempts: int
    tainted: bool
    possible: frozenset[Outcome] | None = None


@attrs.define
class Operation(Generic[T]):
    """One operation of the service, ready to be sent.

    Attributes:
        name: Its name in errors and logs.
        request: The request to send.
        parse: Parses a 2xx response; raises UnexpectedResponse.
        repeat: When it may be retried.
        secrets: Strings to mask in errors.
        any_status: Whether `parse` receives responses of any status.
    """

    name: str
    request: Request
    parse: Callable[[Response, Trail], T] = attrs.field(repr=False)
    repeat: Repeat = Repeat.FREELY
    secrets: tuple[str | Secret, ...] = attrs.field(default=(), repr=False)
    any_status: bool = False


@attrs.frozen(repr=False)
class Dialect:
    """Defaults for a client's requests: header fields, and the secrets in them.

    Attributes:
        read: Header fields of a request without a body, by lower-case name.
        write: Header fields of a request with a JSON body, by lower-case name.
        secrets: Strings to mask in errors.
    """

    read: Mapping[str, str] = attrs.field(repr=False)  # tools such as rich show the fields of a class whose repr hides them
    write: Mapping[str, str] = attrs.field(repr=False)
    secrets: tuple[str | Secret, ...] = attrs.field(repr=False)

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Dialect:
        """Return the defaults with extra header fields, given by lower-case name."""
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
    campaign = require_id("campaign", campaign, "campaign", "pass the id of a campaign in the campaign list")
    return _read("list_steps", f"/campaigns/{quote(campaign, safe='')}/steps", CampaignSteps, loads, dialect)


def list_fields(workspace: object, dialect: Dialect) -> Operation[WorkspaceFields]:
    """List the fields of a workspace (section "List fields of a workspace")."""
    workspace = require_id("workspace", workspace, "workspace", _WORKSPACE_REMEDY)
    return _read("list_fields", f"/workspaces/{quote(workspace, safe='')}/all-fields", WorkspaceFields, loads, dialect)


def _paging(workspace: object, page: object, display: int) -> str:
    workspace = require_id("workspace", workspace, "workspace", _WORKSPACE_REMEDY)
    number = require_number("page", page, least=0)  # the interface does not show whether pages start at 0 or 1
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
        return model  # type: ignore[no-any-return]  # every T has a status, as all four lists do

    return Operation(name, Request("GET", target, dialect.read), parse, secrets=dialect.secrets)


def _loaded(load: Callable[[type[T], bytes], T], kind: type[T], body: bytes) -> T | DecodeError:
    """Return a decode error instead of raising it, because as the context of another error it would keep the body unmasked."""
    try:
        return load(kind, body)
    except DecodeError as error:
        return error.with_traceback(None)  # the traceback holds this frame, whose caller is about to hold the error


@attrs.frozen(repr=False)
class Creation:
    """Builds operations that create contacts under one set of options, checked and encoded once (section "Create contact").

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
        """Check the options and encode them.

        Raises:
            InvalidRequest: An option has a value or type that the interface does not allow.
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
        """Number of bytes in a request body before the contact's own members."""
        return len(self._prefix)

    def of(self, contact: NewContact) -> Operation[CreatedContact]:
        """Return the operation that creates this contact.

        Raises:
            InvalidRequest: The contact is invalid.
        """
        return self._creating(contact, self._created)

    def row(self, contact: NewContact) -> Operation[tuple[CreateAnswer, Trail]]:
        """Return the operation that creates a row of a bulk run. Its result is the service's response with the state of the call.

        Raises:
            InvalidRequest: The contact is invalid.
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
        if not known and not (answer.id or "").startswith(ID_PREFIXES["contact"]):  # an id proves that it is a new outcome
            raise unexpected("create_contact", response, self._secrets, f"unknown status {answer.status.value!r}, no contact id")
        return answer, trail

    def _without_key(self, answer: CreateAnswer, trail: Trail) -> tuple[CreateAnswer, Trail]:
        """Drop the id if the id or the status contains the key: such a response proves nothing."""
        if answer.id is None or not (self._shows(answer.id) or self._shows(answer.status.value)):
            return answer, trail
        possible = {answer.status, Outcome.NOT_APPLIED, Outcome.ADDED, DUPLICATE_OUTCOMES[self.duplicates]}
        return attrs.evolve(answer, id=None), attrs.evolve(trail, possible=frozenset(possible))

    def _shows(self, text: str) -> bool:
        return masked_text(text, self._secrets[:1]) != text


def raw(method: object, target: object, body: object, headers: Mapping[str, str], dialect: Dialect) -> Operation[Response]:
    """Send any request. Any status is accepted, and it is not retried once a byte may have been sent."""
    fields = {**(dialect.write if body else dialect.read), **headers}
    request = Request(require_method(method), require_target(target), fields, require_body(body))
    secrets = (*dialect.secrets, *map(Secret, secret_parts(headers)))
    return Operation("request", request, lambda response, _trail: response, Repeat.UNSENT, secrets, any_status=True)
