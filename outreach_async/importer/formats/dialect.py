"""Detect the delimiter of a CSV file from its header and first rows. Pure functions."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs

from outreach_async.importer.file import trimmed

DELIMITERS: Final = (",", ";", "\t", "|")
UNCLOSED: Final = "unexpected end of data"  # csv.Error has no code, only this message

_WORDS: Final = {
    ";": "columns are separated by semicolons",
    "\t": "columns are separated by tabs",
    "|": "columns are separated by |",
}
_STATED: Final = re.compile(r'"?sep=([^"\w\r\n])"?[\r\n]*', re.IGNORECASE)


@attrs.frozen
class Dialect:
    """The delimiter of a CSV file, and the lines before its header.

    Attributes:
        delimiter: The delimiter.
        skip: Number of lines before the header, which state the delimiter.
    """

    delimiter: str
    skip: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """A note on the delimiter; none for a comma."""
        if self.skip:
            return (f"columns are separated by {self.delimiter!r}, as stated in the first line",)
        return (_WORDS[self.delimiter],) if self.delimiter in _WORDS else ()


def dialect_of(sample: Sequence[str]) -> Dialect:
    """Detect the delimiter: it gives most rows as many cells as the header; of several, the one with most cells wins.

    Args:
        sample: The first lines of a file; the last record may be incomplete.
    """
    if sample and (stated := _STATED.fullmatch(sample[0])):
        return Dialect(stated[1], 1)
    return Dialect(max(DELIMITERS, key=lambda delimiter: _score(sample, delimiter)))


def parse(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, int, list[str] | csv.Error]]:
    """Yield the first and the last line of each record, from 1, and its cells, or the error.

    Empty lines are skipped. Parsing continues after an error, except after `UNCLOSED`.
    """
    reader = csv.reader(lines, delimiter=delimiter, strict=True)  # otherwise an unclosed quote would silently swallow rows
    while True:
        first = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield first, reader.line_num, error
            continue
        if cells:
            yield first, reader.line_num, cells


def _score(sample: Sequence[str], delimiter: str) -> tuple[float, int]:
    found = [cells for _, _, cells in parse(sample, delimiter) if not _is_cut(cells)]
    header, *rows = found or [[]]
    width = 0 if isinstance(header, csv.Error) else len(trimmed(tuple(header), 0))
    if width < 2:  # noqa: PLR2004 - a delimiter that never occurs fits every row
        return 0.0, 0
    fitting = sum(1 for cells in rows if not isinstance(cells, csv.Error) and len(trimmed(tuple(cells), width)) == width)
    return (fitting + 1) / (len(rows) + 1), width


def _is_cut(cells: list[str] | csv.Error) -> bool:
    return isinstance(cells, csv.Error) and str(cells) == UNCLOSED
