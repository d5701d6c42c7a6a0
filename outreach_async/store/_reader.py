"""Read a journal at any time and from any process. The content of its files is not changed, and damage is detected."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import msgspec

from outreach_async._files.sqlite import SqliteFile
from outreach_async.bulk._outcomes import ContactOutcome, add_targets
from outreach_async.bulk._rows import SpooledExclusion, decode_spooled
from outreach_async.errors import InvalidRequest, JournalError, OutreachError
from outreach_async.models import Target
from outreach_async.store import _records as records
from outreach_async.store._records import DECODING_ERRORS, OTHER_LEDGER, JournalReport, checked, require
from outreach_async.store._schema import KINDS, TABLES, Kind, classify, classify_header

T = TypeVar("T")

# Queries are kept short, because a query can prevent the writer from checkpointing its write-ahead log.
_PAGE_SIZE: Final = 2_000  # rows per query

_FROM_PAGE: Final = (
    "FROM (SELECT * FROM outcome WHERE seq >= ? ORDER BY seq LIMIT ?) AS page LEFT JOIN error ON error.digest = page.error"
)
_COLUMNS: Final = ", ".join(
    f"page.{name}" for name in ("seq", "status", "id_1", "id_2", "attempts", "possible", "error", "repeats", "target")
)
_PAGE: Final = f"json_group_array(json_array({_COLUMNS})), json_group_array(page.crc)"
SELECT_CHECKSUMS: Final = f"SELECT {_PAGE} FROM outcome AS page WHERE seq >= ? AND seq < ?"  # noqa: S608 - names of this module
_SELECT_OUTCOMES: Final = f"SELECT {_PAGE}, json_group_array(error.text), '[]' {_FROM_PAGE}"
_SELECT_SPOOLED: Final = f"""
    SELECT {_PAGE}, json_group_array(error.text), json_group_array(json_array(spool.key, spool.payload, spool.crc)) {_FROM_PAGE}
    LEFT JOIN spool ON spool.seq = page.seq
"""
_COUNT_LOST_ERRORS: Final = "SELECT count(*) FROM outcome WHERE error IS NOT NULL AND error NOT IN (SELECT digest FROM error)"
_REQUIRED_NAMES: Final = frozenset(
    {"earlier", "events", "identity", "log", "marked", "possibly_sent", "spooled", "state", "totals"}
)

_LOCK_TIMEOUT: Final = 10.0
"""Seconds to wait for a lock. Other readers hold locks while they recover a log, and during their queries."""
_MAX_ATTEMPTS: Final = 100
"""Maximum number of times that a query is run. A query is repeated if the files changed while it ran."""
# If the files changed during a failed query, a writer may be the cause, and the count starts again.
_MAX_FAILURES: Final = 3  # of a query in a row, before its error is raised
_WITH_LOG: Final = "mode=ro"
"""URI parameters to open a journal with its log. SQLite needs the index of the log, and may have to create it."""
_WITHOUT_LOG: Final = "mode=ro&immutable=1"  # URI parameters


def read_metadata(db: sqlite3.Connection) -> dict[str, Any]:
    rows = db.execute("SELECT name, value, crc FROM meta")
    metadata = {name: msgspec.json.decode(value) for name, value in checked(rows, "the run's metadata")}
    missing = sorted(_REQUIRED_NAMES - metadata.keys())
    require(not missing, f"metadata of the run is missing: {', '.join(missing)}")
    return metadata


def require_windows(db: sqlite3.Connection, marked: int) -> int:
    """Check that the windows contain all marked rows, and return the number of windows."""
    count = end = 0
    windows = db.execute("SELECT first, rows, digest, crc FROM window ORDER BY first")
    for first, rows, _ in checked(windows, "the window of rows starting at row {}"):
        require(first == end, f"the window of rows starting at row {end} is missing")
        count, end = count + 1, first + rows
    require(end == marked, f"expected {marked} rows in the windows of marked rows, found {end}")
    return count


def read_events(db: sqlite3.Connection, count: int) -> list[tuple[float, str, dict[str, Any]]]:
    """Return all events as (Unix time, kind, details); `count` is the expected number of events."""
    rows = [*checked(db.execute("SELECT number, at, kind, data, crc FROM event ORDER BY number"), "an event")]
    require([row[0] for row in rows] == [*range(1, count + 1)], f"expected {count} events, found {len(rows)}")
    return [(at, kind, msgspec.json.decode(data)) for _, at, kind, data in rows]


def require_structure(db: sqlite3.Connection, rows: int) -> None:
    """Check the pages of the file, its tables, and the number of outcomes."""
    (result,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    require(result == "ok", result)
    tables = {sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE type = 'table'")}
    require(tables == {*TABLES}, "its tables are not those of a journal")
    (count,) = db.execute("SELECT count(*) FROM outcome").fetchone()
    require(count == rows, f"expected {rows} outcomes, found {count}")


def require_intact(db: sqlite3.Connection) -> dict[str, Any]:
    """Check everything that a resumed run relies on, and return the run's metadata."""
    # Each row is checked against its checksum, and the tables against the totals that were committed with them. If a log is lost
    # that would have completed a half commit, these checks find the half commit. For a finished run, only the metadata and the
    # windows of marked rows are checked, because no row is sent again.
    metadata = read_metadata(db)
    require_windows(db, metadata["marked"])
    totals = records.decode_totals(metadata["totals"])
    if metadata["state"] != "finished":
        require_structure(db, totals.rows)
        read_events(db, metadata["events"])
        (last,) = db.execute("SELECT coalesce(max(seq), -1) FROM outcome").fetchone()
        require(last < metadata["marked"], f"row {last} has an outcome, but was not marked as about to be sent")
        for first in range(0, metadata["marked"], _PAGE_SIZE):
            records.require_checksums(*db.execute(SELECT_CHECKSUMS, (first, first + _PAGE_SIZE)).fetchone())
        for digest, text in db.execute("SELECT digest, text FROM error"):
            require(records.digest(text) == digest, "checksum mismatch in a stored error")
        (lost,) = db.execute(_COUNT_LOST_ERRORS).fetchone()
        require(not lost, f"the errors of {lost} rows are missing")
        spooled = sum(1 for _ in checked(db.execute("SELECT seq, key, payload, crc FROM spool ORDER BY seq"), "row {}"))
        require(metadata["spooled"] in (None, spooled), f"expected {metadata['spooled']} spooled rows, found {spooled}")
    return metadata


