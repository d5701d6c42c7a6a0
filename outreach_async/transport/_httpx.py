"""Send requests over httpx or httpx2.

Each transport imports only the library that it uses, and not before the first request.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final, Literal, Protocol

import anyio

from outreach_async._files.optional import require_module
from outreach_async.errors import InvalidRequest, OutreachError
from outreach_async.transport._base import DEFAULT_CONNECTIONS, BaseTransport
from outreach_async.transport._response_reader import MAX_ANSWER
from outreach_async.transport._secret import drop_frames
from outreach_async.transport._sending import describe_cause, refuse_credentials, to_one_line
from outreach_async.transport._urls import find_library, reject_options
from outreach_async.transport._wire import Progress, Response

Family = Literal["httpx", "httpx2"]
FAMILIES: Final[dict[str, Family]] = {"httpx": "httpx", "httpx2": "httpx2"}

_CONNECTION_ERRORS: Final = (
    AttributeError,  # raised by anyio on uvloop for a connection that was reset as soon as it was made
    OSError,  # includes ssl.SSLError
    RuntimeError,  # raised for a closed event loop or client
    anyio.BrokenResourceError,
    anyio.BusyResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
)


class HttpxClient(Protocol):
    """Protocol that stands for `httpx.AsyncClient` and `httpx2.AsyncClient` in type annotations."""

    # If annotations named httpx's own class, mypy would check httpx in every program that uses `outreach_async`.

    @property
    def base_url(self) -> Any: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def aclose(self) -> None: ...


class HttpxTransport(BaseTransport):
    """Sends requests over httpx or its fork httpx2.

    A transport made from a base URL keeps a pool of httpx or httpx2
    transports in each event loop, each with a single connection. A request
    closes the connections that were idle for more than 5 seconds.

    A transport made from a client uses the client's pool, authentication,
    proxies, mounts and mock transports unchanged. The client must have a
    `base_url`. The transport takes ownership of the client: it closes the
    client, and replaces the client's cookie jar with one that keeps the
    client's own cookies. The client's timeouts are disabled. The transport
    works only in the first event loop that uses it.

    With 64 requests in flight, a client takes four to five times the CPU
    time of a transport made from a URL. If several requests are cancelled
    simultaneously, the pool of httpx 0.28 can permanently lose
    connections, and that of httpx2 too, but less often and only over TLS.
    When no connection is left, every request times out. A transport made
    from a URL has its own pool, to which this cannot happen. Do not pass a
    client with `http2=True`; see `outreach_async.transport`.

    Args:
        service: The service's base URL, or an `httpx.AsyncClient` or
            `httpx2.AsyncClient`.
        family: The library to use for a URL, by default `httpx`. For a
            client, the library is detected from the client's class.
        max_in_flight: Maximum number of concurrent exchanges. For a URL,
            this is the number of connections, 64 by default. For a client,
            the only default limit is that of its pool, which httpx does
            not expose.
        ssl_context: SSL context for the service and an HTTPS proxy,
            instead of the environment's certificates. Only for a URL.
        proxy: A proxy URL (`http`, `https` or `socks5`) that overrides the
            environment's proxy. Only for a URL.
        trust_env: Whether to use the environment's proxies and
            certificates. Only for a URL.
        max_answer: Maximum size of a decoded response body, in bytes.

    Attributes:
        max_in_flight: The maximum number of concurrent exchanges; `None`
            for a client if no `max_in_flight` was passed.
        base_url: The base URL of all requests, without user and password.
        proxy: The proxy that the requests take, without user and password;
            `None` for none.
        secrets: Passwords and authorization values that `OutreachClient`
            masks in errors. Values that a client's `auth` adds are unknown
            to the transport, and are not masked.

    Raises:
        InvalidRequest: An argument is invalid, or a required package is
            not installed.

    Example:
        ```python
        transport = HttpxTransport("https://api.example/v1", max_in_flight=16, proxy="http://proxy.example:8080")
        print(transport)  # -> <HttpxTransport to https://api.example/v1 by httpx>
        ```
    """

    base_url: str
    _proxy_schemes = ("http", "https", "socks5", "socks5h")

    @drop_frames
    def __init__(
        self,
        service: str | HttpxClient,
        /,
        *,
        family: Family | None = None,
        max_in_flight: int | None = None,
        ssl_context: ssl.SSLContext | None = None,
        proxy: str | None = None,
        trust_env: bool = True,
        max_answer: int = MAX_ANSWER,
    ) -> None:
        url = service if isinstance(service, str) else None
        if url is None:
            reject_options("client", ssl_context=ssl_context, proxy=proxy, trust_env=None if trust_env else False)
            detected = FAMILIES.get(find_library(service, "AsyncClient") or "")
            if detected is None or family not in (None, detected):
                expected = f"a base URL or an {family or 'httpx'}.AsyncClient"
                raise InvalidRequest(f"transport: expected {expected}, got {type(service).__name__}; pass one of them")
            family = detected
        elif family not in (None, *FAMILIES):
            got = repr(family) if isinstance(family, str) and family.isalpha() else type(family).__name__
            raise InvalidRequest(f"family: expected one of {', '.join(FAMILIES)}, got {got}; pass one of them")
        self._family = family or "httpx"
        self._suffix = f" by {self._family}"
        super().__init__(self._family, url, max_in_flight, ssl_context, proxy, trust_env=trust_env, max_answer=max_answer)
        if url is None:
            from outreach_async.transport._httpx_pool import adopt_client, close_client, find_proxy

            self._client, self._close_client = service, partial(close_client, service)
            self.base_url, self.secrets = adopt_client(service, self._family)
            self.proxy = find_proxy(service)
        elif self._proxy and self._proxy.startswith("socks"):
            require_module("socksio", f"{self._family}[socks]")

    def _open(self) -> Any:
        from outreach_async.transport._httpx_pool import ClientSender, HttpxPool  # a slow import

        if self._base is not None:
            limit = self.max_in_flight or DEFAULT_CONNECTIONS
            context, proxy = self._get_context(), self._proxy
            return HttpxPool(self._base, self._family, limit, self._max_answer, context=context, proxy=proxy)
        self._require_home("the AsyncClient was used in another event loop; make a new client and transport")
        return ClientSender(self._client, self._family, self.max_in_flight, self._max_answer)

    def _translate_error(self, error: Exception, progress: Progress) -> OutreachError | Response | None:
        library = import_module(self._family)
        if not isinstance(error, (*_CONNECTION_ERRORS, library.HTTPError, library.InvalidURL)):
            return None
        if isinstance(error, library.LocalProtocolError | library.InvalidURL) and progress.sent is not True:
            # The error quotes the invalid value, which may be a header of the client with a secret in it.
            text = "the request is not valid HTTP; correct its method, its target or the client's own headers"
            return InvalidRequest(text)
        is_answer = isinstance(error, library.ProxyError) and str(error)[:1].isdigit()  # a status and its reason, to CONNECT
        if is_answer and (refusal := refuse_credentials(str(error))):
            return refusal
        detail = f"the proxy answered {to_one_line(str(error))}" if is_answer else describe_cause(error)
        return self._build_failure(detail, progress, error)
