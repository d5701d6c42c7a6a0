"""The command `report`: the progress and results of a run, from its journal."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs
import click

from outreach_async import Target
from outreach_async._cli import files
from outreach_async._cli.figures import list_outcomes, print_ledger, print_outcomes
from outreach_async._cli.files import RunState, open_output, settled
from outreach_async._cli.importing import mapping_options
from outreach_async._cli.messages import format_seconds
from outreach_async._cli.output import Screen
from outreach_async._cli.process import INCOMPLETE, OK, SUSPENDED, exit_code_of_rows
from outreach_async._cli.values import Options
from outreach_async._plumbing import (
    Targets,
    add_reports,
    count_changes,
    is_url,
    show_name,
)
from outreach_async.bulk import ContactOutcome, LedgerCounts
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.importer import (
    CheckPolicy,
    File,
    ImportJob,
    RejectsFile,
    ResultsFile,
    Row,
    RowOutcome,
    is_reject,
    results_of,
    spooled_rejects,
)
from outreach_async.models import ID_PREFIXES
from outreach_async.parts import Part, RejectsTable, find_part
from outreach_async.store import JournalReport, Store, stores_in

if TYPE_CHECKING:
    from outreach_async._cli.settings import ReportSettings

_LISTED_RUNS: Final = 10
_DRY_RUN: Final = "run the import with --dry-run --results PATH"
_SUMS: Final = ("rows", "uncertain", "repeats", "seconds", "marked", "possibly_sent", "windows")


@attrs.frozen
class _Wanted:
    """The options of the command: the rows to list or to write, and the input that names them."""

    screen: Screen
    settings: ReportSettings
    open_input: files.OpenInput

    @property
    def input(self) -> Path | None:
        return self.settings["source"]

    @property
    def rejects(self) -> Path | None:
        return self.settings["rejects"]

    @property
    def results(self) -> Path | None:
        return self.settings["results"]

    @property
    def flag(self) -> str | None:
        return "--rejects" if self.rejects is not None else "--results" if self.results is not None else None

    def require_writable(self, *uses: Sequence[files.FileUse]) -> None:
        rejects = files.FileUse.of("--rejects", self.rejects, RejectsFile.recognises)
        files.require_writable(
            *uses, rejects, files.FileUse.of("--results", self.results, ResultsFile.recognises), force=self.settings["force"]
        )

    def write(self, runs: Mapping[str, _Run]) -> dict[str, Any]:
        """List and write the rows of a run, or of the parts of an import by name. Return the details for the JSON result."""
        details = {}
        if self.settings["uncertain"]:
            uncertain = [
                {**({"part": name} if name else {}), **run.describe(found)}
                for name, run in runs.items()
                for found in run.locate(lambda outcome: not outcome.certain)
            ]
            _print_uncertain_rows(self.screen, uncertain)
            details["uncertain_rows"] = uncertain
        if self.rejects is not None:
            failed: Iterator[RowOutcome]
            if parts := [(run.part, run.journal) for run in runs.values() if run.part]:
                table = RejectsTable(file for part, _ in parts for file in part.files)
                rows = (found for part, journal in parts for found in part.locate(filter(is_reject, journal.outcomes())))
                headers, failed = table.headers, map(table.reject, rows)
            else:
                (run,) = runs.values()
                headers, failed = run.rejects()
            self._write(RejectsFile(self.rejects, headers), "--rejects", failed)
        if self.results is not None:
            results = ResultsFile(
                self.results, self.settings["keeps"], (headers for run in runs.values() for headers in run.headers)
            )
            self._write(results, "--results", (found for run in runs.values() for found in run.locate(lambda _: True)))
        return details

    def _write(self, file: RejectsFile | ResultsFile, flag: str, rows: Iterable[Any]) -> None:
        with open_output(flag, file, RunState(is_finished=True)) as add:
            for row in rows:
                add(row)
        self.screen.print_line(f"{file.rows:,} rows written to {file.path}")


@contextmanager
def _name_argument() -> Iterator[None]:
    """Name the command's `JOURNAL` in a message about the parameter `journal`, or about a location that cannot be read."""
    try:
        yield
    except (InvalidRequest, JournalError) as error:
        error.args = (re.sub(r"\A(journal|ledger)(?=:| \S+: )", "JOURNAL", str(error)),)
        raise


