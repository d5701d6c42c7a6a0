"""The request and response bodies of the control plane. The structs of faults are generated from `faults`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl

import attrs
import msgspec

from outreach_async.fake import faults
from outreach_async.fake._arguments import check_known, suggest_similar
from outreach_async.fake._error_responses import mask_keys
from outreach_async.fake.behaviour import KNOB_NAMES, PRESETS, Behaviour, convert_knob
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
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise _validation_problem(error, kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = str(error) if isinstance(error, msgspec.DecodeError) else type(error).__name__
        raise Problem(400, f"cannot parse the body: {reason}", None, "send one JSON object in UTF-8") from None


def parse_query(query: str, kind: Any) -> Any:
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
    first, known = re.split(r"[.\[]", field or "")[0], getattr(kind, "__struct_fields__", ())
    if first in {"fault", "faults"}:
        remedy = f"available faults: {FAULT_SIGNATURES}"
    else:
        remedy = (suggest_similar(first, list(known)) if first not in known else "") or (
            f"accepted: {', '.join(known)}" if known else "remove unknown keys and parameters; a body must be a JSON object"
        )
    return Problem(400, f"{field or 'the body'}: {message}", field, remedy)


OperationName = Literal["list_campaigns", "list_mailboxes", "create_contact", "list_steps", "list_fields", "unknown"]
"""Names of operations in faults and in the request log. `unknown` stands for requests that match no operation."""

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
    """A fault to inject into every request that meets all given conditions. Its target or body contains `containing`."""

    fault: FaultBody
    operation: OperationName | None = None
    containing: str | None = None
    times: Annotated[int, msgspec.Meta(ge=1)] | None = None
    p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


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


class SandboxBody(RequestBody):
    """The seed, world and behaviour of a new sandbox, and the seconds without a request after which it is deleted."""

    seed: int | None = None
    world: dict[str, Any] | None = None
    behaviour: dict[str, Any] = {}
    expires_after: Annotated[float, msgspec.Meta(gt=0)] = 3600.0


# Responses.


class TimeResponse(msgspec.Struct):
    """The time of the fake, in ISO 8601 and in Unix seconds."""

    now: str
    unix: float


class FaultsResponse(msgspec.Struct):
    """The faults that have not fired yet."""

    unfired: list[str]


class RequestsResponse(msgspec.Struct):
    """The number of requests in the log, in all, by operation and by status, and the last entries."""

    total: int
    counts: dict[str, int]
    statuses: dict[str, int]
    requests: list[dict[str, Any]]


class SandboxResponse(msgspec.Struct):
    """The base URL of a new sandbox, and the seconds without a request after which it is deleted."""

    url: str
    expires_after: float


class ProblemDetail(msgspec.Struct):
    """The reason for a refusal, the invalid key, parameter or header, and a remedy."""

    message: str
    field: str | None
    remedy: str


class ProblemResponse(msgspec.Struct):
    """A refused request, which has changed nothing."""

    error: ProblemDetail


# Behaviour.


def set_knobs(behaviour: Behaviour, knobs: Mapping[str, Any], prefix: str = "") -> Behaviour:
    """Return a copy of a behaviour, or of the preset that `preset` names, with the given knobs set."""
    if "preset" in knobs:
        preset = knobs["preset"]
        if preset not in tuple(PRESETS):
            raise Problem(400, f"preset: expected one of {', '.join(PRESETS)}, got {preset!r}", f"{prefix}preset", UNCHANGED)
        behaviour = PRESETS[preset]()
    for name in filter("preset".__ne__, knobs):
        try:
            check_known(name, ("preset", *KNOB_NAMES), "a behaviour")
            behaviour = attrs.evolve(behaviour, **{name: convert_knob(name, knobs[name])})
        except (TypeError, ValueError) as error:
            message, _, remedy = str(error).partition("; ")
            raise Problem(400, message, f"{prefix}{name}", remedy or UNCHANGED) from None
    return behaviour


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


# Faults.

FAULT_FACTORIES: Final[Mapping[str, Callable[..., Fault]]] = {
    name: factory
    for name in faults.__all__
    if inspect.isfunction(factory := getattr(faults, name)) and inspect.signature(factory).return_annotation == "Fault"
}
"""Functions that create faults, by name."""

_HEADER_VALUE: Final = msgspec.Meta(pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$")

# Types that replace annotations of a fault's arguments: JSON cannot express the annotation, or the type has a bound.
_ARGUMENT_TYPES: Final[Mapping[str, Any]] = {
    "code": Annotated[int, msgspec.Meta(ge=200, le=599)],
    "retry_after": _Duration | Annotated[str, _HEADER_VALUE] | None,
    "body": str | None,
    "headers": dict[Annotated[str, msgspec.Meta(pattern=r"^[0-9a-z!#$%&'*+.^_`|~-]+$")], Annotated[str, _HEADER_VALUE]] | None,
    **dict.fromkeys(("seconds", "every"), _Duration),
    **dict.fromkeys(("after_bytes", "after"), Annotated[int, msgspec.Meta(ge=0)]),
    **dict.fromkeys(("short_by", "bytes"), Annotated[int, msgspec.Meta(ge=1)]),
}


def _define_fault(name: str, fields: Iterable[Any]) -> type[msgspec.Struct]:
    title = f"{name.title().replace('_', '')}Fault"
    return msgspec.defstruct(title, fields, forbid_unknown_fields=True, kw_only=True, tag_field="name", tag=name)


def _define_fields(factory: Callable[..., Fault]) -> Iterable[Any]:
    for each in inspect.signature(factory, eval_str=True).parameters.values():
        yield each.name, _ARGUMENT_TYPES.get(each.name, each.annotation), *(() if each.default is each.empty else (each.default,))


_STRUCTS: Final = {"ok": _define_fault("ok", [])} | {
    name: _define_fault(name, _define_fields(factory)) for name, factory in FAULT_FACTORIES.items() if name != "commit_then"
}

# `commit_then` does not accept `refuse`: the service cannot execute a request that never arrives.
_COMMITTABLE: Final = [struct for name, struct in _STRUCTS.items() if name != "refuse"]

if TYPE_CHECKING:
    FaultBody: TypeAlias = msgspec.Struct  # the union is created at run time
else:
    FaultBody = reduce(or_, [*_STRUCTS.values(), _define_fault("commit_then", [("fault", reduce(or_, _COMMITTABLE))])])

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
