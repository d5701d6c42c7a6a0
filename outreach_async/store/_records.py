"""The identity and the report of a run, the stored form of outcomes, and queries of them, which detect damage."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias
from zlib import crc32

import attrs
import msgspec
from msgspec import MsgspecError

from outreach_async import errors
from outreach_async._core.arguments import masked_repr, require_types
from outreach_async._wire_words import ID_PREFIXES, UNAPPLIED_OUTCOMES, Outcome
from outreach_async.bulk._outcomes import (
    BulkReport,
    ContactOutcome,
    LedgerCounts,  # noqa: F401 - a name in inherited annotations
    Targeted,  # noqa: F401 - a name in inherited annotations
    add_counts,
    add_targets,
    build_outcome,
    is_superseded,
)
from outreach_async.bulk._rows import SpooledExclusion, decode_spooled
from outreach_async.errors import Excluded, InvalidRequest, JournalError, OutreachError
from outreach_async.models import CERTAIN_OUTCOMES, Target
from outreach_async.store._schema import TABLES

JournalState: TypeAlias = Literal["running", "finished", "suspended", "stopped", "interrupted"]

Earlier: TypeAlias = Literal["known", "unknown"]
"""Determines which rows of a resumed run may count as possibly sent. With `known`, only rows that are marked in the journal and
have no outcome may count. With `unknown`, all rows without an outcome count.

Example:
    ```python
    earlier: Earlier = "unknown"  # the journal of an earlier process is lost
    rows = [{"email": "ann@company.example"}]
    report = await client.contacts.create_many(rows, journal="run.db", earlier=earlier)
    print(report.outcomes["added"])  # -> 1
    ```
"""

OTHER_JOURNAL: Final = 'pass another journal, with earlier="unknown" if some of the rows may have been sent'
"""The remedy for a journal that cannot be used. In a new journal, no row counts as sent, so contacts that an earlier run created
would be reported as certainly `skipped`."""

OTHER_LEDGER: Final = (
    "move it away, with its files -wal and .last-run if there are any, and run once with max_age=0, which sends every row again"
)
"""The remedy for a ledger that cannot be used."""

END_STATES: Final = ("finished", "suspended", "stopped", "interrupted")


@attrs.frozen
class Identity:
    """The identity of a run.

    A run can be resumed only with a matching identity; see
    `require_resumable`.

    Attributes:
        workspace: Workspace id.
        options: Options that determine the requests, as JSON values:
            `duplicates`, `campaign`, `spool` and so on.
        source: Name of the input, such as the path of a file; reports show
            it. A resumed run may use another name.
        fingerprint: Fingerprint of the whole input, such as a file's
            digest; `None` if unknown.
        mapping: Field codes by column name, if the input has columns. A
            resumed run may pass only some of the columns.
        address: Address of the service, without user and password; `None`
            if unknown.

    Example:
        ```python
        print(Identity("space_1", {"duplicates": "skip"}).fingerprint)  # -> None
        ```
    """

    workspace: str
    options: Mapping[str, Any]
    source: str | None = None
    fingerprint: str | None = None
    mapping: Mapping[str, str] | None = None
    address: str | None = None

    def __attrs_post_init__(self) -> None:
        require_types(Identity, attrs.asdict(self, recurse=False))


@attrs.frozen
class MarkedWindow:
    """Consecutive rows of the input that are marked together before the first of them is sent."""

    first: int
    rows: int
    digest: bytes

    @property
    def end(self) -> int:
        return self.first + self.rows


@attrs.frozen(kw_only=True, repr=False)
class JournalReport(BulkReport):
    """The report of a run, read from its journal, as a `BulkReport`.

    The time between the processes does not count.

    Attributes:
        state: State in which the run ended; `running` if the run has not
            ended, or if its process was killed.
        marked: Number of rows that were marked as about to be sent. Rows
            after the last marked row were not sent.
        possibly_sent: Number of marked rows without an outcome.
        windows: Number of marked windows.
        events: Number of events by kind.
        workspace: Workspace id.
        source: Name of the input; `None` if unknown.
        fingerprint: Fingerprint of the whole input; `None` if unknown.
        mapping: Field codes by column name; `None` without columns.
        spooled: Number of rows of the input, if the journal stores all of
            them; otherwise `None`.

    Example:
        ```python
        await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db")
        report: JournalReport = Store("run.db").report()
        print(report.marked, report.windows, report.events)  # -> 1 1 {}
        ```
    """

    state: JournalState
    marked: int
    possibly_sent: int
    windows: int
    events: dict[str, int]
    workspace: str
    source: str | None
    fingerprint: str | None
    mapping: Mapping[str, str] | None = None
    spooled: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values: those of `BulkReport`, then the journal's own.

        Example:
            ```python
            await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db")
            print(Store("run.db").report().to_dict()["state"])  # -> finished
            ```
        """
        names = ("state", "marked", "possibly_sent", "windows", "events", "workspace", "source", "fingerprint")
        return {**super().to_dict(), **{name: getattr(self, name) for name in names}}


