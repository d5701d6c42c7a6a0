"""Build the operations of the service, each with a request, a response parser and a retry condition. No function does I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, cast
from urllib.parse import quote

import attrs
import msgspec

from outreach_async._core import arguments as validation
from outreach_async._core.codec import DECODE_ERRORS, FIELD_ORDER, DecodeError, encode
from outreach_async._core.responses import build_unexpected_response, clean_string, make_secret_detector, secret_parts
from outreach_async._core.retry import Idempotency
from outreach_async._wire_words import (
    CUSTOM_CODE,
    DUPLICATE_OUTCOMES,
    ID_PREFIXES,
    MAX_MAILBOX_DISPLAY,
    SERVICE_OUTCOMES,
    Outcome,
)
from outreach_async.errors import InvalidRequest, strip_invisible
from outreach_async.models import (
    Campaign,
    CampaignSteps,
    CreateContactResponse,
    CreatedContact,
    Mailbox,
    NewContact,
    Page,
    ResponseInfo,
    Target,
    WorkspaceFields,
    possible_outcomes,
)
from outreach_async.transport._secret import Secret, reveal
from outreach_async.transport._wire import Request, Response

if TYPE_CHECKING:
    from outreach_async.converters import OutreachConverter

T = TypeVar("T")

_WORKSPACE_REMEDY: Final = "pass a workspace id or set OUTREACH_WORKSPACE"
KEY_REMEDY: Final = "pass an owner key or set OUTREACH_OWNER_KEY"


@attrs.define
class AttemptInfo:
    """The state of a call when its response arrives."""

    attempts: int
    maybe_applied: bool
    possible: frozenset[Outcome] | None = None


@attrs.define
class Operation(Generic[T]):
    name: str
    request: Request
    parse: Callable[[Response, AttemptInfo], T] = attrs.field(repr=False)
    idempotency: Idempotency = Idempotency.SAFE
    secrets: tuple[str | Secret, ...] = attrs.field(default=(), repr=False)
    any_status: bool = False


@attrs.frozen(repr=False)
class RequestDefaults:
    """The header fields of a client's requests, the secrets to mask in the client's errors, and the client's converter."""

    # Tools such as rich show fields even if the class's repr hides them.
    read_headers: Mapping[str, str] = attrs.field(repr=False)
    write_headers: Mapping[str, str] = attrs.field(repr=False)
    secrets: tuple[str | Secret, ...] = attrs.field(repr=False)
    converter: Callable[[], OutreachConverter] = attrs.field(repr=False)  # importing cattrs takes time, so not before a request

    @classmethod
    def from_headers(cls, headers: Mapping[str, str], converter: Callable[[], OutreachConverter]) -> RequestDefaults:
        read = {"accept": "application/json", "accept-encoding": "gzip, deflate", "user-agent": "outreach_async/0.1.0", **headers}
        secrets = tuple(map(Secret, secret_parts(headers)))
        return cls(read, {"content-type": "application/json", **read}, secrets, converter)


PageBuilder: TypeAlias = Callable[[int], Operation[Page[T]]]
"""A function that builds the operation for the page with a given number."""


def list_campaigns(workspace: object, display: object, defaults: RequestDefaults, *, keep: bool) -> PageBuilder[Campaign]:
    display = validation.require_number("display", display, least=1)
    return _build_list("campaigns", Page[Campaign], workspace, display, defaults, keep=keep)


def list_mailboxes(workspace: object, display: object, defaults: RequestDefaults, *, keep: bool) -> PageBuilder[Mailbox]:
    display = validation.require_number("display", display, least=1, most=MAX_MAILBOX_DISPLAY)
    return _build_list("mailboxes", Page[Mailbox], workspace, display, defaults, keep=keep)


def list_steps(campaign: object, defaults: RequestDefaults) -> Operation[CampaignSteps]:
    campaign = validation.require_id("campaign", campaign, "campaign", "pass an id from the campaign list")
    return _build_read("list_steps", CampaignSteps, f"/campaigns/{quote(campaign, safe='')}/steps", defaults)


