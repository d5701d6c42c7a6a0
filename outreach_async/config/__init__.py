r"""One configuration file for commands and programs.

The file `outreach.toml` keeps the address, the keys and the names of
workspaces. `outreach-async config init` writes a file to start with. This
one names three workspaces, and says where the owner keys are:

    base_url = "https://api.example"
    rate = 20             # requests per second, without a workspace's own
    owner_key = { env = "OUR_KEY" }
    workspace = "retail"  # what commands read without --workspace
    exclude = ["blocked.csv"]  # lists of people to whom no command writes

    [workspaces]
    acme = { id = "space_1", groups = ["retail"] }
    "Bolt & Co" = { id = "space_2", groups = ["retail", "eu"], owner_key = { file = "/run/secrets/bolt" } }
    zenith = { id = "space_3", owner_key = { command = ["op", "read", "op://vault/zenith/key"] }, rate = 2 }

    [profile.staging]
    base_url = "https://staging.example"
    workspaces.acme = { id = "space_9" }

`outreach-async config init --from clients.csv` writes the workspaces from
a table of clients, such as the sheet in which an agency keeps them, with
the columns `name`, `id` and, optionally, `groups` and `key`, which says
where a key is: `env:NAME`, `file:PATH`, `command:PROGRAM ARGUMENTS` or
`op://VAULT/ITEM/FIELD`. `config check` then reads a page of each
workspace, and names every cause of an error once.

Every command then takes names: `outreach-async audit --workspace retail`,
`--workspace acme --workspace zenith`, `--workspace all`. Names stand
beside the ids in lists and reports, and an import finds names in the
column `workspace` of its rows. In Python:

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
The file is that of `--config FILE` or `load_config(path)`, else of
`OUTREACH_CONFIG`, else `outreach.toml` in the working directory, else
`outreach-async/outreach.toml` in the user's configuration folder (with the
extra `cli`; `~/.config` on Linux). Files are not merged.
`OUTREACH_CONFIG=/dev/null` is an empty file, and `--base-url fake:`
ignores the file.

A file that others can write is refused, as ssh does, and so is a file of
another user than root: it names the address that receives owner keys, and
programs to run. The folder is not checked, because shared project folders
are common. Windows has no such permissions.

A file in the working directory may come from anyone, as in a repository or
an archive. If it names an address or a program, it is used only if you
trust it: a command on a terminal asks once, and
`outreach-async config trust` answers beforehand. Without a terminal, the
command exits with 2, and `load_config()` raises an error with the
remedies. Place and content count, so that an edited file is asked about
again; `--show` lists what is trusted, and `--untrust` ends it. The answers
are in `$XDG_STATE_HOME/outreach-async`, by default in `~/.local/state`. A
script that a trusted file runs is not checked. A file that you name needs
no trust (`--config`, `OUTREACH_CONFIG`, `load_config(path)`: use these in
cron, systemd, CI and containers), nor does the one in the user's
configuration folder, or one as `config init` has written it. `config show`
and the shell's completion read any file: they run and send nothing.

Which value wins
----------------
For each value: the option of the command or the argument in Python, then
the environment (`OUTREACH_BASE_URL`, `OUTREACH_OWNER_KEY`,
`OUTREACH_RATE`, `OUTREACH_WORKSPACE`; for commands also
`OUTREACH_PROFILE`), then the workspace, the profile and the file.
`outreach-async config show` prints each value and where it comes from.

Without `backend`, a command connects as with `auto`, and a client in
Python over httpx: see `outreach_async.transport`.

A profile (`--profile NAME`, or `load_config(profile=...)`) replaces values
of the file. If it has its own `base_url`, it inherits only `backend`,
`timeout` and `exclude`: keys, rates and workspaces belong to the service
at the other address. Its `workspaces` replace all others. Its lists of
`exclude`, and those of `--exclude`, are added to the file's; in Python,
pass `exclude=[read_exclusions(path) for path in config.exclude] or None`.
Their paths are relative to the folder of the file.

Keys
----
A key of the file is sent only to the address that the file, or the
profile, names. If `--base-url`, `OUTREACH_BASE_URL` or a transport names
another one, give its key, too (`--owner-key`, `OUTREACH_OWNER_KEY` or
`owner_key=`), or write a profile for it. If the file names no address, its
keys are for the one that is used.

The file contains no owner key, only where each key is: `env` names an
environment variable; `file` a path, relative to the folder of the
configuration file; `command` a program and its arguments, run without a
shell, which prints the key, and nothing else, within two minutes. A
program with a slash in its name is relative to that folder, too. A
command of this package reads the key only if it creates something, never
for lists, audits and briefs. In Python, `client()` and `clients()` read it
when they create a client, unless `read_only=True` is passed. No error
shows what a command prints.

Workspaces
----------
A name may contain blanks, but does not look like an id (`space_...`), and
is not `all`. Names, groups and ids are unique. In one text, as in
`OUTREACH_WORKSPACE`, blanks separate several workspaces, unless the whole
text is a name.

`ledger` names the ledger of a workspace. `import --held-by` finds it by
the name or the group of the workspace, and `brief` shows its last import.

A workspace with its own `rate` has its own client; all others share one
client and one rate. An import whose rows name several workspaces uses the
key and the rate of `--workspace`, and refuses rows for workspaces with
another key.
"""

from __future__ import annotations

from outreach_async.config._clients import read_clients
from outreach_async.config._config import FILE_NAME, Config, ConfiguredWorkspace, KeyReference
from outreach_async.config._file import load_config
from outreach_async.config._trust import FoundFile

__all__ = ["FILE_NAME", "Config", "ConfiguredWorkspace", "FoundFile", "KeyReference", "load_config", "read_clients"]
