"""The documented rules about responses, about pages of lists, and about creating contacts; and the check of all rules.

The module `_item_rules` has the rules about the items of lists.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from typing import Final

import attrs

from outreach_async import Transport
from outreach_async._plumbing import mask_string
from outreach_async.conformance._calibration import Measurement, measure_service
from outreach_async.conformance._item_rules import (
    COUNT,
    REGISTERED_RULES,
    SHAPES,
    Fault,
    StatedRule,
    Subject,
    Subjects,
    find_misfits,
    find_unrelated,
    is_count,
    is_number,
    shorten,
    stated,
)
from outreach_async.conformance._read_probes import MAX_MAILBOXES, HttpExchange, PageSequence, SampledPage
from outreach_async.conformance._target import OUTCOMES, Access, parse_document
from outreach_async.conformance._write_probes import MembershipCounts

# Responses and pages.


def _list_responses(measured: Measurement) -> Iterator[Subject]:
    return ((exchange, "the response", exchange) for exchange in measured.survey.list_exchanges)


def _all_responses(measured: Measurement) -> Iterator[Subject]:
    return chain(_list_responses(measured), ((exchange, "the response", exchange) for exchange, *_ in _created(measured)))


def _pages(measured: Measurement) -> Iterator[Subject]:
    pages = (page for page in measured.survey.pages if page.index or page.exchange.payload is not None)
    return ((page.exchange, "the page", page) for page in pages)


def _sequences_with_end(measured: Measurement) -> Iterator[Subject]:
    for sequence in measured.survey.page_sequences:
        if sequence.page_after is not None:
            yield sequence.page_after.exchange, "the page", sequence, sequence.page_after


def _page_sequences(measured: Measurement) -> Iterator[Subject]:
    """Yield each page sequence, and whether its list is sorted by creation time (ascending or descending)."""
    survey = measured.survey
    longest = (survey.campaign_pages, "created"), (survey.mailbox_pages, "created_at")
    for sequence, (pages, created) in zip(survey.page_sequences, longest * 2, strict=True):
        times: list[float] = [row[created] for row in pages.rows if is_number(row.get(created))]
        yield sequence.pages[-1].exchange, "the page", sequence, times in (sorted(times), sorted(times, reverse=True))


def _find_failure(rule: str, exchange: HttpExchange, statuses: Collection[int]) -> Iterator[Fault]:
    if exchange.response is None:
        yield rule, "did not arrive"
    elif exchange.response.status not in statuses:
        yield rule, f"has the status {exchange.response.status}"
    elif not isinstance(parse_document(exchange.response), dict):
        yield rule, "is not a JSON object"


_LIST_RULES: Final = {
    "W1": "each list request is answered with 200 and a JSON object",
    "W2": "the responses to the four list requests have the status ok",
}


@stated(_list_responses, _LIST_RULES)
def _check_list(exchange: HttpExchange) -> Iterator[Fault]:
    yield from _find_failure("W1", exchange, (200,))
    document = parse_document(exchange.response) if exchange.response is not None else None
    if isinstance(document, dict) and document.get("status") != "ok":
        yield "W2", f"has the status {shorten(document.get('status'))}, not 'ok'"


@stated(_all_responses, {"W1-json": "all bodies are JSON"})
def _check_strict_json(exchange: HttpExchange) -> Iterator[Fault]:
    def refuse_constant(constant: str) -> None:
        raise ValueError(f"{constant} is not a JSON number")

    if exchange.payload is not None and exchange.response is not None:
        try:
            json.loads(exchange.response.body.decode(), parse_constant=refuse_constant)
        except ValueError as error:
            yield "W1-json", f"is not JSON: {error}"


_PAGE_RULES: Final = {
    "P1": "a page has headers, total_found, current_page, total_pages, and no more items than the parameter display allows",
    "P1-counts": "total_found, current_page and total_pages are whole numbers of 0 or more",
    "P1-current": "current_page is the number of the requested page",
    "P1-pages": "total_pages is total_found divided by display, rounded up",
    "P1-total": "total_found is the number of items on all pages",
    "P14": "headers is an array of strings",
}


@stated(_pages, _PAGE_RULES)
def _check_page(page: SampledPage) -> Iterator[Fault]:
    document = page.exchange.payload
    if document is None:
        yield "P1-total", "was not served, although total_found on the first page implies that this page exists"
        return
    yield from find_misfits("P1", document, SHAPES["page"])
    yield from find_unrelated("P1", {"items": page.item_count, "display": page.display}, "items <= display")
    for name in ("total_found", "current_page", "total_pages"):
        if is_number(document.get(name)) and not is_count(document[name]):
            yield "P1-counts", f"has the {name} {shorten(document[name])}, not {COUNT[0]}"
    counts = {**document, "the requested page": page.number}
    yield from find_unrelated("P1-current", counts, "current_page == the requested page")
    if page.total is not None:
        # The API documentation does not state whether an empty list has one page or no page.
        needed = -(-page.total // page.size)
        counts = {**document, "needed pages": needed, "needed pages or 1": max(needed, 1)}
        yield from find_unrelated("P1-pages", counts, "needed pages <= total_pages", "total_pages <= needed pages or 1")
        expected = min(page.size, max(0, page.total - page.index * page.size))
        counts = {"items": page.item_count, "from total_found": expected}
        yield from find_unrelated("P1-total", counts, "items == from total_found")
    yield from find_misfits("P14", document, {"headers": SHAPES["page"]["headers"]})


@stated(_sequences_with_end, {"P1-end": "a page past the end is refused, is empty, or repeats items of other pages"})
def _check_end(sequence: PageSequence, after: SampledPage) -> Iterator[Fault]:
    new = set(after.ids) - {id_ for page in sequence.pages for id_ in page.ids}
    if new and after.total == sequence.pages[-1].total:  # items added during the run are not a violation
        fault = f"is past the end, but contains {shorten(min(new))}, which is on no other page: total_found is {after.total}"
        yield "P1-end", fault


@stated(_page_sequences, {"P1-repeat": "no item is on two pages"})
def _check_repeats(sequence: PageSequence, is_stable: bool) -> Iterator[Fault]:  # noqa: FBT001 - a subject has only values
    # If the list is not sorted by creation time, the fault is only a page that has several items and repeats all of them.
    seen: set[str] = set()
    if len({page.total for page in sequence.pages}) > 1:
        return  # items added or removed during the run shift all later items
    for page in sequence.pages:
        again = seen.intersection(page.ids)
        if again and (is_stable or len(again) == len(page.ids) > 1):
            fault = f"has the number {page.number} and contains {shorten(min(again))}, which is also on an earlier page"
            yield "P1-repeat", fault
        seen.update(page.ids)


@stated(
    lambda measured: ((page.exchange, "the response", page) for page in measured.survey.mailbox_pages.pages[:1]),
    {"P2": "mailboxes: display may be up to 2,000"},
)
def _check_mailbox_count(page: SampledPage) -> Iterator[Fault]:
    if page.exchange.payload is None:
        yield from _find_failure("P2", page.exchange, (200,))
    elif page.total is not None and len(page.exchange.rows) < min(page.total, MAX_MAILBOXES):
        yield "P2", f"contains {len(page.exchange.rows)} of {page.total} mailboxes at display={MAX_MAILBOXES}"


# Creating contacts.


def _creations(kind: str = "") -> Subjects:
    """Return a function that yields create requests: for a `known` or `new` contact, with all `fields`, or by outcome."""

    def find(measured: Measurement) -> Iterator[Subject]:
        if trial := measured.trial:
            sent = [("known", outcome, trial.outcomes[outcome]) for outcome in OUTCOMES[1:]]
            sent += [("new", "added", exchange) for exchange in (trial.outcomes["added"], *trial.other_new.values())]
            sent += [("fields", "added", trial.fields)] if trial.fields else []
            yield from ((each, "the response", outcome, each) for own, outcome, each in sent if kind in {"", own, outcome})

    return find


def _created(measured: Measurement) -> Iterator[Subject]:
    return (subject for subject in _creations()(measured) if subject[0].payload is not None)


def _incomplete_creations(measured: Measurement) -> Iterator[Subject]:
    omitted = measured.trial.incomplete if measured.trial else {}
    return ((exchange, "the response", member, exchange) for member, exchange in omitted.items())


def _returned_ids(measured: Measurement) -> Iterator[Subject]:
    """Yield a mapping of outcomes to the ids returned for one contact. The key `another` has the id of another contact."""
    if measured.trial:
        outcomes = {**measured.trial.outcomes, "another": measured.trial.fields}
        ids = {outcome: (exchange.payload or {}).get("id") for outcome, exchange in outcomes.items() if exchange}
        known = {outcome: id_ for outcome, id_ in ids.items() if isinstance(id_, str) and outcome != "skipped"}
        yield measured.trial.outcomes["updated_missing_fields"], "the contact", known


def _check_accepted(rule: str, _outcome: str, exchange: HttpExchange) -> Iterator[Fault]:
    return _find_failure(rule, exchange, (200, 201))


def _check_outcome(rule: str, expected: str, exchange: HttpExchange) -> Iterator[Fault]:
    status = (exchange.payload or {}).get("status")
    if status != expected:
        yield rule, f"has the status {shorten(status)}, not {expected!r}"


for _id, _statement, _subjects, _check in (
    ("A1", "a request with the owner_key in its body creates a contact", _creations("new"), _check_accepted),
    ("C19", "contacts can be created with every field that `all-fields` returns", _creations("fields"), _check_accepted),
    ("E1", "creating a duplicate contact is not an error", _creations("skipped"), _check_accepted),
    (
        "C1",
        "a contact with the same e-mail address in the same workspace is a duplicate",
        _creations("known"),
        _check_outcome,
    ),
    ("C2-added", "a new contact has the status added, whatever the duplicates option", _creations("new"), _check_outcome),
):
    stated(_subjects, {_id: _statement}, writes=True)(partial(_check, _id))


@stated(_incomplete_creations, {"C6": "a request must have owner_key, workspace, email and upload_options"}, writes=True)
def _check_refused(member: str, exchange: HttpExchange) -> Iterator[Fault]:
    if exchange.payload is not None:
        yield "C6", f"has the status {shorten(exchange.payload.get('status'))}, although the request omits {member}"


_RESULT: Final = "a skipped contact has a null id and a string in details; any other contact has an id and null details"


@stated(_created, {"C2": _RESULT}, writes=True)
def _check_result(outcome: str, exchange: HttpExchange) -> Iterator[Fault]:
    document = exchange.payload or {}
    id_, details = document.get("id", KeyError), document.get("details", KeyError)
    if outcome == "skipped":
        expected = "a null id and a string in details"
        is_right = id_ is None and isinstance(details, str) and bool(details.strip())
    else:
        expected = "an id contact_... and null details"
        is_right = isinstance(id_, str) and id_.startswith("contact_") and details is None
    if not is_right:
        yield "C2", f"has the id {shorten(id_)} and details {shorten(details)}; expected {expected}"


@stated(_returned_ids, {"C2-id": "each contact has a unique id; updating the contact returns the same id"}, writes=True)
def _check_ids(ids: Mapping[str, str]) -> Iterator[Fault]:
    added = ids.get("added")
    for outcome, id_ in ids.items() if added else ():
        if (outcome == "another") == (id_ == added):
            whose = "of another contact" if outcome == "another" else f"in the response with the status {outcome}"
            yield "C2-id", f"had the id {shorten(added)} when it was added, but the id {whose} is {shorten(id_)}"


@stated(
    lambda measured: iter([(found.exchange, "the first step", found)] if (found := measured.membership) else ()),
    {"C7": "a contact joins the campaign that it is created with; null means no campaign"},
    writes=True,
)
def _check_memberships(counts: MembershipCounts) -> Iterator[Fault]:
    names = "contacts before", "contacts after one was created with the campaign", "contacts after one was created without it"
    before, joined, other = names
    known = dict(zip(names, (counts.before, counts.after_joining, counts.after_other), strict=True))
    return find_unrelated("C7", {**known, "1": 1}, f"{joined} == {before} + 1", f"{other} == {joined}")


# The check.

RULES: Final = tuple(REGISTERED_RULES)
"""The rules that `check` checks: the `id` and the `statement` of each, and whether it `writes`.

