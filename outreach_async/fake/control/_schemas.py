"""The request and response bodies of the control plane. If a request is invalid, the error names the invalid key and a remedy.

The bodies are msgspec structs, not attrs classes as elsewhere. msgspec parses them strictly, reports which key is invalid,
rejects unknown keys, and generates the schemas of the OpenAPI document from the structs.

The structs of knobs and faults are generated from `Behaviour` and `faults`, so new knobs and faults are available here as well.
A knob value that is a function can be set only in Python.
"""

from __future__ import annotations

import collections.abc
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin
from urllib.parse import parse_qsl

import attrs
import msgspec

from outreach_async.fake import faults
from outreach_async.fake._arguments import suggest_similar
from outreach_async.fake._error_responses import mask_keys
from outreach_async.fake.behaviour import KNOB_NAMES, KNOB_VALUES, Behaviour, HeaderAuth, RateLimit
from outreach_async.fake.faults import Fault

UNCHANGED: Final = "nothing was changed; correct the request and send it again"
"""The remedy in the error for a well-formed request that cannot be carried out."""


@attrs.define
class Problem(Exception):
    """Raised when the control plane rejects a request. `field` is the path of the invalid key, or a parameter or header."""

    status: int
    message: str = attrs.field(converter=mask_keys)
    field: str | None
    remedy: str
    headers: Mapping[str, str] = attrs.Factory(dict)


def parse_body(raw: bytes, kind: Any) -> Any:
    """Parse a JSON request body into a value of type `kind`."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise _validation_problem(error, kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = str(error) if isinstance(error, msgspec.DecodeError) else type(error).__name__
        raise Problem(400, f"cannot parse the body: {reason}", None, "send one JSON object in UTF-8") from None


def parse_query(query: str, kind: Any) -> Any:
    """Parse a query string into a value of type `kind`."""
    parameters: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in parameters:
            raise Problem(400, f"the parameter {name} is sent more than once", name, "send the parameter once")
        parameters[name] = value
    try:
        return msgspec.convert(parameters, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _validation_problem(error, kind) from None


def _validation_problem(error: msgspec.ValidationError, kind: Any) -> Problem:
    message, _, place = str(error).partition(" - at `")
    named = re.search(r"(?:required|unknown) field `(.*)`", message)
    path = place.removeprefix("key` in `").removeprefix("$").removesuffix("`").lstrip(".")
    field = ".".join(filter(None, (path, named and named[1]))) or None
    remedy = _suggest_remedy(field or "", getattr(kind, "__struct_fields__", ()))
    return Problem(400, f"{field or 'the body'}: {message}", field, remedy)


def _suggest_remedy(field: str, known: tuple[str, ...]) -> str:
    first = re.split(r"[.\[]", field)[0]
    if first in {"fault", "faults"}:
        return f"available faults: {FAULT_SIGNATURES}"
    if first in KNOB_VALUES:
        return f"use one of {', '.join(map(str, KNOB_VALUES[first]))}"
    guess = suggest_similar(first, list(known)) if first not in known else ""
    return guess or (
        f"accepted: {', '.join(known)}" if known else "remove unknown keys and parameters; a body must be a JSON object"
    )


OperationName = Literal["list_campaigns", "list_mailboxes", "create_contact", "list_steps", "list_fields", "unknown"]
"""Names of operations in faults and in the request log. `unknown` stands for requests that match no operation."""

_Probability = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Duration = Annotated[float, msgspec.Meta(ge=0)]


class RequestBody(msgspec.Struct, forbid_unknown_fields=True):
    """Base class of request bodies and query parameters. Unknown keys and parameters are refused."""


class EmptyBody(RequestBody):
    """An empty JSON object, for operations without arguments."""


class FaultScriptBody(RequestBody):
    """Faults for the next requests of an operation, in order: one fault per request."""

    operation: OperationName
    faults: Annotated[list[FaultBody], msgspec.Meta(min_length=1)]


class FaultRuleBody(RequestBody):
    """A fault to inject into every request that meets all given conditions."""

    fault: FaultBody
    operation: OperationName | None = None
    containing: str | None = None
    """A string that the request's target or body must contain."""
    times: Annotated[int, msgspec.Meta(ge=1)] | None = None
    p: _Probability | None = None
    """Probability that the fault fires on a matching request.

    With the same seed, the same rules and the same sequence of requests, the fault fires on the same requests.
    """


