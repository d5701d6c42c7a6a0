"""Holds: a row is not sent to a person to whom one of several ledgers has sent lately. The marks of the runs are the claims.

Before a run marks rows, it locks the ledgers of its hold, all runs in the same order. It then reads what the other ledgers have
marked meanwhile, leaves out the rows that these marks hold, marks the others, and unlocks. So of two runs that import the same
person at the same moment, one marks first, and the other one sees the mark. A row is sent only after its mark.
"""

from __future__ import annotations

import os
import sqlite3
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from outreach_async._core.arguments import require_float, type_name
from outreach_async._files.objects import is_url
from outreach_async.bulk._contact_keys import contact_key, domain_key
from outreach_async.bulk._rows import ParsedRow
from outreach_async.errors import Excluded, InvalidRequest, JournalError
from outreach_async.models import Target
from outreach_async.store import _records as records
from outreach_async.store import _sqlite as sqlite
from outreach_async.store._ledgers import (
    CAMPAIGN_BITS,
    SIMILAR_BITS,
    Effect,
    LedgerHeader,
    hash_domain,
    read_row,
    read_runs,
    require_entries,
    start_contacts,
    start_domains,
    translate_ledger_errors,
)
from outreach_async.store._schema import SENT_SUM
from outreach_async.store._store import LAST_TIME, Store
from outreach_async.store._writer import find_possibly_sent

Place: TypeAlias = str | os.PathLike[str] | Store
Query: TypeAlias = Callable[[Callable[[sqlite3.Connection], Any]], Any]

_SIMILAR: Final = -1 << SIMILAR_BITS
_NEVER: Final = -1.0  # a time
_TICK: Final = 1_000_000_000
"""Nanoseconds within which two changes of a file may have the same time."""
_PAUSE: Final = 0.01
_MAX_PAUSES: Final = 6_000
_PART: Final = 5_000  # rows that are read at a time, so that they take little memory
_FRESH: Final = "FROM entry WHERE run IN (SELECT value FROM json_each(?))"
_SELECT_CONTACTS: Final = f"SELECT key >> {CAMPAIGN_BITS}, target, run {_FRESH} ORDER BY key"
_SELECT_DOMAINS: Final = f"SELECT domain, target, max(run) {_FRESH} GROUP BY domain, target"
_SELECT_SENT: Final = f"""
    SELECT key, digest, sent.target, domain, seq, status, id_1, id_2, attempts, possible
    FROM (SELECT * FROM sent WHERE seq >= ? AND crc = {SENT_SUM} ORDER BY seq LIMIT {_PART}) AS sent LEFT JOIN outcome USING (seq)
"""  # noqa: S608 - names of this package


class _Index:
    """To which targets something was sent for each hash, and when: 12 bytes for each entry."""

    def __init__(self, rows: Iterable[tuple[int, int, int]], targets: Mapping[int, Target], times: Mapping[int, float]) -> None:
        """Index rows in the order of their hashes, each with the numbers of its target and its run."""
        self._hashes, self._places = array("q"), array("I")
        self._marked: dict[int, tuple[tuple[Target, float], ...]] = {}
        self._same: dict[Any, Any] = {}
        places: dict[tuple[int, int], int] = {}
        for value, target, run in rows:
            self._hashes.append(value)
            self._places.append(places.setdefault((target, run), len(places)))
        self._facts = [(targets[target], times[run]) for target, run in places]

    def add(self, value: int, target: Target, at: float) -> None:
        known = self._marked.get(value, ())
        if (target, at) not in known:  # equal facts are one object: a run may mark millions of rows
            self._marked[value] = self._same.setdefault(facts := (*known, (target, at)), facts)

    def last_time(self, value: int, own: Target | None) -> float:
        """Return when something was last sent for a hash, but not to the target `own`."""
        hashes, at = self._hashes, _NEVER
        place, count = bisect_left(hashes, value), len(hashes)
        facts = self._marked.get(value, ())
        while place < count and hashes[place] == value:
            facts = (*facts, self._facts[self._places[place]])
            place += 1
        for target, sent_at in facts:
            at = at if target == own else max(at, sent_at)
        return at


