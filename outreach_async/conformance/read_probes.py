"""Determine the knobs that can be observed without creating contacts, by ordinary and by unusual list requests."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import attrs

from outreach_async.conformance.survey import MAX_MAILBOXES, WorkspaceSurvey
from outreach_async.conformance.target import (
    Dialogue,
    InconclusiveError,
    KnobFinding,
    Site,
    ambiguous,
    extract_rows,
    is_accepted,
    observed,
    parse_document,
    require_integer,
    require_success,
    unobserved,
)
from outreach_async.fake.behaviour import HeaderAuth
from outreach_async.transport.wire import Response

PAGES_PAST_END: Final = 5
"""Number of pages to skip after the last page, to request a page that is past the end."""

HUGE_DISPLAY: Final = 10_001
"""The value of `display` in the request that finds out whether there is a maximum for campaigns."""

_LIKELY_MAXIMA: Final = (100, 101, 2000, 2001)
"""The values of `display` to try first in the search for a maximum."""


def probe_past_end(site: Site, first: int) -> Dialogue[KnobFinding]:
    """Find out how the service responds to a request for a page past the end (rule P8)."""
    head = require_success((yield site.page("mailboxes", first, 1)))
    far = first + require_integer(head, "total_pages") + PAGES_PAST_END
    response = yield site.page("mailboxes", far, 1)
    if not is_accepted(response):
        return observed("error", f"page {far}, past the end, was refused with {response.status}")
    document = parse_document(response)
    current = require_integer(document, "current_page")
    if extract_rows(document) or current != far:
        return observed("clamp", f"page {far}, past the end, was served as page {current}")
    return observed("empty", f"page {far}, past the end, was served without items")


def probe_bad_number(site: Site, first: int) -> Dialogue[KnobFinding]:
    """Find out how the service responds to invalid or out-of-range numbers in list requests (rule P5)."""
    verdicts = {}
    for name, value in (("display", "abc"), ("display", 0), ("display", -1), ("page", "abc"), ("page", -1)):
        numbers = {"page": first, "display": 1, name: value}
        verdicts[f"{name}={value}"] = is_accepted((yield site.page("mailboxes", **numbers)))
    served = [name for name, verdict in verdicts.items() if verdict]
    refused = [name for name in verdicts if name not in served]
    if served and refused:
        return unobserved(f"{', '.join(served)} served, but {', '.join(refused)} refused, which matches no value of the knob")
    return observed("default", f"{', '.join(served)} served") if served else observed("reject", f"{', '.join(refused)} refused")


def probe_over_max(site: Site, first: int) -> Dialogue[KnobFinding]:
    """Find out how the service responds to a request for more mailboxes per page than allowed (rule P6)."""
    response = yield site.page("mailboxes", first, MAX_MAILBOXES + 1)
    label = f"mailboxes, display={MAX_MAILBOXES + 1}:"
    if not is_accepted(response):
        return observed("reject", f"{label} refused with {response.status}")
    document = parse_document(response)
    count, total = len(extract_rows(document)), require_integer(document, "total_found")
    if count > MAX_MAILBOXES:
        return observed("serve", f"{label} {count} served")
    if total > MAX_MAILBOXES:
        return observed("clamp", f"{label} {count} of {total} served")
    return ambiguous(("clamp", "serve"), f"{label} not refused; there are {total} mailboxes, too few to decide")


def probe_campaign_max_display(site: Site, first: int, over: KnobFinding) -> Dialogue[KnobFinding]:
    """Find the maximum `display` for campaigns (rule P7), given the finding about the knob `over_max`."""
    if over.is_only("serve"):
        return unobserved("more than the maximum is served, so a maximum cannot be observed")
    response = yield site.page("campaigns", first, HUGE_DISPLAY)
    label = f"campaigns, display={HUGE_DISPLAY}:"
    if not is_accepted(response):
        most = yield from _find_largest_accepted(site, first)
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
    return ambiguous(left, f"{label} all {total} served, so a maximum of {max(total, 1)} or more cannot be observed")


def _unobserved_difference(how: str) -> KnobFinding:
    return unobserved(f"{how}; mailboxes behave differently, but Behaviour has one knob for both lists")


def _find_largest_accepted(site: Site, first: int) -> Dialogue[int]:
    low, high = 0, HUGE_DISPLAY
    while high - low > 1:
        middle = next((place for place in _LIKELY_MAXIMA if low < place < high), (low + high) // 2)
        if is_accepted((yield site.page("campaigns", first, middle))):
            low = middle
        else:
            high = middle
    if not low:
        raise InconclusiveError("requests for campaigns were refused with every display")
    return low


def refine_over_max(over: KnobFinding, maximum: KnobFinding) -> KnobFinding:
    """Return the finding about `over_max`. If there were too few mailboxes to decide, a maximum for campaigns means `clamp`."""
    if "clamp" in over.possible and not over.is_observed and maximum.is_observed and maximum.possible[0] is not None:
        return observed("clamp", maximum.explanation)
    return over


def probe_error_renderer(site: Site) -> Dialogue[KnobFinding]:
    """Find out the format of error responses (rule E2), by sending requests that the service must refuse."""
    for request in (
        site.steps(f"camp_conformance{site.nonce}"),
        site.get(f"/workspaces/space_conformance{site.nonce}/all-fields"),
        site.get("/campaigns", workspace=site.workspace),
    ):
        response = yield request
        if not is_accepted(response):
            return interpret_refusal(response)
    return unobserved("no request was refused")


def interpret_refusal(response: Response) -> KnobFinding:
    """Return the finding about the format of error responses, from the response to a refused request."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    document = parse_document(response)
    if isinstance(document, dict):
        how = f"a refusal with {response.status} is a JSON object with {', '.join(sorted(document)[:8])}"
        if isinstance(document.get("error"), dict):
            return observed("nested" if response.status >= 400 else "200_with_error", how)  # noqa: PLR2004 - where refusals begin
        if isinstance(document.get("message"), str):
            return observed("flat", how)
        return unobserved(f"{how}, which matches no value of the knob")
    if "html" in kind or response.body.lstrip()[:1] == b"<":
        return observed("html", f"a refusal with {response.status} is a web page")
    if kind == "text/plain":
        return observed("text", f"a refusal with {response.status} is plain text")
    return unobserved(f"a refusal with {response.status} is neither JSON nor text")


