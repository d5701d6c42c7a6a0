"""The options of commands: the kinds of values, the sections of the help, and the options that many commands share.

What only a run needs is imported when one begins.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import partial, wraps
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import click
from click import Choice
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from outreach_async._plumbing import is_url

if TYPE_CHECKING:
    from outreach_async._cli.values import Options

_P = ParamSpec("_P")
_R = TypeVar("_R", bound="int | None")
_F = TypeVar("_F", bound=Callable[..., Any])
_EXAMPLE: Final = re.compile(r"\n\n(?=    )")

STDOUT: Final = Path("/dev/stdout")
_REMEDIES: Final = {
    "workspace": "pass the id of a workspace",
    "campaign": "pass the id of a campaign, as printed by the command 'campaigns'",
    "owner_key": "pass the API key of the user who owns the contacts",
}
_DAY: Final = 86_400.0  # seconds
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def _name_of(param: click.Parameter | None) -> str:
    return param.opts[0] if isinstance(param, click.Option) else param.human_readable_name if param else ""


class IdType(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    name = "id"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002 - click's signature
        from outreach_async._plumbing import require_id

        name = _name_of(param) or self.kind
        ids = str(value).replace(",", " ").split() if self.kind == "workspace" else [value]  # `"$SPACES"` may contain several
        return " ".join(require_id(name, id_, self.kind, _REMEDIES[self.kind]) for id_ in ids or [value])


class _AnyIdType(click.ParamType):  # type: ignore[type-arg]  # as above
    """An id of which the command checks the kind, or a domain."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002 - click's signature
        from outreach_async._plumbing import require_plain, trim

        found = trim(str(value)) or ""  # nothing is no omitted option: the command refuses it
        require_plain(_name_of(param), found, "pass one id")
        return found


class WorkspaceType(click.ParamType):  # type: ignore[type-arg]  # as above
    """A name, an id or a group of workspaces. The shell completes it, and commands look it up, in the configuration file."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value, unless it is blank or an id of another kind."""
        from outreach_async._plumbing import trim
        from outreach_async.models import ID_PREFIXES

        text = trim(str(value)) or ""
        is_id = not text or text.startswith(tuple(ID_PREFIXES.values()))
        return IdType("workspace").convert(value, param, ctx) if is_id else text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        del param
        from outreach_async._plumbing import trim
        from outreach_async.config import load_config
        from outreach_async.errors import InvalidRequest

        given = {**ctx.find_root().params, **{name: value for name, value in ctx.params.items() if value}}
        words: dict[str, str] = {}
        with suppress(InvalidRequest):  # an error would be printed into the line that is being typed
            profile = given.get("profile") or trim(os.environ.get("OUTREACH_PROFILE"))
            # Names need no trust: nothing is run or sent.
            for each in load_config(given.get("config"), profile, strict=False).workspaces:
                words |= {each.name: each.id, **dict.fromkeys(each.groups, "group")}
        words |= {"all": "every workspace"} if words else {}
        return [CompletionItem(word, help=text) for word, text in words.items() if word.lower().startswith(incomplete.lower())]


class _FileType(click.Path):
    """A file, and no named pipe: a command that waits for its other end could not be stopped."""

    def __init__(self, *, exists: bool = False) -> None:
        super().__init__(path_type=Path, exists=exists, dir_okay=not exists)
        self.name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path: Any = super().convert(value, param, ctx)
        return _require_file(path)


