"""Start a run with a ledger, and apply the journal of a run to the ledger. Synchronous."""

from __future__ import annotations

import math
import sqlite3
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from secrets import token_bytes
from typing import Any, Final

import attrs
import msgspec

from outreach_async._wire_words import SERVICE_OUTCOMES, Outcome
from outreach_async.bulk._rows import PossiblySent
from outreach_async.errors import InvalidRequest, JournalError, OutreachError
from outreach_async.models import RUN_TARGET, Target
from outreach_async.store.journal import Identity, Journal, JournalWriter, ObjectJournal
from outreach_async.store.journal import _records as records
from outreach_async.store.journal._file_journal import JournalInUseError
from outreach_async.store.journal._object_journal import HEARTBEAT_INTERVAL, TakenOverError
from outreach_async.store.journal._reader import (
    SELECT_CHECKSUMS,
    DamagedJournalError,
    EmptyJournalError,
    ForeignJournalError,
    JournalExistsError,
    RunQuery,
    read_metadata,
    read_targets,
)
from outreach_async.store.journal._store import open_snapshot
from outreach_async.store.ledger._entries import LONGEST_DOUBT, AppliedRun, Effect, Generation, SentRow, apply
from outreach_async.store.ledger._stores import LedgerStore

_ROW: Final = struct.Struct("<QQI")
"""A row in a marked window of a run with a ledger: its key, its digest, and the number of its target in the journal; 0 for the
run's own. They take the place of the window's digest."""
_PAGE: Final = 8
"""Number of windows that are read from a journal at a time."""
_MAX_ATTEMPTS: Final = 20
_ALLOWANCE: Final = 60.0
"""Seconds for what is unknown: how long the service takes for a request that has timed out, and how much clocks differ."""
SEND_ALL: Final = "max_age=0, which sends every row again"
_RUN_AGAIN: Final = "fix the cause and run again"
_MOVE_AWAY: Final = f"move it away (with its -wal file, if there is one) and run once with {SEND_ALL}"
_RESTORE: Final = f"restore it, or {_MOVE_AWAY}"
_RESTORE_BOTH: Final = f"restore the ledger and journals that belong together, or {_MOVE_AWAY}"

encode_row: Final = _ROW.pack


@attrs.define
class LedgerRun:
    """A run that has the ledger for itself until `close` is called: its entries, and the writer of its journal."""

    store: LedgerStore
    entries: Generation
    journal: Journal | ObjectJournal
    writer: JournalWriter
    wall: Callable[[], float]

    def apply(
        self, possibly_sent: PossiblySent, counts: Mapping[str, int], seen: bytearray | None, targets: Collection[Target]
    ) -> int | None:
        """Apply the run, which has recorded how it ended, to the ledger. Return the number of entries that are gone."""
        # `targets` are those of the input, and `seen` says for each entry whether the input has it, if all of it was read.
        with open_snapshot(self.journal) as run_query:
            metadata = run_query(read_metadata)
            sent = {name: count for name, count in metadata["totals"]["outcomes"].items() if count}
            options, recorded = metadata["identity"]["options"], run_query(read_targets)
            numbers = dict(self.entries.targets)
            for target in (*recorded.values(), *targets):  # the run's own target is recorded as the first one
                numbers.setdefault(target, max(numbers.values(), default=0) + 1)
            translated = {at: numbers[target] for at, target in recorded.items()}
            named = {numbers[target]: target for target in (*recorded.values(), *targets)}
            compared = [numbers[target] for target in targets]
            request = {name: options[name] for name in ("duplicates", "strict_validation")}
            # A run that was taken over starts attempts until its heartbeat is due. Each may arrive until its timeout, and later.
            doubt = HEARTBEAT_INTERVAL + (options.get("timeout") or math.inf) + _ALLOWANCE
            settles_at = self.wall() + min(doubt, LONGEST_DOUBT)
            fixed = options["at"], {**sent, **counts}, named, metadata["marked"]
            run = AppliedRun(*fixed, seen, compared, request, options["repeats"], settles_at)
            try:
                gone = apply(self.entries, self.store.draft, run, _sent_rows(run_query, metadata, possibly_sent, translated))
            except BaseException:
                self.store.draft.unlink(missing_ok=True)
                raise
        # If another machine has taken over the journal and has applied it meanwhile, its generation has the rows of this run.
        self.store.publish(self.entries.metadata.generation + 1)
        return gone

    def close(self) -> None:
        with ExitStack() as stack:  # each is closed, even if another one fails
            stack.callback(self.writer.close)
            stack.callback(self.store.close)
            stack.callback(self.entries.close)


