"""The command `report`: the progress and results of a run, from its journal."""

from __future__ import annotations

from pathlib import Path

import click

from outreach_async.bulk import ContactOutcome
from outreach_async.bulk.journal import JournalReader, JournalReport, journal_at
from outreach_async.cli import files
from outreach_async.cli.exits import SUSPENDED, exit_code_of_rows
from outreach_async.cli.messages import format_seconds
from outreach_async.cli.options import Options, shared_options
from outreach_async.cli.output import Screen
from outreach_async.errors import InvalidRequest
from outreach_async.importer import File
from outreach_async.importer.rejects import export_rejects, is_rejects_file


@click.command()
@click.argument("journal", type=files.JournalType(), metavar="JOURNAL")
@click.option("--uncertain", is_flag=True, help="List the rows whose outcome is uncertain.")
@files.rejects_option
@files.force_option
@files.file_options
@shared_options("as_json")
def report(
    options: Options,
    journal: files.JournalLocation,
    *,
    open_input: files.OpenInput,
    uncertain: bool,
    rejects: Path | None,
    force: bool,
) -> int:
    """Show the progress and results of the run in JOURNAL. The run may still be in progress. Nothing is sent or changed.

    JOURNAL is the path of a file, or the URL of an object journal, such as s3://bucket/prefix.

    Exit codes: 0 finished, every row succeeded; 3 finished with rejected, not_applied or unknown rows; 75 not finished, can be
    resumed.
    """
    screen = Screen.of(as_json=options.as_json)
    run, figures = _read_report(journal)
    source = None if figures.source is None or figures.fingerprint is None else Path(figures.source)
    files.require_writable(
        files.FileUse.for_journal("JOURNAL", journal, written=False),
        files.FileUse.for_reading("the input of JOURNAL", source),
        files.FileUse.for_writing("--rejects", rejects, is_rejects_file),
        force=force,
    )
    if uncertain:
        columns = ("row", "status", "possible", "attempts", "id", "error")
        screen.print_table(columns, (_outcome_cells(outcome) for outcome in run.outcomes() if not outcome.certain))
    if rejects is not None:
        file = _open_input_file(open_input, figures)
        with files.explain_write_errors("--rejects", rejects):
            rows = export_rejects(rejects, file, run)
        screen.print_line(f"{rows:,} rows written to {rejects}")
    _print_report(screen, figures)
    screen.print_result(figures.to_dict())
    return exit_code_of_rows(figures.outcomes, figures.repeats) if figures.state == "finished" else SUSPENDED


def _read_report(location: files.JournalLocation) -> tuple[JournalReader, JournalReport]:
    try:
        journal = journal_at(location)
        return journal, journal.report()
    except InvalidRequest as error:  # here the journal is an argument, not an option
        raise InvalidRequest(str(error).replace("journal: ", "JOURNAL: ", 1)) from error


def _outcome_cells(outcome: ContactOutcome) -> tuple[object, ...]:
    possible = ", ".join(sorted(outcome.possible))
    return outcome.index, outcome.status.value, possible, outcome.attempts, outcome.id or "", outcome.error or ""


def _open_input_file(open_input: files.OpenInput, figures: JournalReport) -> File | None:
    """Open the input of the run and check that it has not changed. Return `None` if the input was standard input.

    Raises:
        InvalidRequest: The input has changed, or the journal records no input file.
    """
    if figures.source is None:
        raise InvalidRequest("--rejects: the journal records no input file; pass the journal of an 'outreach-async import' run")
    if figures.fingerprint is None:
        return None
    file = open_input(figures.source)
    if figures.fingerprint != file.fingerprint():
        raise InvalidRequest(f"--rejects: {figures.source} has changed since this run began; restore the original file")
    return file


def _print_report(screen: Screen, figures: JournalReport) -> None:
    screen.print_table(("outcome", "rows"), [(outcome.value, count) for outcome, count in figures.outcomes.items()])
    screen.print_line(
        f"{figures.state}: {figures.rows:,} rows in {format_seconds(figures.seconds)}, workspace {figures.workspace}"
    )
    if figures.source:
        screen.print_line(f"input: {figures.source}")
    if figures.uncertain:
        screen.print_line(f"uncertain outcomes: {figures.uncertain:,}; list them with --uncertain")
    if figures.possibly_sent:
        screen.print_line(f"possibly sent, without an outcome: {figures.possibly_sent:,}; resume the import with --resume")
