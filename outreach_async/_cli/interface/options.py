"""What the options of commands have in common: sections in the help, and options that many commands share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import partial, wraps
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import click
from click import Choice
from click.core import ParameterSource

from outreach_async._cli.interface.kinds import FILE, OWNER_KEY, WORKSPACE

if TYPE_CHECKING:
    from outreach_async._cli.values import Options

_P = ParamSpec("_P")
_F = TypeVar("_F", bound=Callable[..., Any])
_EXAMPLE: Final = re.compile(r"\n\n(?=    )")


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
        "--backend", type=Choice(["httpx", "httpx2", "aiohttp", "httptools"]), help="HTTP library to use.  [default: httpx]"
    ),
    "timeout": _connection("--timeout", type=float, metavar="SECONDS", help="Timeout of each request attempt.  [default: 30]"),
    "rate": _connection("--rate", type=float, metavar="REQUESTS", help="Maximum number of requests per second. [OUTREACH_RATE]"),
    "headers": _connection(
        "--header", "headers", metavar="'NAME: VALUE'", multiple=True, help="Header for every request; repeatable."
    ),
    "quiet": _output(
        "--quiet", "-q", is_flag=True, help="Print no report, list or progress, but warnings, errors and what --json prints."
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


def with_options(*names: str, needs_trust: bool = True) -> Callable[[Callable[Concatenate[Options, _P], int]], Callable[_P, int]]:
    """Return a decorator that adds shared options. Their values are the first argument of the function.

    With one of them comes --quiet: every command can be quiet.
    """
    chosen = [name for name in SHARED if name in names or name == "quiet"]

    def decorate(function: Callable[Concatenate[Options, _P], int]) -> Callable[_P, int]:
        @wraps(function)
        def run(*args: _P.args, **arguments: _P.kwargs) -> int:
            from outreach_async._cli.values import Options  # slow to import, and no help needs it

            before = click.get_current_context().find_root().params
            values: dict[str, Any] = {name: arguments.pop(name) for name in chosen}
            # A value after the command's name wins. 0 is a value.
            absent = [name for name, value in values.items() if value is None or value is False or value == ()]
            values |= {name: before.get(name) for name in absent}
            return function(Options.of(values, os.environ, needs_trust=needs_trust), *args, **arguments)

        return all_of(*map(SHARED.__getitem__, chosen))(run)

    return decorate


CONNECTION: Final = ("config", "profile", "base_url", "backend", "timeout", "rate", "headers", "verbose")
connecting: Final = with_options(*CONNECTION, "as_json")
reading: Final = with_options(*CONNECTION, "workspaces", "as_json")
WRITING: Final = (*CONNECTION, "workspaces", "as_json", "owner_key")
writing: Final = with_options(*WRITING)
