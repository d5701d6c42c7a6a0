"""Read a workspace before anything is judged: call each operation as the interface describes, and keep the responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from outreach_async.conformance.findings import Finding, attempt, seen
from outreach_async.conformance.site import Dialogue, Site, Unclear, accepted, document, number, rows, served
from outreach_async.transport.wire import Request, Response

MAX_MAILBOXES: Final = 2000
"""The maximum `display` for mailboxes that the interface states."""

COMPLETE: Final = "Complete"
"""The value of a date of a finished campaign."""

DISPLAYS: Final = (10, 5, 1)
"""Values of `display` for campaigns. The first one not refused is used; they are small because no maximum is stated."""

_PAGES: Final = {"campaigns": 10, "mailboxes": 4}
"""Number of pages read from the start of each list."""

_MOST: Final = 10**8
"""The largest `total_found` for which the last page is read."""

_STEPS: Final = 10
"""Number of campaigns whose steps are read."""


@attrs.frozen
class Asked:
    """A request and its response.

    Attributes:
        request: The request.
        answer: The response; `None` if none arrived.
        trouble: Why none arrived.
        said: The document of a success; `None` otherwise.
    """

    request: Request
    answer: Response | None = None
    trouble: str = ""
    said: dict[str, Any] | None = attrs.field(init=False, eq=False, repr=False)  # parsed once, because many rules read it

    @said.default
    def _said(self) -> dict[str, Any] | None:
        try:
            return document(self.answer) if self.answer is not None and accepted(self.answer) else None
        except Unclear:
            return None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The items of a list response."""
        return rows(self.said or {})


@attrs.frozen
class Page:
    """A page of a list.

    Attributes:
        asked: The request and its response.
        number: The page number requested.
        index: Its position among the pages, from 0.
        display: Items per page requested.
        size: Items per page served, which is less if the service silently applies a lower maximum.
    """

    asked: Asked
    number: int
    index: int
    display: int
    size: int

    @property
    def total(self) -> int | None:
        """The `total_found` of the page; `None` if it is not a count."""
        return _total(self.asked)

    @property
    def ids(self) -> list[str]:
        """The ids of the page's items."""
        return [row["id"] for row in self.asked.rows if isinstance(row.get("id"), str)]


