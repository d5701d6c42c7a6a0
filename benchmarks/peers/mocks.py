"""What users put beneath httpx to test without a network; each answers the same to every creation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from benchmarks.workload import ANSWER_FIELDS, CREATED

URL: Final = "http://service.example"


def _answer(_request: Any) -> Any:
    import httpx

    return httpx.Response(201, headers=ANSWER_FIELDS, content=CREATED)


@contextmanager
def respx_router() -> Iterator[None]:
    """Let respx answer by a callback."""
    import respx

    with respx.mock(base_url=URL) as router:
        router.post("/contacts").mock(side_effect=_answer)
        yield


@contextmanager
def pytest_httpx_mock() -> Iterator[None]:
    """Let pytest-httpx answer by a callback, as its fixture does, which is for tests alone."""
    import httpx
    from pytest_httpx import HTTPXMock
    from pytest_httpx._options import _HTTPXMockOptions

    mock: Any = HTTPXMock(_HTTPXMockOptions(can_send_already_matched_responses=True))
    mock.add_callback(_answer)

    async def handle(transport: Any, request: Any) -> Any:
        return await mock._handle_async_request(transport, request)  # noqa: SLF001 - what the fixture calls

    real = httpx.AsyncHTTPTransport.handle_async_request
    httpx.AsyncHTTPTransport.handle_async_request = handle  # type: ignore[method-assign] - as the fixture does
    try:
        yield
    finally:
        httpx.AsyncHTTPTransport.handle_async_request = real  # type: ignore[method-assign] - back again


@asynccontextmanager
async def httpx_client(transport: Any = None) -> AsyncIterator[Any]:
    """Make a client of httpx, on a transport that mocks or on what is patched beneath it."""
    import httpx

    async with httpx.AsyncClient(base_url=URL, transport=transport) as client:
        yield client


def mock_transport() -> Any:
    """Make httpx's own mock."""
    import httpx

    return httpx.MockTransport(_answer)


def starlette_transport() -> Any:
    """Make a small application and call it in place of a network."""
    import httpx
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    async def create(request: Any) -> Any:
        await request.json()
        return Response(CREATED, 201, ANSWER_FIELDS)

    return httpx.ASGITransport(Starlette(routes=[Route("/contacts", create, methods=["POST"])]))
