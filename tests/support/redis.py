"""A stub with the Redis commands that `RedisRate` needs, and the real Redis server as a process."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from shutil import which
from typing import Final

import attrs
import pytest
from support.listener import PATIENCE, Behaviour, Peer

from outreach_async._engine.shared_rate import RateCoordinator, RateUsage

REDIS_SERVER: Final = which("redis-server")
needs_redis: Final = pytest.mark.skipif(REDIS_SERVER is None, reason="needs a redis-server: apt-get install redis-server")


def read_command(peer: Peer, taken: int) -> tuple[list[str], int]:
    """Return the next command after `taken` received bytes, and the number of bytes up to its end."""

    def line(begin: int) -> tuple[bytes, int]:
        while (end := peer.received.find(b"\r\n", begin)) < 0:
            peer.read()
        return peer.received[begin:end], end + 2

    header, at = line(taken)
    words = []
    for _ in range(int(header[1:])):
        size, at = line(at)
        while len(peer.received) < at + int(size[1:]) + 2:
            peer.read()
        words.append(peer.received[at : at + int(size[1:])].decode())
        at += int(size[1:]) + 2
    return words, at


@attrs.define
class StubServer:
    """Answers and records the commands of `RedisRate`. A coordinator takes the place of the script."""

    password: str | None = None
    commands: list[str] = attrs.field(factory=list)
    coordinator: RateCoordinator = attrs.field(factory=RateCoordinator)
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
        _sha, _keys, _key, client, *numbers, _limit, _clock = arguments
        seconds, wanted, completed, refused, retry_after = map(float, numbers)
        usage = RateUsage(
            client=client,
            seconds=seconds,
            wanted=int(wanted),
            completed=int(completed),
            refused=int(refused),
            retry_after=retry_after,
        )
        values = attrs.astuple(self.coordinator.step(usage, time.monotonic()))
        return b"*3\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(repr(each)), repr(each).encode()) for each in values)

    def behave(self, peer: Peer) -> None:
        """Answer the commands of one connection."""
        taken = 0
        while True:
            (name, *arguments), taken = read_command(peer, taken)
            self.commands.append(name)
            peer.send(self.reply(name, arguments))


def answer_with(reply: bytes) -> Behaviour:
    """Return a behaviour that answers every command with these bytes."""

    def behave(peer: Peer) -> None:
        taken = 0
        while True:
            _, taken = read_command(peer, taken)
            peer.send(reply)

    return behave


class RedisServer:
    """A `redis-server` process on a Unix socket, without persistence."""

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "redis.sock"
        self.url = f"unix://{self._socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        assert REDIS_SERVER is not None
        options = ("--port", "0", "--unixsocket", str(self._socket), "--save", "", "--dir", str(self._socket.parent))
        self._process = subprocess.Popen([REDIS_SERVER, *options], stdout=subprocess.DEVNULL)
        wait_until(self._accepts)

    def kill(self) -> None:
        """Kill the server; its data is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
            self._process = None

    def _accepts(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(self._socket))
        except OSError:
            return False
        return True


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll a condition until it is true."""
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends, "the condition did not become true in time"
        time.sleep(0.01)
