"""The commands `config init`, `config check` and `config show`: write, check and show the configuration file."""

from __future__ import annotations

import json
import os
import shlex
from contextlib import suppress
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Final, get_args

import anyio.to_thread
import attrs
import click

from outreach_async._cli.connection import open_each, workspaces_of
from outreach_async._cli.messages import note_applied
from outreach_async._cli.process import INCOMPLETE, NOT_ALLOWED, OK, REFUSED, exit_code, format_message, run_async
from outreach_async._cli.values import FAKE, Options
from outreach_async._plumbing import Backend, parse_base_url, trim
from outreach_async.client import OutreachClient
from outreach_async.config import FILE_NAME, ConfiguredWorkspace, FoundFile, read_config
from outreach_async.errors import InvalidRequest, OutreachError, format_count
from outreach_async.models import Number

_BACKENDS: Final = {"backend": json.dumps(get_args(Backend)[-1]), "backends": ", ".join(get_args(Backend))}


def init(options: Options) -> int:
    """Write a new file with the address and the workspaces of the environment, or with examples in comments."""
    path = options.config.path or Path(FILE_NAME)
    base_url = trim(os.environ.get("OUTREACH_BASE_URL"))
    ids = os.environ.get("OUTREACH_WORKSPACE", "").replace(",", " ").split()
    try:
        known = base_url not in {None, FAKE} and not parse_base_url(base_url).secrets
    except InvalidRequest:
        known = False
    address = f'base_url = "{base_url}"' if known and '"' not in base_url else '# base_url = "https://api.example"'
    names = {id_: id_.removeprefix("space_") for id_ in ids if id_.startswith("space_") and id_.isascii()}
    lines = [f'{name} = {{ id = "{id_}" }}' for id_, name in names.items() if name.replace("_", "").isalnum()]
    lines.append('# acme = { id = "space_...", groups = ["retail"] }')
    template = (files("outreach_async._cli") / "data" / "outreach-template.txt").read_text(encoding="utf-8")
    try:
        # Only the owner may write the file, regardless of the umask, because the command refuses all others.
        with open(path, "x", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
            file.write(template.format(base_url=address, workspaces="\n".join(lines), **_BACKENDS))
    except FileExistsError:
        remedy = "pass another path with --config, or edit the file"
        raise click.UsageError(f"--config {path}: the file exists, and is not overwritten; {remedy}.") from None
    except OSError as error:
        raise click.UsageError(f"--config {path}: cannot be written ({error.strerror}); pass another path.") from None
    with suppress(OSError, InvalidRequest):  # the next command asks
        FoundFile.of(path, path.read_bytes()).trust()
    is_default = path == Path(FILE_NAME)
    trust, named = ("outreach-async config trust && ", "") if is_default else ("", f" --config {shlex.quote(str(path))}")
    note_applied(f"Written: {path}")
    options.screen().print_lines(f"Written: {path}\nNext, edit it, and run: {trust}outreach-async config check{named}")
    return OK


def trust(options: Options, file: Path | None, *, show: bool, untrust: bool) -> int:
    """Trust a file that is found in the working directory, or list or forget what is trusted."""
    screen, path = options.screen(), Path(FILE_NAME) if file is None else file
    path = path / FILE_NAME if path.is_dir() else path
    try:
        if show:
            screen.print_table(("trusted", "content"), [(place, _compare(place)) for place in FoundFile.trusted()])
        elif untrust:
            found = FoundFile.of(path, b"")
            screen.print_line(f"{found.place}: {'no longer' if found.untrust() else 'was not'} trusted")
        elif (untrusted := read_config(path, named=False).untrusted) is None:
            screen.print_line(f"{path}: is trusted, or names no address and no program")
        else:
            untrusted.trust()
            screen.print_line(f"{untrusted.place}: trusted as it is now; it names {untrusted.names}")
    except OSError as error:
        remedy = "name the file with --config or OUTREACH_CONFIG, which needs no trust"
        raise click.UsageError(f"{error.filename}: cannot be used ({error.strerror}); {remedy}.") from None
    return OK


def _compare(place: Path) -> str:
    try:
        found = FoundFile.of(place, place.read_bytes())
    except OSError as error:
        return str(error.strerror)
    return "as trusted" if found.is_trusted else "changed since"


@attrs.define
class _Check:
    workspace: ConfiguredWorkspace
    key: str
    campaigns: Number | None = None
    error: OutreachError | None = None
    key_error: OutreachError | None = None

    @property
    def errors(self) -> list[str]:
        return [format_message(error) for error in (self.error, self.key_error) if error is not None]


def check(options: Options) -> int:
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
    rows = [
        (each.workspace.name, each.workspace.id, "fails" if each.error else "works", each.campaigns, each.key) for each in found
    ]
    screen.print_table(("workspace", "id", "reading", "campaigns", "owner_key"), rows)
    for each in found:
        for text in each.errors:
            screen.warn(f"{each.workspace.name}: {text}")
    works = sum(not each.errors for each in found)
    screen.print_line(f"{works:,} of {format_count(len(found), 'workspace')} {'works' if works == 1 else 'work'}")
    described = [
        {
            "workspace": each.workspace.id,
            "name": each.workspace.name,
            "readable": each.error is None,
            "campaigns": each.campaigns,
            "owner_key": each.key,
            "errors": each.errors,
        }
        for each in found
    ]
    screen.print_result({"workspaces": described, "works": works})
    errors = [each.error for each in found if each.error is not None]
    if errors:
        return NOT_ALLOWED if len(errors) == len(found) and {*map(exit_code, errors)} == {NOT_ALLOWED} else INCOMPLETE
    return OK if works == len(found) else REFUSED


async def _check_workspace(options: Options, found: _Check, client: OutreachClient) -> None:
    if not options.owner_key:
        try:
            if (reference := options.config.key_of(found.workspace)) is not None:
                await anyio.to_thread.run_sync(reference.read)
                found.key = "works"
        except OutreachError as error:
            found.key, found.key_error = "fails", error
    try:
        found.campaigns = (await client.campaigns.list(display=1, undecodable="keep")).total_found
    except OutreachError as error:
        found.error = error


def show(options: Options) -> int:
    screen, config, url = options.screen(), options.config, options.base_url
    only = f" (only for {config.base_url})" if config.elsewhere else ""
    names = config.names
    values = {
        "path": config.path and str(config.path),
        "profile": options.profile,
        "base_url": url if url is None or url == FAKE else str(parse_base_url(url)),  # without user and password
        "owner_key": "***" if options.owner_key else config.owner_key and f"{config.owner_key}{only}",
        "backend": options.backend,
        "timeout": options.timeout,
        "rate": options.rate,
        "workspace": ", ".join(names.get(each, each) for each in options.workspaces) or None,
    }
    if config.untrusted is not None:
        screen.warn(f"{config.untrusted.place}: not trusted yet; {config.untrusted.remedy}")
    screen.print_table(("value", "", "from"), [(name, value, options.sources.get(name, "")) for name, value in values.items()])
    if config.workspaces:
        screen.print_line()
        rows = [(each.name, each.id, ", ".join(each.groups), str(each.owner_key or ""), each.rate) for each in config.workspaces]
        screen.print_table(("workspace", "id", "groups", "owner_key", "rate"), rows)
    spaces = [{**attrs.asdict(each), "owner_key": each.owner_key and str(each.owner_key)} for each in config.workspaces]
    used = {name: {"value": values[name], "from": source or None} for name, source in options.sources.items()}
    screen.print_result({"path": values["path"], "profile": options.profile, "values": used, "workspaces": spaces})
    return OK
