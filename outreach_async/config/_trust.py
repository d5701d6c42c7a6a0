"""Trust in a configuration file that was found, not named: by its place and its content, as direnv and mise trust theirs."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

import attrs

from outreach_async.errors import InvalidRequest

_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def _from_root(path: Path) -> Path:
    # A link is not followed: what it leads to is trusted elsewhere, and relative paths in it mean other files here.
    return Path(os.path.realpath(path.parent)) / path.name


@attrs.frozen
class FoundFile:
    r"""A configuration file of the working directory, as it was when read.

    It is used only if this user trusts it.

    Attributes:
        place: Path of the file, from the root.
        content: Its bytes.
        names: The addresses and programs that it names, in words; empty if
            it names none.

    Example:
        ```python
        Path("outreach.toml").write_text('base_url = "https://api.example"\n')
        found = FoundFile(Path("outreach.toml"), Path("outreach.toml").read_bytes())
        found.trust()
        print(found.is_trusted, found.untrust(), found.is_trusted)  # -> True 1 False
        ```
    """

    place: Path = attrs.field(converter=_from_root)
    content: bytes = attrs.field(repr=False)
    names: str = ""

    @property
    def _entry(self) -> str:
        return sha256(os.fsencode(self.place) + b"\0" + self.content).hexdigest()

    @property
    def is_trusted(self) -> bool:
        """Whether this user trusts the file with this content."""
        folder = _state_folder()
        return folder is not None and _is_own(folder) and _is_own(folder / self._entry)

    def trust(self) -> None:
        """Trust the file as it was read, instead of what was in its place.

        Raises:
            InvalidRequest: The user has no folder for it, or others can
                write to it.
            OSError: Nothing is remembered.

        Example:
            ```python
            FoundFile(Path("outreach.toml"), b"").trust()
            ```
        """
        if (folder := _state_folder()) is None:
            remedy = "set HOME or XDG_STATE_HOME, or name the file with --config or OUTREACH_CONFIG"
            raise InvalidRequest(f"HOME: expected the folder of this user, got none; {remedy}")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_own(folder):  # as after a restore without the modes of files
            remedy = f"run: chmod go-w {shlex.quote(str(folder))}"
            raise InvalidRequest(f"{folder}: expected a folder that only this user can write, but others can write it; {remedy}")
        self.untrust()
        (folder / self._entry).touch(0o600)
        (folder / self._entry).write_bytes(os.fsencode(self.place))

    def untrust(self) -> int:
        """Trust no content of the file now, and return how many were trusted.

        Raises:
            OSError: Nothing is forgotten.

        Example:
            ```python
            print(FoundFile(Path("outreach.toml"), b"").untrust())  # -> 0
            ```
        """
        entries = [entry for known, entry in _list_entries() if known == self.place]
        for entry in entries:
            entry.unlink(missing_ok=True)
        return len(entries)

    @staticmethod
    def trusted() -> list[Path]:
        """Return the paths of the files that this user trusts, sorted.

        Example:
            ```python
            FoundFile(Path("outreach.toml"), b"").trust()
            print(Path("outreach.toml").absolute() in FoundFile.trusted())  # -> True
            ```
        """
        return sorted({place for place, _ in _list_entries()})

    @property
    def remedy(self) -> str:
        """How to trust the file."""
        return f"check its content, then run: outreach-async config trust {shlex.quote(str(self.place))}"

    def require(self) -> None:
        """Refuse the file.

        Raises:
            InvalidRequest: Always; its message has the remedies.

        Example:
            ```python
            try:
                FoundFile(Path("outreach.toml"), b"", "the program op").require()
            except InvalidRequest as error:
                print(str(error).partition(": ")[2])  # -> expected a file that this user trusts, got one that was found in ...
            ```
        """
        what = "expected a file that this user trusts"
        named = shlex.quote(str(self.place))
        other = f"or name the file: --config {named}, or OUTREACH_CONFIG={named}; --config {os.devnull} ignores it"
        got = f"got one that was found in the working directory, and that names {self.names}"
        raise InvalidRequest(f"{self.place}: {what}, {got}; {self.remedy} ({other})")


def _state_folder() -> Path | None:
    """Return the folder of what is trusted; `None` if the user has none. A relative one would be in the working directory."""
    given = Path(os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_STATE_HOME", ""))
    if not given.is_absolute():
        given = Path(os.path.expanduser("~"), ".local", "state")  # noqa: PTH111 - it stays relative for a user without a home
    return given / "outreach-async" / "trusted" if given.is_absolute() else None


def _is_own(path: Path) -> bool:
    """Return whether a path exists, and only this user or root can write it: what others write is not the trust of this user."""
    try:
        facts = path.stat()
    except OSError:
        return False
    return os.name == "nt" or (facts.st_uid in {0, os.getuid()} and not facts.st_mode & _OTHERS)


def _list_entries() -> Iterator[tuple[Path, Path]]:
    """Yield the path of each trusted file, and what remembers it."""
    folder = _state_folder()
    for entry in sorted(folder.iterdir()) if folder is not None and folder.is_dir() else ():
        yield Path(os.fsdecode(entry.read_bytes())), entry
