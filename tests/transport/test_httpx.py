"""The adapter for httpx and httpx2 over a client that the user has configured."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.to_thread
import httpx
import httpx2
import pytest
import respx
from support.transports import GET, NOWHERE, POST, fail

from outreach_async import HttpxTransport, Progress
from outreach_async.errors import InvalidRequest, TransportError

LIBRARIES: dict[str, Any] = {"httpx": httpx, "httpx2": httpx2}
both_libraries = pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)


def over_mock(library: Any, handler: Callable[[Any], Any], **options: Any) -> HttpxTransport:
    return HttpxTransport(library.AsyncClient(base_url=NOWHERE, transport=library.MockTransport(handler), **options))


@both_libraries
def test_the_library_is_recognised_by_the_class_of_the_client(library: Any) -> None:
    class Mine(library.AsyncClient):  # type: ignore[misc]  # either library's
        pass

    transport = HttpxTransport(Mine(base_url="https://user:secret@api.example/v1", verify=False))
    assert repr(transport) == f"<HttpxTransport to https://api.example/v1 by {library.__name__}>"
    assert transport.max_in_flight is None


@both_libraries
@pytest.mark.parametrize("base_url", ["", "/v1", "https://api.example/?page=1"])
def test_a_client_without_a_usable_base_url_is_refused(library: Any, base_url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^base_url: "):
        HttpxTransport(library.AsyncClient(base_url=base_url, verify=False))


@both_libraries
async def test_settings_of_a_client_are_used(library: Any) -> None:
    seen: list[Any] = []

    def handler(request: Any) -> Any:
        seen.append(request)
        return library.Response(200)

    transport = over_mock(
        library,
        handler,
        headers={"x-tenant": "t1"},
        auth=("user", "password"),
        params={"tenant": "t 1"},
        cookies={"own": "cookie"},
    )
    await transport.send(POST, Progress())
    await transport.aclose()
    assert seen[0].headers["x-tenant"] == "t1"
    assert seen[0].headers["authorization"].startswith("Basic ")
    assert seen[0].headers["cookie"] == "own=cookie"
    assert seen[0].url.raw_path in {b"/contacts?tenant=t+1", b"/contacts?tenant=t%201"}
    assert seen[0].content == POST.body


@both_libraries
async def test_digest_authentication_sends_the_body_twice(library: Any) -> None:
    seen: list[bytes] = []

    async def challenge(request: Any) -> Any:
        seen.append(await request.aread())
        if "authorization" in request.headers:
            return library.Response(201)
        return library.Response(401, headers={"www-authenticate": 'Digest realm="r", nonce="n", qop="auth"', "set-cookie": "a=b"})

    transport = over_mock(library, challenge, auth=library.DigestAuth("user", "password"))
    response = await transport.send(POST, Progress())
    await transport.aclose()
    assert (response.status, seen) == (201, [POST.body, POST.body])


@both_libraries
async def test_a_response_already_read_by_a_hook_is_read_again(library: Any) -> None:
    async def hook(response: Any) -> None:
        await response.aread()

    transport = over_mock(library, lambda _: library.Response(200, content=drops()), event_hooks={"response": [hook]})
    assert (await transport.send(GET, Progress())).body == b"droplets"
    await transport.aclose()


async def drops() -> AsyncIterator[bytes]:
    yield b"drop"
    yield b"lets"


@both_libraries
async def test_an_endless_response_of_a_mock_is_refused(library: Any) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000

    client = library.AsyncClient(
        base_url=NOWHERE, transport=library.MockTransport(lambda _: library.Response(200, content=endless()))
    )
    error, _ = await fail(HttpxTransport(client, max_answer=10_000), GET)
    assert "more than max_answer=10000 bytes" in str(error)


@both_libraries
async def test_timeouts_and_redirects_of_a_client_are_disabled(library: Any) -> None:
    seen: list[Any] = []

    def handler(request: Any) -> Any:
        seen.append(request)
        return library.Response(307, headers={"location": "/elsewhere"})

    transport = over_mock(library, handler, timeout=1.0, follow_redirects=True)
    assert (await transport.send(POST, Progress())).status == 307
    await transport.aclose()
    assert [request.extensions["timeout"] for request in seen] == [dict.fromkeys(("connect", "read", "write", "pool"))]


@both_libraries
@pytest.mark.parametrize(
    ("name", "reads", "maybe_sent"),
    [
        ("ConnectError", False, False),
        ("ConnectTimeout", False, False),
        ("PoolTimeout", False, False),
        ("ProxyError", False, False),
        ("UnsupportedProtocol", False, False),
        ("ConnectError", True, True),
        ("ReadTimeout", False, True),
        ("ReadTimeout", True, True),
        ("RemoteProtocolError", False, True),
        ("LocalProtocolError", True, True),
    ],
)
async def test_only_connect_errors_of_a_foreign_transport_prove_nothing_was_sent(
    library: Any,
    name: str,
    reads: bool,
    maybe_sent: bool,
) -> None:
    class Foreign(library.AsyncBaseTransport):  # type: ignore[misc]  # either library's
        async def handle_async_request(self, request: Any) -> Any:
            if reads:
                await request.aread()
            raise getattr(library, name)("a\nreason")

    error, _ = await fail(HttpxTransport(library.AsyncClient(base_url=NOWHERE, transport=Foreign())), POST)
    assert error.maybe_sent is maybe_sent
    assert str(error).endswith(f"{NOWHERE}: {name}: a reason")
    assert type(error.__cause__) is getattr(library, name)


@both_libraries
@pytest.mark.parametrize("authenticated", [False, True])
async def test_a_mocked_refusal_proves_that_nothing_was_sent_without_authentication(library: Any, authenticated: bool) -> None:
    def refuse(request: Any) -> Any:
        raise library.ConnectError("refused", request=request)

    options: Any = {"auth": ("user", "password")} if authenticated else {}
    error, _ = await fail(over_mock(library, refuse, **options), POST)
    assert error.maybe_sent is authenticated


@pytest.mark.parametrize(("name", "maybe_sent"), [("ConnectError", False), ("ConnectTimeout", False), ("ReadTimeout", True)])
@pytest.mark.parametrize("sent_before", [False, True])
async def test_errors_of_respx_prove_what_those_of_httpx_do(name: str, maybe_sent: bool, sent_before: bool) -> None:
    with respx.mock(base_url=NOWHERE) as router:
        router.post("/contacts").mock(side_effect=getattr(httpx, name))
        for service in (NOWHERE, httpx.AsyncClient(base_url=NOWHERE)):
            progress = Progress()
            progress.sent = sent_before or None
            transport = HttpxTransport(service)
            with pytest.raises(TransportError) as caught:
                await transport.send(POST, progress)
            assert caught.value.maybe_sent is (maybe_sent or sent_before)
            await transport.aclose()


@both_libraries
@pytest.mark.parametrize("kind", [RuntimeError, OSError, anyio.ClosedResourceError])
async def test_an_application_that_raises_before_reading_may_have_acted(library: Any, kind: type[Exception]) -> None:
    async def app(*_: object) -> None:
        raise kind

    error, _ = await fail(HttpxTransport(library.AsyncClient(base_url=NOWHERE, transport=library.ASGITransport(app))), POST)
    assert error.maybe_sent is True


@both_libraries
async def test_a_foreign_error_is_raised_unchanged(library: Any) -> None:
    def handler(_: object) -> Any:
        raise KeyError("a mistake of the test's")

    with pytest.raises(KeyError):
        await over_mock(library, handler).send(POST, Progress())