def list_fields(workspace: object, defaults: RequestDefaults) -> Operation[WorkspaceFields]:
    workspace = validation.require_id("workspace", workspace, "workspace", _WORKSPACE_REMEDY)
    return _build_read("list_fields", WorkspaceFields, f"/workspaces/{quote(workspace, safe='')}/all-fields", defaults)


def _build_read(name: str, kind: type[T], target: str, defaults: RequestDefaults) -> Operation[T]:
    parse = _make_parser(name, kind, defaults)
    return Operation(name, Request("GET", target, defaults.read_headers), parse, secrets=defaults.secrets)


def _build_list(
    items: str, kind: type[Page[T]], workspace: object, display: int, defaults: RequestDefaults, *, keep: bool
) -> PageBuilder[T]:
    # The arguments are checked and encoded once for all pages.
    workspace = quote(validation.require_id("workspace", workspace, "workspace", _WORKSPACE_REMEDY), safe="")
    name = f"list_{items}"
    parse = _make_parser(name, kind, defaults, keep=keep)

    def build_page(number: int) -> Operation[Page[T]]:
        target = f"/{items}?workspace={workspace}&page={number}&display={display}"
        return Operation(name, Request("GET", target, defaults.read_headers), parse, secrets=defaults.secrets)

    return build_page


def _make_parser(
    name: str, kind: type[T], defaults: RequestDefaults, *, keep: bool = False
) -> Callable[[Response, AttemptInfo], T]:
    # Before the request is sent: an import may fail, for example in a process that has used up its descriptors.
    loads, secrets = defaults.converter().loads, defaults.secrets

    def parse(response: Response, _info: AttemptInfo) -> T:
        model: Any = _try_decode(loads, response.body, kind, keep=keep)
        if isinstance(model, DecodeError):
            raise build_unexpected_response(name, response, secrets, model)
        if model.status != "ok":
            raise build_unexpected_response(name, response, secrets, f"status {model.status!r} instead of 'ok'")
        headers = (
            {each: clean_string(value, secrets) for each, value in response.headers.items()} if secrets else response.headers
        )
        object.__setattr__(model, "_response", ResponseInfo(response.status, headers))  # frozen for callers, but new
        return model  # type: ignore[no-any-return]  # every model used as T has a `status`

    return parse


def _try_decode(decode: Callable[..., T], *what: Any, **options: Any) -> T | DecodeError:
    # The error contains the unmasked body, and is therefore not raised. A raised error would become the `__context__` of the
    # error that the caller raises, and tracebacks would show it.
    try:
        return decode(*what, **options)
    except DecodeError as error:
        return error.with_traceback(None)  # the frames reference the error: a cycle


_decode_answer: Final = msgspec.json.Decoder(CreateContactResponse).decode
_HISTORY_SIZE: Final = 4096  # contact ids that a client remembers; a late copy rarely follows more responses


class CopyDetector:
    """Remembers the contact ids of a client's last responses. A copy of a response, taken for another, repeats its id."""

    def __init__(self, on_copy: Callable[[], object] = bool) -> None:
        self._on_copy = on_copy
        self._ids: set[str] = set()
        self._older_ids: set[str] = set()

    def is_copy(self, answer: CreateContactResponse) -> bool:
        """Remember the id of a response. Return whether the response is a copy: no two calls add the same contact."""
        if answer.id is None:
            return False
        if answer.id in self._ids or answer.id in self._older_ids:
            if answer.status != Outcome.ADDED:
                return False
            self._on_copy()
            return True
        if len(self._ids) == _HISTORY_SIZE:
            self._older_ids, self._ids = self._ids, set()
        self._ids.add(answer.id)
        return False


