"""This library: its transports alone, and the complete client on each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measuring import Once, Whole
from benchmarks.peers.loops import JSON
from benchmarks.peers.nothing import NullTransport
from benchmarks.workload import BODY, FIELDS, OWNER_KEY, WORKSPACE, email
from outreach_async import (
    AiohttpTransport,
    HttptoolsTransport,
    HttpxTransport,
    NewContact,
    Outcome,
    OutreachClient,
    Rate,
    Request,
    Transport,
)
from outreach_async.transport.wire import Progress

Rows = Callable[[int], Iterable[NewContact]]


def transport(backend: str, url: str, concurrency: int) -> Transport:
    """Return a transport by name: `httpx`, `httpx2`, `aiohttp`, `httptools`, `httpx client` or `null`."""
    if backend == "null":
        return NullTransport()
    if backend == "httpx client":
        return HttpxTransport(import_module("httpx").AsyncClient(base_url=url), max_in_flight=concurrency)
    if backend == "aiohttp":
        return AiohttpTransport(url, max_in_flight=concurrency)
    if backend == "httptools":
        return HttptoolsTransport(url, max_in_flight=concurrency)
    return HttpxTransport(url, family="httpx2" if backend == "httpx2" else "httpx", max_in_flight=concurrency)


def _client(backend: str, url: str, concurrency: int, rate: float | Rate | None = None) -> OutreachClient:
    carrier = transport(backend, url, concurrency)
    return OutreachClient(transport=carrier, owner_key=OWNER_KEY, workspace=WORKSPACE, max_in_flight=concurrency, rate=rate)


def contact(number: int) -> NewContact:
    """Return a contact with fifteen fields."""
    return NewContact(email(number), **FIELDS)


def contacts(count: int) -> Iterator[NewContact]:
    """Yield `count` contacts."""
    return map(contact, range(count))


@asynccontextmanager
async def _sending(backend: str, request: Request, url: str, concurrency: int) -> AsyncIterator[Once]:
    carrier = transport(backend, url, concurrency)
    try:
        yield lambda: carrier.send(request, Progress())
    finally:
        await carrier.aclose()


def post(backend: str, url: str, concurrency: int) -> Any:
    """Create a contact from bytes with the transport alone."""
    return _sending(backend, Request("POST", "/contacts", JSON, BODY), url, concurrency)


def fetch(backend: str, target: str, url: str, concurrency: int) -> Any:
    """Get the bytes of a target with the transport alone."""
    return _sending(backend, Request("GET", target), url, concurrency)


@asynccontextmanager
async def create(backend: str, url: str, concurrency: int, ready: NewContact | None = None) -> AsyncIterator[Once]:
    """Create a contact with the client; without `ready`, build it for each request."""
    async with _client(backend, url, concurrency) as client:
        yield lambda: client.contacts.create(ready or contact(1), strict_validation=False)


@asynccontextmanager
async def mailboxes(backend: str, workspace: str, display: int, url: str, concurrency: int) -> AsyncIterator[Once]:
    """Get the first page of mailboxes as models."""
    async with _client(backend, url, concurrency) as client:

        async def once() -> None:
            await client.mailboxes.list(workspace=workspace, display=display)

        yield once


@asynccontextmanager
async def bulk(
    backend: str,
    url: str,
    concurrency: int,
    rows: Rows | None = None,
    *,
    journal: bool = False,
    rate: float | Rate | None = None,
) -> AsyncIterator[Whole]:
    """Create contacts in one bulk run, and read every outcome.

    Args:
        backend: Name of the transport.
        url: Base URL of the service.
        concurrency: Number of concurrent requests.
        rows: Returns the contacts; `None` to build them on demand.
        journal: Whether the run has a journal.
        rate: The client's rate.
    """
    async with _client(backend, url, concurrency, rate) as client:

        async def whole(count: int) -> int:
            added = 0
            given = (rows or contacts)(count)
            with TemporaryDirectory() as folder:
                path = f"{folder}/run.db" if journal else None
                run = client.contacts.create_many(given, strict_validation=False, concurrency=concurrency, journal=path)
                async with run as outcomes:
                    async for outcome in outcomes:
                        added += outcome.status == Outcome.ADDED
            return added

        yield whole


@asynccontextmanager
async def walk(backend: str, workspace: str, display: int, url: str, *, prefetch: int = 4) -> AsyncIterator[Whole]:
    """Collect every mailbox."""
    async with _client(backend, url, 4) as client:

        async def whole(_pages: int) -> int:
            return len(await client.mailboxes.list(workspace=workspace, display=display).collect(prefetch=prefetch))

        yield whole
