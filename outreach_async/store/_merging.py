"""Merge the rows of a run into the entries of its ledger, in the transaction of its caller. Synchronous.

Nearly every row is alone: it was applied by its only attempt, and neither the run nor the ledger has another row of its contact,
or of one with a similar e-mail. One statement merges all of these in the order of their keys. The others are merged by
`_SimilarContacts`, whose rules hold for every row; a row that is alone becomes the same entry by both.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from heapq import nlargest
from itertools import chain, groupby
from math import inf
from typing import Any, Final, NamedTuple

import attrs

from outreach_async._wire_words import SERVICE_OUTCOMES, Outcome
from outreach_async.bulk._rows import PossiblySent
from outreach_async.models import RUN_TARGET
from outreach_async.store import _records as records
from outreach_async.store._entries import CAMPAIGN_BITS, MAX_TARGET, SIMILAR_BITS, LedgerHeader, Run
from outreach_async.store._reader import SELECT_CHECKSUMS, require_windows
from outreach_async.store._records import StoredId, encode_metadata, require
from outreach_async.store._schema import ENTRY_SUM, OUT_OF_DATE, REJECT_SUM, SENT_SUM, UNCERTAIN

LONGEST_DOUBT: Final = 3600.0
"""Maximum of seconds until answers settle what a run has left uncertain, as the clock of a later run sees it."""
_MAX_REJECT_AGE: Final = 90 * 86_400
"""Seconds after which a reject is forgotten, so that rows that left the input do not stay for ever."""
_PAGE_SIZE: Final = 5_000
_BATCH_SIZE: Final = 500

_STATUSES: Final = tuple(Outcome)


def _numbers(outcomes: Iterable[str]) -> str:
    return ", ".join(str(_STATUSES.index(Outcome(outcome))) for outcome in sorted(outcomes))


_GROUP: Final = f"key >> {SIMILAR_BITS}"
_APPLIED: Final = f"status IN ({_numbers(SERVICE_OUTCOMES)}) AND attempts = 1 AND possible IS NULL"
_REJECTED: Final = f"status = {_numbers([Outcome.REJECTED])}"
_ROWS: Final = "sent LEFT JOIN outcome USING (seq)"
_ENTRY: Final = "key, digest, target, run, id_1, id_2, domain, gone"

# All SQL of this module has names and numbers of this package alone.
_FIND_GROUPS: Final = f"""
    INSERT INTO together SELECT {_GROUP} FROM {_ROWS} GROUP BY {_GROUP} HAVING count(*) > 1 OR NOT coalesce(min({_APPLIED}), 0)
"""  # noqa: S608 - see above
_FIND_KNOWN: Final = f"""
    INSERT OR IGNORE INTO together SELECT sent.{_GROUP} FROM sent CROSS JOIN entry
    ON entry.key BETWEEN sent.key >> {SIMILAR_BITS} << {SIMILAR_BITS} AND sent.key | {(1 << SIMILAR_BITS) - 1}
    WHERE entry.key <> sent.key OR entry.digest = {UNCERTAIN}
"""  # noqa: S608 - see above
_MERGE_ALONE: Final = f"""
    INSERT INTO entry SELECT *, {ENTRY_SUM} FROM (
        SELECT sent.key AS key, sent.digest AS digest, sent.target AS target, :run AS run,
            iif(outcome.id_2 IS NULL, known.id_1, outcome.id_1) AS id_1, coalesce(outcome.id_2, known.id_2) AS id_2,
            sent.domain AS domain, 0 AS gone
        FROM sent JOIN outcome USING (seq) LEFT JOIN entry AS known USING (key)
        WHERE sent.{_GROUP} NOT IN (SELECT number FROM together) AND sent.target <= {MAX_TARGET} ORDER BY sent.key
    ) WHERE true
    ON CONFLICT (key) DO UPDATE SET digest = excluded.digest, target = excluded.target, run = excluded.run,
        id_1 = excluded.id_1, id_2 = excluded.id_2, domain = excluded.domain, gone = 0, crc = excluded.crc
"""  # noqa: S608 - see above
_SELECT_ROWS: Final = f"""
    SELECT key, digest, sent.target, domain, seq, status, id_1, id_2, attempts, possible
    FROM {_ROWS} WHERE {_GROUP} IN (SELECT number FROM together) ORDER BY {_GROUP}, seq
"""  # noqa: S608 - see above
_SELECT_ENTRIES: Final = f"""
    SELECT {_ENTRY} FROM together CROSS JOIN entry
    ON key BETWEEN number << {SIMILAR_BITS} AND number << {SIMILAR_BITS} | {(1 << SIMILAR_BITS) - 1} ORDER BY number, key
