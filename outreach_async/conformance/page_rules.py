"""The interface's rules about responses and about pages of lists."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from outreach_async.conformance import rule
from outreach_async.conformance.calibration import Measurement
from outreach_async.conformance.rule import RuleSubject, StatedRule, check_success, shorten
from outreach_async.conformance.survey import MAX_MAILBOXES, HttpExchange, PageSequence, SampledPage
from outreach_async.conformance.target import parse_document

# Subjects of rules.


def _list_responses(measured: Measurement) -> Iterator[RuleSubject]:
    return (RuleSubject(exchange, "the response", exchange) for exchange in measured.survey.list_exchanges)


def _all_responses(measured: Measurement) -> Iterator[RuleSubject]:
    yield from _list_responses(measured)
    for exchange in measured.trial.outcomes.values() if measured.trial else ():
        yield RuleSubject(exchange, "the response", exchange)


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
    """Yield each page sequence, with a flag that is true if the list is sorted by time of creation, in either direction."""
    survey = measured.survey
    longest = (survey.campaign_pages, "created"), (survey.mailbox_pages, "created_at")
    for sequence, (pages, created) in zip(survey.page_sequences, longest * 2, strict=True):
        times: list[float] = [row[created] for row in pages.rows if rule.NUMBER[1](row.get(created))]
        is_stable = times in (sorted(times), sorted(times, reverse=True))
        yield RuleSubject(sequence.pages[-1].exchange, "the page", (sequence, is_stable))


def _first_mailbox_page(measured: Measurement) -> Iterator[RuleSubject]:
    page = measured.survey.mailbox_pages.pages[0]
    yield RuleSubject(page.exchange, "the response", page)


# Violations.


def _check_ok_status(exchange: HttpExchange) -> Iterator[str]:
    return check_success(exchange, (200,))


def _check_strict_json(exchange: HttpExchange) -> Iterator[str]:
    """Yield the reason why a body is not valid JSON although Python's parser accepts it; nothing if it is valid."""
    if exchange.payload is not None and exchange.response is not None:
        try:
            json.loads(exchange.response.body.decode(), parse_constant=_refuse_constant)
        except ValueError as error:
            yield f"is not JSON: {error}"


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _check_ok_document(exchange: HttpExchange) -> Iterator[str]:
    document = parse_document(exchange.response) if exchange.response is not None else None
    if isinstance(document, dict) and document.get("status") != "ok":
        yield f"has the status {shorten(document.get('status'))}, not 'ok'"


def _check_page(served: tuple[SampledPage, Mapping[str, Any]]) -> Iterator[str]:
    page, document = served
    yield from rule.find_misfits(document, rule.PAGE)
    data = document.get("data")
    if isinstance(data, list) and len(data) > page.display:
        yield f"holds {len(data)} items, more than display={page.display}"


def _check_counts(served: tuple[SampledPage, Mapping[str, Any]]) -> Iterator[str]:
    document = served[1]
    for name in ("total_found", "current_page", "total_pages"):
        if rule.NUMBER[1](document.get(name)) and not rule.is_count(document[name]):
            yield f"has the {name} {shorten(document[name])}, not {rule.COUNT[0]}"


def _check_current_page(served: tuple[SampledPage, Mapping[str, Any]]) -> Iterator[str]:
    page, document = served
    current = document.get("current_page")
    if rule.is_count(current) and current != page.number:
        yield f"has the current_page {current}, but page {page.number} was requested"


def _check_total_pages(served: tuple[SampledPage, Mapping[str, Any]]) -> Iterator[str]:
    page, document = served
    total, pages = page.total, document.get("total_pages")
    if total is None or not rule.is_count(pages):
        return
    # The interface does not state whether an empty list has one page or no page.
    expected = {0, 1} if total == 0 else {-(-total // page.size)}
    if pages not in expected:
        yield f"has the total_pages {pages}, not {max(expected)}: total_found is {total}, with {page.size} per page"


def _check_total_found(page: SampledPage) -> Iterator[str]:
    if page.exchange.payload is None:
        yield "was not served, although total_found of the first page includes this page"
        return
    data = page.exchange.payload.get("data")
    if page.total is None or not isinstance(data, list):
        return
    expected = min(page.size, max(0, page.total - page.index * page.size))
    if len(data) != expected:
        yield f"holds {len(data)} items, not {expected}: total_found is {page.total}, with {page.size} per page"


def _check_end(sequence: PageSequence) -> Iterator[str]:
    """Yield a fault if the page after the last page contains an item that is on no other page.

    The page after the last page may be refused, be empty, or be a copy of another page.
    """
    after = sequence.page_after
    if after is None or after.total != sequence.pages[-1].total:
        return  # items added during the run are not a violation
    new = set(after.ids) - {id_ for page in sequence.pages for id_ in page.ids}
    if new:
        yield f"holds {shorten(min(new))}, an item of no other page, although it is past the end: total_found is {after.total}"


def _check_repeats(walk: tuple[PageSequence, bool]) -> Iterator[str]:
    """Yield a fault for each page that repeats an item of an earlier page.

    If the list is not sorted by time of creation, only a page of several items that are all on earlier pages is a fault.
    """
    sequence, is_stable = walk
    seen: set[str] = set()
    if len({page.total for page in sequence.pages}) > 1:
        return  # items added or removed during the run shift all later items
    for page in sequence.pages:
        again = seen.intersection(page.ids)
        if again and (is_stable or len(again) == len(page.ids) > 1):
            yield f"number {page.number} holds {shorten(min(again))}, which an earlier page also has"
        seen.update(page.ids)


def _check_headers(served: tuple[SampledPage, Mapping[str, Any]]) -> Iterator[str]:
    return rule.find_misfits(served[1], {"headers": rule.STRINGS})


def _check_mailbox_count(page: SampledPage) -> Iterator[str]:
    if page.exchange.payload is None:
        yield from _check_ok_status(page.exchange)
    elif page.total is not None and len(page.exchange.rows) < min(page.total, MAX_MAILBOXES):
        yield f"holds {len(page.exchange.rows)} of {page.total} mailboxes at display={MAX_MAILBOXES}"


ANSWER_RULES: Final[tuple[StatedRule, ...]] = (
    StatedRule("W1", "each list responds with 200 and a JSON object", _list_responses, _check_ok_status),
    StatedRule("W1-json", "all bodies are JSON", _all_responses, _check_strict_json),
    StatedRule("W2", "the responses of the four lists have the status ok", _list_responses, _check_ok_document),
)
"""The interface's rules about all responses."""

PAGE_RULES: Final[tuple[StatedRule, ...]] = (
    StatedRule("P1", "a page has headers, at most display items, total_found, current_page and total_pages", _pages, _check_page),
    StatedRule("P1-counts", "total_found, current_page and total_pages are counts", _pages, _check_counts),
    StatedRule("P1-current", "current_page is the requested page", _pages, _check_current_page),
    StatedRule("P1-pages", "total_pages is total_found divided by display, rounded up", _pages, _check_total_pages),
    StatedRule("P1-total", "total_found is the number of items on all pages", _further_pages, _check_total_found),
    StatedRule("P1-end", "no page after total_pages has further items", _sequences_with_end, _check_end),
    StatedRule("P1-repeat", "no item is on two pages", _page_sequences, _check_repeats),
    StatedRule("P2", "mailboxes: display may be up to 2,000", _first_mailbox_page, _check_mailbox_count),
    StatedRule("P14", "headers is an array of strings", _pages, _check_headers),
)
"""The interface's rules about pages."""
