"""A synchronous client for scripts, without `await`.

`SyncClient` runs an `OutreachClient` in an event loop in a second thread.
It has the same arguments, methods, errors and guarantees:

```python
from outreach_async.sync import SyncClient

rows = ({"email": f"user{number}@company.example"} for number in range(1000))

with SyncClient() as client:
    for campaign in client.campaigns.list():
        print(campaign.name)  # -> Spring
    with client.contacts.create_many(rows, journal="run.db") as outcomes:
        for outcome in outcomes:
            if outcome.error:
                print(outcome.index, outcome.status, outcome.error)
    print(outcomes.report.rows)  # -> 1000
```

Rows are read in the calling thread, so they can come from an object that
is bound to a thread, such as a sqlite3 connection. At most 800 rows more
are read than the run has begun with, and each is sent as soon as it was
read. Where `OutreachClient` awaits a run, call `wait()`, as in
`client.contacts.create_many(rows).wait()`. While the iterable waits for
its next row, no outcome is returned; after slow rows, their outcomes are
awaited first, for up to a tenth of the time that the rows took. Ctrl-C
raises KeyboardInterrupt in the calling thread; each `with` block then
cancels its requests in flight. Threads can share a client, but each pager
and run must be used in one thread. In a program with an event loop, use
`OutreachClient`, because a synchronous call blocks the loop. Greenlets of
gevent can use clients as threads do, if the program calls
`monkey.patch_all()` before its other imports.

In the short examples of this module, `client` is an open `SyncClient`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from inspect import signature
from os import PathLike
from threading import Lock
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar
from weakref import finalize

import anyio
import attrs
from anyio import from_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal
from anyio.lowlevel import checkpoint

from outreach_async import CreatedContact, Response
from outreach_async._plumbing import ReadRows, drop_frames, hide_key
from outreach_async.bulk import BulkProgress, BulkReport, BulkRun, ContactOutcome, Outcomes
from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest, OutreachError, drop_tracebacks
from outreach_async.models import Campaign, CampaignSteps, FieldList, Mailbox, Number, Page, ResponseInfo, Undecodable  # noqa: F401 - a name in inherited annotations
from outreach_async.pagination import Collected, PageCursor, Pager, next_items
from outreach_async.resources import Campaigns, Contacts, Mailboxes, Workspaces

if TYPE_CHECKING:  # tools look up the names of mirrored annotations here
    from collections.abc import Iterable  # noqa: F401 - a name in a mirrored signature

    from outreach_async import bulk, store  # noqa: F401 - as above
    from outreach_async.resources import Seconds  # noqa: F401 - as above

__all__ = ["SyncClient", "SyncOutcomes", "SyncPage", "SyncPager", "SyncRun"]

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item", bound=Campaign | Mailbox)

_BATCH_SIZE: Final = 500  # maximum number of rows that are read at once, when at most half as many wait
_CHUNK_SIZE: Final = 50  # maximum number of rows that a run takes at once
_LINGER: Final = 0.02  # maximum number of seconds to wait for a batch to fill, which limits the delay of outcomes
_PATIENCE: Final = 0.1  # part of the time for reading rows that may be spent on waiting for outcomes
_END: Final = object()
# A waiting thread looks for a Ctrl-C after this many seconds. A lock without a timeout can miss one, and always does on Windows.
_INTERRUPT_DELAY: Final = 0.1


def _mirrors(original: Callable[Concatenate[Any, P], Any]) -> Callable[[Callable[..., T]], Callable[Concatenate[Any, P], T]]:
    """Decorate a method that takes the parameters of the original and returns something else."""

    def decorate(method: Callable[..., T]) -> Callable[Concatenate[Any, P], T]:
        returned, mirrored = signature(method).return_annotation, drop_frames(method)  # a key may be given as an id
        mirrored.__signature__ = signature(original).replace(return_annotation=returned)  # type: ignore[attr-defined]
        return mirrored

    return decorate


# The event loop of a client, which runs in a thread of its own.


class _Interruptible:
    """Work in an event loop, which an exception in the calling thread cancels."""

    _scope: anyio.CancelScope | None = None  # None if the work was interrupted before it reached the event loop

    def __init__(self, portal: BlockingPortal, work: Callable[[], Awaitable[Any]]) -> None:
        self._portal, self._work = portal, work

    async def run(self) -> Any:
        with anyio.CancelScope() as self._scope:
            return await self._work()

    def _cancel(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    def await_step(self, step: Callable[[], Any], result: Future[Any] | None = None) -> Any:
        """Call a function in the event loop. Wait for the result, by default for what the function returns."""
        try:
            self.started = self._portal.start_task_soon(step)
            future, ended = result or self.started, Lock()
            ended.acquire()
            future.add_done_callback(lambda _: ended.release())
            while not ended.acquire(timeout=_INTERRUPT_DELAY):  # `concurrent.futures.wait` would take twice as long
                pass
            return future.result()
        except BaseException as error:
            if isinstance(error, OutreachError):
                drop_tracebacks(error)  # the frames may contain secrets
            # A KeyboardInterrupt can come before the future of the work is known, so cancelling the future is not enough.
            with suppress(RuntimeError):  # the event loop has ended, and the work with it
                self._portal.start_task_soon(self._cancel)  # runs after the step has started, as the event loop keeps their order
            raise


class _BlockFailed(Exception):
    """Stands for the exception that left a `with` block of the caller."""


class _SharedLoop:
    """An event loop that runs while any of its users needs it."""

    def __init__(self) -> None:
        self._lock, self._users, self._exits = Lock(), 0, ExitStack()

    @contextmanager
    def use(self) -> Iterator[BlockingPortal]:
        with self._lock:  # until the event loop has started or ended: the next one cannot start before
            if not self._users:
                self._portal = self._exits.enter_context(start_blocking_portal())
            self._users += 1
        try:
            yield self._portal
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._exits.close()


_SHARED: Final[dict[int, _SharedLoop]] = {}


def run_loop(modules: Mapping[str, Any] = sys.modules) -> AbstractContextManager[BlockingPortal]:
    """Return a context manager that runs an event loop beside the caller. Under gevent, the callers in an OS thread share it."""
    # If gevent has replaced threads by greenlets, the event loop runs in the OS thread of its callers, and asyncio allows one.
    gevent = modules.get("gevent.monkey")
    if gevent is None or not gevent.is_module_patched("threading"):
        return start_blocking_portal()
    if vars(from_thread)["Lock"] is gevent.get_original("threading", "Lock"):
        got = "a call after anyio was imported, whose locks would stop every greenlet"
        raise InvalidRequest(f"gevent: expected monkey.patch_all() before other imports, got {got}; call it first in the program")
    return _SHARED.setdefault(threading.get_native_id(), _SharedLoop()).use()


class ClientLoop:
    """The event loop of a client, in a separate thread."""

    def __init__(self) -> None:
        self.portal: BlockingPortal | None = None
        self._process = os.getpid()

    def start(self, exits: ExitStack) -> None:
        """Start the event loop. The stack stops it."""
        exits.callback(setattr, self, "portal", None)  # calls after the end of the loop raise an error
        self.portal, self._process = exits.enter_context(run_loop()), os.getpid()
        exits.callback(self._abandon_after_fork)

    @property
    def _is_inherited(self) -> bool:
        return self._process != os.getpid()

    def _abandon_after_fork(self) -> None:
        # A forked child has no thread that runs the event loop. Without this, its end would wait for the event loop forever.
        if self.portal is not None and self._is_inherited:
            self.portal._event_loop_thread_id = None  # noqa: SLF001 - there is no other way to end a portal of another process

    def run(self, function: Callable[P, Awaitable[T]], *arguments: P.args, **options: P.kwargs) -> T:
        work = _Interruptible(self.require_portal(), lambda: function(*arguments, **options))
        result: T = work.await_step(work.run)
        return result

    @contextmanager
    def hold(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter and leave an async context manager in the event loop. A Ctrl-C ends the waits for both."""
        # `BlockingPortal.wrap_async_context_manager` waits without a timeout, and can miss a Ctrl-C; see `_INTERRUPT_DELAY`.
        entered: Future[tuple[T, anyio.Event]] = Future()
        failed = False

        def raise_failure() -> None:
            if failed:
                raise _BlockFailed  # for the manager; the exception itself propagates in the calling thread

        async def enter_and_leave() -> None:
            try:
                with suppress(_BlockFailed):
                    async with manager as value:
                        leaving = anyio.Event()
                        entered.set_result((value, leaving))
                        await leaving.wait()
                        raise_failure()
            except BaseException as error:
                if not entered.done():
                    entered.set_exception(error)
                raise

        work = _Interruptible(self.require_portal(), enter_and_leave)
        value, leaving = work.await_step(work.run, entered)
        held = work.started
        try:
            yield value
        except BaseException:
            failed = True
            raise
        finally:
            if not self._is_inherited:
                work.await_step(leaving.set, held)

    def require_portal(self) -> BlockingPortal:
        if self.portal is None:
            remedy = "use it inside `with SyncClient() as client:`"
            raise InvalidRequest(f"client: expected an open client, got a closed one; {remedy}")
        if self._is_inherited:
            got = "one that was opened before this process was forked"
            raise InvalidRequest(f"client: expected a client of this process, got {got}; make a new client")
        return self.portal


