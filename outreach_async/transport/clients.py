"""Protocols for the clients of httpx and aiohttp, for type checkers.

They are not imported, because checking a program that uses this library would then check its backends as well: without a cache,
mypy takes longer for httpx and aiohttp than for everything else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias


class HttpxClient(Protocol):
    """An `httpx.AsyncClient` or an `httpx2.AsyncClient`."""

    @property
    def base_url(self) -> Any:
        """The URL that targets are relative to."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Header fields sent with every request."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether the client is closed."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class AiohttpSession(Protocol):
    """An `aiohttp.ClientSession`."""

    @property
    def connector(self) -> Any:
        """The connector that opens connections."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Header fields sent with every request."""
        ...

    @property
    def closed(self) -> bool:
        """Whether the session is closed."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


AiohttpMiddleware: TypeAlias = Callable[[Any, Any], Awaitable[Any]]
"""An `aiohttp.ClientMiddlewareType`."""
