"""Find, read and check a configuration file, and resolve names in it. Nothing here creates a client or sends a request."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar

import attrs

from outreach_async._plumbing import (
    Backend,
    Secret,
    create_transport,
    drop_frames,
    mask_keys,
    parse_base_url,
    parse_toml,
    read_rate,
    require_id,
    service_address,
    show_name,
    similar_names,
    trim,
)
from outreach_async.config._trust import FoundFile
from outreach_async.errors import InvalidRequest, shorten
from outreach_async.models import ID_PREFIXES

FILE_NAME: Final = "outreach.toml"
"""The name of a configuration file in the working directory.

Example:
    ```python
    print(FILE_NAME)  # -> outreach.toml
    ```
"""
ALL: Final = "all"
"""The selector of every configured workspace."""

_MAX_SIZE: Final = 4_000_000
_MAX_KEY_SIZE: Final = 4_096
_MAX_LISTED: Final = 8
_MAX_USE: Final = 300  # characters: more than the longest name of a host


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

    id: str
    name: str = attrs.field(default=attrs.Factory(lambda self: self.id, takes_self=True))
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
                chosen = [ConfiguredWorkspace(id=selector)]
            if not chosen and self.workspaces:
                groups = dict.fromkeys(group for each in self.workspaces for group in each.groups)
                known = suggest(selector, [*(each.name for each in self.workspaces), *groups, ALL], "the names are")
                what = f"expected a name, an id or a group of workspaces in {self.path}, got {show_name(selector)}"
                raise InvalidRequest(f"workspace: {what}; {known}")
            if not chosen:
                where = "no configuration file was found" if self.path is None else f"{self.path} names no workspaces"
                got = f"got {show_name(selector)}, and {where}; pass the id, or write {FILE_NAME}"
                raise InvalidRequest(f"workspace: expected an id (space_...), {got}")
            found |= {each.id: each for each in chosen}
        return list(found.values())

    @drop_frames
    def select(self, *texts: str) -> list[ConfiguredWorkspace]:
        r"""Return the workspaces of texts, as in a shell variable: each is a selector, or several between blanks or commas.

        Raises:
            InvalidRequest: As for `find`.

        Example:
            ```python
            Path("outreach.toml").write_text('[workspaces]\n"Bolt & Co" = { id = "space_1" }\n')
            print([each.id for each in load_config("outreach.toml").select("Bolt & Co", "space_2 space_3")])
            # -> ['space_1', 'space_2', 'space_3']
            ```
        """
        known = {name for each in self.workspaces for name in (each.name, *each.groups)}
        return self.find(*(each for text in texts for each in ([text] if trim(text) in known else split_selectors(text))))

    def at(self, address: str | None) -> Self:
        """Return the values for the address that is used: for another one than the file's, its keys are not sent.

        Example:
            ```python
            config = Config(base_url="https://api.example").at("https://other.example")
            print(config.elsewhere)  # -> https://other.example
            ```
        """
        if address is None or self.base_url is None:
            return self
        own, used = (str(parse_base_url(url)) for url in (self.base_url, address))
        return self if own == used else attrs.evolve(self, elsewhere=used)

    def key_of(self, workspace: ConfiguredWorkspace | None) -> KeyReference | None:
        """Return where the owner key of a workspace is; `None` if the file has none.

        Raises:
            InvalidRequest: Another address than the file's is used, to which its key is not sent.

        Example:
            ```python
            print(Config(owner_key=KeyReference("env", "ACME_KEY")).key_of(None))  # -> environment variable ACME_KEY
            ```
        """
        key = (workspace and workspace.owner_key) or self.owner_key
        if key is not None and self.elsewhere is not None:
            got = f"expected the key for {self.elsewhere}, got only that of {self.path} for {self.base_url}"
            profile = f"a profile with base_url = {json.dumps(self.elsewhere)}, its owner_key and its workspaces"
            raise InvalidRequest(f"owner_key: {got}; pass an owner key or set OUTREACH_OWNER_KEY, or add {profile}")
        return key


def split_selectors(text: str) -> list[str]:
    """Return names or ids that are separated by blanks, line breaks or commas, as in a shell variable."""
    return [name for part in text.replace(",", " ").split() if (name := trim(part))]


T = TypeVar("T", bound=ConfigValues)


def default_paths() -> list[Path]:
    places = [Path(FILE_NAME)]
    try:
        from platformdirs import user_config_path

        own = user_config_path("outreach-async", appauthor=False) / FILE_NAME
    except (ImportError, RuntimeError):  # the extra `cli` is missing, or the user has no home, as in a container
        return places
    return [*places, own] if own.is_absolute() else places  # older versions name a folder `~` in the working directory


def require_config(path: str | os.PathLike[str] | None, profile: str | None, kind: type[T]) -> T:
    config = find_config(path, profile, kind)
    if config.path is None:
        places = " or ".join(map(str, default_paths()))
        remedy = "write one with 'outreach-async config init', or pass its path"
        raise InvalidRequest(f"path: expected a configuration file at {places}, found none; {remedy}")
    if config.untrusted is not None:
        config.untrusted.require()
    return config


def find_config(
    path: str | os.PathLike[str] | None, profile: str | None, kind: type[T], environment: Mapping[str, str] = os.environ
) -> T:
    """Read the file of `path`, of `OUTREACH_CONFIG`, of the working directory or of the user; no values if there is none."""
    given = path or environment.get("OUTREACH_CONFIG")
    if given:
        return read_config(Path(given), profile, kind, named=True)
    here, *own = default_paths()
    if here.exists():  # from anyone, as in a repository or an archive
        is_own = any(os.path.realpath(each) == os.path.realpath(here) for each in own)
        return read_config(here, profile, kind, named=is_own)
    return next((read_config(place, profile, kind, named=True) for place in own if place.exists()), kind())


def read_config(path: Path, profile: str | None, kind: type[T], *, named: bool) -> T:
    """Read a file. What it names is not to be used while the result has `untrusted`."""
    from outreach_async.config._document import FileFault, read_document  # imported on demand: cattrs takes time

    if not named and path.exists() and not path.is_file():  # a pipe would wait for a writer, also in the shell's completion
        raise _unreadable(path, "it is not a regular file")
    content = _read_safely(path)
    try:
        document = parse_toml(_decode(path, content))
        values = read_document(path, profile, document)
    except tomllib.TOMLDecodeError as error:
        problem = f"expected TOML, got invalid content: {error}; correct the file"
    except FileFault as fault:
        problem = str(fault)
    else:
        found = None if named else FoundFile.of(path, content, _join_uses(list(dict.fromkeys(_name_uses(document)))))
        untrusted = None if found is None or not found.names or found.is_trusted else found
        return kind(path=path, profile=profile, untrusted=untrusted, **values)
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


def suggest(name: object, known: Sequence[str], all_are: str) -> str:
    """Return a sentence with the closest names or, if none is close, with the first names."""
    if near := similar_names(str(name), known, 0.6):
        return f"did you mean {near}?"
    more = f" and {len(known) - _MAX_LISTED} more" if len(known) > _MAX_LISTED else ""
    return f"{all_are} {', '.join(map(show_name, known[:_MAX_LISTED]))}{more}"


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
    config = config.at(address if isinstance(address, str) and address else service_address(arguments.get("transport")))
    if config.timeout is not None:
        arguments.setdefault("timeout", config.timeout)
    rates = read_rate(os.environ), chosen and chosen.rate, config.rate
    arguments.setdefault("rate", next((rate for rate in rates if rate is not None), None))
    is_given = arguments.get("owner_key") is not None or trim(os.environ.get("OUTREACH_OWNER_KEY")) is not None
    if not read_only and not is_given and (key := config.key_of(chosen)) is not None:
        arguments["owner_key"] = key.read()
    return arguments


def _choose_workspace(config: ConfigValues, workspace: str | None) -> ConfiguredWorkspace | None:
    if workspace is None:
        found = config.select(os.environ.get("OUTREACH_WORKSPACE", "")) or config.find(*config.workspace)
    else:
        found = config.find(workspace)
    if len(found) > 1:
        several = f"{len(found)} ({', '.join(each.name for each in found[:5])}{', ...' if len(found) > 5 else ''})"  # noqa: PLR2004 - fits a line
        raise InvalidRequest(f"workspace: expected one workspace, got {several}; name one of them, or use clients()")
    return next(iter(found), None)
