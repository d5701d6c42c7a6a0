"""Measure the knobs that reading reveals. Read-only: ordinary pages first, then unusual list requests."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import attrs

from outreach_async.conformance.target import (
    Dialogue,
    Finding,
    Site,
    Unclear,
    accepted,
    among,
    attempt,
    document,
    number,
    rows,
    seen,
    served,
    unseen,
)
from outreach_async.fake.behaviour import HeaderAuth
from outreach_async.transport.wire import Request, Response

FAR: Final = 5
"""How many pages past the end to request."""

MOST: Final = 10_001
"""The `display` of campaigns requested to find out whether there is a maximum."""

_MAXIMA: Final = (100, 101, 2000, 2001)
"""The values of `display` at which to look for a maximum first."""


def past_end(site: Site, first: int) -> Dialogue[Finding]:
    """Request a page past the end (rule P8)."""
    head = served((yield site.page("mailboxes", first, 1)))
    far = first + number(head, "total_pages") + FAR
    return read_past_end((yield site.page("mailboxes", far, 1)), far)


def read_past_end(answer: Response, far: int) -> Finding:
    """Interpret the response to a page past the end."""
    if not accepted(answer):
        return seen("error", f"page {far}, past the end, was refused with {answer.status}")
    said = document(answer)
    current = number(said, "current_page")
    if rows(said) or current != far:
        return seen("clamp", f"page {far}, past the end, was served as page {current}")
    return seen("empty", f"page {far}, past the end, was served empty")


def bad_number(site: Site, first: int) -> Dialogue[Finding]:
    """Request lists with invalid or out-of-range numbers (rule P5)."""
    verdicts = {}
    for name, page, display in (
        ("display=abc", first, "abc"),
        ("display=0", first, 0),
        ("display=-1", first, -1),
        ("page=abc", "abc", 1),
        ("page=-1", -1, 1),
    ):
        verdicts[name] = accepted((yield site.page("mailboxes", page, display)))
    taken = [name for name, verdict in verdicts.items() if verdict]
    refused = [name for name in verdicts if name not in taken]
    if taken and refused:
        return unseen(f"{', '.join(taken)} served, but {', '.join(refused)} refused: matches no value of the knob")
    return seen("default", f"{', '.join(taken)} served") if taken else seen("reject", f"{', '.join(refused)} refused")


def over_max(site: Site, first: int) -> Dialogue[Finding]:
    """Request more mailboxes per page than allowed (rule P6)."""
    answer = yield site.page("mailboxes", first, MAX_MAILBOXES + 1)
    wanted = f"mailboxes, display={MAX_MAILBOXES + 1}:"
    if not accepted(answer):
        return seen("reject", f"{wanted} refused with {answer.status}")
    said = document(answer)
    count, total = len(rows(said)), number(said, "total_found")
    if count > MAX_MAILBOXES:
        return seen("serve", f"{wanted} {count} served")
    if total > MAX_MAILBOXES:
        return seen("clamp", f"{wanted} {count} of {total} served")
    return among(("clamp", "serve"), f"{wanted} not refused; there are {total} mailboxes, too few to decide")


def campaign_max_display(site: Site, first: int, over: Finding) -> Dialogue[Finding]:
    """Find the maximum of campaigns per page (rule P7), given what happens above a maximum."""
    if over.is_seen_as("serve"):
        return unseen("more than the maximum is served, so a maximum cannot be observed")
    answer = yield site.page("campaigns", first, MOST)
    wanted = f"campaigns, display={MOST}:"
    if not accepted(answer):
        most = yield from _largest_accepted(site, first)
        how = f"campaigns, display={most}: served; one more: refused"
        return seen(most, how) if "reject" in (over.possible or ("reject",)) else _differing(how)
    said = document(answer)
    count, total = len(rows(said)), number(said, "total_found")
    if total and not count:
        raise Unclear(f"{wanted} none of {total} served")
    if count < total:
        how = f"{wanted} {count} of {total} served"
        return _differing(how) if over.is_seen_as("reject") else seen(count, how)
    if over.is_seen_as("reject"):
        return seen(None, f"{wanted} served")
    left = [maximum for maximum in (None, 2000, 100) if maximum is None or maximum >= total]
    return among(left, f"{wanted} all {total} served, so a maximum of {max(total, 1)} or more cannot be observed")


def _differing(how: str) -> Finding:
    return unseen(f"{how}; mailboxes behave differently, but Behaviour has one knob for both")


def _largest_accepted(site: Site, first: int) -> Dialogue[int]:
    low, high = 0, MOST
    while high - low > 1:
        middle = next((place for place in _MAXIMA if low < place < high), (low + high) // 2)
        if accepted((yield site.page("campaigns", first, middle))):
            low = middle
        else:
            high = middle
    if not low:
        raise Unclear("campaigns were refused with every display")
    return low


def over_by_campaigns(over: Finding, maximum: Finding) -> Finding:
    """Decide between `clamp` and `serve` from campaigns if there were too few mailboxes."""
    if "clamp" in over.possible and not over.seen and maximum.seen and maximum.possible[0] is not None:
        return seen("clamp", maximum.how)
    return over


def error_renderer(site: Site) -> Dialogue[Finding]:
    """Send requests that must be refused, and interpret the first refusal (rule E2)."""
    why = "no request was refused"
    for request in (
        site.steps(f"camp_conformance{site.nonce}"),
        site.get(f"/workspaces/space_conformance{site.nonce}/all-fields"),
        site.get("/campaigns", workspace=site.workspace),
    ):
        answer = yield request
        if not accepted(answer):
            return read_refusal(answer)
    return unseen(why)


def read_refusal(answer: Response) -> Finding:
    """Return the format of a refusal."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    said = document(answer)
    if isinstance(said, dict):
        return _read_json_refusal(answer.status, said)
    if "html" in kind or answer.body.lstrip()[:1] == b"<":
        return seen("html", f"a refusal with {answer.status} is a web page")
    if kind == "text/plain":
        return seen("text", f"a refusal with {answer.status} is plain text")
    return unseen(f"a refusal with {answer.status} is neither JSON nor text")


