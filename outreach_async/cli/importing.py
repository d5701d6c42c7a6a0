"""The command `import`, and the run that `demo` shares with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final, cast

import attrs
import click

from outreach_async.bulk import BulkReport
from outreach_async.checks import require_options
from outreach_async.cli.connection import open_client
from outreach_async.cli.exits import code_of_rows
from outreach_async.cli.options import Options, shared_options
from outreach_async.cli.progress import progress
from outreach_async.cli.running import run_async
from outreach_async.cli.screen import Screen
from outreach_async.cli.tally import Undone, show_report
from outreach_async.client import OutreachClient
from outreach_async.importer import CsvFile, Row, columns_for, parse_overrides
from outreach_async.vocabulary import DUPLICATE_POLICIES, DuplicatePolicy, Outcome

_FEW: Final = 10
_IN_FLIGHT: Final = 64


@attrs.frozen(kw_only=True)
class Job:
    """What to import, and how.

    Attributes:
        file: Where the rows are.
        overrides: Codes by column name.
        duplicates: What to do if the workspace has an e-mail.
        campaign: Campaign to add the contacts to.
        strict: Whether the service validates the standard fields.
        concurrency: Requests at a time at most.
    """

    file: CsvFile
    overrides: Mapping[str, str] = attrs.field(factory=dict)
    duplicates: DuplicatePolicy = "skip"
    campaign: str | None = None
    strict: bool = True
    concurrency: int = _IN_FLIGHT


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--duplicates",
    type=click.Choice(DUPLICATE_POLICIES),
    default="skip",
    show_default=True,
    help="What to do with an e-mail that the workspace has.",
)
@click.option("--campaign", metavar="ID", help="Campaign to add the contacts to.")
@click.option("--strict/--no-strict", default=True, show_default=True, help="Whether the service validates the standard fields.")
@click.option("--concurrency", type=int, default=_IN_FLIGHT, show_default=True, metavar="N", help="Requests at a time at most.")
@click.option("--dry-run", is_flag=True, help="Check the whole file and create nothing; at most the workspace's fields are read.")
@click.option(
    "--map",
    "maps",
    metavar="'COLUMN=CODE'",
    multiple=True,
    help="Send a column under a field's code, or leave it out with the code 'ignore'.",
)
@shared_options
def import_(
    *,
    options: Options,
    file: Path,
    duplicates: DuplicatePolicy,
    campaign: str | None,
    concurrency: int,
    maps: tuple[str, ...],
    strict: bool,
    dry_run: bool,
) -> int:
    """Create a contact for each row of a CSV file.

    Columns are matched by name: codes such as first_name, the same with other case and punctuation ("First Name", "E-mail"), and
    the labels of the workspace's own fields. A column that nobody knows is refused before anything is sent, unless --map says
    where it goes.
    """
    require_options(duplicates, strict, campaign)
    job = Job(
        file=CsvFile.open(file),
        overrides=parse_overrides(maps),
        duplicates=duplicates,
        campaign=campaign,
        strict=strict,
        concurrency=concurrency,
    )
    return run_async(partial(_check if dry_run else _import, options, job))


async def _import(options: Options, job: Job) -> int:
    screen = Screen.of(as_json=options.as_json)
    async with open_client(options, max_in_flight=max(job.concurrency, _IN_FLIGHT)) as client:
        report = await create(client, job, screen, _listed(screen), lambda report: screen.result(report.to_dict()))
    return code_of_rows(report.outcomes)


async def create(
    client: OutreachClient, job: Job, screen: Screen, few: int | None, closing: Callable[[BulkReport], None]
) -> BulkReport:
    """Create the contacts of a file, and print how it went.

    Args:
        client: Where to.
        job: What.
        screen: Where to print.
        few: Rows to list of those that made no contact; `None` for all.
        closing: Takes the figures at last, however the run ends.
    """
    total = job.file.count()
    columns = await columns_for(client, job.file.headers, job.overrides)
    undone = Undone(screen, few)
    async with client.contacts.create_many(
        job.file.rows(columns),
        duplicates=job.duplicates,
        strict_validation=job.strict,
        campaign=job.campaign,
        concurrency=job.concurrency,
    ) as outcomes:
        try:
            with progress("Importing", total) as advance:
                async for outcome in outcomes:
                    advance()
                    undone.add(cast("Row", outcome.contact), outcome.status, outcome.error)
        finally:
            undone.close()
            show_report(screen, outcomes.report, total)
            closing(outcomes.report)
    return outcomes.report


async def _check(options: Options, job: Job) -> int:
    """Go through the whole file and create nothing."""
    screen = Screen.of(as_json=options.as_json)
    total, began = job.file.count(), monotonic()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(open_client(options)) if options.base_url else None
        columns = await columns_for(client, job.file.headers, job.overrides)
    undone, outcomes = Undone(screen, _listed(screen)), dict.fromkeys(Outcome, 0)
    with progress("Checking", total) as advance:
        for row in job.file.rows(columns):
            advance()
            refusal = row.refusal()
            outcomes[Outcome.REJECTED if refusal else Outcome.NOT_APPLIED] += 1
            if refusal:
                undone.add(row, Outcome.REJECTED, refusal)
    undone.close()
    report = BulkReport(total, outcomes, 0, monotonic() - began)
    screen.say(f"{outcomes[Outcome.NOT_APPLIED]:,} of {total:,} rows can be sent; nothing was created")
    screen.result({**report.to_dict(), "dry_run": True})
    return code_of_rows({**outcomes, Outcome.NOT_APPLIED: 0})


def _listed(screen: Screen) -> int | None:
    """Return how many undone rows to list: a terminal shows a few, a file or a pipe takes them all."""
    return _FEW if screen.console else None
