"""Atomic file writes. Until a new version of a file is complete, readers see the old version."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

_DESCRIPTOR: Final = re.compile(r"/(?:dev|proc/self)/(?:fd/)?(std(?:in|out|err)|(?<=fd/)[0-9]+)")
_STANDARD_DESCRIPTORS: Final = {"stdin": "0", "stdout": "1", "stderr": "2"}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")


def parse_descriptor(path: str | os.PathLike[str]) -> int | None:
    """Return the file descriptor of this process that a path such as `/dev/stdout` refers to; `None` for other paths."""
    match = _DESCRIPTOR.fullmatch(os.fspath(path))
    return int(_STANDARD_DESCRIPTORS.get(match[1], match[1])) if match else None


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path to write to. When the block ends, replace the file at `path` with the temporary file.

    If the block raises, the temporary file is deleted and the old file is kept. A symbolic link is kept, and its target is
    replaced. An existing file keeps its permissions; other hard links to it keep the old contents. A pipe or a device is written
    to directly. If `path` names a descriptor of this process, such as `/dev/stdout`, the temporary file is copied to it when the
    block ends.

    Raises:
        OSError: The file cannot be written; an existing file is unchanged.
    """
    destination = Path(path)
    if (descriptor := parse_descriptor(destination)) is not None:
        with _copy_to_descriptor(descriptor) as draft:
            yield draft
        return
    if destination.exists() and not destination.is_file():
        yield destination
        return
    target = Path(os.path.realpath(destination))
    draft = _draft_path(target)
    try:
        if exists := target.exists():
            draft.touch(0o600)  # private until the file is complete, because the old file may be private
        yield draft
        if exists:
            shutil.copymode(target, draft)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Check that `atomic_path` can create its temporary file next to `path`. The temporary file is deleted again.

    Raises:
        OSError: The temporary file cannot be created.
    """
    draft = _draft_path(Path(os.path.realpath(path)))
    try:
        draft.touch(0o600)
    finally:
        draft.unlink(missing_ok=True)


def _draft_path(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.tmp")


@contextmanager
def _copy_to_descriptor(descriptor: int) -> Iterator[Path]:
    """Yield a temporary path to write to. When the block ends, copy the file to a descriptor.

    A path such as `/dev/stdout` is not opened, because that would truncate or replace the file that the descriptor is
    redirected to.
    """
    with TemporaryDirectory() as folder:
        draft = Path(folder) / "draft"
        yield draft
        sys.stdout.flush()
        with draft.open("rb") as source, os.fdopen(os.dup(descriptor), "wb") as target:
            shutil.copyfileobj(source, target)


def atomic_write(path: str | os.PathLike[str], text: str) -> None:
    """Write a file atomically, in UTF-8, with unchanged line endings; see `atomic_path`.

    Control characters other than tabs and line endings are escaped as in JSON and TOML.

    Raises:
        OSError: The file cannot be written; an existing file is unchanged.
    """
    with atomic_path(path) as draft:
        escaped = _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
        draft.write_bytes(escaped.encode("utf-8", errors="backslashreplace"))  # a service may send lone surrogates
