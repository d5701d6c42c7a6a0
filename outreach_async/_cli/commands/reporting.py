"""The command `report`: the progress and results of a run, from its journal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import attrs
import click

from outreach_async._cli import files
from outreach_async._cli.commands.import_report import print_outcomes
from outreach_async._cli.commands.results import (
    OUTCOME_COLUMNS,
    RESULTS_HELP,
    describe_outcome,
    describe_outcomes,
    format_cell,
    is_results_file,
    write_results,
)
from outreach_async._cli.messages import format_seconds
from outreach_async._cli.options import Options, shared_options
from outreach_async._cli.output import Screen
from outreach_async._cli.process import OK, SUSPENDED, exit_code_of_rows
from outreach_async._files.objects import is_url
from outreach_async._service.validation import TARGET_FIELDS
from outreach_async.bulk import ContactOutcome
from outreach_async.bulk.journal import JournalReader, JournalReport, journal_at, journals_in
from outreach_async.bulk.ledger import Ledger, is_ledger
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.importer import File
from outreach_async.importer._rejects import export_rejects, is_rejects_file, write_rejects
from outreach_async.spread._folder import locate, read_part, rejects_of_parts
from outreach_async.spread._planning import Part


@click.command()
@click.argument("journal", type=files.JournalType(), metavar="JOURNAL")
@click.option("--uncertain", is_flag=True, help="List the rows whose outcome is uncertain.")
@click.option(
    "--input",
    "input_",
    metavar="FILE",
    type=files.PATH,
    help="Input file of the run. With --uncertain, it provides line numbers and e-mails. Default for --rejects and --results: "
    "the path in the journal. An import in parts records its files.",
)
@files.rejects_option
@click.option("--results", metavar="PATH", type=files.OutputPath(), help=RESULTS_HELP)
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
) -> int:
    """Show the progress and results of the run in JOURNAL. The run may still be in progress. Nothing is sent or changed.

    JOURNAL is the path of a file, or the URL of an object journal, such as s3://bucket/prefix. For an import in parts, pass the
    folder of the journals: the report adds up all parts that have started. --uncertain, --rejects and --results then read the
    files of the plan. JOURNAL may also be a ledger: the report then shows its contacts and its last runs.

    Exit codes: 0 finished, every row succeeded; 3 finished with rejected, not_applied or unknown rows; 75 not finished, can be
    resumed.
    """
    screen = Screen.of(as_json=options.as_json, quiet=options.quiet)
    outputs = _Outputs(uncertain, rejects, results, force)
    if isinstance(journal, Path) and journal.is_dir() and not any(journal.glob("*.db")):
        journal = journal.resolve().as_uri()  # the folder of object journals, which were written with a file URL
    with _name_argument():
        if is_ledger(journal):
            return _report_ledger(screen, journal, outputs)
        journals = journals_in(journal)
    if journals:
        if input_ is not None:
            raise click.UsageError("--input: JOURNAL is a folder of journals, which record their files; omit --input.")
        return _report_parts(screen, journal, journals, outputs)
    run = _read_run(journal)
    figures, source = run.figures, run.source
    if input_ is not None and not outputs.wanted:
        raise click.UsageError("--input: requires --uncertain, --rejects or --results; pass one of them.")
    if input_ is not None and source is None:
        what = "is a part of an import, which records its files" if run.part else "records no input file"
        raise InvalidRequest(f"--input: the journal {what}; omit --input")
    outputs.require_writable(
        files.FileUse.for_journal("JOURNAL", journal, written=False),
        files.FileUse.for_reading("--input", input_),
        _inputs_of([run]),
    )
    if outputs.rejects is not None and figures.source is None:
        raise InvalidRequest("--rejects: the journal records no input file; pass the journal of an 'outreach-async import' run")
    if path := input_ or (source if outputs.flag else None):
        flag = "--input" if input_ else str(outputs.flag)
        run = attrs.evolve(run, file=_open_input_file(open_input, path, figures, flag))
    details = outputs.write(screen, {"": run})
    _print_report(screen, figures, source)
    screen.print_result({**figures.to_dict(), **details})
    return exit_code_of_rows(figures.outcomes, figures.repeats) if figures.state == "finished" else SUSPENDED


def _report_ledger(screen: Screen, location: files.JournalLocation, outputs: _Outputs) -> int:
    if outputs.wanted:
        flag = outputs.flag or "--uncertain"
        remedy = f"run the import with --ledger {location} --dry-run --results PATH, which sends nothing"
        raise click.UsageError(f"{flag}: a ledger has no e-mails; {remedy}.")
    found = Ledger(location).report()
    screen.print_table(("workspace", "campaign", "contacts"), [(*target, count) for target, count in found.targets.items()])
    screen.print_line(f"{found.contacts:,} contacts, {found.uncertain:,} uncertain, {found.gone:,} gone from the last input")
    for number, at, counts in found.runs[:_LISTED_RUNS]:
        sums = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        screen.print_line(f"run {number} on {at:%Y-%m-%d %H:%M} UTC: {sums or 'no rows'}")
    if found.pending:
        screen.print_line("A run is not included: it is under way, or its process was killed. The next run includes it.")
    screen.print_result(found.to_dict())
    return OK


@attrs.frozen
class _Run:
    """A journal, and what is known about the rows of its run."""

    journal: JournalReader
    figures: JournalReport
    part: Part | None
    file: File | None = None

    @property
    def source(self) -> Path | None:
        """The path of the input file; `None` if there is none, or if the run imported a part."""
        if self.part or self.figures.source is None or self.figures.fingerprint is None:
            return None
        return Path(self.figures.source)

    def describe(self, wanted: Callable[[ContactOutcome], bool]) -> Iterator[dict[str, Any]]:
        """Yield a JSON object for each wanted outcome, with the line and the e-mail of its row if the file is known."""
        outcomes = filter(wanted, self.journal.outcomes())
        if self.part is None:
            yield from describe_outcomes(outcomes, self.file, self.figures.mapping or {})
            return
        for found in locate(self.part, outcomes):
            place = {"file": found.file.location, "line": found.row.line, "email": found.email}
            yield {**place, **describe_outcome(found.outcome, found.message)}


@contextmanager
def _name_argument() -> Iterator[None]:
    """Replace the parameter `journal` by the command's `JOURNAL` in the message of an `InvalidRequest`."""
    try:
        yield
    except InvalidRequest as error:
        raise InvalidRequest(re.sub(r"\A(journal|ledger): ", "JOURNAL: ", str(error))) from error


