"""Detect how a CSV file is written: its delimiter, and the habits of programs that quote cells in another way."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import attrs

from outreach_async.errors import InvalidRequest
from outreach_async.importer._table import count_reason_columns, trim_cells

UNCLOSED_MESSAGE: Final = "unexpected end of data"  # csv.Error has no error code, so its message identifies the error

_DELIMITER_NOTES: Final = {
    ",": (),
    ";": ("columns are separated by semicolons",),
    "\t": ("columns are separated by tabs",),
    "|": ("columns are separated by |",),
}
"""Notes for the user, by delimiter. The keys are all delimiters that are detected."""
_OTHER_DELIMITERS: Final = ":^~!#/¦\x01\x1e\x1f"  # too rare, or too common in text, to be chosen without being asked for
_SEPARATOR_LINE: Final = re.compile(r'"?sep=([^"\w\r\n])"?[\r\n]*', re.IGNORECASE)
_NAMES: Final = {"comma": ",", "semicolon": ";", "tab": "\t", r"\t": "\t", "pipe": "|", "colon": ":", "space": " "}
_HEXADECIMAL: Final = re.compile(r"\\x([0-9a-fA-F]{2})")
_DELIMITER: Final = re.compile(r'[^"\w\r\n\0]')
_BLANK_AND_QUOTE: Final = re.compile(r'[ \t]+"')


def parse_delimiter(text: str) -> str:
    r"""Return the character that a name such as `tab`, an escape such as `\x1f`, or the character itself stands for."""
    found = _NAMES.get(text.lower()) or (chr(int(code[1], 16)) if (code := _HEXADECIMAL.fullmatch(text)) else text)
    if not _DELIMITER.fullmatch(found):
        expected = "one character that is not a letter, a digit or a quote, or comma, semicolon, tab, pipe, colon or space"
        raise InvalidRequest(f"delimiter: expected {expected}, got {text!r}; pass, for example, --delimiter tab")
    return found


class Habit(NamedTuple):
    """How programs write cells, other than with doubled quotes right at the delimiters."""

    note: str
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
PLAIN: Final = Habit("", {})
_HABITS: Final = (
    Habit("each line is one quoted cell, and is read without the outer quotes", {}, _unwrap),
    Habit("backslashes escape quotes, and \\N is a missing value", {"escapechar": "\\"}, _clear_nulls),
    Habit("blanks between quotes and delimiters are skipped", {"skipinitialspace": True}, _close_up),
)
"""A habit is chosen only if the first lines fit their header better with it."""


@attrs.frozen
class Dialect:
    delimiter: str
    habit: Habit = PLAIN
    skip: int = 0
    """Lines before the header: 1 for `sep=;`."""
    notes: tuple[str, ...] = ()

    def parse(self, lines: Iterable[str]) -> Any:
        """Return a reader of `csv`."""
        if (rewrite := self.habit.rewrite) is not None:
            lines = (rewrite(line, self.delimiter) for line in lines)
        # `strict`, because otherwise an unclosed quote would silently hide rows.
        return csv.reader(lines, delimiter=self.delimiter, strict=True, **self.habit.options)


def detect_dialect(sample: Sequence[str], requested: str | None = None) -> Dialect:
    stated = _SEPARATOR_LINE.fullmatch(sample[0]) if sample else None
    skip = 1 if stated else 0
    notes: tuple[str, ...] = ()
    if requested is not None:
        choices: Collection[str] = (requested,)
    elif stated:
        choices, notes = (stated[1],), (f"columns are separated by {stated[1]!r}, as stated in the first line",)
    else:
        choices = _DELIMITER_NOTES
    lines = sample[skip:]
    best = max((Dialect(choice, skip=skip) for choice in choices), key=lambda dialect: _score(lines, dialect))
    if _score(lines, best) < (1.0, 0) and not _is_rejects_header(lines, best):
        others = (Dialect(choice, habit, skip) for habit in _HABITS for choice in choices)
        best = max((best, *others), key=lambda dialect: _score(lines, dialect))  # the plain one if it is as good as the others
    notes = notes or (_DELIMITER_NOTES[best.delimiter] if requested is None else ())
    return attrs.evolve(best, notes=(*notes, *filter(None, (best.habit.note,))))


def require_columns(name: str, sample: Sequence[str]) -> None:
    """Check that a file with one column has no other delimiter that splits each of its first lines alike."""
    header = sample[0].strip() if sample else ""
    for other in _OTHER_DELIMITERS if len(sample) > 1 else ():
        share, _, width = _score(sample, Dialect(other))
        if width > 1 and share == 1.0:
            tried = "expected columns separated by commas, semicolons, tabs or |"
            option = f"--delimiter {other!r}"
            raise InvalidRequest(f"{name}: {tried}, got one column, {header!r}; pass the delimiter, as in {option}")


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
    """Return the share of rows with as many cells as the header, minus the cells with a quote behind blanks, and the width."""
    records = [cells for cells in parse_records(dialect.parse(sample)) if cells]
    if records and isinstance(records[-1], csv.Error) and str(records[-1]) == UNCLOSED_MESSAGE:
        records.pop()  # the sample ends within a record
    header, *rows = records or [[]]
    width = 0 if isinstance(header, csv.Error) else len(trim_cells(tuple(header), 0))
    if width < 2:  # noqa: PLR2004 - a delimiter that never occurs fits every row
        return 0.0, 0, 0
    fitting = sum(1 for cells in rows if not isinstance(cells, csv.Error) and len(trim_cells(tuple(cells), width)) == width)
    odd = sum(1 for cells in records if not isinstance(cells, csv.Error) for cell in cells if _BLANK_AND_QUOTE.match(cell))
    return (fitting + 1) / (len(rows) + 1), -odd, width


def _is_rejects_header(sample: Sequence[str], dialect: Dialect) -> bool:
    header = next(parse_records(dialect.parse(sample)), [])
    return not isinstance(header, csv.Error) and count_reason_columns(header) > 0
