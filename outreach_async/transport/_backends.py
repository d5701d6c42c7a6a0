"""The backends: the HTTP libraries that send requests. Options, configuration files and commands read this one table.

To add a backend, add its name and its line here, and export its class from `outreach_async`. `auto` stands for one of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, Literal, TypeAlias

import attrs

from outreach_async._files.optional import require_module
from outreach_async.errors import InvalidRequest
from outreach_async.transport._urls import choose_environment_proxy, parse_base_url
from outreach_async.transport._wire import Transport

Backend: TypeAlias = Literal["auto", "sockets", "httpx", "httpx2", "aiohttp"]


@attrs.frozen
class _Library:
    module: str
    transport: str  # the class in the module
    least: str  # the earliest supported version and the first unsupported one, as in the project's requirements
    below: str
    options: Mapping[str, Any] = {}  # of the class
    has_certificates: bool = False  # whether the library makes an SSL context with default certificates
    package: str = ""  # the package that it needs; empty for the one with the name of the backend


BACKENDS: Final[Mapping[Backend, _Library]] = {
    "sockets": _Library("_sockets", "SocketTransport", "0.16", "1", package="h11"),
    "httpx": _Library("_httpx", "HttpxTransport", "0.28", "1", {"family": "httpx"}, has_certificates=True),
    "httpx2": _Library("_httpx", "HttpxTransport", "2.16", "3", {"family": "httpx2"}, has_certificates=True),
    "aiohttp": _Library("_aiohttp", "AiohttpTransport", "3.13.4", "4"),
}


def create_transport(base_url: str, backend: Backend, limit: int) -> Transport:
    """Make a transport to a URL, with at most `limit` connections.

    `auto` stands for `sockets`, or for `httpx` if the environment sets a proxy for the URL.
    """
    if backend == "auto":
        from urllib.request import getproxies  # a slow import

        backend = "httpx" if choose_environment_proxy(parse_base_url(base_url), getproxies()) else "sockets"
    library = BACKENDS[backend]
    build: Any = getattr(import_module(f"outreach_async.transport.{library.module}"), library.transport)
    transport: Transport = build(base_url, max_in_flight=limit, **library.options)
    return transport


def require_library(name: Backend) -> None:
    """Check that the library of a backend is installed in a supported version, without importing the library."""
    library = BACKENDS[name]
    package, least, below = library.package or name, library.least, library.below
    require_module(package, f"outreach_async[{name}]")  # no extra installs h11 and httpx, which are always required
    from importlib.metadata import PackageNotFoundError, version  # a slow import

    try:
        found = version(package)
    except PackageNotFoundError:  # for example, bundled with an application
        return
    if not parse_version(least) <= parse_version(found) < parse_version(below):
        supported = f"{package}>={least},<{below}"
        raise InvalidRequest(f"{package}: expected a version in {supported}, got {found}; run: pip install '{supported}'")


def parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version before any suffix, so that a pre-release counts as its release."""
    release = re.match(r"[0-9]+(?:\.[0-9]+)*", text)
    return tuple(map(int, release[0].split("."))) if release else ()
