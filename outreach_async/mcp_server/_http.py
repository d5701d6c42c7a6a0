"""Serve the MCP server over HTTP (streamable HTTP), with a check of the `Host`, the `Origin` and, if there is one, of a token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from hmac import compare_digest
from typing import Any, Final

import attrs
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

Message = MutableMapping[str, Any]

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


@attrs.frozen
class TokenGuard:
    """An ASGI application that refuses each HTTP request without the bearer token."""

    app: Callable[..., Awaitable[None]]
    token: str = attrs.field(repr=False)

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Pass the request on, or answer it with status 401."""
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] != "http" or compare_digest(given, f"Bearer {self.token}".encode()):
            await self.app(scope, receive, send)
            return
        headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b"expected the header 'Authorization: Bearer TOKEN'"})


def build_app(server: MCPServer[Any], host: str, token: str | None) -> Callable[..., Awaitable[None]]:
    """Return the ASGI application of a server. Requests of web pages of other hosts are refused, as the protocol demands."""
    names = (*_LOOPBACK, host)
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[f"{name}:*" for name in names],
        allowed_origins=[f"http://{name}:*" for name in names],
    )
    app = server.streamable_http_app(host=host, transport_security=security)
    return app if token is None else TokenGuard(app, token)


async def serve_http(server: MCPServer[Any], host: str, port: int, token: str | None) -> None:
    """Serve until the process is interrupted."""
    await uvicorn.Server(uvicorn.Config(build_app(server, host, token), host=host, port=port, log_level="warning")).serve()