def probe_auth(site: Site) -> Dialogue[KnobFinding]:
    """Find out which of the headers in `site` the service requires (rule A3).

    If the service requires none of these headers, look for an authentication challenge in its response.
    """
    for name in site.headers:
        left = {other: value for other, value in site.headers.items() if other != name}
        if not is_accepted((yield Site(site.workspace, headers=left, nonce=site.nonce).fields())):
            scheme = site.headers[name].rpartition(" ")[0]
            return observed(HeaderAuth(name.lower(), scheme), f"without the header {name}, all-fields was refused")
    response = yield site.fields()
    if is_accepted(response):
        return observed(None, "all-fields was served without a credential in a header")
    challenge = response.headers.get("www-authenticate", "").partition(" ")[0]
    if not challenge:
        return unobserved("the request for all-fields was refused; if a credential is missing, pass it as a header")
    return observed(HeaderAuth(scheme=challenge), "the request for all-fields was refused with an authentication challenge")


PROOF_COUNT: Final = 12
"""Number of values of the same form that count as proof that the service uses no other form.

If two forms were equally likely, the chance that 12 values all have the same form would be about 1 in 2,000.
"""

Item = Mapping[str, Any]

_CAMPAIGN_PERCENTAGES: Final = ("opens", "interested", "replies", "bounces")
_MAILBOX_PERCENTAGES: Final = ("opened_14days", "avg_open_rate", "avg_click_rate")
_TEMPLATE_PERCENTAGES: Final = ("opened", "clicked", "replied", "unsubscribed")
_DIGIT_VALUES: Final = (2, 1, 0)
_UNIT_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800, "month": 2592000, "year": 31536000}
_AGE_PATTERN: Final = re.compile(rf"([0-9]{{1,6}}|an?) ({'|'.join(_UNIT_SECONDS)})s? ago", re.IGNORECASE)


@attrs.frozen
class Percentage:
    """A percentage in a response.

    Attributes:
        value: The number, an integer or a float as in the response.
        exact: The value before rounding, computed from counts; `None` if the response does not contain the counts.
    """

    value: float
    exact: Fraction | None = None

    @property
    def decimals(self) -> int:
        """Number of decimal places, without trailing zeros."""
        return max(0, -int(Decimal(repr(self.value)).normalize().as_tuple().exponent))

    def fits(self, digits: int) -> bool:
        """Return whether the value can be the result of rounding to `digits` decimal places."""
        if self.decimals > digits:
            return False
        return self.exact is None or abs(Fraction(repr(self.value)) - self.exact) <= Fraction(1, 2 * 10**digits)