def _read_run(location: files.JournalLocation) -> _Run:
    with _name_argument():
        journal = journal_at(location)
        figures = journal.report()
    folder, _, name = str(location).rstrip("/").removesuffix(".db").rpartition("/")
    part = None
    with suppress(InvalidRequest, JournalError):  # the folder need not be readable
        part = read_part(folder or ".", name, figures.fingerprint)
    return _Run(journal, figures, part)


def _report_parts(screen: Screen, folder: files.JournalLocation, journals: Mapping[str, JournalReader], outputs: _Outputs) -> int:
    reports = {name: journal.report() for name, journal in journals.items()}
    details: dict[str, Any] = {}
    if outputs.wanted:
        with _name_argument():
            parts = {name: read_part(folder, name, figures.fingerprint) for name, figures in reports.items()}
        runs = {name: _Run(journal, reports[name], parts[name]) for name, journal in journals.items()}
        if outputs.flag:
            _require_parts(folder, runs, outputs.flag)
        outputs.require_writable(_inputs_of(runs.values()))
        details = outputs.write(screen, runs)
    states = Counter(report.state for report in reports.values())
    first, *_ = reports
    planned = read_part(folder, first, reports[first].fingerprint)
    waiting = planned.of - len(reports) if planned else 0
    whole = _add_up(list(reports.values()), waiting)
    _print_report(screen, whole)
    screen.print_line("started parts: " + ", ".join(f"{count:,} {state}" for state, count in sorted(states.items())))
    if waiting:
        screen.print_line(f"{waiting:,} of {len(reports) + waiting:,} parts have not started; run the import again")
    found: dict[str, Any] = {"parts": {name: report.state for name, report in reports.items()}, "waiting_parts": waiting}
    screen.print_result({**whole.to_dict(), **found, **details})
    return exit_code_of_rows(whole.outcomes, whole.repeats) if whole.state == "finished" else SUSPENDED


def _require_parts(folder: files.JournalLocation, runs: Mapping[str, _Run], flag: str) -> None:
    """Check that every journal in a folder belongs to an import in parts, which records where its rows are."""
    if others := [name for name, run in runs.items() if run.part is None]:
        location = f"{str(folder).rstrip('/')}/{others[0]}{'' if is_url(folder) else '.db'}"
        raise InvalidRequest(f"{flag}: {location} is not a part of an import; pass this location instead of the folder")