def start(store: LedgerStore, identity: Identity, now: float, wall: Callable[[], float]) -> LedgerRun:
    """Apply the journal of a run that was not applied, if there is one. Then start a new run, at the Unix time `now`."""
    # Another process may apply its run after this one has loaded the generation. Once this process holds the journal, no other
    # can publish the next generation, so the check that the generation is current comes after that. If it fails, start again.
    for _ in range(_MAX_ATTEMPTS):
        with ExitStack() as stack, translate_errors(store.name):
            while (path := store.load()) is None:
                store.create(identity.address, token_bytes(32))
            opened = Generation(path)
            stack.callback(opened.close)
            recorded, number = opened.metadata.address, opened.metadata.generation + 1
            if recorded != identity.address:
                raise InvalidRequest(
                    f"ledger: {store.name} belongs to the service at {recorded}, not to that at {identity.address};"
                    " pass a ledger of its own for each service"
                )
            if (last := store.last_journal() or 0) > number:
                raise _not_newest_error(store.name, last)
            journal = store.journal(number)
            if journal.exists():
                _apply_earlier(store, opened, journal, wall)
                continue
            started = {"ledger": opened.name, "at": now}
            writer = journal.writer(attrs.evolve(identity, options={**identity.options, **started}), resume=False)
            stack.callback(writer.close)
            if not store.is_current():  # another process has applied its run since the generation was loaded
                continue
            store.clean(opened.metadata.generation)
            stack.pop_all()
            return LedgerRun(store, opened, journal, writer, wall)
    raise JournalError(f"ledger {store.name}: other runs change the ledger all the time; run again when they have ended")


def _not_newest_error(name: str, number: int) -> InvalidRequest:
    return InvalidRequest(
        f"ledger: {name} is older than its last run, which has the journal {number}, or is another ledger; restore the newest"
        f" ledger, or move the journals of its runs away and run once with {SEND_ALL}"
    )


def _apply_earlier(store: LedgerStore, opened: Generation, journal: Journal | ObjectJournal, wall: Callable[[], float]) -> None:
    """Apply the run in a journal, unless its process is still running. A run in an object store is taken over."""
    with open_snapshot(journal) as run_query:
        recorded = run_query(read_metadata)["identity"]
    if recorded["options"].get("ledger") != opened.name:
        place = journal.path if isinstance(journal, Journal) else journal.url
        raise ForeignJournalError(f"journal: {place} is not that of a run with this ledger; {_RESTORE_BOTH}")
    writer = journal.writer(Identity(**recorded), resume=True)
    try:
        if store.is_current():
            LedgerRun(store, opened, journal, writer, wall).apply(writer.possibly_sent, {}, None, ())
    finally:
        writer.close()


def _sent_rows(
    run_query: RunQuery, metadata: Mapping[str, Any], possibly_sent: PossiblySent, targets: Mapping[int, int]
) -> Iterator[SentRow]:
    """Yield the rows that a run sent or may have sent, in the order in which it marked them. Raise an error if one is missing."""
    # `targets` translates the numbers of targets in the journal to those in the ledger. Each row and outcome is checked when it
    # is read. A row without an outcome counts as not sent, unless it is possibly sent, so the outcomes must be those that the run
    # has counted. Whoever writes the rows must not publish them before all of them were yielded.
    first = recorded = 0
    while page := run_query(partial(_read_page, first=first)):
        for start, content, outcomes in page:
            for position, (key, digest, target) in enumerate(_ROW.iter_unpack(content)):
                effect, id_ = _effect_of(outcomes.get(start + position), possibly_sent, start + position)
                if target not in targets:
                    raise DamagedJournalError(f"journal: a target is missing; {_RESTORE}")
                yield key, digest, targets[target], effect, id_
            first, recorded = start + len(content) // _ROW.size, recorded + len(outcomes)
    marked, expected = metadata["marked"], metadata["totals"]["rows"]
    if (first, recorded) != (marked, expected):
        raise DamagedJournalError(
            f"journal: expected {marked} rows with {expected} outcomes, found {first} with {recorded}; {_RESTORE}"
        )


