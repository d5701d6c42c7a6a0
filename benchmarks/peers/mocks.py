"""Mocks for httpx, with a callback that parses the e-mail and responds that it was added."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import Any, Final

URL: Final = "http://service.example"


def _added(body: bytes) -> dict[str, str | None]:
    return {"status": "added", "id": f"contact_{json.loads(body)['email']}", "details": None}


def _answer(request: Any) -> Any:
    import httpx

    return httpx.Response(201, json=_added(request.content))


@contextmanager
def respx_router() -> Iterator[None]:
    """Respond with a callback of respx."""
    import respx

    with respx.mock(base_url=URL) as router:
        router.post("/contacts").mock(side_effect=_answer)
        yield


@contextmanager
def pytest_httpx_mock() -> Iterator[None]:
    """Respond with a callback of pytest-httpx, as its fixture does, which works in tests only."""
    import httpx

    options = import_module("pytest_httpx._options")
    mock = import_module("pytest_httpx").HTTPXMock(options._HTTPXMockOptions(can_send_already_matched_responses=True))  # noqa: SLF001 - the same
    mock.add_callback(_answer)

    async def handle(transport: Any, request: Any) -> Any:
        return await mock._handle_async_request(transport, request)  # noqa: SLF001 - what the fixture calls

    patched: Any = httpx.AsyncHTTPTransport
    real, patched.handle_async_request = patched.handle_async_request, handle
    try:
        yield
    finally:
        patched.handle_async_request = real


@asynccontextmanager
async def httpx_client(transport: Any = None) -> AsyncIterator[Any]:
    """Open an httpx client, on a mock transport or on patched httpx."""
    import httpx

    async with httpx.AsyncClient(base_url=URL, transport=transport) as client:
        yield client


def mock_transport() -> Any:
    """Return the mock transport of httpx."""
    import httpx

    return httpx.MockTransport(_answer)


def starlette_transport() -> Any:
    """Return a transport that calls a small ASGI application."""
    import httpx
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def create(request: Any) -> Any:
        return JSONResponse(_added(await request.body()), 201)

    return httpx.ASGITransport(Starlette(routes=[Route("/contacts", create, methods=["POST"])]))
