"""Kill processes at every point of runs with a journal, and check that no row is lost, duplicated or mislabelled.

Run: python -m tools.kill_loop [--kills 500] [--seed 0] [--rows 80] [--journal file|folder|s3] [--without-mark]

The service, which injects faults, and every import run in separate processes. Each process resumes the run of the previous one,
until the run is finished. Then the journal and the delivered outcomes are compared with the ledger of the service. Some processes
leave the loop over the outcomes early instead, so that one journal sees both endings. Some runs have neither kills nor faults;
every label in them must be certain.

Prints the number of kills by point and duplicates option. Exits with 1 if there are violations or too few kills. `--without-mark`
omits the window marks; the command must then report violations.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, get_args

import attrs
from support.kill_points import RESUMABLE, Point
from support.kills import Figures, Importers, Left, Service, Story, find_leaks, found, lines
from support.s3 import environment, serve_s3
from tools.kill_importer import Job, JournalKind, Run, Source

from outreach_async._vocabulary import DUPLICATE_POLICIES
from outreach_async.bulk.journal import journal_at
from outreach_async.errors import JournalError

_WORKERS: Final = 2
_EACH: Final = 7
"""Kills at each point with each duplicates option, in a full-length loop."""
_MOST: Final = 16
"""Maximum number of killed processes in one run."""

_CREATING: Final = frozenset({Point.CREATING, Point.CREATED})
_SPOOLING: Final = frozenset({Point.SPOOLING, Point.SPOOLED})
_AGAIN: Final = frozenset({Point.REOPENING, Point.IN_OPENING, Point.OPENED})
_LAST: Final = frozenset({Point.ENDING, Point.IN_END, Point.ENDED})
_BY_WINDOW: Final = frozenset(
    {Point.MARKING, Point.IN_MARK, Point.MOVING, Point.MARKED, Point.RECORDING, Point.IN_RECORD, Point.RECORDED}
)

_UNFINISHED: Final = ("killed", str(RESUMABLE))

Wanted = Counter[tuple[Point, str]]
"""Kills by point and duplicates option."""

Death = tuple[Point, int] | None
"""The point at which a process ends, and how often it reaches the point until then; `None` to let the process finish."""


def wanted_kills(kills: int, points: Sequence[Point], seed: int) -> Wanted:
    """Return the number of kills for each point and duplicates option."""
    # Every combination gets the same number of kills, and the remaining kills come at random instants. In addition, as many
    # processes as are killed at one point leave their loop early.
    exact: list[tuple[Point, str]] = [
        (point, option) for point in points for option in DUPLICATE_POLICIES if point not in {Point.ANYWHERE, Point.LEFT}
    ]
    in_order = [(Point.LEFT, option) for option in DUPLICATE_POLICIES] * min(_EACH, kills // len(exact))
    places = exact * min(_EACH, -(-kills // len(exact)))
    if len(places) > kills:
        places = random.Random(f"wanted {seed}").sample(places, kills)  # noqa: S311 - reproducible, not secret
    return Counter(
        in_order + places + [(Point.ANYWHERE, DUPLICATE_POLICIES[number % 3]) for number in range(kills - len(places))]
    )


def run_of(seed: int, number: int, rows: int, journal: JournalKind = "file") -> Run:
    """Return the run with a number. Nine consecutive runs combine each duplicates option with each source."""
    option, rest = number % 3, number // 3
    sources: tuple[Source, ...] = ("list", "spool", "stream")
    source = sources[rest % 3]
    return Run(
        number=number,
        seed=seed,
        rows=rows,
        duplicates=DUPLICATE_POLICIES[option],
        source=source,
        repeats=("serial", "first", "serial", "last")[rest // 3 % 4] if source == "spool" else "serial",
        order="input" if rest % 4 == 3 else "completion",
        journal=journal,
    )


def doom(open_: Wanted, run: Run, process: int, left: Left, chance: random.Random) -> Death:
    """Return where the next process of a run ends."""
    points = {point for point, option in open_ if option == run.duplicates}
    if run.source != "spool" or left.marked or process > 3:
        points -= _SPOOLING
    points -= _CREATING if process else _AGAIN
    if process < _MOST // 2 and points - _LAST:
        points -= _LAST
    if not points or process >= _MOST:
        return None
    point = chance.choice(sorted(points & _CREATING or points & _SPOOLING or points))
    return point, _passing(point, run.rows - len(left.recorded), chance)


def _passing(point: Point, rows: int, chance: random.Random) -> int:
    if point is Point.ANYWHERE:
        return chance.randrange(1, 400)
    if point in _SPOOLING:
        return chance.randint(1, 2)
    if point in _BY_WINDOW:
        return chance.randint(1, 1 + (rows > 20))
    return 1 if point in _AGAIN | _LAST | _CREATING else chance.randint(1, max(1, rows // 3))


@attrs.frozen
class Worker:
    """Carries out runs."""

    service: Service
    importers: Importers
    folder: Path
    seed: int
    pretend: bool
    figures: Figures = attrs.field(factory=Figures)

    def carry_out_all(self, runs: Iterable[Run], kills: Wanted) -> None:
        """Carry out runs until every wanted kill was made. Skip runs whose duplicates option needs no more kills."""
        for run in runs:
            chance = random.Random(f"kills {self.seed} {run.number}")  # noqa: S311 - reproducible, not secret
            if any(option == run.duplicates for _, option in kills - self.figures.kills):
                self.carry_out(run, partial(self._death, kills, run, chance))

    def _death(self, kills: Wanted, run: Run, chance: random.Random, process: int, left: Left) -> Death:
        return doom(kills - self.figures.kills, run, process, left, chance)

    def carry_out(self, run: Run, death: Callable[[int, Left], Death]) -> None:
        """Run processes, with their kills, until the run is finished."""
        folder = self.folder / run.workspace
        folder.mkdir()
        self.service.begin(run)
        left, complaints, code = [Left()], list[str](), "killed"
        while code in _UNFINISHED:
            at = death(len(left) - 1, left[-1])
            code = self._process(run, folder, len(left) - 1, at)
            self._count(run, at, code)
            left.append(self._found(run, folder, left[-1], complaints))
            complaints += find_leaks(folder, run, left[-1])
        if code != "0":
            complaints.append(f"process {len(left) - 2}: {code}")
        if (again := self._process(run, folder, len(left) - 1, None)) != code:
            complaints.append(f"resuming the ended run: {again}")
        self.figures.add(self._story(run, folder, left[1:]), dict.fromkeys(complaints))

    def _count(self, run: Run, at: Death, code: str) -> None:
        if at is not None and code in _UNFINISHED:
            self.figures.kills[at[0], run.duplicates] += 1
        elif at is not None:
            self.figures.missed += 1

    def _found(self, run: Run, folder: Path, before: Left, complaints: list[str]) -> Left:
        """Return the state of the run after a process. If its journal is unreadable, record that as a violation."""
        try:
            return found(run, folder)
        except JournalError as error:
            complaints.append(str(error))
            return before

    def _process(self, run: Run, folder: Path, process: int, at: Death) -> str:
        backend = "trio" if (run.number + process) % 2 else "asyncio"
        point, passing = at or (None, 1)
        job = Job(
            run=run,
            url=self.service.url,
            folder=folder,
            process=process,
            backend=backend,  # type: ignore[arg-type]  # one of the two
            point=point,
            passing=passing,
            pretend=self.pretend,
        )
        return self.importers.carry_out(job)

    def _story(self, run: Run, folder: Path, left: Sequence[Left]) -> Story:
        entries, contacts = self.service.ledger(run)
        journal = journal_at(run.location(folder))
        return Story(run, left, journal.report().state, list(journal.outcomes()), lines(folder), entries, contacts)


def loop(kills: int, seed: int, *, rows: int = 80, journal: JournalKind = "file", pretend: bool = False) -> Figures:
    """Carry out runs until every wanted kill was made, and a few runs without kills and faults."""
    missing = {Point.IN_MARK} if pretend else set()
    if pretend or journal != "file":
        missing.add(Point.MOVING)
    points = [point for point in Point if point not in missing]
    places = list(wanted_kills(kills, points, seed).elements())
    with ThreadPoolExecutor(_WORKERS) as pool, tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        if journal == "s3":
            os.environ |= environment(stack.enter_context(serve_s3()))
        work = partial(_work, seed=seed, rows=rows, journal=journal, pretend=pretend)
        jobs = [pool.submit(work, Path(name), Counter(places[first::_WORKERS]), first) for first in range(_WORKERS)]
        return sum((job.result() for job in jobs), Figures())


def _work(folder: Path, kills: Wanted, first: int, *, seed: int, rows: int, journal: JournalKind, pretend: bool) -> Figures:
    """Carry out the share of one worker: every second run. The number of runs is limited, in case a point is never reached."""
    options = len(DUPLICATE_POLICIES)
    numbers = range(first, options * (9 + kills.total()), _WORKERS)
    with Importers() as importers, Service(seed + first) as service:
        worker = Worker(service, importers, folder, seed, pretend)
        for number in range(first, options, _WORKERS):
            worker.carry_out(attrs.evolve(run_of(seed, number, rows, journal), calm=True), lambda *_: None)
        worker.carry_out_all((run_of(seed, number, rows, journal) for number in numbers), kills)
        return worker.figures


def table(figures: Figures) -> str:
    """Return the figures as a table."""
    head = f"{'killed':40}" + "".join(f"{option:>23}" for option in DUPLICATE_POLICIES) + f"{'all':>7}"
    counts: dict[str, list[int]] = {
        point: [figures.kills[point, option] for option in DUPLICATE_POLICIES] for point in Point if point is not Point.LEFT
    }
    counts["all kills"] = [sum(column) for column in zip(*counts.values(), strict=True)]
    counts[Point.LEFT] = [figures.kills[Point.LEFT, option] for option in DUPLICATE_POLICIES]
    rows = [f"{name:40}" + "".join(f"{count:23}" for count in row) + f"{sum(row):7}" for name, row in counts.items()]
    message = (
        f"{figures.runs} runs of {figures.rows} rows; {figures.missed} processes finished before they reached their point",
        f"{figures.requests} requests, {figures.repeats} of them retries; {figures.suspects} rows possibly sent at kills",
        f"{figures.resent} rows resent after a kill",
        f"{figures.uncertain} uncertain labels",
        f"{len(figures.violations)} violations",
    )
    return "\n".join([head, *rows, *message])


def main(line: Sequence[str]) -> int:
    """Run the command, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=80, help="number of rows per run")
    parser.add_argument(
        "--journal",
        choices=get_args(JournalKind),
        default="file",
        help="kind of journal: a file, or objects in a folder or on S3",
    )
    parser.add_argument(
        "--without-mark", action="store_true", help="omit the window marks; the command must then report violations"
    )
    arguments = parser.parse_args(line)
    began = time.monotonic()
    journal, pretend = arguments.journal, arguments.without_mark
    if pretend and journal != "file":
        parser.error(f"--without-mark: expected --journal file, got {journal}")
    figures = loop(arguments.kills, arguments.seed, rows=arguments.rows, journal=journal, pretend=pretend)
    say(table(figures))
    say(f"{time.monotonic() - began:.0f} seconds")
    for violation in figures.violations[:40]:
        say(violation)
    return code(figures, arguments.kills)


def code(figures: Figures, kills: int) -> int:
    """Return the exit code: 0 if there are no violations and all kills were made."""
    return int(bool(figures.violations) or figures.killed < kills)


def say(text: str) -> None:
    """Print a line, and flush it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
