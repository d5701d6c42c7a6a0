"""The common base of all transports of HTTP libraries: arguments, connections of event loops, errors and closing."""

from __future__ import annotations

import os
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from outreach_async.errors import TRUST_REMEDY, InvalidRequest, OutreachError, drop_tracebacks, lacks_descriptors, lacks_issuer
from outreach_async.transport._backends import BACKENDS, Backend, require_library
from outreach_async.transport._lifecycle import LoopLocal, get_running_loop
from outreach_async.transport._sending import build_closed_error, build_transport_error, describe_cause, mark_unsent
from outreach_async.transport._urls import BaseUrl, choose_proxy, hide_user, parse_base_url, require_positive, url_secrets
from outreach_async.transport._wire import Progress, Request, Response

DEFAULT_CONNECTIONS: Final = 64


class BaseTransport(ABC):
    """Base class of the transports. A subclass makes a sender for each event loop, and translates the errors of its library."""

    # A sender has the connections of one event loop, and the methods `send`, `drop_idle` and `aclose`. Annotations name no class
    # of a library: type checkers would check the library in every program that uses `outreach_async`.

    base_url: str | None
    max_in_flight: int | None
    proxy: str | None = None
    secrets: tuple[str, ...]
    _proxy_schemes: tuple[str, ...] = ("http", "https")
    _suffix = ""  # of the repr
    _uses_environment = False  # whether the proxy is the environment's
    _client: Any = None  # the user's own client or session, which can be used in one event loop only
    _close_client: Callable[[], Awaitable[None]] | None = None

    def __init__(
        self,
        library: Backend,
        url: str | None,
        max_in_flight: int | None,
        ssl_context: object,
        proxy: str | None,
        *,
        trust_env: bool,
        max_answer: int,
    ) -> None:
        require_library(library)
        flag: object = trust_env
        if not isinstance(flag, bool):
            raise InvalidRequest(f"trust_env: expected True or False, got {type(flag).__name__}; pass one of them")
        self._library = library
        self.max_in_flight = None if max_in_flight is None else require_positive("max_in_flight", max_in_flight)
        self._max_answer = require_positive("max_answer", max_answer)
        self._base: BaseUrl | None = None
        self._proxy: str | None = None
        if url is not None:
            self._base = parse_base_url(url)
            self._proxy = choose_proxy(self._base, proxy, self._proxy_schemes, trust_env=trust_env)
            self.proxy = self._proxy and hide_user(self._proxy)
            self._uses_environment = proxy is None
            if ssl_context is not None and not isinstance(ssl_context, ssl.SSLContext):
                remedy = "make one with ssl.create_default_context(cafile=...)"
                raise InvalidRequest(f"ssl_context: expected an ssl.SSLContext, got {type(ssl_context).__name__}; {remedy}")
            self._ssl_context = ssl_context
            # Read once, when the transport is made, and with the same meaning as in httpx.
            trusted = os.environ if trust_env else {}
            self._certificates = trusted.get("SSL_CERT_FILE") or None, trusted.get("SSL_CERT_DIR") or None
            self.max_in_flight = self.max_in_flight or DEFAULT_CONNECTIONS
            self.secrets = (*self._base.secrets, *url_secrets(self._proxy))
            self.base_url = str(self._base)
        self._home: Any = None
        self._senders: LoopLocal[Any] = LoopLocal(self._open)
        self._closed = False

    def __repr__(self) -> str:
        """Show the base URL, without user and password."""
        return f"<{type(self).__name__} to {self.base_url or 'a session'}{self._suffix}{', closed' if self._closed else ''}>"

    def _get_context(self) -> ssl.SSLContext | None:
        if "https:" not in f"{self._base} {self._proxy}":
            return None
        return self._ssl_context or load_context(self._library, *self._certificates)

    @abstractmethod
    def _open(self) -> Any:
        """Make the sender of the running event loop."""

    def _start(self, request: Request, progress: Progress) -> Coroutine[Any, Any, Response]:
        exchange: Coroutine[Any, Any, Response] = self._senders.get().send(request, progress)
        return exchange

    @abstractmethod
    def _translate_error(self, error: Exception, progress: Progress) -> OutreachError | Response | None:
        """Return the error to raise instead of this one, with its cause unless that may show a secret; `None` to keep it.

        If a proxy refuses CONNECT for want of a user and password, that is a 407, as if the request had been sent to it.
        """

    def _build_failure(self, detail: str, progress: Progress, cause: Exception | None = None) -> OutreachError:
        """Return the error for an exchange that failed before a complete response arrived."""
        return build_failure(
            self.base_url or "the session's base_url",
            detail,
            progress,
            cause,
            proxy=self.proxy,
            is_environment=self._uses_environment,
        )

    def _require_home(self, problem: str) -> None:
        """Check that the user's client or session was not used in another event loop."""
        loop = get_running_loop()
        if self._home not in {None, loop}:
            raise InvalidRequest(f"transport: {problem} in this event loop")
        self._home = loop

    async def send(self, request: Request, progress: Progress, /) -> Response:
        """Send a request and read its complete response, whatever its status.

        Raises:
            TransportError: No complete response arrived.
            InvalidRequest: Invalid request, or closed transport.
        """
        if self._closed:
            raise build_closed_error(self)
        mark_unsent(progress)
        try:
            return await self._start(request, progress)
        except OutreachError:
            raise
        except Exception as error:
            failure = self._translate_error(error, progress)
            if failure is None:
                raise
        if isinstance(failure, Response):
            return failure
        # Raised outside of the handler, which would set `__context__` to an error that may show a secret.
        drop_tracebacks(failure)  # the frames of its cause have header fields among their locals
        raise failure

    def drop_idle(self) -> None:
        """Use no idle connection of the running event loop again.

        The client calls this when it has received a copy. Connections of a
        client or session that you have passed may be used again.

        Example:
            ```python
            transport = HttpxTransport("https://api.example")
            transport.drop_idle()
            await transport.aclose()
            ```
        """
        if (sender := self._senders.peek()) is not None:
            sender.drop_idle()

    async def aclose(self) -> None:
        """Close every connection and cancel exchanges; may be called twice."""
        self._closed = True
        if (sender := self._senders.release()) is not None:
            await sender.aclose()
        elif self._close_client is not None and not self._senders.is_inherited:
            await self._close_client()