class AdvanceBody(RequestBody):
    """The duration by which to advance the fake's time: the sum of the values of all keys."""

    weeks: _Duration = 0.0
    days: _Duration = 0.0
    hours: _Duration = 0.0
    minutes: _Duration = 0.0
    seconds: _Duration = 0.0


class RequestsQuery(RequestBody):
    """Query parameters of the request log: the maximum number of entries, and optionally an operation to filter by."""

    operation: OperationName | msgspec.UnsetType = msgspec.UNSET
    last: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100


class ClockState(msgspec.Struct):
    """The fake's time, in ISO 8601 (UTC) and in Unix seconds."""

    now: str
    unix: float


class LoggedRequest(msgspec.Struct):
    """A request in the request log, without header fields. Owner keys are masked. `status` is null if no response was sent."""

    number: int
    operation: OperationName
    method: str
    target: str
    json: Any
    status: int | None
    hints: list[str]
    served: bool
    request_id: str | None
    at: float
    fault: str | None
    """The fault that fired; null if no fault fired."""


class LoggedRequests(msgspec.Struct):
    """The request log: the total number of requests, the counts by operation and by status, and the last entries."""

    total: int
    counts: dict[str, int]
    statuses: dict[str, int]
    requests: list[LoggedRequest]


class UnfiredFaults(msgspec.Struct):
    """Descriptions of the faults that have not fired yet."""

    unfired: list[str]


class ProblemDetail(msgspec.Struct):
    """Details of an error: the reason, the invalid part of the request, and the remedy."""

    message: str
    field: str | None
    remedy: str


class ProblemBody(msgspec.Struct):
    """The body of an error response."""

    error: ProblemDetail


def _define_struct(name: str, fields: Iterable[Any], **options: Any) -> type[msgspec.Struct]:
    return msgspec.defstruct(name, fields, module=__name__, forbid_unknown_fields=True, frozen=True, kw_only=True, **options)