def _read_page(db: sqlite3.Connection, first: int) -> list[tuple[int, bytes, dict[int, list[Any]]]]:
    """Return some windows from row `first` on, each with its first row, its encoded rows and its outcomes."""
    page = []
    query = "SELECT first, rows, digest, crc FROM window WHERE first >= ? ORDER BY first LIMIT ?"
    for start, rows, content, crc in db.execute(query, (first, _PAGE)).fetchall():
        records.require(records.checksum([start, rows, content]) == crc, f"checksum mismatch in the window of row {start}")
        records.require(start == first and len(content) == rows * _ROW.size, f"the window of row {first} is missing")
        text, checksums = db.execute(SELECT_CHECKSUMS, (start, start + rows)).fetchone()
        records.require_checksums(text, checksums)
        page.append((start, content, {row[0]: row for row in msgspec.json.decode(text)}))
        first = start + rows
    return page


def _effect_of(row: list[Any] | None, possibly_sent: PossiblySent, index: int) -> tuple[Effect, str | None]:
    """Return the effect of a row from its stored outcome, and the id in its answer."""
    if row is None:
        return (Effect.POSSIBLE if index in possibly_sent else Effect.NONE), None
    outcome = records.decode_outcome([*row[:5], None, None, None], None, None, RUN_TARGET)
    if outcome.status is Outcome.REJECTED:  # by the service: only rows that were sent are in the journal
        return (Effect.REJECTED if outcome.certain else Effect.REJECTED_LAST), None
    if outcome.status is Outcome.NOT_APPLIED:
        return (Effect.NONE if outcome.certain else Effect.POSSIBLE), None
    # If `not_applied` is possible, the answer itself cannot be trusted. An answer to the only attempt shows that the contact has
    # the values of the row, even if an earlier run leaves open whether the contact was new.
    is_answered = outcome.status in SERVICE_OUTCOMES and Outcome.NOT_APPLIED not in outcome.possible
    if not is_answered or not (outcome.certain or outcome.attempts == 1):
        return Effect.POSSIBLE, outcome.id
    return (Effect.APPLIED if outcome.attempts == 1 else Effect.RETRIED), outcome.id


@contextmanager
def translate_errors(name: str, *, opens: bool = True) -> Iterator[None]:
    """Convert errors of the journal and of the file into errors about the ledger, with the remedies of a run with a ledger."""
    try:
        yield
    except (JournalInUseError, JournalExistsError):
        raise InvalidRequest(f"ledger: another run is using {name}; wait until that run ends") from None
    except (DamagedJournalError, ForeignJournalError) as error:
        remedy = _RESTORE if isinstance(error, DamagedJournalError | EmptyJournalError) else _RESTORE_BOTH
        raise JournalError(f"ledger {name}: the last journal cannot be used: {_problem_of(error)}; {remedy}") from error
    except TakenOverError as error:
        raise TakenOverError(
            f"ledger {name}: another run has taken over the ledger, and this run sends nothing more; run again when that run has"
            " ended"
        ) from error
    except (InvalidRequest, JournalError) as error:
        if not str(error).startswith("journal"):
            raise
        if isinstance(error, InvalidRequest) and not isinstance(error.__cause__, OSError):
            raise InvalidRequest(f"ledger: {str(error).removeprefix('journal: ')}") from error
        raise JournalError(f"ledger {name}: {_problem_of(error)}; {_RUN_AGAIN}") from error
    except OSError as error:
        if opens and isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError):
            raise InvalidRequest(
                f"ledger: {name} cannot be opened: {error.strerror}; pass a path in a folder that exists and that you can write"
                " to"
            ) from error
        raise JournalError(f"ledger {name}: {error.strerror or error}; {_RUN_AGAIN}") from error


def _problem_of(error: OutreachError) -> str:
    """Return the message of an error without its remedy, which comes last."""
    return str(error).rpartition("; ")[0].removeprefix("journal: ")
