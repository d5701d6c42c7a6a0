"""Memory does not grow with the size of a file: a short version of tools/import_memory.py, with a process for each file."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.thorough


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "rows"), [("csv", ("500", "10000")), ("jsonl", ("500", "10000")), ("parquet", ("20000", "60000"))]
)
def test_many_times_the_rows_take_at_most_ten_percent_more_memory(kind: str, rows: tuple[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.import_memory", "read", kind, *rows], capture_output=True, text=True, check=True
    )
    ratio = re.search(r"ratio ([0-9.]+)", done.stdout)
    assert ratio is not None
    assert float(ratio[1]) <= 1.1, done.stdout
