"""Measure what clients achieve under rate limits and in outages, in virtual time.

Run: python -m tools.rate_table [SEEDS] [--only TABLE]

Prints one line per scenario, event loop and seed. The required values are in brackets. Exits with 1 if one is not reached.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from itertools import product
from typing import Any, Final

import anyio
from support.flow import Scenario, Trouble
from support.rates import run_audit, run_hosts
from support.shared_rates import WARM_UP, simulate_shares

from outreach_async.testing import VirtualTime

_OUTAGES: Final[tuple[Trouble, ...]] = ("refused", "503", "hanging")


def play(function: Any, backend: str) -> Any:
    """Run an async function in virtual time."""
    return anyio.run(function, backend=backend, backend_options=VirtualTime().options(backend))


def hosts(seed: int, backend: str) -> bool:
    """Print a line for eight hosts, each with a configured rate."""
    scene, began = Scenario(seconds=120, limits=[(0, 50)], seed=seed), time.perf_counter()
    result = play(partial(run_hosts, scene, 8, rate=50 / 8), backend)
    ok = bool(result.goodput >= 0.99 and result.refusals <= 0.01)
    text = f"goodput {result.goodput:.3f} (0.99), 429 {result.refusals:.2%} (1 %), slowest/fastest {result.fairness:.2f}"
    return show("8 hosts, rate=50/8", backend, seed, text, began, ok=ok)


def shared(seed: int, backend: str) -> bool:
    """Print a line for each number of hosts that share a learned rate."""
    lines = []
    for limit, number, asks in product((50, 500), (2, 4, 8), (None, 1.0)):
        began = time.perf_counter()
        result = simulate_shares(limit, number, retry_after=asks, seed=seed, backend=backend)
        least = 0.93 if asks is None else 0.87
        ok = result.goodput() >= least and result.refused() <= 0.005 and result.fairness() >= 0.9
        text = f"goodput {result.goodput():.3f} ({least}), 429 {result.refused():.2%} (0.5 %), "
        text += f"slowest/fastest {result.fairness():.2f} (0.9), 429 while learning {result.refused(0, WARM_UP):.1%}"
        lines.append(show(f"{number} hosts share {limit}/s, Retry-After {asks or '-'}", backend, seed, text, began, ok=ok))
    return all(lines)


def audits(seed: int, backend: str) -> bool:
    """Print a line for each audit under a rate limit."""
    lines = []
    for burst, asks, in_flight in [(burst, asks, count) for burst in (4, 40) for asks in (None, 1.0) for count in (8, 64)]:
        scene, began = Scenario(seconds=0, limits=[(0, 40)], burst=burst / 40, asks=asks, seed=seed), time.perf_counter()
        result = play(partial(run_audit, scene, 400, max_in_flight=in_flight), backend)
        most, unread = (1.3 if asks is None else 2.3), len(result.report.unreadable)
        name = f"audit, burst {burst}, Retry-After {asks or '-'}, {in_flight} in flight"
        text = f"{result.slowdown:.2f} of the ideal time ({most}), {unread} unreadable (0)"
        lines.append(show(name, backend, seed, text, began, ok=result.slowdown <= most and not unread))
    return all(lines)


def outages(seed: int, backend: str) -> bool:
    """Print a line for each audit during an outage."""
    lines = []
    for kind, workspaces in [(kind, workspaces) for kind in _OUTAGES for workspaces in (2, 400)]:
        in_flight = 1 if workspaces < 64 else 64
        scene = Scenario(seconds=0, limits=[(0, 1000)], latency=0.5, outages=[(0.2, 300, kind)], seed=seed)
        began = time.perf_counter()
        result = play(partial(run_audit, scene, workspaces, max_in_flight=in_flight), backend)
        unread = len(result.report.unreadable)
        text = f"{result.seconds:.0f} s, {unread} unreadable (0)"
        lines.append(show(f"audit of {workspaces}, 5 min {kind}", backend, seed, text, began, ok=not unread))
    return all(lines)


def show(name: str, backend: str, seed: int, text: str, began: float, *, ok: bool) -> bool:
    """Print one line; return whether the scenario meets its requirements."""
    mark = "ok" if ok else "FAILED"
    sys.stdout.write(f"{name:44} {backend:7} {seed:4}  {text:110} {time.perf_counter() - began:5.1f} s  {mark}\n")
    sys.stdout.flush()
    return ok


TABLES: Final = {"hosts": hosts, "shared": shared, "audits": audits, "outages": outages}


def main() -> int:
    """Print the tables; return 1 if a scenario does not meet its requirements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=1, help="number of seeds")
    parser.add_argument("--only", choices=TABLES, help="print only this table")
    arguments = parser.parse_args()
    tables = TABLES.values() if arguments.only is None else [TABLES[arguments.only]]
    lines = [table(seed, loop) for table in tables for seed in range(arguments.seeds) for loop in ("asyncio", "trio")]
    return int(not all(lines))


if __name__ == "__main__":
    sys.exit(main())
