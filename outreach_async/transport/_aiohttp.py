"""Send requests over aiohttp, on asyncio only. aiohttp is not imported before the first request."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeAlias
from urllib.parse import urlsplit

from outreach_async.errors import InvalidRequest, OutreachError
from outreach_async.transport import _urls as urls
from outreach_async.transport._base import BaseTransport
from outreach_async.transport._lifecycle import get_running_loop
from outreach_async.transport._response_reader import MAX_ANSWER
from outreach_async.transport._secret import drop_frames
from outreach_async.transport._wire import Progress, Response


class AiohttpSession(Protocol):
    """Protocol that stands for `aiohttp.ClientSession` in type annotations."""

    # If annotations named aiohttp's own class, mypy would check aiohttp in every program that uses `outreach_async`.

    @property
    def connector(self) -> Any: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def close(self) -> None: ...


AiohttpMiddleware: TypeAlias = Callable[[Any, Any], Awaitable[Any]]
"""Type of an aiohttp client middleware. It stands for `aiohttp.ClientMiddlewareType`."""


class AiohttpTransport(BaseTransport):
    """Sends requests over aiohttp.

    A transport made from a base URL opens a session in each event loop
    when the first request is sent. The environment's proxies and
    certificates have the same effect as with httpx; aiohttp itself
    supports only some of them.

    A transport made from a session uses the session's connector, headers,
    proxies and traces unchanged. The session must have a `base_url`. The
    transport takes ownership of the session and closes it. The session's
    timeouts are disabled, and cookies set by a response are removed from
    the session's cookie jar.

    Args:
        service: The service's base URL, or an `aiohttp.ClientSession`.
        max_in_flight: Maximum number of concurrent exchanges. For a URL,
            the default is 64, and the number is also the maximum number of
            connections. For a session, only the limit of its connector
            applies by default.
        ssl_context, proxy, trust_env, max_answer: As for `HttpxTransport`.
            A proxy has the scheme `http` or `https`.
        middlewares: aiohttp client middlewares to run around every
            request. Those of a session do not run; pass them here too.

    Attributes:
        max_in_flight, base_url, proxy, secrets: As of `HttpxTransport`.
            `base_url` is `None` for a session without a valid one.

    Raises:
        InvalidRequest: An argument is invalid, or aiohttp is not
            installed.

    Example:
        ```python
        transport = AiohttpTransport("https://api.example/v1", max_in_flight=16)
        print(transport)  # -> <AiohttpTransport to https://api.example/v1>
        ```
    """

    base_url: str | None

    @drop_frames
    def __init__(
        self,
        service: str | AiohttpSession,
        /,
        *,
        max_in_flight: int | None = None,
        ssl_context: ssl.SSLContext | None = None,
        proxy: str | None = None,
        trust_env: bool = True,
        max_answer: int = MAX_ANSWER,
        middlewares: Sequence[AiohttpMiddleware] = (),
    ) -> None:
        url = service if isinstance(service, str) else None
        if url is None:
            urls.reject_options("session", ssl_context=ssl_context, proxy=proxy, trust_env=None if trust_env else False)
            if urls.find_library(service, "ClientSession") != "aiohttp":
                expected = "a base URL or an aiohttp.ClientSession"
                raise InvalidRequest(f"transport: expected {expected}, got {type(service).__name__}; pass one of them")
        super().__init__("aiohttp", url, max_in_flight, ssl_context, proxy, trust_env=trust_env, max_answer=max_answer)
        given: object = middlewares
        if not isinstance(given, list | tuple) or not all(map(callable, given)):
            raise InvalidRequest(f"middlewares: expected a list of functions, got {type(given).__name__}; pass [middleware]")
        self._middlewares = middlewares
        if not isinstance(service, str):
            self._client, self._close_client = service, service.close
            with suppress(RuntimeError):  # no event loop is running
                self._home = get_running_loop()
            self.base_url, self.secrets = None, ()
            with suppress(InvalidRequest):  # aiohttp has no public name for a session's base URL
                base = urls.parse_base_url(str(getattr(service, "_base_url", None)))
                self.base_url, self.secrets = str(base), base.secrets
            self.secrets += urls.header_secrets(service.headers)
            self.proxy = find_proxy(service, self.base_url or "")

    def _open(self) -> Any:
        if not hasattr(get_running_loop(), "call_soon_threadsafe"):
            raise InvalidRequest("transport: aiohttp supports only asyncio, got another event loop; on trio, use HttpxTransport")
        if self._client is not None:
            self._require_home("the session belongs to another event loop; make a new session")
        # The result is `Any`, and the module is imported here, so that mypy does not check all of aiohttp.
        from outreach_async.transport import _aiohttp_session as aiohttp_session

        prefix = aiohttp_session.encode_prefix(self._base)
        session = self._client or aiohttp_session.open_session(self._get_context(), self._proxy)
        return aiohttp_session.SessionSender(
            session, self._base, prefix, self.max_in_flight, self._max_answer, middlewares=self._middlewares
        )

    def _translate_error(self, error: Exception, progress: Progress) -> OutreachError | Response | None:
        from outreach_async.transport import _aiohttp_session as aiohttp_session

        return aiohttp_session.translate_error(error, progress, self._build_failure)


def find_proxy(session: Any, base_url: str) -> str | None:
    """Return the proxy to which a user's session sends, without user and password; `None` for none."""
    proxy = getattr(session, "_default_proxy", None)  # aiohttp has no public name for it
    if proxy is None and session.trust_env:
        from urllib.request import getproxies, proxy_bypass  # a slow import

        parts = urlsplit(base_url)
        proxy = None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
    return None if proxy is None else urls.hide_user(str(proxy))
