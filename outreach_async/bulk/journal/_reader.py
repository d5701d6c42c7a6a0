"""Read a journal at any time and from any process. The content of its files is not changed, and damage is detected."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, TypeVar

import attrs
import msgspec

from outreach_async._service.contacts import Target
from outreach_async.bulk._outcomes import ContactOutcome, add_targets
from outreach_async.bulk._rows import decode_spooled
from outreach_async.bulk.journal import _records as records
from outreach_async.bulk.journal._identity import JournalReport
from outreach_async.bulk.journal._records import DECODING_ERRORS, require
from outreach_async.errors import InvalidRequest, JournalError, OutreachError

T = TypeVar("T")

# Queries are kept short, because a query can prevent the writer from checkpointing its write-ahead log.
_PAGE_SIZE: Final = 2_000
"""Number of rows per query."""

_FROM_PAGE: Final = (
    "FROM (SELECT * FROM outcome WHERE seq >= ? ORDER BY seq LIMIT ?) AS page LEFT JOIN error ON error.digest = page.error"
)
_COLUMNS: Final = "page.seq, page.status, page.id, page.attempts, page.possible, page.error, page.repeats, page.target"
_PAGE: Final = f"json_group_array(json_array({_COLUMNS})), json_group_array(page.crc)"
SELECT_CHECKSUMS: Final = f"SELECT {_PAGE} FROM outcome AS page WHERE seq >= ? AND seq < ?"  # noqa: S608 - names of this module
_SELECT_OUTCOMES: Final = f"SELECT {_PAGE}, json_group_array(error.text), '[]' {_FROM_PAGE}"
_SELECT_SPOOLED: Final = f"""
    SELECT {_PAGE}, json_group_array(error.text), json_group_array(json_array(spool.key, spool.payload, spool.crc)) {_FROM_PAGE}
    LEFT JOIN spool ON spool.seq = page.seq
"""
_REQUIRED_NAMES: Final = frozenset({"earlier", "events", "hwm", "identity", "log", "spooled", "state", "suspects", "totals"})
_VERIFY_SPOOL: Final = "SELECT seq, key, payload, crc FROM spool WHERE seq >= ? ORDER BY seq LIMIT ?"

_LOCK_TIMEOUT: Final = 10.0
"""Seconds to wait for a lock. Other readers hold locks while they recover a log, and during their queries."""
_MAX_ATTEMPTS: Final = 100
"""Maximum number of times that a query is run. A query is repeated if the files changed while it ran."""
# If the files changed during a failed query, a writer may be the cause, and the count starts again.
_MAX_FAILURES: Final = 3
"""Number of times in a row that a query must fail before its error is raised."""
_WITH_LOG: Final = "mode=ro"
"""URI parameters to open a journal with its log. SQLite needs the index of the log, and may have to create it."""
_WITHOUT_LOG: Final = "mode=ro&immutable=1"
"""URI parameters to open a journal without its log."""
_EXTERNAL_CODES: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)
"""Primary SQLite error codes whose cause is outside the file."""


def read_metadata(db: sqlite3.Connection) -> dict[str, Any]:
    """Return the metadata of a journal's run."""
    rows = db.execute("SELECT name, value, crc FROM meta").fetchall()
    require(all(records.checksum(columns) == crc for *columns, crc in rows), "checksum mismatch in the run's metadata")
    metadata = {name: msgspec.json.decode(value) for name, value, _ in rows}
    missing = sorted(_REQUIRED_NAMES - metadata.keys())
    require(not missing, f"metadata of the run is missing: {', '.join(missing)}")
    return metadata


def require_windows(db: sqlite3.Connection, hwm: int) -> int:
    """Check that the windows contain all marked rows, and return the number of windows."""
    # A window is a series of consecutive rows that were marked together as about to be sent.
    count = end = 0
    for first, rows, marked, crc in db.execute("SELECT first, rows, digest, crc FROM window ORDER BY first"):
        require(
            records.checksum([first, rows, marked]) == crc, f"checksum mismatch in the window of rows starting at row {first}"
        )
        require(first == end, f"the window of rows starting at row {end} is missing")
        count, end = count + 1, first + rows
    require(end == hwm, f"expected {hwm} rows in the windows of marked rows, found {end}")
    return count


