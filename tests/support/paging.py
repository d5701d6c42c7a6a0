"""A naive paging service that follows any interpretation of rules P1 to P14. It shares no code with the fake."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Literal
from urllib.parse import parse_qs, urlsplit

import anyio.lowlevel
import attrs
from hypothesis import strategies as st
from support import audit, campaigns
from support.audit import wire

from outreach_async import Progress, Request, Response

PastEnd = Literal["empty", "clamped", "clamped as asked", 200, 400, 404]


_CAMPAIGN: Final = wire(campaigns.campaign())
_MAILBOX: Final = wire(audit.mailbox())


def campaign(name: str) -> dict[str, Any]:
    """Return a campaign as wire JSON."""
    return {**_CAMPAIGN, "id": name}


def mailbox(name: str) -> dict[str, Any]:
    """Return a mailbox as wire JSON."""
    return {**_MAILBOX, "id": name}


@attrs.frozen(kw_only=True)
class Reading:
    """One interpretation of the paging rules, which the interface leaves open."""

    first_page: int = 1
    past_end: PastEnd = "empty"
    most: int | None = None
    pages_when_empty: int = 0
    newest_first: bool = False
    miscounted: int = 0


@attrs.frozen
class Change:
    """A change of the list right before a request is answered."""

    before: int
    inserted: int = 0
    deleted: tuple[int, ...] = ()


class PagingService:
    """A transport that answers requests for both lists according to one interpretation."""

    def __init__(
        self, size: int, reading: Reading | None = None, changes: Sequence[Change] = (), patience: Sequence[int] = ()
    ) -> None:
        self.reading = reading or Reading()
        self.changes = {change.before: change for change in changes}
        self.patience = iter(patience)
        self.ids: list[str] = []
        self.created_count = 0
        self._insert(size)
        self.answered: list[int] = []
        self.displays: set[int] = set()

    async def send(self, request: Request, progress: Progress, /) -> Response:
        progress.sent = True
        for _ in range(1 + next(self.patience, 0)):
            await anyio.lowlevel.checkpoint()
        self._change(self.changes.get(len(self.answered), Change(0)))
        url = urlsplit(request.target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        page, display = int(query["page"]), int(query["display"])
        self.answered.append(page)
        self.displays.add(display)
        return self._answer(page, display, campaign if url.path == "/campaigns" else mailbox)

    async def aclose(self) -> None: ...

    def _insert(self, count: int) -> None:
        self.ids += [f"camp_{number}" for number in range(self.created_count, self.created_count + count)]
        self.created_count += count

    def _change(self, change: Change) -> None:
        self._insert(change.inserted)
        gone = {self.listed()[place] for place in change.deleted if place < len(self.ids)}
        self.ids = [name for name in self.ids if name not in gone]

    def listed(self) -> list[str]:
        """Return the ids in the order of the list."""
        return self.ids[::-1] if self.reading.newest_first else self.ids

    def _answer(self, page: int, display: int, item: Any) -> Response:
        reading = self.reading
        display = min(display, reading.most or display)
        pages = [self.listed()[start : start + display] for start in range(0, len(self.ids), display)]
        place = page - reading.first_page
        if place < 0:
            return _refuse(200 if reading.past_end == 200 else 400)
        if place >= max(1, len(pages)):
            if isinstance(reading.past_end, int):
                return _refuse(reading.past_end)
            place = place if reading.past_end == "empty" else max(0, len(pages) - 1)
        answer = {
            "status": "ok",
            "headers": ["name"],
            "data": [item(name) for name in (pages[place] if place < len(pages) else [])],
            "total_found": max(0, len(self.ids) + reading.miscounted),
            "current_page": place + reading.first_page if reading.past_end == "clamped" else page,
            "total_pages": len(pages) or reading.pages_when_empty,
        }
        return Response(200, {}, json.dumps(answer).encode())


def _refuse(status: int) -> Response:
    return Response(status, {}, b'{"status":"error","message":"no such page"}')


class IgnoresThePage(PagingService):
    """A service that answers every request with the first page."""

    def _answer(self, _page: int, display: int, item: Any) -> Response:
        return super()._answer(self.reading.first_page, display, item)


class ShortPages(PagingService):
    """A service with short pages, as if it filtered the items after dividing them into pages."""

    def __init__(self, lengths: Sequence[int]) -> None:
        super().__init__(sum(lengths))
        rest = iter(self.ids)
        self.pages = [[next(rest) for _ in range(length)] for length in lengths]

    def _answer(self, page: int, _display: int, item: Any) -> Response:
        answer = {
            "status": "ok",
            "headers": [],
            "data": [item(name) for name in self.pages[page - 1]],
            "total_found": len(self.ids),
            "current_page": page,
            "total_pages": len(self.pages),
        }
        return Response(200, {}, json.dumps(answer).encode())


def readings(**fixed: Any) -> st.SearchStrategy[Reading]:
    """Return a strategy for interpretations, with these attributes fixed."""
    drawn: dict[str, st.SearchStrategy[Any]] = {
        "first_page": st.sampled_from([1, 0]),
        "past_end": st.sampled_from(["empty", "clamped", "clamped as asked", 200, 400, 404]),
        "most": st.sampled_from([None, 1, 2, 3]),
        "pages_when_empty": st.sampled_from([0, 1]),
        "newest_first": st.booleans(),
        "miscounted": st.just(0),
    }
    return st.builds(Reading, **drawn | {name: st.just(value) for name, value in fixed.items()})


def insertions() -> st.SearchStrategy[list[Change]]:
    """Return a strategy for insertions before some of the first requests."""
    change = st.builds(Change, st.integers(0, 6), st.sampled_from([1, 1, 1, 2, 3, 4, 12]))
    return st.lists(change, min_size=1, max_size=5, unique_by=lambda change: change.before)


def deletions() -> st.SearchStrategy[list[Change]]:
    """Return a strategy for deletions before some of the first requests."""
    places = st.lists(st.integers(0, 14), min_size=1, max_size=4).map(tuple)
    change = st.builds(lambda before, deleted: Change(before, deleted=deleted), st.integers(0, 8), places)
    return st.lists(change, min_size=1, max_size=4, unique_by=lambda change: change.before)
