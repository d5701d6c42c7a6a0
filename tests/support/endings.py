"""Draw one random scenario per seed: event loop, options, durations, and how and where processes end early."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, get_args

import attrs
from support.crashes import Simulation, memory
from support.processes import WAYS, Ending
from support.scenarios import Scenario, seeded

from outreach_async import DuplicatePolicy
from outreach_async.bulk import Repeats
from outreach_async.store._writer import JournalWriter

LOOPS: Final = ("asyncio", "trio")


@attrs.frozen
class DrawnScenario:
    """A scenario, its event loop, and the early endings of its processes."""

    seed: int
    backend: str
    scene: Scenario
    endings: tuple[Ending, ...]

    def play(self, folder: Path, harmed: Callable[[JournalWriter], Any] = lambda writer: writer) -> Simulation:
        """Run processes until the run is finished, and return the simulation."""
        one = Simulation(self.scene, folder, self.backend, harmed)
        one.finish(iter(self.endings))
        return one

    def violations(self) -> list[str]:
        """Run the scenario in a temporary folder, and return every violated invariant."""
        with memory() as folder:
            return self.play(folder).violations()


def draw_scenario(seed: int) -> DrawnScenario:
    """Return the random scenario of a seed."""
    chance = random.Random(f"drawn {seed}")  # noqa: S311 - repeatable, not secret
    rows = chance.choice([4, 12, 30])
    scene = seeded(
        seed,
        rows,
        duplicates=chance.choice(get_args(DuplicatePolicy)),
        repeats=chance.choice(["serial", "serial", *get_args(Repeats)]),
        order=chance.choice(["completion", "completion", "input"]),
        spool=chance.random() < 0.2,
        trouble=chance.choice([0.0, 0.15, 0.4]),
        attempts=chance.choice([1, 2, 4]),
        concurrency=chance.choice([1, 2, 4, 8]),
        journal_seconds=chance.choice([0.0, 0.02, 0.3, 3.0]),
        misdirected=chance.choice([0.0, 0.0, 0.1]),
        caller_seconds=chance.choice([0.0, 0.0, 0.1, 1.0]),
    )
    return DrawnScenario(
        seed, chance.choice(LOOPS), scene, tuple(_ending(chance, rows) for _ in range(chance.choice([1, 1, 2, 3])))
    )


def _ending(chance: random.Random, rows: int) -> Ending:
    point = chance.randrange(1, 8 * rows + 20)
    fails_at = point + chance.randrange(1, 20) if chance.random() < 0.2 else None
    return Ending(chance.choice(WAYS), point, chance.choice([0.0, 0.01, 0.5]), fails_at)
