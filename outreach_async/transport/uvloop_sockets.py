"""Work around a defect of uvloop: it closes the descriptor of a socket passed to it if connecting fails.

The socket object does not notice, and closes the descriptor again when it is collected. By then the descriptor may belong to
another connection or a file (https://github.com/MagicStack/uvloop/pull/646).
"""

from __future__ import annotations

import os
import socket
from typing import Any


class Sockets:
    """Makes aiohttp's sockets, and detaches those whose descriptor was closed by uvloop."""

    def __init__(self) -> None:
        self._made: list[tuple[socket.socket, int]] = []

    def __call__(self, address: tuple[Any, ...]) -> socket.socket:
        """Make a socket for an address as returned by `getaddrinfo`."""
        self._sweep()
        made = socket.socket(*address[:3])
        self._made.append((made, os.fstat(made.fileno()).st_ino))
        return made

    def _sweep(self) -> None:
        """Detach closed sockets. If a descriptor now refers to another file, the socket was closed as well."""
        kept = []
        for made, inode in self._made:
            if made.fileno() >= 0 and _inode(made.fileno()) == inode:
                kept.append((made, inode))
            else:
                made.detach()
        self._made = kept

    def __del__(self) -> None:
        """Detach closed sockets before they are collected."""
        self._sweep()


def _inode(descriptor: int) -> int | None:
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return None
