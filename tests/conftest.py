"""What every test shares: both event loops."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(params=[pytest.param(("asyncio", {"debug": False}), id="asyncio"), pytest.param(("trio", {}), id="trio")])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run each async test on asyncio and on trio."""
    return request.param
