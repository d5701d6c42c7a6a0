"""The clients of other libraries, as type checkers know them here.

They are described instead of imported, or every check of a program that uses this library would read its backends whole: mypy,
without a cache, takes longer over httpx and aiohttp than over all the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias


class HttpxClient(Protocol):
    """An `httpx.AsyncClient` or an `httpx2.AsyncClient`."""

    @property
    def base_url(self) -> Any:
        """What its targets are relative to."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """What it sends with every request."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether it can send no more."""
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...


class AiohttpSession(Protocol):
    """An `aiohttp.ClientSession`."""

    @property
    def connector(self) -> Any:
        """What makes its connections."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """What it sends with every request."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it can send no more."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


AiohttpMiddleware: TypeAlias = Callable[[Any, Any], Awaitable[Any]]
"""An `aiohttp.ClientMiddlewareType`."""
