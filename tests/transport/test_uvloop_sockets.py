"""A socket whose descriptor was closed elsewhere never closes the new owner of the descriptor."""

from __future__ import annotations

import gc
import os
import socket
import sys

import pytest

from outreach_async.transport._aiohttp_session import SocketFactory

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a socket is no file there, and there is no uvloop")

ADDRESS = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 80))


def test_a_socket_closed_by_descriptor_is_released_when_the_next_is_created() -> None:
    sockets = SocketFactory()
    first = sockets(ADDRESS)
    os.close(first.fileno())
    with sockets(ADDRESS) as second:
        assert (first.fileno(), second.fileno() >= 0) == (-1, True)


def test_a_reused_descriptor_is_not_closed() -> None:
    sockets = SocketFactory()
    first = sockets(ADDRESS)
    descriptor = first.fileno()
    with open(os.devnull, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        os.dup2(file.fileno(), descriptor)
    del sockets
    gc.collect()
    assert first.fileno() == -1
    os.close(descriptor)  # raises if it is no longer open


def test_a_socket_in_use_is_not_touched() -> None:
    sockets = SocketFactory()
    with sockets(ADDRESS) as first, sockets(ADDRESS) as second:
        sockets._detach_closed()
        assert min(first.fileno(), second.fileno()) >= 0
    sockets._detach_closed()
    assert sockets._sockets == []
