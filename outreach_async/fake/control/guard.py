"""Restrict the control plane to programs on this machine, and exclude the web pages in its browser.

A web page can send requests to a server on loopback. It cannot read the responses, unless its own name later resolves to that
server (DNS rebinding): the browser then considers both to be one origin, and only the `Host` header reveals the page. Some
requests do harm even if the response is never read; those carry the page's `Origin`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from outreach_async.fake.control.reading import Problem


def check_host(headers: Mapping[str, str], names: Collection[str]) -> str:
    """Check the host name of a request.

    Args:
        headers: The request's header fields.
        names: Accepted names in lower case, besides `localhost` and IP addresses, which nobody can make resolve elsewhere.

    Returns:
        The host with its port.

    Raises:
        Problem: 403 if the name is not accepted.
    """
    host = headers.get("host", "")
    name = _name(host)
    if not (name == "localhost" or name.endswith(".localhost") or name in names or _is_address(name)):
        remedy = "use localhost or an IP address, or start the server with --control-host NAME"
        raise Problem(403, "the control plane does not accept this host name", "host", remedy)
    return host


def check_origin(headers: Mapping[str, str], host: str) -> None:
    """Check that a request does not come from a web page of another origin.

    Raises:
        Problem: 403 if it does.
    """
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise Problem(
            403, "the control plane does not accept web pages", "origin", "send the request from a program, without Origin"
        )


def is_loopback(host: str) -> bool:
    """Return whether an address to listen on can be reached from this machine only."""
    return host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:  # brackets without an address
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
