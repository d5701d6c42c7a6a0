"""The commands that print lists: `campaigns`, `mailboxes`, `fields` and `steps`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
from click import Choice

from outreach_async._cli.options import CAMPAIGN, OUTPUT, Command, all_of, connecting, force, option, reading

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


def _create_list(what: str, noun: str) -> click.Command:
    @click.command(what, cls=Command, help=f"List the {noun} of one or more workspaces.")
    @_list_options
    @reading
    @force
    def print_list(options: Options, **settings: Unpack[ListSettings]) -> int:
        from outreach_async._cli import listing

        return listing.print_list(options, what, settings)

    return print_list


campaigns: Final = _create_list("campaigns", "campaigns")
mailboxes: Final = _create_list("mailboxes", "mailboxes")
fields: Final = _create_list("fields", "contact fields")


@click.command(cls=Command)
@click.argument("campaign", type=CAMPAIGN)
@_list_options
@connecting
@force
def steps(options: Options, *, campaign: str, **settings: Unpack[ListSettings]) -> int:
    """List the steps of a campaign with their statistics.

    CAMPAIGN is the id of a campaign, as printed by the command 'campaigns'.
    """
    from outreach_async._cli import listing

    return listing.print_steps(options, campaign, settings)
