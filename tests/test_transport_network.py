"""Certificates and proxies: the environment's and those that are given."""

from __future__ import annotations

from pathlib import Path

import pytest
from support_certificates import certificates
from support_listener import Listener, answer_once, refused_port, serve
from support_transports import GET, NOWHERE, POST, Make, fail, over

from outreach_async.errors import InvalidRequest
from outreach_async.transport.wire import Progress

BOTH = ("httpx", "httpx2")


@over(*BOTH)
async def test_the_environments_certificates_are_trusted(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pem = tmp_path / "authority.pem"
    certificates().authority.cert_pem.write_to_path(str(pem))
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    with Listener(serve(), tls=certificates().server) as listener:
        trusting, distrusting = make(listener.url), make(listener.url, trust_env=False)
        assert (await trusting.send(POST, Progress())).status == 200
        await trusting.aclose()
        error, _ = await fail(distrusting, POST)
        assert error.maybe_sent is False
        assert "CERTIFICATE_VERIFY_FAILED" in str(error)


@over(*BOTH)
async def test_certificates_that_cannot_be_read_are_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    with pytest.raises(
        InvalidRequest, match=r"^ssl_context: what SSL_CERT_FILE or SSL_CERT_DIR names cannot be read: FileNotFound"
    ):
        await make("https://localhost").send(POST, Progress())


@over(*BOTH, "aiohttp")
@pytest.mark.parametrize("source", ["the environment", "an option"])
async def test_a_proxy_gets_the_request_and_its_password_shows_nowhere(
    make: Make, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Listener(serve()) as proxy:
        url = f"http://user:secret@localhost:{proxy.port}"
        if source == "the environment":
            monkeypatch.setenv("http_proxy", url)
            transport = make(NOWHERE)
        else:
            transport = make(NOWHERE, proxy=url)
        assert (await transport.send(POST, Progress())).status == 200
        await transport.aclose()
        assert proxy.requests[0].startswith(b"POST http://service.example/contacts HTTP/1.1\r\n")
        assert b"proxy-authorization: basic dxnlcjpzzwnyzxq=\r\n" in proxy.requests[0].lower()
        assert "secret" not in repr(transport)


@over(*BOTH, "aiohttp")
async def test_no_proxy_and_distrust_keep_the_environments_proxy_out(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://localhost:{refused_port()}")
    with Listener(serve()) as listener:
        transport = make(listener.url, trust_env=False)
        assert (await transport.send(POST, Progress())).status == 200
        await transport.aclose()
        monkeypatch.setenv("no_proxy", "localhost")
        transport = make(listener.url)
        assert (await transport.send(POST, Progress())).status == 200
        await transport.aclose()


@over(*BOTH, "aiohttp")
@pytest.mark.parametrize(
    "refusal",
    [
        b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n",
        b"",
        b"HTTP/1.1 200 Connected\r\n\r\nno TLS at all, whatever you say",
    ],
    ids=["refused", "closed", "connected to something else"],
)
async def test_what_a_proxy_does_not_let_through_is_certainly_not_sent(make: Make, refusal: bytes) -> None:
    with Listener(answer_once(refusal)) as proxy:
        transport = make("https://service.example", proxy=f"http://user:secret@localhost:{proxy.port}")
        error, _ = await fail(transport, POST)
        assert error.maybe_sent is False
        assert proxy.requests[0].startswith(b"CONNECT service.example:443 ")
        assert "secret" not in f"{error!r} {error.__cause__!r} {error.__context__!r}"


@over(*BOTH, "aiohttp")
async def test_a_proxy_that_cannot_be_reached_is_certainly_not_sent_to(make: Make) -> None:
    transport = make(NOWHERE, proxy=f"http://user:secret@localhost:{refused_port()}")
    error, _ = await fail(transport, GET)
    assert error.maybe_sent is False
    assert "secret" not in f"{error!r} {error.__cause__!r} {error.__context__!r}"


@over(*BOTH)
async def test_a_proxy_behind_tls_is_verified_like_the_service(make: Make) -> None:
    with Listener(serve(), tls=certificates().server) as proxy:
        transport = make(NOWHERE, tls=certificates().client, proxy=f"https://localhost:{proxy.port}")
        assert (await transport.send(POST, Progress())).status == 200
        await transport.aclose()
        assert proxy.requests[0].startswith(b"POST http://service.example/contacts ")
