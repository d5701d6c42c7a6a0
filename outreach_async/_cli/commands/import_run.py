"""The run of an import: create the contacts, and print what became of every row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeAlias, cast

import attrs

from outreach_async._cli import files
from outreach_async._cli.commands.import_check import (
    ImportJob,
    WriteOutcome,
    mapping_of,
    open_job_results,
    open_rejects,
    prepare,
)
from outreach_async._cli.commands.import_report import FailedRows, name_outcomes, print_report
from outreach_async._cli.commands.results import write_results
from outreach_async._cli.output import Screen, follow_progress, show_current, show_progress
from outreach_async._cli.process import (
    DRAIN_TIMEOUT,
    INTERRUPTED,
    PAUSED_DRAIN_TIMEOUT,
    InterruptHandler,
    exit_code_of_rows,
    handle_interrupts,
)
from outreach_async.bulk import BulkReport, Outcomes
from outreach_async.bulk._run.bulk_run import with_names
from outreach_async.client import OutreachClient
from outreach_async.importer import RejectsFile, Row
from outreach_async.importer._preflight import Preflight
from outreach_async.importer._rejects import FindNumber, export_rejects, number_record, rejects_of
from outreach_async.importer._results import describe_outcomes
from outreach_async.importer._source import InputChanged

OnClose: TypeAlias = Callable[[BulkReport, list[dict[str, Any]]], None]
"""A function that receives the final report and the first failed rows of an import."""


async def run_import(client: OutreachClient, job: ImportJob, screen: Screen, few: int | None, closing: OnClose) -> int:
    """Create the contacts of a file, print the results and return the exit code."""
    earlier, heading, mapping, rows = job.read_earlier_report(), "", None, cast("Iterable[Row]", ())
    names: Mapping[tuple[str, str], str] = {}
    if earlier is not None and earlier.state == "finished":
        heading = f"The run in {job.journal} had already finished, so nothing was sent. Its results:"
    if earlier is not None and job.is_settled(earlier):
        preflight = Preflight(rows=earlier.rows)
    else:
        checked = attrs.evolve(job, overrides={}) if job.spooled else job
        columns, preflight, targets = await prepare(client, checked, screen, unit=job.unit)
        rows, mapping = job.guard(columns, targets), None if job.spooled else mapping_of(columns)
        names = targets.names
    total = preflight.rows if earlier is None or earlier.spooled is None else earlier.spooled  # the input may be another one
    find_number = number_record if job.spools else preflight.find_number
    failed = FailedRows(screen, few, find_number)
    end = RunEnd(job, screen, total, find_number, heading, lambda report: closing(report, failed.failures))
    run = client.contacts.create_many(
        rows,
        duplicates=job.duplicates,
        strict_validation=job.strict,
        campaign=job.campaign,
        concurrency=job.concurrency,
        repeats=job.repeats,
        journal=job.create_journal(mapping),
        ledger=job.ledger,
        max_age=job.max_age,
        changed=job.changed,
        order="completion" if job.rejects is None and job.results is None else "input",
        resume=job.resume,
        earlier=job.earlier,
        spool=job.spools,
        total=total,
    )
    with end.handled() as on_start, open_job_results(job) as write_result:
        async with handle_interrupts(screen) as interrupts, with_names(run, names) as outcomes:
            write_reject = on_start(outcomes)
            interrupts.drain = partial(drain_run, outcomes)
            with failed, show_progress(screen, "Importing", total) as show:
                interrupts.group.start_soon(follow_progress, lambda: outcomes.progress, show, screen.warn)
                async for outcome in outcomes:
                    failed.add(outcome)
                    write_reject(outcome)
                    write_result(outcome)
                show_current(outcomes.progress, show)
    return _exit_code(interrupts, outcomes, screen)  # pragma: no cover - run, but coverage loses track after a cancelled group


def drain_run(outcomes: Outcomes) -> float:
    """Stop a run from starting further rows, and return the number of seconds to wait for the requests in flight."""
    paused = outcomes.progress.state == "paused"
    outcomes.drain()
    return PAUSED_DRAIN_TIMEOUT if paused else DRAIN_TIMEOUT


def _exit_code(interrupts: InterruptHandler, outcomes: Outcomes, screen: Screen) -> int:
    if interrupts.count:
        screen.warn("interrupted")
        return INTERRUPTED
    return exit_code_of_rows(outcomes.report.outcomes, outcomes.report.repeats)


@attrs.frozen
class RunEnd:
    """Writes the rejects and prints the numbers of a run at its end, however it ends."""

    job: ImportJob
    screen: Screen
    total: int | None
    find_number: FindNumber
    heading: str
    closing: Callable[[BulkReport], None]

    @contextmanager
    def handled(self) -> Iterator[Callable[[Outcomes], WriteOutcome]]:
        """Yield a function to call when the run has started. For a resumed run, the numbers include the earlier rows."""
        job, started, reports = self.job, list[Outcomes](), list[BulkReport]()
        change: InputChanged | None = None

        def complete(rejects: RejectsFile) -> None:
            # The journal also has the failed rows of earlier processes, but only the file has their cells. They are written
            # before the first row is sent. If the file changes later, rows that fail in this process follow as they were sent.
            if change is None and (journal := job.find_journal()) is not None:
                rejects.clear()
                for row in rejects_of(job.file, journal.outcomes(), job.unit):
                    rejects.add(row)

        with ExitStack() as rejects:

            def start(outcomes: Outcomes) -> WriteOutcome:
                started.append(outcomes)
                if job.resume and (found := job.find_content_change()):  # before the rejects of the earlier run are replaced
                    raise found
                path = None if job.stores_rows else job.rejects
                return rejects.enter_context(open_rejects(path, job.file, self.find_number, complete))

            try:
                yield start
            except InputChanged as error:  # raised below, with what was sent
                change = error
            finally:
                for outcomes in started:
                    change = change or job.find_content_change()
                    rejects.close()
                    reports.append(self._report(outcomes, change))
        for report in reports:
            self._require_same_file(report, change)

    def _report(self, outcomes: Outcomes, change: InputChanged | None) -> BulkReport:
        """Print the numbers of the whole run. If the journal has all rows, also write the rejects and the results."""
        job, total = self.job, self.total
        if (journal := job.find_journal()) is not None:
            recorded = journal.report()
            known = None if job.spools or change else job.file
            if job.stores_rows and job.rejects is not None:
                with files.explain_write_errors("--rejects", job.rejects):
                    export_rejects(job.rejects, None if job.spooled or change else job.file, journal, job.unit)
            if job.results is not None:
                rows = describe_outcomes(journal.outcomes(), known, recorded.mapping or {})
                with files.explain_write_errors("--results", job.results):
                    write_results(job.results, [(known, rows)])
            report = BulkReport(recorded.rows, recorded.outcomes, recorded.uncertain, recorded.seconds, recorded.repeats)
        else:  # if a journal is gone, an offer to resume would begin a new run, without the rows that were sent
            total, report = total if job.journal is None else None, outcomes.report
        if self.heading:
            self.screen.print_line(self.heading)
        print_report(self.screen, report, total, job.journal, job.file.path)
        self.closing(report)
        return report

    def _require_same_file(self, report: BulkReport, change: InputChanged | None) -> None:
        """Check that the input file is still the one that was opened."""
        try:
            if change is not None:
                raise change
            self.job.file.source.require_path()
        except InputChanged as error:
            outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in name_outcomes(report.outcomes))
            sent = f"rows of the file that was opened have outcomes: {outcomes or 'none'}"
            remedy = "import the new file" if change is None else "import a copy that no program changes"
            journal = "" if self.job.journal is None else " with another --journal and --earlier unknown"
            told = InputChanged(f"{error.what}; {sent}", remedy + journal)
            told.maybe_sent = told.maybe_applied = report.rows > 0
            raise told from None