def _inputs_of(runs: Iterable[_Run]) -> Iterator[files.FileUse]:
    locations: dict[Path, None] = {}
    for run in runs:
        planned = run.part.files if run.part else ()
        locations |= dict.fromkeys(Path(file.location) for file in planned if not is_url(file.location))
        locations |= {run.source: None} if run.source else {}
    for location in locations:
        yield from files.FileUse.for_reading("the input of JOURNAL", location)


@attrs.frozen
class _Outputs:
    """The rows to list or to write."""

    uncertain: bool
    rejects: Path | None
    results: Path | None
    force: bool

    @property
    def flag(self) -> str | None:
        """The first option that names a file."""
        return "--rejects" if self.rejects is not None else "--results" if self.results is not None else None

    @property
    def wanted(self) -> bool:
        return self.uncertain or self.flag is not None

    def require_writable(self, *uses: Iterable[files.FileUse]) -> None:
        files.require_writable(
            *uses,
            files.FileUse.for_writing("--rejects", self.rejects, is_rejects_file),
            files.FileUse.for_writing("--results", self.results, is_results_file),
            force=self.force,
        )

    def write(self, screen: Screen, runs: Mapping[str, _Run]) -> dict[str, Any]:
        """List and write the rows of a run, or of the parts of an import by name. Return the details for the JSON result."""
        details = {}
        if self.uncertain:
            rows = [
                {**({"part": name} if name else {}), **row}
                for name, run in runs.items()
                for row in run.describe(lambda outcome: not outcome.certain)
            ]
            details["uncertain_rows"] = _print_uncertain_rows(screen, rows)
        if self.rejects is not None:
            with files.explain_write_errors("--rejects", self.rejects):
                count = _write_rejects(self.rejects, list(runs.values()))
            screen.print_line(f"{count:,} rows written to {self.rejects}")
        if self.results is not None:
            with files.explain_write_errors("--results", self.results):
                count = write_results(self.results, ((run.file, run.describe(lambda _: True)) for run in runs.values()))
            screen.print_line(f"{count:,} rows written to {self.results}")
        return details


def _write_rejects(path: Path, runs: Sequence[_Run]) -> int:
    if parts := [(run.part, run.journal) for run in runs if run.part]:
        return write_rejects(path, *rejects_of_parts(parts))
    return export_rejects(path, runs[0].file, runs[0].journal)


_LISTED_RUNS: Final = 10
_SUMS: Final = ("rows", "uncertain", "repeats", "seconds", "marked", "possibly_sent", "windows")


def _add_up(reports: Sequence[JournalReport], waiting: int) -> JournalReport:
    """Add up the reports of the parts that have started. The state is that of the first unfinished part, if there is one."""
    sums: dict[str, Any] = {name: sum(getattr(report, name) for report in reports) for name in _SUMS}
    return attrs.evolve(
        reports[0],
        **sums,
        state=next((report.state for report in reports if report.state != "finished"), "running" if waiting else "finished"),
        outcomes={outcome: sum(report.outcomes[outcome] for report in reports) for outcome in reports[0].outcomes},
        events=dict(sum((Counter(report.events) for report in reports), Counter())),
        source=None,
        fingerprint=None,
        mapping=None,
    )


def _print_uncertain_rows(screen: Screen, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Print the rows as a table, or on a terminal that there are none, and return the rows."""
    if screen.console and not rows:
        screen.print_line("No outcome is uncertain.")
        return rows
    columns = list(dict.fromkeys(column for row in rows for column in row)) or ["record", "email", *OUTCOME_COLUMNS]
    if not any(row["email"] for row in rows):
        columns.remove("email")
    if len({(row["workspace"], row["campaign"]) for row in rows}) <= 1:
        columns = [column for column in columns if column not in TARGET_FIELDS]
    screen.print_table(columns, ([format_cell(row.get(column)) for column in columns] for row in rows))
    return rows


def _open_input_file(open_input: files.OpenInput, path: Path, figures: JournalReport, flag: str) -> File:
    file = open_input(path)
    if figures.fingerprint != file.fingerprint():
        text = f"{flag}: {path} has changed since the run began, or is not the input of the run"
        raise InvalidRequest(f"{text}; restore or pass the original file")
    return file


def _print_report(screen: Screen, figures: JournalReport, source: Path | None = None) -> None:
    print_outcomes(screen, figures.outcomes)
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
