"""Read JSON Lines files, which have one object per line. The columns are the keys of all objects."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, TypeAlias

import attrs

from outreach_async._plumbing import Change
from outreach_async.errors import InvalidRequest
from outreach_async.importer._rows import PLAIN, CellChange, Oddity, Record, cut_text
from outreach_async.importer._source import ByteSource, open_text, read_lines
from outreach_async.importer._table import MAX_COLUMNS, TextFile, with_header
from outreach_async.importer._workbook_reader import MAX_CELL_LENGTH, MAX_ROW_SIZE

_Members: TypeAlias = tuple[tuple[str, Any], ...]


@attrs.frozen(kw_only=True)
class JsonLinesFile(TextFile):
    @classmethod
    def of(cls, source: ByteSource, encoding: str | None = None, known: Sequence[str] = ()) -> JsonLinesFile:
        """Open a file, and read the whole file once to collect its keys, unless they are known."""
        source, codec, notes = open_text(source, encoding)
        if known:
            return with_header(cls(source=source, encoding=codec, keys=tuple(known)), tuple(known), *notes)
        keys: dict[str, None] = {}  # in the order of their first occurrence
        first, count = None, 0
        with closing(read_lines(source, codec)) as text:
            objects = _read_objects(source, text)
            for line, _, members in objects:
                first, count = first or members, count + 1
                if not isinstance(members, str):
                    keys.update(dict.fromkeys(key for key, _ in members))
                if len(keys) > MAX_COLUMNS:
                    limit = f"expected at most {MAX_COLUMNS:,} keys, got more in the first {line} lines"
                    raise InvalidRequest(f"{source.name}: {limit}; check that the keys are column names, not data")
        if isinstance(first, str) and not keys:
            with closing(read_lines(source, codec)) as lines:
                is_array = next(filter(str.strip, lines)).lstrip().startswith("[")
            raise _layout_error(source, "JSON over several lines, or no JSON", ".[]" if is_array else ".")
        if count == 1 and (key := _find_list(first)) is not None:
            raise _layout_error(source, f"one object with a list of objects, {key!r}", f".{json.dumps(key)}[]")
        if count == 1 and isinstance(first, _Object) and first and all(isinstance(value, _Object) for _, value in first):
            raise _layout_error(source, "one object with an object for each key", ".[]")
        return with_header(cls(source=source, encoding=codec, keys=tuple(keys)), tuple(keys), *notes)

    def _find_records(self, lines: Iterator[str]) -> Iterator[object]:
        return _read_texts(self.source, lines)

    def _parse(self, lines: Iterator[str]) -> Iterator[Record]:
        places = {name: at for at, name in enumerate(self.keys)}
        for line, text, members in _read_objects(self.source, lines, self.lines_above):
            if isinstance(members, str):
                yield line, (), Oddity(members, text=cut_text(text)), 0
            else:
                yield _build_record(line, text, members, places)


def _layout_error(source: ByteSource, got: str, program: str) -> InvalidRequest:
    """Return an error with the command that converts a file of JSON to JSON Lines."""
    command = f"jq -c {shlex.quote(program)}"
    if (path := source.path) is not None:
        target = path.with_name(f"{path.name.partition('.')[0]}.lines.jsonl")
        unpack, place = (f"gzip -dc {shlex.quote(str(path))} | ", "") if source.is_gzip else ("", f" {shlex.quote(str(path))}")
        command = f"{unpack}{command}{place} > {shlex.quote(str(target))}"
    return InvalidRequest(f"{source.name}: expected an object per line, got {got}; convert it with: {command}")


def _find_list(members: _Members | str | None) -> str | None:
    """Return the key of the first list of objects; `None` if there is none."""
    pairs = () if members is None or isinstance(members, str) else members
    return next((key for key, value in pairs if isinstance(value, list) and value and isinstance(value[0], _Object)), None)


def _read_objects(source: ByteSource, lines: Iterator[str], above: int = 0) -> Iterator[tuple[int, str, _Members | str]]:
    """Yield the number and the text of each line with an object, and its keys and values, or an error message."""
    for number, text in _read_texts(source, lines, above):
        if len(text) > MAX_ROW_SIZE:
            yield number, text, f"the line is longer than {MAX_ROW_SIZE:,} characters; shorten its values"
        else:
            yield number, text, _parse_members(text)


def _read_texts(source: ByteSource, lines: Iterator[str], above: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that is not blank."""
    is_first = not above
    for number, line in enumerate(lines, above + 1):
        if not (text := line.strip()):
            continue
        if is_first and text.startswith("[") and text != "[":
            raise _layout_error(source, "a JSON array", ".[]")
        is_first = False
        if text in {"[", "]"}:  # of an array with an object per line
            continue
        yield number, text[:-1] if text.endswith("},") else text


def _parse_members(text: str) -> _Members | str:
    # Numbers are kept as strings, because a float would lose digits of a phone number.
    try:
        members = json.loads(text, object_pairs_hook=_Object, parse_int=_Number, parse_float=str, parse_constant=_parse_constant)
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


class _Number(str):
    """A whole number as it is spelled. A phone number may have lost its leading zeros or its plus sign before it was written."""

    __slots__ = ()


def _parse_constant(constant: str) -> str:
    if constant == "NaN":  # Python and pandas write a missing value so, although JSON does not allow it
        return constant
    raise ValueError(f"{constant} is not a JSON number")


def _build_record(line: int, text: str, members: _Members, places: dict[str, int]) -> Record:
    cells = [""] * len(places)
    issues: list[CellChange] = []
    for key, value in members:
        at = places[key]
        if isinstance(value, str):
            cells[at] = str(value)
            if isinstance(value, _Number):
                issues.append((at, Change.of_number(value, exact=True)))
        elif isinstance(value, bool):
            cells[at] = str(value).upper()
        elif value:  # an empty array says as little as null
            got = "an object" if isinstance(value, _Object) else "an array"
            message = f"expected a single value for the key {key!r}, got {got}; use a separate key per value"
            issues.append((at, Change("nested", message, message, damaged=True)))
    text = cut_text(text) if any(change.damaged for _, change in issues) else ""
    absent = {*places.values()}.difference(places[key] for key, _ in members) if len(members) < len(places) else ()
    odd = Oddity(None, tuple(issues), text, absent) if issues or absent else PLAIN
    return line, tuple(cells), odd, sum(map(len, cells))
