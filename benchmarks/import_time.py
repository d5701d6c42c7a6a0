"""CPU time of importing the library, against importing httpx; interleaved, medians.

Run: python benchmarks/import_time.py
"""

from __future__ import annotations

import platform
import resource
import statistics
import subprocess
import sys

ROUNDS = 15
STATEMENTS = {
    "nothing": "pass",
    "import httpx": "import httpx",
    "import outreach_async": "import outreach_async",
    "from outreach_async import OutreachClient": "from outreach_async import OutreachClient",
    "from outreach_async.fake import FakeService": "from outreach_async.fake import FakeService",
}


def cpu_of(statement: str) -> float:
    """Return the CPU milliseconds of a fresh interpreter that runs the statement."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True)  # noqa: S603 - our own interpreter
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    """Print the medians, and each as a ratio to httpx."""
    figures: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(ROUNDS):
        for name, statement in STATEMENTS.items():
            figures[name].append(cpu_of(statement))
    nothing = statistics.median(figures["nothing"])
    costs = {name: statistics.median(values) - nothing for name, values in figures.items() if name != "nothing"}
    print(f"Python {platform.python_version()}, {ROUNDS} rounds, medians of CPU ms over an empty interpreter ({nothing:.0f} ms)")
    for name, cost in costs.items():
        print(f"{name:45} {cost:7.1f} ms   {cost / costs['import httpx']:5.2f} x httpx")


if __name__ == "__main__":
    main()