def read_events(db: sqlite3.Connection, count: int) -> list[tuple[float, str, dict[str, Any]]]:
    """Return all events as (Unix time, kind, details); `count` is the expected number of events."""
    rows = db.execute("SELECT number, at, kind, data, crc FROM event ORDER BY number").fetchall()
    require(all(records.checksum(columns) == crc for *columns, crc in rows), "checksum mismatch in an event")
    require([row[0] for row in rows] == [*range(1, count + 1)], f"expected {count} events, found {len(rows)}")
    return [(at, kind, msgspec.json.decode(data)) for _, at, kind, data, _ in rows]


def require_structure(db: sqlite3.Connection, rows: int) -> None:
    """Check the pages of the file, its tables, and the number of outcomes."""
    (result,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    require(result == "ok", result)
    tables = {sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE type = 'table'")}
    require(tables == {*records.TABLES}, "its tables are not those of a journal")
    (count,) = db.execute("SELECT count(*) FROM outcome").fetchone()
    require(count == rows, f"expected {rows} outcomes, found {count}")


def require_intact(db: sqlite3.Connection) -> dict[str, Any]:
    """Check everything that a resumed run relies on, and return the run's metadata."""
    # Each row is checked against its checksum, and the tables against the totals that were committed with them. If a log is lost
    # that would have completed a half commit, these checks find the half commit. For a finished run, only the metadata and the
    # windows of marked rows are checked, because no row is sent again.
    metadata = read_metadata(db)
    require_windows(db, metadata["hwm"])
    totals = records.decode_totals(metadata["totals"])
    if metadata["state"] != "finished":
        require_structure(db, totals.rows)
        read_events(db, metadata["events"])
        _verify_outcomes(db, metadata["hwm"])
        for digest, text in db.execute("SELECT digest, text FROM error"):
            require(records.digest(text) == digest, "checksum mismatch in a stored error")
        spooled = _verify_spool(db)
        require(metadata["spooled"] in (None, spooled), f"expected {metadata['spooled']} spooled rows, found {spooled}")
    return metadata


def _verify_outcomes(db: sqlite3.Connection, hwm: int) -> None:
    """Check the checksum of each outcome, and that only marked rows have outcomes."""
    (last,) = db.execute("SELECT coalesce(max(seq), -1) FROM outcome").fetchone()
    require(last < hwm, f"row {last} has an outcome, but was not marked as about to be sent")
    for first in range(0, last + 1, _PAGE_SIZE):
        records.require_checksums(*db.execute(SELECT_CHECKSUMS, (first, first + _PAGE_SIZE)).fetchone())


def _verify_spool(db: sqlite3.Connection) -> int:
    """Check the checksum of each spooled row, and return the number of rows."""
    count = first = 0
    while page := db.execute(_VERIFY_SPOOL, (first, _PAGE_SIZE)).fetchall():
        for *columns, crc in page:
            if records.checksum(columns) != crc:
                raise records.CorruptContentError(f"checksum mismatch in row {columns[0]}")
        count, first = count + len(page), page[-1][0] + 1
    return count


def read_targets(db: sqlite3.Connection) -> dict[int, Target]:
    """Return the targets of the run by number; the number of the run's own target is 0."""
    identity = read_metadata(db)["identity"]
    targets = {0: Target(identity["workspace"], identity["options"].get("campaign"))}
    for *columns, crc in db.execute("SELECT number, workspace, campaign, crc FROM target"):
        require(records.checksum(columns) == crc, "checksum mismatch in a target")
        targets[columns[0]] = Target(*columns[1:])
    return targets


def read_names(metadata: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Return the ids of the campaigns that rows of the run have named, by workspace and name."""
    return {(workspace, name): campaign for workspace, name, campaign in metadata.get("names", ())}


def read_page(db: sqlite3.Connection, first: int) -> list[ContactOutcome]:
    """Return a page of outcomes that starts at row `first`. For the first page, also check that no outcome is missing."""
    metadata, targets = read_metadata(db), read_targets(db)
    if first == 0:
        require_structure(db, records.decode_totals(metadata["totals"]).rows)
    spooled = metadata["spooled"] is not None
    page = db.execute(_SELECT_SPOOLED if spooled else _SELECT_OUTCOMES, (first, _PAGE_SIZE)).fetchone()
    records.require_checksums(page[0], page[1])
    rows, errors, spool = (msgspec.json.decode(page[column]) for column in (0, 2, 3))
    contacts = [_decode_spooled(row[0], *spooled_row) for row, spooled_row in zip(rows, spool, strict=True)] if spooled else rows
    outcomes = [
        records.decode_outcome(row, error, contact if spooled else None, targets[row[-1] or 0])
        for row, error, contact in zip(rows, errors, contacts, strict=True)
    ]
    # The aggregate functions of SQLite promise no order.
    return sorted(outcomes, key=attrgetter("index"))


def _decode_spooled(index: int, key: str | None, payload: str, crc: int) -> object:
    """Return the contact of a spooled row; `None` if the row can never be sent."""
    require(records.checksum([index, key, payload]) == crc, f"checksum mismatch in spooled row {index}")
    contact, target = decode_spooled(payload)
    if not isinstance(contact, dict):
        return None
    return contact if target is None else {**contact, **target._asdict()}


def read_report(db: sqlite3.Connection) -> JournalReport:
    """Return the report of the run."""
    metadata = read_metadata(db)
    hwm, identity, totals = metadata["hwm"], metadata["identity"], records.decode_totals(metadata["totals"])
    found = records.count_targets(db, read_targets(db), totals)
    return JournalReport(
        **{**attrs.asdict(totals, recurse=False), "targets": add_targets(found)},
        state=metadata["state"],
        marked=hwm,
        possibly_sent=hwm - totals.rows,
        windows=require_windows(db, hwm),
        events=dict(sorted(Counter(kind for _, kind, _ in read_events(db, metadata["events"])).items())),
        **{name: identity[name] for name in ("workspace", "source", "fingerprint", "mapping")},
        spooled=metadata["spooled"],
    )


RunQuery: TypeAlias = Callable[[Callable[[sqlite3.Connection], Any]], Any]
"""A function that runs a query on a journal and returns the result of the query."""


class DamagedJournalError(JournalError):
    """The journal is damaged. Any other JournalError may be temporary."""


class EmptyJournalError(InvalidRequest):
    """The file of the journal is empty."""


_FileState: TypeAlias = tuple[int, int, int]
"""A file's inode, its size, and the time of its last change in nanoseconds."""


@attrs.frozen
class _JournalFiles:
    """The state of a journal's files. Two states are compared to detect a change by a writer."""

    file: _FileState | None
    log: _FileState | None

    @classmethod
    def of(cls, path: Path) -> Self:
        """Return the current state of a journal's files."""
        return cls(_read_file_state(path), _read_file_state(Path(f"{path}-wal")))

    @property
    def has_log(self) -> bool:
        """True if the log has content."""
        return self.log is not None and self.log[1] > 0


def read_snapshot(path: Path, query: Callable[[sqlite3.Connection], T]) -> T:
    """Run a query on a journal and return its result."""
    return query_journal(path.resolve(), query)[0]


def query_journal(path: Path, query: Callable[[sqlite3.Connection], T]) -> tuple[T, bool]:
    """Run a query on a journal and its log. The log is ignored if it is older than the file or belongs to another run."""
    # A log shows that a writer is active or was killed. SQLite then locks the file and the log while it reads them, and repairs
    # or creates the index of the log. A file without a log is read without locks, and the query runs again if the file changes.
    # So a result counts if SQLite's locks protected it, or if the files are the same before and after. A failure counts only if
    # the files stayed the same several times: otherwise a writer may have changed them meanwhile.
    # Only SQLite opens the file and the index. If this module opened and closed them itself, the operating system would release
    # the locks that a writer in the same process holds.
    failures = 0
    for _ in range(_MAX_ATTEMPTS):
        before = _JournalFiles.of(path)
        _require_readable(path, before)
        try:
            stale = before.has_log and _is_stale(path)
            result = _run_query(path, _WITH_LOG if before.has_log and not stale else _WITHOUT_LOG, query)
        except OutreachError:
            raise
        except (sqlite3.Error, *DECODING_ERRORS) as error:
            failures = failures + 1 if _JournalFiles.of(path) == before else 0
            if failures == _MAX_FAILURES:
                raise read_error(path, error) from error
        else:
            if (before.has_log and not stale) or _JournalFiles.of(path) == before:
                return result, stale
            failures = 0
    raise JournalError(f"journal {path} changes faster than it can be read; try again")


def _run_query(path: Path, mode: str, query: Callable[[sqlite3.Connection], T]) -> T:
    with closing(connect(path, mode)) as db:
        _require_format(path, db)
        db.execute("BEGIN")
        return query(db)


def connect(path: str | Path, mode: str) -> sqlite3.Connection:
    """Open a file with SQLite. Any thread may use the connection. Transactions must be begun explicitly."""
    uri = f"{Path(path).absolute().as_uri()}?{mode}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=_LOCK_TIMEOUT)


def _read_log_state(db: sqlite3.Connection) -> Mapping[str, Any]:
    """Return the id of the run, and its number of commits."""
    log: Mapping[str, Any] = read_metadata(db)["log"]
    return log


def _is_stale(path: Path) -> bool:
    """Return whether a log is older than the file, or belongs to another run."""
    # SQLite would apply an old log to a newer file. The file contains each commit as soon as the call that made the commit
    # returns, so an old log can be ignored. Only after a kill during the copying of a commit does the log complete the file.
    # The file is read before the log: during a run, the log is never behind an earlier state of the file.
    try:
        file_state = _run_query(path, _WITHOUT_LOG, _read_log_state)
    except (sqlite3.Error, *DECODING_ERRORS):
        # A power failure may have torn a page while the log was copied into the file. The log still has the whole page.
        return False
    try:
        log_state = _run_query(path, _WITH_LOG, _read_log_state)
    except (OutreachError, sqlite3.Error, *DECODING_ERRORS) as error:
        if _is_external(error):
            raise
        return True  # the file is readable alone, so the log is not from its last commit: that log would complete the file
    return bool(log_state["run"] != file_state["run"] or log_state["commits"] < file_state["commits"])


def _require_readable(path: Path, files: _JournalFiles) -> None:
    if files.file is None:
        raise InvalidRequest(f"journal: {path} does not exist; pass the path of a journal")
    if files.file[1] == 0:
        raise empty_error(path)


def _require_format(path: Path, db: sqlite3.Connection) -> None:
    (application_id,), (version,) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version"))
    if application_id != records.APPLICATION_ID:
        raise InvalidRequest(f"journal: {path} is not a journal; pass the path of a journal")
    if version > records.FORMAT_VERSION:
        raise InvalidRequest(f"journal: {path} was written by a newer version of this library; read it with that version")


def _is_external(error: Exception) -> bool:
    """Return whether the cause of an error is outside the file, and may be temporary."""
    code = getattr(error, "sqlite_errorcode", None)  # the sqlite3 module's own errors, such as invalid UTF-8, have no code
    return code is not None and code & 0xFF in _EXTERNAL_CODES and code != sqlite3.SQLITE_IOERR_SHORT_READ


def read_error(path: Path, error: Exception) -> OutreachError:
    """Return the error for a journal that could not be read."""
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
        return InvalidRequest(f"journal: {path} is not a journal; pass the path of a journal")
    if _is_external(error):
        return JournalError(f"journal {path} cannot be read: {error}; fix the cause and try again")
    return DamagedJournalError(f"journal {path} is damaged: {error}; {remedy(path)}")


def empty_error(path: Path) -> InvalidRequest:
    """Return the error for an empty file."""
    return EmptyJournalError(f"journal: {path} is an empty file, not a journal; {remedy(path)}")


def remedy(path: Path) -> str:
    """Return the part of an error message that states the remedy for a damaged or empty journal."""
    return (
        'restore a copy (with its -wal file, if there is one), or resume with earlier="unknown" (on the command line: --resume'
        f" --earlier unknown), which renames {path.name} to {path.name}.damaged and starts over with every row counted as"
        " possibly sent"
    )


def _read_file_state(path: Path) -> _FileState | None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise JournalError(f"journal {path} cannot be read: {error.strerror}; fix the cause and try again") from error
    return status.st_ino, status.st_size, status.st_mtime_ns
