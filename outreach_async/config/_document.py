"""What a configuration file may contain. cattrs structures it, and a hook reads each kind of value, without showing a key."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args

import attrs
from cattrs import BaseValidationError, Converter, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn, override

from outreach_async._plumbing import (
    Backend,
    is_url,
    parse_base_url,
    require_id,
    require_rate,
    require_seconds,
    show_name,
    type_name,
)
from outreach_async.config._config import ALL, Config, ConfiguredWorkspace, KeyReference, suggest
from outreach_async.errors import InvalidRequest
from outreach_async.models import ID_PREFIXES

_KINDS: Final = ("env", "file", "command")
_REFERENCES: Final = '{ env = "NAME" }, { file = "/run/secrets/name" } or { command = ["op", "read", "op://vault/name/key"] }'
_WORKSPACE: Final = 'acme = { id = "space_..." }'
_EXCLUDE: Final = 'exclude = ["blocked.csv"]'
_PROFILE: Final = "[profile.staging]"
_OF_WORKSPACE: Final = ("id", "groups", "owner_key", "rate", "ledger")
_OF_FILE: Final = ("base_url", "backend", "timeout", "owner_key", "rate", "workspace", "exclude", "workspaces")
_OF_SERVICE: Final = ("owner_key", "rate", "workspace", "workspaces")
"""Values that belong to the service at `base_url`, so a profile with another one does not inherit them."""


class FileFault(Exception):
    """A value of the file is wrong. `keys` are those of the tables that lead to it."""

    def __init__(self, text: str, *keys: str) -> None:
        self.keys, self.text = keys, text

    def __str__(self) -> str:
        path = ".".join(key if key.replace("_", "").replace("-", "").isalnum() else repr(key) for key in self.keys)
        return f"{path}: {self.text}"


def read_document(path: Path, profile: str | None, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a file and one of its profiles."""
    converter = _create_converter(path.parent)
    values = {name: value for name, value in content.items() if name != "profile"}
    profiles = _structure(converter, content.get("profile", {}), dict[str, Config], _PROFILE, "profile")
    found = _structure(converter, values, Config, "")
    values = {name: getattr(found, name) for name in values}
    keys: tuple[str, ...] = ()
    own: dict[str, Any] = {}
    if profile is not None:
        if profile not in profiles:
            there = suggest(profile, [*profiles], "the profiles are") if profiles else f"add a table [profile.{profile}]"
            raise FileFault(f"expected a profile of the file, got {show_name(profile)}; {there}", "profile")
        keys, own = ("profile", profile), {name: getattr(profiles[profile], name) for name in content["profile"][profile]}
        if "base_url" in own:
            values = {name: value for name, value in values.items() if name not in _OF_SERVICE}
        if "workspaces" in own:
            values.pop("workspace", None)
        # Whoever may not be written to, may not be written to by any profile.
        lists = dict.fromkeys([*values.get("exclude", ()), *own.get("exclude", ())])
        values |= {**own, "exclude": (*lists,)} if lists else own
    try:
        Config(path=path, **values).find(*values.get("workspace", ()))
    except InvalidRequest as error:
        raise FileFault(str(error).removeprefix("workspace: "), *keys, "workspace") from None
    return {"from_profile": frozenset(own), **values}


def _structure(converter: Converter, value: object, kind: Any, example: str, *keys: str) -> Any:
    """Structure a table. The error is the first fault, with the keys that lead to it."""
    try:
        return converter.structure(_require_table(value, example, *keys), kind)
    except BaseValidationError as group:
        error: BaseException = group
    path = [*keys]
    while isinstance(error, BaseValidationError):
        error = error.exceptions[0]
        path += (str(getattr(note, "name", getattr(note, "index", ""))) for note in getattr(error, "__notes__", ()))
    if isinstance(error, FileFault):
        raise FileFault(error.text, *path, *error.keys) from None
    if isinstance(error, ForbiddenExtraKeysError):
        name = min(error.extra_fields)
        known = _OF_WORKSPACE if error.cl is ConfiguredWorkspace else (*_OF_FILE, *["profile"] * (not path))
        raise FileFault(f"unknown key; {suggest(name, known, 'the keys are')}", *path, name) from None
    if isinstance(error, KeyError):
        raise FileFault('expected the id of the workspace, got none; add id = "space_..."', *path[:-1]) from None
    raise FileFault(str(error).removeprefix(f"{path[-1]}: "), *path) from None


