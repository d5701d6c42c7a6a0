"""Let a run with older rows go on, stop or die while a run with newer rows uses the same ledger, and compare it with the service.

Run: python -m tools.race_loop [--races 60] [--seed 0]

The older run is a process. It goes on, is stopped and continued with SIGSTOP and SIGCONT, or is killed with SIGKILL, after some
of its requests. The newer runs follow at once. The service is a real socket: it carries out some older rows late, after it has
reset their connection, and refuses some for a second. In the end, every contact must have its newer values, a run must call all
of them unchanged, and a process that was stopped for longer than its timeout and its heartbeat must have sent nothing more. If a
stop fell between the last look at the clock and the write that follows it, which no process can prevent, that one request is
sent. Prints the races by kind. Fails at the first violation.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, Literal, get_args

import anyio
from support.listener import Gone, Listener, Peer
from support.scenarios import KEY, SPACE

from outreach_async import BulkError, OutreachClient, Progress, Request, Response, RetryPolicy, SocketTransport
from outreach_async.errors import JournalError
from outreach_async.store import Store

Kind = Literal["goes on", "stopped", "stopped for long", "killed", "killed, file"]
_ROWS: Final = 48
_TIMEOUT: Final = 2.0
_LONG: Final = 5.5
"""Seconds after which the heartbeat of a stopped process is due, and its attempts have timed out."""
_SETTLED: Final = 3600.0
_PATIENCE: Final = 60.0


class _WatchedProgress(Progress):
    """The progress of an attempt, which counts how often it looks at the clock to write the request."""

    __slots__ = ("_looks", "_progress", "_row")

    def __init__(self, progress: Progress, row: int, looks: Any) -> None:
        self._progress, self._row, self._looks = progress, row, looks

    @property
    def sent(self) -> bool | None:
        return self._progress.sent

    @sent.setter
    def sent(self, value: bool | None) -> None:
        if value:
            self._looks[self._row] += 1
            self._looks[_ROWS] = self._row
        self._progress.sent = value


class _WatchedTransport(SocketTransport):
    """Writes a request in the step that looks at the clock. Other transports take one step more, which a stop may hit."""

    def __init__(self, url: str, looks: Any) -> None:
        super().__init__(url)
        self._looks = looks

    async def send(self, request: Request, progress: Progress) -> Response:
        row = int(json.loads(request.body)["email"].partition("@")[0].removeprefix("user"))
        return await super().send(request, _WatchedProgress(progress, row, self._looks))


async def _send_rows(url: str, location: str, city: str, ahead: float = 0.0, looks: Any = None) -> dict[str, int]:
    rows = [{"email": f"user{number}@a.example", "city": city} for number in range(_ROWS)]
    ledger = Store(location, wall=lambda: time.time() + ahead)
    retry = RetryPolicy(attempts=4, backoff=0.05)
    where: Any = {"base_url": url} if looks is None else {"transport": _WatchedTransport(url, looks)}
    timeout = _PATIENCE if ahead else _TIMEOUT  # what is sent at last must not time out on a busy machine
    async with OutreachClient(**where, owner_key=KEY, workspace=SPACE, retry=retry, timeout=timeout) as client:
        report = await client.contacts.create_many(rows, ledger=ledger, duplicates="overwrite", concurrency=16)
    return {name: count for name, count in report.to_dict()["ledger"].items() if count}


def send_older(errors: Path, backend: str, url: str, location: str, looks: Any) -> None:
    """Send the older rows, in a process of its own."""
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
    with suppress(BulkError, JournalError):
        anyio.run(_send_rows, url, location, "older", 0.0, looks, backend=backend)


class SlowService:
    """A service that carries out some older rows late, and refuses some for a second."""

    def __init__(self, seed: int) -> None:
        self.cities: dict[str, str] = {}
        self.arrived: Counter[str] = Counter()
        self.older: Counter[str] = Counter()
        self._chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._changed = threading.Condition()
        self._pending = 0

    def __call__(self, peer: Peer) -> None:
        while True:
            row = json.loads(peer.request().partition(b"\r\n\r\n")[2])
            drawn, seconds = self._chance.random() if row["city"] == "older" else 1.0, self._chance.random()
            with self._changed:
                self.arrived[row["city"]] += 1
                self.older[row["email"]] += row["city"] == "older"
                self._pending += drawn >= 0.1
                self._changed.notify_all()
            if drawn < 0.1:
                peer.send(b"HTTP/1.1 503 busy\r\nretry-after: 1\r\ncontent-length: 2\r\n\r\n{}")
            elif drawn < 0.3:
                threading.Timer(seconds, self._carry_out, [row]).start()
                peer.reset()
                raise Gone
            else:
                time.sleep(seconds * 0.1)
                self._carry_out(row)
                body = b'{"status":"overwriten","id":"contact_%b","details":null}' % row["email"].partition("@")[0].encode()
                head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
                peer.send(head + body)

    def _carry_out(self, row: dict[str, str]) -> None:
        with self._changed:
            self.cities[row["email"]] = row["city"]
            self._pending -= 1
            self._changed.notify_all()

    def wait_for(self, city: str, requests: int) -> None:
        """Wait until so many requests with a city have arrived."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.arrived[city] >= requests, _PATIENCE), "no request arrives"

    def wait_until_quiet(self) -> None:
        """Wait until every request that has arrived has been carried out."""
        time.sleep(0.1)  # the listener may still read what a process has left in its sockets
        with self._changed:
            assert self._changed.wait_for(lambda: not self._pending, _PATIENCE), "requests are never carried out"


