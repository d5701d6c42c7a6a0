"""Pull the rows of the caller, and keep the values that they had then."""

from __future__ import annotations

import math
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    MappingView,
    MutableMapping,
    Sequence,
)
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import lru_cache, partial
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, TypeAlias, get_args

from outreach_async._core.arguments import require_choice, type_name, unreadable
from outreach_async._wire_words import UNSET
from outreach_async.bulk._cells import Blank, CellReader, csv_columns, is_csv, read_csv
from outreach_async.bulk._frames import ArrowStream, Numbers, UnsendableRow, is_frame, read_frame
from outreach_async.errors import Excluded, InvalidRequest
from outreach_async.models import NewContact, standard_values

_REMEDY: Final = "pass a list, a generator or an async generator of contacts"
END: Final = object()  # what `Source.pull` returns when there are no more rows
_QUICK: Final = 0.002  # seconds after which a batch of rows ends


ReadAgain: TypeAlias = Callable[[], Iterator[Any]]  # reads an input from its start
_FRAMES_IN_MEMORY: Final = frozenset({"pandas", "polars", "pyarrow"})  # a second query of DuckDB would end the first one


def _is_rereadable(rows: object) -> bool:
    """Return whether rows are certainly there when they are read a second time."""
    # An object cannot be asked. Some that have a length, such as a progress bar around a generator, and some that return a new
    # iterator each time, such as a cursor, have no rows then.
    in_memory = hasattr(rows, "__len__") and type(rows).__module__.partition(".")[0] in _FRAMES_IN_MEMORY
    return in_memory or isinstance(rows, Sequence | AbstractSet | MappingView)


class ReadRows(AsyncIterator[Any]):
    """Batches of rows that another source reads, such as that of the synchronous client, in the caller's thread."""

    def __init__(self, rows: Any, **options: Any) -> None:
        self.source = Source(rows, **options)


def _require_reading(numbers: object, normalise: object, blank: object) -> None:
    require_choice("numbers", numbers, get_args(Numbers))
    if normalise is not None and not isinstance(normalise, bool):
        remedy = "pass True, False, or None for the default of the kind of rows"
        raise InvalidRequest(f"normalise: expected a bool or None, got {type_name(normalise)}; {remedy}")
    if blank is not None:
        require_choice("blank", blank, get_args(Blank))


class Source:
    """The input of a run: the rows of the caller's iterable. A `StreamReader` reads the `stream` of an async iterable."""

    ready = True
    """Whether the next row needs no wait, and follows in the same batch."""

    def __init__(
        self,
        rows: Iterable[Any] | AsyncIterable[Any] | ArrowStream,
        numbers: Numbers = "format",
        *,
        normalise: bool | None = None,
        blank: Blank | None = None,
        is_first: bool = True,
    ) -> None:
        """Open the rows. Only a reading that `is_first` logs what it changes in them."""
        _require_reading(numbers, normalise, blank)
        self.total: int | None = None
        with suppress(TypeError):  # before a frame is read, because DuckDB runs one query at a time
            self.total = len(rows)  # type: ignore[arg-type]
        self._found: tuple[str, ...] = ()
        self.cells: CellReader | None = None
        self._logs = is_first
        self.freeze: Callable[[Any], Any] = freeze
        self.stream: AsyncIterator[Any] | None = None
        self.iterator: Iterator[Any] = iter(())
        self.read_again: ReadAgain | None = None
        """Reads the rows from the start, if they can be read more than once."""
        if (read_again := getattr(rows, "read_again", None)) is not None:  # of files that the command reads
            self.read_again = read_again
        elif _is_rereadable(rows):
            self.read_again = lambda: Source(rows, numbers, normalise=normalise, blank=blank, is_first=False).iterator
        if isinstance(rows, ReadRows):
            self.read_again = rows.source.read_again
            self.cells, self._found, self.stream = rows.source.cells, rows.source._found, rows  # noqa: SLF001 - of this class
        elif is_frame(rows) or is_csv(rows):
            self._read_table(rows, numbers, normalise=normalise is not False, blank=blank or "keep")
        else:
            self._read_rows(rows, normalise=normalise, blank=blank)

    def _read_table(self, rows: Any, numbers: Numbers, *, normalise: bool, blank: Blank) -> None:
        """Read rows whose columns are known before the first of them: their values are the cells of a table."""
        if is_csv(rows):
            columns, chunks = csv_columns(rows), read_csv(rows, freeze)
        else:
            chunks, self._found, columns = read_frame(rows, numbers, cleans=normalise, nulls=blank == "clear")
        self.cells = CellReader(columns, normalise=normalise, blank=blank, logs=self._logs)
        self.iterator = self.cells.read_table(chunks)

    def _read_rows(self, rows: Any, *, normalise: bool | None, blank: Blank | None) -> None:
        if isinstance(rows, str | bytes | Mapping | NewContact):
            raise InvalidRequest(f"rows: expected an iterable of contacts, got a single {type_name(rows)}; {_REMEDY}")
        if not isinstance(rows, AsyncIterable | Iterable):
            raise InvalidRequest(f"rows: expected an iterable of contacts, got {type_name(rows)}; {_REMEDY}")
        if normalise or blank:
            self.cells = CellReader(normalise=bool(normalise), blank=blank or "keep", logs=self._logs)
            self.freeze = partial(freeze, read=self.cells.read)
        if isinstance(rows, AsyncIterable):
            self.stream = aiter(rows)
        else:
            self.iterator = map(self.freeze, rows)

    @property
    def findings(self) -> tuple[str, ...]:
        """What was changed or found in the rows so far, and the columns of a data frame whose values are sent as text."""
        return self._found if self.cells is None else (*self._found, *self.cells.findings())

    @property
    def width(self) -> int:
        """The number of fields that each row has before blank ones are left out; 0 if that is not known."""
        return 0 if self.cells is None else self.cells.width

    def release(self) -> None:
        """Drop the iterable in the thread that reads it. A generator that nobody else needs is then closed in this thread."""
        self.iterator = iter(())

    async def pull(self) -> Any:
        """Return the next row of an iterable; `END` after the last row. Exceptions of the iterable propagate unchanged."""
        return next(self.iterator, END)

    async def pull_batch(self, limit: int, room: int) -> tuple[list[Any], int]:
        """Return the next rows of an iterable, at most `limit`, until they take `room` bytes; and the bytes left."""
        return self.pull_quickly(limit, room)

    def pull_quickly(self, limit: int, room: int, clock: Callable[[], float] | None = None) -> tuple[list[Any], int]:
        """Do what `pull_batch` does, but with a clock, end the batch with a row that was slow to come."""
        # The rows before a slow one must not wait for it for long, nor the responses to requests in flight.
        batch: list[Any] = []
        until = clock() + _QUICK if clock is not None else math.inf
        try:
            for row in islice(self.iterator, limit):
                batch.append(row)
                room -= approximate_size(row)
                if room <= 0 or (clock is not None and clock() > until):
                    break
        except Exception as error:
            if not batch:
                raise
            self.iterator, self.ready = _raising(error), False  # the rows before the error come first
        return batch, room


