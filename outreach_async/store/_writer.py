"""The single writer of a run's journal, and the database that it writes. After a failure, nothing more is written."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from secrets import token_hex
from threading import Lock, RLock, get_ident
from types import MappingProxyType
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

import anyio
import attrs
import msgspec
from anyio import to_thread

from outreach_async._core.arguments import require_choice
from outreach_async._files.sqlite import SqliteFile
from outreach_async._wire_words import SERVICE_OUTCOMES
from outreach_async.bulk._outcomes import ContactOutcome, OutcomeCounts
from outreach_async.bulk._rows import (
    NO_ROWS,
    WHOLE_INPUT,
    PossiblySent,
    Repeats,
    SpooledExclusion,
    SpooledRow,
    decode_spooled,
    encode_spooled,
)
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.models import RUN_TARGET, Target
from outreach_async.store import _records as records
from outreach_async.store._schema import SENT_SUM
from outreach_async.transport._lifecycle import AT_WORK

P = ParamSpec("P")
T = TypeVar("T")

Change: TypeAlias = tuple[Any, ...]
"""A change to a journal: the name of a statement in `STATEMENTS`, followed by the values of the statement."""


def _extract(columns: str) -> str:
    return ", ".join(f"json_extract(value, '$[{position}]') AS {name}" for position, name in enumerate(columns.split(", ")))


def _insert_many(verb: str, table: str, columns: str) -> str:
    # One statement inserts many rows. Each step of a statement releases the GIL, and a busy event loop delays reacquiring
    # the GIL.
    return f"{verb} INTO {table} ({columns}) SELECT {_extract(columns)} FROM json_each(?)"  # noqa: S608 - names of this module


_SENT: Final = "seq, key, digest, target, domain"
STATEMENTS: Final[Mapping[str, str]] = {
    "metadata": (
        "INSERT INTO meta (name, value, crc) VALUES (?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value, crc = excluded.crc"
    ),
    "window": "INSERT INTO window (first, rows, digest, crc) VALUES (?, ?, ?, ?)",
    # A plain INSERT: a second outcome for a row is an error.
    "outcomes": _insert_many("INSERT", "outcome", "seq, status, id_1, id_2, attempts, possible, error, repeats, target, crc"),
    # Most rows have no values in the other columns, and each column takes time.
    "plain outcomes": _insert_many("INSERT", "outcome", "seq, status, id_1, id_2, attempts, crc"),
    # The row gets its outcome when it is sent again.
    "reopen": "DELETE FROM outcome WHERE seq IN (SELECT value FROM json_each(?))",
    # OR REPLACE: a ledger knows targets of earlier runs, and the log of a run has those of its rows.
    "target": "INSERT OR REPLACE INTO target (number, workspace, campaign, crc) VALUES (?, ?, ?, ?)",
    # OR IGNORE: an error is stored once for all its rows.
    "errors": _insert_many("INSERT OR IGNORE", "error", "digest, text"),
    "event": "INSERT INTO event (number, at, kind, data, crc) VALUES (?, ?, ?, ?, ?)",
    # OR REPLACE: an existing row was written by a process that was killed while spooling.
    "spool": _insert_many("INSERT OR REPLACE", "spool", "seq, key, payload, crc"),
    "truncate spool": "DELETE FROM spool WHERE seq >= ?",
    "sent": f"INSERT INTO sent SELECT *, {SENT_SUM} FROM (SELECT {_extract(_SENT)} FROM json_each(?))",  # noqa: S608 - names
    "run": "INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?)",
}
"""Every statement that changes a journal, by name. Never change a name: `ObjectJournal` stores the names."""


class Transaction:
    """A transaction of a journal's writer, with a list of the changes made in it."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.changes: list[Change] = []
        self.db = db
        """For changes that are not in the list."""

    def apply(self, name: str, *values: Any) -> None:
        self.db.execute(STATEMENTS[name], values)
        self.changes.append((name, *values))

    def insert(self, name: str, *columns: Any) -> None:
        """Execute a statement with these values and their checksum."""
        self.apply(name, *columns, records.checksum(columns))

    def set_metadata(self, **values: object) -> None:
        for name, value in values.items():
            self.insert("metadata", name, records.to_json(value))


