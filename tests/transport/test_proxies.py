"""Proxies: the error names the one that fails, and loopback needs none."""

from __future__ import annotations

from typing import Any

import aiohttp
import anyio.to_thread
import httpx
import httpx2
import pytest
from support.fuzz import client_of
from support.listener import Listener, refused_port, serve
from support.transport import Script
from support.transports import CLIENTS, NOWHERE, POST, PROXYING, Make, fail, over

from outreach_async import AiohttpTransport, BulkStopped, HttpxTransport, Progress, Response, StatusError, Unauthorized


@over(*PROXYING)
async def test_loopback_is_reached_without_the_proxy_of_the_environment(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = f"http://localhost:{refused_port()}"
    monkeypatch.setenv("http_proxy", refused)
    with Listener(serve()) as listener:
        transport = make(listener.url)
        assert (await transport.send(POST, Progress())).status == 200
        await transport.aclose()
        error, _ = await fail(make(listener.url, proxy=refused), POST)
    assert f"through the proxy {refused}: " in str(error)


@over(*PROXYING, *CLIENTS)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_refuses_is_named_without_its_password(make: Make, scheme: str) -> None:
    port = refused_port()
    error, _ = await fail(make(f"{scheme}://service.example", proxy=f"http://user:secret@localhost:{port}"), POST)
    assert str(error).startswith(f"no connection to {scheme}://service.example through the proxy http://localhost:{port}: ")
    assert str(error).endswith("; check this proxy")
    assert "secret" not in repr(error)


@over(*PROXYING, *CLIENTS)
@pytest.mark.parametrize(("scheme", "status"), [("http", 407), ("https", 407), ("https", 401)])
async def test_a_proxy_that_refuses_the_password_is_asked_once(make: Make, scheme: str, status: int) -> None:
    asks = b"HTTP/1.1 %d Authentication Required\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\n\r\n" % status
    reason = "no body" if status == 407 else "401 Authentication Required"
    with Listener(serve(asks)) as proxy:
        address = f"http://localhost:{proxy.port}"
        told = f"the proxy {address} answered 407: {reason}; check the user and password of the proxy"
        transport = make(f"{scheme}://service.example", proxy=address.replace("//", "//user:secret@"))
        async with client_of(transport) as client:
            with pytest.raises(StatusError) as caught:
                await client.contacts.create(email="ann@company.example")
            with pytest.raises(BulkStopped) as stopped:
                await client.contacts.create_many([{"email": "ann@company.example"}])
        await anyio.to_thread.run_sync(proxy.wait_idle)
    error = caught.value
    assert (str(error), error.attempts, error.status_code) == (f"create_contact: {told}", 1, 407)
    assert (error.maybe_sent, error.maybe_applied) == (scheme == "http", False)  # CONNECT comes before the request
    assert not isinstance(error, Unauthorized)
    assert told in str(stopped.value)
    assert len(proxy.requests) == 2, "it was sent again"
    assert "secret" not in f"{error!r} {stopped.value!r}"


async def test_a_407_stops_a_run_and_names_any_proxy() -> None:
    transport = Script(Response(407))
    async with client_of(transport) as client:
        with pytest.raises(BulkStopped, match=r"a proxy answered 407: no body; check the user and password of the proxy"):
            await client.contacts.create_many([{"email": "ann@company.example"}])


@over(*PROXYING)
async def test_a_proxy_of_the_environment_is_named_as_such(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://user:secret@localhost:{refused_port()}")
    error, _ = await fail(make(NOWHERE), POST)
    assert " of the environment: " in str(error)
    assert str(error).endswith("; check this proxy, or name the host in NO_PROXY to use none")


@pytest.mark.parametrize("library", [httpx, httpx2])
async def test_the_proxy_of_a_client_or_session_is_found_or_none(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://user:secret@proxy.example:1")
    monkeypatch.setenv("no_proxy", "exempt.example")
    clients: Any = {
        "environment": {"base_url": NOWHERE},
        "none": {"base_url": NOWHERE, "trust_env": False},
        "exempt": {"base_url": "http://exempt.example"},
        "mock": {"base_url": NOWHERE, "transport": library.MockTransport(lambda _: library.Response(200))},
    }
    found = {}
    for name, options in clients.items():
        transport = HttpxTransport(library.AsyncClient(verify=False, **options))
        found[name] = transport.proxy
        await transport.aclose()
    assert found == {"environment": "http://proxy.example:1", "none": None, "exempt": None, "mock": None}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_session_that_trusts_the_environment_has_its_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://user:secret@proxy.example:1")
    monkeypatch.setenv("no_proxy", "exempt.example")
    for url, proxy in ((NOWHERE, "http://proxy.example:1"), ("http://exempt.example", None), ("https://service.example", None)):
        transport = AiohttpTransport(aiohttp.ClientSession(f"{url}/", trust_env=True))
        assert transport.proxy == proxy
        await transport.aclose()
