"""The files of a command: options for reading a file, and checks before a file is written.

A command does not write one file twice, or a file that it reads (with the exceptions in `_SHAREABLE_OPTIONS`). Without
`--force`, it replaces an existing file only if the file looks like an output of the same option.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, wraps
from itertools import combinations
from pathlib import Path
from stat import S_ISREG
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias
from unicodedata import normalize

import attrs
import click

from outreach_async._files.atomic import check_writable, parse_descriptor
from outreach_async._files.objects import is_url

if TYPE_CHECKING:
    from outreach_async.importer import File

PATH: Final = click.Path(path_type=Path)  # a file to read

OpenInput: TypeAlias = "partial[File]"
"""The function `open_file`, bound to the values of `--encoding`, `--sheet`, `--header-row` and `--format`."""


def file_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the options for reading a file. The command receives `open_input`, which applies these options."""

    @click.option(
        "--encoding",
        metavar="NAME",
        help="Encoding of a CSV or JSON Lines file, such as cp1252.  [default: that of the byte order mark, or UTF-8]",
    )
    @click.option("--sheet", metavar="NAME", help="Sheet of a workbook.  [default: the first visible one]")
    @click.option(
        "--header-row", type=click.IntRange(1), metavar="N", help="Line or row of the column names.  [default: the first]"
    )
    @click.option(
        "--format", "format_", type=click.Choice(("csv", "jsonl", "parquet", "xlsx")), help="File format.  [default: detected]"
    )
    @wraps(command)
    def with_open_input(
        *, encoding: str | None, sheet: str | None, header_row: int | None, format_: str | None, **arguments: Any
    ) -> Any:
        from outreach_async.importer import open_file  # imported on demand: it would make the help slow

        open_input = partial(open_file, encoding=encoding, sheet=sheet, header_row=header_row, format=format_)
        return command(open_input=open_input, **arguments)

    return with_open_input


STDIN: Final = "-"
STDOUT: Final = Path("/dev/stdout")
_JOURNAL_SUFFIXES: Final = ("", "-wal", "-shm", "-journal", "-lock")  # of the files of a journal, after its path
_SHAREABLE_OPTIONS: Final = frozenset({frozenset({"--compare", "--output"}), frozenset({"--mapping", "--save-mapping"})})
"""Pairs of options that may name the same file, because the command reads the file first and then replaces the whole file."""

FileKey: TypeAlias = tuple[int | str, ...]
"""The identity of a file: its device and inode. For a new file: the device and inode of its folder, and its name without case."""
HasFormat: TypeAlias = Callable[[Path], bool]
"""A function that returns whether an existing file looks like a file of the output format."""


class _Location(click.Path):
    def __init__(self) -> None:
        super().__init__(path_type=Path)


class OutputPath(_Location):
    """Parameter type of a file to write; `-` is standard output."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, with `-` replaced by the path of standard output."""
        return super().convert(str(STDOUT) if value == STDIN else value, param, ctx)


JournalLocation: TypeAlias = Path | str
"""The path of a journal's file, or the URL of an object journal."""


class JournalType(_Location):
    """Parameter type for the path or the URL of a journal or an input file."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a URL unchanged, and any other value as a path."""
        return value if is_url(value) else super().convert(value, param, ctx)


force_option: Final = click.option(
    "--force", is_flag=True, help="Overwrite an existing file even if it does not look like an output of the same option."
)
results_option: Final = click.option(
    "--results",
    metavar="PATH",
    type=OutputPath(),
    help="File with the outcome of every row: its line, e-mail, workspace, campaign, status, certainty, possible outcomes, "
    "attempts, contact id, error and remedy. CSV, or JSON Lines or Parquet if the name ends in .jsonl or .parquet.",
)


