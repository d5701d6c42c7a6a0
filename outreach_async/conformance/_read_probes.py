"""Read the lists of a workspace, and measure the service behaviours that can be observed without creating contacts.

The survey reads the lists. Probes send requests whose responses the API documentation does not specify, such as a request with
an invalid page number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import attrs

from outreach_async import Request, Response
from outreach_async.conformance._target import (
    NO_MATCH,
    Dialogue,
    InconclusiveError,
    KnobFinding,
    Requests,
    ambiguous,
    extract_rows,
    is_accepted,
    observed,
    parse_document,
    require_integer,
    require_success,
    run_probe,
    unobserved,
)
from outreach_async.fake.behaviour import HeaderAuth

MAX_MAILBOXES: Final = 2000  # the maximum `display` for mailboxes in the API documentation
COMPLETE: Final = "Complete"  # the value of `days_left_date` for a finished campaign
_CAMPAIGN_DISPLAYS: Final = (10, 5, 1)  # to try in this order; all are small, because the maximum is unknown
_MAX_TOTAL: Final = 10**8  # the largest `total_found` for which the last page is read
_MAX_STEP_LISTS: Final = 10  # maximum number of campaigns whose steps are read


@attrs.frozen
class HttpExchange:
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
        return extract_rows(self.payload or {})

    @property
    def templates(self) -> list[dict[str, Any]]:
        return [template for step in self.rows for template in extract_rows(step, "templates")]


@attrs.frozen
class SampledPage:
    exchange: HttpExchange
    number: int
    index: int
    display: int
    size: int

    @property
    def item_count(self) -> int | None:
        data = (self.exchange.payload or {}).get("data")
        return len(data) if isinstance(data, list) else None

    @property
    def total(self) -> int | None:
        return _find_total(self.exchange)

    @property
    def ids(self) -> list[str]:
        return [row["id"] for row in self.exchange.rows if isinstance(row.get("id"), str)]


@attrs.frozen
class PageSequence:
    pages: tuple[SampledPage, ...]  # of one list, with one `display`
    page_after: SampledPage | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for page in self.pages for row in page.exchange.rows]


@attrs.frozen
class WorkspaceSurvey:
    fields: HttpExchange
    campaign_pages: PageSequence
    mailbox_pages: PageSequence
    single_items: tuple[PageSequence, PageSequence]
    steps: Mapping[str, HttpExchange]
    campaigns_after: HttpExchange
    first_page: KnobFinding

    @property
    def page_sequences(self) -> tuple[PageSequence, ...]:
        return (self.campaign_pages, self.mailbox_pages, *self.single_items)

    @property
    def pages(self) -> Iterator[SampledPage]:
        return (page for sequence in self.page_sequences for page in sequence.pages)

    @property
    def list_exchanges(self) -> Iterator[HttpExchange]:
        """The requests and responses of all lists, except failed requests for pages after the first page."""
        yield from (page.exchange for page in self.pages if not page.index or page.exchange.payload is not None)
        yield from (*self.steps.values(), self.fields)

    @property
    def first_page_number(self) -> int:
        return self.first_page.possible[0] if self.first_page.possible else 1


def send_once(request: Request) -> Dialogue[HttpExchange]:
    """Send a request once. If no response arrives, the error of the exchange has the reason."""
    try:
        return HttpExchange(request, (yield request))
    except InconclusiveError as error:
        return HttpExchange(request, error=str(error))


def survey_workspace(access: Requests) -> Dialogue[WorkspaceSurvey]:
    fields = yield from send_once(access.fields())
    first_page = yield from run_probe(probe_first_page(access))
    first = first_page.possible[0] if first_page.possible else 1
    mailboxes = yield from _read_sequence(access, "mailboxes", first, MAX_MAILBOXES, most=4, exact=True)
    for display in _CAMPAIGN_DISPLAYS:
        campaigns = yield from _read_sequence(access, "campaigns", first, display, most=10)
        if campaigns.pages[0].exchange.payload is not None:
            break
    # Pages of one item show whether the service obeys `page` and `display`.
    campaign = yield from _read_sequence(access, "campaigns", first, 1, most=2, whole=False)
    mailbox = yield from _read_sequence(access, "mailboxes", first, 1, most=2, whole=False)
    steps = {}
    for id_ in _select_campaigns(campaigns.rows):
        steps[id_] = yield from send_once(access.steps(id_))
    campaigns_after = yield from send_once(campaigns.pages[0].exchange.request)
    return WorkspaceSurvey(fields, campaigns, mailboxes, (campaign, mailbox), steps, campaigns_after, first_page)


def _read_sequence(
    access: Requests, kind: str, first: int, display: int, *, most: int, exact: bool = False, whole: bool = True
) -> Dialogue[PageSequence]:
    """Read the first pages of a list, at most `most`. If `whole`, also read the last page, and request one past the end."""
    head = yield from send_once(access.page(kind, first, display))
    total, served = _find_total(head), len(head.rows)
    size = display if exact or not served or total is None or total <= served else min(display, served)
    pages = [SampledPage(head, first, 0, display, size)]

    def read_page(index: int) -> Dialogue[SampledPage]:
        exchange = yield from send_once(access.page(kind, first + index, display))
        return SampledPage(exchange, first + index, index, display, size)

    if head.payload is None or total is None or total > _MAX_TOTAL:
        return PageSequence(tuple(pages))
    count = -(-total // size)
    while len(pages) < min(count, most) and pages[-1].exchange.rows:
        pages.append((yield from read_page(len(pages))))
    if not whole:
        return PageSequence(tuple(pages))
    if len(pages) < count:
        pages.append((yield from read_page(count - 1)))
    return PageSequence(tuple(pages), (yield from read_page(max(count, 1))))


def _find_total(exchange: HttpExchange) -> int | None:
    try:
        total = require_integer(exchange.payload or {}, "total_found")
    except InconclusiveError:
        return None
    return total if total >= 0 else None


def _select_campaigns(campaigns: list[dict[str, Any]]) -> list[str]:
    """Return campaign ids: of finished campaigns, of one campaign of each status, then of others."""
    finished = [row for row in campaigns if row.get("days_left_date") == COMPLETE][:1]
    finished += [row for row in campaigns if row.get("days_left") == 0 and row.get("contacts") and row not in finished][:1]
    informative = sorted(campaigns, key=lambda row: (not row.get("opens_num"), not row.get("steps")))
    states = {str(row.get("status")): row for row in reversed(informative)}
    ids = [row["id"] for row in (*finished, *states.values(), *informative) if isinstance(row.get("id"), str)]
    return list(dict.fromkeys(ids))[:_MAX_STEP_LISTS]


def probe_first_page(access: Requests) -> Dialogue[KnobFinding]:
    """Find out whether the first page has the number 0 or 1 (rule P3)."""
    zero = yield access.page("mailboxes", 0, 1)
    one = yield access.page("mailboxes", 1, 1)
    if not is_accepted(zero):
        require_success(one)
        return observed(1, "page 0 was refused, and page 1 was served")
    document = require_success(zero)
    if require_integer(document, "current_page") != 0:
        return observed(1, "page 0 was served with a current_page other than 0")
    rows = extract_rows(document)
    if is_accepted(one) and rows:
        # If the list has only one page, the service may return this page with the number 0 for both requests. This is not a copy.
        other = require_success(one)
        if extract_rows(other) == rows and require_integer(other, "current_page"):
            return observed(1, "page 0 was served as a copy of page 1")
    return observed(0, "page 0 was served with current_page 0")


_PAGES_PAST_END: Final = 5  # the number of the page past the end, after that of the last page
_HUGE_DISPLAY: Final = 10_001  # a value of `display` for campaigns that is larger than any plausible maximum
_LIKELY_MAXIMA: Final = (100, 101, 2000, 2001)  # values of `display` to try first in the search for a maximum


def probe_past_end(access: Requests, first: int) -> Dialogue[KnobFinding]:
    """Find out how the service responds to a request for a page past the end (rule P8)."""
    head = require_success((yield access.page("mailboxes", first, 1)))
    far = first + require_integer(head, "total_pages") + _PAGES_PAST_END
    response = yield access.page("mailboxes", far, 1)
    if not is_accepted(response):
        return observed("error", f"page {far}, past the end, was refused with {response.status}")
    document = parse_document(response)
    current = require_integer(document, "current_page")
    if extract_rows(document) or current != far:
        return observed("clamp", f"page {far}, past the end, was served as page {current}")
    return observed("empty", f"page {far}, past the end, was served without items")


def probe_bad_number(access: Requests, first: int) -> Dialogue[KnobFinding]:
    """Find out how the service responds to invalid or out-of-range numbers in list requests (rule P5)."""
    verdicts = {}
    for name, value in (("display", "abc"), ("display", 0), ("display", -1), ("page", "abc"), ("page", -1)):
        numbers = {"page": first, "display": 1, name: value}
        verdicts[f"{name}={value}"] = is_accepted((yield access.page("mailboxes", **numbers)))
    served = [name for name, verdict in verdicts.items() if verdict]
    refused = [name for name in verdicts if name not in served]
    if served and refused:
        return unobserved(f"served: {', '.join(served)}; refused: {', '.join(refused)}; {NO_MATCH}")
    return observed("default", f"{', '.join(served)} served") if served else observed("reject", f"{', '.join(refused)} refused")


def probe_over_max(access: Requests, first: int) -> Dialogue[KnobFinding]:
    """Find out how the service responds to a request for more mailboxes per page than allowed (rule P6)."""
    response = yield access.page("mailboxes", first, MAX_MAILBOXES + 1)
    label = f"mailboxes, display={MAX_MAILBOXES + 1}:"
    if not is_accepted(response):
        return observed("reject", f"{label} refused with {response.status}")
    document = parse_document(response)
    count, total = len(extract_rows(document)), require_integer(document, "total_found")
    if count > MAX_MAILBOXES:
        return observed("serve", f"{label} {count} served")
    if total > MAX_MAILBOXES:
        return observed("clamp", f"{label} {count} of {total} served")
    return ambiguous(("clamp", "serve"), f"{label} not refused, but {total} mailboxes are too few to decide")


def probe_campaign_max_display(access: Requests, first: int, over: KnobFinding) -> Dialogue[KnobFinding]:
    """Find the maximum `display` for campaigns (rule P7). `over` is the finding about the knob `over_max`."""
    if over.is_only("serve"):
        return unobserved("the service does not enforce the maximum display, so the maximum cannot be observed")
    response = yield access.page("campaigns", first, _HUGE_DISPLAY)
    label = f"campaigns, display={_HUGE_DISPLAY}:"
    if not is_accepted(response):
        most = yield from _find_largest_accepted(access, first)
        how = f"campaigns, display={most}: served, but display={most + 1} refused"
        return observed(most, how) if "reject" in (over.possible or ("reject",)) else _unobserved_difference(how)
    document = parse_document(response)
    count, total = len(extract_rows(document)), require_integer(document, "total_found")
    if total and not count:
        raise InconclusiveError(f"{label} none of {total} served")
    if count < total:
        how = f"{label} {count} of {total} served"
        return _unobserved_difference(how) if over.is_only("reject") else observed(count, how)
    if over.is_only("reject"):
        return observed(None, f"{label} served")
    left = [maximum for maximum in (None, 2000, 100) if maximum is None or maximum >= total]
    return ambiguous(left, f"{label} all {total} served, so there is no maximum, or it is at least {max(total, 1)}")


def _unobserved_difference(how: str) -> KnobFinding:
    return unobserved(f"{how}; for mailboxes, the service behaves differently, but the knob over_max applies to both lists")


def _find_largest_accepted(access: Requests, first: int) -> Dialogue[int]:
    low, high = 0, _HUGE_DISPLAY
    while high - low > 1:
        middle = next((place for place in _LIKELY_MAXIMA if low < place < high), (low + high) // 2)
        if is_accepted((yield access.page("campaigns", first, middle))):
            low = middle
        else:
            high = middle
    if not low:
        raise InconclusiveError("the service refused every value of display that was tried for campaigns")
    return low


def refine_over_max(over: KnobFinding, maximum: KnobFinding) -> KnobFinding:
    """Return the finding about `over_max`, given that about the maximum for campaigns: an observed maximum shows a `clamp`."""
    if "clamp" in over.possible and not over.is_observed and maximum.is_observed and maximum.possible[0] is not None:
        return observed("clamp", maximum.explanation)
    return over


def probe_error_renderer(access: Requests) -> Dialogue[KnobFinding]:
    """Find out the format of error responses (rule E2), by sending requests that the service must refuse."""
    for request in (
        access.steps(f"camp_conformance{access.nonce}"),
        access.get(f"/workspaces/space_conformance{access.nonce}/all-fields"),
        access.get("/campaigns", workspace=access.workspace),
    ):
        response = yield request
        if not is_accepted(response):
            return interpret_refusal(response)
    return unobserved("no request was refused")


def interpret_refusal(response: Response) -> KnobFinding:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    document = parse_document(response)
    body = f"the body of an error response with status {response.status}"
    if isinstance(document, dict):
        how = f"{body} is a JSON object with {', '.join(sorted(document)[:8]) or 'no keys'}"
        if isinstance(document.get("error"), dict):
            return observed("nested" if response.status >= 400 else "200_with_error", how)  # noqa: PLR2004 - where refusals begin
        if isinstance(document.get("message"), str):
            return observed("flat", how)
        return unobserved(f"{how}; {NO_MATCH}")
    if "html" in kind or response.body.lstrip()[:1] == b"<":
        return observed("html", f"{body} is HTML")
    if kind == "text/plain":
        return observed("text", f"{body} is plain text")
    return unobserved(f"{body} is not a JSON object, HTML or plain text")


def probe_auth(access: Requests) -> Dialogue[KnobFinding]:
    """Find out which of the headers in `access` the service requires (rule A3)."""
    # It requires a header if it refuses the request without it. If it requires none of them, but refuses the request with all of
    # them, its `WWW-Authenticate` header shows the authentication scheme.
    for name in access.headers:
        left = {other: value for other, value in access.headers.items() if other != name}
        if not is_accepted((yield Requests(access.workspace, headers=left, nonce=access.nonce).fields())):
            scheme = access.headers[name].rpartition(" ")[0]
            return observed(HeaderAuth(name.lower(), scheme), f"the request for all-fields was refused without the header {name}")
    response = yield access.fields()
    if is_accepted(response):
        return observed(None, "the request for all-fields was accepted without a credential in a header")
    challenge = response.headers.get("www-authenticate", "").partition(" ")[0]
    if not challenge:
        return unobserved("the request for all-fields was refused; if a credential is missing, pass it as a header")
    return observed(HeaderAuth(scheme=challenge), "the request for all-fields was refused with an authentication challenge")


# Number of values of one form that prove that the service uses no other. Of two equally likely forms, 12 values all have the same
# one with a chance of about 1 in 2,000.
_PROOF_COUNT: Final = 12
_MOST_DIGITS: Final = 2
Item = Mapping[str, Any]
_UNIT_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800, "month": 2592000, "year": 31536000}
_AGE_PATTERN: Final = re.compile(rf"([0-9]{{1,6}}|an?) ({'|'.join(_UNIT_SECONDS)})s? ago", re.IGNORECASE)


def _collect_percentages(survey: WorkspaceSurvey) -> list[float]:
    templates = [template for exchange in survey.steps.values() for template in exchange.templates]
    return [
        *_collect_numbers(survey.campaign_pages.rows, ("opens", "interested", "replies", "bounces")),
        *_collect_numbers(survey.mailbox_pages.rows, ("opened_14days", "avg_open_rate", "avg_click_rate")),
        *_collect_numbers(templates, ("opened", "clicked", "replied", "unsubscribed")),
    ]


def _collect_numbers(items: Iterable[Item], names: Sequence[str]) -> Iterator[float]:
    return (item[name] for item in items for name in names if _is_number(item.get(name)))


def _is_number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def measure_numbers(survey: WorkspaceSurvey) -> KnobFinding:
    """Find out the JSON type of percentages that are whole numbers: an integer (`50`) or a float (`50.0`) (rule W9)."""
    whole = [value for value in _collect_percentages(survey) if not _count_decimals(value)]
    integers = sum(type(value) is int for value in whole)
    floats = len(whole) - integers
    how = f"{len(whole)} percentages are whole numbers: {integers} are written as integers, {floats} as floats"
    return _decide_form({"int_when_whole": integers, "float": floats}, how, "no percentage that is a whole number was read")


def measure_percent_digits(survey: WorkspaceSurvey) -> KnobFinding:
    """Find out how many decimal places percentages have (rule T8)."""
    found = _collect_percentages(survey)
    most = max(map(_count_decimals, found), default=0)
    how = f"{len(found)} percentages have at most {most} decimal places"
    if most > _MOST_DIGITS:
        return unobserved(f"{how}; {NO_MATCH}")
    if most == _MOST_DIGITS or len({*found} - {0, 100}) >= _PROOF_COUNT:
        return observed(most, how)
    return ambiguous((2, 1), f"{how}: too few to decide") if most else unobserved(f"{how}: too few to decide")


def _count_decimals(value: float) -> int:
    return max(0, -int(Decimal(repr(value)).normalize().as_tuple().exponent))


def measure_list_date(survey: WorkspaceSurvey) -> KnobFinding:
    """Find out how the campaign list writes dates (rule T16)."""
    dates = [row.get("days_left_date") for row in survey.campaign_pages.rows]
    timestamps = sum(map(_is_number, dates))
    # A string without digits, such as Complete, is not a date.
    texts = sum(isinstance(date, str) and any(map(str.isdigit, date)) for date in dates)
    how = f"of {timestamps + texts} dates, {timestamps} are numbers and {texts} strings"
    return _decide_form({"timestamp": timestamps, "text": texts}, how, "no campaign with a date was read")


def _decide_form(forms: Mapping[str, int], how: str, why_not: str) -> KnobFinding:
    """Return the finding that all values have one form, which may be `mixed` if they are few; `mixed` if they have several."""
    met = [form for form, count in forms.items() if count]
    if len(met) != 1:
        return observed("mixed", how) if met else unobserved(why_not)
    return observed(met[0], how) if forms[met[0]] >= _PROOF_COUNT else ambiguous((met[0], "mixed"), how)


def measure_order(survey: WorkspaceSurvey) -> KnobFinding:
    """Find out the order of lists (rule P10)."""
    campaigns, mailboxes = survey.campaign_pages.rows, survey.mailbox_pages.rows
    orders, others = _match_orders(campaigns, "created"), _match_orders(mailboxes, "created_at")
    fitting = [order for order, fits in orders.items() if fits and others[order]]
    if not fitting:
        return unobserved("no value of this knob matches the order of both campaigns and mailboxes")
    if len(fitting) == len(orders):
        return unobserved("too few rows to decide")
    return ambiguous(fitting, f"observed in {len(campaigns)} campaigns and {len(mailboxes)} mailboxes")


def _match_orders(items: Sequence[Item], created: str) -> dict[str, bool]:
    times = list(_collect_numbers(items, (created,)))
    ages = [age for item in items if (age := parse_age(item.get("last_activity"))) is not None]
    return {
        "oldest": times == sorted(times),
        "newest": times == sorted(times, reverse=True),
        "last_activity": len(ages) == len(items) and ages == sorted(ages),
    }


def parse_age(text: object) -> float | None:
    """Return the seconds of a relative time, such as `5 minutes ago`; infinity for `never`, and `None` for another text."""
    if not isinstance(text, str):
        return None
    match = _AGE_PATTERN.fullmatch(text.strip())
    if match:
        return _UNIT_SECONDS[match[2].lower()] * (int(match[1]) if match[1].isdigit() else 1)
    return {"just now": 0.0, "never": math.inf}.get(text.strip().lower())


def run_read_probes(access: Requests, survey: WorkspaceSurvey) -> Dialogue[dict[str, KnobFinding]]:
    first, mailboxes, campaigns = survey.first_page_number, survey.mailbox_pages, survey.campaign_pages
    over = yield from _run_if_readable(mailboxes, probe_over_max(access, first))
    maximum = yield from _run_if_readable(campaigns, probe_campaign_max_display(access, first, over))
    return {
        "first_page": survey.first_page,
        "order": measure_order(survey),
        "numbers": measure_numbers(survey),
        "percent_digits": measure_percent_digits(survey),
        "list_date": measure_list_date(survey),
        "auth": (yield from run_probe(probe_auth(access))),
        "error_renderer": (yield from run_probe(probe_error_renderer(access))),
        "past_end": (yield from _run_if_readable(mailboxes, probe_past_end(access, first))),
        "bad_number": (yield from _run_if_readable(mailboxes, probe_bad_number(access, first))),
        "over_max": refine_over_max(over, maximum),
        "campaign_max_display": maximum,
    }


def _run_if_readable(listed: PageSequence, probe: Dialogue[KnobFinding]) -> Dialogue[KnobFinding]:
    if listed.pages[0].exchange.payload is None:
        return unobserved("the list could not be read")
    return (yield from run_probe(probe))