# Pages and runs.


@attrs.frozen(kw_only=True, repr=False)
class SyncPage(Page[Item]):
    """A page of the synchronous client.

    Example:
        ```python
        print(len(client.mailboxes.list().page()))  # -> 2
        ```
    """

    _loop: ClientLoop = attrs.field(eq=False, repr=False)

    def next_page(self) -> SyncPage[Item] | None:  # type: ignore[override]  # synchronous, as every method of this client
        """Fetch the page after this one.

        Example:
            ```python
            print(client.mailboxes.list().page().next_page())  # -> None
            ```
        """
        page = self._loop.run(super().next_page)
        return None if page is None else _sync_page(page, self._loop)


def _sync_page(page: Page[Item], loop: ClientLoop) -> SyncPage[Item]:
    """Return a page of the synchronous client with the contents of a page of its client."""
    values = {field.alias: getattr(page, field.name) for field in attrs.fields(Page) if field.alias}
    return SyncPage(**values, loop=loop)


class SyncPager(Generic[Item]):
    """A list that is fetched on demand.

    Iterate over it to get all items of all pages, or fetch one page with
    `page()`.

    Example:
        ```python
        for campaign in client.campaigns.list():
            print(campaign.name)  # -> Spring
        ```
    """

    def __init__(self, pager: Pager[Item], loop: ClientLoop) -> None:
        self._pager, self._loop = pager, loop

    def __iter__(self) -> Iterator[Item]:
        """Iterate over every item once, page by page."""
        cursor: PageCursor[Item] = PageCursor(self._pager.start, self._pager.max_items)
        while not cursor.done:
            yield from self._loop.run(next_items, self._pager, cursor)

    def first(self) -> Item | None:
        """Return the first item or `None`, as `Pager.first` does.

        Example:
            ```python
            print(client.mailboxes.list().first().email)  # -> ada@north.example
            ```
        """
        return next(iter(self), None)

    def page(self) -> SyncPage[Item]:
        """Fetch the page at which an iteration starts, as `await pager` does.

        Example:
            ```python
            print(client.mailboxes.list(page=2, display=1).page().current_page)  # -> 2
            ```
        """
        return _sync_page(self._loop.run(lambda: self._pager), self._loop)

    def pages(self) -> Iterator[SyncPage[Item]]:
        """Iterate over the pages, as `Pager.pages` does.

        Example:
            ```python
            print([len(page.data) for page in client.mailboxes.list(display=1).pages()])  # -> [1, 1]
            ```
        """
        pages = self._pager.pages()
        while (page := self._loop.run(lambda: anext(pages, None))) is not None:
            yield _sync_page(page, self._loop)

    def collect(self, *, prefetch: int = 4) -> Collected[Item]:
        """Return every item once, as `Pager.collect` does.

        Example:
            ```python
            print(len(client.mailboxes.list().collect()))  # -> 2
            ```
        """
        return self._loop.run(self._pager.collect, prefetch=prefetch)


