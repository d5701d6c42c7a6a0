"""Measure the peak memory of bulk creation by number of rows. The service runs in another process on a real port.

Run: python -m benchmarks.bulk_memory [--journal] [fewer] [more]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

import anyio

from benchmarks.peers import ours
from benchmarks.service import serving
from benchmarks.worker import ROOT

_CONCURRENCY = 64


async def create(url: str, count: int, backend: str, *, journal: bool) -> None:
    """Create contacts from a generator, and print the peak memory of this process in KiB."""
    async with ours.bulk(backend, url, _CONCURRENCY, journal=journal) as whole:
        assert await whole(count) == count
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def peak(url: str, count: int, backend: str = "httpx", *, journal: bool = False) -> int:
    """Return the peak memory in KiB of a new process that creates this number of contacts."""
    options = ["--backend", backend, *(["--journal"] if journal else [])]
    command = [sys.executable, "-m", "benchmarks.bulk_memory", "--child", url, *options, str(count)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout)  # noqa: S603 - this module


def main() -> None:
    """Print the peak memory for both numbers of rows, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--journal", action="store_true")
    parser.add_argument("--backend", default="httpx")
    parser.add_argument("--child", metavar="URL")
    given = parser.parse_args()
    if given.child:
        anyio.run(lambda: create(given.child, given.rows[0], given.backend, journal=given.journal))
        return
    fewer, more = given.rows
    with serving() as service:
        small, large = (peak(service.url, count, given.backend, journal=given.journal) for count in (fewer, more))
    print(f"{fewer} rows: {small / 1024:.1f} MiB; {more} rows: {large / 1024:.1f} MiB; ratio {large / small:.3f}")


if __name__ == "__main__":
    main()
