"""Options shared by several commands. Shared options are accepted before and after the name of the command."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from outreach_async._config_file import ConfigValues

# What reads the values of options is imported when a command runs, and not for its help.

MAX_IN_FLIGHT: Final = 64
"""Default for the maximum number of concurrent requests."""
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
        from outreach_async._config_file import split_selectors
        from outreach_async._service.validation import require_id

        name = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name if param else self.kind
        ids = split_selectors(str(value)) if self.kind == "workspace" else [value]  # `"$SPACES"` may contain several
        for id_ in ids or [value]:
            require_id(name, id_, self.kind, self._find_remedy(str(id_), ctx.command.params if ctx else ()))
        return str(value)

    def _find_remedy(self, value: str, parameters: Iterable[click.Parameter]) -> str:
        from outreach_async._vocabulary import ID_PREFIXES

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
        from outreach_async._vocabulary import ID_PREFIXES

        text = str(value)
        is_id = not text.strip() or text.startswith(tuple(ID_PREFIXES.values()))
        return super().convert(value, param, ctx) if is_id else text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names, groups and ids that start with the typed text."""
        from outreach_async._config_file import ALL

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
        from outreach_async._config_file import profiles_of

        del param
        config = _config_to_complete(ctx)
        names = profiles_of(config.path) if config and config.path else ()
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _config_to_complete(context: click.Context) -> ConfigValues | None:
    """Return the values of the configuration file of an incomplete command line; `None` if it cannot be read."""
    from outreach_async._config_file import ConfigValues, find_config, read_config
    from outreach_async.errors import InvalidRequest

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
        "--base-url", metavar="URL", help="Base URL of the service; 'fake:' uses the embedded fake service. [OUTREACH_BASE_URL]"
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
    "backend": click.option(
        "--backend",
        type=click.Choice(("httpx", "httpx2", "aiohttp", "httptools")),
        help="HTTP library to use.  [default: httpx]",
    ),
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


def shared_options(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the shared options of a command, which receives them as `options`. Those after the command's name win."""
    # Every command is quiet with --quiet. One that sends no request has nothing to log.
    names = (*names, "quiet", *(("verbose",) if "base_url" in names and "verbose" not in names else ()))

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_options(**arguments: Any) -> Any:
            from outreach_async._cli.values import Options

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
