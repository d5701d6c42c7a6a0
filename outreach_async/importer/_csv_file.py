"""Read CSV files of any length line by line. How they are written is detected from the header and the first rows."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, Final, NamedTuple

import attrs

from outreach_async._plumbing import show_name
from outreach_async.errors import InvalidRequest, shorten
from outreach_async.importer._mapping import is_address
from outreach_async.importer._rows import PLAIN, Oddity, Record, cut_text
from outreach_async.importer._source import ByteSource, open_text, read_lines
from outreach_async.importer._table import (
    MAX_COLUMNS,
    MAX_TITLE,
    TextFile,
    count_reason_columns,
    title_error,
    trim_cells,
    with_header,
)
from outreach_async.importer._workbook_reader import MAX_ROW_SIZE

UNCLOSED_MESSAGE: Final = "unexpected end of data"  # csv.Error has no error code, so its message identifies the error

_DELIMITER_NOTES: Final = {
    ",": (),
    ";": ("columns are separated by semicolons",),
    "\t": ("columns are separated by tabs",),
    "|": ("columns are separated by |",),
}
"""Notes for the user, by delimiter. The keys are all delimiters that are detected."""
_OTHER_DELIMITERS: Final = ":^~!#/¦，；\x01\x1e\x1f"  # noqa: RUF001 - as Chinese programs write them;  # too rare, or too common in text, to be chosen without being asked for
_SEPARATOR_LINE: Final = re.compile(r'"?sep=(\\t|[^"\w\r\n])"?[\r\n]*', re.IGNORECASE)
_NAMES: Final = {"comma": ",", "semicolon": ";", "tab": "\t", r"\t": "\t", "pipe": "|", "colon": ":", "space": " "}
_HEXADECIMAL: Final = re.compile(r"\\x([0-9a-fA-F]{2})")
_MAX_SHOWN: Final = 60  # characters of a line
_DELIMITER: Final = re.compile(r'[^"\w\r\n\0]')
_QUOTED: Final = re.compile(r"""[ \t]+"|(["']).*\1\Z""", re.DOTALL)
_MIN_SHARE: Final = 0.5  # of the first rows, which fit their header


def parse_delimiter(text: str) -> str:
    r"""Return the character that a name such as `tab`, an escape such as `\x1f`, or the character itself stands for."""
    found = _NAMES.get(text.lower()) or (chr(int(code[1], 16)) if (code := _HEXADECIMAL.fullmatch(text)) else text)
    if not _DELIMITER.fullmatch(found):
        expected = "one character that is not a letter, a digit or a quote, or comma, semicolon, tab, pipe, colon or space"
        raise InvalidRequest(f"delimiter: expected {expected}, got {show_name(text)}; pass, for example, --delimiter tab")
    return found


class Habit(NamedTuple):
    """How programs write cells, other than with doubled quotes right at the delimiters."""

    note: str
    sign: re.Pattern[str]
    """Where it does not match, nobody writes so."""
    options: Mapping[str, Any]
    rewrite: Callable[[str, str], str] | None = None
    """Takes a line and the delimiter, and returns the line as `csv` reads it."""


def _unwrap(line: str, _delimiter: str) -> str:
    wrapped = _WRAPPED.fullmatch(line)
    return wrapped[1].replace('""', '"') + wrapped[2] if wrapped else line


def _close_up(line: str, delimiter: str) -> str:
    cell = rf'((?:^|{re.escape(delimiter)})[ \t]*"(?:[^"]|"")*+")[ \t]+(?={re.escape(delimiter)}|[\r\n]|\Z)'
    return re.sub(cell, r"\1", line)


def _clear_nulls(line: str, delimiter: str) -> str:
    sign = re.escape(delimiter)
    return re.sub(rf"(?:^|(?<={sign}))\\N(?={sign}|[\r\n]|\Z)", "", line)


_WRAPPED: Final = re.compile(r'"((?:[^"]|"")*+)"[,;\t ]*([\r\n]*)')
_USUAL: Final = Habit("", re.compile(""), {})
_HABITS: Final = (
    Habit("each line is one quoted cell, and is read without the outer quotes", re.compile(r'^"', re.MULTILINE), {}, _unwrap),
    Habit("backslashes escape quotes, and \\N is a missing value", re.compile(r"\\"), {"escapechar": "\\"}, _clear_nulls),
    Habit(
        "blanks between quotes and delimiters are skipped", re.compile(r'[ \t]"|"[ \t]'), {"skipinitialspace": True}, _close_up
    ),
    Habit("cells are quoted with apostrophes", re.compile(r"\A'[^\"]*\Z"), {"quotechar": "'"}),
)
"""A habit is chosen only if the first lines fit their header better with it."""


@attrs.frozen
class Dialect:
    delimiter: str
    habit: Habit = _USUAL
    skip: int = 0
    """Lines before the header: 1 for `sep=;`."""
    notes: tuple[str, ...] = ()
    fit: tuple[float, int, int] = (0.0, 0, 0)
    """As `_score` returns it."""

    def parse(self, lines: Iterable[str]) -> Any:
        """Return a reader of `csv`."""
        if (rewrite := self.habit.rewrite) is not None:
            lines = (rewrite(line, self.delimiter) for line in lines)
        # `strict`, because otherwise an unclosed quote would silently hide rows.
        return csv.reader(lines, delimiter=self.delimiter, strict=True, **self.habit.options)


