"""The commands that `data/commands.toml` declares. The module of a command is imported when it runs, so that its help is fast."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from outreach_async._cli.parameters import build_parameters

_DECLARED: Final = tomllib.loads((Path(__file__).parent / "data" / "commands.toml").read_text(encoding="utf-8"))
SHARED: Final = {str(option.name): option for option in build_parameters(_DECLARED["shared"])}
"""Maps each attribute of `Options` to its option, which is accepted before and after the name of the command."""
_CONNECTION: Final = ("config", "profile", "base_url", "backend", "timeout", "rate", "headers", "verbose")
_SHARES: Final = {
    "reading": (*_CONNECTION, "workspaces", "as_json"),
    "writing": (*_CONNECTION, "workspaces", "as_json", "owner_key"),
}


class _SuggestingGroup(click.Group):
    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        # During shell completion, the words of the line may be incomplete.
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            names = self.list_commands(ctx)
            near = get_close_matches(args[0].lower(), names)
            meant = f"did you mean {' or '.join(map(repr, near))}?" if near else f"the commands are {', '.join(names)}."
            raise click.UsageError(f"unknown command {args[0]!r}; {meant}", ctx)
        return super().resolve_command(ctx, args)


outreach: Final = _SuggestingGroup(
    "outreach-async",
    params=[*SHARED.values()],
    context_settings={"show_default": True, "help_option_names": ["-h", "--help"]},
    help=_DECLARED["help"],
)
click.version_option(package_name="outreach_async", message="%(package)s %(version)s")(outreach)


def _declare(name: str, declared: Mapping[str, Any]) -> None:
    """Add a command, which calls a function with the values of the shared options and its own, or add a group of commands."""
    group, _, last = name.rpartition(" ")
    parent: click.Group = outreach.commands[group] if group else outreach  # type: ignore[assignment]  # a group was added before
    if "run" not in declared:
        parent.add_command(_SuggestingGroup(last, help=declared["help"], no_args_is_help=False))
        return
    given = declared.get("shared", ())
    chosen = _SHARES[given] if isinstance(given, str) else given
    names = [each for each in SHARED if each in chosen or (chosen and each == "quiet")]  # with --quiet, every command is quiet
    params = build_parameters(declared.get("options", {}))
    for each in declared.get("include", ()):
        params += build_parameters(_DECLARED["groups"][each])
    params += map(SHARED.__getitem__, names)
    callback = _create_callback(declared["run"], names, needs_trust=declared.get("needs_trust", True))
    parent.add_command(click.Command(last, params=params, help=declared["help"], callback=callback))


def _create_callback(function: str, shared: Collection[str], *, needs_trust: bool) -> Callable[..., Any]:
    def run(**arguments: Any) -> Any:
        before = _options_before(click.get_current_context(), shared)
        if shared:
            from outreach_async._cli.values import Options

            later = {name: arguments.pop(name) for name in shared}
            # A value after the command's name wins. 0 is a value.
            absent = {name for name, value in later.items() if value is None or value is False or value == ()}
            values = {name: before.get(name) if name in absent else value for name, value in later.items()}
            arguments["options"] = Options.of(values, os.environ, needs_trust=needs_trust)
        module, _, name = function.rpartition(".")
        return getattr(import_module(f"outreach_async._cli.{module}"), name)(**arguments)

    return run


def _options_before(context: click.Context, names: Collection[str]) -> Mapping[str, Any]:
    """Return the values of the shared options given before the command's name."""
    root = context.find_root()
    for parameter in root.command.params:
        given = root.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        if given and parameter.name not in names:
            command = context.command_path.partition(" ")[2]
            raise click.UsageError(f"{parameter.opts[0]}: the command {command!r} does not use this option; remove it.", context)
    return root.params


for _name, _command in _DECLARED["commands"].items():
    _declare(_name, _command)