def _create_converter(folder: Path) -> Converter:
    converter = Converter()

    def read_workspaces(value: object) -> tuple[ConfiguredWorkspace, ...]:
        table = _require_table(value, f"[workspaces] and, below it, {_WORKSPACE}")
        return _name_workspaces(converter.structure(table, dict[str, ConfiguredWorkspace]))

    hooks: dict[str, Callable[[Any], Any]] = {
        "id": lambda value: require_id("id", value, "workspace", "write the workspace's id"),
        "groups": lambda value: _require_free("group", _read_names(value)),
        "base_url": _read_base_url,
        "backend": _read_backend,
        "timeout": partial(require_seconds, "timeout"),
        "owner_key": partial(_read_reference, folder),
        "rate": partial(require_rate, "rate"),
        "ledger": partial(_read_ledger, folder),
        "workspace": _read_names,
        "exclude": lambda value: tuple(str(folder / Path(each).expanduser()) for each in _read_names(value, "paths", _EXCLUDE)),
        "workspaces": read_workspaces,
    }
    for kind, names, example in (ConfiguredWorkspace, _OF_WORKSPACE, _WORKSPACE), (Config, _OF_FILE, _PROFILE):
        fields: dict[str, Any] = {field.name: override(omit=True) for field in attrs.fields(kind)}
        fields |= {name: override(struct_hook=_ignore_kind(hooks[name])) for name in names}
        _register(converter, kind, make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True, **fields), example)
    return converter


def _ignore_kind(read: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda value, _: read(value)


def _register(converter: Converter, kind: type[Any], structure: Callable[[Any, Any], Any], example: str) -> None:
    converter.register_structure_hook(kind, lambda value, _: structure(_require_table(value, example), kind))


def _require_table(value: object, example: str, *keys: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FileFault(f"expected a table, got {type_name(value)}; write {example}", *keys)
    return value


def _read_base_url(value: object) -> str:
    if not isinstance(value, str):
        raise FileFault(f'expected a string, got {type_name(value)}; write base_url = "https://api.example"')
    if parse_base_url(value).secrets:
        raise FileFault("expected a URL without user and password, got one with them; set OUTREACH_BASE_URL to this URL")
    return value


def _read_backend(value: object) -> object:
    if value not in get_args(Backend):
        raise FileFault(f"expected one of {', '.join(get_args(Backend))}, got {show_name(value)}; write one of them")
    return value


def _read_reference(folder: Path, value: object) -> KeyReference:
    if isinstance(value, str):
        raise FileFault(f"expected a reference to a key, got a key; remove it from the file, and write {_REFERENCES}")
    table = _require_table(value, _REFERENCES)
    if len(table) != 1 or not set(table) <= {*_KINDS}:
        got = ", ".join(map(show_name, table)) or "none"
        raise FileFault(f"expected one of the keys {', '.join(_KINDS)}, got {got}; write {_REFERENCES}")
    ((kind, target),) = table.items()
    if kind == "command":
        if not isinstance(target, list) or not target or not all(isinstance(part, str) and part for part in target):
            raise FileFault(f"expected a list of strings, got {type_name(target)}; write {_REFERENCES}", kind)
        # As a path of a file: a program beside the configuration file is not one of the working directory, which may be anyone's.
        program = os.path.join(folder, target[0]) if os.path.dirname(target[0]) else target[0]  # noqa: PTH118,PTH120 - keep "./"
        return KeyReference("command", (program, *target[1:]))
    text = target.strip() if isinstance(target, str) else ""
    if not text or text.startswith(ID_PREFIXES["owner_key"]):
        got = "a key" if text else "a blank string" if isinstance(target, str) else type_name(target)
        raise FileFault(
            f"expected {'the name of a variable' if kind == 'env' else 'a path'}, got {got}; write {_REFERENCES}", kind
        )
    return KeyReference("env", text) if kind == "env" else KeyReference("file", str(folder / Path(text).expanduser()))


def _read_ledger(folder: Path, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        got = "a blank string" if isinstance(value, str) else type_name(value)
        raise FileFault(f'expected the path or URL of a ledger, got {got}; write ledger = "acme.ledger"')
    return value if is_url(value) else str(folder / Path(value).expanduser())


def _read_names(value: object, what: str = "names", example: str = 'groups = ["retail"]') -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list):
        raise FileFault(f"expected a list of {what}, got {type_name(value)}; write {example}")
    for name in names:
        if not isinstance(name, str) or not name.strip() or name != name.strip() or not name.isprintable():
            got = show_name(name) if isinstance(name, str) else type_name(name)
            raise FileFault(f"expected a name without leading or trailing blanks, got {got}; correct the name")
    return tuple(dict.fromkeys(names))


def _require_free(what: str, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name == ALL or name.startswith(tuple(ID_PREFIXES.values())):
            meaning = "selects every workspace" if name == ALL else "looks like an id"
            raise FileFault(f"expected a name for the {what}, got {show_name(name)}, which {meaning}; choose another name")
    return names


def _name_workspaces(tables: Mapping[str, ConfiguredWorkspace]) -> tuple[ConfiguredWorkspace, ...]:
    found: dict[str, ConfiguredWorkspace] = {}
    groups = {group for each in tables.values() for group in each.groups}
    for name, each in tables.items():
        try:
            _require_free("workspace", _read_names(name))
        except FileFault as fault:
            raise FileFault(fault.text, name) from None
        if name in groups:
            raise FileFault(f"expected a name that is no group, got {show_name(name)}; rename one of the two", name)
        if (other := found.get(each.id)) is not None:
            text = f"expected one name for each id, got {other.id} also for {show_name(other.name)}"
            raise FileFault(f"{text}; remove one of the two", name, "id")
        found[each.id] = attrs.evolve(each, name=name)
    return tuple(found.values())
