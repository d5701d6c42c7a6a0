"""The run that `create_many` returns. Start it with `async with` to iterate over the outcomes, or with `await` for the report."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Generator, Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, NoReturn, Self, get_args

import anyio
import attrs

from outreach_async._core.arguments import require_choice, require_number, require_seconds, type_name
from outreach_async._core.attempts import CallOptions, Throttle
from outreach_async._core.engine import Engine
from outreach_async._core.events import LOGGER
from outreach_async._core.operations import ContactRequests
from outreach_async._files.objects import is_url, open_objects
from outreach_async.bulk._cells import Blank, require_clearing
from outreach_async.bulk._frames import ArrowStream, Numbers
from outreach_async.bulk._outcomes import BulkReport, ContactOutcome, Order, RejectStreak
from outreach_async.bulk._progress import BulkProgress
from outreach_async.bulk._rows import WHOLE_INPUT, RecentEmails, Repeats, RowParser
from outreach_async.bulk._run.pipeline import Pipeline, Plan
from outreach_async.bulk._run.recording import JournalledThrottle
from outreach_async.bulk._source import Source
from outreach_async.bulk._targets import ListCampaigns, Targets
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.models import Target
from outreach_async.store.journal import Identity, JournalOptions, JournalStore, OpenJournal, journal_at, open_journal
from outreach_async.store.journal._records import Earlier
from outreach_async.store.ledger import Changed, Ledger, LedgerOptions, OpenLedger, open_ledger
from outreach_async.transport._urls import service_address


@attrs.frozen(kw_only=True)
class BulkOptions:
    """The options of a bulk run; `create_many` documents them."""

    concurrency: int
    order: Order
    repeats: Repeats
    numbers: Numbers
    normalise: bool | None
    blank: Blank | None
    journal: str | os.PathLike[str] | JournalStore | None
    ledger: str | os.PathLike[str] | Ledger | None
    max_age: float | timedelta | None
    changed: Changed
    resume: bool
    earlier: Earlier
    spool: bool
    total: int | None
    stop_after_rejects: int | None
    max_outage: float | None


def create_run(
    engine: Engine,
    contact_requests: ContactRequests,
    call_options: CallOptions,
    rows: Iterable[Any] | AsyncIterable[Any] | ArrowStream,
    *,
    options: BulkOptions,
    identity: Mapping[str, Any],
    campaigns: Callable[[Throttle], ListCampaigns],
) -> BulkRun:
    """Validate the options. Return a run that has not started, and lists campaigns with what `campaigns` returns."""
    workers = min(require_number("concurrency", options.concurrency, least=1), engine.max_in_flight)
    require_choice("order", options.order, get_args(Order))
    require_choice("repeats", options.repeats, get_args(Repeats))
    require_choice("earlier", options.earlier, get_args(Earlier))
    source = Source(rows, options.numbers, normalise=options.normalise, blank=options.blank)
    require_clearing(options.blank, contact_requests.duplicates)
    for finding in source.findings:
        LOGGER.warning("create_many: %s", finding)
    throttle = JournalledThrottle(engine.limiter, engine.policy, max_outage=require_seconds("max_outage", options.max_outage))
    targets = Targets(Target(identity["workspace"], identity["options"]["campaign"]), campaigns(throttle))
    plan = Plan(
        engine=engine,
        duplicates=contact_requests.duplicates,
        call_options=call_options,
        source=source,
        workers=workers,
        order=options.order,
        reject_streak=RejectStreak(_number_or_none("stop_after_rejects", options.stop_after_rejects, least=1)),
        parser=RowParser(contact_requests, RecentEmails() if options.repeats == "error" else None, targets),
        throttle=throttle,
        total=source.total if options.total is None else _number_or_none("total", options.total, least=0),
    )
    # Last, because these options depend on others, which must be valid by then.
    address = service_address(engine.transport)
    ledger_options = _create_ledger_options(options, identity, address, call_options.timeout, source)
    journal_options = None if ledger_options else _create_journal_options(options, identity, address)
    return BulkRun(plan, journal_options, ledger_options)


def _number_or_none(name: str, value: int | None, *, least: int) -> int | None:
    return None if value is None else require_number(name, value, least=least)


def _create_journal_options(options: BulkOptions, identity: Mapping[str, Any], address: str | None) -> JournalOptions | None:
    journal = options.journal
    if journal is None:
        if options.repeats in WHOLE_INPUT:
            what = f"repeats: {options.repeats!r} needs a journal, to store the whole input before the first row is sent"
            raise InvalidRequest(f"{what}; pass a journal")
        for name, needed in ("resume", options.resume), ("spool", options.spool), ("earlier", options.earlier == "unknown"):
            if needed:
                raise InvalidRequest(f'{name}: needs a journal, got None; pass journal="run.db"')
        return None
    if isinstance(journal, str | os.PathLike):
        journal = journal_at(journal)
    elif not isinstance(journal, JournalStore):
        raise InvalidRequest(f"journal: expected a path, URL or Journal, got {type_name(journal)}; pass the path of a file")
    recorded = {**identity["options"], "repeats": options.repeats, "spool": options.spool}
    recorded |= {"blank": "clear"} if options.blank == "clear" else {}
    known = Identity(identity["workspace"], recorded, journal.source, journal.fingerprint, journal.mapping, address)
    return JournalOptions(journal, known, options.resume, options.spool, options.repeats, options.earlier)


def _create_ledger_options(
    options: BulkOptions, identity: Mapping[str, Any], address: str | None, timeout: float | None, source: Source
) -> LedgerOptions | None:
    require_choice("changed", options.changed, get_args(Changed))
    ledger, request = options.ledger, identity["options"]
    if ledger is None:
        for name, given in ("max_age", options.max_age is not None), ("changed", options.changed == "ignore"):
            if given:
                raise InvalidRequest(f'{name}: needs a ledger, got None; pass ledger="contacts.ledger"')
        return None
    if isinstance(ledger, str | os.PathLike):
        ledger = Ledger(ledger)
    elif not isinstance(ledger, Ledger):
        raise InvalidRequest(f"ledger: expected a path, URL or Ledger, got {type_name(ledger)}; pass the path of a file")
    if is_url(ledger.location):
        open_objects(str(ledger.location), "ledger")  # refuses an unusable URL before the run starts; no request is sent
    known = Identity(identity["workspace"], {**request, "repeats": options.repeats, "timeout": timeout}, address=address)
    fields = {name: value for name, value in request.items() if name != "campaign"}
    ignore = options.changed == "ignore"
    ledger_options = LedgerOptions(ledger, known, options.repeats, fields, options.max_age, ignore_changes=ignore)
    _require_ledger_options(options, request["duplicates"], is_rereadable=source.read_again is not None)
    return ledger_options


def _require_ledger_options(options: BulkOptions, duplicates: str, *, is_rereadable: bool) -> None:
    for name in "journal", "resume", "spool":
        if getattr(options, name):
            raise InvalidRequest(f"{name}: conflicts with ledger, which has a journal of its own; omit {name}")
    if options.earlier == "unknown":
        raise InvalidRequest("earlier: conflicts with ledger; to send every row again, pass max_age=0")
    if options.repeats == "coalesce":
        raise InvalidRequest('repeats: "coalesce" conflicts with ledger; pass "serial", "last", "first" or "error"')
    if options.repeats in WHOLE_INPUT and not is_rereadable:
        raise InvalidRequest(
            f"repeats: with a ledger, {options.repeats!r} needs rows that can be read twice, got an iterator or a stream; pass a"
            ' list or a data frame, or "serial"'
        )
    if duplicates == "skip" and options.changed == "send":
        raise InvalidRequest(
            'duplicates: with a ledger and "skip", the service would ignore each changed row; pass duplicates="overwrite" or'
            ' "update_missing_fields", or changed="ignore" to send only new contacts'
        )


class Outcomes(AsyncIterator[ContactOutcome]):
    """The outcomes of a running bulk run.

    After the last outcome, the iteration raises an exception of the iterable of rows, or a `BulkError` if the run stopped early.

    Example:
        ```python
        async with client.contacts.create_many([{"email": "ann@company.example"}]) as outcomes:
            async for outcome in outcomes:
                print(outcome.status)  # -> added
            print(outcomes.report.rows, outcomes.progress.rate >= 0)  # -> 1 True
        ```
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    @property
    def report(self) -> BulkReport:
        """The counts of the outcomes returned so far, with those of earlier processes if a journal is resumed."""
        return self._pipeline.report

    @property
    def progress(self) -> BulkProgress:
        """The current progress: rows done, rate, state and estimated time left."""
        return self._pipeline.progress

    def drain(self) -> None:
        """Stop pulling rows, and let the requests in flight finish. Then the iteration ends.

        With a journal, rows that wait for a retry or for the end of a pause are left to a resumed run. Without a journal, the
        outcome of such a row is `not_applied`, or `unknown` if the row may have been sent.

        Example:
            ```python
            rows = ({"email": f"user{number}@company.example"} for number in range(10_000))
            async with client.contacts.create_many(rows) as outcomes:
                async for outcome in outcomes:
                    outcomes.drain()
            print(outcomes.report.rows < 10_000)  # -> True
            ```
        """
        self._pipeline.drain()

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, ContactOutcome]:
        """Return the next outcome."""
        return self._pipeline.next()  # not a coroutine function: every outcome passes here


