"""Pagination. `PageCursor` decides which page comes next, without I/O; `Pager` fetches the pages."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast

import anyio
import attrs

from outreach_async._core.arguments import require_number
from outreach_async._core.retry import explain_status
from outreach_async._display import Tabular, show_list
from outreach_async.errors import OutreachError, StatusError, UnexpectedResponse
from outreach_async.models import Campaign, Mailbox, Number, Page, Undecodable

T = TypeVar("T", bound=Campaign | Mailbox)


class Collected(list[T], Tabular):
    """All items of a list, each once, with statistics of the page walk.

    Attributes:
        total_found: Length of the list, as stated in the last page that
            was read; `None` if there was no page.
        repeats: Number of items that appeared again on a later page,
            because other items were inserted during the walk.
        missing: Number of items that the walk missed: the largest
            `total_found` of any page, minus the number of items found.
            Always 0 if `max_items` ended the walk, or if the walk started
            after page 1.
        undecodable: Items that do not match the API documentation; always
            empty without `undecodable="keep"`.

    Example:
        ```python
        boxes = await client.mailboxes.list(display=1).collect()
        print(len(boxes), boxes.total_found, boxes.repeats, boxes.missing)  # -> 2 2 0 0
        ```
    """

    def __init__(self, items: Iterable[T], cursor: PageCursor[T]) -> None:
        super().__init__(items)
        self.total_found: Number | None = cursor.total_found
        self.repeats = cursor.repeats
        self.missing = cursor.missing
        self.undecodable = cursor.undecodable

    def __repr__(self) -> str:
        return show_list(self)

    def _table(self) -> Sequence[Any]:
        return self


class PageCursor(Generic[T]):
    """The state of a walk over the pages of a list. The cursor decides which page comes next."""

    # A walk ends at page `total_pages`, at an empty page, and at an error for a page that may be past the end of the list. It
    # also ends at a page that only repeats items of earlier pages, unless items inserted during the walk explain the repeats. A
    # walk does not end at a short page, because a service may silently reduce `display`.
    # The service may number its pages from 0. Page `total_pages` then does not exist: the response is an error, has no items, or
    # repeats items. After such a response, a walk that started at page 1 visits page 0. If the list has grown during the walk,
    # the walk then visits the pages after page 0 again, because items may have moved to them.
    # If the service numbers its pages from 1, it may answer page 0 with page 1. A walk that started at page 0 then continues
    # after page 1, which has no new items.
    # An error with a success status, such as `{"status": "error"}` with status 200, may have any cause. It marks the end only if
    # page 0 then proves that the service numbers its pages from 0. Otherwise, it is raised.

    def __init__(self, first: int, max_items: int | None = None) -> None:
        self.first = self.number = first
        self.done = False
        self.has_list_items = False
        self.total_found: Number | None = None
        self.repeats = 0
        self.undecodable: list[Undecodable] = []
        self._total_pages: Number = first
        self._items_left = max_items
        self._seen_ids = set[Hashable]()
        self._end_error: OutreachError | None = None
        self._looking_back = False
        self._first_total: Number | None = None
        self._max_total: Number = 0
        self._pass_total: Number | None = None
        self._pass_repeats = 0

    @property
    def missing(self) -> int:
        """The largest `total_found` of any page, minus the items found."""
        # Deletions move items onto pages that were already visited. Only the largest count includes items missed in this way.
        return 0 if self.first > 1 or self._items_left == 0 else max(0, int(self._max_total) - len(self._seen_ids))

    @property
    def _last_page(self) -> int:
        return int(self._total_pages) - (self._looking_back or self.first == 0)

    def next_pages(self, limit: int) -> list[int]:
        """Return the numbers of the next page and of the pages after it that are known to exist, at most `limit` in total."""
        end = self.number if self._looking_back else max(self.number, self._last_page)
        return list(range(self.number, min(end, self.number + limit - 1) + 1))

    def should_use(self, page: Page[T] | OutreachError, *, ahead: bool) -> bool:
        """Return whether to use this page instead of fetching it again. A page that was fetched ahead may be outdated."""
        # The service may answer pages fetched ahead out of order. If it answered this page before the previous page, and items
        # were inserted in between, then items moved from the previous page to this page, and neither response contains them. The
        # smaller `total_found` of this page reveals that. An error fetched ahead may be outdated as well.
        return not ahead or (isinstance(page, Page) and page.total_found >= (self.total_found or 0))

    def add(self, result: Page[T] | OutreachError) -> list[T]:
        """Record the current page or its error, advance to the next page, and return the current page's new items."""
        return self.add_page(result) if isinstance(result, Page) else self.add_error(result)

    def add_page(self, page: Page[T]) -> list[T]:
        """Record the current page, advance to the next page, and return the current page's new items."""
        items: dict[Hashable, T] = {item.id: item for item in page.data}
        unread: dict[Hashable, Undecodable] = {item.id or (self.number, item.index): item for item in page.undecodable}
        new = (items.keys() | unread.keys()) - self._seen_ids
        self._seen_ids |= new
        if self._looking_back and not new and page.total_found and isinstance(self._end_error, UnexpectedResponse):
            raise self._end_error  # the service does not number its pages from 0, so the error did not mark the end
        self.undecodable += [item for name, item in unread.items() if name in new]
        if self._first_total is None:
            self._first_total = page.total_found
        if self._pass_total is None:
            self._pass_total = page.total_found
        self.total_found, self._total_pages = page.total_found, page.total_pages
        self._max_total = max(self._max_total, page.total_found)
        repeats = len(page.data) + len(page.undecodable) - len(new)
        self.repeats += repeats
        # Items inserted during the walk can explain a page without new items: each moves at most one item to the next page.
        is_explained = repeats > 0 and self.repeats - self._pass_repeats <= self.total_found - self._pass_total
        self._advance(useful=bool(new) or is_explained, repeated=repeats > 0)
        found, self._items_left = _take([item for name, item in items.items() if name in new], self._items_left)
        self.done |= self._items_left == 0
        return found

    def add_error(self, error: OutreachError) -> list[T]:
        """Record an error that may mark the end of the list, and return no items. Raise any other error."""
        if isinstance(error, UnexpectedResponse):
            may_be_past_end = error.states_error
        else:
            may_be_past_end = isinstance(error, StatusError) and explain_status(error.status_code).may_be_past_end
        may_be_past_end &= error.named_wait is None  # the page exists, but not now
        if not may_be_past_end or 0 < self.number < self._last_page:
            raise error
        if not self._is_end(error):
            raise error if self.number else self._end_error or error  # if page 0 failed as well, the first error is the real one
        self._end_error = error
        if self.total_found is None:
            self._first_total = 0
        self._advance(useful=False, repeated=False)
        return []

    def _is_end(self, error: OutreachError) -> bool:
        if self.total_found is None:  # continue after an error for page 1, because page 0 may be the only page
            return self.first == 1 and not self._looking_back
        if self._looking_back and self.number == 0:  # page 0 does not exist, or cannot be read
            return not isinstance(self._end_error, UnexpectedResponse) and (isinstance(error, StatusError) or not self.missing)
        return isinstance(error, StatusError) or (self.first == 1 and not self._looking_back)

    def _advance(self, *, useful: bool, repeated: bool) -> None:
        self.has_list_items = useful
        copies_page_0 = self.first == 0 and self.number == 1 and repeated and not useful
        if copies_page_0:
            self.first = 1
        has_grown = (self.total_found or 0) > (self._first_total or 0)
        # If the service numbers its pages from 0, page `total_pages` does not exist. The response is then an error, has no items,
        # or repeats items of earlier pages.
        looks_past_end = repeated if useful else self.total_found != 0 or bool(self._seen_ids)
        if (useful or copies_page_0) and self.number < (self._last_page if has_grown or not self._looking_back else 0):
            self.number += 1
        elif looks_past_end and self.first == 1 and not self._looking_back and self.number >= self._last_page:
            self.number, self._looking_back = 0, True
            self._pass_total, self._pass_repeats = None, self.repeats
        else:
            self.done = True


