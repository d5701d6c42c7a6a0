"""The cattrs converter. It is strict, reports every fault and keeps every field; `configure_converter` registers every hook.

For a list with many faulty items only the first are reported, which bounds the cost of decoding a response.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, Final, get_args, get_origin

import attrs
from cattrs import BaseValidationError, Converter, IterableValidationError, transform_error
from cattrs.errors import IterableValidationNote
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from outreach_async.contacts import NewContact
from outreach_async.models import NOT_ON_THE_WIRE, Answered
from outreach_async.vocabulary import OpenEnum

Hook = Callable[[Any, Any], Any]

_FAULTY: Final = 20
"""Maximum number of faulty items reported per list. A few kilobytes can hold thousands, and each fault takes kilobytes."""


_PLAIN: Final = {
    (str,): "str",
    (bool,): "bool",
    (int,): "int",
    (int, float): "number",
    (str, int, float): "str or number",
}
"""Types accepted unchanged, with their names in fault messages."""


class Mismatch(ValueError):
    """A value has another type than the interface states."""


NotStructured = (BaseValidationError, Mismatch)
"""Errors raised by a converter of this module."""


@cache
def converter() -> Converter:
    """Return the library's own converter."""
    return configure_converter(Converter(detailed_validation=True))


def configure_converter(converter: Converter) -> Converter:
    """Register every hook on a converter, and return it.

    - Strings, booleans, numbers and lists are accepted unchanged or rejected. cattrs on its own turns `None` into `"None"`,
      `"false"` into `True`, 3.9 into 3 and a string into a list of letters.
    - Open enumerations accept any string.
    - Response models keep unknown members in `extra`, and include them when converted back.
    - `NewContact` is converted to the fields that are set, with `custom` and `extra` beside the standard fields.
    """
    for kinds, name in _PLAIN.items():
        converter.register_structure_hook(_union(kinds), _strict(kinds, name))
    converter.register_structure_hook(OpenEnum, _open_enum)  # by class: the hook for `str` takes precedence over predicates
    converter.register_structure_hook_factory(_is_list, lambda kind: _list_reader(kind, converter))
    converter.register_structure_hook_factory(_is_answer, lambda kind: _reader(kind, converter))
    converter.register_unstructure_hook_factory(_is_answer, lambda kind: _writer(kind, converter))
    converter.register_unstructure_hook(OpenEnum, attrgetter("value"))
    converter.register_unstructure_hook(NewContact, NewContact.members)
    return converter


def faults_of(error: BaseException) -> list[str]:
    """Return every fault of an error, each `path: expected kind, got kind`."""
    texts = transform_error(error, format_exception=_described)
    parts = [text.rpartition(" @ ") for text in texts]
    return [f"{path}: {text}" for text, _, path in parts]


def _described(error: BaseException, _kind: Any) -> str:
    return f"missing member {error}" if isinstance(error, KeyError) else str(error)


def _mismatch(expected: str, value: object) -> Mismatch:
    return Mismatch(f"expected {expected}, got {'None' if value is None else type(value).__name__}")


def _union(kinds: tuple[type, ...]) -> Any:
    union: Any = kinds[0]
    for kind in kinds[1:]:
        union |= kind
    return union


def _strict(kinds: tuple[type, ...], name: str) -> Hook:
    exact = frozenset(kinds)  # exact types, because `isinstance` accepts a bool as an int

    def hook(value: Any, _kind: Any) -> Any:
        if type(value) not in exact:
            raise _mismatch(name, value)
        return value

    return hook


def _open_enum(value: Any, kind: Any) -> Any:
    if type(value) is not str:
        raise _mismatch("str", value)
    return kind(value)


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list


def _list_reader(kind: Any, converter: Converter) -> Hook:
    (item_kind,) = get_args(kind)
    read = converter.get_structure_hook(item_kind)

    def hook(value: Any, _kind: Any) -> Any:
        if not isinstance(value, list):
            raise _mismatch("array", value)
        items, faults = [], []
        for index, item in enumerate(value):
            try:
                items.append(read(item, item_kind))
            except NotStructured as error:
                error.add_note(IterableValidationNote(f"Structuring {kind} @ index {index}", index, item_kind))
                faults.append(error)
                if len(faults) == _FAULTY:
                    break
        if faults:
            raise IterableValidationError("a list", faults, kind)
        return items

    return hook


def _is_answer(kind: Any) -> bool:
    plain = get_origin(kind) or kind
    return isinstance(plain, type) and issubclass(plain, Answered)


def _hidden(kind: Any) -> dict[str, Any]:
    return {name: override(omit=True) for name in attrs.fields_dict(get_origin(kind) or kind) if name in NOT_ON_THE_WIRE}


def _reader(kind: Any, converter: Converter) -> Hook:
    known = frozenset(attrs.fields_dict(get_origin(kind) or kind)) - NOT_ON_THE_WIRE
    build = make_dict_structure_fn(kind, converter, **_hidden(kind))

    def hook(value: Any, _kind: Any) -> Any:
        if not isinstance(value, dict):
            raise _mismatch("object", value)
        model = build(value, kind)
        unknown = {name: member for name, member in value.items() if name not in known}
        return attrs.evolve(model, extra=unknown) if unknown else model

    return hook


def _writer(kind: Any, converter: Converter) -> Callable[[Any], Any]:
    members = make_dict_unstructure_fn(kind, converter, **_hidden(kind))
    return lambda model: {**members(model), **model.extra}