@_name_argument()
def report(options: Options, journal: files.JournalLocation, settings: ReportSettings) -> int:
    wanted = _Wanted(options.screen(), settings, files.input_opener(settings))
    if isinstance(journal, Path) and journal.is_dir() and not any(journal.glob("*.db")):
        journal = journal.resolve().as_uri()  # the folder of object journals, which were written with a file URL
    if Store(journal).is_ledger():
        return _report_ledger(wanted, journal)
    journals = stores_in(journal)
    given = {
        "--campaign": settings["campaign"],
        "--workspace": settings["workspace"],
        "--map": settings["maps"],
        "--mapping": settings["mapping"],
        "--blank": settings["blank"],
        "--ignore-unknown": settings["ignore_unknown"],
        "--check": settings["checks"],
    }
    if flag := next((flag for flag, value in given.items() if value), None):
        raise click.UsageError(f"{flag}: JOURNAL is not a ledger, and knows the columns of its input; omit the option.")
    return _report_parts(wanted, journal, journals) if journals else _report_run(wanted, journal)


def _report_ledger(wanted: _Wanted, location: files.JournalLocation) -> int:
    screen, results = wanted.screen, wanted.results
    if wanted.settings["uncertain"] or wanted.rejects is not None:
        flag = "--rejects" if wanted.rejects is not None else "--uncertain"
        raise click.UsageError(
            f"{flag}: a ledger keeps no rows of its input; pass --results PATH --input FILE, which shows every row of FILE."
        )
    if (results is None) is not (wanted.input is None):
        given, other = ("--input", "--results PATH") if wanted.input else ("--results", "--input FILE")
        raise click.UsageError(f"{given}: a ledger keeps no rows of its input; pass {other}, too.")
    found = Store(location).contacts()
    screen.print_table(("workspace", "campaign", "contacts"), [(*target, contacts) for target, contacts in found.targets.items()])
    screen.print_line(f"{found.contacts:,} contacts, {found.uncertain:,} uncertain, {found.gone:,} gone from the last input")
    for number, at, counts in found.runs[:_LISTED_RUNS]:
        screen.print_line(f"run {number} on {at:%Y-%m-%d %H:%M} UTC: {list_outcomes(counts) or 'no rows'}")
    if found.pending:
        screen.print_line("A run is not included: it is under way, or its process was killed. The next run includes it.")
    details: dict[str, Any] = {}
    if wanted.input is not None and results is not None:
        inputs = files.FileUse.of("--input", wanted.input)
        wanted.require_writable(files.FileUse.of_journal("JOURNAL", location, written=False), inputs)
        rows, known = _look_up(wanted, location, found.targets, wanted.input, results)
        print_ledger(screen, attrs.evolve(known, repeated=None, kept=0), "serial")
        screen.print_line(f"{rows:,} rows written to {results}")
        details["input"] = attrs.asdict(known)
    screen.print_result({**found.to_dict(), **details})
    return OK


def _look_up(
    wanted: _Wanted, location: files.JournalLocation, known: Collection[Target], source: Path, results: Path
) -> tuple[int, LedgerCounts]:
    """Write what a ledger knows about each row of a file, and return the counts. Nothing is sent."""
    file, settings = wanted.open_input(source), wanted.settings
    job = ImportJob(file=file, checks=CheckPolicy.of(settings["checks"]), **mapping_options(settings))
    columns = anyio.run(job.map).columns
    target = _choose_target(known, settings["workspace"], settings["campaign"], named="campaign" in columns.codes)
    results_file = ResultsFile(results, wanted.settings["keeps"], [file.headers])

    def read_all() -> Iterator[Row]:
        rows = file.rows(columns, checks=job.checks)
        return (row.clear_blanks() if settings["blank"] == "clear" else row for row in rows)

    if not {*columns.codes}.isdisjoint(Target._fields):
        _require_ids(read_all())
    with (
        settled(wanted.screen, {"--results": results}) as state,
        open_output("--results", results_file, state) as add,
    ):
        counts = count_changes(read_all, Store(location), Targets(target), lambda outcome: add(RowOutcome.of(file, outcome)))
        state.is_finished = True
    return results_file.rows, counts


def _require_ids(rows: Iterable[Row]) -> None:
    """Check that rows name their campaigns and workspaces by id: only the service knows the names."""
    for named in dict.fromkeys(tuple(map(row.members.get, Target._fields)) for row in rows if row.fault is None):
        for code, name in zip(Target._fields, named, strict=True):
            if name and not name.startswith(ID_PREFIXES[code]):
                has = f"its rows name the {code} {show_name(name)}, and a ledger has only ids"
                raise click.UsageError(f"--input: {has}; {_DRY_RUN}.")


