"""Run an import; `import` and `demo` share it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import cast

import attrs

from outreach_async.bulk import BulkReport, BulkRun, ContactOutcome, Journal, Outcomes
from outreach_async.cli.checking import prepare
from outreach_async.cli.exits import INTERRUPTED, code_of_rows
from outreach_async.cli.interrupts import PATIENCE, PATIENCE_IN_PAUSE, Interrupts, interruptible
from outreach_async.cli.job import Job
from outreach_async.cli.progress import follow, progress, text_of
from outreach_async.cli.screen import Screen
from outreach_async.cli.tally import Undone, show_report
from outreach_async.cli.writing import rejects_file
from outreach_async.client import OutreachClient
from outreach_async.importer import File, Row, is_reject, reject, rejects_of, spooled_rejects
from outreach_async.importer.checks import Checks, Survey
from outreach_async.importer.rejects import Reject


async def create(client: OutreachClient, job: Job, screen: Screen, few: int | None, closing: Callable[[BulkReport], None]) -> int:
    """Create the contacts of a file, print the results and return the exit code.

    Args:
        client: The client.
        job: The import.
        screen: Where to print.
        few: Maximum number of failed rows to list; `None` for all of them.
        closing: Called with the final counts, however the run ends.
    """
    found, rows, mapping = await _work(client, job, screen)
    total = None if job.spooled else found.rows
    undone = Undone(screen, few, found.line_of)
    with _told(job, screen, total, closing) as tell:
        async with interruptible(screen) as interrupts, _run(client, job, rows, total, mapping) as outcomes:
            tell(outcomes)
            interrupts.drain = partial(drained, outcomes)
            with undone, progress("Importing", total) as show, _rejects(job, found) as keep:
                interrupts.group.start_soon(follow, outcomes, show, screen.warn)
                async for outcome in outcomes:
                    undone.add(outcome)
                    keep(outcome)
                show(outcomes.report.rows, text_of(outcomes.progress))
    return _code(interrupts, outcomes, screen)  # pragma: no cover - run, but coverage loses sight after a cancelled group


def drained(outcomes: Outcomes) -> float:
    """Stop starting rows, and return the time to wait for the requests in flight, in seconds."""
    paused = outcomes.progress.state == "paused"
    outcomes.drain()
    return PATIENCE_IN_PAUSE if paused else PATIENCE


async def _work(client: OutreachClient, job: Job, screen: Screen) -> tuple[Survey, Iterable[Row], Mapping[str, str] | None]:
    """Check the file; return the findings, the rows and the mapping. A finished run needs none of them."""
    before = job.before()
    if before is not None and job.is_settled(before) and job.save_mapping is None:
        return Survey.unseen(before.rows), (), None
    prepared = await prepare(client, attrs.evolve(job, overrides={}) if job.spooled else job, screen)
    rows = job.file.rows(prepared.columns)
    mapping = None if job.spooled else {column: code for column, code, _ in prepared.columns.decisions()}
    return prepared.survey, rows if job.checks is None else Checks(prepared.columns, job.checks).guarded(rows), mapping


def _code(interrupts: Interrupts, outcomes: Outcomes, screen: Screen) -> int:
    if interrupts.count:
        screen.warn("interrupted")
        return INTERRUPTED
    return code_of_rows(outcomes.report.outcomes, outcomes.report.repeats)


@contextmanager
def _told(
    job: Job, screen: Screen, total: int | None, closing: Callable[[BulkReport], None]
) -> Iterator[Callable[[Outcomes], None]]:
    """Print the counts of a run that has started, however it ends. With a journal they cover all of its sessions."""
    begun: list[Outcomes] = []
    try:
        yield begun.append
    finally:
        for outcomes in begun:
            report = outcomes.report if job.journal is None else _kept(Journal(job.journal))
            if job.journal is not None and job.rejects is not None:
                export_rejects(job.rejects, None if job.spooled else job.file, Journal(job.journal))
            show_report(screen, report, total, job.journal)
            closing(report)


def _kept(journal: Journal) -> BulkReport:
    kept = journal.report()
    return BulkReport(kept.rows, kept.outcomes, kept.uncertain, kept.seconds, kept.repeats)


@contextmanager
def _rejects(job: Job, found: Survey) -> Iterator[Callable[[ContactOutcome], None]]:
    """Write rejects as outcomes arrive, if a rejects file is requested. With a journal, it is written from that at the end."""
    if job.rejects is None or job.journal is not None:
        yield lambda _outcome: None
        return
    with rejects_file(job.rejects, job.file.headers) as add:
        yield lambda outcome: _keep(add, outcome, found)


def _keep(add: Callable[[Reject], None], outcome: ContactOutcome, found: Survey) -> None:
    row = cast("Row", outcome.contact)
    if is_reject(outcome):
        add(reject(row.line, row.cells, outcome, found.line_of))


def export_rejects(path: Path, file: File | None, journal: Journal) -> int:
    """Write the rejects of a run from its journal, and return their number.

    Args:
        path: The rejects file.
        file: The input; `None` if it came from standard input, so that the rows are in the journal only.
        journal: The journal.
    """
    headers, found = spooled_rejects(journal) if file is None else (file.headers, rejects_of(file, journal.outcomes()))
    rows = 0
    with rejects_file(path, headers) as add:
        for rows, each in enumerate(found, 1):  # noqa: B007 - it is counted
            add(each)
    return rows


def _run(client: OutreachClient, job: Job, rows: Iterable[Row], total: int | None, mapping: Mapping[str, str] | None) -> BulkRun:
    return client.contacts.create_many(
        rows,
        duplicates=job.duplicates,
        strict_validation=job.strict,
        campaign=job.campaign,
        concurrency=job.concurrency,
        repeats=job.repeats,
        journal=job.kept_in(mapping),
        order="completion" if job.rejects is None else "input",
        resume=job.resume,
        earlier=job.earlier,
        spool=job.journal is not None and job.file.path is None,
        total=total,
    )