def race(kind: Kind, seed: int, folder: Path) -> list[str]:
    """Run one race, and return what is wrong after it."""
    chance = random.Random(f"race {seed}")  # noqa: S311 - repeatable, not secret
    location = str(folder / "contacts") if kind == "killed, file" else (folder / "contacts").as_uri()
    service = SlowService(seed)
    with Listener(service) as listener:
        call: Any = anyio.run
        live = partial(call, _send_rows, listener.url, location)
        live("first")
        backend = chance.choice(["asyncio", "trio"])
        context = get_context("forkserver")
        looks = context.RawArray("i", _ROWS + 1) if kind == "stopped for long" else None  # for each row; and the last row
        older: Any = context.Process(target=send_older, args=(folder / "errors", backend, listener.url, location, looks))
        older.start()
        service.wait_for("older", chance.randint(1, _ROWS // 2))
        if kind.startswith("killed"):
            older.kill()
            older.join()
        elif kind != "goes on":
            _signal(older, signal.SIGSTOP)
        stopped = time.monotonic()
        live("newer")
        if chance.random() < 0.5:
            live("newer")
        in_hand, wrong = _sent_when_continued(older, service, stopped, live, looks) if looks else (None, [])
        if kind == "stopped":
            _signal(older, signal.SIGCONT)
            if chance.random() < 0.5:
                live("newer")
        older.join(_PATIENCE)
        if older.exitcode not in {0, -signal.SIGKILL}:
            wrong.append(f"the older run ended with {older.exitcode}: {(folder / 'errors').read_text()[-500:]}")
        service.wait_until_quiet()
        found = [live("newer", ahead * _SETTLED) for ahead in (4, 5, 6)][-1]
        wrong += [f"{email} has {city} values" for email, city in service.cities.items() if city != "newer" and email != in_hand]
        return wrong if found == {"unchanged": _ROWS} else [*wrong, f"the last run says {found}"]


def _signal(older: Any, number: int) -> None:
    with suppress(ProcessLookupError):  # on a busy machine, it may have sent all its rows before
        os.kill(older.pid, number)


def _sent_when_continued(older: Any, service: SlowService, stopped: float, live: Any, looks: Any) -> tuple[str | None, list[str]]:
    """Continue a process after other runs have settled its rows. Return the row that it was about to write, and what is wrong."""
    service.wait_until_quiet()
    for ahead in 1, 2:
        live("newer", ahead * _SETTLED)
    time.sleep(max(0.0, stopped + _LONG - time.monotonic()))
    before, last = service.arrived["older"], f"user{looks[_ROWS]}@a.example"
    in_hand = last if service.older[last] < looks[looks[_ROWS]] else None
    _signal(older, signal.SIGCONT)
    older.join(_PATIENCE)
    service.wait_until_quiet()
    more = service.arrived["older"] - before
    return in_hand, [f"{more} rows were sent after the run was continued"] if more > (in_hand is not None) else []


def loop(races: int, seed: int) -> Counter[Kind]:
    """Run races of all kinds, and return their number by kind."""
    done: Counter[Kind] = Counter()
    kinds = get_args(Kind)
    get_context("forkserver").set_forkserver_preload(["support.listener", "httpx", "outreach_async.store"])
    for number in range(seed, seed + races):
        kind = kinds[number % len(kinds)]
        with tempfile.TemporaryDirectory() as folder:
            wrong = race(kind, number, Path(folder))
        assert not wrong, f"{kind}, seed {number}: {wrong}"
        done[kind] += 1
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--races", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for kind, count in sorted(loop(given.races, given.seed).items()):
        sys.stdout.write(f"{kind:18} {count:5}\n")
    sys.stdout.write("every contact has its newer values\n")


if __name__ == "__main__":
    main()
