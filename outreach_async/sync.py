"""A synchronous client for scripts: the methods of `OutreachClient`, without `async` and `await`.

`SyncClient` runs an `OutreachClient` in an event loop in a second thread. It has the same arguments, methods, errors and
guarantees. Iterate over lists with a `for` loop. The client reads `OUTREACH_BASE_URL`, `OUTREACH_OWNER_KEY` and
`OUTREACH_WORKSPACE` from the environment, unless you pass their values as arguments:

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

Rows are read in the calling thread, so they can come from an object that is bound to a thread, such as a sqlite3 connection. Rows
and outcomes are passed between the threads in batches. `create_many` takes less than twice the CPU time of the async client.

Ctrl-C raises KeyboardInterrupt in the calling thread. Each `with` block then cancels its requests in flight and closes its
connections. A run with a journal can be resumed. Threads can share a client, but each pager and run must be used in one thread.
In a program with an event loop, use `OutreachClient`, because a synchronous call blocks the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from datetime import timedelta
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, Unpack

import attrs
from anyio.from_thread import start_blocking_portal

from outreach_async._engine.shared_rate import Rate
from outreach_async._service.contacts import CreatedContact, NewContact
from outreach_async._service.retry import RetryPolicy
from outreach_async._sync_run import CallerRows, ClientLoop, SyncOutcomes, SyncRun
from outreach_async._vocabulary import UNSET, DuplicatePolicy, Unset
from outreach_async.bulk import ArrowStream, Numbers, Order, Repeats
from outreach_async.client import OutreachClient
from outreach_async.models import Campaign, CampaignSteps, FieldList, Mailbox, Page
from outreach_async.pagination import Collected, HasId, PageCursor, Pager, next_items
from outreach_async.resources import RowValue, Seconds, UndecodableAction
from outreach_async.transport._secret import hide
from outreach_async.transport._wire import Response, Transport

if TYPE_CHECKING:
    from outreach_async._service.rows import ContactFields
    from outreach_async.bulk.journal import JournalStore
    from outreach_async.bulk.ledger import Changed, Ledger
    from outreach_async.hooks import Hook

__all__ = ["SyncClient", "SyncOutcomes", "SyncPage", "SyncPager", "SyncRun"]

Item = TypeVar("Item", bound=HasId)


def _hide_key(owner_key: str | None) -> Any:
    """Wrap an owner key in a `Secret`, so that no tool prints it."""
    # The traceback of a KeyboardInterrupt contains frames of this module, and some tools print the local variables of frames.
    return hide(owner_key)


class SyncClient:
    """A synchronous client of the outreach service, for scripts. Use it as a context manager.

    It has the same arguments as `OutreachClient`, and its attributes have the same methods.

    Attributes:
        campaigns: Methods for campaigns: `list()` and `steps(campaign)`.
        mailboxes: Methods for mailboxes: `list()`.
        contacts: Methods for contacts: `create(contact)` and `create_many(rows)`.
        workspaces: Methods for workspaces: `fields()`.

    Raises:
        InvalidRequest: An argument is invalid.

    Example:
        ```python
        with SyncClient(transport=FakeTransport(fake), workspace="space_1", owner_key="key_1") as client:
            print(client.contacts.create(NewContact("ann@company.example")).status)  # -> added
            print([mailbox.email for mailbox in client.mailboxes.list()])  # -> ['ada@north.example', 'bob@north.example']
        ```
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        owner_key: str | None = None,
        workspace: str | None = None,
        transport: Transport | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = 30.0,
        deadline: float | None = 120.0,
        max_in_flight: int = 64,
        rate: float | Rate | None = None,
        max_retries: int | None = None,
        retry: RetryPolicy | None = None,
        hooks: Iterable[Hook] = (),
    ) -> None:
        client = OutreachClient(
            base_url,
            owner_key=_hide_key(owner_key),
            workspace=workspace,
            transport=transport,
            headers=headers,
            timeout=timeout,
            deadline=deadline,
            max_in_flight=max_in_flight,
            rate=rate,
            max_retries=max_retries,
            retry=retry,
            hooks=hooks,
        )
        self._bind(client, ClientLoop())

    @classmethod
    def from_config(
        cls,
        path: str | PathLike[str] | None = None,
        *,
        profile: str | None = None,
        workspace: str | None = None,
        read_only: bool = False,
        **options: Any,
    ) -> Self:
        r"""Create a client from a configuration file, as `OutreachClient.from_config` does.

        Raises:
            InvalidRequest: There is no file, a value in it is missing or invalid, or the owner key cannot be read.

        Example:
            ```python
            Path("outreach.toml").write_text('base_url = "https://api.example"\n[workspaces]\nacme = { id = "space_1" }\n')
            print(SyncClient.from_config(workspace="acme"))
            # -> <SyncClient <HttpxTransport to https://api.example by httpx> workspace='space_1'>
            ```
        """
        client = object.__new__(cls)
        original = OutreachClient.from_config(path, profile=profile, workspace=workspace, read_only=read_only, **options)
        client._bind(original, ClientLoop())
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
                exits.callback(self._loop.forget_portal)
                self._loop.portal = exits.enter_context(start_blocking_portal())
                exits.enter_context(self._loop.hold(self._client))
                self._exits = exits.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the connections, and stop the event loop."""
        exits, self._exits = self._exits, ExitStack()  # a copy has an empty stack, and closes nothing
        exits.__exit__(kind, error, trace)

    def with_options(
        self,
        *,
        owner_key: str | None = None,
        workspace: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Seconds = UNSET,
        deadline: Seconds = UNSET,
        max_retries: int | None = None,
        retry: RetryPolicy | None = None,
        hooks: Iterable[Hook] | None = None,
    ) -> Self:
        """Return a copy of the client with some options replaced, as `OutreachClient.with_options` does.

        The copy works while the original is open, and does not need to be closed.

        Example:
            ```python
            with SyncClient(transport=FakeTransport(fake), workspace="space_2") as client:
                print(len(client.with_options(workspace="space_1").workspaces.fields()))  # -> 37
            ```
        """
        copy = object.__new__(type(self))
        client = self._client.with_options(
            owner_key=_hide_key(owner_key),
            workspace=workspace,
            headers=headers,
            timeout=timeout,
            deadline=deadline,
            max_retries=max_retries,
            retry=retry,
            hooks=hooks,
        )
        copy._bind(client, self._loop)
        return copy

    def request(
        self,
        method: str,
        target: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: Seconds = UNSET,
        deadline: Seconds = UNSET,
    ) -> Response:
        """Send any request and return its response, whatever the status, as `OutreachClient.request` does.

        Example:
            ```python
            with SyncClient(transport=FakeTransport(fake)) as client:
                print(client.request("GET", "/workspaces/space_1/all-fields").status)  # -> 200
            ```
        """
        request = self._client.request
        return self._loop.run(request, method, target, body=body, headers=headers, timeout=timeout, deadline=deadline)

    def __repr__(self) -> str:
        """Show the transport and the workspace, never the key."""
        return repr(self._client).replace(type(self._client).__name__, type(self).__name__, 1)


@attrs.frozen(kw_only=True)
class SyncPage(Page[Item]):
    """A page of the synchronous client: `next_page()` returns the page after it.

    Example:
        ```python
        with SyncClient(transport=FakeTransport(fake), workspace="space_1") as client:
            page = client.mailboxes.list(display=1).page()
            print(len(page), page.has_next, page.next_page().current_page)  # -> 1 True 2
        ```
    """

    _loop: ClientLoop = attrs.field(eq=False, repr=False)

    def next_page(self) -> SyncPage[Item] | None:  # type: ignore[override]  # synchronous, as every method of this client
        """Fetch the page after this one, as `Page.next_page` does.

        Example:
            ```python
            with SyncClient(transport=FakeTransport(fake), workspace="space_1") as client:
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
    """A list that is fetched on demand. Iterate over it to get all items of all pages, or fetch one page with `page()`.

    Example:
        ```python
        with SyncClient(transport=FakeTransport(fake), workspace="space_1") as client:
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
        """Return the first item; `None` if the list is empty, as `Pager.first` does.

        Example:
            ```python
            with SyncClient(transport=FakeTransport(fake), workspace="space_1") as client:
                print(client.mailboxes.list().first().email)  # -> ada@north.example
            ```
        """
        return next(iter(self), None)

    def page(self) -> SyncPage[Item]:
        """Fetch the page at which an iteration starts, as awaiting a `Pager` does.

        Example:
            ```python
            with SyncClient(transport=FakeTransport(fake), workspace="space_1") as client:
                print(client.mailboxes.list(page=2, display=1).page().current_page)  # -> 2
            ```
        """

        async def fetch() -> Page[Item]:
            return await self._pager

        return _sync_page(self._loop.run(fetch), self._loop)

    def pages(self) -> Iterator[SyncPage[Item]]:
        """Iterate over the pages, as `Pager.pages` does.

        Example:
            ```python
            with SyncClient(transport=FakeTransport(fake), workspace="space_1") as client:
                print([len(page.data) for page in client.mailboxes.list(display=1).pages()])  # -> [1, 1]
            ```
        """
        pages = self._pager.pages()

        async def next_page() -> Page[Item] | None:
            return await anext(pages, None)

        while (page := self._loop.run(next_page)) is not None:
            yield _sync_page(page, self._loop)

    def collect(self, *, prefetch: int = 4) -> Collected[Item]:
        """Return every item once, as `Pager.collect` does.

        Example:
            ```python
            with SyncClient(transport=FakeTransport(fake), workspace="space_1") as client:
                print(len(client.mailboxes.list().collect()))  # -> 2
            ```
        """
        return self._loop.run(self._pager.collect, prefetch=prefetch)


