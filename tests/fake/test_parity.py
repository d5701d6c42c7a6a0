"""A fault has the same effect in memory and through a real backend over a real socket."""

from __future__ import annotations

import socket
from typing import get_args

import anyio
import attrs
import pytest
from support.echo_service import CREATE, LIST, TinyService
from support.fake_transports import LEVELS, Connect, in_memory, over_a_socket

from outreach_async import HttpxTransport, Progress, Request, Transport
from outreach_async.errors import TransportError
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.fake import faults as f
from outreach_async.fake.faults import WireFaultKind


@attrs.frozen
class Outcome:
    """What a client can know, and what the service did."""

    status: int = 0
    body: bytes = b""
    maybe_sent: bool | None = None
    gave_up: bool = False
    sent: bool | None = None
    acts: int = 0


FAULTS: dict[WireFaultKind, f.Fault] = {
    "latency": f.latency(0.001),
    "hang": f.hang(),
    "reset": f.reset(),
    "close": f.close(),
    "truncate": f.truncate(20),
    "reset_mid_body": f.reset_mid_body(20),
    "bad_chunk": f.malformed("bad_chunk"),
    "no_final_chunk": f.malformed("no_final_chunk"),
    "garbage": f.malformed("garbage"),
    "long_header": f.malformed("long_header"),
    "wrong_encoding": f.malformed("wrong_encoding"),
    "wrong_length": f.wrong_length(7),
    "slow_drip": f.slow_drip(bytes=50, every=0.001),
}
ANSWERS = [f.ok, f.status(429, retry_after=2), f.status(503), f.status(200, body=""), f.drift("data.status", None)]
LOST_AFTER_THE_ACT = [f.commit_then(f.reset()), f.commit_then(f.close()), f.commit_then(f.hang()), f.commit_then(f.status(503))]


async def outcome(transport: Transport, service: TinyService, request: Request) -> Outcome:
    progress = Progress()
    try:
        with anyio.fail_after(60):
            response = await transport.send(request, progress)
    except TransportError as error:
        return Outcome(maybe_sent=error.maybe_sent, sent=progress.sent, acts=len(service.requests))
    return Outcome(response.status, response.body, sent=progress.sent, acts=len(service.requests))


async def hanging_outcome(transport: Transport, service: TinyService, request: Request) -> Outcome:
    progress = Progress()
    with anyio.fail_after(60), anyio.CancelScope() as scope:
        service.heard = scope.cancel
        await transport.send(request, progress)
    return Outcome(gave_up=scope.cancelled_caught, sent=progress.sent, acts=len(service.requests))


async def end_of(connect: Connect, fault: f.Fault, request: Request) -> Outcome:
    service = TinyService()
    service.faults.add(fault)
    async with connect(service) as transport:
        return await (hanging_outcome if "hang" in fault.label else outcome)(transport, service, request)


ALL = [*FAULTS.values(), *ANSWERS, *LOST_AFTER_THE_ACT]


@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.label)
async def test_a_creation_under_a_fault_ends_alike_in_memory_and_over_httpx(fault: f.Fault) -> None:
    assert await end_of(in_memory, fault, CREATE) == await end_of(over_a_socket, fault, CREATE)


@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.label)
async def test_a_list_under_a_fault_ends_alike_but_for_the_proof_of_sending(fault: f.Fault) -> None:
    found = await end_of(over_a_socket, fault, LIST)
    # Without a body, no backend can prove it: `None` counts as sent.
    assert found.sent in {True, None}
    assert attrs.evolve(found, sent=True) == await end_of(in_memory, fault, LIST)


async def test_a_refused_connection_ends_alike_in_memory_and_without_a_listener() -> None:
    service = TinyService()
    service.faults.add(f.refuse())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    nowhere = HttpxTransport(f"http://127.0.0.1:{port}")
    for request in (CREATE, LIST):
        memory = await outcome(FakeTransport(service), service, request)
        assert memory == await outcome(nowhere, TinyService(), request) == Outcome(maybe_sent=False, sent=False)
    await nowhere.aclose()


async def test_over_a_socket_a_refusal_is_a_reset_that_may_have_been_sent() -> None:
    service = TinyService()
    service.faults.add(f.refuse())
    async with over_a_socket(service) as transport:
        assert await outcome(transport, service, CREATE) == Outcome(maybe_sent=True, sent=True)


@pytest.mark.parametrize("connect", LEVELS)
async def test_a_date_follows_the_clock(connect: Connect) -> None:
    service = FakeService(clock="2026-01-31T23:59:59Z")
    service.advance(seconds=1.5)
    async with connect(service) as transport:
        response = await transport.send(LIST, Progress())
    assert response.headers["date"] == "Sun, 01 Feb 2026 00:00:00 GMT"


def test_every_kind_of_fault_is_compared() -> None:
    assert {*FAULTS, "refuse"} == set(get_args(WireFaultKind))
