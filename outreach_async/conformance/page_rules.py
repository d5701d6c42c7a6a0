"""Stated rules about responses and pages of lists. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from outreach_async.conformance import rule
from outreach_async.conformance.calibration import Measured
from outreach_async.conformance.read_probes import MAX_MAILBOXES, Asked, Page, Walk
from outreach_async.conformance.rule import Rule, Subject, no_success, shown
from outreach_async.conformance.target import document

_OK: Final = (200,)


@attrs.frozen
class Walked:
    """Pages of a list.

    Attributes:
        walk: The pages.
        still: Whether the list is in the order of creation, so that only new items move others between pages.
    """

    walk: Walk
    still: bool


# Subjects of rules.


def _answers(measured: Measured) -> Iterator[Subject]:
    for asked in measured.survey.lists:
        yield Subject(asked, "the response", asked)


def _bodies(measured: Measured) -> Iterator[Subject]:
    yield from _answers(measured)
    for asked in measured.trial.outcomes.values() if measured.trial else ():
        yield Subject(asked, "the response", asked)


def _pages(measured: Measured) -> Iterator[Subject]:
    for walk in measured.survey.walks:
        for page in walk.pages:
            if page.asked.said is not None:
                yield Subject(page.asked, "the page", (page, page.asked.said))


def _further_pages(measured: Measured) -> Iterator[Subject]:
    for walk in measured.survey.walks:
        for page in walk.pages:
            if page.index or page.asked.said is not None:
                yield Subject(page.asked, "the page", page)


def _ends(measured: Measured) -> Iterator[Subject]:
    for walk in measured.survey.walks:
        if walk.after is not None:
            yield Subject(walk.after.asked, "the page", walk)


def _walks(measured: Measured) -> Iterator[Subject]:
    survey = measured.survey
    whole = (survey.campaign_pages, "created"), (survey.mailbox_pages, "created_at")
    for walk, (most, created) in zip(survey.walks, whole * 2, strict=True):
        times: list[float] = [row[created] for row in most.rows if rule.NUMBER[1](row.get(created))]
        still = times in (sorted(times), sorted(times, reverse=True))
        yield Subject(walk.pages[-1].asked, "the page", Walked(walk, still))


def _mailbox_page(measured: Measured) -> Iterator[Subject]:
    yield Subject(measured.survey.mailboxes, "the response", measured.survey.mailbox_pages.pages[0])


# Violations.


def _no_success(asked: Asked) -> Iterator[str]:
    return no_success(asked, _OK)


def _no_json(asked: Asked) -> Iterator[str]:
    """Yield why a body is not valid JSON although Python accepts it."""
    if asked.said is not None and asked.answer is not None:
        try:
            json.loads(asked.answer.body.decode(), parse_constant=_refuse)
        except ValueError as error:
            yield f"is not JSON: {error}"


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _no_ok(asked: Asked) -> Iterator[str]:
    said = document(asked.answer) if asked.answer is not None else None
    if isinstance(said, dict) and said.get("status") != "ok":
        yield f"has the status {shown(said.get('status'))}, not 'ok'"


def _bad_page(served: tuple[Page, Mapping[str, Any]]) -> Iterator[str]:
    page, said = served
    yield from rule.misfits(said, rule.PAGE)
    data = said.get("data")
    if isinstance(data, list) and len(data) > page.display:
        yield f"holds {len(data)} items, more than display={page.display}"


def _bad_counts(served: tuple[Page, Mapping[str, Any]]) -> Iterator[str]:
    said = served[1]
    for name in ("total_found", "current_page", "total_pages"):
        if rule.NUMBER[1](said.get(name)) and not rule.is_count(said[name]):
            yield f"has the {name} {shown(said[name])}, not {rule.COUNT[0]}"


def _other_page(served: tuple[Page, Mapping[str, Any]]) -> Iterator[str]:
    page, said = served
    current = said.get("current_page")
    if rule.is_count(current) and current != page.number:
        yield f"has the current_page {current}, but page {page.number} was requested"


def _other_pages(served: tuple[Page, Mapping[str, Any]]) -> Iterator[str]:
    page, said = served
    total, pages = page.total, said.get("total_pages")
    if total is None or not rule.is_count(pages):
        return
    # The interface does not state whether an empty list has one page or none.
    wanted = {0, 1} if total == 0 else {-(-total // page.size)}
    if pages not in wanted:
        yield f"has the total_pages {pages}, not {max(wanted)}: {total} found, {page.size} per page"


def _other_total(page: Page) -> Iterator[str]:
    if page.asked.said is None:
        yield "was not served, although total_found of the first page includes it"
        return
    data = page.asked.said.get("data")
    if page.total is None or not isinstance(data, list):
        return
    wanted = min(page.size, max(0, page.total - page.index * page.size))
    if len(data) != wanted:
        yield f"holds {len(data)} items, not {wanted}: total_found is {page.total}, with {page.size} per page"


def _more(walk: Walk) -> Iterator[str]:
    """Yield new items after the last page. The interface does not state whether that page is refused, empty or a repetition."""
    after = walk.after
    if after is None or after.total != walk.pages[-1].total:
        return  # items added meanwhile are not a violation
    new = set(after.ids) - {id_ for page in walk.pages for id_ in page.ids}
    if new:
        yield f"holds {shown(min(new))}, which no page had: by total_found {after.total}, it is after the last page"


def _again(walked: Walked) -> Iterator[str]:
    """Yield items that are on two pages. In an order other than that of creation, items may move between pages meanwhile."""
    seen: set[str] = set()
    if len({page.total for page in walked.walk.pages}) > 1:
        return  # items added or removed meanwhile shift the later ones
    for page in walked.walk.pages:
        again = seen.intersection(page.ids)
        if again and (walked.still or len(again) == len(page.ids) > 1):
            yield f"number {page.number} holds {shown(min(again))}, which an earlier page also has"
        seen.update(page.ids)


def _bad_headers(served: tuple[Page, Mapping[str, Any]]) -> Iterator[str]:
    return rule.misfits(served[1], {"headers": rule.TEXTS})


def _too_few(page: Page) -> Iterator[str]:
    if page.asked.said is None:
        yield from _no_success(page.asked)
    elif page.total is not None and len(page.asked.rows) < min(page.total, MAX_MAILBOXES):
        yield f"holds {len(page.asked.rows)} of {page.total} mailboxes at display={MAX_MAILBOXES}"


ANSWER_RULES: Final[tuple[Rule, ...]] = (
    Rule("W1", "each list responds with 200 and a JSON object", _answers, _no_success),
    Rule("W1-json", "all bodies are JSON", _bodies, _no_json),
    Rule("W2", "the responses of the four lists have the status ok", _answers, _no_ok),
)
"""Stated rules about every list response."""

PAGE_RULES: Final[tuple[Rule, ...]] = (
    Rule("P1", "a page has headers, data of at most display items, total_found, current_page and total_pages", _pages, _bad_page),
    Rule("P1-counts", "total_found, current_page and total_pages are counts", _pages, _bad_counts),
    Rule("P1-current", "current_page is the requested page", _pages, _other_page),
    Rule("P1-pages", "total_pages is the number of pages of display items", _pages, _other_pages),
    Rule("P1-total", "total_found is the number of items on all pages", _further_pages, _other_total),
    Rule("P1-end", "total_pages pages are all that are available", _ends, _more),
    Rule("P1-repeat", "no item is on two pages", _walks, _again),
    Rule("P2", "mailboxes: display may be up to 2,000", _mailbox_page, _too_few),
    Rule("P14", "headers is an array of strings", _pages, _bad_headers),
)
"""Stated rules about pages."""
