"""The fake service on a real socket, with faults byte by byte, which no ASGI server can do."""

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

    What the block raises is raised as it is, in no exception group.

    A connection is closed when the head of a request is incomplete 10 seconds after its first byte. A request with both
    `Content-Length` and `Transfer-Encoding`, or with a line that ends with a bare line feed, is answered with 400.

    Args:
        service: A `FakeService`, one with its control plane (`control.Controlled`), or whatever else answers `exchange`.
        host: The address to listen at.
        port: The port; 0 takes a free one.

    Yields:
        The base URL.

    Raises:
        OSError: The address cannot be listened at.
    """
    failure: BaseException | None = None
    with await _listen(host, port) as listener:
        async with anyio.create_task_group() as group:
            group.start_soon(_accept, listener, group, service)
            try:
                yield _url(listener)
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001 - raised below, outside the group, which would wrap it
                failure = error
            group.cancel_scope.cancel()
    try:
        if failure is not None:
            raise failure
    finally:
        del failure  # it holds this frame


async def run(service: Service, host: str, port: int, started: Callable[[str], None]) -> None:
    """Serve a service on a socket until cancelled.

    Args:
        service: A `FakeService`, or whatever else answers `exchange`.
        host: The address to listen at.
        port: The port; 0 takes a free one.
        started: Called with the base URL as soon as it can be connected to.

    Raises:
        OSError: The address cannot be listened at.
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
            # The client has left meanwhile; or no descriptor is free, and until one is, waiting would return at once, for ever.
            await anyio.sleep(0.05)
        else:
            group.start_soon(converse, connection, service)
