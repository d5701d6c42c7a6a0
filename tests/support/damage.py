"""Damage journals, then read and resume them. Each attempt must either raise an error of the library or return true results."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import attrs
from support.journal import ENDINGS, copy_journal, facts, make_killed_journal, open_elsewhere
from tools.journal_child import ROWS, open_journal, outcome_of

from outreach_async import Store
from outreach_async.errors import InvalidRequest, JournalError

KINDS: Final = ("deleted", "emptied", "truncated", "flipped", "overwritten")
"""Kinds of damage to each file of a journal."""
EVENTS: Final = ("opened elsewhere", "another's log")
"""What may happen to a journal as a whole, without damage."""
_COMMITS: Final = {"marked": 1, "recording": 2, "late": 61, "spooled": 31, "finished": 1000}
"""The number of commits after which each journal is left."""


@attrs.frozen
class Specimen:
    """A journal as a process left it."""

    name: str
    path: Path
    marked: int
    outcomes: list[dict[str, Any]]
    report: dict[str, Any]


def specimens(folder: Path) -> Iterator[Specimen]:
    """Create journals: of runs that were killed at several commits, and of a finished run."""
    for name, commits in _COMMITS.items():
        path = folder / f"{name}.db"
        make_killed_journal(path, commits, spooled=name == "spooled")
        report = Store(path).report()
        yield Specimen(name, path, report.marked, _read_outcomes(path), report.to_dict())


def _read_outcomes(path: Path) -> list[dict[str, Any]]:
    return [{**facts(outcome), "contact": None} for outcome in Store(path).outcomes()]


def damage(path: Path, kind: str, chance: random.Random) -> None:
    """Damage a file in the way that `kind` names; `chance` chooses the position and size."""
    content = bytearray(path.read_bytes())
    if kind == "deleted":
        path.unlink()
        return
    if kind == "emptied" or not content:
        content.clear()
    elif kind == "truncated":
        del content[chance.randrange(len(content)) :]
    elif kind == "flipped":
        for _ in range(chance.randint(1, 4)):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    else:
        first, size = chance.randrange(len(content)), chance.choice((1, 16, 512, 4096))
        end = min(len(content), first + size)
        content[first:end] = chance.choice((bytes, chance.randbytes))(end - first)
    path.write_bytes(content)


def copies(folder: Path, count: int, seed: int) -> Iterator[tuple[Specimen, str, Path]]:
    """Yield `count` copies. They cycle through every combination of specimen, file and kind of damage, and every event."""
    found = [*specimens(folder)]
    places = [
        (specimen, ending, kind) for specimen in found for ending in ENDINGS for kind in (KINDS if ending else (*KINDS, *EVENTS))
    ]
    for number in range(count):
        specimen, ending, kind = places[number % len(places)]
        chance = random.Random(f"{seed} {number}")  # noqa: S311 - repeatable, not secret
        copy = folder / f"copy{number}"
        copy.mkdir()
        copy_journal(specimen.path, copy / "run.db")
        if kind == "opened elsewhere":
            open_elsewhere(copy / "run.db")
        elif kind == "another's log":
            other = chance.choice([each for each in found if each is not specimen])
            for each in ENDINGS[1:]:
                shutil.copyfile(f"{other.path}{each}", copy / f"run.db{each}")
        else:
            damage(copy / f"run.db{ending}", kind, chance)
        yield specimen, f"{specimen.name}{ending} {kind}", copy / "run.db"


@attrs.define
class Figures:
    """Results of reading and resuming damaged copies."""

    counts: Counter[str] = attrs.field(factory=Counter)
    wrong: list[str] = attrs.field(factory=list)

    def take(self, specimen: Specimen, what: str, path: Path) -> None:
        """Read a copy and resume its run. If the journal is refused, resume as if every row may have been sent."""
        # The file is complete without its log and index: only damage to the file itself may be reported.
        is_whole = path.exists() and (path.read_bytes() == specimen.path.read_bytes() or what.endswith(EVENTS))
        report = self._try(f"{what}: report", Store(path).report)
        if report is None or report.to_dict() != specimen.report:
            self._blame(f"{what}: {report}", is_whole or report is not None)
        outcomes = self._try(f"{what}: outcomes", lambda: _read_outcomes(path))
        if outcomes != specimen.outcomes:
            self._blame(f"{what}: {len(outcomes or ())} outcomes", is_whole or outcomes is not None)
        is_lost = not any(path.parent.iterdir())  # nothing is left that could reveal an earlier process
        if is_lost or not self._resume(specimen, what, path, earlier="known"):
            resumed = self._resume(specimen, what, path, earlier="unknown")
            self._blame(f"{what}: cannot be resumed with earlier=unknown", not resumed and not _is_foreign(path))

    def _try(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (InvalidRequest, JournalError):
            self.counts["refused"] += 1
        except Exception as error:  # noqa: BLE001 - every unexpected exception is recorded
            self.wrong.append(f"{what}: {error!r}")
        return None

    def _resume(self, specimen: Specimen, what: str, path: Path, **options: Any) -> bool:
        """Resume the run, and return whether this is possible. Every row that was sent must be possibly sent or completed."""
        if (writer := self._try(f"{what}: resume", lambda: open_journal(path, resume=True, **options))) is None:
            return False
        self.counts[f"resumed with {options}"] += 1
        with closing(writer):
            if writer.finished:  # its report is intact, and resuming it sends nothing
                return True
            done = writer.completed_rows(0, ROWS)
            sent = [row for row in range(specimen.marked) if row not in done and row not in writer.possibly_sent]
        self._blame(f"{what}: rows {sent} do not count as possibly sent", bool(sent))
        outcomes = self._try(f"{what}: again", lambda: _read_outcomes(path))
        self._blame(f"{what}: false outcomes", outcomes != [facts(outcome_of(index)) for index in sorted(done)])
        return True

    def _blame(self, what: str, is_wrong: bool) -> None:
        if is_wrong:
            self.wrong.append(what)


def _is_foreign(path: Path) -> bool:
    """Return whether the file is not a journal of this version. The library never changes such a file."""
    try:
        Store(path).report()
    except InvalidRequest as error:
        return any(text in str(error) for text in ("is not a journal", "newer version"))
    except JournalError:
        return False
    return False


def run(folder: Path, count: int, seed: int) -> Figures:
    """Read and resume `count` damaged copies, and return the results."""
    figures = Figures()
    for specimen, what, path in copies(folder, count, seed):
        figures.take(specimen, what, path)
        shutil.rmtree(path.parent)
    return figures
