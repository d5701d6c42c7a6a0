"""The owner key of a run is in none of its files, neither during the run nor after it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from support.time import virtual_time

from outreach_async import NewContact, OutreachClient
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.store.journal import Journal

pytestmark = virtual_time


def content(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in sorted(folder.iterdir()))


@pytest.mark.parametrize("repeats", ["serial", "first"])
async def test_the_owner_key_of_a_run_is_in_none_of_its_files(tmp_path: Path, repeats: Literal["serial", "first"]) -> None:
    fake = FakeService(seed=1)
    space = fake.add_workspace("space_1")
    key = str(fake.add_owner_key(space))
    secret = key.removeprefix("key_")
    rows = [NewContact(f"user{number % 40}@a.example", city=" " * (number % 3)) for number in range(60)] + [NewContact("")]
    client = OutreachClient(transport=FakeTransport(fake), owner_key=key, workspace="space_1")
    journal = Journal(tmp_path / "run.db", inline=True)
    seen = b""
    async with client.contacts.create_many(rows, journal=journal, repeats=repeats) as outcomes:
        async for _ in outcomes:
            seen += content(tmp_path)
    seen += content(tmp_path)
    assert b"space_1" in seen
    assert len(secret) > 3
    assert secret.encode() not in seen
    assert journal.report().rows == len(rows)
