"""Which files a command may write: none that it reads, no other output twice, and none that holds something else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final, Self, TypeAlias
from unicodedata import normalize

import attrs
import click

from outreach_async.cli.files import STDIN
from outreach_async.wholefiles import descriptor_of

_STDOUT: Final = "/dev/stdout"
_COMPANIONS: Final = ("", "-wal", "-shm", "-journal", "-lock")
"""What the names of a journal's files end with."""
_REPLACES: Final = frozenset({frozenset({"--compare", "--output"}), frozenset({"--mapping", "--save-mapping"})})
"""Options that may share a file: it is read first, then replaced as a whole."""

Key: TypeAlias = tuple[int | str, ...]
"""Identifies a file: its device and inode, or those of its folder and its name if it does not exist yet."""
Begins: TypeAlias = Callable[[Path], bool]
"""Returns whether a file begins as the format does that is to replace it."""


class OutputPath(click.Path):
    """The path of a file to write; `-` is standard output."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        return super().convert(_STDOUT if value == STDIN else value, param, ctx)


force_option: Final = click.option("--force", is_flag=True, help="Replace files to write that hold something else.")


@attrs.frozen
class FileUse:
    """A file on the command line, and what the command does with it.

    Attributes:
        flag: The option or argument that names it.
        path: As given.
        keys: Identify it; a journal has several files.
        written: Whether the command writes it.
        begins: Checks a file that is to be replaced; `None` if it is not replaced.
    """

    flag: str
    path: Path
    keys: frozenset[Key]
    written: bool = False
    begins: Begins | None = None

    @classmethod
    def read(cls, flag: str, path: Path | None) -> Iterator[Self]:
        """Yield a file to read, if there is one; `-` is standard input."""
        if path is not None:
            yield cls(flag, path, keys_of(0 if str(path) == STDIN else path))

    @classmethod
    def journal(cls, flag: str, path: Path | None, *, written: bool) -> Iterator[Self]:
        """Yield a journal with the files beside it, if there is one."""
        if path is not None:
            bases = {str(path), os.path.realpath(path)}
            keys = frozenset().union(*(keys_of(Path(base + end)) for base in bases for end in _COMPANIONS))
            yield cls(flag, path, keys, written)

    @classmethod
    def write(cls, flag: str, path: Path | None, begins: Begins) -> Iterator[Self]:
        """Yield a file to write, if there is one."""
        if path is not None:
            yield cls(flag, path, keys_of(path), written=True, begins=begins)


def require_writable(*uses: Iterable[FileUse], force: bool) -> None:
    """Check all files of a command before any is written.

    Args:
        uses: The files.
        force: Whether an output may replace a file that holds something else.

    Raises:
        click.UsageError: An output has no folder, is another file of the command, or would replace a file that holds
            something else.
    """
    given = [use for each in uses for use in each]
    for use in given:
        if use.written:
            require_folder(use.path)
    for one, other in conflicts(given):
        text = f"{one.flag} {one.path} and {other.flag} {other.path} use the same file"
        raise click.UsageError(f"{text}; pass another path to {(other if other.written else one).flag}.")
    for use in given:
        if use.begins and not force and _holds_something(use.path) and not use.begins(use.path):
            text = f"{use.flag} {use.path}: this file holds something else"
            raise click.UsageError(f"{text}; pass another path, or replace it with --force.")


def conflicts(uses: Iterable[FileUse]) -> Iterator[tuple[FileUse, FileUse]]:
    """Yield each two uses of one file of which at least one writes, unless the one option may replace the other's file."""
    for one, other in combinations(uses, 2):
        if (one.written or other.written) and one.keys & other.keys and frozenset({one.flag, other.flag}) not in _REPLACES:
            yield one, other


def keys_of(path: Path | int, folds: Callable[[Path], bool] | None = None) -> frozenset[Key]:
    """Return what identifies a file, whichever links lead to it; nothing for pipes and devices, which hold nothing.

    Args:
        path: The file, which may not exist yet; or a descriptor.
        folds: Returns whether a folder takes names that differ in case for one.
    """
    try:
        facts = os.fstat(path) if isinstance(path, int) else path.stat()
    except OSError:
        return frozenset() if isinstance(path, int) else _keys_of_new(Path(os.path.realpath(path)), folds or folds_case)
    return frozenset({(facts.st_dev, facts.st_ino)}) if S_ISREG(facts.st_mode) else frozenset()


def _keys_of_new(path: Path, folds: Callable[[Path], bool]) -> frozenset[Key]:
    try:
        facts = path.parent.stat()
    except OSError:
        return frozenset({(str(path),)})
    name = normalize("NFC", path.name.casefold()) if folds(path.parent) else path.name
    return frozenset({(facts.st_dev, facts.st_ino, name)})


def folds_case(folder: Path) -> bool:
    """Whether a folder takes names that differ in case for one: a name in it, or else its own, is found in the other case."""
    try:
        with os.scandir(folder) as entries:
            known = next((Path(entry.path) for entry in entries if entry.name != entry.name.swapcase()), folder)
        other = known.name.swapcase()
        return other != known.name and known.with_name(other).lstat().st_ino == known.lstat().st_ino
    except OSError:
        return False


def require_folder(path: Path) -> None:
    """Check, before any work is done for it, that a file can be there.

    Raises:
        click.UsageError: Its folder does not exist, or it is itself a folder.
    """
    if path.is_dir():
        raise click.UsageError(f"{path}: this is a folder; name a file.")
    if not path.parent.is_dir():
        raise click.UsageError(f"{path}: there is no folder {str(path.parent)!r}; make it first.")


def _holds_something(path: Path) -> bool:
    return descriptor_of(path) is None and path.is_file() and path.stat().st_size > 0
