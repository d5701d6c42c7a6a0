"""What every test shares: both event loops."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

pytest_plugins = ["outreach_async.pytest_plugin"]

# What a test finds must not depend on how busy the machine is.
settings.register_profile("outreach_async", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("outreach_async")
# For mutants.py: that a test fails is enough, however long its example.
settings.register_profile(
    "mutants", settings.get_profile("outreach_async"), phases=[Phase.explicit, Phase.generate], database=None
)


@pytest.fixture(params=[pytest.param(("asyncio", {"debug": False}), id="asyncio"), pytest.param(("trio", {}), id="trio")])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run each async test on asyncio and on trio."""
    return request.param
