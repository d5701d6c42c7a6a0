"""What every test shares: both event loops."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# What a test finds must not depend on how busy the machine is.
settings.register_profile("outreach_async", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("outreach_async")


@pytest.fixture(params=[pytest.param(("asyncio", {"debug": False}), id="asyncio"), pytest.param(("trio", {}), id="trio")])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run each async test on asyncio and on trio."""
    return request.param
