"""Import one part of a plan, record it in the folder of the journals, and merge the reports of all parts.

Any engine, such as Dask, can pickle and run these functions.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import anyio
import attrs
import msgspec

from outreach_async import (
    Outcome,  # noqa: F401 - of annotations
    Transport,
)
from outreach_async._plumbing import (
    Backend,
    add_reports,
    create_or_read,
    create_transport,
    is_url,
    open_place,
    parse_base_url,
    require_id,
    require_number,
    require_rate,
    require_same_run,
    require_seconds,
    require_types,
    service_address,
    translate_errors,
    trim,
)
from outreach_async.bulk import BulkReport, Exclusions, LedgerCounts, Outcomes, Targeted  # noqa: F401 - of annotations
from outreach_async.client import OutreachClient
from outreach_async.errors import BulkSuspended, InvalidRequest, OutreachError
from outreach_async.importer import RowOutcome, is_reject
from outreach_async.models import FAILED_OUTCOMES
from outreach_async.parts._planning import PLAN_NAME, Part, PlannedFile, PlanRecord, planned_rows, require_unchanged
from outreach_async.rates import Rate, RateCoordinator, RateShare
from outreach_async.store import Earlier, Identity, Store

_FILE_COLUMN: Final = "_file"  # of rejects, before the columns that every rejects file has
_MAX_FINDINGS: Final = 10  # of a part whose lines are reported


class _PartRecord(msgspec.Struct):
    part: Part
    version: Literal[1] = 1


def journal_of(part: Part, folder: str | os.PathLike[str]) -> Store:
    """Return the journal of a part. The journal has the fingerprint of the part, so a part of another plan cannot resume it."""
    place = os.fspath(folder)
    source = f"rows with repeated e-mails from {len(part.files)} files"
    if not part.repeated:
        source = f"{part.files[0].location}, piece {part.pieces[0].number}"
    location = f"{place.rstrip('/')}/{part.id}" if is_url(place) else Path(place, f"{part.id}.db")
    return Store(location, source=source, fingerprint=part.fingerprint())


def record_part(part: Part, folder: str | os.PathLike[str], workspace: str, address: str | None) -> None:
    """Record a part, its plan and its destination in the folder before the part is sent. A missing folder is created."""
    objects, place = open_place(os.fspath(folder)), os.fspath(folder)
    identity = Identity(workspace, options={}, address=address)
    record = msgspec.json.encode(PlanRecord(part.plan, attrs.asdict(identity, recurse=False), 1, part.options.parts))
    with translate_errors(place):
        # The first part to start decides. An object is never replaced, so parts that start at the same time agree.
        if (recorded := create_or_read(objects, PLAN_NAME, record)) != record:
            found = None
            with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                found = msgspec.json.decode(recorded, type=PlanRecord)
            if found is None or found.plan != part.plan:
                raise InvalidRequest(
                    f"journal: {place} belongs to another plan: the files or the options of the import differ;"
                    ' restore them, or use a new folder with earlier="unknown", because some rows may have been sent'
                )
            require_same_run(place, identity, found.identity)
        create_or_read(objects, f"{part.id}.json", msgspec.json.encode(_PartRecord(part)), after=PLAN_NAME)


NO_LIMIT: Final = 1e6  # the first rate on one machine if none is given: few processes need no slow start, as one needs none


def stop_run(outcomes: Outcomes | None) -> RateShare:
    """End a run, and return a share that permits no more requests."""
    if outcomes is not None:
        outcomes.drain()
    return RateShare(rate=1.0, expires_in=RateCoordinator.LIFETIME, hold=RateCoordinator.LIFETIME)


def find_part(folder: str | os.PathLike[str], name: str, fingerprint: str | None) -> Part | None:
    """Return the part of a journal; `None` if no import in parts wrote it.

    Args:
        folder: The folder or the URL of the journals.
        name: The name of the journal.
        fingerprint: The fingerprint of the journal's report.

    Raises:
        JournalError: The folder cannot be read.

    Example:
        ```python
        print(find_part("journals", "00000", None))  # -> None
        ```
    """
    require_types(find_part, locals())
    with translate_errors(os.fspath(folder)):
        try:
            part = msgspec.json.decode(open_place(os.fspath(folder)).read(f"{name}.json"), type=_PartRecord).part
        except (FileNotFoundError, msgspec.MsgspecError, ValueError):
            return None
    return part if part.fingerprint() == fingerprint else None


def results_of(part: Part, journal: str | os.PathLike[str]) -> Iterator[RowOutcome]:
    r"""Yield what became of each row of a part, in order.

    For a part that is not finished, it yields the rows with an outcome.
    `ResultsFile` writes them, and `to_dict` returns the columns of such a
    file. Iterating raises an `InvalidRequest` if a file has changed since
    the import was planned or cannot be read, and a `JournalError` if the
    journal is damaged.

    Example:
        ```python
        Path("people.csv").write_text("E-mail\nann@company.example\n")
        (part,) = plan(["people.csv"]).parts
        print([found.outcome.id for found in results_of(part, "journals")])  # -> []
        ```
    """
    if find_part(journal, part.id, part.fingerprint()) is not None and (record := journal_of(part, journal)).exists():
        yield from part.locate(record.outcomes())


class RejectsTable:
    r"""The columns of a rejects file of several files, and `_file`.

    Columns of one field are one column.

    Args:
        files: The files of a plan or of its parts.

    Attributes:
        headers: The names of the columns, for `RejectsFile`.

    Example:
        ```python
        Path("may.csv").write_text("E-mail,Firm\nann@company.example,Acme\n")
        Path("june.csv").write_text("Address\nbo@company.example\n")
        made = plan(["may.csv", "june.csv"], overrides={"Firm": "company_name", "Address": "email"})
        print(RejectsTable(made.files).headers)  # -> ('E-mail', 'Firm', '_file')
        ```
    """

    def __init__(self, files: Iterable[PlannedFile]) -> None:
        require_types(RejectsTable, locals())
        require_types(RejectsTable, {"files": (files := [*files])})  # those of an iterator, too
        self._places = dict[str, list[_Column]]()
        columns: dict[_Column, str] = {}
        for file in files:
            pairs = _columns_of(file)
            self._places[file.location] = [column for column, _ in pairs]
            for column, header in pairs:
                if column not in columns:  # two files may use one name for two fields; the code of the second is unambiguous
                    columns[column] = column[0] if header in columns.values() else header
        self._columns = [*columns]
        self.headers = (*columns.values(), _FILE_COLUMN)

    def reject(self, found: RowOutcome) -> RowOutcome:
        r"""Return a failed row as `RejectsFile.add` takes it.

        Example:
            ```python
            Path("people.csv").write_text("E-mail,City\n,Lyon\n")
            made = plan(["people.csv"])
            await client.contacts.create_many([{"email": ""}], journal="run.db")
            (found,) = made.parts[0].locate(Store("run.db").outcomes())
            print(RejectsTable(made.files).reject(found).cells[:2])  # -> ['', 'Lyon']
            ```
        """
        location = str(found.file)
        cells = dict(zip(self._places[location], found.cells, strict=False))  # a row may have more or fewer cells than columns
        return attrs.evolve(found, cells=[*(cells.get(column, "") for column in self._columns), location], headers=self.headers)


_Column: TypeAlias = tuple[str, int]
"""A field's code and -1, for its second column -2, and so on; for an ignored column its name and 0, or its index if unnamed."""


