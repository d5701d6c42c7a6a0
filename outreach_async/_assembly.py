"""Build the engine and the settings of a client.

`client` imports this module when a client is created, which keeps `from outreach_async import OutreachClient` fast.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import attrs

from outreach_async._core.arguments import read_rate, require_id, require_number, require_rate, trim, type_name
from outreach_async._core.call import CallOptions
from outreach_async._core.engine import Engine
from outreach_async._core.logs import configure_logging
from outreach_async._core.operations import KEY_REMEDY, RequestDefaults
from outreach_async._core.retry import RetryPolicy
from outreach_async._core.shared_rate import Rate
from outreach_async.errors import InvalidRequest
from outreach_async.resources import Settings
from outreach_async.transport._backends import create_transport
from outreach_async.transport._secret import OWNER_KEY, Secret, hide
from outreach_async.transport._urls import service_address
from outreach_async.transport._wire import Transport

if TYPE_CHECKING:
    from outreach_async._core.observer import Observer
    from outreach_async.hooks import Hook


def build_settings(
    owner_key: object, workspace: object, headers: Mapping[str, str], limits: CallOptions, transport: Transport
) -> Settings:
    # The owner key is one of the secrets to mask in errors: `request()` may send the key, and a response may repeat it.
    key, defaults = trim(hide(owner_key)), RequestDefaults.from_headers(headers)
    secrets = (*defaults.secrets, *map(Secret, getattr(transport, "secrets", ())))
    if isinstance(key, Secret) and OWNER_KEY.fullmatch(key.reveal()):  # another string could be a common word
        require_id("owner_key", key.reveal(), "owner_key", KEY_REMEDY)
        secrets += (key,)
    return Settings(key, trim(workspace), headers, limits, attrs.evolve(defaults, secrets=secrets))


def resolve_transport(base_url: str | None, transport: object, limit: int) -> Transport:
    if transport is not None:
        if base_url is not None:
            raise InvalidRequest("base_url: expected either base_url or transport, got both; leave out base_url")
        # A check of the methods is not enough: a transport class, and a client of httpx or httpx2, have methods of these names.
        homes = {base.__module__.partition(".")[0] for base in type(transport).__mro__}
        if not isinstance(transport, Transport) or isinstance(transport, type) or homes & {"httpx", "httpx2"}:
            raise InvalidRequest(
                f"transport: expected a transport, got {type_name(transport)}; wrap a client, for example HttpxTransport(client)"
            )
        return transport
    url: object = base_url if base_url is not None else trim(os.environ.get("OUTREACH_BASE_URL"))
    if url is None or url == "":
        raise InvalidRequest("base_url: missing; pass base_url= or transport=, or set OUTREACH_BASE_URL")
    if not isinstance(url, str):
        raise InvalidRequest(f"base_url: expected a URL, got {type_name(url)}; pass a client as transport=HttpxTransport(client)")
    return create_transport(url, "httpx", limit)


def build_engine(transport: Transport, limit: int, rate: object, policy: RetryPolicy, hooks: Iterable[Hook]) -> Engine:
    configure_logging()
    observer = build_observer(hooks, transport)
    if rate is None:
        rate = read_rate(os.environ)
    elif not isinstance(rate, Rate) or isinstance(rate, type):
        rate = require_rate("rate", rate)
    return Engine(transport, max_in_flight=limit, policy=policy, rate=rate, observer=observer)


def build_policy(retry: object, max_retries: object, default: RetryPolicy) -> RetryPolicy:
    if retry is not None and max_retries is not None:
        raise InvalidRequest("max_retries: expected either max_retries or retry, got both; pass retry=RetryPolicy(attempts=...)")
    if retry is not None and not isinstance(retry, RetryPolicy):
        remedy = "pass max_retries=, or retry=RetryPolicy(attempts=...)"
        raise InvalidRequest(f"retry: expected a RetryPolicy, got {type_name(retry)}; {remedy}")
    if max_retries is None:
        return retry or default
    return attrs.evolve(default, attempts=require_number("max_retries", max_retries, least=0) + 1)


def build_observer(hooks: Iterable[Hook], transport: Transport) -> Observer | None:
    if isinstance(hooks, list | tuple) and not hooks:
        return None
    from outreach_async._core.observer import Observer

    return Observer(hooks, service_address(transport))
