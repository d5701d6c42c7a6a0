"""Fixtures of the tests of bulk runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.crashes import memory

from outreach_async import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory() as simulated:
        yield simulated


@pytest.fixture
def journal(path: Path) -> Store:
    """Return a new journal that is written in the thread of the event loop, because virtual time does not wait for others."""
    return Store(path, inline=True)
