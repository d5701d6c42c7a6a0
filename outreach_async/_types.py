"""Checks of the types of arguments, by the annotations of what is called."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from functools import lru_cache
from inspect import unwrap
from os import PathLike, fspath
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from outreach_async.errors import InvalidRequest

MAX_INTEGER: Final = 2**63 - 1  # the limit of many JSON parsers; Python refuses to print far larger integers
_MISSING: Final = object()


def type_name(value: object) -> str:
    """Return the name of a value's type: the value itself may be a secret."""
    return "None" if value is None else type(value).__name__


def show_number(value: object) -> str:
    return f"a number of {value.bit_length()} bits" if isinstance(value, int) and abs(value) > MAX_INTEGER else str(value)


def require_encodable(field: str, value: str) -> None:
    if value.isascii():  # nearly always, and much faster than encoding
        return
    try:
        value.encode()
    except UnicodeEncodeError as error:
        got = f"a lone surrogate at character {error.start}"
        raise InvalidRequest(f"{field}: expected valid Unicode, got {got}; decode the input with the correct encoding") from None


def require_types(function: Any, given: Mapping[str, object], *, any_text: bool = False) -> None:
    """Check the types of arguments by the annotations of a public function: `require_types(plan, locals())` is its first line."""
    for name, kind in _hints(function).items():
        value, origins = given.get(name, _MISSING), [get_origin(each) or each for each in (kind, *get_args(kind))]
        if value is not _MISSING and not _accepts(kind, value):
            number = type(value) in {int, float} and show_number(value)
            classes = [each for each in origins if isinstance(each, type) and each is not Any]
            is_one = isinstance(value, Collection) and any(_is_one(each, value) for each in classes)
            got = number or f"{type_name(value)}{' with other items' if is_one else ''}"
            got = "one string; pass a list" if is_one and isinstance(value, str) else f"{got}; pass one"
            raise InvalidRequest(f"{name}: expected {_shown_type(kind)}, got {got}")
        if isinstance(value, str) and not any_text:
            require_encodable(name, value)
        if isinstance(value, str | PathLike) and {PathLike, Path} & {*origins}:
            path: object = fspath(value)
            if not isinstance(path, str) or "\0" in path:
                got = "one with a NUL character" if isinstance(path, str) else "one of bytes"
                raise InvalidRequest(f"{name}: expected a path, got {got}; pass the path of a file")
            require_encodable(name, path)


@lru_cache(maxsize=256)
def _hints(function: Any) -> dict[str, Any]:
    code = unwrap(vars(function)["__init__"] if isinstance(function, type) else function)
    names = code.__code__.co_varnames[: code.__code__.co_argcount + code.__code__.co_kwonlyargcount]  # without **options
    return {name: kind for name, kind in get_type_hints(code).items() if name in names}


def _shown_type(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(repr, get_args(kind)))}"
    shown = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", shown).replace("NoneType", "None")


def _accepts(kind: Any, value: Any) -> bool:
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin in {Union, UnionType}:
        return any(_accepts(each, value) for each in inner)
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in inner)
    return origin is Any or not isinstance(origin, type) or (_is_one(origin, value) and _has_items(inner, value))


def _is_one(kind: type[Any], value: Any) -> bool:
    if kind is date and isinstance(value, datetime):  # a subclass, which cannot be compared with a date
        return False
    if kind is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and (isinstance(value, float) or abs(value) <= MAX_INTEGER)
    if getattr(kind, "_is_protocol", False) and not getattr(kind, "_is_runtime_protocol", False):
        return not isinstance(value, type) and all(hasattr(value, name) for name in vars(kind) if name[0] != "_")
    return isinstance(value, kind)


def _has_items(kinds: Sequence[Any], value: Any) -> bool:
    """Return whether the items of a collection are of their kinds; those of an iterator can be read only once."""
    if len(kinds) == 2 and isinstance(value, Mapping):  # noqa: PLR2004 - keys and values
        return all(_accepts(kinds[0], key) and _accepts(kinds[1], item) for key, item in value.items())
    if not (len(kinds) == 1 or kinds[1:] == (Ellipsis,)) or not isinstance(value, Collection):
        return True
    # A string is a sequence of strings to Python; to a person it is one name, path or address.
    return not isinstance(value, str) and all(_accepts(kinds[0], item) for item in (value[:1] if type(value) is bytes else value))
