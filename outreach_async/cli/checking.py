"""What an import does before it sends anything: it shows where the columns go, and looks at the whole file."""

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
from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest
from outreach_async.importer import Columns, RejectsFile, Row, columns_for, reject
from outreach_async.importer.checks import Policy, Survey, survey
from outreach_async.importer.checks.survey import Tell
from outreach_async.importer.estimate import estimate
from outreach_async.importer.mapping import mapping_text
from outreach_async.vocabulary import Outcome
from outreach_async.wholefiles import write_whole


@attrs.frozen
class Prepared:
    """What is known before the first row is sent.

    Attributes:
        columns: Where they go.
        survey: What was found in the file.
    """

    columns: Columns
    survey: Survey


async def prepare(client: OutreachClient | None, job: Job, screen: Screen, tell: Tell | None = None) -> Prepared:
    """Decide where the columns go, look at the whole file, and say what was found.

    Args:
        client: Whom to ask for the workspace's fields; `None` for nobody.
        job: What to import.
        screen: Where to print.
        tell: Takes each row that can never be sent, and why.

    Raises:
        InvalidRequest: A column that no field is known for, or a file that cannot be read.
    """
    columns = await columns_for(client, job.file.headers, job.overrides, ignore_unknown=job.ignore_unknown)
    if job.save_mapping is not None:
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
    """Go through the whole file, create nothing, and return the exit code."""
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
    """Write the rejects file that an import would begin with, if there is to be one."""
    if job.rejects is None:
        yield _nobody
        return
    with RejectsFile(job.rejects, job.file.headers) as file:
        yield lambda row, error: file.add(reject(row.line, row.cells, unsent(0, row, Outcome.REJECTED, error)))


def _both(undone: Undone, keep: Tell, row: Row, error: InvalidRequest) -> None:
    undone.add(unsent(0, row, Outcome.REJECTED, error))
    keep(row, error)


def _nobody(_row: Row, _error: InvalidRequest) -> None:
    """Take a row that nobody asked for."""
