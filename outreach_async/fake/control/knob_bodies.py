"""The fake's behaviour as JSON. The knobs and their types are those of `Behaviour`, so a knob added there is available here.

Values that are functions can be set in Python only.
"""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args, get_origin

import attrs
import msgspec

from outreach_async.fake.behaviour import READINGS, Behaviour, HeaderAuth, RateLimit

Preset = Literal["documented", "strict", "lenient"]


def _form(name: str, fields: Iterable[Any]) -> type[msgspec.Struct]:
    return msgspec.defstruct(name, fields, module=__name__, forbid_unknown_fields=True, frozen=True, kw_only=True)


def _members(kind: type[attrs.AttrsInstance], say: Callable[[Any], Any]) -> list[Any]:
    """Return the members of a form for an attrs class. Those without a default are required."""
    typed = [(field, say(field.type)) for field in attrs.fields(kind)]
    return [
        (field.name, type_) if field.default is attrs.NOTHING else (field.name, type_ | msgspec.UnsetType, msgspec.UNSET)
        for field, type_ in typed
    ]


_OBJECTS: Final[Mapping[Any, type[msgspec.Struct]]] = {
    kind: _form(kind.__name__, _members(attrs.resolve_types(kind), lambda type_: type_)) for kind in (HeaderAuth, RateLimit)
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
    Knobs = _form("Knobs", _KNOBS)
    NewBehaviour = _form("NewBehaviour", [("preset", Preset, "documented"), *_KNOBS])


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
