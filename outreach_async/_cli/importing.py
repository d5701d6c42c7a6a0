"""The command `import`: its options, the check of a file, which sends nothing, and the run."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import attrs
import click

from outreach_async import Outcome, Target
from outreach_async._cli import files
from outreach_async._cli.figures import (
    AFTER_FINDINGS,
    FAILED_ROWS,
    list_outcomes,
    note_report,
    print_columns,
    print_failed,
    print_findings,
    print_gate,
    print_ledger,
    print_notes,
    print_remedies,
    print_report,
)
from outreach_async._cli.files import RunState, WriteOutcome, open_output, settle_partial_files, settled
from outreach_async._cli.output import Screen, follow_progress, show_current, show_progress
from outreach_async._cli.process import (
    DRAIN_TIMEOUT,
    INCOMPLETE,
    INTERRUPTED,
    OK,
    PAUSED_DRAIN_TIMEOUT,
    exit_code_of_rows,
    handle_interrupts,
    run_async,
)
from outreach_async._cli.values import MAX_IN_FLIGHT, Options
from outreach_async._plumbing import (
    WHOLE_INPUT,
    Targets,
    is_url,
    partial_path,
    require_fitting,
    require_id,
    show_name,
    trim,
    unsent_outcome,
)
from outreach_async.bulk import BulkReport, ContactOutcome, Exclusions, LedgerCounts
from outreach_async.errors import BulkStopped, Excluded, InvalidRequest, JournalError, OutreachError, format_count
from outreach_async.importer import (
    CheckPolicy,
    FailedRows,
    File,
    FindingsFile,
    Gate,
    ImportJob,
    InputChanged,
    MappedFile,
    Preflight,
    RejectsFile,
    ResultsFile,
    Row,
    RowOutcome,
    UnmappedColumns,
    is_reject,
    open_file,
    parse_overrides,
    read_exclusions,
    read_mapping,
    results_of,
    spooled_rejects,
)
from outreach_async.models import ID_PREFIXES

if TYPE_CHECKING:
    from outreach_async._cli.settings import FileSettings, ImportSettings
    from outreach_async.bulk import Outcomes, Repeats
    from outreach_async.client import OutreachClient
    from outreach_async.config import Config
    from outreach_async.store import JournalReport, Store

_AFTER_DRY_RUN: Final = 8  # lines that may follow failed rows
_MAX_FINDINGS: Final = 7  # lines of findings, and of what is printed below them, for which the list of columns leaves room
_OPTIONS: Final = frozenset(
    {
        *("blank", "campaign", "changed", "concurrency", "duplicates", "earlier", "hold", "hold_domains", "journal"),
        *("ledger", "max_age", "repeats", "resume", "stop_after_rejects"),
    }
)
"""The options of `create_many` that the command has under the same name."""

# A dry run imports neither journals nor the client, so that it starts fast. Functions import them when they run.

OnClose: TypeAlias = Callable[[BulkReport, FailedRows, Mapping[str, Any]], None]
"""A function that receives the final report of an import, its failed rows, and the groups and remedies of its JSON result."""


def input_opener(settings: ImportSettings) -> files.OpenInput:
    """Check the options that mean the same in parts, and return a function that opens a file."""
    settings["campaign"] = read_campaign(settings["campaign"])
    require_fitting(blank=settings["blank"], duplicates=settings["duplicates"])
    if settings["dry_run"] and settings["ledger"] is None and settings["results"] is not None:
        in_parts = settings["dask"] or settings["processes"]
        remedy = "omit --results" if in_parts else "pass --ledger, or omit --results"
        raise click.UsageError(f"--results: with --dry-run, the only results are those of a ledger; {remedy}.")
    for flag, is_given in {"--bounced": settings["bounced"], "--max-risk": settings["max_risk"] is not None}.items():
        if is_given and settings["gate"] is None:
            raise click.UsageError(f"{flag}: needs --gate; add --gate, or omit {flag}.")
    return files.input_opener(settings)


def import_(options: Options, file: Path | str, settings: ImportSettings) -> int:
    open_input, dry_run = input_opener(settings), settings["dry_run"]
    if not isinstance(file, Path):
        raise click.UsageError("FILE: a URL requires --dask; pass --dask local, or download the file first.")
    _require_fitting(settings)
    settings["resume"] |= settings["earlier"] == "unknown"
    require_files([file], settings)
    holders = _find_holders(options.config, settings["held_by"])
    exclude = read_lists(options, settings)
    if not dry_run:  # a dry run creates and records nothing
        from outreach_async._cli.connection import require_credentials
        from outreach_async.store import Store

        require_credentials(options)
        journal = settings["journal"]
        if journal is not None and not settings["resume"] and (store := Store(journal)).exists():
            if store.report().state == "finished":
                other = "pass another journal to send the rows again"
                raise click.UsageError(
                    f"--journal {journal}: its run is finished; add --resume to print its results, or {other}."
                )
            settings["resume"] = True
    names, refused = {name: id_ for id_, name in options.config.names.items()}, dict[str, str]()
    if names:
        from outreach_async._cli.connection import refused_workspaces

        refused = refused_workspaces(options)
    run = _create_run(open_input, file, settings, names, refused)
    run = attrs.evolve(run, options={**run.options, "held_by": holders, "exclude": exclude})
    return run_async(partial(_check_file if dry_run else _import_file, options, run))


def _find_holders(config: Config, given: Iterable[str]) -> dict[str, str]:
    """Return the paths of the ledgers that hold people, with their names."""
    known = {selector for each in config.workspaces for selector in (each.id, each.name, *each.groups, "all")}
    configured = {os.path.realpath(each.ledger): each.name for each in config.workspaces if each.ledger}
    found = list[str]()
    for text in given:
        chosen = config.find(text) if text in known else ()
        if lacking := [each.name for each in chosen if each.ledger is None]:
            remedy = f'add ledger = "PATH" to each in {config.path}'
            raise click.UsageError(f"--held-by {text}: no ledger is configured for {', '.join(lacking)}; {remedy}.")
        if not chosen and not is_url(text) and not Path(text).exists():
            remedy = "correct the path or the name of the workspace, or import a file without rows into it once, which creates it"
            raise click.UsageError(f"--held-by {text}: does not exist; {remedy}.")
        found += [str(each.ledger) for each in chosen] if chosen else [text]
    return {path: configured.get(os.path.realpath(path), Path(path).name) for path in found}


def read_lists(options: Options, settings: ImportSettings) -> list[Exclusions] | None:
    """Read the lists of people to exclude, of the configuration file and of the command line; `None` if there are none."""
    return [*options.read_lists(), *map(read_exclusions, settings["exclude"])] or None


def join_lists(exclude: Sequence[Exclusions] | None, found: Preflight) -> list[Exclusions] | None:
    """Return the lists of people to exclude, with those whom the gate withholds."""
    return [*(exclude or ()), *([found.judged.exclusions] if found.judged else ())] or None


def read_campaign(value: str | None) -> str | None:
    """Return the id or the name in the option `--campaign`, without blanks around it."""
    name = value and trim(value)
    if value is None or (name and not name.startswith(tuple(ID_PREFIXES.values()))):
        return name or None
    return require_id("--campaign", value, "campaign", "pass the id or the name of a campaign, or omit the option")


def _require_fitting(settings: ImportSettings) -> None:
    """Check that no option conflicts with another, and that each has those that it needs."""
    require_fitting(
        spool=False,
        journal=settings["journal"],
        ledger=settings["ledger"],
        max_age=settings["max_age"],
        changed=settings["changed"],
        hold=settings["hold"],
        held_by=settings["held_by"],
        hold_domains=settings["hold_domains"],
        resume=settings["resume"],
        earlier=settings["earlier"],
        repeats="serial" if settings["dry_run"] and settings["ledger"] is None else settings["repeats"],  # it stores no rows
        duplicates=settings["duplicates"],
    )


def require_files(inputs: Sequence[Path], settings: ImportSettings) -> None:
    """Check that no file is used for two purposes, and that none would be overwritten."""
    files.require_writable(
        *(files.FileUse.of("FILE", file) for file in inputs),
        files.FileUse.of("--mapping", settings["mapping"]),
        *(files.FileUse.of("--bounced", path) for path in settings["bounced"]),
        *(files.FileUse.of("--exclude", path) for path in settings["exclude"]),
        files.FileUse.of_journal("--journal", settings["journal"], written=True),
        files.FileUse.of_journal("--ledger", settings["ledger"], written=not settings["dry_run"]),
        *(files.FileUse.of_journal("--held-by", Path(each), written=False) for each in settings["held_by"]),
        files.FileUse.of_run("--rejects", settings["rejects"], RejectsFile.recognises),
        files.FileUse.of_run("--results", settings["results"], ResultsFile.recognises),
        files.FileUse.of_run("--findings", settings["findings"], FindingsFile.recognises),
        files.FileUse.of("--save-mapping", settings["save_mapping"], _is_mapping),
        force=settings["force"],
    )


def _is_mapping(path: Path) -> bool:
    try:
        read_mapping(path)
    except InvalidRequest:
        return False
    return True


class FileRows(Iterable[Row]):
    """The rows of a file. A run with a ledger reads them twice to compare the rows of each contact together, if there are any."""

    def __init__(self, read: Callable[[], Iterable[Row]], *, may_repeat: bool) -> None:
        self._read = read
        self._may_repeat = may_repeat

    def __iter__(self) -> Iterator[Row]:
        return iter(self._read())

    def read_again(self) -> Iterator[Row]:
        return iter(self._read() if self._may_repeat else ())


@attrs.frozen(kw_only=True)
class ImportRun:
    """An import of the command: what is read, the options of `create_many`, and the files that are written."""

    job: ImportJob
    options: Mapping[str, Any] = attrs.field(factory=dict)
    campaign_names: Mapping[tuple[str, str], str] = attrs.field(factory=dict)
    """The id of the campaign that the command names, by its workspace and name."""
    workspaces: Mapping[str, str] = attrs.field(factory=dict)
    refused: Mapping[str, str] = attrs.field(factory=dict)
    rejects: Path | None = None
    results: Path | None = None
    findings: Path | None = None
    save_mapping: Path | None = None
    gate: Gate | None = None
    max_risk: float | None = None
    keeps: tuple[str, ...] = ()
    spooled: bool = False
    """Whether the rows are in the journal, so that the input is not read."""
    fingerprint: str | None = attrs.field()
    results_file: ResultsFile | None = attrs.field()

    @fingerprint.default
    def _compute_fingerprint(self) -> str | None:
        return None if self.job.file.path is None else self.job.file.fingerprint()

    @results_file.default
    def _create_results_file(self) -> ResultsFile | None:
        # Created before the run, because it checks the columns to keep.
        return None if self.results is None else ResultsFile(self.results, self.keeps, [self.job.file.headers])

    @property
    def campaign(self) -> str | None:
        return cast("str | None", self.options.get("campaign"))

    @property
    def journal(self) -> files.JournalLocation | None:
        return cast("files.JournalLocation | None", self.options.get("journal"))

    @property
    def repeats(self) -> Repeats:
        return cast("Repeats", self.options.get("repeats", "serial"))

    @property
    def resumes(self) -> bool:
        return bool(self.options.get("resume"))

    @property
    def forgets(self) -> bool:
        """True if it is unknown which rows an earlier run has sent."""
        return self.options.get("earlier") == "unknown"

    @property
    def names_campaign(self) -> bool:
        """True if the option `--campaign` has a name, whose id must be found first."""
        return self.campaign is not None and not self.campaign.startswith(ID_PREFIXES["campaign"])

    @property
    def spools(self) -> bool:
        """True if the journal stores the rows, because the input is a stream that can be read only once."""
        return self.journal is not None and self.job.file.path is None

    @property
    def stores_rows(self) -> bool:
        """True if the journal stores all rows before the first one is sent, so that they are not read from the file again."""
        return self.spools or (self.journal is not None and self.repeats in WHOLE_INPUT)

    def create_journal(self, mapping: Mapping[str, str] | None = None) -> Store | None:
        return None if self.journal is None else self.job.create_journal(self.journal, mapping, self.fingerprint)

    def find_journal(self) -> Store | None:
        """Return the journal; `None` if the import has none, or if it was removed, renamed or unmounted."""
        journal = self.create_journal()
        return journal if journal is not None and journal.exists() else None

    def find_content_change(self) -> InputChanged | None:
        """Return an error if the bytes of the input file differ, even if a program has restored its time."""
        if self.fingerprint is None:
            return None
        try:
            if self.job.file.fingerprint() == self.fingerprint:
                return None
        except InvalidRequest as error:  # also if the file can no longer be read
            return InputChanged(str(error).partition("; ")[0])
        return InputChanged(f"{self.job.file.name}: the file changed after it was opened: its content differs")

    def read_earlier_report(self) -> JournalReport | None:
        """Return the report of the run to resume, unless there is none, or it is damaged and `--earlier` is `unknown`."""
        journal = self.find_journal() if self.resumes else None
        try:
            return None if journal is None else journal.report()
        except (InvalidRequest, JournalError):
            if not self.forgets:
                raise
            return None

    def is_settled(self, report: JournalReport) -> bool:
        """Return whether the results of an earlier run can be printed again without reading the input."""
        if report.state != "finished" or self.save_mapping or self.findings or self.forgets:
            return False
        return self.spooled or (report.fingerprint is not None and self.job.file.path is not None)

    def create_targets(self, client: OutreachClient | None) -> Targets:
        """Return the targets that rows may name."""
        if client is None:
            targets = Targets(Target(campaign=self.campaign), None, self.workspaces, self.refused)
        else:
            from outreach_async.resources import targets_of

            targets = targets_of(client.contacts, self.campaign, self.workspaces, self.refused)
        if self.resumes and not self.forgets and (journal := self.find_journal()) is not None:
            targets.names.update(journal.campaigns())  # a campaign may have got another name since the run began
        targets.names.update(self.campaign_names)
        return targets

    async def with_campaign(self, client: OutreachClient | None) -> ImportRun:
        """Return the import with the id of its campaign, whose name the command may have."""
        if not self.names_campaign:
            return self
        if client is None:
            got = show_name(self.campaign)
            raise InvalidRequest(f"campaign: expected an id, because no service is given, got {got}; also pass --base-url URL")
        targets = attrs.evolve(self, options={**self.options, "campaign": None}).create_targets(client)
        found = await targets.apply(targets.find, Target(campaign=self.campaign))
        return attrs.evolve(self, options={**self.options, "campaign": found.campaign}, campaign_names=targets.names)


def _create_run(
    open_input: files.OpenInput,
    path: Path,
    settings: ImportSettings,
    workspaces: Mapping[str, str],
    refused: Mapping[str, str],
) -> ImportRun:
    given, policy, keeps = mapping_options(settings), CheckPolicy.of(settings["checks"]), settings["keeps"]
    create = partial(
        ImportRun,
        options={
            "strict_validation": settings["strict"],
            **{name: value for name, value in settings.items() if name in _OPTIONS},
        },
        workspaces=workspaces,
        refused=refused,
        rejects=settings["rejects"],
        results=settings["results"],
        findings=settings["findings"],
        save_mapping=settings["save_mapping"],
        gate=open_gate(settings),
        max_risk=settings["max_risk"],
    )
    if str(path) == files.STDIN and settings["earlier"] == "known":
        empty = create(job=ImportJob(file=open_file(io.BytesIO(b"email\n"), format="csv"), checks=policy))
        report = empty.read_earlier_report()
        if report is not None and report.spooled is not None and _is_in_journal(empty, report, keeps):
            names = [*(report.mapping or ())]
            known = {column: code for column, code in given["mapping"].items() if column in names}
            return attrs.evolve(empty, job=attrs.evolve(empty.job, overrides={**known, **given["overrides"]}), spooled=True)
    return create(job=ImportJob(file=open_input(path), checks=policy, **given), keeps=keeps)


def open_gate(settings: ImportSettings) -> Gate | None:
    """Return the gate of an import, if it has one, with the lists of bounces."""
    if settings["gate"] is None:
        return None
    return Gate(mx=settings["gate"], bounced=[*map(read_exclusions, settings["bounced"])])


def require_gate(found: Preflight, max_risk: float | None, findings: Path | None) -> None:
    """Check that few enough rows are risky."""
    if found.judged is not None and max_risk is not None:
        where = f"{findings} lists them" if findings else "add --findings FILE to list them"
        found.judged.require(max_risk, f"{where}; correct or remove them")


def mapping_options(settings: FileSettings) -> dict[str, Any]:
    """Return the options of an import that say which fields the columns are."""
    return {
        "overrides": parse_overrides(settings["maps"]),
        "mapping": read_mapping(settings["mapping"]) if settings["mapping"] else {},
        "ignore_unknown": settings["ignore_unknown"],
    }


def _is_in_journal(run: ImportRun, report: JournalReport, keeps: Sequence[str]) -> bool:
    """Return whether a run from standard input resumes with the rows in its journal, because the input is empty."""
    text = f"{run.journal} contains the {format_count(report.spooled or 0, 'row')} of this run, which resumes with them"
    # Said before the next line, which waits until standard input has data or ends.
    Screen.of(as_json=True).warn(f"{text}; standard input must be empty or contain the same rows")
    if sys.stdin is not None and not sys.stdin.isatty() and cast("io.BufferedReader", sys.stdin.buffer).peek(1):
        return False
    if keeps or run.findings or run.gate:
        flag = "--keep" if keeps else "--findings" if run.findings else "--gate"
        remedy = "pass the same rows to standard input again" + (", or omit the option" if flag != "--gate" else "")
        raise click.UsageError(f"{flag}: {run.journal} contains the fields of each row, but not its columns; {remedy}.")
    return True


@contextmanager
def saved_mapping(path: Path | None, name: str | None = None) -> Iterator[Callable[[Callable[[Path], object]], None]]:
    """Yield what writes the mapping of the columns to the file of `--save-mapping`; if some are unknown, write a draft."""

    def save(write: Callable[[Path], object]) -> None:
        if path is not None:
            with files.explain_write_errors("--save-mapping", path):
                write(path)

    try:
        yield save
    except UnmappedColumns as error:
        save(partial(error.save, name=name or str(error).partition(":")[0]))
        raise


async def prepare(
    client: OutreachClient | None,
    run: ImportRun,
    screen: Screen,
    failed: FailedRows,
    on_unsent: Callable[[Row, OutreachError], object] | None = None,
) -> MappedFile:
    """Map the columns, check the whole file and print the findings. `failed` gets the file and what was found."""
    job = run.job
    print_notes(screen, [] if run.spooled else job.notes)  # first, because a note may explain why the rest fails
    if run.spooled:
        job = attrs.evolve(job, overrides={})
    with saved_mapping(run.save_mapping, job.file.name) as save:
        mapped = await job.map(client, targets=run.create_targets(client))
        save(mapped.save)
    failed.file = mapped
    failed.found = preflight = await _check_rows(run, mapped, screen, on_unsent)
    if not run.spooled:
        print_columns(screen, mapped.columns, AFTER_FINDINGS + min(len(preflight.findings), _MAX_FINDINGS))
    print_findings(screen, preflight, AFTER_FINDINGS, run.findings)
    print_gate(screen, preflight.judged)
    return mapped


async def _check_rows(
    run: ImportRun, mapped: MappedFile, screen: Screen, on_unsent: Callable[[Row, OutreachError], object] | None
) -> Preflight:
    """Check the whole file, and write the findings."""
    with (
        settled(screen, {"--findings": run.findings}) as state,
        open_output("--findings", FindingsFile(run.findings) if run.findings else None, state) as findings,
        show_progress(screen, "Checking", None) as bar,
    ):

        def show(rows: int) -> None:
            bar(rows, f"{rows:,} rows")

        preflight = Preflight(
            repeats=run.repeats,
            exclude=run.options.get("exclude") or (),
            by_contact=run.options.get("ledger") is not None,
            on_unsent=on_unsent,
            on_progress=show,
            on_finding=findings if run.findings else None,
            gate=run.gate
            and attrs.evolve(
                run.gate, on_look_up=lambda done, total: bar(preflight.rows, f"{done:,} of {total:,} domains looked up")
            ),
        )
        await mapped.check(preflight)
        show(preflight.rows)
        state.is_finished = True
    return preflight


async def _check_file(options: Options, run: ImportRun) -> int:
    screen, started_at = options.screen(), monotonic()
    async with AsyncExitStack() as stack:
        client = None
        # Only the service knows the fields of the workspace, and the ids of its campaigns.
        if options.base_url and (run.names_campaign or run.job.needs_client):
            from outreach_async._cli.connection import open_client

            client = await stack.enter_async_context(open_client(options))
        run, failed = await run.with_campaign(client), FailedRows()
        rejects = RejectsFile(run.rejects, run.job.file.headers) if run.rejects else None
        with settled(screen, {"--rejects": run.rejects}) as end, open_output("--rejects", rejects, end) as add_reject:

            def reject_row(row: Row, error: OutreachError) -> None:
                status = Outcome.EXCLUDED if isinstance(error, Excluded) else Outcome.REJECTED
                outcome = unsent_outcome(0, row, status, error)
                failed.add(outcome)
                if rejects is not None and is_reject(outcome):
                    add_reject(RowOutcome.of(run.job.file, outcome))

            mapped = await prepare(client, run, screen, failed, reject_row)
            end.is_finished = True

    def compare(report: BulkReport) -> BulkReport:
        if run.options.get("ledger") is None:
            return report
        with settled(screen, {"--results": run.results}) as end, open_output("--results", run.results_file, end) as add_result:

            def write(outcome: ContactOutcome) -> None:
                if getattr(outcome.error, "kind", "") == "hold":
                    failed.add(outcome)
                if run.results_file is not None:
                    add_result(RowOutcome.of(run.job.file, outcome))

            report = attrs.evolve(report, ledger=_compare(run, options, mapped, write, failed.found))
            end.is_finished = True
        return report

    code = end_dry_run(screen, failed, mapped.mapping, started_at, (run.rejects, run.findings), compare=compare)
    require_gate(failed.found, run.max_risk, run.findings)
    return code


def end_dry_run(
    screen: Screen,
    failed: FailedRows,
    mapping: Mapping[str, str],
    started_at: float,
    written: tuple[Path | None, Path | None],
    *,
    compare: Callable[[BulkReport], BulkReport] = lambda report: report,
) -> int:
    """Print the results of a dry run, with the paths of its rejects and findings, and return the exit code."""
    found, (rejects, findings) = failed.found, written
    outcomes = dict.fromkeys(Outcome, 0) | {Outcome.REJECTED: found.refused}
    report = compare(BulkReport(found.rows, outcomes, 0, monotonic() - started_at, found.superseded))
    held = report.ledger.held if report.ledger else 0
    outcomes[Outcome.EXCLUDED] = found.excluded + held
    outcomes[Outcome.NOT_APPLIED] = found.rows - found.refused - outcomes[Outcome.EXCLUDED]
    print_failed(screen, failed, _AFTER_DRY_RUN, rejects=rejects, findings=findings)
    screen.print_line(f"{found.sent - held:,} of {found.rows:,} rows can be sent; nothing was created")
    if report.ledger:
        print_ledger(screen, report.ledger, found.repeats)
    print_remedies(screen, remedies := failed.remedies(rejects), 0)
    screen.print_result({**report.to_dict(), "dry_run": True, "columns": dict(mapping), **failed.to_dict(remedies)})
    return INCOMPLETE if found.refused else OK


def _compare(run: ImportRun, shared: Options, mapped: MappedFile, write_result: WriteOutcome, found: Preflight) -> LedgerCounts:
    from outreach_async._cli.connection import workspaces_of
    from outreach_async._plumbing import count_changes
    from outreach_async.store import Store

    workspace, given = workspaces_of(shared)[0], run.options
    policies = {name: given[name] for name in ("duplicates", "strict_validation")}
    ledger, targets = Store(str(given["ledger"])), Targets(Target(workspace, run.campaign))
    read = partial(mapped.rows, clear_blanks=given["blank"] == "clear")
    options = {"max_age": given["max_age"], "ignore_changes": given["changed"] == "ignore", "repeats": run.repeats}
    options["holding"] = {name: given[name] for name in ("hold", "held_by", "hold_domains")}
    exclude = join_lists(given["exclude"], found) or ()
    return count_changes(read, ledger, targets, write_result, exclude=exclude, request=policies, **options)


async def _import_file(options: Options, run: ImportRun) -> int:
    from outreach_async._cli.connection import open_client

    screen = options.screen()
    in_flight = max(run.options["concurrency"], MAX_IN_FLIGHT)
    async with open_client(options, max_in_flight=in_flight, writes=True) as client:
        run = await run.with_campaign(client)
        return await run_import(
            client, run, screen, lambda report, _, details: screen.print_result({**report.to_dict(), **details})
        )


async def run_import(client: OutreachClient, run: ImportRun, screen: Screen, closing: OnClose, *, lists_rows: bool = True) -> int:
    from outreach_async._plumbing import with_names

    if run.spools:  # the rows of a stream are numbered by their position, as in the journal
        run = attrs.evolve(run, job=attrs.evolve(run.job, file=attrs.evolve(run.job.file, unit="record")))
    earlier, heading, mapping, rows = run.read_earlier_report(), "", None, cast("Iterable[Row]", ())
    names = run.campaign_names
    failed = FailedRows()
    if earlier is not None and earlier.state == "finished":
        heading = f"The run in {run.journal} had already finished, so nothing was sent. Its results:"
    if earlier is not None and run.is_settled(earlier):
        failed.found = Preflight(rows=earlier.rows, unit=run.job.file.unit)
    else:
        mapped = await prepare(client, run, screen, failed)
        require_gate(failed.found, run.max_risk, run.findings)
        mapping = None if run.spooled else mapped.mapping
        may_repeat = failed.found.repeated > 0 or mapped.names_targets or run.repeats in WHOLE_INPUT
        rows = FileRows(partial(mapped.rows, clear_blanks=run.options.get("blank") == "clear"), may_repeat=may_repeat)
        names = mapped.targets.names
    total = failed.found.rows if earlier is None or earlier.spooled is None else earlier.spooled  # the input may be another one
    end = RunEnd(run, screen, total, heading, failed, closing, lists_rows=lists_rows)
    is_ordered = run.rejects is not None or run.results is not None
    given: dict[str, Any] = {
        **run.options,
        "journal": run.create_journal(mapping),
        "order": "input" if is_ordered else "completion",
        "blank": "clear" if run.options.get("blank") == "clear" else None,  # the rows of a file have no blank values to keep
        "spool": run.spools,
        "total": total,
        "exclude": join_lists(run.options.get("exclude"), failed.found),
    }
    uploaded = client.contacts.create_many(rows, **given)
    with end.handled() as on_start:
        async with handle_interrupts(screen) as interrupts, with_names(uploaded, names) as outcomes:
            write_outcome = on_start(outcomes)
            interrupts.drain = partial(drain_run, outcomes)
            with show_progress(screen, "Importing", total) as show:
                interrupts.group.start_soon(follow_progress, lambda: outcomes.progress, show, screen.warn)
                async for outcome in outcomes:
                    failed.add(outcome)
                    write_outcome(outcome)
                end.state.is_finished = not interrupts.count
                show_current(outcomes.progress, show)
    if interrupts.count:  # pragma: no cover - run, but coverage loses track after a cancelled group
        screen.warn("interrupted")
        return INTERRUPTED
    return exit_code_of_rows(outcomes.report.outcomes, outcomes.report.repeats)  # pragma: no cover - as above


def drain_run(outcomes: Outcomes) -> float:
    """Stop a run from starting further rows, and return the number of seconds to wait for the requests in flight."""
    paused = outcomes.progress.state == "paused"
    outcomes.drain()
    return PAUSED_DRAIN_TIMEOUT if paused else DRAIN_TIMEOUT


@attrs.frozen
class RunEnd:
    """Writes the rejects and prints the numbers of a run at its end, however it ends."""

    run: ImportRun
    screen: Screen
    total: int | None
    heading: str
    failed: FailedRows
    closing: OnClose
    lists_rows: bool = True
    state: RunState = attrs.field(factory=RunState)

    @contextmanager
    def handled(self) -> Iterator[Callable[[Outcomes], WriteOutcome]]:
        """Yield a function to call when the run has started. For a resumed run, the numbers include the earlier rows."""
        run = self.run
        change: InputChanged | None = None
        started: list[Outcomes] = []
        stopped = False
        reports: list[BulkReport] = []

        def complete(rejects: RejectsFile) -> None:
            # The journal also has the failed rows of earlier processes, but only the file has their cells. They are written
            # before the first row is sent. If the file changes later, rows that fail in this process follow as they were sent.
            if change is None and (journal := run.find_journal()) is not None:
                failed = filter(is_reject, journal.outcomes())
                rejects.replace(results_of(run.job.file, failed, journal.report().mapping))

        with ExitStack() as written:

            def start(outcomes: Outcomes) -> WriteOutcome:
                started.append(outcomes)
                return self._open_files(written, complete)

            try:
                yield start
            except InputChanged as error:  # raised below, with what was sent
                change = error
            except BulkStopped:
                stopped = True
                raise
            finally:
                for outcomes in started:
                    change = change or run.find_content_change()
                    self._find_state()
                    note_report(outcomes.report)  # before a file that cannot be written raises
                    written.close()
                    reports.append(self._report(outcomes, change, stopped=stopped))
        for report in reports:
            self._require_same_file(report, change)

    def _open_files(self, written: ExitStack, complete: Callable[[RejectsFile], None]) -> WriteOutcome:
        run, file = self.run, self.run.job.file
        if run.resumes and (found := run.find_content_change()):  # before the rejects of the earlier run are replaced
            raise found
        # With a journal, the results are written at the end, and so are the rejects of rows that it stores.
        made = None if run.journal is not None else run.results_file
        add_result = written.enter_context(open_output("--results", made, self.state))
        failed_rows = RejectsFile(run.rejects, file.headers) if run.rejects and not run.stores_rows else None
        add_reject = written.enter_context(open_output("--rejects", failed_rows, self.state, complete))

        def write(outcome: ContactOutcome) -> None:
            is_listed = failed_rows is not None and is_reject(outcome)
            if is_listed or made is not None:
                found = RowOutcome.of(file, outcome, self.failed.found.find_place)
                if is_listed:
                    add_reject(found)
                add_result(found)

        return write

    def _find_state(self) -> None:
        """Find out from the journal whether the run has finished, which an interrupted run may have, too."""
        if (journal := self.run.find_journal()) is not None:
            self.state.is_finished = journal.report().state == "finished"

    def _report(self, outcomes: Outcomes, change: InputChanged | None, *, stopped: bool) -> BulkReport:
        """Print the numbers of the whole run. If the journal has all rows, also write the rejects and the results."""
        run, total, failed, is_complete = self.run, self.total, self.failed, self.state.is_finished
        if (journal := run.find_journal()) is not None:
            recorded = journal.report()
            known = None if run.spools or change else run.job.file
            if run.resumes:  # the rows of earlier processes failed, too
                failed = FailedRows(self.failed.found)
                for found in results_of(known, journal.outcomes(), recorded.mapping):
                    failed.add(found)
            is_complete = is_complete and not (run.keeps and change)  # the cells of an input that has changed are unknown
            self._write_stored(journal, known, change, is_complete=is_complete)
            report = BulkReport(recorded.rows, recorded.outcomes, recorded.uncertain, recorded.seconds, recorded.repeats)
        else:  # if a journal is gone, an offer to resume would begin a new run, without the rows that were sent
            total, report = total if run.journal is None else None, outcomes.report
        note_report(report)
        if self.heading:
            self.screen.print_line(self.heading)
        rejects = _written(run.rejects, is_complete=self.state.is_finished)
        remedies = failed.remedies(rejects, run.journal)
        release = self.screen.hold(lambda: self._print_figures(report, total, remedies, stopped=stopped, is_complete=is_complete))
        if self.lists_rows:
            print_failed(self.screen, failed, 0, rejects=rejects, findings=run.findings)
        release()
        self.closing(report, failed, failed.to_dict(remedies))
        return report

    def _write_stored(self, journal: Store, known: File | None, change: InputChanged | None, *, is_complete: bool) -> None:
        """Write the rejects of rows that the journal stores, and the results."""
        run, mapping = self.run, journal.report().mapping
        if run.stores_rows and run.rejects is not None:
            stored = run.spooled or change is not None
            headers, rows = (
                spooled_rejects(journal)
                if stored
                else (run.job.file.headers, results_of(run.job.file, filter(is_reject, journal.outcomes()), mapping))
            )
            with open_output("--rejects", RejectsFile(run.rejects, headers), self.state) as add:
                for row in rows:
                    add(row)
        if run.results_file is not None:
            file = run.job.file if run.keeps and not change else known
            with open_output("--results", run.results_file, RunState(is_complete)) as add:
                for found in results_of(file, journal.outcomes(), mapping):
                    add(found)

    def _print_figures(
        self, report: BulkReport, total: int | None, remedies: Sequence[Mapping[str, Any]], *, stopped: bool, is_complete: bool
    ) -> None:
        run, screen = self.run, self.screen
        results = _written(run.results, is_complete=is_complete)
        source = run.job.file.path
        print_report(screen, report, total, run.journal, source, repeats=run.repeats, results=results, stopped=stopped)
        settle_partial_files(screen, {"--results": run.results}, is_finished=is_complete)
        settle_partial_files(screen, {"--rejects": run.rejects}, is_finished=self.state.is_finished)
        print_remedies(screen, remedies, FAILED_ROWS)

    def _require_same_file(self, report: BulkReport, change: InputChanged | None) -> None:
        """Check that the input file is still the one that was opened."""
        try:
            if change is not None:
                raise change
            self.run.job.file.source.require_path()
        except InputChanged as error:
            sent = f"rows of the file that was opened have outcomes: {list_outcomes(report.outcomes) or 'none'}"
            remedy = "import the new file" if change is None else "import a copy that no program changes"
            journal = "" if self.run.journal is None else " with another --journal and --earlier unknown"
            told = InputChanged(f"{error.what}; {sent}", remedy + journal)
            told.maybe_sent = told.maybe_applied = report.rows > 0
            raise told from None


def _written(path: Path | None, *, is_complete: bool) -> Path | None:
    return path if path is None or is_complete else partial_path(path)