@attrs.frozen
class Pager(Generic[T]):
    """A list that is fetched on demand.

    Await the pager for one page, or iterate over it for every item of
    every page.

    Attributes:
        fetch: Fetches a page by its number.
        start: Number of the first page to fetch.
        max_items: Maximum number of items; `None` for all.

    Example:
        ```python
        async for campaign in client.campaigns.list():
            print(campaign.name)  # -> Spring
        ```
    """

    fetch: Callable[[int], Awaitable[Page[T]]] = attrs.field(repr=False)
    start: int = 1
    max_items: int | None = None

    def __await__(self) -> Generator[Any, Any, Page[T]]:
        """Fetch the page with the number `start`."""
        page = yield from self.fetch(self.start).__await__()
        object.__setattr__(page, "_link", _WalkLink(self))  # frozen for callers, but new
        return page

    def __aiter__(self) -> AsyncIterator[T]:
        """Iterate over every item once, page by page."""
        return _ItemIterator(self)

    if not TYPE_CHECKING:  # pragma: no branch - type checkers report this mistake before the program runs

        def __iter__(self) -> NoReturn:
            remedy = "write `async for item in pager`, or `items = await pager.collect()` for a list"
            raise TypeError(f"Pager: expected `async for`, got `for`; {remedy}")

    async def first(self) -> T | None:
        """Return the first item; `None` if the list is empty.

        Example:
            ```python
            mailbox = await client.mailboxes.list(display=1).first()
            print(mailbox.email)  # -> ada@north.example
            ```
        """
        return await anext(aiter(self), None)

    def pages(self) -> AsyncIterator[Page[T]]:
        """Iterate over the pages.

        A page that only marks the end of the list is left out. Each page
        contains the items that the service returned. With `max_items`, the
        last page may be shortened, so that all pages together contain at
        most `max_items` items.

        Example:
            ```python
            print([len(page) async for page in client.mailboxes.list(display=1).pages()])  # -> [1, 1]
            ```
        """
        return _PageIterator(self)

    async def collect(self, *, prefetch: int = 4) -> Collected[T]:
        """Return every item once, in order, up to `prefetch` pages at a time.

        Raises:
            InvalidRequest: `prefetch` is not a whole number of at least 1.
            OutreachError: A page could not be fetched.

        Example:
            ```python
            boxes = await client.mailboxes.list(display=1).collect(prefetch=2)
            print([mailbox.email for mailbox in boxes])  # -> ['ada@north.example', 'bob@north.example']
            ```
        """
        prefetch = require_number("prefetch", prefetch, least=1)
        cursor: PageCursor[T] = PageCursor(self.start, self.max_items)
        items: list[T] = []

        async def add_items(new: list[T]) -> None:
            items.extend(new)

        await walk_pages(self, cursor, add_items, prefetch)
        return Collected(items, cursor)


