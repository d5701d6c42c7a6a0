"""A fault means the same in memory as through a real backend over a real socket."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import get_args

import anyio
import attrs
import pytest
from support_tiny_service import CREATE, LIST, TinyService

from outreach_async.errors import TransportError
from outreach_async.fake import faults as f
from outreach_async.fake.exchange import Kind
from outreach_async.fake.server import serve
from outreach_async.fake.transport import FakeTransport
from outreach_async.transport.httpx import HttpxTransport
from outreach_async.transport.wire import Progress, Request, Transport


@attrs.frozen
class Outcome:
    """What a client can know, and what the service did."""

    status: int = 0
    body: bytes = b""
    maybe_sent: bool | None = None
    gave_up: bool = False
    sent: bool | None = None
    acts: int = 0


FAULTS: dict[Kind, f.Fault] = {
    "latency": f.latency(0.001),
    "hang": f.hang(),
    "reset": f.reset(),
    "close": f.close(),
    "truncate": f.truncate(20),
    "reset_mid_body": f.reset_mid_body(20),
    "bad_chunk": f.bad_chunk(),
    "no_final_chunk": f.no_final_chunk(),
    "garbage": f.garbage(),
    "long_header": f.long_header(),
    "wrong_encoding": f.wrong_encoding(),
    "wrong_length": f.wrong_length(7),
    "slow_drip": f.slow_drip(bytes=50, every=0.001),
}
ANSWERS = [f.ok, f.status(429, retry_after=2), f.status(503), f.html_502(), f.empty(), f.drift("data.status", None)]
LATE_LOSSES = [f.commit_then(f.reset()), f.commit_then(f.close()), f.commit_then(f.hang()), f.commit_then(f.status(503))]


@asynccontextmanager
async def in_memory(service: TinyService) -> AsyncIterator[Transport]:
    yield FakeTransport(service)


@asynccontextmanager
async def over_a_socket(service: TinyService) -> AsyncIterator[Transport]:
    async with serve(service) as url:
        transport = HttpxTransport(url)
        try:
            yield transport
        finally:
            await transport.aclose()


async def outcome(transport: Transport, service: TinyService, request: Request) -> Outcome:
    progress = Progress()
    try:
        with anyio.fail_after(5):
            response = await transport.send(request, progress)
    except TransportError as error:
        return Outcome(maybe_sent=error.maybe_sent, sent=progress.sent, acts=len(service.asked))
    return Outcome(response.status, response.body, sent=progress.sent, acts=len(service.asked))


async def hanging_outcome(transport: Transport, service: TinyService, request: Request) -> Outcome:
    progress = Progress()
    with anyio.fail_after(5), anyio.CancelScope() as scope:
        service.heard = scope.cancel
        await transport.send(request, progress)
    return Outcome(gave_up=scope.cancelled_caught, sent=progress.sent, acts=len(service.asked))


async def both(fault: f.Fault, request: Request) -> list[Outcome]:
    found = []
    for connect in (in_memory, over_a_socket):
        service = TinyService()
        service.faults.add(fault)
        async with connect(service) as transport:
            found.append(await (hanging_outcome if "hang" in fault.label else outcome)(transport, service, request))
    return found


ALL = [*FAULTS.values(), *ANSWERS, *LATE_LOSSES]


@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.label)
async def test_a_creation_that_meets_a_fault_ends_alike_in_memory_and_over_httpx(fault: f.Fault) -> None:
    memory, wire = await both(fault, CREATE)
    assert memory == wire


@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.label)
async def test_a_list_that_meets_a_fault_ends_alike_in_memory_and_over_httpx(fault: f.Fault) -> None:
    memory, wire = await both(fault, LIST)
    # Without a body httpx cannot prove that anything has left: it may have, says the seam, which means the same.
    assert wire.sent in {True, None}
    assert memory == attrs.evolve(wire, sent=True)


async def test_a_refused_connection_ends_alike_in_memory_and_where_nobody_listens() -> None:
    service = TinyService()
    service.faults.add(f.refuse())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    nowhere = HttpxTransport(f"http://127.0.0.1:{port}")
    for request in (CREATE, LIST):
        memory = await outcome(FakeTransport(service), service, request)
        assert memory == await outcome(nowhere, TinyService(), request) == Outcome(maybe_sent=False, sent=False)
    await nowhere.aclose()


async def test_over_a_socket_a_refusal_after_the_fact_is_a_reset_which_may_have_been_sent() -> None:
    service = TinyService()
    service.faults.add(f.refuse())
    async with over_a_socket(service) as transport:
        assert await outcome(transport, service, CREATE) == Outcome(maybe_sent=True, sent=True)


def test_every_kind_of_fault_is_compared() -> None:
    assert {*FAULTS, "refuse"} == set(get_args(Kind))
