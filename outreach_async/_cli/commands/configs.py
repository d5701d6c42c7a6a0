"""The commands `config` and `completion`: write, check, show and trust the configuration file, and print completion scripts."""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import click
from click import Choice

from outreach_async._cli.options import FILE, WRITING, Command, SuggestingGroup, option, reading, with_options

if TYPE_CHECKING:
    from outreach_async._cli.values import Options
    from outreach_async.client import OutreachClient
    from outreach_async.config import ConfiguredWorkspace
    from outreach_async.errors import OutreachError

_MAX_NAMES: Final = 3  # of workspaces with the same error, which a line lists


@click.group(cls=SuggestingGroup, no_args_is_help=False)
def config() -> None:
    """Write, check and show the configuration file."""


@config.command(cls=Command)
@reading
def check(options: Options) -> int:
    """Read one page of each workspace, and say what works. Owner keys are read, but not sent.

    Without --workspace, every workspace of the configuration file is checked.

    Exit codes: 0 everything works; 1 an owner key cannot be read; 2 wrong usage, or an error in the file; 3 a workspace cannot
    be read; 77 the service denies access to every workspace.
    """
    import attrs

    from outreach_async._cli.process import run_async

    if options.config.workspaces and options.sources["workspace"] not in {"--workspace", "OUTREACH_WORKSPACE"}:
        options = attrs.evolve(options, workspaces=tuple(options.config.names))
    return run_async(partial(_check_all, options))


async def _check_all(options: Options) -> int:
    import anyio
    import attrs

    from outreach_async._cli.connection import open_each, workspaces_of
    from outreach_async._cli.process import INCOMPLETE, NOT_ALLOWED, OK, REFUSED, exit_code
    from outreach_async.errors import format_count

    screen, config, chosen = options.screen(), options.config, options.config.find(*workspaces_of(options))
    options = attrs.evolve(options, workspaces=tuple(each.id for each in chosen))
    found: list[dict[str, Any]] = [{"workspace": each.id, "name": each.name} for each in chosen]
    failures: list[OutreachError] = []
    async with open_each(options) as clients, anyio.create_task_group() as group:
        for each, result in zip(chosen, found, strict=True):
            group.start_soon(_check_workspace, options, each, clients[each.id], result, failures)
    screen.print_line(f"Configuration: {config.path or 'no file'}")
    rows = [
        (each["name"], each["workspace"], "works" if each["readable"] else "fails", each["campaigns"], each["owner_key"])
        for each in found
    ]
    screen.print_table(("workspace", "id", "reading", "campaigns", "owner_key"), rows)
    causes: dict[str, list[str]] = {}
    for result in found:
        for text in result["errors"]:
            causes.setdefault(text, []).append(result["name"])
    for text, names in causes.items():
        others = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
        who = f"{len(names):,} workspaces ({', '.join(names[:_MAX_NAMES])}{others})" if len(names) > 1 else names[0]
        screen.warn(f"{who}: {text}")
    total, readable = format_count(len(found), "workspace"), sum(each["readable"] for each in found)
    keys = Counter(each["owner_key"] for each in found)
    creating = keys["works"] + keys["given"]
    screen.print_line(f"Reading works for {readable:,} of {total}.")
    why = "no owner key is configured." if keys["none"] == len(found) else f"{creating:,} of {total} have an owner key."
    screen.print_line(f"Creating contacts: {why} Audits, briefs and lists need none.")
    path = config.path and str(config.path)
    screen.print_result({"path": path, "workspaces": found, "readable": readable, "creating": creating})
    if failures:
        return NOT_ALLOWED if len(failures) == len(found) and {*map(exit_code, failures)} == {NOT_ALLOWED} else INCOMPLETE
    return REFUSED if keys["fails"] else OK


async def _check_workspace(
    options: Options,
    workspace: ConfiguredWorkspace,
    client: OutreachClient,
    result: dict[str, Any],
    failures: list[OutreachError],
) -> None:
    """Add to `result` what works, and to `failures` why the workspace cannot be read."""
    import anyio.to_thread

    from outreach_async._cli.process import format_message
    from outreach_async.errors import OutreachError

    errors, campaigns, key = [], None, "given" if options.owner_key else "none"
    try:
        campaigns = (await client.campaigns.list(display=1, undecodable="keep")).total_found
    except OutreachError as error:
        failures.append(error)
        errors.append(format_message(error))
    result |= {"readable": not errors, "campaigns": campaigns}
    try:
        if not options.owner_key and (reference := options.config.key_of(workspace)) is not None:
            await anyio.to_thread.run_sync(reference.read)
            key = "works"
    except OutreachError as error:
        key = "fails"
        errors.append(format_message(error))
    result |= {"owner_key": key, "errors": errors}


