"""Faults on real sockets: the right error or response, the right retries, correct labels, and a client that stays usable."""

from __future__ import annotations

import gc
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, Final, Literal, TypeAlias

import anyio
import anyio.lowlevel
import anyio.to_thread
import attrs
import pytest
import trustme
from support.certificates import certificates
from support.flaky_server import ADDED, SKIPPED
from support.listener import OK, Behaviour, Listener, Peer, answer_once, drip, hang, hang_after, in_order, serve, tunnel
from support.time import MOVABLE, jump
from support.transports import (
    ALL,
    EVERY_LOOP,
    GET,
    MAKERS,
    OWN,
    POST,
    SOCKETS,
    Loops,
    Make,
    connected,
    fail,
    over,
    pairs,
    runs_on,
)

from outreach_async import (
    BulkSuspended,
    NewContact,
    Outcome,
    OutreachClient,
    Progress,
    Request,
    RetryPolicy,
    Transport,
    TransportError,
)

CHUNKED: Final = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
ENCODED: Final = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 9\r\n\r\n"
HALF: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal"
LONG: Final = b"HTTP/1.1 200 OK\r\nx-long: " + b"l" * 300_000
FORBIDDEN: Final = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n"
NOWHERE: Final = "nowhere." * 40 + "invalid"
"""A host name that fails to resolve at once, even without a network, because it is too long for DNS."""

PAGE: Final = b'{"status":"ok","headers":[],"data":[],"total_found":0,"current_page":1,"total_pages":1}'


Verdict: TypeAlias = frozenset[bool] | Literal["proved"]
"""The allowed `maybe_sent` of the errors of a fault."""

ANSWERED: Final[Verdict] = frozenset()  # there is no error
UNSENT: Final[Verdict] = frozenset({False})  # the library's own error classes show that there was no connection
PROVED: Final[Verdict] = (
    "proved"  # False for sockets, and for a body from any transport made from a URL; otherwise True (conservative)
)
CAREFUL: Final[Verdict] = frozenset({True})  # conservative: nothing arrived, but the client cannot determine this
RACE: Final[Verdict] = frozenset({False, True})  # depending on timing; False only if nothing arrived
SENT: Final[Verdict] = frozenset({True})  # the service has read the request


@attrs.frozen
class Fault:
    """A fault of the first connection. Later connections work."""

    verdict: Verdict
    meets: Behaviour = attrs.field(kw_only=True, default=hang)
    clock: bool = attrs.field(kw_only=True, default=False)
    session: Verdict | None = attrs.field(kw_only=True, default=None)
    absent: bool = attrs.field(kw_only=True, default=False)
    idle: str = attrs.field(kw_only=True, default="")
    then: Behaviour | None = attrs.field(kw_only=True)
    url: str = attrs.field(kw_only=True, default="http://localhost:{port}")
    proxy: str | None = attrs.field(kw_only=True, default=None)
    forgotten: tuple[str, ...] = attrs.field(kw_only=True, default=())

    def says(self, name: str, method: str) -> frozenset[bool]:
        """Return the allowed values of `maybe_sent` for a transport and a method; empty if no error is allowed."""
        verdict = self.session if self.session and name == "aiohttp_session" else self.verdict
        if isinstance(verdict, str):  # PROVED
            return frozenset({name not in SOCKETS and (method == "GET" or name not in OWN)})
        return verdict


def service(peer: Peer) -> None:
    """Respond to list requests and creations without faults. A repeated creation is skipped as a duplicate."""
    while True:
        peer.send(answer_to(peer, peer.request()))


def answer_to(peer: Peer, request: bytes) -> bytes:
    body = (ADDED if peer.seen(request) == 1 else SKIPPED) if request.startswith(b"POST ") else PAGE
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def spell_out(peer: Peer) -> None:
    """Respond to every request, and send each response byte by byte."""
    while True:
        for byte in answer_to(peer, peer.request()):
            peer.send(bytes([byte]))


def answer_one(peer: Peer) -> None:
    peer.send(answer_to(peer, peer.request()))


