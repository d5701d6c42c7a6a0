"""Find, read and check a configuration file, and resolve names in it. Nothing here creates a client or sends a request."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast, get_args

import attrs

from outreach_async._service.validation import masked_repr, require_id, require_rate, require_seconds, type_name
from outreach_async._vocabulary import ID_PREFIXES
from outreach_async.errors import InvalidRequest, shorten
from outreach_async.transport._secret import Secret, drop_frames, mask_keys
from outreach_async.transport._urls import parse_base_url

FILE_NAME: Final = "outreach.toml"
FOLDER_NAME: Final = "outreach-async"
ALL: Final = "all"
"""The selector of every configured workspace."""

Backend = Literal["httpx", "httpx2", "aiohttp", "httptools"]
Keys: TypeAlias = tuple[str, ...]
"""The path of a key in the file, such as `("workspaces", "acme", "id")`."""

_MAX_SIZE: Final = 4_000_000
_MAX_KEY_SIZE: Final = 4_096
_MAX_LISTED: Final = 8
_MAX_SHOWN: Final = 60
_REFERENCES: Final = '{ env = "NAME" }, { file = "/run/secrets/name" } or { command = ["op", "read", "op://vault/name/key"] }'


class _Fault(Exception):
    """A key of the file is wrong."""

    def __init__(self, keys: Keys, text: str) -> None:
        self.keys, self.text = keys, text


@attrs.frozen
class KeyReference:
    """Where an owner key is stored.

    Attributes:
        kind: `env`, `file` or `command`.
        value: The name of the environment variable, the path of the file, or the program and its arguments.

    Example:
        ```python
        print(KeyReference("env", "ACME_KEY"))  # -> environment variable ACME_KEY
        ```
    """

    kind: Literal["env", "file", "command"]
    value: str | tuple[str, ...] = attrs.field(repr=False)  # the arguments of a command may contain a secret

    def __str__(self) -> str:
        if self.kind == "command":
            return f"command {self.value[0]}"
        return f"{'environment variable' if self.kind == 'env' else 'file'} {self.value}"

    @drop_frames
    def read(self, environment: Mapping[str, str] = os.environ, *, timeout: float = 120.0) -> Secret:
        """Return the key, hidden from `repr` and tracebacks.

        Args:
            environment: The environment variables.
            timeout: Limit for a command, in seconds. A password manager may ask a person.

        Raises:
            InvalidRequest: The key cannot be read, or is not an owner key.

        Example:
            ```python
            print(KeyReference("env", "ACME_KEY").read({"ACME_KEY": "key_1"}))  # -> ***
            ```
        """
        if self.kind == "env":
            key = Secret(environment.get(str(self.value), "").strip())
            if not key.reveal():
                raise InvalidRequest(f"owner_key: the {self} is not set; set it, or correct its name in the configuration file")
        else:
            key = self._read_file() if self.kind == "file" else self._run_command(timeout)
        remedy = f"correct what the {self} contains" if self.kind != "command" else f"correct what the {self} prints"
        require_id("owner_key", key.reveal(), "owner_key", remedy)
        return key

    def _read_file(self) -> Secret:
        try:
            with Path(str(self.value)).open("rb") as file:
                return _to_secret(file.read(_MAX_KEY_SIZE))
        except OSError as error:
            reason = error.strerror
        raise InvalidRequest(f"owner_key: the {self} cannot be read ({reason}); correct its path or its permissions")

    def _run_command(self, timeout: float) -> Secret:
        # Standard input may be the file of an import. What the command prints, also to stderr, may contain the key.
        try:
            done = subprocess.run(  # noqa: S603 - the user's own program, in a file that only the user can write
                self.value,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            reason = f"did not end within {timeout:g} s"
        except OSError as error:
            reason = f"cannot be run ({error.strerror})"
        else:
            if done.returncode == 0:
                return _to_secret(done.stdout[:_MAX_KEY_SIZE])
            reason = f"failed with exit code {done.returncode}"
        raise InvalidRequest(f"owner_key: the {self} {reason}; run the whole command in a shell to see why")


def _to_secret(content: bytes) -> Secret:
    return Secret(content.decode(errors="replace").strip())


@attrs.frozen(kw_only=True)
class ConfiguredWorkspace:
    r"""A workspace of the configuration file.

    Attributes:
        name: Name of the workspace; its id if the file does not name it.
        id: Id of the workspace.
        groups: Names of the groups that it belongs to.
        owner_key: Where its own owner key is stored; `None` if it has none.
        rate: Its own maximum rate, in requests per second; `None` if it has none.

    Example:
        ```python
        Path("outreach.toml").write_text('[workspaces]\nacme = { id = "space_1", groups = ["retail"] }\n')
        (acme,) = load_config("outreach.toml").workspaces
        print(acme.name, acme.id, acme.groups)  # -> acme space_1 ('retail',)
        ```
    """

    name: str
    id: str
    groups: tuple[str, ...] = ()
    owner_key: KeyReference | None = None
    rate: float | None = None


@attrs.frozen(kw_only=True)
class ConfigValues:
    """The values of a configuration file and one of its profiles."""

    path: Path | None = None
    profile: str | None = None
    base_url: str | None = None
    backend: Backend | None = None
    rate: float | None = None
    timeout: float | None = None
    owner_key: KeyReference | None = None
    workspace: tuple[str, ...] = ()
    workspaces: tuple[ConfiguredWorkspace, ...] = ()
    from_profile: frozenset[str] = attrs.field(default=frozenset(), repr=False, eq=False)
    """Names of the values that the profile sets."""

    @property
    def names(self) -> dict[str, str]:
        """The names of the workspaces, by id."""
        return {each.id: each.name for each in self.workspaces}

    def find(self, *selectors: str) -> list[ConfiguredWorkspace]:
        r"""Return the workspaces that names, ids, groups or `"all"` select, without duplicates. An unknown id has no name.

        Args:
            selectors: Names, ids or groups; `"all"` selects every configured workspace.

        Raises:
            InvalidRequest: A selector is no id, and no name or group of the file.

        Example:
            ```python
            Path("outreach.toml").write_text('[workspaces]\nacme = { id = "space_1", groups = ["retail"] }\n')
            print([each.name for each in load_config("outreach.toml").find("retail", "space_2")])  # -> ['acme', 'space_2']
            ```
        """
        found: dict[str, ConfiguredWorkspace] = {}
        for selector in selectors:
            found |= {each.id: each for each in self._select(selector)}
        return list(found.values())

    def _select(self, selector: str) -> Sequence[ConfiguredWorkspace]:
        by_id = [each for each in self.workspaces if each.id == selector]
        if by_id or str(selector).startswith(ID_PREFIXES["workspace"]):
            return by_id or [ConfiguredWorkspace(name=selector, id=selector)]
        chosen = [each for each in self.workspaces if selector in {ALL, each.name, *each.groups}]
        if not chosen:
            raise InvalidRequest(f"workspace: {self._describe_unknown(selector)}")
        return chosen

    def _describe_unknown(self, selector: str) -> str:
        if not self.workspaces:
            where = "no configuration file was found" if self.path is None else f"{self.path} names no workspaces"
            return f"expected an id (space_...), got {_show(selector)}, and {where}; pass the id, or write {FILE_NAME}"
        groups = dict.fromkeys(group for each in self.workspaces for group in each.groups)
        return (
            f"expected a name, an id or a group of workspaces in {self.path}, got {_show(selector)}; "
            f"{_suggest(selector, [*(each.name for each in self.workspaces), *groups, ALL], 'the names are')}"
        )


def key_of(config: ConfigValues, workspace: ConfiguredWorkspace | None) -> KeyReference | None:
    """Return where the owner key of a workspace is stored."""
    return (workspace and workspace.owner_key) or config.owner_key


def select(config: ConfigValues, text: str) -> list[ConfiguredWorkspace]:
    """Return the workspaces of one text: a selector, or several that are separated by blanks or commas."""
    known = {name for each in config.workspaces for name in (each.name, *each.groups)}
    return config.find(*([text] if text in known else split_selectors(text)))


def split_selectors(text: str) -> list[str]:
    """Return names or ids that are separated by blanks, line breaks or commas, as in a shell variable."""
    return text.replace(",", " ").split()


NO_FILE: Final = ConfigValues()
T = TypeVar("T", bound=ConfigValues)


def find_config(path: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> Path | None:
    """Return the path of the configuration file: the given one, that of `OUTREACH_CONFIG`, or the first that exists."""
    given = path or environment.get("OUTREACH_CONFIG")
    if given:
        return Path(given)
    return next((place for place in default_paths() if place.exists()), None)


def default_paths() -> list[Path]:
    """Return where the file is looked for: the working directory, and the user's folder if platformdirs is installed."""
    places = [Path(FILE_NAME)]
    try:
        from platformdirs import user_config_path
    except ImportError:  # the extra `cli` is missing
        return places
    return [*places, user_config_path(FOLDER_NAME, appauthor=False) / FILE_NAME]


