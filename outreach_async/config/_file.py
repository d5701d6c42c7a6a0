"""Find, read and check a configuration file, and resolve names in it. Nothing here creates a client or sends a request."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast, get_args

import attrs

from outreach_async._plumbing import (
    ID_PREFIXES,
    Backend,
    Secret,
    create_transport,
    drop_frames,
    mask_keys,
    parse_base_url,
    parse_toml,
    read_rate,
    require_id,
    require_rate,
    require_seconds,
    service_address,
    show_name,
    similar_names,
    trim,
    type_name,
)
from outreach_async.config._trust import FoundFile
from outreach_async.errors import InvalidRequest, shorten

FILE_NAME: Final = "outreach.toml"
ALL: Final = "all"
"""The selector of every configured workspace."""

_MAX_SIZE: Final = 4_000_000
_MAX_KEY_SIZE: Final = 4_096
_MAX_LISTED: Final = 8
_MAX_USE: Final = 300  # characters: more than the longest name of a host
_REFERENCES: Final = '{ env = "NAME" }, { file = "/run/secrets/name" } or { command = ["op", "read", "op://vault/name/key"] }'


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
        content, problem = self._read(environment, timeout)
        if problem:
            remedy = {
                "env": "set it, or correct its name in the configuration file",
                "file": "correct its path or its permissions",
                "command": "run the whole command in a shell to see why",
            }[self.kind]
            raise InvalidRequest(f"owner_key: the {self} {problem}; {remedy}")
        verb = "prints" if self.kind == "command" else "contains"
        text = content.decode(errors="surrogateescape")
        return Secret(require_id("owner_key", text, "owner_key", f"correct what the {self} {verb}"))

    def _read(self, environment: Mapping[str, str], timeout: float) -> tuple[bytes, str]:
        try:
            if self.kind == "env":
                content = trim(environment.get(str(self.value)))
                return os.fsencode(content or ""), "" if content else "is not set"
            if self.kind == "file":
                with Path(str(self.value)).open("rb") as file:
                    return _check_size(file.read(_MAX_KEY_SIZE + 1))
            # Standard input may be the file of an import. What the command prints, also to stderr, may contain the key.
            null, pipe = subprocess.DEVNULL, subprocess.PIPE
            # The program is the user's own, in a file that only the user can write.
            done = subprocess.run(self.value, stdin=null, stdout=pipe, stderr=null, timeout=timeout, check=False)  # noqa: S603 - as above
        except subprocess.TimeoutExpired:
            return b"", f"did not end within {timeout:g} s"
        except OSError as error:
            return b"", f"cannot be {'read' if self.kind == 'file' else 'run'} ({error.strerror})"
        if done.returncode:
            return b"", f"failed with exit code {done.returncode}"
        return _check_size(done.stdout)


def _check_size(content: bytes) -> tuple[bytes, str]:
    """Return what a file or a program contains, and what is wrong with it: a key is never cut."""
    return (b"", f"has more than {_MAX_KEY_SIZE:,} bytes") if len(content) > _MAX_KEY_SIZE else (content, "")


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
    untrusted: FoundFile | None = attrs.field(default=None, repr=False, eq=False)
    """What must be trusted before the values are used; `None` if nothing."""
    elsewhere: str | None = attrs.field(default=None, repr=False, eq=False)
    """The address that is used instead of the file's, so that no key of the file may be sent; `None` for the file's."""

    @property
    def names(self) -> dict[str, str]:
        """The names of the workspaces, by id."""
        return {each.id: each.name for each in self.workspaces}

    @drop_frames
    def find(self, *selectors: str) -> list[ConfiguredWorkspace]:
        r"""Return the workspaces that names, ids, groups or `"all"` select, without duplicates. An unknown id has no name.

        Raises:
            InvalidRequest: A selector is no id, and no name or group of the file.

        Example:
            ```python
            Path("outreach.toml").write_text('[workspaces]\nacme = { id = "space_1", groups = ["retail"] }\n')
            print([each.name for each in load_config("outreach.toml").find("retail", "space_2")])  # -> ['acme', 'space_2']
            ```
        """
        found: dict[str, ConfiguredWorkspace] = {}
        members: dict[Any, list[ConfiguredWorkspace]] = {}  # a file may have thousands of workspaces, and select each
        for each in self.workspaces:
            for selector in (each.id, each.name, *each.groups, ALL):
                members.setdefault(selector, []).append(each)
        for selector in map(trim, selectors):
            chosen = members.get(selector, [])
            if not chosen and isinstance(selector, str) and selector.startswith(ID_PREFIXES["workspace"]):
                require_id("workspace", selector, "workspace", "correct the id")
                chosen = [ConfiguredWorkspace(name=selector, id=selector)]
            if not chosen and self.workspaces:
                groups = dict.fromkeys(group for each in self.workspaces for group in each.groups)
                known = _suggest(selector, [*(each.name for each in self.workspaces), *groups, ALL], "the names are")
                what = f"expected a name, an id or a group of workspaces in {self.path}, got {show_name(selector)}"
                raise InvalidRequest(f"workspace: {what}; {known}")
            if not chosen:
                where = "no configuration file was found" if self.path is None else f"{self.path} names no workspaces"
                got = f"got {show_name(selector)}, and {where}; pass the id, or write {FILE_NAME}"
                raise InvalidRequest(f"workspace: expected an id (space_...), {got}")
            found |= {each.id: each for each in chosen}
        return list(found.values())


def at_address(config: ConfigValues, address: str | None) -> ConfigValues:
    """Return the values for another address, if it is another one."""
    if address is None or config.base_url is None:
        return config
    own, used = (str(parse_base_url(url)) for url in (config.base_url, address))
    return config if own == used else attrs.evolve(config, elsewhere=used)


def key_of(config: ConfigValues, workspace: ConfiguredWorkspace | None) -> KeyReference | None:
    """Return where the key of a workspace is, which is sent only to the address that the file or its profile names."""
    key = configured_key(config, workspace)
    if key is not None and config.elsewhere is not None:
        got = f"expected the key for {config.elsewhere}, got only that of {config.path} for {config.base_url}"
        profile = f"a profile with base_url = {json.dumps(config.elsewhere)}, its owner_key and its workspaces"
        raise InvalidRequest(f"owner_key: {got}; pass an owner key or set OUTREACH_OWNER_KEY, or add {profile}")
    return key


def configured_key(config: ConfigValues, workspace: ConfiguredWorkspace | None) -> KeyReference | None:
    return (workspace and workspace.owner_key) or config.owner_key


def select(config: ConfigValues, *texts: str) -> list[ConfiguredWorkspace]:
    """Return the workspaces of texts: each is a selector, or several that are separated by blanks or commas."""
    known = {name for each in config.workspaces for name in (each.name, *each.groups)}
    return config.find(*(each for text in texts for each in ([text] if trim(text) in known else split_selectors(text))))


def split_selectors(text: str) -> list[str]:
    """Return names or ids that are separated by blanks, line breaks or commas, as in a shell variable."""
    return [name for part in text.replace(",", " ").split() if (name := trim(part))]


NO_FILE: Final = ConfigValues()
T = TypeVar("T", bound=ConfigValues)


def find_config(path: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> tuple[Path, bool] | None:
    """Return the path of the configuration file, and whether the user named it: `path`, `OUTREACH_CONFIG` or the user's own.

    Otherwise, it is the file in the working directory, which may come from anyone, as in a repository or an archive.
    """
    given = path or environment.get("OUTREACH_CONFIG")
    if given:
        return Path(given), True
    here, *own = default_paths()
    if here.exists():
        return here, any(os.path.realpath(each) == os.path.realpath(here) for each in own)
    return next(((place, True) for place in own if place.exists()), None)


def default_paths() -> list[Path]:
    places = [Path(FILE_NAME)]
    try:
        from platformdirs import user_config_path

        own = user_config_path("outreach-async", appauthor=False) / FILE_NAME
    except (ImportError, RuntimeError):  # the extra `cli` is missing, or the user has no home, as in a container
        return places
    return [*places, own] if own.is_absolute() else places  # older versions name a folder `~` in the working directory


def require_config(path: str | os.PathLike[str] | None, profile: str | None, kind: type[T]) -> T:
    found = find_config(path, os.environ)
    if found is None:
        places = " or ".join(map(str, default_paths()))
        remedy = "write one with 'outreach-async config init', or pass its path"
        raise InvalidRequest(f"path: expected a configuration file at {places}, found none; {remedy}")
    config = read_config(*found, profile, kind)
    if config.untrusted is not None:
        config.untrusted.require()
    return config


def read_config(path: Path, named: bool, profile: str | None, kind: type[T]) -> T:  # noqa: FBT001 - as `find_config` returns it
    """Read a file. What it names is not to be used while the result has `untrusted`."""
    if not named and path.exists() and not path.is_file():  # a pipe would wait for a writer, also in the shell's completion
        raise _unreadable(path, "it is not a regular file")
    content = _read_safely(path)
    try:
        document = parse_toml(_decode(path, content))
        values = _build(path, profile, document)
        found = None if named else FoundFile.of(path, content, _join_uses(list(dict.fromkeys(_name_uses(document)))))
        untrusted = None if found is None or not found.names or found.is_trusted else found
        return kind(path=path, profile=profile, untrusted=untrusted, **values)
    except tomllib.TOMLDecodeError as error:
        problem = f"expected TOML, got invalid content: {error}; correct the file"
    except _Fault as fault:
        problem = str(fault)
    raise InvalidRequest(f"{path}: {mask_keys(problem)}")


def _join_uses(uses: Sequence[str]) -> str:
    more = [f"{len(uses) - _MAX_LISTED:,} more"] if len(uses) > _MAX_LISTED else []
    return " and ".join([*(shorten(each, _MAX_USE) for each in uses[:_MAX_LISTED]), *more])


def _name_uses(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield a text for each address and program that a valid document names."""
    if "base_url" in table:
        yield f"the address {parse_base_url(table['base_url'])}"
    for each in (table, *table.get("workspaces", {}).values()):
        if "command" in each.get("owner_key", {}):
            yield f"the program {show_name(each['owner_key']['command'][0])}"
    for profile in table.get("profile", {}).values():
        yield from _name_uses(profile)


