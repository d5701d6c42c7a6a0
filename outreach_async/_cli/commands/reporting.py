"""The command `report`: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from outreach_async._cli import files
from outreach_async._cli.options import Options, shared_options


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
def report(
    options: Options,
    journal: files.JournalLocation,
    *,
    open_input: files.OpenInput,
    uncertain: bool,
    input_: Path | None,
    rejects: Path | None,
    results: Path | None,
    force: bool,
    **mapping: Any,
) -> int:
    """Show the progress and results of the run in JOURNAL. The run may still be in progress. Nothing is sent or changed.

    JOURNAL is the path of a file, or the URL of an object journal, such as s3://bucket/prefix. For an import in parts, pass the
    folder of the journals: the report adds up all parts that have started. --uncertain, --rejects and --results then read the
    files of the plan.

    JOURNAL may also be a ledger: the report then shows its contacts and its last runs. With --results and --input, it writes what
    the ledger knows about each row of a file, such as its contact id. Pass the options of the import that map its columns.

    Exit codes: 0 finished, every row succeeded; 3 finished with rejected, not_applied or unknown rows; 75 not finished, can be
    resumed.
    """
    from outreach_async._cli.commands.report_run import Outputs, print_report

    outputs = Outputs(uncertain, rejects, results, force)
    return print_report(options, journal, outputs, open_input=open_input, input_=input_, mapping=mapping)
