"""JSON Lines: an object a line; its columns are all the keys that there are."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any, Final, Never, TypeAlias

import attrs

from outreach_async.errors import InvalidRequest
from outreach_async.importer.file import Heading, Table
from outreach_async.importer.formats.encoding import encoding_of
from outreach_async.importer.formats.lines import lines_of
from outreach_async.importer.record import Record
from outreach_async.importer.source import Given, Source
from outreach_async.importer.suspects import Flaw

_WIDEST: Final = 1000
"""Columns at most: a file with more has data for keys."""

_Members: TypeAlias = tuple[tuple[str, Any], ...]


@attrs.frozen(kw_only=True)
class JsonLinesFile(Table):
    """A file with a JSON object on each line.

    Attributes:
        encoding: How its bytes are read, as Python calls it.
    """

    encoding: str
    _keys: tuple[str, ...]

    @classmethod
    def open(cls, path: Given, *, encoding: str | None = None) -> JsonLinesFile:
        """Read the file once for its keys.

        Args:
            path: Where the file is; `"-"` is standard input, and a stream will do.
            encoding: How to read it; without, it has to be UTF-8, or begin with a byte order mark.

        Raises:
            InvalidRequest: Not readable, not in that encoding, without any key, or with more than a thousand.
        """
        return cls.of(Source.of(path), encoding)

    @classmethod
    def of(cls, source: Source, encoding: str | None = None) -> JsonLinesFile:
        """Do the same for bytes that have been found."""
        found = encoding_of(source, encoding)
        keys = _keys_of(source, found.codec)
        heading = Heading.of(source.name, keys)
        return cls(source=source, heading=heading, encoding=found.codec, notes=(*found.notes, *heading.notes), keys=keys)

    def _read(self) -> Iterator[Record]:
        places = {name: at for at, name in enumerate(self._keys)}
        for line, members in _objects(self.source, self.encoding):
            yield Record(line, (), members) if isinstance(members, str) else _record(line, members, places)


def _keys_of(source: Source, codec: str) -> tuple[str, ...]:
    """Return all keys, in the order in which they first come."""
    keys: dict[str, None] = {}
    with closing(_objects(source, codec)) as objects:
        for line, members in objects:
            if not isinstance(members, str):
                keys.update(dict.fromkeys(key for key, _ in members))
            if len(keys) > _WIDEST:
                raise InvalidRequest(f"{source.name}: by line {line} there are more than {_WIDEST:,} keys; is it a table?")
    return tuple(keys)


def _objects(source: Source, codec: str) -> Generator[tuple[int, _Members | str]]:
    """Yield the number of each line that is not blank, and its members, or why it has none."""
    for number, line in enumerate(lines_of(source, codec), 1):
        if not (text := line.strip()):
            continue
        if number == 1 and text.startswith("["):
            raise InvalidRequest(f"{source.name}: a JSON array; write an object a line instead, as 'jq -c .[]' does")
        yield number, _members(text)


def _members(text: str) -> _Members | str:
    # Numbers stay as they are written: as floats, the digits of a phone would not come back.
    try:
        found = json.loads(text, object_pairs_hook=_Object, parse_int=str, parse_float=str, parse_constant=_refuse)
    except RecursionError:
        return "the line is nested too deeply"
    except ValueError as error:
        return f"the line is no JSON: {error}"
    if not isinstance(found, _Object):
        return "the line is no JSON object; write its members by name"
    keys = [key for key, _ in found]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        return f"the key {twice!r} stands twice; keep one of them"
    return found


class _Object(tuple[tuple[str, Any], ...]):
    """The members of an object: no JSON array becomes one."""

    __slots__ = ()


def _refuse(constant: str) -> Never:
    raise ValueError(f"{constant} is no JSON number")


def _record(line: int, members: _Members, places: dict[str, int]) -> Record:
    cells = [""] * len(places)
    flaws: list[Flaw] = []
    for key, value in members:
        at = places[key]
        if isinstance(value, str):
            cells[at] = value
        elif isinstance(value, bool):
            cells[at] = str(value).upper()
        elif value is not None:
            what = "an object" if isinstance(value, _Object) else "an array"
            flaws.append(
                Flaw(
                    at,
                    "nested",
                    f"{key!r} holds {what}, and a field is one text; write its parts under names of their own",
                    fatal=True,
                )
            )
    return Record(line, tuple(cells), None, tuple(flaws))
