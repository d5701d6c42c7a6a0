"""Files written whole or not at all: whoever reads one while it is written again reads the old one."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PRIVATE: Final = 0o600
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")


@contextmanager
def draft_of(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield where to write a file: beside its place, which it takes when the block ends, or not at all if the block raises.

    A link stays a link, to the file that takes its target's place. A file that was there keeps its permissions; hard links to it
    keep the old one. A pipe or a device is written to as it is.

    Raises:
        OSError: It cannot be written; what was there stays as it was.
    """
    place = Path(path)
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


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a file by `draft_of`, in UTF-8 and with line ends as they are.

    Other control characters than tabs and line ends become escapes, as JSON and TOML have them.

    Raises:
        OSError: It cannot be written; what was there stays as it was.
    """
    with draft_of(path) as draft:
        shown = _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
        draft.write_bytes(shown.encode("utf-8", errors="backslashreplace"))  # services may send halves of characters
