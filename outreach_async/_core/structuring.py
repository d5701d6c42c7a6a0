"""A strict cattrs converter that reports all faults at once (of a list, those of 20 items), and keeps unknown fields."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, get_args, get_origin

import attrs
from cattrs import BaseValidationError, Converter, IterableValidationError, transform_error
from cattrs.errors import IterableValidationNote
from cattrs.gen import make_dict_structure_fn, override

from outreach_async._wire_words import OpenEnum
from outreach_async.models import LOCAL_FIELDS, ResponseModel

StructureHook = Callable[[Any, Any], Any]

_MAX_FAULTY_ITEMS: Final = 20  # a small body can contain thousands, and reporting one takes kilobytes
_STRICT_TYPES: Final[dict[Any, str]] = {
    str: "str",
    bool: "bool",
    int: "int",
    int | float: "number",
    str | int | float: "str or number",
}
"""Strict types, with their names in fault messages. A value of another type is rejected, never converted."""


class TypeMismatchError(ValueError):
    """A value does not have the type that the API documentation states."""


STRUCTURE_ERRORS = (BaseValidationError, TypeMismatchError)  # errors that the converter raises for invalid values


@cache
def default_converter() -> Converter:
    # - Strings, booleans, numbers and lists are accepted unchanged or rejected. cattrs on its own turns `None` into `"None"`,
    #   `"false"` into `True`, 3.9 into 3 and a string into a list of letters.
    # - Open enumerations accept any string.
    # - Response models keep unknown keys in `extra`.
    converter = Converter(detailed_validation=True)
    for kind, name in _STRICT_TYPES.items():
        converter.register_structure_hook(kind, _make_strict_hook(kind, name))
    # Registered by class, because the hook for `str` takes precedence over predicates.
    converter.register_structure_hook(OpenEnum, _structure_open_enum)
    converter.register_structure_hook_factory(_is_list, lambda kind: _make_list_hook(kind, converter))
    converter.register_structure_hook_factory(_is_response_model, lambda kind: _make_structure_hook(kind, converter))
    return converter


def list_faults(error: BaseException) -> list[str]:
    """Return every fault in a converter's error, each as `path: expected type, got type` or `path: missing key 'name'`."""
    texts = transform_error(
        error, format_exception=lambda fault, _: f"missing key {fault}" if isinstance(fault, KeyError) else str(fault)
    )
    return [f"{path}: {fault}" for fault, _, path in (text.rpartition(" @ ") for text in texts)]


def _build_mismatch(expected: str, value: object) -> TypeMismatchError:
    return TypeMismatchError(f"expected {expected}, got {'None' if value is None else type(value).__name__}")


def _make_strict_hook(kind: Any, name: str) -> StructureHook:
    exact = frozenset(get_args(kind) or [kind])  # exact types, because `isinstance` accepts a bool as an int

    def hook(value: Any, _kind: Any) -> Any:
        if type(value) not in exact:
            raise _build_mismatch(name, value)
        return value

    return hook


def _structure_open_enum(value: Any, kind: Any) -> Any:
    if type(value) is not str:
        raise _build_mismatch("str", value)
    return kind(value)


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list


def _make_list_hook(kind: Any, converter: Converter) -> StructureHook:
    (item_kind,) = get_args(kind)
    read = converter.get_structure_hook(item_kind)

    def hook(value: Any, _kind: Any) -> Any:
        if not isinstance(value, list):
            raise _build_mismatch("array", value)
        items, faults = [], []
        for index, item in enumerate(value):
            try:
                items.append(read(item, item_kind))
            except STRUCTURE_ERRORS as error:
                error.add_note(IterableValidationNote(f"Structuring {kind} @ index {index}", index, item_kind))
                faults.append(error)
                if len(faults) == _MAX_FAULTY_ITEMS:
                    break
        if faults:
            raise IterableValidationError("a list", faults, kind)
        return items

    return hook


def _is_response_model(kind: Any) -> bool:
    plain = get_origin(kind) or kind
    return isinstance(plain, type) and issubclass(plain, ResponseModel)


def _make_structure_hook(kind: Any, converter: Converter) -> StructureHook:
    names = frozenset(attrs.fields_dict(get_origin(kind) or kind))
    known = names - LOCAL_FIELDS
    omitted: dict[str, Any] = dict.fromkeys(names & LOCAL_FIELDS, override(omit=True))
    build = make_dict_structure_fn(kind, converter, **omitted)

    def hook(value: Any, _kind: Any) -> Any:
        if not isinstance(value, dict):
            raise _build_mismatch("object", value)
        model = build(value, kind)
        unknown = {name: member for name, member in value.items() if name not in known}
        return attrs.evolve(model, extra=unknown) if unknown else model

    return hook