def collect_percentages(survey: WorkspaceSurvey) -> Iterator[Percentage]:
    """Yield every percentage that was read."""
    yield from map(Percentage, _collect_numbers(survey.campaign_pages.rows, _CAMPAIGN_PERCENTAGES))
    yield from map(Percentage, _collect_numbers(survey.mailbox_pages.rows, _MAILBOX_PERCENTAGES))
    for template in survey.templates:
        sent: Any = template.get("sent")
        for name in _TEMPLATE_PERCENTAGES:
            value: Any = template.get(name)
            count: Any = template.get(f"{name}_num")
            if _is_number(value):
                known = type(sent) is int and type(count) is int and sent > 0
                yield Percentage(value, Fraction(100 * count, sent) if known else None)


def _collect_numbers(items: Iterable[Item], names: Sequence[str]) -> Iterator[float]:
    return (item[name] for item in items for name in names if _is_number(item.get(name)))


def _is_number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def measure_numbers(survey: WorkspaceSurvey) -> KnobFinding:
    """Find out whether whole percentages are integers or floats (rule W9)."""
    whole = [found.value for found in collect_percentages(survey) if not found.decimals]
    integers = sum(type(value) is int for value in whole)
    floats = len(whole) - integers
    how = f"of {len(whole)} whole percentages, {integers} are integers and {floats} floats"
    return _decide_form({"int_when_whole": integers, "float": floats}, how, "no whole percentage was read")


def measure_percent_digits(survey: WorkspaceSurvey) -> KnobFinding:
    """Find out to how many decimal places percentages are rounded (rule T8)."""
    found = list(collect_percentages(survey))
    most = max((percentage.decimals for percentage in found), default=0)
    loose = {percentage.value for percentage in found if percentage.exact is None} - {0, 100}
    how = f"{len(found)} percentages have at most {most} decimal places"
    if most > _DIGIT_VALUES[0]:
        return unobserved(f"{how}, which matches no value of the knob")
    if most == _DIGIT_VALUES[0] or len(loose) >= PROOF_COUNT:
        return observed(most, how)
    fitting = [digits for digits in _DIGIT_VALUES if all(percentage.fits(digits) for percentage in found)]
    if not fitting or len(fitting) == len(_DIGIT_VALUES):
        return unobserved(f"{how}: too few to decide")
    return ambiguous(fitting, f"{how} and match their counts")


def measure_list_date(survey: WorkspaceSurvey) -> KnobFinding:
    """Find out how the campaign list writes dates (rule T16)."""
    dates = [row.get("days_left_date") for row in survey.campaign_pages.rows]
    timestamps = sum(map(_is_number, dates))
    # A string without digits, such as Complete, is not a date.
    texts = sum(isinstance(date, str) and any(map(str.isdigit, date)) for date in dates)
    how = f"of {timestamps + texts} dates, {timestamps} are numbers and {texts} strings"
    return _decide_form({"timestamp": timestamps, "text": texts}, how, "no campaign with a date was read")


def _decide_form(forms: Mapping[str, int], how: str, why_not: str) -> KnobFinding:
    """Return the finding about the form of values, from the count of each form. Few values do not rule out `mixed`."""
    met = [form for form, count in forms.items() if count]
    if len(met) != 1:
        return observed("mixed", how) if met else unobserved(why_not)
    return observed(met[0], how) if forms[met[0]] >= PROOF_COUNT else ambiguous((met[0], "mixed"), how)


def measure_order(survey: WorkspaceSurvey) -> KnobFinding:
    """Find out the order of lists (rule P10)."""
    campaigns, mailboxes = survey.campaign_pages.rows, survey.mailbox_pages.rows
    orders, others = _match_orders(campaigns, "created"), _match_orders(mailboxes, "created_at")
    fitting = [order for order, fits in orders.items() if fits and others[order]]
    if not fitting:
        return unobserved("the lists match no value of the knob, or have different orders")
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
    """Return the minimum age in seconds for a relative time such as `5 minutes ago`; `None` for any other value."""
    if not isinstance(text, str):
        return None
    match = _AGE_PATTERN.fullmatch(text.strip())
    if match:
        return _UNIT_SECONDS[match[2].lower()] * (int(match[1]) if match[1].isdigit() else 1)
    return {"just now": 0.0, "never": math.inf}.get(text.strip().lower())