class Database(ABC):
    _db: sqlite3.Connection

    def __init__(self, name: str) -> None:
        self.name = name
        self._resources = ExitStack()
        """What `close` closes, the last first."""
        self._failure: tuple[str, BaseException | None] | None = None
        # While a run compares rows in the event loop, it may need an id, and the writer's thread may be committing.
        self._mutex = RLock()

    @abstractmethod
    def open(self, require: Callable[[Mapping[str, Any]], object], *, resume: bool) -> Mapping[str, Any] | None:
        """Open what is stored for writing. Return its metadata, which `require` checks; `None` if nothing is stored.

        Without `resume`, what is stored is refused.
        """

    @abstractmethod
    def create(self, metadata: Mapping[str, Any], wall: Callable[[], float]) -> None:
        """Store the journal of a new run with this metadata, and open it for writing."""

    @abstractmethod
    def set_aside(self) -> str:
        """Put damaged content away, which `open` has refused, and return where it is kept."""

    @contextmanager
    def transaction(self, *, marks: bool = False) -> Iterator[Transaction]:  # noqa: ARG002 - only a file has a log to lose
        """Run the `with` block in a transaction. After the commit, its changes are durable.

        If it `marks` rows, which are then sent, its loss would cause false labels.
        """
        with self.connection() as db, SqliteFile.transaction(db):
            yield (transaction := Transaction(db))
            self._before_commit(transaction)

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Provide the connection for a `with` block, and convert exceptions of the block to JournalError."""
        if self._failure is not None:
            message, cause = self._failure
            raise JournalError(message) from cause
        with self._mutex, self._translate_errors():
            yield self._db

    def query(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of a query."""
        with self.connection() as db:
            return query(db)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except JournalError as error:
            self._failure = self._failure or (str(error), error.__cause__)
            raise
        except (sqlite3.Error, OSError, *records.DECODING_ERRORS) as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if isinstance(error, records.CorruptContentError) or code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
                damaged = self.damaged(str(error))
                self._failure = str(damaged), error
                raise damaged from error
            message = f"journal {self.name}: {error}; fix the cause (e.g. disk full) and resume the run"
            self._failure = (message, error)
            raise JournalError(message) from error

    @abstractmethod
    def damaged(self, reason: str) -> JournalError:
        """Return the error that says that the content is damaged."""

    def compact(self) -> None:  # noqa: B027 - a private copy is compacted when it is written
        """Give back the space of rows that were deleted, if it is worth the time."""

    @abstractmethod
    def _before_commit(self, transaction: Transaction) -> None:
        """Add the final changes to a transaction, just before its commit."""

    @property
    def heartbeat_due(self) -> float | None:
        """The current time on the writer's clock, if a heartbeat is due before the next row is sent; otherwise `None`."""
        return None

    def heartbeat(self, due: float) -> None:  # noqa: B027 - a lock prevents a takeover, so none is due
        """Write a heartbeat, unless another write that started at or after the time `due` has already succeeded."""

    def close(self) -> None:
        """Close the connection, unless it is closed. Later calls of other methods raise JournalError."""
        self._failure = (f"journal {self.name} is closed; open it again", None)
        with suppress(sqlite3.Error):
            self._resources.close()


_PAGE_SIZE: Final = 200
"""Number of rows with the same e-mail that are read at once for merging."""


_SPOOLED: Final = """
    SELECT json_group_array(json_array(seq, key, payload, crc, {}, {})) FROM spool WHERE seq >= ? AND seq < ?
""".format
_SAME_KEY: Final = "coalesce((SELECT {}(seq) FROM spool AS other WHERE other.key = spool.key), seq)".format
_SELECT_ROWS: Final = _SPOOLED("seq", "seq")
_SELECT_KEYED_ROWS: Final = _SPOOLED(_SAME_KEY("min"), _SAME_KEY("max"))
_FIND_END: Final = """
    SELECT coalesce(max(seq) + 1, 0) FROM (
        SELECT seq, sum(length(payload)) OVER (ORDER BY seq) - length(payload) AS before FROM spool WHERE seq >= ? AND seq < ?
    ) WHERE before < ?
"""
_SELECT_GROUP: Final = """
    SELECT json_group_array(json_array(seq, payload)) FROM (
        SELECT seq, payload FROM spool WHERE key = (SELECT key FROM spool WHERE seq = ?) AND seq > ? ORDER BY seq LIMIT ?
    )
"""
_SELECT_ERRORS: Final = """
    SELECT seq, status, id_1, id_2, attempts, possible, error, repeats, target, error.text FROM outcome
    JOIN error ON error.digest = outcome.error WHERE attempts > 0
"""
_SELECT_COMPLETED: Final = "SELECT json_group_array(seq) FROM outcome WHERE seq >= ? AND seq < ?"
_ALL_ROWS: Final = PossiblySent(((0, 2**63 - 1),))
"""The set of all rows."""


