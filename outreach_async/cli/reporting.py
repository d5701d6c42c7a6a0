"""The command `report`: the progress and results of a run, from its journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import attrs
import click

from outreach_async.bulk import ContactOutcome
from outreach_async.bulk.journal import JournalReader, JournalReport, journal_at, journals_in
from outreach_async.bulk.journal.objects import is_url
from outreach_async.cli import files
from outreach_async.cli.import_report import find_email
from outreach_async.cli.messages import format_seconds
from outreach_async.cli.options import Options, shared_options
from outreach_async.cli.output import Screen
from outreach_async.cli.process import SUSPENDED, exit_code_of_rows
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.importer import File
from outreach_async.importer.rejects import export_rejects, is_rejects_file, number_record, write_rejects
from outreach_async.importer.table import RowNumber
from outreach_async.spread.folder import locate, read_part, rejects_of_parts
from outreach_async.spread.planning import Part


@click.command()
@click.argument("journal", type=files.JournalType(), metavar="JOURNAL")
@click.option("--uncertain", is_flag=True, help="List the rows whose outcome is uncertain.")
@click.option(
    "--input",
    "input_",
    metavar="FILE",
    type=files.PATH,
    help="Input file of the run. With --uncertain, it provides line numbers and e-mails. Default for --rejects: the path in the "
    "journal. An import in parts records its files.",
)
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
    input_: Path | None,
    rejects: Path | None,
    force: bool,
) -> int:
    """Show the progress and results of the run in JOURNAL. The run may still be in progress. Nothing is sent or changed.

    JOURNAL is the path of a file, or the URL of an object journal, such as s3://bucket/prefix. For an import in parts, pass the
    folder of the journals: the report adds up all parts that have started, and --uncertain and --rejects read the files of the
    plan.

    Exit codes: 0 finished, every row succeeded; 3 finished with rejected, not_applied or unknown rows; 75 not finished, can be
    resumed.
    """
    screen = Screen.of(as_json=options.as_json)
    if parts := _find_parts(journal):
        if input_ is not None:
            raise click.UsageError("--input: JOURNAL is a folder of journals, which record their files; omit --input.")
        return _report_parts(screen, journal, parts, uncertain=uncertain, rejects=rejects, force=force)
    run, figures = _read_report(journal)
    part = _find_part(journal, figures)
    source = None if part or figures.source is None or figures.fingerprint is None else Path(figures.source)
    if input_ is not None and not uncertain and rejects is None:
        raise click.UsageError("--input: requires --uncertain or --rejects; pass one of them.")
    if input_ is not None and source is None:
        what = "is a part of an import, which records its files" if part else "records no input file"
        raise InvalidRequest(f"--input: the journal {what}; omit --input")
    files.require_writable(
        files.FileUse.for_journal("JOURNAL", journal, written=False),
        files.FileUse.for_reading("the input of JOURNAL", source),
        files.FileUse.for_reading("--input", input_),
        _inputs_of([part] if part else []),
        files.FileUse.for_writing("--rejects", rejects, is_rejects_file),
        force=force,
    )
    file = None if input_ is None else _open_input_file(open_input, input_, figures, "--input")
    details: dict[str, Any] = {}
    if uncertain:
        rows = _locate_uncertain_rows(part, run) if part else _describe_uncertain_rows(run, figures, file)
        details["uncertain_rows"] = _print_uncertain_rows(screen, list(rows))
    if rejects is not None and part:
        _write_part_rejects(screen, rejects, [(part, run)])
    elif rejects is not None:
        file = file or _find_input_file(open_input, figures)
        with files.explain_write_errors("--rejects", rejects):
            count = export_rejects(rejects, file, run)
        screen.print_line(f"{count:,} rows written to {rejects}")
    _print_report(screen, figures, source)
    screen.print_result({**figures.to_dict(), **details})
    return exit_code_of_rows(figures.outcomes, figures.repeats) if figures.state == "finished" else SUSPENDED


@contextmanager
def _name_argument() -> Iterator[None]:
    """In the message of an `InvalidRequest` error, replace the Python parameter `journal` with the command's `JOURNAL`."""
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