class BulkRun:
    """A bulk run. Start it with `async with` to iterate over the outcomes, or with `await` for the report.

    Example:
        ```python
        report = await client.contacts.create_many([{"email": "ann@company.example"}])
        print(report.rows)  # -> 1
        ```
    """

    def __init__(self, plan: Plan, journal_options: JournalOptions | None, ledger_options: LedgerOptions | None) -> None:
        self._plan = plan
        self._journal_options = journal_options
        self._ledger_options = ledger_options
        self._started = self._only_counts = False

    @property
    def findings(self) -> tuple[str, ...]:
        """What was changed or found in the rows read so far.

        They are the columns of a data frame whose values are sent as text, although they are not strings; and for each field, the
        kinds of values that `normalise` changed or found, each with its first row and the number of rows.
        """
        return self._plan.source.findings

    def __await__(self) -> Generator[Any, Any, BulkReport]:
        """Process all rows, and return the report."""
        return self._run_to_end().__await__()

    async def _run_to_end(self) -> BulkReport:
        self._only_counts = True
        async with self as outcomes:
            async for _ in outcomes:
                pass
        return outcomes.report

    async def __aenter__(self) -> Outcomes:
        """Start the workers, and return the outcomes."""
        if self._started:
            raise InvalidRequest("create_many: this run has already started; call create_many again to start another")
        self._plan.engine.require_open()
        self._started = True
        opened: OpenJournal | OpenLedger | None = None
        if self._ledger_options is not None:
            opened = await open_ledger(self._ledger_options)
        elif self._journal_options is not None:
            opened = await open_journal(self._journal_options)
        self._pipeline = Pipeline(self._plan, opened, only_counts=self._only_counts)
        # Its own group, because the iterable of rows may end in peace when the requests in flight are cancelled.
        self._reading = await anyio.create_task_group().__aenter__()
        if (reader := self._pipeline.reader) is not None:
            self._reading.start_soon(reader.run)
        self._group = await anyio.create_task_group().__aenter__()
        self._pipeline.start(self._group)
        return Outcomes(self._pipeline)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Cancel the requests in flight, and record how the run ended. An exception of the block propagates unchanged."""
        reader, is_raising = self._pipeline.reader, kind is not None
        if reader is not None:  # also at the end of the run: it may still wait for rows that are no longer needed
            reader.stop()
        try:
            await self._end(is_raising=is_raising)
        except BaseException:
            is_raising = True
            raise
        finally:
            self._plan.source.release()
            await self._reading.__aexit__(None, None, None)
            if reader is not None and not is_raising:
                reader.raise_failure()

    async def _end(self, *, is_raising: bool) -> None:
        try:
            self._group.cancel_scope.cancel()
            # The block's exception is not passed to the task group, which would wrap it in an exception group.
            await self._group.__aexit__(None, None, None)
        except BaseException:
            is_raising = True
            raise
        finally:
            with anyio.CancelScope(shield=True):  # a cancelled run also commits the outcomes it has
                try:
                    await self._pipeline.close()
                except JournalError:
                    if not is_raising:  # this error must not replace a cancellation or the caller's own exception
                        raise

    def __aiter__(self) -> NoReturn:
        # Only the end of an `async with` block can stop the workers.
        raise InvalidRequest(
            "create_many: expected `async with ... as outcomes`, got `async for`; iterate over `outcomes` inside the block"
        )


def with_names(run: BulkRun, names: Mapping[tuple[str, str], str]) -> BulkRun:
    """Let a run record the names of campaigns that its caller has replaced by ids in the rows, and return the run."""
    run._plan.parser.targets.names.update(names)  # noqa: SLF001 - not a method for users
    return run
