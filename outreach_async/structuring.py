"""The cattrs converter: strict, naming every fault, keeping every field. Every hook is registered in `configure_converter`.

Of a list in which much is wrong only the beginning is told: what it costs to read an answer is bounded by what it may hold.
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
"""Items of a list whose faults are told, the first: an answer of kilobytes can hold thousands, and a fault takes kilobytes."""


_PLAIN: Final = {
    (str,): "str",
    (bool,): "bool",
    (int,): "int",
    (int, float): "number",
    (str, int, float): "str or number",
}
"""Kinds that are taken as they are, each with its name in faults."""


class Mismatch(ValueError):
    """A value of another kind than the interface says."""


NotStructured = (BaseValidationError, Mismatch)
"""What a converter of this module raises."""


@cache
def converter() -> Converter:
    """Return the library's own converter."""
    return configure_converter(Converter(detailed_validation=True))


def configure_converter(converter: Converter) -> Converter:
    """Register every hook on a converter, and return it.

    - Texts, booleans, numbers and lists are taken as they are or refused: cattrs by itself turns `None` into `"None"`, `"false"`
      into `True`, 3.9 into 3 and a text into a list of letters.
    - Open enumerations take any text.
    - Answered models keep the members they do not know in `extra`, and give them back.
    - `NewContact` gives what was set, its codes beside its standard fields.
    """
    for kinds, name in _PLAIN.items():
        converter.register_structure_hook(_union(kinds), _strict(kinds, name))
    converter.register_structure_hook(OpenEnum, _open_enum)  # by class: the hook for `str` would come before a predicate
    converter.register_structure_hook_factory(_is_list, lambda kind: _list_reader(kind, converter))
    converter.register_structure_hook_factory(_is_answer, lambda kind: _reader(kind, converter))
    converter.register_unstructure_hook_factory(_is_answer, lambda kind: _writer(kind, converter))
    converter.register_unstructure_hook(OpenEnum, attrgetter("value"))
    converter.register_unstructure_hook(NewContact, NewContact.members)
    return converter


def faults_of(error: BaseException) -> list[str]:
    """Return every fault, each `path: expected kind, got kind`."""
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
    exact = frozenset(kinds)  # `type(...) in` rather than isinstance: a bool is an int there

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
