"""An audit's memory does not grow with healthy mailboxes: a short version of the benchmark, on real sockets."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.audit import NOW
from tools.audit_names import pages

from outreach_async.audit import Policy
from outreach_async.audit._evaluation import AuditState
from outreach_async.audit._run import build_report, finish_reading

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


def test_memory_does_not_grow_with_the_number_of_domains_and_servers() -> None:
    state = AuditState(["space_1", "space_2"], Policy.default(), NOW, most=200)
    sizes = []

    for number, page in enumerate(pages(8_000, 500)):
        state.add_page(state.workspaces[number % 2], page)
        sizes.append(len(pickle.dumps((state.totals, state.columns))))

    assert max(sizes[8:]) < 1.5 * max(sizes[:8])
    found = build_report(state, [], finish_reading(state, []))
    assert (found.totals["type"], found.scores.workspaces["space_1"].mailboxes) == (1, 4_000)
    for name, count in (("domains", found.totals["domain"]), ("servers", found.totals["server_ip"])):
        assert 0.75 < count / 8_000 < 1.25
        gap = f"the totals of {count - 200:,} of about {count:,} {name}: too many to store; audit fewer workspaces"
        assert gap in found.not_judged
