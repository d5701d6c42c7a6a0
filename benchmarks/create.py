"""Contacts per second through the client on the fake, in memory: one at a time, and in bulk.

Run: python benchmarks/create.py [rows]
"""

from __future__ import annotations

import platform
import statistics
import sys
import time
from collections.abc import Iterator

import anyio

from outreach_async import NewContact, OutreachClient
from outreach_async.fake import FakeService, FakeTransport

ROUNDS = 5


def rows(count: int) -> Iterator[NewContact]:
    """Yield contacts with fifteen fields each."""
    for number in range(count):
        yield NewContact(
            f"user{number}@company{number % 997}.example",
            first_name="Ann",
            last_name="Example",
            full_name="Ann Example",
            title="Head of Sales",
            work_phone="+1 202 555 0143",
            company_name="Company",
            company_industry="Software",
            address_1="1 Main Street",
            city="Springfield",
            zip="12345",
            state="IL",
            country="US",
            website="https://company.example",
            personal_note="met at the fair",
        )


def client() -> OutreachClient:
    """Return a client of a fresh service."""
    fake = FakeService(seed=0)
    space = fake.add_workspace()
    return OutreachClient(transport=FakeTransport(fake), owner_key=fake.add_owner_key(space), workspace=space)


async def one_by_one(count: int) -> float:
    """Return CPU seconds of creating so many contacts by single calls."""
    async with client() as one:
        began = time.process_time()
        for row in rows(count):
            await one.contacts.create(row, strict_validation=False)
        return time.process_time() - began


async def in_bulk(count: int) -> float:
    """Return CPU seconds of creating so many contacts in one run."""
    async with client() as one:
        began = time.process_time()
        report = await one.contacts.create_many(rows(count), strict_validation=False)
        assert report.rows == count
        return time.process_time() - began


def main() -> None:
    """Print contacts per CPU second, medians of interleaved rounds."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    singles, bulks = [], []
    for _ in range(ROUNDS):
        singles.append(count / anyio.run(one_by_one, count))
        bulks.append(count / anyio.run(in_bulk, count))
    print(f"Python {platform.python_version()}, asyncio, {count} contacts, {ROUNDS} interleaved rounds, medians")
    print(f"create       {statistics.median(singles):8.0f} contacts per CPU second")
    print(f"create_many  {statistics.median(bulks):8.0f} contacts per CPU second")


if __name__ == "__main__":
    main()