def _read_json_refusal(status: int, said: dict[str, Any]) -> Finding:
    names = ", ".join(sorted(said)[:8])
    how = f"a refusal with {status} is an object of {names}"
    if isinstance(said.get("error"), dict):
        return seen("nested" if status >= 400 else "200_with_error", how)  # noqa: PLR2004 - where refusals begin
    if isinstance(said.get("message"), str):
        return seen("flat", how)
    return unseen(f"{how}, which matches no value of the knob")


def auth(site: Site) -> Dialogue[Finding]:
    """Omit each of the site's header fields in turn (rule A3). If there are none, look for a challenge."""
    for name in site.headers:
        left = {other: value for other, value in site.headers.items() if other != name}
        if not accepted((yield Site(site.workspace, headers=left, nonce=site.nonce).fields())):
            scheme = site.headers[name].rpartition(" ")[0]
            return seen(HeaderAuth(name.lower(), scheme), f"without the header {name} the fields were refused")
    answer = yield site.fields()
    if accepted(answer):
        return seen(None, "the fields were served without a credential in a header")
    challenge = answer.headers.get("www-authenticate", "").partition(" ")[0]
    if not challenge:
        return unseen("the fields were refused; if a credential is missing, pass it as a header")
    return seen(HeaderAuth(scheme=challenge), "the fields were refused with a challenge")


ENOUGH: Final = 12
"""Number of identical values taken as proof: if both forms were equally likely, 12 would be alike once in about 2,000 cases."""

Row = Mapping[str, Any]

_CAMPAIGN: Final = ("opens", "interested", "replies", "bounces")
_MAILBOX: Final = ("opened_14days", "avg_open_rate", "avg_click_rate")
_TEMPLATE: Final = ("opened", "clicked", "replied", "unsubscribed")
_DIGITS: Final = (2, 1, 0)
_UNITS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800, "month": 2592000, "year": 31536000}
_AGO: Final = re.compile(rf"([0-9]{{1,6}}|an?) ({'|'.join(_UNITS)})s? ago", re.IGNORECASE)


@attrs.frozen
class Percentage:
    """A percentage as it was written.

    Attributes:
        value: The number; a whole one may be an integer or a float.
        exact: The value before rounding; `None` if its counts are not given.
    """

    value: float
    exact: Fraction | None = None

    @property
    def decimals(self) -> int:
        """Decimal places, without trailing zeros."""
        exponent = Decimal(repr(self.value)).normalize().as_tuple().exponent
        return max(0, -int(exponent))

    def fits(self, digits: int) -> bool:
        """Return whether the value can be the result of rounding to `digits` decimal places."""
        if self.decimals > digits:
            return False
        return self.exact is None or abs(Fraction(repr(self.value)) - self.exact) <= Fraction(1, 2 * 10**digits)


def percentages(survey: Survey) -> list[Percentage]:
    """Return every percentage that was read."""
    listed = [*_values(survey.campaign_rows, _CAMPAIGN), *_values(survey.mailbox_rows, _MAILBOX)]
    return [*map(Percentage, listed), *(found for template in survey.templates for found in _of_template(template))]


