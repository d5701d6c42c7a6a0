"""One suite over every transport and everything that can stand behind it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import httpx
import httpx2
import pytest
import respx
from support_conformance import CHECKS, ODD_ID, Check, Open, Service, exchange
from support_transports import LOOPS

from outreach_async.errors import TransportError
from outreach_async.fake import FakeService, faults
from outreach_async.fake.asgi import asgi_app
from outreach_async.fake.server import serve
from outreach_async.fake.transport import FakeTransport
from outreach_async.transport.aiohttp import AiohttpTransport
from outreach_async.transport.httpx import HttpxTransport
from outreach_async.transport.wire import Progress, Request, Transport

NOWHERE: Final = "http://service.example"


@asynccontextmanager
async def fake(service: Service) -> AsyncIterator[Transport]:
    yield FakeTransport(service)


@asynccontextmanager
async def lanes_on_a_socket(service: Service) -> AsyncIterator[Transport]:
    async with serve(service) as url:
        transport = HttpxTransport(url)
        yield transport
        await transport.aclose()


@asynccontextmanager
async def httpx2_lanes_on_a_socket(service: Service) -> AsyncIterator[Transport]:
    async with serve(service) as url:
        transport = HttpxTransport(url, family="httpx2")
        yield transport
        await transport.aclose()


@asynccontextmanager
async def client_on_a_socket(service: Service) -> AsyncIterator[Transport]:
    async with serve(service) as url:
        transport = HttpxTransport(httpx.AsyncClient(base_url=url))
        yield transport
        await transport.aclose()


@asynccontextmanager
async def httpx2_client_on_a_socket(service: Service) -> AsyncIterator[Transport]:
    async with serve(service) as url:
        transport = HttpxTransport(httpx2.AsyncClient(base_url=url))
        yield transport
        await transport.aclose()


@asynccontextmanager
async def client_on_asgi(service: Service) -> AsyncIterator[Transport]:
    yield HttpxTransport(httpx.AsyncClient(base_url=NOWHERE, transport=httpx.ASGITransport(asgi_app(service))))


@asynccontextmanager
async def httpx2_client_on_asgi(service: Service) -> AsyncIterator[Transport]:
    yield HttpxTransport(httpx2.AsyncClient(base_url=NOWHERE, transport=httpx2.ASGITransport(asgi_app(service))))


@asynccontextmanager
async def client_on_a_mock_transport(service: Service) -> AsyncIterator[Transport]:
    mock = httpx.MockTransport(lambda request: mocked(service, request))
    yield HttpxTransport(httpx.AsyncClient(base_url=NOWHERE, transport=mock))


@asynccontextmanager
async def lanes_under_respx(service: Service) -> AsyncIterator[Transport]:
    with respx.mock(base_url=NOWHERE, assert_all_called=False) as router:
        router.route().mock(side_effect=lambda request: mocked(service, request))
        yield HttpxTransport(NOWHERE)


@asynccontextmanager
async def client_under_respx(service: Service) -> AsyncIterator[Transport]:
    with respx.mock(base_url=NOWHERE, assert_all_called=False) as router:
        router.route().mock(side_effect=lambda request: mocked(service, request))
        yield HttpxTransport(httpx.AsyncClient(base_url=NOWHERE))


@asynccontextmanager
async def aiohttp_on_a_socket(service: Service) -> AsyncIterator[Transport]:
    async with serve(service) as url:
        transport = AiohttpTransport(url)
        yield transport
        await transport.aclose()


@asynccontextmanager
async def aiohttp_session_on_a_socket(service: Service) -> AsyncIterator[Transport]:
    async with serve(service) as url:
        transport = AiohttpTransport(aiohttp.ClientSession(f"{url}/"))
        yield transport
        await transport.aclose()


def mocked(service: Service, request: httpx.Request) -> httpx.Response:
    """Answer a request that httpx would have sent."""
    fields = {name.lower(): value for name, value in request.headers.items()}
    answer = service.handle(Request(request.method, request.url.raw_path.decode(), fields, request.content))
    return httpx.Response(answer.status, headers=dict(answer.headers), content=answer.body)


ROUTES: Final[dict[str, Open]] = {
    route.__name__: route
    for route in (
        fake,
        lanes_on_a_socket,
        httpx2_lanes_on_a_socket,
        client_on_a_socket,
        httpx2_client_on_a_socket,
        client_on_asgi,
        httpx2_client_on_asgi,
        client_on_a_mock_transport,
        lanes_under_respx,
        client_under_respx,
        aiohttp_on_a_socket,
        aiohttp_session_on_a_socket,
    )
}
PAIRS: Final[list[Any]] = [
    pytest.param(route, backend, id=f"{name}-{loop}")
    for name, route in ROUTES.items()
    for loop, backend in LOOPS.items()
    if loop == "asyncio" or not name.startswith("aiohttp")
]


over_every_route = pytest.mark.parametrize(("route", "anyio_backend"), PAIRS, indirect=["anyio_backend"])


@over_every_route
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_every_transport_conforms(route: Open, check: Check) -> None:
    await check(route)


def seeded() -> FakeService:
    service = FakeService(seed=3)
    space = service.add_workspace("space_1", custom_fields=["Plan"])
    service.add_owner_key(space, key="key_1")
    service.add_mailboxes(space, 30)
    service.add_campaign(space, id="camp_1", name="Spring", status="live")
    return service


def create(email: str, **fields: str) -> Request:
    options = {"duplicates": "skip", "strict_validation": True, "campaign": None}
    body = {"owner_key": "key_1", "workspace": "space_1", "email": email, "upload_options": options, **fields}
    return Request("POST", "/contacts", {"content-type": "application/json"}, json.dumps(body).encode())


CONVERSATION: Final = (
    create("a@b.co", first_name="É", custom_1="gold"),
    create("a@b.co"),
    create("not an address"),
    Request("POST", "/contacts", {"content-type": "application/json"}, b"{no JSON"),
    Request("GET", "/campaigns?workspace=space_1&page=1&display=5"),
    Request("GET", "/mailboxes?workspace=space_1&page=2&display=20"),
    Request("GET", "/mailboxes?workspace=a%26b%3D%C3%A7%2B%20%2F&page=1&display="),
    Request("GET", "/campaigns/camp_1/steps"),
    Request("GET", f"/campaigns/{quote(ODD_ID, safe='')}/steps"),
    Request("GET", "/workspaces/space_1/all-fields"),
    Request("GET", "/nowhere"),
)


@over_every_route
async def test_the_fake_service_answers_alike_through_every_transport(route: Open) -> None:
    expected = [seeded_answer for service in [seeded()] for seeded_answer in map(service.handle, CONVERSATION)]
    async with route(seeded()) as transport:
        answers = [await exchange(transport, request) for request in CONVERSATION]
    assert [(answer.status, answer.body) for answer in answers] == [(answer.status, answer.body) for answer in expected]
    for answer, wanted in zip(answers, expected, strict=True):
        assert wanted.headers.items() <= answer.headers.items()


WIRE_FAULTS: Final = {
    fault.label: fault
    for fault in (
        faults.reset(),
        faults.close(),
        faults.truncate(5),
        faults.reset_mid_body(5),
        faults.bad_chunk(),
        faults.no_final_chunk(),
        faults.garbage(),
        faults.long_header(),
        faults.wrong_encoding(),
        faults.slow_drip(400, 0.001),
        faults.html_502(),
        faults.empty(),
        faults.status(429, retry_after=2),
        faults.commit_then(faults.close()),
    )
}


ON_SOCKETS: Final = [pair for pair in PAIRS if str(pair.id).startswith(("lanes_on", "httpx2_lanes_on", "aiohttp_on"))]


@pytest.mark.parametrize(("route", "anyio_backend"), ON_SOCKETS, indirect=["anyio_backend"])
@pytest.mark.parametrize("label", WIRE_FAULTS)
async def test_a_fault_means_on_a_socket_what_it_means_in_memory(route: Open, label: str) -> None:
    in_memory = await outcome(fake, label)
    assert await outcome(route, label) == in_memory


async def outcome(route: Open, label: str) -> tuple[object, ...]:
    """Tell what becomes of a create under a fault, and what the service says of the same one after it."""
    service = seeded()
    service.faults.script("create_contact", WIRE_FAULTS[label])
    async with route(service) as transport:
        try:
            answer = await transport.send(create("a@b.co"), Progress())
        except TransportError as error:
            seen: tuple[object, ...] = ("TransportError", error.maybe_sent)
        else:
            seen = (answer.status, answer.body)
    return *seen, service.handle(create("a@b.co")).body
