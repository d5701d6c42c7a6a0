"""Behaviour files: read and write the knobs of a `Behaviour` as TOML.

Each key is a knob of `Behaviour`; a missing one keeps its default. TOML has no null: write `"none"` for `None`.

    past_end = "clamp"
    campaign_max_display = "none"
    strict_fields = ["email", "zip"]
    created_status = { added = 201, skipped = 201 }

    [undecided]  # values that could not be distinguished; the first one is used
    over_max = ["clamp", "serve"]

    [auth]
    header = "authorization"
    scheme = "Bearer"
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from outreach_async.fake.behaviour import READINGS, Behaviour, HeaderAuth, RateLimit
from outreach_async.fake.given import check_known, text, whole

NONE: Final = "none"
"""The TOML value that represents `None`."""

KNOBS: Final[tuple[str, ...]] = tuple(field.name for field in attrs.fields(Behaviour))
"""Names of the knobs of `Behaviour`, in the order of their definition."""

_UNDECIDED: Final = "undecided"
_TABLES: Final[Mapping[str, type[HeaderAuth | RateLimit]]] = {"auth": HeaderAuth, "rate_limit": RateLimit}
_NULLABLE: Final = frozenset(field.name for field in attrs.fields(Behaviour) if field.default is None) | {
    knob for knob, readings in READINGS.items() if None in readings
}


class BehaviourFileError(ValueError):
    """A behaviour file is invalid. The message names the file, the key and the reason."""


# Writing.


def dump_behaviour(
    behaviour: Behaviour,
    *,
    about: str = "",
    notes: Mapping[str, str] | None = None,
    undecided: Mapping[str, Iterable[Any]] | None = None,
    unseen: Mapping[str, str] | None = None,
) -> str:
    """Return a behaviour as TOML that `load_behaviour` reads.

    `auth.tokens` are secrets and are omitted: the behaviour read back accepts every owner key of the fake.

    Args:
        behaviour: The behaviour.
        about: A description of the file, written as a comment at its top.
        notes: Comments by knob.
        undecided: By knob, the values that could not be distinguished. The first one must be the value in `behaviour`.
        unseen: By knob, the reason why its value is unknown. It is written as a comment; the knob takes its default when the file
            is read.

    Raises:
        TypeError: The value of a knob is a function.
    """
    said, open_, hidden = notes or {}, undecided or {}, unseen or {}
    values: dict[str, Any] = {knob: getattr(behaviour, knob) for knob in KNOBS}
    tables = {knob: value for knob, value in values.items() if attrs.has(type(value)) and knob not in hidden}
    plain = [knob for knob in KNOBS if knob not in tables and knob not in open_]
    lines = [*_comment(about), *([""] if about else [])]
    for knob in plain:
        lines += _unseen(knob, hidden[knob]) if knob in hidden else [*_comment(said.get(knob, "")), _line(knob, values[knob])]
    if open_:
        lines += ["", f"[{_UNDECIDED}]  # values that could not be distinguished; the first one is used"]
        for knob, readings in open_.items():
            lines += [*_comment(said.get(knob, "")), _line(knob, list(readings))]
    for knob, value in tables.items():
        lines += ["", *_comment(said.get(knob, "")), f"[{knob}]", *_table(value)]
    return "\n".join(lines) + "\n"


def _comment(note: str) -> list[str]:
    # TOML forbids control characters in comments, and a note may quote what a service sent.
    return ["# " + "".join(filter(str.isprintable, line)) for line in note.splitlines()]


def _unseen(knob: str, why: str) -> list[str]:
    return _comment(f"{knob}: {' '.join(why.split())}")


def _table(value: HeaderAuth | RateLimit) -> Iterator[str]:
    for name, member in attrs.asdict(value).items():
        if name != "tokens":
            yield _line(name, member)


def _line(name: str, value: Any) -> str:
    try:
        return f"{name} = {_toml(value)}"
    except KeyError:
        raise TypeError(f"{name}: a {type(value).__name__} cannot be written to a file; use a named value") from None


def _toml(value: Any) -> str:
    return _WRITERS[dict if isinstance(value, Mapping) else type(value)](value)


def _text(value: str) -> str:
    # TOML uses the escapes of JSON, but unlike JSON it forbids a bare DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _list(values: Iterable[Any]) -> str:
    return f"[{', '.join(map(_toml, values))}]"


_WRITERS: Final[Mapping[type, Callable[[Any], str]]] = {
    type(None): lambda _: _text(NONE),
    bool: lambda value: str(value).lower(),
    int: str,
    float: repr,
    str: _text,
    list: _list,
    frozenset: lambda value: _list(sorted(value)),
    dict: lambda value: "{ " + ", ".join(f"{_text(name)} = {_toml(member)}" for name, member in value.items()) + " }",
}


# Reading.


def load_behaviour(path: str | Path) -> Behaviour:
    """Read a behaviour from a file. An undecided knob takes the first of its values.

    Raises:
        BehaviourFileError: The file is invalid. The message names the key and, for an unknown one, suggests a similar name.
        OSError: The file cannot be read.
    """
    return Behaviour(**{knob: readings[0] for knob, readings in load_readings(path).items()})


def load_readings(path: str | Path) -> dict[str, tuple[Any, ...]]:
    """Read the possible values of each knob that a file names: one, or several if they could not be distinguished.

    Raises:
        BehaviourFileError: The file is invalid.
        OSError: The file cannot be read.
    """
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError also for a number of thousands of digits
        raise BehaviourFileError(f"{path}: not TOML: {error}") from None
    try:
        return dict(_readings(document))
    except (TypeError, ValueError) as error:
        raise BehaviourFileError(f"{path}: {error}") from None


def _readings(document: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    undecided = document.get(_UNDECIDED, {})
    if not isinstance(undecided, dict):
        raise TypeError(f"{_UNDECIDED}: expected a table")
    for knob, value in document.items():
        if knob != _UNDECIDED:
            check_known(knob, (*KNOBS, _UNDECIDED), "a behaviour")
            yield knob, (_reading(knob, value),)
    for knob, values in undecided.items():
        check_known(knob, KNOBS, "a behaviour")
        if not isinstance(values, list) or not values or knob in document:
            raise ValueError(f"{_UNDECIDED}.{knob}: expected a list of values, for a knob that is not set elsewhere in the file")
        yield knob, tuple(_reading(knob, value) for value in values)


def _reading(knob: str, value: Any) -> Any:
    """Convert a TOML value to the knob's type; `Behaviour` validates it."""
    if value == NONE and knob in _NULLABLE:
        value = None
    elif knob in _TABLES:
        value = _of_table(knob, value)
    return getattr(Behaviour(**{knob: value}), knob)


def _of_table(knob: str, value: Any) -> HeaderAuth | RateLimit:
    kind = _TABLES[knob]
    if not isinstance(value, dict):
        raise TypeError(f'{knob}: expected a table or "{NONE}"')
    for name in value:
        check_known(name, [field.name for field in attrs.fields(kind)], knob)
    return kind(**{name: _MEMBERS[name](f"{knob}.{name}", member) for name, member in value.items()})


def _any_text(name: str, value: object) -> str:
    return value if value == "" else text(name, value)


def _seconds(name: str, value: object) -> float:
    if type(value) not in {int, float}:
        raise TypeError(f"{name}: expected a number of seconds, got {type(value).__name__}")
    return value  # type: ignore[return-value]  # the line above leaves int and float


def _tokens(name: str, value: object) -> frozenset[str]:
    if not isinstance(value, list):
        raise TypeError(f"{name}: expected a list of strings, got {type(value).__name__}")
    return frozenset(text(name, token) for token in value)


_MEMBERS: Final[Mapping[str, Callable[[str, object], Any]]] = {
    "header": text,
    "scheme": _any_text,
    "tokens": _tokens,
    "limit": whole,
    "per": _seconds,
    "scope": text,
    "retry_after": text,
}
