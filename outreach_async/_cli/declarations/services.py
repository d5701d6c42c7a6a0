"""The commands that read lists, configure the command or run the embedded service: their options and help."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from outreach_async._cli import files
from outreach_async._cli.app import SuggestingGroup, create_completer
from outreach_async._cli.options import CONNECTION, READING, IdType, shared_options

_PRESETS: Final = ("documented", "strict", "lenient")


def list_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the options of a command that prints a list. The command receives them as `output`."""

    @click.option(
        "--columns",
        metavar="NAMES|all",
        help="Columns to print, separated by commas.  [default: a few in a table on a terminal, all otherwise]",
    )
    @click.option(
        "--format",
        "form",
        type=click.Choice(("table", "csv", "jsonl", "json")),
        help="Format of the list. In pipes and files, tabs separate the columns of a table; json is the same as --json.  "
        "[default: by the suffix of --output, or table]",
    )
    @click.option(
        "--output",
        "path",
        type=files.OutputPath(),
        metavar="FILE",
        help="Write the list to a file, in the format of its suffix (.csv, .jsonl, .ndjson, .json, .tsv, .txt).",
    )
    @files.force_option
    @wraps(command)
    def with_output(*, columns: str | None, form: str | None, path: Path | None, force: bool, **arguments: Any) -> Any:
        from outreach_async._cli.listing import ListOutput, choose_format

        path = None if path == files.STDOUT else path
        return command(output=ListOutput(columns, form or choose_format(path), path, force), **arguments)

    return with_output


@click.command()
@list_options
@shared_options(*READING)
def campaigns(**arguments: Any) -> int:
    """List the campaigns of one or more workspaces."""
    from outreach_async._cli.commands.lists import campaigns as run

    return run(**arguments)


@click.command()
@list_options
@shared_options(*READING)
def mailboxes(**arguments: Any) -> int:
    """List the mailboxes of one or more workspaces."""
    from outreach_async._cli.commands.lists import mailboxes as run

    return run(**arguments)


@click.command()
@click.argument("campaign", type=IdType("campaign"))
@list_options
@shared_options(*CONNECTION, "as_json")
def steps(**arguments: Any) -> int:
    """List the steps of a campaign with their statistics.

    CAMPAIGN is the id of a campaign, as printed by the command 'campaigns'.
    """
    from outreach_async._cli.commands.lists import steps as run

    return run(**arguments)


@click.command()
@list_options
@shared_options(*READING)
def fields(**arguments: Any) -> int:
    """List the contact fields of one or more workspaces."""
    from outreach_async._cli.commands.lists import fields as run

    return run(**arguments)


@click.group(cls=SuggestingGroup, no_args_is_help=False)
def config() -> None:
    """Write, check and show the configuration file."""


@config.command()
@shared_options("config")
def init(**arguments: Any) -> int:
    """Write a commented configuration file to start with: outreach.toml, or the one of --config.

    An existing file is never overwritten. If OUTREACH_BASE_URL and OUTREACH_WORKSPACE are set, the new file has their values.
    """
    from outreach_async._cli.commands.configuring import init as run

    return run(**arguments)


@config.command()
@shared_options(*READING)
def check(**arguments: Any) -> int:
    """Read one page of each workspace, and say what works. Owner keys are read, but not sent.

    Without --workspace, every workspace of the configuration file is checked.

    Exit codes: 0 everything works; 1 an owner key cannot be read; 2 wrong usage, or an error in the file; 3 a workspace cannot
    be read; 77 the service denies access to every workspace.
    """
    from outreach_async._cli.commands.configuring import check as run

    return run(**arguments)


@config.command()
@shared_options(*READING, "owner_key")
def show(**arguments: Any) -> int:
    """Show each value, and where it comes from. Keys are never shown, only where they are stored."""
    from outreach_async._cli.commands.configuring import show as run

    return run(**arguments)


@click.command()
@shared_options("as_json", "verbose")
def demo(**arguments: Any) -> int:
    """Import and audit on an embedded service, and show a brief.

    The demo needs no network and no setup. With --verbose, it also shows the whole brief, both imports and the first audit.
    """
    from outreach_async._cli.commands.demo import demo as run

    return run(**arguments)


@click.command()
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="PORT", help="Port to listen on; 0 picks a free port.")
@click.option(
    "--world",
    type=files.PATH,
    metavar="FILE",
    help="JSON file with the initial data; by default, the sample data of the command 'demo'.",
)
@click.option("--seed", type=int, default=7, metavar="N", help="Seed for generated data.")
@click.option(
    "--behaviour",
    default="documented",
    metavar="PRESET|FILE",
    shell_complete=create_completer(lambda: _PRESETS, or_file=True),
    help=f"Preset ({', '.join(_PRESETS)}) or TOML file for behaviour that the API documentation does not specify.",
)
@click.option(
    "--control-host",
    "control_hosts",
    multiple=True,
    metavar="NAME",
    help="Host name to accept in requests to the control plane, besides localhost and IP addresses; repeatable. "
    "If --host is not a loopback address, the control plane is available only with this option.",
)
@shared_options("as_json", "verbose")
def serve(**arguments: Any) -> int:
    """Serve the embedded service over HTTP until interrupted.

    The command prints shell commands that export the base URL, a workspace and an owner key as environment variables. Paste
    these commands into another shell to use the service. With --json, the command prints the values and a campaign id as one
    JSON object.

    The control plane under /_fake/ is an HTTP API that resets the service, seeds data, injects faults, changes the behaviour and
    moves the clock, and opens sandboxes for parallel tests. The OpenAPI 3.1 document of all this is at /_fake/openapi.json.
    """
    from outreach_async._cli.commands.serving import serve as run

    return run(**arguments)
