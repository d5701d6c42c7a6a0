"""Workbooks, XLSX above all: a process of its own reads one, and its rows are kept in a temporary file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeAlias

import attrs
import msgspec

from outreach_async.errors import InvalidRequest
from outreach_async.importer.file import Heading, Table
from outreach_async.importer.formats import workbook_reader
from outreach_async.importer.record import Record
from outreach_async.importer.source import Source, Spool
from outreach_async.importer.suspects import Flaw, number_flaw

READER: Final = (sys.executable, "-I", "-S", workbook_reader.__file__)
"""The command that reads a workbook, with what it needs to know as its last argument."""

_ERROR: Final = "the cell shows an error such as #N/A; mend its formula, or clear it"
_BLIND: Final = "cells that show an error such as #N/A are read as blank in this kind of workbook; save it as XLSX to find them"


@attrs.frozen(kw_only=True)
class Verdict:
    """What the reader says at its end.

    Attributes:
        refused: Why the workbook cannot be read; `None` if it was.
        sheet: Name of the sheet that was read.
        note: What a person should know of the choice of the sheet.
        marked: Whether the file tells which cells show an error or zeros before their number.
    """

    refused: str | None = None
    sheet: str = ""
    note: str = ""
    marked: bool = False


Read: TypeAlias = Callable[[Source, str | None], tuple[Verdict, Spool]]
"""Reads a sheet: the first that can be seen, if none is named."""

_VERDICT: Final = msgspec.json.Decoder(Verdict)
_ROW: Final = msgspec.json.Decoder(tuple[int, tuple[str, ...], tuple[int, ...], tuple[int, ...]])


@attrs.frozen(kw_only=True)
class WorkbookFile(Table):
    """One sheet of a workbook: XLSX and XLSM, and as far as they tell, XLSB, XLS and ODS.

    Attributes:
        sheet: Its name.
    """

    sheet: str
    _spool: Spool

    @classmethod
    def of(cls, source: Source, sheet: str | None = None, read: Read | None = None) -> WorkbookFile:
        """Read the workbook. The header is the first row that is not blank.

        Args:
            source: The workbook.
            sheet: Name of the sheet; without, the first that can be seen.
            read: Reads it; without, a process of its own does.

        Raises:
            InvalidRequest: Not readable, too large, shut by a password, without that sheet, or empty.
        """
        found, spool = (read or read_apart)(source, sheet)
        cells = next((record.cells for record in _records(spool)), ())
        heading = Heading.of(source.name, cells)
        notes = filter(None, (found.note, "" if found.marked else _BLIND, *heading.notes))
        return cls(source=source, heading=heading, notes=tuple(notes), sheet=found.sheet, spool=spool)

    def _read(self) -> Iterator[Record]:
        return islice(_records(self._spool), 1, None)


def read_apart(source: Source, sheet: str | None, reader: Sequence[str] = READER) -> tuple[Verdict, Spool]:
    """Read a sheet in a process of its own, and return what is known of it and its rows.

    Whatever ends the wait, such as a KeyboardInterrupt, ends that process too; it ends by itself if this one is killed.

    Args:
        source: The workbook.
        sheet: Name of the sheet; `None` for the first that can be seen.
        reader: The command to run.

    Raises:
        InvalidRequest: The workbook cannot be read, or the process cannot be started.
    """
    spool = Spool()
    given = json.dumps({"parent": os.getpid(), "sheet": sheet, "path": sys.path})
    with source.lend() as book, spool.lend() as rows:
        try:
            done = subprocess.run([*reader, given], stdin=book, stdout=rows, stderr=subprocess.PIPE, check=False)  # noqa: S603 - ours
        except OSError as error:
            raise InvalidRequest(
                f"{source.name}: the process that reads workbooks does not start ({error}); save it as CSV"
            ) from error
    found = _verdict(done)
    if found.refused is not None:
        raise InvalidRequest(f"{source.name}: {found.refused}")
    return found, spool


def _verdict(done: subprocess.CompletedProcess[bytes]) -> Verdict:
    """Return the verdict. A process without one says why it could not start, or was ended for what it took."""
    try:
        return _VERDICT.decode(done.stderr.partition(b"\n")[0])
    except msgspec.DecodeError:
        failure = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if failure:
        return Verdict(refused=f"the process that reads workbooks failed ({failure})")
    if sys.platform != "win32" and done.returncode == -signal.SIGPROF:
        return Verdict(refused=workbook_reader.TOO_LONG)
    return Verdict(refused=workbook_reader.TOO_LARGE)  # an allocation that fails aborts


def _records(spool: Spool) -> Iterator[Record]:
    """Yield the rows that are not blank, the header first."""
    with spool.open() as file:
        for text in file:
            line, cells, errors, numbers = _ROW.decode(text)
            flaws = [Flaw(at, "error", _ERROR, fatal=True) for at in errors]
            flaws += [number_flaw(at, cells[at]) for at in numbers]
            yield Record(line, cells, None, tuple(sorted(flaws)))
