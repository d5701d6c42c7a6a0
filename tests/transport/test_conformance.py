"""One conformance suite for every transport over every kind of service."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, get_args
from urllib.parse import quote

import aiohttp
import anyio
import httpx
import httpx2
import pytest
import respx
from support.conformance import CHECKS, ODD_ID, Check, Open, Service, exchange
from support.transports import LOOPS, OWN, Make, fail, over

from outreach_async.errors import TransportError
from outreach_async.fake import FakeService, faults
from outreach_async.fake._asgi import asgi_app
from outreach_async.fake._fault_plan import Exchange, WireFault, WireFaultKind
from outreach_async.fake._transport import FakeTransport
from outreach_async.fake.server import serve
from outreach_async.transport._aiohttp import AiohttpTransport
from outreach_async.transport._httptools import HttptoolsTransport
from outreach_async.transport._httpx import HttpxTransport
from outreach_async.transport._wire import Progress, Request, Transport

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
async def httptools_on_a_socket(service: Service) -> AsyncIterator[Transport]:
    async with serve(service) as url:
        transport = HttptoolsTransport(url)
        yield transport
        await transport.aclose()


@asynccontextmanager
async def aiohttp_session_on_a_socket(service: Service) -> AsyncIterator[Transport]:
    async with serve(service) as url:
        transport = AiohttpTransport(aiohttp.ClientSession(f"{url}/"))
        yield transport
        await transport.aclose()


def mocked(service: Service, request: httpx.Request) -> httpx.Response:
    """Return the response of a service to an httpx request."""
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
        httptools_on_a_socket,
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
async def test_the_fake_service_responds_alike_over_every_transport(route: Open) -> None:
    expected = [seeded_answer for service in [seeded()] for seeded_answer in map(service.handle, CONVERSATION)]
    async with route(seeded()) as transport:
        answers = [await exchange(transport, request) for request in CONVERSATION]
    assert [(answer.status, answer.body) for answer in answers] == [(answer.status, answer.body) for answer in expected]
    for answer, expected_answer in zip(answers, expected, strict=True):
        assert expected_answer.headers.items() <= answer.headers.items()


DRIFTS: Final = {
    "drift: a new value": faults.drift("status", "merged"),
    "drift: a new field": faults.drift("score", 7),
    "drift: a null": faults.drift("id", None),
    "drift: a number for a text": faults.drift("id", lambda id_: len(id_ or "")),
}

WIRE_FAULTS: Final = DRIFTS | {
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
        faults.wrong_length(7),
        faults.latency(0.001),
        faults.slow_drip(400, 0.001),
        faults.hang(),
        faults.html_502(),
        faults.empty(),
        faults.status(429, retry_after=2),
        faults.status(500),
        faults.status(503),
        *map(faults.commit_then, (faults.close(), faults.reset(), faults.hang(), faults.garbage(), faults.html_502())),
    )
}


ON_SOCKETS: Final = [
    pair for pair in PAIRS if str(pair.id).startswith(("lanes_on", "httpx2_lanes_on", "aiohttp_on", "httptools"))
]


@pytest.mark.parametrize(("route", "anyio_backend"), ON_SOCKETS, indirect=["anyio_backend"])
@pytest.mark.parametrize("label", WIRE_FAULTS)
async def test_a_fault_has_the_same_effect_on_a_socket_and_in_memory(route: Open, label: str) -> None:
    allowed = [await outcome(fake, label)]
    if label.startswith("wrong_length") and route is aiohttp_on_a_socket:
        # aiohttp may read the rest of the body as another response. The whole response is then in doubt, including its status.
        allowed.append((TransportError, True, *allowed[0][2:]))
    assert await outcome(route, label) in allowed


def test_every_kind_of_fault_a_server_can_cause_is_tested() -> None:
    assert {fault.kind for fault in WIRE_FAULTS.values() if isinstance(fault, WireFault)} == {*get_args(WireFaultKind)} - {
        "refuse"
    }


@over(*OWN)
async def test_a_refused_connection_has_the_same_effect_in_memory_and_for_real(make: Make) -> None:
    service = seeded()
    service.faults.add(faults.refuse())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for request in (create("a@b.co"), CONVERSATION[4]):
        error, progress = await fail(FakeTransport(service), request)
        real, evidence = await fail(make(f"http://127.0.0.1:{port}"), request)
        assert (type(error), error.maybe_sent, progress.sent) == (type(real), real.maybe_sent, evidence.sent)
        assert error.maybe_sent is False


async def outcome(route: Open, label: str) -> tuple[object, ...]:
    """Return the result of a creation under a fault, and the service's response to the same request afterwards."""
    service, progress, scope = seeded(), Progress(), anyio.CancelScope()
    service.faults.script("create_contact", WIRE_FAULTS[label])
    seen: tuple[object, ...] = ("given up",)
    async with route(Overheard(service, scope.cancel if "hang" in label else int)) as transport:
        with scope:
            seen = await answer_or_error(transport, progress)
    return *seen, progress.sent, service.handle(create("a@b.co")).body


async def answer_or_error(transport: Transport, progress: Progress) -> tuple[object, ...]:
    try:
        answer = await transport.send(create("a@b.co"), progress)
    except TransportError as error:
        return type(error), error.maybe_sent
    return answer.status, answer.body


class Overheard:
    """Forwards requests to a fake and reports when each is done."""

    def __init__(self, fake: FakeService, heard: Callable[[], object]) -> None:
        self.handle = fake.handle
        self._fake, self._heard = fake, heard

    def exchange(self, request: Request, /) -> Exchange:
        exchange = self._fake.exchange(request)
        self._heard()
        return exchange
