"""The command `import --dask`: import files in parts on a Dask cluster."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from outreach_async import Target
from outreach_async._cli.commands.grouped import print_groups, show_rows
from outreach_async._cli.commands.importing import NO_RESULTS, note_report, print_report
from outreach_async._cli.commands.run_files import open_output, settled
from outreach_async._cli.connection import find_owner_key, open_sync_client, refused_workspaces
from outreach_async._cli.files import FileUse, require_writable
from outreach_async._cli.output import Screen, show_progress
from outreach_async._cli.process import exit_code_of_rows
from outreach_async._cli.values import FAKE, Options
from outreach_async._plumbing import TARGET_FIELDS, Targets, is_url, require_module
from outreach_async.errors import format_count
from outreach_async.importer import FailedRows, ResultsFile, parse_overrides
from outreach_async.models import ID_PREFIXES, Campaign, WorkspaceField
from outreach_async.parts import Connection, ImportPlan, ImportReport, plan
from outreach_async.parts._folder import locate, outcomes_of
from outreach_async.parts._stored_files import expand_pattern

_AFTER_FAILURES: Final = 4  # lines that follow the failed rows
_MAX_EXAMPLES: Final = 3  # findings
_LOCAL: Final = "local"
_CONFLICTS: Final = {
    "rejects": "remove --rejects, and run outreach-async report {journal} --rejects {path} after the import",
    **dict.fromkeys(("findings", "dry_run", "mapping", "save_mapping", "checks"), "remove one of the options"),
    **dict.fromkeys(("ledger", "max_age"), "one process compares millions of rows, so omit --dask"),
}
"""The options of `import` that have no meaning for parts, each with the remedy."""


def import_in_parts(
    options: Options, files: Path | str, scheduler: str, file_options: Mapping[str, Any], settings: Mapping[str, Any]
) -> int:
    require_module("distributed", "outreach_async[dask]")
    if settings["keeps"] and settings["results"] is None:
        raise click.UsageError(NO_RESULTS)
    connection = _create_connection(options, settings)
    key = find_owner_key(options, options.workspace)
    if scheduler == _LOCAL:
        if key is None:
            raise click.UsageError("--owner-key: missing; pass --owner-key KEY, or set OUTREACH_OWNER_KEY.")
        os.environ["OUTREACH_OWNER_KEY"] = key.reveal()
    locations = expand_pattern(str(files))
    require_writable(
        *(FileUse.of("FILE", Path(location)) for location in locations if not is_url(location)),
        FileUse.of_run("--results", settings["results"], ResultsFile.recognises),
        force=settings["force"],
    )
    screen, refused = options.screen(), refused_workspaces(options)
    made = plan(
        locations,
        overrides=parse_overrides(settings["maps"]),
        fields=_read_fields(options) if key is not None else (),
        workspace=connection.workspace,
        workspaces={name: id_ for id_, name in options.config.names.items() if id_ not in refused},
        list_campaigns=partial(_list_campaigns, options),
        ignore_unknown=settings["ignore_unknown"],
        duplicates=settings["duplicates"],
        strict_validation=settings["strict"],
        campaign=_find_campaign(options, connection.workspace, settings["campaign"]),
        repeats=settings["repeats"],
        blank=settings["blank"] or "keep",
        **file_options,
    )
    for note in made.notes:
        screen.print_line(f"note: {note}")
    for file in made.files:
        for header, code in zip(file.headers, file.codes, strict=True):
            if code in TARGET_FIELDS:
                screen.print_line(f"{file.location}: column {header.strip()!r} names the {code} of each row")
    screen.print_line(f"{format_count(made.rows, 'row')} in {format_count(len(made.parts), 'part')}")
    path = settings["results"]
    results = ResultsFile(path, settings["keeps"], [file.headers for file in made.files]) if path else None
    with _written_results(screen, made, settings["journal"], results), _open_cluster(scheduler) as cluster:
        rate = options.own_rates.get(connection.workspace, options.rate)
        report = _run(screen, cluster, made, connection, rate=rate, settings=settings)
    return _print_end(screen, report, made.rows, settings)


def _print_end(screen: Screen, report: ImportReport, rows: int, settings: Mapping[str, Any]) -> int:
    note_report(report)
    print_report(screen, report, rows, settings["journal"], results=settings["results"])
    _print_failures(screen, report, settings["journal"])
    if report.findings:
        found = format_count(report.findings, "finding")
        screen.print_line(f"warning: cells: {found}; these values were left out or may be wrong")
    for finding in report.first_findings[:_MAX_EXAMPLES]:
        screen.print_line(f"  {finding.file}: line {finding.line}: {finding.message}")
    screen.print_result(report.to_dict())
    return exit_code_of_rows(report.outcomes, report.repeats)


def _print_failures(screen: Screen, report: ImportReport, journal: str) -> None:
    """Print the reasons of the failed rows that the reports of the parts list, which are the first of each part."""
    failed = FailedRows()
    for row in report.failures:
        failed.add_message(row.status, row.message, {"file": row.file, "line": row.line, "message": row.message})
    if not screen.is_silent:
        print_groups(screen, [*map(show_rows, failed.failures)], "row", "--rejects FILE", _AFTER_FAILURES)
    if report.failed > failed.failures.count:
        more = f"{report.failed - failed.failures.count:,} more failed rows"
        screen.print_line(f"... and {more}; list all: outreach-async report {shlex.quote(journal)} --rejects FILE", wrap=False)


def _run(
    screen: Screen, cluster: Any, made: ImportPlan, connection: Connection, *, rate: float | None, settings: Mapping[str, Any]
) -> ImportReport:
    from outreach_async.parts.dask import create_many  # imported on demand: the extra may be missing

    run = create_many(cluster, made, connection, journal=settings["journal"], rate=rate, earlier=settings["earlier"])
    with show_progress(screen, "Importing", made.rows) as show, run:
        for _ in run:
            progress = run.progress
            show(progress.finished_rows, str(progress))
    return run.report


@contextmanager
def _written_results(screen: Screen, made: ImportPlan, journal: str, results: ResultsFile | None) -> Iterator[None]:
    """Write the results of all parts to one file when the block ends, or those so far if it raises."""
    with settled(screen, {"--results": results.path if results else None}) as state:
        try:
            yield
            state.is_finished = True
        finally:
            with open_output("--results", results, state) as add:
                for part in made.parts if results else ():
                    for found in locate(part, outcomes_of(part, journal)):
                        add(found)


def _create_connection(options: Options, settings: Mapping[str, Any]) -> Connection:
    """Check that every option has a meaning for parts, and return how workers connect."""
    for name, remedy in _CONFLICTS.items():
        if (given := settings[name]) is not None and given is not False and given != ():
            flag = {"checks": "check"}.get(name, name).replace("_", "-")
            advice = remedy.format(journal=shlex.quote(str(settings["journal"])), path=shlex.quote(str(settings[name])))
            raise click.UsageError(f"--{flag}: conflicts with --dask; {advice}.")
    if options.headers:
        text = "--header: conflicts with --dask, because Dask tasks must not contain secrets; remove one of the options."
        raise click.UsageError(text)
    if options.base_url is None or options.base_url == FAKE:
        raise click.UsageError("--base-url: with --dask, expected a URL that all workers can reach; pass --base-url URL.")
    if options.workspace is None:
        raise click.UsageError("--workspace: missing; pass --workspace ID, or set OUTREACH_WORKSPACE.")
    if not is_url(settings["journal"]):
        raise click.UsageError(
            "--journal: with --dask, expected a URL that all workers can reach; pass s3://bucket/prefix or file:///folder."
        )
    given = {name: settings[name] for name in ("concurrency", "stop_after_rejects")}
    shared: dict[str, Any] = {"backend": options.backend, "timeout": options.timeout, **given}
    return Connection(base_url=options.base_url, workspace=options.workspace, **shared)


def _read_fields(options: Options) -> list[WorkspaceField]:
    with open_sync_client(options) as client:
        return client.workspaces.fields()


def _find_campaign(options: Options, workspace: str, name: str | None) -> str | None:
    """Return the id of the campaign with an id or a name."""
    if name is None or name.startswith(ID_PREFIXES["campaign"]):
        return name
    targets = Targets(Target(workspace))
    targets.add_campaigns(workspace, _list_campaigns(options, workspace))
    return targets.find(Target(campaign=name)).campaign


def _list_campaigns(options: Options, workspace: str) -> list[Campaign]:
    with open_sync_client(options) as client:
        return list(client.with_options(workspace=workspace).campaigns.list())


@contextmanager
def _open_cluster(scheduler: str) -> Iterator[Any]:
    """Yield the Dask cluster to use: a new one if `scheduler` is `local`, otherwise the address `scheduler`."""
    # A new cluster has one worker per CPU. Its workers inherit the environment variable with the owner key.
    if scheduler != _LOCAL:
        yield scheduler
        return
    import dask
    from distributed import LocalCluster

    with (
        # By default, a cluster permanently drops a worker that needs more than 15 seconds to restart. The profiler would use CPU
        # time that the import needs.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h", "distributed.worker.profile.enabled": False}),
        LocalCluster(threads_per_worker=1, n_workers=os.cpu_count(), dashboard_address="127.0.0.1:0") as cluster,
    ):
        yield cluster
