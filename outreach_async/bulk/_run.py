"""The run that `create_many` returns. Start it with `async with` to iterate over the outcomes, or with `await` for the report."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Generator, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, NoReturn, Self, get_args

import anyio

from outreach_async._core.arguments import require_choice, require_number, require_seconds
from outreach_async._core.attempts import CallOptions, Throttle
from outreach_async._core.engine import Engine
from outreach_async._core.logs import LOGGER
from outreach_async._core.operations import ContactRequests
from outreach_async.bulk._cells import Blank
from outreach_async.bulk._exclusions import choose_finders
from outreach_async.bulk._frames import ArrowStream, Numbers
from outreach_async.bulk._outcomes import BulkReport, ContactOutcome, Order, RejectStreak
from outreach_async.bulk._pipeline import Pipeline, Plan
from outreach_async.bulk._ports import OpenRecorder
from outreach_async.bulk._progress import BulkProgress
from outreach_async.bulk._rows import RecentEmails, Repeats, RowParser, require_fitting
from outreach_async.bulk._source import Source
from outreach_async.bulk._targets import ListCampaigns, Targets
from outreach_async.bulk._throttle import RunThrottle
from outreach_async.errors import InvalidRequest, JournalError

_OWN_FRAMES: Final = 3
"""The number of frames from the caller of `create_many` to a new run."""


def create_plan(
    engine: Engine,
    contact_requests: ContactRequests,
    call_options: CallOptions,
    rows: Iterable[Any] | AsyncIterable[Any] | ArrowStream,
    *,
    campaigns: Callable[[Throttle], ListCampaigns],
    concurrency: int,
    order: Order,
    repeats: Repeats,
    numbers: Numbers,
    normalise: bool | None,
    blank: Blank | None,
    total: int | None,
    stop_after_rejects: int | None,
    max_outage: float | None,
    exclude: Any,
) -> Plan:
    """Validate the options; `create_many` documents them. The run lists campaigns with what `campaigns` returns."""
    workers = min(require_number("concurrency", concurrency, least=1), engine.max_in_flight)
    require_choice("order", order, get_args(Order))
    require_choice("repeats", repeats, get_args(Repeats))
    source = Source(rows, numbers, normalise=normalise, blank=blank)
    require_fitting(blank=blank, duplicates=contact_requests.duplicates)
    for finding in source.findings:
        LOGGER.warning("create_many: %s", finding)
    throttle = RunThrottle(engine.limiter, engine.policy, max_outage=require_seconds("max_outage", max_outage))
    targets = Targets(contact_requests.target, campaigns(throttle))
    return Plan(
        engine=engine,
        duplicates=contact_requests.duplicates,
        call_options=call_options,
        source=source,
        workers=workers,
        order=order,
        reject_streak=RejectStreak(_number_or_none("stop_after_rejects", stop_after_rejects, least=1)),
        parser=RowParser(contact_requests, RecentEmails() if repeats == "error" else None, targets),
        throttle=throttle,
        total=source.total if total is None else _number_or_none("total", total, least=0),
        repeats=repeats,
        blank=blank,
        exclusions=choose_finders(exclude),
    )


def _number_or_none(name: str, value: int | None, *, least: int) -> int | None:
    return None if value is None else require_number(name, value, least=least)


class Outcomes(AsyncIterator[ContactOutcome]):
    """The outcomes of a running bulk run.

    After the last outcome, the iteration raises an exception of the
    iterable of rows, or a `BulkError` if the run stopped early.

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
        """The counts of outcomes so far, with those of earlier processes."""
        return self._pipeline.report

    @property
    def progress(self) -> BulkProgress:
        """The current progress: rows, rate, state and estimated time left."""
        return self._pipeline.progress

    def drain(self) -> None:
        """Stop pulling rows, and let the requests in flight finish.

        Then the iteration ends. With a journal, rows that wait for a retry
        or for the end of a pause are left to a resumed run. Without a
        journal, the outcome of such a row is `not_applied`, or `unknown`
        if the row may have been sent.

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


class BulkRun(Coroutine[Any, Any, BulkReport]):
    """A bulk run that `create_many` has prepared.

    Start it with `async with` to iterate over the outcomes, or with
    `await` for the report. A run is a coroutine, so `asyncio.create_task`,
    the task groups of asyncio and anyio, and the nurseries of trio accept
    it. One that is never started sends nothing, and warns of it as any
    other coroutine does.

    Example:
        ```python
        report = await client.contacts.create_many([{"email": "ann@company.example"}])
        print(report.rows)  # -> 1
        ```
    """

    __name__ = "create_many"  # in the repr of a task
    _is_used = True  # until `__init__` has ended
    _remedy = "await it, or use it in 'async with'"

    def __init__(self, plan: Plan, open_recorder: OpenRecorder | None) -> None:
        self._plan = plan
        self._open_recorder = open_recorder
        self._started = self._only_counts = False
        self._to_end: Coroutine[Any, Any, BulkReport] | None = None
        depth = sys.get_coroutine_origin_tracking_depth()
        self._origin = traceback.format_list(traceback.extract_stack(limit=depth + _OWN_FRAMES)[:-1]) if depth else []
        self._is_used = False

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:  # at the end, globals may be gone
        if not self._is_used and not is_finalizing():
            text = f"create_many: the run was never started, so nothing was sent; {self._remedy}"
            origin = "".join(["\nRun created at (most recent call last)\n", *self._origin]).rstrip() if self._origin else ""
            warnings.warn(text + origin, RuntimeWarning, stacklevel=2, source=self)

    @property
    def findings(self) -> tuple[str, ...]:
        """What was changed or found in the rows read so far.

        They are the columns of a data frame whose values are sent as
        text, although they are not strings; and for each field, the kinds
        of values that `normalise` changed or found, each with its first
        row and the number of rows.
        """
        return self._plan.source.findings

    def __await__(self) -> Generator[Any, Any, BulkReport]:
        """Process all rows, and return the report."""
        return self._run_to_end().__await__()

    # A task group passes on no awaitable, only a coroutine.

    def send(self, value: Any) -> Any:
        """Continue the run, as a task does."""
        return self._coroutine().send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an exception in the run, as a task does that is cancelled."""
        return self._coroutine().throw(*error)

    def close(self) -> None:
        """End a run that is not awaited any more."""
        self._is_used = True
        if self._to_end is not None:
            self._to_end.close()

    def _coroutine(self) -> Coroutine[Any, Any, BulkReport]:
        self._is_used = True
        self._to_end = self._to_end or self._run_to_end()
        return self._to_end

    async def _run_to_end(self) -> BulkReport:
        self._only_counts = True
        async with self as outcomes:
            async for _ in outcomes:
                pass
        return outcomes.report

    async def __aenter__(self) -> Outcomes:
        """Start the workers, and return the outcomes."""
        self._is_used = True  # also if it cannot start
        if self._started:
            raise InvalidRequest("create_many: this run has already started; call create_many again to start another")
        self._plan.engine.require_open()
        self._started = True
        self._pipeline = Pipeline(self._plan)
        await self._pipeline.open(self._open_recorder, only_counts=self._only_counts)
        # Its own group, because the iterable of rows may end in peace when the requests in flight are cancelled.
        self._reading = await anyio.create_task_group().__aenter__()
        if (reader := self._pipeline.reader) is not None:
            self._reading.start_soon(reader.run)
        self._group = await anyio.create_task_group().__aenter__()
        self._pipeline.start(self._group)
        return Outcomes(self._pipeline)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Cancel requests in flight, record the end, and pass exceptions on."""
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
        self._is_used = True
        raise InvalidRequest(
            "create_many: expected `async with ... as outcomes`, got `async for`; iterate over `outcomes` inside the block"
        )


def with_names(run: BulkRun, names: Mapping[tuple[str, str], str]) -> BulkRun:
    """Let a run record the names of campaigns that its caller has replaced by ids in the rows, and return the run."""
    run._plan.parser.targets.names.update(names)  # noqa: SLF001 - not a method for users
    return run
