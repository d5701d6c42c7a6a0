r"""Keep the address, the keys and the names of workspaces in one file, `outreach.toml`, for the command and for Python.

`outreach-async config init` writes a file to start with. This one names three workspaces, and says where the owner keys are:

    base_url = "https://api.example"
    rate = 20                                      # requests per second, of all workspaces without a rate of their own
    owner_key = { env = "OUR_KEY" }
    workspace = "retail"                           # what commands read without --workspace

    [workspaces]
    acme = { id = "space_1", groups = ["retail"] }
    "Bolt & Co" = { id = "space_2", groups = ["retail", "eu"], owner_key = { file = "/run/secrets/bolt" } }
    zenith = { id = "space_3", owner_key = { command = ["op", "read", "op://vault/zenith/key"] }, rate = 2 }

    [profile.staging]
    base_url = "https://staging.example"
    workspaces.acme = { id = "space_9" }

Every command then takes names: `outreach-async audit --workspace retail`, `--workspace acme --workspace zenith`, `--workspace
all`. Names stand beside the ids in lists and reports, and an import finds names in the column `workspace` of its rows. In
Python:

```python
import os
from pathlib import Path

import anyio
from outreach_async.audit import audit
from outreach_async.config import load_config

Path("outreach.toml").write_text(
    f'base_url = "{os.environ["OUTREACH_BASE_URL"]}"\n'
    "[workspaces]\n"
    'acme = { id = "space_1", groups = ["retail"] }\n'
    'bolt = { id = "space_2" }\n'
)


async def main() -> None:
    config = load_config("outreach.toml")
    async with config.client("acme", read_only=True) as client:
        print([campaign.name async for campaign in client.campaigns.list()])  # -> ['Spring']
        report = await audit(client, [each.id for each in config.find("all")], names=config.names)
        print(report.name_of("space_2"))  # -> bolt
    async with config.clients("retail", read_only=True) as clients:
        for name, client in clients.items():
            print(name, len(await client.workspaces.fields()))
            # -> acme 37


anyio.run(main)
```

Which file
----------
The file is that of `--config FILE` or `load_config(path)`, else of `OUTREACH_CONFIG`, else `outreach.toml` in the working
directory, else `outreach-async/outreach.toml` in the user's configuration folder (with the extra `cli`; `~/.config` on Linux).
Files are not merged. `OUTREACH_CONFIG=/dev/null` is an empty file, and `--base-url fake:` ignores the file.

A file that others can write is refused, as ssh does, and so is a file of another user than root: it names the address that
receives owner keys, and programs to run. The folder is not checked, because shared project folders are common. Windows has no
such permissions.

A file in the working directory may come from anyone, as in a repository or an archive. If it names an address or a program, it
is used only if you trust it: a command on a terminal asks once, and `outreach-async config trust` answers beforehand. Without a
terminal, the command exits with 2, and `load_config()` raises an error with the remedies. Place and content count, so that an
edited file is asked about again; `--show` lists what is trusted, and `--untrust` ends it. The answers are in
`$XDG_STATE_HOME/outreach-async`, by default in `~/.local/state`. A script that a trusted file runs is not checked. A file that
you name needs no trust (`--config`, `OUTREACH_CONFIG`, `load_config(path)`: use these in cron, systemd, CI and containers), nor
does the one in the user's configuration folder, or one as `config init` has written it. `config show` and the shell's
completion read any file: they run and send nothing.

Which value wins
----------------
For each value: the option of the command or the argument in Python, then the environment (`OUTREACH_BASE_URL`,
`OUTREACH_OWNER_KEY`, `OUTREACH_RATE`, `OUTREACH_WORKSPACE`; for commands also `OUTREACH_PROFILE`), then the workspace, the
profile and the file. `outreach-async config show` prints each value and where it comes from.

A profile (`--profile NAME`, or `load_config(profile=...)`) replaces values of the file. If it has its own `base_url`, it
inherits only `backend` and `timeout`: keys, rates and workspaces belong to the service at the other address. Its `workspaces`
replace all others.

Keys
----
A key of the file is sent only to the address that the file, or the profile, names. If `--base-url`, `OUTREACH_BASE_URL` or a
transport names another one, give its key, too (`--owner-key`, `OUTREACH_OWNER_KEY` or `owner_key=`), or write a profile for it.
If the file names no address, its keys are for the one that is used.

The file contains no owner key, only where each key is: `env` names an environment variable; `file` a path, relative to the
folder of the configuration file; `command` a program and its arguments, run without a shell, which prints the key, and nothing
else, within two minutes. A program with a slash in its name is relative to that folder, too. A key is read when something is
created, never for lists, audits and briefs. No error shows what a command prints.

Workspaces
----------
A name may contain blanks, but does not look like an id (`space_...`), and is not `all`. Names, groups and ids are unique. In one
text, as in `OUTREACH_WORKSPACE`, blanks separate several workspaces, unless the whole text is a name.

A workspace with its own `rate` has its own client and connections; all others share one client and one rate. An import whose rows
name several workspaces uses the key and the rate of `--workspace`, and refuses rows for workspaces with another key.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

import outreach_async.errors  # annotations name what the package imports when it is used
from outreach_async._plumbing import (
    Backend,  # noqa: F401 - a name in inherited annotations
    drop_frames,
    hide_key,
    trim,
)
from outreach_async.config._file import (
    client_arguments,
    find_config,
    require_config,
)
from outreach_async.config._file import read_config as read_values
from outreach_async.config._trust import FoundFile
from outreach_async.config._values import FILE_NAME, ConfiguredWorkspace, ConfigValues, KeyReference

__all__ = [
    "FILE_NAME",
    "Config",
    "ConfiguredWorkspace",
    "FoundFile",
    "KeyReference",
    "load_config",
    "open_clients",
    "read_config",
]


@attrs.frozen(kw_only=True)
class Config(ConfigValues):
    r"""The values of a configuration file and, if chosen, of one of its profiles.

    Attributes:
        path: Path of the file.
        profile: Name of the profile; `None` for none.
        base_url: Address of the service; `None` if the file has none. The same applies to `backend`, `rate`, `timeout` (seconds)
            and `owner_key` (where the key is stored).
        workspace: Names, ids and groups that are selected by default.
        workspaces: The workspaces, in the order of the file.
        from_profile: Names of the values that the profile sets.
        untrusted: The file, if it must be trusted before its values are used; otherwise `None`.
        elsewhere: The address that is used instead of the file's, so that none of its keys is sent; `None` for the file's.

    Example:
        ```python
        Path("outreach.toml").write_text('base_url = "https://api.example"\n[workspaces]\nacme = { id = "space_1" }\n')
        config = load_config("outreach.toml")
        print(config.base_url, config.names)  # -> https://api.example {'space_1': 'acme'}
        ```
    """

    @drop_frames
    def client(self, workspace: str | None = None, *, read_only: bool = False, **options: Any) -> outreach_async.OutreachClient:
        r"""Create a client for one workspace, with its key and rate. No request is sent.

        Args:
            workspace: Name or id of the workspace, or a group of one; defaults to `OUTREACH_WORKSPACE`, then to the file's.
            read_only: True to leave the owner key unread. Such a client creates no contacts.
            options: Arguments of `OutreachClient`, which replace the values of the environment and the file.

        Raises:
            InvalidRequest: A value is missing or invalid, the workspace is unknown, or the owner key cannot be read.

        Example:
            ```python
            Path("outreach.toml").write_text('base_url = "https://api.example"\n[workspaces]\nacme = { id = "space_1" }\n')
            print(load_config("outreach.toml").client("acme", read_only=True))
            # -> <OutreachClient <HttpxTransport to https://api.example by httpx> workspace='space_1'>
            ```
        """
        from outreach_async.client import OutreachClient  # imported on demand: the command reads files for other things, too

        return OutreachClient(**client_arguments(self, workspace, options, read_only=read_only))

    @asynccontextmanager
    async def clients(
        self, *workspaces: str, read_only: bool = False, **options: Any
    ) -> AsyncIterator[dict[str, outreach_async.OutreachClient]]:
        r"""Open a client for each of several workspaces, by name, and close all of them at the end of the block.

        The clients share connections and one rate, except those of workspaces with a rate of their own.

        Args:
            workspaces: Names, ids and groups; `"all"` selects every workspace of the file.
            read_only: As for `client`, and so are the errors.
            options: Arguments of every client, as for `client`.

        Example:
            ```python
            Path("outreach.toml").write_text('base_url = "https://api.example"\n[workspaces]\nacme = { id = "space_1" }\n')
            async with load_config("outreach.toml").clients("all", read_only=True) as clients:
                print([*clients])  # -> ['acme']
            ```
        """
        from outreach_async.client import OutreachClient  # imported on demand, as above

        hide_key(options)
        chosen = self.find(*workspaces)
        arguments = {each.id: client_arguments(self, each.id, options, read_only=read_only) for each in chosen}
        own_rates = {each.id for each in chosen if each.rate is not None and arguments[each.id]["rate"] == each.rate}

        def find_key(workspace: str) -> object:
            # Blank rather than `None`, which would be the key of the workspace whose client is shared.
            return trim(arguments[workspace].get("owner_key")) or trim(os.environ.get("OUTREACH_OWNER_KEY")) or ""

        async with open_clients(chosen, own_rates, lambda id_: OutreachClient(**arguments[id_]), find_key) as opened:
            yield {each.name: opened[each.id] for each in chosen}


@asynccontextmanager
async def open_clients(
    workspaces: Iterable[ConfiguredWorkspace],
    own_rates: Container[str],
    create: Callable[[str], outreach_async.OutreachClient],
    find_key: Callable[[str], Any] = lambda _id: None,
) -> AsyncIterator[dict[str, outreach_async.OutreachClient]]:
    """Open a client for each of several workspaces, by id, and close all of them at the end of the block.

    Args:
        workspaces: The workspaces.
        own_rates: Ids of the workspaces with a rate of their own. All others share one client.
        create: Function that creates the client of a workspace, by its id.
        find_key: Function that returns the owner key of a workspace whose client is shared, by its id.

    Example:
        ```python
        spaces = [ConfiguredWorkspace(id="space_1"), ConfiguredWorkspace(id="space_2")]
        async with open_clients(spaces, (), lambda id_: OutreachClient(transport=FakeTransport(fake), workspace=id_)) as opened:
            print([*opened])  # -> ['space_1', 'space_2']
        ```
    """
    async with AsyncExitStack() as stack:
        clients: dict[str, outreach_async.OutreachClient] = {}
        shared: outreach_async.OutreachClient | None = None
        for each in workspaces:
            if each.id in own_rates:
                clients[each.id] = await stack.enter_async_context(create(each.id))
            elif shared is None:
                clients[each.id] = shared = await stack.enter_async_context(create(each.id))
            else:
                clients[each.id] = shared.with_options(workspace=each.id, owner_key=find_key(each.id))
        yield clients


@drop_frames
def load_config(path: str | os.PathLike[str] | None = None, profile: str | None = None) -> Config:
    r"""Read a configuration file. Nothing is sent, and no owner key is read.

    Args:
        path: Path of the file; by default, that of `OUTREACH_CONFIG`, or the first `outreach.toml` in the working directory and
            the user's configuration folder. The one in the working directory must be trusted if it names an address or a program.
        profile: Name of a profile in the file, whose values replace those of the file.

    Raises:
        InvalidRequest: There is no file, others can write it, it is not trusted, or a key or value in it is invalid.

    Example:
        ```python
        Path("outreach.toml").write_text('[workspaces]\nacme = { id = "space_1" }\n[profile.slow]\nrate = 1\n')
        print(load_config().rate, load_config(profile="slow").rate)  # -> None 1.0
        ```
    """
    return require_config(path, profile, Config)


@drop_frames
def read_config(
    path: str | os.PathLike[str] | None = None,
    profile: str | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    named: bool = True,
) -> Config:
    r"""Read a configuration file as `load_config` does, but return no values if there is none, and require no trust.

    Args:
        path, profile: As for `load_config`, and so are the errors.
        environment: The environment variables, which may name the file.
        named: False if the user did not name `path`, so that its file must be trusted.

    Example:
        ```python
        Path("outreach.toml").write_text('base_url = "https://api.example"\n')
        config = read_config(Path("outreach.toml"), named=False)
        print(config.untrusted and config.untrusted.names)  # -> the address https://api.example
        ```
    """
    if path is not None and not named:
        return read_values(Path(path), profile, Config, named=False)
    return find_config(path, profile, Config, environment)
