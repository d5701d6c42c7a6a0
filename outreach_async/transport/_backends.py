"""The backends: the HTTP libraries that send requests. Options, configuration files and commands read this one table.

To add a backend, add its name and its line here, and export its class from `outreach_async`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, Literal, TypeAlias

import attrs

from outreach_async._files.optional import require_module
from outreach_async.errors import InvalidRequest
from outreach_async.transport._wire import Transport

Backend: TypeAlias = Literal["httpx", "httpx2", "aiohttp", "httptools"]


@attrs.frozen
class _Library:
    module: str
    transport: str  # the class in the module
    least: str  # the earliest supported version and the first unsupported one, as in the project's requirements
    below: str = ""
    options: Mapping[str, Any] = {}  # of the class
    has_certificates: bool = False  # whether the library makes an SSL context with default certificates


BACKENDS: Final[Mapping[Backend, _Library]] = {
    "httpx": _Library("_httpx", "HttpxTransport", "0.28", "1", {"family": "httpx"}, has_certificates=True),
    "httpx2": _Library("_httpx", "HttpxTransport", "2.16", "", {"family": "httpx2"}, has_certificates=True),
    "aiohttp": _Library("_aiohttp", "AiohttpTransport", "3.13.4", "4"),
    "httptools": _Library("_httptools", "HttptoolsTransport", "0.7"),
}


def create_transport(base_url: str, backend: Backend, limit: int) -> Transport:
    """Make a transport to a URL, with at most `limit` connections."""
    library = BACKENDS[backend]
    build: Any = getattr(import_module(f"outreach_async.transport.{library.module}"), library.transport)
    transport: Transport = build(base_url, max_in_flight=limit, **library.options)
    return transport


def require_library(name: Backend) -> None:
    """Check that the library of a backend is installed in a supported version, without importing the library."""
    require_module(name, f"outreach_async[{name}]")  # no extra installs httpx, which is always required
    from importlib.metadata import PackageNotFoundError, version  # a slow import

    try:
        found = version(name)
    except PackageNotFoundError:  # for example, bundled with an application
        return
    least, below = BACKENDS[name].least, BACKENDS[name].below
    if not _parse_version(least) <= _parse_version(found) or (below and _parse_version(found) >= _parse_version(below)):
        supported = f"{name}>={least}" + (f",<{below}" if below else "")
        raise InvalidRequest(f"{name}: expected a version in {supported}, got {found}; run: pip install '{supported}'")


def _parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version before any suffix, so that a pre-release counts as its release."""
    release = re.match(r"[0-9]+(?:\.[0-9]+)*", text)
    return tuple(map(int, release[0].split("."))) if release else ()
