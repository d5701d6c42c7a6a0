"""Read a workspace: call each list operation as the interface describes, and keep the responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from outreach_async.conformance.target import (
    Dialogue,
    InconclusiveError,
    KnobFinding,
    Site,
    extract_rows,
    is_accepted,
    observed,
    parse_document,
    require_integer,
    require_success,
    run_probe,
)
from outreach_async.transport.wire import Request, Response

MAX_MAILBOXES: Final = 2000
"""The maximum `display` for mailboxes, as the interface states it."""

COMPLETE: Final = "Complete"
"""The value of `days_left_date` for a finished campaign."""

CAMPAIGN_DISPLAYS: Final = (10, 5, 1)
"""Values of `display` for campaigns, tried in order until one is accepted; all small, because the interface states no maximum."""

_MAX_PAGES: Final = {"campaigns": 10, "mailboxes": 4}
"""Maximum number of pages to read from the start of each list."""

_MAX_TOTAL: Final = 10**8
"""The largest `total_found` for which the last page is read."""

_MAX_STEP_LISTS: Final = 10
"""Maximum number of campaigns whose steps are read."""


@attrs.frozen
class HttpExchange:
    """A request and its response.

    Attributes:
        request: The request.
        response: The response; `None` if none arrived.
        error: The reason why no response arrived; otherwise empty.
        payload: The JSON document of a successful response; otherwise `None`.
    """

    request: Request
    response: Response | None = None
    error: str = ""
    payload: dict[str, Any] | None = attrs.field(init=False, eq=False, repr=False)  # parsed once, because many rules read it

    @payload.default
    def _parse_payload(self) -> dict[str, Any] | None:
        try:
            return parse_document(self.response) if self.response is not None and is_accepted(self.response) else None
        except InconclusiveError:
            return None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The items of a list response."""
        return extract_rows(self.payload or {})


@attrs.frozen
class SampledPage:
    """A page of a list.

    Attributes:
        exchange: The request and its response.
        number: Requested page number.
        index: Position of the page in the list, from 0.
        display: Requested number of items per page.
        size: Number of items per page that the service uses. It is less than `display` if the service applies a lower maximum.
    """

    exchange: HttpExchange
    number: int
    index: int
    display: int
    size: int

    @property
    def total(self) -> int | None:
        """The `total_found` of the page; `None` if it is not a count."""
        return _find_total(self.exchange)

    @property
    def ids(self) -> list[str]:
        """The ids of the page's items."""
        return [row["id"] for row in self.exchange.rows if isinstance(row.get("id"), str)]


