"""The MCP server over HTTP: who may call it."""

from __future__ import annotations

import signal
import socket
from typing import Any

import httpx
import pytest
from support.cli import Shell, start_command, wait_for_end

from outreach_async import OutreachClient
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.mcp_server import build_app, create_server

START = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
ACCEPT = {"accept": "application/json, text/event-stream"}


async def status(token: str | None, headers: dict[str, str]) -> int:
    fake = FakeService()
    fake.add_workspace("space_1")
    async with OutreachClient(transport=FakeTransport(fake), workspace="space_1") as client:
        server: Any = create_server(client, ["space_1"])
        app: Any = build_app(server, "127.0.0.1", token)
        async with server.session_manager.run():
            asgi = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=asgi, base_url="http://127.0.0.1:8000", headers=ACCEPT) as caller:
                return (await caller.post("/mcp", json=START, headers=headers)).status_code


@pytest.mark.parametrize(
    ("token", "headers", "code"),
    [
        (None, {}, 200),
        (None, {"origin": "http://localhost:3000"}, 200),
        (None, {"origin": "http://evil.example"}, 403),
        (None, {"host": "evil.example"}, 421),
        ("s3cret", {}, 401),
        ("s3cret", {"authorization": "Bearer other"}, 401),
        ("s3cret", {"authorization": "Bearer s3cret"}, 200),
    ],
)
async def test_web_pages_of_other_hosts_and_callers_without_the_token_are_refused(
    token: str | None, headers: dict[str, str], code: int
) -> None:
    assert await status(token, headers) == code


@pytest.mark.parametrize("options", [("--host", "0.0.0.0"), ("--allow-writes", "space_demo")])  # noqa: S104 - refused
def test_a_server_that_others_could_misuse_needs_a_token(shell: Shell, options: tuple[str, str]) -> None:
    ended = shell("mcp", "--base-url", "fake:", "--http", *options)
    assert ended.code == 2
    assert f"{options[0]}" in ended.err
    assert "with --http, expected a token; set OUTREACH_MCP_TOKEN to a secret that clients send" in ended.err


@pytest.mark.thorough
@pytest.mark.covers
def test_the_command_serves_over_http_until_it_is_interrupted() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ("mcp", "--base-url", "fake:", "--http", "--port", str(port), "--allow-writes", "space_demo")
    with start_command(*arguments, env={"OUTREACH_MCP_TOKEN": "s3cret\n"}) as process:
        codes = [code for token in ("s3cret", "other") if (code := call(port, token))]
        process.send_signal(signal.SIGINT)
        ended = wait_for_end(process)
    assert (codes, ended.out) == ([200, 401], "")
    assert "s3cret" not in ended.err


def call(port: int, token: str) -> int:
    headers = {**ACCEPT, "authorization": f"Bearer {token}"}
    with httpx.Client(transport=httpx.HTTPTransport(retries=8)) as caller:  # the server starts meanwhile
        return caller.post(f"http://127.0.0.1:{port}/mcp", json=START, headers=headers).status_code
