"""Check that journals survive damage, kills, power failures and full or broken disks: nothing acknowledged is lost.

Run: python -m tools.journal_faults [--damaged 900] [--cuts 200] [--kills 200] [--limits 150] [--breaks 92] [--seed 1]

Prints a line for each kind of fault. Fails at the first journal that has lost an acknowledged row, is read wrongly, or cannot be
resumed. If the user may mount file systems, the command also fills a small file system in memory.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from support.damage import Figures, run
from support.journal import (
    child,
    count_acknowledged,
    cut_copy,
    make_killed_journal,
    open_elsewhere,
    require_prefix,
    require_resumable,
    run_to_end,
)

from outreach_async.errors import InvalidRequest, OutreachError

COMMITS = 92
"""More commits than the run has, so that no step is left out."""


def cuts(folder: Path, count: int) -> list[tuple[int, int]]:
    """Truncate the log of a killed run to the given number of lengths, from empty to complete; return the remaining states."""
    path = folder / "cut.db"
    make_killed_journal(path, COMMITS - 11)
    size = Path(f"{path}-wal").stat().st_size
    found = []
    for number in range(count):
        copy = cut_copy(path, folder / f"cut{number}", size * number // max(1, count - 1))
        found.append(require_prefix(copy))
        require_resumable(copy)
    assert len({*found}) == 1  # the file is complete without its log
    return found


def kills(folder: Path, count: int, seed: int) -> int:
    """Kill runs at random instants, each several times before it finishes; return the number of kills."""
    # After half of the kills, another program opens the journal, and thereby removes its log.
    chance, done = random.Random(seed), 0  # noqa: S311 - reproducible, not secret
    path = folder / "kill0.db"
    while done < count:
        process = child(path)
        assert process.stdout is not None
        reported = "".join(process.stdout.readline() for _ in range(chance.randrange(1, 40)))
        time.sleep(chance.random() * 0.002)  # hits the child at a random instant
        process.send_signal(signal.SIGKILL)
        rest, errors = process.communicate()
        assert not errors, errors
        done += process.returncode == -signal.SIGKILL
        if chance.random() < 0.5:
            open_elsewhere(path)
        require_prefix(path, count_acknowledged(reported + rest))
        if process.returncode == 0:
            path = folder / f"kill{done}.db"
    require_resumable(path)
    return done


def full_disk(folder: Path, sizes: Iterable[int]) -> int:
    """Run with each of these limits on the size of every file; return the number of runs that reached the limit."""
    met = 0
    for size in sizes:
        path = folder / f"limit{size}.db"
        code, reported = run_to_end(path, "--file-size", size)
        met += code == 3
        _require_kept(path, reported, began=reported > (0, 0))
    return met


def broken_log(folder: Path, steps: Iterable[int]) -> int:
    """Run with writes to the log failing after each of these commits; return the number of runs that reported the failure."""
    met = 0
    for step in steps:
        path = folder / f"break{step}.db"
        code, reported = run_to_end(path, "--break", step)
        met += code == 3
        _require_kept(path, reported, began=True)
    return met


def small_disk(folder: Path, sizes: Iterable[int]) -> int | None:
    """Fill disks of these sizes; return the number of runs whose disk was full, or `None` if mounting is not permitted."""
    met = 0
    for size in sizes:
        disk = folder / f"disk{size}"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], check=False).returncode:  # noqa: S607 - a program of the system
            return None
        try:
            path = disk / "run.db"
            code, reported = run_to_end(path)
            met += code == 3
            if reported > (0, 0):
                require_prefix(path, reported)
            subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)  # noqa: S607 - a program of the system
            _require_kept(path, reported, began=reported > (0, 0))
        finally:
            subprocess.run(["umount", disk], check=True)  # noqa: S607 - a program of the system
    return met


def _require_kept(path: Path, reported: tuple[int, int], *, began: bool) -> None:
    try:
        require_prefix(path, reported)
    except InvalidRequest:  # the disk was full before the journal existed
        assert not began
    require_resumable(path)


def damaged(folder: Path, count: int, seed: int) -> Figures:
    """Damage the given number of copies of journals; return the results of reading and resuming them."""
    place = folder / "damaged"
    place.mkdir()
    return run(place, count, seed)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--damaged", type=int, default=900)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--limits", type=int, default=150)
    parser.add_argument("--breaks", type=int, default=COMMITS)
    parser.add_argument("--seed", type=int, default=1)
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            figures = damaged(folder, parsed.damaged, parsed.seed)
            say(f"{figures.copies} damaged copies; " + ", ".join(f"{what}: {times}" for what, times in figures.counts.items()))
            say(f"{len(figures.labels)} false labels, {len(figures.reads)} wrong reads, {len(figures.errors)} other exceptions")
            assert not figures.wrong, figures.wrong[:20]
            (marked, recorded), *_ = cuts(folder, parsed.cuts)
            say(f"log cut at {parsed.cuts} lengths: {marked} rows marked and {recorded} recorded in each; all resumed")
            sizes = [index * 80_000 // max(1, parsed.limits) for index in range(parsed.limits)]
            say(f"files limited to {len(sizes)} sizes: {full_disk(folder, sizes)} runs reached the limit; all resumed")
            say(f"log broken at {parsed.breaks} commits: {broken_log(folder, range(parsed.breaks))} reported it; all resumed")
            met = small_disk(folder, range(65536, 400_000, 16384))
            say("full disk: mounting is not permitted" if met is None else f"full disk: {met} runs reported it; all resumed")
            say(f"killed {kills(folder, parsed.kills, parsed.seed)} times: nothing acknowledged was lost; all resumed")
        except (AssertionError, OutreachError) as error:
            say(f"failed: {error!r}")
            raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