DECODING_ERRORS: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, MsgspecError)
"""Exceptions that decoding may raise if the content is damaged."""


class CorruptContentError(ValueError):
    """The content of a journal is inconsistent: it was damaged or changed after it was written."""


@contextmanager
def translate_errors(name: str) -> Iterator[None]:
    """Convert an `OSError` that the block raises into a JournalError that names the journal."""
    try:
        yield
    except OSError as error:
        raise JournalError(f"journal {name}: {error}; fix the cause and try again") from error


class DamagedJournalError(JournalError):
    """The journal is damaged. Any other JournalError may be temporary."""


class ForeignJournalError(InvalidRequest):
    """What is at the journal's place is not a journal."""


class EmptyJournalError(ForeignJournalError):
    """The file of the journal is empty."""


MESSAGE_LIMIT: Final = 500  # characters of an error's message; the rest is cut off

_SIGN_OFFSET: Final = 2**31
_encode: Final = msgspec.json.Encoder().encode
_split_array: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_ID_PREFIX: Final = ID_PREFIXES["contact"]
_LAST_DIGITS: Final = 12  # of an id that are stored in six bytes; the others, at most 14, take up to eight
_is_id: Final = re.compile(f"{_ID_PREFIX}[0-9a-f]{{12,26}}").fullmatch
_HALF: Final = 1 << 48
_TEXT_SHIFT: Final = 64 - 48  # leaves 48 bits
_ID_OFFSET: Final = 1 << 47  # SQLite stores signed integers of 48 bits in six bytes
_STORABLE: Final = re.compile(r"(?!\")[ -~]*")  # a NUL would end a string inside SQLite
_STATUSES: Final = tuple(Outcome)
_STATUS_NUMBERS: Final[dict[str, int]] = {status: number for number, status in enumerate(_STATUSES)}
_ERROR_CLASSES: Final = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, OutreachError)
}


_PLAIN: Final = 5
"""Number of the first columns of an outcome; nearly all have no values in the others."""
_REST: Final = [None] * 4


def encode_batch(
    outcomes: Sequence[ContactOutcome], targets: Mapping[Target, int], numbers: Iterable[int] | None = None
) -> list[tuple[str, str]]:
    """Return outcomes and their errors as changes: the names of statements, and JSON arrays of rows with their checksums.

    `numbers` has the numbers under which rows are recorded, if these are not their indexes.
    """
    # The number of the run's own target is 0.
    texts: dict[int, str] = {}
    plain, others = list[list[Any]](), list[list[Any]]()
    indexes = (outcome.index for outcome in outcomes) if numbers is None else numbers
    for outcome, index in zip(outcomes, indexes, strict=True):
        row = _encode_outcome(outcome, index, texts, targets)
        crc = crc32(_encode(row)) - _SIGN_OFFSET  # as `checksum` does
        if row[_PLAIN:] == _REST:
            plain.append([*row[:_PLAIN], crc])
        else:
            others.append([*row, crc])
    changes = {"errors": [*texts.items()], "plain outcomes": plain, "outcomes": others}
    return [(name, to_json(rows)) for name, rows in changes.items() if rows]


def sum_outcome(row: Sequence[Any]) -> list[Any]:
    """Return the columns of an outcome, of which the last may be missing, with their checksum."""
    return [*row, checksum([*row, *_REST] if len(row) == _PLAIN else row)]


def checksum(columns: Sequence[object]) -> int:
    """Return the checksum of a row's columns: a signed 32-bit integer, which SQLite stores in at most five bytes."""
    return crc32(_encode(columns)) - _SIGN_OFFSET


