"""The commands that create contacts and report what became of them: their options and help."""

from __future__ import annotations

from typing import Any, Final

import click

from outreach_async._cli import files
from outreach_async._cli.app import SuggestingGroup, create_completer
from outreach_async._cli.options import WRITING, AgeType, IdType, shared_options

_DUPLICATES: Final = ("skip", "overwrite", "update_missing_fields")
_LEVELS: Final = ("error", "warn", "off")
_CHECKS: Final = ("email", "role", "typo", "phone", "country", "state", "timezone", "date", "website", "cells", "repeat")


@click.command("import")
@click.argument("file", type=files.JournalType())
@click.option(
    "--duplicates",
    type=click.Choice(_DUPLICATES),
    default="skip",
    help="Policy for e-mails that are already in the workspace.",
)
@click.option("--campaign", metavar="ID", help="Add the contacts to this campaign.")
@click.option("--strict/--no-strict", default=True, help="Let the service validate the standard fields.")
@click.option("--concurrency", type=int, default=64, metavar="N", help="Maximum number of concurrent requests.")
@click.option(
    "--repeats",
    type=click.Choice(("serial", "error", "first", "last", "coalesce")),
    default="serial",
    help="Policy for duplicates within the file; first, last and coalesce need --journal.",
)
@click.option(
    "--journal",
    metavar="PATH|URL",
    type=files.JournalType(),
    help="Record the run in this file, or at this URL of an object store (s3://bucket/prefix), so that it can be resumed.",
)
@click.option(
    "--ledger",
    metavar="PATH|URL",
    type=files.JournalType(),
    help="Send only new, changed and uncertain rows, according to this file or object store, which remembers every run. Needs "
    "--duplicates overwrite or update_missing_fields, or --changed ignore.",
)
@click.option(
    "--max-age",
    metavar="AGE",
    type=AgeType(),
    help="With --ledger, also send rows that were last sent this long ago, such as 30d.",
)
@click.option(
    "--changed",
    type=click.Choice(("send", "ignore")),
    default="send",
    help="With --ledger: send changed rows, or ignore them and send only new ones.",
)
@click.option("--resume", is_flag=True, help="Resume the run in --journal. If the journal does not exist, start a new run.")
@click.option(
    "--earlier",
    type=click.Choice(("known", "unknown")),
    default="known",
    help="With 'unknown', the run continues even if the journal was damaged or lost; every row without an outcome counts as "
    "possibly sent.",
)
@files.rejects_option
@files.results_option
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only check the file, without creating contacts. To map columns, the command may read the workspace's fields.",
)
@files.mapping_options
@click.option("--save-mapping", metavar="PATH", type=files.OutputPath(), help="Write the column mapping to this TOML file.")
@files.force_option
@click.option(
    "--check",
    "checks",
    metavar="[CHECK=]error|warn|off",
    multiple=True,
    shell_complete=create_completer(lambda: [*_LEVELS, *(f"{check}={level}" for check in _CHECKS for level in _LEVELS)]),
    help=f"Level of all checks, or of a single check ({', '.join(_CHECKS)}); repeatable.  [default: warn]",
)
@click.option(
    "--dask",
    "scheduler",
    metavar="ADDRESS|local",
    help="Import on a Dask cluster. FILE may be a URL or a quoted pattern; --journal must be a URL. Workers need the owner key.",
)
@files.file_options
@shared_options(*WRITING)
def import_(**arguments: Any) -> int:
    """Create a contact for each row of a file. The file is CSV, JSON Lines, Parquet or a workbook; '-' is standard input.

    Columns are matched to fields by name, regardless of case, accents and punctuation ("First Name", "E-mail"). The name of
    a column can be the code of a field (such as first_name) or the label of a workspace field. Common names in English, German,
    French, Spanish, Portuguese, Dutch, Italian, Polish and Czech also match. Exports of Apollo, Google Contacts, HubSpot, Outlook
    and Salesforce are recognised. If a column matches no field, nothing is sent, and the error shows the --map options to add.
    With --ignore-unknown, such a column is skipped instead. A column name that may mean several fields is ambiguous, and always
    needs --map.

    The whole file is checked before the first row is sent. By default, the checks only print warnings: the rows are sent, and the
    service accepts or rejects them. With --check error, rows with invalid values are rejected instead of sent. With --check
    cells=off, texts such as NULL and #N/A are sent as they are.

    With --journal you can resume a run after a crash, Ctrl-C or exit code 75: run the same command with --resume to process the
    remaining rows. Every row gets exactly one outcome. After the first Ctrl-C, the import waits up to 30 seconds for requests in
    flight, or one second if the run is paused. The second Ctrl-C cancels these requests. Use one journal per file: resuming with
    a file that has other rows is an error. If the run in the journal is finished, --resume prints its results again.

    With --ledger, only new, changed and uncertain rows are sent. The ledger remembers every run, so run the same command every
    night, and after a crash. With --dry-run, the command only counts what it would send; --results then shows what the ledger
    knows about each row, such as its contact id.

    With --dask, the input is divided into parts, and the workers of a Dask cluster import them. Set OUTREACH_OWNER_KEY in the
    environment of the workers. To resume after a crash, run the same command again. Without --rate, the total rate of all workers
    starts at 10 requests per second, and adapts to the service's limit.

    \b
    outreach-async import 'lake/*.parquet' --journal s3://bucket/june \\
      --dask tcp://host:8786
    """  # noqa: D301 - click keeps the lines of a paragraph after a backspace character
    from outreach_async._cli.commands.importing import import_ as run

    return run(**arguments)


