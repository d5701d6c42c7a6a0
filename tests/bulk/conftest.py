"""Fixtures of the tests of bulk runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from outreach_async import Journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


@pytest.fixture
def journal(path: Path) -> Journal:
    """Return a new journal that is written in the thread of the event loop, because virtual time does not wait for others."""
    return Journal(path, inline=True)
