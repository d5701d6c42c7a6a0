"""Where the command may write files."""

from __future__ import annotations

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