def flood(peer: Peer) -> None:
    """Send an endless response to one request, as fast as the client reads."""
    peer.request()
    peer.send(CHUNKED)
    while True:
        peer.send(b"400\r\n" + b"x" * 1024 + b"\r\n")


@cache
def _server(kind: str) -> ssl.SSLContext:
    authority = certificates().authority
    stranger = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf = {
        "right": lambda: authority.issue_cert("localhost"),
        "another host's": lambda: authority.issue_cert("stranger.example"),
        "expired": lambda: authority.issue_cert("localhost", not_after=datetime(2021, 1, 1, tzinfo=UTC)),
        "an unknown authority's": lambda: stranger.issue_cert("localhost"),
        "self-signed": lambda: trustme.LeafCert(stranger.private_key_pem.bytes(), stranger.cert_pem.bytes(), []),
    }[kind]()
    leaf.configure_cert(context)
    return context


def _late(kind: str, behave: Behaviour) -> Behaviour:
    """Start TLS with a certificate that is created on first use, so that collecting the tests creates no certificates."""
    return in_order(lambda peer: peer.start_tls(_server(kind)), behave)


def _exchange(verdict: Verdict, meets: Behaviour, *, clock: bool = False) -> Fault:
    return Fault(verdict, meets=meets, clock=clock, then=service)


def _handshake(verdict: Verdict, meets: Behaviour, *, clock: bool = False, forgotten: tuple[str, ...] = ()) -> Fault:
    then, url = _late("right", service), "https://localhost:{port}"
    return Fault(verdict, meets=meets, clock=clock, then=then, url=url, forgotten=forgotten)


def _certificate(kind: str) -> Fault:
    return _handshake(UNSENT, _late(kind, service))


def _proxied(verdict: Verdict, meets: Behaviour, *, clock: bool = False) -> Fault:
    then = tunnel(_late("right", service))
    return Fault(verdict, meets=meets, clock=clock, then=then, url="https://localhost:1", proxy=_PROXY)


def _kept(meets: Behaviour, idle: str, session: Verdict | None = None) -> Fault:
    return Fault(ANSWERED, meets=meets, idle=idle, session=session, then=service)


_PROXY: Final = "http://user:key_secret@localhost:{port}"
_HTTPX_FORGETS: Final = tuple(f"{family}_client-{loop}" for family in ("httpx", "httpx2") for loop in EVERY_LOOP)
"""An httpx client does not close a socket whose TLS handshake is cancelled. The transports of this library close theirs."""
_UVLOOP_FORGETS: Final = ("aiohttp_session-uvloop",)
"""uvloop closes the descriptor of a socket that it receives, but not the socket object. Sessions of this library close both."""
_S, _U, _P = SENT, UNSENT, PROVED

