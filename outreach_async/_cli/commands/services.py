"""The commands `serve` and `mcp`, which run until they are interrupted, and `demo`."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from outreach_async._cli.options import CONNECTION, FILE, WORKSPACE, Command, option, with_options

if TYPE_CHECKING:
    from outreach_async._cli.values import Options

_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


@click.command(cls=Command)
@with_options("as_json", "verbose")
def demo(options: Options) -> int:
    """Import and audit on an embedded service, and show a brief.

    The demo needs no network and no setup. With --verbose, it also shows the whole brief, both imports and the first audit.
    """
    from outreach_async._cli.demo import run_demo

    return run_demo(options)


@click.command(cls=Command)
@option("--host", metavar="ADDRESS", default="127.0.0.1", help="Address to listen on.")
@option("--port", type=click.IntRange(0, 65535), metavar="PORT|0", default=0, help="Port to listen on; 0 picks a free port.")
@option("--world", type=FILE, help="JSON file with the initial data; by default, the sample data of the command 'demo'.")
@option("--seed", type=int, default=7, help="Seed for generated data.")
@option(
    "--behaviour",
    type=FILE,
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
@option(
    "--allow-origin",
    "origins",
    metavar="ORIGIN",
    multiple=True,
    help="Origin of web pages that may send requests (CORS), such as http://localhost:5173, or * for all; repeatable.",
)
@with_options("as_json", "verbose")
def serve(
    options: Options,
    *,
    host: str,
    port: int,
    world: Path | None,
    seed: int,
    behaviour: Path,
    control_hosts: tuple[str, ...],
    origins: tuple[str, ...],
) -> int:
    """Serve the embedded service over HTTP until interrupted.

    The command prints shell commands that export the base URL, a workspace and an owner key as environment variables. Paste
    these commands into another shell to use the service. With --json, the command prints the values and a campaign id as one
    JSON object.

    The control plane under /_fake/ is an HTTP API that resets the service, seeds data, injects faults, changes the behaviour and
    moves the clock, and opens sandboxes for parallel tests. The OpenAPI 3.1 document of all this is at /_fake/openapi.json.
    """
    import anyio

    from outreach_async._cli import serving
    from outreach_async._cli.demo_data import create_demo_world
    from outreach_async._cli.files import explain_os_errors
    from outreach_async._cli.process import OK, run_async
    from outreach_async.fake.control import ControlPlane, is_loopback
    from outreach_async.fake.faults import Service, SlicedService
    from outreach_async.fake.server import serve as serve_fake

    choices = serving.choose_behaviour(str(behaviour))
    service = create_demo_world(seed, choices) if world is None else serving.load_world(world, seed, choices)
    controlled = bool(control_hosts) or is_loopback(host)
    served: Service | SlicedService = ControlPlane(service, control_hosts, origins=origins) if controlled else service
    served = serving.LoggingService(served) if options.verbose else served

    def print_address(base_url: str) -> None:
        values = {"base_url": base_url, **serving.find_entry_ids(service)}
        exports = "" if options.quiet else serving.format_exports(values)
        sys.stdout.write(f"{json.dumps(values)}\n" if options.as_json else exports)
        sys.stdout.flush()
        if not controlled:
            options.screen().warn(
                f"the control plane under /_fake is off, because other machines can reach {host}; to turn it on, pass the name "
                "by which clients reach this server, such as --control-host localhost"
            )

    async def serve_until_interrupted() -> None:
        with explain_os_errors("--host", f"{host} --port {port}", "pass a local address and a free port, such as --port 0"):
            async with serve_fake(served, host, port, origins=origins) as url:
                print_address(url)
                await anyio.sleep_forever()

    return run_async(serve_until_interrupted, terminated=OK)


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
    from outreach_async._plumbing import require_module, require_plain, trim

    require_module("mcp", "outreach_async[mcp]")
    import uvicorn  # it comes with mcp

    from outreach_async._cli.auditing import clock_of, open_history
    from outreach_async._cli.connection import open_client, workspaces_of
    from outreach_async._cli.process import OK, run_async
    from outreach_async._cli.values import FAKE, find_workspaces
    from outreach_async.mcp_server import build_app, create_server, serve_stdio

    token: str | None = trim(os.environ.get("OUTREACH_MCP_TOKEN"))
    if token is not None:
        require_plain("OUTREACH_MCP_TOKEN", token, "set it to a secret without whitespace")
    if http and token is None and (allow_writes or host not in _LOOPBACK):
        cause = "--allow-writes" if allow_writes else f"--host {host}"
        raise click.UsageError(f"{cause}: with --http, expected a token; set OUTREACH_MCP_TOKEN to a secret that clients send.")
    writable = find_workspaces(options.config, allow_writes, "--allow-writes")
    if writable and options.base_url != FAKE:
        _require_key(options, writable)
    workspaces = list(dict.fromkeys([*(options.workspaces or writable or workspaces_of(options)), *writable]))
    store = open_history(options, history)  # reports an invalid file at the start, not during a conversation
    # stdout is reserved for the protocol. If logging were not configured, the SDK would log with rich, which wraps lines.
    logging.basicConfig(level=logging.ERROR if options.quiet else logging.WARNING, format="%(name)s: %(message)s")

    async def serve_assistant() -> None:
        # Creating contacts takes the key of the writable workspaces; reading takes none.
        default = (writable or workspaces)[0]
        async with open_client(options, workspace=default, writes=bool(writable)) as client:
            clock, config = clock_of(options), options.config
            given: dict[str, Any] = {"history": store, "names": config.names, "exclude": config.exclude}
            server = create_server(client, workspaces, allow_writes=writable, deadline=deadline, clock=clock, **given)
            if http:
                app = build_app(server, host, token)
                await uvicorn.Server(uvicorn.Config(app, host=host, port=port, log_level="warning")).serve()
            else:
                await serve_stdio(server)

    return run_async(serve_assistant, terminated=OK)


def _require_key(options: Options, writable: Sequence[str]) -> None:
    """Check that there is an owner key, and only one for all workspaces in which contacts may be created."""
    from outreach_async._plumbing import require_id

    is_given = options.owner_key is not None
    keys = {None if is_given else options.config.key_of(each) for each in options.config.find(*writable)}
    if len(keys) > 1:
        text = f"--allow-writes: expected workspaces with the same owner key, got {len(keys)} keys; run a server for each key."
        raise click.UsageError(text)
    if keys == {None}:
        remedy = "pass --owner-key or set OUTREACH_OWNER_KEY, because --allow-writes needs an owner key"
        require_id("--owner-key", options.owner_key, "owner_key", remedy)
