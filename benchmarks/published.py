"""Print what the documents publish from the stored runs: `python -m benchmarks.published`.

The guide to performance shows the range of all runs, and README the weaker end of each range. A test compares both with the runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.stored import Cell, Run, load_runs, range_of

RUNS: Final = Path(__file__).parent / "results" / "runs"

_COLUMNS: Final = {
    "one POST": ("posts", 0, "64", "httpx loop"),
    "bulk creation": ("bulk", 0, "asyncio", "httpx loop"),
    "a typed page": ("pages", 1, "CPU", "httpx loop, dicts"),
    "100 pages of 20 ms, wall time": ("walks", 1, "answers after 20 ms", "httpx loop, dicts"),
}
"""For each column of the guide: the group of benchmarks, the index of its table, the column there, and the row to divide by."""

_ROWS: Final[Mapping[str, Sequence[str]]] = {
    "httpx (default)": ("HttpxTransport", "create_many", "OutreachClient", "OutreachClient, prefetch=4"),
    "httpx2": ("HttpxTransport, httpx2", "create_many, httpx2", "OutreachClient, httpx2", "OutreachClient, httpx2, prefetch=4"),
    "aiohttp": ("AiohttpTransport", "create_many, aiohttp", "OutreachClient, aiohttp", "OutreachClient, aiohttp, prefetch=4"),
    "sockets": ("SocketTransport", "create_many, sockets", "", ""),
    "sockets, httptools": (
        "SocketTransport, httptools",
        "create_many, httptools",
        "OutreachClient, httptools",
        "OutreachClient, httptools, prefetch=4",
    ),
    "a client each": ("httpx loop, a client each", "httpx loop, a client each", "", ""),
    "aiohttp loop": ("aiohttp loop", "aiohttp loop", "aiohttp loop, dicts", "aiohttp loop, dicts"),
    "openapi-python-client": ("", "openapi-python-client", "openapi-python-client", "openapi-python-client"),
    "typed loop by hand": ("", "a typed loop written by hand", "", ""),
    "raw asyncio, paced": ("", "raw asyncio.Protocol, paced", "", ""),
    "raw asyncio": ("raw asyncio.Protocol", "raw asyncio.Protocol", "", ""),
}
"""For each row of the guide: the row in the table of each column; empty if it has none."""


def _round(figure: float, towards: float) -> str:
    """Return two significant digits, rounded down or up, so that a range includes all its figures."""
    unit = 10.0 ** (math.floor(math.log10(figure)) - 1)
    digits = max(0, -math.floor(math.log10(unit)))
    near = round(figure / unit, 6)
    return f"{(math.floor(near) if towards < 0 else math.ceil(near)) * unit:.{digits}f}"


def _cell(runs: Sequence[Run], place: tuple[str, int, str, str], row: str) -> str:
    if not row:
        return ""
    group, index, column, base = place
    found = range_of(runs, group, index, (row, column), (base, column))
    low, high = _round(found.low, -1), _round(found.high, 1)
    return low if low == high else f"{low} to {high}"


def guide_table(runs: Sequence[Run]) -> Iterator[str]:
    """Yield the lines of the table in the guide."""
    yield f"| | {' | '.join(_COLUMNS)} |"
    yield f"|---|{'---|' * len(_COLUMNS)}"
    for name, rows in _ROWS.items():
        cells = [_cell(runs, place, row) for place, row in zip(_COLUMNS.values(), rows, strict=True)]
        yield f"| {' | '.join([name, *cells])} |"


_HTTPTOOLS: Final[Cell] = ("create_many, httptools", "asyncio")
_LOOP: Final[Cell] = ("httpx loop", "asyncio")


def weaker_ends(runs: Sequence[Run]) -> dict[str, str]:
    """Return the figures in README: the weaker end of each range."""
    ranges = {
        "bulk creation / httpx loop": range_of(runs, "bulk", 0, ("create_many", "asyncio"), _LOOP),
        "bulk creation with httptools / httpx loop": range_of(runs, "bulk", 0, _HTTPTOOLS, _LOOP),
        "bulk creation with httptools / aiohttp loop": range_of(runs, "bulk", 0, _HTTPTOOLS, ("aiohttp loop", "asyncio")),
        "bulk creation with httptools / typed loop": range_of(
            runs, "bulk", 0, _HTTPTOOLS, ("a typed loop written by hand", "asyncio")
        ),
        "a page / msgspec": range_of(runs, "decode", 0, ("converters.loads", "CPU"), ("msgspec, the same classes", "CPU")),
    }
    return {name: _round(found.high, 1) for name, found in ranges.items()}


def main() -> None:
    """Print the table of the guide and the figures of README."""
    runs = load_runs(RUNS)
    print("\n".join(guide_table(runs)))
    for name, figure in weaker_ends(runs).items():
        print(f"{name}: at most {figure}")


if __name__ == "__main__":
    main()
