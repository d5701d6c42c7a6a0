"""The bodies of the control plane's requests and responses, parsed strictly. An error names the place and the remedy.

They are structs, and not attrs classes as elsewhere: msgspec parses them strictly, locates errors, refuses unknown members, and
generates the schemas of the OpenAPI document from these classes.

Values that are functions can be set in Python only.

The forms are generated from these functions, so a fault added there is available here.
"""

from __future__ import annotations

import collections.abc
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin
from urllib.parse import parse_qsl

import attrs
import msgspec

from outreach_async.fake import faults
from outreach_async.fake.arguments import suggestion
from outreach_async.fake.behaviour import READINGS, Behaviour, HeaderAuth, RateLimit
from outreach_async.fake.errors import masked
from outreach_async.fake.faults import Fault


class Problem(Exception):
    """A request that the control plane refuses.

    Attributes:
        status: HTTP status code.
        message: What is wrong, with keys masked.
        field: The member or parameter at fault, with dots; `None` if there is none.
        remedy: How to correct the request.
        headers: Header fields of the response.
    """

    def __init__(
        self, status: int, message: str, field: str | None, remedy: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self.status = status
        self.message = masked(message)
        self.field = field
        self.remedy = remedy
        self.headers = headers or {}
        super().__init__(self.message)


def read_body(raw: bytes, kind: Any) -> Any:
    """Parse a body.

    Raises:
        Problem: The body is not valid for this operation.
    """
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise _misfit(error, kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = str(error) if isinstance(error, msgspec.DecodeError) else type(error).__name__
        raise Problem(400, f"cannot parse the body: {reason}", None, "send one JSON object in UTF-8") from None


def read_query(query: str, kind: Any) -> Any:
    """Parse query parameters.

    Raises:
        Problem: The parameters are not valid for this operation.
    """
    given: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in given:
            raise Problem(400, f"the parameter {name} is given twice", name, "pass it once")
        given[name] = value
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _misfit(error, kind) from None


def _misfit(error: msgspec.ValidationError, kind: Any) -> Problem:
    message, _, place = str(error).partition(" - at `")
    named = re.search(r"(?:required|unknown) field `(.*)`", message)
    path = place.removeprefix("key` in `").removeprefix("$").removesuffix("`").lstrip(".")
    field = ".".join(filter(None, (path, named and named[1]))) or None
    return Problem(400, f"{field or 'the body'}: {message}", field, _remedy(field or "", getattr(kind, "__struct_fields__", ())))


def _remedy(field: str, known: tuple[str, ...]) -> str:
    first = re.split(r"[.\[]", field)[0]
    if first in {"fault", "faults"}:
        return f"available faults: {TAKES}"
    if first in READINGS:
        return f"use one of {', '.join(map(str, READINGS[first]))}"
    guess = suggestion(first, list(known)) if first not in known else ""
    return guess or (f"accepted: {', '.join(known)}" if known else "send an object without other members")


Operation = Literal["list_campaigns", "list_mailboxes", "create_contact", "list_steps", "list_fields", "unknown"]
"""Operations, as faults name them."""

Count = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
"""Number of items to generate in one request."""

_Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Rates = dict[Literal["open", "click", "reply", "bounce", "unsubscribe", "interested"], _Share]
_Period = Annotated[float, msgspec.Meta(ge=0)]
_Span = _Period | Annotated[str, msgspec.Meta(pattern=r"^(\d+(\.\d+)?(ms|s|m|h|d|w))+$")]
_Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """A request body. Unknown members are refused."""


class Nothing(Body):
    """A body without members."""


class Workspace(Body):
    """A workspace, as `FakeService.add_workspace` takes it."""

    id: Annotated[str, msgspec.Meta(pattern="^space_.")] | None = None
    custom_fields: list[_Text] | dict[Annotated[str, msgspec.Meta(pattern=r"^custom_[1-9]\d{0,8}$")], _Text] = msgspec.field(
        default_factory=list
    )
    extra_fields: dict[_Text, _Text] = msgspec.field(default_factory=dict)
    campaign_headers: list[str] | None = None
    mailbox_headers: list[str] | None = None


class OwnerKey(Body):
    """The API key of a user; generated if `key` is null."""

    workspaces: list[str]
    key: Annotated[str, msgspec.Meta(pattern="^key_.")] | None = None


class Mailboxes(Body):
    """Mailboxes, generated except for the given fields."""

    workspace: str
    count: Count = 1
    trouble: _Share = 0.0
    fields: dict[str, Any] = msgspec.field(default_factory=dict)


class Campaign(Body):
    """A campaign, as `FakeService.add_campaign` takes it."""

    workspace: str
    id: Annotated[str, msgspec.Meta(pattern="^camp_.")] | None = None
    name: str = "Campaign"
    status: str = "draft"
    mailboxes: list[str] = msgspec.field(default_factory=list)
    steps: list[str | dict[str, Any]] = msgspec.field(default_factory=list)
    contacts: _Whole | None = None
    bounces_num: _Whole | None = None
    interested_num: _Whole | None = None
    created: _Whole | None = None
    last_activity: _Period | Literal["auto"] | None = "auto"
    rates: _Rates | None = None


class CampaignChange(Body):
    """Changes of a campaign. Omitted members stay as they are."""

    id: str
    status: _Text | None = None
    mailboxes: list[str] | None = None
    rates: _Rates | None = None


class MailboxChange(Body):
    """Changes of a mailbox: fields by name."""

    id: str
    fields: dict[str, Any]


class NewContacts(Body):
    """Contacts: a number to generate, or rows of `email` and fields by code."""

    workspace: str
    rows: Count | list[dict[str, str | None]]
    campaign: str | None = None
    owner_key: str | None = None


class Answers(Body):
    """The actions of a contact on an e-mail that is still to be sent. Omitted actions do not happen."""

    contact: _Text
    """The contact's e-mail address or id."""
    step: Annotated[int, msgspec.Meta(ge=1)] = 1
    campaign: str | None = None
    opens_after: _Span | None = None
    """Seconds from the sending, or a string such as `90s`, `2h` or `1d12h`; the same for the others."""
    clicks_after: _Span | None = None
    replies_after: _Span | None = None
    unsubscribes_after: _Span | None = None
    bounces_after: _Span | None = None
    interested: bool = False


class Script(Body):
    """Faults for the next requests of an operation, one each, in order."""

    operation: Operation
    faults: Annotated[list[FaultBody], msgspec.Meta(min_length=1)]


class Rule(Body):
    """A fault that strikes every request that meets all conditions."""

    fault: FaultBody
    operation: Operation | None = None
    containing: str | None = None
    """A string that the request's target or body must contain."""
    times: Annotated[int, msgspec.Meta(ge=1)] | None = None
    p: _Share | None = None
    """Probability that the fault strikes, drawn from the seed."""


class Period(Body):
    """The time to advance by."""

    weeks: _Period = 0.0
    days: _Period = 0.0
    hours: _Period = 0.0
    minutes: _Period = 0.0
    seconds: _Period = 0.0


class WhichContacts(Body):
    """The workspace whose contacts to list, and optionally the e-mail address of one of them."""

    workspace: str
    email: str | msgspec.UnsetType = msgspec.UNSET


class WhichRequests(Body):
    """The entries of the request log to list."""

    operation: Operation | msgspec.UnsetType = msgspec.UNSET
    last: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100


class Answer(msgspec.Struct):
    """A response body."""


class State(Answer):
    """The state of the server."""

    seed: int
    now: str
    requests: int
    """Number of requests that reached the service."""
    unfired: int
    """Number of faults that have not struck yet."""
    openapi: str
    """URL of the service's OpenAPI document."""
    control: str
    """URL of the control plane's OpenAPI document."""


class Made(Answer):
    """Ids of the added items in order; for an owner key, the key."""

    ids: list[str]


class Time(Answer):
    """The fake's time: ISO 8601 in UTC, and Unix seconds."""

    now: str
    unix: float


class Contacts(Answer):
    """Stored contacts, in the order of their creation."""

    contacts: list[dict[str, Any]]


class Asked(Answer):
    """A request in the log. Owner keys are masked, header fields are omitted, and `status` is null if no response was sent."""

    number: int
    operation: Operation
    method: str
    target: str
    json: Any
    status: int | None
    hints: list[str]
    served: bool
    request_id: str | None
    at: float
    fault: str | None
    """The fault that struck; null if none did."""


class Requests(Answer):
    """The request log: the number of requests, and the last ones."""

    total: int
    counts: dict[str, int]
    statuses: dict[str, int]
    requests: list[Asked]


class Waiting(Answer):
    """Faults that have not struck yet."""

    unfired: list[str]


class Readings(Answer):
    """The value of every knob, and the named values that it accepts."""

    behaviour: dict[str, Any]
    readings: dict[str, list[Any]]


class Detail(Answer):
    """What is wrong, where, and how to correct it."""

    message: str
    field: str | None
    remedy: str


class Refusal(Answer):
    """An error of the control plane."""

    error: Detail


Preset = Literal["documented", "strict", "lenient"]


def _knob_form(name: str, fields: Iterable[Any]) -> type[msgspec.Struct]:
    return msgspec.defstruct(name, fields, module=__name__, forbid_unknown_fields=True, frozen=True, kw_only=True)


def _members(kind: type[attrs.AttrsInstance], say: Callable[[Any], Any]) -> list[Any]:
    """Return the members of a form for an attrs class. Those without a default are required."""
    typed = [(field, say(field.type)) for field in attrs.fields(kind)]
    return [
        (field.name, type_) if field.default is attrs.NOTHING else (field.name, type_ | msgspec.UnsetType, msgspec.UNSET)
        for field, type_ in typed
    ]


_OBJECTS: Final[Mapping[Any, type[msgspec.Struct]]] = {
    kind: _knob_form(kind.__name__, _members(attrs.resolve_types(kind), lambda type_: type_)) for kind in (HeaderAuth, RateLimit)
}
"""Forms of the values that are objects."""


def _sayable(annotation: Any) -> Any:
    """Return a knob's type as JSON can express it."""
    if get_origin(annotation) is Literal:
        return annotation
    kinds = get_args(annotation) or (annotation,)
    return reduce(or_, [_OBJECTS.get(kind, kind) for kind in kinds if get_origin(kind) is not collections.abc.Callable])


if TYPE_CHECKING:
    Knobs: TypeAlias = msgspec.Struct  # created at run time
    NewBehaviour: TypeAlias = msgspec.Struct
else:
    _KNOBS: Final = _members(attrs.resolve_types(Behaviour), _sayable)
    Knobs = _knob_form("Knobs", _KNOBS)
    NewBehaviour = _knob_form("NewBehaviour", [("preset", Preset, "documented"), *_KNOBS])


class KnobError(ValueError):
    """A knob does not accept a value.

    Attributes:
        knob: Name of the knob.
    """

    def __init__(self, knob: str, message: str) -> None:
        super().__init__(message)
        self.knob = knob


def turned(behaviour: Behaviour, said: Knobs) -> Behaviour:
    """Return a behaviour with the given knobs set.

    Raises:
        KnobError: A knob does not accept its value.
    """
    for name, value in _given(said).items():
        if name != "preset":
            behaviour = _turned(behaviour, name, value)
    return behaviour


def _turned(behaviour: Behaviour, name: str, value: Any) -> Behaviour:
    kinds = [kind for kind, form in _OBJECTS.items() if type(value) is form]
    try:
        return attrs.evolve(behaviour, **{name: kinds[0](**_given(value)) if kinds else value})
    except (TypeError, ValueError) as error:
        raise KnobError(name, str(error)) from None


def _given(said: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(said).items() if value is not msgspec.UNSET}


def preset(said: NewBehaviour) -> Behaviour:
    """Return the preset that a body names."""
    made: Behaviour = getattr(Behaviour, _given(said)["preset"])()
    return made


def plain(behaviour: Behaviour) -> dict[str, Any]:
    """Return every knob as JSON, with credentials masked and functions named."""
    return {field.name: _plain(getattr(behaviour, field.name)) for field in attrs.fields(Behaviour)}


def readings() -> dict[str, list[Any]]:
    """Return the named values of each knob as JSON, the default first."""
    return {name: [_plain(value) for value in values] for name, values in READINGS.items()}


def _plain(value: Any) -> Any:
    if attrs.has(type(value)):
        members = attrs.asdict(value, recurse=False).items()
        return {name: ["***"] * len(member) if name == "tokens" else member for name, member in members}
    if isinstance(value, frozenset):
        return sorted(value)
    return f"function {getattr(value, '__name__', type(value).__name__)}" if callable(value) else value


_COMMIT_THEN: Final = "commit_then"
_OK: Final = "ok"

MAKERS: Final[Mapping[str, Callable[..., Fault]]] = {
    name: maker
    for name in faults.__all__
    if inspect.isfunction(maker := getattr(faults, name)) and inspect.signature(maker).return_annotation == "Fault"
}
"""Functions that create faults, by name."""

_FIELD: Final = msgspec.Meta(pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$")

# Types of arguments whose annotation JSON cannot express, or with bounds, so that an error names the place. Bytes become strings.
_TYPES: Final[Mapping[str, Any]] = {
    "code": Annotated[int, msgspec.Meta(ge=200, le=599)],
    "retry_after": Annotated[float, msgspec.Meta(ge=0)] | Annotated[str, _FIELD] | None,
    "body": str | None,
    "headers": dict[Annotated[str, msgspec.Meta(pattern=r"^[0-9a-z!#$%&'*+.^_`|~-]+$")], Annotated[str, _FIELD]] | None,
    "seconds": Annotated[float, msgspec.Meta(ge=0)],
    "after_bytes": Annotated[int, msgspec.Meta(ge=0)],
    "after": Annotated[int, msgspec.Meta(ge=0)],
    "short_by": Annotated[int, msgspec.Meta(ge=1)],
    "bytes": Annotated[int, msgspec.Meta(ge=1)],
    "every": Annotated[float, msgspec.Meta(ge=0)],
}


def _fault_form(name: str, fields: list[Any]) -> type[msgspec.Struct]:
    title = "".join(map(str.capitalize, name.split("_")))
    options: Any = {"tag_field": "name", "tag": name, "forbid_unknown_fields": True, "frozen": True, "kw_only": True}
    return msgspec.defstruct(f"{title}Fault", fields, module=__name__, **options)


def _fields(maker: Callable[..., Fault]) -> list[Any]:
    parameters = inspect.signature(maker, eval_str=True).parameters.values()
    typed = [(parameter, _TYPES.get(parameter.name, parameter.annotation)) for parameter in parameters]
    return [(said.name, type_) if said.default is said.empty else (said.name, type_, said.default) for said, type_ in typed]


_FORMS: Final = {_OK: _fault_form(_OK, [])} | {
    name: _fault_form(name, _fields(make)) for name, make in MAKERS.items() if name != _COMMIT_THEN
}

# A request that never arrived cannot have been stored.
_COMMITTED: Final = [form for name, form in _FORMS.items() if name != "refuse"]

if TYPE_CHECKING:
    FaultBody: TypeAlias = msgspec.Struct  # the union is created at run time
else:
    FaultBody = reduce(or_, [*_FORMS.values(), _fault_form(_COMMIT_THEN, [("fault", reduce(or_, _COMMITTED))])])

TAKES: Final = "; ".join(
    f"{name}({', '.join(inspect.signature(MAKERS[name]).parameters) if name in MAKERS else ''})" for name in (_OK, *MAKERS)
)
"""The faults and their arguments, in readable form."""


def made(said: FaultBody) -> Fault:
    """Return the fault that a body describes.

    Raises:
        ValueError: Its arguments are inconsistent.
    """
    name = str(said.__struct_config__.tag)
    if name == _OK:
        return faults.ok
    arguments = msgspec.structs.asdict(said)
    if name == _COMMIT_THEN:
        return faults.commit_then(made(arguments["fault"]))
    return MAKERS[name](**arguments)
