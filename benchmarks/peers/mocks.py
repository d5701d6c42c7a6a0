"""What users put beneath httpx to test without a network: callbacks that read the e-mail and say that it was added."""

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
    """Let respx answer by a callback."""
    import respx

    with respx.mock(base_url=URL) as router:
        router.post("/contacts").mock(side_effect=_answer)
        yield


@contextmanager
def pytest_httpx_mock() -> Iterator[None]:
    """Let pytest-httpx answer by a callback, as its fixture does, which is for tests alone."""
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
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def create(request: Any) -> Any:
        return JSONResponse(_added(await request.body()), 201)

    return httpx.ASGITransport(Starlette(routes=[Route("/contacts", create, methods=["POST"])]))
