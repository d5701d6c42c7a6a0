"""Imports on a Dask cluster of real processes, of which some die or stand still: rows are conserved, and no label is wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.dask_cluster import WORKER_TTL, ClusterService, find_violations, local_cluster, separate_scheduler
from support.spread import KEY, ROW, served, write_people

from outreach_async.errors import BulkSuspended
from outreach_async.spread import Connection, ImportPlan, plan
from outreach_async.spread.dask import create_many
from outreach_async.vocabulary import DuplicatePolicy


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTREACH_OWNER_KEY", KEY)  # the workers inherit it
        with local_cluster() as found:
            yield found


@pytest.fixture
def service() -> ClusterService:
    return ClusterService(before=[f"u{number}@x.example" for number in range(0, 240, 5)])


@pytest.fixture
def connection(service: ClusterService) -> Iterator[Connection]:
    with served(service) as found:
        yield found


def planned(folder: Path, duplicates: DuplicatePolicy = "skip") -> ImportPlan:
    """Plan 240 rows in four files, of which some share an e-mail."""
    paths = [folder / f"{at}.csv" for at in range(4)]
    for at, path in enumerate(paths):
        numbers = range(at * 60, at * 60 + 60)
        write_people(
            path, [f"U{number - 70 if number >= 70 and number % 14 == 0 else number}@x.example" for number in numbers], at * 60
        )
    return plan(paths, overrides={"Note": ROW}, duplicates=duplicates)


@pytest.mark.parametrize(("duplicates", "kills"), [("skip", {20, 61, 98, 141, 190}), ("overwrite", {5, 70, 110, 152, 230})])
def test_killed_workers_lose_and_mislabel_no_row(  # noqa: PLR0917 - fixtures
    duplicates: DuplicatePolicy, kills: set[int], cluster: Any, service: ClusterService, connection: Connection, tmp_path: Path
) -> None:
    made, journal = planned(tmp_path, duplicates), f"file://{tmp_path}/journals"
    service.watch(cluster, made)
    service.kills = kills
    cluster.scheduler.allowed_failures = 0  # Dask gives a part up at each death
    with create_many(cluster, made, connection, journal=journal, rate=400.0) as run:
        assert sum(report.rows for report in run) == 240
    assert service.killed == len(kills)
    assert run.progress.resubmitted > 0
    assert list(find_violations(service, made, journal)) == []
    assert service.requests - 240 <= len(kills) * 2 * 1008, "more rows were sent again than the interrupted parts may have sent"
    assert run.report.uncertain > 0
    sent = service.requests
    with create_many(cluster, made, connection, journal=journal) as again:
        list(again)
    assert again.report == run.report
    assert service.requests == sent, "a finished part sent something"


def test_a_worker_that_returns_after_its_part_was_taken_over_stops(
    service: ClusterService, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    made, journal = planned(tmp_path, "overwrite"), f"file://{tmp_path}/journals"
    service.stops, service.stop_seconds = {30}, 3.0 * WORKER_TTL
    with local_cluster(f"{WORKER_TTL}s") as cluster:
        service.watch(cluster, made)
        with create_many(cluster, made, connection, journal=journal, rate=20.0) as run:
            assert sum(report.rows for report in run) == 240
    assert len(service.senders) == 1
    assert list(find_violations(service, made, journal)) == []
    assert service.requests - 240 <= 1008


def test_a_plan_resumes_after_the_scheduler_was_killed(
    cluster: Any, service: ClusterService, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    made, journal = planned(tmp_path), f"file://{tmp_path}/journals"
    with separate_scheduler(tmp_path) as (address, scheduler):

        def kill() -> None:
            while service.requests < 70:
                time.sleep(0.02)
            scheduler.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        with (
            create_many(address, made, connection, journal=journal, rate=60.0) as run,
            pytest.raises(BulkSuspended, match="the Dask scheduler was lost"),
        ):
            list(run)
        killer.join()
        with create_many(cluster, made, connection, journal=journal) as resumed:
            assert sum(report.rows for report in resumed) == 240
    assert list(find_violations(service, made, journal)) == []
    assert service.requests - 240 <= 1008


def test_two_workers_share_one_rate(cluster: Any, service: ClusterService, connection: Connection, tmp_path: Path) -> None:
    made = planned(tmp_path)
    with create_many(cluster, made, connection, journal=f"file://{tmp_path}/journals", rate=50.0) as run:
        assert len(list(run)) == len(made.parts)
    times = service.times
    busiest = max(sum(start <= at < start + 2.0 for at in times) for start in times)
    assert busiest <= 2 * 50 * 1.3, "the workers exceeded their common rate"
