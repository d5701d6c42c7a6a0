"""Open or create the journal of a run. Creation is atomic, and an existing journal is locked and checked before use."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from errno import EIO
from itertools import count
from pathlib import Path
from typing import Any, Final

from outreach_async._files.atomic import sync
from outreach_async.bulk.journal import _reader as reader
from outreach_async.bulk.journal import _records as records
from outreach_async.bulk.journal._database import FileDatabase
from outreach_async.bulk.journal._identity import OTHER_JOURNAL, Earlier, Identity, require_same_run
from outreach_async.bulk.journal._lock import JournalLock, require_lockable, translate_os_errors
from outreach_async.bulk.journal._writer import JournalWriter, create_metadata, start_writer
from outreach_async.errors import InvalidRequest

LOG_SUFFIXES: Final = ("-wal", "-shm")
"""File name suffixes of SQLite's write-ahead log and of the log's index."""


def open_file(
    path: str | Path,
    identity: Identity,
    *,
    resume: bool,
    earlier: Earlier = "known",
    wall: Callable[[], float] = time.time,
) -> JournalWriter:
    """Open a journal in a file for writing: create it, or resume its run. The file is locked until the writer is closed."""
    path = str(path)
    require_lockable(path)
    metadata: Mapping[str, Any] | None = None
    damage = None
    with ExitStack() as stack:
        try:
            if os.path.lexists(path):
                # Locked before it is read: no other run can change or rename the journal after it has been checked.
                lock = JournalLock.acquire(path, resume=resume or earlier == "unknown")
                stack.callback(lock.release)
                metadata = _read_checked_metadata(path, lock.header)
                stack.pop_all()
            else:
                _refuse_orphaned_log(path)
        except (reader.DamagedJournalError, reader.EmptyJournalError) as error:
            if earlier == "known":
                raise
            with translate_os_errors(path):  # the file is still locked: another run may be about to rename it, too
                damage = {"reason": str(error), "kept": Path(set_aside(path)).name}
    created = metadata is None
    if metadata is None:
        metadata = create_metadata(identity, earlier)
        with translate_os_errors(path):
            create_journal(path, metadata)
        lock = JournalLock.acquire(path, resume=True)
    with ExitStack() as stack:
        stack.callback(lock.release)
        require_same_run(path, identity, metadata["identity"])
        database = FileDatabase(path, metadata["log"], lock)
        stack.pop_all()
    return start_writer(database, metadata, identity, earlier, damage, created=created, wall=wall)


def _refuse_orphaned_log(path: str) -> None:
    with translate_os_errors(path), suppress(FileNotFoundError):
        if Path(f"{path}-wal").stat().st_size > 0:
            raise reader.DamagedJournalError(
                f"journal {path} is damaged: the file is missing, but its log {path}-wal exists; {reader.remedy(Path(path))}"
            )


def _read_checked_metadata(path: str, header: bytes) -> Mapping[str, Any]:
    """Check an existing journal, and return the metadata of its run."""
    if not header:
        raise reader.empty_error(Path(path))
    kind = records.classify_header(header)
    if kind == "newer":
        raise InvalidRequest(f"journal: {path} was written by a newer version of this library; resume with that version")
    if kind == "foreign":
        raise InvalidRequest(f"journal: {path} is not a journal; {OTHER_JOURNAL}")
    try:
        metadata, log_stale = reader.query_journal(Path(path), reader.require_intact)
    except InvalidRequest as error:  # SQLite finds no journal, although the first bytes are those of a journal
        message = f"journal {path} is damaged: its header is invalid; {reader.remedy(Path(path))}"
        raise reader.DamagedJournalError(message) from error
    if log_stale:
        with translate_os_errors(path):
            set_aside(path, LOG_SUFFIXES)
    return metadata


def create_journal(path: str, metadata: Mapping[str, Any], link: Callable[[str, str], None] = os.link) -> None:
    """Create a journal that only its owner can read. The file gets its final name only after it is complete and on the disk."""
    folder = Path(path).parent
    descriptor, draft = tempfile.mkstemp(".tmp", ".outreach-", folder)
    os.close(descriptor)
    try:
        # Unlike a rename, a link never replaces a file: if two runs create the journal, one of them fails. The draft is synced
        # first, so that a power failure cannot leave the final name with an incomplete file.
        _write_tables(draft, metadata)
        sync(draft)
        link(draft, path)
    except sqlite3.Error as error:
        raise OSError(EIO, str(error)) from error
    finally:
        for suffix in ("", *LOG_SUFFIXES):
            Path(draft + suffix).unlink(missing_ok=True)
    sync(folder)


def _write_tables(draft: str, metadata: Mapping[str, Any]) -> None:
    with closing(reader.connect(draft, "mode=rw")) as db:
        db.execute("PRAGMA synchronous = OFF")  # the draft is not a journal until it is synced and linked
        db.execute("PRAGMA journal_mode = MEMORY")
        db.execute("BEGIN IMMEDIATE")
        db.execute(f"PRAGMA application_id = {records.APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {records.FORMAT_VERSION}")
        for table in records.TABLES:
            db.execute(table)
        db.executemany(records.SET_METADATA, [records.encode_metadata(name, value) for name, value in metadata.items()])
        db.execute("COMMIT")
        db.execute("PRAGMA journal_mode = WAL")  # last: closing copies a log into the file, which can fail silently


def set_aside(path: str, suffixes: tuple[str, ...] = (*LOG_SUFFIXES, "")) -> str:
    """Rename the files of a journal to unused names, and return the new path of the journal."""
    names = (f"{path}.damaged{f'-{number}' if number else ''}" for number in count())
    name = next(name for name in names if not any(os.path.lexists(name + suffix) for suffix in (*LOG_SUFFIXES, "")))
    for suffix in suffixes:
        with suppress(FileNotFoundError):
            Path(path + suffix).rename(name + suffix)
    sync(Path(path).parent)
    return name