def require_config(path: str | os.PathLike[str] | None, profile: str | None, kind: type[T]) -> T:
    """Find a configuration file, and return its values."""
    found = find_config(path, os.environ)
    if found is None:
        places = " or ".join(map(str, default_paths()))
        remedy = "write one with 'outreach-async config init', or pass its path"
        raise InvalidRequest(f"path: expected a configuration file at {places}, found none; {remedy}")
    return read_config(found, profile, kind)


def read_config(path: Path, profile: str | None, kind: type[T]) -> T:
    """Return the values of a file and a profile."""
    text = _read_safely(path)
    try:
        return kind(path=path, profile=profile, **_build(path, profile, tomllib.loads(text)))
    except tomllib.TOMLDecodeError as error:
        problem = f"{path}: expected TOML, got invalid content: {mask_keys(str(error))}; correct the file"
    except _Fault as fault:
        line = _find_line(text, fault.keys)
        where = f", line {line}" if line else ""
        problem = mask_keys(f"{path}{where}: {_format_keys(fault.keys)}: {fault.text}")
    raise InvalidRequest(problem)


def profiles_of(path: Path) -> list[str]:
    """Return the names of the profiles of a file."""
    profiles = tomllib.loads(_read_safely(path)).get("profile", {})
    return list(profiles) if isinstance(profiles, dict) else []


