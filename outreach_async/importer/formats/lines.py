"""Read the lines of a text file one at a time, with a limit on their length."""

from __future__ import annotations

from collections.abc import Generator
from io import TextIOWrapper
from typing import Final

from outreach_async.errors import InvalidRequest
from outreach_async.importer.formats.encoding import undecodable
from outreach_async.importer.source import Source

LONGEST: Final = 1 << 24
"""Most characters in a line. A file without line ends is not a table, and would have to be held in memory as a whole."""


def lines_of(source: Source, codec: str) -> Generator[str]:
    """Yield the lines with their ends, which may be LF, CR LF, or CR, as on the classic Mac OS.

    Raises:
        InvalidRequest: The file is unreadable, not in that encoding, or has a line that is too long.
    """
    number = 0
    try:
        with source.plain() as file, TextIOWrapper(file, encoding=codec, newline="") as text:
            while line := text.readline(LONGEST):
                number += 1
                if len(line) == LONGEST:
                    raise InvalidRequest(
                        f"{source.name}: line {number} is longer than {LONGEST:,} characters; check that the file is a table"
                    )
                yield line
    except UnicodeError:
        raise undecodable(source, codec) from None
