"""The commands `config init`, `config check` and `config show`: write, check and show the configuration file."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
import attrs
import click

from outreach_async._cli.connection import open_each, workspaces_of
from outreach_async._cli.messages import count_noun
from outreach_async._cli.process import INCOMPLETE, NOT_ALLOWED, OK, REFUSED, exit_code, format_message, run_async
from outreach_async._cli.values import FAKE, Options
from outreach_async._config_file import FILE_NAME, ConfiguredWorkspace, key_of
from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest, OutreachError
from outreach_async.models import Number
from outreach_async.transport._urls import parse_base_url

_TEMPLATE: Final = """\
# Configuration of outreach-async. Each value can be replaced by an option of a command or by an environment variable.
# Guide: python -m pydoc outreach_async.config

# Address of the service.
{base_url}

# Where the API key for creating contacts is; never the key itself. One of:
# owner_key = {{ env = "ACME_KEY" }}
# owner_key = {{ file = "/run/secrets/acme" }}
# owner_key = {{ command = ["op", "read", "op://vault/acme/key"] }}

# backend = "httptools"   # httpx (the default), httpx2, aiohttp or httptools
# rate = 20               # requests per second
# timeout = 30            # seconds for each attempt
# workspace = "all"       # what commands work in without --workspace: names, ids, groups or "all"

# Workspaces by name. Commands accept --workspace NAME, GROUP or all. A workspace may have its own owner_key and rate.
[workspaces]
{workspaces}

