"""The command `import`, and the run that `demo` shares with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final, cast, get_args

import attrs
import click

from outreach_async.bulk import BulkReport, BulkRun, ContactOutcome, Journal, Outcomes, Repeats
from outreach_async.bulk.outcome import unsent
from outreach_async.checks import require_options
from outreach_async.cli.connection import open_client
from outreach_async.cli.exits import INCOMPLETE, INTERRUPTED, OK, code_of_rows
from outreach_async.cli.interrupts import interruptible
from outreach_async.cli.options import Options, shared_options
from outreach_async.cli.progress import follow, progress, text_of
from outreach_async.cli.running import run_async
from outreach_async.cli.screen import Screen
from outreach_async.cli.tally import Undone, show_report
from outreach_async.cli.writing import require_folder
from outreach_async.client import OutreachClient
from outreach_async.importer import (
    Columns,
    CsvFile,
    RejectsFile,
    Row,
    columns_for,
    is_reject,
    parse_overrides,
    reject,
    rejects_of,
)
from outreach_async.vocabulary import DUPLICATE_POLICIES, DuplicatePolicy, Outcome

_FEW: Final = 10
_IN_FLIGHT: Final = 64
_STRIDE: Final = 1000
"""Rows of a check between two looks at the progress bar."""


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
        repeats: What to do with an e-mail that comes again.
        journal: File to keep the run in.
        resume: Whether to go on with a journal that is there.
        rejects: File to write the rows to that made no contact.
    """

    file: CsvFile
    overrides: Mapping[str, str] = attrs.field(factory=dict)
    duplicates: DuplicatePolicy = "skip"
    campaign: str | None = None
    strict: bool = True
    concurrency: int = _IN_FLIGHT
    repeats: Repeats = "serial"
    journal: Path | None = None
    resume: bool = False
    rejects: Path | None = None

    def kept_in(self) -> Journal | None:
        """Return the journal to keep the run in, which knows the file."""
        if self.journal is None:
            return None
        return Journal(self.journal, source=str(self.file.path.resolve()), fingerprint=self.file.fingerprint())


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
@click.option(
    "--repeats",
    type=click.Choice(get_args(Repeats)),
    default="serial",
    show_default=True,
    help="What to do with an e-mail that the file has more than once; first, last and coalesce need --journal.",
)
@click.option("--journal", metavar="PATH", type=click.Path(path_type=Path), help="Keep the run in this file, to resume it.")
@click.option("--resume", is_flag=True, help="Go on with the journal if it is there.")
@click.option(
    "--rejects", metavar="PATH", type=click.Path(path_type=Path), help="Write rows that made no contact to this CSV file."
)
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
    repeats: Repeats,
    journal: Path | None,
    resume: bool,
    rejects: Path | None,
) -> int:
    """Create a contact for each row of a CSV file.

    Columns are matched by name: codes such as first_name, the same with other case and punctuation ("First Name", "E-mail"), and
    the labels of the workspace's own fields. A column that nobody knows is refused before anything is sent, unless --map says
    where it goes.

    With --journal the run survives its end: after a crash, Ctrl-C or exit code 75, the same command with --resume gives every row
    that is left its outcome, and none a second one. Ctrl-C lets the rows under way finish; a second one stops them.
    """
    require_options(duplicates, strict, campaign)
    for path in filter(None, (journal, rejects)):
        require_folder(path)
    job = Job(
        file=CsvFile.open(file),
        overrides=parse_overrides(maps),
        duplicates=duplicates,
        campaign=campaign,
        strict=strict,
        concurrency=concurrency,
        repeats=repeats,
        journal=journal,
        resume=resume,
        rejects=rejects,
    )
    return run_async(partial(_check if dry_run else _import, options, job))


async def _import(options: Options, job: Job) -> int:
    screen = Screen.of(as_json=options.as_json)
    async with open_client(options, max_in_flight=max(job.concurrency, _IN_FLIGHT)) as client:
        return await create(client, job, screen, _listed(screen), lambda report: screen.result(report.to_dict()))