def _columns_of(file: PlannedFile) -> list[tuple[_Column, str]]:
    counts, numbers = Counter[str](), dict[int, int]()
    for at in dict.fromkeys([*chain.from_iterable(file.fallbacks), *range(len(file.codes))]):
        if code := file.codes[at]:
            counts[code] -= 1
            numbers[at] = counts[code]
    return [
        ((code, numbers[at]) if code else (name, 0 if name.strip() else at), name)
        for at, (name, code) in enumerate(zip(file.headers, file.codes, strict=True))
    ]


_MAX_FAILURES: Final = 100  # failed rows that a report lists; `results_of` has all of them
_SUMS: Final = ("rows", "uncertain", "repeats", "seconds")
_JOINED: Final = ("parts", "fingerprints", "failures")
_COUNTS: Final = frozenset(field.name for field in attrs.fields(BulkReport))


@attrs.frozen(kw_only=True)
class Connection:
    """Settings for a worker's connection to the service.

    Each worker creates its own client, because clients cannot be pickled.
    The settings contain no secret: the owner key, the proxy and the
    certificates come from the worker's environment. Invalid values raise
    `InvalidRequest`.

    Attributes:
        base_url: Address of the service, without user and password.
        workspace: Id of the workspace.
        backend: How to connect, by the name that `--backend` of the
            command takes.
        concurrency: Maximum number of requests in flight per part.
        rate: Maximum number of requests per second of each part; `None` to
            learn the rate.
        timeout: Timeout per attempt, in seconds; `None` for no limit.
        deadline: Time limit for all attempts of a row together, in
            seconds, without waits and outages; `None` for no limit.
        max_outage: Maximum time without a successful request, in seconds.
            After that time, the part is suspended.
        stop_after_rejects: Number of rows of a part after which it stops
            if the service rejects all of them; see `create_many`.

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
        require_types(Connection, {"backend": self.backend})
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
        """Create a client of these settings and the environment's owner key.

        `rate` is a rate that it shares.

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
        line: The line on which the row begins, from 1. The first row of a
            Parquet file is line 2, as in a file with a header.
        status: The row's outcome: `rejected`, `not_applied` or `unknown`.
        message: The error's message.
        workspace: Id of the row's workspace; `None` if the row names a
            target that is unknown.
        campaign: Id of the row's campaign; `None` if unknown or none.

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


