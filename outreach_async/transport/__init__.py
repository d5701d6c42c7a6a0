"""Transports send requests to the service.

They use connections of our own, httpx, httpx2 or aiohttp. A client sends
every request through a `Transport`, which accepts one complete request and
returns one complete response. Many tasks may use a transport at the same
time. Choose a transport:

    SocketTransport("https://api.example")     the fastest; no proxies; the
                                               command uses it unless a
                                               proxy is set
    no transport                               `HttpxTransport` to
                                               `base_url` or
                                               `OUTREACH_BASE_URL`; works
                                               everywhere
    HttpxTransport("https://api.example")      the same, with your own
                                               proxy, SSL context or limits
    HttpxTransport(httpx.AsyncClient(...))     your own httpx client, with
                                               its auth, mounts, mock
                                               transports and connection
                                               pool
    HttpxTransport(url, family="httpx2")       a maintained fork of httpx;
                                               needs the extra `httpx2`
    AiohttpTransport("https://api.example")    fast, also over proxies;
                                               asyncio only; needs the
                                               extra `aiohttp`
    FakeTransport(FakeService())               an in-memory fake of the
                                               service; see
                                               `outreach_async.fake`

In bulk runs, `SocketTransport` takes a fifth of the CPU time of httpx, and
less with the extra `httptools`. One line chooses it:
`OutreachClient(transport=SocketTransport("https://api.example"))`. Without
it, a client uses httpx, which respx and pytest-httpx replace: with another
default, the requests of a test suite could reach the service.

A client closes the transport you pass to it. Transports ignore cookies in
responses, never follow redirects or retry, and have no timeouts: only the
client sets them. A response larger than `max_answer` bytes (16 MiB by
default) raises `TransportError`. A transport made from a URL has its own
connections in each event loop, also in other threads, and `max_in_flight`
limits each.

Your own client
---------------
Pass a configured `httpx.AsyncClient` that has its own `base_url`.
Authentication, event hooks, mounts and the mocks of your tests work as
usual. See `HttpxTransport` for what it costs.

```python
import anyio
import httpx
from outreach_async import HttpxTransport, OutreachClient


def answer(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={"status": "ok", "data": [{"label": "Plan", "code": "custom_1", "searchable": []}]})


async def main() -> None:
    http = httpx.AsyncClient(base_url="https://api.example", transport=httpx.MockTransport(answer))
    async with OutreachClient(transport=HttpxTransport(http)) as client:
        print([field.code for field in await client.workspaces.fields()])  # -> ['custom_1']


anyio.run(main)
```

A server or proxy may send extra bytes after a response, such as a second
copy of it. The connection is then closed. The response before the extra
bytes may itself be a copy of an earlier one, so `send` raises
`TransportError` with `maybe_sent` set, unless it is the first response on
its connection.

Your own client can miss extra bytes. With `httpx.AsyncClient`, a response
is not checked if an event hook or the authentication reads it, or if your
own httpx transport wraps it. An aiohttp session may reuse an idle
connection that has received extra bytes; a request without a body may then
receive them as its response. To prevent this, use each connection once:
`httpx.Limits(max_keepalive_connections=0)` or
`aiohttp.TCPConnector(force_close=True)`. No transport can recognise a copy
that arrives alone after the next request was sent. A creation that is
answered `added` with the id of an earlier response is never certain, and
its connection is closed. A copy without an id is not noticed.

Use HTTP/1.1: with `http2=True`, httpx and httpx2 send all requests in
flight over one connection. If the server ends it (GOAWAY), they fail
together, more fail on the broken connection, and nobody knows which were
applied, so a run repeats them after growing pauses. With a server that
ends each connection after 20 requests, and 64 in flight, a run created 92
to 146 of 300 contacts in 45 s; with `max_in_flight=8`, all in 7 s; with
`http2=False`, all in 3 s; with a transport made from the URL, all in 2 s.

respx, pytest-httpx and vcrpy work without configuration, because a client
uses httpx by default. A mocked `ConnectError` proves, as a real one does,
that nothing was sent. Each mocked creation needs an id of its own: a
static response to two rows has the same id twice, and a run takes the
second one for a copy. vcrpy and other mocks of HTTP libraries cannot see
`SocketTransport`, whose requests reach the service; it warns while a
cassette of vcrpy is active.

Proxies and TLS
---------------
A transport made from a URL uses the environment's proxies and certificates
(`HTTPS_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`, ...), in the same way for
every library, and reads them when it is made. By default, it trusts
certifi's certificates. Loopback addresses, such as `localhost` and
`127.0.0.1`, need no `NO_PROXY`: only `proxy=` sends their requests to a
proxy. `SocketTransport` does not support proxies, and raises an error if
the environment sets a proxy for the URL; name the host in `NO_PROXY` to
connect directly. `proxy=` overrides the environment's proxy.
`ssl_context=` sets the trusted certificates and may contain a client
certificate. `trust_env=False` ignores the whole environment. A user and
password in a URL are sent as basic authorization, and masked in every
error.

An error of a request through a proxy names the proxy, and status 407 is
the proxy's: it asks for a user and password in the URL of the proxy, and
says nothing about the owner key. It is not retried, and ends a run. For
https, it comes before the request, and `maybe_sent` is false. A redirect
is an error that names its address, and the `base_url` to pass.

Writing middleware
------------------
Middleware is a transport that wraps another: derive it from `Middleware`,
which forwards everything else. `send` receives a `Request` and a
`Progress` and returns a `Response` with any status. If no complete
response arrives, it raises `TransportError`.

`progress.sent` determines `maybe_sent` of every error, even if a client
timeout has cancelled the transport. Set it to `False` while it is certain
that no byte was sent, and to `True` before the first byte is sent. The
client removes the traceback frames of errors that `send` raises, because
their locals can show secrets. If such an error is not an `OutreachError`,
a note states where it was raised. Add your own secrets to those of the
wrapped transport, so that errors mask them.

```python
import anyio
from outreach_async import HttpxTransport, Middleware, OutreachClient
from outreach_async import Progress, Request, Response, Transport


class Signing(Middleware):
    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.secrets = (*self.secrets, "hunter2")

    async def send(self, request: Request, progress: Progress, /) -> Response:
        headers = {**request.headers, "x-signature": "hunter2"}
        signed = Request(request.method, request.target, headers, request.body)
        return await super().send(signed, progress)


async def main(url: str) -> None:
    transport = Signing(HttpxTransport(url))
    async with OutreachClient(transport=transport) as client:
        print(len(await client.workspaces.fields()), "fields at", transport.base_url)  # -> 37 fields at http://...


if __name__ == "__main__":
    import os

    anyio.run(main, os.environ["OUTREACH_BASE_URL"])
```

After a fork, make new clients: a transport that the parent used raises
`InvalidRequest` in the child, and can be closed there.
"""