"""  # noqa: S608 - see above
_PUT_ENTRIES: Final = f"INSERT OR REPLACE INTO entry SELECT *, {ENTRY_SUM} FROM changed ORDER BY key"  # noqa: S608 - see above
_SET_GONE: Final = f"""
    INSERT OR REPLACE INTO entry SELECT *, {ENTRY_SUM} FROM (
        SELECT entry.key AS key, digest, target, run, id_1, id_2, domain, ? AS gone
        FROM json_each(?) CROSS JOIN entry ON entry.key = value
    )
"""  # noqa: S608 - see above
_PUT_REJECTS: Final = f"""
    INSERT OR REPLACE INTO reject SELECT key, run, {REJECT_SUM} FROM (
        SELECT DISTINCT key, :run AS run FROM {_ROWS} WHERE {_REJECTED}
    )
"""  # noqa: S608 - see above
_DROP_ACCEPTED: Final = f"""
    DELETE FROM reject WHERE key IN (SELECT key FROM {_ROWS} WHERE {_APPLIED}) OR key IN (SELECT key FROM accepted)
"""  # noqa: S608 - see above
# A run from the future has the time of a clock that was ahead: its rejects are as old as this run.
_AGE_REJECTS: Final = f"""
    INSERT OR REPLACE INTO reject SELECT key, run, {REJECT_SUM} FROM (
        SELECT key, :run AS run FROM reject JOIN run ON number = reject.run WHERE at > :at
    )
"""  # noqa: S608 - see above
_DROP_OLD: Final = "DELETE FROM reject WHERE run IN (SELECT number FROM run WHERE at < :at - :age)"
_TEMPORARY: Final = (
    "CREATE TEMP TABLE together (number INTEGER PRIMARY KEY)",
    f"CREATE TEMP TABLE changed ({_ENTRY.replace('key', 'key INTEGER PRIMARY KEY')})",
    "CREATE TEMP TABLE accepted (key INTEGER PRIMARY KEY)",
)


class Effect(IntEnum):
    """The effect of a sent row at the service, as far as its outcome shows it."""

    NONE = 0
    APPLIED = 1
    """The contact has the row's values."""
    RETRIED = 2
    """The contact has the row's values, but an earlier attempt may still arrive at the service."""
    POSSIBLE = 3
    """An attempt may have had an effect."""
    REJECTED = 4
    """The service rejected the row, and no attempt had an effect."""
    REJECTED_LAST = 5
    """The service rejected the last attempt, but an earlier one may have had an effect."""


_EFFECTLESS: Final = frozenset({Effect.NONE, Effect.REJECTED})
_UNSETTLED: Final = frozenset({Effect.POSSIBLE, Effect.REJECTED_LAST})


class SentRow(NamedTuple):
    """A row that a run sent or may have sent."""

    key: int
    digest: int
    target: int
    domain: int
    effect: Effect
    id_: StoredId


class LedgerEntry(NamedTuple):
    """A row of the table of entries, without its checksum."""

    key: int
    digest: int
    target: int
    run: int
    id_1: int | str | None
    id_2: int | None
    domain: int
    gone: int = 0


@attrs.frozen
class Ended:
    """A run that has ended, or whose process has: what it may have sent, and what it has found out about its input."""

    possibly_sent: PossiblySent
    counts: Mapping[str, int] = attrs.field(factory=dict)
    gone: Sequence[int] = ()
    """The keys of entries that are gone from its input."""
    back: Sequence[int] = ()
    """The keys of entries that were gone, and are not any more."""
    settles_at: float = 0.0
    """Unix time at which none of its requests can arrive at the service any more."""


def merge(db: sqlite3.Connection, metadata: Mapping[str, Any], run: Run, header: LedgerHeader, ended: Ended) -> LedgerHeader:
    """Merge the rows of a run into the entries. Return what the ledger then knows."""
    # A mark without an outcome must never be merged after an answer to a later row of its contact as if it came before: it may
    # arrive at the service after all others. `_SimilarContacts` gets all rows of a contact at once.
    require_rows(db, metadata)
    for statement in _TEMPORARY:  # a rollback drops these tables, too
        db.execute(statement)
    for gone, keys in (1, ended.gone), (0, ended.back):
        db.execute(_SET_GONE, (gone, records.to_json(keys)))
    db.execute(_FIND_GROUPS)
    db.execute(_FIND_KNOWN)
    # A clock that was ahead must not keep entries uncertain for longer than a run can.
    settles_at = min(header.settles_at, run.at + LONGEST_DOUBT)
    if _merge_groups(db, ended.possibly_sent, run.number, is_early=run.at < settles_at):
        settles_at = max(settles_at, ended.settles_at)
    db.execute(_MERGE_ALONE, {"run": run.number})
    db.execute(_PUT_ENTRIES)
    db.execute(_DROP_ACCEPTED)
    db.execute(_PUT_REJECTS, {"run": run.number})
    db.execute(_AGE_REJECTS, {"run": run.number, "at": run.at})
    db.execute(_DROP_OLD, {"at": run.at, "age": _MAX_REJECT_AGE})
    for name in "together", "changed", "accepted":
        db.execute(f"DROP TABLE temp.{name}")
    (entries,), (rejects,) = (db.execute(f"SELECT count(*) FROM {table}").fetchone() for table in ("entry", "reject"))  # noqa: S608 - names
    merged = LedgerHeader(header.address, header.secret, entries, rejects, settles_at, run.number)
    db.execute(records.SET_METADATA, encode_metadata("ledger", merged.to_metadata()))
    columns = [run.number, run.at, run.stamp, records.to_json(ended.counts), records.to_json(run.request), run.repeats]
    db.execute("UPDATE run SET counts = ?, crc = ? WHERE number = ?", (columns[3], records.checksum(columns), run.number))
    return merged


