"""Fixtures of the tests of bulk runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from outreach_async import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """Return a new journal that is written in the thread of the event loop, because virtual time does not wait for others."""
    return Journal(tmp_path / "run.db", inline=True)