@attrs.frozen(repr=False)
class ContactRequests:
    """Builds operations that create contacts. The shared options are checked and encoded once."""

    # See the section "Create contact" of the service's API documentation.

    duplicates: str
    _strict: bool
    _prefix: bytes = attrs.field(repr=False)
    _headers: Mapping[str, str] = attrs.field(repr=False)
    _converter: OutreachConverter = attrs.field(repr=False)
    _secrets: tuple[str | Secret, ...] = attrs.field(repr=False)
    _may_contain_key: Callable[[str], bool] = attrs.field(repr=False)
    _may_contain_secret: Callable[[str], bool] = attrs.field(repr=False)
    _copy_detector: CopyDetector
    target: Target
    row_operation: Operation[tuple[CreateContactResponse, AttemptInfo]] = attrs.field(init=False, repr=False)
    """The operation of every row. Each row has its own request."""
    _reads_plainly: bool = attrs.field(init=False)

    @row_operation.default
    def _build_row_operation(self) -> Operation[tuple[CreateContactResponse, AttemptInfo]]:
        return self._build_operation(self.build_request(b"}"), self._parse_row)

    @_reads_plainly.default
    def _find_reader(self) -> bool:
        return self._converter.reads_plainly(CreateContactResponse)

    @classmethod
    def from_options(
        cls,
        owner_key: object,
        workspace: object,
        defaults: RequestDefaults,
        *,
        duplicates: object,
        strict_validation: object,
        campaign: object,
        copy_detector: CopyDetector,
    ) -> ContactRequests:
        # All builders of a client share `copy_detector`.
        key = Secret(validation.require_id("owner_key", reveal(owner_key), "owner_key", KEY_REMEDY))
        workspace = validation.require_id("workspace", workspace, "workspace", _WORKSPACE_REMEDY)
        campaign = validation.require_upload_options(duplicates, strict_validation, campaign)
        policy = str.__str__(cast("str", duplicates))  # of a member of an enumeration, `str` may return the name
        return cls(
            policy,
            bool(strict_validation),
            _encode_prefix(key, workspace, policy, strict_validation, campaign),
            defaults.write_headers,
            defaults.converter(),
            (key, *defaults.secrets),
            make_secret_detector(key),
            make_secret_detector(key, *defaults.secrets),
            copy_detector,
            Target(workspace, campaign),
        )

    def with_target(self, workspace: str, campaign: str | None) -> ContactRequests:
        key = cast("Secret", self._secrets[0])
        prefix = _encode_prefix(key, workspace, self.duplicates, self._strict, campaign)
        return attrs.evolve(self, prefix=prefix, target=Target(workspace, campaign))

    @property
    def prefix_size(self) -> int:
        return len(self._prefix)

    @property
    def encodes_plainly(self) -> bool:
        """Whether `encode_plain` and `encode_cells` may encode rows, because no hook for contacts is involved."""
        return self._converter.encodes_plainly()

    def encode(self, contact: NewContact) -> bytes:
        return self._converter.encode_contact(contact)

    def build(self, contact: NewContact) -> Operation[CreatedContact]:
        return self._build_operation(self.build_row(contact), self._parse_created)

    def build_row(self, contact: NewContact) -> Request:
        """Return the request of a row."""
        validation.check_contact(contact)
        return self.build_request(self.encode(contact)[1:])

    def build_request(self, fields: bytes) -> Request:
        """Return the request for a contact from its encoded fields, without the opening brace."""
        return Request("POST", "/contacts", self._headers, self._prefix + fields)

    def _build_operation(self, request: Request, parse: Callable[[Response, AttemptInfo], T]) -> Operation[T]:
        return Operation("create_contact", request, parse, Idempotency.IDEMPOTENT, self._secrets)

    def _parse_created(self, response: Response, info: AttemptInfo) -> CreatedContact:
        answer, info = self._parse_response(response, info)
        if self._copy_detector.is_copy(answer):
            answer, info = self._distrust(answer, info)
        headers = response.headers
        text = " ".join((*headers.values(), answer.details or ""))
        if strip_invisible(text) != text or self._may_contain_secret(text):
            headers = {name: clean_string(value, self._secrets) for name, value in headers.items()}
            answer = attrs.evolve(answer, details=answer.details and clean_string(answer.details, self._secrets))
        created = CreatedContact(
            status=answer.status,
            id=answer.id,
            details=answer.details,
            possible=info.possible or possible_outcomes(answer.status, maybe_applied=info.maybe_applied),
            request_id=headers.get("x-request-id"),
            attempts=info.attempts,
            response=ResponseInfo(response.status, headers),
            extra=answer.extra,
        )
        return created if self._converter.has_own(CreatedContact) else self._convert_created(created, response)

    def _convert_created(self, created: CreatedContact, response: Response) -> CreatedContact:
        """Return what the hook or the subclass of the client's converter makes of the result."""
        converted: CreatedContact | DecodeError = _try_decode(self._converter.read_hooked, created.to_dict(), CreatedContact)
        if isinstance(converted, DecodeError):
            raise build_unexpected_response("create_contact", response, self._secrets, converted)
        object.__setattr__(converted, "_response", created.response)  # frozen for callers, but new
        return converted

    def _parse_row(self, response: Response, info: AttemptInfo) -> tuple[CreateContactResponse, AttemptInfo]:
        # Nothing reads the further members of a row's response, so they may be left out.
        answer: CreateContactResponse | None = None
        if self._reads_plainly:
            with suppress(*DECODE_ERRORS):
                answer = _decode_answer(response.body)
        if answer is None or self._is_suspicious(answer):
            answer, info = self._parse_response(response, info)
        if self._copy_detector.is_copy(answer):
            info = self._distrust(answer, info)[1]  # the id stays, because the run compares the ids of its rows
        return answer, info

    def _parse_response(self, response: Response, info: AttemptInfo) -> tuple[CreateContactResponse, AttemptInfo]:
        answer = _try_decode(self._converter.loads, response.body, CreateContactResponse)
        if isinstance(answer, DecodeError):
            raise build_unexpected_response("create_contact", response, self._secrets, answer)
        known = answer.status in SERVICE_OUTCOMES
        identifier = answer.id or ""
        visible = strip_invisible(identifier)
        if self._is_suspicious(answer):
            texts = (identifier, answer.status.value)
            if answer.id is not None and any(clean_string(text, self._secrets[:1]) != strip_invisible(text) for text in texts):
                answer, info = self._distrust(answer, info)  # an id or a status with the owner key
            answer = answer if answer.id is None else attrs.evolve(answer, id=visible)
        # With a contact id, the status is a new outcome, unless it has invisible characters.
        has_id = (answer.id or "").startswith(ID_PREFIXES["contact"])
        if not known and not (has_id and strip_invisible(answer.status.value) == answer.status.value):
            fault = f"unknown status {answer.status.value!r}{'' if has_id else ' and no contact id'}"
            raise build_unexpected_response("create_contact", response, self._secrets, fault)
        return answer, info

    def _is_suspicious(self, answer: CreateContactResponse) -> bool:
        """Return whether a response needs a closer look, as one with an unknown status, or perhaps with the key in its id."""
        identifier = answer.id or ""
        return (
            answer.status not in SERVICE_OUTCOMES
            or strip_invisible(identifier) != identifier
            or self._may_contain_key(identifier)
        )

    def _distrust(self, answer: CreateContactResponse, info: AttemptInfo) -> tuple[CreateContactResponse, AttemptInfo]:
        possible = {answer.status, Outcome.NOT_APPLIED, Outcome.ADDED, DUPLICATE_OUTCOMES[self.duplicates]}
        return attrs.evolve(answer, id=None), attrs.evolve(info, possible=frozenset(possible))


