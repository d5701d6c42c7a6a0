"""Files that this version and earlier ones have written: they are read, or refused and left as they are."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path

import anyio
import pytest
from support.docs import example_world
from tools.stored_files import CHANGED, ROWS

from outreach_async import Outcome, OutreachClient, Store
from outreach_async.audit import Report
from outreach_async.audit.history import History
from outreach_async.errors import InvalidRequest
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.importer import read_mapping
from outreach_async.parts import find_part
from outreach_async.store import stores_in

STORED = Path(__file__).parents[1] / "stored"
VERSIONS = ["3"]
"""The versions that can be read."""


@pytest.fixture(params=VERSIONS)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpack(STORED / request.param, tmp_path)


def unpack(packed: Path, folder: Path) -> Path:
    """Unpack the files of a version, and return their folder."""
    for path in packed.rglob("*.gz"):
        target = folder / path.relative_to(packed).with_suffix("")
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(gzip.decompress(path.read_bytes()))
    return folder


async def send(fake: FakeService, **options: object) -> dict[str, int]:
    """Send the rows again, and return the counts of the outcomes that are not zero."""
    async with OutreachClient(transport=FakeTransport(fake), workspace="space_1", owner_key="key_1") as client:
        report = await client.contacts.create_many(CHANGED, stop_after_rejects=None, **options)  # type: ignore[arg-type]
    return {outcome.value: count for outcome, count in report.outcomes.items() if count}


def test_a_journal_is_read(stored: Path) -> None:
    report = Store(stored / "journal").report()
    assert (report.state, report.rows, report.outcomes[Outcome.ADDED], report.outcomes[Outcome.REJECTED]) == ("finished", 6, 5, 1)
    assert [outcome.index for outcome in Store(stored / "journal").outcomes()] == [*range(6)]


def test_the_journal_of_a_killed_process_is_read_and_resumed(stored: Path) -> None:
    assert Store(stored / "killed-journal").report().state == "running"
    found = anyio.run(partial(send, example_world(), journal=stored / "killed-journal", resume=True))
    assert sum(found.values()) == 6
    assert Store(stored / "killed-journal").report().state == "finished"


def test_a_ledger_is_read_and_used(stored: Path) -> None:
    known = Store(stored / "ledger").contacts()
    assert (known.contacts, known.uncertain, len(known.runs), known.pending) == (5, 0, 2, False)
    found = anyio.run(partial(send, example_world(), ledger=stored / "ledger", duplicates="overwrite"))
    assert found == {"unchanged": 5, "rejected": 1}


def test_the_ledger_of_a_killed_process_is_read_and_used(stored: Path) -> None:
    known = Store(stored / "killed-ledger").contacts()
    assert (known.contacts, len(known.runs), known.pending) == (5, 1, True)
    found = anyio.run(partial(send, example_world(), ledger=stored / "killed-ledger", duplicates="overwrite"))
    assert sum(found.values()) == len(CHANGED)
    assert len(Store(stored / "killed-ledger").contacts().runs) == 3
    assert len(ROWS) + 1 == len(CHANGED)


def test_what_the_command_writes_is_read(stored: Path) -> None:
    assert {day.action for day in History(stored / "history").daily("mailbox")} == {None, "fix"}
    (earlier,) = {day.action for day in History(stored / "history-2").daily("mailbox")}  # its format knew no actions
    assert earlier is None
    for name in ("history", "history-2"):
        last = History(stored / name).baseline(["space_1"])
        assert History(stored / name).baseline(["space_1"], until=1e11) == last is not None
    assert read_mapping(stored / "mapping.toml") == {"E-mail": "email", "Town": "city"}
    assert Report.from_dict(json.loads((stored / "audit.json").read_text(encoding="utf-8"))).mailboxes == 2
    (fake := FakeService()).load((stored / "world.json").read_text(encoding="utf-8"))
    assert {"email": "part0@company.example"}.items() <= fake.contacts("space_1")[-3].items()


def test_a_folder_of_parts_is_read(stored: Path) -> None:
    ((name, store),) = stores_in(stored / "parts").items()
    report = store.report()
    assert (report.state, report.rows) == ("finished", 3)
    assert find_part(stored / "parts", name, report.fingerprint) is not None


@pytest.mark.parametrize("version", ["1", "2"])
def test_files_of_an_older_format_are_refused_as_older_and_left_as_they_are(version: str, tmp_path: Path) -> None:
    folder = unpack(STORED / version, tmp_path)
    for name, kind in ("journal", "journal"), ("ledger", "ledger"):
        before = (folder / name).read_bytes()
        for read in (Store(folder / name).report, Store(folder / name).contacts)[kind == "ledger" :]:
            with pytest.raises(InvalidRequest, match="was written by an older version of this library"):
                read()
        options = {kind: folder / name, "duplicates": "overwrite", "resume": kind == "journal"}
        with pytest.raises(InvalidRequest, match="was written by an older version of this library"):
            anyio.run(partial(send, example_world(), **options))
        assert (folder / name).read_bytes() == before