@click.group(cls=SuggestingGroup, no_args_is_help=False)
def contacts() -> None:
    """Create a contact."""


@contacts.command("create")
@click.option("--email", required=True, metavar="ADDRESS", help="E-mail address, by which the service detects duplicates.")
@click.option(
    "--set",
    "settings",
    metavar="FIELD=VALUE",
    multiple=True,
    help="Set a field by its code or label, such as first_name=Ann, custom_1=Gold or Plan=Gold; repeatable. "
    "The command 'fields' lists codes and labels.",
)
@click.option(
    "--duplicates",
    type=click.Choice(_DUPLICATES),
    default="skip",
    help="Policy if the workspace already has a contact with this e-mail.",
)
@click.option("--campaign", metavar="ID", type=IdType("campaign"), help="Add the contact to this campaign.")
@click.option("--strict/--no-strict", default=True, help="Let the service validate the standard fields.")
@shared_options(*WRITING)
def create(**arguments: Any) -> int:
    """Create one contact, and print its outcome and id.

    \b
    outreach-async contacts create --email ann@x.example --set first_name=Ann

    Exit codes: 0 added, skipped, overwriten or updated_missing_fields; 2 wrong usage; 3 rejected, not_applied or unknown; 77 not
    allowed (the service answered 401 or 403).
    """  # noqa: D301 - click keeps the lines of a paragraph after a backspace character
    from outreach_async._cli.commands.creating import create as run

    return run(**arguments)


@click.command()
@click.argument("journal", type=files.JournalType(), metavar="JOURNAL")
@click.option("--uncertain", is_flag=True, help="List the rows whose outcome is uncertain.")
@click.option(
    "--input",
    "input_",
    metavar="FILE",
    type=files.PATH,
    help="Input file of the run. With --uncertain, it provides line numbers and e-mails. Default for --rejects and --results: "
    "the path in the journal. An import in parts records its files, and a ledger does not.",
)
@files.rejects_option
@files.results_option
@files.mapping_options
@click.option("--campaign", metavar="ID", help="With a ledger: campaign of the rows of --input, if they do not name theirs.")
@click.option("--workspace", metavar="ID", help="With a ledger: workspace of the rows of --input, if they do not name theirs.")
@files.force_option
@files.file_options
@shared_options("as_json")
def report(**arguments: Any) -> int:
    """Show the progress and results of the run in JOURNAL. The run may still be in progress. Nothing is sent or changed.

    JOURNAL is the path of a file, or the URL of an object journal, such as s3://bucket/prefix. For an import in parts, pass the
    folder of the journals: the report adds up all parts that have started. --uncertain, --rejects and --results then read the
    files of the plan.

    JOURNAL may also be a ledger: the report then shows its contacts and its last runs. With --results and --input, it writes what
    the ledger knows about each row of a file, such as its contact id. Pass the options of the import that map its columns.

    Exit codes: 0 finished, every row succeeded; 3 finished with rejected, not_applied or unknown rows; 75 not finished, can be
    resumed.
    """
    from outreach_async._cli.commands.reporting import report as run

    return run(**arguments)