Example:
    ```python
    print([rule.statement for rule in RULES if rule.id == "T1-type"])  # -> ['the only type of a step is auto_email']
    ```
"""

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
    """Return the violations of a rule, at most three; `None` if the responses contain nothing to check."""
    subjects = list(rule.subjects(measured))
    faults = (
        (exchange, f"{location} {fault}")
        for exchange, location, *values in subjects
        for id_, fault in rule.find_faults(*values)
        if id_ == rule.id
    )
    access, breaches = measured.access, []
    for exchange, fault in islice(faults, _MAX_BREACHES):
        answered = exchange.error if exchange.response is None else access.format_response(exchange.response)
        what, request = (
            mask_string(text, access.secrets) for text in (fault, f"{exchange.request.method} {exchange.request.target}")
        )
        breaches.append(Breach(rule.id, rule.statement, what, request, answered))
    return breaches if subjects else None


async def check(transport: Transport, access: Access) -> list[Breach]:
    """Check a service against every testable rule in its API documentation.

    Args:
        transport: The transport to the service. It is not closed.
        access: The workspace and credentials.

    Returns:
        The violations, at most three per rule.

    Example:
        ```python
        print(await check(FakeTransport(fake), Access("space_1")))  # -> []
        ```
    """
    measured = await measure_service(transport, access)
    return [breach for rule in RULES for breach in find_breaches(rule, measured) or ()]
