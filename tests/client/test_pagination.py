"""Reading pages: it ends and yields every item once, however the service paginates."""

from __future__ import annotations

import gc
import json
import pickle
import re
from collections.abc import Awaitable, Callable, Sequence
from itertools import product
from typing import Any
from urllib.parse import parse_qs

import anyio
import attrs
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from support.paging import Change, IgnoresThePage, PagingService, Reading, ShortPages, campaign, deletions, insertions, readings
from support.tables import check_rows_async

from outreach_async import (
    Campaign,
    OutreachClient,
    OutreachError,
    Page,
    Pager,
    Progress,
    Request,
    Response,
    RetryPolicy,
    Transport,
)
from outreach_async.converters import OutreachConverter
from outreach_async.errors import InvalidRequest, StatusError, TransportError, UnexpectedResponse
from outreach_async.fake import Behaviour, FakeService, FakeTransport
from outreach_async.fake.behaviour import KNOB_VALUES
from outreach_async.pagination import PageCursor
from outreach_async.testing import pairwise

Walker = Callable[[Pager[Campaign]], Awaitable[list[str]]]


async def items(pager: Pager[Campaign]) -> list[str]:
    return [item.id async for item in pager]


async def pages(pager: Pager[Campaign]) -> list[str]:
    return [item.id async for page in pager.pages() for item in page.data]


def collect(prefetch: int) -> Walker:
    async def collected(pager: Pager[Campaign]) -> list[str]:
        return [item.id for item in await pager.collect(prefetch=prefetch)]

    collected.__name__ = collected.__qualname__ = f"collect({prefetch})"  # for the reports of failures
    return collected


async def linked(pager: Pager[Campaign]) -> list[str]:
    """Walk from page to page, as a caller who asks the first page for the next one does."""
    following = await anext(pager.pages(), None)
    found: list[str] = []
    while page := following:
        found += [item.id for item in page]
        assert len(page) == len(page.data)
        may_follow = page.has_next
        following = await page.next_page()
        assert may_follow or following is None
        assert await page.next_page() is following
    return found


WALKERS = [items, pages, linked, *map(collect, (1, 2, 3, 9))]
walkers = st.sampled_from(WALKERS)
sizes = st.integers(0, 9)
displays = st.integers(1, 4)


def campaigns(transport: Transport, **options: Any) -> Pager[Campaign]:
    client = OutreachClient(transport=transport, workspace="space_1", retry=RetryPolicy(attempts=1))
    return client.campaigns.list(**options)


