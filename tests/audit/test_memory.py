"""The memory of an audit in which every mailbox has a finding."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import anyio
import pytest
from support.audit import NOW, MailboxService, mailbox, wire

from outreach_async import OutreachClient
from outreach_async.audit import Report, audit

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "audit_memory.py"


def peak(mailboxes: int) -> float:
    command = [sys.executable, str(BENCHMARK), str(mailboxes), "2", "findings"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r": ([0-9.]+) MiB", done.stdout)
    assert found is not None
    return float(found[1])


@pytest.mark.nightly
def test_100000_mailboxes_with_findings_and_their_reports_take_at_most_200_mib() -> None:
    assert peak(100_000) - peak(2) < 200


@pytest.mark.thorough
def test_a_mailbox_with_findings_takes_at_most_2_kib() -> None:
    boxes = [
        wire(mailbox(id=f"mailbox_{at:016x}", email=f"first.last{at}@outreach{at // 4}.example", dkim=False, bounced_30days=60))
        for at in range(400)
    ]

    async def read() -> Report:
        async with OutreachClient(transport=MailboxService({"space_1": boxes})) as client:
            return await audit(client, ["space_1"], display=100, clock=lambda: NOW)

    anyio.run(read)  # what it imports takes memory, too
    tracemalloc.start()
    try:
        report = anyio.run(read)
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(report.findings) == 800
    assert size < 2_048 * len(boxes)
