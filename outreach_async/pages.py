"""Walking the pages of a list: what a page means for the walk is decided purely, in `Walk`; `Pager` fetches."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Hashable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any, Final, Generic, Protocol, TypeVar

import anyio
import attrs
from anyio.abc import TaskGroup

from outreach_async.checks import require_number
from outreach_async.errors import OutreachError, StatusError
from outreach_async.models import Number, Page, Undecodable


class Identified(Protocol):
    """An item of a list: campaigns and mailboxes have ids."""

    @property
    def id(self) -> str:
        """Its id."""
        ...


T = TypeVar("T", bound=Identified)

_PAST_END: Final = frozenset({400, 404, 416, 422})
"""How a service may refuse a page past the end; the interface does not show it."""


class Met(Protocol):
    """What a walk remembers of the items that it has met."""

    def add_new(self, names: AbstractSet[Hashable], /) -> AbstractSet[Hashable]:
        """Add names, and return those that were new."""
        ...

    def __len__(self) -> int:
        """How many there are."""
        ...


class _Names(set[Hashable]):
    """Every name as it is."""

    def add_new(self, names: AbstractSet[Hashable], /) -> AbstractSet[Hashable]:
        new = names - self
        self |= new
        return new


class Collected(list[T]):
    """Every item of a list, each once, and what the walk showed.

    Attributes:
        total_found: What the service's last page said; `None` if there was none.
        repeats: Items that came again on a later page, because items were inserted meanwhile.
        missing: Items that the service counted at some time and the walk did not meet, 0 when `max_items` ended it or it began
            later.
        undecodable: Items that could not be read, where the caller asked to keep them.

    Example:
        ```python
        boxes = await client.mailboxes.list(display=1).collect()
        print(len(boxes), boxes.total_found, boxes.repeats, boxes.missing)  # -> 2 2 0 0
        ```
    """

    def __init__(self, items: Iterable[T], walk: Walk[T]) -> None:
        super().__init__(items)
        self.total_found: Number | None = walk.total_found
        self.repeats = walk.repeats
        self.missing = walk.missing
        self.undecodable = walk.undecodable


class Walk(Generic[T]):
    """Where a walk stands, and where it goes next.

    It ends at `total_pages`, at an empty page, at a page without new ids that insertions do not explain, and at the refusal of a
    page that may lie past the end; never at a short page, for a service may clamp `display` without a word.

    The service may count from 0. Where a walk from page 1 does not find what it should on the last page, it looks back: page 0 is
    visited last, and so are the pages after it while items that were inserted may have pushed others there.

    Attributes:
        number: The page to fetch next.
        done: Whether there is none.
        useful: Whether the page last taken was part of the list rather than its end.
    """

    def __init__(self, first: int, max_items: int | None = None, *, met: Met | None = None) -> None:
        self.first = self.number = first
        self.done = False
        self.useful = False
        self.total_found: Number | None = None
        self.repeats = 0
        self.undecodable: list[Undecodable] = []
        self._total_pages: Number = first
        self._room = max_items
        self._met: Met = _Names() if met is None else met
        self._refusal: OutreachError | None = None
        self._looking_back = False
        self._first_found: Number | None = None
        self._most_found: Number = 0
        self._pass_found: Number | None = None
        self._pass_repeats = 0

    @property
    def missing(self) -> int:
        """Items that the service counted at some time and this walk should have met, but did not.

        Deletions pull items onto pages that were visited before, so the greatest count is the one to compare with.
        """
        return 0 if self.first > 1 or self._room == 0 else max(0, int(self._most_found) - len(self._met))

    @property
    def _last(self) -> int:
        return int(self._total_pages) - (self._looking_back or self.first == 0)

    @property
    def _end(self) -> int:
        """The last page to visit; without insertions page 0 is all that looking back can find."""
        return 0 if self._looking_back and not self._grown else self._last

    @property
    def _grown(self) -> Number:
        """By how much the list has grown since the first page."""
        return max(0, (self.total_found or 0) - (self._first_found or 0))

    def ahead(self, most: int) -> list[int]:
        """Return the numbers of the pages to fetch next, as far as they are known to exist; at least one."""
        end = self.number if self._looking_back else max(self.number, self._last)
        return list(range(self.number, min(end, self.number + most - 1) + 1))

    def wants(self, page: Page[T] | OutreachError, *, ahead: bool) -> bool:
        """Whether this answer is the one to go on with; one that was fetched ahead may have to be fetched again.

        It may have been given before that of the page before it, and items that were inserted between the two have pushed others
        from this page to that one unseen; its smaller total tells.
        """
        return not ahead or (isinstance(page, Page) and page.total_found >= (self.total_found or 0))

    def take(self, page: Page[T]) -> list[T]:
        """Take in the page of the current number; return its new items and move on."""
        items: dict[Hashable, T] = {item.id: item for item in page.data}
        unread: dict[Hashable, Undecodable] = {item.id or (self.number, item.index): item for item in page.undecodable}
        new = self._met.add_new(items.keys() | unread.keys())
        self.undecodable += [item for name, item in unread.items() if name in new]
        repeats = len(page.data) + len(page.undecodable) - len(new)
        self._count(page, repeats)
        self._move(useful=bool(new) or (repeats > 0 and self._pushed_again()), repeated=repeats > 0)
        return self._within_room([item for name, item in items.items() if name in new])

    def refuse(self, error: OutreachError) -> None:
        """Take in the refusal of the current page: it only means that the list is over, or it is raised."""
        past_end = isinstance(error, StatusError) and error.status_code in _PAST_END
        if not past_end or 0 < self.number < self._last:
            raise error
        if self.total_found is None:
            self._refuse_first(error)
        self._move(useful=False, repeated=False)

    def _refuse_first(self, error: OutreachError) -> None:
        """Go on after a refusal of page 1 alone: page 0 may be the only one."""
        if self.first != 1 or self._refusal is not None:
            raise self._refusal or error  # neither page 1 nor page 0: the first refusal was meant
        self._refusal = error
        self._first_found = 0

    def _count(self, page: Page[T], repeats: int) -> None:
        if self._first_found is None:
            self._first_found = page.total_found
        if self._pass_found is None:
            self._pass_found = page.total_found
        self.repeats += repeats
        self.total_found, self._total_pages = page.total_found, page.total_pages
        self._most_found = max(self._most_found, page.total_found)

    def _pushed_again(self) -> bool:
        """Whether insertions explain that a page held nothing new: each pushes at most one item onto the page after it."""
        return self.repeats - self._pass_repeats <= (self.total_found or 0) - (self._pass_found or 0)

    def _move(self, *, useful: bool, repeated: bool) -> None:
        self.useful = useful
        if useful and self.number < self._end:
            self.number += 1
        elif self._page_0_is_due(repeated=repeated):
            self.number = 0
            self._looking_back = True
            self._pass_found, self._pass_repeats = None, self.repeats
        else:
            self.done = True

    def _page_0_is_due(self, *, repeated: bool) -> bool:
        """Whether the walk stands where the last page should be, and met none there, or perhaps the one before it again."""
        if self._looking_back or self.first != 1 or self.number < self._last:
            return False
        if self.useful:
            return repeated
        return self.total_found != 0 or len(self._met) > 0

    def _within_room(self, items: list[T]) -> list[T]:
        if self._room is None:
            return items
        kept = items[: self._room]
        self._room -= len(kept)
        self.done |= self._room == 0
        return kept


@attrs.frozen
class Pager(Generic[T]):
    """A list of the service, lazily: await it for one page, iterate it for every item of every page.

    Attributes:
        fetch: Fetches the page of a number.
        first: The number of the first page to fetch.
        max_items: Items at most; `None` for all.

    Example:
        ```python
        page = await client.campaigns.list()
        async for campaign in client.campaigns.list():
            print(campaign.id == page.data[0].id)  # -> True
        ```
    """

    fetch: Callable[[int], Awaitable[Page[T]]] = attrs.field(repr=False)
    first: int = 1
    max_items: int | None = None

    def __await__(self) -> Generator[Any, Any, Page[T]]:
        """Fetch one page, the first."""
        return self.fetch(self.first).__await__()

    def __aiter__(self) -> AsyncIterator[T]:
        """Iterate over every item once, page after page."""
        return _Items(self)

    def pages(self) -> AsyncIterator[Page[T]]:
        """Iterate over the pages as the service gave them, without one that only ends the list.

        With `max_items` the last page is cut, so that the pages hold that many items at most.

        Raises:
            OutreachError: When iterated: why a page could not be fetched.

        Example:
            ```python
            async for page in client.mailboxes.list(display=1).pages():
                print(page.current_page, [mailbox.email for mailbox in page.data])
            # -> 1 ['ada@north.example']
            # -> 2 ['bob@north.example']
            ```
        """
        return _Pages(self)

    async def collect(self, *, prefetch: int = 4) -> Collected[T]:
        """Return every item once, fetching up to `prefetch` pages side by side; the order is the list's.

        Raises:
            InvalidRequest: `prefetch` is less than 1.
            OutreachError: Why a page could not be fetched.

        Example:
            ```python
            boxes = await client.mailboxes.list(display=1).collect(prefetch=2)
            print([mailbox.email for mailbox in boxes])  # -> ['ada@north.example', 'bob@north.example']
            ```
        """
        prefetch = require_number("prefetch", prefetch, least=1)
        walk: Walk[T] = Walk(self.first, self.max_items)
        items: list[T] = []

        async def keep(new: list[T]) -> None:
            items.extend(new)

        await self.follow(walk, keep, prefetch)
        return Collected(items, walk)

    async def follow(self, walk: Walk[T], take: Callable[[list[T]], Awaitable[None]], prefetch: int) -> None:
        """Walk to the end, handing over the new items of page after page; what was handed over stays so if a later page fails.

        Args:
            walk: A walk that has not begun; it tells afterwards what it met.
            take: Is given each page's new items, in the list's order; the walk waits for it.
            prefetch: Pages that may be fetched side by side, at least 1.

        Raises:
            OutreachError: Why a page could not be fetched.
        """
        failure: OutreachError | None = None
        async with anyio.create_task_group() as group:
            window = _Window(self, group)
            try:
                while not walk.done:
                    page, ahead = await window.next(walk.ahead(prefetch))
                    if walk.wants(page, ahead=ahead):
                        await take(_settle(walk, page))
            except OutreachError as error:
                failure = error  # raised outside of the group, which would wrap it
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure


class _Window(Generic[T]):
    """The pages under way: while one is waited for and taken in, those after it are fetched."""

    def __init__(self, pager: Pager[T], group: TaskGroup) -> None:
        self._pager = pager
        self._group = group
        self._under_way: dict[int, _Fetch[T]] = {}

    async def next(self, numbers: list[int]) -> tuple[Page[T] | OutreachError, bool]:
        """Have these pages fetched, and return the first one, and whether it was asked for ahead of its turn."""
        ahead = numbers[0] in self._under_way
        for number in numbers:
            if number not in self._under_way:
                self._under_way[number] = _Fetch()
                self._group.start_soon(self._under_way[number].run, self._pager, number)
        fetch = self._under_way.pop(numbers[0])
        await fetch.done.wait()
        return fetch.page, ahead


class _Fetch(Generic[T]):
    """A page on its way."""

    page: Page[T] | OutreachError

    def __init__(self) -> None:
        self.done = anyio.Event()

    async def run(self, pager: Pager[T], number: int) -> None:
        self.page = await _attempt(pager, number)
        self.done.set()


class _Items(AsyncIterator[T]):
    """A walk under way, item by item; an async generator would have to be closed when it is left early."""

    def __init__(self, pager: Pager[T]) -> None:
        self._pager = pager
        self._walk: Walk[T] = Walk(pager.first, pager.max_items)
        self._ready: deque[T] = deque()

    async def __anext__(self) -> T:
        while not self._ready:
            if self._walk.done:
                raise StopAsyncIteration
            self._ready.extend(_settle(self._walk, await _attempt(self._pager, self._walk.number)))
        return self._ready.popleft()


class _Pages(AsyncIterator[Page[T]]):
    """A walk under way, page by page."""

    def __init__(self, pager: Pager[T]) -> None:
        self._pager = pager
        self._walk: Walk[T] = Walk(pager.first)
        self._left = pager.max_items

    async def __anext__(self) -> Page[T]:
        while not self._walk.done and self._left != 0:
            first = self._walk.total_found is None
            page = await _attempt(self._pager, self._walk.number)
            _settle(self._walk, page)
            if isinstance(page, Page) and (first or self._walk.useful):
                return self._cut(page)
        raise StopAsyncIteration

    def _cut(self, page: Page[T]) -> Page[T]:
        if self._left is None:
            return page
        data = page.data[: self._left]
        self._left -= len(data)
        return attrs.evolve(page, data=data)


async def _attempt(pager: Pager[T], number: int) -> Page[T] | OutreachError:
    """Fetch a page, or return why there is none: whether that is an error, only the walk knows."""
    try:
        return await pager.fetch(number)
    except OutreachError as error:
        return error


def _settle(walk: Walk[T], page: Page[T] | OutreachError) -> list[T]:
    if isinstance(page, Page):
        return walk.take(page)
    walk.refuse(page)
    return []
