"""The commands `import --processes` and `import --dask`: check files, and import them in parts."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from outreach_async import Outcome, Target
from outreach_async._cli.connection import find_owner_key, open_sync_client, refused_workspaces
from outreach_async._cli.figures import (
    AFTER_FINDINGS,
    FAILED_ROWS,
    note_report,
    print_columns,
    print_failed,
    print_findings,
    print_gate,
    print_notes,
    print_remedies,
    print_report,
)
from outreach_async._cli.files import RunState, open_output, settled
from outreach_async._cli.importing import (
    end_dry_run,
    input_opener,
    join_lists,
    mapping_options,
    open_gate,
    read_lists,
    require_files,
    require_gate,
    saved_mapping,
)
from outreach_async._cli.output import Screen, show_progress
from outreach_async._cli.process import DRAIN_TIMEOUT, OK, exit_code_of_rows, run_async
from outreach_async._cli.values import FAKE, Options
from outreach_async._plumbing import Secret, Targets, is_url, require_module
from outreach_async.bulk import Exclusions
from outreach_async.errors import format_count
from outreach_async.importer import (
    FailedRows,
    FindingsFile,
    MappedFile,
    RejectsFile,
    ResultsFile,
    RowOutcome,
    is_reject,
)
from outreach_async.models import ID_PREFIXES, Campaign, WorkspaceField
from outreach_async.parts import (
    Connection,
    ImportPlan,
    ImportReport,
    RejectsTable,
    check,
    find_files,
    plan,
    results_of,
)

if TYPE_CHECKING:
    from outreach_async._cli.settings import ImportSettings

_LOCAL: Final = "local"
_PARTS_PER_WORKER: Final = 4  # so that none waits long for the last one
_PART_SIZE: Final = 1 << 20  # bytes of a part of a file, on a cluster that may have any number of workers
_ListCampaigns = Callable[[str], Iterable[Campaign]]


def import_in_parts(options: Options, files: Path | str, settings: ImportSettings) -> int:
    file_options, scheduler = input_opener(settings).keywords, settings["dask"]
    if scheduler is not None:
        require_module("distributed", "outreach_async[dask]")
    connection = _require_fitting(options, settings)
    key = None
    if connection is not None and scheduler in {None, _LOCAL}:
        key = find_owner_key(options, options.workspace)
        if key is None:
            raise click.UsageError("--owner-key: missing; pass --owner-key KEY, or set OUTREACH_OWNER_KEY.")
    locations = find_files(str(files))
    # The folder of the journals may exist; no other file is one of its files.
    require_files([Path(location) for location in locations if not is_url(location)], {**settings, "journal": None})
    exclude = read_lists(options, settings) or ()
    list_campaigns = partial(_list_campaigns, options) if options.base_url is not None else None
    made = _plan(options, locations, list_campaigns, file_options, settings)
    if (settings["processes"] or 1) > 1 and len(made.pieces) == 1 < made.rows:
        kinds = "a workbook, a compressed file, UTF-16 text and a Parquet file with one row group are not divided"
        remedy = "save it as CSV in UTF-8, or omit --processes"
        raise click.UsageError(f"--processes: {files} is one part for one process ({kinds}); {remedy}.")
    run = _PartsRun(options.screen(), made, settings, exclude)
    run.print_plan()
    run_async(partial(run.check, options.workspace, list_campaigns))
    code = run.end_dry_run() if connection is None else OK
    require_gate(run.failed.found, settings["max_risk"], settings["findings"])
    if connection is None:
        return code
    rate = options.own_rates.get(connection.workspace, options.rate)
    with run.written():
        report = run.send_to_cluster(connection, rate, key) if scheduler else run.send_with_processes(connection, rate, key)
    return run.end(report)


def _require_fitting(options: Options, settings: ImportSettings) -> Connection | None:
    """Check that every option has a meaning for parts, and return how workers connect; `None` for a dry run."""
    dry_run, journal = settings["dry_run"], settings["journal"]
    flag, workers = ("--dask", "workers") if settings["dask"] else ("--processes", "processes")
    faults = {
        "--processes: conflicts with --dask, whose workers are processes; remove one of the options": (
            settings["dask"] is not None and settings["processes"] is not None
        ),
        **{
            f"--{name.replace('_', '-')}: conflicts with {flag}; one process compares millions of rows, so omit {flag}": given
            for name, given in {
                "ledger": settings["ledger"] is not None,
                "max_age": settings["max_age"] is not None,
                "changed": settings["changed"] == "ignore",
                "hold": settings["hold"] is not None,
                "held_by": bool(settings["held_by"]),
                "hold_domains": settings["hold_domains"],
            }.items()
        },
        f"--header: conflicts with {flag}, because tasks must not contain secrets; remove one of the options": (
            options.headers and not dry_run
        ),
        f"--base-url: with {flag}, expected a URL that all {workers} can reach; pass --base-url URL": (
            not dry_run and options.base_url in {None, FAKE}
        ),
        "--workspace: missing; pass --workspace ID, or set OUTREACH_WORKSPACE": not dry_run and options.workspace is None,
        "--journal: with --dask, expected a URL that all workers can reach; pass s3://bucket/prefix or file:///folder": (
            settings["dask"] is not None and not dry_run and not is_url(journal)
        ),
        "--journal: with --processes, expected a folder, in which each part has a journal; pass --journal FOLDER": (
            not dry_run and (journal is None or (isinstance(journal, Path) and journal.is_file()))
        ),
        "--concurrency: expected at least one request for each process; pass a greater --concurrency or fewer --processes": (
            settings["concurrency"] < (settings["processes"] or 1)
        ),
    }
    for text in (text for text, found in faults.items() if found):
        raise click.UsageError(f"{text}.")
    if dry_run:
        return None
    return Connection(
        base_url=str(options.base_url),
        workspace=str(options.workspace),
        backend=options.backend,
        timeout=options.timeout,
        concurrency=settings["concurrency"],
        stop_after_rejects=settings["stop_after_rejects"],
    )


def _plan(
    options: Options,
    locations: list[str],
    list_campaigns: _ListCampaigns | None,
    file_options: Mapping[str, Any],
    settings: ImportSettings,
) -> ImportPlan:
    """Plan the import, and write the mapping of the columns, or a draft if some of them are unknown."""
    refused = refused_workspaces(options)
    with saved_mapping(settings["save_mapping"]) as save:
        made = plan(
            locations,
            **mapping_options(settings),
            fields=_read_fields(options),
            checks=settings["checks"],
            workspace=options.workspace,
            workspaces={name: id_ for id_, name in options.config.names.items() if id_ not in refused},
            list_campaigns=list_campaigns,
            duplicates=settings["duplicates"],
            strict_validation=settings["strict"],
            campaign=_find_campaign(options, settings["campaign"]),
            repeats=settings["repeats"],
            blank=settings["blank"] or "keep",
            parts=_count_parts(locations, settings),
            journal=settings["journal"],
            **file_options,
        )
        save(made.save_mapping)
    return made


@attrs.define
class _PartsRun:
    """An import in parts: what is printed, and the files that are written."""

    screen: Screen
    made: ImportPlan
    settings: ImportSettings
    exclude: Sequence[Exclusions] = ()
    failed: FailedRows = attrs.field(factory=FailedRows)
    reports: list[ImportReport] = attrs.field(factory=list)
    started_at: float = attrs.field(factory=monotonic)
    table: RejectsTable = attrs.field(init=False)
    results: ResultsFile | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        path, headers = self.settings["results"], [file.headers for file in self.made.files]
        self.table = RejectsTable(self.made.files)
        # Created before the run, because it checks the columns to keep.
        self.results = ResultsFile(path, self.settings["keeps"], headers) if path else None
        self.failed.names_files = len(headers) > 1

    def _rejects(self) -> RejectsFile | None:
        return RejectsFile(path, self.table.headers) if (path := self.settings["rejects"]) else None

    def print_plan(self) -> None:
        print_notes(self.screen, self.made.notes)
        for columns in self.made.columns:
            print_columns(self.screen, columns, AFTER_FINDINGS)
        parts = format_count(len(self.made.parts), "part")
        self.screen.print_line(f"{format_count(self.made.rows, 'row')} in {parts}")

    async def check(self, workspace: str | None, list_campaigns: _ListCampaigns | None) -> None:
        """Check all files before anything is sent, and write the findings and, in a dry run, the rejects."""
        gate, path = open_gate(self.settings), self.settings["findings"]
        rejects = self._rejects() if self.settings["dry_run"] else None
        written = {"--findings": path, "--rejects": rejects.path if rejects else None}
        with (
            settled(self.screen, written) as state,
            open_output("--findings", FindingsFile(path) if path else None, state) as add_finding,
            open_output("--rejects", rejects, state) as add_reject,
            show_progress(self.screen, "Checking", self.made.rows) as show,
        ):

            def look(done: int, total: int) -> None:
                show(self.made.rows, f"{done:,} of {total:,} domains looked up")

            def tell(file: MappedFile, found: RowOutcome) -> None:
                self.failed.file = file
                self.failed.add(found)
                if rejects is not None and is_reject(found.outcome):
                    add_reject(self.table.reject(found))

            self.failed.found = await check(
                self.made,
                workspace=workspace,
                list_campaigns=list_campaigns,
                exclude=self.exclude,
                gate=gate and attrs.evolve(gate, on_look_up=look),
                on_unsent=tell if self.settings["dry_run"] else None,
                on_progress=lambda rows: show(rows, f"{rows:,} rows"),
                on_finding=add_finding if path else None,
            )
            state.is_finished = True
        print_findings(self.screen, self.failed.found, AFTER_FINDINGS, path)
        print_gate(self.screen, self.failed.found.judged)
        self.exclude = join_lists(self.exclude, self.failed.found) or ()

    def end_dry_run(self) -> int:
        mapping = {column: code for columns in reversed(self.made.columns) for column, code, _ in columns.decisions()}
        written = self.settings["rejects"], self.settings["findings"]
        return end_dry_run(self.screen, self.failed, mapping, self.started_at, written)

    def send_to_cluster(self, connection: Connection, rate: float | None, key: Secret | None) -> ImportReport:
        from outreach_async.parts.dask import DaskImport  # imported on demand: it takes time

        with _open_cluster(str(self.settings["dask"]), key) as cluster:
            run = DaskImport(cluster, self.made, connection, rate=rate, **self._common())
            with show_progress(self.screen, "Importing", self.made.rows) as show, run:
                for report in run:
                    self.reports.append(report)
                    again = f", {run.resubmitted:,} resubmitted" if run.resubmitted else ""
                    self._show(show, run.report.rows, again)
        return run.report

    def send_with_processes(self, connection: Connection, rate: float | None, key: Secret | None) -> ImportReport:
        from outreach_async.parts.processes import ProcessImport  # as above

        given = {"processes": self.settings["processes"], "owner_key": key and key.reveal(), **self._common()}
        with show_progress(self.screen, "Importing", self.made.rows) as show, _handled_termination():
            run = ProcessImport(self.made, connection, rate=rate, on_progress=lambda rows: self._show(show, rows), **given)
            with run:
                try:
                    self.reports.extend(run)
                except KeyboardInterrupt:
                    self.screen.warn(
                        f"waiting up to {DRAIN_TIMEOUT:.0f} s for requests in flight; press Ctrl-C again to cancel them;"
                        " run the same command again to resume"
                    )
                    raise
        return run.report

    def _common(self) -> dict[str, Any]:
        return {"journal": str(self.settings["journal"]), "earlier": self.settings["earlier"], "exclude": self.exclude}

    def _show(self, show: Callable[[int, str], object], rows: int, again: str = "") -> None:
        done, parts = len(self.reports), len(self.made.parts)
        show(rows, f"{rows:,} of {self.made.rows:,} rows, {done:,} of {parts:,} parts{again}")

    @contextmanager
    def written(self) -> Iterator[None]:
        """Write the results and the rejects of all parts when the block ends, or those so far if it raises."""
        with settled(self.screen, {"--results": self.settings["results"], "--rejects": self.settings["rejects"]}) as state:
            try:
                yield
                state.is_finished = True
            finally:
                self._write(state)

    def _write(self, state: RunState) -> None:
        rejects = self._rejects()
        # A part of which every row was sent has nothing to tell but its results.
        clean = {report.parts[0] for report in self.reports if not (report.failed or report.outcomes.get(Outcome.EXCLUDED))}
        with (
            open_output("--results", self.results, state) as add_result,
            open_output("--rejects", rejects, state) as add_reject,
        ):
            for part in self.made.parts:
                for found in () if self.results is None and part.id in clean else results_of(part, str(self.settings["journal"])):
                    self.failed.add(found)
                    if self.results is not None:
                        add_result(found)
                    if rejects is not None and is_reject(found.outcome):
                        add_reject(self.table.reject(found))

    def end(self, report: ImportReport) -> int:
        settings, screen, failed = self.settings, self.screen, self.failed
        note_report(report)
        failed.file = None
        remedies = failed.remedies(settings["rejects"], settings["journal"])
        print_failed(screen, failed, FAILED_ROWS, rejects=settings["rejects"], findings=settings["findings"])
        print_report(
            screen, report, self.made.rows, settings["journal"], repeats=settings["repeats"], results=settings["results"]
        )
        print_remedies(screen, remedies, FAILED_ROWS)
        screen.print_result({**report.to_dict(), **failed.to_dict(remedies)})
        return exit_code_of_rows(report.outcomes, report.repeats)


def _read_fields(options: Options) -> Iterator[WorkspaceField]:
    if options.base_url is not None:
        with open_sync_client(options) as client:
            yield from client.workspaces.fields()


def _find_campaign(options: Options, name: str | None) -> str | None:
    """Return the id of the campaign with an id or a name."""
    if name is None or name.startswith(ID_PREFIXES["campaign"]):
        return name
    if options.base_url is None or options.workspace is None:
        raise click.UsageError("--campaign: expected an id, because no service is given; also pass --base-url and --workspace.")
    targets = Targets(Target(options.workspace))
    targets.add_campaigns(options.workspace, _list_campaigns(options, options.workspace))
    return targets.find(Target(campaign=name)).campaign


def _list_campaigns(options: Options, workspace: str) -> list[Campaign]:
    with open_sync_client(options) as client:
        return list(client.with_options(workspace=workspace).campaigns.list())


@contextmanager
def _handled_termination() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _count_parts(locations: list[str], settings: ImportSettings) -> int:
    """Return the number of parts to plan. Objects of a store are not divided, because planning would read them twice."""
    workers = settings["processes"] or (os.cpu_count() if settings["dask"] == _LOCAL else None)
    if workers is not None:
        return _PARTS_PER_WORKER * workers
    files = [Path(location) for location in locations if not is_url(location)]
    return max(1, sum(file.stat().st_size for file in files if file.is_file()) // _PART_SIZE)


@contextmanager
def _open_cluster(scheduler: str, key: Secret | None) -> Iterator[Any]:
    """Yield the Dask cluster to use: a new one if `scheduler` is `local`, otherwise the address `scheduler`."""
    # A new cluster has one worker per CPU. Its workers inherit the environment variable with the owner key.
    if scheduler != _LOCAL:
        yield scheduler
        return
    import dask
    from distributed import LocalCluster

    os.environ |= {} if key is None else {"OUTREACH_OWNER_KEY": key.reveal()}
    with (
        # By default, a cluster permanently drops a worker that needs more than 15 seconds to restart. The profiler would use CPU
        # time that the import needs.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h", "distributed.worker.profile.enabled": False}),
        LocalCluster(threads_per_worker=1, n_workers=os.cpu_count(), dashboard_address="127.0.0.1:0") as cluster,
    ):
        yield cluster
