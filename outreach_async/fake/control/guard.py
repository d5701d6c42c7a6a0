"""Who may use the control plane: programs on this machine, and not the web pages that its browser shows.

A page can send requests to a server on loopback. It cannot read the answers, unless its own name resolves to that server in the
end (DNS rebinding): then the browser takes the two for one origin, and the `Host` header alone tells. Some requests do harm
without being read; those carry the page's `Origin`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from outreach_async.fake.control.reading import Problem


def check_host(headers: Mapping[str, str], names: Collection[str]) -> str:
    """Check by which name the control plane is asked for.

    Args:
        headers: The request's header fields.
        names: Names that are allowed, lower case, besides `localhost` and IP addresses, which nobody can make resolve elsewhere.

    Returns:
        The host with its port.

    Raises:
        Problem: 403 for another name.
    """
    host = headers.get("host", "")
    name = _name(host)
    if not (name == "localhost" or name.endswith(".localhost") or name in names or _is_address(name)):
        remedy = "ask for it as localhost or by IP address, or start the server with --control-host NAME"
        raise Problem(403, "the control plane does not answer to this name", "host", remedy)
    return host


def check_origin(headers: Mapping[str, str], host: str) -> None:
    """Check that no web page of another origin asks.

    Raises:
        Problem: 403 if one does.
    """
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise Problem(403, "the control plane does not answer web pages", "origin", "ask from a program, without Origin")


def is_loopback(host: str) -> bool:
    """Say whether an address to listen at is reached from this machine only."""
    return host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:  # brackets without an address in them
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
