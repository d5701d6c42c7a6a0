"""Creates a journal atomically, and renames a damaged one."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from errno import EIO
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

from outreach_async.bulk.journal.records import APPLICATION_ID, FORMAT_VERSION, TABLES, checksum, database_uri, to_json

Link: TypeAlias = Callable[[str, str], None]

LOG_SUFFIXES: Final = ("-wal", "-shm")
"""Suffixes of the log and of its index."""
SET_METADATA: Final = (
    "INSERT INTO meta (name, value, crc) VALUES (?, ?, ?)"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value, crc = excluded.crc"
)


def encode_metadata(name: str, value: object) -> tuple[str, str, int]:
    """Return an entry of the run's metadata as a row of its table."""
    text = to_json(value)
    return name, text, checksum([name, text])


def create_journal(path: str, facts: Mapping[str, Any], link: Link = os.link) -> None:
    """Create a journal that only its owner can read. It gets its name once it is complete and on the disk.

    Args:
        path: Path of the journal.
        facts: The run's metadata.
        link: Gives a file a second name that is not in use.

    Raises:
        FileExistsError: The path already exists.
        OSError: Any other error of the operating system.
    """
    folder = Path(path).parent
    with _create_draft(folder) as draft:
        try:
            _write_tables(draft, facts)
        except sqlite3.Error as error:
            raise OSError(EIO, str(error)) from error
        _sync(draft)
        link(draft, path)
    _sync(folder)


@contextmanager
def _create_draft(folder: Path) -> Iterator[str]:
    descriptor, draft = tempfile.mkstemp(".tmp", ".outreach-", folder)
    os.close(descriptor)
    try:
        yield draft
    finally:
        for ending in ("", *LOG_SUFFIXES):
            with suppress(FileNotFoundError):
                Path(draft + ending).unlink()


def _write_tables(draft: str, facts: Mapping[str, Any]) -> None:
    with closing(sqlite3.connect(database_uri(draft, "mode=rw"), uri=True, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")  # the draft does not count until it is synced and linked
        db.execute("PRAGMA journal_mode = MEMORY")
        db.execute("BEGIN IMMEDIATE")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        for table in TABLES:
            db.execute(table)
        db.executemany(SET_METADATA, [encode_metadata(name, value) for name, value in facts.items()])
        db.execute("COMMIT")
        db.execute("PRAGMA journal_mode = WAL")  # last: moving a log into the file on close can fail without an error


def _sync(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def set_aside(path: str, endings: tuple[str, ...] = (*LOG_SUFFIXES, "")) -> str:
    """Rename the files of a journal to unused names, and return the new path of the journal.

    Args:
        path: Path of the journal.
        endings: Suffixes of the files to rename. The journal itself comes last: without its log it must not pass for intact.

    Raises:
        OSError: Any error of the operating system.
    """
    names = (f"{path}.damaged{f'-{number}' if number else ''}" for number in count())
    name = next(name for name in names if not any(os.path.lexists(name + ending) for ending in (*LOG_SUFFIXES, "")))
    for ending in endings:
        with suppress(FileNotFoundError):
            Path(path + ending).rename(name + ending)
    _sync(Path(path).parent)
    return name


def has_log(path: str) -> bool:
    """Return whether there is a log that is not empty."""
    with suppress(FileNotFoundError):
        return Path(f"{path}-wal").stat().st_size > 0
    return False
