"""Import one part of a plan, and merge the reports of all parts. Any engine, such as Dask, can pickle and run these functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Any, Final, get_args

import anyio
import attrs

from outreach_async import (
    Outcome,  # noqa: F401 - of annotations
    Transport,
)
from outreach_async._plumbing import (
    Backend,
    Earlier,
    add_reports,
    create_transport,
    parse_base_url,
    require_choice,
    require_id,
    require_number,
    require_rate,
    require_seconds,
    service_address,
    trim,
)
from outreach_async.bulk import BulkReport, LedgerCounts, Outcomes, Targeted  # noqa: F401 - of annotations
from outreach_async.client import OutreachClient
from outreach_async.errors import BulkSuspended, InvalidRequest, OutreachError
from outreach_async.importer import is_reject
from outreach_async.models import FAILED_OUTCOMES
from outreach_async.parts._folder import journal_of, record_part
from outreach_async.parts._planning import Part, planned_rows, require_unchanged
from outreach_async.rates import Rate
from outreach_async.store.journal import JournalStore

_MAX_FAILURES: Final = 100  # failed rows that a report lists; `results_of` has all of them
_SUMS: Final = ("rows", "uncertain", "repeats", "seconds")
_JOINED: Final = ("parts", "fingerprints", "failures")
_COUNTS: Final = frozenset(field.name for field in attrs.fields(BulkReport))


@attrs.frozen(kw_only=True)
class Connection:
    """Settings for a worker's connection to the service. Each worker creates its own client, because clients cannot be pickled.

    The settings contain no secret: the owner key, the proxy and the certificates come from the worker's environment. Invalid
    values raise `InvalidRequest`.

    Attributes:
        base_url: Address of the service, without user and password.
        workspace: Id of the workspace.
        backend: The HTTP library, by the name that `--backend` of the command takes.
        concurrency: Maximum number of requests in flight per part.
        rate: Maximum number of requests per second of each part; `None` to learn the rate.
        timeout: Timeout per attempt, in seconds; `None` for no limit.
        deadline: Time limit for all attempts of a row together, in seconds, without waits and outages; `None` for no limit.
        max_outage: Maximum time without a successful request, in seconds. After that time, the part is suspended.
        stop_after_rejects: Number of rows of a part after which it stops if the service rejects all of them; see `create_many`.

    Example:
        ```python
        connection = Connection(base_url="https://api.example", workspace="space_1", concurrency=16)
        print(connection.backend, connection.timeout)  # -> httpx 30.0
        ```
    """

    base_url: str
    workspace: str
    backend: Backend = "httpx"
    concurrency: int = 64
    rate: float | None = None
    timeout: float | None = 30.0
    deadline: float | None = 120.0
    max_outage: float = 900.0
    stop_after_rejects: int | None = 50

    def __attrs_post_init__(self) -> None:
        if parse_base_url(self.base_url).headers:
            raise InvalidRequest(
                "base_url: expected a URL without user and password, because logs would contain them; remove them"
            )
        workspace = require_id("workspace", self.workspace, "workspace", "pass the id of a workspace")
        object.__setattr__(self, "workspace", workspace)  # frozen for callers, but new
        require_choice("backend", self.backend, get_args(Backend))
        require_number("concurrency", self.concurrency, least=1)
        if self.rate is not None:
            require_rate("rate", self.rate)
        if self.stop_after_rejects is not None:
            require_number("stop_after_rejects", self.stop_after_rejects, least=1)
        for name in ("timeout", "deadline", "max_outage"):
            require_seconds(name, getattr(self, name))

    def _create_transport(self) -> Transport:
        return create_transport(self.base_url, self.backend, self.concurrency)

    def create_client(self, rate: Rate | None = None) -> OutreachClient:
        """Create a client that uses these settings, the owner key from the environment and, if given, a shared rate.

        Example:
            ```python
            client = Connection(base_url="https://api.example", workspace="space_1").create_client()
            ```
        """
        return OutreachClient(
            transport=self._create_transport(),
            workspace=self.workspace,
            timeout=self.timeout,
            deadline=self.deadline,
            max_in_flight=self.concurrency,
            rate=self.rate if rate is None else rate,
        )


@attrs.frozen
class FailedRow:
    """A row that was rejected, was not applied, or has an unknown outcome.

    Attributes:
        file: Location of the file.
        line: The line on which the row begins, from 1. The first row of a Parquet file is line 2, as in a file with a header.
        status: The row's outcome: `rejected`, `not_applied` or `unknown`.
        message: The error's message.
        workspace: Id of the row's workspace; `None` if the row names a target that is unknown.
        campaign: Id of the row's campaign; `None` if it has none, or an unknown one.

    Example:
        ```python
        print(FailedRow("/data/people.csv", 7, "rejected", "email: missing").line)  # -> 7
        ```
    """

    file: str
    line: int
    status: str
    message: str
    workspace: str | None = None
    campaign: str | None = None


@attrs.frozen(kw_only=True)
class ImportReport(BulkReport):
    """The report of parts of an import. Importing a finished part again returns the same report.

    Attributes:
        parts: The ids of the parts, sorted. The rows are in this order.
        fingerprints: Digest of each part; see `Part.fingerprint`.
        failures: The first 100 failed rows of each part, in order.

    Example:
        ```python
        outcomes = dict.fromkeys(Outcome, 0) | {Outcome.ADDED: 2, Outcome.REJECTED: 1}
        report = ImportReport(parts=("00000",), fingerprints=("4f",), rows=3, outcomes=outcomes, uncertain=0, seconds=0.5)
        print(report.failed)  # -> 1
        ```
    """

    parts: tuple[str, ...]
    fingerprints: tuple[str, ...]
    failures: tuple[FailedRow, ...] = ()

    @property
    def failed(self) -> int:
        """Number of failed rows: rejected, not applied or unknown. Rows in `repeats` do not count."""
        return sum(self.outcomes[outcome] for outcome in FAILED_OUTCOMES) - self.repeats

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dict that can be serialised to JSON.

        Example:
            ```python
            print(merge_reports([]).to_dict()["failures"])  # -> []
            ```
        """
        values = attrs.asdict(self, filter=lambda field, _: field.name not in _COUNTS)
        return {**super().to_dict(), **{name: [*value] for name, value in values.items()}}