class _Ledger:
    """What a ledger tells of the people to whom it has sent since a time, and perhaps of their domains."""

    def __init__(self, path: Path, name: str, *, domains: bool) -> None:
        self.name = name
        self.path, self._has_domains = path, domains
        self._header, self._stamp = LedgerHeader(None, b""), ""  # of a ledger that does not exist yet
        self._contacts, self._domains = _Index((), {}, {}), _Index((), {}, {})
        self._starts: dict[str | None, Any] = {}
        self._domain_start = start_domains(b"")
        self._seen = 0
        self._states: Any = None

    def refresh(self, address: str | None, since: float) -> bool:
        """Read what was marked or merged meanwhile. Return whether there is anything."""
        now, states = time.time_ns(), sqlite.read_file_states(self.path)
        if states == self._states or (not self._header.secret and states[0][0] is None):  # it has no run yet
            return False
        try:
            with translate_ledger_errors(str(self.path)):
                is_new = self.load(lambda query: sqlite.query_journal(self.path, query, "ledger")[0], since)
        except InvalidRequest as error:
            raise InvalidRequest(f"held_by: {str(error).removeprefix('ledger: ')}") from error
        if address not in {None, self._header.address}:
            of = f"the service at {self._header.address}, not to that at {address}"
            raise InvalidRequest(f"held_by: {self.path} belongs to {of}; pass ledgers of one service")
        self._states = states if max(at for _, _, at in states) < now - _TICK else None
        return is_new

    def load(self, query: Query, since: float) -> bool:
        def read(db: sqlite3.Connection) -> tuple[Any, ...]:  # perhaps several times: only the last result counts
            metadata, runs, targets = records.read_metadata(db), read_runs(db), records.read_recorded_targets(db)
            rows = list[Any]()
            header, run, indexes = LedgerHeader.from_metadata(metadata), runs[-1] if runs else None, None
            is_known = self._header == header and self._stamp == (run.stamp if run else "")
            if not is_known:
                require_entries(db, header)
                times = {each.number: each.at for each in runs if each.at > since}
                fresh = (records.to_json([*times]),)
                domains = db.execute(_SELECT_DOMAINS, fresh) if self._has_domains else ()
                indexes = _Index(db.execute(_SELECT_CONTACTS, fresh), targets, times), _Index(domains, targets, times)
            if run is not None and run.number > header.merged:
                seen = self._seen if is_known else 0
                rows = db.execute(_SELECT_SENT, (seen,)).fetchall()
                records.require(len(rows) == min(metadata["marked"] - seen, _PART), "rows that were marked are missing")
            return header, run, targets, indexes, rows, find_possibly_sent(metadata)

        header, run, targets, indexes, rows, possibly_sent = query(read)
        if self._header.secret not in {b"", header.secret}:
            raise InvalidRequest(f"ledger: {self.path} was replaced during the run; run again with the ledger that is there now")
        self._header, self._stamp, self._domain_start = header, run.stamp if run else "", start_domains(header.secret)
        if indexes is not None:
            (self._contacts, self._domains), self._starts, self._seen = indexes, {}, 0
            for target in targets.values():
                self._start(target.workspace)
        self._seen += len(rows)
        for entry, effect in (read_row(row, possibly_sent, run.number) for row in rows):
            if effect is not Effect.NONE:
                self._start(targets[entry.target].workspace)
                self._contacts.add(entry.contact, targets[entry.target], run.at)
                self._domains.add(entry.domain, targets[entry.target], run.at)
        if len(rows) == _PART:
            self.load(query, since)
        return indexes is not None or bool(rows)

    def _start(self, workspace: str | None) -> Any:
        if workspace not in self._starts:
            self._starts[workspace] = start_contacts(self._header.secret, workspace)
        return self._starts[workspace]

    def add(self, person: _Person, target: Target, at: float) -> None:
        self._contacts.add(_hash_contact(self._start(target.workspace), person), target, at)
        if self._has_domains:
            self._domains.add(hash_domain(self._domain_start, person[2]), target, at)

    def find(self, person: _Person, own: Target | None) -> tuple[float, str, str]:
        """Return when the ledger last sent to a person, but not to the target `own`; the domain that is held; and who holds."""
        at, domain = _NEVER, person[2]
        for start in self._starts.values():
            at = max(at, self._contacts.last_time(_hash_contact(start, person), own))
        if self._has_domains and domain not in _providers():
            other = self._domains.last_time(hash_domain(self._domain_start, domain), own)
            if other > at:
                return other, f"{domain.decode(errors='replace')} is ", self.name
        return at, "", self.name


_Person: TypeAlias = tuple[bytes, bytes, bytes]
"""An e-mail as its order key, which is one object with the next if they are equal, and as its contact key; and the domain."""


def _person_of(row: ParsedRow) -> _Person:
    key = contact_key(row.email)
    text, domain = key.encode(errors="surrogatepass"), domain_key(key.rpartition("@")[2]).encode(errors="surrogatepass")
    return text if key == row.key else row.key.encode(errors="surrogatepass"), text, domain


def _hash_contact(start: Any, person: _Person) -> int:
    """Return the part of a key that is that of the contact; see `Comparer`."""
    similar = _hash(start, person[0])
    own = similar if person[1] is person[0] else _hash(start, person[1])
    return (similar & _SIMILAR | own & ~_SIMILAR) >> CAMPAIGN_BITS


def _hash(start: Any, text: bytes) -> int:
    hasher = start.copy()
    hasher.update(text)
    return int.from_bytes(hasher.digest(), signed=True)


