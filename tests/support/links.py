"""A network link between processes on this machine that can be interrupted."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


def free_port() -> int:
    """Return a TCP port on loopback that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Link:
    """A TCP proxy on loopback. While the link is cut, it neither forwards data nor closes connections."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._whole = threading.Event()
        self._whole.set()
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Stop forwarding. Data that arrives meanwhile is forwarded after `mend`."""
        self._whole.clear()

    def mend(self) -> None:
        """Resume forwarding."""
        self._whole.set()

    def close(self) -> None:
        """Close the link and its connections."""
        self.mend()
        for end in (self._server, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError), self._server:
            while True:
                near, _ = self._server.accept()
                self._ends.append(near)
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        self._whole.wait()
        with suppress(OSError), near, socket.create_connection(("127.0.0.1", self.target)) as far:
            self._ends.append(far)
            back = threading.Thread(target=self._forward, args=(far, near), daemon=True)
            back.start()
            self._forward(near, far)
            back.join()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := source.recv(65536):
                self._whole.wait()
                sink.sendall(data)
        self._whole.wait()
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
