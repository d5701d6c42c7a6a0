"""Memory of imports in parts: a short version of tools/import_memory.py, with a process for each plan and each part."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.thorough


def measure(action: str, kind: str, rows: int) -> tuple[float, float]:
    """Return the ratio of the peak memories with `4 * rows` and `rows` rows, and the growth in bytes per row."""
    command = [sys.executable, "-m", "tools.import_memory", action, kind, str(rows), str(4 * rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"ratio ([0-9.]+), ([0-9.-]+) bytes a row", done.stdout)
    assert found is not None
    return float(found[1]), float(found[2])


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "rows"), [("csv", 300_000), ("parquet", 300_000)])  # whole row groups of 100,000
def test_a_plan_of_a_file_takes_at_most_8_bytes_per_row(kind: str, rows: int) -> None:
    _, slope = measure("plan", kind, rows)
    assert slope <= 8


@pytest.mark.nightly
def test_sending_four_times_the_rows_takes_little_more_memory() -> None:
    ratio, _ = measure("send", "csv", 1_000)
    assert ratio <= 1.1
