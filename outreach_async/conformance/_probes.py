"""Send requests to a workspace, read its lists, and measure the behaviour of the service: without creating contacts, then with.

Requests are plain HTTP, so that any response can be handled. The survey reads the lists. A probe sends requests whose responses
the API documentation does not specify, such as one with an invalid page number, and returns a finding. Every created contact has
an e-mail address that does not exist. Contacts are permanent: no operation deletes a contact.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from secrets import token_hex
from typing import Any, Final
from urllib.parse import quote, urlencode

import anyio
import attrs

from outreach_async import Progress, Request, Response, Transport
from outreach_async._plumbing import mask_string, parse_retry_after, require_plain, require_types, secret_parts, trim
from outreach_async.errors import InvalidRequest, TransportError, shorten
from outreach_async.fake.behaviour import HeaderAuth
from outreach_async.models import STANDARD_FIELDS


@attrs.frozen
class KnobFinding:
    possible: tuple[Any, ...]
    explanation: str

    @property
    def is_observed(self) -> bool:
        return len(self.possible) == 1

    def is_only(self, value: object) -> bool:
        return self.possible == (value,)


def observed(value: Any, how: str) -> KnobFinding:
    return KnobFinding((value,), how)


def ambiguous(values: Iterable[Any], how: str) -> KnobFinding:
    return KnobFinding(tuple(values), how)


def unobserved(why: str) -> KnobFinding:
    return KnobFinding((), why)


Probe = Callable[..., Awaitable[KnobFinding]]


async def run_probe(probe: Probe, *about: Any) -> KnobFinding:
    """Run a probe. If a response is missing or inconclusive, the finding has no value, and says so."""
    try:
        return await probe(*about)
    except InconclusiveError as error:
        return unobserved(str(error))


_RESPONSE_TIMEOUT: Final = 30.0  # seconds
MAX_THROTTLED: Final = 120.0  # seconds of waiting, in total, before retries of throttled requests
_MAX_UNANSWERED: Final = 3  # maximum number of requests to a service that has never responded


class Sender:
    """Sends requests over a transport. If the first three requests get no response, it sends no more."""

    def __init__(self, transport: Transport, secrets: tuple[str, ...] = (), max_throttled: float = MAX_THROTTLED) -> None:
        self.request_count = 0
        self.retry_after_values: list[str] = []
        self._transport = transport
        self._remaining_wait = max_throttled
        self._responded = False
        self._failure = ""
        self._secrets = secrets

    async def send(self, request: Request) -> Response:
        """Send a request, and again after each throttled response. Without a response, raise `InconclusiveError`."""
        while True:
            response = await self._send_once(request)
            if not is_throttled(response):
                return response
            self.retry_after_values.append(response.headers.get("retry-after", ""))
            # At least a second: waits of 0 s would never use up the budget, and the loop would never end.
            wait = max(1.0, parse_retry_after(response.headers, now=time.time()) or 0.0)
            if wait > self._remaining_wait:
                return response
            self._remaining_wait -= wait
            await anyio.sleep(wait)

    async def _send_once(self, request: Request) -> Response:
        if not self._responded and self.request_count == _MAX_UNANSWERED:  # otherwise, each request could wait for its timeout
            raise InconclusiveError(self._failure)
        self.request_count += 1
        try:
            with anyio.fail_after(_RESPONSE_TIMEOUT):
                response = await self._transport.send(request, Progress())
        except TimeoutError:
            self._failure = f"no response within {_RESPONSE_TIMEOUT:g} s"
            raise InconclusiveError(self._failure) from None
        except TransportError as error:
            self._failure = f"no response: {mask_string(str(error), self._secrets)}"
            raise InconclusiveError(self._failure) from None
        self._responded = True
        return response


DOMAIN: Final = "conformance.example"
"""Domain of the created contacts' e-mail addresses. RFC 2606 reserves `.example`, so no real address has this domain."""
CUSTOM_CODE: Final = re.compile(r"custom_[1-9][0-9]{0,8}", re.ASCII)
NO_MATCH: Final = "no value of this knob matches this behaviour"
OUTCOMES: Final = ("added", "skipped", "overwriten", "updated_missing_fields")
"""Values of `status` in the response to a create request, spelled as in the service's API documentation."""

