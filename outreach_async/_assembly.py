"""Check the arguments of a client, and build its engine and settings from them.

`client` imports this module when a client is created, which keeps `from outreach_async import OutreachClient` fast.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import attrs

from outreach_async._engine.engine import Engine
from outreach_async._engine.logs import configure_logging
from outreach_async._engine.shared_rate import Rate
from outreach_async._service.operations import RequestDefaults
from outreach_async._service.retry import RetryPolicy
from outreach_async._service.validation import (
    read_rate,
    require_headers,
    require_number,
    require_rate,
    require_seconds,
    type_name,
)
from outreach_async.errors import InvalidRequest
from outreach_async.resources import Seconds, Settings, default_to
from outreach_async.transport._secret import OWNER_KEY, Secret, hide
from outreach_async.transport._wire import Transport

if TYPE_CHECKING:
    from outreach_async.hooks import Hook


def build_parts(
    base_url: str | None,
    *,
    owner_key: str | None,
    workspace: str | None,
    transport: Transport | None,
    headers: Mapping[str, str] | None,
    timeout: float | None,
    deadline: float | None,
    max_in_flight: int,
    rate: float | Rate | None,
    retry: RetryPolicy | None,
    hooks: Iterable[Hook],
) -> tuple[Engine, Settings]:
    """Return the engine and the settings of a new client. The arguments are those of `OutreachClient`."""
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
    policy = RetryPolicy() if retry is None else retry
    return _build_engine(resolved, hooks, limit, policy, _resolve_rate(rate)), settings


def replace_settings(
    settings: Settings,
    transport: Transport,
    *,
    owner_key: str | None,
    workspace: str | None,
    headers: Mapping[str, str] | None,
    timeout: Seconds,
    deadline: Seconds,
) -> Settings:
    """Return a copy of the settings with some options replaced. The options are those of `OutreachClient.with_options`."""
    options = settings.call_options(timeout, deadline)
    fields = {**settings.headers, **require_headers(headers or {})}
    key = default_to(hide(owner_key), settings.owner_key)
    space = default_to(workspace, settings.workspace)
    defaults = _build_request_defaults(fields, key, transport)
    return Settings(key, space, fields, options.timeout, options.deadline, defaults)


def _build_request_defaults(headers: Mapping[str, str], owner_key: object, transport: Transport) -> RequestDefaults:
    """Return the defaults of the client's requests."""
    # The owner key is one of the secrets to mask in errors: `request()` may send the key, and a response may repeat it.
    defaults = RequestDefaults.from_headers(headers)
    secrets = (*defaults.secrets, *map(Secret, getattr(transport, "secrets", ())))
    if isinstance(owner_key, Secret) and OWNER_KEY.fullmatch(owner_key.reveal()):  # another string could be a common word
        secrets += (owner_key,)
    return attrs.evolve(defaults, secrets=secrets)


def _is_transport(transport: object) -> bool:
    # A check of the methods is not enough: a transport class, and a client of httpx or httpx2, have methods of the same names.
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
    from outreach_async.transport._httpx import HttpxTransport

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
        from outreach_async._engine.observer import Observer
        from outreach_async.transport._urls import service_address

        observer = Observer(hooks, service_address(transport))
    return Engine(transport, max_in_flight=limit, policy=policy, rate=rate, observer=observer)