def encode_plain(row: dict[Any, Any]) -> bytes:
    """Return the fields of a row of valid strings and `None`, as `encode_contact` does, without the opening brace."""
    # For any other row, return no bytes.
    encoder = _plain_row_encoder(tuple(row))
    return b"" if encoder is None else encoder(row)


def encode_cells(codes: tuple[str, ...], cells: tuple[str, ...]) -> bytes:
    """Return the fields of a file's row, as `encode_plain` does. Empty cells are left out. The codes are as of `order_fields`."""
    return _cells_encoder(codes)(cells)


@lru_cache(maxsize=256)  # nearly all rows of an input have the same keys
def _plain_row_encoder(keys: tuple[object, ...]) -> Callable[[dict[Any, Any]], bytes] | None:
    if not (names := order_fields(keys)):
        return None
    struct: Any = msgspec.defstruct("Row", [(name, str | None) for name in names], gc=False)
    pick_several, join = itemgetter(*names), "".join
    pick = pick_several if len(names) > 1 else lambda row: (pick_several(row),)

    def encode_row(row: dict[Any, Any]) -> bytes:
        values = pick(row)
        try:
            # Joining fails unless all values are strings. A comparison with `None` may raise anything.
            join(values if None not in values else [value for value in values if value is not None])
            return encode(struct(*values))[1:] if row["email"].strip() else b""
        except Exception:  # noqa: BLE001 - building a `NewContact` names the field
            return b""

    return encode_row


