"""Read CSV files of any length line by line. How they are written is detected from the header and the first rows."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Final

import attrs

from outreach_async.errors import InvalidRequest
from outreach_async.importer._csv_dialect import UNCLOSED_MESSAGE, Dialect, detect_dialect, parse_records, require_header
from outreach_async.importer._rows import PLAIN, Block, Oddity, Record, cut_text, group_records
from outreach_async.importer._source import ByteSource, open_text, read_lines
from outreach_async.importer._table import File, with_header
from outreach_async.importer._workbook_reader import MAX_ROW_SIZE

_SAMPLE_LINES, _SAMPLE_CHARACTERS = 100, 1 << 16  # of the sample from which the delimiter is detected
_MAX_CELLS: Final = 1 << 14  # cells of a row, as in Excel; spreadsheets may save as many blank cells after the last column


class _LineFinder:
    """Finds the text of lines that cannot be parsed. Each search continues where the last one ended."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self._last = 0

    def find(self, first: int, last: int) -> str:
        found = islice(self._lines, first - 1 - self._last, last - self._last)
        self._last = last
        return "".join(found).rstrip("\r\n")


@attrs.frozen(kw_only=True)
class CsvFile(File):
    """A CSV file with a header. A line with the delimiter for Excel, such as `sep=;`, may precede the header."""

    dialect: Dialect
    encoding: str
    _above: int
    """Lines above the header."""

    @classmethod
    def of(
        cls,
        source: ByteSource,
        encoding: str | None = None,
        header_row: int | None = None,
        delimiter: str | None = None,
        *,
        pads: bool = False,
    ) -> CsvFile:
        source, codec, encoding_notes = open_text(source, encoding)
        with closing(read_lines(source, codec)) as lines:
            above, sample = (header_row or 1) - 1, list[str]()
            for line in islice(lines, above, above + _SAMPLE_LINES):
                sample.append(line)
                if sum(map(len, sample)) > _SAMPLE_CHARACTERS:
                    break
        dialect = detect_dialect(sample, delimiter)
        if delimiter is not None and not dialect.fit[0] and detect_dialect(sample).fit[0] == 1.0:
            expected = f"expected the delimiter of {source.name}, got {delimiter!r}, which separates no columns"
            raise InvalidRequest(f"delimiter: {expected}; omit --delimiter")
        selection = f"above {above}" if above else ""
        above += dialect.skip
        bare = cls(source=source, dialect=dialect, encoding=codec, above=above, pads=pads, selection=selection)
        header = next((cells for _, cells, _, _ in bare._read_records()), ())
        if header_row is None and delimiter is None and not dialect.skip:
            require_header(source.name, sample, dialect)
        return with_header(bare, header, *encoding_notes, *dialect.notes)

    def _read_blocks(self, size: int, max_length: int) -> Iterator[Block]:
        return group_records(islice(self._read_records(), 1, None), size, max_length)

    def _read_records(self) -> Iterator[Record]:
        """Yield the header and the records below it."""
        reader = self.dialect.parse(islice(read_lines(self.source, self.encoding), self._above, None))
        end = above = self._above
        with closing(read_lines(self.source, self.encoding)) as again:
            find_text = _LineFinder(again).find
            for record in parse_records(reader):
                line, end = end + 1, reader.line_num + above
                cells = [] if isinstance(record, csv.Error) else record
                text = "".join(cells)
                if cells is not record or len(cells) > _MAX_CELLS or len(text) > MAX_ROW_SIZE:
                    whole = cut_text(find_text(line, end))
                    fault = self._describe_fault(record, line, end, whole)
                    yield line, cells[:_MAX_CELLS] if len(cells) > _MAX_CELLS else [], Oddity(fault, text=whole), len(text)
                elif text and not text.isspace():  # spreadsheet programs save blank rows above and below a table
                    yield line, cells, PLAIN, len(text)

    def _describe_fault(self, cells: Sequence[str] | csv.Error, line: int, last: int, text: str) -> str:
        if isinstance(cells, csv.Error):
            self._require_closed_quotes(cells, line, last)
            where = f"lines {line} to {last} are" if last > line else "the line is"
            remedy = 'write each quote within a cell as ""' if '\\"' in text else "check the quotes and the length of each cell"
            return f"{where} not CSV: {cells}; {remedy}"
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
