"""A configuration file and one of its profiles: its values, the owner keys that it names, and the clients that it describes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, Literal, Self

import attrs

import outreach_async.errors  # the client is imported when it is used: the command reads files for other things, too
from outreach_async._plumbing import (
    Backend,
    Secret,
    create_transport,
    drop_frames,
    hide_key,
    parse_base_url,
    read_rate,
    require_id,
    require_types,
    service_address,
    show_name,
    similar_names,
    trim,
    type_name,
)
from outreach_async.config._trust import FoundFile
from outreach_async.errors import InvalidRequest
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

_MAX_KEY_SIZE: Final = 4_096
_PIPE_WAIT: Final = 1.0  # seconds for which a named pipe waits for a program that writes to it
MAX_LISTED: Final = 8


@attrs.frozen
class KeyReference:
    """Where an owner key is stored.

    Attributes:
        kind: `env`, `file` or `command`.
        value: The name of the environment variable, the path of the file,
            or the program and its arguments.

    Example:
        ```python
        print(KeyReference("env", "ACME_KEY"))  # -> environment variable ACME_KEY
        ```
    """

    kind: Literal["env", "file", "command"]
    value: str | tuple[str, ...] = attrs.field(repr=False)  # the arguments of a command may contain a secret

    def __attrs_post_init__(self) -> None:
        require_types(KeyReference, attrs.asdict(self, recurse=False))
        if (self.kind == "command") is not isinstance(self.value, tuple):
            expected = "a tuple of a program and its arguments" if self.kind == "command" else "a string"
            raise InvalidRequest(f"value: expected {expected}, got {type_name(self.value)}; pass one")

    def __str__(self) -> str:
        if self.kind == "command":
            return f"command {self.value[0]}"
        return f"{'environment variable' if self.kind == 'env' else 'file'} {self.value}"

    @drop_frames
    def read(self, environment: Mapping[str, str] = os.environ, *, timeout: float = 120.0) -> Secret:
        """Return the key, hidden from `repr` and tracebacks.

        Args:
            environment: The environment variables.
            timeout: Limit for a command, in seconds. A password manager
                may ask a person.

        Raises:
            InvalidRequest: The key cannot be read, or is not an owner key.

        Example:
            ```python
            print(KeyReference("env", "ACME_KEY").read({"ACME_KEY": "key_1"}))  # -> ***
            ```
        """
        require_types(KeyReference.read, {"environment": environment})
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
                return _read_file(Path(str(self.value)), timeout)
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


def _read_file(path: Path, timeout: float) -> tuple[bytes, str]:
    """Return what a file has, and what is wrong with it. A named pipe waits for a program that writes to it, but not for ever."""
    content, started = b"", monotonic()
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb", buffering=0) as file:
        while len(content) <= _MAX_KEY_SIZE:
            # `None` if a program has the pipe open, but has not written yet; nothing if none has, or if this is all.
            if part := file.read(_MAX_KEY_SIZE + 1):
                content += part
            elif part is not None and (content or not path.is_fifo()):
                break
            elif monotonic() - started > (timeout if part is None else _PIPE_WAIT):
                return b"", "is a named pipe to which no program writes"
            else:
                sleep(_PIPE_WAIT / 100)
    return _check_size(content)


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
        owner_key: Where its own owner key is stored; `None` if nowhere.
        rate: Its own maximum rate, in requests per second; `None` if it
            has none.
        ledger: Path or URL of its ledger; `None` if the file names none.

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
    ledger: str | None = None


@attrs.frozen(kw_only=True)
class Config:
    r"""The values of a configuration file and, if chosen, of its profile.

    Attributes:
        path: Path of the file.
        profile: Name of the profile; `None` for none.
        base_url, backend, rate, timeout, owner_key: Address of the
            service, how to connect to it, requests per second, seconds,
            and where the key is stored; `None` for what the file does not
            set.
        workspace: Names, ids and groups that are selected by default.
        exclude: Paths of the lists of people to whom no command writes;
            see `importer.read_exclusions`.
        workspaces: The workspaces, in the order of the file.
        from_profile: Names of the values that the profile sets.
        untrusted: The file, if it must be trusted before its values are
            used; otherwise `None`.
        elsewhere: The address that is used instead of the file's, so that
            none of its keys is sent; `None` for the file's.

    Example:
        ```python
        Path("outreach.toml").write_text('base_url = "https://api.example"\n[workspaces]\nacme = { id = "space_1" }\n')
        config = load_config("outreach.toml")
        print(config.base_url, config.names)  # -> https://api.example {'space_1': 'acme'}
        ```
    """

    path: Path | None = None
    profile: str | None = None
    base_url: str | None = None
    backend: Backend | None = None
    rate: float | None = None
    timeout: float | None = None
    owner_key: KeyReference | None = None
    workspace: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    workspaces: tuple[ConfiguredWorkspace, ...] = ()
    from_profile: frozenset[str] = attrs.field(default=frozenset(), repr=False, eq=False)
    untrusted: FoundFile | None = attrs.field(default=None, repr=False, eq=False)
    elsewhere: str | None = attrs.field(default=None, repr=False, eq=False)

    @property
    def names(self) -> dict[str, str]:
        """The names of the workspaces, by id."""
        return {each.id: each.name for each in self.workspaces}

    @drop_frames
    def find(self, *selectors: str) -> list[ConfiguredWorkspace]:
        r"""Return the workspaces that names, ids, groups or `"all"` select.

        Each is returned once. An unknown id has no name.

        Raises:
            InvalidRequest: A selector is no id, and no name or group of
                the file.

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
        r"""Return the workspaces that texts select, as in a shell variable.

        A text is a selector, or several between blanks or commas.

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
        parts = (part for text in texts for part in ([text] if trim(text) in known else text.replace(",", " ").split()))
        return self.find(*filter(trim, parts))

    def at(self, address: str | None) -> Self:
        """Return the values for an address; only the file's gets its keys.

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
        """Return where a workspace's owner key is; `None` if there is none.

        Raises:
            InvalidRequest: Another address than the file's is used, to
                which its key is not sent.

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

    @drop_frames
    def client(self, workspace: str | None = None, *, read_only: bool = False, **options: Any) -> outreach_async.OutreachClient:
        r"""Create a client for one workspace, with its key and rate.

        No request is sent.

        Args:
            workspace: Name or id of the workspace, or a group of one;
                defaults to `OUTREACH_WORKSPACE`, then to the file's.
            read_only: True to leave the owner key unread. Such a client
                creates no contacts.
            options: Arguments of `OutreachClient`, which replace the
                values of the environment and the file.

        Raises:
            InvalidRequest: A value is missing or invalid, the workspace is
                unknown, or the owner key cannot be read.

        Example:
            ```python
            Path("outreach.toml").write_text('base_url = "https://api.example"\n[workspaces]\nacme = { id = "space_1" }\n')
            print(load_config("outreach.toml").client("acme", read_only=True))
            # -> <OutreachClient <HttpxTransport to https://api.example by httpx> workspace='space_1'>
            ```
        """
        require_types(Config.client, {"workspace": workspace, "read_only": read_only})
        return outreach_async.OutreachClient(**client_arguments(self, workspace, options, read_only=read_only))

    @asynccontextmanager
    async def clients(
        self, *workspaces: str, read_only: bool = False, **options: Any
    ) -> AsyncIterator[dict[str, outreach_async.OutreachClient]]:
        r"""Open a client for each of several workspaces, by name.

        The block's end closes all. The clients share connections and one
        rate, except those of workspaces with a rate of their own.

        Args:
            workspaces: Names, ids and groups; `"all"` selects every
                workspace of the file.
            read_only: As for `client`.
            options: Arguments of every client, as for `client`.

        Raises:
            InvalidRequest: As for `client`.

        Example:
            ```python
            Path("outreach.toml").write_text('base_url = "https://api.example"\n[workspaces]\nacme = { id = "space_1" }\n')
            async with load_config("outreach.toml").clients("all", read_only=True) as clients:
                print([*clients])  # -> ['acme']
            ```
        """
        hide_key(options)
        require_types(Config.clients, {"read_only": read_only})
        chosen = self.find(*workspaces)
        arguments = {each.id: client_arguments(self, each.id, options, read_only=read_only) for each in chosen}
        async with AsyncExitStack() as stack:
            opened: dict[str, outreach_async.OutreachClient] = {}
            shared: outreach_async.OutreachClient | None = None
            for each in chosen:
                given = arguments[each.id]
                if each.rate is not None and given["rate"] == each.rate:
                    opened[each.name] = await stack.enter_async_context(outreach_async.OutreachClient(**given))
                elif shared is None:
                    opened[each.name] = shared = await stack.enter_async_context(outreach_async.OutreachClient(**given))
                else:
                    # Blank rather than `None`, which would be the key of the workspace whose client is shared.
                    key = trim(given.get("owner_key")) or trim(os.environ.get("OUTREACH_OWNER_KEY")) or ""
                    opened[each.name] = shared.with_options(workspace=each.id, owner_key=key)
            yield opened


def client_arguments(config: Config, workspace: str | None, given: Mapping[str, Any], *, read_only: bool) -> dict[str, Any]:
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


def _choose_workspace(config: Config, workspace: str | None) -> ConfiguredWorkspace | None:
    if workspace is None:
        found = config.select(os.environ.get("OUTREACH_WORKSPACE", "")) or config.find(*config.workspace)
    else:
        found = config.find(workspace)
    if len(found) > 1:
        several = f"{len(found)} ({', '.join(each.name for each in found[:5])}{', ...' if len(found) > 5 else ''})"  # noqa: PLR2004 - fits a line
        raise InvalidRequest(f"workspace: expected one workspace, got {several}; name one of them, or use clients()")
    return next(iter(found), None)


def suggest(name: object, known: Sequence[str], all_are: str) -> str:
    """Return a sentence with the closest names or, if none is close, with the first names."""
    if near := similar_names(str(name), known, 0.6):
        return f"did you mean {near}?"
    more = f" and {len(known) - MAX_LISTED} more" if len(known) > MAX_LISTED else ""
    return f"{all_are} {', '.join(map(show_name, known[:MAX_LISTED]))}{more}"
