"""Rule E4: the limit of concurrent requests, over all transports."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import attrs
import pytest
from support.fake import FIELDS, creation, creation_request, get, post, refusal, small_world
from support.fake_transports import LEVELS, Connect, in_memory

from outreach_async.errors import TransportError
from outreach_async.fake import FakeService
from outreach_async.fake import faults as f
from outreach_async.fake._fault_plan import Exchange
from outreach_async.transport._wire import Progress, Request, Response, Transport

over_every_level = pytest.mark.parametrize("connect", LEVELS)


class CountingService:
    """Forwards requests to a fake and lets tests wait for them."""

    def __init__(self, fake: FakeService) -> None:
        self.fake = fake
        self.passed = 0
        self._waiting: list[tuple[int, anyio.Event]] = []

    def exchange(self, request: Request, /) -> Exchange:
        exchange = self.fake.exchange(request)
        self.passed += 1
        for number, event in self._waiting:
            if number <= self.passed:
                event.set()
        return exchange

    async def after(self, number: int) -> None:
        """Wait until `number` requests have passed."""
        event = anyio.Event()
        self._waiting.append((number, event))
        if self.passed < number:
            await event.wait()


async def send(transport: Transport, request: Request) -> Response:
    return await transport.send(request, Progress())


async def until_room(transport: Transport, request: Request) -> Response:
    """Send until the request is accepted: a server may notice only later that a client has disconnected."""
    with anyio.fail_after(60):
        while (response := await send(transport, request)).status == 429:
            await anyio.lowlevel.checkpoint()
    return response


@over_every_level
async def test_e4_one_exchange_above_max_in_flight_is_429_until_one_ends(connect: Connect) -> None:
    turnstile = CountingService(small_world(max_in_flight=2))
    turnstile.fake.faults.script("create_contact", *[f.commit_then(f.hang())] * 2)
    async with connect(turnstile) as transport, anyio.create_task_group() as group:
        for number in range(2):
            group.start_soon(send, transport, creation_request(f"{number}@b.co"))
        await turnstile.after(2)
        before = turnstile.fake.dump()
        response = await send(transport, creation_request("2@b.co"))

        error = refusal(response, 429, "too_many_in_flight")
        assert (response.headers["retry-after"], error["field"]) == ("1", None)
        assert response.headers["x-fake-hint"] == "decided by Behaviour.max_in_flight"
        assert turnstile.fake.dump() == before
        group.cancel_scope.cancel()
    async with connect(turnstile) as transport:
        assert (await until_room(transport, creation_request("2@b.co"))).status == 201


ENDINGS = [
    f.ok,
    f.status(503),
    f.commit_then(f.status(503)),
    f.latency(0.001),
    f.slow_drip(bytes=1000, every=0.001),
    f.drift("status", "new"),
    f.wrong_length(3),
    f.commit_then(f.reset()),
    f.commit_then(f.close()),
    f.truncate(3),
    f.garbage(),
]


@over_every_level
@pytest.mark.parametrize("fault", ENDINGS, ids=lambda fault: fault.label)
async def test_e4_an_exchange_makes_room_however_it_ends(connect: Connect, fault: f.Fault) -> None:
    fake = small_world(max_in_flight=1)
    async with connect(fake) as transport:
        for number in range(3):
            fake.faults.script("create_contact", fault)
            try:
                response = await send(transport, creation_request(f"{number}@b.co"))
            except TransportError:
                continue
            assert response.status != 429


@over_every_level
async def test_e4_a_request_kept_from_the_service_by_a_fault_takes_no_place(connect: Connect) -> None:
    turnstile = CountingService(small_world(max_in_flight=1))
    turnstile.fake.faults.script("create_contact", f.hang())
    async with connect(turnstile) as transport, anyio.create_task_group() as group:
        group.start_soon(send, transport, creation_request("1@b.co"))
        await turnstile.after(1)
        assert (await send(transport, creation_request("2@b.co"))).status == 201
        group.cancel_scope.cancel()


async def test_e4_exchanges_share_the_limit_of_their_service_over_all_transports() -> None:
    turnstile = CountingService(small_world(max_in_flight=1))
    turnstile.fake.faults.script("create_contact", f.commit_then(f.hang()))
    async with in_memory(turnstile) as one, LEVELS[-1](turnstile) as other, anyio.create_task_group() as group:
        group.start_soon(send, one, creation_request("1@b.co"))
        await turnstile.after(1)
        refusal(await send(other, creation_request("2@b.co")), 429, "too_many_in_flight")
        refusal(post(turnstile.fake, creation("3@b.co")), 429, "too_many_in_flight")
        group.cancel_scope.cancel()


def test_e4_consecutive_requests_never_exceed_max_in_flight() -> None:
    fake = small_world(max_in_flight=1)

    assert [post(fake, creation(f"{n}@b.co")).status for n in range(3)] == [201] * 3
    assert [get(fake, path).status for path in ("/nothing", FIELDS)] == [404, 200]


def test_e4_an_exchange_may_end_twice_and_reset_forgets_those_in_flight() -> None:
    fake = small_world(max_in_flight=1)
    first = fake.exchange(Request("GET", FIELDS))
    refusal(get(fake, FIELDS), 429, "too_many_in_flight")
    first.ended()
    second = fake.exchange(Request("GET", FIELDS))
    first.ended()

    refusal(get(fake, FIELDS), 429, "too_many_in_flight")
    fake.reset()
    assert get(fake, FIELDS).status == 404
    second.ended()


def _raises(_: str) -> str:
    raise ZeroDivisionError


def test_e4_a_behaviour_function_that_raises_releases_its_place() -> None:
    fake = small_world(max_in_flight=1)
    fake.behaviour = attrs.evolve(fake.behaviour, email_key=_raises)
    with pytest.raises(ZeroDivisionError):
        post(fake, creation())

    assert get(fake, FIELDS).status == 200
