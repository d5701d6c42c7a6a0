"""Options shared by several commands. Shared options are accepted before and after the name of the command."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Final, get_args

import attrs
import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from outreach_async._config_file import (
    ALL,
    NO_FILE,
    Backend,
    ConfigValues,
    find_config,
    profiles_of,
    read_config,
    select,
    split_selectors,
)
from outreach_async._service.validation import read_rate, require_id, require_rate
from outreach_async._vocabulary import ID_PREFIXES
from outreach_async.errors import InvalidRequest

FAKE: Final = "fake:"
"""The base URL of the embedded service."""

_ID_PARAMETERS: Final = {"workspace": "workspaces", "campaign": "campaign", "owner_key": "owner_key"}  # by kind of id
_REMEDIES: Final = {
    "workspace": "pass the id of a workspace",
    "campaign": "pass the id of a campaign, as printed by the command 'campaigns'",
    "owner_key": "pass the API key of the user who owns the contacts",
}


class IdType(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """Parameter type for an id. If the id is of another kind, the error suggests the parameter for that kind."""

    name = "id"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value if it is an id of the expected kind."""
        name = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name if param else self.kind
        ids = split_selectors(str(value)) if self.kind == "workspace" else [value]  # `"$SPACES"` may contain several
        for id_ in ids or [value]:
            require_id(name, id_, self.kind, self._find_remedy(str(id_), ctx.command.params if ctx else ()))
        return str(value)

    def _find_remedy(self, value: str, parameters: Iterable[click.Parameter]) -> str:
        given = next((kind for kind, prefix in ID_PREFIXES.items() if value.startswith(prefix)), "")
        for parameter in parameters:
            if parameter.name == _ID_PARAMETERS.get(given) and given != self.kind:
                return f"did you mean {parameter.opts[0]}?"
        hint = " (the command 'steps' accepts campaign ids)" if given == "campaign" and self.kind == "workspace" else ""
        return _REMEDIES[self.kind] + hint


class WorkspaceType(IdType):
    """Parameter type for a name, an id or a group of workspaces. Names are looked up in the configuration file later."""

    def __init__(self) -> None:
        super().__init__("workspace")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value, unless it is blank or an id of another kind."""
        text = str(value)
        is_id = not text.strip() or text.startswith(tuple(ID_PREFIXES.values()))
        return super().convert(value, param, ctx) if is_id else text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names, groups and ids that start with the typed text."""
        del param
        words: dict[str, str] = {}
        config = _config_to_complete(ctx)
        for each in config.workspaces if config else ():
            words |= {each.name: each.id, **dict.fromkeys(each.groups, "group")}
        words |= {ALL: "every workspace"} if words else {}
        return [CompletionItem(word, help=text) for word, text in words.items() if word.lower().startswith(incomplete.lower())]