def import_part(
    part: Part,
    journal: str | os.PathLike[str],
    connection: Connection,
    *,
    earlier: Earlier = "known",
    rate: Rate | None = None,
    on_start: Callable[[Outcomes], object] | None = None,
) -> ImportReport:
    r"""Create the contacts of a part. If a call raises, or its process or machine dies, call the function again to resume.

    Any engine can run this function as a task, any number of times: it is synchronous, its arguments and result can be pickled,
    and its only state is the journal. Do not call it in a thread that runs an event loop.

    Args:
        part: The part.
        journal: Folder of the journals, or their URL on an object store, the same for all parts of a plan, on every worker.
        connection: Settings for the connection to the service. The owner key is read from `OUTREACH_OWNER_KEY`.
        earlier: `"unknown"` if the part may have run before, but its journal is lost or damaged.
        rate: A rate that parts share, such as a `RedisRate`; `None` to use the rate of the connection.
        on_start: Function that receives the `Outcomes` of the run when it starts, for example to `drain` it later.

    Raises:
        InvalidRequest: A file cannot be read, or has changed since the import was planned; the environment has no owner key; the
            journal belongs to another plan or is in use by another worker.
        JournalError: The journal is damaged, cannot be read or written, or was taken over by another worker.
        BulkSuspended: The service was down or throttling for too long, or the run was drained; run the part again later.
        BulkStopped: An error of the service affects every row, such as an unknown key; fix the cause and run the part again.

    Example:
        ```python
        Path("people.csv").write_text("E-mail\nann@company.example\n")
        (part,) = plan(["people.csv"]).parts
        try:
            import_part(part, "journals", Connection(base_url="https://api.example", workspace="space_1"))
        except InvalidRequest as error:
            print(error)  # -> owner_key: OUTREACH_OWNER_KEY is not set in this worker's environment; set it on every worker
        ```
    """
    if trim(os.environ.get("OUTREACH_OWNER_KEY")) is None:
        raise InvalidRequest("owner_key: OUTREACH_OWNER_KEY is not set in this worker's environment; set it on every worker")
    require_unchanged(part)
    record_part(part, journal, connection.workspace, service_address(connection))
    record, options = journal_of(part, journal), part.options

    async def create_contacts() -> None:
        async with connection.create_client(rate) as client:
            run = client.contacts.create_many(
                (row for _, row in planned_rows(part)),
                duplicates=options.duplicates,
                strict_validation=options.strict_validation,
                campaign=options.campaign,
                concurrency=connection.concurrency,
                # Only the part with the repeated e-mails needs the policy, which may read and store its whole input first.
                repeats=options.repeats if part.repeated else "serial",
                blank="clear" if options.blank == "clear" else None,  # the rows of a file have no blank values to keep
                journal=record,
                resume=True,
                earlier=earlier,
                total=part.rows,
                max_outage=connection.max_outage,
                stop_after_rejects=connection.stop_after_rejects,
            )
            async with run as outcomes:
                if on_start is not None:
                    on_start(outcomes)
                async for _ in outcomes:
                    pass

    try:
        anyio.run(create_contacts)
    except OutreachError as failure:
        # Process pools print the causes of an error, and Dask pickles them. Errors of other libraries may quote the request.
        failure.__cause__ = failure.__context__ = None
        raise
    report = record.report()
    if report.state != "finished":
        error = BulkSuspended(f"run suspended: part {part.id} was cancelled; run the part again to send the remaining rows")
        error.resumable = True
        raise error
    return _build_report(part, record, report)


