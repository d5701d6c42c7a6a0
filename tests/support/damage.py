"""Damage journals, then read and resume them. Each attempt must either raise an error of the library or return true results."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
from support.journal import ENDINGS, facts, open_elsewhere
from support.scenarios import KEY, SPACE

from outreach_async import ContactOutcome, Journal, Outcome, OutreachClient
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.fake import FakeService, FakeTransport, Snapshot
from outreach_async.testing import VirtualTime
from outreach_async.transport._wire import Progress, Request, Response

ROWS: Final = 90
KINDS: Final = ("deleted", "emptied", "truncated", "flipped", "overwritten")
"""Kinds of damage to each file of a journal."""
EVENTS: Final = ("opened elsewhere", "another's log")
"""What may happen to a journal as a whole, without damage."""
_OPEN: Final = {"marked": 1, "sending": 30, "late": 65, "spooled": 40}
"""The runs that are killed, each with the number of the request at which the kill happens."""
_TIME: Final = VirtualTime()


@attrs.frozen
class Specimen:
    """A journal as a process left it."""

    name: str
    path: Path
    service: Snapshot
    arguments: dict[str, Any]
    outcomes: list[dict[str, Any]]
    report: dict[str, Any]
    events: list[Any]

    @property
    def is_open(self) -> bool:
        """Return whether the process was killed."""
        return bool(self.report["state"] == "running")


def rows() -> list[dict[str, str]]:
    """Return the input rows; every fifth row is invalid."""
    return [{"email": " " if index % 5 == 4 else f"p{index}@a.example"} for index in range(ROWS)]


def truth(index: int) -> Outcome:
    """Return the true outcome of a row that is sent. Every third contact existed before; every fifth row is invalid."""
    if index % 5 == 4:
        return Outcome.REJECTED
    return Outcome.SKIPPED if index % 3 == 0 else Outcome.ADDED


def fake() -> FakeService:
    """Return the initial service, with the contacts that existed before the run."""
    service = FakeService(seed=1)
    service.add_workspace(SPACE)
    service.add_owner_key(SPACE, key=KEY)
    service.add_contacts(SPACE, [row for index, row in enumerate(rows()) if truth(index) is Outcome.SKIPPED])
    return service


class _Killing:
    """A transport that saves the state that a kill at one request would leave."""

    def __init__(self, service: FakeService, keep: Callable[[], None], number: int) -> None:
        self._inner = FakeTransport(service)
        self._keep = keep
        self._left = number

    async def send(self, request: Request, progress: Progress, /) -> Response:
        response = await self._inner.send(request, progress)
        self._left -= 1
        if self._left == 0:
            self._keep()
        await anyio.sleep(0.3 * (1 + self._left % 4))
        return response

    async def aclose(self) -> None: ...


async def _create(transport: Any, path: Path, most: int | None = None, **options: Any) -> None:
    client = OutreachClient(transport=transport, owner_key=KEY, workspace=SPACE)
    journal = Journal(path, inline=True)
    async with client.contacts.create_many(rows(), journal=journal, concurrency=8, resume=True, **options) as outcomes:
        copied_count = 0
        async for _ in outcomes:
            copied_count += 1
            if copied_count == most:
                break


def _run(*arguments: Any, **options: Any) -> None:
    anyio.run(lambda: _create(*arguments, **options), backend_options=_TIME.options("asyncio"))


def specimens(folder: Path) -> list[Specimen]:
    """Create one journal of each kind: killed at several points, ended early in order, and finished."""
    found = [_killed(folder / name, name, number) for name, number in _OPEN.items()]
    for name, most in (("left", 30), ("finished", None)):
        service, path = fake(), folder / f"{name}.db"
        _run(_Killing(service, lambda: None, 0), path, most)
        found.append(_specimen(name, path, service.snapshot(), {}))
    return found


def _killed(folder: Path, name: str, number: int) -> Specimen:
    folder.mkdir()
    service, living, path = fake(), folder / "living.db", folder / "run.db"
    arguments = {"spool": True} if name == "spooled" else {}
    snapshots: list[Snapshot] = []

    def keep() -> None:
        snapshots.append(service.snapshot())
        for ending in ENDINGS:
            shutil.copyfile(f"{living}{ending}", f"{path}{ending}")

    _run(_Killing(service, keep, number), living, **arguments)
    return _specimen(name, path, snapshots[0], arguments)


def _specimen(name: str, path: Path, service: Snapshot, arguments: dict[str, Any]) -> Specimen:
    journal = Journal(path)
    found = [facts(outcome) for outcome in journal.outcomes()]
    return Specimen(name, path, service, arguments, found, journal.report().to_dict(), list(journal.events()))


def damage(path: Path, kind: str, chance: random.Random) -> None:
    """Damage a file in the way that `kind` names; `chance` chooses the position and size."""
    content = bytearray(path.read_bytes())
    if kind == "deleted":
        path.unlink()
        return
    if kind == "emptied":
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
    found = specimens(folder)
    places = [
        (specimen, ending, kind)
        for specimen in found
        for ending in ENDINGS
        for kind in (KINDS if ending else (*KINDS, *EVENTS))
        if Path(f"{specimen.path}{ending}").exists()
    ]
    for number in range(count):
        specimen, ending, kind = places[number % len(places)]
        chance = random.Random(f"{seed} {number}")  # noqa: S311 - repeatable, not secret
        copy = folder / f"copy{number}"
        copy.mkdir()
        for each in ENDINGS:
            if Path(f"{specimen.path}{each}").exists():
                shutil.copyfile(f"{specimen.path}{each}", copy / f"run.db{each}")
        if kind == "opened elsewhere":
            open_elsewhere(copy / "run.db")
        elif kind == "another's log":
            other = chance.choice([each for each in found if each.is_open and each is not specimen])
            for each in ENDINGS[1:]:
                shutil.copyfile(f"{other.path}{each}", copy / f"run.db{each}")
        else:
            damage(copy / f"run.db{ending}", kind, chance)
        yield specimen, f"{specimen.name}{ending} {kind}", copy / "run.db"


@attrs.define
class Figures:
    """Results of reading and resuming damaged copies."""

    copies: int = 0
    counts: Counter[str] = attrs.field(factory=Counter)
    labels: list[str] = attrs.field(factory=list)
    reads: list[str] = attrs.field(factory=list)
    errors: list[str] = attrs.field(factory=list)

    @property
    def wrong(self) -> list[str]:
        """All failures: false labels, wrong reads and unexpected exceptions."""
        return [*self.labels, *self.reads, *self.errors]

    def take(self, specimen: Specimen, what: str, path: Path) -> None:
        """Read a copy and resume its run. If the journal is refused, resume as if every row may have been sent."""
        self.copies += 1
        # The file is complete without its log and index: only damage to the file itself may be reported.
        whole = path.exists() and (path.read_bytes() == specimen.path.read_bytes() or what.endswith(EVENTS))
        for name, read, right in _READINGS:
            self._read(f"{what}: {name}", partial(read, Journal(path)), partial(right, specimen), whole=whole)
        try:
            self._resume(specimen, what, path)
        except Exception as error:  # noqa: BLE001 - every unexpected exception is recorded
            self.errors.append(f"{what}: resuming: {error!r}")

    def _read(self, what: str, read: Callable[[], Any], right: Callable[[Any], bool], *, whole: bool) -> None:
        try:
            found = read()
        except (InvalidRequest, JournalError) as error:
            self.counts["reading: refused"] += 1
            if whole:
                self.reads.append(f"{what}: {error!r}")
        except Exception as error:  # noqa: BLE001 - every unexpected exception is recorded
            self.errors.append(f"{what}: {error!r}")
        else:
            self.counts["reading: done"] += 1
            if not right(found):
                self.reads.append(f"{what}: {found!r}")

    def _resume(self, specimen: Specimen, what: str, path: Path) -> None:
        lost = not any(path.parent.iterdir())  # nothing is left that could reveal an earlier process
        for earlier in ("unknown",) if lost else ("known", "unknown"):
            service = fake()
            service.restore(specimen.service)
            try:
                _run(FakeTransport(service), path, earlier=earlier, **specimen.arguments)
            except (InvalidRequest, JournalError) as error:
                self.counts[f"resuming, earlier {earlier}: refused"] += 1
                if earlier == "unknown" and not _is_foreign(error):
                    self.errors.append(f"{what}: cannot be resumed with earlier=unknown: {error!r}")
            else:
                self.counts[f"resuming, earlier {earlier}: done"] += 1
                try:
                    self._judge(what, list(Journal(path).outcomes()))
                except JournalError:
                    if specimen.name != "finished":  # its report is intact, and resuming it sent nothing
                        raise
                return

    def _judge(self, what: str, found: Sequence[ContactOutcome]) -> None:
        false = [outcome for outcome in found if truth(outcome.index) not in outcome.possible]
        if false or [outcome.index for outcome in found] != list(range(ROWS)):
            false_labels = [f"{outcome.index} {outcome.status} was {truth(outcome.index)}" for outcome in false]
            self.labels.append(f"{what}: {len(found)} outcomes, false: {false_labels}")


def _is_foreign(error: Exception) -> bool:
    """Return whether the error means that the file is not a journal of this version. The library never changes such a file."""
    return isinstance(error, InvalidRequest) and any(text in str(error) for text in ("is not a journal", "newer version"))


def _right_report(specimen: Specimen, found: dict[str, Any]) -> bool:
    if not specimen.is_open:
        return found == specimen.report
    same = ("state", "marked", "windows", "workspace", "source", "fingerprint")
    rows, snapshots = found["rows"], specimen.report["rows"]
    return all(found[name] == specimen.report[name] for name in same) and rows == sum(found["outcomes"].values()) <= snapshots


def _right_outcomes(specimen: Specimen, found: list[dict[str, Any]]) -> bool:
    return found == specimen.outcomes or (specimen.is_open and all(outcome in specimen.outcomes for outcome in found))


def _right_events(specimen: Specimen, found: list[Any]) -> bool:
    return found == (specimen.events[: len(found)] if specimen.is_open else specimen.events)


_READINGS: Final[Sequence[tuple[str, Callable[[Journal], Any], Callable[[Specimen, Any], bool]]]] = (
    ("report", lambda journal: journal.report().to_dict(), _right_report),
    ("outcomes", lambda journal: [facts(outcome) for outcome in journal.outcomes()], _right_outcomes),
    ("events", lambda journal: list(journal.events()), _right_events),
)


def run(folder: Path, count: int, seed: int) -> Figures:
    """Read and resume `count` damaged copies, and return the results."""
    figures = Figures()
    for specimen, what, path in copies(folder, count, seed):
        figures.take(specimen, what, path)
        shutil.rmtree(path.parent)
    return figures
