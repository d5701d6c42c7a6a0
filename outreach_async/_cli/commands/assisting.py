"""The command `mcp`: an MCP server that offers tools to assistants over stdin and stdout."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from outreach_async._cli.commands.auditing import clock_of, open_history
from outreach_async._cli.connection import open_client, workspaces_of
from outreach_async._cli.process import OK, run_async
from outreach_async._cli.values import FAKE, Options, find_workspaces
from outreach_async._plumbing import require_id, require_module, require_plain, trim

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def mcp(
    options: Options, *, allow_writes: tuple[str, ...], deadline: float, history: Path | None, http: bool, host: str, port: int
) -> int:
    require_module("mcp", "outreach_async[mcp]")
    import uvicorn  # it comes with mcp

    from outreach_async.mcp_server import build_app, create_server, serve_stdio

    token: str | None = trim(os.environ.get("OUTREACH_MCP_TOKEN"))
    if token is not None:
        require_plain("OUTREACH_MCP_TOKEN", token, "set it to a secret without whitespace")
    if http and token is None and (allow_writes or host not in LOOPBACK):
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
            clock, names = clock_of(options), options.config.names
            server = create_server(
                client, workspaces, allow_writes=writable, deadline=deadline, clock=clock, history=store, names=names
            )
            if http:
                app = build_app(server, host, token)
                await uvicorn.Server(uvicorn.Config(app, host=host, port=port, log_level="warning")).serve()
            else:
                await serve_stdio(server)

    return run_async(serve_assistant, terminated=OK)


def _require_key(options: Options, writable: Sequence[str]) -> None:
    """Check that there is an owner key, and only one for all workspaces in which contacts may be created."""
    is_given = options.owner_key is not None
    keys = {None if is_given else options.config.key_of(each) for each in options.config.find(*writable)}
    if len(keys) > 1:
        text = f"--allow-writes: expected workspaces with the same owner key, got {len(keys)} keys; run a server for each key."
        raise click.UsageError(text)
    if keys == {None}:
        remedy = "pass --owner-key or set OUTREACH_OWNER_KEY, because --allow-writes needs an owner key"
        require_id("--owner-key", options.owner_key, "owner_key", remedy)