def require_rows(db: sqlite3.Connection, metadata: Mapping[str, Any]) -> None:
    """Check every row of a run, and that none is missing: a row without an outcome would count as not sent."""
    marked, expected = metadata["marked"], metadata["totals"]["rows"]
    require_windows(db, marked)
    for table, count, condition in ("sent", marked, f"crc = {SENT_SUM}"), ("outcome", expected, f"seq < {marked}"):
        (found,) = db.execute(f"SELECT count(*) FROM {table} WHERE {condition}").fetchone()  # noqa: S608 - names of this module
        require(found == count, f"expected {count} rows in the table {table}, found {found}")
    for first in range(0, marked, _PAGE_SIZE):
        records.require_checksums(*db.execute(SELECT_CHECKSUMS, (first, first + _PAGE_SIZE)).fetchone())


def _merge_groups(db: sqlite3.Connection, possibly_sent: PossiblySent, run: int, *, is_early: bool) -> bool:
    """Merge the rows that are not alone into the table of changed entries. Return whether one of them is unsettled."""
    rows = groupby((_read_row(row, possibly_sent) for row in db.execute(_SELECT_ROWS)), lambda row: row.key >> SIMILAR_BITS)
    entries = groupby((LedgerEntry(*row) for row in db.execute(_SELECT_ENTRIES)), lambda entry: entry.key >> SIMILAR_BITS)
    known, changed, accepted, is_unsettled = next(entries, None), list[LedgerEntry](), list[tuple[int]](), False
    for number, members in rows:
        group = _SimilarContacts(run, [] if known is None or known[0] != number else [*known[1]], is_early=is_early)
        if known is not None and known[0] == number:
            known = next(entries, None)
        sent = [*members]
        changed += group.merge(sent)
        accepted += [(row.key,) for row in sent if row.effect in {Effect.APPLIED, Effect.RETRIED}]
        is_unsettled |= group.is_unsettled
        if len(changed) > _BATCH_SIZE:
            _keep(db, changed, accepted)
    _keep(db, changed, accepted)
    return is_unsettled


def _keep(db: sqlite3.Connection, changed: list[LedgerEntry], accepted: list[tuple[int]]) -> None:
    db.executemany("INSERT INTO changed VALUES (?, ?, ?, ?, ?, ?, ?, ?)", changed)
    db.executemany("INSERT OR IGNORE INTO accepted VALUES (?)", accepted)
    changed.clear()
    accepted.clear()


def _read_row(row: Sequence[Any], possibly_sent: PossiblySent) -> SentRow:
    key, digest, target, domain, seq, status, id_1, id_2, attempts, possible = row
    if status is None:
        return SentRow(key, digest, target, domain, Effect.POSSIBLE if seq in possibly_sent else Effect.NONE, (None, None))
    return SentRow(key, digest, target, domain, _effect_of(seq, status, attempts, possible), (id_1, id_2))


def _effect_of(seq: int, status: object, attempts: int, possible: object) -> Effect:
    """Return the effect of a row from its stored outcome."""
    outcome = records.decode_outcome([seq, status, None, None, attempts, possible, None, None, None], None, None, RUN_TARGET)
    if outcome.status is Outcome.REJECTED:  # by the service: only rows that were sent are in the table
        return Effect.REJECTED if outcome.certain else Effect.REJECTED_LAST
    if outcome.status is Outcome.NOT_APPLIED:
        return Effect.NONE if outcome.certain else Effect.POSSIBLE
    # If `not_applied` is possible, the answer itself cannot be trusted. An answer to the only attempt shows that the contact has
    # the values of the row, even if an earlier run leaves open whether the contact was new.
    is_answered = outcome.status in SERVICE_OUTCOMES and Outcome.NOT_APPLIED not in outcome.possible
    if not is_answered or not (outcome.certain or outcome.attempts == 1):
        return Effect.POSSIBLE
    return Effect.APPLIED if outcome.attempts == 1 else Effect.RETRIED