@attrs.frozen
class _SyncResource:
    _client: OutreachClient
    _loop: ClientLoop


class SyncCampaigns(_SyncResource):
    """Methods for a workspace's campaigns; see `resources.Campaigns`."""

    @_mirrors(Campaigns.list)
    def list(self, **options: Any) -> SyncPager[Campaign]:
        """List campaigns, as `Campaigns.list` does."""
        return SyncPager(self._client.campaigns.list(**options), self._loop)

    @_mirrors(Campaigns.steps)
    def steps(self, *arguments: Any, **options: Any) -> CampaignSteps:
        """Return the steps of a campaign, as `Campaigns.steps` does."""
        return self._loop.run(self._client.campaigns.steps, *arguments, **options)


class SyncMailboxes(_SyncResource):
    """Methods for a workspace's mailboxes; see `resources.Mailboxes`."""

    @_mirrors(Mailboxes.list)
    def list(self, **options: Any) -> SyncPager[Mailbox]:
        """List mailboxes, as `Mailboxes.list` does."""
        return SyncPager(self._client.mailboxes.list(**options), self._loop)


class SyncWorkspaces(_SyncResource):
    """Methods for workspaces; see `outreach_async.resources.Workspaces`."""

    @_mirrors(Workspaces.fields)
    def fields(self, **options: Any) -> FieldList:
        """Return all fields that contacts of the workspace can have, as `Workspaces.fields` does."""
        return self._loop.run(self._client.workspaces.fields, **options)