def page_count(service: PagingService, display: int) -> int:
    return max(1, -(-service.created_count // min(display, service.reading.most or display)))


@given(readings(), sizes, displays, walkers, st.booleans())
async def test_every_item_comes_once_under_every_interpretation(
    reading: Reading, size: int, display: int, walk: Walker, correct_total: bool
) -> None:
    service = PagingService(size, reading)
    found = await walk(campaigns(service, display=display, page=reading.first_page if correct_total else 1))
    assert sorted(found) == sorted(service.ids)
    if correct_total or reading.first_page == 1:
        assert found == service.listed()
        assert sorted(service.answered) == list(range(reading.first_page, reading.first_page + page_count(service, display)))
    # extra requests: at most the page past the end, a repeat of it if it was prefetched, and page 0
    assert len(service.answered) <= page_count(service, display) + 2
    assert service.displays == {display}


@given(readings(), sizes, displays, walkers, st.integers(-12, 12))
async def test_a_wrong_total_loses_no_item(reading: Reading, size: int, display: int, walk: Walker, miscounted: int) -> None:
    service = PagingService(size, attrs.evolve(reading, miscounted=miscounted))
    only_page_0 = reading.first_page == 0 and page_count(service, display) == 1
    assume(size + miscounted > 0 or not only_page_0)  # an empty page 1 of an empty list ends the iteration
    assert sorted(await walk(campaigns(service, display=display))) == sorted(service.ids)
    assert len(service.answered) <= page_count(service, display) + 2


@attrs.frozen
class Changing:
    reading: Reading
    size: int
    display: int
    changes: list[Change]
    patience: list[int] = attrs.Factory(list)
    from_1: bool = False

    def service(self) -> PagingService:
        return PagingService(self.size, self.reading, self.changes, self.patience)

    @property
    def start(self) -> int:
        return 1 if self.from_1 else self.reading.first_page


def changing(changes: st.SearchStrategy[list[Change]]) -> st.SearchStrategy[Changing]:
    patience = st.lists(st.integers(0, 6), max_size=20)
    return st.builds(Changing, readings(), st.integers(0, 15), displays, changes, patience, st.booleans())


@given(changing(insertions()), walkers)
@example(Changing(Reading(newest_first=True), 5, 1, [Change(1, 2)]), items)  # a page without new items, then another
@example(Changing(Reading(newest_first=True), 3, 2, [Change(1, 1)]), items)  # tries page 0, which does not exist
@example(Changing(Reading(first_page=0, past_end=404, newest_first=True), 2, 2, [Change(1, 3)], from_1=True), items)
@example(Changing(Reading(first_page=0, newest_first=True), 4, 2, [Change(1, 1)], from_1=True), items)
@example(
    Changing(Reading(first_page=0, past_end="clamped as asked", newest_first=True), 3, 2, [Change(1, 1)], from_1=True), items
)
@example(Changing(Reading(first_page=0, past_end="clamped as asked"), 2, 1, [Change(1, 1)], from_1=True), items)
@example(
    Changing(Reading(first_page=0, past_end="clamped", newest_first=True), 6, 2, [Change(1, 1), Change(5, 2)], from_1=True), items
)
async def test_insertions_between_pages_lose_no_item(case: Changing, walk: Walker) -> None:
    service = case.service()
    present = set(service.ids)
    found = await walk(campaigns(service, display=case.display, page=case.start))
    assert present <= set(found)
    assert walk in {pages, linked} or len(found) == len(set(found))
    assert len(service.answered) <= 3 * page_count(service, case.display) + 3


@given(changing(deletions()), st.integers(1, 4))
@example(Changing(Reading(), 6, 2, [Change(1, deleted=(0,))]), 1)
async def test_items_hidden_by_deletions_are_counted_as_missing(case: Changing, prefetch: int) -> None:
    service = case.service()
    try:
        found = await campaigns(service, display=case.display, page=case.start).collect(prefetch=prefetch)
    except StatusError:
        assert isinstance(case.reading.past_end, int)  # a page that no longer exists
    else:
        assert len(set(service.ids) - {item.id for item in found}) <= found.missing


@given(st.integers(1, 9), displays, walkers, insertions(), st.booleans())
async def test_iteration_ends_soon_if_the_service_ignores_the_page(
    size: int, display: int, walk: Walker, changes: list[Change], newest_first: bool
) -> None:
    service = IgnoresThePage(size, Reading(newest_first=newest_first), changes)
    assert await walk(campaigns(service, display=display))
    assert len(service.answered) <= 3 * page_count(service, display) + 3


@pytest.mark.parametrize(("size", "requested_pages"), [(0, [1]), (2, [1]), (4, [1, 2, 0]), (9, [1, 2])])
@pytest.mark.parametrize("walk", [items, pages])
async def test_a_page_without_new_items_ends_the_iteration(size: int, requested_pages: list[int], walk: Walker) -> None:
    service = IgnoresThePage(size)
    assert await walk(campaigns(service, display=2)) == service.ids[:2]
    # Page 0 is requested only if page 2 is reported as the last page, which a service that counts from 0 does not have.
    assert service.answered == requested_pages


async def test_items_that_the_service_withholds_are_missing() -> None:
    found = await campaigns(IgnoresThePage(9), display=2).collect()
    assert (len(found), found.missing, found.total_found) == (2, 7, 9)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=6), walkers)
async def test_a_short_page_does_not_end_the_iteration(lengths: list[int], walk: Walker) -> None:
    service = ShortPages(lengths)
    assert await walk(campaigns(service, display=3)) == service.ids
    assert len(service.answered) == len(lengths)