def mapping_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the options that map columns. The command receives `maps`, `mapping` and `ignore_unknown`."""
    options = (
        click.option(
            "--map",
            "maps",
            metavar="'COLUMN=CODE'",
            multiple=True,
            help="Send a column as the field with this code; the code 'ignore' skips the column; repeatable.",
        ),
        click.option(
            "--mapping", metavar="PATH", type=PATH, help="Read the column mapping from this TOML file; --map overrides it."
        ),
        click.option(
            "--ignore-unknown", is_flag=True, help="Skip columns that match no field. An ambiguous column is still an error."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


rejects_option: Final = click.option(
    "--rejects", metavar="PATH", type=OutputPath(), help="CSV file for rejected, not_applied and unknown rows."
)


@attrs.frozen
class FileUse:
    """A file that the command line names, and whether the command reads or writes it."""

    flag: str
    path: Path
    keys: frozenset[FileKey]
    written: bool = False
    has_format: HasFormat | None = None

    @classmethod
    def for_reading(cls, flag: str, path: Path | None) -> Iterator[Self]:
        """Yield a `FileUse` for a file that is read, or nothing if `path` is `None`. The path `-` is standard input."""
        if path is not None:
            yield cls(flag, path, find_keys(0 if str(path) == STDIN else path))

    @classmethod
    def for_journal(cls, flag: str, path: JournalLocation | None, *, written: bool) -> Iterator[Self]:
        """Yield a `FileUse` for a journal and the files beside it, or nothing if `path` is `None` or a URL."""
        if isinstance(path, Path):
            bases = {str(path), os.path.realpath(path)}
            keys = frozenset().union(*(find_keys(Path(base + end)) for base in bases for end in _JOURNAL_SUFFIXES))
            yield cls(flag, path, keys, written)

    @classmethod
    def for_writing(cls, flag: str, path: Path | None, has_format: HasFormat) -> Iterator[Self]:
        """Yield a `FileUse` for a file that is written, or nothing if `path` is `None`."""
        if path is not None:
            yield cls(flag, path, find_keys(path), written=True, has_format=has_format)


def require_writable(*uses: Iterable[FileUse], force: bool) -> None:
    """Check every file of a command before any of them is written."""
    files = [file for use in uses for file in use]
    for file in files:
        if file.written:
            require_folder(file.flag, file.path)
    for one, other in find_conflicts(files):
        text = f"{one.flag} {one.path} and {other.flag} {other.path} are the same file"
        raise click.UsageError(f"{text}; pass another path to {(other if other.written else one).flag}.")
    for file in files:
        if file.has_format and not force and _has_content(file.path) and not file.has_format(file.path):
            text = f"{file.flag} {file.path}: the file exists and does not look like an output of this option"
            raise click.UsageError(f"{text}; pass another path, or overwrite the file with --force.")
    for file in files:
        # Skip pipes and devices, which have no keys, and descriptors such as /dev/stdout, which are already open.
        if file.written and file.keys and parse_descriptor(file.path) is None:
            with explain_write_errors(file.flag, file.path):
                _check_output(file)


def _check_output(file: FileUse) -> None:
    if file.has_format:  # a temporary file is written in the same folder, and then replaces the file
        check_writable(file.path)
        return
    with TemporaryFile(dir=Path(os.path.realpath(file.path)).parent):  # a journal creates more files in its folder
        if file.path.exists():
            file.path.open("r+b").close()


def find_conflicts(uses: Iterable[FileUse]) -> Iterator[tuple[FileUse, FileUse]]:
    """Yield each conflict: two uses of the same file, at least one of which writes it. `_SHAREABLE_OPTIONS` lists exceptions."""
    for one, other in combinations(uses, 2):
        may_share = {one.flag, other.flag} in _SHAREABLE_OPTIONS or not (one.written or other.written)
        if one.keys & other.keys and not may_share:
            yield one, other


def find_keys(path: Path | int) -> frozenset[FileKey]:
    """Return keys that identify a file. Two paths with a common key, such as a file and a link to it, refer to the same file."""
    # For a pipe or a device, the set is empty, because a pipe or a device stores nothing that a second use could overwrite.
    try:
        facts = os.fstat(path) if isinstance(path, int) else path.stat()
    except OSError:
        return frozenset() if isinstance(path, int) else frozenset({_find_new_key(Path(os.path.realpath(path)))})
    return frozenset({(facts.st_dev, facts.st_ino)}) if S_ISREG(facts.st_mode) else frozenset()


def _find_new_key(path: Path) -> FileKey:
    try:
        facts = path.parent.stat()
    except OSError:
        return (str(path),)
    return facts.st_dev, facts.st_ino, normalize("NFC", path.name.casefold())  # many file systems ignore case


def require_folder(flag: str, path: Path) -> None:
    """Check that the folder of an output file exists, before any work is done."""
    with explain_write_errors(flag, path), suppress(FileNotFoundError, NotADirectoryError):
        path.lstat()  # a name that is too long fails here, so the error names the option
    if path.is_dir():
        raise click.UsageError(f"{flag} {path}: expected a file, got a folder; pass the path of a file.")
    if not path.parent.is_dir():
        raise click.UsageError(f"{flag} {path}: the folder {str(path.parent)!r} does not exist; create it first.")


@contextmanager
def explain_os_errors(flag: str, value: Path | str, remedy: str) -> Iterator[None]:
    """Replace an `OSError` of the block, which may name no file or a temporary one, by an error that names an option."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise click.ClickException(f"{flag} {value}: {error.strerror or error}; {remedy}") from error


explain_read_errors: Final = partial(explain_os_errors, remedy="pass the path of a file that can be read")
explain_write_errors: Final = partial(explain_os_errors, remedy="free disk space, or pass another path that can be written")


def _has_content(path: Path) -> bool:
    return parse_descriptor(path) is None and path.is_file() and path.stat().st_size > 0