async def next_items(pager: Pager[T], cursor: PageCursor[T]) -> list[T]:
    """Fetch the cursor's page, advance the cursor, and return the page's new items."""
    return cursor.add(await _fetch_or_error(pager, cursor.number))


async def walk_pages(
    pager: Pager[T], cursor: PageCursor[T], on_items: Callable[[list[T]], Awaitable[None]], prefetch: int
) -> None:
    """Walk over all pages with a new cursor, fetch up to `prefetch` of them concurrently, and await `on_items` for each page."""
    # If a page fails, the new items of all earlier pages have already been passed to `on_items`.
    failure: OutreachError | None = None
    in_flight: dict[int, _PendingPage[T]] = {}
    async with anyio.create_task_group() as group:
        try:
            while not cursor.done:
                numbers = cursor.next_pages(prefetch)
                is_ahead = numbers[0] in in_flight
                # While this page is awaited and processed, the next ones are fetched.
                for number in numbers:
                    if number not in in_flight:
                        in_flight[number] = _PendingPage()
                        group.start_soon(in_flight[number].run, pager, number)
                page = await in_flight.pop(numbers[0]).wait()
                if cursor.should_use(page, ahead=is_ahead):
                    items = cursor.add(page)
                    del page  # frees its memory while `on_items` waits
                    await on_items(items)
        except OutreachError as error:
            failure = error  # raised outside the task group, which would wrap it in an exception group
        # Pages fetched ahead are no longer needed: cancel their requests instead of waiting for them.
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure


class _PendingPage(Generic[T]):
    def __init__(self) -> None:
        self._done = anyio.Event()

    async def run(self, pager: Pager[T], number: int) -> None:
        self._page = await _fetch_or_error(pager, number)
        self._done.set()

    async def wait(self) -> Page[T] | OutreachError:
        await self._done.wait()
        return self._page


class _ItemIterator(AsyncIterator[T]):
    """Unlike an async generator, it need not be closed if the caller stops early."""

    def __init__(self, pager: Pager[T]) -> None:
        self._pager = pager
        self._cursor: PageCursor[T] = PageCursor(pager.start, pager.max_items)
        self._ready: deque[T] = deque()

    async def __anext__(self) -> T:
        while not self._ready:
            if self._cursor.done:
                raise StopAsyncIteration
            self._ready.extend(await next_items(self._pager, self._cursor))
        return self._ready.popleft()


class _PageIterator(AsyncIterator[Page[T]]):
    def __init__(self, pager: Pager[T]) -> None:
        self._link: _WalkLink[T] | None = _WalkLink(pager, PageCursor(pager.start), pager.max_items)

    async def __anext__(self) -> Page[T]:
        page = None if self._link is None else await self._link.next_page()
        self._link = None if page is None else page._link  # noqa: SLF001 - of this module
        if page is None:
            raise StopAsyncIteration
        return page


class _WalkLink(Generic[T]):
    """The place of a page in a walk. The pages of a walk are linked: each keeps the page after it, once that was fetched."""

    # The pages of a walk share its cursor, which stands behind the last page that was fetched.

    def __init__(self, pager: Pager[T], cursor: PageCursor[T] | None = None, items_left: int | None = None) -> None:
        self._pager = pager
        self._cursor = cursor
        self._items_left = items_left
        self._fetched: list[Page[T] | None] = []  # the page after this one, once it was fetched
        self._lock: anyio.Lock | None = None

    def has_next(self, page: Page[T] | None) -> bool:
        return self._fetched[0] is not None if self._fetched else not self._start(page).done and self._items_left != 0

    async def next_page(self, page: Page[T] | None = None) -> Page[T] | None:
        self._lock = self._lock or anyio.Lock()
        async with self._lock:  # two tasks may ask the same page
            while not self._fetched:
                cursor, found = self._start(page), None
                if self.has_next(page):
                    found = self._add(cursor, await _fetch_or_error(self._pager, cursor.number))
                if found is not None or not self.has_next(page):
                    self._fetched.append(found)
        return self._fetched[0]

    def _start(self, page: Page[T] | None) -> PageCursor[T]:
        # Most pages are the only one that their caller fetches: a walk starts when it is needed.
        if self._cursor is None:
            first = cast("Page[T]", page)  # only the link of an iterator is asked without a page, and it has a cursor
            self._cursor = PageCursor(self._pager.start)
            self._cursor.add(first)
            _, self._items_left = _take(first.data, self._pager.max_items)
        return self._cursor

    def _add(self, cursor: PageCursor[T], page: Page[T] | OutreachError) -> Page[T] | None:
        """Record a page, and return it with at most `items_left` items; `None` if it only marks the end of the list."""
        first = cursor.total_found is None
        cursor.add(page)
        if not isinstance(page, Page) or not (first or cursor.has_list_items):
            return None
        data, left = _take(page.data, self._items_left)
        return attrs.evolve(page, data=data, link=_WalkLink(self._pager, cursor, left))

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Return the data for pickling: a copied or pickled page has no link."""
        return type(None), ()


def _take(items: list[T], limit: int | None) -> tuple[list[T], int | None]:
    """Return the first `limit` items, and the remaining limit; `None` means no limit."""
    taken = items[:limit]
    return taken, None if limit is None else limit - len(taken)


async def _fetch_or_error(pager: Pager[T], number: int) -> Page[T] | OutreachError:
    """Return an error instead of raising it: the cursor decides whether it marks the end of the list."""
    try:
        return await pager.fetch(number)
    except OutreachError as error:
        return error
