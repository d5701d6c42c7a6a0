"""Conversion of an audit's values to JSON-compatible values; members keep the order of their class."""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import Any

import attrs


def plain(value: Any) -> Any:
    """Convert a value to dicts, lists, strings, numbers, booleans and `None`."""
    if value is None or type(value) in {str, int, float, bool}:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return {name: plain(getattr(value, name)) for name in _names(value.__class__)}


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in attrs.fields(kind))
