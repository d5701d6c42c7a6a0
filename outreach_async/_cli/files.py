"""The files of a command: checks before any file is written, and the files that an import writes while it runs.

A command does not write one file twice, or a file that it reads (with the exceptions in `_SHAREABLE_OPTIONS`). Without
`--force`, it replaces an existing file only if the file looks like an output of the same option. What an import writes is
complete or absent, or beside its path for an unfinished run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import combinations
from pathlib import Path
from stat import S_ISREG
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from unicodedata import normalize

import attrs
import click

from outreach_async._plumbing import partial_path

if TYPE_CHECKING:
    from outreach_async._cli.output import Screen
    from outreach_async._cli.settings import FileSettings
    from outreach_async.bulk import ContactOutcome
    from outreach_async.importer import File, FindingsFile, RejectsFile, ResultsFile

STDIN: Final = "-"
_JOURNAL_SUFFIXES: Final = ("", "-wal", "-shm", "-journal", "-lock")  # of the files of a journal, after its path
_SHAREABLE_OPTIONS: Final = frozenset(
    map(frozenset, (("--compare", "--output"), ("--mapping", "--save-mapping"), ("--ledger", "--held-by")))
)
"""Pairs of options that may name the same file: the command reads it first and then replaces it, or uses it as one ledger."""

OpenInput: TypeAlias = "partial[File]"
JournalLocation: TypeAlias = Path | str
"""The path of a journal's file, or the URL of an object journal."""
WriteOutcome: TypeAlias = "Callable[[ContactOutcome], object]"
_Key: TypeAlias = tuple[int | str, ...]
"""The identity of a file: its device and inode. For a new file: the device and inode of its folder, and its name without case."""


def input_opener(settings: FileSettings) -> OpenInput:
    """Return a function that opens a file with the options for reading it."""
    from outreach_async.importer import open_file  # imported on demand: few commands read an input

    if settings["keeps"] and settings["results"] is None:
        raise click.UsageError("--keep: copies columns into a results file; pass --results FILE, too.")
    return partial(
        open_file,
        format=settings["form"],
        encoding=settings["encoding"],
        sheet=settings["sheet"],
        header_row=settings["header_row"],
        delimiter=settings["delimiter"],
        short_rows=settings["short_rows"],
        hidden=settings["hidden"],
    )


@attrs.frozen
class FileUse:
    """A file that the command line names, and whether the command reads or writes it."""

    flag: str
    path: Path
    keys: frozenset[_Key]
    written: bool = False
    has_format: Callable[[Path], bool] | None = None

    @classmethod
    def of(cls, flag: str, path: Path | None, has_format: Callable[[Path], bool] | None = None) -> list[FileUse]:
        """Return the use of a file, which is written if `has_format` tells whether it looks like an earlier output."""
        if path is None:
            return []
        written = has_format is not None
        return [cls(flag, path, find_keys(0 if str(path) == STDIN and not written else path), written, has_format)]

    @classmethod
    def of_run(cls, flag: str, path: Path | None, has_format: Callable[[Path], bool]) -> list[FileUse]:
        """Return the uses of a file that a run writes: of its path, and of the path beside it if the run is unfinished."""
        uses = cls.of(flag, path, has_format)
        if path is not None:
            with explain_write_errors(flag, path):
                beside = partial_path(path)
            uses += cls.of(flag, beside if beside and beside.parent.is_dir() else None, has_format)
        return uses

    @classmethod
    def of_journal(cls, flag: str, path: JournalLocation | None, *, written: bool) -> list[FileUse]:
        """Return the use of a journal and the files beside it; nothing for a URL."""
        if not isinstance(path, Path):
            return []
        bases = {str(path), os.path.realpath(path)}
        keys = (find_keys(Path(base + end)) for base in bases for end in _JOURNAL_SUFFIXES)
        return [cls(flag, path, frozenset[_Key]().union(*keys), written)]