def _build_report(part: Part, record: JournalStore, report: BulkReport) -> ImportReport:
    failed = filter(is_reject, record.outcomes()) if any(map(report.outcomes.get, FAILED_OUTCOMES)) else ()
    failures = (
        FailedRow(str(each.file), each.number, each.outcome.status.value, each.message, *each.outcome.target)
        for each in part.locate(failed)
    )
    return ImportReport(
        parts=(part.id,),
        fingerprints=(part.fingerprint(),),
        failures=tuple(islice(failures, _MAX_FAILURES)),
        **{name: getattr(report, name) for name in _COUNTS},
    )


def merge_reports(reports: Iterable[ImportReport]) -> ImportReport:
    """Merge the reports of parts, in any order; a report may occur more than once. Compare the `rows` with those of the plan.

    Raises:
        InvalidRequest: Two reports of one part differ, because they come from different plans or different journals.

    Example:
        ```python
        outcomes = dict.fromkeys(Outcome, 0) | {Outcome.ADDED: 3}
        report = ImportReport(parts=("00000",), fingerprints=("4f",), rows=3, outcomes=outcomes, uncertain=0, seconds=0.5)
        print(merge_reports([report, report]).rows)  # -> 3
        ```
    """
    by_id: dict[str, ImportReport] = {}
    for report in reports:
        for name in report.parts:
            if (known := by_id.setdefault(name, report)) != report:
                what = "different plans" if known.fingerprints != report.fingerprints else "different journals"
                raise InvalidRequest(f"reports: part {name} has two reports, from {what}; pass the reports of one import")
    ordered = [report for name, report in sorted(by_id.items()) if name == report.parts[0]]
    sums: dict[str, Any] = {name: sum(getattr(each, name) for each in ordered) for name in _SUMS}
    joined: dict[str, Any] = {name: tuple(chain.from_iterable(getattr(each, name) for each in ordered)) for name in _JOINED}
    return ImportReport(**add_reports(ordered), **sums, **joined)
