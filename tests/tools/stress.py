"""Stress every transport on every event loop with random faults, random cancellations and bursts of cancellations.

Run: python -m tools.stress [--calls 4000] [--points 1000] [--bursts 200] [--seed 1] [--only httpx-trio ...]

Prints one line per run. Exits with 1 if the transport reported a request as not sent although it arrived, if a request arrived
more often than it was sent, if a connection, socket, task or slot leaked, or if the transport was unusable afterwards. Known
faults of other libraries' clients, passed in by the user, are printed in brackets and do not count.
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
"""Runs in which a client passed in by the user loses its own pool and sockets: httpx does if requests are cancelled together."""


def carry_out(run: Run, make: Make, loop: str) -> Tally:
    """Carry out a run in a new event loop. Every warning, and everything left to the garbage collector, counts as a fault."""
    found: list[str] = []
    gc.collect()
    sys.unraisablehook = lambda error: found.append(f"{error.exc_value!r} {error.object!r}")
    backend, options = EVERY_LOOP[loop]
    tally = anyio.run(run, make, backend=backend, backend_options=options)
    gc.collect()
    tally.blame("left to the garbage collector", len(found))
    return tally


def runs_of(arguments: argparse.Namespace) -> dict[str, Run]:
    """Return the runs, by name."""
    seed = arguments.seed
    return {
        "random faults": partial(storm, calls=arguments.calls, seed=seed),
        "random points": partial(points, count=arguments.points, seed=seed),
        "bursts, TCP": partial(bursts, count=arguments.bursts, seed=seed, tls=False),
        "bursts, TLS": partial(bursts, count=arguments.bursts, seed=seed, tls=True),
    }


def arguments_of(line: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=4000, help="number of calls under random faults")
    parser.add_argument("--points", type=int, default=1000, help="number of client calls to cancel at random points")
    parser.add_argument(
        "--bursts", type=int, default=200, help="number of bursts of twelve cancelled requests, over TCP and over TLS"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="run only these transports and event loops, such as httpx-trio")
    return parser.parse_args(line)


def main(line: list[str]) -> int:
    """Run the command, and return the exit code."""
    warnings.simplefilter("error")
    arguments = arguments_of(line)
    wrong = False
    say(f"{'transport':26}{'run':16}{'calls':>7}{'denied':>8}{'careful':>8}{'seconds':>8}  faults")
    for name, loop in pairs(*ALL, loops=EVERY_LOOP):
        if arguments.only and f"{name}-{loop}" not in arguments.only:
            continue
        for title, run in runs_of(arguments).items():
            began = time.monotonic()
            tally = carry_out(run, MAKERS[name], loop)
            excused = title.startswith(THEIR_OWN.get(name, "-")) and not {"lies", "arrived too often"} & set(tally.faults)
            faults = ", ".join(f"{kind} {times}" for kind, times in tally.faults.items()) or "none"
            wrong |= bool(tally.faults) and not excused
            shown = f"({faults})" if excused and tally.faults else faults
            figures = f"{tally.calls:7}{tally.denied:8}{tally.careful:8}{time.monotonic() - began:8.1f}"
            say(f"{name + ' ' + loop:26}{title:16}{figures}  {shown}")
    return int(wrong)


def say(text: str) -> None:
    """Print a line, and flush it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