def find_possibly_sent(metadata: Mapping[str, Any]) -> PossiblySent:
    """Return the rows without an outcome that the processes of a run may have sent."""
    if metadata["earlier"] == "unknown":
        return _ALL_ROWS
    if metadata["state"] == "running":  # the process was killed before it could record which rows it had sent
        return PossiblySent.of(ranges=[(0, metadata["marked"])])
    return PossiblySent.of(ranges=map(tuple, metadata["possibly_sent"]))


class JournalWriter:
    """A journal that is open for writing. Its methods are synchronous, and may be called from any thread, one at a time.

    The state of the run is `running` from the start, before any row is sent, unless the run is finished. When a method returns,
    its changes are durable. After a JournalError, nothing more is written: every later call raises the same error.
    """

    def __init__(
        self,
        database: Database,
        metadata: Mapping[str, Any],
        identity: records.Identity,
        earlier: records.Earlier,
        damage: Mapping[str, Any] | None = None,
        *,
        created: bool,
        wall: Callable[[], float],
    ) -> None:
        self.database = database
        self._identity = identity
        self._wall = wall
        self._opened_at = wall()
        self._spool_indexed = False
        self._totals = records.decode_totals(metadata["totals"])
        self._earlier_seconds = self._totals.seconds
        self._events: int = metadata["events"]
        self._fingerprint: str | None = metadata["identity"]["fingerprint"]
        self.names = records.read_names(metadata)
        """The ids of the campaigns that rows have named, by workspace and name."""
        self.resumed = not created
        self.state: str = metadata["state"]
        self.marked: int = metadata["marked"]
        """Index of the first unmarked row. It and later rows were not sent, unless `earlier="unknown"`."""
        self.possibly_sent = find_possibly_sent(metadata)
        """The rows without an outcome that an earlier process may have sent."""
        self.spooled: int | None = metadata["spooled"]
        """Number of rows in the input; `None` until the whole input is spooled."""
        self._start(earlier, damage, metadata["identity"])
        with database.connection() as db:
            self._targets = {target: number for number, target in records.read_targets(db).items()}
        self._recorded = set() if created else {*self._targets}

    def _start(self, earlier: records.Earlier, damage: Mapping[str, Any] | None, recorded: Mapping[str, Any]) -> None:
        # If the process is killed in the state `running`, every marked row without an outcome counts as possibly sent.
        if self.finished:
            return
        with self.database.transaction(marks=True) as transaction:
            if damage is not None:
                self._add_event(transaction, "damaged", damage)
            if self.resumed:
                reopened = self._reopen_rows(transaction) if self.state == "stopped" else 0
                self._add_event(transaction, "resumed", {"after": self.state, **({"reopened": reopened} if reopened else {})})
                transaction.set_metadata(state="running")
                if (corrected := records.correct_identity(recorded, self._identity)) != recorded:
                    transaction.set_metadata(identity=corrected)
            if earlier == "unknown":
                self.possibly_sent = _ALL_ROWS
                transaction.set_metadata(earlier=earlier)
        self.state = "running"

    def _reopen_rows(self, transaction: Transaction) -> int:
        """Remove the outcomes of the rows that were sent, if the service has accepted none. Return their number."""
        # They were rejected before the run stopped, perhaps for the cause that has been fixed meanwhile. If a row was accepted,
        # the cause was not theirs, and an earlier row of its contact must not replace its values.
        if any(count and outcome in SERVICE_OUTCOMES for outcome, count in self._totals.outcomes.items()):
            return 0
        with self.database.connection() as db:
            found = db.execute(_SELECT_ERRORS).fetchall()
        reopened = [records.decode_outcome(row, text, None, RUN_TARGET) for *row, text in found]
        if reopened:
            transaction.apply("reopen", records.to_json([outcome.index for outcome in reopened]))
            self._totals = records.subtract_outcomes(self._totals, reopened)
            transaction.set_metadata(totals=records.encode_totals(self._totals))
        uncertain = (outcome.index for outcome in reopened if not outcome.certain)
        self.possibly_sent = PossiblySent.of(uncertain, self.possibly_sent.ranges)
        return len(reopened)

    @property
    def finished(self) -> bool:
        """True if every row of the input has its outcome."""
        return self.state == "finished"

    @property
    def duplicates(self) -> str:
        return str(self._identity.options.get("duplicates", "skip"))

    @property
    def has_same_input(self) -> bool:
        """True if the input and the journal both have a fingerprint, which were compared when the journal was opened."""
        # Without these fingerprints, the rows of the input are compared with those of the journal.
        return None not in (self._fingerprint, self._identity.fingerprint)

    def create_counts(self) -> OutcomeCounts:
        """Return new counts, to which the caller may add outcomes. Initially, they contain the recorded outcomes."""
        with self.database.connection() as db:
            found = records.count_targets(db, {number: target for target, number in self._targets.items()}, self._totals)
        return OutcomeCounts(self._totals, found)

    def window_at(self, first: int) -> records.MarkedWindow | None:
        """Return the marked window that starts at row `first`; `None` if there is none."""
        with self.database.connection() as db:
            columns = db.execute("SELECT first, rows, digest FROM window WHERE first = ?", (first,)).fetchone()
        return None if columns is None else records.MarkedWindow(*columns)

    def mark(
        self, window: records.MarkedWindow, targets: Mapping[Target, int] = MappingProxyType({}), sent: str | None = None
    ) -> None:
        """Mark the rows of a window as about to be sent. If the window is already marked, check that its rows are unchanged.

        `sent` has what a ledger compares of each row, as a JSON array of the columns of the table.
        """
        # When this method returns, the mark is durable. In a journal file, it also survives the loss of the write-ahead log.
        if window.rows < 1 or window.first > self.marked:
            raise InvalidRequest(
                f"journal: expected a window of at least 1 row, starting at or before row {self.marked}, got {window.rows} rows"
                f" starting at row {window.first}; mark rows in order"
            )
        if window.first < self.marked:
            known = self.window_at(window.first)
            if known != window and known != attrs.evolve(window, digest=b""):  # a window without a digest has an erased row
                raise InvalidRequest(
                    f"rows: the input changed: rows {window.first} to {window.end - 1} differ from those of the journal"
                    f" {self.database.name}; resume with the same input, or {records.OTHER_JOURNAL}"
                )
            return
        with self.database.transaction(marks=True) as transaction:
            self._add_targets(transaction, targets)
            transaction.insert("window", window.first, window.rows, window.digest)
            if sent is not None:
                transaction.apply("sent", sent)
            transaction.set_metadata(marked=window.end)
        self.marked = window.end
        self._targets.update(targets)
        self._recorded.update(targets)

    def _add_targets(self, transaction: Transaction, targets: Mapping[Target, int]) -> None:
        for target, number in targets.items():
            if target not in self._recorded:
                transaction.insert("target", number, *target)

    def record_names(self, names: Mapping[tuple[str, str], str]) -> None:
        """Record the ids of the campaigns that rows have named, so that a resumed run finds the same ones."""
        with self.database.transaction() as transaction:
            transaction.set_metadata(names=[[*named, id_] for named, id_ in names.items()])
        self.names = dict(names)

    def completed_rows(self, first: int, rows: int) -> frozenset[int]:
        """Return the indexes of rows with an outcome, from index `first` to `first + rows - 1`."""
        with self.database.connection() as db:
            (indexes,) = db.execute(_SELECT_COMPLETED, (first, first + rows)).fetchone()
        return frozenset(msgspec.json.decode(indexes))

    def record(self, outcomes: Sequence[ContactOutcome], numbers: Mapping[int, int] | None = None) -> None:
        """Record outcomes in one transaction: if the transaction fails, none of them is recorded.

        `numbers` has the numbers under which rows are recorded, by their indexes, if these differ.
        """
        indexes = [outcome.index if numbers is None else numbers[outcome.index] for outcome in outcomes]
        if beyond := [index for index in indexes if not 0 <= index < self.marked]:
            raise InvalidRequest(
                f"journal: expected row indexes below {self.marked}, got {beyond[0]}; mark a row before you record its outcome"
            )
        new = {outcome.target: 0 for outcome in outcomes if outcome.target not in self._targets}
        new = {target: number for number, target in enumerate(new, max(self._targets.values()) + 1)}
        changes = records.encode_batch(outcomes, {**self._targets, **new} if new else self._targets, indexes)
        # The totals are committed with the outcomes, so that every reader finds out if an outcome is missing.
        totals = records.add_outcomes(self._totals, outcomes, self._elapsed_seconds())
        with self.database.transaction() as transaction:
            self._add_targets(transaction, new)
            for name, rows in changes:
                transaction.apply(name, rows)
            transaction.set_metadata(totals=records.encode_totals(totals))
        self._totals = totals
        self._targets.update(new)
        self._recorded.update(new)

    def _add_event(self, transaction: Transaction, kind: str, data: Mapping[str, Any]) -> None:
        transaction.insert("event", self._events + 1, float(self._wall()), kind, records.to_json(data))
        transaction.set_metadata(events=self._events + 1)
        self._events += 1

    def end(self, state: str, possibly_sent: PossiblySent = NO_ROWS) -> None:
        """Record how the run ended. A run that has already finished stays finished."""
        require_choice("state", state, records.END_STATES)
        if self.finished:
            return
        if state == "finished" and (missing := self.marked - self._totals.rows):
            raise InvalidRequest(
                f"journal: expected an outcome for every marked row, got none for {missing} rows;"
                " record every outcome before you end the run"
            )
        # From now on, these rows replace the assumption that every marked row without an outcome may have been sent.
        totals = records.add_outcomes(self._totals, (), self._elapsed_seconds())
        with self.database.transaction() as transaction:
            transaction.set_metadata(state=state, possibly_sent=possibly_sent.ranges, totals=records.encode_totals(totals))
        self.state, self._totals = state, totals

    def _elapsed_seconds(self) -> float:
        # The wall clock, because the monotonic clocks of several processes cannot be compared. It may be set back.
        return self._earlier_seconds + max(0.0, self._wall() - self._opened_at)

    def spool(self, rows: Sequence[tuple[int, str, bytes]]) -> None:
        if self.spooled is not None:
            raise InvalidRequest(f"journal: the spool is complete with {self.spooled} rows; add no more rows")
        columns = [(index, records.to_storable(key) if key else None, payload.decode()) for index, key, payload in rows]
        with self.database.transaction() as transaction:
            transaction.apply("spool", records.to_json([(*row, records.checksum(row)) for row in columns]))

    def end_spool(self, rows: int) -> None:
        """Record that the spool contains the whole input, and that the input has `rows` rows."""
        with self.database.connection() as db:
            (stored,) = db.execute("SELECT count(*) FROM spool WHERE seq < ?", (rows,)).fetchone()
        if stored != rows:
            raise InvalidRequest(f"journal: expected {rows} spooled rows, got {stored}; spool every row before you end the spool")
        with self.database.transaction() as transaction:
            transaction.apply("truncate spool", rows)
            transaction.set_metadata(spooled=rows)
        self.spooled = rows

    def spooled_rows(self, first: int, rows: int, policy: Repeats, room: int) -> list[SpooledRow]:
        """Return rows from a spool that contains the whole input: at most `rows`, until they take `room` bytes."""
        # If `policy` selects another row with the same e-mail to be sent instead of a row, the returned item for the row contains
        # the index of the other row.
        keyed = policy in WHOLE_INPUT
        if keyed and not self._spool_indexed:
            with self.database.connection() as db:  # an index changes no content, so it is not recorded as a change
                db.execute("CREATE INDEX IF NOT EXISTS spool_key ON spool (key) WHERE key IS NOT NULL")
            self._spool_indexed = True
        with self.database.connection() as db:
            ((end,),) = db.execute(_FIND_END, (first, first + rows, room))
            stored = _fetch_rows(db, _SELECT_KEYED_ROWS if keyed else _SELECT_ROWS, first, end)
            return [self._build_row(db, columns, policy) for columns in sorted(stored)]

    def _build_row(self, db: sqlite3.Connection, columns: Sequence[Any], policy: Repeats) -> SpooledRow:
        *row, earliest, latest = columns
        ((index, _, payload),) = records.checked([row], "spooled row {}")
        sent = latest if policy == "last" else earliest
        if index != sent:
            return SpooledRow(index, payload.encode(), repeats=sent)
        if policy != "coalesce" or latest == index:
            return SpooledRow(index, payload.encode())
        # Merge all rows with the same e-mail into this one. They are read in pages, because there may be very many.
        (merged, target), last = decode_spooled(payload), index
        while page := sorted(_fetch_rows(db, _SELECT_GROUP, index, last, _PAGE_SIZE)):
            for last, later in page:  # noqa: B007 - the next page begins after row `last`
                merged = _merge_spooled(merged, decode_spooled(later)[0], self.duplicates)
        return SpooledRow(index, encode_spooled(merged, target))

    def close(self) -> None:
        """Close the journal. Closing a closed journal does nothing."""
        self.database.close()