class _SimilarContacts:
    """The entries of contacts whose e-mails a service may treat as equal, in all campaigns. Nearly always, it is one contact."""

    def __init__(self, run: int, entries: Iterable[LedgerEntry], *, is_early: bool) -> None:
        self._run = run
        self._entries = {entry.key: entry for entry in entries}
        # A request of an earlier run may still arrive at the service, after the answers of this one.
        self._doubtful = {
            entry.key >> CAMPAIGN_BITS for entry in self._entries.values() if is_early and entry.digest == UNCERTAIN
        }
        self.is_unsettled = False
        """Whether an attempt of this run may have had an effect, or may still have one."""

    def merge(self, rows: Sequence[SentRow]) -> Iterator[LedgerEntry]:
        """Merge rows, in the order in which they were sent. Yield the entries that change."""
        before = {**self._entries}
        # Rows of campaigns that have no number are sent every time.
        rows = [row for row in rows if row.effect not in _EFFECTLESS and row.target <= MAX_TARGET]
        doubtful = set[int]()
        for row in rows:
            self._apply(row, doubtful)
        for contact in self._find_replaced(rows, before):
            for key, entry in self._entries.items():
                if key >> CAMPAIGN_BITS == contact and entry.digest != UNCERTAIN:
                    self._entries[key] = entry._replace(digest=OUT_OF_DATE)
        for key, entry in self._entries.items():
            if entry != before.get(key):
                yield entry

    def _apply(self, row: SentRow, doubtful: set[int]) -> None:
        contact, digest = row.key >> CAMPAIGN_BITS, row.digest
        # A request without an answer may still arrive at the service, after a later row of this run for the same contact.
        if row.effect in _UNSETTLED or contact in doubtful:
            digest, self.is_unsettled = UNCERTAIN, True
        elif contact in self._doubtful:
            digest = UNCERTAIN
        if row.effect != Effect.APPLIED:
            doubtful.add(contact)
        id_, earlier = row.id_, self._entries.get(row.key)
        if id_ == (None, None) and earlier is not None:
            id_ = earlier.id_1, earlier.id_2
        self._entries[row.key] = LedgerEntry(row.key, digest, row.target, self._run, *id_, row.domain)
        for key, other in self._entries.items():
            # This row has replaced the values of another campaign's.
            if key != row.key and key >> CAMPAIGN_BITS == contact and other.digest != UNCERTAIN:
                self._entries[key] = other._replace(digest=OUT_OF_DATE if digest == UNCERTAIN else row.digest)

    def _find_replaced(self, rows: Sequence[SentRow], before: Mapping[int, LedgerEntry]) -> Iterator[int]:
        """Yield the contacts whose values a row of a similar e-mail may have replaced."""
        contacts = {key >> CAMPAIGN_BITS for key in self._entries}
        if len(contacts) == 1:  # nearly always
            return
        # Contacts with similar e-mails may be one at the service. They are two if the ids of both are known, and differ.
        ids = dict[int, StoredId]()
        for entry in sorted(before.values()):
            ids.setdefault(entry.key >> CAMPAIGN_BITS, (entry.id_1, entry.id_2))
        applied, effective = dict[int, int](), dict[int, float]()
        for at, row in enumerate(rows):
            contact = row.key >> CAMPAIGN_BITS
            applied[contact] = at
            # A request without an answer may still arrive after all others.
            effective[contact] = max(effective.get(contact, 0), at if row.effect == Effect.APPLIED else inf)
            if row.id_ != (None, None):
                ids[contact] = row.id_
        effective |= dict.fromkeys(self._doubtful, inf)
        known = {contact: ids.get(contact, (None, None)) for contact in contacts}
        yield from _find_overtaken(known, applied, effective)


def _find_overtaken(ids: Mapping[int, StoredId], applied: Mapping[int, int], effective: Mapping[int, float]) -> Iterator[int]:
    """Yield contacts to which the row of another one, which may be the same at the service, may have been applied later."""
    # For each id, only the two latest contacts count: one of them is another one.
    found, unknown = defaultdict[StoredId, list[tuple[float, int]]](list), (None, None)
    for contact in effective.keys() & ids.keys():
        found[ids[contact]].append((effective[contact], contact))
    latest = defaultdict(list, {id_: nlargest(2, each) for id_, each in found.items()})
    anyone = nlargest(2, chain(*latest.values()))
    for contact, id_ in ids.items():
        rivals = anyone if id_ == unknown else latest[id_] + latest[unknown]
        if any(other != contact and at > applied.get(contact, -1) for at, other in rivals):
            yield contact
