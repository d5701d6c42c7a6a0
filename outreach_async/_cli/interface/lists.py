"""The commands that print lists: what they accept, and their help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
from click import Choice

from outreach_async._cli.interface.kinds import CAMPAIGN, OUTPUT
from outreach_async._cli.interface.options import Command, all_of, connecting, force, option, reading

if TYPE_CHECKING:
    from typing import Unpack

    from outreach_async._cli.settings import ListSettings
    from outreach_async._cli.values import Options


_list_options: Final = all_of(
    option(
        "--columns",
        metavar="NAMES|all",
        help="Columns to print, separated by commas.  [default: a few in a table on a terminal, all otherwise]",
    ),
    option(
        "--format",
        "form",
        type=Choice(["table", "csv", "jsonl", "json"]),
        help=(
            "Format of the list. In pipes and files, tabs separate the columns of a table; json is the same as --json.  "
            "[default: by the suffix of --output, or table]"
        ),
    ),
    option(
        "--output",
        type=OUTPUT,
        help="Write the list to a file, in the format of its suffix (.csv, .jsonl, .ndjson, .json, .tsv, .txt).",
    ),
)


@click.command(cls=Command)
@_list_options
@reading
@force
def campaigns(options: Options, **settings: Unpack[ListSettings]) -> int:
    """List the campaigns of one or more workspaces."""
    from outreach_async._cli.commands import lists

    return lists.print_list(options, "campaigns", settings)


@click.command(cls=Command)
@_list_options
@reading
@force
def mailboxes(options: Options, **settings: Unpack[ListSettings]) -> int:
    """List the mailboxes of one or more workspaces."""
    from outreach_async._cli.commands import lists

    return lists.print_list(options, "mailboxes", settings)


@click.command(cls=Command)
@_list_options
@reading
@force
def fields(options: Options, **settings: Unpack[ListSettings]) -> int:
    """List the contact fields of one or more workspaces."""
    from outreach_async._cli.commands import lists

    return lists.print_list(options, "fields", settings)


@click.command(cls=Command)
@click.argument("campaign", type=CAMPAIGN)
@_list_options
@connecting
@force
def steps(options: Options, *, campaign: str, **settings: Unpack[ListSettings]) -> int:
    """List the steps of a campaign with their statistics.

    CAMPAIGN is the id of a campaign, as printed by the command 'campaigns'.
    """
    from outreach_async._cli.commands import lists

    return lists.print_steps(options, campaign, settings)
