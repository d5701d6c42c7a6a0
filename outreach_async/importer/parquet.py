"""Read Parquet files with pyarrow, in batches of rows."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import attrs
import pyarrow as pa
from pyarrow import types
from pyarrow.parquet import ParquetFile as Reader

from outreach_async.bulk.arrow_cells import Array, is_bytes, is_convertible, to_strings
from outreach_async.errors import InvalidRequest
from outreach_async.importer.cells import CellIssue, number_issue
from outreach_async.importer.columns import Columns
from outreach_async.importer.source import ByteSource
from outreach_async.importer.table import File, Heading, Record, Row


def _to_cells(column: Array) -> list[str]:
    return [text or "" for text in to_strings(column)]


def find_column_issues(at: int, column: Array, texts: Iterable[str]) -> dict[int, CellIssue]:
    """Return the issues of a column's cells by row, given the cells as strings."""
    if is_bytes(column.type):
        # Old programs write strings as bytes, so bytes are decoded. Encoding the text restores the bytes only if they are UTF-8.
        issue = CellIssue(at, "bytes", "the cell contains bytes that are not UTF-8; store it as text", fatal=True)
        pairs = enumerate(zip(column.to_pylist(), texts, strict=True))
        return {row: issue for row, (value, text) in pairs if value is not None and text.encode() != value}
    if not (types.is_integer(column.type) or types.is_floating(column.type)):
        return {}
    exact = types.is_integer(column.type)  # a float preserves 15 digits
    return {row: number_issue(at, text, exact=exact) for row, text in enumerate(texts) if text.lstrip("-").isdigit()}


_BATCH_SIZE: Final = 2048
_BUFFER_SIZE: Final = 1 << 20


@attrs.frozen(kw_only=True)
class ParquetFile(File):
    """A Parquet file. Its cells are converted to strings: nulls become blank cells, and times become ISO 8601 strings.

    Nested columns cannot be read; the column mapping must ignore them.

    Attributes:
        nested: Types of the nested columns, by index.
        group_sizes: Number of rows in each row group.
        group: Index of the only row group to read; `None` for all row groups.
    """

    nested: Mapping[int, str]
    group_sizes: tuple[int, ...]
    group: int | None = None

    @classmethod
    def of(cls, source: ByteSource) -> ParquetFile:
        """Open a file, and read its schema.

        Raises:
            InvalidRequest: The file is unreadable, not Parquet, or has no columns.
        """
        with _open_reader(source) as reader:
            schema, metadata = reader.schema_arrow, reader.metadata
            sizes = tuple(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
        heading = Heading.of(source.name, tuple(schema.names))
        nested = {at: str(field.type) for at, field in enumerate(schema) if not is_convertible(field.type)}
        return cls(source=source, heading=heading, notes=heading.notes, nested=nested, group_sizes=sizes)

    def rows(self, columns: Columns) -> Iterator[Row]:
        """Yield the rows in order. Rows are read when they are needed.

        Raises:
            InvalidRequest: The mapping does not ignore a nested column, or the file can no longer be read.
        """
        for at, kind in self.nested.items():
            if at < len(columns.codes) and columns.codes[at] is not None:
                name = columns.headers[at]
                what = f"expected simple values in column {name!r}, got {kind}"
                raise InvalidRequest(
                    f"{self.name}: {what}; export it as text, or leave it out with --map {shlex.quote(f'{name}=ignore')}"
                )
        return super().rows(columns)

    def column(self, at: int) -> Iterator[str]:
        """Yield the cell of one column for each row. The other columns are not read.

        Raises:
            InvalidRequest: When iterated: the file can no longer be read.
        """
        with _open_reader(self.source) as reader:
            is_unique = reader.schema_arrow.names.count(self.headers[at]) == 1
        return super().column(at) if self.rejects or not is_unique else self._read_column(self.headers[at])

    def split(self) -> tuple[File, ...]:
        """Return one `ParquetFile` for each row group. Each one reads only its own group."""
        return tuple(attrs.evolve(self, group=group) for group in range(len(self.group_sizes)))

    def _read_column(self, name: str) -> Iterator[str]:
        with _open_reader(self.source) as reader:
            for batch in self._read_batches(reader, columns=[name]):
                yield from _to_cells(batch.column(batch.schema.get_field_index(name)))

    def _read_batches(self, reader: Any, **options: Any) -> Iterator[Any]:
        groups = range(len(self.group_sizes)) if self.group is None else [self.group]
        yield from reader.iter_batches(_BATCH_SIZE, row_groups=groups, use_threads=False, **options)

    def _read_records(self) -> Iterator[Record]:
        line = 1 + sum(self.group_sizes[: self.group or 0])  # the first row is line 2, as in formats with a header line
        with _open_reader(self.source) as reader:
            for batch in self._read_batches(reader):
                texts = [_to_cells(column) for column in batch.columns]
                issues: defaultdict[int, list[CellIssue]] = defaultdict(list)
                for at, (column, cells) in enumerate(zip(batch.columns, texts, strict=True)):
                    for row, issue in find_column_issues(at, column, cells).items():
                        issues[row].append(issue)
                for row, values in enumerate(zip(*texts, strict=True)):
                    line += 1
                    yield Record(line, values, None, tuple(issues.get(row, ())))


@contextmanager
def _open_reader(source: ByteSource) -> Iterator[Any]:
    try:
        # With a buffer, the pages of a row group are read on demand. Otherwise the whole group is held in memory.
        with source.open_raw() as file, Reader(file, buffer_size=_BUFFER_SIZE, pre_buffer=False) as reader:
            yield reader
    except pa.ArrowException as error:
        reason = str(error).partition("\n")[0]
        raise InvalidRequest(f"{source.name}: not a readable Parquet file ({reason}); export it again") from error
