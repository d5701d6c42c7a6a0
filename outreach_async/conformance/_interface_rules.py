"""Check a service against every testable rule in its API documentation.

This module defines the rules about responses, about pages of lists, and about creating contacts. The module `item_rules` defines
the rules about the items of lists.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from typing import Any, Final

import attrs

from outreach_async._service.responses import mask_string
from outreach_async.conformance._calibration import Measurement, measure_service
from outreach_async.conformance._item_rules import REGISTERED_RULES, RuleSubject, StatedRule, shorten, stated
from outreach_async.conformance._read_probes import MAX_MAILBOXES, HttpExchange, PageSequence, SampledPage
from outreach_async.conformance._shapes import COUNT, NUMBER, PAGE, STRINGS, find_misfits, is_count
from outreach_async.conformance._target import OUTCOMES, Access, Patience, Requests, parse_document
from outreach_async.conformance._write_probes import MembershipCounts
from outreach_async.transport._wire import Transport

# Responses and pages: subjects of rules.


def _list_responses(measured: Measurement) -> Iterator[RuleSubject]:
    return (RuleSubject(exchange, "the response", exchange) for exchange in measured.survey.list_exchanges)


def _all_responses(measured: Measurement) -> Iterator[RuleSubject]:
    yield from _list_responses(measured)
    for subject in _created(measured):
        yield RuleSubject(subject.exchange, "the response", subject.exchange)


def _pages(measured: Measurement) -> Iterator[RuleSubject]:
    for page in measured.survey.pages:
        if page.exchange.payload is not None:
            yield RuleSubject(page.exchange, "the page", (page, page.exchange.payload))


def _further_pages(measured: Measurement) -> Iterator[RuleSubject]:
    for page in measured.survey.pages:
        if page.index or page.exchange.payload is not None:
            yield RuleSubject(page.exchange, "the page", page)


def _sequences_with_end(measured: Measurement) -> Iterator[RuleSubject]:
    for sequence in measured.survey.page_sequences:
        if sequence.page_after is not None:
            yield RuleSubject(sequence.page_after.exchange, "the page", sequence)


def _page_sequences(measured: Measurement) -> Iterator[RuleSubject]:
    """Yield each page sequence, and whether its list is sorted by creation time (ascending or descending)."""
    survey = measured.survey
    longest = (survey.campaign_pages, "created"), (survey.mailbox_pages, "created_at")
    for sequence, (pages, created) in zip(survey.page_sequences, longest * 2, strict=True):
        times: list[float] = [row[created] for row in pages.rows if NUMBER[1](row.get(created))]
        is_stable = times in (sorted(times), sorted(times, reverse=True))
        yield RuleSubject(sequence.pages[-1].exchange, "the page", (sequence, is_stable))


def _first_mailbox_page(measured: Measurement) -> Iterator[RuleSubject]:
    page = measured.survey.mailbox_pages.pages[0]
    yield RuleSubject(page.exchange, "the response", page)


# Responses and pages: violations.


def _check_success(exchange: HttpExchange, statuses: Collection[int]) -> Iterator[str]:
    if exchange.response is None:
        yield "did not arrive"
    elif exchange.response.status not in statuses:
        yield f"has the status {exchange.response.status}"
    elif not isinstance(parse_document(exchange.response), dict):
        yield "is not a JSON object"


@stated("W1", "each list request is answered with 200 and a JSON object", _list_responses)
def _check_ok_status(exchange: HttpExchange) -> Iterator[str]:
    return _check_success(exchange, (200,))


@stated("W1-json", "all bodies are JSON", _all_responses)
def _check_strict_json(exchange: HttpExchange) -> Iterator[str]:
    """Yield the reason why a body that Python can parse does not follow the JSON standard, for example because of `NaN`."""
    if exchange.payload is not None and exchange.response is not None:
        try:
            json.loads(exchange.response.body.decode(), parse_constant=_refuse_constant)
        except ValueError as error:
            yield f"is not JSON: {error}"


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


@stated("W2", "the responses to the four list requests have the status ok", _list_responses)
def _check_ok_document(exchange: HttpExchange) -> Iterator[str]:
    document = parse_document(exchange.response) if exchange.response is not None else None
    if isinstance(document, dict) and document.get("status") != "ok":
        yield f"has the status {shorten(document.get('status'))}, not 'ok'"


@stated(
    "P1",
    "a page has headers, total_found, current_page, total_pages, and no more items than the parameter display allows",
    _pages,
)
def _check_page(served: tuple[SampledPage, Mapping[str, Any]]) -> Iterator[str]:
    page, document = served
    yield from find_misfits(document, PAGE)
    data = document.get("data")
    if isinstance(data, list) and len(data) > page.display:
        yield f"contains {len(data)} items, more than display={page.display}"


@stated("P1-counts", "total_found, current_page and total_pages are whole numbers of 0 or more", _pages)
def _check_counts(served: tuple[SampledPage, Mapping[str, Any]]) -> Iterator[str]:
    document = served[1]
    for name in ("total_found", "current_page", "total_pages"):
        if NUMBER[1](document.get(name)) and not is_count(document[name]):
            yield f"has the {name} {shorten(document[name])}, not {COUNT[0]}"


@stated("P1-current", "current_page is the number of the requested page", _pages)
def _check_current_page(served: tuple[SampledPage, Mapping[str, Any]]) -> Iterator[str]:
    page, document = served
    current = document.get("current_page")
    if is_count(current) and current != page.number:
        yield f"has the current_page {current}, but page {page.number} was requested"


@stated("P1-pages", "total_pages is total_found divided by display, rounded up", _pages)
def _check_total_pages(served: tuple[SampledPage, Mapping[str, Any]]) -> Iterator[str]:
    page, document = served
    total, pages = page.total, document.get("total_pages")
    if total is None or not is_count(pages):
        return
    # The API documentation does not state whether an empty list has one page or no page.
    expected = {0, 1} if total == 0 else {-(-total // page.size)}
    if pages not in expected:
        yield f"has the total_pages {pages}, not {max(expected)}: total_found is {total}, with {page.size} per page"


@stated("P1-total", "total_found is the number of items on all pages", _further_pages)
def _check_total_found(page: SampledPage) -> Iterator[str]:
    if page.exchange.payload is None:
        yield "was not served, although total_found on the first page implies that this page exists"
        return
    data = page.exchange.payload.get("data")
    if page.total is None or not isinstance(data, list):
        return
    expected = min(page.size, max(0, page.total - page.index * page.size))
    if len(data) != expected:
        yield f"contains {len(data)} items, not {expected}: total_found is {page.total}, with {page.size} per page"


@stated("P1-end", "a page past the end is refused, is empty, or repeats items of other pages", _sequences_with_end)
def _check_end(sequence: PageSequence) -> Iterator[str]:
    """Yield a fault if a page past the end of the list contains an item that is on no other page."""
    # The service may refuse a page past the end, or return an empty page or a copy of another page.
    after = sequence.page_after
    if after is None or after.total != sequence.pages[-1].total:
        return  # items added during the run are not a violation
    new = set(after.ids) - {id_ for page in sequence.pages for id_ in page.ids}
    if new:
        yield f"is past the end, but contains {shorten(min(new))}, which is on no other page: total_found is {after.total}"


@stated("P1-repeat", "no item is on two pages", _page_sequences)
def _check_repeats(walk: tuple[PageSequence, bool]) -> Iterator[str]:
    """Yield a fault for each page that repeats an item of an earlier page."""
    # If the list is not sorted by creation time, yield a fault only for a page that has several items and repeats all of them.
    sequence, is_stable = walk
    seen: set[str] = set()
    if len({page.total for page in sequence.pages}) > 1:
        return  # items added or removed during the run shift all later items
    for page in sequence.pages:
        again = seen.intersection(page.ids)
        if again and (is_stable or len(again) == len(page.ids) > 1):
            yield f"has the number {page.number} and contains {shorten(min(again))}, which is also on an earlier page"
        seen.update(page.ids)


@stated("P14", "headers is an array of strings", _pages)
def _check_headers(served: tuple[SampledPage, Mapping[str, Any]]) -> Iterator[str]:
    return find_misfits(served[1], {"headers": STRINGS})


@stated("P2", "mailboxes: display may be up to 2,000", _first_mailbox_page)
def _check_mailbox_count(page: SampledPage) -> Iterator[str]:
    if page.exchange.payload is None:
        yield from _check_ok_status(page.exchange)
    elif page.total is not None and len(page.exchange.rows) < min(page.total, MAX_MAILBOXES):
        yield f"contains {len(page.exchange.rows)} of {page.total} mailboxes at display={MAX_MAILBOXES}"


# Creating contacts: subjects of rules.


def _trial_creations(measured: Measurement, outcomes: Collection[str] = OUTCOMES) -> Iterator[RuleSubject]:
    if measured.trial:
        for outcome in outcomes:
            exchange = measured.trial.outcomes[outcome]
            yield RuleSubject(exchange, "the response", (outcome, exchange))


_duplicate_creations = partial(_trial_creations, outcomes=OUTCOMES[1:])
_skipped_creations = partial(_trial_creations, outcomes=["skipped"])


def _full_creations(measured: Measurement) -> Iterator[RuleSubject]:
    if measured.trial and measured.trial.fields:
        yield RuleSubject(measured.trial.fields, "the response", ("added", measured.trial.fields))


def _new_creations(measured: Measurement) -> Iterator[RuleSubject]:
    if measured.trial:
        for exchange in (measured.trial.outcomes["added"], *measured.trial.other_new.values()):
            yield RuleSubject(exchange, "the response", ("added", exchange))


def _created(measured: Measurement) -> Iterator[RuleSubject]:
    subjects = chain(_trial_creations(measured, OUTCOMES[1:]), _new_creations(measured), _full_creations(measured))
    return (subject for subject in subjects if subject.exchange.payload is not None)


def _incomplete_creations(measured: Measurement) -> Iterator[RuleSubject]:
    if measured.trial:
        for member, exchange in measured.trial.incomplete.items():
            yield RuleSubject(exchange, "the response", (member, exchange))


def _returned_ids(measured: Measurement) -> Iterator[RuleSubject]:
    """Yield a mapping of outcomes to the ids returned for one contact. The key `another` has the id of another contact."""
    if measured.trial:
        outcomes = {**measured.trial.outcomes, "another": measured.trial.fields}
        ids = {outcome: _returned_id(exchange) for outcome, exchange in outcomes.items() if exchange and outcome != "skipped"}
        yield RuleSubject(measured.trial.outcomes["updated_missing_fields"], "the contact", ids)


def _returned_id(exchange: HttpExchange) -> str | None:
    id_ = (exchange.payload or {}).get("id")
    return id_ if isinstance(id_, str) else None


def _memberships(measured: Measurement) -> Iterator[RuleSubject]:
    if measured.membership:
        yield RuleSubject(measured.membership.exchange, "the first step", measured.membership)


# Creating contacts: violations.


@stated("A1", "a request with the owner_key in its body creates a contact", _new_creations, writes=True)
@stated("C19", "contacts can be created with every field that `all-fields` returns", _full_creations, writes=True)
@stated("E1", "creating a duplicate contact is not an error", _skipped_creations, writes=True)
def _check_accepted(creation: tuple[str, HttpExchange]) -> Iterator[str]:
    return _check_success(creation[1], (200, 201))


@stated("C6", "a request must have owner_key, workspace, email and upload_options", _incomplete_creations, writes=True)
def _check_refused(creation: tuple[str, HttpExchange]) -> Iterator[str]:
    member, exchange = creation
    if exchange.payload is not None:
        yield f"has the status {shorten(exchange.payload.get('status'))}, although the request omits {member}"


@stated("C1", "a contact with the same e-mail address in the same workspace is a duplicate", _duplicate_creations, writes=True)
@stated("C2-added", "a new contact has the status added, whatever the duplicates option", _new_creations, writes=True)
def _check_outcome(creation: tuple[str, HttpExchange]) -> Iterator[str]:
    expected, exchange = creation
    status = (exchange.payload or {}).get("status")
    if status != expected:
        yield f"has the status {shorten(status)}, not {expected!r}"


@stated(
    "C2",
    "a skipped contact has a null id and a string in details; any other contact has an id and null details",
    _created,
    writes=True,
)
def _check_result(creation: tuple[str, HttpExchange]) -> Iterator[str]:
    outcome, exchange = creation
    document = exchange.payload or {}
    id_, details = document.get("id", KeyError), document.get("details", KeyError)
    if outcome == "skipped":
        if id_ is not None or not (isinstance(details, str) and details.strip()):
            yield f"has the id {shorten(id_)} and details {shorten(details)}; expected a null id and a string in details"
    elif not (isinstance(id_, str) and id_.startswith("contact_")) or details is not None:
        yield f"has the id {shorten(id_)} and details {shorten(details)}; expected an id contact_... and null details"


@stated("C2-id", "each contact has a unique id; updating the contact returns the same id", _returned_ids, writes=True)
def _check_ids(ids: Mapping[str, str | None]) -> Iterator[str]:
    added = ids["added"]
    for outcome, id_ in ids.items():
        if None not in {added, id_} and (outcome == "another") == (id_ == added):
            whose = "of another contact" if outcome == "another" else f"in the response with the status {outcome}"
            yield f"had the id {shorten(added)} when it was added, but the id {whose} is {shorten(id_)}"


@stated("C7", "a contact joins the campaign that it is created with; null means no campaign", _memberships, writes=True)
def _check_memberships(counts: MembershipCounts) -> Iterator[str]:
    if counts.after_joining != counts.before + 1:
        yield f"counts {counts.after_joining} contacts, not {counts.before + 1}, after a contact was created with the campaign"
    if counts.after_other != counts.after_joining:
        yield f"counts {counts.after_other} contacts, not {counts.after_joining}, after a contact was created without a campaign"


# The check.

RULES: Final = tuple(REGISTERED_RULES)
"""All rules in the API documentation that a run can check."""

_MAX_BREACHES: Final = 3


@attrs.frozen
class Breach:
    """A violation of a rule in the service's API documentation.

    Attributes:
        rule: The id of the rule.
        says: The wording of the rule.
        what: The location in the response, and a description of the violation.
        request: Method and target of the request.
        answered: The response of the service, shortened and with secrets masked, or the reason why no response arrived.

    Example:
        ```python
        fake.set_mailbox("mailbox_2", daily_limit="many")
        (breach,) = await check(FakeTransport(fake), Access("space_1"))
        print(breach.rule, breach.what)  # -> W4 data[1] daily_limit is a string, not a number
        ```
    """

    rule: str
    says: str
    what: str
    request: str
    answered: str

    def __str__(self) -> str:
        context = f"interface: {self.says}", f"request: {self.request}", f"response: {self.answered}"
        return "\n  ".join((f"{self.rule}: {self.what}", *context))


def find_breaches(rule: StatedRule, measured: Measurement) -> list[Breach] | None:
    subjects = list(rule.subjects(measured))
    if not subjects:
        return None
    faults = ((subject, fault) for subject in subjects for fault in rule.find_faults(subject.value))
    return [_build_breach(rule, subject, fault, measured.access) for subject, fault in islice(faults, _MAX_BREACHES)]


def _build_breach(rule: StatedRule, subject: RuleSubject, fault: str, access: Requests) -> Breach:
    exchange = subject.exchange
    answered = exchange.error if exchange.response is None else access.format_response(exchange.response)
    what, request = f"{subject.location} {fault}", f"{exchange.request.method} {exchange.request.target}"
    return Breach(rule.id, rule.statement, mask_string(what, access.secrets), mask_string(request, access.secrets), answered)


async def check(transport: Transport, access: Access, patience: Patience | None = None) -> list[Breach]:
    """Check a service against every testable rule in its API documentation.

    Args:
        transport: The transport to the service. It is not closed.
        access: The workspace and credentials.
        patience: Time limits of the requests; the default is `Patience()`.

    Returns:
        The violations, at most three per rule.

    Example:
        ```python
        print(await check(FakeTransport(fake), Access("space_1")))  # -> []
        ```
    """
    measured = await measure_service(transport, access, patience or Patience())
    return [breach for rule in RULES for breach in find_breaches(rule, measured) or ()]
