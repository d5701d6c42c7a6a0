"""Random faults, cancellations at random points, and bursts of cancellations."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread
import attrs
from anyio.lowlevel import checkpoint
from support.certificates import certificates
from support.flaky_server import PAGES, FlakyBehaviour, arrived, deliveries, mailbox_pages, open_sockets
from support.listener import Listener
from support.transports import Make

from outreach_async import (
    ContactOutcome,
    NewContact,
    Outcome,
    OutreachClient,
    OutreachError,
    Progress,
    Request,
    RetryPolicy,
    Transport,
)
from outreach_async.errors import TransportError

POOL: Final = 4
WORKERS: Final = 8
BURST: Final = 12
ROWS: Final = 8
SIDE_BY_SIDE: Final = 5
SLOTS: Final = 2
ATTEMPTS: Final = 2
_PATIENCE: Final = 60.0
_PAUSE: Final = 1.0
"""Seconds after which a bulk run is cancelled: after many faults, a run pauses for longer than a test lasts."""


@attrs.define
class Tally:
    """The results of a run."""

    calls: int = 0
    denied: int = 0
    careful: int = 0
    faults: dict[str, int] = attrs.field(factory=dict)

    def blame(self, kind: str, times: int = 1) -> None:
        """Count violations of a kind."""
        if times:
            self.faults[kind] = self.faults.get(kind, 0) + times

    def judge(self, claims: dict[bytes, bool], listener: Listener, attempts: int) -> None:
        """Compare claims with the requests that arrived. A claim states, by id, whether a call may have been sent."""
        reached = arrived(listener)
        self.calls += len(claims)
        self.denied += sum(not claim for claim in claims.values())
        self.careful += sum(claim and call not in reached for call, claim in claims.items())
        self.blame("lies", sum(not claim and call in reached for call, claim in claims.items()))
        self.blame("arrived too often", sum(times > attempts for times in deliveries(listener).values()))


@asynccontextmanager
async def _service(
    tally: Tally, make: Make, seed: int, *, tls: bool = False
) -> AsyncIterator[tuple[Transport, Listener, FlakyBehaviour]]:
    """Yield a transport to a flaky service. After the block, without faults, the transport must work and close all sockets."""
    keys = certificates()
    weather = FlakyBehaviour(seed, await mailbox_pages())
    before = open_sockets()
    with Listener(weather, tls=keys.server if tls else None) as listener:
        listening = open_sockets()
        transport = make(listener.url, tls=keys.client, max_in_flight=POOL)
        yield transport, listener, weather
        weather.calm = True
        await _probe(tally, transport)
        await _idle(tally, listener, POOL)
        await transport.aclose()
        await _idle(tally, listener, 0)
        tally.blame("sockets left", await _settle(open_sockets, listening) - listening)
    tally.blame("sockets left", max(0, await _settle(open_sockets, before) - before))


async def _probe(tally: Tally, transport: Transport) -> None:
    """Use the transport sequentially, then with more concurrent requests than it has connections."""
    request = Request("GET", "/probe")
    try:
        with anyio.fail_after(_PATIENCE):
            await _drain(transport)
            for _ in range(8):
                await transport.send(request, Progress())
            async with anyio.create_task_group() as group:
                for _ in range(BURST):
                    group.start_soon(transport.send, request, Progress())
    except Exception:  # noqa: BLE001 - after any error, the transport is unusable
        tally.blame("unusable")


async def _drain(transport: Transport) -> None:
    """Use up connections that the service closed unnoticed."""
    for _ in range(POOL):
        try:
            await transport.send(Request("GET", "/probe"), Progress())
        except TransportError:
            await checkpoint()


async def _idle(tally: Tally, listener: Listener, most: int) -> None:
    try:
        await anyio.to_thread.run_sync(listener.wait_idle, most)
    except AssertionError:
        tally.blame("connections left", listener.connections - most)


async def _settle(count: Callable[[], int], expected: int) -> int:
    """Wait until the count falls to the expected number, and return the last count."""
    with anyio.move_on_after(_PATIENCE):
        while count() > expected:  # noqa: ASYNC110 - no event marks the end of a socket or a task
            await anyio.sleep(0.001)
    return count()


async def storm(make: Make, *, calls: int, seed: int) -> Tally:
    """Send requests under random faults and cancellations."""
    tally, claims = Tally(), dict[bytes, bool]()
    chance = random.Random(seed)  # noqa: S311 - delays, not secrets
    numbers = iter(range(calls))

    async def work(transport: Transport) -> None:
        for number in numbers:
            call = b"id-%d" % number
            method, body = ("POST", b'{"n": "%b"}' % call) if chance.random() < 0.7 else ("GET", b"")
            request = Request(method, f"/{call.decode()}", {}, body)
            progress = Progress()
            with anyio.move_on_after(chance.uniform(0, 0.008) if chance.random() < 0.35 else 0.05):
                try:
                    await transport.send(request, progress)
                except Exception as error:  # noqa: BLE001 - other classes are counted as violations
                    agrees = isinstance(error, TransportError) and error.maybe_sent is (progress.sent is not False)
                    tally.blame("unexpected errors", not agrees)
            claims[call] = progress.sent is not False

    async with _service(tally, make, seed) as (transport, listener, _), anyio.create_task_group() as group:
        for _ in range(WORKERS):
            group.start_soon(work, transport)
    tally.judge(claims, listener, 1)
    return tally


async def bursts(make: Make, *, count: int, seed: int, tls: bool) -> Tally:
    """Cancel bursts of twelve requests, together or one by one, in a pool of four connections. Probe the pool at intervals."""
    tally, claims = Tally(), dict[bytes, bool]()
    chance = random.Random(seed)  # noqa: S311 - delays, not secrets

    async def send(transport: Transport, call: bytes, delay: float) -> None:
        progress = Progress()
        try:
            with anyio.move_on_after(delay):
                await transport.send(Request("POST", f"/{call.decode()}", {}, b"{}"), progress)
        finally:
            claims[call] = progress.sent is not False

    async with _service(tally, make, seed, tls=tls) as (transport, listener, weather):
        weather.calm = True
        for burst in range(count):
            together = chance.random() < 0.5
            with anyio.move_on_after(chance.uniform(0, 0.01) if together else _PATIENCE):
                async with anyio.create_task_group() as group:
                    for number in range(BURST):
                        delay = _PATIENCE if together else chance.uniform(0, 0.008)
                        group.start_soon(send, transport, b"id-%d-%d" % (burst, number), delay)
            if burst % 20 == 0:
                await _probe(tally, transport)
    tally.judge(claims, listener, 1)
    return tally


class _Struck:
    """A coroutine that calls `strike` at its n-th suspension: the same point of the code, however fast the machine is."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], nth: int, strike: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._left = nth
        self._strike = strike

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self._coroutine.__await__()
        resume = partial(steps.send, None)
        while True:
            try:
                trap = resume()
            except StopIteration:
                return
            self._left -= 1
            if self._left == 0:
                self._strike()
            try:
                resume = partial(steps.send, (yield trap))
            except BaseException as error:  # noqa: BLE001 - thrown into the coroutine, cancellation included
                resume = partial(steps.throw, error)


