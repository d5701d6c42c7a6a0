"""Measure the memory needed to read, plan or send small and large files of rows.

Run: python -m tools.import_memory read|plan|send FORMAT [ROWS ...]

Writes one file for each number of rows, and reads, plans or sends each file in a separate process. Prints the peak memory and the
duration of each process, the ratio of the last peak to the first, and the additional bytes of memory per row.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from time import perf_counter

from outreach_async._cli.demo_data import OWNER_KEY, WORKSPACES
from outreach_async.importer import map_columns, open_file
from outreach_async.parts import Connection, import_part, plan

FIELDS = ("email", "first_name", "company_name", "work_phone", "city", "custom_1")
CHUNK = 10_000


def people(rows: int) -> Iterator[tuple[str, ...]]:
    """Yield rows of about 290 bytes."""
    for at in range(rows):
        yield f"p{at}@a.example", "Zoë", f"Company {at} & Sons", f"+4179{at:07}", "Köln", f"{at:09} " * 24


def write_csv(path: Path, rows: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join(FIELDS) + "\n")
        file.writelines(",".join(row) + "\n" for row in people(rows))


def write_jsonl(path: Path, rows: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(dict(zip(FIELDS, row, strict=True))) + "\n" for row in people(rows))


def write_parquet(path: Path, rows: int) -> None:
    """Write a single row group, as pandas does for up to a million rows. Large row groups need the most memory."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    schema = pa.schema([(name, pa.string()) for name in FIELDS])
    source = people(rows)
    batches = []
    while chunk := list(islice(source, CHUNK)):
        batches.append(pa.record_batch([pa.array(column) for column in zip(*chunk, strict=True)], schema=schema))
    with ParquetWriter(path, schema, use_dictionary=False) as writer:
        writer.write_table(pa.Table.from_batches(batches, schema), row_group_size=rows)


WRITERS: dict[str, Callable[[Path, int], None]] = {"csv": write_csv, "jsonl": write_jsonl, "parquet": write_parquet}


def read(path: str) -> int:
    """Read a file as an import does, and return the number of rows."""
    file = open_file(path)
    return sum(1 for row in file.rows(map_columns(file.headers)) if row.fault is None)


def send(path: str) -> int:
    """Import a file as one part, and return the number of rows that did not fail."""
    (part,) = plan([path], strict_validation=False).parts
    connection = Connection(base_url=os.environ["OUTREACH_BASE_URL"], workspace=WORKSPACES[0])
    report = import_part(part, Path(path).parent / "journals" / Path(path).name, connection)
    return report.rows - report.failed


ACTIONS: dict[str, Callable[[str], int]] = {"read": read, "plan": lambda path: plan([path]).rows, "send": send}


def measure(action: str, path: str) -> None:
    began = perf_counter()
    rows = ACTIONS[action](path)
    if rows != int(Path(path).stem):
        raise SystemExit(f"{path}: {action} returned {rows} rows")
    sys.stdout.write(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss} {perf_counter() - began:.1f}\n")


@contextmanager
def serving() -> Iterator[dict[str, str]]:
    """Run the fake in a separate process, and yield the environment variables for its clients."""
    command = [sys.executable, "-m", "outreach_async", "serve", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield {"OUTREACH_BASE_URL": json.loads(process.stdout.readline())["base_url"], "OUTREACH_OWNER_KEY": OWNER_KEY}
        finally:
            process.terminate()


def main(action: str, kind: str, sizes: list[int]) -> None:
    peaks = []
    # Measuring coverage would take memory, too.
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        service = stack.enter_context(serving()) if action == "send" else {}
        paths = {rows: Path(folder) / f"{rows}.{kind}" for rows in sizes}
        # Write the files in another process: the peak of each child starts with the memory of this process.
        subprocess.run([sys.executable, __file__, "write", *map(str, paths.values())], check=True, env=plain)
        for rows, path in paths.items():
            command = [sys.executable, __file__, f"{action} one", str(path)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=plain | service)
            peak, seconds = map(float, done.stdout.split())
            peaks.append(1024 * peak)
            sys.stdout.write(f"{rows:,} rows, {path.stat().st_size / 1e6:.0f} MB: {peak / 1024:.1f} MiB, {seconds:.1f} s\n")
    slope = (peaks[-1] - peaks[0]) / max(sizes[-1] - sizes[0], 1)
    sys.stdout.write(f"ratio {peaks[-1] / peaks[0]:.3f}, {slope:.1f} bytes a row\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["read one" | "plan one" | "send one" as order, path]:
            measure(order.partition(" ")[0], path)
        case ["write", *paths]:
            for target in map(Path, paths):
                WRITERS[target.suffix[1:]](target, int(target.stem))
        case ["read" | "plan" | "send" as action, kind, *sizes]:
            main(action, kind, [int(size) for size in sizes] or [10_000, 1_000_000])
        case _:
            sys.exit(__doc__)
