"""Check the labels of two rows with the same e-mail along every path of faults.

Run: python -m tools.label_model [--attempts 3] [--faults 5] [--crash-faults 3] [--crashes 2] [--jobs N]

Walks nearly three million paths in about a minute of CPU time, and prints the number of paths and violations per scenario. Exits
with 1 if a label excludes what really happened or is uncertain without a fault, if a contact is lost or added twice, or if the
final contact cannot result from sending the rows one after the other.

Two known exceptions are counted separately. An `overwrite` may be delayed until after a later row; merging the rows first
(`coalesce`) prevents this. A failed row is resent after a later row of its e-mail, if a kill comes before its outcome is in the
journal. No path has more than `--faults` faults: one more would only add paths on which both rows fail three times.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor

from support.labels import Bounds, Model, models

HEADING = f"{'scenario':34}{'paths':>11}{'known':>9}{'violations':>12}{'seconds':>9}"


def scenes(arguments: argparse.Namespace) -> dict[str, list[Model]]:
    """Return the models to walk, by name of the scenario."""
    whole = Bounds(arguments.attempts, arguments.faults)
    crashing = Bounds(arguments.attempts, arguments.crash_faults, arguments.crashes)
    return {
        "two rows": models(whole),
        "two rows, crashes and resumes": models(crashing),
        "coalesced": models(whole, coalesce=True),
        "coalesced, crashes and resumes": models(crashing, coalesce=True),
    }


def line(name: str, walked: Iterable[Model], began: float) -> int:
    """Print the result of a scenario; return its number of violations."""
    walked = list(walked)
    violations: Counter[str] = Counter()
    for model in walked:
        violations.update(model.violations)
    figures = f"{sum(model.leaves for model in walked):11,}{sum(model.known for model in walked):9,}{violations.total():12,}"
    say(f"{name:34}{figures}{time.monotonic() - began:9.1f}")
    for model in walked:
        for kind, path in model.examples.items():
            say(f"  {kind} ({model.violations[kind]:,}): {model.duplicates}, {model.before or 'new'}: {', '.join(path)}")
    return violations.total()


def say(text: str) -> None:
    """Print a line, and flush it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def arguments_of(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--attempts", type=int, default=3, help="attempts per row in one process")
    parser.add_argument("--faults", type=int, default=5, help="faults per path, if no process ends early")
    parser.add_argument(
        "--crash-faults", type=int, default=3, help="faults per path, if processes end early; each early end counts"
    )
    parser.add_argument("--crashes", type=int, default=2, help="processes per path that end early, killed or in order")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of worker processes")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run the command, and return the exit code."""
    arguments, wrong, leaves = arguments_of(argv), 0, 0
    began = time.monotonic()
    say(HEADING)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        under_way = {
            name: [pool.submit(model.walk) for model in group_models] for name, group_models in scenes(arguments).items()
        }
        for name, futures in under_way.items():
            walked = [future.result() for future in futures]
            wrong += line(name, walked, began)
            leaves += sum(model.leaves for model in walked)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    time_taken = f"{time.monotonic() - began:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of CPU time"
    say(f"{leaves:,} paths, {wrong:,} violations, {time_taken}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
