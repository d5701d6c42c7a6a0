"""One conformance suite for every transport over every kind of service."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, get_args
from urllib.parse import quote, urlencode

import anyio
import httpx
import httpx2
import pytest
import respx
import starlette.requests
import starlette.responses
from support.transports import ALL, LOOPS, MAKERS, OWN, Make, fail, over

from outreach_async import HttpxTransport, Progress, Request, Response, Transport
from outreach_async.errors import InvalidRequest, OutreachError, TransportError
from outreach_async.fake import FakeService, FakeTransport, faults
from outreach_async.fake.faults import Exchange, Service, WireFault, WireFaultKind
from outreach_async.fake.server import serve

NOWHERE: Final = "http://service.example"


ODD_ID: Final = "camp_é ü/%2F?#"
ODD_QUERY: Final = {"workspace": "a&b=ç+ /", "page": "", "~tilde": "%7E"}


class Echo:
    # The request header `x-status` sets the status of the response. `x-size` replaces the body by one of that size in bytes.

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def exchange(self, request: Request, /) -> Exchange:
        return Exchange(self.handle(request), None)

    def handle(self, request: Request, /) -> Response:
        self.requests.append(request)
        size = request.headers.get("x-size")
        body = request.body if size is None else b"x" * int(size)
        fields = {"content-type": "application/octet-stream", "set-cookie": "session=1; Path=/", "location": "/elsewhere"}
        return Response(int(request.headers.get("x-status", "200")), fields, body)


Open = Callable[[Service], AbstractAsyncContextManager[Transport]]


async def exchange(transport: Transport, request: Request) -> Response:
    """Send a request, require that its progress is marked as sent, and return the response."""
    progress = Progress()
    response = await transport.send(request, progress)
    assert progress.sent is True
    return response


@asynccontextmanager
async def fake(service: Service) -> AsyncIterator[Transport]:
    yield FakeTransport(service)


def on_a_socket(name: str) -> Open:
    @asynccontextmanager
    async def connect(service: Service) -> AsyncIterator[Transport]:
        async with serve(service) as url:
            transport = MAKERS[name](url)
            yield transport
            await transport.aclose()

    return connect


def on_asgi(library: Any) -> Open:
    @asynccontextmanager
    async def connect(service: Service) -> AsyncIterator[Transport]:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            asked = starlette.requests.Request(scope, receive)
            target = (scope["raw_path"] + b"?" + scope["query_string"]).decode().removesuffix("?")
            answer = service.exchange(Request(asked.method, target, asked.headers, await asked.body())).response
            assert answer is not None
            await starlette.responses.Response(answer.body, answer.status, answer.headers)(scope, receive, send)

        yield HttpxTransport(library.AsyncClient(base_url=NOWHERE, transport=library.ASGITransport(app)))

    return connect


@asynccontextmanager
async def client_on_a_mock_transport(service: Service) -> AsyncIterator[Transport]:
    mock = httpx.MockTransport(lambda request: mocked(service, request))
    yield HttpxTransport(httpx.AsyncClient(base_url=NOWHERE, transport=mock))


def under_respx(make: Callable[[], Transport]) -> Open:
    @asynccontextmanager
    async def connect(service: Service) -> AsyncIterator[Transport]:
        with respx.mock(base_url=NOWHERE, assert_all_called=False) as router:
            router.route().mock(side_effect=lambda request: mocked(service, request))
            yield make()

    return connect


def mocked(service: Service, request: httpx.Request) -> httpx.Response:
    fields = {name.lower(): value for name, value in request.headers.items()}
    answer = service.exchange(Request(request.method, request.url.raw_path.decode(), fields, request.content)).response
    assert answer is not None
    return httpx.Response(answer.status, headers=dict(answer.headers), content=answer.body)


ROUTES: Final[dict[str, Open]] = {
    "fake": fake,
    **{f"{name}_on_a_socket": on_a_socket(name) for name in ALL},
    "httpx_client_on_asgi": on_asgi(httpx),
    "httpx2_client_on_asgi": on_asgi(httpx2),
    "httpx_client_on_a_mock_transport": client_on_a_mock_transport,
    "httpx_under_respx": under_respx(lambda: HttpxTransport(NOWHERE)),
    "httpx_client_under_respx": under_respx(lambda: HttpxTransport(httpx.AsyncClient(base_url=NOWHERE))),
}
PAIRS: Final[list[Any]] = [
    pytest.param(route, backend, id=f"{name}-{loop}")
    for name, route in ROUTES.items()
    for loop, backend in LOOPS.items()
    if loop == "asyncio" or not name.startswith("aiohttp")
]


over_every_route = pytest.mark.parametrize(("route", "anyio_backend"), PAIRS, indirect=["anyio_backend"])


@over_every_route
async def test_targets_arrive_byte_for_byte(route: Open) -> None:
    echo = Echo()
    odd = f"/campaigns/{quote(ODD_ID, safe='')}/steps?{urlencode(ODD_QUERY)}"
    targets = [odd, "/a%2fb%7Ec/%41?x=%7e&y=%2F/?:@", "/", "/a//b", "/a:b/c;d=1,2", "/x?a=b?c=d&&"]
    async with route(echo) as transport:
        for target in targets:
            await exchange(transport, Request("GET", target))
    assert [request.target for request in echo.requests] == targets


@over_every_route
async def test_a_request_arrives_as_it_was_sent(route: Open) -> None:
    echo = Echo()
    fields = {"content-type": "application/json", "x-mixed-case": "VaLue, with = signs", "x-empty": ""}
    async with route(echo) as transport:
        for method, body in (("POST", b'{"a":"\xc3\xa9\\u0000"}'), ("PUT", b"\x00\xff\r\n\r\n"), ("DELETE", b""), ("GET", b"")):
            await exchange(transport, Request(method, "/contacts", fields, body))
            seen = echo.requests[-1]
            assert (seen.method, seen.body) == (method, body)
            assert {name: seen.headers[name] for name in fields} == fields
            assert all(name == name.lower() for name in seen.headers)


@over_every_route
async def test_every_status_is_a_value_and_no_redirect_is_followed_nor_cookie_kept(route: Open) -> None:
    echo, statuses = Echo(), (200, 201, 299, 301, 302, 303, 307, 308, 400, 401, 404, 409, 418, 429, 500, 502, 503, 599)
    async with route(echo) as transport:
        for status in statuses:
            response = await exchange(transport, Request("POST", "/contacts", {"x-status": str(status)}, b"secret"))
            assert (response.status, response.body) == (status, b"secret")
            assert (response.headers["location"], response.headers["set-cookie"]) == ("/elsewhere", "session=1; Path=/")
    assert [request.target for request in echo.requests] == ["/contacts"] * len(statuses)
    assert not any("cookie" in request.headers for request in echo.requests)


@over_every_route
async def test_bodies_of_any_size_come_back_whole(route: Open) -> None:
    async with route(Echo()) as transport:
        for body in (b"", b"x", b"\x00\xff\r\n\r\n", "é".encode() * 1000, bytes(range(256)) * 8192):
            response = await exchange(transport, Request("POST", "/contacts", body=body))
            assert (response.status, response.body) == (200, body)
            assert response.headers["content-type"] == "application/octet-stream"
            assert all(name == name.lower() for name in response.headers)
        response = await exchange(transport, Request("GET", "/mailboxes", {"x-size": "2000000"}))
        assert len(response.body) == 2_000_000


@over_every_route
async def test_many_at_once_get_their_own_answers(route: Open) -> None:
    answers: dict[int, bytes] = {}
    async with route(Echo()) as transport:

        async def send(number: int) -> None:
            response = await exchange(transport, Request("POST", f"/contacts?n={number}", body=b"%d" % number))
            answers[number] = response.body

        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(send, number)
    assert answers == {number: b"%d" % number for number in range(40)}


@over_every_route
async def test_a_request_that_is_cancelled_before_it_starts_is_not_sent(route: Open) -> None:
    echo = Echo()
    progress = Progress()
    async with route(echo) as transport:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await transport.send(Request("POST", "/contacts", body=b"x"), progress)
    assert scope.cancelled_caught
    assert progress.sent is not True
    assert echo.requests == []


@over_every_route
async def test_after_closing_nothing_is_sent(route: Open) -> None:
    echo = Echo()
    async with route(echo) as transport:
        await exchange(transport, Request("GET", "/campaigns"))
        await transport.aclose()
        await transport.aclose()
        with pytest.raises((InvalidRequest, TransportError)) as caught:
            await transport.send(Request("POST", "/contacts", body=b"x"), Progress())
    assert isinstance(caught.value, OutreachError)
    assert caught.value.maybe_sent is False
    assert "closed" in str(caught.value)
    assert len(echo.requests) == 1


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
        *(faults.reset(), faults.close(), faults.truncate(5), faults.reset_mid_body(5), faults.malformed("bad_chunk")),
        *(
            faults.malformed("no_final_chunk"),
            faults.malformed("garbage"),
            faults.malformed("long_header"),
            faults.malformed("wrong_encoding"),
            faults.wrong_length(7),
        ),
        *(faults.latency(0.001), faults.slow_drip(400, 0.001), faults.hang(), faults.status(200, body="")),
        *(faults.status(429, retry_after=2), faults.status(500), faults.status(503)),
        *map(
            faults.commit_then, (faults.close(), faults.reset(), faults.hang(), faults.malformed("garbage"), faults.status(502))
        ),
    )
}


ON_SOCKETS: Final = [pair for pair in PAIRS if str(pair.id).startswith(tuple(f"{name}_on_a_socket" for name in OWN))]


@pytest.mark.parametrize(("route", "anyio_backend"), ON_SOCKETS, indirect=["anyio_backend"])
@pytest.mark.parametrize("label", WIRE_FAULTS)
async def test_a_fault_has_the_same_effect_on_a_socket_and_in_memory(route: Open, label: str) -> None:
    fault = WIRE_FAULTS[label]
    for request in (create("a@b.co"), CONVERSATION[4]):
        allowed = [await outcome(fake, fault, request)]
        if label.startswith("wrong_length") and route is ROUTES["aiohttp_on_a_socket"]:
            # aiohttp may read the rest of the body as another response. The whole response is then in doubt, with its status.
            allowed.append((TransportError, True, *allowed[0][2:]))
        *seen, sent, after = await outcome(route, fault, request)
        # Without a body, no library can prove that a request was sent: `None` counts as sent.
        assert (*seen, sent if request.body else sent is not False, after) in allowed


@pytest.mark.parametrize(("route", "anyio_backend"), ON_SOCKETS, indirect=["anyio_backend"])
async def test_a_server_that_refuses_resets_and_the_request_may_have_been_sent(route: Open) -> None:
    assert await outcome(route, faults.refuse(), create("a@b.co")) == await outcome(fake, faults.reset(), create("a@b.co"))


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


async def outcome(route: Open, fault: faults.Fault, request: Request) -> tuple[object, ...]:
    """Return the result of a request under a fault, and the service's response to a creation afterwards."""
    service, progress, scope = seeded(), Progress(), anyio.CancelScope()
    service.faults.add(fault, times=1)
    seen: tuple[object, ...] = ("given up",)
    async with route(Overheard(service, scope.cancel if "hang" in fault.label else int)) as transport:
        with scope:
            try:
                answer = await transport.send(request, progress)
                seen = answer.status, answer.body
            except TransportError as error:
                seen = type(error), error.maybe_sent
    return *seen, progress.sent, service.handle(create("a@b.co")).body


class Overheard:
    """Forwards requests to a fake and reports when each is done."""

    def __init__(self, fake: FakeService, heard: Callable[[], object]) -> None:
        self.handle = fake.handle
        self._fake, self._heard = fake, heard

    def exchange(self, request: Request, /) -> Exchange:
        exchange = self._fake.exchange(request)
        self._heard()
        return exchange