def _choose_target(known: Collection[Target], workspace: str | None, campaign: str | None, *, named: bool) -> Target:
    """Return the target of rows that name none. `named` is true if the file has a column of campaigns."""
    if campaign is not None and not campaign.startswith(ID_PREFIXES["campaign"]):
        text = f"--campaign: expected an id, because a ledger has no names, got {show_name(campaign)}; pass the id, or {_DRY_RUN}"
        raise click.UsageError(f"{text}.")
    fitting = [each for each in known if workspace in {None, each.workspace} and (named or campaign in {None, each.campaign})]
    if not fitting:
        raise click.UsageError(
            "--input: the ledger has no contacts of this workspace and campaign; omit --results to see those that it has."
        )
    spaces, campaigns = {each.workspace for each in fitting}, {each.campaign for each in fitting}
    if len(spaces) > 1 or (len(campaigns) > 1 and not named):
        flag, ids = ("--workspace", spaces) if len(spaces) > 1 else ("--campaign", campaigns)
        has = f"its rows do not name their {flag[2:]}, and the ledger has {', '.join(sorted(filter(None, ids)))}"
        raise click.UsageError(f"--input: {has}; pass {flag} ID, or {_DRY_RUN}.")
    return Target(fitting[0].workspace, campaign if named else fitting[0].campaign)


@attrs.frozen
class _Run:
    """A journal, and what is known about the rows of its run."""

    journal: Store
    figures: JournalReport
    part: Part | None
    folder: files.JournalLocation
    file: File | None = None

    @property
    def source(self) -> Path | None:
        """The path of the input file; `None` if there is none, or if the run imported a part."""
        if self.part or self.figures.source is None or self.figures.fingerprint is None:
            return None
        return Path(self.figures.source)

    @property
    def headers(self) -> list[tuple[str, ...]]:
        if self.part is not None:
            return [planned.headers for planned in self.part.files]
        return [] if self.file is None else [self.file.headers]

    def locate(self, wanted: Callable[[ContactOutcome], bool]) -> Iterator[RowOutcome]:
        """Yield each wanted outcome with its row, of which the line and the e-mail are known if the file is."""
        outcomes = filter(wanted, self.journal.outcomes())
        return self.part.locate(outcomes) if self.part else results_of(self.file, outcomes, self.figures.mapping)

    def describe(self, found: RowOutcome) -> dict[str, Any]:
        """Return a row of the list of uncertain rows. The file of a run without parts is known."""
        return {name: value for name, value in found.to_dict().items() if self.part or name != "file"}

    def rejects(self) -> tuple[tuple[str, ...], Iterator[RowOutcome]]:
        """Return the columns and the failed rows of the run."""
        if self.file is None:
            return spooled_rejects(self.journal)
        return self.file.headers, self.locate(is_reject)


def _report_run(wanted: _Wanted, location: files.JournalLocation) -> int:
    journal = Store(location)
    figures = journal.report()
    folder, _, name = str(location).rstrip("/").removesuffix(".db").rpartition("/")
    part = None
    with suppress(InvalidRequest, JournalError):  # the folder need not be readable
        part = find_part(folder or ".", name, figures.fingerprint)
    run = _Run(journal, figures, part, folder or ".")
    if wanted.input is not None and not (wanted.settings["uncertain"] or wanted.flag):
        raise click.UsageError("--input: requires --uncertain, --rejects or --results; pass one of them.")
    if wanted.input is not None and run.source is None:
        what = "is a part of an import, which records its files" if run.part else "records no input file"
        raise InvalidRequest(f"--input: the journal {what}; omit --input")
    used = files.FileUse.of_journal("JOURNAL", location, written=False), files.FileUse.of("--input", wanted.input)
    wanted.require_writable(*used, _inputs_of([run]))
    if wanted.rejects is not None and figures.source is None:
        raise InvalidRequest("--rejects: the journal records no input file; pass the journal of an 'outreach-async import' run")
    if wanted.settings["keeps"] and run.source is None and not run.part:
        raise InvalidRequest("--keep: the journal records no input file, whose columns it could copy; omit --keep")
    if path := wanted.input or (run.source if wanted.flag else None):
        run = attrs.evolve(run, file=(file := wanted.open_input(path)))
        if figures.fingerprint != file.fingerprint():
            text = f"{path} has changed since the run began, or is read with other options or is not the input of the run"
            text = f"{text}; pass the original file, and --sheet, --header-row and --hidden of the run"
            raise InvalidRequest(f"{'--input' if wanted.input else wanted.flag}: {text}")
    details = wanted.write({"": run})
    _print_report(wanted.screen, figures, run.source, wanted.results)
    return _end(wanted.screen, figures, details)


