"""Journals for tests: complete journals of tools/journal_child.py, and those left by kills and power failures."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
from hypothesis import strategies as st
from tools.journal_child import ROWS, WINDOW, open_journal, outcome_of, steps

from outreach_async import ContactOutcome, Outcome, Target
from outreach_async.errors import InvalidRequest, OutreachError, StatusError, TransportError
from outreach_async.store import Store

ENDINGS = ("", "-wal", "-shm")
MEDIA = ("file", "objects")
"""What a journal can be: one file, or objects."""


def new_journal(medium: str, folder: Path, name: str = "run") -> Store:
    """Return a journal that is written in the thread of the event loop, so that its calls have one order."""
    if medium == "file":
        return Store(folder / f"{name}.db", inline=True)
    return Store(f"{folder.as_uri()}/{name}", linger=0.05, inline=True)


def copy_of(journal: Store, folder: Path) -> Store:
    """Copy a journal in its current state, as a kill at this moment would leave it, and return the copy."""
    if journal.objects is None:
        for ending in ENDINGS:
            shutil.copyfile(f"{journal.path}{ending}", folder / f"killed.db{ending}")
        return new_journal("file", folder, "killed")
    shutil.copytree(str(journal.location).removeprefix("file://"), folder / "killed")
    return new_journal("objects", folder, "killed")


def copy_killed(path: Path) -> Path:
    """Copy a file of a run as a kill at this moment would leave it. SQLite brings the copy up to date from its log."""
    copy = path.with_name("killed")
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    with closing(sqlite3.connect(copy)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return copy


def content_of(folder: Path) -> dict[Path, bytes]:
    """Return the content of every file in a folder."""
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def facts(found: ContactOutcome) -> dict[str, Any]:
    """Return the attributes of an outcome in comparable form. Errors cannot be compared directly."""
    error = found.error
    error_facts = error and (type(error), str(error), error.operation, error.status_code, error.attempts, error.maybe_applied)
    return {**attrs.asdict(found, recurse=False), "error": error_facts}


def states() -> set[tuple[int, int]]:
    """Return the possible numbers of marked and recorded rows, after each commit of the run."""
    found = {(0, 0)}
    for end in range(WINDOW, ROWS + 1, WINDOW):
        found |= {(end, end - WINDOW), (end, end - WINDOW + 12), (end, end)}
    return found


def require_prefix(path: Path, at_least: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """Check that a journal contains the state after a commit of the run, and return that state."""
    journal = Store(path)
    report = journal.report()
    found = list(journal.outcomes())
    state = (report.marked, report.rows)
    assert state in states()
    assert state >= at_least
    assert [facts(each) for each in found] == [facts(outcome_of(index)) for index in range(report.rows)]
    assert report.possibly_sent == report.marked - report.rows >= 0
    return state


def require_resumable(path: Path) -> None:
    """Complete the run, and check that the journal then contains each outcome once."""
    with closing(open_journal(path, resume=True)) as writer:
        for _ in steps(writer):
            pass
    assert require_prefix(path) == (ROWS, ROWS)
    assert Store(path).report().state == "finished"


def open_elsewhere(path: Path) -> None:
    """Open a journal in another program, which moves its log into the file and removes the log."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("SELECT count(*) FROM meta").fetchone()
    assert not Path(f"{path}-wal").exists()


def child(path: Path | str, *options: object) -> subprocess.Popen[str]:
    """Start the run in a separate process."""
    command = [sys.executable, "-m", "tools.journal_child", str(path), *map(str, options)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, Path(__file__).parents[1:3]))  # the tests and the package
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def count_acknowledged(lines: str) -> tuple[int, int]:
    """Return the numbers of marked and recorded rows that a process printed. An incomplete last line is ignored."""
    error_facts = [line.split() for line in lines.splitlines(keepends=True) if line.endswith("\n")]
    most = {"marked": 0, "recorded": 0}
    for word, number in error_facts:
        most[word] = max(most[word], int(number))
    return most["marked"], most["recorded"]


def run_to_end(path: Path | str, *options: object) -> tuple[int, tuple[int, int]]:
    """Run the process to its end, and return its exit code and acknowledged rows. It must not write to stderr."""
    process = child(path, *options)
    out, errors = process.communicate(timeout=600)
    assert not errors, errors
    return process.returncode, count_acknowledged(out)


def copy_journal(path: Path, copy: Path) -> None:
    """Copy the files of a journal, as they are while a process has it open or after a kill, which changes no file."""
    for ending in ENDINGS:
        if Path(f"{path}{ending}").exists():
            shutil.copyfile(f"{path}{ending}", f"{copy}{ending}")


def make_killed_journal(path: Path, commits: int, *, spooled: bool = False) -> None:
    """Create a journal as if its process had been killed after `commits` commits."""
    origin = path.with_name(f"{path.name}.living")
    with closing(open_journal(origin)) as writer:
        if spooled:
            writer.spool([(index, f"p{index}@a.example", b'{"email":"p@a.example"}') for index in range(ROWS)])
            writer.end_spool(ROWS)
        for _ in islice(steps(writer), commits):
            pass
        copy_journal(origin, path)
    origin.unlink()


def cut_copy(path: Path, folder: Path, size: int) -> Path:
    """Copy a journal and truncate the write-ahead log of the copy to `size` bytes, as after a power failure."""
    folder.mkdir()
    copy_journal(path, folder / path.name)
    os.truncate(folder / f"{path.name}-wal", size)
    return folder / path.name


statuses = st.sampled_from([*Outcome, Outcome("archived"), Outcome('"odd\0'), Outcome("")])
ids = st.none() | st.text(max_size=12) | st.from_regex(r"contact_[a-z0-9]{1,24}", fullmatch=True) | st.just("contact_")


@st.composite
def errors(draw: st.DrawFn) -> OutreachError:
    """Draw an error that an outcome may have."""
    kind = draw(st.sampled_from([InvalidRequest, StatusError, TransportError, OutreachError]))
    error = kind(
        draw(st.text(max_size=20)),
        operation=draw(st.none() | st.just("create_contact")),
        status_code=draw(st.none() | st.integers(300, 599)),
        attempts=draw(st.integers(0, 9)),
        maybe_sent=draw(st.booleans()),
    )
    error.maybe_applied = draw(st.booleans())
    return error


@st.composite
def outcomes(draw: st.DrawFn, index: int | None = None) -> ContactOutcome:
    """Draw an arbitrary outcome, with a given or random index."""
    status = draw(statuses)
    return ContactOutcome(
        index=draw(st.integers(0, 2**40)) if index is None else index,
        contact=None,
        status=status,
        id=draw(ids),
        possible=frozenset({status}) | draw(st.frozensets(statuses, max_size=4)),
        attempts=draw(st.integers(0, 99)),
        error=draw(st.none() | errors()),
        repeats=draw(st.none() | st.integers(0, 2**40)),
        target=draw(st.sampled_from([Target(), Target("space_1"), Target("space_1", "camp_1")])),
    )
