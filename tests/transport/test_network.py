"""Proxies of the environment, and those passed by the user."""

from __future__ import annotations

import pytest
from support.listener import Listener, refused_port, serve
from support.transports import NOWHERE, POST, PROXYING, Make, over

from outreach_async.errors import InvalidRequest
from outreach_async.transport._wire import Progress


@over(*PROXYING)
async def test_a_proxy_of_the_environment_gets_the_request_and_hides_its_password(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Listener(serve()) as proxy:
        monkeypatch.setenv("http_proxy", f"http://user:secret@localhost:{proxy.port}")
        transport = make(NOWHERE)
        assert (await transport.send(POST, Progress())).status == 200
        await transport.aclose()
        assert proxy.requests[0].startswith(b"POST http://service.example/contacts HTTP/1.1\r\n")
        assert b"proxy-authorization: basic dxnlcjpzzwnyzxq=\r\n" in proxy.requests[0].lower()
        assert "secret" not in repr(transport)


@over(*PROXYING)
async def test_an_unusable_proxy_of_the_environment_is_reported(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "gopher://user:secret@proxy.example")
    with pytest.raises(
        InvalidRequest, match=r"^HTTP_PROXY, HTTPS_PROXY or ALL_PROXY: expected a URL .* schemes http, https"
    ) as caught:
        make(NOWHERE)
    assert "secret" not in str(caught.value)


@over(*PROXYING)
async def test_no_proxy_and_trust_env_false_disable_the_proxy(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://localhost:{refused_port()}")
    with Listener(serve()) as listener:
        transport = make(listener.url, trust_env=False)
        assert (await transport.send(POST, Progress())).status == 200
        await transport.aclose()
        monkeypatch.setenv("no_proxy", "localhost")
        transport = make(listener.url)
        assert (await transport.send(POST, Progress())).status == 200
        await transport.aclose()
