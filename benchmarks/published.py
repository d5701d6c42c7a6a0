"""Print what the documents publish from the stored runs: `python -m benchmarks.published`.

The guide `performance` shows ranges, and README the weaker end of each range. A test compares both with the stored runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.stored import Cell, Range, Run, load_runs, range_of

RUNS: Final = Path(__file__).parent / "results" / "runs"

_POST: Final = ("posts", 0, "64", "httpx loop")
_BULK: Final = ("bulk", 0, "asyncio", "httpx loop")
_PAGE: Final = ("pages", 1, "CPU", "httpx loop, dicts")
_WALK: Final = ("walks", 1, "answers after 20 ms", "httpx loop, dicts")

_TABLE: Final[Sequence[tuple[str, tuple[str, int, str, str], Sequence[str], Sequence[tuple[str, str]]]]] = (
    (
        "one POST, bytes in and out",
        _POST,
        ("HttpxTransport", "HttpxTransport, httpx2", "AiohttpTransport", "HttptoolsTransport"),
        (
            ("a client each", "httpx loop, a client each"),
            ("aiohttp loop", "aiohttp loop"),
            ("raw asyncio", "raw asyncio.Protocol"),
        ),
    ),
    (
        "bulk creation, rows in and outcomes out",
        _BULK,
        ("create_many", "create_many, httpx2", "create_many, aiohttp", "create_many, httptools"),
        (
            ("a client each", "httpx loop, a client each"),
            ("aiohttp loop", "aiohttp loop"),
            ("typed loop by hand", "a typed loop written by hand"),
        ),
    ),
    (
        "a page of 2,000 mailboxes, typed",
        _PAGE,
        ("OutreachClient", "OutreachClient, httpx2", "OutreachClient, aiohttp", "OutreachClient, httptools"),
        (("aiohttp loop to dicts", "aiohttp loop, dicts"),),
    ),
    (
        "100 pages of 20 ms each, wall time",
        _WALK,
        tuple(f"OutreachClient, {backend}prefetch=4" for backend in ("", "httpx2, ", "aiohttp, ", "httptools, ")),
        (("openapi-python-client", "openapi-python-client"),),
    ),
)


def _relative(runs: Sequence[Run], place: tuple[str, int, str, str], row: str) -> Range:
    group, index, column, base = place
    return range_of(runs, group, index, (row, column), (base, column))


def guide_table(runs: Sequence[Run]) -> Iterator[str]:
    """Yield the lines of the table in the guide."""
    yield "| | httpx (default) | httpx2 | aiohttp | httptools | others |"
    yield "|---|---|---|---|---|---|"
    for title, place, rows, others in _TABLE:
        cells = [str(_relative(runs, place, row)) for row in rows]
        cells.append("; ".join(f"{name} {_relative(runs, place, row)}" for name, row in others))
        yield f"| {' | '.join([title, *cells])} |"


_FLOOR: Final[Cell] = ("a typed loop written by hand", "asyncio")
_DECODED: Final[Cell] = ("converters.loads", "CPU")
_MSGSPEC: Final[Cell] = ("msgspec, the same classes", "CPU")


def weaker_ends(runs: Sequence[Run]) -> dict[str, str]:
    """Return the figures in README: the weaker end of each range."""
    ends = {
        "bulk creation": _relative(runs, _BULK, "create_many"),
        "bulk creation with httptools": _relative(runs, _BULK, "create_many, httptools"),
        "bulk creation with httptools, over a typed loop": range_of(
            runs, "bulk", 0, ("create_many, httptools", "asyncio"), _FLOOR
        ),
        "a page, over msgspec": range_of(runs, "decode", 0, _DECODED, _MSGSPEC),
    }
    return {name: f"{end.high:.2g}" for name, end in ends.items()}


def main() -> None:
    """Print the table of the guide and the figures of README."""
    runs = load_runs(RUNS)
    print("\n".join(guide_table(runs)))
    for name, figure in weaker_ends(runs).items():
        print(f"{name}: at most {figure} times")


if __name__ == "__main__":
    main()
