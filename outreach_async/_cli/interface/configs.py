"""The commands `config` and `completion`: what they accept, and their help."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click import Choice

from outreach_async._cli.interface.kinds import FILE
from outreach_async._cli.interface.options import WRITING, Command, option, reading, with_options
from outreach_async._cli.interface.root import SuggestingGroup

if TYPE_CHECKING:
    from outreach_async._cli.values import Options


@click.group(cls=SuggestingGroup, no_args_is_help=False)
def config() -> None:
    """Write, check and show the configuration file."""


@config.command(cls=Command)
@reading
def check(options: Options) -> int:
    """Read one page of each workspace, and say what works. Owner keys are read, but not sent.

    Without --workspace, every workspace of the configuration file is checked.

    Exit codes: 0 everything works; 1 an owner key cannot be read; 2 wrong usage, or an error in the file; 3 a workspace cannot
    be read; 77 the service denies access to every workspace.
    """
    from outreach_async._cli.commands import configuring

    return configuring.check(options)


@config.command(cls=Command)
@with_options("config")
def init(options: Options) -> int:
    """Write a commented configuration file to start with: outreach.toml, or the one of --config.

    An existing file is never overwritten. If OUTREACH_BASE_URL and OUTREACH_WORKSPACE are set, the new file has their values.
    """
    from outreach_async._cli.commands import configuring

    return configuring.init(options)


@config.command(cls=Command)
@with_options(*WRITING, needs_trust=False)  # it runs and sends nothing
def show(options: Options) -> int:
    """Show each value, and where it comes from. Keys are never shown, only where they are stored."""
    from outreach_async._cli.commands import configuring

    return configuring.show(options)


@config.command(cls=Command)
@click.argument("file", type=FILE, metavar="FILE", required=False)
@option("--show", is_flag=True, help="List what is trusted.")
@option("--untrust", is_flag=True, help="Trust the file no longer.")
@with_options("quiet")
def trust(options: Options, *, file: Path | None, show: bool, untrust: bool) -> int:
    """Trust a configuration file that commands find in the working directory, as its content is now.

    Such a file may come from anyone, as in a repository, and may name the address that receives owner keys, and programs to
    run. It is used only if it is trusted. FILE is outreach.toml by default. A file that --config, OUTREACH_CONFIG or 'config
    init' names, or that is in the user's configuration folder, is trusted.
    """
    from outreach_async._cli.commands import configuring

    return configuring.trust(options, file, show=show, untrust=untrust)


@click.command(cls=Command)
@click.argument("shell", type=Choice(["bash", "zsh", "fish"]))
def completion(*, shell: str) -> int:
    """Print the completion script for a shell.

    bash 4.4 or newer: add this line to ~/.bashrc

        eval "$(outreach-async completion bash)"

    zsh: add this line to ~/.zshrc, after the line with compinit

        eval "$(outreach-async completion zsh)"

    fish: add this line to ~/.config/fish/config.fish

        outreach-async completion fish | source

    The line takes effect in new shells. The command must be on PATH under the name outreach-async.
    """
    from outreach_async._cli.completion import print_script

    return print_script(shell)
