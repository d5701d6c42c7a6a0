"""Memory of a bulk run does not grow with its rows: a short version of the benchmark, on real sockets between two processes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "bulk_memory.py"


def test_ten_times_the_rows_take_at_most_a_tenth_more_memory() -> None:
    done = subprocess.run([sys.executable, BENCHMARK, "500", "5000"], capture_output=True, text=True, check=True)
    ratio = re.search(r"ratio ([0-9.]+)", done.stdout)
    assert ratio is not None
    assert float(ratio[1]) <= 1.1, done.stdout
