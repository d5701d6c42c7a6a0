"""Imports on a Dask cluster of real processes, some of which die: no row is lost or duplicated, and no label is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.dask_cluster import (
    ClusterService,
    command_cluster,
    count_resent,
    find_violations,
    local_cluster,
    served_to_cluster,
    write_parts,
)
from support.s3 import BUCKET, environment, serve_s3

from outreach_async import DuplicatePolicy
from outreach_async.errors import BulkSuspended
from outreach_async.parts import Connection, ImportPlan
from outreach_async.parts.dask import DaskImport

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    with serve_s3() as port:
        yield environment(port)


@pytest.fixture(scope="module")
def cluster(store: dict[str, str]) -> Iterator[Any]:
    with local_cluster(environment=store) as found:
        yield found


@pytest.fixture
def service(cluster: Any) -> ClusterService:
    service = ClusterService(before=[f"u{number}@x.example" for number in range(0, 240, 5)])
    service.watch(cluster)
    return service


@pytest.fixture
def connection(service: ClusterService) -> Iterator[Connection]:
    with served_to_cluster(service) as found:
        yield found


def planned(folder: Path, duplicates: DuplicatePolicy = "skip") -> ImportPlan:
    """Plan 240 rows in four files. Some rows share an e-mail."""
    numbers = [number - 70 if number >= 70 and number % 14 == 0 else number for number in range(240)]
    return write_parts(folder, [f"U{number}@x.example" for number in numbers], files=4, duplicates=duplicates)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("place", "duplicates", "kills"),
    [
        ("file://{}/journals", "skip", {20, 61, 98, 141, 190}),
        ("file://{}/journals", "overwrite", {5, 70, 110, 152, 230}),
        (f"s3://{BUCKET}/june", "overwrite", {60, 150}),
    ],
)
def test_killed_workers_lose_and_mislabel_no_row(  # noqa: PLR0917 - fixtures
    place: str,
    duplicates: DuplicatePolicy,
    kills: set[int],
    store: dict[str, str],
    cluster: Any,
    service: ClusterService,
    connection: Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in store.items():
        monkeypatch.setenv(name, value)
    made, journal = planned(tmp_path, duplicates), place.format(tmp_path)
    service.kills = kills
    cluster.scheduler.allowed_failures = 3
    with DaskImport(cluster, made, connection, journal=journal, rate=400.0 if place.startswith("file") else 100.0) as run:
        assert sum(report.rows for report in run) == 240
    assert service.killed == len(kills)
    assert list(find_violations(service, made, journal)) == []
    assert run.report.uncertain > 0
    sent = service.requests
    with DaskImport(cluster, made, connection, journal=journal) as again:
        list(again)
    assert again.report == run.report
    assert service.requests == sent, "a finished part sent something"


@pytest.mark.nightly
def test_a_killed_part_sends_at_most_its_unrecorded_rows_again(
    cluster: Any, service: ClusterService, connection: Connection, tmp_path: Path
) -> None:
    made = write_parts(tmp_path, [f"u{number}@x.example" for number in range(3000)], files=1)
    journal = f"file://{tmp_path}/journals"
    service.kills = {2400}
    with DaskImport(cluster, made, connection, journal=journal) as run:
        list(run)
    assert service.killed == 1
    assert list(find_violations(service, made, journal)) == [], "more rows were sent again than are unrecorded at most"
    assert sum(count_resent(service, part)[1] for part in made.parts) == 1


@pytest.mark.covers
def test_a_part_that_dask_gives_up_is_submitted_again(
    cluster: Any, service: ClusterService, connection: Connection, tmp_path: Path
) -> None:
    made = write_parts(tmp_path, [f"u{number}@x.example" for number in range(240)], files=1)
    journal = f"file://{tmp_path}/journals"
    cluster.scheduler.allowed_failures = 1  # Dask gives up a task at the second death of its worker; the default is the fourth
    service.kills = {30, 90, 150}
    with DaskImport(cluster, made, connection, journal=journal, rate=400.0) as run:
        list(run)
    assert (service.killed, run.resubmitted) == (3, 1)
    assert list(find_violations(service, made, journal)) == []


@pytest.mark.covers
def test_a_plan_resumes_after_the_scheduler_was_killed(
    cluster: Any, service: ClusterService, connection: Connection, tmp_path: Path
) -> None:
    made, journal = planned(tmp_path), f"file://{tmp_path}/journals"
    with command_cluster(tmp_path) as other:
        service.call_at(70, other.scheduler.kill)
        with (
            DaskImport(other.address, made, connection, journal=journal, rate=60.0) as run,
            pytest.raises(BulkSuspended, match="the Dask scheduler was lost"),
        ):
            list(run)
        with DaskImport(cluster, made, connection, journal=journal) as resumed:
            assert sum(report.rows for report in resumed) == 240
    assert list(find_violations(service, made, journal)) == []


@pytest.mark.nightly
def test_two_workers_share_one_rate(cluster: Any, service: ClusterService, connection: Connection, tmp_path: Path) -> None:
    made = planned(tmp_path)
    with DaskImport(cluster, made, connection, journal=f"file://{tmp_path}/journals", rate=50.0) as run:
        assert len(list(run)) == len(made.parts)
    times = [sent.at for sent in service.sent]
    busiest = max(sum(start <= at < start + 2.0 for at in times) for start in times)
    assert busiest <= 2 * 50 * 1.3, "the workers exceeded their common rate"