@lru_cache(maxsize=256)
def _cells_encoder(codes: tuple[str, ...]) -> Callable[[tuple[str, ...]], bytes]:
    struct: Any = msgspec.defstruct("Cells", [(code, str, "") for code in codes], gc=False, omit_defaults=True)
    email, is_blank = codes.index("email"), str.isspace

    def encode_row(cells: tuple[str, ...]) -> bytes:
        return encode(struct(*cells))[1:] if cells[email] and not any(map(is_blank, cells)) else b""

    return encode_row


@lru_cache(maxsize=256)
def order_fields(keys: tuple[object, ...]) -> tuple[str, ...]:
    """Return fields and custom codes in the order of `encode_contact`; none if other keys are among them, or no e-mail."""
    known = [name for name in FIELD_ORDER if name in keys]
    codes = [key for key in keys if type(key) is str and CUSTOM_CODE.fullmatch(key)]
    is_plain = "email" in keys and len(known) + len(codes) == len(keys)
    return (*known, *codes) if is_plain else ()


def _encode_prefix(key: Secret, workspace: str, duplicates: object, strict_validation: object, campaign: object) -> bytes:
    options = {"duplicates": duplicates, "strict_validation": strict_validation, "campaign": campaign}
    return encode({"owner_key": key.reveal(), "workspace": workspace, "upload_options": options})[:-1] + b","


def raw_request(
    method: object, target: object, body: object, headers: object, defaults: RequestDefaults, *, params: object, json: object
) -> Operation[Response]:
    """Return the operation that sends the given request. It accepts any status. It is retried only if no byte was sent."""
    added = validation.require_headers(headers)
    content = validation.require_body(body)
    if json is not None:
        if content:
            raise InvalidRequest("json: expected no body beside it, got both; pass one of them")
        content = _encode_json(json)
    fields = {**(defaults.write_headers if content else defaults.read_headers), **added}
    whole = validation.join_params(validation.require_target(target), params)
    request = Request(validation.require_method(method), whole, fields, content)
    secrets = (*defaults.secrets, *map(Secret, secret_parts(added)))
    return Operation("request", request, lambda response, _info: response, Idempotency.UNKNOWN, secrets, any_status=True)


def _encode_json(value: object) -> bytes:
    try:
        return encode(value)
    except (TypeError, ValueError, RecursionError) as error:  # the message of msgspec may quote a value, which may be a secret
        got = f"one that cannot be encoded ({type(error).__name__})"
        remedy = "pass dicts, lists, strings, numbers, Booleans and None"
        raise InvalidRequest(f"json: expected a JSON value, got {got}; {remedy}") from None
