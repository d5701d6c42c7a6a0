"""Serve the MCP server over HTTP (streamable HTTP), with a check of the `Host`, the `Origin` and, if there is one, of a token."""

from __future__ import annotations

from hmac import compare_digest
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


def require_token(app: ASGIApp, token: str) -> ASGIApp:
    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] != "http" or compare_digest(given, f"Bearer {token}".encode()):
            await app(scope, receive, send)
        else:
            refusal = PlainTextResponse("expected the header 'Authorization: Bearer TOKEN'", 401, {"www-authenticate": "Bearer"})
            await refusal(scope, receive, send)

    return guard


def build_app(server: MCPServer[Any], host: str, token: str | None) -> ASGIApp:
    """Return the ASGI application of a server. Requests of web pages of other hosts are refused, as the protocol demands."""
    names = "127.0.0.1", "localhost", "[::1]", host
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[f"{name}:*" for name in names],
        allowed_origins=[f"http://{name}:*" for name in names],
    )
    app = server.streamable_http_app(host=host, transport_security=security)
    return app if token is None else require_token(app, token)


async def serve_http(server: MCPServer[Any], host: str, port: int, token: str | None) -> None:
    await uvicorn.Server(uvicorn.Config(build_app(server, host, token), host=host, port=port, log_level="warning")).serve()
