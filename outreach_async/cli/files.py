"""Options for reading a file of rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import attrs
import click

from outreach_async.importer import FORMATS, File, open_file

STDIN: Final = "-"

_FILE_OPTIONS: Final = (
    click.option("--encoding", metavar="NAME", help="Encoding of a CSV or JSON Lines file that is not UTF-8, such as cp1252."),
    click.option("--sheet", metavar="NAME", help="Sheet of a workbook.  [default: the first visible one]"),
    click.option("--format", "format_", type=click.Choice(FORMATS), help="File format.  [default: detected]"),
)


@attrs.frozen(kw_only=True)
class ReadOptions:
    """Options for reading a file.

    Attributes:
        encoding: Encoding of a CSV or JSON Lines file; `None` for UTF-8 or as the byte order mark says.
        sheet: Sheet of a workbook; `None` for the first visible one.
        format: Format of the file; `None` to detect it.
    """

    encoding: str | None
    sheet: str | None
    format: str | None

    def open(self, path: str | Path) -> File:
        """Open a file.

        Raises:
            InvalidRequest: The file cannot be read with these options.
        """
        return open_file(path, encoding=self.encoding, sheet=self.sheet, format=self.format)


def file_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the options for a command, which receives them as `reading`."""

    @wraps(command)
    def with_reading(*, encoding: str | None, sheet: str | None, format_: str | None, **arguments: Any) -> Any:
        return command(reading=ReadOptions(encoding=encoding, sheet=sheet, format=format_), **arguments)

    for option in reversed(_FILE_OPTIONS):
        with_reading = option(with_reading)
    return with_reading
