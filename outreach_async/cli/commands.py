"""The sub-commands, each imported when it is needed: a shell that asks for names waits for none of them."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import attrs
import click
from click.shell_completion import CompletionItem


@attrs.frozen
class _Place:
    """Where a command is, and what it says of itself before it is imported.

    Attributes:
        module: Its module in this package.
        attribute: Its name there.
        text: The first sentence of its help.
    """

    module: str
    attribute: str
    text: str


_PLACES: Final = {
    "audit": _Place(
        "auditing",
        "audit",
        "Judge every mailbox of the workspaces, and say what is unsafe, why, what to do about it, and what changed.",
    ),
    "campaigns": _Place("lists", "campaigns", "List the campaigns of a workspace."),
    "completion": _Place("completion", "completion", "Print what makes a shell complete this command."),
    "demo": _Place(
        "demo", "demo", "Import contacts into an embedded service and audit its mailboxes: no network, nothing to set up."
    ),
    "fields": _Place("lists", "fields", "List the fields that contacts of a workspace can have."),
    "import": _Place(
        "importing",
        "import_",
        "Create a contact for each row of a file: CSV, Excel, Parquet or JSON Lines; '-' is standard input.",
    ),
    "mailboxes": _Place("lists", "mailboxes", "List the mailboxes of a workspace."),
    "report": _Place("reporting", "report", "Say how the run stands that JOURNAL keeps, also while it goes on."),
    "serve": _Place("serving", "serve", "Serve the embedded service until stopped."),
    "steps": _Place("lists", "steps", "List the steps of a campaign and how their templates did."),
}


class Commands(click.Group):
    """A group of the commands above."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        """Return their names."""
        return list(_PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's own signature
        """Import a command."""
        place = _PLACES.get(cmd_name)
        if place is None:
            return None
        command: click.Command = getattr(import_module(f"outreach_async.cli.{place.module}"), place.attribute)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return names and options that start so."""
        named = [CompletionItem(name, help=place.text) for name, place in _PLACES.items() if name.startswith(incomplete)]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]