@attrs.frozen(kw_only=True, repr=False)
class ImportReport(BulkReport):
    """The report of parts of an import.

    Importing a finished part again returns the same report.

    Attributes:
        parts: The ids of the parts, sorted. The rows are in this order.
        fingerprints: Digest of each part; see `Part.fingerprint`.
        failures: The first 100 failed rows of each part, in order.
        seconds: The sum of the durations of the parts, in seconds; they
            may have run at the same time.

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
        """Number of rows rejected, not applied or unknown, without `repeats`."""
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
    exclude: Sequence[Exclusions] = (),
    rate: Rate | None = None,
    on_start: Callable[[Outcomes], object] | None = None,
) -> ImportReport:
    r"""Create the contacts of a part.

    If a call raises, or its process or machine dies, call the function
    again to resume.

    Any engine can run this function as a task, any number of times: it is
    synchronous, its arguments and result can be pickled, and its only
    state is the journal. Do not call it in a thread that runs an event
    loop.

    Args:
        part: The part.
        journal: Folder of the journals, or their URL on an object store,
            the same for all parts of a plan, on every worker.
        connection: Settings for the connection to the service. The owner
            key is read from `OUTREACH_OWNER_KEY`.
        earlier: `"unknown"` if the part may have run before, but its
            journal is lost or damaged.
        exclude: Lists of people who must not be written to. They are no
            part of the plan, so a later call may have others.
        rate: A rate that parts share, such as a `RedisRate`; `None` to use
            the rate of the connection.
        on_start: Function that receives the `Outcomes` of the run when it
            starts, for example to `drain` it later.

    Raises:
        InvalidRequest: A file cannot be read, or has changed since the
            import was planned; the environment has no owner key; the
            journal belongs to another plan or is in use by another worker.
        JournalError: The journal is damaged, cannot be read or written, or
            was taken over by another worker.
        BulkSuspended: The service was down or throttling for too long, or
            the run was drained; run the part again later.
        BulkStopped: An error of the service affects every row, such as an
            unknown key; fix the cause and run the part again.

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
    require_types(import_part, locals())
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
                exclude=exclude or None,
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


def _build_report(part: Part, record: Store, report: BulkReport) -> ImportReport:
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
    """Merge the reports of parts, in any order, even if some occur twice.

    Compare the `rows` with those of the plan.

    Raises:
        InvalidRequest: Two reports of one part differ, because they come
            from different plans or different journals.

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
