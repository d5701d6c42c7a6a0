"""Parts of audits whose processes are killed with SIGKILL and run again elsewhere: the report is that of a single process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest
from distributed import Client
from support.audit_parts import SPACES, KillingFleet, read_part
from support.dask_cluster import local_cluster

from outreach_async.audit import AuditPart, merge

GROUPS: Sequence[Sequence[str]] = [SPACES[:3], SPACES[3:5], SPACES[5:]]


@pytest.mark.thorough
@pytest.mark.parametrize("kills", [{1, 4, 9}, {2, 3, 20}])
def test_a_part_that_was_killed_and_run_again_changes_nothing(tmp_path: Path, kills: set[int]) -> None:
    fleet, parts = KillingFleet(tmp_path, kills), list[AuditPart]()
    context = get_context("forkserver")
    context.set_forkserver_preload(["support.audit_parts"])  # makes processes start quickly

    with fleet.served() as url:
        for group in GROUPS:
            before = len(parts)
            while len(parts) == before:
                with ProcessPoolExecutor(1, mp_context=context) as pool, suppress(BrokenProcessPool):
                    parts.append(pool.submit(read_part, group, url, tmp_path, fleet.fake.now).result())

    assert len(fleet.killed) == 3
    assert json.dumps(merge(parts, workspaces=SPACES).to_dict()) == json.dumps(fleet.report().to_dict())


@pytest.mark.thorough
def test_parts_of_killed_dask_workers_run_again_and_change_nothing(tmp_path: Path) -> None:
    fleet = KillingFleet(tmp_path, {2, 12})
    with fleet.served() as url, local_cluster() as cluster, Client(cluster) as dask:
        job = partial(read_part, url=url, folder=tmp_path, at=fleet.fake.now)
        parts = dask.gather(dask.map(job, GROUPS))

    assert len(fleet.killed) == 2
    assert json.dumps(merge(parts, workspaces=SPACES).to_dict()) == json.dumps(fleet.report().to_dict())
