"""Run the benchmarks: `python -m benchmarks [--quick] [--long] [--only GROUP ...] [--output DIRECTORY]`.

A full run takes up to half an hour, and adds its measurements to `benchmarks/results/runs`. The report and the chart in
`benchmarks/results` show the range of all runs there. A quick run takes a few minutes and only prints, unless `--output` is
given. `--long` adds about ten minutes. Peers that are not installed are skipped, and listed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from benchmarks.chart import Bars, svg
from benchmarks.groups.audit import audit
from benchmarks.groups.bulk import bulk
from benchmarks.groups.codec import decode, encode
from benchmarks.groups.fake import fake
from benchmarks.groups.journal import journal
from benchmarks.groups.ledger import ledger
from benchmarks.groups.lists import pages, walks
from benchmarks.groups.memory import memory
from benchmarks.groups.own import linear, own
from benchmarks.groups.parts import parts, workers
from benchmarks.groups.posts import creates, posts
from benchmarks.groups.rates import rates
from benchmarks.groups.rounds import Bench
from benchmarks.groups.scale import cores, million
from benchmarks.groups.startup import checks, clients, commands, fixtures, imports
from benchmarks.groups.sync import sync
from benchmarks.groups.tail import tail
from benchmarks.machine import described
from benchmarks.peers.generated import generate
from benchmarks.report import markdown
from benchmarks.results import Table
from benchmarks.service import serving
from benchmarks.stored import current_load, load_runs, merge_runs, store
from benchmarks.targets import judged
from benchmarks.worker import Worker

GROUPS: Final[Mapping[str, Callable[[Bench], list[Table]]]] = {
    "posts": posts,
    "creates": creates,
    "bulk": bulk,
    "cores": cores,
    "million": million,
    "sync": sync,
    "pages": pages,
    "walks": walks,
    "decode": decode,
    "encode": encode,
    "own": own,
    "linear": linear,
    "fake": fake,
    "fixtures": fixtures,
    "imports": imports,
    "commands": commands,
    "checks": checks,
    "clients": clients,
    "memory": memory,
    "journal": journal,
    "ledger": ledger,
    "tail": tail,
    "rates": rates,
    "audit": audit,
    "parts": parts,
    "workers": workers,
}

PEERS: Final = (
    "httpx2",
    "aiohttp",
    "httptools",
    "uvloop",
    "trio",
    "mypy",
    "respx",
    "pytest_httpx",
    "starlette",
    "openapi_python_client",
)

PICTURED: Final[Mapping[str, tuple[int, str]]] = {
    "posts": (0, "64"),
    "creates": (0, "64"),
    "bulk": (0, "asyncio"),
    "pages": (1, "CPU"),
    "walks": (1, "answers after 20 ms"),
    "decode": (0, "CPU"),
    "imports": (0, "CPU"),
}
"""The table and column of each group to draw in the chart."""

RESULTS: Final = Path(__file__).parent / "results"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="measure less, for a first impression")
    parser.add_argument(
        "--only", action="append", choices=GROUPS, metavar="GROUP", help=f"one of {', '.join(GROUPS)}; repeatable"
    )
    parser.add_argument("--long", action="store_true", help="extrapolate the cost of ten million contacts from one million")
    parser.add_argument("--rounds", type=int, help="number of measurements per figure; default: 5, or 1 with --quick")
    parser.add_argument("--output", type=Path, help="directory for the results; a full run of all groups uses benchmarks/results")
    return parser.parse_args()


def _measured(arguments: argparse.Namespace, rounds: int) -> dict[str, list[Table]]:
    found = {}
    with tempfile.TemporaryDirectory() as directory, serving() as service:
        if find_spec("openapi_python_client"):
            generate(Path(directory))
        with Worker() as worker:
            quick = arguments.quick
            bench = Bench(service, rounds, 0.1 if quick else 1.0, worker if quick else None, arguments.long)
            for name in arguments.only or GROUPS:
                began = time.perf_counter()
                found[name] = GROUPS[name](bench)
                _say(f"{name}: {time.perf_counter() - began:.0f} s")
    return found


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _write(directory: Path) -> None:
    """Write the report and the chart of all runs in a directory."""
    runs = load_runs(directory / "runs")
    found = merge_runs(runs)
    lines = [line for run in runs for line in (f"{run.when} UTC: `{run.command}`, {run.rounds} rounds, {run.load}", *run.machine)]
    tables = [table for each in found.values() for table in each]
    report = markdown(tables, dict.fromkeys(lines), f"{len(runs)} runs") + "\n" + "\n".join(judged(found))
    (directory / "results.md").write_text(report, encoding="utf-8")
    pictures = [Bars(found[name][index], column) for name, (index, column) in PICTURED.items() if name in found]
    (directory / "results.svg").write_text(svg(pictures), encoding="utf-8")


def main() -> None:
    """Measure, print the report, and write the results of a full run."""
    arguments = _arguments()
    rounds = arguments.rounds or (1 if arguments.quick else 5)
    if missing := [name for name in PEERS if not find_spec(name)]:
        _say(f"not installed, skipped: {', '.join(missing)}")
    load = current_load()
    found = _measured(arguments, rounds)
    command = " ".join(["python -m benchmarks", *sys.argv[1:]])
    report = markdown([table for tables in found.values() for table in tables], described(), f"`{command}`, {rounds} rounds")
    report += "\n" + "\n".join(judged(found))
    print(report)
    output = arguments.output or (None if arguments.quick or arguments.only else RESULTS)
    if output:
        store(output / "runs", found, command=command, load=load, rounds=rounds, machine=described())
        _write(output)


if __name__ == "__main__":
    main()