def _raising(error: Exception) -> Iterator[Any]:
    raise error
    yield  # type: ignore[unreachable]  # this makes it a generator, which raises when its first row is pulled


def approximate_size(row: object) -> int:
    """Return about how many bytes the values of a row take in a request."""
    # The exact size is known only after the row has been encoded.
    if type(row) is tuple and row:
        row = row[0]
    contents = row
    try:
        if type(row) is dict:  # nearly every row; a check against an abstract class takes as long as the rest of this function
            return len("".join(row.values()))
        if (cells := getattr(row, "plain", None)) is not None:
            return len("".join(cells[1]))
        if isinstance(row, NewContact):
            values = (row.email, *standard_values(row), row.custom, row.extra)  # not validated yet, so each may have any type
            contents = [value for value in values if value is not UNSET]
        elif isinstance(row, UnsendableRow):
            contents = row.values
        elif isinstance(row, Mapping):
            contents = getattr(row, "cells", None) or dict(row)  # a row of a file that cannot be sent has no items
    except Exception:  # noqa: BLE001, S110 - values that are not strings, or a row that cannot be read
        pass
    return _estimate_size(contents)


def _estimate_size(value: Any, depth: int = 4) -> int:
    """Return about how many bytes the strings in a value take. No code of the caller runs."""
    kind: type = type(value)
    if issubclass(kind, str):
        return str.__len__(value)
    if depth and (kind is dict or kind is list or kind is tuple):
        size = 0
        for each in value.values() if kind is dict else value:
            size += len(each) if type(each) is str else _estimate_size(each, depth - 1)
        return size
    return value.bit_length() // 3 if kind is int else 8


def freeze(row: Any, read: Callable[[Any], Any] | None = None) -> Any:
    """Return a copy of the row if the caller can change it, otherwise the row itself; with `read`, what that returns for it."""
    try:
        copy = _copy(row)
        return copy if read is None else read(copy)
    except MemoryError:
        raise
    except Excluded as error:
        return UnsendableRow(row, str(error), excluded=True)
    except Exception as error:  # noqa: BLE001 - code of the caller; a StopIteration would even end the input without notice
        return UnsendableRow(row, str(unreadable(error)))


def _copy(row: Any) -> Any:
    # A generator may fill one dict again and again. A row is parsed, compared and reported long after it was pulled, so it must
    # keep the values that it had then. `NewContact` and the rows of files cannot change, and have a hash.
    if type(row) is dict:  # nearly every row
        copy = row.copy()
        if "custom" not in copy and "extra" not in copy:
            return copy
    elif type(row) is tuple and row:  # a contact and its target
        return (_copy(row[0]), *row[1:])
    elif not _may_change(type(row)):  # type: ignore[arg-type]  # mypy confuses a class's hash with its instances'
        _ = row.__class__  # raises here, once, for a proxy whose object is gone
        return row
    else:
        copy = dict(row.items())  # `dict(row)` would not call the `items` of a subclass of dict
    for name in ("custom", "extra"):
        if isinstance(copy.get(name), Mapping):
            copy[name] = dict(copy[name])
    return copy


@lru_cache(maxsize=256)
def _may_change(kind: Any) -> bool:
    is_frozen = issubclass(kind, Hashable) and not issubclass(kind, MutableMapping | MappingProxyType)
    return issubclass(kind, Mapping) and not is_frozen