def open_journal(
    database: Database, identity: records.Identity, *, resume: bool, earlier: records.Earlier, wall: Callable[[], float]
) -> JournalWriter:
    """Open a journal for a run: create it, or resume its run. With `earlier="unknown"`, a damaged journal is replaced."""
    with ExitStack() as stack, records.translate_errors(database.name):
        stack.callback(database.close)
        metadata = damage = None
        try:
            require = partial(records.require_resumable, database.name, identity)
            metadata = database.open(require, resume=resume or earlier == "unknown")
        except (records.DamagedJournalError, records.EmptyJournalError) as error:
            if earlier == "known":
                raise
            damage = {"reason": str(error), "kept": database.set_aside()}
        created = metadata is None
        if metadata is None:
            metadata = create_metadata(identity, earlier)
            database.create(metadata, wall)
        writer = JournalWriter(database, metadata, identity, earlier, damage, created=created, wall=wall)
        stack.pop_all()
    return writer


def create_metadata(identity: records.Identity, earlier: records.Earlier) -> dict[str, Any]:
    return {
        "identity": records.encode_identity(identity),
        "earlier": earlier,
        "state": "running",
        "marked": 0,
        "totals": records.encode_totals(OutcomeCounts().report(0.0)),
        "possibly_sent": [],
        "spooled": None,
        "events": 0,
        "log": {"run": token_hex(8), "commits": 0},
    }


