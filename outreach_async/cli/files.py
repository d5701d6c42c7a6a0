"""The options that say how a file of rows is to be read."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import attrs
import click

from outreach_async.importer import FORMATS, File, open_file

STDIN: Final = "-"

_OPTIONS: Final = (
    click.option("--encoding", metavar="NAME", help="How to read a text that is not UTF-8, such as cp1252."),
    click.option("--sheet", metavar="NAME", help="Sheet of a workbook; the first one that can be seen by default."),
    click.option("--format", "format_", type=click.Choice(FORMATS), help="Format of the file, whatever it looks like."),
)


@attrs.frozen(kw_only=True)
class Reading:
    """How to read a file.

    Attributes:
        encoding: Of a text.
        sheet: Of a workbook.
        format: Of the file; found out if not given.
    """

    encoding: str | None
    sheet: str | None
    format: str | None

    def open(self, path: str | Path) -> File:
        """Open a file.

        Raises:
            InvalidRequest: It cannot be read so.
        """
        return open_file(path, encoding=self.encoding, sheet=self.sheet, format=self.format)


def file_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the options for a command, which takes them as `reading`."""

    @wraps(command)
    def with_reading(*, encoding: str | None, sheet: str | None, format_: str | None, **arguments: Any) -> Any:
        return command(reading=Reading(encoding=encoding, sheet=sheet, format=format_), **arguments)

    for option in reversed(_OPTIONS):
        with_reading = option(with_reading)
    return with_reading
