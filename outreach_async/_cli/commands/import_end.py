"""The end of an import: write the rejects, print the numbers, and check that the input file is the one that was opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias, cast

from outreach_async._cli import files
from outreach_async._cli.commands.import_job import ImportJob
from outreach_async._cli.commands.import_report import print_report
from outreach_async._cli.commands.results import write_journal
from outreach_async._cli.output import Screen
from outreach_async.bulk import BulkReport, ContactOutcome, Journal, ObjectJournal, Outcomes
from outreach_async.importer import File, RejectsFile, Row, is_reject, reject
from outreach_async.importer._rejects import FindNumber, export_rejects, rejects_of
from outreach_async.importer._source import InputChanged

WriteReject: TypeAlias = Callable[[ContactOutcome], None]
"""A function that writes an outcome to the rejects file if its row failed."""


@contextmanager
def open_rejects(
    path: Path | None,
    file: File,
    find_number: FindNumber = lambda _index: None,
    complete: Callable[[RejectsFile], None] = lambda _rejects: None,
) -> Iterator[WriteReject]:
    """Open the rejects file, if `path` is given, and yield a function that writes to it."""
    # The file appears at its path when the `with` block ends, even if the block raises.
    if path is None:
        yield lambda _outcome: None
        return
    rejects = RejectsFile(path, file.headers)

    def write_reject(outcome: ContactOutcome) -> None:
        row = cast("Row", outcome.contact)
        if is_reject(outcome):
            with files.explain_write_errors("--rejects", path):
                rejects.add(reject(row.line, row.cells, outcome, find_number))

    with files.explain_write_errors("--rejects", path):
        rejects.__enter__()
    try:
        complete(rejects)
        yield write_reject
    finally:
        with files.explain_write_errors("--rejects", path):  # an error of the block is not an error of this file
            try:
                complete(rejects)
            finally:
                rejects.__exit__(None, None, None)


@contextmanager
def end_run(
    job: ImportJob,
    screen: Screen,
    *,
    total: int | None,
    find_number: FindNumber,
    heading: str,
    closing: Callable[[BulkReport], None],
) -> Iterator[Callable[[Outcomes], WriteReject]]:
    """Yield a function to call when the run has started. At the end of the `with` block, print the number of rows by outcome."""
    # The rejects are completed and the numbers are printed even if the block raises. For a resumed run, both include the rows
    # that were processed earlier. Last, the input file is compared with the file that was opened.
    started: list[Outcomes] = []
    reports: list[BulkReport] = []
    change: InputChanged | None = None

    def complete(rejects: RejectsFile) -> None:
        # The journal also has the failed rows of earlier processes, but only the file has their cells. They are written before
        # the first row is sent. If the file changes later, the rows that fail in this process follow as they were sent.
        if change is None and (journal := _find_journal(job)) is not None:
            rejects.clear()
            for row in rejects_of(job.file, journal.outcomes(), job.unit):
                rejects.add(row)

    with ExitStack() as rejects:

        def start(outcomes: Outcomes) -> WriteReject:
            started.append(outcomes)
            if job.resume and (found := job.find_content_change()):  # before the rejects of the earlier run are replaced
                raise found
            path = None if job.stores_rows else job.rejects
            return rejects.enter_context(open_rejects(path, job.file, find_number, complete))

        try:
            yield start
        except InputChanged as error:  # raised below, with what was sent
            change = error
        finally:
            for outcomes in started:
                change = change or job.find_content_change()
                rejects.close()
                report, expected = _read_final_report(job, outcomes, change, total)
                reports.append(report)
                if heading:
                    screen.print_line(heading)
                print_report(screen, report, expected, job.journal, job.file.path)
                closing(report)
    for report in reports:
        _require_same_file(job, report, change)


def _read_final_report(
    job: ImportJob, outcomes: Outcomes, change: InputChanged | None, total: int | None
) -> tuple[BulkReport, int | None]:
    """Return the numbers of the whole run, and `total`. If the journal stores the rows, also write the rejects file.

    If the journal is gone, return no total: an offer to resume would begin a new run, without the rows that were sent.
    """
    if (journal := _find_journal(job)) is None:
        return outcomes.report, total if job.journal is None else None
    if job.stores_rows and job.rejects is not None:
        with files.explain_write_errors("--rejects", job.rejects):
            export_rejects(job.rejects, None if job.spooled or change else job.file, journal, job.unit)
    if job.results is not None:
        with files.explain_write_errors("--results", job.results):
            known = None if job.spools or change else job.file
            write_journal(job.results, journal, known, journal.report().mapping or {})
    recorded = journal.report()
    return BulkReport(recorded.rows, recorded.outcomes, recorded.uncertain, recorded.seconds, recorded.repeats), total


def _find_journal(job: ImportJob) -> Journal | ObjectJournal | None:
    """Return the journal of the import; `None` if it has none, or if the journal was removed, renamed or unmounted."""
    journal = job.create_journal()
    return journal if journal is not None and journal.exists() else None


def _require_same_file(job: ImportJob, report: BulkReport, change: InputChanged | None) -> None:
    """Check that the input file is still the one that was opened."""
    journal = "" if job.journal is None else " with another --journal and --earlier unknown"
    try:
        if change is not None:
            raise change
        job.file.source.require_path()
    except InputChanged as error:
        outcomes = ", ".join(f"{count:,} {outcome.value}" for outcome, count in report.outcomes.items() if count)
        sent = f"rows of the file that was opened have outcomes: {outcomes or 'none'}"
        remedy = "import the new file" if change is None else "import a copy that no program changes"
        told = InputChanged(f"{error.what}; {sent}", remedy + journal)
        told.maybe_sent = told.maybe_applied = report.rows > 0
        raise told from None
