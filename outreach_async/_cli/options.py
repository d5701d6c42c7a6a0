"""Options shared by several commands. Shared options are accepted before and after the name of the command."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from typing import Any, Final, Literal, get_args

import attrs
import click
from click.core import ParameterSource

from outreach_async._service.validation import read_rate, require_id, require_rate
from outreach_async._vocabulary import ID_PREFIXES

FAKE: Final = "fake:"
"""The base URL of the embedded service."""

Backend = Literal["httpx", "httpx2", "aiohttp", "httptools"]

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
        ids = split_ids(str(value)) if self.kind == "workspace" else [value]  # `"$SPACES"` may contain several
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
    "base_url": click.option(
        "--base-url", metavar="URL", help=f"Base URL of the service; {FAKE!r} uses the embedded fake service. [OUTREACH_BASE_URL]"
    ),
    "workspaces": click.option(
        "--workspace",
        "workspaces",
        metavar="ID",
        multiple=True,
        type=IdType("workspace"),
        help="Id of the workspace; repeatable, or separated by commas, with 'audit', 'brief' and 'mcp'. [OUTREACH_WORKSPACE]",
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
    "verbose": click.option("--verbose", "-v", is_flag=True, help="Log every request to stderr, as OUTREACH_LOG=debug does."),
}
"""Maps each attribute of `Options` to the decorator that declares its option."""

CONNECTION: Final = ("base_url", "backend", "timeout", "rate", "headers")  # of a command that sends requests
READING: Final = (*CONNECTION, "workspaces", "as_json")  # of a command that reads a workspace
WRITING: Final = (*READING, "owner_key")  # of a command that creates contacts
_VERBOSITY: Final = ("quiet", "verbose")  # of every command


@attrs.frozen(kw_only=True)
class Options:
    """Values of the shared options, with defaults from the environment."""

    # `OUTREACH_RATE` and `OUTREACH_WORKSPACE` are read only for commands that have the options `--rate` and `--workspace`.

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

    @classmethod
    def of(cls, values: Mapping[str, Any], environment: Mapping[str, str]) -> Options:
        """Create the options from the command line, and from the environment for options that are not given."""
        # The owner key and workspaces in the environment belong to another service than the embedded one.
        rate = None if values.get("rate") is None else require_rate("--rate", values["rate"])
        if "rate" in values and rate is None:
            rate = read_rate(environment)
        base_url = values.get("base_url") or environment.get("OUTREACH_BASE_URL") or None
        environment = {} if base_url == FAKE else environment
        return cls(
            base_url=base_url,
            workspaces=tuple(split_ids(" ".join(values.get("workspaces") or ())))
            or (_read_workspaces(environment) if "workspaces" in values else ()),
            owner_key=values.get("owner_key") or environment.get("OUTREACH_OWNER_KEY") or None,
            as_json=bool(values.get("as_json")),
            backend=values.get("backend") or "httpx",
            timeout=30.0 if values.get("timeout") is None else values["timeout"],
            rate=rate,
            headers=dict(map(_parse_header, values.get("headers", ()))),
            quiet=bool(values.get("quiet")),
            verbose=bool(values.get("verbose")),
        )

    @property
    def workspace(self) -> str | None:
        """The id of the workspace to work in; `None` if not given."""
        if len(self.workspaces) > 1:
            got = f"{len(self.workspaces)} ({', '.join(self.workspaces)}) from --workspace or OUTREACH_WORKSPACE"
            raise click.UsageError(f"--workspace: expected one workspace, got {got}; pass --workspace once.")
        return next(iter(self.workspaces), None)


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


def split_ids(text: str) -> list[str]:
    """Return ids that are separated by spaces, line breaks or commas, as in a shell variable."""
    return text.replace(",", " ").split()


def _read_workspaces(environment: Mapping[str, str]) -> tuple[str, ...]:
    ids = split_ids(environment.get("OUTREACH_WORKSPACE", ""))
    return tuple(require_id("OUTREACH_WORKSPACE", id_, "workspace", "set it to the id of a workspace") for id_ in ids)


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.UsageError("--header: expected 'Name: value', got a value without a name or colon; quote the whole header.")
    return name.strip(), value.strip()