class ProfileType(click.ParamType):  # type: ignore[type-arg]  # as above
    """Parameter type for the name of a profile."""

    name = "profile"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the profiles that start with the typed text."""
        del param
        config = _config_to_complete(ctx)
        names = profiles_of(config.path) if config and config.path else ()
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _config_to_complete(context: click.Context) -> ConfigValues | None:
    """Return the values of the configuration file of an incomplete command line; `None` if it cannot be read."""
    given = {**context.find_root().params, **{name: value for name, value in context.params.items() if value}}
    try:
        path = find_config(given.get("config"), os.environ)
        profile = given.get("profile") or os.environ.get("OUTREACH_PROFILE")
        return None if path is None else read_config(path, profile or None, ConfigValues)
    except InvalidRequest:  # an error would be printed into the line that is being typed
        return None


_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class AgeType(click.ParamType):  # type: ignore[type-arg]  # as above
    """Parameter type for an age: a number of seconds, or a number and a unit."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the age in seconds."""
        if (found := re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", str(value))) is None:
            self.fail(f"expected a number and a unit (s, m, h, d or w), such as 30d, got {value!r}.", param, ctx)
        return float(found[1]) * _UNITS[found[2]]


_SHARED_OPTIONS: Final = {
    "config": click.option(
        "--config",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Configuration file.  [OUTREACH_CONFIG; default: outreach.toml here or in the user's configuration folder]",
    ),
    "profile": click.option(
        "--profile", metavar="NAME", type=ProfileType(), help="Profile of the configuration file. [OUTREACH_PROFILE]"
    ),
    "base_url": click.option(
        "--base-url", metavar="URL", help=f"Base URL of the service; {FAKE!r} uses the embedded fake service. [OUTREACH_BASE_URL]"
    ),
    "workspaces": click.option(
        "--workspace",
        "workspaces",
        metavar="NAME|ID|GROUP|all",
        multiple=True,
        type=WorkspaceType(),
        help="Workspace: its id, or a name or group of the configuration file; repeatable, or separated by commas, with lists, "
        "audits and 'mcp'. [OUTREACH_WORKSPACE]",
    ),
    "owner_key": click.option(
        "--owner-key",
        metavar="KEY",
        type=IdType("owner_key"),
        help="API key for creating contacts; the environment variable is safer. [OUTREACH_OWNER_KEY]",
    ),
    "as_json": click.option(
        "--json", "as_json", is_flag=True, help="Print the result as one JSON object on the last line of stdout."
    ),
    "backend": click.option("--backend", type=click.Choice(get_args(Backend)), help="HTTP library to use.  [default: httpx]"),
    "timeout": click.option("--timeout", type=float, metavar="SECONDS", help="Timeout of each request attempt.  [default: 30]"),
    "rate": click.option("--rate", type=float, metavar="N", help="Maximum number of requests per second. [OUTREACH_RATE]"),
    "headers": click.option(
        "--header", "headers", metavar="'NAME: VALUE'", multiple=True, help="Header for every request; repeatable."
    ),
    "quiet": click.option(
        "--quiet", "-q", is_flag=True, help="Print no report, list or progress, but warnings, errors and what --json prints."
    ),
    "verbose": click.option(
        "--verbose",
        "-v",
        is_flag=True,
        help="Log every request to stderr, as OUTREACH_LOG=debug does; 'demo' prints every report.",
    ),
}
"""Maps each attribute of `Options` to the decorator that declares its option."""

CONNECTION: Final = ("config", "profile", "base_url", "backend", "timeout", "rate", "headers")  # of a command that sends requests
READING: Final = (*CONNECTION, "workspaces", "as_json")  # of a command that reads a workspace
WRITING: Final = (*READING, "owner_key")  # of a command that creates contacts
_VERBOSITY: Final = ("quiet", "verbose")  # of every command


@attrs.frozen(kw_only=True)
class Options:
    """Values of the shared options, with defaults from the environment and the configuration file."""

    # `OUTREACH_RATE` and `OUTREACH_WORKSPACE` are read only for commands that have the options `--rate` and `--workspace`.

    config: ConfigValues = attrs.field(repr=False)
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
    def of(cls, values: Mapping[str, Any], environment: Mapping[str, str]) -> Options:
        """Create the options from the command line, the environment and the configuration file. The first of them wins."""
        base_url = values.get("base_url") or environment.get("OUTREACH_BASE_URL") or None
        if values.get("rate") is not None:
            require_rate("--rate", values["rate"])
        given_rate = read_rate(environment) if "rate" in values and values["rate"] is None else None
        # The names, keys and workspaces of the file and the environment belong to another service than the embedded one.
        outside = {} if base_url == FAKE else environment
        config = _load_config(values, environment) if "config" in values and base_url != FAKE else NO_FILE
        found = {
            "base_url": _first(config, "base_url", values.get("base_url"), environment.get("OUTREACH_BASE_URL")),
            "owner_key": _first(config, "owner_key", values.get("owner_key"), outside.get("OUTREACH_OWNER_KEY")),
            "backend": _first(config, "backend", values.get("backend"), default="httpx"),
            "timeout": _first(config, "timeout", values.get("timeout"), default=30.0),
            "rate": _first(config, "rate", values.get("rate"), given_rate),
            "workspace": _first(config, "workspace", values.get("workspaces"), outside.get("OUTREACH_WORKSPACE")),
        }
        chosen = {name: value for name, (value, _) in found.items()}
        sources = {name: source for name, (_, source) in found.items()}
        key = chosen.pop("owner_key")
        selectors = chosen.pop("workspace")
        return cls(
            config=config,
            profile=config.profile,
            workspaces=find_workspaces(config, selectors, sources["workspace"]) if "workspaces" in values else (),
            owner_key=key if isinstance(key, str) else None,  # the file says where keys are, and `connection` reads them
            as_json=bool(values.get("as_json")),
            headers=dict(map(_parse_header, values.get("headers", ()))),
            quiet=bool(values.get("quiet")),
            verbose=bool(values.get("verbose")),
            sources=sources,
            **chosen,
        )

    @property
    def workspace(self) -> str | None:
        """The id of the workspace to work in; `None` if not given."""
        if len(self.workspaces) > 1:
            names = ", ".join(map(self.name_of, self.workspaces[:_MAX_NAMED]))
            more = ", ..." if len(self.workspaces) > _MAX_NAMED else ""
            got = f"{len(self.workspaces)} ({names}{more}) from --workspace or OUTREACH_WORKSPACE"
            raise click.UsageError(f"--workspace: expected one workspace, got {got}; pass --workspace once.")
        return next(iter(self.workspaces), None)

    def name_of(self, workspace: str) -> str:
        """Return the name of a workspace; its id if it has no name."""
        return self.config.names.get(workspace, workspace)

    @property
    def own_rates(self) -> dict[str, float]:
        """The rates of workspaces that have their own, by id; none if a rate is given for all workspaces."""
        if self.sources["rate"] in {"--rate", "OUTREACH_RATE"}:
            return {}
        return {each.id: each.rate for each in self.config.workspaces if each.rate is not None}


_MAX_NAMED: Final = 5


def _load_config(values: Mapping[str, Any], environment: Mapping[str, str]) -> ConfigValues:
    if "profile" not in values:  # a command that writes the file
        return ConfigValues(path=values["config"])
    profile = values.get("profile") or environment.get("OUTREACH_PROFILE") or None
    path = find_config(values["config"], environment)
    if path is None and profile is not None:
        raise click.UsageError("--profile: expected a configuration file with profiles, found none; pass --config FILE.")
    return NO_FILE if path is None else read_config(path, profile, ConfigValues)


def _first(config: ConfigValues, name: str, flag: Any, variable: Any = None, *, default: Any = None) -> tuple[Any, str]:
    """Return the first value that is given, and where it comes from."""
    option = f"--{name.replace('_', '-')}"
    where = f"profile {config.profile} in {config.path}" if name in config.from_profile else str(config.path)
    candidates = (flag, option), (variable, f"OUTREACH_{name.upper()}"), (getattr(config, name), where)
    return next((each for each in candidates if each[0] not in {None, "", ()}), (default, "default" if default else ""))


def find_workspaces(config: ConfigValues, selectors: Any, source: str) -> tuple[str, ...]:
    """Return the ids of the workspaces that options, a variable or the configuration file select."""
    found: dict[str, None] = {}
    for text in (selectors,) if isinstance(selectors, str) else selectors or ():
        try:
            for part in split_selectors(text) if text.startswith(tuple(ID_PREFIXES.values())) else ():
                require_id("workspace", part, "workspace", "use the id of a workspace")
            found |= dict.fromkeys(each.id for each in select(config, text))
        except InvalidRequest as error:
            raise InvalidRequest(f"{source}{str(error).removeprefix('workspace')}") from None
    return tuple(found)


def shared_options(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the shared options of a command, which receives them as `options`. Those after the command's name win."""
    names = (*names, *_VERBOSITY)

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_options(**arguments: Any) -> Any:
            before = options_before(click.get_current_context(), names)
            shared = {name: _prefer_later(before.get(name), arguments.pop(name)) for name in names}
            return command(options=Options.of(shared, os.environ), **arguments)

        return declare_options(*names)(with_options)

    return decorate


def options_before(context: click.Context, names: Collection[str]) -> Mapping[str, Any]:
    """Return the values of the shared options given before the command's name."""
    root = context.find_root()
    for parameter in root.command.params:
        given = root.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        if given and parameter.name not in names:
            command = context.command_path.partition(" ")[2]
            raise click.UsageError(f"{parameter.opts[0]}: the command {command!r} does not use this option; remove it.", context)
    return root.params


def declare_options(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add shared options to a command, by default all of them. The command receives each option as a separate argument."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        # Use the order of the table, so that the help of every command lists the options in the same order.
        for name in reversed([name for name in _SHARED_OPTIONS if name in names or not names]):
            command = _SHARED_OPTIONS[name](command)
        return command

    return decorate


def _prefer_later(before: Any, after: Any) -> Any:
    """Return the value given after the command's name. If there is none, return the value given before the name."""
    return before if after is None or after is False or after == () else after


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.UsageError("--header: expected 'Name: value', got a value without a name or colon; quote the whole header.")
    return name.strip(), value.strip()