@config.command(cls=Command)
@option(
    "--from",
    "table",
    type=FILE,
    help=(
        "Table of clients (CSV, XLSX or JSON Lines; - for standard input) with their workspaces: columns name, id and, "
        "optionally, groups and key."
    ),
)
@with_options("config")
def init(options: Options, *, table: Path | None) -> None:
    """Write a commented configuration file to start with: outreach.toml, or the one of --config.

    An existing file is never overwritten. If OUTREACH_BASE_URL and OUTREACH_WORKSPACE are set, the new file has their values.

    With --from, the file has a workspace for each row of a table, such as the sheet in which an agency keeps its clients. A cell
    with several groups separates them with commas. A cell of the column key says where the owner key is, and is never the key:
    env:ACME_KEY, file:/run/secrets/acme, "command:vault read acme" or op://vault/acme/key.
    """
    from importlib.resources import files

    from outreach_async._cli.messages import note_applied
    from outreach_async._cli.values import FAKE
    from outreach_async._plumbing import Backend, parse_base_url, trim
    from outreach_async.config import FILE_NAME, FoundFile, read_clients
    from outreach_async.errors import InvalidRequest
    from outreach_async.importer import open_file

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
    unused: list[str] = []
    if table is not None:
        try:
            lines, unused = read_clients(open_file(table))
        except InvalidRequest as error:
            raise click.UsageError(f"--from: {error}.") from None
    backends = {"backend": json.dumps(get_args(Backend)[-1]), "backends": ", ".join(get_args(Backend))}
    template = (files("outreach_async._cli") / "data" / "outreach-template.txt").read_text(encoding="utf-8")
    try:
        # Only the owner may write the file, regardless of the umask, because the command refuses all others.
        with open(path, "x", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
            file.write(template.format(base_url=address, workspaces="\n".join(lines), **backends))
    except FileExistsError:
        remedy = "pass another path with --config, or edit the file"
        raise click.UsageError(f"--config {path}: the file exists, and is not overwritten; {remedy}.") from None
    except OSError as error:
        raise click.UsageError(f"--config {path}: cannot be written ({error.strerror}); pass another path.") from None
    with suppress(OSError, InvalidRequest):  # the next command asks
        FoundFile(path, path.read_bytes()).trust()
    is_default = path == Path(FILE_NAME)
    trust, named = ("outreach-async config trust && ", "") if is_default else ("", f" --config {shlex.quote(str(path))}")
    note_applied(f"Written: {path}")
    if unused:
        options.screen().warn(f"--from: columns that say nothing of workspaces are not used: {', '.join(unused)}")
    options.screen().print_lines(f"Written: {path}\nNext, edit it, and run: {trust}outreach-async config check{named}")


@config.command(cls=Command)
@with_options(*WRITING, needs_trust=False)  # it runs and sends nothing
def show(options: Options) -> None:
    """Show each value, and where it comes from. Keys are never shown, only where they are stored."""
    import attrs

    from outreach_async._cli.values import FAKE
    from outreach_async._plumbing import parse_base_url

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
        "exclude": ", ".join(config.exclude) or None,
    }
    if config.untrusted is not None:
        screen.warn(f"{config.untrusted.place}: not trusted yet; {config.untrusted.remedy}")
    screen.print_table(("value", "", "from"), [(name, value, options.sources.get(name, "")) for name, value in values.items()])
    spaces = [
        {
            **attrs.asdict(each),
            # Only what is used: a key or a rate of an option or a variable replaces those of workspaces.
            "owner_key": f"{each.owner_key}{only}" if each.owner_key and not options.owner_key else None,
            "rate": options.own_rates.get(each.id),
        }
        for each in config.workspaces
    ]
    if spaces:
        screen.print_line()
        rows = [(each["name"], each["id"], ", ".join(each["groups"]), each["owner_key"] or "", each["rate"]) for each in spaces]
        screen.print_table(("workspace", "id", "groups", "owner_key", "rate"), rows)
    used = {name: {"value": values[name], "from": source or None} for name, source in options.sources.items()}
    screen.print_result({"path": values["path"], "profile": options.profile, "values": used, "workspaces": spaces})


@config.command(cls=Command)
@click.argument("file", type=FILE, metavar="FILE", required=False)
@option("--show", is_flag=True, help="List what is trusted.")
@option("--untrust", is_flag=True, help="Trust the file no longer.")
@with_options("quiet")
def trust(options: Options, *, file: Path | None, show: bool, untrust: bool) -> None:
    """Trust a configuration file that commands find in the working directory, as its content is now.

    Such a file may come from anyone, as in a repository, and may name the address that receives owner keys, and programs to
    run. It is used only if it is trusted. FILE is outreach.toml by default. A file that --config, OUTREACH_CONFIG or 'config
    init' names, or that is in the user's configuration folder, is trusted.
    """
    from outreach_async.config import FILE_NAME, FoundFile, load_config

    screen, path = options.screen(), Path(FILE_NAME) if file is None else file
    path = path / FILE_NAME if path.is_dir() else path
    try:
        if show:
            screen.print_table(("trusted", "content"), [(place, _compare(place)) for place in FoundFile.trusted()])
        elif untrust:
            found = FoundFile(path, b"")
            screen.print_line(f"{found.place}: {'no longer' if found.untrust() else 'was not'} trusted")
        elif (untrusted := load_config(path, strict=False, named=False).untrusted) is None:
            screen.print_line(f"{path}: is trusted, or names no address and no program")
        else:
            untrusted.trust()
            screen.print_line(f"{untrusted.place}: trusted as it is now; it names {untrusted.names}")
    except OSError as error:
        remedy = "name the file with --config or OUTREACH_CONFIG, which needs no trust"
        raise click.UsageError(f"{error.filename}: cannot be used ({error.strerror}); {remedy}.") from None


def _compare(place: Path) -> str:
    from outreach_async.config import FoundFile

    try:
        found = FoundFile(place, place.read_bytes())
    except OSError as error:
        return str(error.strerror)
    return "as trusted" if found.is_trusted else "changed since"


@click.command(cls=Command)
@click.argument("shell", type=Choice(["bash", "zsh", "fish"]))
def completion(*, shell: str) -> int:
    """Print the completion script for a shell.

    bash 4.4 or newer: add this line to ~/.bashrc

        eval "$(outreach-async completion bash)"

    zsh: add this line to ~/.zshrc, after the line with compinit

        eval "$(outreach-async completion zsh)"

    fish: add this line to ~/.config/fish/config.fish

        outreach-async completion fish | source

    The line takes effect in new shells. The command must be on PATH under the name outreach-async.
    """
    from outreach_async._cli.completion import print_script

    return print_script(shell)
