"""Find, read and check a configuration file, and resolve names in it. Nothing here creates a client or sends a request."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from outreach_async._plumbing import (
    create_transport,
    mask_keys,
    parse_base_url,
    parse_toml,
    read_rate,
    service_address,
    show_name,
    trim,
)
from outreach_async.config._trust import FoundFile
from outreach_async.config._values import FILE_NAME, MAX_LISTED, ConfiguredWorkspace, ConfigValues, read_safely, unreadable
from outreach_async.errors import InvalidRequest, shorten

_MAX_USE: Final = 300  # characters: more than the longest name of a host

T = TypeVar("T", bound=ConfigValues)


def default_paths() -> list[Path]:
    places = [Path(FILE_NAME)]
    try:
        from platformdirs import user_config_path

        own = user_config_path("outreach-async", appauthor=False) / FILE_NAME
    except (ImportError, RuntimeError):  # the extra `cli` is missing, or the user has no home, as in a container
        return places
    return [*places, own] if own.is_absolute() else places  # older versions name a folder `~` in the working directory


def require_config(path: str | os.PathLike[str] | None, profile: str | None, kind: type[T]) -> T:
    config = find_config(path, profile, kind)
    if config.path is None:
        places = " or ".join(map(str, default_paths()))
        remedy = "write one with 'outreach-async config init', or pass its path"
        raise InvalidRequest(f"path: expected a configuration file at {places}, found none; {remedy}")
    if config.untrusted is not None:
        config.untrusted.require()
    return config


def find_config(
    path: str | os.PathLike[str] | None, profile: str | None, kind: type[T], environment: Mapping[str, str] = os.environ
) -> T:
    """Read the file of `path`, of `OUTREACH_CONFIG`, of the working directory or of the user; no values if there is none."""
    given = path or environment.get("OUTREACH_CONFIG")
    if given:
        return read_config(Path(given), profile, kind, named=True)
    here, *own = default_paths()
    if here.exists():  # from anyone, as in a repository or an archive
        is_own = any(os.path.realpath(each) == os.path.realpath(here) for each in own)
        return read_config(here, profile, kind, named=is_own)
    return next((read_config(place, profile, kind, named=True) for place in own if place.exists()), kind())


def read_config(path: Path, profile: str | None, kind: type[T], *, named: bool) -> T:
    """Read a file. What it names is not to be used while the result has `untrusted`."""
    from outreach_async.config._document import FileFault, read_document  # imported on demand: cattrs takes time

    if not named and path.exists() and not path.is_file():  # a pipe would wait for a writer, also in the shell's completion
        raise unreadable(path, "it is not a regular file")
    content = read_safely(path)
    try:
        document = parse_toml(_decode(path, content))
        values = read_document(path, profile, document)
    except tomllib.TOMLDecodeError as error:
        problem = f"expected TOML, got invalid content: {error}; correct the file"
    except FileFault as fault:
        problem = str(fault)
    else:
        found = None if named else FoundFile.of(path, content, _join_uses(list(dict.fromkeys(_name_uses(document)))))
        untrusted = None if found is None or not found.names or found.is_trusted else found
        return kind(path=path, profile=profile, untrusted=untrusted, **values)
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
        raise unreadable(path, f"byte {error.start + 1} is not UTF-8") from None


def client_arguments(config: ConfigValues, workspace: str | None, given: Mapping[str, Any], *, read_only: bool) -> dict[str, Any]:
    """Return the arguments of a client: those given, and the values of the environment and a configuration file."""
    chosen = _choose_workspace(config, workspace)
    arguments = dict(given) if chosen is None else {"workspace": chosen.id, **given}
    if arguments.get("transport") is None and arguments.get("base_url") is None:
        url = arguments["base_url"] = trim(os.environ.get("OUTREACH_BASE_URL")) or config.base_url
        if url and config.backend is not None:
            transport = create_transport(url, config.backend, arguments.get("max_in_flight", 64))
            arguments |= {"transport": transport, "base_url": None}
    address = arguments.get("base_url")
    config = config.at(address if isinstance(address, str) and address else service_address(arguments.get("transport")))
    if config.timeout is not None:
        arguments.setdefault("timeout", config.timeout)
    rates = read_rate(os.environ), chosen and chosen.rate, config.rate
    arguments.setdefault("rate", next((rate for rate in rates if rate is not None), None))
    is_given = arguments.get("owner_key") is not None or trim(os.environ.get("OUTREACH_OWNER_KEY")) is not None
    if not read_only and not is_given and (key := config.key_of(chosen)) is not None:
        arguments["owner_key"] = key.read()
    return arguments


def _choose_workspace(config: ConfigValues, workspace: str | None) -> ConfiguredWorkspace | None:
    if workspace is None:
        found = config.select(os.environ.get("OUTREACH_WORKSPACE", "")) or config.find(*config.workspace)
    else:
        found = config.find(workspace)
    if len(found) > 1:
        several = f"{len(found)} ({', '.join(each.name for each in found[:5])}{', ...' if len(found) > 5 else ''})"  # noqa: PLR2004 - fits a line
        raise InvalidRequest(f"workspace: expected one workspace, got {several}; name one of them, or use clients()")
    return next(iter(found), None)
