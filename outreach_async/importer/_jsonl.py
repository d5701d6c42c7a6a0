"""Read JSON Lines files, which have one object per line. The columns are the keys of all objects."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any, TypeAlias

import attrs

from outreach_async._service.values import Change
from outreach_async.errors import InvalidRequest
from outreach_async.importer._source import ByteSource, detect_encoding, read_lines
from outreach_async.importer._table import MAX_COLUMNS, Block, CellChange, File, Record, group_records, with_header
from outreach_async.importer._workbook_reader import MAX_CELL_LENGTH, MAX_ROW_SIZE

_Members: TypeAlias = tuple[tuple[str, Any], ...]


@attrs.frozen(kw_only=True)
class JsonLinesFile(File):
    encoding: str
    _keys: tuple[str, ...]

    @classmethod
    def of(cls, source: ByteSource, encoding: str | None = None) -> JsonLinesFile:
        """Open a file, and read the whole file once to collect its keys."""
        codec, notes = detect_encoding(source, encoding)
        keys: dict[str, None] = {}  # in the order of their first occurrence
        with closing(_read_objects(source, codec)) as objects:
            for line, members in objects:
                if not isinstance(members, str):
                    keys.update(dict.fromkeys(key for key, _ in members))
                if len(keys) > MAX_COLUMNS:
                    limit = f"expected at most {MAX_COLUMNS:,} keys, got more in the first {line} lines"
                    raise InvalidRequest(f"{source.name}: {limit}; check that the keys are column names, not data")
        return with_header(cls(source=source, encoding=codec, keys=tuple(keys)), tuple(keys), *notes)

    def _read_blocks(self, size: int, max_length: int) -> Iterator[Block]:
        return group_records(self._read_records(), size, max_length)

    def _read_records(self) -> Iterator[Record]:
        places = {name: at for at, name in enumerate(self._keys)}
        for line, members in _read_objects(self.source, self.encoding):
            yield Record(line, (), members) if isinstance(members, str) else _build_record(line, members, places)


def _read_objects(source: ByteSource, codec: str) -> Generator[tuple[int, _Members | str]]:
    """Yield the number of each line that is not blank, and the keys and values of its object, or an error message."""
    for number, line in enumerate(read_lines(source, codec), 1):
        if not (text := line.strip()):
            continue
        if number == 1 and text.startswith("["):
            raise InvalidRequest(f"{source.name}: expected an object per line, got a JSON array; convert it with 'jq -c .[]'")
        if len(text) > MAX_ROW_SIZE:
            yield number, f"the line is longer than {MAX_ROW_SIZE:,} characters; shorten its values"
        else:
            yield number, _parse_members(text)


def _parse_members(text: str) -> _Members | str:
    # Numbers are kept as strings, because a float would lose digits of a phone number.
    try:
        members = json.loads(text, object_pairs_hook=_Object, parse_int=str, parse_float=str, parse_constant=_parse_constant)
    except RecursionError:
        return "the line is nested too deeply; write an object whose values are strings"
    except ValueError as error:
        return f"the line is not JSON: {error}; write one JSON object per line"
    if not isinstance(members, _Object):
        return 'the line is not a JSON object; write, for example, {"email": "ann@company.example"}'
    keys = [key for key, _ in members]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        return f"the key {twice!r} occurs more than once; keep only one"
    for key, value in members:
        if isinstance(value, str) and len(value) > MAX_CELL_LENGTH:
            return f"the value of {key!r} is longer than {MAX_CELL_LENGTH:,} characters; shorten it"
    return members


class _Object(tuple[tuple[str, Any], ...]):
    # a type of its own, because an array is a tuple, too
    __slots__ = ()


def _parse_constant(constant: str) -> str:
    if constant == "NaN":  # Python and pandas write a missing value so, although JSON does not allow it
        return constant
    raise ValueError(f"{constant} is not a JSON number")


def _build_record(line: int, members: _Members, places: dict[str, int]) -> Record:
    cells = [""] * len(places)
    issues: list[CellChange] = []
    for key, value in members:
        at = places[key]
        if isinstance(value, str):
            cells[at] = value
        elif isinstance(value, bool):
            cells[at] = str(value).upper()
        elif value is not None:
            got = "an object" if isinstance(value, _Object) else "an array"
            message = f"expected a single value for the key {key!r}, got {got}; use a separate key per value"
            issues.append((at, Change("nested", message, damaged=True)))
    return Record(line, tuple(cells), None, tuple(issues))