def build_failure(
    destination: str,
    detail: str,
    progress: Progress,
    cause: Exception | None = None,
    *,
    proxy: str | None = None,
    is_environment: bool = False,
) -> OutreachError:
    """Return the error for an exchange that failed before a complete response arrived."""
    unsent = progress.sent is False
    what = "no connection to" if unsent else "no response from"
    if proxy is not None:
        destination += f" through the proxy {proxy}{' of the environment' if is_environment else ''}"
    if lacks_descriptors(cause):
        detail = "too many open files; raise the limit (ulimit -n), or send fewer requests at once"
    elif lacks_issuer(cause):
        detail += f"; {TRUST_REMEDY}"
    elif unsent and proxy is not None:
        detail += f"; check this proxy{', or name the host in NO_PROXY to use none' if is_environment else ''}"
    error = build_transport_error(f"{what} {destination}: {detail}", progress)
    error.__cause__ = cause
    return error


def load_context(library: Backend, file: str | None, directory: str | None) -> ssl.SSLContext:
    """Return the SSL context that trusts a file or a folder of certificates, or else the default ones."""
    try:
        status = None if file is None else Path(file).stat()
        version = status and (status.st_ino, status.st_mtime_ns, status.st_size)
        return _shared_context(library, file, directory, version)
    except OSError as error:
        text = f"cannot read certificates ({describe_cause(error)}); correct or unset these environment variables"
        raise InvalidRequest(f"SSL_CERT_FILE, SSL_CERT_DIR: {text}") from None


@lru_cache(8)
def _shared_context(library: Backend, file: str | None, directory: str | None, _version: object) -> ssl.SSLContext:
    # Transports with equal settings share a context: loading certificates takes 20 ms or more. `_version` is part of the key,
    # because the file may be replaced while a program is running.
    if file is not None:
        context = ssl.create_default_context(cafile=file)
    elif directory is not None:
        context = ssl.create_default_context(capath=directory)
    elif BACKENDS[library].has_certificates:
        context = import_module(library).create_ssl_context(trust_env=False)
    else:
        import certifi

        context = ssl.create_default_context(cafile=certifi.where())
    context.set_alpn_protocols(("http/1.1",))
    return context
