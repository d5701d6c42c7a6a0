"""Check that libraries of extras are installed, without importing them."""

from __future__ import annotations

from importlib.util import find_spec

from outreach_async.errors import InvalidRequest


def require_module(module: str, requirement: str) -> None:
    if find_spec(module) is None:
        raise InvalidRequest(f"{module} is not installed; run: pip install '{requirement}'")