def require_writable(*uses: Sequence[FileUse], force: bool) -> None:
    """Check every file of a command before any of them is written."""
    files = [file for use in uses for file in use]
    outputs = [file for file in files if file.written]
    for file in outputs:
        require_folder(file.flag, file.path)
    for one, other in find_conflicts(files):
        text = f"{one.flag} {one.path} and {other.flag} {other.path} are the same file"
        raise click.UsageError(f"{text}; pass another path to {(other if other.written else one).flag}.")
    for file in outputs:
        if not file.has_format or force or partial_path(file.path) is None or not file.path.is_file():
            continue
        if file.path.stat().st_size > 0 and not file.has_format(file.path):
            text = f"{file.flag} {file.path}: the file exists and does not look like an output of this option"
            raise click.UsageError(f"{text}; pass another path, or overwrite the file with --force.")
    for file in outputs:
        # Skip pipes and devices, which have no keys, and descriptors such as /dev/stdout, which are already open.
        if file.keys and partial_path(file.path) is not None:
            # A temporary file is written in the same folder, and then replaces the file. A journal creates more files there.
            folder = Path(os.path.realpath(file.path)).parent
            with explain_write_errors(file.flag, file.path), TemporaryFile(dir=folder):
                if not file.has_format and file.path.exists():
                    file.path.open("r+b").close()


def find_conflicts(uses: Sequence[FileUse]) -> Iterator[tuple[FileUse, FileUse]]:
    """Yield each conflict: two uses of the same file, at least one of which writes it. `_SHAREABLE_OPTIONS` lists exceptions."""
    for one, other in combinations(uses, 2):
        may_share = {one.flag, other.flag} in _SHAREABLE_OPTIONS or not (one.written or other.written)
        if one.keys & other.keys and not may_share:
            yield one, other


def find_keys(path: Path | int) -> frozenset[_Key]:
    """Return keys that identify a file. Two paths with a common key, such as a file and a link to it, refer to the same file."""
    # For a pipe or a device, the set is empty, because a pipe or a device stores nothing that a second use could overwrite.
    try:
        facts = os.fstat(path) if isinstance(path, int) else path.stat()
    except OSError:
        return frozenset() if isinstance(path, int) else frozenset({_find_new_key(Path(os.path.realpath(path)))})
    return frozenset({(facts.st_dev, facts.st_ino)}) if S_ISREG(facts.st_mode) else frozenset()


def _find_new_key(path: Path) -> _Key:
    try:
        facts = path.parent.stat()
    except OSError:
        return (str(path),)
    return facts.st_dev, facts.st_ino, normalize("NFC", path.name.casefold())  # many file systems ignore case


def require_folder(flag: str, path: Path) -> None:
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


@attrs.define
class RunState:
    """Whether every row of a run has its outcome, as far as it is known."""

    is_finished: bool = False


def settle_partial_files(screen: Screen, paths: Mapping[str, Path | None], *, is_finished: bool) -> None:
    """Name the files of an unfinished run, which are written beside those of a finished one. A finished run removes them."""
    for flag, path in paths.items():
        if path is None or (beside := partial_path(path)) is None:
            continue
        if is_finished:
            beside.unlink(missing_ok=True)
        else:
            kept = f", and left {path} as it was" if path.exists() else ""
            screen.warn(f"{flag} is not complete: it wrote {beside}{kept}")


@contextmanager
def settled(screen: Screen, paths: Mapping[str, Path | None]) -> Iterator[RunState]:
    """Yield the state of what files are written for, and name those of a state that is unfinished when the block ends."""
    state = RunState()
    try:
        yield state
    finally:
        settle_partial_files(screen, paths, is_finished=state.is_finished)


@contextmanager
def open_output(
    flag: str,
    file: FindingsFile | RejectsFile | ResultsFile | None,
    state: RunState,
    complete: Callable[[Any], object] = lambda _file: None,
) -> Iterator[Callable[..., object]]:
    """Yield what adds to a file, or does nothing if there is none. The file appears even if the block raises.

    `complete` may change the file before and after the block.
    """
    if file is None:
        yield lambda *_values: None
        return

    def add(*values: Any) -> None:
        try:
            file.add(*values)
        except OSError:
            with explain_write_errors(flag, file.path):  # entered for each row, it would take a tenth of the time of results
                raise

    with explain_write_errors(flag, file.path):
        file.__enter__()
    try:
        complete(file)
        yield add
    finally:
        with explain_write_errors(flag, file.path), ExitStack() as stack:  # not an error of the block
            stack.push(file)
            file.is_finished = state.is_finished
            complete(file)
