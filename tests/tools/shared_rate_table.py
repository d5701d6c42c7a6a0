"""The table of what clients achieve that share one rate: `python -m tools.shared_rate_table [SEEDS] [--alone]`.

A line for each limit, number of clients, `Retry-After` and seed, in virtual time: the fraction of the limit that succeeded in 100
seconds after 20 seconds of warm-up, the fraction of responses that were 429, the ratio of the slowest client to the fastest, and
the 429s of the warm-up. `--alone` shows clients that each learn the limit for themselves.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import product

from support.shared_rates import WARM_UP, simulate_shares


def line(limit: float, clients: int, retry_after: float | None, seed: int, *, shared: bool) -> bool:
    """Print one line; return whether all was as it should be."""
    began = time.perf_counter()
    shares = simulate_shares(limit, clients, retry_after=retry_after, seed=seed, shared=shared)
    good = shares.goodput() >= (0.93 if retry_after is None else 0.87) and shares.refused() <= 0.005 and shares.fairness() >= 0.9
    sys.stdout.write(
        f"{limit:5g} {clients:7} {retry_after or '-':>11} {seed:4} {shares.goodput():7.3f} {shares.refused():7.2%} "
        f"{shares.fairness():8.2f} {shares.refused(0, WARM_UP):7.2%} {time.perf_counter() - began:5.1f} s  "
        f"{'ok' if good else 'MISSED'}\n"
    )
    sys.stdout.flush()
    return good


def main() -> int:
    """Print the table; 1 if a line is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=2, help="how many of them")
    parser.add_argument("--alone", action="store_true", help="let each client learn the limit for itself")
    arguments = parser.parse_args()
    sys.stdout.write("limit clients Retry-After seed goodput     429 fairness warm-up    took\n")
    cases = product((50.0, 500.0), (2, 4, 8), (None, 1.0), range(arguments.seeds))
    lines = [line(*case, shared=not arguments.alone) for case in cases]
    return int(not all(lines) and not arguments.alone)


if __name__ == "__main__":
    sys.exit(main())
