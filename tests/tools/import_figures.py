"""Measure the time and memory that checking a whole file takes: python -m tools.import_figures [rows]."""

from __future__ import annotations

import csv
import random
import resource
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

import anyio

from outreach_async.importer import map_columns, open_file
from outreach_async.importer._checks import CheckPolicy
from outreach_async.importer._preflight import run_preflight

HEADER = (
    "Email", "First Name", "Last Name", "Title", "Company Name", "Work Phone", "Mobile Phone", "Website", "City", "State",
    "Country", "Timezone", "Graduation Date",
)  # fmt: skip
PLACES = (
    ("Seattle", "WA", "US", "America/Los_Angeles", "206", 7),
    ("Toronto", "ON", "Canada", "America/Toronto", "416", 7),
    ("München", "Bayern", "Germany", "Europe/Berlin", "089", 7),
    ("London", "", "United Kingdom", "Europe/London", "020 7", 7),
    ("Lyon", "", "FR", "Europe/Paris", "04 72", 6),
    ("Sydney", "NSW", "Australia", "Australia/Sydney", "02 9", 7),
)
CALLING = {"US": "+1", "Canada": "+1", "Germany": "+49", "United Kingdom": "+44", "FR": "+33", "Australia": "+61"}


def rows(count: int, seed: int = 7) -> Iterator[tuple[str, ...]]:
    """Generate rows of people. One row in a hundred is faulty, and one has an internationalised e-mail address."""
    chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
    for at in range(count):
        city, state, country, zone, area, digits = chance.choice(PLACES)
        rest = str(chance.randrange(2 * 10 ** (digits - 1), 10**digits))
        national = f"{area} {rest}"
        abroad = f"{CALLING[country]} {area.lstrip('0')} {rest}"
        email = f"person.{at}@company-{chance.randrange(200_000)}.com"
        if at % 100 == 50:
            email = f"persön{at}@firma-{at % 977}.de"
        if at % 100 == 0:
            email, country, rest = f"person{at}@@gamil.com", "Germny", "12"
        site = f"https://www.company-{chance.randrange(200_000)}.com/about"
        yield (
            email, f"First{at % 5000}", f"Last{at % 9000}", "Head of Sales", f"Company {at % 200_000}",
            abroad if at % 3 else national, abroad, site, city, state, country, zone, f"{1980 + at % 40}-06-{1 + at % 30:02}",
        )  # fmt: skip


def write(path: Path, count: int) -> None:
    """Write a CSV file with the given number of rows."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        writer.writerows(rows(count))


async def measure(count: int) -> None:
    """Check a file with and without the checks of contacts, and print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.csv"
        write(path, count)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for name, policy in ("with all checks", CheckPolicy.of(["warn"])), ("without checks", CheckPolicy.of(["off"])):
            began, busy = perf_counter(), process_time()
            file = open_file(path)
            found = await run_preflight(file, map_columns(file.headers), policy)
            seconds, cpu = perf_counter() - began, process_time() - busy
            used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            print(f"{count:,} rows, {path.stat().st_size / 1e6:,.0f} MB, {name}: {seconds:.1f} s ({cpu:.1f} s of CPU),")  # noqa: T201 - a report is printed
            print(f"  peak memory {used / 1024:,.0f} MiB, {before / 1024:,.0f} MiB before; found {found.counts()}")  # noqa: T201 - a report is printed


if __name__ == "__main__":
    anyio.run(partial(measure, int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
