"""Stores the input in the journal, for inputs that can be read only once, and for policies that need all rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import attrs
import msgspec

from outreach_async.bulk.journal.merging import merge
from outreach_async.bulk.journal.records import as_text, checksum, plain, require
from outreach_async.bulk.journal.store import Store
from outreach_async.bulk.repeats import WHOLE_INPUT, Repeats
from outreach_async.errors import InvalidRequest

_PAGE: Final = 200
"""Rows with the same e-mail that are merged at a time."""

# One statement for many rows: each step of a statement releases the interpreter's lock, and a busy event loop gives it back late.
# OR REPLACE: an existing row was left by a process that was killed while it spooled.
_ADD: Final = """
    INSERT OR REPLACE INTO spool (seq, key, payload, crc)
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]')
    FROM json_each(?)
"""
_READ: Final = """
    SELECT json_group_array(json_array(seq, key, payload, crc, seq, seq)) FROM spool WHERE seq >= ? AND seq < ?
"""
_READ_KEYED: Final = """
    SELECT json_group_array(json_array(
        seq, key, payload, crc,
        coalesce((SELECT min(seq) FROM spool AS other WHERE other.key = spool.key), seq),
        coalesce((SELECT max(seq) FROM spool AS other WHERE other.key = spool.key), seq)
    )) FROM spool WHERE seq >= ? AND seq < ?
"""
_READ_GROUP: Final = """
    SELECT json_group_array(json_array(seq, payload)) FROM (
        SELECT seq, payload FROM spool WHERE key = (SELECT key FROM spool WHERE seq = ?) AND seq > ? ORDER BY seq LIMIT ?
    )
"""


@attrs.frozen
class SpooledRow:
    """A row of the input, read from the spool.

    Attributes:
        index: Index of the row in the input, from 0.
        payload: The spooled JSON; merged with that of other rows if this row is sent instead of them.
        repeats: Index of the row that is sent instead of this one; `None` if this row is sent.
    """

    index: int
    payload: bytes
    repeats: int | None = None


class Spool:
    """The stored rows of the input.

    Args:
        store: The journal's tables.
        total: Number of rows in the input; `None` until the whole input is spooled.
    """

    def __init__(self, store: Store, total: int | None) -> None:
        self._store = store
        self._indexed = False
        self.total = total

    def add(self, rows: Sequence[tuple[int, str, bytes]]) -> None:
        """Store rows as (index, exact e-mail or an empty string, payload as JSON).

        Raises:
            InvalidRequest: The spool is complete.
        """
        if self.total is not None:
            raise InvalidRequest(f"journal: the spool is complete with {self.total} rows; no more can be added")
        columns = [(index, plain(key) if key else None, payload.decode()) for index, key, payload in rows]
        texts = as_text([(*each, checksum(each)) for each in columns])
        with self._store.changes() as db:
            db.execute(_ADD, (texts,))

    def end(self, rows: int) -> None:
        """Record that the input is complete.

        Raises:
            InvalidRequest: Rows are missing.
        """
        with self._store.changes() as db:
            db.execute("DELETE FROM spool WHERE seq >= ?", (rows,))
            (kept,) = db.execute("SELECT count(*) FROM spool").fetchone()
            if kept != rows:
                raise InvalidRequest(f"journal: expected {rows} spooled rows, got {kept}; spool every row before the end")
            self._store.set(db, "spooled", rows)
        self.total = rows

    def read(self, first: int, rows: int, policy: Repeats, duplicates: str) -> list[SpooledRow]:
        """Return rows from `first` on, each as it will be sent, or with the index of the row that is sent instead."""
        keyed = policy in WHOLE_INPUT
        if keyed and not self._indexed:
            with self._store.changes() as db:
                db.execute("CREATE INDEX IF NOT EXISTS spool_key ON spool (key) WHERE key IS NOT NULL")
            self._indexed = True
        with self._store.reads() as db:
            found = _listed(db, _READ_KEYED if keyed else _READ, first, first + rows)
            return [self._row(db, each, policy, duplicates) for each in sorted(found)]

    def _row(self, db: sqlite3.Connection, found: Sequence[Any], policy: Repeats, duplicates: str) -> SpooledRow:
        index, key, text, crc, earliest, latest = found
        require(checksum([index, key, text]) == crc, f"checksum mismatch in spooled row {index}")
        sent = latest if policy == "last" else earliest
        if index != sent:
            return SpooledRow(index, text.encode(), repeats=sent)
        if policy == "coalesce" and latest != index and duplicates != "skip":
            return SpooledRow(index, self._merged(db, index, text, duplicates))
        return SpooledRow(index, text.encode())

    def _merged(self, db: sqlite3.Connection, index: int, text: str, duplicates: str) -> bytes:
        """Merge all rows with the same e-mail into the first, one page at a time: they may be the whole input."""
        members, last = msgspec.json.decode(text), index
        while page := sorted(_listed(db, _READ_GROUP, index, last, _PAGE)):
            for last, later in page:  # noqa: B007 - the next page begins after the last
                members = merge(members, msgspec.json.decode(later), duplicates)
        return msgspec.json.encode(members)


def _listed(db: sqlite3.Connection, query: str, *arguments: int) -> list[list[Any]]:
    (text,) = db.execute(query, arguments).fetchone()
    rows: list[list[Any]] = msgspec.json.decode(text)
    return rows