class SyncContacts(_SyncResource):
    """Methods for contacts; see `outreach_async.resources.Contacts`."""

    @_mirrors(Contacts.create)
    def create(self, *arguments: Any, **options: Any) -> CreatedContact:
        """Create one contact, as `Contacts.create` does."""
        return self._loop.run(self._client.contacts.create, *arguments, **hide_key(options))

    @_mirrors(Contacts.create_many)
    def create_many(self, rows: Any, **options: Any) -> SyncRun:
        """Create any number of contacts, as `Contacts.create_many` does. The result is a `SyncRun`."""
        source = CallerRows(rows, **{name: options[name] for name in ("numbers", "normalise", "blank") if name in options})
        if options.get("total") is None:
            options["total"] = source.source.total
        return SyncRun(self._client.contacts.create_many(source, **hide_key(options)), source, self._loop)


class SyncRun:
    """A bulk run that has not started.

    Use it in a `with` block to iterate over the outcomes, or call `wait()`
    for the report.

    Example:
        ```python
        with client.contacts.create_many([{"email": "ann@company.example"}]) as outcomes:
            print(next(outcomes).status)  # -> added
        ```
    """

    def __init__(self, run: BulkRun, rows: CallerRows, loop: ClientLoop) -> None:
        self._run, self._rows, self._loop = run, rows, loop
        self._only_counts = False
        run._remedy = "call wait(), or use it in 'with'"  # noqa: SLF001 - of the warning about a run that is never started

    @property
    def findings(self) -> tuple[str, ...]:
        """What was changed or found in rows so far; see `BulkRun.findings`."""
        return self._run.findings

    def __enter__(self) -> SyncOutcomes:
        """Start the run, and return its outcomes."""
        self._run._is_used = True  # noqa: SLF001 - also if the loop cannot start it
        self._manager = self._loop.hold(self._run)
        return SyncOutcomes(self._manager.__enter__(), self._rows, self._loop, only_counts=self._only_counts)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Cancel the requests in flight, and record how the run ended."""
        try:
            self._manager.__exit__(kind, error, trace)
        finally:
            self._rows.release()

    def wait(self) -> BulkReport:
        """Run to the end and return the report, as awaiting a `BulkRun` does.

        Example:
            ```python
            print(client.contacts.create_many([{"email": "ann@company.example"}]).wait().rows)  # -> 1
            ```
        """
        self._run._only_counts = self._only_counts = True  # noqa: SLF001 - as awaiting the run does
        with self as outcomes:
            deque(outcomes, maxlen=0)
        return outcomes.report


class SyncOutcomes(Iterator[ContactOutcome]):
    """Iterator over the outcomes of a started bulk run.

    Example:
        ```python
        with client.contacts.create_many([{"email": "ann@company.example"}]) as outcomes:
            print(next(outcomes).index, outcomes.progress.total)  # -> 0 1
        ```
    """

    def __init__(self, outcomes: Outcomes, rows: CallerRows, loop: ClientLoop, *, only_counts: bool) -> None:
        self._outcomes, self._rows, self._loop, self._only_counts = outcomes, rows, loop, only_counts
        self._batch: deque[ContactOutcome] = deque()
        self._end: Exception | None = None

    def __next__(self) -> ContactOutcome:
        while not self._batch:
            if self._end is not None:
                end, self._end = self._end, StopIteration()
                raise end
            self._rows.read(self._loop.require_portal().start_task_soon)
            self._batch.extend(self._loop.run(self._receive))
        return self._batch.popleft()

    async def _receive(self) -> list[ContactOutcome]:
        """Return outcomes as soon as there are any, or an empty list if the run needs more rows first."""
        batch: list[ContactOutcome] = []
        with anyio.CancelScope() as scope:

            def leave(seconds: float) -> None:
                scope.deadline = min(scope.deadline, anyio.current_time() + seconds)

            # No outcome reaches the caller while rows are read. If rows are slow to come, the outcomes of those that have come
            # are awaited first, for a time that hardly slows the run down.
            self._rows.watch(partial(leave, 0 if self._only_counts else self._rows.pace * _PATIENCE))
            try:
                async for outcome in self._outcomes:
                    if self._only_counts:
                        continue
                    batch.append(outcome)
                    if len(batch) == 1:
                        leave(_LINGER)
                self._end = StopIteration()
            except Exception as error:
                if not batch:
                    raise
                self._end = error  # raised after the outcomes before it
        return batch

    @property
    def report(self) -> BulkReport:
        """The counts of outcomes so far, even if received but not returned."""
        return self._outcomes.report

    @property
    def progress(self) -> BulkProgress:
        """The current progress: rows, rate, state and estimated time left."""
        return self._loop.require_portal().call(lambda: self._outcomes.progress)

    def drain(self) -> None:
        """Stop reading rows and finish those in flight; see `Outcomes.drain`.

        Example:
            ```python
            rows = ({"email": f"user{number}@company.example"} for number in range(10_000))
            with client.contacts.create_many(rows) as outcomes:
                outcomes.drain()
                print(len(list(outcomes)) < 10_000)  # -> True
            ```
        """
        self._loop.require_portal().call(self._outcomes.drain)


class CallerRows(ReadRows):
    """Rows that are read in the caller's thread, and iterated over in the event loop."""

    # The two threads share a deque, whose methods are atomic. The event loop gets each row as soon as it was read, also while the
    # iterable is slow to return the next one.

    def __init__(self, rows: Any, clock: Callable[[], float] = monotonic, **options: Any) -> None:
        super().__init__(rows, **options)
        if self.source.stream is not None:
            raise InvalidRequest("rows: expected an iterable, got an async iterable; use OutreachClient, or pass a list")
        self._clock = clock
        self._rows: deque[Any] = deque()
        self._end: Exception | None = None
        """What follows the last row: the end, or the exception of the iterable."""
        self._arrived = self._announced = anyio.Event()
        self._on_low: Callable[[], object] = bool  # does nothing
        self.pace = 0.0
        """How many seconds the last `read` took."""

    def read(self, call: Callable[[Callable[[], None]], object]) -> None:
        """Read rows in the caller's thread, if the run needs more. `call` calls a function in the event loop."""
        if not self._is_low:
            return
        began, room = self._clock(), _BATCH_SIZE
        try:
            while room and self._end is None and self._clock() <= began + _LINGER:
                if (row := next(self.source.iterator, _END)) is _END:
                    self._end = StopAsyncIteration()
                else:
                    self._rows.append(row)
                    room -= 1
                self._announce(call)
        except Exception as error:  # noqa: BLE001 - raised by the run, after the outcomes of the rows before it
            self._end = error
            self._announce(call)
        self.pace = self._clock() - began

    def _announce(self, call: Callable[[Callable[[], None]], object]) -> None:
        """Wake the iteration in the event loop, if it waits."""
        if (arrived := self._arrived) is not self._announced:
            call(arrived.set)
            self._announced = arrived

    def release(self) -> None:
        """Drop the iterable in the caller's thread. A generator that nobody else needs is then closed in this thread."""
        self.source.release()
        self._end = self._end or StopAsyncIteration()

    @property
    def _is_low(self) -> bool:
        return self._end is None and len(self._rows) <= _BATCH_SIZE // 2

    def watch(self, on_low: Callable[[], object]) -> None:
        """From now on, call `on_low` when few rows are left. Call this method in the event loop."""
        self._on_low = on_low
        self._call_if_low()

    def _call_if_low(self) -> None:
        if self._is_low:
            self._on_low()

    async def __anext__(self) -> list[Any]:
        """Return the next rows."""
        while True:
            end = self._end  # first: until it is there, rows may be added
            if size := min(len(self._rows), _CHUNK_SIZE):
                rows = [self._rows.popleft() for _ in range(size)]
                self._call_if_low()
                return rows
            if end is not None:
                raise end
            self._arrived = arrived = anyio.Event()
            # Something may have been added before the other thread could see `arrived`.
            await (checkpoint() if self._rows or self._end is not None else arrived.wait())


