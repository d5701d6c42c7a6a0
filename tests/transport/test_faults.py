"""Faults on real sockets: the right error or response, the right retries, correct labels, and a client that stays usable."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread
import attrs
import pytest
from support.faults import FAULTS, Fault, arrived, scene
from support.listener import OK, Listener, Peer, serve
from support.time import MOVABLE, jump
from support.transports import ALL, EVERY_LOOP, GET, MAKERS, OWN, POST, Loops, Make, fail, over, pairs, runs_on

from outreach_async import NewContact, Outcome, OutreachClient, RetryPolicy, TransportError
from outreach_async.transport._wire import Progress

TIMEOUT: Final = 30.0
"""Timeout of an attempt in seconds: enough on any machine. Tests of faults that only a timeout ends advance the clock."""


Cell = tuple[str, str, str]
"""A fault, a transport and an event loop."""


def matrix(cells: Iterable[Cell], *, loops: Loops = EVERY_LOOP) -> pytest.MarkDecorator:
    """Run a test with each of these combinations."""
    known = [
        pytest.param(fault, name, loops[loop], id=f"{fault}-{name}-{loop}")
        for fault, name, loop in cells
        if f"{name}-{loop}" not in FAULTS[fault].forgotten and (name != "httptools" or FAULTS[fault].proxy is None)
    ]
    return pytest.mark.parametrize(("fault", "name", "anyio_backend"), known, indirect=["anyio_backend"])


@pytest.fixture(scope="module", autouse=True)
def nothing_left_to_the_garbage_collector() -> Iterator[None]:
    """Collect garbage after the tests: unclosed resources warn when they are collected, and warnings are errors."""
    yield
    gc.collect()


@matrix((fault, *place) for fault in FAULTS if not FAULTS[fault].clock for place in pairs(*ALL))
async def test_a_fault_is_a_response_or_an_error_that_never_denies_what_arrived(fault: str, name: str) -> None:
    for request in (POST, GET):
        says = FAULTS[fault].says(name, request.method)
        async with scene(MAKERS[name], FAULTS[fault]) as (transport, listener):
            if not says:
                assert (await transport.send(request, Progress())).status == 200
                continue
            error, progress = await fail(transport, request)
            await anyio.to_thread.run_sync(listener.wait_idle)
            assert type(error) is TransportError
            assert error.maybe_sent is (progress.sent is not False)
            assert error.maybe_sent or not arrived(listener, request.method)
            assert error.maybe_sent in says
            assert str(error).startswith("no connection to " if not error.maybe_sent else ("no response from ", "the response"))
            assert "\n" not in str(error)
            assert "key_secret" not in f"{error!r} {error.__cause__!r} {error.__context__!r}"
            assert len(listener.peers) <= 1 + bool(FAULTS[fault].idle), "it was sent again"


@attrs.frozen
class Stage:
    """The environment of a call."""

    client: OutreachClient
    fault: Fault
    says: frozenset[bool]
    listener: Listener

    @property
    def creations(self) -> list[bytes]:
        """Creations that the service has received."""
        return [request for request in self.listener.requests if request.startswith(b"POST ")]


async def create(stage: Stage) -> None:
    """Check that a creation is retried and that its label is exactly what the errors prove."""
    created = await stage.client.contacts.create(NewContact("ann@company.example"))
    assert created.attempts == 1 + bool(stage.says)
    assert created.status is (Outcome.SKIPPED if len(stage.creations) > 1 else Outcome.ADDED)
    assert created.possible == {Outcome.ADDED, created.status}  # includes the true outcome: nobody else creates contacts here


async def read(stage: Stage) -> None:
    """Check that a read is retried."""
    assert (await stage.client.mailboxes.list()).data == []
    assert len(stage.listener.peers) <= 2


async def ask(stage: Stage) -> None:
    """Check that a raw request is retried only if no byte was sent."""
    call = partial(stage.client.request, "POST", "/contacts", body=POST.body)
    if stage.says == {True}:
        with pytest.raises(TransportError) as caught:
            await call()
        assert (caught.value.attempts, caught.value.maybe_sent, caught.value.maybe_applied) == (1, True, True)
    elif True not in stage.says:
        assert (await call()).status == 200
    else:
        with suppress(TransportError):
            await call()
    assert len(stage.creations) <= 1


async def end_by_the_clock(listener: Listener) -> None:
    """Advance the clock past the timeout of an exchange as soon as nothing else can end the exchange."""
    await anyio.to_thread.run_sync(listener.wait_stuck)
    jump(TIMEOUT)


async def through_the_client(name: str, fault: Fault, check: Callable[[Stage], Awaitable[None]]) -> None:
    """Check one call, and then that the client stays usable, every slot is free and at most one idle connection is open."""
    async with scene(MAKERS[name], fault) as (transport, listener):

        def listen_before_the_repeat() -> float:
            if not listener.listening:
                listener.listen()
            return 0.0

        policy = RetryPolicy(attempts=4, backoff=0.001, jitter=listen_before_the_repeat)
        options: dict[str, Any] = {"owner_key": "key_secret", "workspace": "space_1", "retry": policy}
        async with OutreachClient(transport=transport, timeout=TIMEOUT, **options) as client:
            async with anyio.create_task_group() as group:
                if fault.clock:
                    group.start_soon(end_by_the_clock, listener)
                await check(Stage(client, fault, fault.says(name, "POST"), listener))
            assert (await client.mailboxes.list()).data == []
            assert client._engine.limiter.in_flight == 0
            await anyio.to_thread.run_sync(listener.wait_idle, 1)


def in_turn() -> Iterator[Cell]:
    """Yield each fault with each transport on one event loop: our own transports rotate through all loops, others use asyncio."""
    # The client's handling of an error does not depend on the event loop.
    for turn, fault in enumerate(fault for fault in FAULTS if FAULTS[fault].then and not FAULTS[fault].clock):
        for name in ALL:
            loops = [loop for _, loop in pairs(name, loops=EVERY_LOOP)] if name in OWN else ["asyncio"]
            yield fault, name, loops[(turn + ALL.index(name)) % len(loops)]


@pytest.mark.thorough
@matrix(in_turn())
async def test_after_a_retryable_fault_labels_are_true_and_the_client_stays_usable(name: str, fault: str) -> None:
    async with anyio.create_task_group() as group:
        for check in (create, read, ask):
            group.start_soon(through_the_client, name, FAULTS[fault], check)


def ended_by_the_clock() -> Iterator[Cell]:
    """Yield each fault that only a timeout ends: three backends run on every loop with a movable clock, the others on asyncio."""
    for fault in (fault for fault in FAULTS if FAULTS[fault].clock):
        for name in ALL:
            for loop in MOVABLE if name in {"httpx", "aiohttp", "httptools"} else ("asyncio",):
                if runs_on(name, loop):
                    yield fault, name, loop


@matrix(ended_by_the_clock(), loops=MOVABLE)
async def test_after_a_timeout_labels_are_true_and_the_client_stays_usable(name: str, fault: str) -> None:
    for check in (create, read, ask):  # sequentially, because a jump of the clock affects all of them
        await through_the_client(name, FAULTS[fault], check)


@over(*ALL)
async def test_a_failed_get_is_not_sent_again(make: Make) -> None:
    with Listener(serve_then_close, serve()) as listener:
        transport = make(listener.url)
        await transport.send(GET, Progress())
        error, _ = await fail(transport, GET)
        await transport.aclose()
        assert error.maybe_sent
        assert len(listener.requests) == 2


def serve_then_close(peer: Peer) -> None:
    """Respond to one request, and close the connection at the next."""
    peer.request()
    peer.send(OK)
    peer.request()


@over(*ALL)
async def test_a_connection_is_reused(make: Make) -> None:
    with Listener(serve()) as listener:
        transport = make(listener.url)
        for _ in range(5):
            await transport.send(POST, Progress())
        await transport.aclose()
        assert (len(listener.requests), len(listener.peers)) == (5, 1)
