"""Post a brief to an incoming webhook. Its URL is a secret: whoever knows it can write to the channel."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.request import getproxies, proxy_bypass

import anyio
import click
import httpx

from outreach_async._plumbing import Secret, is_loopback
from outreach_async.errors import TRUST_REMEDY, lacks_issuer

_ENVIRONMENT: Final = "env:"
_BUSY: Final = frozenset({429, 503})
_EXPECTED: Final = "an https URL without a user and password, or env:NAME for one in an environment variable"
_TIMEOUT: Final = 20.0
_ATTEMPTS: Final = (0.0, 2.0, 10.0)
"""Seconds to wait before each attempt. An attempt follows only if the message was certainly not accepted."""
_REASON: Final = re.compile(r"[a-z_]{1,60}")
"""The reasons of Slack, such as `no_service`. Any other response might repeat the URL."""


class PostError(Exception):
    """Raised when a brief could not be delivered. The message contains no part of the URL."""


def parse_webhook(value: str, environment: Mapping[str, str] = os.environ) -> Secret:
    """Return the URL of a webhook, which may be in an environment variable. No error quotes the value."""
    text = value
    if value.startswith(_ENVIRONMENT):
        text = environment.get(value.removeprefix(_ENVIRONMENT), "")
        if not text:
            raise click.UsageError("--post: expected the name of an environment variable after env:; this variable is not set.")
    try:
        url = httpx.URL(text.strip())
        is_safe = url.scheme == "https" or (url.scheme == "http" and is_loopback(url.host))
        is_allowed = is_safe and bool(url.host) and not url.userinfo
    except (httpx.InvalidURL, ValueError):
        is_allowed = False
    if not is_allowed:
        raise click.UsageError(f"--post: expected {_EXPECTED}; http is allowed for this computer only, such as 127.0.0.1.")
    return Secret(text.strip())


async def post(url: Secret, message: str, waits: Sequence[float] = _ATTEMPTS) -> None:
    """Post a message. Redirects are not followed. `PostError`: it was not delivered, or it is not known whether it was."""
    problem = "not tried"
    proxy = find_proxy(url, getproxies())
    for wait in waits:
        await anyio.sleep(wait)
        try:
            response = await _post_once(url, message, proxy)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:  # its text might contain the URL
            problem = _explain_no_connection(error, proxy)
            if lacks_issuer(error) or _asks_for_password(error):
                break
            continue
        except (httpx.HTTPError, TimeoutError) as error:
            # The request was sent, so another one might post the brief twice.
            problem = f"no response ({type(error).__name__}); look whether the brief has arrived"
            break
        if response.is_success:
            return
        problem = _explain(response)
        if response.status_code not in _BUSY:
            break
    raise PostError(problem)


async def _post_once(url: Secret, message: str, proxy: str | None) -> httpx.Response:
    # A transport is used without a client, because a client logs the URL of each request.
    limits = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), _TIMEOUT)}
    headers = {"content-type": "application/json"}
    async with httpx.AsyncHTTPTransport(proxy=proxy) as transport:
        request = httpx.Request("POST", url.reveal(), headers=headers, content=message, extensions=limits)
        with anyio.fail_after(2 * _TIMEOUT):
            response = await transport.handle_async_request(request)
            await response.aread()
            return response


def _explain_no_connection(error: Exception, proxy: str | None) -> str:
    way = "" if proxy is None else f" through the proxy {httpx.URL(proxy).copy_with(userinfo=b'')}"
    if lacks_issuer(error):
        return f"no connection{way} (the certificate is not trusted); {TRUST_REMEDY}"
    if _asks_for_password(error):
        return f"no connection{way} (it answered {str(error)[:3]}); check the user and password of the proxy"
    remedy = "check the network and the URL" if proxy is None else "check this proxy, or name the host in NO_PROXY to use none"
    return f"no connection{way} ({type(error).__name__}); {remedy}"


def _asks_for_password(error: Exception) -> bool:
    return isinstance(error, httpx.ProxyError) and str(error)[:4] in {"401 ", "407 "}


def _explain(response: httpx.Response) -> str:
    shown = response.content[:100].decode("utf-8", "replace").strip()
    reason = f" ({shown})" if _REASON.fullmatch(shown) else ""
    remedy = "; use the URL to which it redirects" if response.is_redirect else "; check the URL of the webhook"
    if response.is_server_error:  # another attempt might post the brief twice
        remedy = "; this is its failure, not one of the URL; look whether the brief has arrived"
    return f"the receiver answered {response.status_code}{reason}{'' if response.status_code in _BUSY else remedy}"


def find_proxy(url: Secret, proxies: Mapping[str, str]) -> str | None:
    """Return the proxy for a URL; `None` on loopback, and for hosts that the system excludes."""
    parsed = httpx.URL(url.reveal())
    return None if is_loopback(parsed.host) or proxy_bypass(parsed.host) else proxies.get(parsed.scheme)