_MAX_SHOWN: Final = 500
_MAX_BODY_READ: Final = 20_000
_TOO_MANY_REQUESTS: Final = 429


class InconclusiveError(Exception):
    """Raised if a response is missing or inconclusive, such as a server error, a redirect or invalid JSON."""


def _lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    require_types(_lower_names, {"headers": headers})
    return {name.lower(): value for name, value in headers.items()}


def _strip(value: str | None) -> str | None:
    return trim(value)  # type: ignore[no-any-return]  # a string stays one


def _strip_workspace(value: str) -> str:
    given: object = value
    return (trim(given) or "") if isinstance(given, str) else value


@attrs.frozen
class Access:
    """The workspace to check, credentials, and whether to create contacts.

    Attributes:
        workspace: Workspace id.
        owner_key: API key of a user of the workspace; required to create
            contacts.
        writes: Whether contacts may be created in the workspace.
        campaign: Id of a draft campaign to which contacts may be added;
            `None` for no campaign.
        headers: Header fields to send, such as `authorization`.
        nonce: A string that makes the addresses of this run unique.

    Raises:
        InvalidRequest: The values contradict each other.

    Example:
        ```python
        access = Access("space_1", owner_key="key_1", writes=True)
        print(len(await check(FakeTransport(fake), access)))  # -> 0
        ```
    """

    workspace: str = attrs.field(converter=_strip_workspace)
    owner_key: str | None = attrs.field(default=None, repr=False, converter=_strip)
    writes: bool = False
    campaign: str | None = attrs.field(default=None, converter=_strip)
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False, converter=_lower_names)
    nonce: str = attrs.field(factory=partial(token_hex, 6))

    def __attrs_post_init__(self) -> None:
        require_types(Access, attrs.asdict(self, recurse=False))
        for field in ("workspace", "owner_key", "campaign"):
            require_plain(field, getattr(self, field) or "", "correct it")
        if self.writes and not self.owner_key:
            raise InvalidRequest("owner_key: expected an API key for writes=True, got none; pass an owner_key, or omit writes")
        if not self.writes and self.campaign:
            raise InvalidRequest("campaign: needs writes=True, got writes=False; pass writes=True, or omit campaign")


def secrets_of(access: Access, transport: object) -> tuple[str, ...]:
    """Return the strings to mask in reports and errors. A transport may have secrets, such as a proxy password."""
    own = [access.owner_key] if access.owner_key else []
    return (*own, *secret_parts(access.headers), *getattr(transport, "secrets", ()))


@attrs.frozen
class Requests(Access):
    """Builds the requests to a workspace. `send` sends one of them."""

    send: Callable[[Request], Awaitable[Response]] = attrs.field(kw_only=True, repr=False, eq=False)
    secrets: tuple[str, ...] = attrs.field(default=(), kw_only=True, repr=False)

    def get(self, path: str, **query: Any) -> Request:
        return Request("GET", f"{path}?{urlencode(query)}" if query else path, self.headers)

    def page(self, kind: str, page: Any, display: Any) -> Request:
        return self.get(f"/{kind}", workspace=self.workspace, display=display, page=page)

    def fields(self) -> Request:
        return self.get(f"/workspaces/{quote(self.workspace, safe='')}/all-fields")

    def steps(self, campaign: str) -> Request:
        return self.get(f"/campaigns/{quote(campaign, safe='')}/steps")

    def address(self, name: str) -> str:
        return f"{name}-{self.nonce}@{DOMAIN}"

    def creation(
        self,
        email: str,
        duplicates: str = "skip",
        fields: Mapping[str, str] | None = None,
        *,
        key: str | None = None,
        options: Mapping[str, Any] | None = None,
        omit: str = "",
    ) -> Request:
        """Return a request that creates a contact. `options` are those of `upload_options`; `omit` is a key to leave out."""
        given: dict[str, Any] = {"duplicates": duplicates, "strict_validation": False, "campaign": None, **(options or {})}
        body: dict[str, Any] = {
            "owner_key": self.owner_key if key is None else key,
            "workspace": self.workspace,
            "email": email,
            "upload_options": given,
            **(fields or {}),
        }
        (body if omit in body else given).pop(omit, None)
        return Request("POST", "/contacts", {**self.headers, "content-type": "application/json"}, json.dumps(body).encode())

    def format_response(self, response: Response) -> str:
        """Return a response as a string of about 500 characters at most, with secrets masked."""
        body = mask_string(response.body[:_MAX_BODY_READ].decode(errors="replace"), self.secrets)
        words = " ".join("".join(c if c.isprintable() else " " for c in body).split())
        return f"{response.status} {shorten(words, _MAX_SHOWN)}".rstrip()


