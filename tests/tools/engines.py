"""Run the Ray or Spark example of `outreach_async.spread` twice. The second run must send nothing.

Run: python -m tools.engines ray|spark

Requires `ray`, or `pyspark` and Java.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from anyio.from_thread import start_blocking_portal

from outreach_async import BulkSuspended, Outcome
from outreach_async.fake import FakeService
from outreach_async.fake.server import serve
from outreach_async.spread import Connection, Part, PartReport, import_part, merge_reports, plan

FILES, ROWS = 4, 100


def run_on_ray(parts: Sequence[Part], journals: str, connection: Connection) -> list[PartReport]:
    """Import each part on a local Ray instance."""
    ray: Any = importlib.import_module("ray")
    ray.init(include_dashboard=False, ignore_reinit_error=True)
    task = ray.remote(max_retries=10, retry_exceptions=[BulkSuspended])(import_part)
    return list(ray.get([task.remote(part, journals, connection) for part in parts]))


def run_on_spark(parts: Sequence[Part], journals: str, connection: Connection) -> list[PartReport]:
    """Import each part on a local Spark instance."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    sql: Any = importlib.import_module("pyspark.sql")
    spark = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    distributed = spark.sparkContext.parallelize(parts, len(parts))
    return list(distributed.map(lambda part: import_part(part, journals, connection)).collect())


def main(engine: str) -> int:
    """Import the files of a folder twice; return 1 if a contact is missing or was sent twice."""
    run_on = {"ray": run_on_ray, "spark": run_on_spark}[engine]
    service = FakeService()
    space = service.add_workspace("space_1")
    os.environ["OUTREACH_OWNER_KEY"] = service.add_owner_key(space)
    with (
        tempfile.TemporaryDirectory() as name,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serve(service)) as url,
    ):
        folder = Path(name)
        for number in range(FILES):
            emails = (f"u{number}-{row}@company.example" for row in range(ROWS))
            (folder / f"{number}.csv").write_text("\n".join(["E-mail", *emails]))
        made = plan([str(path) for path in sorted(folder.iterdir())])
        connection = Connection(base_url=url, workspace=space)
        reports = [merge_reports(run_on(made.parts, str(folder / "journals"), connection)) for _ in range(2)]
    added = [report.outcomes[Outcome.ADDED] for report in reports]
    print(f"{engine}: {added} contacts added, {len(service.requests)} requests")  # noqa: T201 - a report is printed
    return int(added != [FILES * ROWS] * 2 or len(service.requests) != FILES * ROWS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