@given(sizes, displays, walkers, st.integers(1, 12))
async def test_max_items_ends_the_iteration_and_reports_no_missing_items(
    size: int, display: int, walk: Walker, most: int
) -> None:
    service = PagingService(size)
    assert await walk(campaigns(service, display=display, max_items=most)) == service.ids[:most]
    if walk in (items, pages):
        assert len(service.answered) == max(1, -(-min(most, size) // display))
    whole = await campaigns(PagingService(size), display=display, max_items=most).collect()
    assert whole.missing == 0


@pytest.mark.parametrize("walk", WALKERS)
@pytest.mark.parametrize(("page", "found", "answered"), [(3, slice(4, 9), [3, 4, 5]), (7, slice(0, 0), [7])])
async def test_iteration_may_start_at_a_later_page(walk: Walker, page: int, found: slice, answered: list[int]) -> None:
    service = PagingService(9)
    assert await walk(campaigns(service, display=2, page=page)) == service.ids[found]
    assert sorted(service.answered) == answered
    assert (await campaigns(service, display=2, page=page).collect()).missing == 0


async def test_awaiting_a_list_returns_the_one_page() -> None:
    service = PagingService(9)
    page = await campaigns(service, page=3, display=2)
    assert isinstance(page, Page)
    assert [item.id for item in page.data] == ["camp_4", "camp_5"]
    assert (page.status, page.headers, page.total_found, page.current_page, page.total_pages) == ("ok", ["name"], 9, 3, 5)
    assert service.answered == [3]


def test_a_pager_in_a_plain_loop_says_how_to_use_it() -> None:
    remedy = "write `async for item in pager`, or `items = await pager.collect()` for a list"
    with pytest.raises(TypeError, match=re.escape(f"Pager: expected `async for`, got `for`; {remedy}")):
        list(campaigns(PagingService(3)))  # type: ignore[call-overload]


@pytest.mark.parametrize("walk", WALKERS)
async def test_nothing_is_requested_before_a_list_is_used_and_each_use_starts_anew(walk: Walker) -> None:
    service = PagingService(3)
    pager = campaigns(service, display=2)
    assert service.answered == []
    assert await walk(pager) == await walk(pager) == service.ids
    assert service.answered == [1, 2, 1, 2]


@pytest.mark.parametrize("changes", [[], [Change(2, deleted=(2, 3, 4))]], ids=["", "last pages deleted meanwhile"])
async def test_page_0_of_a_service_that_counts_from_0_is_read_last(changes: list[Change]) -> None:
    service = PagingService(6, Reading(first_page=0), changes)
    assert await items(campaigns(service, display=2)) == ["camp_2", "camp_3", "camp_4", "camp_5", "camp_0", "camp_1"]
    assert service.answered == [1, 2, 3, 0]


async def test_an_empty_list_takes_one_request_and_has_one_page() -> None:
    service = PagingService(0)
    assert [page.data async for page in campaigns(service).pages()] == [[]]
    assert service.answered == [1]


async def test_pages_omits_the_page_that_only_ends_the_list() -> None:
    service = PagingService(4, Reading(first_page=0, past_end="clamped as asked"))
    entry = [(page.current_page, [item.id for item in page.data]) async for page in campaigns(service, display=2).pages()]
    assert entry == [(1, ["camp_2", "camp_3"]), (0, ["camp_0", "camp_1"])]
    assert service.answered == [1, 2, 0]


async def test_an_item_repeated_on_one_page_is_returned_once() -> None:
    service = PagingService(2)
    service.ids = ["camp_0", "camp_0", "camp_1"]
    found = await campaigns(service).collect()
    assert [item.id for item in found] == ["camp_0", "camp_1"]
    assert (found.repeats, found.missing) == (1, 1)


class LastFirst(PagingService):
    """Responds to concurrent requests from the last page to the first."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.open: dict[int, anyio.Event] = {}
        self.most_open = 0

    async def send(self, request: Request, progress: Progress, /) -> Response:
        page = int(parse_qs(request.target)["page"][0])
        self.open[page] = anyio.Event()
        self.most_open = max(self.most_open, len(self.open))
        await anyio.wait_all_tasks_blocked()
        while (last := max(self.open)) != page:
            await self.open[last].wait()
        response = await super().send(request, progress)
        self.open.pop(page).set()
        return response


@pytest.mark.parametrize("prefetch", [1, 2, 4])
async def test_pages_are_fetched_concurrently_and_returned_in_order(prefetch: int) -> None:
    service = LastFirst(18)
    found = await campaigns(service, display=2).collect(prefetch=prefetch)
    assert [item.id for item in found] == service.ids
    assert service.most_open == prefetch
    batches = [range(start, start + prefetch) for start in range(2, 10, prefetch)]
    assert service.answered == [1, *(page for batch in batches for page in reversed(batch))]


async def test_a_page_that_overtook_its_predecessor_is_refetched_after_insertions() -> None:
    service = LastFirst(6, Reading(newest_first=True), [Change(2, 1)])  # after page 3, before page 2: camp_2 moves to page 3
    found = await campaigns(service, display=2).collect(prefetch=2)
    assert [item.id for item in found] == [f"camp_{number}" for number in (5, 4, 3, 2, 1, 0)]
    assert service.answered == [1, 3, 2, 4, 3]


class Breaks(PagingService):
    """Fails at one page, up to `times` times."""

    def __init__(self, size: int, page: int, failure: Response | Exception, times: int = 99) -> None:
        super().__init__(size)
        self.page, self.failure, self.times = page, failure, times

    async def send(self, request: Request, progress: Progress, /) -> Response:
        response = await super().send(request, progress)
        if self.answered[-1] != self.page or self.times == 0:
            return response
        self.times -= 1
        if isinstance(self.failure, Exception):
            raise self.failure
        return self.failure


LOST = TransportError("the answer was lost", maybe_sent=True)


async def test_an_unreadable_page_is_an_error() -> None:
    async def check(page: int, failure: Any, walk: Walker) -> None:
        service = Breaks(6, page, failure)
        with pytest.raises(Exception, match=r"answered|lost") as caught:
            await walk(campaigns(service, display=2))
        assert type(caught.value).__module__ == "outreach_async.errors"
        assert not set(service.answered) - {0, 1, 2, 3}

    await check_rows_async(
        (
            (page, failure, walk)
            for page in [1, 2]
            for failure in [LOST, Response(500), Response(401), Response(404), Response(200)]
            for walk in WALKERS
        ),
        check,
    )


async def test_if_pages_1_and_0_fail_the_error_of_page_1_is_raised() -> None:
    class Nowhere(PagingService):
        def _answer(self, page: int, _display: int, _item: Any) -> Response:
            return Response(404, {}, b'{"message":"page %d of nothing"}' % page)

    service = Nowhere(0)
    with pytest.raises(StatusError, match="page 1 of nothing"):
        await items(campaigns(service))
    assert service.answered == [1, 0]


class OnlyLastFails(PagingService):
    """Answers the last page with an error and status 200, and refuses page 0 in one of several ways."""

    def __init__(self, size: int, page_0: Any) -> None:
        super().__init__(size)
        self.page_0 = page_0

    def _answer(self, page: int, display: int, item: Any) -> Response:
        if page == 0 and isinstance(self.page_0, Response):
            return self.page_0
        if page * display >= len(self.ids):
            return Response(200, {}, b'{"error":"try again later"}')
        return super()._answer(page or self.page_0, display, item)


@pytest.mark.parametrize("page_0", [Response(400), Response(200, {}, b'{"error":"no page 0"}'), 1, 9])
@pytest.mark.parametrize("walk", WALKERS)
async def test_an_error_with_status_200_for_the_last_page_loses_no_item_silently(walk: Walker, page_0: Any) -> None:
    service = OnlyLastFails(6, page_0)
    with pytest.raises(UnexpectedResponse, match="try again later"):
        await walk(campaigns(service, display=2))
    assert set(service.answered) == {1, 2, 3, 0}


@pytest.mark.parametrize("code", [200, 400])
async def test_a_rate_limit_is_never_the_end_of_a_list(code: int) -> None:
    class Limited(PagingService):
        def _answer(self, page: int, display: int, item: Any) -> Response:
            if page == 3 and self.answered.count(3) < 3:
                return Response(code, {}, b'{"error":"Rate limit exceeded"}')
            return super()._answer(page, display, item)

    service = Limited(6, Reading(first_page=1))
    client = OutreachClient(transport=service, workspace="space_1", retry=RetryPolicy(jitter=lambda: 0.0))
    assert len(await items(client.campaigns.list(display=2))) == 6
    impatient = OutreachClient(transport=Limited(6, Reading(first_page=1)), workspace="space_1", retry=RetryPolicy(attempts=1))
    with pytest.raises(OutreachError, match="Rate limit exceeded"):
        await items(impatient.campaigns.list(display=2))


@pytest.mark.parametrize(("first", "page", "failing"), [(1, 1, 2), (0, 0, 1), (1, 2, 3), (0, 0, 0), (0, 1, 0)])
async def test_an_error_with_status_200_is_raised_if_the_page_is_not_past_the_end(first: int, page: int, failing: int) -> None:
    service = Breaks(6, failing, Response(200, {}, b'{"error":"try again later"}'))
    service.reading = Reading(first_page=first)
    with pytest.raises(UnexpectedResponse, match="try again later"):
        await items(campaigns(service, display=2, page=page))


def test_an_error_with_status_200_is_raised_for_a_page_that_is_visited_again() -> None:
    def page(total: int, *ids: str) -> Page[Campaign]:
        data = [OutreachConverter().loads(json.dumps(campaign(name)), Campaign) for name in ids]
        return Page(status="ok", headers=[], data=data, total_found=total, current_page=1, total_pages=total // 2)

    past_end, throttled = UnexpectedResponse("no page 2"), UnexpectedResponse("try again later")
    past_end.states_error = throttled.states_error = True
    cursor: PageCursor[Campaign] = PageCursor(1)
    for result in (page(4, "camp_1", "camp_0"), past_end, page(6, "camp_5", "camp_4"), page(6, "camp_3", "camp_2")):
        cursor.add(result)
    assert cursor.number == 2
    with pytest.raises(UnexpectedResponse, match="try again later"):
        cursor.add(throttled)


@pytest.mark.parametrize("page", [0, 3])
async def test_an_error_of_a_page_asked_for_by_number_is_raised(page: int) -> None:
    service = Breaks(6, page, Response(404))
    with pytest.raises(StatusError, match="404"):
        await items(campaigns(service, display=2, page=page))
    assert service.answered == [page]


async def test_a_prefetched_page_that_fails_is_tried_again_in_its_turn() -> None:
    service = Breaks(6, 3, LOST, times=1)
    found = await campaigns(service, display=2).collect(prefetch=2)
    assert [item.id for item in found] == service.ids
    assert sorted(service.answered) == [1, 2, 3, 3]


async def test_a_failure_beyond_the_end_does_not_matter() -> None:
    service = Breaks(9, 3, LOST)
    found = await campaigns(service, display=2, max_items=3).collect(prefetch=4)
    assert [item.id for item in found] == ["camp_0", "camp_1", "camp_2"]


@pytest.mark.parametrize("use", [aiter, Pager.pages], ids=["items", "pages"])
async def test_after_an_error_an_iterator_continues_where_it_was(use: Any) -> None:
    service = Breaks(6, 2, LOST, times=1)
    iterator = use(campaigns(service, display=2))
    found = [await anext(iterator)]
    with pytest.raises(TransportError):
        found += [item async for item in iterator]
    found += [item async for item in iterator]
    assert [item.id for entry in found for item in getattr(entry, "data", [entry])] in (service.ids, ["camp_0", *service.ids[2:]])
    assert service.answered == [1, 2, 2, 3]


@pytest.mark.parametrize("use", [aiter, Pager.pages], ids=["items", "pages"])
async def test_leaving_early_stops_requests_and_needs_no_closing(use: Any) -> None:
    service = PagingService(6)
    async for _ in use(campaigns(service, display=2)):
        break
    gc.collect()  # an unfinished async generator would warn here, and warnings are errors
    assert service.answered == [1]


class Damaged(PagingService):
    """Sends some items with a fault and some as null."""

    def __init__(self, size: int, reading: Reading, changes: list[Change], *, broken: set[str], gone: set[str]) -> None:
        super().__init__(size, reading, changes)
        self.broken, self.gone = broken, gone

    def _answer(self, page: int, display: int, _item: Any) -> Response:
        return super()._answer(page, display, self._damaged)

    def _damaged(self, name: str) -> Any:
        return None if name in self.gone else {**campaign(name), "steps": "3"} if name in self.broken else campaign(name)


@pytest.mark.parametrize("walk", WALKERS)
async def test_an_undecodable_item_is_an_error_unless_it_is_to_be_kept(walk: Walker) -> None:
    service = Damaged(3, Reading(), [], broken={"camp_1"}, gone=set())
    with pytest.raises(Exception, match=r"\$\.data\[1\]\.steps: expected .*, got str"):
        await walk(campaigns(service))
    assert await walk(campaigns(service, undecodable="keep")) == ["camp_0", "camp_2"]


async def test_undecodable_items_count_as_seen_and_are_reported_once() -> None:
    changes = [Change(1, 1)]  # pushes camp_4 from page 1 to page 2
    service = Damaged(6, Reading(newest_first=True), changes, broken={"camp_4", "camp_1"}, gone=set())
    found = await campaigns(service, display=2, undecodable="keep").collect(prefetch=1)
    assert [item.id for item in found] == ["camp_5", "camp_3", "camp_2", "camp_0"]
    assert [(item.id, item.index) for item in found.undecodable] == [("camp_4", 1), ("camp_1", 1)]
    assert (found.repeats, found.missing, found.total_found) == (1, 1, 7)


async def test_pages_of_only_undecodable_items_do_not_end_the_iteration() -> None:
    service = Damaged(6, Reading(), [], broken=set(), gone={f"camp_{number}" for number in range(4)})
    found = await campaigns(service, display=2, undecodable="keep").collect()
    assert [item.id for item in found] == ["camp_4", "camp_5"]
    assert (len(found.undecodable), found.missing) == (4, 0)


def test_the_repr_of_a_list_shows_where_it_starts_and_ends() -> None:
    assert repr(campaigns(PagingService(0), page=2, max_items=5)) == "Pager(start=2, max_items=5)"


PAGING_KNOBS = ("first_page", "past_end", "bad_number", "error_renderer")


async def check_walks(behaviour: Behaviour, size: int, walks: Sequence[Walker]) -> None:
    """Read both lists of a fake completely, from page 1, from its first page, and from page 0 if it accepts that."""
    fake = FakeService(behaviour=behaviour)
    space = fake.add_workspace("space_1")
    campaign_ids = sorted(fake.add_campaign(space) for _ in range(size))
    mailbox_ids = sorted(fake.add_mailbox(space) for _ in range(size))
    client = OutreachClient(transport=FakeTransport(fake), workspace=space, retry=RetryPolicy(attempts=1))
    for page in {1, behaviour.first_page, *([0] if behaviour.bad_number == "default" else [])}:
        for walk in walks:
            assert sorted(await walk(client.campaigns.list(display=2, page=page))) == campaign_ids
            boxes: Pager[Any] = client.mailboxes.list(display=2, page=page)
            assert sorted(await walk(boxes)) == mailbox_ids


@pytest.mark.thorough
async def test_every_combination_of_paging_knobs_is_paged_through_completely(anyio_backend_name: str) -> None:
    combinations = product(*(KNOB_VALUES[knob] for knob in PAGING_KNOBS))
    behaviours = [*pairwise(), *(Behaviour(**dict(zip(PAGING_KNOBS, values, strict=True))) for values in combinations)]
    turn = anyio_backend_name == "trio"  # each event loop reads every second combination
    await check_rows_async(((each, size, WALKERS) for each in behaviours[turn::2] for size in [0, 1, 5]), check_walks)


async def test_a_service_that_counts_from_1_may_answer_page_0_with_page_1() -> None:
    behaviour = Behaviour(bad_number="default")
    await check_rows_async(((behaviour, size, [items, collect(4)]) for size in [0, 2, 3, 5, 9]), check_walks)


async def test_pages_of_an_awaited_pager_are_linked() -> None:
    following: Page[Campaign] | None = await campaigns(PagingService(5), display=2)
    found: list[tuple[int, bool]] = []
    while page := following:
        found.append((len(page), page.has_next))
        following = await page.next_page()
    assert found == [(2, True), (2, True), (1, False)]


async def test_two_tasks_that_ask_one_page_get_the_same_next_page() -> None:
    page = await campaigns(PagingService(4, Reading()), display=2)
    found: list[Page[Campaign] | None] = []

    async def ask() -> None:
        found.append(await page.next_page())

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        group.start_soon(ask)
    assert found[0] is found[1] is not None


async def test_a_copied_page_says_that_it_has_no_next_page() -> None:
    page = pickle.loads(pickle.dumps(await campaigns(PagingService(4, Reading()), display=2)))  # noqa: S301 - our own bytes
    assert [item.id for item in page] == [item.id for item in page.data]
    with pytest.raises(InvalidRequest, match="expected a page that a client has returned, got a copy; list it again"):
        await page.next_page()


@pytest.mark.parametrize("size", [0, 3])
async def test_the_first_item_is_none_in_an_empty_list(size: int) -> None:
    service = PagingService(size, Reading())
    found = await campaigns(service, display=2).first()
    assert (found and found.id) == next(iter(service.listed()), None)
