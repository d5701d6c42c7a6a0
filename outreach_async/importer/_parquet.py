"""Read Parquet files with pyarrow, in batches of rows."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs
import pyarrow as pa
from pyarrow import compute, types
from pyarrow.parquet import ParquetFile as Reader

from outreach_async._plumbing import Change, cell_kind, to_strings
from outreach_async.errors import InvalidRequest
from outreach_async.importer._columns import Columns
from outreach_async.importer._consent import CONSENT_CODES
from outreach_async.importer._rows import PLAIN, Block, CellChange, Oddity, Record, group_records
from outreach_async.importer._source import ByteSource
from outreach_async.importer._table import File, with_header
from outreach_async.importer._workbook_reader import MAX_CELL_LENGTH, MAX_ROW_SIZE


def _to_cells(column: Any) -> list[str]:
    try:
        return [text or "" for text in to_strings(column)]
    except ValueError:  # pyarrow's own error; for example, of a time zone that this system does not know
        what = f"expected columns that this system can convert to text, got {column.type}"
    raise InvalidRequest(f"file: {what}; store the column as text")


def find_column_changes(column: Any, texts: Iterable[str]) -> dict[int, Change]:
    if cell_kind(column.type) == "bytes":
        # Old programs write strings as bytes, so bytes are decoded. Encoding the text restores the bytes only if they are UTF-8.
        message = "the cell contains bytes that are not UTF-8; store it as text"
        change = Change("bytes", message, message, damaged=True)
        pairs = enumerate(zip(column.to_pylist(), texts, strict=True))
        return {row: change for row, (value, text) in pairs if value is not None and text.encode() != value}
    if not (types.is_integer(column.type) or types.is_floating(column.type)):
        return {}
    exact = types.is_integer(column.type)  # a float preserves 15 digits
    return {row: Change.of_number(text, exact=exact) for row, text in enumerate(texts) if text.lstrip("-").isdigit()}


_MAX_BATCH_ROWS: Final = 2048
_MAX_BATCH_SIZE: Final = 1 << 24  # bytes that a batch may take before its cells can be checked
_BUFFER_SIZE: Final = 1 << 20
_DICTIONARY_ENCODINGS: Final = frozenset({"PLAIN_DICTIONARY", "RLE_DICTIONARY"})
_MAX_RATIO: Final = 200  # of unpacked to packed size; files of people unpack to 1 to 10 times their size
_ALLOWED_SIZE: Final = 1 << 26  # bytes that any file may unpack to


@attrs.frozen(kw_only=True)
class ParquetFile(File):
    """A Parquet file. Its cells are converted to strings: nulls become blank cells, and times become ISO 8601 strings."""

    # Nested columns cannot be read; the column mapping must ignore them.

    nested: Mapping[int, str]
    group_sizes: tuple[int, ...]
    group: int | None = None
    _names: tuple[str, ...]

    @classmethod
    def of(cls, source: ByteSource) -> ParquetFile:
        with _open_reader(source) as reader:
            schema, metadata = reader.schema_arrow, reader.metadata
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
        packed = sum(chunk.total_compressed_size for chunk in chunks)
        unpacked = sum(chunk.total_uncompressed_size for chunk in chunks) + sum(group.num_rows for group in groups)
        if unpacked > max(_ALLOWED_SIZE, _MAX_RATIO * packed):
            growth = f"{packed:,} bytes unpack to {unpacked:,} bytes and rows"
            raise InvalidRequest(f"{source.name}: {growth}; check that the file is a table of people, and export it as CSV")
        nested = {at: str(field.type) for at, field in enumerate(schema) if cell_kind(field.type) == "other"}
        sizes, names = tuple(group.num_rows for group in groups), tuple(schema.names)
        return with_header(cls(source=source, nested=nested, group_sizes=sizes, names=names), names)

    def _read_mapped(self, columns: Columns, size: int, max_length: int) -> Iterator[Block]:
        for at, kind in self.nested.items():
            if at < len(columns.codes) and columns.codes[at] is not None:
                name = columns.headers[at]
                what = f"expected simple values in column {name!r}, got {kind}"
                other = f", or leave it out with --map {shlex.quote(f'{name}=ignore')}"
                remedy = "export it as text" + (other if columns.codes[at] not in CONSENT_CODES else "")
                raise InvalidRequest(f"{self.name}: {what}; {remedy}")
        return super()._read_mapped(columns, size, max_length)

    def column(self, at: int) -> Iterator[str]:
        """Yield the cell of one column for each row. The other columns are not read."""
        if self._names.count(self._names[at]) > 1 or at in self.nested or self.rejects:
            return super().column(at)
        return (cell for batch in self._read_batches([self._names[at]]) for cell in _to_cells(batch.column(0)))

    def split(self, parts: int = 1) -> tuple[File, ...]:
        """Return one `ParquetFile` for each row group. Each one reads only its own group."""
        del parts
        return tuple(attrs.evolve(self, group=group) for group in range(len(self.group_sizes)))

    def _read_batches(self, names: Sequence[str]) -> Iterator[Any]:
        groups = range(len(self.group_sizes)) if self.group is None else [self.group]
        with _open_reader(self.source) as reader, _open_reader(self.source, read_dictionary=names) as encoded:
            for group in groups:
                rows = _choose_batch_rows(encoded, group, names)
                for batch in reader.iter_batches(rows, row_groups=[group], columns=names, use_threads=False):
                    # No cell may be longer than in another format. The size in bytes is checked first: it is known.
                    for name, column in zip(batch.schema.names, batch.columns, strict=True):
                        if _longest(column) > MAX_CELL_LENGTH and max(map(len, _to_cells(column))) > MAX_CELL_LENGTH:
                            what = f"column {name!r} has a cell of more than {MAX_CELL_LENGTH:,} characters"
                            remedy = "shorten the cell, or export the file without the column"
                            raise InvalidRequest(f"{self.name}: {what}; {remedy}")
                    yield batch

    def _read_blocks(self, size: int, max_length: int) -> Iterator[Block]:
        return group_records(self._read_records(), size, max_length)

    def _read_records(self) -> Iterator[Record]:
        line = 1 + sum(self.group_sizes[: self.group or 0])  # the first row is line 2, as in formats with a header line
        # Nested columns are not read, because a few bytes may describe millions of values. Their cells are blank.
        names = [name for at, name in enumerate(self._names) if at not in self.nested]
        places = [at for at, name in enumerate(self._names) if name in names]
        for batch in self._read_batches(names):
            texts: list[Sequence[str]] = [("",) * len(batch)] * len(self._names)
            issues: defaultdict[int, list[CellChange]] = defaultdict(list)
            for at, column in zip(places, batch.columns, strict=True):
                texts[at] = _to_cells(column)
                for row, change in find_column_changes(column, texts[at]).items():
                    issues[row].append((at, change))
            may_exceed = _longest_row(batch) > MAX_ROW_SIZE
            for row, values in enumerate(zip(*texts, strict=True)):
                line += 1
                length = sum(map(len, values))
                if may_exceed and length > MAX_ROW_SIZE:
                    limit = f"{MAX_ROW_SIZE:,} characters"
                    raise InvalidRequest(f"{self.name}: row {line} is longer than {limit}; check that the file is a table")
                yield line, values, Oddity(issues=tuple(issues[row])) if row in issues else PLAIN, length


def _choose_batch_rows(reader: Any, group: int, names: Sequence[str]) -> int:
    """Return the number of rows to decode at once. Their cells can be checked only when they are decoded."""
    # Two encodings let a few bytes describe many long cells. With a dictionary, a cell is at most as long as the longest value of
    # the dictionary, which is read here with the first row. With deltas, a cell may repeat everything before it.
    metadata = reader.metadata.row_group(group)
    chunks = [metadata.column(at) for at in range(metadata.num_columns)]
    with_dictionary = {chunk.path_in_schema for chunk in chunks if _DICTIONARY_ENCODINGS.intersection(chunk.encodings)}
    longest: int = sum(chunk.total_uncompressed_size for chunk in chunks if "DELTA_BYTE_ARRAY" in chunk.encodings)
    if columns := [name for name in names if name in with_dictionary]:
        first = next(reader.iter_batches(1, row_groups=[group], columns=columns, use_threads=False), None)
        longest += _longest_row(first) if first is not None else 0
    return max(1, min(_MAX_BATCH_ROWS, _MAX_BATCH_SIZE // max(longest, 1)))


def _longest_row(batch: Any) -> int:
    """Return the number of bytes that no row of a batch exceeds: the sum of the longest values of its columns."""
    return sum(map(_longest, batch.columns))


def _longest(column: Any) -> int:
    """Return the size of the longest value of a column in bytes; 0 if the values have no text."""
    values = column.dictionary if types.is_dictionary(column.type) else column
    if cell_kind(values.type) not in {"text", "bytes"}:
        return 0
    longest: int | None = compute.max(compute.binary_length(values.cast(pa.large_binary()))).as_py()
    return longest or 0


@contextmanager
def _open_reader(source: ByteSource, **options: Any) -> Iterator[Any]:
    try:
        # With a buffer, the pages of a row group are read on demand. Otherwise the whole group is held in memory.
        with source.open_raw() as file, Reader(file, buffer_size=_BUFFER_SIZE, pre_buffer=False, **options) as reader:
            yield reader
    except pa.ArrowException as error:
        reason = str(error).partition("\n")[0]
        raise InvalidRequest(f"{source.name}: not a readable Parquet file ({reason}); export it again") from error
