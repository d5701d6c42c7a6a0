"""The command `report`: what a journal knows of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from outreach_async.bulk import ContactOutcome, Journal
from outreach_async.bulk.journal import JournalReport
from outreach_async.cli.creating import export_rejects
from outreach_async.cli.exits import SUSPENDED, code_of_rows
from outreach_async.cli.files import Reading, file_options
from outreach_async.cli.options import Options, shared_options
from outreach_async.cli.screen import Screen
from outreach_async.cli.writing import FileUse, OutputPath, force_option, require_writable
from outreach_async.errors import InvalidRequest
from outreach_async.importer import File
from outreach_async.importer.rejects import begins_as_rejects


@click.command()
@click.argument("journal", type=click.Path(path_type=Path))
@click.option("--uncertain", is_flag=True, help="List the rows whose outcome is not certain.")
@click.option("--rejects", metavar="PATH", type=OutputPath(), help="Write rows that made no contact to this CSV file.")
@force_option
@file_options
@shared_options
def report(options: Options, journal: Path, *, reading: Reading, uncertain: bool, rejects: Path | None, force: bool) -> int:
    """Say how the run stands that JOURNAL keeps, also while it goes on. Nothing is sent, and nothing is changed.

    Exit codes: 0 finished, and every row made its contact; 3 finished with rows that made none; 75 not finished, can be resumed.
    """
    screen, kept = Screen.of(as_json=options.as_json), Journal(journal)
    figures = kept.report()
    source = None if figures.source is None or figures.fingerprint is None else Path(figures.source)
    require_writable(
        FileUse.journal("JOURNAL", journal, written=False),
        FileUse.read("the file that JOURNAL was imported from:", source),
        FileUse.write("--rejects", rejects, begins_as_rejects),
        force=force,
    )
    if uncertain:
        columns = ("row", "status", "possible", "attempts", "id", "error")
        screen.table(columns, (_cells(outcome) for outcome in _uncertain(kept)))
    if rejects is not None:
        rows = export_rejects(rejects, _input(reading, figures), kept)
        screen.say(f"{rows:,} rows written to {rejects}")
    _show(screen, figures)
    screen.result(figures.to_dict())
    return code_of_rows(figures.outcomes, figures.repeats) if figures.state == "finished" else SUSPENDED


def _uncertain(journal: Journal) -> Iterator[ContactOutcome]:
    return (outcome for outcome in journal.outcomes() if not outcome.certain)


def _cells(outcome: ContactOutcome) -> tuple[object, ...]:
    possible = ", ".join(sorted(outcome.possible))
    return outcome.index, outcome.status.value, possible, outcome.attempts, outcome.id or "", outcome.error or ""


def _input(reading: Reading, figures: JournalReport) -> File | None:
    """Return the file that was imported, if it is still the same; `None` for an input that the journal has kept.

    Raises:
        InvalidRequest: It is not, or the journal knows of none.
    """
    if figures.source is None:
        raise InvalidRequest(
            "rejects: the journal does not know of a file; rejects can be written for a run of the import command"
        )
    if figures.fingerprint is None:
        return None
    file = reading.open(figures.source)
    if figures.fingerprint != file.fingerprint():
        raise InvalidRequest(f"rejects: {figures.source} was changed since it was imported; bring back the file as it was")
    return file


def _show(screen: Screen, figures: JournalReport) -> None:
    screen.table(("outcome", "rows"), [(outcome.value, count) for outcome, count in figures.outcomes.items()])
    screen.say(f"{figures.state}: {figures.rows:,} rows in {figures.seconds:.1f} s, of {figures.workspace}")
    if figures.source:
        screen.say(f"from {figures.source}")
    if figures.uncertain:
        screen.say(f"{figures.uncertain:,} rows have an outcome that is not certain; --uncertain lists them")
    if figures.possibly_sent:
        screen.say(
            f"{figures.possibly_sent:,} rows may have been sent and have no outcome yet; the import with --resume settles them"
        )