def _values(items: Iterable[Row], names: Sequence[str]) -> Iterator[float]:
    return (item[name] for item in items for name in names if _is_number(item.get(name)))


def _is_number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _of_template(template: dict[str, Any]) -> Iterator[Percentage]:
    sent: Any = template.get("sent")
    for name in _TEMPLATE:
        value: Any = template.get(name)
        count: Any = template.get(f"{name}_num")
        if _is_number(value):
            known = type(sent) is int and type(count) is int and sent > 0
            yield Percentage(value, Fraction(100 * count, sent) if known else None)


def numbers(survey: Survey) -> Finding:
    """Find out how whole percentages are written (rule W9)."""
    whole = [found.value for found in percentages(survey) if not found.decimals]
    integers = sum(type(value) is int for value in whole)
    floats = len(whole) - integers
    how = f"of {len(whole)} whole percentages, {integers} are integers and {floats} floats"
    if not whole:
        return unseen("no whole percentage was read")
    return _one_or_mixed({"int_when_whole": integers, "float": floats}, len(whole), how)


def percent_digits(survey: Survey) -> Finding:
    """Find out to how many decimal places percentages are rounded (rule T8)."""
    found = percentages(survey)
    most = max((percentage.decimals for percentage in found), default=0)
    loose = {percentage.value for percentage in found if percentage.exact is None} - {0, 100}
    how = f"{len(found)} percentages have at most {most} decimal places"
    if most > _DIGITS[0]:
        return unseen(f"{how}, which matches no value of the knob")
    if most == _DIGITS[0] or len(loose) >= ENOUGH:
        return seen(most, how)
    fitting = [digits for digits in _DIGITS if all(percentage.fits(digits) for percentage in found)]
    if not fitting or len(fitting) == len(_DIGITS):
        return unseen(f"{how}: too few to decide")
    return among(fitting, f"{how} and match their counts")


def list_date(survey: Survey) -> Finding:
    """Find out how the campaign list writes dates (rule T16)."""
    dates = [row.get("days_left_date") for row in survey.campaign_rows]
    stamps = sum(map(_is_number, dates))
    # A string without a digit, such as Complete, replaces a date that does not exist.
    texts = sum(isinstance(date, str) and any(map(str.isdigit, date)) for date in dates)
    how = f"of {stamps + texts} dates, {stamps} are numbers and {texts} strings"
    if not stamps and not texts:
        return unseen("no campaign with a date was read")
    return _one_or_mixed({"timestamp": stamps, "text": texts}, stamps + texts, how)


def _one_or_mixed(forms: Mapping[str, int], read: int, how: str) -> Finding:
    """Decide between two forms from how often each occurred, at least one of them. A few of one form may be part of a mixture."""
    if all(forms.values()):
        return seen("mixed", how)
    alike = next(form for form, met in forms.items() if met)
    return seen(alike, how) if read >= ENOUGH else among((alike, "mixed"), how)


def order(survey: Survey) -> Finding:
    """Find out the order of lists (rule P10)."""
    campaigns = _fitting_orders(survey.campaign_rows, "created")
    mailboxes = _fitting_orders(survey.mailbox_rows, "created_at")
    fitting = [reading for reading in campaigns if reading in mailboxes]
    how = f"{len(survey.campaign_rows)} campaigns and {len(survey.mailbox_rows)} mailboxes are in this order"
    if not fitting:
        return unseen("the lists match no value of the knob, or have different orders")
    if len(fitting) == len(_ORDERS):
        return unseen("too few rows to decide")
    return among(fitting, how)


_ORDERS: Final = ("oldest", "newest", "last_activity")


def _fitting_orders(items: Sequence[Row], created: str) -> list[str]:
    times = list(_values(items, (created,)))
    ages = [age(item.get("last_activity")) for item in items]
    fits = {"oldest": times == sorted(times), "newest": times == sorted(times, reverse=True), "last_activity": _rising(ages)}
    return [reading for reading in _ORDERS if fits[reading]]


def _rising(ages: Sequence[float | None]) -> bool:
    known = [age for age in ages if age is not None]
    return len(known) == len(ages) and known == sorted(known)


def age(words: object) -> float | None:
    """Return the minimum age in seconds for a relative text such as `5 minutes ago`; `None` if it is not understood."""
    if not isinstance(words, str):
        return None
    match = _AGO.fullmatch(words.strip())
    if match:
        return _UNITS[match[2].lower()] * (int(match[1]) if match[1].isdigit() else 1)
    return {"just now": 0.0, "never": math.inf}.get(words.strip().lower())


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