def require(condition: bool, message: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not condition:
        raise CorruptContentError(message)


def checked(rows: Iterable[Sequence[Any]], place: str) -> Iterator[list[Any]]:
    """Yield the columns of rows, each without its checksum, which is checked. In `place`, `{}` stands for the first column."""
    for *columns, crc in rows:
        if checksum(columns) != crc:
            raise CorruptContentError(f"checksum mismatch in {place.format(columns[0])}")
        yield columns


def require_checksums(rows: str, checksums: str) -> None:
    expected = msgspec.json.decode(checksums)
    # SQLite nearly always writes the same bytes as msgspec. Decoding, which takes most of the time, is then unnecessary.
    if [crc32(row) - _SIGN_OFFSET for row in _split_array(rows)] != expected:
        for columns, crc in zip(msgspec.json.decode(rows), expected, strict=True):
            require(checksum(columns) == crc, f"checksum mismatch in row {columns[0]}")


def decode_outcome(row: Sequence[Any], error: str | None, contact: object, target: Target) -> ContactOutcome:
    index, number, id_1, id_2, attempts, possible, error_digest, repeats, _ = row
    if error is not None or error_digest is not None:
        require(error is not None, f"the error of row {index} is missing")
        require(digest(error or "") == error_digest, f"checksum mismatch in the error of row {index}")
    status = _decode_status(number)
    if possible is None:
        statuses = CERTAIN_OUTCOMES.get(status) or frozenset({status})
    elif isinstance(possible, str):
        statuses = frozenset(map(Outcome, msgspec.json.decode(possible)))
    else:
        statuses = frozenset(each for bit, each in enumerate(_STATUSES) if possible >> bit & 1)
    decoded = None if error is None else _decode_error(error)
    return build_outcome(index, contact, status, decode_id(id_1, id_2), statuses, attempts, decoded, repeats, target)


StoredId: TypeAlias = tuple[int | str | None, int | None]


def encode_id(id_: str | None) -> StoredId:
    """Return the two columns of a contact's id: two integers that have its digits, or another id as JSON with its digest."""
    if id_ is None:
        return None, None
    if _is_id(id_):
        # The 1 keeps the zeros that follow it.
        return int(f"1{id_[len(_ID_PREFIX) : -_LAST_DIGITS]}", 16), int(id_[-_LAST_DIGITS:], 16) - _ID_OFFSET
    text = to_json(id_)
    return text, digest(text) >> _TEXT_SHIFT


def decode_id(id_1: int | str | None, id_2: int | None) -> str | None:
    if isinstance(id_1, str):
        require(digest(id_1) >> _TEXT_SHIFT == id_2, "checksum mismatch in an id")
        return msgspec.json.decode(id_1, type=str)
    if id_1 is None or id_2 is None:
        return None
    return f"{_ID_PREFIX}{id_1 * _HALF + id_2 + _ID_OFFSET:x}".replace("_1", "_", 1)


def _decode_error(text: str) -> OutreachError:
    name, message, operation, status_code, attempts, maybe_sent, maybe_applied, *details = msgspec.json.decode(text)
    # A newer version of the library may have stored a class that this version does not have.
    kind = _ERROR_CLASSES.get(name, OutreachError)
    error = kind(message, operation=operation, status_code=status_code, attempts=attempts, maybe_sent=maybe_sent)
    error.maybe_applied = maybe_applied
    if isinstance(error, Excluded) and details:
        (error.kind,) = details
    return error


def _decode_status(stored: int | str) -> Outcome:
    return _STATUSES[stored] if isinstance(stored, int) else Outcome(msgspec.json.decode(stored))


def to_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def to_storable(text: str) -> str:
    """Return a string in a form that SQLite stores without loss. Different strings have different stored forms."""
    return text if _STORABLE.fullmatch(text) else to_json(text)


def _encode_outcome(outcome: ContactOutcome, index: int, texts: dict[int, str], targets: Mapping[Target, int]) -> list[Any]:
    # A status is stored as a number, the possible statuses as bits, an id as two numbers, and an error as the digest of a string
    # that is stored once. A value that has no short form is stored as JSON.
    status, statuses, possible = outcome.status, outcome.possible, None
    number, error, error_digest = _STATUS_NUMBERS.get(status), outcome.error, None
    if statuses is not CERTAIN_OUTCOMES.get(status) and statuses != {status}:
        is_known = statuses <= _STATUS_NUMBERS.keys()
        possible = sum(1 << _STATUS_NUMBERS[status] for status in statuses) if is_known else to_json(sorted(statuses))
    if error is not None:
        kind = next(kind for kind in type(error).__mro__ if kind in _ERROR_CLASSES.values())
        message = str(error)[:MESSAGE_LIMIT].encode(errors="backslashreplace").decode()
        attributes = [error.operation, error.status_code, error.attempts, error.maybe_sent, error.maybe_applied]
        if isinstance(error, Excluded) and error.kind != "consent":
            attributes.append(error.kind)
        text = to_json([kind.__name__, message, *attributes])
        error_digest = digest(text)
        texts[error_digest] = text
    return [
        index,
        to_json(status) if number is None else number,
        *encode_id(outcome.id),
        outcome.attempts,
        possible,
        error_digest,
        outcome.repeats,
        targets[outcome.target] or None,
    ]


def digest(text: str) -> int:
    """Return a signed 64-bit digest of a string. Errors are identified by digest, so their strings need not stay in memory."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), signed=True)


def encode_totals(totals: BulkReport) -> dict[str, Any]:
    """Return the totals of a run as JSON values, as `BulkReport.to_dict` does, but without rounding the duration."""
    return {**totals.to_dict(), "seconds": totals.seconds}


def decode_totals(stored: Mapping[str, Any]) -> BulkReport:
    outcomes = add_counts({Outcome(name): count for name, count in stored["outcomes"].items()})
    require(sum(outcomes.values()) == stored["rows"], "the totals do not add up")
    return BulkReport(stored["rows"], outcomes, stored["uncertain"], stored["seconds"], stored["repeats"])


def add_outcomes(totals: BulkReport, outcomes: Iterable[ContactOutcome], seconds: float) -> BulkReport:
    """Return the totals of a run with further outcomes added; `seconds` is the duration of the run so far."""
    outcomes = [*outcomes]
    sums = Counter(totals.outcomes)
    sums.update(map(attrgetter("status"), outcomes))
    certain = [*map(len, map(attrgetter("possible"), outcomes))].count(1)
    repeated = (outcome for outcome in outcomes if outcome.repeats is not None)
    superseded = sum(map(is_superseded, repeated))
    uncertain = totals.uncertain + len(outcomes) - certain
    return BulkReport(sums.total(), dict(sums), uncertain, seconds, totals.repeats + superseded)


def subtract_outcomes(totals: BulkReport, outcomes: Iterable[ContactOutcome]) -> BulkReport:
    """Return the totals of a run without some of its outcomes, none of which is superseded."""
    removed = add_outcomes(BulkReport(0, {}, 0, 0.0), outcomes, 0.0)
    sums = {outcome: count - removed.outcomes.get(outcome, 0) for outcome, count in totals.outcomes.items()}
    return BulkReport(totals.rows - removed.rows, sums, totals.uncertain - removed.uncertain, totals.seconds, totals.repeats)


def count_targets(db: sqlite3.Connection, targets: Mapping[int, Target], totals: BulkReport) -> dict[Target, dict[Outcome, int]]:
    """Return the number of recorded rows for each target and outcome. They are counted only if there are several targets."""
    if len(targets) == 1:
        return {targets[0]: totals.outcomes} if totals.rows else {}
    found: dict[Target, dict[Outcome, int]] = {}
    for number, status, rows in db.execute("SELECT coalesce(target, 0), status, count(*) FROM outcome GROUP BY 1, 2"):
        found.setdefault(targets[number], {})[_decode_status(status)] = rows
    return found


def encode_identity(identity: Identity) -> dict[str, Any]:
    """Return an identity as JSON values. Reading the identity from a journal returns equal values."""
    values = attrs.asdict(identity, recurse=False)  # in this order, which is part of the format
    encoded = msgspec.json.encode(values, enc_hook=_to_plain)
    return msgspec.json.decode(encoded, type=dict[str, Any])


def _to_plain(value: Any) -> Any:
    """Return a string or a mapping of a caller's own class as one of Python."""
    return str.__str__(value) if isinstance(value, str) else dict(value)


_CORRECTABLE: Final = frozenset({"base_url", "workspace", "campaign", "duplicates", "strict_validation"})
"""What a resumed run may correct if the service has applied no row of it: what its requests contain, and where they go."""


def has_applied_nothing(metadata: Mapping[str, Any]) -> bool:
    """Return whether it is certain that the service has applied no row of a run."""
    totals = decode_totals(metadata["totals"])
    unapplied = sum(totals.outcomes[outcome] for outcome in UNAPPLIED_OUTCOMES)
    is_known = metadata["earlier"] == "known" and not metadata["possibly_sent"]
    is_settled = is_known and metadata["state"] in {*END_STATES} - {"finished"}
    return is_settled and totals.uncertain == 0 and totals.rows == unapplied


def correct_identity(recorded: Mapping[str, Any], identity: Identity) -> dict[str, Any]:
    """Return the recorded identity of a run with the destination and the options of the process that resumes it."""
    current = encode_identity(identity)
    options = {**recorded["options"], **{name: value for name, value in current["options"].items() if name in _CORRECTABLE}}
    return {**recorded, "workspace": current["workspace"], "address": current["address"], "options": options}


def require_same_run(
    path: str, identity: Identity, recorded: Mapping[str, Any], correctable: Collection[str] = frozenset()
) -> None:
    if changes := list(_describe_changes(recorded, encode_identity(identity), correctable)):
        raise InvalidRequest(
            f"journal: {path} belongs to another run: {'; '.join(changes)};"
            f" resume with the original input and options, or {OTHER_JOURNAL}"
        )


def require_resumable(path: str, identity: Identity, metadata: Mapping[str, Any]) -> None:
    """Check that a journal belongs to the run. The options may have been corrected if the service has applied no row."""
    correctable = _CORRECTABLE if has_applied_nothing(metadata) else frozenset[str]()
    require_same_run(path, identity, metadata["identity"], correctable)


def _describe_changes(recorded: Mapping[str, Any], current: Mapping[str, Any], correctable: Collection[str]) -> Iterator[str]:
    before, now = (
        {"base_url": each["address"], "workspace": each["workspace"], **dict(sorted(each["options"].items()))}
        for each in (recorded, current)
    )
    for name in before | now:
        if before.get(name) != now.get(name) and name not in correctable:
            yield _describe_change(name, before.get(name), now.get(name))
    if None not in (recorded["fingerprint"], current["fingerprint"]) and recorded["fingerprint"] != current["fingerprint"]:
        yield "the input has changed since the run began (its fingerprint differs)"
    if (fields := recorded["mapping"]) is not None:
        for column, code in (current["mapping"] or {}).items():
            if fields.get(column) != code:
                change = _describe_change(f"the field of column {masked_repr(column)}", fields.get(column), code)
                yield f"the input changed: {change}"


def _describe_change(name: str, *values: object) -> str:
    before, now = (masked_repr(value) if isinstance(value, str) else to_json(value) for value in values)
    return f"{name} was {before} and is now {now}"


# Queries are kept short, because a query can prevent the writer from checkpointing its write-ahead log.
_PAGE_SIZE: Final = 2_000  # rows per query

_FROM_PAGE: Final = (
    "FROM (SELECT * FROM outcome WHERE seq >= ? ORDER BY seq LIMIT ?) AS page LEFT JOIN error ON error.digest = page.error"
)
OUTCOME_COLUMNS: Final = ("seq", "status", "id_1", "id_2", "attempts", "possible", "error", "repeats", "target")
_COLUMNS: Final = ", ".join(f"page.{name}" for name in OUTCOME_COLUMNS)
_PAGE: Final = f"json_group_array(json_array({_COLUMNS})), json_group_array(page.crc)"
_SELECT_CHECKSUMS: Final = f"SELECT {_PAGE} FROM outcome AS page WHERE seq >= ? AND seq < ?"  # noqa: S608 - names of this module
_SELECT_OUTCOMES: Final = f"SELECT {_PAGE}, json_group_array(error.text), '[]' {_FROM_PAGE}"
_SELECT_SPOOLED: Final = f"""
    SELECT {_PAGE}, json_group_array(error.text), json_group_array(json_array(spool.key, spool.payload, spool.crc)) {_FROM_PAGE}
    LEFT JOIN spool ON spool.seq = page.seq
"""
_COUNT_LOST_ERRORS: Final = "SELECT count(*) FROM outcome WHERE error IS NOT NULL AND error NOT IN (SELECT digest FROM error)"
_REQUIRED_NAMES: Final = frozenset(
    {"earlier", "events", "identity", "log", "marked", "possibly_sent", "spooled", "state", "totals"}
)


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


def require_outcomes(db: sqlite3.Connection, marked: int) -> None:
    """Check the outcomes of the marked rows against their checksums."""
    for first in range(0, marked, _PAGE_SIZE):
        require_checksums(*db.execute(_SELECT_CHECKSUMS, (first, first + _PAGE_SIZE)).fetchone())


def require_results(db: sqlite3.Connection, metadata: Mapping[str, Any]) -> None:
    """Check that no outcome is missing or changed, nor its error."""
    require_structure(db, decode_totals(metadata["totals"]).rows)
    (last,) = db.execute("SELECT coalesce(max(seq), -1) FROM outcome").fetchone()
    require(last < metadata["marked"], f"row {last} has an outcome, but was not marked as about to be sent")
    require_outcomes(db, metadata["marked"])
    for stored, text in db.execute("SELECT digest, text FROM error"):
        require(digest(text) == stored, "checksum mismatch in a stored error")
    (lost,) = db.execute(_COUNT_LOST_ERRORS).fetchone()
    require(not lost, f"the errors of {lost} rows are missing")


def require_intact(db: sqlite3.Connection) -> dict[str, Any]:
    """Check everything that a resumed run relies on, and return the run's metadata."""
    # Each row is checked against its checksum, and the tables against the totals that were committed with them. If a log is lost
    # that would have completed a half commit, these checks find the half commit.
    metadata = read_metadata(db)
    require_windows(db, metadata["marked"])
    require_results(db, metadata)
    read_events(db, metadata["events"])
    spooled = sum(1 for _ in checked(db.execute("SELECT seq, key, payload, crc FROM spool ORDER BY seq"), "row {}"))
    require(metadata["spooled"] in (None, spooled), f"expected {metadata['spooled']} spooled rows, found {spooled}")
    return metadata


def read_targets(db: sqlite3.Connection) -> dict[int, Target]:
    """Return the targets of the run by number; the number of the run's own target is 0."""
    identity = read_metadata(db)["identity"]
    targets = {0: Target(identity["workspace"], identity["options"].get("campaign"))}
    return targets | read_recorded_targets(db)


def read_recorded_targets(db: sqlite3.Connection) -> dict[int, Target]:
    """Return the recorded targets by number: of a journal, those that rows name; of a ledger, those of all runs."""
    rows = checked(db.execute("SELECT number, workspace, campaign, crc FROM target ORDER BY number"), "a target")
    return {number: Target(*target) for number, *target in rows}


def read_names(metadata: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Return the ids of the campaigns that rows of the run have named, by workspace and name."""
    return {(workspace, name): campaign for workspace, name, campaign in metadata.get("names", ())}


def read_page(db: sqlite3.Connection, first: int) -> list[ContactOutcome]:
    """Return a page of outcomes that starts at row `first`. For the first page, also check that no outcome is missing."""
    metadata, targets = read_metadata(db), read_targets(db)
    if first == 0:
        require_structure(db, decode_totals(metadata["totals"]).rows)
    spooled = metadata["spooled"] is not None
    page = db.execute(_SELECT_SPOOLED if spooled else _SELECT_OUTCOMES, (first, _PAGE_SIZE)).fetchone()
    require_checksums(page[0], page[1])
    rows, errors, spool = (msgspec.json.decode(page[column]) for column in (0, 2, 3))
    contacts: list[dict[str, Any] | None] = [None] * len(rows)
    if spooled:
        contacts = [*_decode_spooled([row[0], *columns] for row, columns in zip(rows, spool, strict=True))]
    outcomes = [
        decode_outcome(row, error, contact, targets[row[-1] or 0])
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
    if metadata["state"] == "finished":  # during a run, a long query would prevent checkpoints
        require_results(db, metadata)
    marked, identity, totals = metadata["marked"], metadata["identity"], decode_totals(metadata["totals"])
    found = count_targets(db, read_targets(db), totals)
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