class _OutputType(_FileType):
    """A file to write; `-` is standard output."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path: Any = click.Path.convert(self, str(STDOUT) if value == "-" else value, param, ctx)
        if _is_named_pipe(path):
            try:
                # The descriptor stays open: a program that reads the pipe would otherwise see its end before it is written.
                os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                text = f"{path}: no program reads this named pipe; start one first, or pass the path of a file."
                raise click.BadParameter(text) from None
        return path


class _LocationType(click.Path):
    """The path or the URL of a journal, a ledger or an input file."""

    def __init__(self, *, is_input: bool = False) -> None:
        super().__init__(path_type=Path)
        self.name = "path|url"
        self._is_input = is_input

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if is_url(value):
            return value
        path: Any = super().convert(value, param, ctx)
        return path if self._is_input else _require_file(path)  # opening an input asks whether a program writes to the pipe


def _is_named_pipe(path: Path) -> bool:
    with suppress(OSError):  # such as a name that is too long, which the file's use reports
        # A path such as /dev/fd/63 is a pipe that the shell has connected.
        return path.is_fifo() and not str(path).startswith("/dev/")
    return False


def _require_file(path: Path) -> Path:
    if _is_named_pipe(path):
        raise click.BadParameter(f"{path}: expected a file, got a named pipe; pass the path of a file.")
    return path


def age(text: str) -> float:
    """Return the seconds of an age: a number and a unit, or a number of seconds, which is 0 or at least a day."""
    if (found := re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", text)) is None:
        raise click.BadParameter(f"expected a number and a unit (s, m, h, d or w), such as 30d, got {text!r}.")
    if (seconds := float(found[1]) * _UNITS[found[2]]) == math.inf:
        raise click.BadParameter("expected an age that fits a float, got more; pass a smaller number.")
    if not found[2] and 0 < seconds < _DAY:  # a hold of 90 seconds would hold nobody
        raise click.BadParameter(f"expected a number and a unit, got {text!r}; for days, pass {text}d, and for seconds, {text}s.")
    return seconds


_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def earlier(text: str) -> Callable[[float], float]:
    """Return a function that returns, for a time of now in Unix seconds, the end of an earlier day in UTC, or an earlier time."""
    word = text.strip().lower()
    weekday = word.removeprefix("last-")
    if word in {"yesterday", "month"} or (weekday in _WEEKDAYS and weekday != word):

        def find_day(now: float) -> float:
            today = datetime.fromtimestamp(now, UTC)
            days = {"yesterday": 1, "month": today.day}.get(word) or (today.weekday() - _WEEKDAYS.index(weekday) - 1) % 7 + 1
            return _end_of_day(now - days * _DAY)

        return find_day
    if re.fullmatch(r"\d+(?:\.\d+)?[smhdw]", word):
        seconds = age(word)
        # An audit of a week ago at the same hour may have begun a minute later than the one of today.
        return lambda now: _end_of_day(now - seconds) if word[-1] in "dw" else now - seconds
    try:
        fixed = date(text)
    except click.BadParameter:
        what = "expected an age such as 7d or 12h, a day such as 2026-03-31, yesterday, last-monday or month"
        raise click.BadParameter(f"{what}, got {text!r}.") from None
    return lambda _: fixed


def _end_of_day(at: float) -> float:
    return math.nextafter((at // _DAY + 1) * _DAY, 0)


def limit(text: str) -> int | None:
    """Return a number from 1; `None` for `never`."""
    if text == "never":
        return None
    if not re.fullmatch(r"0*[1-9][0-9]{0,17}", str(text), re.ASCII):
        raise click.BadParameter(f"expected a whole number from 1, or never, got {text!r}.")
    return int(text)


def gate(text: str) -> bool | str:
    """Return whether the gate looks up mail servers, or the address of the resolver that it asks."""
    if text not in {"local", "mx"} and not text.startswith("mx@"):
        text = f"expected local, mx or mx@ADDRESS, got {text!r}; write --gate=local, or write FILE before --gate."
        raise click.BadParameter(text)
    return text.removeprefix("mx@") if text.startswith("mx@") else text == "mx"


def share(text: str) -> float:
    """Return a share from 0 to 1."""
    from fractions import Fraction  # of a float, 2.9% would be less than 29 of 1,000

    found = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", text)
    if found is None or (value := float(Fraction(found[1]) / (100 if found[2] else 1))) > 1:
        raise click.BadParameter(f"expected a share from 0 to 100%, such as 3% or 0.03, got {text!r}.")
    return value


def date(text: str) -> float:
    """Return a time in UTC, or the end of a day, in Unix seconds."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        what = "expected a day or a time in UTC, such as 2026-03-31 or 2026-03-31T08:00:00Z"
        raise click.BadParameter(f"{what}, got {text!r}.") from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return math.nextafter(at.timestamp() + 86_400, 0) if re.fullmatch(r"[\dW-]+", text) else at.timestamp()


ANY_ID: Final = _AnyIdType()
CAMPAIGN: Final = IdType("campaign")
EXISTING: Final = _FileType(exists=True)
FILE: Final = _FileType()
FOLDER: Final = click.Path(path_type=Path, file_okay=False)
INPUT: Final = _LocationType(is_input=True)
LOCATION: Final = _LocationType()
OUTPUT: Final = _OutputType()
OWNER_KEY: Final = IdType("owner_key")
WORKSPACE: Final = WorkspaceType()


class Option(click.Option):
    """An option that stands under a heading in the help of its command."""

    def __init__(self, *names: Any, section: str = "Options", **facts: Any) -> None:
        super().__init__(*names, **facts)
        self.section = section


class Command(click.Command):
    """A command whose help has sections, keeps the lines of indented paragraphs, and ends with examples."""

    def __init__(self, *, help: str | None, examples: Sequence[str] = (), **facts: Any) -> None:  # noqa: A002 - click's name
        # Python removes docstrings with -OO.
        super().__init__(help=_EXAMPLE.sub("\n\n\b\n", cleandoc(help or "")), **facts)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record:
                sections.setdefault(getattr(param, "section", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        if self.examples:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in self.examples))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, unless an option before its name is one that it does not use."""
        root, own = ctx.find_root(), {param.name for param in self.params}
        for param in root.command.params:
            given = root.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
            if given and param.name not in own:
                name = ctx.command_path.partition(" ")[2]
                raise click.UsageError(f"{param.opts[0]}: the command {name!r} does not use this option; remove it.", ctx)
        return super().invoke(ctx)


class SuggestingGroup(click.Group):
    """A group of commands that suggests names for an unknown one."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        # During shell completion, the words of the line may be incomplete.
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            names = self.list_commands(ctx)
            near = get_close_matches(args[0].lower(), names)
            meant = f"did you mean {' or '.join(map(repr, near))}?" if near else f"the commands are {', '.join(names)}."
            raise click.UsageError(f"unknown command {args[0]!r}; {meant}", ctx)
        return super().resolve_command(ctx, args)


