"""What is read of a workspace before anything is judged: each operation asked as the interface says, its answers kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from outreach_async.conformance.findings import Finding, attempt, seen
from outreach_async.conformance.site import Dialogue, Site, Unclear, accepted, document, number, rows, served
from outreach_async.transport.wire import Request, Response

MAX_MAILBOXES: Final = 2000
"""The maximum `display` for mailboxes, which the interface states."""

COMPLETE: Final = "Complete"
"""What stands in a date's place when a campaign is finished."""

DISPLAYS: Final = (10, 5, 1)
"""Campaigns a page, the first that is not refused: no maximum is stated, so few."""

_CAMPAIGNS: Final = 40
_STEPS: Final = 5


@attrs.frozen
class Asked:
    """A request and its answer.

    Attributes:
        request: The request.
        answer: The answer; `None` if there was none.
        trouble: Why there was none.
    """

    request: Request
    answer: Response | None = None
    trouble: str = ""

    @property
    def said(self) -> dict[str, Any] | None:
        """The document of a success; `None` of anything else."""
        try:
            return document(self.answer) if self.answer is not None and accepted(self.answer) else None
        except Unclear:
            return None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The items of a list."""
        return rows(self.said or {})


@attrs.frozen
class Survey:
    """What was read.

    Attributes:
        fields: All-fields.
        campaigns: Pages of campaigns, in order.
        mailboxes: A page of mailboxes, as large as is allowed.
        display: Campaigns a page that were asked for.
        steps: List-steps of some campaigns, by campaign id.
        first_page: The number of the first page.
    """

    fields: Asked
    campaigns: tuple[Asked, ...]
    mailboxes: Asked
    display: int
    steps: Mapping[str, Asked]
    first_page: Finding

    @property
    def lists(self) -> Iterator[Asked]:
        """Every answer of the four lists."""
        yield from (*self.campaigns, self.mailboxes, *self.steps.values(), self.fields)

    @property
    def campaign_rows(self) -> list[dict[str, Any]]:
        """Campaigns, as listed."""
        return [row for page in self.campaigns for row in page.rows]

    @property
    def templates(self) -> list[dict[str, Any]]:
        """Templates of every step that was read."""
        return [item for asked in self.steps.values() for step in asked.rows for item in rows({"data": step.get("templates")})]

    @property
    def first(self) -> int:
        """The number of the first page, as far as is known."""
        return self.first_page.possible[0] if self.first_page.possible else 1

    @property
    def readable(self) -> bool:
        """Whether anything could be read."""
        return any(asked.said for asked in self.lists)


def ask(request: Request) -> Dialogue[Asked]:
    """Ask once; no answer is an answer, too."""
    try:
        return Asked(request, (yield request))
    except Unclear as unclear:
        return Asked(request, trouble=str(unclear))


def survey_of(site: Site) -> Dialogue[Survey]:
    """Read a workspace."""
    fields = yield from ask(site.fields())
    first_page = yield from attempt(first_page_of(site))
    first = first_page.possible[0] if first_page.possible else 1
    mailboxes = yield from ask(site.page("mailboxes", first, MAX_MAILBOXES))
    display, campaigns = yield from _campaigns(site, first)
    steps = {}
    for id_ in _worth_reading([row for page in campaigns for row in page.rows]):
        steps[id_] = yield from ask(site.steps(id_))
    return Survey(fields, campaigns, mailboxes, display, steps, first_page)


def _campaigns(site: Site, first: int) -> Dialogue[tuple[int, tuple[Asked, ...]]]:
    for display in DISPLAYS:
        pages = [(yield from ask(site.page("campaigns", first, display)))]
        if pages[0].said is not None:
            break
    # What is past the end may be the last page once more.
    total = (pages[0].said or {}).get("total_found")
    most = min(total, _CAMPAIGNS) if isinstance(total, int) else 0
    while len(pages) * display < most and len(pages[-1].rows) == display:
        pages.append((yield from ask(site.page("campaigns", first + len(pages), display))))
    return display, tuple(pages)


def _worth_reading(campaigns: list[dict[str, Any]]) -> list[str]:
    """Choose campaigns to read the steps of: a finished one, then those that say most, which are those with opens, then steps."""
    finished = [row for row in campaigns if row.get("days_left_date") == COMPLETE][:1]
    telling = sorted(campaigns, key=lambda row: (not row.get("opens_num"), not row.get("steps")))
    ids = [row["id"] for row in (*finished, *telling) if isinstance(row.get("id"), str)]
    return list(dict.fromkeys(ids))[:_STEPS]


def first_page_of(site: Site) -> Dialogue[Finding]:
    """See which number the first page has (rule P3)."""
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