@attrs.frozen
class Walk:
    """Pages of one list, all with the same `display`.

    Attributes:
        pages: The first pages, in order, and the last one.
        after: The page after the last one; `None` if the last one is unknown.
    """

    pages: tuple[Page, ...]
    after: Page | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The items of all pages."""
        return [row for page in self.pages for row in page.asked.rows]


@attrs.frozen
class Survey:
    """Everything that was read.

    Attributes:
        fields: The all-fields list.
        campaign_pages: Pages of campaigns, with few campaigns each.
        mailbox_pages: Pages of mailboxes of the maximum size.
        single_items: The first two pages of each list, with one item each.
        steps: The list-steps responses of some campaigns, by campaign id.
        first_page: The number of the first page.
    """

    fields: Asked
    campaign_pages: Walk
    mailbox_pages: Walk
    single_items: tuple[Walk, Walk]
    steps: Mapping[str, Asked]
    first_page: Finding

    @property
    def walks(self) -> tuple[Walk, ...]:
        """All page sequences, campaigns first."""
        return (self.campaign_pages, self.mailbox_pages, *self.single_items)

    @property
    def campaigns(self) -> Asked:
        """The first page of campaigns."""
        return self.campaign_pages.pages[0].asked

    @property
    def mailboxes(self) -> Asked:
        """The first page of mailboxes."""
        return self.mailbox_pages.pages[0].asked

    @property
    def lists(self) -> Iterator[Asked]:
        """The responses of the four lists: at least one of each, and of further pages those that were served."""
        for page in (page for walk in self.walks for page in walk.pages):
            if not page.index or page.asked.said is not None:
                yield page.asked
        yield from (*self.steps.values(), self.fields)

    @property
    def campaign_rows(self) -> list[dict[str, Any]]:
        """The campaigns listed."""
        return self.campaign_pages.rows

    @property
    def mailbox_rows(self) -> list[dict[str, Any]]:
        """The mailboxes listed."""
        return self.mailbox_pages.rows

    @property
    def templates(self) -> list[dict[str, Any]]:
        """The templates of all steps that were read."""
        return [item for asked in self.steps.values() for step in asked.rows for item in rows({"data": step.get("templates")})]

    @property
    def first(self) -> int:
        """The number of the first page; 1 if unknown."""
        return self.first_page.possible[0] if self.first_page.possible else 1

    @property
    def readable(self) -> bool:
        """Whether anything could be read."""
        return any(asked.said for asked in self.lists)


def ask(request: Request) -> Dialogue[Asked]:
    """Send a request once. If no response arrives, record why."""
    try:
        return Asked(request, (yield request))
    except Unclear as unclear:
        return Asked(request, trouble=str(unclear))


def survey_of(site: Site) -> Dialogue[Survey]:
    """Read a workspace."""
    fields = yield from ask(site.fields())
    first_page = yield from attempt(first_page_of(site))
    first = first_page.possible[0] if first_page.possible else 1
    boxes = yield from _walk(site, "mailboxes", first, MAX_MAILBOXES, exact=True)
    for display in DISPLAYS:
        campaigns = yield from _walk(site, "campaigns", first, display)
        if campaigns.pages[0].asked.said is not None:
            break
    singles = (yield from _two_items(site, "campaigns", first)), (yield from _two_items(site, "mailboxes", first))
    steps = {}
    for id_ in _worth_reading(campaigns.rows):
        steps[id_] = yield from ask(site.steps(id_))
    return Survey(fields, campaigns, boxes, singles, steps, first_page)


def _walk(site: Site, kind: str, first: int, display: int, *, exact: bool = False) -> Dialogue[Walk]:
    """Read the first pages of a list, the last one, and the one after it. Together they show whether `total_found` is right.

    Args:
        site: The workspace and credentials.
        kind: `campaigns` or `mailboxes`.
        first: The number of the first page.
        display: Items per page.
        exact: Whether the interface guarantees this page size. Otherwise pages may have fewer items, if all do.
    """
    head = yield from ask(site.page(kind, first, display))
    total, served_ = _total(head), len(head.rows)
    size = display if exact or not served_ or total is None or total <= served_ else min(display, served_)
    pages = [Page(head, first, 0, display, size)]

    def page(index: int) -> Dialogue[Page]:
        asked = yield from ask(site.page(kind, first + index, display))
        return Page(asked, first + index, index, display, size)

    if head.said is None or total is None or total > _MOST:
        return Walk(tuple(pages))
    count = -(-total // size)
    while len(pages) < min(count, _PAGES[kind]) and pages[-1].asked.rows:
        pages.append((yield from page(len(pages))))
    if len(pages) < count:
        pages.append((yield from page(count - 1)))
    return Walk(tuple(pages), (yield from page(max(count, 1))))


def _two_items(site: Site, kind: str, first: int) -> Dialogue[Walk]:
    """Read the first two items of a list, one per page. They show whether `page` and `display` are obeyed."""
    asked = [(yield from ask(site.page(kind, first, 1)))]
    if (_total(asked[0]) or 0) > 1:
        asked.append((yield from ask(site.page(kind, first + 1, 1))))
    return Walk(tuple(Page(answer, first + index, index, 1, 1) for index, answer in enumerate(asked)))


def _total(asked: Asked) -> int | None:
    try:
        total = number(asked.said or {}, "total_found")
    except Unclear:
        return None
    return total if total >= 0 else None


def _worth_reading(campaigns: list[dict[str, Any]]) -> list[str]:
    """Return ids of campaigns whose steps to read: a finished one, one of each status, then those with opens, then with steps."""
    finished = [row for row in campaigns if row.get("days_left_date") == COMPLETE][:1]
    telling = sorted(campaigns, key=lambda row: (not row.get("opens_num"), not row.get("steps")))
    states = {str(row.get("status")): row for row in reversed(telling)}
    ids = [row["id"] for row in (*finished, *states.values(), *telling) if isinstance(row.get("id"), str)]
    return list(dict.fromkeys(ids))[:_STEPS]


def first_page_of(site: Site) -> Dialogue[Finding]:
    """Find out the number of the first page (rule P3)."""
    zero = yield site.page("mailboxes", 0, 1)
    one = yield site.page("mailboxes", 1, 1)
    if not accepted(zero):
        served(one)
        return seen(1, "page 0 was refused, page 1 served")
    if number(served(zero), "current_page") != 0:
        return seen(1, "page 0 was served as another page")
    if accepted(one) and rows(document(zero)) and rows(document(zero)) == rows(document(one)):
        return seen(1, "page 0 was served as a copy of page 1") if number(document(one), "current_page") else _zero()
    return _zero()


def _zero() -> Finding:
    return seen(0, "page 0 was served as page 0")