def read_targets(db: sqlite3.Connection) -> dict[int, Target]:
    """Return the targets of the run by number; the number of the run's own target is 0."""
    identity = read_metadata(db)["identity"]
    targets = {0: Target(identity["workspace"], identity["options"].get("campaign"))}
    for number, *target in checked(db.execute("SELECT number, workspace, campaign, crc FROM target"), "a target"):
        targets[number] = Target(*target)
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
    contacts: list[dict[str, Any] | None] = [None] * len(rows)
    if spooled:
        contacts = [*_decode_spooled([row[0], *columns] for row, columns in zip(rows, spool, strict=True))]
    outcomes = [
        records.decode_outcome(row, error, contact, targets[row[-1] or 0])
        for row, error, contact in zip(rows, errors, contacts, strict=True)
    ]
    # The aggregate functions of SQLite promise no order.
    return sorted(outcomes, key=attrgetter("index"))


def _decode_spooled(rows: Iterable[Sequence[Any]]) -> Iterator[dict[str, Any] | None]:
    """Yield the contacts of spooled rows, of which only the e-mail if the row may not be sent; `None` for an invalid row."""
    for _, _, payload in checked(rows, "spooled row {}"):
        contact, target = decode_spooled(payload)
        contact = contact.contact if isinstance(contact, SpooledExclusion) else contact
        yield {**contact, **(target._asdict() if target else {})} if isinstance(contact, dict) else None


def read_report(db: sqlite3.Connection) -> JournalReport:
    metadata = read_metadata(db)
    marked, identity, totals = metadata["marked"], metadata["identity"], records.decode_totals(metadata["totals"])
    found = records.count_targets(db, read_targets(db), totals)
    return JournalReport(
        **{**attrs.asdict(totals, recurse=False), "targets": add_targets(found)},
        state=metadata["state"],
        marked=marked,
        possibly_sent=marked - totals.rows,
        windows=require_windows(db, marked),
        events=dict(sorted(Counter(kind for _, kind, _ in read_events(db, metadata["events"])).items())),
        **{name: identity[name] for name in ("workspace", "source", "fingerprint", "mapping")},
        spooled=metadata["spooled"],
    )


RunQuery: TypeAlias = Callable[[Callable[[sqlite3.Connection], Any]], Any]
"""A function that runs a query on a journal and returns the result of the query."""


class DamagedJournalError(JournalError):
    """The journal is damaged. Any other JournalError may be temporary."""


class ForeignJournalError(InvalidRequest):
    """What is at the journal's place is not a journal."""


class EmptyJournalError(ForeignJournalError):
    """The file of the journal is empty."""


def query_journal(path: Path, query: Callable[[sqlite3.Connection], T], kind: Kind = "journal") -> tuple[T, bool]:
    """Run a query on a journal and its log. The log is ignored if it is older than the file or belongs to another run."""
    # A log shows that a writer is active or was killed. SQLite then locks the file and the log while it reads them, and repairs
    # or creates the index of the log. A file without a log is read without locks, and the query runs again if the file changes.
    # So a result counts if SQLite's locks protected it, or if the files are the same before and after. A failure counts only if
    # the files stayed the same several times: otherwise a writer may have changed them meanwhile.
    # Only SQLite opens the file and the index. If this module opened and closed them itself, the operating system would release
    # the locks that a writer in the same process holds.
    failures = 0
    for _ in range(_MAX_ATTEMPTS):
        (size, _, _), (log_size, _, _) = before = _read_file_states(path)
        if size is None:
            raise InvalidRequest(f"{kind}: {path} does not exist; pass the path of a {kind}")
        if size == 0:
            raise empty_error(path)
        try:
            stale = bool(log_size) and _is_stale(path, kind)
            uses_log = log_size and not stale
            result = _run_query(path, _WITH_LOG if uses_log else _WITHOUT_LOG, query, kind)
        except OutreachError:
            raise
        except (sqlite3.Error, *DECODING_ERRORS) as error:
            failures = failures + 1 if _read_file_states(path) == before else 0
            if failures == _MAX_FAILURES:
                raise read_error(path, error, kind) from error
        else:
            if uses_log or _read_file_states(path) == before:
                return result, stale
            failures = 0
    raise JournalError(f"journal {path} changes faster than it can be read; try again")


