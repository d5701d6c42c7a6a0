"""The async client. `OutreachClient` combines an engine, the client's settings, and the resources that use both."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import outreach_async._wire_words  # annotations name what the package imports when it is used: importing the class must be fast
from outreach_async._wire_words import ID_PREFIXES, UNSET, Seconds
from outreach_async.transport._secret import drop_frames

if TYPE_CHECKING:  # the methods import the modules that do the work
    import outreach_async.converters
    import outreach_async.hooks
    from outreach_async._core.engine import Engine
    from outreach_async.resources import Campaigns, Contacts, Mailboxes, Settings, Workspaces


class _ResourceClass:
    """Shows on the class what each client has, to tools such as `unittest.mock.create_autospec`."""

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name.capitalize()

    def __get__(self, _client: None, _owner: type) -> Any:
        return getattr(import_module("outreach_async.resources"), self._name)


class OutreachClient:
    """An async client of the outreach service, on asyncio and trio.

    Use it as an async context manager, or call `aclose()`.

    Args:
        base_url: Address of the service, such as `https://api.example`;
            defaults to `OUTREACH_BASE_URL` from the environment.
        owner_key: API key for creating contacts; defaults to
            `OUTREACH_OWNER_KEY`. Reading does not need a key.
        workspace: Id of the workspace; defaults to `OUTREACH_WORKSPACE`.
            Whitespace around an id or a key is removed.
        transport: The transport that sends the requests, instead of a
            `base_url`: `HttpxTransport(...)`, `AiohttpTransport(...)`,
            `SocketTransport(...)`, `FakeTransport(...)` or your own.
            Closing the client closes the transport.
        headers: Header fields to send with every request.
        timeout: Timeout per attempt, in seconds; `None` for no limit.
        deadline: Limit per call in seconds, over all attempts and waits;
            `None` for no limit.
        max_in_flight: Maximum number of requests in flight.
        rate: Maximum rate of the client and its copies in requests per
            second, retries included; defaults to `OUTREACH_RATE`. At most
            `rate * t + max(1, rate / 10)` attempts start in any `t`
            seconds. The service's own limit is learned in any case.
            Alternatively, a `Rate` that several clients share, such as
            `SharedRate()`; such clients work only in `async with`.
        max_retries: Maximum number of retries of a call, after its first
            attempt, 0 for none. By default 3, but a read that the service
            throttles is retried until its deadline.
        retry: The retry policy, for more than `max_retries`; defaults to
            `RetryPolicy()`.
        hooks: Callables invoked with each event of the client and its
            copies; see `outreach_async.hooks`.
        converter: What reads responses and writes contacts, with hooks and
            models of your own; see `outreach_async.converters`.

    Attributes:
        campaigns, mailboxes, contacts, workspaces: The methods of these
            resources; see `help(client.campaigns)`.

    Raises:
        InvalidRequest: An argument is invalid.

    Example:
        ```python
        async with OutreachClient(transport=FakeTransport(fake), workspace="space_1", owner_key="key_1") as client:
            print(client)  # -> <OutreachClient <FakeTransport to FakeService> workspace='space_1'>
        ```
    """

    if TYPE_CHECKING:
        campaigns: Campaigns
        mailboxes: Mailboxes
        contacts: Contacts
        workspaces: Workspaces
    else:
        campaigns, mailboxes, contacts, workspaces = (_ResourceClass() for _ in range(4))

    @drop_frames
    def __init__(
        self,
        base_url: str | None = None,
        *,
        owner_key: str | None = None,
        workspace: str | None = None,
        transport: outreach_async.Transport | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = 30.0,
        deadline: float | None = 120.0,
        max_in_flight: int = 64,
        rate: float | outreach_async.Rate | None = None,
        max_retries: int | None = None,
        retry: outreach_async.RetryPolicy | None = None,
        hooks: Iterable[outreach_async.hooks.Hook] = (),
        converter: outreach_async.converters.OutreachConverter | None = None,
    ) -> None:
        from outreach_async._core.arguments import require_headers, require_number, require_seconds
        from outreach_async._core.attempts import CallOptions
        from outreach_async._core.retry import RetryPolicy
        from outreach_async.resources import build_engine, build_policy, build_settings, resolve_transport

        fields = require_headers({} if headers is None else headers)
        in_flight = require_number("max_in_flight", max_in_flight, least=1)
        route = resolve_transport(base_url, transport, in_flight)
        limits = CallOptions(require_seconds("timeout", timeout), require_seconds("deadline", deadline))
        key = os.environ.get("OUTREACH_OWNER_KEY") if owner_key is None else owner_key
        space = os.environ.get("OUTREACH_WORKSPACE") if workspace is None else workspace
        settings = build_settings(key, space, fields, limits, route, converter=converter)
        policy = build_policy(retry, max_retries, RetryPolicy())
        self._bind(build_engine(route, in_flight, rate, policy, hooks), settings, owns=True)

    @classmethod
    @drop_frames
    def from_config(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        profile: str | None = None,
        workspace: str | None = None,
        read_only: bool = False,
        **options: Any,
    ) -> Self:
        r"""Create a client from a configuration file.

        It is `load_config(path, profile).client(workspace, ...)`, with the
        arguments of `outreach_async.config.load_config` and
        `Config.client`. No request is sent.

        Raises:
            InvalidRequest: There is no file, a value in it is missing or
                invalid, or the owner key cannot be read.

        Example:
            ```python
            Path("outreach.toml").write_text('base_url = "https://api.example"\n[workspaces]\nacme = { id = "space_1" }\n')
            print(OutreachClient.from_config("outreach.toml", workspace="acme"))
            # -> <OutreachClient <HttpxTransport to https://api.example by httpx> workspace='space_1'>
            ```
        """
        from outreach_async.config._config import client_arguments
        from outreach_async.config._file import load_config

        return cls(**client_arguments(load_config(path, profile), workspace, options, read_only=read_only))

    def _bind(self, engine: Engine, settings: Settings, *, owns: bool) -> None:
        from outreach_async.resources import Campaigns, Contacts, Mailboxes, Workspaces

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
        max_retries: int | None = None,
        retry: outreach_async.RetryPolicy | None = None,
        hooks: Iterable[outreach_async.hooks.Hook] | None = None,
        converter: outreach_async.converters.OutreachConverter | None = None,
    ) -> Self:
        """Return a copy of the client with some options replaced.

        The copy shares the client's connections, rate, pauses, limit on
        requests in flight and retry budget, and does not need to be
        closed. `headers` are added to the client's headers. `hooks`
        replace the client's hooks; pass `[]` for none.

        Raises:
            InvalidRequest: An option is invalid.

        Example:
            ```python
            quick = client.with_options(timeout=5.0, deadline=10.0, max_retries=0)
            print(len(await quick.workspaces.fields()))  # -> 37
            ```
        """
        from outreach_async._core.arguments import require_headers
        from outreach_async._core.engine import build_observer
        from outreach_async.resources import build_policy, build_settings

        before, engine = self._settings, self._engine
        fields = {**before.headers, **require_headers({} if headers is None else headers)}
        limits = before.call_options(timeout, deadline)
        key = before.owner_key if owner_key is None else owner_key
        space = before.workspace if workspace is None else workspace
        chosen = before.converter if converter is None else converter
        settings = build_settings(key, space, fields, limits, engine.transport, converter=chosen)
        policy = build_policy(retry, max_retries, engine.policy)
        observer = engine.observer if hooks is None else build_observer(hooks, engine.transport)
        copy = object.__new__(type(self))
        copy._bind(engine.with_options(policy, observer), settings, owns=False)
        return copy

    async def request(
        self,
        method: str,
        target: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: Seconds = UNSET,
        deadline: Seconds = UNSET,
    ) -> outreach_async.Response:
        """Send any request and return its response, whatever the status.

        It is for endpoints that this library does not know. The request is
        retried only if no byte of it was sent.

        Args:
            method: HTTP method, such as `GET`.
            target: Percent-encoded path and query as one string, starting
                with `/`.
            params: Parameters to add to the query, which are
                percent-encoded: strings, numbers, Booleans (sent as `true`
                and `false`), or lists of these for repeated parameters.
                `None` omits a parameter.
            json: A JSON value to send as the body; `None` for no body.
            body: The whole body, instead of `json`; sent as
                `application/json` unless `headers` set another content
                type.
            headers: Header fields to add.
            timeout, deadline: Limits of each attempt and of the call, in
                seconds; default to the client's.

        Example:
            ```python
            query = {"workspace": "space_1", "display": 9, "page": 1}
            response = await client.request("GET", "/campaigns", params=query)
            print(response.status, response.json()["status"])  # -> 200 ok
            ```
        """
        from outreach_async._core.operations import raw_request

        with drop_frames:
            operation = raw_request(
                method,
                target,
                body,
                {} if headers is None else headers,
                self._settings.request_defaults,
                params={} if params is None else params,
                json=json,
            )
            # The traceback of a cancellation shows this frame, which must contain no secrets.
            body, headers, params, json = b"", None, None, None
            return await self._engine.run(operation, self._settings.call_options(timeout, deadline))

    async def aclose(self) -> None:
        """Close the connections. Closing twice is allowed.

        On a copy made by `with_options`, this does nothing.

        Example:
            ```python
            client = OutreachClient("https://api.example")
            await client.aclose()
            ```
        """
        if self._owns_transport:
            await self._engine.transport.aclose()

    async def __aenter__(self) -> Self:
        """Open the client, and begin to renew its share of a shared rate."""
        if self._owns_transport and self._engine.rate_poller is not None:
            await self._engine.rate_poller.start()
            self._engine.clock()  # a new event loop resets the limiter, which must not happen after the first share
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop renewing the share of a shared rate; close the connections."""
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
