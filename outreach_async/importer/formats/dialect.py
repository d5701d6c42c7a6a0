"""How a CSV file parts its cells, found from its header and its first rows; pure."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs

from outreach_async.importer.file import trimmed

DELIMITERS: Final = (",", ";", "\t", "|")
UNCLOSED: Final = "unexpected end of data"  # csv.Error has no code, only this text

_WORDS: Final = {";": "semicolons part the cells", "\t": "tabs part the cells", "|": "upright strokes part the cells"}
_STATED: Final = re.compile(r'"?sep=([^"\w\r\n])"?[\r\n]*', re.IGNORECASE)


@attrs.frozen
class Dialect:
    """How cells are parted.

    Attributes:
        delimiter: By what.
        skip: Lines before the header, which state the delimiter.
    """

    delimiter: str
    skip: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of it: nothing, if it is the usual one."""
        if self.skip:
            return (f"{self.delimiter!r} parts the cells, as the first line says",)
        return (_WORDS[self.delimiter],) if self.delimiter in _WORDS else ()


def dialect_of(sample: Sequence[str]) -> Dialect:
    """Find the delimiter: the one that parts most rows into as many cells as the header, then the one with most cells.

    Args:
        sample: The first lines of a file; the last record may be cut off.
    """
    if sample and (stated := _STATED.fullmatch(sample[0])):
        return Dialect(stated[1], 1)
    return Dialect(max(DELIMITERS, key=lambda delimiter: _score(sample, delimiter)))


def parse(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, int, list[str] | csv.Error]]:
    """Yield the first and the last line of each record, from 1, and its cells, or why it has none.

    Lines without any character are no records. Parsing goes on behind a fault, but for `UNCLOSED`.
    """
    reader = csv.reader(lines, delimiter=delimiter, strict=True)  # lenient, an unclosed quote would swallow rows in silence
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
    if width < 2:  # noqa: PLR2004 - what parts nothing fits every row
        return 0.0, 0
    fitting = sum(1 for cells in rows if not isinstance(cells, csv.Error) and len(trimmed(tuple(cells), width)) == width)
    return (fitting + 1) / (len(rows) + 1), width


def _is_cut(cells: list[str] | csv.Error) -> bool:
    return isinstance(cells, csv.Error) and str(cells) == UNCLOSED