def _fetch_rows(db: sqlite3.Connection, query: str, *arguments: int) -> list[list[Any]]:
    (text,) = db.execute(query, arguments).fetchone()
    return msgspec.json.decode(text, type=list[list[Any]])


def _merge_spooled(earlier: Any, later: Any, duplicates: str) -> Any:
    """Return what is sent instead of two spooled rows with the same e-mail: nothing, if one of them may not be sent."""
    excluded = next((each for each in (earlier, later) if isinstance(each, SpooledExclusion)), None)
    return excluded or merge_contacts(earlier, later, duplicates)


def merge_contacts(earlier: Mapping[str, Any], later: Mapping[str, Any], duplicates: str) -> dict[str, Any]:
    """Return the contact to send instead of two rows with the same e-mail."""
    # The result is the contact that the service would store if it received both rows. With `skip`, only the earlier row counts.
    # With `overwrite`, values of the later row replace those of the earlier row. With `update_missing_fields`, values of the
    # later row fill only blank fields of the earlier row.
    if duplicates == "skip":
        return {**earlier}
    if duplicates == "overwrite":
        return {**earlier, **later}
    # A blank value of the later row is not used: the service would not fill a field with it, but would store it in a new contact.
    filled = {name: value for name, value in later.items() if not _is_blank(value) and _is_blank(earlier.get(name))}
    return {**earlier, **filled}


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


