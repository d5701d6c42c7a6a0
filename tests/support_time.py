"""Virtual time for tests that build what they wait for themselves: a mark, since a fixture has no place beside hypothesis."""

from __future__ import annotations

import pytest

from outreach_async.testing import VirtualTime

virtual_time = pytest.mark.parametrize(
    "anyio_backend", [pytest.param(VirtualTime().backend(name), id=name) for name in ("asyncio", "trio")]
)
"""Marks a test, or a module's tests, to run on both event loops in virtual time."""
