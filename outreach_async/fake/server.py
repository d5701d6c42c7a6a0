"""Serve the fake on a real socket, with wire faults byte by byte, which no ASGI server can reproduce."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.abc

from outreach_async.fake.conversation import converse
from outreach_async.fake.exchange import Service

_BACKLOG = 1024


@asynccontextmanager
async def serve(service: Service, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve a service on a socket while the block runs.

    An exception of the block is raised unchanged, not wrapped in an exception group.

    A connection is closed if the head of a request is incomplete 10 seconds after its first byte. A request with both
    `Content-Length` and `Transfer-Encoding`, or with a line that ends with a bare line feed, gets 400.

    Args:
        service: A `FakeService`, one with its control plane (`control.Controlled`), or any object with `exchange`.
        host: The address to listen on.
        port: The port; 0 picks a free one.

    Yields:
        The base URL.

    Raises:
        OSError: The server cannot listen on the address.
    """
    failure: BaseException | None = None
    with await _listen(host, port) as listener:
        async with anyio.create_task_group() as group:
            group.start_soon(_accept, listener, group, service)
            try:
                yield _url(listener)
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001 - raised below, outside the task group, which would wrap it
                failure = error
            # Connections in progress are cancelled: a hanging one, such as the fault `hang`, would otherwise never end.
            group.cancel_scope.cancel()
    try:
        if failure is not None:
            raise failure
    finally:
        del failure  # its traceback refers to this frame: without this, both live until the next garbage collection


async def run(service: Service, host: str, port: int, started: Callable[[str], None]) -> None:
    """Serve a service on a socket until cancelled.

    Args:
        service: A `FakeService`, or any object with `exchange`.
        host: The address to listen on.
        port: The port; 0 picks a free one.
        started: Called with the base URL once the server accepts connections.

    Raises:
        OSError: The server cannot listen on the address.
    """
    async with serve(service, host, port) as url:
        started(url)
        await anyio.sleep_forever()


async def _listen(host: str, port: int) -> socket.socket:
    family, _, _, _, address = (await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
    listener = socket.create_server(address, family=family, backlog=_BACKLOG)
    listener.setblocking(False)
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _accept(listener: socket.socket, group: anyio.abc.TaskGroup, service: Service) -> None:
    while True:
        await anyio.wait_readable(listener)
        try:
            connection, _ = listener.accept()
        except OSError:
            # Either the client has left in the meantime, or no file descriptor is free. In the second case the listener stays
            # readable: without a pause, this loop would spin and starve the connections that could free a descriptor.
            await anyio.sleep(0.05)
        else:
            group.start_soon(converse, connection, service)
