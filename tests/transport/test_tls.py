"""TLS trust and proxies: verified by default, configured by the environment, and shared between transports."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from support.certificates import certificates, mutual
from support.listener import Listener, over_tls, serve, tunnel
from support.transports import (
    ALL,
    LOOPS,
    MAKERS,
    NOWHERE,
    OWN,
    POST,
    PROXYING,
    Make,
    connected,
    fail,
    over,
    own_client,
    pairs,
)

from outreach_async import Progress
from outreach_async._plumbing import Backend
from outreach_async.errors import InvalidRequest
from outreach_async.transport._backends import BACKENDS
from outreach_async.transport._base import load_context

LIBRARIES = [*BACKENDS]


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """Return the certificate of an authority that is trusted only if the environment says so."""
    pem = tmp_path / "authority.pem"
    certificates().authority.cert_pem.write_to_path(str(pem))
    return pem


@pytest.mark.parametrize(
    ("name", "anyio_backend"),
    [pytest.param(name, LOOPS[loop], id=f"{name}-{loop}") for name, loop in pairs(*ALL)],
    indirect=["anyio_backend"],
)
async def test_by_default_a_certificate_of_an_unknown_authority_is_refused(name: str) -> None:
    with Listener(serve(), tls=certificates().server) as listener:
        if name in OWN:
            transport = MAKERS[name](listener.url)
        else:
            client, adapt = own_client(name, listener.url)
            transport = adapt(client)
        error, _ = await fail(transport, POST)
        assert "CERTIFICATE_VERIFY_FAILED" in str(error)
        assert (error.maybe_sent, listener.requests) == (False, [])


@over(*OWN)
@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
async def test_certificates_of_the_environment_are_read_once_and_only_with_trust_env(
    make: Make, variable: str, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "")
    monkeypatch.setenv(variable, str(authority) if variable == "SSL_CERT_FILE" else str(hashed(authority)))
    with Listener(serve(), tls=certificates().server) as listener:
        trusting, distrusting = make(listener.url), make(listener.url, trust_env=False)
        monkeypatch.delenv(variable)  # the environment is read when a transport is made
        assert (await trusting.send(POST, Progress())).status == 200
        await trusting.aclose()
        error, _ = await fail(distrusting, POST)
        assert error.maybe_sent is False
        assert "CERTIFICATE_VERIFY_FAILED" in str(error)


def hashed(certificate: Path) -> Path:
    """Return a folder in which OpenSSL finds the certificate by the hash of its subject."""
    folder = certificate.parent / "folder"
    folder.mkdir()
    (folder / f"{subject_hash(certificate.read_bytes())}.0").write_bytes(certificate.read_bytes())
    return folder


def subject_hash(certificate: bytes) -> str:
    """Return the SHA-1 of the subject's lower-cased attributes, as X509_NAME_hash computes it."""

    def der(tag: int, content: bytes) -> bytes:
        return bytes([tag, len(content)]) + content

    names = b""
    for attribute in x509.load_pem_x509_certificate(certificate).subject:
        oid = bytes([0x55, 4, int(attribute.oid.dotted_string.rpartition(".")[2])])
        names += der(0x31, der(0x30, der(6, oid) + der(0x0C, str(attribute.value).lower().encode())))
    return hashlib.sha1(names, usedforsecurity=False).digest()[3::-1].hex()


@over(*OWN)
async def test_unreadable_certificates_are_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    with pytest.raises(InvalidRequest, match=r"^SSL_CERT_FILE, SSL_CERT_DIR: cannot read certificates \(FileNotFound"):
        await make("https://localhost").send(POST, Progress())


# Transports with the same trust settings share one context.