def _read_safely(path: Path) -> str:
    """Return the text of a file that only its owner, who must be this user or root, can write."""
    # The folder is not checked: shared folders are common, and a file that another user puts there is refused as theirs.
    if str(path) == os.devnull:
        return ""
    try:
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            content = file.read(_MAX_SIZE + 1)
    except OSError as error:
        reason = error.strerror
    else:
        if hasattr(os, "getuid"):  # pragma: no branch - Windows has no such permissions
            _require_safe(path, facts.st_mode, facts.st_uid, os.getuid())
        if len(content) > _MAX_SIZE:
            raise InvalidRequest(f"{path}: expected at most {_MAX_SIZE // 1_000_000} MB, got more; pass a configuration file")
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            reason = f"byte {error.start + 1} is not UTF-8"
    remedy = "pass the path of another file, or write one with 'outreach-async config init'"
    raise InvalidRequest(f"{path}: the configuration file cannot be read ({reason}); {remedy}")


def _require_safe(path: Path, mode: int, owner: int, user: int) -> None:
    # The file names the address that receives owner keys, and programs to run.
    if owner not in {0, user}:
        remedy = f"check its content, then run: sudo chown {user} {shlex.quote(str(path))}"
        raise InvalidRequest(f"{path}: expected a file of this user or root, got one of user {owner}; {remedy}")
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        remedy = f"check its content, then run: chmod go-w {shlex.quote(str(path))}"
        raise InvalidRequest(f"{path}: expected a file that only its owner can write, but others can write it; {remedy}")


def _find_line(text: str, keys: Keys) -> int | None:
    """Return the number of the line with a key or, if it cannot be found, with the table that contains it."""
    table: Keys = ()
    best, found = 0, None
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("["):
            path = table = _parse_key(line)
        else:
            path = (*table, *_parse_key(f"{line.partition('=')[0]}= 0"))
        if len(path) > best and path == keys[: len(path)]:
            best, found = len(path), number
    return found


def _parse_key(line: str) -> Keys:
    """Return the path of a table's header or a key with a value; an empty path for any other line."""
    try:
        value: Any = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return ()
    path: list[str] = []
    while isinstance(value, dict) and value:
        name, value = next(iter(value.items()))
        path.append(name)
    return tuple(path)


def _format_keys(keys: Keys) -> str:
    return ".".join(key if key.replace("_", "").replace("-", "").isalnum() else repr(key) for key in keys)


def _show(value: object) -> str:
    return masked_repr(shorten(value, _MAX_SHOWN) if isinstance(value, str) else value)


def _suggest(name: object, known: Sequence[str], all_are: str) -> str:
    """Return a sentence with the closest names or, if none is close, with the first names."""
    by_folded = {each.casefold(): each for each in known}
    near = get_close_matches(str(name).casefold(), by_folded, n=3)
    if near:
        return f"did you mean {' or '.join(_show(by_folded[each]) for each in near)}?"
    more = f" and {len(known) - _MAX_LISTED} more" if len(known) > _MAX_LISTED else ""
    return f"{all_are} {', '.join(map(_show, known[:_MAX_LISTED]))}{more}"


