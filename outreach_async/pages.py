"""Walking the pages of a list: what a page means for the walk is decided purely, in `Walk`; `Pager` fetches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Hashable, Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

import anyio
import attrs

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


class Collected(list[T]):
    """Every item of a list, each once, and what the walk showed.

    Attributes:
        total_found: What the service's last page said; `None` if there was none.
        repeats: Items that came again on a later page, because items were inserted meanwhile.
        missing: Items that the service counts and the walk did not meet, 0 when `max_items` ended it or it began later.
        undecodable: Items that could not be read, where the caller asked to keep them.
    """

    def __init__(self, items: Iterable[T], walk: Walk[T]) -> None:
        super().__init__(items)
        self.total_found: Number | None = walk.total_found
        self.repeats = walk.repeats
        self.missing = walk.missing
        self.undecodable = walk.undecodable


class Walk(Generic[T]):
    """Where a walk stands, and where it goes next.

    It ends at `total_pages`, at an empty page, at a page without new ids that no insertion explains, and at the refusal of a page
    that may lie past the end; never at a short page, for a service may clamp `display` without a word. Where a walk from page 1
    finds its last page empty or refused, the service may count from 0: then page 0 is visited last.

    Attributes:
        number: The page to fetch next.
        done: Whether there is none.
        useful: Whether the page last taken was part of the list rather than its end.
    """

    def __init__(self, first: int, max_items: int | None = None) -> None:
        self.first = self.number = first
        self.done = False
        self.useful = False
        self.total_found: Number | None = None
        self.repeats = 0
        self.undecodable: list[Undecodable] = []
        self._total_pages: Number = first
        self._room = max_items
        self._ids: set[Hashable] = set()
        self._refusal: OutreachError | None = None

    @property
    def missing(self) -> int:
        """Items that the service counts and this walk should have met, but did not."""
        return 0 if self.first > 1 or self._room == 0 else self._unmet

    @property
    def _unmet(self) -> int:
        return max(0, int(self.total_found or 0) - len(self._ids))

    @property
    def _last(self) -> int:
        return int(self._total_pages) - (self.first == 0)

    @property
    def _looking_back(self) -> bool:
        """Whether page 0 is being tried because the service may count from 0."""
        return self.number == 0 and self.first != 0

    def wants(self, number: int) -> bool:
        """Whether this page comes next; one that was fetched ahead may turn out to lie behind the end."""
        return not self.done and number == self.number

    def ahead(self, most: int) -> list[int]:
        """Return the numbers of the pages to fetch next, as far as they are known to exist; at least one."""
        end = self.number if self._looking_back else max(self.number, self._last)
        return list(range(self.number, min(end, self.number + most - 1) + 1))

    def take(self, page: Page[T]) -> list[T]:
        """Take in the page of the current number; return its new items and move on."""
        fresh = [item for item in page.data if item.id not in self._ids]
        ids: list[Hashable] = [item.id for item in page.data]
        ids += [item.id or (self.number, item.index) for item in page.undecodable]
        new = len(set(ids) - self._ids)
        self._ids.update(ids)
        self.repeats += len(ids) - new
        self.undecodable += page.undecodable
        grown = page.total_found - (page.total_found if self.total_found is None else self.total_found)
        self.total_found, self._total_pages = page.total_found, page.total_pages
        self._move(useful=new > 0 or 0 < len(ids) <= grown)
        return self._within_room(fresh)

    def refuse(self, error: OutreachError) -> None:
        """Take in the refusal of the current page: it only means that the list is over, or it is raised."""
        past_end = isinstance(error, StatusError) and error.status_code in _PAST_END
        if not past_end or (self.number < self._last and not self._looking_back):
            raise error
        if self.total_found is None and self._refusal is not None:
            raise self._refusal  # neither page 1 nor page 0: the first refusal was meant
        if self.total_found is None and self.first != 1:
            raise error
        self._refusal = error
        self._move(useful=False)

    def _move(self, *, useful: bool) -> None:
        self.useful = useful
        if useful and self.number < self._last and not self._looking_back:
            self.number += 1
        elif not useful and self.number == self._last and self.first == 1 and (self._unmet or self.total_found is None):
            self.number = 0
        else:
            self.done = True

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
    """

    fetch: Callable[[int], Awaitable[Page[T]]] = attrs.field(repr=False)
    first: int = 1
    max_items: int | None = None

    def __await__(self) -> Generator[Any, Any, Page[T]]:
        """Fetch one page, the first."""
        return self.fetch(self.first).__await__()

    async def __aiter__(self) -> AsyncIterator[T]:
        """Iterate over every item once, page after page."""
        walk: Walk[T] = Walk(self.first, self.max_items)
        while not walk.done:
            for item in _settle(walk, await self._fetch(walk.number)):
                yield item

    async def pages(self) -> AsyncIterator[Page[T]]:
        """Iterate over the pages as the service gave them, without one that only ends the list.

        With `max_items` the last page is cut, so that the pages hold that many items at most.
        """
        walk: Walk[T] = Walk(self.first)
        left = self.max_items
        while not walk.done and left != 0:
            page = await self._fetch(walk.number)
            first = walk.total_found is None
            _settle(walk, page)
            if isinstance(page, Page) and (first or walk.useful):
                yield page if left is None else attrs.evolve(page, data=page.data[:left])
                left = None if left is None else max(0, left - len(page.data))

    async def collect(self, *, prefetch: int = 4) -> Collected[T]:
        """Return every item once, fetching up to `prefetch` pages side by side; the order is the list's."""
        prefetch = require_number("prefetch", prefetch, least=1)
        walk: Walk[T] = Walk(self.first, self.max_items)
        items: list[T] = []
        while not walk.done:
            numbers = walk.ahead(prefetch)
            for number, page in zip(numbers, await self._fetch_all(numbers), strict=True):
                if walk.wants(number):
                    items += _settle(walk, page)
        return Collected(items, walk)

    async def _fetch(self, number: int) -> Page[T] | OutreachError:
        try:
            return await self.fetch(number)
        except OutreachError as error:
            return error

    async def _fetch_all(self, numbers: list[int]) -> list[Page[T] | OutreachError]:
        """Fetch side by side; an error is a value here, for it may lie behind the page that ends the walk."""
        found: dict[int, Page[T] | OutreachError] = {}

        async def fetch(number: int) -> None:
            found[number] = await self._fetch(number)

        async with anyio.create_task_group() as group:
            for number in numbers:
                group.start_soon(fetch, number)
        return [found[number] for number in numbers]


def _settle(walk: Walk[T], page: Page[T] | OutreachError) -> list[T]:
    if isinstance(page, Page):
        return walk.take(page)
    walk.refuse(page)
    return []
