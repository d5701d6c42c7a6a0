"""Fixtures of the tests of journals and ledgers: those of bulk runs, and a journal in each medium."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulk.conftest import folder, path
from support.journal import MEDIA, new_journal

from outreach_async.store import Store

__all__ = ["folder", "journal", "path"]


@pytest.fixture(params=MEDIA)
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Return a new journal in each medium."""
    return new_journal(request.param, tmp_path)
