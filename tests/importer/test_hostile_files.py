"""Untrusted files are read or refused, whatever they contain; with a short run of each target of tools/fuzz.py."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing, suppress
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.fuzz import a_journal, mutated
from support.wire import unhurried
from tools.fuzz import TARGETS, corpus, scratch

DEEP: Final = b"[" * 100_000
BRIEF: Final = ("answer", "fields", "intake", "request", "base_url")


@pytest.mark.parametrize("name", BRIEF)
@settings(unhurried, max_examples=scaled(15))
@given(st.data())
def test_a_short_fuzz_run_finds_no_violation(name: str, data: st.DataObject) -> None:
    TARGETS[name](data.draw(st.binary(max_size=200) | mutated(corpus(name))))


def shallow(name: str) -> st.SearchStrategy[bytes]:
    """Draw a modified file, without the modifications that have their own tests."""
    tried = re.compile(rb"\[{9}|9{40}|NaN|Infinity|1e999")
    return mutated(corpus(name)).filter(lambda data: not tried.search(data) and data.count(b"{") < 300)


@settings(unhurried, max_examples=scaled(15))
@given(st.deferred(lambda: mutated((a_journal(),))) | st.binary(max_size=200))
@example(b"")
def test_any_bytes_are_a_journal_or_refused(data: bytes) -> None:
    TARGETS["journal"](data or a_journal().replace(b"finished", b"finish\xff\xff"))


def changed(table: str, column: str, value: object) -> bytes:
    """Return a journal with one column changed in every row of a table, as anyone with SQLite can do."""
    path = scratch("changed.db", a_journal())
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE {table} SET {column} = ?", (value,))  # noqa: S608 - our own names
    return path.read_bytes()


CELLS: Final = [
    *(("meta", "value"), ("outcome", "status"), ("outcome", "id_1"), ("outcome", "id_2"), ("outcome", "possible")),
    *(("event", "data"), ("event", "kind"), ("error", "text")),
]
VALUES: Final[dict[str, Any]] = {
    "null": "null",
    "list": "[]",
    "deep list": "[" * 3_000,
    "number": 2**62,
    "infinity": float("inf"),
    "bytes": b"\xff\x00",
    "nothing": None,
}


@pytest.mark.parametrize("value", VALUES)
def test_a_modified_journal_is_read_or_refused(value: str) -> None:
    for table, column in CELLS:
        with suppress(sqlite3.IntegrityError):  # the journal's own constraints refuse the value
            TARGETS["journal"](changed(table, column, VALUES[value]))


@pytest.mark.parametrize("name", ["audit", "world", "behaviour"])
@settings(unhurried, max_examples=scaled(15))
@given(st.data())
def test_any_bytes_are_a_file_of_this_kind_or_refused(name: str, data: st.DataObject) -> None:
    TARGETS[name](data.draw(st.binary(max_size=100) | shallow(name)))


@pytest.mark.parametrize(
    ("target", "data"),
    [
        *(("audit", data) for data in (DEEP, b'{"version":1,"x":%b' % DEEP)),
        *(("world", data) for data in (b'{"workspaces":%b' % DEEP, b'{"version":1,"now":%b' % DEEP)),
        *(("behaviour", data) for data in (b"a=" + DEEP, b"past_end=" + b"9" * 5_000)),
    ],
)
def test_what_is_nested_too_deeply_or_too_long_is_refused(target: str, data: bytes) -> None:
    TARGETS[target](data)


@pytest.mark.parametrize("value", [b"9" * 400, b"NaN", b"Infinity"])
def test_an_audit_with_numbers_of_the_wrong_type_is_refused(value: bytes) -> None:
    (seed,) = corpus("audit")
    name = b'"mailboxes": ' if value.isdigit() else b'"overall": '
    data = seed.replace(name, name + value + b', "x": ')
    assert data != seed
    TARGETS["audit"](data)
