"""This library: its transports alone, and the complete client on each of them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from itertools import islice
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.measuring import Once, Whole
from benchmarks.peers.loops import JSON
from benchmarks.peers.nothing import NullTransport
from benchmarks.workload import BODY, FIELDS, OWNER_KEY, WORKSPACE, email
from outreach_async import (
    AiohttpTransport,
    HttpxTransport,
    NewContact,
    Outcome,
    OutreachClient,
    Progress,
    Rate,
    Request,
    SocketTransport,
    Target,
    Transport,
)
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.transport._socket_reader import HeadParser, parse_by_h11

Rows = Callable[[int], Iterable[Mapping[str, str] | NewContact | tuple[NewContact, Target]]]


class _WithoutExtra(SocketTransport):
    """`SocketTransport` as without the extra `httptools`."""

    def _choose_parser(self) -> HeadParser:
        return parse_by_h11


TRANSPORTS: Final[Mapping[str, Callable[[str, int], Transport]]] = {
    "httpx": lambda url, most: HttpxTransport(url, max_in_flight=most),
    "httpx2": lambda url, most: HttpxTransport(url, family="httpx2", max_in_flight=most),
    "aiohttp": lambda url, most: AiohttpTransport(url, max_in_flight=most),
    "sockets": lambda url, most: _WithoutExtra(url, max_in_flight=most),
    "httptools": lambda url, most: SocketTransport(url, max_in_flight=most),
    "httpx client": lambda url, most: HttpxTransport(import_module("httpx").AsyncClient(base_url=url), max_in_flight=most),
    "fake": lambda _url, _most: FakeTransport(stocked_fake()),
    "null": lambda _url, _most: NullTransport(),
}
"""Transports by name, made from a base URL and a number of concurrent requests. Every group takes any of them."""

BACKENDS: Final[Mapping[str, str]] = {
    "sockets": "",
    "httpx": "",
    "httpx2": "httpx2",
    "aiohttp": "aiohttp",
    "httptools": "httptools",
}
"""The transports that use a socket, by the module that must be installed; empty for none."""

CHOICES: Final[Mapping[str, Any]] = {"httptools": "sockets"}
"""The names of transports that `--backend` calls otherwise."""

_STORED: Final = {"first_name": "Ann", "last_name": "Example", "company_name": "Company", "title": "Head of Sales"}


def stocked_fake(contacts: int = 0, mailboxes: int = 0) -> FakeService:
    """Return a fake with the workspace and key of the benchmarks, and with contacts and mailboxes."""
    fake = FakeService(seed=0)
    fake.add_workspace(WORKSPACE)
    fake.add_owner_key(WORKSPACE, key=OWNER_KEY)
    fake.add_mailboxes(WORKSPACE, mailboxes)
    fake.add_contacts(WORKSPACE, ({"email": f"stored{number}@acme.example", **_STORED} for number in range(contacts)))
    return fake


def _client(backend: str, url: str, concurrency: int, rate: float | Rate | None = None) -> OutreachClient:
    carrier = TRANSPORTS[backend](url, concurrency)
    return OutreachClient(transport=carrier, owner_key=OWNER_KEY, workspace=WORKSPACE, max_in_flight=concurrency, rate=rate)


def contact(number: int) -> NewContact:
    """Return a contact with fifteen fields."""
    return NewContact(email(number), **FIELDS)


def contacts(count: int) -> Iterator[NewContact]:
    """Yield `count` contacts."""
    return map(contact, range(count))


_CAMPAIGNS: Final = [Target(campaign=f"camp_{number}") for number in range(100)]


def in_campaigns(count: int) -> Iterator[tuple[NewContact, Target]]:
    """Yield `count` contacts, each for one of 100 campaigns."""
    return zip(contacts(count), itertools.cycle(_CAMPAIGNS), strict=False)


@asynccontextmanager
async def _sending(backend: str, request: Request, url: str, concurrency: int) -> AsyncIterator[Once]:
    carrier = TRANSPORTS[backend](url, concurrency)
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
    numbers = itertools.count()  # no e-mail occurs twice, because the fake would skip its contact
    async with _client(backend, url, concurrency, rate) as client:

        async def whole(count: int) -> int:
            added = 0
            given = map(contact, islice(numbers, count)) if rows is None else rows(count)
            with TemporaryDirectory() as folder:
                path = f"{folder}/run.db" if journal else None
                run = client.contacts.create_many(given, strict_validation=False, concurrency=concurrency, journal=path)
                async with run as outcomes:
                    async for outcome in outcomes:
                        added += outcome.status == Outcome.ADDED
            return added

        yield whole


@contextmanager
def sync_bulk(backend: str, url: str, concurrency: int, *, journal: bool = False) -> Iterator[Callable[[int], int]]:
    """Create contacts as `bulk` does, with the synchronous client."""
    from outreach_async.sync import SyncClient

    numbers = itertools.count()
    carrier = TRANSPORTS[backend](url, concurrency)
    with SyncClient(transport=carrier, owner_key=OWNER_KEY, workspace=WORKSPACE, max_in_flight=concurrency) as client:

        def whole(count: int) -> int:
            with TemporaryDirectory() as folder:
                path = f"{folder}/run.db" if journal else None
                run = client.contacts.create_many(
                    map(contact, islice(numbers, count)), strict_validation=False, concurrency=concurrency, journal=path
                )
                with run as outcomes:
                    return sum(outcome.status == Outcome.ADDED for outcome in outcomes)

        yield whole


@asynccontextmanager
async def walk(backend: str, workspace: str, display: int, url: str, *, prefetch: int = 4) -> AsyncIterator[Whole]:
    """Collect every mailbox."""
    async with _client(backend, url, 4) as client:

        async def whole(_pages: int) -> int:
            return len(await client.mailboxes.list(workspace=workspace, display=display).collect(prefetch=prefetch))

        yield whole