def _read_safely(path: Path) -> bytes:
    """Return the content of a file that only its owner, who must be this user or root, can write."""
    # The folder is not checked: shared folders are common, and a file that another user puts there is refused as theirs.
    if str(path) == os.devnull:
        return b""
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
        return content
    raise _unreadable(path, reason)


def _decode(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"byte {error.start + 1} is not UTF-8") from None


def _unreadable(path: Path, reason: object) -> InvalidRequest:
    remedy = "pass the path of another file, or write one with 'outreach-async config init'"
    return InvalidRequest(f"{path}: the configuration file cannot be read ({reason}); {remedy}")


def _require_safe(path: Path, mode: int, owner: int, user: int) -> None:
    # The file names the address that receives owner keys, and programs to run.
    if owner not in {0, user}:
        remedy = f"check its content, then run: sudo chown {user} {shlex.quote(str(path))}"
        raise InvalidRequest(f"{path}: expected a file of this user or root, got one of user {owner}; {remedy}")
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        remedy = f"check its content, then run: chmod go-w {shlex.quote(str(path))}"
        raise InvalidRequest(f"{path}: expected a file that only its owner can write, but others can write it; {remedy}")


def _suggest(name: object, known: Sequence[str], all_are: str) -> str:
    """Return a sentence with the closest names or, if none is close, with the first names."""
    if near := similar_names(str(name), known, 0.6):
        return f"did you mean {near}?"
    more = f" and {len(known) - _MAX_LISTED} more" if len(known) > _MAX_LISTED else ""
    return f"{all_are} {', '.join(map(show_name, known[:_MAX_LISTED]))}{more}"


