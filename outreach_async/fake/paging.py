"""Pages of a list (rules P1 to P9): parse the parameters and compute the bounds of a page. Pure."""

from __future__ import annotations

import re
from typing import Final

import attrs

from outreach_async.fake.behaviour import Behaviour
from outreach_async.fake.ids import check_id
from outreach_async.fake.refusals import refused
from outreach_async.fake.targets import Query, parameter

MAX_MAILBOXES: Final = 2000
"""The maximum `display` for mailboxes, which the interface states."""

DEFAULT_DISPLAY: Final = 10
"""The `display` used in place of an invalid one, if `behaviour.bad_number` is `default`."""

_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)  # int() alone would accept " ٣_0 "


@attrs.frozen
class PageQuery:
    """The parameters of a list request. `display` exceeds the maximum only if `behaviour.over_max` is `serve`."""

    workspace: str
    display: int
    page: int


@attrs.frozen
class Window:
    """The bounds of a page: the indexes of its items, its number, and the number of pages."""

    start: int
    stop: int
    current_page: int
    total_pages: int


def read_page_query(query: Query, maximum: int | None, behaviour: Behaviour) -> PageQuery:
    """Parse the parameters of a list request.

    Args:
        query: The parsed query.
        maximum: Maximum `display`; `None` for no maximum.
        behaviour: The behaviour in effect.

    Raises:
        Refused: 400 for a parameter that is missing, repeated, malformed or too large.
    """
    workspace, display, page = (parameter(query, name) for name in ("workspace", "display", "page"))
    wanted = _number("display", display, 1, DEFAULT_DISPLAY, behaviour)
    number = _number("page", page, behaviour.first_page, behaviour.first_page, behaviour)
    check_id(workspace, "space_", "workspace")
    return PageQuery(workspace, _within(wanted, maximum, behaviour), number)


def _number(name: str, text: str, least: int, default: int, behaviour: Behaviour) -> int:
    if _NUMBER.fullmatch(text) and int(text) >= least:
        return int(text)
    if behaviour.bad_number == "default":
        return default
    raise refused(
        400, "invalid_number", f"{name} must be a whole number from {least} on, of at most 9 digits", name, knob="bad_number"
    )


def _within(display: int, maximum: int | None, behaviour: Behaviour) -> int:
    if maximum is None or display <= maximum or behaviour.over_max == "serve":
        return display
    if behaviour.over_max == "clamp":
        return maximum
    raise refused(400, "display_too_large", f"display must be at most {maximum}", "display", knob="over_max")


def window(total: int, query: PageQuery, behaviour: Behaviour) -> Window:
    """Return the bounds of a page in a list of `total` items.

    Raises:
        Refused: 404 for a page past the end, if `behaviour.past_end` is `error`.
    """
    pages = -(-total // query.display)
    last = max(pages - 1, 0)  # the first page exists even for an empty list
    index = query.page - behaviour.first_page
    if index > last and behaviour.past_end == "error":
        raise refused(404, "page_not_found", f"there are {pages} pages", "page", knob="past_end")
    if index > last and behaviour.past_end == "clamp":
        index = last
    start = min(index * query.display, total)
    return Window(start, min(start + query.display, total), index + behaviour.first_page, pages)