def _report_parts(
    screen: Screen,
    folder: files.JournalLocation,
    journals: Mapping[str, JournalReader],
    *,
    uncertain: bool,
    rejects: Path | None,
    force: bool,
) -> int:
    reports = {name: journal.report() for name, journal in journals.items()}
    parts: dict[str, Part | None] = {}
    if uncertain or rejects is not None:
        with _name_argument():
            parts = {name: read_part(folder, name, report.fingerprint) for name, report in reports.items()}
    if rejects is not None and (others := [name for name, part in parts.items() if part is None]):
        location = f"{str(folder).rstrip('/')}/{others[0]}{'' if is_url(folder) else '.db'}"
        raise InvalidRequest(f"--rejects: {location} is not a part of an import; pass this location instead of the folder")
    recorded = [(part, journals[name]) for name, part in parts.items() if part is not None]
    files.require_writable(
        _inputs_of(part for part, _ in recorded),
        files.FileUse.for_writing("--rejects", rejects, is_rejects_file),
        force=force,
    )
    details: dict[str, Any] = {}
    if uncertain:
        rows = [
            {"part": name, **row}
            for name, part in parts.items()
            for row in (
                _locate_uncertain_rows(part, journals[name])
                if part
                else _describe_uncertain_rows(journals[name], reports[name], None)
            )
        ]
        details["uncertain_rows"] = _print_uncertain_rows(screen, rows)
    if rejects is not None:
        _write_part_rejects(screen, rejects, recorded)
    states = Counter(report.state for report in reports.values())
    whole = _add_up(list(reports.values()))
    _print_report(screen, whole)
    screen.print_line("started parts: " + ", ".join(f"{count:,} {state}" for state, count in sorted(states.items())))
    screen.print_result({**whole.to_dict(), "parts": {name: report.state for name, report in reports.items()}, **details})
    return exit_code_of_rows(whole.outcomes, whole.repeats) if whole.state == "finished" else SUSPENDED


def _find_part(location: files.JournalLocation, figures: JournalReport) -> Part | None:
    """Return the part to which a journal belongs; `None` if the journal was not written by an import in parts."""
    folder, _, name = str(location).rstrip("/").removesuffix(".db").rpartition("/")
    with suppress(InvalidRequest, JournalError):  # the folder need not be readable
        return read_part(folder or ".", name, figures.fingerprint)
    return None


def _inputs_of(parts: Iterable[Part]) -> Iterator[files.FileUse]:
    """Yield a `FileUse` for each local file that parts read."""
    locations = dict.fromkeys(file.location for part in parts for file in part.files if not is_url(file.location))
    for location in locations:
        yield from files.FileUse.for_reading("the input of JOURNAL", Path(location))


def _write_part_rejects(screen: Screen, path: Path, parts: Iterable[tuple[Part, JournalReader]]) -> None:
    with files.explain_write_errors("--rejects", path):
        count = write_rejects(path, *rejects_of_parts(parts))
    screen.print_line(f"{count:,} rows written to {path}")


_SUMS: Final = ("rows", "uncertain", "repeats", "seconds", "marked", "possibly_sent", "windows")


def _add_up(reports: Sequence[JournalReport]) -> JournalReport:
    """Add up the reports of all parts.

    The total has the state of the first unfinished part. If all parts are finished, the total is `finished`.
    """
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


