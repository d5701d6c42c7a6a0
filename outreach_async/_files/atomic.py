"""Atomic file writes. Until a new version of a file is complete, readers see the old version."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile
from typing import BinaryIO, Final, cast

_DESCRIPTOR: Final = re.compile(r"/(?:dev|proc/self)/(?:fd/)?(std(?:in|out|err)|(?<=fd/)[0-9]+)")
_STANDARD_DESCRIPTORS: Final = {"stdin": "0", "stdout": "1", "stderr": "2"}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")


def parse_descriptor(path: str | os.PathLike[str]) -> int | None:
    """Return the descriptor of this process that a path such as `/dev/stdout` names; `None` for other paths."""
    match = _DESCRIPTOR.fullmatch(os.fspath(path))
    return int(_STANDARD_DESCRIPTORS.get(match[1], match[1])) if match else None


def partial_path(path: str | os.PathLike[str]) -> Path | None:
    """Return the path beside a file for what an unfinished run has to write; `None` for a pipe, a device or a descriptor."""
    destination = Path(path)
    if parse_descriptor(destination) is not None or (destination.exists() and not destination.is_file()):
        return None
    target = Path(os.path.realpath(destination)) if destination.is_symlink() else destination
    return target.with_name(f"{target.stem}.partial{target.suffix}")


@contextmanager
def atomic_file(
    path: str | os.PathLike[str], *, private: bool = False, is_finished: Callable[[], bool] = lambda: True
) -> Iterator[BinaryIO]:
    """Yield a temporary file to write to, which can also be read. When the block ends, it replaces the file at `path`.

    If `is_finished` returns false at the end, it is the file of an unfinished run: it gets the path of `partial_path`, and the
    file at `path` stays as it is.
    """
    # If the block raises, the temporary file is deleted and the old file is kept. A symbolic link is kept, and its target is
    # replaced. An existing file keeps its permissions; other hard links to it keep the old contents. If `path` is a pipe or a
    # device, or names a descriptor of this process, such as `/dev/stdout`, the content is copied to it when the block ends.
    destination = Path(path)
    descriptor = parse_descriptor(destination)
    if descriptor is not None or (destination.exists() and not destination.is_file()):
        # A path such as /dev/stdout is not opened, because that would truncate the file that the descriptor is redirected to.
        opened = destination.open("wb") if descriptor is None else os.fdopen(os.dup(descriptor), "wb")
        with opened as stream, TemporaryFile() as copied:
            yield cast("BinaryIO", copied)
            copied.seek(0)
            sys.stdout.flush()
            shutil.copyfileobj(copied, stream)
        return
    target = Path(os.path.realpath(destination))
    exists = target.exists()
    draft = _draft_path(target)
    try:
        with _create_draft(draft, private=private or exists) as file:  # an old file may be private
            yield file
        if exists:
            shutil.copymode(target, draft)
        draft.replace(target if is_finished() else partial_path(destination) or target)
    finally:
        draft.unlink(missing_ok=True)


def sync(path: str | os.PathLike[str]) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _draft_path(target: Path) -> Path:  # that nobody can predict; the name of the target may have the maximum length
    return target.with_name(f".outreach-{token_hex(8)}.tmp")


def _create_draft(path: Path, *, private: bool) -> BinaryIO:
    """Create a file, but follow no link. Unlike `tempfile`, this can leave the permissions to the umask."""
    opener = partial(os.open, mode=0o600 if private else 0o666)
    return cast("BinaryIO", open(path, "x+b", opener=opener))  # Path.open has no opener


def atomic_write(path: str | os.PathLike[str], text: str | Iterable[str]) -> None:
    """Write a file atomically, in UTF-8, with unchanged line endings; see `atomic_file`. The text may come in pieces."""
    # Control characters other than tabs and line endings are escaped as in JSON and TOML.
    with atomic_file(path) as draft:
        for piece in [text] if isinstance(text, str) else text:
            escaped = _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", piece)
            draft.write(escaped.encode("utf-8", errors="backslashreplace"))  # a service may send lone surrogates
