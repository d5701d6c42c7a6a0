"""How much memory it takes to read files of rows, small and large.

Run: python -m tools.import_memory [FORMAT] [ROWS ...]

Writes a file for each number of rows, reads each in a process of its own, and prints the peak of that process, the seconds, and
the ratio of the last peak to the first.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from time import perf_counter

from outreach_async.importer import map_columns, open_file

FIELDS = ("email", "first_name", "company_name", "work_phone", "city", "custom_1")
CHUNK = 10_000


def people(rows: int) -> Iterator[tuple[str, ...]]:
    """Make rows of some 290 bytes."""
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
    """Write one row group, as pandas does up to a million rows: what is large is one piece."""
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


def read(path: str) -> None:
    """Read a file as an import does, and print the peak in MiB and the seconds."""
    began = perf_counter()
    file = open_file(path)
    rows = sum(1 for row in file.rows(map_columns(file.headers)) if row.fault is None)
    if rows != file.count():
        raise SystemExit(f"{path}: {rows} of {file.count()} rows can be read")
    sys.stdout.write(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.1f} {perf_counter() - began:.1f}\n")


def main(kind: str, sizes: list[int]) -> None:
    peaks = []
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith("COV")
    }  # what counts lines takes memory too
    with tempfile.TemporaryDirectory() as folder:
        paths = {rows: Path(folder) / f"{rows}.{kind}" for rows in sizes}
        # Not in this process: what its children's peaks begin with is its own.
        subprocess.run([sys.executable, __file__, "write", *map(str, paths.values())], check=True, env=plain)
        for rows, path in paths.items():
            done = subprocess.run(
                [sys.executable, __file__, "read", str(path)], check=True, capture_output=True, text=True, env=plain
            )
            peak, seconds = map(float, done.stdout.split())
            peaks.append(peak)
            sys.stdout.write(f"{rows:,} rows, {path.stat().st_size / 1e6:.0f} MB: {peak:.1f} MiB, {seconds:.1f} s\n")
    sys.stdout.write(f"ratio {peaks[-1] / peaks[0]:.3f}\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["read", path]:
            read(path)
        case ["write", *paths]:
            for target in map(Path, paths):
                WRITERS[target.suffix[1:]](target, int(target.stem))
        case [kind, *sizes]:
            main(kind, [int(size) for size in sizes] or [10_000, 1_000_000])
        case _:
            sys.exit(__doc__)