# Values of a profile replace those above: --profile staging. With its own base_url, it inherits no key and no workspace.
# [profile.staging]
# base_url = "https://staging.example"
# workspaces.acme = {{ id = "space_..." }}
"""


def init(options: Options) -> int:
    """Write a commented configuration file to start with."""
    path = options.config.path or Path(FILE_NAME)
    try:
        # Only the owner may write the file, regardless of the umask, because the command refuses all others.
        with open(path, "x", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
            file.write(_fill_in(os.environ))
    except FileExistsError:
        remedy = "pass another path with --config, or edit the file"
        raise click.UsageError(f"--config {path}: the file exists, and is not overwritten; {remedy}.") from None
    except OSError as error:
        raise click.UsageError(f"--config {path}: cannot be written ({error.strerror}); pass another path.") from None
    named = "" if path == Path(FILE_NAME) else f" --config {shlex.quote(str(path))}"
    options.screen().print_lines(f"Written: {path}\nNext, edit it, and run: outreach-async config check{named}")
    return OK


def _fill_in(environment: Mapping[str, str]) -> str:
    """Return the text of a new file. It has the address and the workspaces of the environment, or examples in comments."""
    base_url, ids = environment.get("OUTREACH_BASE_URL", ""), environment.get("OUTREACH_WORKSPACE", "").split()
    ids = [id_ for id_ in ids if id_.removeprefix("space_").replace("_", "").isalnum() and id_.isascii()]
    try:
        known = base_url not in {"", FAKE} and not parse_base_url(base_url).secrets
    except InvalidRequest:
        known = False
    lines = [f'{id_.removeprefix("space_")} = {{ id = "{id_}" }}' for id_ in dict.fromkeys(ids) if id_.startswith("space_")]
    example = '# acme = { id = "space_...", groups = ["retail"] }'
    address = f'base_url = "{base_url}"' if known and '"' not in base_url else '# base_url = "https://api.example"'
    return _TEMPLATE.format(base_url=address, workspaces="\n".join([*lines, example]))


@attrs.define
class _Check:
    """The result of checking one workspace: what works, and the errors."""

    workspace: ConfiguredWorkspace
    key: str
    campaigns: Number | None = None
    error: OutreachError | None = None
    key_error: OutreachError | None = None

    @property
    def errors(self) -> list[OutreachError]:
        return [error for error in (self.error, self.key_error) if error is not None]

    def to_dict(self) -> dict[str, Any]:
        return {
            "workspace": self.workspace.id,
            "name": self.workspace.name,
            "readable": self.error is None,
            "campaigns": self.campaigns,
            "owner_key": self.key,
            "errors": [*map(format_message, self.errors)],
        }


def check(options: Options) -> int:
    """Read one page of each workspace, and say what works. Owner keys are read, but not sent."""
    if options.config.workspaces and options.sources["workspace"] not in {"--workspace", "OUTREACH_WORKSPACE"}:
        options = attrs.evolve(options, workspaces=tuple(options.config.names))
    return run_async(partial(_check_all, options))


async def _check_all(options: Options) -> int:
    screen, chosen = options.screen(), options.config.find(*workspaces_of(options))
    options = attrs.evolve(options, workspaces=tuple(each.id for each in chosen))
    found = [_Check(each, "given" if options.owner_key else "none") for each in chosen]
    async with open_each(options) as clients, anyio.create_task_group() as group:
        for each in found:
            group.start_soon(_check_workspace, options, each, clients[each.workspace.id])
    screen.print_table(
        ("workspace", "id", "reading", "campaigns", "owner_key"),
        [
            (each.workspace.name, each.workspace.id, "fails" if each.error else "works", each.campaigns, each.key)
            for each in found
        ],
    )
    for each in found:
        for error in each.errors:
            screen.warn(f"{each.workspace.name}: {format_message(error)}")
    works = sum(not each.errors for each in found)
    screen.print_line(f"{works:,} of {count_noun(len(found), 'workspace')} {'works' if works == 1 else 'work'}")
    screen.print_result({"workspaces": [each.to_dict() for each in found], "works": works})
    errors = [each.error for each in found if each.error is not None]
    if errors:
        return NOT_ALLOWED if len(errors) == len(found) and {*map(exit_code, errors)} == {NOT_ALLOWED} else INCOMPLETE
    return OK if works == len(found) else REFUSED


async def _check_workspace(options: Options, found: _Check, client: OutreachClient) -> None:
    reference = key_of(options.config, found.workspace)
    if reference is not None and not options.owner_key:
        try:
            await anyio.to_thread.run_sync(reference.read)
            found.key = "works"
        except OutreachError as error:
            found.key, found.key_error = "fails", error
    try:
        found.campaigns = (await client.campaigns.list(display=1, undecodable="keep")).total_found
    except OutreachError as error:
        found.error = error


def show(options: Options) -> int:
    """Show each value, and where it comes from. Keys are never shown, only where they are stored."""
    screen, values, workspaces = options.screen(), dict(_describe(options)), options.config.workspaces
    screen.print_table(("value", "", "from"), [(name, value, options.sources.get(name, "")) for name, value in values.items()])
    if workspaces:
        screen.print_line()
        rows = [(each.name, each.id, ", ".join(each.groups), str(each.owner_key or ""), each.rate) for each in workspaces]
        screen.print_table(("workspace", "id", "groups", "owner_key", "rate"), rows)
    screen.print_result(
        {
            "path": values["path"],
            "profile": options.profile,
            "values": {name: {"value": values[name], "from": source or None} for name, source in options.sources.items()},
            "workspaces": [{**attrs.asdict(each), "owner_key": each.owner_key and str(each.owner_key)} for each in workspaces],
        }
    )
    return OK


def _describe(options: Options) -> Iterator[tuple[str, Any]]:
    yield "path", None if options.config.path is None else str(options.config.path)
    yield "profile", options.profile
    url = options.base_url
    yield "base_url", url if url is None or url == FAKE else str(parse_base_url(url))  # without user and password
    yield "owner_key", "***" if options.owner_key else options.config.owner_key and str(options.config.owner_key)
    yield "backend", options.backend
    yield "timeout", options.timeout
    yield "rate", options.rate
    yield "workspace", ", ".join(map(options.name_of, options.workspaces)) or None
