"""Kill workers of imports on a Dask cluster with SIGKILL, and check that no row is lost and no label is wrong.

Run: python tests/tools/dask_kills.py KILLS [SEED], such as dask_kills.py 500
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.dask_cluster import ClusterService, count_resent, find_violations, local_cluster, served_to_cluster, write_parts

from outreach_async.spread.dask import create_many
from outreach_async.vocabulary import DuplicatePolicy

WORKERS, FILES, ROWS, KILLS_PER_RUN = 6, 4, 2500, 100


def main(kills: int, seed: int) -> int:
    """Run imports until the given number of workers was killed, and print the figures; return 1 if there are violations."""
    chance, started = random.Random(seed), time.monotonic()  # noqa: S311 - reproducible, not secret
    killed = rows = resent = uncertain = 0
    violations: list[str] = []
    with local_cluster(WORKERS) as cluster:
        cluster.scheduler.allowed_failures = 1
        while killed < kills and not violations:
            service = ClusterService(before=[f"u{number}@x.example" for number in range(0, FILES * ROWS, 5)])
            service.kills = set(chance.sample(range(1, FILES * ROWS), min(KILLS_PER_RUN, kills - killed)))
            service.watch(cluster)
            with tempfile.TemporaryDirectory() as folder, served_to_cluster(service) as connection:
                emails = [f"u{number}@x.example" for number in range(FILES * ROWS)]
                duplicates: DuplicatePolicy = chance.choice(["skip", "overwrite"])
                made = write_parts(Path(folder), emails, FILES, duplicates)
                with create_many(cluster, made, connection, journal=f"file://{folder}/journals") as run:
                    list(run)
                violations += find_violations(service, made, f"file://{folder}/journals")
                most = max(count_resent(service, part)[0] for part in made.parts)
            killed, rows, resent = killed + service.killed, rows + made.rows, resent + service.requests - made.rows
            uncertain += run.report.uncertain
            figures = f"{killed} kills, {rows} rows, {resent} resent (at most {most} per part), {uncertain} uncertain"
            print(f"{figures}, {time.monotonic() - started:.0f} s", flush=True)  # noqa: T201 - a report is printed
    print("\n".join(violations[:20]) or "no row was lost, and no label is wrong")  # noqa: T201 - a report is printed
    return int(bool(violations))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else 0))
