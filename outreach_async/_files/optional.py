"""Check that libraries of extras are installed, in supported versions, without importing them."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Final

from outreach_async.errors import InvalidRequest

SUPPORTED_VERSIONS: Final = {"httpx": ("0.28", "1"), "httpx2": ("2.16", ""), "aiohttp": ("3.13.4", "4"), "httptools": ("0.7", "")}
"""For each HTTP library, the earliest supported version and the first unsupported one, as in the project's requirements."""


def require_module(module: str, requirement: str) -> None:
    if find_spec(module) is None:
        raise InvalidRequest(f"{module} is not installed; run: pip install '{requirement}'")


def require_library(name: str) -> None:
    """Check that the HTTP library of a backend is installed in a supported version, without importing the library."""
    require_module(name, f"outreach_async[{name}]")  # no extra installs httpx, which is always required
    from importlib.metadata import PackageNotFoundError, version  # a slow import

    try:
        found = version(name)
    except PackageNotFoundError:  # for example, bundled with an application
        return
    least, below = SUPPORTED_VERSIONS[name]
    if not _parse_version(least) <= _parse_version(found) or (below and _parse_version(found) >= _parse_version(below)):
        supported = f"{name}>={least}" + (f",<{below}" if below else "")
        raise InvalidRequest(f"{name}: expected a version in {supported}, got {found}; run: pip install '{supported}'")


def _parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version before any suffix, so that a pre-release counts as its release."""
    release = re.match(r"[0-9]+(?:\.[0-9]+)*", text)
    return tuple(map(int, release[0].split("."))) if release else ()
