"""Where bytes leave the process: the seam (`wire`) and one small adapter a library.

A client speaks to a `Transport`: whole bytes in, whole bytes out, one request at a time, from many tasks at once. Choose one:

    nothing given                              `HttpxTransport` to `base_url` or `OUTREACH_BASE_URL`; works everywhere
    HttpxTransport("https://api.example")      the same, with a proxy, an SSL context or limits of your own
    HttpxTransport(httpx.AsyncClient(...))     your own client: auth, mounts, mock transports, respx; its pool as it is
    HttpxTransport(url, family="httpx2")       the maintained fork, with the extra `httpx2`; a client of it is told by its class
    AiohttpTransport("https://api.example")    the fastest, on asyncio only, with the extra `aiohttp`
    FakeTransport(FakeService())               the service in memory, see `outreach_async.fake`

```python
import os

import anyio
from outreach_async import AiohttpTransport, OutreachClient


async def main() -> None:
    transport = AiohttpTransport(os.environ["OUTREACH_BASE_URL"], max_in_flight=16)
    async with OutreachClient(transport=transport) as client:
        print(len(await client.workspaces.fields()), "fields")  # -> 37 fields


anyio.run(main)
```

A client closes the transport that it was given. Both adapters keep cookies of no answer, follow no redirect, repeat nothing, and
have no timeout of their own: the client has the one clock. An answer over `max_answer` bytes (16 MiB) is an error.

Your own client
---------------
Hand over a configured `httpx.AsyncClient`, with its own `base_url`: authentication, event hooks, mounts, and the mocks that your
tests know work beneath it. The transport takes the client over, and closes it. It costs what the client costs, and its pool may
suffer from cancelled requests as it always does; from a URL each exchange has a connection of its own for its time.

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

A connection with bytes behind a response, such as a copy of it, is never used again. Unless the response was the connection's
first, it may belong to an earlier request: `send` raises `TransportError` with `maybe_sent`. In a client of yours, two kinds
of responses return to the pool unchecked: those that an event hook or its authentication reads, and those that a transport of
yours wraps. A session of aiohttp's may use a connection on which bytes arrived while it was idle; the response is then in
doubt, for a request without a body only if the event loop had read those bytes. To be safe, use each connection once:
`httpx.Limits(max_keepalive_connections=0)`, `aiohttp.TCPConnector(force_close=True)`. On every transport, a copy that arrives
after the next request was sent and apart from its response cannot be recognised.

respx needs nothing special, as httpx is what a client takes by itself:

```python
import anyio
import respx
from outreach_async import OutreachClient


@respx.mock
async def main() -> None:
    respx.get("https://api.example/workspaces/space_1/all-fields").respond(json={"status": "ok", "data": []})
    async with OutreachClient("https://api.example") as client:
        print(await client.workspaces.fields())  # -> []


anyio.run(main)
```

Proxies and TLS
---------------
From a URL the environment's proxies and certificates count (`HTTPS_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`, ...), with both libraries
alike; `trust_env=False` leaves them out. `proxy=` names one instead, `ssl_context=` says what is trusted and may hold a client's
certificate. User and password in a URL become basic authorization. Such secrets are masked in every error.

```python
import ssl

from outreach_async import HttpxTransport

context = ssl.create_default_context()
print(HttpxTransport("https://user:secret@api.example/v1", ssl_context=context, proxy="http://proxy.example:8080"))
# -> <HttpxTransport to https://api.example/v1 by httpx>
```

Middleware, and writing one
---------------------------
A transport that wraps another is all there is to middleware. `send` gets a `Request` and a `Progress`, and returns a `Response`
of whatever status. It raises `TransportError` where no whole answer arrived.

`progress.sent` is the evidence that decides `maybe_sent` of every error, also when the client's clock has cancelled the
transport: set it to `False` while it is certain that no byte has left, and to `True` before the first one does; `None`, as it
comes, counts as maybe. The frames of whatever `send` raises are dropped, for tracebacks may show locals; a note says where an
error that is no `OutreachError` was raised. Two attributes are optional: `max_in_flight` bounds the client's limiter, and
`secrets` are texts to mask in errors; one that wraps another passes them on.

```python
import anyio
from outreach_async import HttpxTransport, OutreachClient, Progress, Request, Response, Transport


class Signing:
    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.max_in_flight = getattr(inner, "max_in_flight", None)
        self.secrets = (*getattr(inner, "secrets", ()), "hunter2")

    async def send(self, request: Request, progress: Progress, /) -> Response:
        signed = Request(request.method, request.target, {**request.headers, "x-signature": "hunter2"}, request.body)
        return await self._inner.send(signed, progress)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def main(url: str) -> None:
    async with OutreachClient(transport=Signing(HttpxTransport(url))) as client:
        print(len(await client.workspaces.fields()), "fields")  # -> 37 fields


if __name__ == "__main__":
    import os

    anyio.run(main, os.environ["OUTREACH_BASE_URL"])
```

After a fork, make new clients: a transport that the parent has used refuses to work in the child.
"""
