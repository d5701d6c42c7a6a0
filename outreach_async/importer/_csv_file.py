"""Read CSV files of any length line by line. The delimiter is detected from the header and the first rows."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Final

import attrs

from outreach_async.errors import InvalidRequest
from outreach_async.importer._source import ByteSource, detect_encoding, read_lines
from outreach_async.importer._table import Block, File, trim_cells, with_header
from outreach_async.importer._workbook_reader import MAX_ROW_SIZE

UNCLOSED_MESSAGE: Final = "unexpected end of data"  # csv.Error has no error code, so its message identifies the error

_DELIMITER_NOTES: Final = {
    ",": (),
    ";": ("columns are separated by semicolons",),
    "\t": ("columns are separated by tabs",),
    "|": ("columns are separated by |",),
}
"""Notes for the user, by delimiter. The keys are all delimiters that can be detected."""
_SEPARATOR_LINE: Final = re.compile(r'"?sep=([^"\w\r\n])"?[\r\n]*', re.IGNORECASE)


def detect_delimiter(sample: Sequence[str]) -> tuple[str, int, tuple[str, ...]]:
    """Return the delimiter, the number of lines to skip before the header (1 for `sep=;`), and notes about the delimiter."""
    # A delimiter fits a row if the row has as many cells as the header. The delimiter that fits most rows is chosen; in a tie,
    # the delimiter that splits the header into the most cells.
    if sample and (stated := _SEPARATOR_LINE.fullmatch(sample[0])):
        return stated[1], 1, (f"columns are separated by {stated[1]!r}, as stated in the first line",)
    delimiter = max(_DELIMITER_NOTES, key=lambda delimiter: _score(sample, delimiter))
    return delimiter, 0, _DELIMITER_NOTES[delimiter]


def parse_records(reader: Iterator[list[str]]) -> Iterator[list[str] | csv.Error]:
    """Yield the cells of each record, or its error. A cell with an unclosed quote extends to the end of the input."""
    while True:
        try:
            yield from reader
        except csv.Error as error:  # parsing continues
            yield error
        else:
            return


def _score(sample: Sequence[str], delimiter: str) -> tuple[float, int]:
    records = [cells for cells in parse_records(csv.reader(sample, delimiter=delimiter, strict=True)) if cells]
    if records and isinstance(records[-1], csv.Error) and str(records[-1]) == UNCLOSED_MESSAGE:
        records.pop()  # the sample ends within a record
    header, *rows = records or [[]]
    width = 0 if isinstance(header, csv.Error) else len(trim_cells(tuple(header), 0))
    if width < 2:  # noqa: PLR2004 - a delimiter that never occurs fits every row
        return 0.0, 0
    fitting = sum(1 for cells in rows if not isinstance(cells, csv.Error) and len(trim_cells(tuple(cells), width)) == width)
    return (fitting + 1) / (len(rows) + 1), width


_SAMPLE_LINES, _SAMPLE_CHARACTERS = 100, 1 << 16  # of the sample from which the delimiter is detected
_MAX_CELLS: Final = 1 << 14  # cells of a row, as in Excel; spreadsheets may save as many blank cells after the last column


@attrs.frozen(kw_only=True)
class CsvFile(File):
    """A CSV file with a header. A line with the delimiter for Excel, such as `sep=;`, may precede the header."""

    delimiter: str
    encoding: str
    _skip: int

    @classmethod
    def of(cls, source: ByteSource, encoding: str | None = None, header_row: int = 1) -> CsvFile:
        codec, encoding_notes = detect_encoding(source, encoding)
        with closing(read_lines(source, codec)) as lines:
            above, sample = header_row - 1, list[str]()
            for line in islice(lines, above, above + _SAMPLE_LINES):
                sample.append(line)
                if sum(map(len, sample)) > _SAMPLE_CHARACTERS:
                    break
            delimiter, skip, delimiter_notes = detect_delimiter(sample)
        bare = cls(source=source, delimiter=delimiter, encoding=codec, skip=above + skip)
        header = next((block.cells[0] for block in bare._read_all(1, 0)), ())
        return with_header(bare, header, *encoding_notes, *delimiter_notes)

    def _read_blocks(self, size: int, max_length: int) -> Iterator[Block]:
        return islice(self._read_all(size, max_length), 1, None)

    def _read_all(self, size: int, max_length: int) -> Iterator[Block]:
        """Yield a block with the header alone, and the blocks below it."""
        skip, block, length, limit = self._skip, Block([], [], {}, {}), 0, 1
        # `strict`, because otherwise an unclosed quote would silently hide rows.
        reader = csv.reader(islice(read_lines(self.source, self.encoding), skip, None), delimiter=self.delimiter, strict=True)
        end = skip
        try:
            for record in parse_records(reader):
                line, end = end + 1, reader.line_num + skip
                cells = [] if isinstance(record, csv.Error) else record
                text = "".join(cells)
                if cells is not record or len(cells) > _MAX_CELLS or len(text) > MAX_ROW_SIZE:
                    block.faults[len(block.lines)] = self._describe_fault(record, line, end)
                    cells = cells[:_MAX_CELLS] if len(cells) > _MAX_CELLS else []
                elif not text or text.isspace():  # spreadsheet programs save blank rows above and below a table
                    continue
                block.lines.append(line)
                block.cells.append(cells)
                length += len(text)
                if length > max_length or len(block.lines) == limit:
                    yield block
                    block, length, limit = Block([], [], {}, {}), 0, size
        except InvalidRequest:  # an unreadable part follows
            if block.lines:
                yield block
            raise
        if block.lines:
            yield block

    def _describe_fault(self, cells: Sequence[str] | csv.Error, line: int, last: int) -> str:
        if isinstance(cells, csv.Error):
            self._require_closed_quotes(cells, line, last)
            where = f"lines {line} to {last} are" if last > line else "the line is"
            return f"{where} not CSV: {cells}; check the quotes and the length of each cell"
        if len(cells) > _MAX_CELLS:
            return f"the line has {len(cells):,} cells; check the quotes"
        return f"the line is longer than {MAX_ROW_SIZE:,} characters; check the quotes"

    def _require_closed_quotes(self, error: csv.Error, first: int, last: int) -> None:
        """Reject a file with an unclosed quote, because it is unknown where the quoted cell ends and the next row starts."""
        if str(error) == UNCLOSED_MESSAGE:
            raise InvalidRequest(f"{self.name}: the quote opened in line {first} is never closed; close it")
        if "field larger than" not in str(error):
            return
        with closing(read_lines(self.source, self.encoding)) as lines:
            is_quoted = last > first or '"' in next(islice(lines, first - 1, None))
        if is_quoted:
            what = f"a cell in line {first} is longer than {csv.field_size_limit():,} characters"
            raise InvalidRequest(f"{self.name}: {what}; check its quotes: one is probably never closed")