# Reading the values. Each function takes a value of the file, and returns what it means, or raises an error without its key.


class _Fault(Exception):
    """A value of the file is wrong. On its way up, each table adds its key in front of `keys`."""

    def __init__(self, text: str, *keys: str) -> None:
        self.keys, self.text = keys, text

    def __str__(self) -> str:
        path = ".".join(key if key.replace("_", "").replace("-", "").isalnum() else repr(key) for key in self.keys)
        return f"{path}: {self.text}"


@contextmanager
def _at(*keys: str) -> Iterator[None]:
    try:
        yield
    except _Fault as fault:
        fault.keys = (*keys, *fault.keys)
        raise
    except InvalidRequest as error:
        raise _Fault(str(error).removeprefix(f"{keys[-1]}: "), *keys) from None


def _read_table(value: object, readers: Mapping[str, Callable[[Any], Any]], example: str) -> dict[str, Any]:
    table, values = _require_table(value, example), dict[str, Any]()
    for name, member in table.items():
        with _at(name):
            if name not in readers:
                raise _Fault(f"unknown key; {_suggest(name, list(readers), 'the keys are')}")
            values[name] = readers[name](member)
    return values


def _require_table(value: object, example: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Fault(f"expected a table, got {type_name(value)}; write {example}")
    return value


def _require_string(value: object, example: str) -> str:
    if not isinstance(value, str):
        raise _Fault(f"expected a string, got {type_name(value)}; write {example}")
    return value


def _read_base_url(value: object) -> str:
    text = _require_string(value, 'base_url = "https://api.example"')
    if parse_base_url(text).secrets:
        raise _Fault("expected a URL without user and password, got one with them; set OUTREACH_BASE_URL to this URL")
    return text


def _read_backend(value: object) -> Backend:
    if value not in get_args(Backend):
        raise _Fault(f"expected one of {', '.join(get_args(Backend))}, got {show_name(value)}; write one of them")
    return cast("Backend", value)


def _read_reference(folder: Path, value: object) -> KeyReference:
    if isinstance(value, str):
        raise _Fault(f"expected a reference to a key, got a key; remove it from the file, and write {_REFERENCES}")
    table = _require_table(value, _REFERENCES)
    kinds = ("env", "file", "command")
    if len(table) != 1 or not set(table) <= {*kinds}:
        got = ", ".join(show_name(name) for name in table) or "none"
        raise _Fault(f"expected one of the keys {', '.join(kinds)}, got {got}; write {_REFERENCES}")
    ((kind, target),) = table.items()
    if kind == "command":
        if not isinstance(target, list) or not target or not all(isinstance(part, str) and part for part in target):
            raise _Fault(f"expected a list of strings, got {type_name(target)}; write {_REFERENCES}", kind)
        # As a path of a file: a program beside the configuration file is not one of the working directory, which may be anyone's.
        program = os.path.join(folder, target[0]) if os.path.dirname(target[0]) else target[0]  # noqa: PTH118,PTH120 - keep "./"
        return KeyReference("command", (program, *target[1:]))
    with _at(kind):
        text = _require_string(target, _REFERENCES).strip()
        if not text or text.startswith(ID_PREFIXES["owner_key"]):
            what = "the name of a variable" if kind == "env" else "a path"
            raise _Fault(f"expected {what}, got {'a key' if text else 'a blank string'}; write {_REFERENCES}")
    if kind == "env":
        return KeyReference("env", text)
    return KeyReference("file", str(folder / Path(text).expanduser()))


def _read_names(value: object) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list):
        raise _Fault(f'expected a list of names, got {type_name(value)}; write groups = ["retail"]')
    return tuple(dict.fromkeys(map(_require_name, names)))