async def create(client: OutreachClient, job: Job, screen: Screen, few: int | None, closing: Callable[[BulkReport], None]) -> int:
    """Create the contacts of a file, print how it went, and return the exit code.

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
    with _told(job, screen, total, closing) as tell:
        async with interruptible(screen) as interrupts, _run(client, job, columns, total) as outcomes:
            tell(outcomes)
            interrupts.drain = outcomes.drain
            with undone, progress("Importing", total) as show, _rejects(job) as keep:
                interrupts.group.start_soon(follow, outcomes, show)
                async for outcome in outcomes:
                    undone.add(outcome)
                    keep(outcome)
                show(outcomes.report.rows, text_of(outcomes.progress))
    if interrupts.count:
        screen.warn("interrupted")
        return INTERRUPTED
    return code_of_rows(outcomes.report.outcomes, outcomes.report.repeats)


@contextmanager
def _told(job: Job, screen: Screen, total: int, closing: Callable[[BulkReport], None]) -> Iterator[Callable[[Outcomes], None]]:
    """Print the figures of a run that had begun, however it ends: with a journal, of all that is kept."""
    begun: list[Outcomes] = []
    try:
        yield begun.append
    finally:
        for outcomes in begun:
            report = outcomes.report if job.journal is None else _kept(Journal(job.journal), outcomes.report.seconds)
            if job.journal is not None and job.rejects is not None:
                export_rejects(job.rejects, job.file, Journal(job.journal))
            show_report(screen, report, total, job.journal)
            closing(report)


def _kept(journal: Journal, seconds: float) -> BulkReport:
    kept = journal.report()
    return BulkReport(kept.rows, kept.outcomes, kept.uncertain, seconds, kept.repeats)


@contextmanager
def _rejects(job: Job) -> Iterator[Callable[[ContactOutcome], None]]:
    """Write the rejects file as outcomes come, if there is to be one and no journal to write it from at the end."""
    if job.rejects is None or job.journal is not None:
        yield lambda _outcome: None
        return
    with RejectsFile(job.rejects, job.file.headers) as file:
        yield lambda outcome: _keep(file, outcome)


def _keep(file: RejectsFile, outcome: ContactOutcome) -> None:
    row = cast("Row", outcome.contact)
    if is_reject(outcome):
        file.add(reject(row.line, row.cells, outcome))


def export_rejects(path: Path, file: CsvFile, journal: Journal) -> int:
    """Write the rows of a file that made no contact by its journal, and return how many there are."""
    with RejectsFile(path, file.headers) as rejects:
        for each in rejects_of(file, journal.outcomes()):
            rejects.add(each)
    return rejects.rows


def _run(client: OutreachClient, job: Job, columns: Columns, total: int) -> BulkRun:
    return client.contacts.create_many(
        job.file.rows(columns),
        duplicates=job.duplicates,
        strict_validation=job.strict,
        campaign=job.campaign,
        concurrency=job.concurrency,
        repeats=job.repeats,
        journal=job.kept_in(),
        order="completion" if job.rejects is None else "input",
        resume=job.resume,
        total=total,
    )


async def _check(options: Options, job: Job) -> int:
    """Go through the whole file and create nothing."""
    screen = Screen.of(as_json=options.as_json)
    total, began = job.file.count(), monotonic()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(open_client(options)) if options.base_url else None
        columns = await columns_for(client, job.file.headers, job.overrides)
    undone, outcomes = Undone(screen, _listed(screen)), dict.fromkeys(Outcome, 0)
    with undone, progress("Checking", total) as show:
        for index, row in enumerate(job.file.rows(columns)):
            if not index % _STRIDE:
                show(index, "")
            refusal = row.refusal()
            outcomes[Outcome.REJECTED if refusal else Outcome.NOT_APPLIED] += 1
            if refusal:
                undone.add(unsent(index, row, Outcome.REJECTED, refusal))
        show(total, "")
    report = BulkReport(total, outcomes, 0, monotonic() - began)
    screen.say(f"{outcomes[Outcome.NOT_APPLIED]:,} of {total:,} rows can be sent; nothing was created")
    screen.result({**report.to_dict(), "dry_run": True})
    return INCOMPLETE if outcomes[Outcome.REJECTED] else OK


def _listed(screen: Screen) -> int | None:
    """Return how many undone rows to list: a terminal shows a few, a file or a pipe takes them all."""
    return _FEW if screen.console else None