class SyncClient:
    """A synchronous client of the outreach service, for scripts.

    Use it as a context manager. It has the arguments of `OutreachClient`,
    and `campaigns`, `mailboxes`, `contacts` and `workspaces` with the same
    methods.

    Example:
        ```python
        with SyncClient(transport=FakeTransport(fake), workspace="space_1", owner_key="key_1") as client:
            print(client.contacts.create(NewContact("ann@company.example")).status)  # -> added
            print([mailbox.email for mailbox in client.mailboxes.list()])  # -> ['ada@north.example', 'bob@north.example']
        ```
    """

    if TYPE_CHECKING:
        campaigns: SyncCampaigns
        mailboxes: SyncMailboxes
        contacts: SyncContacts
        workspaces: SyncWorkspaces
    else:
        campaigns, mailboxes = SyncCampaigns, SyncMailboxes  # shown on the class to tools such as `unittest.mock.create_autospec`
        contacts, workspaces = SyncContacts, SyncWorkspaces

    @_mirrors(OutreachClient.__init__)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._bind(OutreachClient(*arguments, **hide_key(options)), ClientLoop())

    @classmethod
    @drop_frames
    def from_config(cls, path: str | PathLike[str] | None = None, **options: Any) -> Self:
        r"""Create a client from a file, as `OutreachClient.from_config` does.

        Example:
            ```python
            Path("outreach.toml").write_text('base_url = "https://api.example"\n[workspaces]\nacme = { id = "space_1" }\n')
            print(SyncClient.from_config("outreach.toml", workspace="acme"))
            # -> <SyncClient <HttpxTransport to https://api.example by httpx> workspace='space_1'>
            ```
        """
        client = object.__new__(cls)
        client._bind(OutreachClient.from_config(path, **hide_key(options)), ClientLoop())
        return client

    def _bind(self, client: OutreachClient, loop: ClientLoop) -> None:
        self._client, self._loop = client, loop
        self._exits = ExitStack()
        self.campaigns = SyncCampaigns(client, loop)
        self.mailboxes = SyncMailboxes(client, loop)
        self.contacts = SyncContacts(client, loop)
        self.workspaces = SyncWorkspaces(client, loop)

    def __enter__(self) -> Self:
        """Start the event loop, and open the client."""
        if self._loop.portal is None:
            with ExitStack() as exits:
                self._loop.start(exits)
                exits.enter_context(self._loop.hold(self._client))
                self._exits = exits.pop_all()
            # A client that was not closed is closed when the program ends, which would otherwise wait for it forever.
            self._exits.callback(finalize(self, self._exits.__exit__, SystemExit, SystemExit(), None).detach)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the connections, and stop the event loop."""
        exits, self._exits = self._exits, ExitStack()  # a copy has an empty stack, and closes nothing
        exits.__exit__(kind, error, trace)

    @_mirrors(OutreachClient.with_options)
    def with_options(self, **options: Any) -> SyncClient:
        """Return a copy with some options replaced, as `OutreachClient` does.

        The copy works while the original is open, and does not need to be
        closed.

        Example:
            ```python
            print(len(client.with_options(workspace="space_1").workspaces.fields()))  # -> 37
            ```
        """
        copy = object.__new__(type(self))
        copy._bind(self._client.with_options(**hide_key(options)), self._loop)
        return copy

    @_mirrors(OutreachClient.request)
    def request(self, *arguments: Any, **options: Any) -> Response:
        """Send any request, as `OutreachClient.request` does.

        Example:
            ```python
            print(client.request("GET", "/workspaces/space_1/all-fields").status)  # -> 200
            ```
        """
        return self._loop.run(self._client.request, *arguments, **options)

    def __repr__(self) -> str:
        """Show the transport and the workspace, never the key."""
        return repr(self._client).replace(type(self._client).__name__, type(self).__name__, 1)
