"""Files written whole or not at all: whoever reads one while it is written again reads the old one."""

from __future__ import annotations

import os
from pathlib import Path

import click


def require_folder(path: Path) -> None:
    """Check, before any work is done for it, that a file can be there.

    Raises:
        click.UsageError: Its folder does not exist, or it is itself a folder.
    """
    if path.is_dir():
        raise click.UsageError(f"{path}: this is a folder; name a file.")
    if not path.parent.is_dir():
        raise click.UsageError(f"{path}: there is no folder {str(path.parent)!r}; make it first.")


def write_whole(path: Path, text: str) -> None:
    """Write a text to a file beside it and put that in its place; a pipe or a device is written to as it is.

    Raises:
        OSError: It cannot be written; what was there stays as it was.
    """
    content = text.encode("utf-8", errors="backslashreplace")  # the service may send halves of characters, which no file can hold
    target = path.resolve()  # a link stays a link
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        beside.write_bytes(content)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
