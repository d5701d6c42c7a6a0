"""Files written whole or not at all: whoever reads one while it is written again reads the old one."""

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

_PRIVATE: Final = 0o600
_DESCRIPTOR: Final = re.compile(r"/(?:dev|proc/self)/(?:fd/)?(std(?:in|out|err)|(?<=fd/)[0-9]+)")
_STANDARD: Final = {"stdin": "0", "stdout": "1", "stderr": "2"}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")


def descriptor_of(path: str | os.PathLike[str]) -> int | None:
    """Return the descriptor of this process that a path such as `/dev/stdout` stands for, if it does."""
    found = _DESCRIPTOR.fullmatch(os.fspath(path))
    return int(_STANDARD.get(found[1], found[1])) if found else None


@contextmanager
def draft_of(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield where to write a file: beside its place, which it takes when the block ends, or not at all if the block raises.

    A link stays a link, to the file that takes its target's place. A file that was there keeps its permissions; hard links to it
    keep the old one. A pipe or a device is written to as it is, and so is a descriptor of this process, such as `/dev/stdout`.

    Raises:
        OSError: It cannot be written; what was there stays as it was.
    """
    place = Path(path)
    if (descriptor := descriptor_of(place)) is not None:
        with _copied_to(descriptor) as draft:
            yield draft
        return
    if place.exists() and not place.is_file():
        yield place
        return
    target = Path(os.path.realpath(place))
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if known := target.exists():
            draft.touch(_PRIVATE)  # until it is whole: what is in it may be nobody else's business
        yield draft
        if known:
            shutil.copymode(target, draft)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _copied_to(descriptor: int) -> Iterator[Path]:
    """Yield where to write what is then copied to a descriptor: opened by its name, a file would be cut off or replaced."""
    with TemporaryDirectory() as folder:
        draft = Path(folder) / "draft"
        yield draft
        sys.stdout.flush()
        with draft.open("rb") as source, os.fdopen(os.dup(descriptor), "wb") as target:
            shutil.copyfileobj(source, target)


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a file by `draft_of`, in UTF-8 and with line ends as they are.

    Other control characters than tabs and line ends become escapes, as JSON and TOML have them.

    Raises:
        OSError: It cannot be written; what was there stays as it was.
    """
    with draft_of(path) as draft:
        shown = _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
        draft.write_bytes(shown.encode("utf-8", errors="backslashreplace"))  # services may send halves of characters
