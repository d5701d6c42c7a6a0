"""Memory of bulk runs, which must not grow with the number of rows."""

from __future__ import annotations

from typing import Final

from benchmarks.bulk_memory import peak
from benchmarks.groups.rounds import Bench
from benchmarks.results import Table

_FEWER: Final = 5_000
_MORE: Final = 10
"""Factor of the longer run."""


def memory(bench: Bench) -> list[Table]:
    """Measure the peak memory of a short run and one ten times as long, with and without a journal."""
    table = Table("Peak memory of a bulk run over real sockets, by rows", "MiB")
    fewer = bench.sized(_FEWER) // (5 if bench.quick else 1)
    for count in (fewer, _MORE * fewer):
        table.add("create_many", f"{count:,} rows", peak(bench.service.url, count) / 1024)
        table.add("create_many, journal", f"{count:,} rows", peak(bench.service.url, count, journal=True) / 1024)
    return [table]
