"""Measure the rates that bulk runs learn in virtual time, and whether the runs survive outages of a simulated service.

Run: python -m tools.flow_table [SEEDS] [--client] [--scene NAME]

Prints one line per scenario, event loop and seed: the successes as a fraction of the ideal (goodput), the share of 429 responses,
the seconds until the goodput is good after each change of the limit, the number of pauses, the highest rate relative to the limit
(busiest), the number of attempts, and the requirements that were not met. Exits with 1 if there are any.

The goodput ignores outages and the longest pause that may follow: 60 s, 90 s if requests hang, or 30 s if every response is 429.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

import attrs
from support.flow import Scenario, Trouble, simulate, simulate_whole

OUTAGES: Final[tuple[Trouble, ...]] = ("refused", "503", "hanging")

SCENES: Final[dict[str, tuple[Scenario, float]]] = {
    "500/s": (Scenario(seconds=120, limits=[(0, 500)]), 0.01),
    "500 -> 100 -> 500": (Scenario(seconds=270, limits=[(0, 500), (90, 100), (180, 500)]), 0.01),
    "10/s": (Scenario(seconds=600, limits=[(0, 10)]), 0.05),
    "10/s, a second's burst": (Scenario(seconds=600, limits=[(0, 10)], burst=1), 0.05),
    "10/s, Retry-After: 1": (Scenario(seconds=600, limits=[(0, 10)], asks=1), 0.05),
    "10/s, quota told": (Scenario(seconds=600, limits=[(0, 10)], burst=1, reports_quota=True), 0.05),
    "1/s": (Scenario(seconds=1800, limits=[(0, 1)]), 1.0),
    "1/s, Retry-After: 1": (Scenario(seconds=1800, limits=[(0, 1)], asks=1), 1.0),
    "60 a minute, told": (Scenario(seconds=1800, limits=[(0, 1)], burst=60, reports_quota=True), 1.0),
    "429 for 20 s at first": (Scenario(seconds=150, limits=[(0, 100)], outages=[(0, 20, "429")], workers=8), 0.03),
    "429 for 5 min": (Scenario(seconds=600, limits=[(0, 100)], outages=[(60, 360, "429")]), 0.03),
    **{f"100/s, 5 min {kind}": (Scenario(seconds=780, limits=[(0, 100)], outages=[(120, 420, kind)]), 0.01) for kind in OUTAGES},
}
"""Scenarios by name, each with the permitted share of 429 responses.

A share of 1 means that neither the 429 responses nor the goodput are checked. At 1/s, the first attempts of 64 workers are a
large part of all attempts.
"""


def line(name: str, scene: Scenario, refusals: float, backend: str, *, whole: bool) -> bool:
    """Run a scenario, and print its line; return whether it meets its requirements."""
    began = time.perf_counter()
    run = (simulate_whole if whole else simulate)(scene, backend)
    good = "/".join(f"{run.first_good(at):.0f}" for at, _ in scene.limits)
    wrong = run.shortfalls(refusals=refusals, good=0.85 if refusals < 1 else 0.0)
    sys.stdout.write(
        f"{name:24} {backend:7} {scene.seed:4} {run.goodput():7.3f} {run.refusals:7.2%} {good:>8} s {run.pauses:6} "
        f"{run.busiest():7.2f} {len(run.service.started):9} {time.perf_counter() - began:5.1f} s  {', '.join(wrong) or 'ok'}\n"
    )
    sys.stdout.flush()
    return not wrong


def main() -> int:
    """Print the table; return 1 if a scenario does not meet its requirements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=2, help="number of seeds")
    parser.add_argument("--client", action="store_true", help="create contacts with a client, not only its throttle")
    parser.add_argument("--scene", action="append", choices=SCENES, metavar="NAME", help="run only this scenario; repeatable")
    arguments = parser.parse_args()
    sys.stdout.write("scenario                 loop    seed goodput     429 good after pauses busiest  attempts    took\n")
    lines = [
        line(name, attrs.evolve(scene, seed=seed), refusals, backend, whole=arguments.client)
        for name, (scene, refusals) in SCENES.items()
        if arguments.scene is None or name in arguments.scene
        for seed in range(arguments.seeds)
        for backend in ("asyncio", "trio")
    ]
    return int(not all(lines))


if __name__ == "__main__":
    sys.exit(main())
