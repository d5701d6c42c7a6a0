"""Checks that a journal is on a file system whose locks and shared memory work: one that belongs to this machine alone."""

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
"""File systems that other machines may share. Those in user space (FUSE) may be shared too, and their locks are not trusted."""


def require_local(path: str, mounts: str) -> None:
    """Refuse a network file system: its locks are unreliable, and two runs could send the same rows.

    Args:
        path: Path of the journal, which may not exist yet.
        mounts: The mounts of this machine, in the format of Linux; if it is empty, nothing is refused.

    Raises:
        InvalidRequest: The path is on a network file system.
    """
    kind = file_system(os.path.realpath(path), mounts)
    if kind is not None and _ELSEWHERE.fullmatch(kind):
        raise InvalidRequest(
            f"journal: {path} is on a network file system ({kind}), whose locks are unreliable; pass a path on a local disk"
        )


def mounts(listing: Path = _MOUNTS) -> str:
    """Return the mounts of this machine; an empty string where the system does not list them this way."""
    try:
        return listing.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def file_system(path: str, mounts: str) -> str | None:
    """Return the type of the file system of an absolute path, from its innermost mount (proc(5), mountinfo)."""
    found: tuple[str, str | None] = ("", None)
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), before.split(" ")[4])
        if _within(path, point) and len(point) >= len(found[0]):
            found = (point, after.partition(" ")[0])
    return found[1]


def _within(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")
