"""The request log: counts of all requests, and the most recent requests in full."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, overload

import attrs

from outreach_async.fake._messages import mask_document, mask_owner_keys, sanitize_name

CAPACITY: Final = 10_000
"""Maximum number of requests that the log keeps in full."""


def mask_target(target: str) -> str:
    """Return a request target as a log may show it: with `***` instead of what is, or looks like, an owner key.

    Example:
        ```python
        print(mask_target("/workspaces/space_1/all-fields?owner_key=secret"))  # -> /workspaces/space_1/all-fields?owner_key=***
        ```
    """
    return mask_owner_keys(target)


@attrs.frozen(repr=False)
class Recorded:
    """An entry of the request log: a request to the fake, and its result.

    Attributes:
        number: Number of the request, counted from 0.
        operation: Name of the operation; `unknown` if the request matched
            no operation of the API.
        method: HTTP method.
        target: Request target as sent.
        headers: Header fields as sent, by lower-case name, including any
            credentials.
        json: The parsed body, including the owner key; `None` if the body
            was missing, not read or not strict JSON.
        status: Status of the response; `None` if a fault withheld it.
        hints: Human-readable hints about ignored values and likely
            mistakes.
        served: Whether the service executed the request, even if a fault
            replaced or withheld the response.
        request_id: `x-request-id` of the service's response; `None` if the
            service did not execute the request.
        at: Time of the request, in Unix seconds of the fake's clock.
        fault: Label of the fault that fired, such as `status(503)`; `None`
            if no fault fired.

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
        """Show request and status, without the body or what looks like a key."""
        return f"<Recorded #{self.number} {self.operation}: {self.method} {sanitize_name(self.target)} -> {self.status}>"

    def masked(self) -> Recorded:
        """Return the entry for a report: no headers, `***` for owner keys.

        Example:
            ```python
            await client.contacts.create(NewContact("ann@company.example"))
            print(fake.requests[0].masked().json["owner_key"])  # -> ***
            ```
        """
        hints = tuple(map(mask_owner_keys, self.hints))
        return attrs.evolve(self, target=mask_target(self.target), headers={}, json=mask_document(self.json), hints=hints)


class RequestLog(Sequence[Recorded]):
    """The requests that the fake has received, oldest first.

    `len` returns the number of all requests so far, and index 0 is the first request. However, only the last 10,000 requests are
    kept. Access to an older request raises `LookupError`.

    Attributes:
        counts: Number of all requests by operation.
        statuses: Number of all requests by status of the response.

    Example:
        ```python
        await client.workspaces.fields()
        print(len(fake.requests), fake.requests[0].operation, fake.requests.counts["list_fields"])  # -> 1 list_fields 1
        ```
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._entries: deque[Recorded] = deque(maxlen=capacity)
        self._total = 0
        self.counts: Counter[str] = Counter()
        self.statuses: Counter[int | None] = Counter()

    def __repr__(self) -> str:
        return f"<RequestLog of {self._total} requests>"

    def __len__(self) -> int:
        return self._total

    def __iter__(self) -> Iterator[Recorded]:
        return iter(self[:])  # a copy: requests sent during an iteration do not extend it

    @overload
    def __getitem__(self, index: int) -> Recorded: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Recorded]: ...
    def __getitem__(self, index: int | slice) -> Recorded | Sequence[Recorded]:
        """Return the request with the given number, or the requests of a slice. Negative numbers count from the end."""
        numbers = range(self._total)[index]
        if not isinstance(numbers, int):
            return [self[number] for number in numbers]
        if numbers < self._total - len(self._entries):
            raise LookupError(
                f"request #{numbers} is no longer in the log, which keeps the last {self._entries.maxlen} of {self._total}; "
                "read it earlier, or use counts"
            )
        return self._entries[numbers - self._total]

    def of(self, operation: str) -> list[Recorded]:
        """Return the logged requests of an operation, oldest first.

        Raises:
            LookupError: Some requests of the operation are no longer in
                the log.

        Example:
            ```python
            print(fake.requests.of("create_contact"))  # -> []
            ```
        """
        count = self.counts[operation]  # read first: another thread may append meanwhile
        held = [recorded for recorded in tuple(self._entries) if recorded.operation == operation]
        if len(held) < count:
            raise LookupError(
                f"the log keeps only {len(held)} of {count} {operation} requests; read the log earlier, or use counts"
            )
        return held

    def recent(self, count: int = 20) -> list[Recorded]:
        """Return the last `count` requests, or fewer if the log holds fewer.

        Never raises `LookupError`.

        Example:
            ```python
            await client.workspaces.fields()
            print(fake.requests.recent(5))  # -> [<Recorded #0 list_fields: GET /workspaces/space_1/all-fields -> 200>]
            ```
        """
        return list(self._entries)[-count:] if count > 0 else []

    def clear(self) -> None:
        """Remove all requests and reset the counts.

        Example:
            ```python
            fake.requests.clear()
            ```
        """
        self._entries.clear()
        self._total = 0
        self.counts.clear()
        self.statuses.clear()


def append_to(log: RequestLog, recorded: Recorded) -> None:
    """Append a request to a log."""
    log._entries.append(recorded)  # noqa: SLF001 - the classes of this module
    log._total += 1  # noqa: SLF001 - as above
    log.counts[recorded.operation] += 1
    log.statuses[recorded.status] += 1
