"""The top-level command, the table of its sub-commands, and shell completion."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, shell_complete

from outreach_async._cli.messages import wrap_error
from outreach_async._cli.options import declare_options, options_before

_COMMANDS: Final = {
    "audit": ("declarations.audits", "audit", "Check every mailbox of the workspaces for problems."),
    "brief": ("declarations.audits", "brief", "Show open tasks and the changes since the last brief."),
    "campaigns": ("declarations.services", "campaigns", "List the campaigns of one or more workspaces."),
    "completion": ("app", "completion", "Print the completion script for a shell."),
    "config": ("declarations.services", "config", "Write, check and show the configuration file."),
    "contacts": ("declarations.files", "contacts", "Create a contact."),
    "demo": ("declarations.services", "demo", "Import and audit on an embedded service, and show a brief."),
    "fields": ("declarations.services", "fields", "List the contact fields of one or more workspaces."),
    "history": ("declarations.audits", "history", "Show, export or prune the figures of earlier audits."),
    "import": ("declarations.files", "import_", "Create a contact for each row of a file."),
    "mailboxes": ("declarations.services", "mailboxes", "List the mailboxes of one or more workspaces."),
    "mcp": ("declarations.audits", "mcp", "Run an MCP server for assistants over stdin and stdout."),
    "report": ("declarations.files", "report", "Show the progress and results of the run in JOURNAL."),
    "serve": ("declarations.services", "serve", "Serve the embedded service over HTTP until interrupted."),
    "steps": ("declarations.services", "steps", "List the steps of a campaign with their statistics."),
}
"""Maps each command to its module, its variable in the module, and its help text. Help is shown without an import."""
_EXIT_BROKEN_PIPE: Final = 141
"""Exit code if the program that reads the output has exited, as `head` does."""


class SuggestingGroup(click.Group):
    """A group of commands that suggests similar names for an unknown command."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name of a sub-command, the sub-command itself, and the arguments after its name."""
        # During shell completion, the words of the line may be incomplete.
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            names = self.list_commands(ctx)
            near = get_close_matches(args[0].lower(), names)
            meant = f"did you mean {' or '.join(map(repr, near))}?" if near else f"the commands are {', '.join(names)}."
            raise click.UsageError(f"unknown command {args[0]!r}; {meant}", ctx)
        return super().resolve_command(ctx, args)


class CommandGroup(SuggestingGroup):
    """The top-level group of commands. It imports the module of a command only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        """Return the names of the commands."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's own signature
        """Import and return a command; return `None` if no command has this name."""
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"outreach_async._cli.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's own signature
        """Write the list of commands into the help text."""
        # click's own method would import the module of each command for its help.
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (*_, text) in _COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the command names and options that start with the typed text."""
        # click's own method would import the module of each command.
        commands = [CompletionItem(name, help=text) for name, (*_, text) in _COMMANDS.items() if name.startswith(incomplete)]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]


PROGRAM: Final = "outreach-async"
VARIABLE: Final = "_OUTREACH_ASYNC_COMPLETE"
"""Environment variable that a completion script sets. click derives the variable's name from the program's name."""

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")), metavar="bash|zsh|fish")
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the completion script for a shell.

    \b
    bash 4.4 or newer: add this line to ~/.bashrc
      eval "$(outreach-async completion bash)"

    \b
    zsh: add this line to ~/.zshrc, after the line with compinit
      eval "$(outreach-async completion zsh)"

    \b
    fish: add this line to ~/.config/fish/config.fish
      outreach-async completion fish | source

    The line takes effect in new shells. The command must be on PATH under the name outreach-async.
    """  # noqa: D301 - click keeps the lines of a paragraph after a backspace character
    options_before(context, ())
    return shell_complete(context.find_root().command, {}, PROGRAM, VARIABLE, f"{shell}_source")


def create_completer(words: Callable[[], Iterable[str] | Mapping[str, str]], *, or_file: bool = False) -> Completer:
    """Return a function to pass as `shell_complete` of a click option. The function completes words in the shell."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        del context, parameter
        candidates = words()
        helps = candidates if isinstance(candidates, Mapping) else dict.fromkeys(candidates)
        matches = [CompletionItem(word, help=text) for word, text in helps.items() if word.lower().startswith(incomplete.lower())]
        return matches or ([CompletionItem(incomplete, type="file")] if or_file else [])

    return complete


@click.group(cls=CommandGroup, context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
@click.version_option(package_name="outreach_async", message="%(package)s %(version)s")
@declare_options()
def outreach(**_shared: Any) -> None:
    """Import contacts, audit mailboxes and list the contents of a workspace.

    Exit codes: 0 success; 1 findings at or above --fail-on, or a request refused by the service; 2 wrong usage; 3 incomplete
    (rows rejected, unknown or not applied, or pages that could not be read); 69 a brief could not be posted; 75 suspended, can be
    resumed; 77 not allowed (the service answered 401 or 403); 130 interrupted.
    """


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code. Expected errors are printed as one line on stderr, without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # output to a terminal without UTF-8 must not raise
    # click's `main` is not used: even with `standalone_mode=False` it exits with 1 after a broken pipe, and turns Ctrl-C into an
    # empty line on stderr and `Abort`. It also calls `shell_complete` for completion scripts, but then exits the process.
    try:
        if instruction := os.environ.get(VARIABLE):
            code: int = shell_complete(outreach, {}, PROGRAM, VARIABLE, instruction)
        else:
            with outreach.make_context(PROGRAM, list(arguments) or ["--help"]) as context:
                code = outreach.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as end:  # --help and --version
        return end.exit_code
    except BrokenPipeError:
        # The interpreter flushes stdout at exit. On the broken pipe, this would fail again and print a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_BROKEN_PIPE
    except BaseException as error:
        # Imported only here, because it imports anyio, which would slow down `--help` and shell completion.
        from outreach_async._cli.process import EXPECTED_ERRORS, exit_code, format_error

        if not isinstance(error, EXPECTED_ERRORS):
            raise
        sys.stderr.write(f"{wrap_error(format_error(error))}\n")
        return exit_code(error)
    return code
