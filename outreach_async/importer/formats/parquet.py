"""Parquet files, read in batches of rows with pyarrow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import attrs
import pyarrow as pa
from pyarrow.parquet import ParquetFile as Reader

from outreach_async.errors import InvalidRequest
from outreach_async.importer.columns import Columns
from outreach_async.importer.file import Heading, Table
from outreach_async.importer.formats.arrow import flaws_of, is_text, texts_of
from outreach_async.importer.record import Record
from outreach_async.importer.rows import Row
from outreach_async.importer.source import Source
from outreach_async.importer.suspects import Flaw

_BATCH: Final = 2048
_BUFFER: Final = 1 << 20


@attrs.frozen(kw_only=True)
class ParquetFile(Table):
    """A Parquet file. Its cells are strings: nulls are blank, times are ISO 8601. Nested columns can only be ignored.

    Attributes:
        nested: Types of the nested columns, by index.
    """

    nested: Mapping[int, str]

    @classmethod
    def of(cls, source: Source) -> ParquetFile:
        """Open a file, and read its schema.

        Raises:
            InvalidRequest: The file is unreadable, not Parquet, or has no columns.
        """
        with _opened(source) as reader:
            schema = reader.schema_arrow
        heading = Heading.of(source.name, tuple(schema.names))
        nested = {at: str(field.type) for at, field in enumerate(schema) if not is_text(field.type)}
        return cls(source=source, heading=heading, notes=heading.notes, nested=nested)

    def rows(self, columns: Columns) -> Iterator[Row]:
        """Yield the rows in order, reading on demand.

        Raises:
            InvalidRequest: A nested column is not ignored, or the file can no longer be read.
        """
        for at, kind in self.nested.items():
            if at < len(columns.codes) and columns.codes[at] is not None:
                name = columns.headers[at]
                raise InvalidRequest(
                    f"{self.name}: column {name!r} contains {kind}, but a field is a string; ignore it with --map '{name}=ignore'"
                )
        return super().rows(columns)

    def _read(self) -> Iterator[Record]:
        line = 1  # the first row is line 2, as below the header in other formats
        with _opened(self.source) as reader:
            for batch in reader.iter_batches(_BATCH, use_threads=False):
                texts = [texts_of(column) for column in batch.columns]
                flaws = _by_row(batch.columns, texts)
                for row, cells in enumerate(zip(*texts, strict=True)):
                    line += 1
                    yield Record(line, cells, None, tuple(flaws.get(row, ())))


def _by_row(columns: list[Any], texts: list[list[str]]) -> Mapping[int, list[Flaw]]:
    found: defaultdict[int, list[Flaw]] = defaultdict(list)
    for at, (column, cells) in enumerate(zip(columns, texts, strict=True)):
        for row, flaw in flaws_of(at, column, cells).items():
            found[row].append(flaw)
    return found


@contextmanager
def _opened(source: Source) -> Iterator[Any]:
    try:
        # Buffered, the pages of a row group are read as needed; otherwise the whole group is held in memory.
        with source.raw() as file, Reader(file, buffer_size=_BUFFER, pre_buffer=False) as reader:
            yield reader
    except pa.ArrowException as error:
        told = str(error).partition("\n")[0]
        raise InvalidRequest(f"{source.name}: not a readable Parquet file ({told}); export it again") from error