class _SyncResource:
    def __init__(self, client: OutreachClient, loop: ClientLoop) -> None:
        self._client, self._loop = client, loop


class SyncCampaigns(_SyncResource):
    """Methods for the campaigns of a workspace; see `outreach_async.resources.Campaigns`."""

    def list(
        self,
        *,
        workspace: str | None = None,
        page: int = 1,
        display: int = 100,
        max_items: int | None = None,
        undecodable: UndecodableAction = "raise",
        timeout: Seconds = UNSET,
        deadline: Seconds = UNSET,
    ) -> SyncPager[Campaign]:
        """List campaigns, as `Campaigns.list` does."""
        pager = self._client.campaigns.list(
            workspace=workspace,
            page=page,
            display=display,
            max_items=max_items,
            undecodable=undecodable,
            timeout=timeout,
            deadline=deadline,
        )
        return SyncPager(pager, self._loop)

    def steps(self, campaign: str, *, timeout: Seconds = UNSET, deadline: Seconds = UNSET) -> CampaignSteps:
        """Return the steps of a campaign, as `Campaigns.steps` does."""
        return self._loop.run(self._client.campaigns.steps, campaign, timeout=timeout, deadline=deadline)


class SyncMailboxes(_SyncResource):
    """Methods for the mailboxes of a workspace; see `outreach_async.resources.Mailboxes`."""

    def list(
        self,
        *,
        workspace: str | None = None,
        page: int = 1,
        display: int = 500,
        max_items: int | None = None,
        undecodable: UndecodableAction = "raise",
        timeout: Seconds = UNSET,
        deadline: Seconds = UNSET,
    ) -> SyncPager[Mailbox]:
        """List mailboxes, as `Mailboxes.list` does."""
        pager = self._client.mailboxes.list(
            workspace=workspace,
            page=page,
            display=display,
            max_items=max_items,
            undecodable=undecodable,
            timeout=timeout,
            deadline=deadline,
        )
        return SyncPager(pager, self._loop)