class Points:
    """Calls of one client, each of which is cancelled or times out at a random point."""

    def __init__(self, client: OutreachClient, seed: int) -> None:
        self.claims: dict[bytes, bool] = {}
        self._client = client
        self._chance = random.Random(seed)  # noqa: S311 - points, not secrets

    async def strike(self, number: int) -> None:
        """Start a call, and cancel it or let it time out at a random point."""
        chance = self._chance
        method = chance.choice((self._create, self._list, self._bulk))
        call = partial(method, number)
        nth = int(1000 ** chance.random())  # early points find more violations
        match chance.randrange(5):
            case 0 | 1:
                with anyio.CancelScope() as scope:
                    await _Struck(call(), 1 + nth // 10, scope.cancel)
            case 2:
                await _for_turns(call, nth)
            case 3:
                with anyio.move_on_after(chance.uniform(0, 0.01)):
                    await call()
            case _:
                await call(**{chance.choice(("timeout", "deadline")): chance.uniform(0.0001, 0.01)})

    async def _create(self, number: int, **options: Any) -> None:
        call = f"id-{number}"
        self.claims[call.encode()] = True  # holds if the call is cancelled
        try:
            created = await self._client.contacts.create(NewContact(f"{call}@company.example"), **options)
        except OutreachError as error:
            self.claims[call.encode()] = error.maybe_sent or error.maybe_applied
        else:
            assert Outcome.ADDED in created.possible, created

    async def _list(self, number: int, **options: Any) -> None:
        del number
        try:
            found = [mailbox async for mailbox in self._client.mailboxes.list(display=1, **options)]
        except OutreachError:
            return
        assert len(found) == PAGES

    async def _bulk(self, number: int, **options: Any) -> None:
        rows = [NewContact(f"id-{number}-{row}@company.example") for row in range(ROWS)]
        leave_after = self._chance.randrange(1, ROWS * 2)  # beyond the last row: the run is not left early
        run = self._client.contacts.create_many(rows, concurrency=POOL, **options)
        with suppress(OutreachError), anyio.move_on_after(_PAUSE):
            async with run as outcomes:
                async for outcome in outcomes:
                    self._take(number, outcome)
                    leave_after -= 1
                    if not leave_after:
                        break

    def _take(self, number: int, outcome: ContactOutcome) -> None:
        denies = outcome.possible <= {Outcome.NOT_APPLIED, Outcome.REJECTED}
        self.claims[b"id-%d-%d" % (number, outcome.index)] = not denies
        assert denies or Outcome.ADDED in outcome.possible, outcome


async def _for_turns(call: Callable[[], Awaitable[None]], turns: int) -> None:
    """Cancel the call after a number of event loop turns."""
    async with anyio.create_task_group() as group:

        async def count() -> None:
            for _ in range(turns):
                await checkpoint()
            group.cancel_scope.cancel()

        group.start_soon(count)
        await call()
        group.cancel_scope.cancel()


async def points(make: Make, *, count: int, seed: int) -> Tally:
    """Cancel calls of a whole client at random points, a few at a time. After each group, the client must still work."""
    tally = Tally()
    policy = RetryPolicy(attempts=ATTEMPTS, backoff=0.001, budget=10**9)
    async with _service(tally, make, seed) as (transport, listener, weather):
        options: dict[str, Any] = {"owner_key": "key_1", "workspace": "space_1", "retry": policy, "max_in_flight": SLOTS}
        client = OutreachClient(transport=transport, timeout=0.05, deadline=_PATIENCE, **options)
        run = Points(client, seed)
        tasks = len(anyio.get_running_tasks())
        for first in range(0, count, SIDE_BY_SIDE):
            if tally.faults:  # a client that lost a slot would hang at every further call
                break
            weather.calm = False
            async with anyio.create_task_group() as group:
                for number in range(first, min(first + SIDE_BY_SIDE, count)):
                    group.start_soon(run.strike, number)
            tally.blame("slots not free", client._engine.limiter.in_flight)
            tally.blame("tasks left", await _settle(lambda: len(anyio.get_running_tasks()), tasks) - tasks)
            weather.calm = True
            try:
                await client.mailboxes.list(timeout=_PATIENCE)
            except OutreachError:
                tally.blame("unusable")
    tally.judge(run.claims, listener, 2 * ATTEMPTS)  # failures that are not attributed to a row do not use up attempts
    return tally
