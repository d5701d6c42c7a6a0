"""Read workbooks, such as XLSX. A separate process reads the workbook, and stores the rows in a temporary file."""

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

from outreach_async._plumbing import Change
from outreach_async.errors import InvalidRequest, format_count
from outreach_async.importer import _workbook_reader as workbook_reader
from outreach_async.importer._consent import CONSENT_CODES
from outreach_async.importer._mapping import IGNORE, find_meanings, is_address, map_option
from outreach_async.importer._rows import PLAIN, Block, Oddity, Record, group_records
from outreach_async.importer._source import ByteSource, StreamCopy
from outreach_async.importer._table import MAX_TITLE, File, title_error, with_header
from outreach_async.importer._workbook_reader import SheetOptions

READER_COMMAND: Final = (sys.executable, "-I", "-S", workbook_reader.__file__)
_MAX_SHOWN: Final = 5  # names of hidden columns
_UNMARKED_NOTE: Final = (
    "cells with an error such as #N/A are read as blank in this kind of workbook, and hidden rows like the others; "
    "save it as XLSX to detect both"
)


@attrs.frozen(kw_only=True)
class ReaderResult:
    refused: str | None = None
    sheet: str = ""
    note: str = ""
    marked: bool = False
    rows: int = 0
    hidden_rows: int = 0
    hidden_columns: tuple[int, ...] = ()
    merged: int = 0

    def list_notes(self, headers: Sequence[str], *, skips_hidden: bool) -> Iterator[str]:
        if self.note:
            yield self.note
        if not self.marked:
            yield _UNMARKED_NOTE
        if self.hidden_rows and skips_hidden:
            yield f"hidden rows are left out, as specified: {self.hidden_rows:,} of {self.rows:,}"
        elif self.hidden_rows:
            are = "is" if self.hidden_rows == 1 else "are"
            what = f"{self.hidden_rows:,} of {format_count(self.rows, 'row')} {are} hidden, for example by a filter"
            yield f"{what}, and read like the others; to leave out hidden rows, pass --hidden skip"
        if names := [headers[at].strip() for at in self.hidden_columns if at < len(headers)]:
            shown = ", ".join(map(repr, names[:_MAX_SHOWN])) + (", ..." if len(names) > _MAX_SHOWN else "")
            # A column that says who must not be written to is not proposed to be left out.
            harmless = [name for name in names if name and {*CONSENT_CODES}.isdisjoint(find_meanings(name))]
            remedy = f"; to leave one out, pass {map_option(harmless[-1], IGNORE)}" if harmless else ""
            yield f"hidden columns are read like the others: {shown}{remedy}"
        if self.merged:
            yield f"each row of merged cells gets their value; {format_count(self.merged, 'merged cell')}"


ReadSheet: TypeAlias = Callable[[ByteSource, SheetOptions], tuple[ReaderResult, StreamCopy]]
"""A function that reads the sheet with the given name, or the first visible sheet if the name is `None`."""

_RESULT_DECODER: Final = msgspec.json.Decoder(ReaderResult)
_ROW_DECODER: Final = msgspec.json.Decoder(tuple[int, tuple[str, ...], tuple[int, ...], tuple[int, ...]])


@attrs.frozen(kw_only=True)
class WorkbookFile(File):
    """One sheet of a workbook: XLSX, XLSM, XLSB, XLS or ODS. Only XLSX and XLSM state which cells contain an error."""

    sheet: str
    _spool: StreamCopy

    @classmethod
    def of(cls, source: ByteSource, options: SheetOptions, read: ReadSheet | None = None) -> WorkbookFile:
        """Read a sheet of a workbook. The header is the first row that is not blank."""
        result, spool = (read or read_in_subprocess)(source, options)
        if options.skips_hidden and not result.marked:
            expected = "expected XLSX or XLSM, which state the hidden rows"
            raise InvalidRequest(f"hidden: {expected}, got {source.name}; save it as XLSX, or omit --hidden")
        selection = repr((result.sheet, options.header_row or 1, options.skips_hidden))
        bare = cls(source=source, sheet=result.sheet, spool=spool, selection=selection)
        first = [*islice(_decode_records(spool), MAX_TITLE + 1)]
        if options.header_row is None:
            _require_no_title(source.name, first)
        try:
            file = with_header(bare, first[0][1] if first else ())
        except InvalidRequest as error:  # the sheet may be a cover
            raise InvalidRequest("; ".join(filter(None, (str(error), result.note)))) from None
        notes = result.list_notes(file.headers, skips_hidden=options.skips_hidden)
        return attrs.evolve(file, notes=(*notes, *file.notes))

    def _read_blocks(self, size: int, max_length: int) -> Iterator[Block]:
        return group_records(islice(_decode_records(self._spool), 1, None), size, max_length)


def _require_no_title(name: str, first: Sequence[Record]) -> None:
    """Check that the first row is not a title above a table."""
    named = [[cell for cell in cells if cell.strip()] for _, cells, _, _ in first]
    if not named or len(named[0]) != 1:
        return
    for record, cells in zip(first[:-1], named[:-1], strict=True):  # a header has a row below it
        if any(map(is_address, cells)):
            return
        if len(cells) > 1:
            raise title_error(name, named[0][0], record[0], len(cells))


def read_in_subprocess(
    source: ByteSource, options: SheetOptions, reader: Sequence[str] = READER_COMMAND
) -> tuple[ReaderResult, StreamCopy]:
    # If an exception interrupts the wait, the reader process is killed. If this process is killed, the reader exits by itself.
    spool = StreamCopy()
    parameters = json.dumps({"parent": os.getpid(), "options": options, "path": sys.path})
    with source.lend_descriptor() as book, spool.lend_descriptor() as rows:
        try:
            done = subprocess.run([*reader, parameters], stdin=book, stdout=rows, stderr=subprocess.PIPE, check=False)  # noqa: S603 - our own command
        except OSError as error:
            raise InvalidRequest(f"{source.name}: cannot start the workbook reader ({error}); save the sheet as CSV") from error
    try:
        result = _RESULT_DECODER.decode(done.stderr.partition(b"\n")[0])
    except msgspec.DecodeError:  # without a result, the process failed to start or exceeded a limit
        if failure := done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]:
            result = ReaderResult(refused=f"the workbook reader failed ({failure}); save the sheet as CSV")
        elif sys.platform != "win32" and done.returncode == -signal.SIGPROF:
            result = ReaderResult(refused=workbook_reader.TOO_LONG)
        else:  # a failed allocation aborts the process without a message
            result = ReaderResult(refused=workbook_reader.TOO_LARGE)
    if result.refused is not None:
        raise InvalidRequest(f"{source.name}: {result.refused}")
    return result, spool


def _decode_records(spool: StreamCopy) -> Iterator[Record]:
    with spool.open() as file:
        for text in file:
            line, cells, errors, numbers = _ROW_DECODER.decode(text)
            issues = [(at, Change.of_error()) for at in errors]
            issues += [(at, Change.of_number(cells[at])) for at in numbers]
            yield line, cells, Oddity(issues=tuple(issues)) if issues else PLAIN, sum(map(len, cells))