def option(*names: str, **facts: Any) -> Callable[[_F], _F]:
    return click.option(*names, cls=Option, **facts)


def all_of(*options: Callable[[Any], Any]) -> Callable[[_F], _F]:
    """Return a decorator that adds several options, in their order."""

    def add(function: _F) -> _F:
        for each in reversed(options):
            each(function)
        return function

    return add


_connection: Final = partial(option, section="Connection")
_output: Final = partial(option, section="Output")
SHARED: Final[dict[str, Callable[[Any], Any]]] = {
    "config": _connection(
        "--config",
        type=FILE,
        help="Configuration file.  [OUTREACH_CONFIG; default: outreach.toml here or in the user's configuration folder]",
    ),
    "profile": _connection("--profile", metavar="PROFILE", help="Profile of the configuration file. [OUTREACH_PROFILE]"),
    "base_url": _connection(
        "--base-url", metavar="URL", help="Base URL of the service; 'fake:' uses the embedded fake service. [OUTREACH_BASE_URL]"
    ),
    "workspaces": _connection(
        "--workspace",
        "workspaces",
        type=WORKSPACE,
        metavar="NAME|ID|GROUP|all",
        multiple=True,
        help=(
            "Workspace: its id, or a name or group of the configuration file; repeatable, or separated by commas, with "
            "lists, audits and 'mcp'. [OUTREACH_WORKSPACE]"
        ),
    ),
    "owner_key": _connection(
        "--owner-key",
        type=OWNER_KEY,
        metavar="KEY",
        help="API key for creating contacts; the environment variable is safer. [OUTREACH_OWNER_KEY]",
    ),
    "as_json": _output("--json", "as_json", is_flag=True, help="Print the result as one JSON object on the last line of stdout."),
    "backend": _connection(
        "--backend",
        type=Choice(["auto", "sockets", "httpx", "httpx2", "aiohttp"]),
        help="How to connect; 'auto' uses 'sockets', or 'httpx' if the environment sets a proxy.  [default: auto]",
    ),
    "timeout": _connection("--timeout", type=float, metavar="SECONDS", help="Timeout of each request attempt.  [default: 30]"),
    "rate": _connection("--rate", type=float, metavar="REQUESTS", help="Maximum number of requests per second. [OUTREACH_RATE]"),
    "headers": _connection(
        "--header", "headers", metavar="'NAME: VALUE'", multiple=True, help="Header for every request; repeatable."
    ),
    "quiet": _output(
        "--quiet",
        "-q",
        is_flag=True,
        help="Print no report, list or progress, but warnings, errors, and what --json or a --format of files prints.",
    ),
    "verbose": _output(
        "--verbose",
        "-v",
        is_flag=True,
        help=(
            "Log every request to stderr, as OUTREACH_LOG=debug does; 'demo' prints every report, and 'import' every "
            "column and reason."
        ),
    ),
}
"""The options that are accepted before and after the name of a command, by the attribute of `Options`."""

force: Final = _output(
    "--force", is_flag=True, help="Overwrite an existing file even if it does not look like an output of the same option."
)


def with_options(*names: str, needs_trust: bool = True) -> Callable[[Callable[Concatenate[Options, _P], _R]], Callable[_P, _R]]:
    """Return a decorator that adds shared options. Their values are the first argument of the function.

    With one of them comes --quiet: every command can be quiet.
    """
    chosen = [name for name in SHARED if name in names or name == "quiet"]

    def decorate(function: Callable[Concatenate[Options, _P], _R]) -> Callable[_P, _R]:
        @wraps(function)
        def run(*args: _P.args, **arguments: _P.kwargs) -> _R:
            from outreach_async._cli.values import Options  # slow to import, and no help needs it

            before = click.get_current_context().find_root().params
            values: dict[str, Any] = {name: arguments.pop(name) for name in chosen}
            # A value after the command's name wins. 0 is a value.
            absent = [name for name, value in values.items() if value is None or value is False or value == ()]
            values |= {name: before.get(name) for name in absent}
            return function(Options.of(values, needs_trust=needs_trust), *args, **arguments)

        return all_of(*map(SHARED.__getitem__, chosen))(run)

    return decorate


CONNECTION: Final = ("config", "profile", "base_url", "backend", "timeout", "rate", "headers", "verbose")
connecting: Final = with_options(*CONNECTION, "as_json")
reading: Final = with_options(*CONNECTION, "workspaces", "as_json")
WRITING: Final = (*CONNECTION, "workspaces", "as_json", "owner_key")
writing: Final = with_options(*WRITING)
