"""A bulk run's memory does not grow with its rows: a short version of the benchmark, on sockets between two processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("options", "rows", "most"),
    [((), ("300", "2300"), 1.05), (("--journal", "--backend", "aiohttp"), ("500", "5000"), 1.1)],
    ids=["without a journal", "with a journal"],
)
def test_many_times_the_rows_take_little_more_memory(options: tuple[str, ...], rows: tuple[str, str], most: float) -> None:
    """Check that each row adds less than one KiB."""
    command = [sys.executable, "-m", "benchmarks.bulk_memory", *options, *rows]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}  # benchmarks are not installed
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    ratio = re.search(r"ratio ([0-9.]+)", done.stdout)
    assert ratio is not None
    assert float(ratio[1]) <= most, done.stdout
