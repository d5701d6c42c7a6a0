"""The first pass of an import: map the columns and check the whole file, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from time import monotonic

import attrs

from outreach_async.bulk import BulkReport
from outreach_async.bulk.outcome import unsent
from outreach_async.cli.connection import open_client
from outreach_async.cli.exits import INCOMPLETE, OK
from outreach_async.cli.job import Job
from outreach_async.cli.options import Options
from outreach_async.cli.progress import progress
from outreach_async.cli.screen import Screen
from outreach_async.cli.tally import Undone, listed, show_columns, show_estimate, show_findings
from outreach_async.cli.writing import rejects_file, writable
from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest
from outreach_async.importer import Columns, Row, columns_for, reject
from outreach_async.importer.checks import Policy, Survey, survey
from outreach_async.importer.checks.survey import Tell
from outreach_async.importer.estimate import estimate
from outreach_async.importer.mapping import mapping_text
from outreach_async.vocabulary import Outcome
from outreach_async.wholefiles import write_whole


@attrs.frozen
class Prepared:
    """The result of the first pass.

    Attributes:
        columns: The mapping of columns to fields.
        survey: The findings in the file.
    """

    columns: Columns
    survey: Survey


async def prepare(client: OutreachClient | None, job: Job, screen: Screen, tell: Tell | None = None) -> Prepared:
    """Map the columns, check the whole file and print the findings.

    Args:
        client: Client for the workspace's fields; `None` to map columns without them.
        job: The import.
        screen: Where to print.
        tell: Called with each invalid row and its error.

    Raises:
        InvalidRequest: A column matches no field, or the file cannot be read.
    """
    columns = await columns_for(client, job.file.headers, job.overrides, ignore_unknown=job.ignore_unknown)
    if job.save_mapping is not None:
        with writable("--save-mapping", job.save_mapping):
            write_whole(job.save_mapping, mapping_text(columns, job.file.name))
    if job.checks is None:
        return Prepared(columns, await survey(job.file, columns, Policy.of(["off"]), repeats=job.repeats))
    show_columns(screen, columns, job.notes)
    with progress("Checking", None) as show:
        found = await survey(
            job.file, columns, job.checks, repeats=job.repeats, tell=tell or _nobody, show=lambda rows: show(rows, "")
        )
    show_findings(screen, found)
    show_estimate(screen, estimate(found.sent, job.rate, job.before()))
    return Prepared(columns, found)


async def check(options: Options, job: Job) -> int:
    """Check the whole file without creating anything, and return the exit code."""
    screen, began = Screen.of(as_json=options.as_json), monotonic()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(open_client(options)) if options.base_url else None
        undone = Undone(screen, listed(screen))
        with undone, _rejects(job) as keep:
            prepared = await prepare(client, job, screen, lambda row, error: _both(undone, keep, row, error))
    found = prepared.survey
    screen.say(f"{found.sent:,} of {found.rows:,} rows can be sent; nothing was created")
    screen.result({**_report(found, monotonic() - began).to_dict(), "dry_run": True, **_told(prepared)})
    return INCOMPLETE if found.refused else OK


def _report(found: Survey, seconds: float) -> BulkReport:
    outcomes = dict.fromkeys(Outcome, 0) | {Outcome.REJECTED: found.refused, Outcome.NOT_APPLIED: found.rows - found.refused}
    return BulkReport(found.rows, outcomes, 0, seconds, found.stood_for)


def _told(prepared: Prepared) -> dict[str, object]:
    columns = {column: code for column, code, _ in prepared.columns.decisions()}
    return {"warnings": prepared.survey.counts(), "columns": columns}


@contextmanager
def _rejects(job: Job) -> Iterator[Callable[[Row, InvalidRequest], None]]:
    """Write the invalid rows to the rejects file, if one is requested."""
    if job.rejects is None:
        yield _nobody
        return
    with rejects_file(job.rejects, job.file.headers) as add:
        yield lambda row, error: add(reject(row.line, row.cells, unsent(0, row, Outcome.REJECTED, error)))


def _both(undone: Undone, keep: Tell, row: Row, error: InvalidRequest) -> None:
    undone.add(unsent(0, row, Outcome.REJECTED, error))
    keep(row, error)


def _nobody(_row: Row, _error: InvalidRequest) -> None:
    """Ignore an invalid row."""
