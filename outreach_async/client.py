"""`OutreachClient`, which combines an engine, the client's settings, and the resources that use both."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import attrs

from outreach_async import operations
from outreach_async.engine import Engine
from outreach_async.errors import InvalidRequest
from outreach_async.logs import configure_logging
from outreach_async.operations import RequestDefaults
from outreach_async.resources import Campaigns, Contacts, Mailboxes, Seconds, Settings, Workspaces, default_to
from outreach_async.retry import RetryPolicy
from outreach_async.secret import OWNER_KEY, Secret, drop_frames, drop_frames_async, hide
from outreach_async.shared_rate import Rate
from outreach_async.transport.wire import Response, Transport
from outreach_async.validation import read_rate, require_headers, require_number, require_rate, require_seconds, type_name
from outreach_async.vocabulary import ID_PREFIXES, UNSET

if TYPE_CHECKING:
    from outreach_async.hooks import Hook

_DEFAULT_RETRY: Final = RetryPolicy()


class OutreachClient:
    """An async client of the outreach service, on asyncio and trio.

    Use it as an async context manager, or call `aclose()`.

    Args:
        base_url: Address of the service, such as `https://api.example`; defaults to `OUTREACH_BASE_URL` from the environment.
        owner_key: API key for creating contacts; defaults to `OUTREACH_OWNER_KEY`. Reading does not need a key.
        workspace: Id of the workspace; defaults to `OUTREACH_WORKSPACE`.
        transport: The transport that sends the requests, instead of `base_url`: `HttpxTransport(...)`, `AiohttpTransport(...)`,
            `FakeTransport(...)` or your own transport. Closing the client closes the transport.
        headers: Header fields to send with every request.
        timeout: Timeout per attempt, in seconds; `None` for no limit.
        deadline: Limit per call in seconds, over all attempts and waits; `None` for no limit.
        max_in_flight: Maximum number of requests in flight.
        rate: Maximum rate of the client and its copies in requests per second, retries included; defaults to `OUTREACH_RATE`. At
            most `rate * t + max(1, rate / 10)` attempts start in any `t` seconds. Refusals of the service lower the rate further;
            without a rate, the client learns it from them. Or a `Rate` that several clients share, such as `SharedRate()`; the
            client then works only while it is open, in an `async with` block.
        retry: The retry policy.
        hooks: Callables invoked with each event of the client and its copies; see `outreach_async.hooks`.

    Attributes:
        campaigns: Methods for campaigns: `list()` and `steps(campaign)`; see `help(client.campaigns)`.
        mailboxes: Methods for mailboxes: `list()`; see `help(client.mailboxes)`.
        contacts: Methods for contacts: `create(contact)` and `create_many(rows)`; see `help(client.contacts)`.
        workspaces: Methods for workspaces: `fields()`; see `help(client.workspaces)`.

    Raises:
        InvalidRequest: An argument is invalid.

    Example:
        ```python
        async with OutreachClient(transport=FakeTransport(fake), workspace="space_1", owner_key="key_1") as client:
            print(client)  # -> <OutreachClient <FakeTransport to FakeService> workspace='space_1'>
        ```
    """

    @drop_frames
    def __init__(
        self,
        base_url: str | None = None,
        *,
        owner_key: str | None = None,
        workspace: str | None = None,
        transport: Transport | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = 30.0,
        deadline: float | None = 120.0,
        max_in_flight: int = 64,
        rate: float | Rate | None = None,
        retry: RetryPolicy = _DEFAULT_RETRY,
        hooks: Iterable[Hook] = (),
    ) -> None:
        configure_logging()
        key = hide(default_to(owner_key, os.environ.get("OUTREACH_OWNER_KEY")))
        fields = require_headers(headers or {})
        limit = require_number("max_in_flight", max_in_flight, least=1)
        resolved = _resolve_transport(base_url, transport, limit)
        settings = Settings(
            key,
            default_to(workspace, os.environ.get("OUTREACH_WORKSPACE")),
            fields,
            require_seconds("timeout", timeout),
            require_seconds("deadline", deadline),
            _build_request_defaults(fields, key, resolved),
        )
        self._bind(_build_engine(resolved, hooks, limit, retry, _resolve_rate(rate)), settings, owns=True)

    def _bind(self, engine: Engine, settings: Settings, *, owns: bool) -> None:
        self._engine = engine
        self._settings = settings
        self._owns_transport = owns
        self.campaigns = Campaigns(engine, settings)
        self.mailboxes = Mailboxes(engine, settings)
        self.contacts = Contacts(engine, settings)
        self.workspaces = Workspaces(engine, settings)

    @drop_frames
    def with_options(
        self,
        *,
        owner_key: str | None = None,
        workspace: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Seconds = UNSET,
        deadline: Seconds = UNSET,
    ) -> Self:
        """Return a copy of the client with some options replaced.

        The copy shares the client's connections, rate, limit of requests in flight, retry budget and hooks. The copy does not
        need to be closed: closing it does nothing, and closing the original client closes the connections. `headers` are added to
        the client's headers, and replace fields of the same name.

        Raises:
            InvalidRequest: An option is invalid.

        Example:
            ```python
            quick = client.with_options(timeout=5.0, deadline=10.0)
            print(len(await quick.workspaces.fields()))  # -> 37
            ```
        """
        options = self._settings.call_options(timeout, deadline)
        fields = {**self._settings.headers, **require_headers(headers or {})}
        key = default_to(hide(owner_key), self._settings.owner_key)
        space = default_to(workspace, self._settings.workspace)
        defaults = _build_request_defaults(fields, key, self._engine.transport)
        copy = object.__new__(type(self))
        copy._bind(self._engine, Settings(key, space, fields, options.timeout, options.deadline, defaults), owns=False)
        return copy

    @drop_frames_async
    async def request(
        self,
        method: str,
        target: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: Seconds = UNSET,
        deadline: Seconds = UNSET,
    ) -> Response:
        """Send any request and return its response, whatever the status.

        Use this method for endpoints that the documented interface does not include. The request is retried only after a failure
        in which no byte of it was sent.

        Args:
            method: HTTP method, such as `GET`.
            target: Percent-encoded path and query as one string, starting with `/`.
            body: The whole body; sent as `application/json` unless `headers` set another content type.
            headers: Header fields to add.
            timeout: Timeout per attempt, in seconds.
            deadline: Limit for the call over all attempts and waits, in seconds.

        Raises:
            InvalidRequest: An argument is invalid.
            TransportError: No complete response arrived.
            DeadlineExceeded: The deadline passed.

        Example:
            ```python
            response = await client.request("GET", "/workspaces/space_1/all-fields")
            print(response.status, response.headers["content-type"])  # -> 200 application/json
            ```
        """
        operation = operations.raw_request(method, target, body, require_headers(headers or {}), self._settings.request_defaults)
        body, headers = b"", None  # the traceback of a cancellation keeps this frame, which must hold no secrets
        return await self._engine.run(operation, self._settings.call_options(timeout, deadline))

    async def aclose(self) -> None:
        """Close the connections. Closing twice is allowed. On a copy made by `with_options`, this does nothing.

        Example:
            ```python
            client = OutreachClient("https://api.example")
            await client.aclose()
            ```
        """
        if self._owns_transport:
            await self._engine.transport.aclose()

    async def __aenter__(self) -> Self:
        """Start to renew the client's share, if it has a shared rate.

        Raises:
            InvalidRequest: The client has a shared rate, and is already open.
        """
        if self._owns_transport and self._engine.rate_poller is not None:
            await self._engine.rate_poller.start()
            self._engine.clock()  # a new event loop resets the limiter, which must not happen after the first share
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop to renew the client's share, and close the connections."""
        try:
            if self._owns_transport and self._engine.rate_poller is not None:
                await self._engine.rate_poller.stop()
        finally:
            await self.aclose()

    def __repr__(self) -> str:
        """Show the transport and the workspace, never the key."""
        workspace = self._settings.workspace
        visible = repr(workspace) if workspace is None or str(workspace).startswith(ID_PREFIXES["workspace"]) else "?"
        return f"<{type(self).__name__} {self._engine.transport!r} workspace={visible}>"


