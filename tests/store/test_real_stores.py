"""Journals, ledgers and racing writes in real object stores, which are named in the environment.

    OUTREACH_TEST_STORES="s3://bucket az://container" pytest -m nightly tests/store/test_real_stores.py

Credentials and endpoints are those of the environment, such as AWS_ENDPOINT_URL or AZURITE_BLOB_STORAGE_URL. A run takes a new
prefix of each store, and leaves its objects there.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import pytest
from support.scenarios import KEY, SPACE, new_fake

from outreach_async import Outcome, OutreachClient, Store
from outreach_async._files.objects import open_objects
from outreach_async.fake import FakeTransport

pytestmark = pytest.mark.nightly
STORES: Any = os.environ.get("OUTREACH_TEST_STORES", "").split() or [
    pytest.param("", marks=pytest.mark.skip(reason="name real stores in OUTREACH_TEST_STORES"))
]
THREADS, NAMES = 8, 40


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest) -> str:
    return f"{request.param}/{time.time_ns()}"


def test_a_run_is_resumed_and_nights_send_what_changed(url: str) -> None:
    async def send() -> None:
        fake = new_fake()
        rows = [{"email": f"user{number}@a.example", "city": "Lyon"} for number in range(300)]
        async with OutreachClient(transport=FakeTransport(fake), owner_key=KEY, workspace=SPACE) as client:
            async with client.contacts.create_many(rows, concurrency=2, journal=f"{url}/run") as outcomes:
                async for outcome in outcomes:
                    if outcome.index == 20:
                        outcomes.drain()
            resumed = await client.contacts.create_many(rows, journal=f"{url}/run", resume=True)
            assert (resumed.outcomes[Outcome.ADDED], resumed.uncertain) == (300, 0)
            for city in "Lyon", "Rome", "Bern":
                rows[3]["city"] = city
                report = await client.contacts.create_many(rows, ledger=f"{url}/ledger", duplicates="overwrite")
            assert (report.outcomes[Outcome.UNCHANGED], report.outcomes[Outcome.OVERWRITTEN]) == (299, 1)
        assert Store(f"{url}/ledger").contacts().contacts == 300

    anyio.run(send)


def test_of_writers_that_create_one_object_only_one_succeeds(url: str) -> None:
    objects = open_objects(f"{url}/race")

    def create(thread: int) -> list[int]:
        return [number for number in range(NAMES) if objects.create(f"n{number}", str(thread).encode())]

    with ThreadPoolExecutor(THREADS) as pool:
        created = [number for numbers in pool.map(create, range(THREADS)) for number in numbers]
    assert sorted(created) == [*range(NAMES)]
