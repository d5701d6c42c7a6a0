"""Random faults, cancellations at random points and bursts of them, at full length on every transport and event loop.

Run: python -m tools.stress [--calls 4000] [--points 1000] [--bursts 200] [--seed 1] [--only httpx-trio ...]

Prints a line a run and exits with 1 if anything happened that must not: something that arrived was said not to have been sent, a
request arrived more often than it was sent, a connection, socket, task or slot was left, or the transport was of no use after.
What a user's own client of another library is known to do to itself is printed in brackets and does not count.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import warnings
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

import anyio
from support.stress import Tally, bursts, points, storm
from support.transports import ALL, EVERY_LOOP, MAKERS, Make, pairs

Run = Callable[[Make], Coroutine[Any, Any, Tally]]

THEIR_OWN: Final = {"httpx_client": "bursts", "httpx2_client": "bursts"}
"""Runs in which a given client loses its own pool and sockets: one of httpx when requests are cancelled together."""


def carry_out(run: Run, make: Make, loop: str) -> Tally:
    """Do a run in an event loop of its own; every warning, and whatever the garbage collector finds, is a fault."""
    found: list[str] = []
    gc.collect()
    sys.unraisablehook = lambda error: found.append(f"{error.exc_value!r} {error.object!r}")
    backend, options = EVERY_LOOP[loop]
    tally = anyio.run(run, make, backend=backend, backend_options=options)
    gc.collect()
    tally.blame("left to the garbage collector", len(found))
    return tally


def runs_of(arguments: argparse.Namespace) -> dict[str, Run]:
    """Return what to run, by name."""
    seed = arguments.seed
    return {
        "random faults": partial(storm, calls=arguments.calls, seed=seed),
        "random points": partial(points, count=arguments.points, seed=seed),
        "bursts, TCP": partial(bursts, count=arguments.bursts, seed=seed, tls=False),
        "bursts, TLS": partial(bursts, count=arguments.bursts, seed=seed, tls=True),
    }


def arguments_of(line: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=4000, help="calls under random faults")
    parser.add_argument("--points", type=int, default=1000, help="calls of a whole client, cancelled at random points")
    parser.add_argument("--bursts", type=int, default=200, help="bursts of twelve cancelled requests, over TCP and over TLS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="transports with their event loops, such as httpx-trio")
    return parser.parse_args(line)


def main(line: list[str]) -> int:
    """Run, print, and return the exit code."""
    warnings.simplefilter("error")
    arguments = arguments_of(line)
    wrong = False
    say(f"{'transport':26}{'run':16}{'calls':>7}{'denied':>8}{'careful':>8}{'seconds':>8}  what must not be")
    for name, loop in pairs(*ALL, loops=EVERY_LOOP):
        if arguments.only and f"{name}-{loop}" not in arguments.only:
            continue
        for title, run in runs_of(arguments).items():
            began = time.monotonic()
            tally = carry_out(run, MAKERS[name], loop)
            excused = title.startswith(THEIR_OWN.get(name, "-")) and not {"lies", "arrived too often"} & set(tally.faults)
            faults = ", ".join(f"{kind} {times}" for kind, times in tally.faults.items()) or "nothing"
            wrong |= bool(tally.faults) and not excused
            shown = f"({faults})" if excused and tally.faults else faults
            figures = f"{tally.calls:7}{tally.denied:8}{tally.careful:8}{time.monotonic() - began:8.1f}"
            say(f"{name + ' ' + loop:26}{title:16}{figures}  {shown}")
    return int(wrong)


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
