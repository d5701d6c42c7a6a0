"""The memory of an audit: of healthy mailboxes, in a short version of the benchmark on real sockets, and of domains."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from outreach_async.audit._totals import GroupTotals

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "audit_memory.py"


def peak(mailboxes: int) -> float:
    done = subprocess.run([sys.executable, BENCHMARK, str(mailboxes), "2"], capture_output=True, text=True, check=True)
    found = re.search(r": ([0-9.]+) MiB", done.stdout)
    assert found is not None
    return float(found[1])


@pytest.mark.nightly
def test_healthy_mailboxes_are_not_kept_in_memory() -> None:
    """Keeping 16,000 mailboxes would take about 16,000 KiB."""
    assert peak(24_000) - peak(8_000) < 12


def test_the_totals_of_a_domain_take_about_200_bytes() -> None:
    tracemalloc.start()
    try:
        totals = GroupTotals()
        for number in range(10_000):
            totals.add(f"outreach-domain{number}.example", 40_000 + number, 90_000 + number, 0)
        assert tracemalloc.get_traced_memory()[0] < 200 * 10_000
    finally:
        tracemalloc.stop()
