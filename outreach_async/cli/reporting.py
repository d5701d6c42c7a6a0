"""The command `report`: the progress and results of a run, from its journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import click

from outreach_async.bulk import ContactOutcome
from outreach_async.bulk.journal import JournalReader, JournalReport, journal_at, journals_in
from outreach_async.cli import files
from outreach_async.cli.exits import SUSPENDED, exit_code_of_rows
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
@shared_options
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

    JOURNAL is the path of a file, or the URL of an object journal, such as s3://bucket/prefix. If it is the folder of an import
    in parts, the report adds up all parts that have begun.

    Exit codes: 0 finished, every row succeeded; 3 finished with rejected, not_applied or unknown rows; 75 not finished, can be
    resumed.
    """
    screen = Screen.of(as_json=options.as_json)
    if parts := _find_parts(journal):
        return _report_parts(screen, parts, uncertain=uncertain, rejects=rejects)
    run, figures = _read_report(journal)
    source = None if figures.source is None or figures.fingerprint is None else Path(figures.source)
    files.require_writable(
        files.FileUse.for_journal("JOURNAL", journal, written=False),
        files.FileUse.for_reading("the input of JOURNAL", source),
        files.FileUse.for_writing("--rejects", rejects, is_rejects_file),
        force=force,
    )
    if uncertain:
        screen.print_table(_COLUMNS, _uncertain_cells(run))
    if rejects is not None:
        file = _open_input_file(open_input, figures)
        with files.explain_write_errors("--rejects", rejects):
            rows = export_rejects(rejects, file, run)
        screen.print_line(f"{rows:,} rows written to {rejects}")
    _print_report(screen, figures)
    screen.print_result(figures.to_dict())
    return exit_code_of_rows(figures.outcomes, figures.repeats) if figures.state == "finished" else SUSPENDED


@contextmanager
def _name_argument() -> Iterator[None]:
    """Let errors name the argument: here the journal is not an option."""
    try:
        yield
    except InvalidRequest as error:
        raise InvalidRequest(str(error).replace("journal: ", "JOURNAL: ", 1)) from error


def _read_report(location: files.JournalLocation) -> tuple[JournalReader, JournalReport]:
    with _name_argument():
        journal = journal_at(location)
        return journal, journal.report()


def _find_parts(location: files.JournalLocation) -> Mapping[str, JournalReader]:
    with _name_argument():
        return journals_in(location)


def _report_parts(screen: Screen, parts: Mapping[str, JournalReader], *, uncertain: bool, rejects: Path | None) -> int:
    if rejects is not None:
        name = next(iter(parts))
        raise InvalidRequest(f"--rejects: JOURNAL is a folder of {len(parts):,} journals; pass one of them, such as {name}")
    reports = {name: journal.report() for name, journal in parts.items()}
    if uncertain:
        cells = ((name, *row) for name, journal in parts.items() for row in _uncertain_cells(journal))
        screen.print_table(("part", *_COLUMNS), cells)
    states = Counter(report.state for report in reports.values())
    whole = _add_up(list(reports.values()))
    _print_report(screen, whole)
    screen.print_line("parts that have begun: " + ", ".join(f"{count:,} {state}" for state, count in sorted(states.items())))
    screen.print_result({**whole.to_dict(), "parts": {name: report.state for name, report in reports.items()}})
    return exit_code_of_rows(whole.outcomes, whole.repeats) if whole.state == "finished" else SUSPENDED


_SUMS: Final = ("rows", "uncertain", "repeats", "seconds", "marked", "possibly_sent", "windows")


def _add_up(reports: Sequence[JournalReport]) -> JournalReport:
    """Return one report for all parts. It is finished if all of them are; otherwise, it has the state of one that is not."""
    states = sorted((report.state for report in reports), key=lambda state: state == "finished")
    sums: dict[str, Any] = {name: sum(getattr(report, name) for report in reports) for name in _SUMS}
    return attrs.evolve(
        reports[0],
        **sums,
        state=states[0],
        outcomes={outcome: sum(report.outcomes[outcome] for report in reports) for outcome in reports[0].outcomes},
        events=dict(sum((Counter(report.events) for report in reports), Counter())),
        source=None,
        fingerprint=None,
        mapping=None,
    )


_COLUMNS: Final = ("row", "status", "possible", "attempts", "id", "error")


def _uncertain_cells(journal: JournalReader) -> Iterator[tuple[object, ...]]:
    return (_outcome_cells(outcome) for outcome in journal.outcomes() if not outcome.certain)


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
    screen.print_line(f"{figures.state}: {figures.rows:,} rows in {figures.seconds:.1f} s, workspace {figures.workspace}")
    if figures.source:
        screen.print_line(f"input: {figures.source}")
    if figures.uncertain:
        screen.print_line(f"uncertain outcomes: {figures.uncertain:,}; list them with --uncertain")
    if figures.possibly_sent:
        screen.print_line(f"possibly sent, without an outcome: {figures.possibly_sent:,}; resume the import with --resume")