def _require_name(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or value != value.strip() or not value.isprintable():
        got = show_name(value) if isinstance(value, str) else type_name(value)
        raise _Fault(f"expected a name without leading or trailing blanks, got {got}; correct the name")
    return value


def _require_free_name(name: str, what: str) -> None:
    _require_name(name)
    if name == ALL or name.startswith(tuple(ID_PREFIXES.values())):
        meaning = "selects every workspace" if name == ALL else "looks like an id"
        raise _Fault(f"expected a name for the {what}, got {show_name(name)}, which {meaning}; choose another name")


def _read_workspaces(common: Mapping[str, _Read], value: object) -> tuple[ConfiguredWorkspace, ...]:
    readers = {
        "id": lambda id_: require_id("id", id_, "workspace", "write the workspace's id"),
        "groups": _read_names,
        **common,
    }
    found: dict[str, ConfiguredWorkspace] = {}
    for name, each in _require_table(value, '[workspaces] and, below it, acme = { id = "space_..." }').items():
        with _at(name):
            _require_free_name(name, "workspace")
            values = _read_table(each, readers, f'{name} = {{ id = "space_..." }}')
            if "id" not in values:
                raise _Fault('expected the id of the workspace, got none; add id = "space_..."')
            for group in values.get("groups", ()):
                with _at("groups"):
                    _require_free_name(group, "group")
            if (other := found.get(values["id"])) is not None:
                text = f"expected one name for each id, got {other.id} also for {show_name(other.name)}"
                raise _Fault(f"{text}; remove one of the two", "id")
            found[values["id"]] = ConfiguredWorkspace(name=name, **values)
    groups = {group for each in found.values() for group in each.groups}
    for each in found.values():
        if each.name in groups:
            raise _Fault(f"expected a name that is no group, got {show_name(each.name)}; rename one of the two", each.name)
    return tuple(found.values())


_Read: TypeAlias = Callable[[Any], Any]
_OF_SERVICE: Final = ("owner_key", "rate", "workspace", "workspaces")
"""Values that belong to the service at `base_url`, so a profile with another one does not inherit them."""


def _build(path: Path, profile: str | None, content: Mapping[str, Any]) -> dict[str, Any]:
    common: dict[str, _Read] = {"owner_key": partial(_read_reference, path.parent), "rate": partial(require_rate, "rate")}
    readers: dict[str, _Read] = {
        "base_url": _read_base_url,
        "backend": _read_backend,
        "timeout": partial(require_seconds, "timeout"),
        **common,
        "workspace": _read_names,
        "workspaces": partial(_read_workspaces, common),
    }

    def read_profiles(value: object) -> dict[str, dict[str, Any]]:
        example = "[profile.staging]"
        return _read_table(value, dict.fromkeys(_require_table(value, example), read_profile), example)

    def read_profile(value: object) -> dict[str, Any]:
        return _read_table(value, readers, "[profile.staging]")

    values = _read_table(content, {**readers, "profile": read_profiles}, "")
    profiles = values.pop("profile", {})
    keys: tuple[str, ...] = ()
    own: Collection[str] = ()
    if profile is not None:
        if profile not in profiles:
            there = _suggest(profile, list(profiles), "the profiles are") if profiles else f"add a table [profile.{profile}]"
            raise _Fault(f"expected a profile of the file, got {show_name(profile)}; {there}", "profile")
        keys, own = ("profile", profile), profiles[profile]
        if "base_url" in own:
            values = {name: value for name, value in values.items() if name not in _OF_SERVICE}
        if "workspaces" in own:
            values.pop("workspace", None)
        values |= profiles[profile]
    with _at(*keys, "workspace"):
        ConfigValues(path=path, **values).find(*values.get("workspace", ()))
    return {"from_profile": frozenset(own), **values}


def client_arguments(config: ConfigValues, workspace: str | None, given: Mapping[str, Any], *, read_only: bool) -> dict[str, Any]:
    """Return the arguments of a client: those given, and the values of the environment and a configuration file."""
    chosen = _choose_workspace(config, workspace)
    arguments = dict(given) if chosen is None else {"workspace": chosen.id, **given}
    if arguments.get("transport") is None and arguments.get("base_url") is None:
        url = arguments["base_url"] = trim(os.environ.get("OUTREACH_BASE_URL")) or config.base_url
        if url and config.backend is not None:
            transport = create_transport(url, config.backend, arguments.get("max_in_flight", 64))
            arguments |= {"transport": transport, "base_url": None}
    address = arguments.get("base_url")
    config = at_address(config, address if isinstance(address, str) and address else service_address(arguments.get("transport")))
    if config.timeout is not None:
        arguments.setdefault("timeout", config.timeout)
    rates = read_rate(os.environ), chosen and chosen.rate, config.rate
    arguments.setdefault("rate", next((rate for rate in rates if rate is not None), None))
    is_given = arguments.get("owner_key") is not None or trim(os.environ.get("OUTREACH_OWNER_KEY")) is not None
    if not read_only and not is_given and (key := key_of(config, chosen)) is not None:
        arguments["owner_key"] = key.read()
    return arguments


def _choose_workspace(config: ConfigValues, workspace: str | None) -> ConfiguredWorkspace | None:
    if workspace is None:
        found = select(config, os.environ.get("OUTREACH_WORKSPACE", "")) or config.find(*config.workspace)
    else:
        found = config.find(workspace)
    if len(found) > 1:
        several = f"{len(found)} ({', '.join(each.name for each in found[:5])}{', ...' if len(found) > 5 else ''})"  # noqa: PLR2004 - fits a line
        raise InvalidRequest(f"workspace: expected one workspace, got {several}; name one of them, or use clients()")
    return next(iter(found), None)