def _run_query(path: Path, mode: str, query: Callable[[sqlite3.Connection], T], kind: Kind) -> T:
    with closing(connect(path, mode)) as db:
        (application_id,), (version,) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version"))
        require_kind(path, classify(application_id, version), kind, f"pass the path of a {kind}")
        db.execute("BEGIN")
        return query(db)


def require_kind(path: str | Path, found: str, kind: Kind, remedy: str) -> None:
    """Check that a file is a store of the expected kind and of this version."""
    if found == "newer":
        raise InvalidRequest(f"{kind}: {path} was written by a newer version of this library; use that version")
    if found == "older":
        raise _older_error(path, kind, remedy)
    if found == "foreign":
        raise ForeignJournalError(f"{kind}: {path} is not a {kind}; {remedy}")
    if found != kind:
        raise ForeignJournalError(f"{kind}: {path} is a {found}, not a {kind}; pass it as {found}=, or {remedy}")


def _older_error(path: str | Path, kind: Kind, remedy: str) -> InvalidRequest:
    use = "finish its run with that version" if kind == "journal" else "use that version"
    return InvalidRequest(f"{kind}: {path} was written by an older version of this library; {use}, or {remedy}")


def read_kind(path: Path) -> Kind | None:
    """Return which kind of store a file is, of any version; `None` for another file, or none."""
    file = SqliteFile(path, timeout=_LOCK_TIMEOUT)
    if (found := file.application_id()) is not None:
        return KINDS.get(found)
    return "ledger" if classify_header(file.read_header()) == "older" else None


def connect(path: str | Path, mode: str) -> sqlite3.Connection:
    return SqliteFile(Path(path), timeout=_LOCK_TIMEOUT).connect(mode)


def _is_stale(path: Path, kind: Kind) -> bool:
    """Return whether a log is older than the file, or belongs to another run."""
    # SQLite would apply an old log to a newer file. The file contains each commit as soon as the call that made the commit
    # returns, so an old log can be ignored. Only after a kill during the copying of a commit does the log complete the file.
    # The file is read before the log: during a run, the log is never behind an earlier state of the file.
    try:
        in_file = _run_query(path, _WITHOUT_LOG, read_metadata, kind)["log"]
    except (sqlite3.Error, *DECODING_ERRORS):
        # A power failure may have torn a page while the log was copied into the file. The log still has the whole page.
        return False
    try:
        in_log = _run_query(path, _WITH_LOG, read_metadata, kind)["log"]
    except (OutreachError, sqlite3.Error, *DECODING_ERRORS) as error:
        if SqliteFile.cause_of(error) != "inside":
            raise
        return True  # the file is readable alone, so the log is not from its last commit: that log would complete the file
    return bool(in_log["run"] != in_file["run"] or in_log["commits"] < in_file["commits"])


def read_error(path: Path, error: Exception, kind: Kind = "journal") -> OutreachError:
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
        if kind == "ledger" and read_kind(path) == "ledger":
            return _older_error(path, kind, OTHER_LEDGER)
        return ForeignJournalError(f"{kind}: {path} is not a {kind}; pass the path of a {kind}")
    if SqliteFile.cause_of(error) != "inside":
        return JournalError(f"journal {path} cannot be read: {error}; fix the cause and try again")
    return DamagedJournalError(f"journal {path} is damaged: {error}; {remedy(path)}")


def empty_error(path: Path) -> InvalidRequest:
    return EmptyJournalError(f"journal: {path} is an empty file, not a journal; {remedy(path)}")


def remedy(path: Path) -> str:
    """Return the part of an error message that states the remedy for a damaged or empty journal."""
    return (
        'restore a copy (with its -wal file, if there is one), or resume with earlier="unknown" (on the command line: --resume'
        f" --earlier unknown), which renames {path.name} to {path.name}.damaged and starts over with every row counted as"
        " possibly sent"
    )


def _read_file_states(path: Path) -> list[tuple[int | None, int, int]]:
    """Return size, inode and time of change of the file and of its log, to detect changes by a writer; no size if missing."""
    states = list[tuple[int | None, int, int]]()
    for name in path, Path(f"{path}-wal"):
        try:
            status = name.stat()
            states.append((status.st_size, status.st_ino, status.st_mtime_ns))
        except (FileNotFoundError, NotADirectoryError):
            states.append((None, 0, 0))
        except OSError as error:
            raise JournalError(f"journal {name} cannot be read: {error.strerror}; fix the cause and try again") from error
    return states
