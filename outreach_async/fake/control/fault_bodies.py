"""Faults as JSON: `{"name": "status", "code": 503}`, with the names and arguments of the functions in `faults`.

The forms are generated from these functions, so a fault added there is available here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec

from outreach_async.fake import faults
from outreach_async.fake.faults import Fault

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


def _form(name: str, fields: list[Any]) -> type[msgspec.Struct]:
    title = "".join(map(str.capitalize, name.split("_")))
    options: Any = {"tag_field": "name", "tag": name, "forbid_unknown_fields": True, "frozen": True, "kw_only": True}
    return msgspec.defstruct(f"{title}Fault", fields, module=__name__, **options)


def _fields(maker: Callable[..., Fault]) -> list[Any]:
    parameters = inspect.signature(maker, eval_str=True).parameters.values()
    typed = [(parameter, _TYPES.get(parameter.name, parameter.annotation)) for parameter in parameters]
    return [(said.name, type_) if said.default is said.empty else (said.name, type_, said.default) for said, type_ in typed]


_FORMS: Final = {_OK: _form(_OK, [])} | {
    name: _form(name, _fields(make)) for name, make in MAKERS.items() if name != _COMMIT_THEN
}

# A request that never arrived cannot have been stored.
_COMMITTED: Final = [form for name, form in _FORMS.items() if name != "refuse"]

if TYPE_CHECKING:
    FaultBody: TypeAlias = msgspec.Struct  # the union is created at run time
else:
    FaultBody = reduce(or_, [*_FORMS.values(), _form(_COMMIT_THEN, [("fault", reduce(or_, _COMMITTED))])])

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
