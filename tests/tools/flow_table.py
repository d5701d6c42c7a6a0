"""The table of what a run's flow achieves against a simulated service: `python -m tools.flow_table [SEEDS] [options]`.

A line a scene, event loop and seed, in virtual time: what part of the ideal succeeded, what part of the answers were 429, seconds
to the first good rate after each change of the limit, how often it paused, and what the scene demands and did not get. Time in an
outage is not counted, nor the longest pause after it (60 s, and 30 s more where a probe hangs; 30 s where everything is refused).
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
"""Each with the part of its answers that may be 429. One of 1/s is reported only: 64 workers' first attempts are many there."""


def line(name: str, scene: Scenario, refusals: float, backend: str, *, whole: bool) -> bool:
    """Print one line; return whether all was as it should be."""
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
    """Print the table; 1 if a line is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=2, help="how many of them")
    parser.add_argument("--client", action="store_true", help="create contacts by a client rather than drive the flow alone")
    parser.add_argument("--scene", action="append", choices=SCENES, metavar="NAME", help="one scene; repeatable")
    arguments = parser.parse_args()
    sys.stdout.write("scene                    loop    seed goodput     429 good after pauses busiest  attempts    took\n")
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
