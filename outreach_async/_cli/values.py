"""The values of the shared options, from the command line, the environment and the configuration file."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from outreach_async._cli.messages import to_printable
from outreach_async._cli.output import Screen
from outreach_async._plumbing import Backend, read_rate, require_id, require_plain, require_rate, trim
from outreach_async.config import Config, FoundFile, load_config
from outreach_async.errors import InvalidRequest
from outreach_async.models import ID_PREFIXES

if TYPE_CHECKING:
    from outreach_async.bulk import Exclusions

FAKE: Final = "fake:"
"""The base URL of the embedded service."""
MAX_IN_FLIGHT: Final = 64
"""Default for the maximum number of concurrent requests."""
_MAX_NAMED: Final = 5


@attrs.frozen(kw_only=True)
class Options:
    """Values of the shared options, with defaults from the environment and the configuration file."""

    # `OUTREACH_RATE` and `OUTREACH_WORKSPACE` are read only for commands that have the options `--rate` and `--workspace`.

    config: Config = attrs.field(repr=False)
    profile: str | None
    base_url: str | None
    workspaces: tuple[str, ...]
    owner_key: str | None = attrs.field(repr=False)
    as_json: bool
    backend: Backend
    timeout: float
    rate: float | None
    headers: Mapping[str, str] = attrs.field(repr=False)
    quiet: bool
    verbose: bool
    sources: Mapping[str, str] = attrs.field(repr=False, eq=False)

    @classmethod
    def of(cls, values: Mapping[str, Any], *, needs_trust: bool = True) -> Options:
        """Create the options from the command line, the environment and the configuration file. The first of them wins."""
        environment: Mapping[str, str] = os.environ
        address = trim(environment.get("OUTREACH_BASE_URL"))
        base_url = values.get("base_url") or address or None
        if values.get("rate") is not None:
            require_rate("--rate", values["rate"])
        given_rate = read_rate(environment) if "rate" in values and values["rate"] is None else None
        # The names, keys and workspaces of the file and the environment belong to another service than the embedded one.
        outside = {} if base_url == FAKE else environment
        config = _load_config(values) if "config" in values and not (base_url == FAKE and "profile" in values) else Config()
        if config.untrusted is not None and needs_trust:
            confirm_trust(config.untrusted)
        config = config.at(base_url)
        found = {
            "base_url": _first(config, "base_url", values.get("base_url"), address),
            "owner_key": _first(config, "owner_key", values.get("owner_key"), trim(outside.get("OUTREACH_OWNER_KEY"))),
            "backend": _first(config, "backend", values.get("backend"), default="auto"),
            "timeout": _first(config, "timeout", values.get("timeout"), default=30.0),
            "rate": _first(config, "rate", values.get("rate"), given_rate),
            "exclude": _first(config, "exclude", None, default=()),
            "workspace": _first(config, "workspace", values.get("workspaces"), trim(outside.get("OUTREACH_WORKSPACE"))),
        }
        sources = {name: source for name, (_, source) in found.items()}
        chosen = {name: value for name, (value, _) in found.items()}
        key, selectors, _ = chosen.pop("owner_key"), chosen.pop("workspace"), chosen.pop("exclude")
        if isinstance(key, str):
            require_plain(sources["owner_key"], key, "correct the key")
        return cls(
            config=config,
            profile=config.profile,
            workspaces=find_workspaces(config, selectors, sources["workspace"]) if "workspaces" in values else (),
            owner_key=key if isinstance(key, str) else None,  # the file says where keys are, and `connection` reads them
            headers=dict(map(_parse_header, values.get("headers", ()))),
            as_json=bool(values.get("as_json")),
            quiet=bool(values.get("quiet")),
            verbose=bool(values.get("verbose")),
            sources=sources,
            **chosen,
        )

    def screen(self, *, as_json: bool = False) -> Screen:
        return Screen.of(as_json=self.as_json or as_json, quiet=self.quiet, verbose=self.verbose)

    def read_lists(self) -> list[Exclusions]:
        """Read the lists of the configuration file: people to whom no command writes."""
        from outreach_async.importer import read_exclusions  # imported on demand: few commands need it

        return [*map(read_exclusions, self.config.exclude)]

    @property
    def workspace(self) -> str | None:
        if len(self.workspaces) > 1:
            names = ", ".join(map(self.name_of, self.workspaces[:_MAX_NAMED]))
            more = ", ..." if len(self.workspaces) > _MAX_NAMED else ""
            got = f"{len(self.workspaces)} ({names}{more}) from --workspace or OUTREACH_WORKSPACE"
            raise click.UsageError(f"--workspace: expected one workspace, got {got}; pass --workspace once.")
        return next(iter(self.workspaces), None)

    def name_of(self, workspace: str) -> str:
        return self.config.names.get(workspace, workspace)

    @property
    def own_rates(self) -> dict[str, float]:
        """The rates of workspaces that have their own, by id; none if a rate is given for all workspaces."""
        if self.sources["rate"] in {"--rate", "OUTREACH_RATE"}:
            return {}
        return {each.id: each.rate for each in self.config.workspaces if each.rate is not None}


def _load_config(values: Mapping[str, Any]) -> Config:
    if "profile" not in values:  # a command that writes the file
        return Config(path=values["config"])
    profile = values.get("profile") or trim(os.environ.get("OUTREACH_PROFILE"))
    config = load_config(values["config"], profile, strict=False)
    if config.path is None and profile is not None:
        raise click.UsageError("--profile: expected a configuration file with profiles, found none; pass --config FILE.")
    return config


def confirm_trust(found: FoundFile) -> None:
    """Ask whether a file is trusted, and remember it, or raise its error: without a terminal, or if the answer is no."""
    if sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty() and sys.stderr.isatty():
        # stdout may be a protocol or a file.
        sys.stderr.write(f"{to_printable(f'{found.place} names {found.names}')}\nTrust this file as it is now? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().casefold() in {"y", "yes"}:
            try:
                found.trust()
            except (OSError, InvalidRequest) as error:
                sys.stderr.write(f"outreach-async: {to_printable(str(error))}; the next command asks again\n")
            return
    found.require()


def _first(config: Config, name: str, flag: Any, variable: Any = None, *, default: Any = None) -> tuple[Any, str]:
    """Return the first value that is given, and where it comes from."""
    option = f"--{name.replace('_', '-')}"
    where = f"profile {config.profile} in {config.path}" if name in config.from_profile else str(config.path)
    candidates = (flag, option), (variable, f"OUTREACH_{name.upper()}"), (getattr(config, name), where)
    return next((each for each in candidates if each[0] not in {None, "", ()}), (default, "default" if default else ""))


def find_workspaces(config: Config, selectors: Any, source: str) -> tuple[str, ...]:
    """Return the ids of the workspaces that options, a variable or the configuration file select."""
    texts = [trim(text) or "" for text in ((selectors,) if isinstance(selectors, str) else selectors or ())]
    try:
        for text in texts:
            for part in text.replace(",", " ").split() if text.startswith(tuple(ID_PREFIXES.values())) else ():
                require_id("workspace", part, "workspace", "use the id of a workspace")
        return tuple(each.id for each in config.select(*texts))
    except InvalidRequest as error:
        raise InvalidRequest(f"{source}{str(error).removeprefix('workspace')}") from None


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.UsageError("--header: expected 'Name: value', got a value without a name or colon; quote the whole header.")
    return name.strip(), value.strip()
