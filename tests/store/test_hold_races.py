"""Runs that import the same person at the same moment, as a model that is explored completely, and as processes."""

from __future__ import annotations

import random
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import pytest
from support.cli import KEY, serve_in_thread, start_command, wait_for_end

from outreach_async.fake import FakeService

T = TypeVar("T")

PROGRAM: Final = ("lock", "read", "mark", "unlock", "send")
"""What a run does for a person; see `Holds` and `LedgerFeed`. A mark is in the run's own ledger, which all of them read."""


@attrs.frozen
class Moment:
    """A moment of some runs, which are at steps of their programs."""

    steps: tuple[int, ...]
    held: tuple[bool, ...]
    marked: frozenset[int] = frozenset()
    sent: frozenset[int] = frozenset()
    owner: int | None = None
    kills: int = 0

    def after(self, run: int, step: str) -> Moment | None:
        """Return the moment after the next step of a run; `None` if it waits for the lock."""
        if step == "lock" and self.owner is not None:
            return None
        changes: dict[str, Any] = {"steps": _replaced(self.steps, run, self.steps[run] + 1)}
        if step in {"lock", "unlock"}:
            changes["owner"] = run if step == "lock" else None
        elif step == "read":
            changes["held"] = _replaced(self.held, run, bool(self.marked - {run}))
        elif not self.held[run]:
            name = "marked" if step == "mark" else "sent"
            changes[name] = getattr(self, name) | {run}
        return attrs.evolve(self, **changes)

    def after_kill(self, run: int) -> Moment:
        """Return the moment in which a run was killed and starts again. Its lock is gone, and its mark is not."""
        owner = None if self.owner == run else self.owner
        return attrs.evolve(
            self, steps=_replaced(self.steps, run, 0), held=_replaced(self.held, run, False), owner=owner, kills=self.kills - 1
        )


def _replaced(values: tuple[T, ...], run: int, value: T) -> tuple[T, ...]:
    return (*values[:run], value, *values[run + 1 :])


def explore(program: Sequence[str], runs: int, kills: int) -> Iterator[Moment]:
    """Yield every moment that some runs can reach, in each of which one may be killed."""
    first = Moment((0,) * runs, (False,) * runs, kills=kills)
    found, remaining = {first}, [first]
    while remaining:
        yield (moment := remaining.pop())
        active = [run for run in range(runs) if moment.steps[run] < len(program)]
        nexts = [moment.after(run, program[moment.steps[run]]) for run in active]
        assert not active or any(nexts), moment  # no run waits for ever
        killed = [moment.after_kill(run) for run in active] if moment.kills else []
        remaining += (new := {each for each in (*nexts, *killed) if each is not None} - found)
        found |= new


@pytest.mark.parametrize(("runs", "kills"), [(2, 3), (3, 2)])
def test_in_every_order_of_steps_and_kills_one_run_sends(runs: int, kills: int) -> None:
    moments = [*explore(PROGRAM, runs, kills)]
    ends = {moment.sent for moment in moments if moment.steps == (len(PROGRAM),) * runs}
    assert max(len(moment.sent) for moment in moments) == 1
    assert ends == {frozenset({run}) for run in range(runs)}


@pytest.mark.parametrize(
    "program",
    [
        ("read", "mark", "send"),
        ("read", "lock", "mark", "unlock", "send"),
        ("lock", "read", "unlock", "mark", "send"),
        ("lock", "read", "unlock", "send", "lock", "mark", "unlock"),
        ("lock", "read", "send", "mark", "unlock"),
    ],
    ids=" ".join,
)
def test_without_the_lock_or_the_mark_before_the_request_two_runs_send(program: Sequence[str]) -> None:
    assert max(len(moment.sent) for moment in explore(program, 2, 1)) == 2


PEOPLE: Final = 300


class Agency:
    """Two workspaces of a served service, each with a ledger and a command that imports the same people."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self._url = folder, url
        emails = [f"user{number}@x.example" for number in range(PEOPLE)]
        for name in "12":
            (folder / f"{name}.csv").write_text("email\n", encoding="utf-8")
            assert wait_for_end(self.start(name)).code == 0
            (folder / f"{name}.csv").write_text("\n".join(["email", *emails, ""]), encoding="utf-8")

    def start(self, name: str, *more: str) -> subprocess.Popen[str]:
        paths = (str(self._folder / f"{name}.csv"), "--ledger", str(self._folder / f"{name}.ledger"), "--duplicates", "overwrite")
        where = ("--base-url", self._url, "--workspace", f"space_{name}", "--owner-key", KEY)
        return start_command("import", *paths, *where, *more)

    def hold(self, name: str) -> subprocess.Popen[str]:
        return self.start(
            name, "--hold", "90d", "--held-by", str(self._folder / f"{'21'[int(name) - 1]}.ledger"), "--concurrency", "8"
        )


@pytest.fixture
def agency_service() -> FakeService:
    return new_service()


def new_service() -> FakeService:
    service = FakeService()
    for name in "12":
        service.add_workspace(f"space_{name}")
        service.add_owner_key(f"space_{name}", key=KEY)
    return service


def require_one_each(service: FakeService) -> list[int]:
    """Check that each person was created in one of two workspaces. Return the numbers of people."""
    found = [[contact["email"] for contact in service.contacts(f"space_{name}")] for name in "12"]
    assert sorted(found[0] + found[1]) == sorted(f"user{number}@x.example" for number in range(PEOPLE))
    return [*map(len, found)]


@pytest.mark.thorough
def test_two_processes_at_the_same_moment_create_each_person_once(tmp_path: Path) -> None:
    counts = [0]
    for attempt in range(8):  # until they did import at the same moment: a busy machine may start one of them too late
        (folder := tmp_path / str(attempt)).mkdir()
        with serve_in_thread(service := new_service()) as url:
            agency = Agency(folder, url)
            both = [agency.hold(name) for name in "12"]
            ended = [wait_for_end(process) for process in both]
        assert [each.code for each in ended] == [0, 0], ended
        counts = require_one_each(service)
        held = [re.search(r"excluded\t(\d+)", each.out) for each in ended]
        assert [int(each[1]) if each else 0 for each in held] == [PEOPLE - count for count in counts]
        if min(counts) > 0:
            break
    assert min(counts) > 0


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_processes_that_are_killed_and_start_again_create_each_person_once(
    agency_service: FakeService, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    with serve_in_thread(agency_service) as url:
        agency, kills = Agency(tmp_path, url), 0
        running = {name: agency.hold(name) for name in "12"}
        while kills < 8:
            name = chance.choice("12")
            time.sleep(chance.uniform(0.1, 1.2))
            kills += running[name].poll() is None
            running[name].kill()
            wait_for_end(running[name])
            running[name] = agency.hold(name)
        ended = [wait_for_end(process) for process in running.values()]
    assert [each.code for each in ended] == [0, 0], ended
    require_one_each(agency_service)