# Reading the values. Each function takes a value and the path of its key, and returns the value that it means.

Read: TypeAlias = Callable[[Any, Keys], Any]


def _read_table(value: object, keys: Keys, readers: Mapping[str, Read]) -> dict[str, Any]:
    table = _require_table(value, keys)
    for name in table:
        if name not in readers:
            raise _Fault((*keys, name), f"unknown key; {_suggest(name, list(readers), 'the keys are')}")
    return {name: readers[name](member, (*keys, name)) for name, member in table.items()}


def _require_table(value: object, keys: Keys, example: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        written = example or f"[{_format_keys(keys)}]"
        raise _Fault(keys, f"expected a table, got {type_name(value)}; write {written}")
    return value


def _require_string(value: object, keys: Keys, example: str) -> str:
    if not isinstance(value, str):
        raise _Fault(keys, f"expected a string, got {type_name(value)}; write {keys[-1]} = {example}")
    return value


def _read_base_url(value: object, keys: Keys) -> str:
    text = _require_string(value, keys, '"https://api.example"')
    try:
        parsed = parse_base_url(text)
    except InvalidRequest as error:
        raise _Fault(keys, str(error).removeprefix("base_url: ")) from None
    if parsed.secrets:
        raise _Fault(keys, "expected a URL without user and password, got one with them; set OUTREACH_BASE_URL to this URL")
    return text


def _read_backend(value: object, keys: Keys) -> Backend:
    if value not in get_args(Backend):
        raise _Fault(keys, f"expected one of {', '.join(get_args(Backend))}, got {_show(value)}; write one of them")
    return cast("Backend", value)


def _check_with(check: Callable[[str, object], Any]) -> Read:
    """Return a reader that uses a check of arguments."""

    def read(value: object, keys: Keys) -> Any:
        try:
            return check(keys[-1], value)
        except InvalidRequest as error:
            raise _Fault(keys, str(error).removeprefix(f"{keys[-1]}: ")) from None

    return read


def _read_reference(value: object, keys: Keys) -> KeyReference:
    if isinstance(value, str):
        raise _Fault(keys, f"expected a reference to a key, got a key; remove it from the file, and write {_REFERENCES}")
    table = _require_table(value, keys, _REFERENCES)
    kinds = ("env", "file", "command")
    if len(table) != 1 or not set(table) <= {*kinds}:
        got = ", ".join(_show(name) for name in table) or "none"
        raise _Fault(keys, f"expected one of the keys {', '.join(kinds)}, got {got}; write {_REFERENCES}")
    ((kind, target),) = table.items()
    if kind == "command":
        if not isinstance(target, list) or not target or not all(isinstance(part, str) and part for part in target):
            raise _Fault((*keys, kind), f"expected a list of strings, got {type_name(target)}; write {_REFERENCES}")
        return KeyReference("command", tuple(target))
    text = _require_string(target, (*keys, kind), '"NAME"' if kind == "env" else '"/run/secrets/name"').strip()
    if not text or text.startswith(ID_PREFIXES["owner_key"]):
        what = "the name of a variable" if kind == "env" else "a path"
        raise _Fault((*keys, kind), f"expected {what}, got {'a key' if text else 'a blank string'}; write {_REFERENCES}")
    return KeyReference(cast('Literal["env", "file"]', kind), text)


def _read_names(value: object, keys: Keys) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        raise _Fault(keys, f'expected a list of names, got {type_name(value)}; write {keys[-1]} = ["retail"]')
    return tuple(dict.fromkeys(_require_name(name, keys) for name in value))


def _require_name(value: object, keys: Keys) -> str:
    if not isinstance(value, str) or not value.strip() or value != value.strip() or not value.isprintable():
        got = _show(value) if isinstance(value, str) else type_name(value)
        raise _Fault(keys, f"expected a name without leading or trailing blanks, got {got}; correct the name")
    return value


def _read_workspace_id(value: object, keys: Keys) -> str:
    check = _check_with(lambda field, id_: require_id(field, id_, "workspace", "write the workspace's id"))
    return cast("str", check(value, keys))


def _read_workspaces(value: object, keys: Keys) -> tuple[ConfiguredWorkspace, ...]:
    example = '[workspaces]\nacme = { id = "space_..." }'.replace("\n", " and, below it, ")
    return tuple(_read_workspace(name, each, (*keys, name)) for name, each in _require_table(value, keys, example).items())


def _read_workspace(name: str, value: object, keys: Keys) -> ConfiguredWorkspace:
    _require_free_name(name, keys, "workspace")
    _require_table(value, keys, f'{_format_keys(keys[-1:])} = {{ id = "space_..." }}')
    values = _read_table(value, keys, _WORKSPACE)
    if "id" not in values:
        raise _Fault(keys, 'expected the id of the workspace, got none; add id = "space_..."')
    for group in values.get("groups", ()):
        _require_free_name(group, (*keys, "groups"), "group")
    return ConfiguredWorkspace(name=name, **values)


def _require_free_name(name: str, keys: Keys, what: str) -> None:
    _require_name(name, keys)
    if name == ALL or name.startswith(tuple(ID_PREFIXES.values())):
        meaning = "selects every workspace" if name == ALL else "looks like an id"
        raise _Fault(keys, f"expected a name for the {what}, got {_show(name)}, which {meaning}; choose another name")


_COMMON: Final[Mapping[str, Read]] = MappingProxyType(
    {
        "owner_key": _read_reference,
        "rate": _check_with(require_rate),
    }
)
_WORKSPACE: Final[Mapping[str, Read]] = MappingProxyType({"id": _read_workspace_id, "groups": _read_names, **_COMMON})
_PROFILE: Final[Mapping[str, Read]] = MappingProxyType(
    {
        "base_url": _read_base_url,
        "backend": _read_backend,
        "timeout": _check_with(require_seconds),
        **_COMMON,
        "workspace": _read_names,
        "workspaces": _read_workspaces,
    }
)
_OF_SERVICE: Final = ("owner_key", "rate", "workspace", "workspaces")
"""Values that belong to the service at `base_url`, so a profile with another one does not inherit them."""


def _read_profiles(value: object, keys: Keys) -> dict[str, dict[str, Any]]:
    profiles = _require_table(value, keys, "[profile.staging]")
    return {name: _read_table(each, (*keys, name), _PROFILE) for name, each in profiles.items()}


def _build(path: Path, profile: str | None, content: Mapping[str, Any]) -> dict[str, Any]:
    values = _read_table(content, (), {**_PROFILE, "profile": _read_profiles})
    profiles = values.pop("profile", {})
    keys: Keys = ()
    own: Collection[str] = ()
    if profile is not None:
        if profile not in profiles:
            there = _suggest(profile, list(profiles), "the profiles are") if profiles else f"add a table [profile.{profile}]"
            raise _Fault(("profile",), f"expected a profile of the file, got {_show(profile)}; {there}")
        keys, own = ("profile", profile), profiles[profile]
        if "base_url" in own:
            values = {name: value for name, value in values.items() if name not in _OF_SERVICE}
        if "workspaces" in own:
            values.pop("workspace", None)
        values |= profiles[profile]
    anchored = {"from_profile": frozenset(own), **_anchor(values, path)}
    _check_names(anchored["workspaces"], (*keys, "workspaces") if "workspaces" in own else ("workspaces",))
    try:
        ConfigValues(path=path, **anchored).find(*anchored.get("workspace", ()))
    except InvalidRequest as error:
        raise _Fault((*keys, "workspace"), str(error).removeprefix("workspace: ")) from None
    return anchored


def _anchor(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the values with the paths of keys relative to the folder of the configuration file."""
    anchored = dict(values)
    if "owner_key" in values:
        anchored["owner_key"] = _anchor_reference(values["owner_key"], path)
    workspaces: Iterable[ConfiguredWorkspace] = values.get("workspaces", ())
    anchored["workspaces"] = tuple(
        each if each.owner_key is None else attrs.evolve(each, owner_key=_anchor_reference(each.owner_key, path))
        for each in workspaces
    )
    return anchored


def _anchor_reference(reference: KeyReference, path: Path) -> KeyReference:
    if reference.kind != "file":
        return reference
    return KeyReference("file", str(path.parent / Path(str(reference.value)).expanduser()))


def _check_names(workspaces: Sequence[ConfiguredWorkspace], keys: Keys) -> None:
    groups = {group for each in workspaces for group in each.groups}
    names: dict[str, str] = {}
    for each in workspaces:
        if each.name in groups:
            raise _Fault((*keys, each.name), f"expected a name that is no group, got {_show(each.name)}; rename one of the two")
        if each.id in names:
            other = f"expected one name for each id, got {each.id} also for {_show(names[each.id])}"
            raise _Fault((*keys, each.name, "id"), f"{other}; remove one of the two")
        names[each.id] = each.name
