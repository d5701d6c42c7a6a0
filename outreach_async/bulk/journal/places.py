"""Whether a journal may stand where it is to stand: a file system whose locks and shared memory are of this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from outreach_async.errors import InvalidRequest

_MOUNTS: Final = Path("/proc/self/mountinfo")
_ELSEWHERE: Final = re.compile(
    r"nfs\d?|cifs|smb\w*|9p|v9fs|virtiofs|afs|ceph|coda|lustre|gpfs|beegfs|ocfs2|gfs2?|glusterfs|ncpfs|fuse\.(?!fuse-overlayfs$).*"
)
"""File systems that other machines may share; what runs in user space may, and is not trusted with locks."""


def require_local(path: str, mounts: str) -> None:
    """Refuse a network file system: its locks do not always hold, and two runners would send the same rows.

    Args:
        path: Where the journal is or is to be.
        mounts: The mounts of this machine, as Linux lists them; nothing is refused where that is empty.

    Raises:
        InvalidRequest: It stands on one.
    """
    kind = file_system(os.path.realpath(path), mounts)
    if kind is not None and _ELSEWHERE.fullmatch(kind):
        raise InvalidRequest(
            f"journal: {path} is on a network file system ({kind}), whose locks may not hold; name a file on a local disk"
        )


def mounts(listing: Path = _MOUNTS) -> str:
    """Return the mounts of this machine; nothing where they are not listed so."""
    try:
        return listing.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def file_system(path: str, mounts: str) -> str | None:
    """Return the type of the file system that holds an absolute path, by its innermost mount (proc(5), mountinfo)."""
    found: tuple[str, str | None] = ("", None)
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), before.split(" ")[4])
        if _within(path, point) and len(point) >= len(found[0]):
            found = (point, after.partition(" ")[0])
    return found[1]


def _within(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")
