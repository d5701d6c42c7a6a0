"""Processes that are killed with SIGKILL; tools/kill_loop.py runs the long version."""

from __future__ import annotations

import pytest
from support.s3 import environment, serve_s3
from tools.kill_loop import Kind, loop


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["file", "folder", "s3", "ledger", "ledger-folder", "ledger-s3"])
def test_kills_lose_duplicate_and_mislabel_no_row(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_s3() as port:
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)
        assert loop(8, 3, [kind]).total() >= 8
