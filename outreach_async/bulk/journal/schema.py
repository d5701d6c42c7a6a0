"""The format of a journal: an SQLite database that is recognised by its first 100 bytes."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final, Literal, TypeAlias

APPLICATION_ID: Final = 0x4F41424A  # "OABJ": outreach_async, bulk journal
FORMAT: Final = 1

TABLES: Final = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value, crc NOT NULL) WITHOUT ROWID",
    "CREATE TABLE window (first INTEGER PRIMARY KEY, rows INTEGER NOT NULL, digest BLOB NOT NULL, crc NOT NULL)",
    # No types: a status is a number or a string. Rare columns come last, where a missing value costs one byte.
    "CREATE TABLE outcome (seq INTEGER PRIMARY KEY, status NOT NULL, id, attempts NOT NULL, crc, possible, error, repeats)",
    "CREATE TABLE error (digest INTEGER PRIMARY KEY, text TEXT NOT NULL)",
    "CREATE TABLE event (number INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL, crc NOT NULL)",
    "CREATE TABLE spool (seq INTEGER PRIMARY KEY, key TEXT, payload TEXT NOT NULL, crc NOT NULL)",
)
"""Every row has a checksum of its other columns; the digest of an error is one. A spooled row without a key repeats no row."""

Verdict: TypeAlias = Literal["ours", "newer", "foreign"]

_MAGIC: Final = b"SQLite format 3\0"
_USER_VERSION: Final = 60  # https://sqlite.org/fileformat2.html#the_database_header
_APPLICATION_ID: Final = 68
HEADER_SIZE: Final = 100


class Damage(ValueError):
    """The content of a journal contradicts itself; no writer leaves it like this."""


def judge(header: bytes) -> Verdict:
    """Classify a file by its first bytes, before SQLite could change a file that is not a journal."""
    if len(header) < HEADER_SIZE or not header.startswith(_MAGIC):
        return "foreign"
    (found,) = struct.unpack_from(">I", header, _APPLICATION_ID)
    (version,) = struct.unpack_from(">I", header, _USER_VERSION)
    if found != APPLICATION_ID:
        return "foreign"
    return "newer" if version > FORMAT else "ours"


def address(path: str | Path, mode: str) -> str:
    """Return the URI with which SQLite opens a file."""
    return f"{Path(path).absolute().as_uri()}?{mode}"