class WriterThread:
    """Runs the calls of a journal's writer in a thread, one at a time."""

    # After `run` returns or raises an exception, the call is not running and does not start later.

    def __init__(self, *, inline: bool, errors: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._inline = inline
        self._errors = errors  # converts what a call raises
        self._lock = anyio.Lock(fast_acquire=True)
        self._limiter = anyio.CapacityLimiter(1)

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call and return its result. A cancellation takes effect after the call has ended."""
        running, abandoned = Lock(), False

        def job() -> T | None:
            with running:  # held while the call runs; a job that starts too late sees `abandoned` and does nothing
                return None if abandoned else call(*args, **kwargs)

        # A commit cannot be undone, so a cancelled caller must still learn whether the commit succeeded.
        with anyio.CancelScope(shield=True):
            async with self._lock:
                try:
                    result: T = await self._execute(job)
                except BaseException:
                    # A shield does not stop asyncio's own Task.cancel, which leaves the thread running. The caller must know the
                    # result of the call, so wait for it here, even though this blocks the event loop for one commit.
                    with running:
                        abandoned = True
                    raise
        return result

    async def run_opening(self, call: Callable[[], T]) -> T:
        """Run a call that opens something. Close what it has opened if its caller is cancelled meanwhile."""
        # Whatever was opened must not stay open without an owner: its lock would refuse every later run of this process.
        opened: list[Any] = []
        try:
            await self.run(lambda: opened.append(call()))
        except BaseException:
            for each in opened:  # asyncio's own Task.cancel may arrive although the call has succeeded
                each.close()
            raise
        result: T = opened[0]
        return result

    async def _execute(self, job: Callable[[], Any]) -> Any:
        with self._errors():
            if self._inline:
                return job()
            AT_WORK[get_ident()] += 1
            try:
                return await to_thread.run_sync(job, limiter=self._limiter)
            finally:
                AT_WORK[get_ident()] -= 1