FAULTS: Final[dict[str, Fault]] = {
    # no connection
    "refused": Fault(_U, absent=True, meets=service, then=service),
    "unknown host": Fault(_U, then=None, url=f"http://{NOWHERE}"),
    # TLS
    "another host's certificate": _certificate("another host's"),
    "an expired certificate": _certificate("expired"),
    "a self-signed certificate": _certificate("self-signed"),
    "an unknown authority's certificate": _certificate("an unknown authority's"),
    "plain HTTP behind https": _handshake(_U, in_order(Peer.read, b"HTTP/1.1 400 Bad Request\r\n\r\n")),
    "closed within the handshake": _handshake(_U, Peer.read),
    "reset within the handshake": _handshake(_U, Peer.reset, forgotten=_UVLOOP_FORGETS),
    "a handshake without answer": _handshake(_P, Peer.outlast, clock=True, forgotten=_HTTPX_FORGETS),
    # a proxy on the way
    "proxy: refused": Fault(_U, absent=True, meets=service, then=service, url="http://service.example", proxy=_PROXY),
    "proxy: CONNECT forbidden": _proxied(_U, in_order(Peer.connect, FORBIDDEN)),
    "proxy: CONNECT then closed": _proxied(_P, Peer.connect),
    "proxy: CONNECT then reset": _proxied(_P, in_order(Peer.connect, Peer.reset)),
    "proxy: CONNECT without answer": _proxied(_P, in_order(Peer.connect, Peer.outlast), clock=True),
    "proxy: connected to what is no TLS": _proxied(_U, in_order(Peer.connect, b"HTTP/1.1 200 Connected\r\n\r\nno TLS")),
    "proxy: reset after the request": Fault(
        _S, meets=in_order(Peer.request, Peer.reset), then=service, url="http://service.example", proxy=_PROXY
    ),
    # a connection that ended while idle
    "closed while idle": _kept(answer_one, "running"),
    "reset while idle": _kept(in_order(answer_one, Peer.reset), "running"),
    "closed while the loop was blocked": _kept(answer_one, "blocked", session=CAREFUL),
    "reset while the loop was blocked": _kept(in_order(answer_one, Peer.reset), "blocked", session=CAREFUL),
    # the exchange
    "reset before reading": _exchange(RACE, Peer.reset),
    "reset after the request": _exchange(_S, in_order(Peer.request, Peer.reset)),
    "closed before the answer": _exchange(_S, Peer.request),
    "closed within the head": _exchange(_S, answer_once(b"HTTP/1.1 200 OK\r\ncontent-le")),
    "closed within the body": _exchange(_S, answer_once(HALF)),
    "reset within the body": _exchange(_S, in_order(Peer.request, HALF, Peer.reset)),
    "no answer": _exchange(_S, hang, clock=True),
    "no more after half the head": _exchange(_S, hang_after(b"HTTP/1.1 200 OK\r\ncontent-le"), clock=True),
    "no more after half the body": _exchange(_S, hang_after(HALF), clock=True),
    "drips byte by byte": _exchange(ANSWERED, spell_out),
    "drips without end": _exchange(_S, drip(b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n", b"drop"), clock=True),
    "not HTTP": _exchange(_S, answer_once(b"SSH-2.0-OpenSSH_9.6\r\n")),
    "a chunk without a size": _exchange(_S, answer_once(CHUNKED + b"2\r\nok\r\nno size\r\n")),
    "no last chunk": _exchange(_S, answer_once(CHUNKED + b"2\r\nok\r\n")),
    "another encoding than stated": _exchange(_S, in_order(Peer.request, ENCODED + b"plain ok!", service)),
    "an encoding that ends early": _exchange(_S, in_order(Peer.request, ENCODED + gzip.compress(b"ok", mtime=0)[:9], service)),
    "an encoding not asked for": _exchange(_S, in_order(Peer.request, ENCODED.replace(b"gzip", b"br") + b"plain ok!", service)),
    "a header too long": _exchange(_S, hang_after(LONG)),
    "a stated length too large": _exchange(_S, hang_after(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\nxxx")),
    "a body without end": _exchange(_S, flood),
}


@asynccontextmanager
async def scene(make: Make, fault: Fault) -> AsyncIterator[tuple[Transport, Listener]]:
    """Yield a transport whose next request meets the fault, and its listener. On exit, no connection may be left open."""
    with Listener(fault.meets, fault.then or hang, listening=not fault.absent) as listener:
        url, proxy = (part and part.format(port=listener.port) for part in (fault.url, fault.proxy))
        transport = make(url, tls=certificates().client, proxy=proxy, max_answer=100_000)
        if fault.idle:
            await _end_while_idle(transport, listener, blocked=fault.idle == "blocked")
        yield transport, listener
        await transport.aclose()
        await anyio.to_thread.run_sync(listener.wait_idle)


async def _end_while_idle(transport: Transport, listener: Listener, *, blocked: bool) -> None:
    await transport.send(Request("GET", "/warm-up"), Progress())
    if blocked:
        listener.wait_idle()
        return
    await anyio.to_thread.run_sync(listener.wait_idle)
    for _ in range(5):  # the event loop needs several iterations to detect the end of the connection
        await anyio.lowlevel.checkpoint()


def arrived(listener: Listener, method: str) -> bool:
    """Return whether a part of a request with this method has arrived, apart from the warm-up request."""
    return f"{method} ".encode() in listener.received.replace(b"GET /warm-up", b"")


TIMEOUT: Final = 30.0
"""Timeout of an attempt in seconds: enough on any machine. Tests of faults that only a timeout ends advance the clock."""


Cell = tuple[str, str, str]  # a fault, a transport and an event loop


def matrix(cells: Iterable[Cell], *, loops: Loops = EVERY_LOOP) -> pytest.MarkDecorator:
    known = [
        pytest.param(fault, name, loops[loop], id=f"{fault}-{name}-{loop}")
        for fault, name, loop in cells
        if f"{name}-{loop}" not in FAULTS[fault].forgotten and (name not in SOCKETS or FAULTS[fault].proxy is None)
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
    client: OutreachClient
    fault: Fault
    says: frozenset[bool]
    listener: Listener

    @property
    def creations(self) -> list[bytes]:
        return [request for request in self.listener.requests if request.startswith(b"POST ")]


async def create(stage: Stage) -> None:
    """Check that a creation is retried and that its label is exactly what the errors prove."""
    created = await stage.client.contacts.create(NewContact("ann@company.example"))
    assert created.attempts == 1 + bool(stage.says)
    assert created.status is (Outcome.SKIPPED if len(stage.creations) > 1 else Outcome.ADDED)
    assert created.possible == {Outcome.ADDED, created.status}  # includes the true outcome: nobody else creates contacts here


async def read(stage: Stage) -> None:
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
            for loop in MOVABLE if name in {"httpx", "aiohttp", *SOCKETS} else ("asyncio",):
                if runs_on(name, loop):
                    yield fault, name, loop


@matrix(ended_by_the_clock(), loops=MOVABLE)
async def test_after_a_timeout_labels_are_true_and_the_client_stays_usable(name: str, fault: str) -> None:
    for check in (create, read, ask):  # sequentially, because a jump of the clock affects all of them
        await through_the_client(name, FAULTS[fault], check)


@over(*ALL)
async def test_a_failed_get_is_not_sent_again(make: Make) -> None:
    async with connected(make, in_order(Peer.request, OK, Peer.request), serve()) as (transport, listener):
        await transport.send(GET, Progress())
        error, _ = await fail(transport, GET)
        assert error.maybe_sent
        assert len(listener.requests) == 2


class Fenced(Progress):
    """The progress of an attempt that may no longer be sent, as of a run that was taken over."""

    __slots__ = ("_sent",)

    @property
    def sent(self) -> bool | None:
        return self._sent

    @sent.setter
    def sent(self, value: bool | None) -> None:
        if value:
            raise TransportError("too late", maybe_sent=False)
        self._sent = value


@over(*OWN)
async def test_a_request_is_not_sent_if_its_progress_refuses(make: Make) -> None:
    async with connected(make, serve()) as (transport, listener):
        for _ in range(2):  # on a new connection, and on an open one
            with pytest.raises(TransportError) as caught:
                await transport.send(POST, Fenced())
            assert not caught.value.maybe_sent
            assert (await transport.send(POST, Progress())).status == 200
        assert len(listener.requests) == 2


@pytest.mark.thorough
@pytest.mark.covers
@over("httpx", "aiohttp", *SOCKETS)
async def test_a_refused_connection_proves_that_nothing_was_sent(make: Make) -> None:
    dead = OutreachClient(
        transport=make("http://127.0.0.1:1"), owner_key="key_1", workspace="space_1", retry=RetryPolicy(attempts=2)
    )
    async with dead:
        with pytest.raises(TransportError) as caught:
            await dead.contacts.create(email="ann@company.example")
        assert (caught.value.maybe_sent, caught.value.maybe_applied, caught.value.attempts) == (False, False, 2)
        with pytest.raises(BulkSuspended, match="service unreachable") as ended:
            await dead.contacts.create_many([{"email": "ann@company.example"}])
        assert ended.value.report is not None
        assert ended.value.report["outcomes"]["not_applied"] == 1
