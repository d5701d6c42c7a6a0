"""Fixtures of the tests of imports in parts. Tests on a cluster of processes have their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.parts import KEY, KillingService, served

from outreach_async.parts import Connection


@pytest.fixture
def service() -> KillingService:
    """Return a service that counts the effects of each row."""
    return KillingService()


@pytest.fixture
def connection(service: KillingService, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """Serve the service, and yield a connection to it. The key is in the environment."""
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    with served(service) as found:
        yield found
