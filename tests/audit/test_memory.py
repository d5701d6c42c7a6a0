"""An audit's memory does not grow with healthy mailboxes: a short version of the benchmark, on real sockets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "audit_memory.py"


def peak(mailboxes: int) -> float:
    done = subprocess.run([sys.executable, BENCHMARK, str(mailboxes), "2"], capture_output=True, text=True, check=True)
    found = re.search(r": ([0-9.]+) MiB", done.stdout)
    assert found is not None
    return float(found[1])


def test_healthy_mailboxes_are_not_kept_in_memory() -> None:
    """If they were kept, 16,000 mailboxes would take as many KiB."""
    assert peak(24_000) - peak(8_000) < 12
