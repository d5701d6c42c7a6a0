"""The journal of requests: the last ones whole, all of them counted."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, overload

import attrs

from outreach_async.fake.refusals import shown

CAPACITY: Final = 10_000
"""Requests that the journal keeps whole."""


class JournalOverflow(LookupError):
    """Requests were asked for that the journal has let go: an answer from the rest would be a lie.

    Example:
        ```python
        for _ in range(10_001):
            fake.handle(Request("GET", "/"))
        try:
            fake.requests[0]
        except JournalOverflow as error:
            print(error)  # -> request #0 was let go: the journal keeps the last 10000 of 10001; ask sooner, or take counts
        ```
    """


@attrs.frozen(repr=False)
class Recorded:
    """A request that reached the fake.

    Attributes:
        number: Its place among all requests, from 0.
        operation: What it asked for; `unknown` if it was none of the five.
        method: HTTP method.
        target: Request target as sent.
        headers: Header fields as sent, by lower-case name. They hold whatever credentials the client sends.
        json: The body, parsed; `None` if there was none, it was not read or it was not strict JSON. It holds the owner key.
        status: The status that was answered; `None` if a fault kept the answer back.
        hints: What a person should know: what was ignored, what may have been meant.
        served: Whether the service acted. A fault may have answered in its place, or lost its answer.
        request_id: `x-request-id` of the service's answer; `None` if it did not act.
        at: Unix seconds of the fake's clock.
        fault: The fault that struck, as it is written, such as `status(503)`; `None` if none did.

    Example:
        ```python
        await client.contacts.create(NewContact("ann@company.example", title="CTO"))
        (recorded,) = fake.requests.of("create_contact")
        print(recorded.status, recorded.json["title"], recorded.hints)  # -> 201 CTO ()
        ```
    """

    number: int
    operation: str
    method: str
    target: str
    headers: Mapping[str, str]
    json: Mapping[str, Any] | None
    status: int | None
    hints: tuple[str, ...]
    served: bool
    request_id: str | None
    at: float
    fault: str | None = None

    def __repr__(self) -> str:
        """Show what was asked and answered, without the body or anything that looks like a key."""
        return f"<Recorded #{self.number} {self.operation}: {self.method} {shown(self.target)} -> {self.status}>"


class Journal(Sequence[Recorded]):
    """Every request in the order the fake carried them out.

    It is a sequence of all requests ever: `len` counts them all, and `journal[0]` is the first. Only the last 10,000 are kept; to
    ask for another one raises `JournalOverflow`.

    Attributes:
        counts: Requests by operation; exact, whatever was let go.
        statuses: Requests by answered status; exact too.

    Example:
        ```python
        await client.workspaces.fields()
        print(len(fake.requests), fake.requests[0].operation, fake.requests.counts["list_fields"])  # -> 1 list_fields 1
        ```
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._kept: deque[Recorded] = deque(maxlen=capacity)
        self._total = 0
        self.counts: Counter[str] = Counter()
        self.statuses: Counter[int | None] = Counter()

    def __repr__(self) -> str:
        return f"<Journal of {self._total} requests>"

    def __len__(self) -> int:
        return self._total

    def __iter__(self) -> Iterator[Recorded]:
        self._require(0)
        return iter(tuple(self._kept))

    def __reversed__(self) -> Iterator[Recorded]:
        self._require(0)
        return iter(tuple(self._kept)[::-1])

    @overload
    def __getitem__(self, index: int) -> Recorded: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Recorded]: ...
    def __getitem__(self, index: int | slice) -> Recorded | Sequence[Recorded]:
        """Get requests by their numbers; negative ones count from the last.

        Raises:
            IndexError: There was no such request.
            JournalOverflow: There was, and it was let go.
        """
        numbers = range(self._total)[index]
        if isinstance(numbers, int):
            return self._at(numbers)
        return [self._at(number) for number in numbers]

    def of(self, operation: str) -> list[Recorded]:
        """Get all requests of an operation.

        Raises:
            JournalOverflow: Some were let go.

        Example:
            ```python
            await client.workspaces.fields()
            print(len(fake.requests.of("list_fields")), fake.requests.of("create_contact"))  # -> 1 []
            ```
        """
        kept = [recorded for recorded in tuple(self._kept) if recorded.operation == operation]
        if len(kept) < self.counts[operation]:
            raise JournalOverflow(
                f"{self.counts[operation]} requests were {operation}, {len(kept)} of them are kept; ask sooner, or take counts"
            )
        return kept

    def recent(self, count: int = 20) -> list[Recorded]:
        """Get the last requests, at most so many as are kept; for reports.

        Example:
            ```python
            await client.workspaces.fields()
            print(fake.requests.recent(5))  # -> [<Recorded #0 list_fields: GET /workspaces/space_1/all-fields -> 200>]
            ```
        """
        return list(self._kept)[-count:] if count > 0 else []

    def add(self, recorded: Recorded) -> None:
        """Take a request in; the fake does this."""
        self._kept.append(recorded)
        self._total += 1
        self.counts[recorded.operation] += 1
        self.statuses[recorded.status] += 1

    def clear(self) -> None:
        """Forget everything.

        Example:
            ```python
            await client.workspaces.fields()
            fake.requests.clear()
            print(len(fake.requests))  # -> 0
            ```
        """
        self._kept.clear()
        self._total = 0
        self.counts.clear()
        self.statuses.clear()

    def _at(self, number: int) -> Recorded:
        self._require(number)
        return self._kept[number - self._first]

    @property
    def _first(self) -> int:
        return self._total - len(self._kept)

    def _require(self, number: int) -> None:
        if number < self._first:
            raise JournalOverflow(
                f"request #{number} was let go: the journal keeps the last {self._kept.maxlen} of {self._total}; "
                "ask sooner, or take counts"
            )
