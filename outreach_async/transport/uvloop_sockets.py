"""A repair of uvloop, which closes the descriptor of a socket that it was given when the connection fails before it is whole.

The socket object does not know. It would close the descriptor once more when it is collected, and by then that may be another
connection's or a file (https://github.com/MagicStack/uvloop/pull/646).
"""

from __future__ import annotations

import os
import socket
from typing import Any


class Sockets:
    """Makes aiohttp's sockets, and lets go of those whose descriptor has been closed beneath them."""

    def __init__(self) -> None:
        self._made: list[tuple[socket.socket, int]] = []

    def __call__(self, address: tuple[Any, ...]) -> socket.socket:
        """Make a socket for an address as `getaddrinfo` tells it."""
        self._sweep()
        made = socket.socket(*address[:3])
        self._made.append((made, os.fstat(made.fileno()).st_ino))
        return made

    def _sweep(self) -> None:
        """Forget what is closed; a descriptor that is another file's now was closed as well."""
        kept = []
        for made, inode in self._made:
            if made.fileno() >= 0 and _inode(made.fileno()) == inode:
                kept.append((made, inode))
            else:
                made.detach()
        self._made = kept

    def __del__(self) -> None:
        """Let go before the sockets themselves are collected."""
        self._sweep()


def _inode(descriptor: int) -> int | None:
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return None