@attrs.frozen
class PageSequence:
    """Pages of one list, all with the same `display`.

    Attributes:
        pages: The first pages of the list, in order, and the last page.
        page_after: The page after the last one; `None` if it was not read.
    """

    pages: tuple[SampledPage, ...]
    page_after: SampledPage | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The items of all pages."""
        return [row for page in self.pages for row in page.exchange.rows]


@attrs.frozen
class WorkspaceSurvey:
    """Everything that was read from a workspace.

    Attributes:
        fields: The request for all-fields, and its response.
        campaign_pages: Pages of campaigns, with few campaigns each.
        mailbox_pages: Pages of mailboxes, requested with the maximum `display`.
        single_items: The first two pages of campaigns and of mailboxes, with one item each.
        steps: The list-steps requests and responses of some campaigns, by campaign id.
        first_page: The finding about the number of the first page.
    """

    fields: HttpExchange
    campaign_pages: PageSequence
    mailbox_pages: PageSequence
    single_items: tuple[PageSequence, PageSequence]
    steps: Mapping[str, HttpExchange]
    first_page: KnobFinding

    @property
    def page_sequences(self) -> tuple[PageSequence, ...]:
        """All page sequences, campaigns first."""
        return (self.campaign_pages, self.mailbox_pages, *self.single_items)

    @property
    def pages(self) -> Iterator[SampledPage]:
        """The pages of all sequences."""
        return (page for sequence in self.page_sequences for page in sequence.pages)

    @property
    def list_exchanges(self) -> Iterator[HttpExchange]:
        """The requests and responses of all lists. Pages after the first page are omitted if they were not served."""
        yield from (page.exchange for page in self.pages if not page.index or page.exchange.payload is not None)
        yield from (*self.steps.values(), self.fields)

    @property
    def templates(self) -> list[dict[str, Any]]:
        """The templates of all steps that were read."""
        steps = [step for exchange in self.steps.values() for step in exchange.rows]
        return [template for step in steps for template in extract_rows({"data": step.get("templates")})]

    @property
    def first_page_number(self) -> int:
        """The number of the first page; 1 if unknown."""
        return self.first_page.possible[0] if self.first_page.possible else 1


def send_once(request: Request) -> Dialogue[HttpExchange]:
    """Send a request once, and return the exchange. If no response arrives, the exchange holds the reason."""
    try:
        return HttpExchange(request, (yield request))
    except InconclusiveError as error:
        return HttpExchange(request, error=str(error))


def survey_workspace(site: Site) -> Dialogue[WorkspaceSurvey]:
    """Read the lists of a workspace."""
    fields = yield from send_once(site.fields())
    first_page = yield from run_probe(probe_first_page(site))
    first = first_page.possible[0] if first_page.possible else 1
    mailboxes = yield from _read_sequence(site, "mailboxes", first, MAX_MAILBOXES, exact=True)
    for display in CAMPAIGN_DISPLAYS:
        campaigns = yield from _read_sequence(site, "campaigns", first, display)
        if campaigns.pages[0].exchange.payload is not None:
            break
    singles = (yield from _read_two_items(site, "campaigns", first)), (yield from _read_two_items(site, "mailboxes", first))
    steps = {}
    for id_ in _select_campaigns(campaigns.rows):
        steps[id_] = yield from send_once(site.steps(id_))
    return WorkspaceSurvey(fields, campaigns, mailboxes, singles, steps, first_page)


def _read_sequence(site: Site, kind: str, first: int, display: int, *, exact: bool = False) -> Dialogue[PageSequence]:
    """Read the first pages of a list, its last page, and the page after the last, to check `total_found`.

    Args:
        site: The workspace and credentials.
        kind: `campaigns` or `mailboxes`.
        first: The number of the first page.
        display: Items per page.
        exact: Whether the interface guarantees this page size. Otherwise the service may use a smaller size for all pages.
    """
    head = yield from send_once(site.page(kind, first, display))
    total, served = _find_total(head), len(head.rows)
    size = display if exact or not served or total is None or total <= served else min(display, served)
    pages = [SampledPage(head, first, 0, display, size)]

    def read_page(index: int) -> Dialogue[SampledPage]:
        exchange = yield from send_once(site.page(kind, first + index, display))
        return SampledPage(exchange, first + index, index, display, size)

    if head.payload is None or total is None or total > _MAX_TOTAL:
        return PageSequence(tuple(pages))
    count = -(-total // size)
    while len(pages) < min(count, _MAX_PAGES[kind]) and pages[-1].exchange.rows:
        pages.append((yield from read_page(len(pages))))
    if len(pages) < count:
        pages.append((yield from read_page(count - 1)))
    return PageSequence(tuple(pages), (yield from read_page(max(count, 1))))


def _read_two_items(site: Site, kind: str, first: int) -> Dialogue[PageSequence]:
    """Read the first two items of a list, one per page. The pages show whether the service obeys `page` and `display`."""
    exchanges = [(yield from send_once(site.page(kind, first, 1)))]
    if (_find_total(exchanges[0]) or 0) > 1:
        exchanges.append((yield from send_once(site.page(kind, first + 1, 1))))
    return PageSequence(tuple(SampledPage(exchange, first + index, index, 1, 1) for index, exchange in enumerate(exchanges)))


def _find_total(exchange: HttpExchange) -> int | None:
    try:
        total = require_integer(exchange.payload or {}, "total_found")
    except InconclusiveError:
        return None
    return total if total >= 0 else None


def _select_campaigns(campaigns: list[dict[str, Any]]) -> list[str]:
    """Return the ids of the campaigns whose steps are read: a finished campaign, one campaign of each status, then others."""
    finished = [row for row in campaigns if row.get("days_left_date") == COMPLETE][:1]
    informative = sorted(campaigns, key=lambda row: (not row.get("opens_num"), not row.get("steps")))
    states = {str(row.get("status")): row for row in reversed(informative)}
    ids = [row["id"] for row in (*finished, *states.values(), *informative) if isinstance(row.get("id"), str)]
    return list(dict.fromkeys(ids))[:_MAX_STEP_LISTS]


def probe_first_page(site: Site) -> Dialogue[KnobFinding]:
    """Find out the number of the first page (rule P3)."""
    zero = yield site.page("mailboxes", 0, 1)
    one = yield site.page("mailboxes", 1, 1)
    if not is_accepted(zero):
        require_success(one)
        return observed(1, "page 0 was refused, and page 1 was served")
    document = require_success(zero)
    if require_integer(document, "current_page") != 0:
        return observed(1, "page 0 was served as another page")
    rows = extract_rows(document)
    if is_accepted(one) and rows:
        # If the list has only one page, the service may return this page with the number 0 for both requests. This is not a copy.
        other = require_success(one)
        if extract_rows(other) == rows and require_integer(other, "current_page"):
            return observed(1, "page 0 was served as a copy of page 1")
    return observed(0, "page 0 was served as page 0")
