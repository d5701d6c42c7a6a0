"""Behaviour files: the readings that a service takes, as TOML, in and out.

A key is a knob of `Behaviour`; one that is not there keeps its default. TOML knows no null: `"none"` stands for it.

    past_end = "clamp"
    campaign_max_display = "none"
    strict_fields = ["email", "zip"]
    created_status = { added = 201, skipped = 201 }

    [undecided]  # readings that could not be told apart; the first one counts
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
"""What stands for `None`."""

KNOBS: Final[tuple[str, ...]] = tuple(field.name for field in attrs.fields(Behaviour))
"""The knobs of `Behaviour`, in its order."""

_UNDECIDED: Final = "undecided"
_TABLES: Final[Mapping[str, type[HeaderAuth | RateLimit]]] = {"auth": HeaderAuth, "rate_limit": RateLimit}
_NULLABLE: Final = frozenset(field.name for field in attrs.fields(Behaviour) if field.default is None) | {
    knob for knob, readings in READINGS.items() if None in readings
}


class BehaviourFileError(ValueError):
    """A file that makes no behaviour; the message says where and why."""


# Out.


def dump_behaviour(
    behaviour: Behaviour,
    *,
    about: str = "",
    notes: Mapping[str, str] | None = None,
    undecided: Mapping[str, Iterable[Any]] | None = None,
    unseen: Mapping[str, str] | None = None,
) -> str:
    """Write a behaviour as a file that `load_behaviour` reads.

    `auth.tokens` are secrets and are left out: what is read back accepts every owner key of the fake.

    Args:
        behaviour: The behaviour.
        about: What the file is, for its first lines.
        notes: A comment by knob.
        undecided: By knob, readings that could not be told apart; the first one must be the behaviour's.
        unseen: By knob, why nobody knows its reading. It is written as a comment, and takes its default when the file is read.

    Raises:
        TypeError: A knob holds a function.
    """
    said, open_, hidden = notes or {}, undecided or {}, unseen or {}
    values: dict[str, Any] = {knob: getattr(behaviour, knob) for knob in KNOBS}
    tables = {knob: value for knob, value in values.items() if attrs.has(type(value)) and knob not in hidden}
    plain = [knob for knob in KNOBS if knob not in tables and knob not in open_]
    lines = [*_comment(about), *([""] if about else [])]
    for knob in plain:
        lines += _unseen(knob, hidden[knob]) if knob in hidden else [*_comment(said.get(knob, "")), _line(knob, values[knob])]
    if open_:
        lines += ["", f"[{_UNDECIDED}]  # readings that could not be told apart; the first one counts"]
        for knob, readings in open_.items():
            lines += [*_comment(said.get(knob, "")), _line(knob, list(readings))]
    for knob, value in tables.items():
        lines += ["", *_comment(said.get(knob, "")), f"[{knob}]", *_table(value)]
    return "\n".join(lines) + "\n"


def _comment(note: str) -> list[str]:
    # A comment holds no control characters; what a service says of itself may.
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
        raise TypeError(f"{name}: a {type(value).__name__} cannot be written to a file; only readings with a name can") from None


def _toml(value: Any) -> str:
    return _WRITERS[dict if isinstance(value, Mapping) else type(value)](value)


def _text(value: str) -> str:
    # JSON's escapes are TOML's; but TOML has no place for a bare DEL.
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


# In.


def load_behaviour(path: str | Path) -> Behaviour:
    """Read a behaviour from a file.

    Raises:
        BehaviourFileError: The file makes no behaviour; the message names the key and, for a wrong one, what may have been meant.
        OSError: It cannot be read.
    """
    return Behaviour(**{knob: readings[0] for knob, readings in load_readings(path).items()})


def load_readings(path: str | Path) -> dict[str, tuple[Any, ...]]:
    """Read what a file knows: the reading of each knob that it names, or those that could not be told apart.

    Raises:
        BehaviourFileError: The file makes no behaviour.
        OSError: It cannot be read.
    """
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # among them a number of thousands of digits
        raise BehaviourFileError(f"{path}: not TOML: {error}") from None
    try:
        return dict(_readings(document))
    except (TypeError, ValueError) as error:
        raise BehaviourFileError(f"{path}: {error}") from None


def _readings(document: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    undecided = document.get(_UNDECIDED, {})
    if not isinstance(undecided, dict):
        raise TypeError(f"{_UNDECIDED} must be a table")
    for knob, value in document.items():
        if knob != _UNDECIDED:
            check_known(knob, (*KNOBS, _UNDECIDED), "a behaviour")
            yield knob, (_reading(knob, value),)
    for knob, values in undecided.items():
        check_known(knob, KNOBS, "a behaviour")
        if not isinstance(values, list) or not values or knob in document:
            raise ValueError(f"{_UNDECIDED}.{knob} must be a list of readings, and not be decided beside it")
        yield knob, tuple(_reading(knob, value) for value in values)


def _reading(knob: str, value: Any) -> Any:
    """Read a value, and let `Behaviour` judge it."""
    if value == NONE and knob in _NULLABLE:
        value = None
    elif knob in _TABLES:
        value = _of_table(knob, value)
    return getattr(Behaviour(**{knob: value}), knob)


def _of_table(knob: str, value: Any) -> HeaderAuth | RateLimit:
    kind = _TABLES[knob]
    if not isinstance(value, dict):
        raise TypeError(f'{knob} must be a table, or "{NONE}"')
    for name in value:
        check_known(name, [field.name for field in attrs.fields(kind)], knob)
    return kind(**{name: _MEMBERS[name](f"{knob}.{name}", member) for name, member in value.items()})


def _any_text(name: str, value: object) -> str:
    return value if value == "" else text(name, value)


def _seconds(name: str, value: object) -> float:
    if type(value) not in {int, float}:
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    return value  # type: ignore[return-value]  # the line above leaves int and float


def _tokens(name: str, value: object) -> frozenset[str]:
    if not isinstance(value, list):
        raise TypeError(f"{name} must be a list of texts, not {type(value).__name__}")
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
