"""The command `outreach-async`, which imports the module of a command only when the command is named."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from outreach_async._cli.options import SHARED, SuggestingGroup, all_of

PROGRAM: Final = "outreach-async"
VARIABLE: Final = "_OUTREACH_ASYNC_COMPLETE"
"""Environment variable that a completion script sets. click derives the variable's name from the program's name."""
_COMMANDS: Final = {
    "audit": ("audits.audit", "Check every mailbox of the workspaces for problems."),
    "brief": ("audits.brief", "Show open tasks and the changes since the last brief."),
    "campaigns": ("lists.campaigns", "List the campaigns of one or more workspaces."),
    "client-report": ("history.client_report", "Write a page for each client, from a history."),
    "completion": ("configs.completion", "Print the completion script for a shell."),
    "config": ("configs.config", "Write, check and show the configuration file."),
    "contacts": ("contacts.contacts", "Create a contact."),
    "demo": ("services.demo", "Import and audit on an embedded service, and show a brief."),
    "erase": ("erasing.erase", "Remove what files have of people."),
    "fields": ("lists.fields", "List the contact fields of one or more workspaces."),
    "history": ("history.history", "Show, export or prune the figures of earlier audits."),
    "import": ("imports.import_", "Create a contact for each row of a file."),
    "mailboxes": ("lists.mailboxes", "List the mailboxes of one or more workspaces."),
    "mcp": ("services.mcp", "Run an MCP server for assistants over stdin and stdout."),
    "plan": ("audits.plan", "Show when campaigns end, and what of the daily limits stays unused."),
    "report": ("imports.report", "Show the progress and results of the run in JOURNAL."),
    "serve": ("services.serve", "Serve the embedded service over HTTP until interrupted."),
    "steps": ("lists.steps", "List the steps of a campaign with their statistics."),
}
"""The place of each command in this package, and the beginning of its help."""


class _LazyGroup(SuggestingGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name][0].partition(".")
        command: click.Command = getattr(import_module(f"outreach_async._cli.commands.{module}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group("outreach-async", cls=_LazyGroup, context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
@click.version_option(package_name="outreach_async", message="%(package)s %(version)s")
@all_of(*SHARED.values())
def outreach(**_shared: object) -> None:
    """Import contacts, audit mailboxes and list the contents of a workspace.

    Exit codes: 0 success; 1 findings at or above --fail-on, or a request refused by the service; 2 wrong usage; 3 incomplete
    (rows rejected, unknown or not applied, pages that could not be read, or people not wholly erased); 69 a brief could not be
    posted; 75 suspended: the same command continues later; 77 not allowed (the service answered 401 or 403, to an audit for every
    workspace); 130 interrupted.
    """
