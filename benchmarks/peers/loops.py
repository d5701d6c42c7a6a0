"""A loop on a client of httpx, httpx2 or aiohttp, as an application would write it without this library."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Any, Final

from benchmarks.measuring import Once, Whole
from benchmarks.workload import BODY, OPTIONS, OWNER_KEY, WORKSPACE, body_of, page_target, rows

JSON = {"content-type": "application/json"}

Exchange = Callable[..., Awaitable[Any]]
"""Sends `(method, target, content=bytes)` or `(method, target, json=object)`; returns the body as bytes or JSON."""


@asynccontextmanager
async def _httpx(family: str, url: str, most: int | None) -> AsyncIterator[Exchange]:
    library: Any = import_module(family)
    options = {} if most is None else {"limits": library.Limits(max_connections=most, max_keepalive_connections=most)}
    async with library.AsyncClient(base_url=url, timeout=30, **options) as client:
        yield partial(_by_httpx, client)


async def _by_httpx(
    client: Any, method: str, target: str, *, content: bytes | None = None, json: Any = None, parse: bool = True
) -> Any:
    answer = await client.request(method, target, content=content, json=json, headers=JSON if content else None)
    answer.raise_for_status()
    return answer.json() if parse else answer.content


@asynccontextmanager
async def _aiohttp(url: str, concurrency: int) -> AsyncIterator[Exchange]:
    import aiohttp

    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(url, connector=connector, raise_for_status=True) as session:

        async def exchange(
            method: str, target: str, *, content: bytes | None = None, json: Any = None, parse: bool = True
        ) -> Any:
            headers = JSON if content else None
            async with session.request(method, target, data=content, json=json, headers=headers) as answer:
                return await answer.json() if parse else await answer.read()

        yield exchange


@asynccontextmanager
async def _client_each(family: str, url: str, concurrency: int) -> AsyncIterator[Exchange]:
    library: Any = import_module(family)
    context = library.create_ssl_context()  # shared: making one takes longer than many requests
    async with AsyncExitStack() as stack:
        clients = [library.AsyncClient(base_url=url, timeout=30, verify=context) for _ in range(concurrency)]
        for client in clients:
            await stack.enter_async_context(client)

        async def exchange(*arguments: Any, **options: Any) -> Any:
            client = clients.pop()
            try:
                return await _by_httpx(client, *arguments, **options)
            finally:
                clients.append(client)

        yield exchange


_CLIENTS: Final[Mapping[str, Callable[[str, int], AbstractAsyncContextManager[Exchange]]]] = {
    "httpx": lambda url, _: _httpx("httpx", url, None),
    "httpx, a connection each": partial(_httpx, "httpx"),
    "httpx, a client each": partial(_client_each, "httpx"),
    "httpx2": lambda url, _: _httpx("httpx2", url, None),
    "aiohttp": _aiohttp,
}
"""Clients by name. `a connection each` and `a client each` have one per request in flight; the latter is a common workaround.

With the default limits of httpx, 100 connections of which 20 are kept alive, a loop costs less than with one connection each.
"""


@asynccontextmanager
async def post(backend: str, url: str, concurrency: int) -> AsyncIterator[Once]:
    """Create a contact with bytes in and bytes out."""
    async with _CLIENTS[backend](url, concurrency) as exchange:
        yield lambda: exchange("POST", "/contacts", content=BODY, parse=False)


@asynccontextmanager
async def create(backend: str, url: str, concurrency: int) -> AsyncIterator[Once]:
    """Create a contact with a dict in and a dict out."""
    async with _CLIENTS[backend](url, concurrency) as exchange:
        yield lambda: exchange("POST", "/contacts", json=body_of(1))


@asynccontextmanager
async def fetch(backend: str, target: str, url: str, concurrency: int, *, parse: bool = False) -> AsyncIterator[Once]:
    """Get a target as bytes or JSON."""
    async with _CLIENTS[backend](url, concurrency) as exchange:
        yield lambda: exchange("GET", target, parse=parse)


@asynccontextmanager
async def bulk(backend: str, url: str, concurrency: int) -> AsyncIterator[Whole]:
    """Create contacts with one task each, a semaphore and gather."""
    async with _CLIENTS[backend](url, concurrency) as exchange:
        room = asyncio.Semaphore(concurrency)

        async def one(body: dict[str, Any]) -> str:
            async with room:
                answer = await exchange("POST", "/contacts", json=body)
            return str(answer["status"])

        async def whole(count: int) -> int:
            shared = {"owner_key": OWNER_KEY, "workspace": WORKSPACE, "upload_options": OPTIONS}
            return _added(await asyncio.gather(*(one({**shared, **row}) for row in rows(count))))

        yield whole


def _added(statuses: Iterable[str]) -> int:
    return sum(status == "added" for status in statuses)


@asynccontextmanager
async def walk(backend: str, workspace: str, display: int, url: str) -> AsyncIterator[Whole]:
    """Get every page, up to the number in the responses, and keep every item."""
    async with _CLIENTS[backend](url, 4) as exchange:

        async def whole(_pages: int) -> int:
            items: list[Any] = []
            page, pages = 1, 1
            while page <= pages:
                answer = await exchange("GET", page_target(workspace, display, page))
                items += answer["data"]
                pages = answer["total_pages"]
                page += 1
            return len(items)

        yield whole
