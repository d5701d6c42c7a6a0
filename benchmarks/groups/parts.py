"""Imports in parts: the CPU time of workers and driver a row, compared with one `create_many` of the same files.

The service is the project's own fake, on a real socket and in a process of its own, whose CPU time is not counted. The rows a
second by the number of workers are measured on the server with prepared responses, which is faster than two workers.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias
from urllib.request import Request, urlopen

from benchmarks.groups.rounds import Bench, Busy, Job, present
from benchmarks.machine import unpin
from benchmarks.measuring import Figures, run, served, spending
from benchmarks.peers import ours
from benchmarks.results import Table
from benchmarks.service import FAKE_KEY, FAKE_WORKSPACE, serving_fake
from benchmarks.workload import FIELDS, OWNER_KEY, WORKSPACE, email
from outreach_async.importer import Row, map_columns, open_file
from outreach_async.parts import Connection, ImportPlan, ImportReport, Part, import_part, merge_reports, plan

_PARTS: Final = 2
_PROCESSES: Final = 2
_ROWS: Final = 48_000  # with far fewer, the start of the processes weighs
_SLOW: Final = 3
"""Factor of fewer rows on httpx, which costs several times as much as aiohttp."""
_WARM_UP: Final = 100
_UNREACHED: Final = 1e6
"""Rate on Dask and by workers. Without one, the first seconds of an import go into the search for the limit."""

FILE: Final = "create_many, journal"
OBJECTS: Final = "create_many, object journal"
POOL: Final = "import_part on a process pool, two processes"
DASK: Final = "parts.dask.create_many, two workers"
UNPROFILED: Final = "parts.dask.create_many, two workers, Dask's profiler off"
DRIVER: Final = "parts.dask.create_many, driver and scheduler"
PLAN: Final = "plan"

_COMPUTED: Final = 8
_WORKERS: Final = {f"{number} worker{'s'[: number - 1]}": number for number in (1, 2)}
_BACKENDS: Final = ("httptools", "aiohttp", "httpx")


_Run: TypeAlias = Callable[[Path, ImportPlan, ImportPlan, Connection], Figures]
"""Measures an import. Its arguments are an empty folder, the plan of the warm-up, the plan to measure, and the connection."""


def _rows(made: ImportPlan) -> Iterator[Row]:
    """Read the files of a plan, as an import without parts does."""
    for planned in made.files:
        file = open_file(planned.location)
        yield from file.rows(map_columns(file.headers))


async def _create_many(made: ImportPlan, connection: Connection, journal: str) -> int:
    async with connection.create_client() as client:
        run = client.contacts.create_many(_rows(made), strict_validation=False, journal=journal)
        async with run as outcomes:
            return len([None async for _ in outcomes])


def _in_one_process(journal: str) -> _Run:
    """Return a function that measures `create_many`. `journal` is the location, with `{}` for the folder and the name."""

    def measure_one(folder: Path, warm_up: ImportPlan, made: ImportPlan, connection: Connection) -> Figures:
        run(_create_many(warm_up, connection, journal.format(folder / "warm-up")))
        with spending() as spent:
            assert run(_create_many(made, connection, journal.format(folder / "run"))) == made.rows
        return spent.each(made.rows)

    return measure_one


def _timed_part(part: Part, folder: Path, connection: Connection) -> tuple[ImportReport, float]:
    """Import a part in a process of the pool, and return its report and the CPU time in seconds."""
    with spending() as spent:
        report = import_part(part, folder, connection)
    return report, spent.cpu


def _on_a_pool(folder: Path, warm_up: ImportPlan, made: ImportPlan, connection: Connection) -> Figures:
    with ProcessPoolExecutor(_PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
        for job in [pool.submit(_timed_part, part, folder / "warm-up", connection) for part in warm_up.parts]:
            job.result()
        with spending() as spent:
            jobs = [pool.submit(_timed_part, part, folder / "run", connection) for part in made.parts]
            done = [job.result() for job in jobs]
    assert merge_reports(report for report, _ in done).rows == made.rows
    return {**spent.each(made.rows), "cpu": 1e6 * sum(cpu for _, cpu in done) / made.rows}


def _on_dask(folder: Path, warm_up: ImportPlan, made: ImportPlan, connection: Connection) -> Figures:
    """Measure the whole processes of the workers, and this one, which has the driver and the scheduler."""
    from distributed import Client, LocalCluster

    from outreach_async.parts.dask import DaskImport

    options: dict[str, Any] = {"n_workers": _PROCESSES, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        with DaskImport(client, warm_up, connection, journal=f"file://{folder}/warm-up", rate=_UNREACHED) as begun:
            list(begun)
        before = sum(client.run(time.process_time).values())
        with spending() as spent:
            with DaskImport(client, made, connection, journal=f"file://{folder}/run", rate=_UNREACHED) as begun:
                list(begun)
            assert begun.report.rows == made.rows
        workers = sum(client.run(time.process_time).values()) - before
    return {**spent.each(made.rows), "cpu": 1e6 * workers / made.rows, "driver": 1e6 * spent.cpu / made.rows}


def _on_dask_unprofiled(folder: Path, warm_up: ImportPlan, made: ImportPlan, connection: Connection) -> Figures:
    import dask
    import distributed  # noqa: F401 - its defaults, which the block would otherwise load and forget

    with dask.config.set({"distributed.worker.profile.enabled": False}):
        return _on_dask(folder, warm_up, made, connection)


def _planned(_folder: Path, _warm_up: ImportPlan, made: ImportPlan, _connection: Connection) -> Figures:
    with spending() as spent:
        plan([file.location for file in made.files], strict_validation=False)
    return spent.each(made.rows)


_RUNS: Final[dict[str, _Run]] = {
    FILE: _in_one_process("{}.db"),
    OBJECTS: _in_one_process("file://{}"),
    POOL: _on_a_pool,
    DASK: _on_dask,
    UNPROFILED: _on_dask_unprofiled,
    PLAN: _planned,
}


def measure(row: str, url: str, files: list[str], backend: Any) -> Figures:
    """Measure one of them. The first file is the warm-up. Runs in the worker process, which may use all cores."""
    unpin()
    os.environ["OUTREACH_OWNER_KEY"] = FAKE_KEY
    with urlopen(Request(f"{url}/_fake/reset", method="POST")) as answer:  # noqa: S310 - our own server
        answer.read()
    connection = Connection(base_url=url, workspace=FAKE_WORKSPACE, backend=ours.CHOICES.get(backend, backend))
    warm_up, made = (plan(paths, strict_validation=False) for paths in (files[:1], files[1:]))
    with TemporaryDirectory() as folder:
        figures = _RUNS[row](Path(folder), warm_up, made, connection)
        objects = [path.stat().st_size for path in Path(folder, "run").rglob("*") if path.is_file()]
    return {**figures, "objects": 1000 * len(objects) / made.rows, "bytes": sum(objects) / made.rows}


def _write(folder: Path, rows: int, *, warm_ups: int = 1, parts: int = _PARTS) -> list[str]:
    """Write the files of the warm-up and those of the parts, and return their paths."""
    paths, first = [], 0
    for number, count in enumerate([_WARM_UP] * warm_ups + [rows // parts] * parts):
        path = folder / f"{rows}-{number}.csv"
        lines = [",".join((email(at), *FIELDS.values())) for at in range(first, first + count)]
        path.write_text("\n".join([",".join(("email", *FIELDS)), *lines]) + "\n", encoding="utf-8")
        paths.append(str(path))
        first += count
    return paths


def parts(bench: Bench) -> list[Table]:
    """Measure imports in parts, and one `create_many` of the same rows."""
    cpu = Table(f"Imports of {_PARTS} CSV files, 64 in flight a process", "CPU, us a row, by transport", (FILE,))
    wall = Table("Imports in parts: wall time", "us a row, by transport", (FILE,))
    journal = Table("Object journals of imports at full speed", "objects a 1,000 rows; bytes a row")

    def take(job: Job, figures: Figures) -> None:
        cpu.add(job.row, job.column, figures["cpu"])
        if job.row == DASK:
            cpu.add(DRIVER, job.column, figures["driver"])
        if job.row != PLAN:
            wall.add(job.row, job.column, figures["wall"])
        if job.row in (OBJECTS, DASK):
            for name in ("objects", "bytes"):
                journal.add(job.row, f"{name}, {job.column}", figures[name])

    with TemporaryDirectory() as folder, serving_fake() as url:
        jobs = []
        for backend in present({backend: ours.BACKENDS[backend] for backend in _BACKENDS}):
            files = _write(Path(folder), bench.sized(_ROWS) // (_SLOW if backend == "httpx" else 1))
            jobs += [Job(row, backend, measure, {"row": row, "url": url, "files": files, "backend": backend}) for row in _RUNS]
        bench.interleave(jobs, take)
    cpu.notes.append("A worker's CPU is that of its whole process, with Dask's part. No process is pinned to a core.")
    wall.notes.append("The fake is one process, and shares two cores with the importing processes.")
    return [cpu, wall, journal]


def measure_workers(url: str, backend: Any, workers: int, rows: int) -> Figures:
    """Measure workers that import a part each. Runs in the worker process, which may use all cores."""
    unpin()
    os.environ["OUTREACH_OWNER_KEY"] = OWNER_KEY
    connection = Connection(base_url=url, workspace=WORKSPACE, backend=ours.CHOICES.get(backend, backend), rate=_UNREACHED)
    spawn = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as folder, ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        paths = _write(Path(folder), workers * rows, warm_ups=workers, parts=workers)
        warm_up, made = (plan(files, strict_validation=False) for files in (paths[:workers], paths[workers:]))
        list(pool.map(import_part, warm_up.parts, [f"{folder}/warm-up"] * workers, [connection] * workers))
        with served(url) as spent:
            done = list(pool.map(_timed_part, made.parts, [Path(folder)] * workers, [connection] * workers))
    assert merge_reports(report for report, _ in done).rows == made.rows
    return {"cpu": 1e6 * sum(cpu for _, cpu in done) / made.rows, "rate": made.rows / spent.wall, "busy": spent.busy}


def workers(bench: Bench) -> list[Table]:
    """Measure the rows a second of one worker and of two, and compute those of eight."""
    rate = Table("Imports in parts, when the service is not the limit", "rows a second, by transport")
    cpu = Table("Imports in parts, when the service is not the limit: CPU", "CPU of all workers, us a row, by transport")
    busy = Busy()

    def take(job: Job, figures: Figures) -> None:
        rate.add(job.row, job.column, figures["rate"])
        cpu.add(job.row, job.column, figures["cpu"])
        busy.add(job, figures)
        if job.row == [*_WORKERS][-1]:
            rate.add(f"{_COMPUTED} workers, computed", job.column, _COMPUTED * 1e6 / figures["cpu"])

    jobs = []
    for backend in present({backend: ours.BACKENDS[backend] for backend in _BACKENDS}):
        rows = bench.sized(_ROWS) // (_PARTS * (_SLOW if backend == "httpx" else 1))
        options = {"url": bench.service.url, "backend": backend, "rows": rows}
        jobs += [Job(row, backend, measure_workers, {**options, "workers": workers}) for row, workers in _WORKERS.items()]
    bench.interleave(jobs, take)
    rate.notes += [
        "A worker has one part, with a journal in a file.",
        f"{_COMPUTED} workers: {_COMPUTED} processors, divided by the CPU time of a row with two workers.",
        busy.said(),
    ]
    return [rate, cpu]
