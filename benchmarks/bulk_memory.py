"""Peak memory of bulk creation by number of rows, the service in a process of its own on a real port.

Run: python benchmarks/bulk_memory.py [fewer] [more]
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio

from outreach_async import NewContact, OutreachClient


@contextmanager
def service() -> Iterator[tuple[str, dict[str, Any]]]:
    """Run the fake in another process; yield its URL and its ids."""
    command = [sys.executable, "-m", "outreach_async", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own interpreter
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), json.loads(process.stdout.readline())
        finally:
            process.terminate()


async def create(url: str, ids: dict[str, Any], count: int) -> None:
    """Create so many contacts from a generator, and print this process's peak memory in KiB."""
    rows = (NewContact(f"user{number}@{count}.example", first_name="Ann", last_name="Example") for number in range(count))
    client = OutreachClient(url, owner_key=ids["owner_key"], workspace=ids["workspace"])
    async with client, client.contacts.create_many(rows) as outcomes:
        async for outcome in outcomes:
            assert outcome.id, outcome
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def peak(url: str, ids: dict[str, Any], count: int) -> int:
    """Return the peak memory in KiB of a fresh process that creates so many contacts."""
    command = [sys.executable, __file__, "--child", url, json.dumps(ids), str(count)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)  # noqa: S603 - ourselves


def main() -> None:
    """Print both peaks and their ratio."""
    if sys.argv[1:2] == ["--child"]:
        anyio.run(create, sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4]))
        return
    fewer, more = (int(argument) for argument in (sys.argv[1:] or ["10000", "100000"]))
    with service() as (url, ids):
        small, large = peak(url, ids, fewer), peak(url, ids, more)
    print(f"{fewer} rows: {small / 1024:.1f} MiB; {more} rows: {large / 1024:.1f} MiB; ratio {large / small:.3f}")


if __name__ == "__main__":
    main()
