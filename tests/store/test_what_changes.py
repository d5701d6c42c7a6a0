"""What a run does when something has changed since the last one: a scenario for each line of the table in the guide."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from support.journal import copy_killed
from support.scenarios import KEY, SPACE, new_fake
from support.time import virtual_time

from outreach_async import OutreachClient, Progress, Request, Response, Store
from outreach_async.errors import JournalError, OutreachError
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.guides import nightly

ANN, BO = {"email": "ann@a.example", "city": "Lyon"}, {"email": "bo@a.example", "city": "Bern"}
BAD = {"email": "@", "city": "Lyon"}
DAY = 86_400.0


@attrs.define
class Place:
    """A service, and a ledger that has Ann and Bo after a first night."""

    folder: Path
    fake: FakeService = attrs.field(factory=lambda: new_fake("Plan"))
    now: float = 1_790_000_000.0
    key: str = KEY

    @property
    def path(self) -> Path:
        return self.folder / "contacts.ledger"

    @property
    def last_run(self) -> Path:
        return self.folder / "contacts.ledger.last-run"

    async def night(self, *rows: Any, **options: Any) -> dict[str, int] | str:
        """Send rows, and return the counts that are not zero, or the message of an error."""
        options = {"duplicates": "overwrite", "stop_after_rejects": None, **options}
        store = Store(self.path, inline=True, wall=lambda: self.now)
        client = OutreachClient(transport=FakeTransport(self.fake), owner_key=self.key, workspace=SPACE)
        try:
            report = await client.contacts.create_many(rows or [ANN, BO], ledger=store, **options)
        except OutreachError as error:
            return str(error)
        assert report.ledger is not None
        return {name: count for name, count in attrs.asdict(report.ledger).items() if count}


UNCHANGED = {"unchanged": 2}


async def rejected(place: Place) -> None:
    for _ in range(3):
        assert await place.night(ANN, BO, BAD) == {"unchanged": 2, "new": 1}
    assert await place.night(ANN, BO, BAD, stop_after_rejects=1) == {"unchanged": 2, "new": 1}


async def rejected_once(place: Place) -> None:
    await place.night(ANN, BO, BAD)
    assert await place.night() == UNCHANGED
    place.now += 91 * DAY
    await place.night()
    stopped = await place.night(ANN, BO, BAD, stop_after_rejects=1)
    assert isinstance(stopped, str), stopped


async def owner_key(place: Place) -> None:
    place.key = place.fake.add_owner_key(SPACE)
    assert await place.night() == UNCHANGED
    assert await place.night(max_age=0) == {"expired": 2}


async def options(place: Place) -> None:
    assert await place.night(duplicates="update_missing_fields") == {"changed": 2}
    assert await place.night(duplicates="update_missing_fields", strict_validation=False) == {"changed": 2}
    assert await place.night(duplicates="update_missing_fields", strict_validation=False) == UNCHANGED


async def repeats(place: Place) -> None:
    rows = [ANN, {**ANN, "city": "Rome"}, BO]
    await place.night(*rows)
    assert await place.night(*rows) == {"unchanged": 3, "repeated": 2}
    assert await place.night(*rows, repeats="last") == {"changed": 1, "unchanged": 1, "repeated": 2}


async def renamed(place: Place) -> None:
    campaign = place.fake.add_campaign(SPACE, name="Spring")
    named = [{**row, "campaign": "Spring"} for row in (ANN, BO)]
    await place.night(*named)
    assert await place.night(*({**row, "campaign": campaign} for row in (ANN, BO))) == UNCHANGED
    assert await place.night(*({**row, "campaign": "Autumn"} for row in (ANN, BO))) == {"gone": 2}
    assert len(place.fake.contacts(SPACE)) == 2


async def recreated(place: Place) -> None:
    for _ in range(2):
        campaign = place.fake.add_campaign(SPACE, name="Spring")
        counts = await place.night(*({**row, "campaign": campaign} for row in (ANN, BO)))
        assert counts == {"new": 2}


async def campaign(place: Place) -> None:
    one, two = (place.fake.add_campaign(SPACE) for _ in range(2))
    await place.night({**ANN, "campaign": one}, {**BO, "campaign": one})
    assert await place.night({**ANN, "campaign": two}, {**BO, "campaign": one}) == {"new": 1, "unchanged": 1, "gone": 1}


async def column(place: Place) -> None:
    assert await place.night({**ANN, "title": "CEO"}, BO) == {"changed": 1, "unchanged": 1}


async def clock(place: Place) -> None:
    place.now -= DAY
    assert await place.night() == UNCHANGED
    place.now -= DAY
    assert await place.night(max_age=10 * DAY) == {"expired": 2}


class Silent:
    """A transport to a service that never answers."""

    async def send(self, _: Request, progress: Progress, /) -> Response:
        progress.sent = True
        await anyio.sleep_forever()
        raise AssertionError

    async def aclose(self) -> None: ...


async def killed(place: Place) -> None:
    client = OutreachClient(transport=Silent(), owner_key=KEY, workspace=SPACE)
    store = Store(place.path, inline=True, wall=lambda: place.now)
    rows = [{**ANN, "city": "Rome"}, BO]
    async with anyio.create_task_group() as group, client.contacts.create_many(rows, ledger=store, duplicates="overwrite"):
        await anyio.sleep(1)
        left = copy_killed(place.path)
        group.cancel_scope.cancel()
    left.replace(place.path)
    assert await place.night(*rows) == {"uncertain": 1, "unchanged": 1}
    place.now += DAY
    assert await place.night(*rows) == {"uncertain": 1, "unchanged": 1}
    assert await place.night(*rows) == UNCHANGED


async def moved(place: Place) -> None:
    (elsewhere := place.folder / "elsewhere").mkdir()
    for path in place.path, place.last_run:
        path.rename(elsewhere / path.name)
    place.folder = elsewhere
    assert await place.night() == UNCHANGED


async def copied(place: Place) -> None:
    (elsewhere := place.folder / "elsewhere").mkdir()
    for path in place.path, place.last_run:
        shutil.copy(path, elsewhere)
    copy = attrs.evolve(place, folder=elsewhere)
    changed = {**ANN, "city": "Rome"}
    assert [await each.night(changed, BO) for each in (place, copy)] == [{"changed": 1, "unchanged": 1}] * 2


async def restored(place: Place) -> None:
    older = place.path.read_bytes()
    await place.night({**ANN, "city": "Rome"}, BO)
    newest = place.path.read_bytes()
    place.path.write_bytes(older)
    assert "is older than its last run" in str(await place.night())
    place.path.write_bytes(newest)
    assert await place.night({**ANN, "city": "Rome"}, BO) == UNCHANGED
    place.path.write_bytes(older)
    place.last_run.unlink()
    assert await place.night(max_age=0) == {"expired": 2}
    assert {contact["fields"]["city"] for contact in place.fake.contacts(SPACE)} == {"Lyon", "Bern"}


async def restored_both(place: Place) -> None:
    older = place.path.read_bytes(), place.last_run.read_bytes()
    await place.night({**ANN, "city": "Rome"}, BO)
    place.path.write_bytes(older[0])
    place.last_run.write_bytes(older[1])
    assert await place.night() == UNCHANGED
    assert await place.night(max_age=0) == {"expired": 2}
    assert {contact["fields"]["city"] for contact in place.fake.contacts(SPACE)} == {"Lyon", "Bern"}


async def deleted(place: Place) -> None:
    kept = place.path.read_bytes()
    place.path.unlink()
    assert "does not exist, although" in str(await place.night())
    place.path.write_bytes(kept)
    assert await place.night() == UNCHANGED
    place.path.unlink()
    place.last_run.unlink()
    assert await place.night(max_age=0) == {"new": 2}


async def changed_during_a_run(place: Place) -> None:
    client = OutreachClient(transport=FakeTransport(place.fake), owner_key=KEY, workspace=SPACE)
    store = Store(place.path, inline=True, wall=lambda: place.now)
    rows, kept = [ANN, {**BO, "city": "Rome"}], place.folder / "kept"

    async def run() -> None:
        async with client.contacts.create_many(rows, ledger=store, duplicates="overwrite") as outcomes:
            place.path.rename(kept)
            place.path.write_bytes(b"")
            async for _ in outcomes:
                pass

    with pytest.raises(JournalError, match="the file was replaced or changed during the run"):
        await run()
    assert [contact["fields"]["city"] for contact in place.fake.contacts(SPACE)] == ["Lyon", "Bern"]
    for path in place.folder.glob("contacts.ledger-*"):
        path.unlink()
    kept.replace(place.path)
    assert await place.night(*rows) == {"changed": 1, "unchanged": 1}


async def damaged(place: Place) -> None:
    kept = bytearray(place.path.read_bytes())
    with closing(sqlite3.connect(place.path)) as db:
        db.execute("UPDATE entry SET digest = 7")
        db.commit()
    assert "is damaged: " in str(await place.night())
    for path in place.folder.glob("contacts.ledger*"):
        path.rename(path.with_name(f"away {path.name}"))
    assert await place.night(max_age=0) == {"new": 2}
    place.path.write_bytes(kept)
    place.last_run.unlink()
    assert await place.night(max_age=0) == {"expired": 2}


async def another_service(place: Place) -> None:
    place.fake = new_fake("Plan")
    assert await place.night() == UNCHANGED
    assert place.fake.contacts(SPACE) == []


async def another_format(place: Place) -> None:
    for version, word in (1, "an older"), (99, "a newer"):
        with closing(sqlite3.connect(place.path)) as db:
            db.execute(f"PRAGMA user_version = {version}")
        before = place.path.read_bytes()
        assert f"was written by {word} version" in str(await place.night())
        assert place.path.read_bytes() == before


SCENARIOS: dict[str, Callable[[Place], Awaitable[None]]] = {
    "a row is rejected every night": rejected,
    "a rejected row has left the input": rejected_once,
    "the owner key": owner_key,
    "`duplicates`, `strict_validation`": options,
    "`repeats`": repeats,
    "a campaign was renamed": renamed,
    "a campaign was deleted and made again": recreated,
    "the campaign of a row": campaign,
    "a column was added or renamed": column,
    "the clock went back, or was ahead": clock,
    "the process was killed": killed,
    "the file was moved with .last-run": moved,
    "the file was copied, and both used": copied,
    "an older copy was restored": restored,
    "an older copy and its .last-run": restored_both,
    "the file was deleted": deleted,
    "the file was changed during a run": changed_during_a_run,
    "the file is damaged": damaged,
    "another service at the same address": another_service,
    "a version with another format": another_format,
}


@virtual_time
@pytest.mark.parametrize("change", SCENARIOS)
async def test_a_run_does_what_the_guide_says_of_a_change(change: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert await place.night() == {"new": 2}
    await SCENARIOS[change](place)


def test_the_guide_has_a_line_for_each_scenario() -> None:
    table = (nightly.__doc__ or "").partition("What has changed")[2].partition("\n\n")[0].splitlines()[1:]
    changes = [line[4:42].strip() for line in table]
    assert [change for change in changes if change] == [*SCENARIOS]  # a change with several lines begins with the first
