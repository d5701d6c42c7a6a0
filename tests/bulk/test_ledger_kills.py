"""Real processes with a ledger that are killed; tools/ledger_kills.py runs the long version."""

from __future__ import annotations

import pytest
from tools.ledger_kills import kill


@pytest.mark.nightly
def test_after_kills_the_next_run_gives_every_contact_its_last_row() -> None:
    assert kill(12, seed=1).places.total() >= 12
