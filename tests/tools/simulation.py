"""End the processes of bulk runs at every point in virtual time, resume the runs until they finish, and check the invariants.

Run: python -m tools.simulation [--drawn] [--seeds 5] [--first 0] [--rows 20] [--jobs N]

Without `--drawn`, each combination of seed, duplicates option, policy for repeated e-mails and event loop is a scenario. It has
one run for each point at which the first process can die, with up to two more deaths at random points, and one run in which each
process lives one point longer than the previous one. Prints one line per scenario.

With `--drawn`, each seed draws one scenario: the event loop, the options, the delays of the journal and the caller, and how and
at which points up to three processes end early. A process is killed, cancelled, left by the caller, interrupted once or twice, or
ends because its journal fails. Prints one line per scenario that violates an invariant.

Exits with 1 if an invariant is violated, or if equal seeds give different traces.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any, Final, get_args

import attrs
from support.crashes import kill_everywhere, memory, simulation
from support.endings import draw_scenario
from support.scenarios import Scenario, seeded

from outreach_async._vocabulary import DUPLICATE_POLICIES
from outreach_async.bulk._rows import Repeats

HEADING: Final = (
    f"{'seed':>4} {'duplicates':22} {'repeats':9} {'loop':8}{'points':>7}{'runs':>6}{'processes':>11}{'seconds':>9}  violations"
)


@attrs.frozen
class Walked:
    """The result of a scenario."""

    points: int
    runs: int
    processes: int
    broken: Counter[str]
    seconds: float


def walk(scene: Scenario, backend: str) -> Walked:
    """Kill the run of a scenario at every point."""
    began, broken, runs, processes = time.monotonic(), Counter[str](), 0, 0
    with memory() as folder:
        traces = []
        for name in ("once", "again"):
            whole = simulation(scene, folder / name, backend)
            whole.finish(iter(()))
            traces.append([process.trace for process in whole.processes])
        broken["I16: different traces for equal seeds"] += traces[0] != traces[1]
        for one in kill_everywhere(scene, folder, backend):
            broken.update(one.violations())
            runs += 1
            processes += len(one.processes)
    return Walked(len(traces[0][0]), runs, processes, +broken, time.monotonic() - began)


def scenes(arguments: argparse.Namespace) -> list[tuple[int, Scenario, str]]:
    """Return all scenarios, with their seeds and event loops."""
    kinds = product(
        range(arguments.first, arguments.first + arguments.seeds), DUPLICATE_POLICIES, get_args(Repeats), ("asyncio", "trio")
    )
    return [
        (seed, seeded(seed, arguments.rows, duplicates=duplicates, repeats=repeats), backend)
        for seed, duplicates, repeats, backend in kinds
    ]


def arguments_of(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--drawn", action="store_true", help="draw one scenario from each seed")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--rows", type=int, default=20, help="number of rows in an input")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of worker processes")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run the command, and return the exit code."""
    arguments, found, began = arguments_of(argv), list[Walked](), time.monotonic()
    if arguments.drawn:
        return play_drawn(arguments)
    say(HEADING)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        under_way: Any = [(*each, pool.submit(walk, *each[1:])) for each in scenes(arguments)]
        for seed, scene, backend, future in under_way:
            one: Walked = future.result()
            found.append(one)
            broken = ", ".join(f"{kind} ({times})" for kind, times in one.broken.items()) or "none"
            figures = f"{one.points:7}{one.runs:6}{one.processes:11,}{one.seconds:9.1f}"
            say(f"{seed:4} {scene.duplicates:22} {scene.repeats:9} {backend:8}{figures}  {broken}")
    wrong = sum(one.broken.total() for one in found)
    processes = sum(one.processes for one in found)
    runs = sum(one.runs for one in found)
    say(f"{runs:,} runs, {processes:,} processes, {wrong:,} violations, {time.monotonic() - began:.1f} s")
    return int(wrong > 0)


def play_drawn(arguments: argparse.Namespace) -> int:
    """Run the scenario of each seed, and print those that violate an invariant; return the exit code."""
    began, wrong, ways = time.monotonic(), 0, Counter[str]()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for seed, broken in zip(seeds, pool.map(violations_of, seeds, chunksize=4), strict=True):
            scene = draw_scenario(seed)
            ways.update(ending.way for ending in scene.endings)
            wrong += len(broken)
            if broken:
                say(f"{seed:6} {scene.backend:8} {', '.join(f'{each.way} at {each.point}' for each in scene.endings)}: {broken}")
    say(", ".join(f"{way} {times:,}" for way, times in ways.most_common()))
    say(f"{len(seeds):,} scenarios, {wrong:,} violations, {time.monotonic() - began:.1f} s")
    return int(wrong > 0)


def violations_of(seed: int) -> list[str]:
    """Return the violations in the scenario of a seed. An unexpected error counts as one."""
    try:
        return draw_scenario(seed).violations()
    except Exception as error:  # noqa: BLE001 - reported with its seed
        return [f"{type(error).__name__}: {error}"]


def say(text: str) -> None:
    """Print a line, and flush it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
