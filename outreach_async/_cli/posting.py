"""Post a brief to an incoming webhook. Its URL is a secret: whoever knows it can write to the channel."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.request import getproxies, proxy_bypass

import anyio
import click

from outreach_async.transport._secret import Secret
from outreach_async.transport._urls import is_loopback

_ENVIRONMENT: Final = "env:"
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
    if not _is_allowed(text.strip()):
        raise click.UsageError(f"--post: expected {_EXPECTED}; http is allowed for this computer only, such as 127.0.0.1.")
    return Secret(text.strip())


def _is_allowed(text: str) -> bool:
    import httpx  # slow to import

    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError):
        return False
    is_safe = url.scheme == "https" or (url.scheme == "http" and is_loopback(url.host))
    return is_safe and bool(url.host) and not url.userinfo


async def post(url: Secret, message: str, waits: Sequence[float] = _ATTEMPTS) -> None:
    """Post a message. Redirects are not followed.

    Raises:
        PostError: The message was not delivered, or it is not known whether it was.
    """
    import httpx  # slow to import

    problem = PostError("not tried")
    for wait in waits:
        await anyio.sleep(wait)
        try:
            return await _post_once(url, message)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            problem = PostError(f"no connection ({_explain(error)}); check the network and the URL")
        except _Busy as busy:
            problem = PostError(f"the receiver answered {busy}")
        except (httpx.HTTPError, TimeoutError) as error:
            # The request was sent, so another one might post the brief twice.
            problem = PostError(f"no response ({_explain(error)}); look whether the brief has arrived")
            break
    raise problem from None


class _Busy(Exception):
    """Raised when the receiver asks to try again."""


async def _post_once(url: Secret, message: str) -> None:
    import httpx  # slow to import

    # A transport is used without a client, because a client logs the URL of each request.
    seconds = dict.fromkeys(("connect", "read", "write", "pool"), _TIMEOUT)
    async with httpx.AsyncHTTPTransport(proxy=find_proxy(url, getproxies())) as transport:
        request = httpx.Request(
            "POST", url.reveal(), headers={"content-type": "application/json"}, content=message, extensions={"timeout": seconds}
        )
        with anyio.fail_after(2 * _TIMEOUT):
            response = await transport.handle_async_request(request)
            body = await response.aread()
    if response.is_success:
        return
    shown = body[:100].decode("utf-8", "replace").strip()
    reason = f" ({shown})" if _REASON.fullmatch(shown) else ""
    text = f"{response.status_code}{reason}"
    if response.status_code in {429, 503}:
        raise _Busy(text)
    remedy = "use the URL to which it redirects" if response.is_redirect else "check the URL of the webhook"
    if response.is_server_error:  # another attempt might post the brief twice
        remedy = "this is its failure, not one of the URL; look whether the brief has arrived"
    raise PostError(f"the receiver answered {text}; {remedy}")


def find_proxy(url: Secret, proxies: Mapping[str, str]) -> str | None:
    """Return the proxy for a URL; `None` on loopback, and for hosts that the system excludes."""
    import httpx  # slow to import

    parsed = httpx.URL(url.reveal())
    return None if is_loopback(parsed.host) or proxy_bypass(parsed.host) else proxies.get(parsed.scheme)


def _explain(error: Exception) -> str:
    """Return the kind of an error, because its text might contain the URL."""
    return type(error).__name__
