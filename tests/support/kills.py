"""Compare the journals and deliveries of killed runs with the ledger of the service."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import attrs
from support.kill_points import Point
from tools.kill_importer import Job, Run, format_outcome

from outreach_async._vocabulary import Outcome
from outreach_async.bulk._outcomes import ContactOutcome
from outreach_async.bulk.journal import journal_at
from outreach_async.errors import InvalidRequest

NOTHING = frozenset({Outcome.NOT_APPLIED, Outcome.REJECTED})
"""True outcomes of a row for which the service did nothing."""


@attrs.frozen
class Entry:
    """A request in the ledger of the service."""

    process: int
    row: int
    effect: str
    fault: str | None

    @property
    def failed(self) -> bool:
        """Whether the request must be retried."""
        return self.fault is not None and not self.fault.startswith("latency")


@attrs.frozen
class Left:
    """The state of a run after one of its processes has ended."""

    marked: int = 0
    recorded: frozenset[int] = frozenset()
    delivered: tuple[int, ...] = ()

    @property
    def suspects(self) -> int:
        """Number of rows that count as possibly sent: marked, but without an outcome."""
        return self.marked - len(self.recorded)


@attrs.frozen
class Story:
    """The complete data of a run after its last process has ended."""

    run: Run
    left: Sequence[Left]
    state: str
    outcomes: Sequence[ContactOutcome]
    lines: Sequence[str]
    entries: Sequence[Entry]
    contacts: Sequence[tuple[str, str]]


def violations(story: Story) -> Iterator[str]:
    """Yield a description of every violation of the rules for killed runs."""
    if story.state != "finished":
        yield f"the run is {story.state}"
    yield from _unaccounted(story)
    yield from _mislabelled(story)
    yield from _misnamed(story)
    yield from _sent_needlessly(story)
    yield from _sent_too_far(story)


def _unaccounted(story: Story) -> Iterator[str]:
    """Yield rows that were lost, delivered twice, or delivered with another outcome than in the journal."""
    counts = Counter(outcome.index for outcome in story.outcomes)
    yield from (f"row {row}: {counts[row]} outcomes" for row in range(story.run.rows) if counts[row] != 1)
    yield from (f"row {row}: no such row" for row in counts if not 0 <= row < story.run.rows)
    recorded_lines = {format_outcome(outcome) for outcome in story.outcomes}
    for line, times in Counter(story.lines).items():
        if times > 1 or line not in recorded_lines:
            yield f"delivered {times} times, and {'' if line in recorded_lines else 'not '}recorded: {line.strip()}"


def _mislabelled(story: Story) -> Iterator[str]:
    """Yield outcomes that do not include what the service did."""
    effects: dict[int, set[str]] = {}
    for entry in story.entries:
        effects.setdefault(entry.row, set()).add(entry.effect)
    for outcome in story.outcomes:
        truth = _truth(effects.get(outcome.index, set()))
        if not truth & outcome.possible:
            yield f"row {outcome.index}: the outcome is {format_outcome(outcome).strip()}, expected {'/'.join(sorted(truth))}"
        if story.run.calm and not outcome.certain:
            yield f"row {outcome.index}: uncertain, although there was no fault"


def _truth(effects: Iterable[str]) -> frozenset[Outcome]:
    """Return the true outcomes of a row with these effects. A row that was added once counts as added."""
    done = set(effects) - {""}
    if "added" in done:
        return frozenset({Outcome.ADDED})
    return frozenset(map(Outcome, done)) or NOTHING


def _misnamed(story: Story) -> Iterator[str]:
    """Yield e-mails with several contacts, wrong contact ids in outcomes, and outcomes without a contact."""
    ids = dict(story.contacts)
    counts = Counter(email.lower() for email, _ in story.contacts)
    yield from (f"{email}: {count} contacts" for email, count in counts.items() if count > 1)
    emails = {id_: email.lower() for email, id_ in ids.items()}
    rows = story.run.input()
    for outcome in story.outcomes:
        email = rows[outcome.index]["email"].lower()
        if outcome.id is not None and emails.get(outcome.id) != email:
            yield f"row {outcome.index}: {outcome.id} is not the contact of {email}"
        if outcome.possible.isdisjoint({Outcome.NOT_APPLIED, Outcome.REJECTED}) and email not in counts:
            yield f"row {outcome.index}: {email} is not a contact, but the outcome is {format_outcome(outcome).strip()}"


def _sent_needlessly(story: Story) -> Iterator[str]:
    """Yield requests that neither a fault nor a kill explains."""
    sent = Counter((entry.process, entry.row) for entry in story.entries)
    struck = Counter((entry.process, entry.row) for entry in story.entries if entry.failed)
    for (process, row), times in sent.items():
        found = Left() if process == 0 else story.left[process - 1]
        if times > 1 + struck[process, row]:
            yield f"row {row}: sent {times} times by process {process}, of which {struck[process, row]} failed"
        if row in found.recorded:
            yield f"row {row}: sent by process {process}, although it had its outcome"
        if row >= found.marked and any((earlier, row) in sent for earlier in range(process)):
            yield f"row {row}: sent again by process {process}, although an earlier process sent it without a mark"


def _sent_too_far(story: Story) -> Iterator[str]:
    """Yield processes that had sent too many rows without recording their outcomes when they ended."""
    backlog = story.run.journal_backlog
    for process, left in enumerate(story.left):
        sent = {entry.row for entry in story.entries if entry.process == process} - left.recorded
        if len(sent) > backlog:
            yield f"process {process}: {len(sent)} rows were sent and not recorded, expected at most {backlog}"


def count_resent(story: Story) -> int:
    """Return how often a process sent a row that an earlier process had sent."""
    return len({(entry.process, entry.row) for entry in story.entries}) - len({entry.row for entry in story.entries})


class Service:
    """The service in a separate process."""

    def __init__(self, seed: int) -> None:
        self._process = _started("tools.kill_server", str(seed))
        self.url = _answer(self._process)

    def begin(self, run: Run) -> None:
        """Create the workspace of a run, with its existing contacts."""
        self._ask("PUT", run, {"key": run.key, "before": run.before()})

    def ledger(self, run: Run) -> tuple[list[Entry], list[tuple[str, str]]]:
        """Return the ledger of a run and the contacts of its workspace. The service then discards the ledger."""
        answer = self._ask("GET", run, None)
        return [Entry(*each) for each in answer["entries"]], [(email, id_) for email, id_ in answer["contacts"]]

    def _ask(self, method: str, run: Run, body: object) -> Any:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=600)
        try:
            connection.request(method, f"/runs/{run.workspace}", json.dumps(body))
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._process)


class Importers:
    """Starts the processes of runs, one after the other."""

    def __init__(self) -> None:
        self._process = _started("tools.kill_importer")

    def carry_out(self, job: Job) -> str:
        """Run a process until it ends or is killed; return `killed`, `hung` or its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{job.line()}\n")
        self._process.stdin.flush()
        return _answer(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._process)


