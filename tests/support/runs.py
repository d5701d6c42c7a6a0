"""Bulk runs for tests: a client of a scripted service, its rows, and the outcomes that a caller receives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from outreach_async import ContactOutcome, Excluded, NewContact, OutreachClient, RetryPolicy


def client(transport: Any, **options: Any) -> OutreachClient:
    """Return a client without random delays."""
    options = {"retry": RetryPolicy(jitter=lambda: 1.0), **options}
    return OutreachClient(transport=transport, owner_key="key_secret", workspace="space_1", **options)


def rows(count: int) -> Iterator[NewContact]:
    return (NewContact(f"user{number}@a.example") for number in range(count))


class OptedOut(dict[str, Any]):
    """A row of a person who must not be written to."""

    def items(self) -> Any:
        raise Excluded("column 'Unsubscribed' says 'true'")

    def __reduce__(self) -> Any:
        return OptedOut, ([*super().items()],)


class Counted:
    """Rows that count how many of them have been read."""

    def __init__(self, passed_rows: Iterable[NewContact]) -> None:
        self.read = 0
        self._rows = iter(passed_rows)

    def __iter__(self) -> Iterator[NewContact]:
        for row in self._rows:
            self.read += 1
            yield row


async def outcomes_of(run: Any, count: int | None = None) -> list[ContactOutcome]:
    """Return the first `count` outcomes and leave the run, or return all outcomes."""
    found: list[ContactOutcome] = []
    async with run as outcomes:
        async for outcome in outcomes:
            found.append(outcome)
            if len(found) == count:
                break
    return found


async def drain(outcomes: AsyncIterator[ContactOutcome], into: list[ContactOutcome]) -> None:
    """Receive all outcomes; those before an error remain in `into`."""
    async for outcome in outcomes:
        into.append(outcome)  # noqa: PERF401 - keeps the outcomes before an error
