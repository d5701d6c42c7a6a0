"""Send requests over connections of our own. This transport is the fastest, but does not support proxies.

No parser is imported before the first request.
"""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio

from outreach_async.errors import InvalidRequest, OutreachError
from outreach_async.transport._base import DEFAULT_CONNECTIONS, BaseTransport
from outreach_async.transport._response_reader import MAX_ANSWER
from outreach_async.transport._secret import drop_frames
from outreach_async.transport._sending import (
    METHODS_WITH_BODY,
    describe_cause,
    is_recorded_by_vcrpy,
    merge_headers,
    require_origin_form,
)
from outreach_async.transport._urls import DEFAULT_PORTS, encode_host, parse_base_url
from outreach_async.transport._wire import Progress, Request, Response

if TYPE_CHECKING:
    from outreach_async.transport._socket_reader import HeadParser

_CONNECTION_ERRORS: Final = (
    OSError,  # includes ssl.SSLError
    UnicodeError,  # raised for a host name that is too long for DNS
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,  # raised if the server closes the connection within the handshake
)


class SocketTransport(BaseTransport):
    """Sends requests over its own connections, with the least CPU time.

    It runs on asyncio, uvloop and trio. It does not support proxies, and
    accepts only a base URL: use `HttpxTransport` for proxies, for your own
    client, and for mocks and recorders such as respx and vcrpy. While a
    cassette of vcrpy is active, a request warns that it is sent unseen.

    h11 parses the responses; with the extra `httptools`, llhttp does, in
    less time and with the same results.

    If the host has several addresses, the transport tries them as
    described in RFC 8305. An idle connection is reused for up to 5 seconds
    after its last response; a later request closes it.

    Args:
        base_url: The service's base URL.
        max_in_flight: Maximum number of connections and exchanges at once.
        proxy: Must be `None`: this transport does not support proxies.
        trust_env: Whether to use the environment's certificates. If true,
            and the environment sets a proxy for the URL, the constructor
            raises `InvalidRequest`.
        ssl_context, max_answer: As for `HttpxTransport`.

    Attributes:
        max_in_flight, base_url, secrets: As of `HttpxTransport`. `proxy`
            is always `None`.

    Raises:
        InvalidRequest: An argument is invalid, the arguments or the
            environment set a proxy, or h11 is not installed.

    Example:
        ```python
        transport = SocketTransport("https://api.example/v1", max_in_flight=16)
        print(transport)  # -> <SocketTransport to https://api.example/v1>
        ```
    """

    base_url: str
    max_in_flight: int
    _proxy_schemes = ("http", "https", "socks4", "socks4a", "socks5", "socks5h")  # refused by name, with the remedy

    @drop_frames
    def __init__(
        self,
        base_url: str,
        /,
        *,
        max_in_flight: int = DEFAULT_CONNECTIONS,
        ssl_context: ssl.SSLContext | None = None,
        proxy: str | None = None,
        trust_env: bool = True,
        max_answer: int = MAX_ANSWER,
    ) -> None:
        url: object = base_url
        if not isinstance(url, str):
            expected = "a base URL such as 'https://api.example'"
            raise InvalidRequest(f"base_url: expected {expected}, got {type(url).__name__}; pass a URL")
        # Requests that bypass a proxy may be forbidden, or may fail.
        remedy = "use HttpxTransport or AiohttpTransport (on the command line: --backend httpx or --backend aiohttp)"
        got = f"got a proxy, which SocketTransport does not support; {remedy}"
        if proxy is not None:
            raise InvalidRequest(f"proxy: expected None, {got}")
        super().__init__("sockets", url, max_in_flight, ssl_context, None, trust_env=trust_env, max_answer=max_answer)
        if self._proxy is not None:
            expected = f"expected no proxy for {self.base_url}"
            raise InvalidRequest(f"HTTP_PROXY, HTTPS_PROXY or ALL_PROXY: {expected}, {got}, or name the host in NO_PROXY")
        base = self._origin = parse_base_url(base_url)
        self._host = encode_host(base.host)
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._default_headers = {"host": host if base.port is None else f"{host}:{base.port}", **base.headers}
        self._last_head: tuple[str, str, Mapping[str, str], bytes] = ("", "", {}, b"")

    def _open(self) -> Any:
        # Separate modules, because they import a parser and asyncio.
        from outreach_async.transport._socket_pool import Origin, open_pool

        port = self._origin.port or DEFAULT_PORTS[self._origin.scheme]
        return open_pool(
            Origin(self._host, port, self._get_context()), self.max_in_flight, self._max_answer, self._choose_parser()
        )

    def _choose_parser(self) -> HeadParser:
        from outreach_async.transport._socket_reader import choose_parser

        return choose_parser()

    def _encode(self, request: Request) -> bytes:
        # All requests of a bulk run have the same head.
        method, target, headers, head = self._last_head
        if request.method != method or request.target != target or request.headers != headers:
            fields = merge_headers(request, self._default_headers)
            fields.pop("content-length", None)
            line = f"{request.method} {self._origin.path}{require_origin_form(request.target)} HTTP/1.1\r\n"
            head = (line + "".join(f"{name}: {value}\r\n" for name, value in fields.items())).encode("ascii")
            self._last_head = (request.method, request.target, dict(request.headers), head)
        if request.body or request.method in METHODS_WITH_BODY:
            return b"%bcontent-length: %d\r\n\r\n%b" % (head, len(request.body), request.body)
        return head + b"\r\n"

    def _start(self, request: Request, progress: Progress) -> Coroutine[Any, Any, Response]:
        if is_recorded_by_vcrpy():
            text = "a cassette of vcrpy is active, but it neither records nor replays requests of SocketTransport, which are sent"
            warnings.warn(f"{text}; use HttpxTransport", RuntimeWarning, stacklevel=2)
        exchange: Coroutine[Any, Any, Response] = self._senders.get().send(self._encode(request), request.method, progress)
        return exchange

    def _translate_error(self, error: Exception, progress: Progress) -> OutreachError | None:
        is_known = isinstance(error, _CONNECTION_ERRORS)
        return self._build_failure(describe_cause(error), progress, error) if is_known else None