def detect_dialect(sample: Sequence[str], requested: str | None = None) -> Dialect:
    line = _SEPARATOR_LINE.fullmatch(sample[0]) if sample else None
    stated, skip = (_NAMES.get(line[1], line[1]), 1) if line else (None, 0)
    lines, notes = sample[skip:], tuple[str, ...]()
    choices: Collection[str] = _DELIMITER_NOTES if requested is None else (requested,)
    splits = [choice for choice in (stated, *choices) if choice and _score(lines, Dialect(choice))[2]]
    if requested is None and stated and (stated in splits or not splits):  # some programs state a delimiter that they do not use
        choices, notes = (stated,), (f"columns are separated by {stated!r}, as stated in the first line",)
    best = _choose(lines, (Dialect(choice, skip=skip) for choice in choices))
    if best.fit < (1.0, 0) and not _is_rejects_header(lines, best):
        text = "".join(lines)
        others = (Dialect(choice, habit, skip) for habit in _HABITS if habit.sign.search(text) for choice in choices)
        best = _choose(lines, (best, *others))
    notes = notes or (_DELIMITER_NOTES[best.delimiter] if requested is None else ())
    return attrs.evolve(best, notes=(*notes, *filter(None, (best.habit.note,))))


def _choose(sample: Sequence[str], dialects: Iterable[Dialect]) -> Dialect:
    """Return the dialect that fits best, the first of those that fit alike."""
    return max((attrs.evolve(each, fit=_score(sample, each)) for each in dialects), key=lambda each: each.fit)


def require_header(name: str, sample: Sequence[str], dialect: Dialect) -> None:
    """Check that most of the first rows fit the header. If not, there may be a title above it, or an unusual delimiter."""
    share, _, width = dialect.fit
    if share > _MIN_SHARE:
        return
    title, *others = [at for at, line in enumerate(sample) if line.strip()] or [0]
    got = "".join(sample[title : title + 1]).strip()
    for above in others[:MAX_TITLE]:
        better = detect_dialect(sample[above:])
        fitting, _, found = better.fit
        cells = next(parse_records(better.parse(sample[above:])))
        is_header = isinstance(cells, list) and not any(map(is_address, cells))
        if found > width and fitting == 1.0 and above < others[-1] and is_header:
            raise title_error(name, got, above + 1, found)
    for other in _OTHER_DELIMITERS if len(sample) > 1 and not width else ():
        if _score(sample, Dialect(other))[0] == 1.0:
            tried = "expected columns separated by commas, semicolons, tabs or |"
            option = f"pass the delimiter, as in --delimiter {other!r}"
            raise InvalidRequest(f"{name}: {tried}, got one column, {shorten(got, _MAX_SHOWN)!r}; {option}")


def parse_records(reader: Iterator[list[str]]) -> Iterator[list[str] | csv.Error]:
    """Yield the cells of each record, or its error. A cell with an unclosed quote extends to the end of the input."""
    while True:
        try:
            yield from reader
        except csv.Error as error:  # parsing continues
            yield error
        else:
            return


def _score(sample: Sequence[str], dialect: Dialect) -> tuple[float, int, int]:
    """Return the share of rows that fit the header, minus the number of cells that still have quotes, and its width.

    All are 0 if the header has one column.
    """
    records = [
        cells for cells in parse_records(dialect.parse(sample)) if isinstance(cells, csv.Error) or any(map(str.strip, cells))
    ]
    if records and isinstance(records[-1], csv.Error) and str(records[-1]) == UNCLOSED_MESSAGE:
        records.pop()  # the sample ends within a record
    parsed = [cells for cells in records if not isinstance(cells, csv.Error)]
    is_odd = not parsed or parsed[0] is not records[0] or (dialect.habit is not _USUAL and len(parsed) < len(records))
    width = 0 if is_odd else len(trim_cells(tuple(parsed[0]), 0))
    if width < 2:  # noqa: PLR2004 - a delimiter that never occurs fits every row
        return 0.0, 0, 0
    fitting = sum(len(trim_cells(tuple(cells), width)) == width for cells in parsed)  # the header, too
    quoted = sum(1 for cells in parsed for cell in cells[:MAX_COLUMNS] if _QUOTED.match(cell))
    return fitting / len(records), -quoted, width


def _is_rejects_header(sample: Sequence[str], dialect: Dialect) -> bool:
    header = next(parse_records(dialect.parse(sample)), [])
    return not isinstance(header, csv.Error) and count_reason_columns(header) > 0


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
class CsvFile(TextFile):
    """A CSV file with a header. A line with the delimiter for Excel, such as `sep=;`, may precede the header."""

    dialect: Dialect
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
        with closing(read_lines(source, codec)) as lines:
            header = next((cells for _, cells, _, _ in bare._read_records(lines)), ())
        if header_row is None and delimiter is None and not dialect.skip:
            require_header(source.name, sample, dialect)
        return with_header(bare, header, *encoding_notes, *dialect.notes)

    def _parse(self, lines: Iterator[str]) -> Iterator[Record]:
        records = self._read_records(lines)
        return islice(records, 1, None) if self.has_header else records

    def _find_records(self, lines: Iterator[str]) -> Iterator[object]:
        return self._parse(lines)

    def _read_records(self, lines: Iterator[str]) -> Iterator[Record]:
        """Yield the records, and before them the header, if the lines have one."""
        if self.has_header:
            lines = islice(lines, self._above, None)
        end = above = self._above if self.has_header else self.lines_above
        reader = self.dialect.parse(lines)
        with closing(read_lines(self.source, self.encoding)) as again:
            find_text = _LineFinder(again).find
            for record in parse_records(reader):
                line, end = end + 1, reader.line_num + above
                cells = record if type(record) is list else []  # not `isinstance`, which takes longer
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