def parse_document(response: Response) -> Any:
    try:
        return json.loads(response.body)
    except (ValueError, RecursionError):
        return None


def is_throttled(response: Response) -> bool:
    return response.status == _TOO_MANY_REQUESTS or "retry-after" in response.headers


def is_accepted(response: Response) -> bool:
    """Return whether a response shows that the service accepted the request. A response with the status 200 can be a refusal.

    A body with another status than those in the API documentation and `error` is inconclusive.
    """
    if is_throttled(response):
        raise InconclusiveError(f"the service throttled the request with {response.status}")
    if 400 <= response.status < 500:  # noqa: PLR2004 - the range of refusals
        return False
    document = parse_document(response)
    if not 200 <= response.status < 300 or not isinstance(document, dict):  # noqa: PLR2004 - the range of successes
        fault = "" if isinstance(document, dict) else " without a JSON object"
        raise InconclusiveError(f"the service responded with {response.status}{fault}")
    status = document.get("status")
    if status in ("ok", *OUTCOMES):  # a tuple, not a set, because the value may be unhashable
        return True
    if status == "error" or document.get("error"):
        return False
    raise InconclusiveError(f"the service responded with {response.status} and the unknown status {shorten(repr(status), 60)}")


def require_success(response: Response) -> dict[str, Any]:
    if not is_accepted(response):
        raise InconclusiveError(f"the service refused the request with {response.status}")
    found: dict[str, Any] = parse_document(response)
    return found


def extract_rows(document: Mapping[str, Any], name: str = "data") -> list[dict[str, Any]]:
    """Return the items of a list in a document. Items that are not objects are left out."""
    data = document.get(name)
    return [item for item in data if isinstance(item, dict)] if isinstance(data, list) else []


def require_integer(document: Mapping[str, Any], name: str) -> int:
    value = document.get(name)
    if type(value) is not int and not (type(value) is float and value.is_integer()):
        raise InconclusiveError(f"{name} is not a whole number")
    return int(value)


# The lists of a workspace.

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
    unknown_workspace: Mapping[str, HttpExchange] = attrs.field(factory=dict)

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


async def send_once(access: Requests, request: Request) -> HttpExchange:
    """Send a request once. If no response arrives, the error of the exchange has the reason."""
    try:
        return HttpExchange(request, await access.send(request))
    except InconclusiveError as error:
        return HttpExchange(request, error=str(error))


async def survey_workspace(access: Requests) -> WorkspaceSurvey:
    fields = await send_once(access, access.fields())
    first_page = await run_probe(probe_first_page, access)
    first = first_page.possible[0] if first_page.possible else 1
    mailboxes = await _read_sequence(access, "mailboxes", first, MAX_MAILBOXES, most=4, exact=True)
    for display in _CAMPAIGN_DISPLAYS:
        campaigns = await _read_sequence(access, "campaigns", first, display, most=10)
        if campaigns.pages[0].exchange.payload is not None:
            break
    # Pages of one item show whether the service obeys `page` and `display`.
    campaign = await _read_sequence(access, "campaigns", first, 1, most=2, whole=False)
    mailbox = await _read_sequence(access, "mailboxes", first, 1, most=2, whole=False)
    steps = {}
    for id_ in _select_campaigns(campaigns.rows):
        steps[id_] = await send_once(access, access.steps(id_))
    campaigns_after = await send_once(access, campaigns.pages[0].exchange.request)
    unknown = attrs.evolve(access, workspace=f"space_conformance{access.nonce}")
    requests = {kind: unknown.page(kind, first, 1) for kind in ("campaigns", "mailboxes")} | {"fields": unknown.fields()}
    unknown_workspace = {kind: await send_once(unknown, request) for kind, request in requests.items()}
    single_items = campaign, mailbox
    return WorkspaceSurvey(
        fields, campaigns, mailboxes, single_items, steps, campaigns_after, first_page, unknown_workspace=unknown_workspace
    )