def _end(screen: Screen, figures: JournalReport, details: Mapping[str, Any]) -> int:
    screen.print_result({**figures.to_dict(), **details})
    if figures.state == "finished":
        return exit_code_of_rows(figures.outcomes, figures.repeats)
    return SUSPENDED if figures.state == "suspended" else INCOMPLETE


def _report_parts(wanted: _Wanted, folder: files.JournalLocation, journals: Mapping[str, Store]) -> int:
    if wanted.input is not None:
        raise click.UsageError("--input: JOURNAL is a folder of journals, which record their files; omit --input.")
    reports = {name: journal.report() for name, journal in journals.items()}
    details: dict[str, Any] = {}
    if wanted.settings["uncertain"] or wanted.flag:
        parts = {name: find_part(folder, name, figures.fingerprint) for name, figures in reports.items()}
        runs = {name: _Run(journal, reports[name], parts[name], folder) for name, journal in journals.items()}
        if wanted.flag and (others := [name for name, part in parts.items() if part is None]):
            location = f"{str(folder).rstrip('/')}/{others[0]}{'' if is_url(folder) else '.db'}"
            remedy = "pass this location instead of the folder"
            raise InvalidRequest(f"{wanted.flag}: {location} is not a part of an import; {remedy}")
        wanted.require_writable(_inputs_of(runs.values()))
        details = wanted.write(runs)
    states = Counter(report.state for report in reports.values())
    first, *_ = reports
    planned = find_part(folder, first, reports[first].fingerprint)
    waiting = planned.of - len(reports) if planned else 0
    whole = _add_up(list(reports.values()), waiting)
    _print_report(wanted.screen, whole, results=wanted.results)
    wanted.screen.print_line("started parts: " + ", ".join(f"{number:,} {state}" for state, number in sorted(states.items())))
    if waiting:
        wanted.screen.print_line(f"{waiting:,} of {len(reports) + waiting:,} parts have not started; run the import again")
    found = {"parts": {name: report.state for name, report in reports.items()}, "waiting_parts": waiting}
    return _end(wanted.screen, whole, {**found, **details})


def _add_up(reports: Sequence[JournalReport], waiting: int) -> JournalReport:
    """Add up the reports of the parts that have started. The state is that of the first unfinished part, if there is one."""
    sums: dict[str, Any] = {name: sum(getattr(report, name) for report in reports) for name in _SUMS}
    return attrs.evolve(
        reports[0],
        **sums,
        state=next((report.state for report in reports if report.state != "finished"), "running" if waiting else "finished"),
        **add_reports(reports),
        events=dict(sum((Counter(report.events) for report in reports), Counter())),
        source=None,
        fingerprint=None,
        mapping=None,
    )


def _inputs_of(runs: Iterable[_Run]) -> list[files.FileUse]:
    locations: dict[Path, None] = {}
    for run in runs:
        planned = run.part.files if run.part else ()
        locations |= dict.fromkeys(Path(file.location) for file in planned if not is_url(file.location))
        locations |= {run.source: None} if run.source else {}
    return [use for location in locations for use in files.FileUse.of("the input of JOURNAL", location)]


def _print_uncertain_rows(screen: Screen, rows: list[dict[str, Any]]) -> None:
    if screen.console and not rows:
        screen.print_line("No outcome is uncertain.")
        return
    columns = list(dict.fromkeys(column for row in rows for column in row)) or [*ResultsFile.columns[2:]]
    if not any(row["email"] for row in rows):
        columns.remove("email")
    columns.remove("certain")
    if len({(row["workspace"], row["campaign"]) for row in rows}) <= 1:
        columns = [column for column in columns if column not in Target._fields]
    cells = ([row.get(column) for column in columns] for row in rows)
    screen.print_table(columns, ([", ".join(cell) if isinstance(cell, list) else cell for cell in each] for each in cells))


def _print_report(screen: Screen, figures: JournalReport, source: Path | None = None, results: Path | None = None) -> None:
    print_outcomes(screen, figures, results)
    screen.print_line(
        f"{figures.state}: {figures.rows:,} rows in {format_seconds(figures.seconds)}, workspace {figures.workspace}"
    )
    if figures.source:
        screen.print_line(f"input: {figures.source}")
    if figures.uncertain:
        option = "" if source is None else f" --input {shlex.quote(str(source))}"
        screen.print_line(f"uncertain outcomes: {figures.uncertain:,}; list these rows with --uncertain{option}")
    if figures.possibly_sent:
        screen.print_line(f"marked rows without an outcome: {figures.possibly_sent:,}; repeat the import")
