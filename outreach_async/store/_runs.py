"""Start a run with a ledger, and merge the rows of a run into it. Synchronous."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from secrets import token_hex
from typing import Any, Final

import attrs

from outreach_async._files.objects import is_url
from outreach_async.bulk._rows import PossiblySent
from outreach_async.errors import InvalidRequest, JournalError, OutreachError
from outreach_async.models import Target
from outreach_async.store._entries import LedgerEntries, LedgerHeader, Run, read_runs, require_entries
from outreach_async.store._ledgers import LedgerMedium, clear_run
from outreach_async.store._merging import LONGEST_DOUBT, Ended, merge
from outreach_async.store._objects import HEARTBEAT_INTERVAL, TakenOverError
from outreach_async.store._reader import (
    DamagedJournalError,
    EmptyJournalError,
    ForeignJournalError,
    JournalExistsError,
    read_metadata,
)
from outreach_async.store._records import OTHER_LEDGER, Identity, to_json
from outreach_async.store._sqlite import JournalInUseError
from outreach_async.store._writer import Database, JournalWriter, create_metadata, find_possibly_sent

_ALLOWANCE: Final = 60.0
"""Seconds for what is unknown: how long the service takes for a request that has timed out, and how much clocks differ."""
_RUN_AGAIN: Final = "fix the cause and run again"
_OTHER_RUN: Final = "move away what does not belong to this ledger, or restore its whole folder"


@attrs.define
class LedgerRun:
    """A run that has the ledger for itself until `close` is called: its entries, and the writer of its rows."""

    medium: LedgerMedium
    database: Database
    entries: LedgerEntries
    run: Run
    writer: JournalWriter
    wall: Callable[[], float]

    def merge(
        self, possibly_sent: PossiblySent, counts: Mapping[str, int], seen: bytearray | None, targets: Collection[Target]
    ) -> int | None:
        """Merge the run, which has recorded how it ended, into the entries. Return the number of entries that are gone."""
        # `targets` are those of the input, and `seen` says for each entry whether the input has it, if all of it was read.
        gone = None if seen is None else [*self.entries.find_gone(seen, targets)]
        ended = Ended(possibly_sent, counts)
        if seen is not None and gone is not None:
            ended = Ended(possibly_sent, {**counts, "gone": len(gone)}, *self.entries.changes_of_gone(seen, gone))
        _merge(self.medium, self.database, self.run, self.wall, ended)
        return None if gone is None else len(gone)

    def close(self) -> None:
        try:
            self.writer.close()
        finally:
            self.medium.close()


def start(medium: LedgerMedium, identity: Identity, wall: Callable[[], float], *, with_ids: bool, with_runs: bool) -> LedgerRun:
    """Merge the last run if it was not merged. Then start a new run."""
    while True:  # each time, a run was merged
        with translate_ledger_errors(medium.name), ExitStack() as stack:
            now = wall()  # an earlier time only makes more entries uncertain, or too old
            database, metadata = medium.open(identity.address)
            stack.callback(database.close)
            if (header := _merge_last(medium, database, metadata, identity.address, wall)) is not None:
                read = None if with_ids else database.query
                entries = database.query(partial(LedgerEntries, header=header, with_runs=with_runs, read=read))
                identity = attrs.evolve(identity, options={**identity.options, "ledger": header.name, "at": now})
                run, started = _record_start(database, identity, entries, now)
                medium.on_started(header, run)
                database.compact()
                writer = JournalWriter(database, started, identity, "known", created=True, wall=wall)
                stack.pop_all()
                return LedgerRun(medium, database, entries, run, writer, wall)


def _merge_last(
    medium: LedgerMedium, database: Database, metadata: Mapping[str, Any], address: str | None, wall: Callable[[], float]
) -> LedgerHeader | None:
    """Merge the last run if it was not merged. Return what the ledger knows; `None` if it must be opened again."""
    header, runs = LedgerHeader.from_metadata(metadata), database.query(read_runs)
    if header.address != address:
        raise InvalidRequest(
            f"ledger: {medium.name} belongs to the service at {header.address}, not to that at {address};"
            " pass a ledger of its own for each service"
        )
    medium.require_newest(header, runs)
    if not runs or runs[-1].number <= header.merged:
        return header
    database.query(partial(require_entries, header=header))
    return _merge(medium, database, runs[-1], wall, Ended(find_possibly_sent(metadata)))


def _record_start(database: Database, identity: Identity, entries: LedgerEntries, now: float) -> tuple[Run, Mapping[str, Any]]:
    """Record that a run starts, in place of the last one. Return it and its metadata."""
    options, started = identity.options, create_metadata(identity, "known")
    request = {name: options[name] for name in ("duplicates", "strict_validation")}
    run = Run(entries.header.merged + 1, now, token_hex(8), {}, request, options["repeats"])
    target = Target(identity.workspace, options.get("campaign"))
    entries.targets.setdefault(target, max(entries.targets.values(), default=0) + 1)
    with database.mark_transaction() as transaction:
        transaction.run(clear_run)
        for name, value in {**started, "names": []}.items():
            transaction.set_metadata(name, value)
        transaction.insert("run", run.number, now, run.stamp, "{}", to_json(request), run.repeats)
        transaction.insert("target", entries.targets[target], *target)
    return run, started


def _merge(medium: LedgerMedium, database: Database, run: Run, wall: Callable[[], float], ended: Ended) -> LedgerHeader | None:
    """Merge a run. Return what the ledger then knows; `None` if the database cannot be used for the next run."""
    metadata = database.query(read_metadata)
    # A run that was taken over starts attempts until its heartbeat is due. Each may arrive until its timeout, and later.
    doubt = HEARTBEAT_INTERVAL + (metadata["identity"]["options"].get("timeout") or math.inf) + _ALLOWANCE
    sent = {name: count for name, count in metadata["totals"]["outcomes"].items() if count}
    ended = attrs.evolve(ended, settles_at=wall() + min(doubt, LONGEST_DOUBT), counts={**sent, **ended.counts})
    with database.mark_transaction() as transaction:
        header = transaction.run(
            partial(merge, metadata=metadata, run=run, header=LedgerHeader.from_metadata(metadata), ended=ended)
        )
    return header if medium.publish(database, run.number) else None


@contextmanager
def translate_ledger_errors(name: str, *, opens: bool = True) -> Iterator[None]:
    """Convert errors of the journal and of the file into errors about the ledger, with the remedies of a run with a ledger."""
    try:
        yield
    except (JournalInUseError, JournalExistsError):
        raise InvalidRequest(f"ledger: another run is using {name}; wait until that run ends") from None
    except (DamagedJournalError, EmptyJournalError) as error:
        raise _damaged(name, error) from error
    except TakenOverError as error:
        raise TakenOverError(
            f"ledger {name}: another run has taken over the ledger, and this run sends nothing more; run again when that run has"
            " ended"
        ) from error
    except (InvalidRequest, JournalError) as error:
        if not str(error).startswith("journal"):
            raise
        if isinstance(error, ForeignJournalError):
            # In a folder, only the log of a run is refused. The entries are kept, and nothing needs to be sent again.
            remedy = _OTHER_RUN if is_url(name) else OTHER_LEDGER
            raise InvalidRequest(f"ledger: {_problem_of(error)}; {remedy}") from error
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


def _damaged(name: str, error: OutreachError) -> JournalError:
    reason = str(error).rpartition("; restore ")[0].removeprefix("journal: ").removeprefix(f"journal {name} is damaged: ")
    remedy = f"restore a copy with its own -wal file, if it has one, or {OTHER_LEDGER}"
    if is_url(name):
        remedy = "restore the object, or pass another URL, which starts a new ledger and sends every row again"
    return JournalError(f"ledger {name} is damaged: {reason}; {remedy}")


def _problem_of(error: OutreachError) -> str:
    """Return the message of an error without its remedy, which comes last."""
    return str(error).rpartition("; ")[0].removeprefix("journal: ")