class Holds:
    """Finds the rows that are held, and claims the others for a run. Two runs cannot use it."""

    def __init__(
        self, ledger: Place, hold: Any, held_by: Any, *, domains: bool, pause: Callable[[float], object] = time.sleep
    ) -> None:
        period = hold.total_seconds() if isinstance(hold, timedelta) else hold
        expected, remedy = "a period of more than 0 seconds", "pass a longer one, or omit it"
        self._period = require_float("hold", period, lambda number: number > 0, expected, remedy)
        self._pause, own = pause, _to_path("hold", ledger)
        places: Any = held_by if isinstance(held_by, Iterable) and not isinstance(held_by, str | os.PathLike) else [held_by]
        named, self._are_named = {own: own.name}, isinstance(places, Mapping)
        for each in places:
            path = _to_path("held_by", each)
            named[path] = places[each] if self._are_named else path.name
        ledgers = {path: _Ledger(path, name, domains=domains) for path, name in sorted(named.items())}
        self._paths, self._own = [*ledgers], ledgers.pop(own)
        self._others = [*ledgers.values()]

    @classmethod
    def of(cls, ledger: Place, hold: Any = None, held_by: Any = (), *, hold_domains: bool = False) -> Self | None:
        """Check the options of `create_many`, and return what they mean. Nothing is opened."""
        return None if hold is None else cls(ledger, hold, held_by, domains=hold_domains)

    def open(self, address: str | None, now: float, *, claims: bool) -> None:
        """Read the other ledgers. If the run claims rows, check first that they can be locked."""
        self._address, self._now = address, now
        for path in self._paths:
            # A named ledger is that of a workspace, which may have had no import yet. It has had one if its other file is there.
            is_new = self._are_named and path.parent.is_dir() and not path.with_name(f"{path.name}.last-run").exists()
            if not path.exists() and path != self._own.path and not is_new:
                remedy = "restore it, correct the path, or import a file without rows into it once, which creates it"
                raise InvalidRequest(f"held_by: {path} does not exist; {remedy}")
            with translate_ledger_errors(str(path)):
                sqlite.require_lockable(str(path))
        self._refresh()
        if claims:
            with self._locked():
                pass

    def _refresh(self) -> bool:
        return sum(ledger.refresh(self._address, self._now - self._period) for ledger in self._others) > 0  # of all

    def load_own(self, query: Query) -> None:
        """Read the ledger of the run, whose earlier runs are merged."""
        self._own.load(query, self._now - self._period)

    def claim(self, row: ParsedRow, *, is_new: bool) -> Excluded | None:
        """Return why a new row is held. If it is not, it holds the rows of other targets in the run, as an update does."""
        if (held := self._find(row) if is_new else None) is None:
            self._own.add(_person_of(row), row.target, self._now)
        return held

    def _find(self, row: ParsedRow) -> Excluded | None:
        person = _person_of(row)
        at, what, name = max([self._own.find(person, row.target), *(ledger.find(person, None) for ledger in self._others)])
        if at == _NEVER:
            return None
        since, until = (datetime.fromtimestamp(min(each, LAST_TIME), UTC).date() for each in (at, at + self._period))
        return Excluded(f"{what}held by {name} since {since} until {until}", kind="hold")

    @contextmanager
    def confirmed(self, rows: Iterable[ParsedRow]) -> Iterator[dict[int, Excluded]]:
        """Provide those of some claimed rows that another run has marked meanwhile. During the block, no other run marks rows."""
        with self._locked():
            found = {row.index: self._find(row) for row in rows} if self._refresh() else {}
            yield {index: held for index, held in found.items() if held is not None}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with ExitStack() as stack:
            for path in self._paths:  # in the same order in all runs, so that none waits for another in a circle
                stack.callback(os.close, descriptor := self._lock(f"{path}.hold-lock"))
                # A process that was forked meanwhile has the descriptor, too.
                stack.callback(sqlite.fcntl.flock, descriptor, sqlite.fcntl.LOCK_UN)
            yield

    def _lock(self, path: str) -> int:
        """Lock a file beside a ledger, which is never removed. Return its descriptor."""
        for _ in range(_MAX_PAUSES):
            with translate_ledger_errors(path), ExitStack() as stack:
                stack.callback(os.close, descriptor := os.open(path, sqlite.OPEN_FLAGS | os.O_CREAT, 0o600))
                with suppress(BlockingIOError):
                    sqlite.fcntl.flock(descriptor, sqlite.fcntl.LOCK_EX | sqlite.fcntl.LOCK_NB)
                    stack.pop_all()
                    return descriptor
            self._pause(_PAUSE)
        raise JournalError(f"hold: another run has locked {path} for a minute; let that run go on, or end it, and run again")


def _to_path(field: str, place: Any) -> Path:
    location = place.location if isinstance(place, Store) else place
    if not isinstance(location, str | os.PathLike):
        raise InvalidRequest(f"{field}: expected the path or Store of a ledger, got {type_name(place)}; pass the path of a file")
    if is_url(location):
        got = f"expected ledgers in files, which can be locked, got {os.fspath(location)}"
        raise InvalidRequest(f"{field}: {got}; keep ledgers that hold each other in files on a disk of one machine")
    return Path(os.path.realpath(location))


@cache
def _providers() -> frozenset[bytes]:
    """Return the domains of large providers, whose users are not of one company."""
    return frozenset(Path(__file__).parents[1].joinpath("importer", "data", "providers.txt").read_bytes().split())