def _describe_uncertain_rows(run: JournalReader, figures: JournalReport, file: File | None) -> Iterator[dict[str, Any]]:
    """Yield a JSON object for each row with an uncertain outcome. If given, `file` provides line numbers and e-mails."""
    records = enumerate(file.records() if file else ())
    email = _find_email_column(file, figures.mapping or {}) if file else None
    for outcome in run.outcomes():
        if outcome.certain:
            continue
        number, address = number_record(outcome.index), find_email(outcome)
        if file is not None:
            line, cells, _ = next(record for index, record in records if index == outcome.index)
            number = RowNumber("line", line)
            address = cells[email].strip() if email is not None and email < len(cells) else ""
        yield {number.unit: number.value, "email": address, **_describe_outcome(outcome)}


def _locate_uncertain_rows(part: Part, journal: JournalReader) -> Iterator[dict[str, Any]]:
    """Yield a JSON object for each row of a part with an uncertain outcome."""
    for found in locate(part, (outcome for outcome in journal.outcomes() if not outcome.certain)):
        place = {"file": found.file.location, "line": found.row.line, "email": found.email}
        yield {**place, **_describe_outcome(found.outcome)}


_OUTCOME_COLUMNS: Final = ("status", "possible", "attempts", "id", "error")


def _describe_outcome(outcome: ContactOutcome) -> dict[str, Any]:
    error = str(outcome.error) if outcome.error else None
    values = (outcome.status.value, sorted(outcome.possible), outcome.attempts, outcome.id, error)
    return dict(zip(_OUTCOME_COLUMNS, values, strict=True))


def _find_email_column(file: File, mapping: Mapping[str, str]) -> int | None:
    return next((at for at, header in enumerate(file.headers) if mapping.get(header.strip()) == "email"), None)


def _print_uncertain_rows(screen: Screen, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Print the rows as a table, and return the rows. If there are no rows and the output is a terminal, print a message."""
    if screen.console and not rows:
        screen.print_line("No outcome is uncertain.")
        return rows
    columns = list(dict.fromkeys(column for row in rows for column in row)) or ["record", "email", *_OUTCOME_COLUMNS]
    if not any(row["email"] for row in rows):
        columns.remove("email")
    screen.print_table(columns, ([_format_cell(row.get(column)) for column in columns] for row in rows))
    return rows


def _format_cell(value: object) -> object:
    return ", ".join(value) if isinstance(value, list) else "" if value is None else value


def _find_input_file(open_input: files.OpenInput, figures: JournalReport) -> File | None:
    """Open the input file whose path is in the journal. Return `None` if the input was standard input.

    Raises:
        InvalidRequest: The journal does not state what the input was, or the input file cannot be read or has changed.
    """
    if figures.source is None:
        raise InvalidRequest("--rejects: the journal records no input file; pass the journal of an 'outreach-async import' run")
    return None if figures.fingerprint is None else _open_input_file(open_input, Path(figures.source), figures, "--rejects")


def _open_input_file(open_input: files.OpenInput, path: Path, figures: JournalReport, flag: str) -> File:
    """Open the input file of a run, and check its fingerprint.

    Raises:
        InvalidRequest: The file cannot be read, has changed since the run began, or is not the input of the run.
    """
    file = open_input(path)
    if figures.fingerprint != file.fingerprint():
        text = f"{flag}: {path} has changed since the run began, or is not the input of the run"
        raise InvalidRequest(f"{text}; restore or pass the original file")
    return file


def _print_report(screen: Screen, figures: JournalReport, source: Path | None = None) -> None:
    screen.print_table(("outcome", "rows"), [(outcome.value, count) for outcome, count in figures.outcomes.items()])
    screen.print_line(
        f"{figures.state}: {figures.rows:,} rows in {format_seconds(figures.seconds)}, workspace {figures.workspace}"
    )
    if figures.source:
        screen.print_line(f"input: {figures.source}")
    if figures.uncertain:
        option = "" if source is None else f" --input {source}"
        screen.print_line(f"uncertain outcomes: {figures.uncertain:,}; list these rows with --uncertain{option}")
    if figures.possibly_sent:
        screen.print_line(f"possibly sent, without an outcome: {figures.possibly_sent:,}; resume the import with --resume")