async def _read_sequence(
    access: Requests, kind: str, first: int, display: int, *, most: int, exact: bool = False, whole: bool = True
) -> PageSequence:
    """Read the first pages of a list, at most `most`. If `whole`, also read the last page, and request one past the end."""
    head = await send_once(access, access.page(kind, first, display))
    total, served = _find_total(head), len(head.rows)
    size = display if exact or not served or total is None or total <= served else min(display, served)
    pages = [SampledPage(head, first, 0, display, size)]

    async def read_page(index: int) -> SampledPage:
        exchange = await send_once(access, access.page(kind, first + index, display))
        return SampledPage(exchange, first + index, index, display, size)

    if head.payload is None or total is None or total > _MAX_TOTAL:
        return PageSequence(tuple(pages))
    count = -(-total // size)
    while len(pages) < min(count, most) and pages[-1].exchange.rows:
        pages.append(await read_page(len(pages)))
    if not whole:
        return PageSequence(tuple(pages))
    if len(pages) < count:
        pages.append(await read_page(count - 1))
    return PageSequence(tuple(pages), await read_page(max(count, 1)))


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


async def probe_first_page(access: Requests) -> KnobFinding:
    """Find out whether the first page has the number 0 or 1 (rule P3)."""
    zero = await access.send(access.page("mailboxes", 0, 1))
    one = await access.send(access.page("mailboxes", 1, 1))
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


async def probe_past_end(access: Requests, first: int) -> KnobFinding:
    """Find out how the service responds to a request for a page past the end (rule P8)."""
    head = require_success(await access.send(access.page("mailboxes", first, 1)))
    far = first + require_integer(head, "total_pages") + _PAGES_PAST_END
    response = await access.send(access.page("mailboxes", far, 1))
    if not is_accepted(response):
        return observed("error", f"page {far}, past the end, was refused with {response.status}")
    document = parse_document(response)
    current = require_integer(document, "current_page")
    if extract_rows(document) or current != far:
        return observed("clamp", f"page {far}, past the end, was served as page {current}")
    return observed("empty", f"page {far}, past the end, was served without items")


async def probe_bad_number(access: Requests, first: int) -> KnobFinding:
    """Find out how the service responds to invalid or out-of-range numbers in list requests (rule P5)."""
    verdicts = {}
    for name, value in (("display", "abc"), ("display", 0), ("display", -1), ("page", "abc"), ("page", -1)):
        numbers = {"page": first, "display": 1, name: value}
        verdicts[f"{name}={value}"] = is_accepted(await access.send(access.page("mailboxes", **numbers)))
    served = [name for name, verdict in verdicts.items() if verdict]
    refused = [name for name in verdicts if name not in served]
    if served and refused:
        return unobserved(f"served: {', '.join(served)}; refused: {', '.join(refused)}; {NO_MATCH}")
    return observed("default", f"{', '.join(served)} served") if served else observed("reject", f"{', '.join(refused)} refused")


async def probe_over_max(access: Requests, first: int) -> KnobFinding:
    """Find out how the service responds to a request for more mailboxes per page than allowed (rule P6)."""
    response = await access.send(access.page("mailboxes", first, MAX_MAILBOXES + 1))
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


async def probe_campaign_max_display(access: Requests, first: int, over: KnobFinding) -> KnobFinding:
    """Find the maximum `display` for campaigns (rule P7). `over` is the finding about the knob `over_max`."""
    if over.is_only("serve"):
        return unobserved("the service does not enforce the maximum display, so the maximum cannot be observed")
    response = await access.send(access.page("campaigns", first, _HUGE_DISPLAY))
    label = f"campaigns, display={_HUGE_DISPLAY}:"
    if not is_accepted(response):
        most = await _find_largest_accepted(access, first)
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


async def _find_largest_accepted(access: Requests, first: int) -> int:
    low, high = 0, _HUGE_DISPLAY
    while high - low > 1:
        middle = next((place for place in _LIKELY_MAXIMA if low < place < high), (low + high) // 2)
        if is_accepted(await access.send(access.page("campaigns", first, middle))):
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


async def probe_error_renderer(access: Requests) -> KnobFinding:
    """Find out the format of error responses (rule E2), by sending requests that the service must refuse."""
    for request in (
        access.steps(f"camp_conformance{access.nonce}"),
        access.get(f"/workspaces/space_conformance{access.nonce}/all-fields"),
        access.get("/campaigns", workspace=access.workspace),
    ):
        response = await access.send(request)
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


async def probe_auth(access: Requests) -> KnobFinding:
    """Find out which of the headers in `access` the service requires (rule A3)."""
    # It requires a header if it refuses the request without it. If it requires none of them, but refuses the request with all of
    # them, its `WWW-Authenticate` header shows the authentication scheme.
    for name in access.headers:
        left = {other: value for other, value in access.headers.items() if other != name}
        if not is_accepted(await access.send(attrs.evolve(access, headers=left).fields())):
            scheme = access.headers[name].rpartition(" ")[0]
            return observed(HeaderAuth(name.lower(), scheme), f"the request for all-fields was refused without the header {name}")
    response = await access.send(access.fields())
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


def collect_percentages(survey: WorkspaceSurvey) -> list[float]:
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
    whole = [value for value in collect_percentages(survey) if not count_decimals(value)]
    integers = sum(type(value) is int for value in whole)
    floats = len(whole) - integers
    how = f"{len(whole)} percentages are whole numbers: {integers} are written as integers, {floats} as floats"
    return _decide_form({"int_when_whole": integers, "float": floats}, how, "no percentage that is a whole number was read")


def measure_percent_digits(survey: WorkspaceSurvey) -> KnobFinding:
    """Find out how many decimal places percentages have (rule T8)."""
    found = collect_percentages(survey)
    most = max(map(count_decimals, found), default=0)
    how = f"{len(found)} percentages have at most {most} decimal places"
    if most > _MOST_DIGITS:
        return unobserved(f"{how}; {NO_MATCH}")
    if most == _MOST_DIGITS or len({*found} - {0, 100}) >= _PROOF_COUNT:
        return observed(most, how)
    return ambiguous((2, 1), f"{how}: too few to decide") if most else unobserved(f"{how}: too few to decide")


def count_decimals(value: float) -> int:
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


async def measure_unknown_workspace(survey: WorkspaceSurvey) -> KnobFinding:
    """Find out how the service responds to requests for the lists of an unknown workspace (rule P13)."""
    verdicts: dict[str, list[str]] = {}
    known = survey.campaign_pages.pages[0].exchange, survey.mailbox_pages.pages[0].exchange, survey.fields
    for (kind, exchange), same in zip(survey.unknown_workspace.items(), known, strict=True):
        if exchange.response is None:
            raise InconclusiveError(exchange.error)
        if same.payload is None:
            raise InconclusiveError("the lists of the workspace could not be read")
        verdict = "refused" if not is_accepted(exchange.response) else "served with items" if exchange.rows else "empty"
        verdicts.setdefault(verdict, []).append(kind)
    how = "for an unknown workspace, " + "; ".join(f"{', '.join(kinds)}: {verdict}" for verdict, kinds in verdicts.items())
    values = {"refused": "reject", "empty": "empty"}
    if len(verdicts) > 1 or (verdict := next(iter(verdicts))) not in values:
        return unobserved(f"{how}; {NO_MATCH}")
    return observed(values[verdict], how)


async def run_read_probes(access: Requests, survey: WorkspaceSurvey) -> dict[str, KnobFinding]:
    first, mailboxes, campaigns = survey.first_page_number, survey.mailbox_pages, survey.campaign_pages
    over = await _run_if_readable(mailboxes, probe_over_max, access, first)
    maximum = await _run_if_readable(campaigns, probe_campaign_max_display, access, first, over)
    return {
        "first_page": survey.first_page,
        "order": measure_order(survey),
        "numbers": measure_numbers(survey),
        "percent_digits": measure_percent_digits(survey),
        "list_date": measure_list_date(survey),
        "auth": await run_probe(probe_auth, access),
        "error_renderer": await run_probe(probe_error_renderer, access),
        "unknown_workspace": await run_probe(measure_unknown_workspace, survey),
        "past_end": await _run_if_readable(mailboxes, probe_past_end, access, first),
        "bad_number": await _run_if_readable(mailboxes, probe_bad_number, access, first),
        "over_max": refine_over_max(over, maximum),
        "campaign_max_display": maximum,
    }


async def _run_if_readable(listed: PageSequence, probe: Probe, *about: Any) -> KnobFinding:
    if listed.pages[0].exchange.payload is None:
        return unobserved("the list could not be read")
    return await run_probe(probe, *about)


# Creating contacts.

_MAX_CAMPAIGN_PAGES: Final = 300  # maximum number of pages of the campaign list that are searched for `access.campaign`
_CODE_OFFSET: Final = 1000
_RESERVED: Final = frozenset({"owner_key", "workspace", "email", "upload_options"})  # keys of a create request that are no field
_OK: Final = 200
_CREATED: Final = 201

INVALID_VALUES: Final[Mapping[str, str]] = {
    **dict.fromkeys(STANDARD_FIELDS, "not \x07 valid"),
    **dict.fromkeys((code for code in STANDARD_FIELDS if code.endswith("_phone")), "not a phone number"),
    **dict.fromkeys((code for code in STANDARD_FIELDS if code.startswith("website")), "not a website"),
    **dict.fromkeys((code for code in STANDARD_FIELDS if code.endswith("_date")), "not a date"),
    "country": "Not a country",
    "timezone": "Not a timezone",
    "zip": "not \x07 a postal code",
    "stack_overflow": "not \x07 a handle",
}
"""For each standard field, an invalid value that strict validation is likely to refuse."""

# A knob determines whether `campaign` is required too (rule C7).
_REQUIRED_MEMBERS: Final = ("owner_key", "workspace", "email", "upload_options", "duplicates", "strict_validation")


@attrs.frozen
class TrialCreations:
    """The first creations: with each `duplicates` option, with every field, and without each required key."""

    outcomes: Mapping[str, HttpExchange]
    other_new: Mapping[str, HttpExchange] = attrs.field(factory=dict)
    fields: HttpExchange | None = None
    incomplete: Mapping[str, HttpExchange] = attrs.field(factory=dict)

    @property
    def failure(self) -> str:
        """The reason why the first create request failed, so that nothing can be measured; empty if it succeeded."""
        first = self.outcomes["added"]
        if first.response is None:
            return first.error
        try:
            return "" if is_accepted(first.response) else f"a plain create request was refused with {first.response.status}"
        except InconclusiveError as error:
            return str(error)


@attrs.frozen
class MembershipCounts:
    exchange: HttpExchange
    before: int
    after_joining: int
    after_other: int
    listed_before: int | None = None  # the `contacts` of the campaign in the list
    listed_after: int | None = None


async def create_trial(access: Requests, survey: WorkspaceSurvey) -> TrialCreations:
    email = access.address("trial")
    outcomes = {}
    for outcome, policy in zip(OUTCOMES, ("skip", "skip", "overwrite", "update_missing_fields"), strict=True):
        outcomes[outcome] = await send_once(access, access.creation(email, policy, {"first_name": "Conformance"}))
    if outcomes["added"].payload is None:
        return TrialCreations(outcomes)
    other_new = {}
    for policy in ("overwrite", "update_missing_fields"):
        other_new[policy] = await send_once(access, access.creation(access.address(f"new-{policy}"), policy))
    codes = [row.get("code") for row in survey.fields.rows]
    given = {code: "Conformance" for code in codes if isinstance(code, str) and code not in _RESERVED}
    fields = await send_once(access, access.creation(access.address("fields"), fields=given)) if given else None
    incomplete = {}
    for member in _REQUIRED_MEMBERS:
        incomplete[member] = await send_once(access, access.creation(access.address(f"without-{member}"), omit=member))
    return TrialCreations(outcomes, other_new, fields, incomplete)


def measure_created_status(trial: TrialCreations) -> KnobFinding:
    """Find out the HTTP status of the response for each outcome of a create request (rule C3)."""
    document = {name: exchange for name, exchange in trial.outcomes.items() if (exchange.payload or {}).get("status") == name}
    statuses = {name: exchange.response.status for name, exchange in document.items() if exchange.response is not None}
    how = ", ".join(f"{name} {status}" for name, status in statuses.items())
    if "added" not in statuses or not set(statuses.values()) <= {_OK, _CREATED}:
        return unobserved(f"no value of this knob matches the observed HTTP statuses ({how or 'none'})")
    rest = {name: status for name, status in statuses.items() if name != "added" and status != _OK}
    return observed({"added": statuses["added"], **rest} if rest else statuses["added"], how)


async def probe_email_key(access: Requests) -> KnobFinding:
    """Find out which spellings of an e-mail address the service treats as the same contact (rule C4)."""
    email = access.address("spelling")
    local, _, domain = email.partition("@")
    await _require_added(access, access.creation(email))
    same = {}
    for part, spelling in (("before", f"{local.upper()}@{domain}"), ("after", f"{local}@{domain.upper()}")):
        same[part] = require_success(await access.send(access.creation(spelling))).get("status") != "added"
    found = (f"{part} the @, a different letter case means {'the same' if same[part] else 'another'} contact" for part in same)
    how = "; ".join(found)
    if not same["before"]:
        return observed("domain_lower" if same["after"] else "exact", how)
    if not same["after"]:
        return unobserved(f"{how}; {NO_MATCH}")
    return ambiguous(("lower", "gmail"), f"{how}; no contact at gmail.com is created, because its address could be a real one")


async def _require_added(access: Requests, request: Request) -> None:
    if require_success(await access.send(request)).get("status") != "added":
        raise InconclusiveError("a contact with a new address was not added")


async def probe_owner_key(access: Requests) -> KnobFinding:
    """Find out whether the service accepts owner keys that do not exist (rule A2)."""
    if not is_accepted(await access.send(access.creation(access.address("unknown-key"), key=f"key_conformance{access.nonce}"))):
        return observed("check", "an unknown key was refused")
    if not is_accepted(await access.send(access.creation(access.address("no-key"), key=f"conformance{access.nonce}"))):
        return observed("prefix_only", "an unknown key was accepted, but a key without the prefix key_ was refused")
    return observed("off", "an unknown key without the prefix key_ was accepted")


async def probe_unknown_custom(access: Requests, survey: WorkspaceSurvey) -> KnobFinding:
    """Find out how the service handles a custom field that the workspace does not have (rule C20)."""
    if survey.fields.payload is None:
        return unobserved("the fields of the workspace could not be read, so no custom field is known to be unknown")
    codes = [row.get("code") for row in survey.fields.rows]
    numbers = [int(code[len("custom_") :]) for code in codes if isinstance(code, str) and CUSTOM_CODE.fullmatch(code)]
    code = f"custom_{max(numbers, default=0) + _CODE_OFFSET}"
    return await _probe_unknown(access, access.creation(access.address("unknown-custom"), fields={code: "x"}), code)


async def probe_unknown_body(access: Requests) -> KnobFinding:
    """Find out how the service handles a field that is not in the API documentation (rule C21)."""
    creation = access.creation(access.address("unknown-field"), fields={"outreach_conformance": "x"})
    return await _probe_unknown(access, creation, "an unknown field")


async def _probe_unknown(access: Requests, creation: Request, name: str) -> KnobFinding:
    if not is_accepted(await access.send(creation)):
        return observed("reject", f"{name} was refused")
    return ambiguous(("ignore", "store"), f"{name} was accepted; no operation shows whether it was stored")


async def probe_missing_campaign(access: Requests) -> KnobFinding:
    """Find out whether the service accepts an omitted or empty `upload_options.campaign` (rule C7)."""
    left_out = is_accepted(await access.send(access.creation(access.address("no-campaign"), omit="campaign")))
    empty = is_accepted(await access.send(access.creation(access.address("empty-campaign"), options={"campaign": ""})))
    forms = {"without the key campaign": left_out, "with an empty campaign": empty}
    how = "; ".join(f"a create request {form} was {'accepted' if fits else 'refused'}" for form, fits in forms.items())
    if left_out != empty:
        return unobserved(f"{how}; {NO_MATCH}")
    return observed("null" if left_out else "reject", how)


async def probe_strict_fields(access: Requests) -> KnobFinding:
    """Find out in which fields strict validation refuses invalid values (rule C27)."""
    strict = {"strict_validation": True}
    if not is_accepted(await access.send(access.creation(access.address("lax"), fields=INVALID_VALUES))):
        return unobserved("invalid values are refused even without strict validation")
    refused = []
    if not is_accepted(await access.send(access.creation(access.address("strict"), fields=INVALID_VALUES, options=strict))):
        for code, value in INVALID_VALUES.items():
            if not is_accepted(
                await access.send(access.creation(access.address(f"strict-{code}"), fields={code: value}, options=strict))
            ):
                refused.append(code)
    if not is_accepted(await access.send(access.creation(f"not an e-mail {access.address('strict')}", options=strict))):
        refused.append("email")
    how = f"invalid values are refused in {len(refused)} of {len(INVALID_VALUES) + 1} fields"
    return observed("all" if len(refused) > len(INVALID_VALUES) else frozenset(refused), how)


async def probe_enrolment(access: Requests, first: int, display: int) -> tuple[dict[str, KnobFinding], MembershipCounts | None]:
    """Create contacts with and without `access.campaign`, and count the campaign's contacts (rules C7, C10 and C16)."""
    counts = None
    try:
        listed, page = await _require_draft(access, first, display)
        member, guest, options = access.address("member"), access.address("guest"), {"campaign": access.campaign}
        before, _ = await _read_first_step(access)
        await _require_added(access, access.creation(member, options=options))
        joined, _ = await _read_first_step(access)
        await _require_added(access, access.creation(guest))
        alone, exchange = await _read_first_step(access)
        again = require_success(await access.send(page))
        row = next((row for row in extract_rows(again) if row.get("id") == access.campaign), {})
        counts = MembershipCounts(exchange, before, joined, alone, listed.get("contacts"), row.get("contacts"))
        return await _probe_reenrolment(access, member, guest, counts), counts
    except InconclusiveError as error:
        return dict.fromkeys(("skip_enrols", "reenrol"), unobserved(str(error))), counts


async def _probe_reenrolment(access: Requests, member: str, guest: str, counts: MembershipCounts) -> dict[str, KnobFinding]:
    """Send create requests with the campaign for two existing contacts. `member` is already in the campaign; `guest` is not."""
    joined, options = counts.after_joining, {"campaign": access.campaign}
    if (joined, counts.after_other) != (counts.before + 1, joined):
        why = f"{counts.before} contacts at first, {joined} after a create request with the campaign"
        why += f", {counts.after_other} after a create request without a campaign"
        raise InconclusiveError(f"the counts of the campaign do not show which contacts joined: {why}")
    require_success(await access.send(access.creation(guest, options=options)))
    after, _ = await _read_first_step(access)
    how = f"a create request with the campaign was skipped; the campaign had {joined} contacts before it, and {after} after it"
    skip = observed(after == joined + 1, how) if after in {joined, joined + 1} else unobserved(how)
    again = is_accepted(await access.send(access.creation(member, "overwrite", options=options)))
    how = f"adding a contact to its campaign again was {'accepted' if again else 'refused'}"
    return {"skip_enrols": skip, "reenrol": observed("noop" if again else "error", how)}


async def _require_draft(access: Requests, first: int, display: int) -> tuple[Item, Request]:
    """Return the campaign's item in the list, and the request for its page. Only a draft sends no e-mail to new contacts."""
    if access.campaign is None:
        raise InconclusiveError("no campaign was given for contacts to join")
    for page in range(first, first + _MAX_CAMPAIGN_PAGES):
        request = access.page("campaigns", page, display)
        document = require_success(await access.send(request))
        for row in extract_rows(document):
            if row.get("id") == access.campaign:
                if row.get("status") != "draft":
                    raise InconclusiveError("the campaign is not a draft, so it might send e-mail to new contacts")
                return row, request
        if page - first + 1 >= require_integer(document, "total_pages"):
            break
    raise InconclusiveError("the campaign was not found in the workspace's list of campaigns")


async def _read_first_step(access: Requests) -> tuple[int, HttpExchange]:
    """Return the number of contacts in the campaign's first step, and the request and response."""
    exchange = HttpExchange(request := access.steps(str(access.campaign)), await access.send(request))
    steps: list[dict[str, Any]] = exchange.rows
    if not steps or not isinstance(steps[0].get("out_of"), int):
        raise InconclusiveError("the campaign has no steps, or its first step has no contact count")
    return int(steps[0]["out_of"]), exchange
