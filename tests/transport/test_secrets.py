"""Secrets in the URLs and clients of a transport are masked like those of the client."""

from __future__ import annotations

import traceback
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
from support.listener import Listener, Peer, refused_port
from support.transports import MAKERS, OWN, PROXYING, Make, over

from outreach_async import AiohttpTransport, HttpxTransport, OutreachClient, OutreachError, RetryPolicy

WORD = "hunter2é"
PAIR = "dXNlcjpodW50ZXIyw6k="
USER = "user:hunter2%C3%A9"


def echo(peer: Peer) -> None:
    """Refuse every request and echo it."""
    while True:
        head = peer.request()
        echoed = b'{"status":"error","message":"%b is no %b"}' % (head.replace(b"\r\n", b" "), WORD.encode())
        peer.send(
            b"HTTP/1.1 401 %b\r\nx-echo: %b\r\ncontent-length: %d\r\n\r\n%b" % (PAIR.encode(), PAIR.encode(), len(echoed), echoed)
        )


async def all_that_shows(client: OutreachClient) -> str:
    with pytest.raises(OutreachError) as caught:
        await client.campaigns.list(workspace="space_1")
    return f"{client!r} {caught.value!r} {vars(caught.value)} {''.join(traceback.format_exception(caught.value))}"


@over(*OWN)
async def test_a_password_of_a_url_or_proxy_echoed_by_the_service_is_shown_nowhere(make: Make) -> None:
    with Listener(echo) as listener:
        url = f"http://{USER}@localhost:{listener.port}"
        transports = [make(url)]
        if make in [MAKERS[name] for name in PROXYING]:
            transports.append(make("http://service.example", proxy=url))
        for transport in transports:
            async with OutreachClient(transport=transport, retry=RetryPolicy(attempts=1)) as client:
                for each in (client, client.with_options(timeout=5.0)):
                    shown = await all_that_shows(each)
                    assert "***" in shown
                    assert WORD not in shown
                    assert PAIR not in shown
        assert listener.received.count(PAIR.encode()) >= 2 * len(transports)


@over(*PROXYING)
async def test_a_refused_tunnel_shows_no_password(make: Make) -> None:
    with Listener(echo) as proxy:
        transport = make("https://service.example", proxy=f"http://{USER}@localhost:{proxy.port}")
        async with OutreachClient(transport=transport, retry=RetryPolicy(attempts=1)) as client:
            shown = await all_that_shows(client)
        assert "401 ***" in shown
        assert PAIR not in shown


async def test_credentials_of_a_client_or_session_are_secrets(anyio_backend: Any) -> None:
    fields = {"authorization": "Bearer abcdef", "x-tenant": "tenant"}
    for library in (httpx, httpx2):
        client = library.AsyncClient(base_url=f"http://{USER}@localhost:{refused_port()}", headers=fields, verify=False)
        assert HttpxTransport(client).secrets == (WORD, PAIR, "Bearer abcdef", "abcdef")
        await client.aclose()
    if anyio_backend[0] == "asyncio":
        async with aiohttp.ClientSession(f"http://{USER}@localhost", headers=fields) as session:
            assert AiohttpTransport(session).secrets == (WORD, PAIR, "Bearer abcdef", "abcdef")