class SyncWorkspaces(_SyncResource):
    """Methods for workspaces; see `outreach_async.resources.Workspaces`."""

    def fields(self, *, workspace: str | None = None, timeout: Seconds = UNSET, deadline: Seconds = UNSET) -> FieldList:
        """Return all fields that contacts of the workspace can have, as `Workspaces.fields` does."""
        return self._loop.run(self._client.workspaces.fields, workspace=workspace, timeout=timeout, deadline=deadline)


class SyncContacts(_SyncResource):
    """Methods for contacts; see `outreach_async.resources.Contacts`."""

    def create(
        self,
        contact: NewContact | Mapping[str, Any] | None = None,
        *,
        email: str | Unset = UNSET,
        duplicates: DuplicatePolicy = "skip",
        strict_validation: bool = True,
        campaign: str | None = None,
        owner_key: str | None = None,
        workspace: str | None = None,
        timeout: Seconds = UNSET,
        deadline: Seconds = UNSET,
        **fields: Unpack[ContactFields],
    ) -> CreatedContact:
        """Create one contact, as `Contacts.create` does."""
        owner_key = _hide_key(owner_key)
        return self._loop.run(
            self._client.contacts.create,
            contact,
            email=email,
            duplicates=duplicates,
            strict_validation=strict_validation,
            campaign=campaign,
            owner_key=owner_key,
            workspace=workspace,
            timeout=timeout,
            deadline=deadline,
            **fields,
        )

    def create_many(
        self,
        rows: Iterable[RowValue] | ArrowStream,
        *,
        duplicates: DuplicatePolicy = "skip",
        strict_validation: bool = True,
        campaign: str | None = None,
        concurrency: int = 64,
        order: Order = "completion",
        repeats: Repeats = "serial",
        numbers: Numbers = "format",
        journal: str | PathLike[str] | JournalStore | None = None,
        ledger: str | PathLike[str] | Ledger | None = None,
        max_age: float | timedelta | None = None,
        changed: Changed = "send",
        resume: bool = False,
        earlier: Literal["known", "unknown"] = "known",
        spool: bool = False,
        total: int | None = None,
        stop_after_rejects: int | None = 50,
        max_outage: float | None = None,
        owner_key: str | None = None,
        workspace: str | None = None,
        timeout: Seconds = UNSET,
        deadline: Seconds = UNSET,
    ) -> SyncRun:
        """Create any number of contacts, as `Contacts.create_many` does. The result is a `SyncRun`."""
        source = CallerRows(rows, numbers)
        run = self._client.contacts.create_many(
            source,
            duplicates=duplicates,
            strict_validation=strict_validation,
            campaign=campaign,
            concurrency=concurrency,
            order=order,
            repeats=repeats,
            numbers=numbers,
            journal=journal,
            ledger=ledger,
            max_age=max_age,
            changed=changed,
            resume=resume,
            earlier=earlier,
            spool=spool,
            total=source.total if total is None else total,
            stop_after_rejects=stop_after_rejects,
            max_outage=max_outage,
            owner_key=_hide_key(owner_key),
            workspace=workspace,
            timeout=timeout,
            deadline=deadline,
        )
        return SyncRun(run, source, self._loop)
