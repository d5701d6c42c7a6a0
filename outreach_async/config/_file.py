"""Find, read and check a configuration file. Nothing here creates a client or sends a request."""

from __future__ import annotations

import os
import shlex
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from outreach_async._plumbing import drop_frames, mask_keys, parse_base_url, parse_toml, require_types, show_name
from outreach_async.config._config import FILE_NAME, MAX_LISTED, Config
from outreach_async.config._trust import FoundFile
from outreach_async.errors import InvalidRequest, shorten

_MAX_SIZE: Final = 4_000_000
_MAX_USE: Final = 300  # characters: more than the longest name of a host


@drop_frames
def load_config(
    path: str | os.PathLike[str] | None = None, profile: str | None = None, *, strict: bool = True, named: bool = True
) -> Config:
    r"""Read a configuration file. Nothing is sent, and no owner key is read.

    Args:
        path: Path of the file; by default, that of `OUTREACH_CONFIG`, or
            the first `outreach.toml` in the working directory and the
            user's configuration folder. The one in the working directory
            must be trusted if it names an address or a program.
        profile: Name of a profile in the file, whose values replace those
            of the file.
        strict: False to return no values if there is no file, and a file
            that is not trusted, of which `untrusted` says so.
        named: False if the user did not name `path`, so that its file must
            be trusted.

    Raises:
        InvalidRequest: There is no file, others can write it, it is not
            trusted, or a key or value in it is invalid.

    Example:
        ```python
        Path("outreach.toml").write_text('[workspaces]\nacme = { id = "space_1" }\n[profile.slow]\nrate = 1\n')
        print(load_config().rate, load_config(profile="slow").rate)  # -> None 1.0
        ```
    """
    require_types(load_config, locals())
    config = _find(path, profile, named=named)
    if strict and config.path is None:
        places = " or ".join(map(str, _default_paths()))
        remedy = "write one with 'outreach-async config init', or pass its path"
        raise InvalidRequest(f"path: expected a configuration file at {places}, found none; {remedy}")
    if strict and config.untrusted is not None:
        config.untrusted.require()
    return config


def _find(path: str | os.PathLike[str] | None, profile: str | None, *, named: bool) -> Config:
    """Read the file of `path`, of `OUTREACH_CONFIG`, of the working directory or of the user; no values if there is none."""
    if given := path or os.environ.get("OUTREACH_CONFIG"):
        return _read(Path(given), profile, named=named)
    here, *own = _default_paths()
    if here.exists():  # from anyone, as in a repository or an archive
        is_own = any(os.path.realpath(each) == os.path.realpath(here) for each in own)
        return _read(here, profile, named=is_own)
    return next((_read(place, profile, named=True) for place in own if place.exists()), Config())


def _default_paths() -> list[Path]:
    places = [Path(FILE_NAME)]
    try:
        from platformdirs import user_config_path

        own = user_config_path("outreach-async", appauthor=False) / FILE_NAME
    except (ImportError, RuntimeError):  # the extra `cli` is missing, or the user has no home, as in a container
        return places
    return [*places, own] if own.is_absolute() else places  # older versions name a folder `~` in the working directory


def _read(path: Path, profile: str | None = None, *, named: bool) -> Config:
    """Read a file. What it names is not to be used while the result has `untrusted`."""
    from outreach_async.config._document import FileFault, read_document  # imported on demand: cattrs takes time

    if not named and path.exists() and not path.is_file():  # a pipe would wait for a writer, also in the shell's completion
        raise _unreadable(path, "it is not a regular file")
    content = _read_safely(path)
    try:
        document = parse_toml(_decode(path, content))
        values = read_document(path, profile, document)
    except tomllib.TOMLDecodeError as error:
        problem = f"expected TOML, got invalid content: {error}; correct the file"
    except FileFault as fault:
        problem = str(fault)
    else:
        found = None if named else FoundFile(path, content, _join_uses(list(dict.fromkeys(_name_uses(document)))))
        untrusted = None if found is None or not found.names or found.is_trusted else found
        return Config(path=path, profile=profile, untrusted=untrusted, **values)
    raise InvalidRequest(f"{path}: {mask_keys(problem)}")


def _join_uses(uses: Sequence[str]) -> str:
    more = [f"{len(uses) - MAX_LISTED:,} more"] if len(uses) > MAX_LISTED else []
    return " and ".join([*(shorten(each, _MAX_USE) for each in uses[:MAX_LISTED]), *more])


def _name_uses(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield a text for each address and program that a valid document names."""
    if "base_url" in table:
        yield f"the address {parse_base_url(table['base_url'])}"
    for each in (table, *table.get("workspaces", {}).values()):
        if "command" in each.get("owner_key", {}):
            yield f"the program {show_name(each['owner_key']['command'][0])}"
    for profile in table.get("profile", {}).values():
        yield from _name_uses(profile)


def _decode(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"byte {error.start + 1} is not UTF-8") from None


def _read_safely(path: Path) -> bytes:
    """Return the content of a file that only its owner, who must be this user or root, can write."""
    # The folder is not checked: shared folders are common, and a file that another user puts there is refused as theirs.
    if str(path) == os.devnull:
        return b""
    try:
        if path.is_fifo() and not str(path).startswith("/dev/"):
            raise InvalidRequest(f"{path}: expected a file, got a named pipe; pass the path of a file")
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            content = file.read(_MAX_SIZE + 1)
    except OSError as error:
        reason = error.strerror
    else:
        if hasattr(os, "getuid"):  # pragma: no branch - Windows has no such permissions
            _require_safe(path, facts.st_mode, facts.st_uid, os.getuid())
        if len(content) > _MAX_SIZE:
            raise InvalidRequest(f"{path}: expected at most {_MAX_SIZE // 1_000_000} MB, got more; pass a configuration file")
        return content
    raise _unreadable(path, reason)


def _unreadable(path: Path, reason: object) -> InvalidRequest:
    remedy = "pass the path of another file, or write one with 'outreach-async config init'"
    return InvalidRequest(f"{path}: the configuration file cannot be read ({reason}); {remedy}")


def _require_safe(path: Path, mode: int, owner: int, user: int) -> None:
    # The file names the address that receives owner keys, and programs to run.
    if owner not in {0, user}:
        remedy = f"check its content, then run: sudo chown {user} {shlex.quote(str(path))}"
        raise InvalidRequest(f"{path}: expected a file of this user or root, got one of user {owner}; {remedy}")
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        remedy = f"check its content, then run: chmod go-w {shlex.quote(str(path))}"
        raise InvalidRequest(f"{path}: expected a file that only its owner can write, but others can write it; {remedy}")