@pytest.mark.parametrize("library", LIBRARIES)
def test_transports_with_the_same_certificates_share_one_context(library: Backend, authority: Path) -> None:
    file, folder = str(authority), str(authority.parent)
    shared = load_context(library, None, None)
    assert load_context(library, None, None) is shared
    assert load_context(library, file, folder) is load_context(library, file, folder) is not shared
    assert load_context(library, file, folder) is not load_context(library, None, folder)
    assert (shared.verify_mode, shared.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_a_replaced_file_is_read_again(authority: Path) -> None:
    before = load_context("httpx", str(authority), None)
    replacement = authority.with_name("new.pem")
    replacement.write_bytes(authority.read_bytes() * 2)
    replacement.replace(authority)
    assert load_context("httpx", str(authority), None) is not before


@over(*OWN)
async def test_a_context_passed_by_the_user_takes_precedence(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    async with connected(make, serve(), server=certificates().server, tls=certificates().client) as (transport, _):
        assert (await transport.send(POST, Progress())).status == 200


@pytest.mark.parametrize("library", ["aiohttp", "sockets"])
def test_others_trust_what_httpx_trusts(library: Backend) -> None:
    names: tuple[Backend, Backend] = (library, "httpx")
    by_other, by_httpx = (load_context(name, None, None).get_ca_certs(binary_form=True) for name in names)
    assert sorted(by_other) == sorted(by_httpx) != []


# Client certificates and proxies.


@over(*PROXYING, "httpx_client", "httpx2_client", "aiohttp_session")
async def test_a_client_certificate_works_through_a_proxy_with_a_password(make: Make) -> None:
    keys = mutual()
    with Listener(tunnel(over_tls(keys.server, serve()))) as proxy:
        transport = make("https://localhost:1", tls=keys.client, proxy=f"http://user:p%40ssword@localhost:{proxy.port}")
        assert (await transport.send(POST, Progress())).status == 200
        assert "ssword" not in repr(transport)
        await transport.aclose()
        head = proxy.peers[0].received.partition(b"\r\n\r\n")[0].lower()
    assert head.startswith(b"connect localhost:1 http/1.1\r\n")
    assert b"\r\nproxy-authorization: basic dxnlcjpwqhnzd29yza==" in head


@over(*PROXYING)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_the_password_of_a_proxy_may_have_any_characters(make: Make, scheme: str) -> None:
    behaviour = tunnel(over_tls(certificates().server, serve())) if scheme == "https" else serve()
    with Listener(behaviour) as proxy:
        url = f"http://us%C3%A9r:p%40ss%E2%82%AC@localhost:{proxy.port}"
        transport = make(f"{scheme}://localhost:1", tls=certificates().client, proxy=url)
        assert (await transport.send(POST, Progress())).status == 200
        await transport.aclose()
    assert b"proxy-authorization: basic dxpdqxi6cebzc+kcra==\r\n" in proxy.peers[0].received.lower()


@over(*ALL)
async def test_without_a_client_certificate_a_service_that_requires_one_refuses(make: Make) -> None:
    with Listener(serve(), tls=mutual().server) as listener:
        await fail(make(listener.url, tls=certificates().client), POST)
        assert listener.requests == []


@over(*PROXYING)
async def test_a_proxy_behind_tls_is_verified_like_the_service(make: Make) -> None:
    with Listener(serve(), tls=certificates().server) as proxy:
        transport = make("http://service.example", tls=certificates().client, proxy=f"https://localhost:{proxy.port}")
        assert (await transport.send(POST, Progress())).status == 200
        await transport.aclose()
    with Listener(serve(), tls=certificates().stranger) as proxy:
        error, _ = await fail(
            make("http://service.example", tls=certificates().client, proxy=f"https://localhost:{proxy.port}"), POST
        )
        assert error.maybe_sent is False
        assert "CERTIFICATE_VERIFY_FAILED" in str(error)


# Proxies of the environment.


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
    monkeypatch.setenv("http_proxy", "http://proxy.example")
    transports: Any = [make(NOWHERE), make(NOWHERE, trust_env=False)]
    monkeypatch.setenv("no_proxy", "service.example")
    transports.append(make(NOWHERE))
    assert [each.proxy for each in transports] == ["http://proxy.example", None, None]


# Certificates that are not trusted.


@over(*ALL)
async def test_an_unknown_issuer_is_named_with_what_trusts_it(make: Make) -> None:
    with Listener(serve(), tls=certificates().server) as listener:
        error, _ = await fail(make(f"https://localhost:{listener.port}", tls=ssl.create_default_context()), POST)
    remedy = "to trust its issuer, set SSL_CERT_FILE to a file with the certificate of the issuer"
    assert str(error).endswith(f"; {remedy}")