def _build_request_defaults(headers: Mapping[str, str], owner_key: object, transport: Transport) -> RequestDefaults:
    """Return the defaults of the client's requests. All errors mask the owner key, because `request()` may send the key."""
    defaults = RequestDefaults.from_headers(headers)
    secrets = (*defaults.secrets, *map(Secret, getattr(transport, "secrets", ())))
    if isinstance(owner_key, Secret) and OWNER_KEY.fullmatch(owner_key.reveal()):  # another string could be a common word
        secrets += (owner_key,)
    return attrs.evolve(defaults, secrets=secrets)


def _is_transport(transport: object) -> bool:
    """Return whether an object is a transport.

    Classes, and clients of httpx and httpx2, are not transports, although they have the methods of a transport.
    """
    homes = {base.__module__.partition(".")[0] for base in type(transport).__mro__}
    return isinstance(transport, Transport) and not isinstance(transport, type) and not homes & {"httpx", "httpx2"}


def _resolve_transport(base_url: str | None, transport: Transport | None, limit: int) -> Transport:
    if transport is not None:
        if base_url is not None:
            raise InvalidRequest("base_url: expected either base_url or transport, got both; leave out base_url")
        if not _is_transport(transport):
            raise InvalidRequest(
                f"transport: expected a transport, got {type_name(transport)}; wrap a client, for example HttpxTransport(client)"
            )
        return transport
    url = base_url if base_url is not None else os.environ.get("OUTREACH_BASE_URL")
    if not url:
        raise InvalidRequest("base_url: missing; pass base_url= or transport=, or set OUTREACH_BASE_URL")
    from outreach_async.transport.httpx import HttpxTransport

    return HttpxTransport(url, max_in_flight=limit)


def _resolve_rate(rate: object) -> float | Rate | None:
    if rate is None:
        return read_rate(os.environ)
    return rate if isinstance(rate, Rate) and not isinstance(rate, type) else require_rate("rate", rate)


def _build_engine(
    transport: Transport, hooks: Iterable[Hook], limit: int, policy: RetryPolicy, rate: float | Rate | None
) -> Engine:
    observer = None
    if hooks != ():
        from outreach_async.observer import Observer

        observer = Observer(hooks, getattr(transport, "base_url", None))
    return Engine(transport, max_in_flight=limit, policy=policy, rate=rate, observer=observer)