def _define_knob_fields(kind: type[attrs.AttrsInstance], to_type: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield definitions of struct fields for the fields of an attrs class. A field without a default is required."""
    for field in attrs.fields(attrs.resolve_types(kind)):
        type_ = to_type(field.type)
        yield (field.name, type_) if field.default is attrs.NOTHING else (field.name, type_ | msgspec.UnsetType, msgspec.UNSET)


_OBJECT_STRUCTS: Final[Mapping[Any, type[msgspec.Struct]]] = {
    kind: _define_struct(kind.__name__, _define_knob_fields(kind, lambda type_: type_)) for kind in (HeaderAuth, RateLimit)
}
"""Maps the attrs class of a knob's value to the msgspec struct that parses the value from a JSON object."""


def _to_json_type(annotation: Any) -> Any:
    """Return the type of a knob without its callable union members, which JSON cannot represent."""
    if get_origin(annotation) is Literal:
        return annotation
    kinds = get_args(annotation) or (annotation,)
    return reduce(or_, [_OBJECT_STRUCTS.get(kind, kind) for kind in kinds if get_origin(kind) is not collections.abc.Callable])


if TYPE_CHECKING:
    Knobs: TypeAlias = msgspec.Struct  # created at run time
else:
    _PRESET: Final = ("preset", Literal["documented", "strict", "lenient"] | msgspec.UnsetType, msgspec.UNSET)
    Knobs = _define_struct("Knobs", [_PRESET, *_define_knob_fields(Behaviour, _to_json_type)])


def set_knobs(behaviour: Behaviour, body: Knobs) -> Behaviour:
    """Return a copy of a behaviour, or of the given preset, with the given knobs set."""
    given = _given_members(body)
    if preset := given.pop("preset", None):
        behaviour = getattr(Behaviour, preset)()
    for name, value in given.items():
        kind = next((kind for kind, struct in _OBJECT_STRUCTS.items() if type(value) is struct), None)
        try:
            behaviour = attrs.evolve(behaviour, **{name: kind(**_given_members(value)) if kind else value})
        except (TypeError, ValueError) as error:
            raise Problem(400, str(error), name, UNCHANGED) from None
    return behaviour


def _given_members(body: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(body).items() if value is not msgspec.UNSET}


def describe_behaviour(behaviour: Behaviour) -> dict[str, Any]:
    """Return the value of every knob as JSON. Credentials are masked; functions are shown by name."""
    return {name: _to_json(getattr(behaviour, name)) for name in KNOB_NAMES}


def _to_json(value: Any) -> Any:
    if attrs.has(type(value)):
        members = attrs.asdict(value, recurse=False).items()
        return {name: ["***"] * len(member) if name == "tokens" else member for name, member in members}
    if isinstance(value, frozenset):
        return sorted(value)
    return f"function {getattr(value, '__name__', type(value).__name__)}" if callable(value) else value


FAULT_FACTORIES: Final[Mapping[str, Callable[..., Fault]]] = {
    name: factory
    for name in faults.__all__
    if inspect.isfunction(factory := getattr(faults, name)) and inspect.signature(factory).return_annotation == "Fault"
}
"""Functions that create faults, by name."""

_HEADER_VALUE: Final = msgspec.Meta(pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$")

# Types that replace the annotations of a fault's arguments: either JSON cannot express the annotation, such as bytes, or the type
# has a bound, so that the error for a value out of range names the argument.
_ARGUMENT_TYPES: Final[Mapping[str, Any]] = {
    "code": Annotated[int, msgspec.Meta(ge=200, le=599)],
    "retry_after": _Duration | Annotated[str, _HEADER_VALUE] | None,
    "body": str | None,
    "headers": dict[Annotated[str, msgspec.Meta(pattern=r"^[0-9a-z!#$%&'*+.^_`|~-]+$")], Annotated[str, _HEADER_VALUE]] | None,
    **dict.fromkeys(("seconds", "every"), _Duration),
    **dict.fromkeys(("after_bytes", "after"), Annotated[int, msgspec.Meta(ge=0)]),
    **dict.fromkeys(("short_by", "bytes"), Annotated[int, msgspec.Meta(ge=1)]),
}


def _define_fault_struct(name: str, fields: Iterable[Any]) -> type[msgspec.Struct]:
    return _define_struct(f"{name.title().replace('_', '')}Fault", fields, tag_field="name", tag=name)


def _define_fault_fields(factory: Callable[..., Fault]) -> Iterator[Any]:
    for parameter in inspect.signature(factory, eval_str=True).parameters.values():
        type_ = _ARGUMENT_TYPES.get(parameter.name, parameter.annotation)
        yield (parameter.name, type_) if parameter.default is parameter.empty else (parameter.name, type_, parameter.default)


_STRUCTS: Final = {"ok": _define_fault_struct("ok", [])} | {
    name: _define_fault_struct(name, _define_fault_fields(factory))
    for name, factory in FAULT_FACTORIES.items()
    if name != "commit_then"
}

# `commit_then` does not accept `refuse`: the service cannot execute a request that never arrives.
_COMMITTABLE_STRUCTS: Final = [struct for name, struct in _STRUCTS.items() if name != "refuse"]

if TYPE_CHECKING:
    FaultBody: TypeAlias = msgspec.Struct  # the union is created at run time
else:
    FaultBody = reduce(
        or_, [*_STRUCTS.values(), _define_fault_struct("commit_then", [("fault", reduce(or_, _COMMITTABLE_STRUCTS))])]
    )

FAULT_SIGNATURES: Final = "; ".join(
    f"{name}({', '.join(inspect.signature(FAULT_FACTORIES[name]).parameters) if name in FAULT_FACTORIES else ''})"
    for name in ("ok", *FAULT_FACTORIES)
)
"""The names of all faults with their arguments, for error messages."""


def build_fault(field: str, body: FaultBody) -> Fault:
    """Create the fault that a request body describes. `field` is its path in the request."""
    name = str(body.__struct_config__.tag)
    if name == "ok":
        return faults.ok
    arguments = msgspec.structs.asdict(body)
    if name == "commit_then":
        return faults.commit_then(build_fault(f"{field}.fault", arguments["fault"]))
    try:
        return FAULT_FACTORIES[name](**arguments)
    except ValueError as error:
        raise Problem(400, f"{field}: {error}", field, UNCHANGED) from None
