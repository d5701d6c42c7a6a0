"""The table of sub-commands. Each is imported on first use, so that shell completion is fast."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import attrs
import click
from click.shell_completion import CompletionItem


@attrs.frozen
class _Place:
    """The location and summary of a command.

    Attributes:
        module: Module in this package.
        attribute: Name of the command in that module.
        text: First sentence of its help, so that completion does not import the module.
    """

    module: str
    attribute: str
    text: str


_PLACES: Final = {
    "audit": _Place("auditing", "audit", "Check every mailbox of the workspaces for problems."),
    "campaigns": _Place("lists", "campaigns", "List the campaigns of a workspace."),
    "completion": _Place("completion", "completion", "Print the completion script for a shell."),
    "demo": _Place("demo", "demo", "Import contacts and audit mailboxes on an embedded service."),
    "fields": _Place("lists", "fields", "List the contact fields of a workspace."),
    "import": _Place("importing", "import_", "Create a contact for each row of a file."),
    "mailboxes": _Place("lists", "mailboxes", "List the mailboxes of a workspace."),
    "report": _Place("reporting", "report", "Show the progress and results of the run in JOURNAL."),
    "serve": _Place("serving", "serve", "Serve the embedded service over HTTP until interrupted."),
    "steps": _Place("lists", "steps", "List the steps of a campaign with their statistics."),
}


class Commands(click.Group):
    """The group of these commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        """Return the names of the commands."""
        return list(_PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's own signature
        """Import a command; return `None` if there is none of that name."""
        place = _PLACES.get(cmd_name)
        if place is None:
            return None
        command: click.Command = getattr(import_module(f"outreach_async.cli.{place.module}"), place.attribute)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the names and options that start with what was typed."""
        named = [CompletionItem(name, help=place.text) for name, place in _PLACES.items() if name.startswith(incomplete)]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]
