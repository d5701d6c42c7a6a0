"""Memory of a bulk run does not grow with its rows: a short version of the benchmark, on real sockets between two processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("options", [(), ("--journal",)], ids=["without a journal", "with a journal"])
def test_ten_times_the_rows_take_at_most_a_tenth_more_memory(options: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "benchmarks.bulk_memory", *options, "500", "5000"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}  # benchmarks are not installed
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    ratio = re.search(r"ratio ([0-9.]+)", done.stdout)
    assert ratio is not None
    assert float(ratio[1]) <= 1.1, done.stdout
