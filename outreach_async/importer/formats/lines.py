"""The lines of a text file, one at a time, none of them longer than can be held."""

from __future__ import annotations

from collections.abc import Generator
from io import TextIOWrapper
from typing import Final

from outreach_async.errors import InvalidRequest
from outreach_async.importer.formats.encoding import undecodable
from outreach_async.importer.source import Source

LONGEST: Final = 1 << 24
"""Characters of a line at most: a file without line ends is no table, and would have to be held whole."""


def lines_of(source: Source, codec: str) -> Generator[str]:
    """Yield the lines with their ends, which may be LF, CR LF and CR, as a file of the old Macintosh has them.

    Raises:
        InvalidRequest: They cannot be read, are not in that encoding, or go on too long.
    """
    number = 0
    try:
        with source.plain() as file, TextIOWrapper(file, encoding=codec, newline="") as text:
            while line := text.readline(LONGEST):
                number += 1
                if len(line) == LONGEST:
                    raise InvalidRequest(f"{source.name}: line {number} is longer than {LONGEST:,} characters; is it a table?")
                yield line
    except UnicodeError:
        raise undecodable(source, codec) from None
