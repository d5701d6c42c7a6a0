"""The commands `serve`, `demo` and `mcp`: what they accept, and their help."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from outreach_async._cli.interface.kinds import FILE, PRESET, WORKSPACE
from outreach_async._cli.interface.options import CONNECTION, Command, option, with_options

if TYPE_CHECKING:
    from outreach_async._cli.values import Options


@click.command(cls=Command)
@with_options("as_json", "verbose")
def demo(options: Options) -> int:
    """Import and audit on an embedded service, and show a brief.

    The demo needs no network and no setup. With --verbose, it also shows the whole brief, both imports and the first audit.
    """
    from outreach_async._cli.commands import demo as demonstration

    return demonstration.demo(options)


@click.command(cls=Command)
@option("--host", metavar="ADDRESS", default="127.0.0.1", help="Address to listen on.")
@option("--port", type=click.IntRange(0, 65535), metavar="PORT|0", default=0, help="Port to listen on; 0 picks a free port.")
@option("--world", type=FILE, help="JSON file with the initial data; by default, the sample data of the command 'demo'.")
@option("--seed", type=int, default=7, help="Seed for generated data.")
@option(
    "--behaviour",
    type=PRESET,
    metavar="PRESET|FILE",
    default="documented",
    help="Preset (documented, strict, lenient) or TOML file for behaviour that the API documentation does not specify.",
)
@option(
    "--control-host",
    "control_hosts",
    metavar="NAME",
    multiple=True,
    help=(
        "Host name to accept in requests to the control plane, besides localhost and IP addresses; repeatable. If "
        "--host is not a loopback address, the control plane is available only with this option."
    ),
)
@with_options("as_json", "verbose")
def serve(
    options: Options, *, host: str, port: int, world: Path | None, seed: int, behaviour: str, control_hosts: tuple[str, ...]
) -> int:
    """Serve the embedded service over HTTP until interrupted.

    The command prints shell commands that export the base URL, a workspace and an owner key as environment variables. Paste
    these commands into another shell to use the service. With --json, the command prints the values and a campaign id as one
    JSON object.

    The control plane under /_fake/ is an HTTP API that resets the service, seeds data, injects faults, changes the behaviour and
    moves the clock, and opens sandboxes for parallel tests. The OpenAPI 3.1 document of all this is at /_fake/openapi.json.
    """
    from outreach_async._cli.commands import serving

    return serving.serve(options, host, port, world=world, seed=seed, behaviour=behaviour, control_hosts=control_hosts)


@click.command(cls=Command)
@option(
    "--allow-writes",
    type=WORKSPACE,
    metavar="NAME|ID",
    multiple=True,
    help="Workspace in which contacts may be created, after a person has confirmed; repeatable.  [default: none]",
)
@option(
    "--deadline", type=float, metavar="SECONDS", default=50, help="Time limit of a call. Many assistants give up after a minute."
)
@option(
    "--history",
    type=FILE,
    help=(
        "File of 'brief --history', which is only read. The tool 'brief' shows the changes since its last audit, and "
        "the tool 'history' its figures."
    ),
)
@option("--http", is_flag=True, help="Serve over HTTP at /mcp, instead of stdin and stdout; see below.")
@option("--host", metavar="ADDRESS", default="127.0.0.1", help="Address or name for --http, as in the URL of clients.")
@option("--port", type=click.IntRange(1, 65535), metavar="PORT", default=8000, help="Port to listen on with --http.")
@with_options(*CONNECTION, "workspaces", "owner_key")
def mcp(
    options: Options,
    *,
    allow_writes: tuple[str, ...],
    deadline: float,
    history: Path | None,
    http: bool,
    host: str,
    port: int,
) -> int:
    """Run an MCP server for assistants over stdin and stdout.

    Assistants that support the Model Context Protocol start this command themselves: add it to their configuration. The tools
    list campaigns, steps, mailboxes and fields, run audits and briefs, explain rules, and check rows before an import. They read
    only the workspaces of --workspace and --allow-writes, but the steps of any campaign.

    With --allow-writes ID, an assistant can also create contacts in that workspace, at most 50 per call. A person must confirm
    every call, and fields are never overwritten. The option requires an owner key, and an assistant that supports elicitation.

    With --http, any number of assistants use one server. Set OUTREACH_MCP_TOKEN to a secret that they send as a bearer token.
    Without it, the server listens on loopback only, and does not accept --allow-writes.
    """
    from outreach_async._cli.commands import assisting

    return assisting.mcp(options, allow_writes=allow_writes, deadline=deadline, history=history, http=http, host=host, port=port)