def _started(module: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", module, *arguments]
    environment: Mapping[str, str] = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    environment = {**environment, "PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[1:3]))}
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"{process.args!r} ended unexpectedly"
    return line.strip()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def found(run: Run, folder: Path) -> Left:
    """Return the state of a run after one of its processes has ended."""
    journal = journal_at(run.location(folder))
    rows = tuple(int(line.split()[0]) for line in lines(folder))
    try:
        marked = journal.report().marked
        return Left(marked, frozenset(outcome.index for outcome in journal.outcomes()), rows)
    except InvalidRequest:  # the process was killed before it created the journal
        return Left(delivered=rows)


def lines(folder: Path) -> list[str]:
    """Return the lines of all outcomes delivered so far."""
    path = folder / "delivered"
    return path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []


def find_leaks(folder: Path, run: Run, left: Left) -> Iterator[str]:
    """Yield traces that a process must not leave: its key in a file, output on stderr, or an unrecorded outcome delivered."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        if run.key.encode() in content:
            yield f"the owner key is in {path.name}"
        if path.name == "errors" and content:
            yield f"a process wrote to stderr: {content.decode().splitlines()[-1]}"
    yield from (f"row {row}: delivered, but not recorded" for row in left.delivered if row not in left.recorded)


@attrs.define
class Figures:
    """The totals of many runs."""

    kills: Counter[tuple[Point, str]] = attrs.field(factory=Counter)
    missed: int = 0
    runs: int = 0
    rows: int = 0
    requests: int = 0
    repeats: int = 0
    resent: int = 0
    suspects: int = 0
    uncertain: int = 0
    violations: list[str] = attrs.field(factory=list)

    @property
    def killed(self) -> int:
        """Number of processes that were killed."""
        return sum(count for (point, _), count in self.kills.items() if point is not Point.LEFT)

    def add(self, story: Story, complaints: Iterable[str]) -> None:
        """Add the results of a run."""
        self.runs += 1
        self.rows += story.run.rows
        self.requests += len(story.entries)
        self.repeats += len(story.entries) - len({(entry.process, entry.row) for entry in story.entries})
        self.resent += count_resent(story)
        self.suspects += sum(left.suspects for left in story.left)
        self.uncertain += sum(not outcome.certain for outcome in story.outcomes)
        name = f"run {story.run.number} ({story.run.duplicates}, {story.run.source}, {story.run.repeats}, {story.run.journal})"
        self.violations += [f"{name}: {complaint}" for complaint in (*complaints, *violations(story))]

    def __add__(self, other: Figures) -> Figures:
        return Figures(*(getattr(self, name) + getattr(other, name) for name in attrs.fields_dict(Figures)))
