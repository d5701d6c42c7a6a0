"""The history of audits: what was read is kept, daily figures are right or missing, and nothing else can happen to the file."""

from __future__ import annotations

import math
import random
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any
from zlib import crc32

import attrs
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audit import mailbox
from support.campaigns import DAY
from support.examples import scaled
from support.histories import START, DrawnWorld, Sent, agency, append_days, pass_day
from support.history_oracle import Drawn

from outreach_async import InvalidRequest
from outreach_async.audit import Report, Severity
from outreach_async.audit import history as guide
from outreach_async.audit.history import History, HistoryError
from outreach_async.audit.history._snapshot import insert
from outreach_async.audit.history._tables import (
    CAMPAIGN,
    CAMPAIGN_COUNTERS,
    COLUMNS,
    FORMAT_VERSION,
    VIEWS,
    create_table,
    create_view,
    record_mailboxes,
)

HELPER = (sys.executable, "-m", "support.histories")
TESTS = Path(__file__).parents[1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


def sent_of(history: History, id_: str = "camp_0") -> list[tuple[str, Any, int]]:
    return [(day.date[5:], day.sent, day.spread_over) for day in history.daily("campaign", id_, days=100)]


def one_campaign(**about: Any) -> tuple[DrawnWorld, Sent]:
    world = DrawnWorld(["space_1"], boxes={"space_1": [mailbox()]})
    sent = world.campaigns["camp_0"] = Sent("space_1", **{"created": START - 9 * DAY, **about})
    return world, sent


def rows_of(path: Path, table: str) -> list[dict[str, Any]]:
    with History(path).tables() as tables:
        columns, rows = tables[table]
        return [dict(zip(columns, row, strict=True)) for row in rows]


def read_tables(path: Path) -> dict[str, list[str]]:
    with History(path).tables() as tables:
        return {name: sorted(map(repr, rows)) for name, (_, rows) in tables.items()}


# Days.


def test_rolling_totals_of_a_mailbox_give_daily_figures_only_while_it_is_new(path: Path) -> None:
    world, _ = one_campaign()
    history = History(path)
    about = {"sent_90days": 100, "bounced_30days": 2}
    ages = {"old": 400, "88": 88, "87": 87, "middle": 50, "28": 28, "27": 27, "young": 3}
    for day in range(2):
        world.boxes["space_1"] = [
            mailbox(id=f"mailbox_{age}", created_at=START - days * DAY, email=f"a@{age}.example", **about)
            for age, days in ages.items()
        ]
        history.append(*world.read(START + day * DAY))
        about = {"sent_90days": 130, "bounced_30days": 3}

    found = {day.name[2:].removesuffix(".example"): (day.sent, day.bounced) for day in history.daily("mailbox", days=1)}
    some, both = dict.fromkeys(["87", "middle", "28"], (30, None)), dict.fromkeys(["27", "young"], (30, 1))
    assert found == {**dict.fromkeys(["old", "88"], (None, None)), **some, **both}
    assert {day.id: day.sent for day in history.daily("domain", days=1)}["young.example"] == 30


def test_the_calendar_has_every_day_from_the_first_to_the_last_audit(path: Path) -> None:
    world, _ = one_campaign()
    history = History(path)
    for day, space, first, last in ((5, "space_1", 5, 5), (2, "space_2", 2, 5), (8, "space_1", 2, 8)):
        history.append(*world.read(START + day * DAY, workspaces=[space]))
        with closing(sqlite3.connect(path)) as db:
            days = [day for (day,) in db.execute("SELECT day FROM days")]
        assert days == [START // DAY + day for day in range(first, last + 1)]
    history.append(*world.read(START + 40 * DAY, workspaces=["space_1"]))
    assert len({day.date for day in history.daily("workspace")}) == 30


def test_figures_of_a_workspace_are_missing_unless_it_was_read_completely(path: Path) -> None:
    world = DrawnWorld(["read", "empty", "part", "unread"], boxes={name: [mailbox(id=name)] for name in ("read", "part")})
    world.troubled = {"read"}
    report, readings = world.read(START, unread=["unread"])
    assert History(path).append(attrs.evolve(report, unreadable=["part", "unread"]), readings)

    found = {row["workspace"]: row for row in rows_of(path, "workspaces")}
    assert {name: (row["reading"], row["mailboxes"], row["score"]) for name, row in found.items()} == {
        "read": ("complete", 1, 90.0),
        "empty": ("complete", 0, None),
        "part": ("partial", None, None),
        "unread": ("none", None, None),
    }
    assert {name: [row[severity] for severity in Severity] for name, row in found.items()} == {
        "read": [0, 1, 0, 0],
        "empty": [0, 0, 0, 0],
        "part": [0, 0, 0, 0],
        "unread": [0, 1, 0, 0],
    }
    baseline = History(path).baseline(report.workspaces)
    assert baseline is not None
    assert baseline.scores.domains == report.scores.domains
    assert baseline.scores.workspaces == {"read": report.scores.workspaces["read"]}


def read_without(world: DrawnWorld, at: float, *names: str) -> tuple[Any, Any]:
    """Return the report and the readings of a world whose campaign lacks these figures."""
    report, readings = world.read(at)
    ((labels, figures),) = readings._records["space_1", CAMPAIGN]
    known = [None if name in names else value for name, value in zip(CAMPAIGN.figures, figures, strict=True)]
    readings._records["space_1", CAMPAIGN] = [(labels, tuple(known))]
    return report, readings


@pytest.mark.parametrize("lost", [[each] for each in CAMPAIGN_COUNTERS.values()] + [CAMPAIGN.figures])
def test_a_campaign_without_one_of_its_totals_counts_as_not_read(path: Path, lost: Sequence[str]) -> None:
    world, sent = one_campaign()
    history = History(path)
    history.append(*world.read(START))
    history.append(*read_without(world, START + DAY, *lost))
    sent.sent = 20
    history.append(*world.read(START + 2 * DAY))

    assert sent_of(history)[1:] == [("03-03", 10, 2), ("03-04", 10, 2)]


def test_a_total_that_a_campaign_never_had_hides_no_other(path: Path) -> None:
    world, sent = one_campaign()
    for day in range(3):
        History(path).append(*read_without(world, START + day * DAY, "opens_num"))
        sent.sent += 10
    assert sent_of(History(path)) == [("03-02", None, 1), ("03-03", 10, 1), ("03-04", 10, 1)]


def test_a_draft_that_is_deleted_leaves_no_day_unknown(path: Path) -> None:
    world, sent = one_campaign()
    draft = world.campaigns["camp_1"] = Sent("space_1", START - DAY, status="draft")
    history = History(path)
    for day in (0, 1, 3):
        world.campaigns = {"camp_0": sent} if day == 3 else {"camp_0": sent, "camp_1": draft}
        history.append(*world.read(START + day * DAY))
        sent.sent += 12
    assert [day.sent for day in history.daily("workspace")] == [None, 12, 6, 6]


def play(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - a sample
    with TemporaryDirectory() as folder:
        drawn = Drawn(Path(folder), chance)
        for _ in range(chance.randint(2, 9)):
            drawn.read()
            drawn.pass_time()
            for act, share in ((drawn.add, 0.2), (drawn.move, 0.5), (drawn.prune, 0.1), (drawn.be_ahead, 0.1)):
                if chance.random() < share:
                    act()
        drawn.check()


@settings(max_examples=scaled(4), deadline=None)
@given(st.integers(0, 2**32))
def test_every_figure_of_a_drawn_history_is_that_of_its_readings(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("seed", [10, 15, 23, 32])  # of 40, quick ones that together find six mistakes that were tried
def test_every_figure_is_that_of_the_readings_where_things_move_and_are_pruned(seed: int) -> None:
    play(seed)


# Kills, full disks, other processes and damage.


@pytest.mark.nightly
def test_a_process_that_is_killed_at_any_point_loses_its_snapshot_only(path: Path) -> None:
    done = subprocess.run([*HELPER, "kills", str(path)], cwd=TESTS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kills, during_commit = map(int, done.stdout.split())
    assert kills > 50
    assert during_commit > 5


@pytest.mark.thorough
def test_snapshots_of_two_processes_at_once_are_both_stored(path: Path) -> None:
    command = [*HELPER, "appends", str(path)]
    running = [subprocess.Popen([*command, space, "10"], cwd=TESTS, stderr=subprocess.PIPE) for space in ("space_1", "space_2")]
    for process in running:
        _, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors

    history = History(path)
    for space in ("space_1", "space_2"):
        assert [day.sent for day in history.daily("workspace", space)] == [None, *[10] * 9]


class FullDisk(History):
    """A history on a disk that is full after a few more pages."""

    room = 1

    @contextmanager
    def _open(self, mode: str) -> Iterator[sqlite3.Connection]:
        with super()._open(mode) as db:
            (pages,) = db.execute("PRAGMA page_count").fetchone()
            db.execute(f"PRAGMA max_page_count = {max(1, pages + self.room)}")
            yield db


@pytest.mark.parametrize("room", [1, 4, 8])
def test_a_full_disk_is_an_error_and_loses_nothing(path: Path, room: int) -> None:
    append_days(path, 3)
    before = read_tables(path)
    full = FullDisk(path)
    full.room = room

    with pytest.raises(HistoryError, match="database or disk is full; nothing was stored: free disk space"):
        full.append(*agency(boxes=300, campaigns=10, spaces=3).read(START + 9 * DAY))

    assert read_tables(path) == before
    assert sorted(each.name for each in path.parent.iterdir()) == ["history.db"]


def test_a_full_disk_leaves_no_new_history_that_looks_damaged(path: Path) -> None:
    with pytest.raises(HistoryError, match="is full"):
        FullDisk(path).append(*agency(boxes=3, campaigns=1, spaces=1).read(START))
    append_days(path, 1)
    assert len(History(path).daily("workspace")) == 2


def test_a_damaged_byte_is_refused_or_changes_nothing(path: Path) -> None:
    append_days(path, 4, campaigns=2)
    content, expected, chance = path.read_bytes(), read_tables(path), random.Random(3)  # noqa: S311 - a sample
    refused = 0
    for _ in range(scaled(40)):
        place = chance.randrange(len(content))
        path.write_bytes(content[:place] + bytes([content[place] ^ chance.randrange(1, 256)]) + content[place + 1 :])
        try:
            assert read_tables(path) == expected, place
        except (HistoryError, InvalidRequest):
            refused += 1
    assert refused > 0


@pytest.mark.parametrize("size", [100, 4096, 12_288])
def test_a_truncated_history_is_refused_with_a_remedy_and_not_changed(path: Path, size: int) -> None:
    append_days(path, 4)
    path.write_bytes(cut := path.read_bytes()[:size])
    with pytest.raises(HistoryError, match=r"is damaged: .*; move it away and restore a copy, or start a new history"):
        History(path)
    assert path.read_bytes() == cut


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE campaign_figures SET sent = sent + 1 WHERE first = 2", "a row of campaign_figures has changed"),
        ("UPDATE campaigns SET workspace = 'space_9'", "a row of campaigns has changed"),
        ("UPDATE workspaces SET reading = 'none'", "a row of workspaces has changed"),
        ("UPDATE findings SET rule = 'OA999'", "a row of findings has changed"),
        ("UPDATE snapshots SET scope = 'other' WHERE snapshot = 2", "a row of snapshots has changed"),
        ("UPDATE about SET value = 'https://other.example' WHERE name = 'address'", "a row of about has changed"),
        ("ALTER TABLE campaigns ADD COLUMN color", "the definition of campaigns has changed"),
        ("DROP TABLE openings", "the definition of openings has changed"),
        ("PRAGMA user_version = 1", "its format has the number 1, but it has the table actions"),
        ("DROP VIEW campaign_days; CREATE TABLE campaign_days (date)", "campaign_days is not a view"),
        ("DELETE FROM about WHERE name = 'address'", "it does not name its service"),
        ("DELETE FROM about WHERE name = 'identity'", "it does not name its service"),
        ("UPDATE findings SET rule = CAST(X'ff' AS TEXT)", "Could not decode to UTF-8 column"),
    ],
)
def test_a_changed_row_is_damage(path: Path, statement: str, what: str) -> None:
    world, _ = one_campaign()
    world.troubled.add(world.boxes["space_1"][0].id)
    for day in range(3):
        History(path).append(*world.read(START + day * DAY))
    with closing(sqlite3.connect(path)) as db:
        db.executescript(statement)

    with pytest.raises(HistoryError, match=f"is damaged: .*{what}"):
        History(path)


@pytest.mark.parametrize("kind", ["text", "database"])
def test_a_file_that_is_no_history_is_not_touched(path: Path, kind: str) -> None:
    path.write_text("my notes", encoding="utf-8")
    if kind == "database":
        path.unlink()
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE mine (value)")
    before = path.read_bytes()

    with pytest.raises(InvalidRequest, match="is not a history; pass the path of a history, or of a file that does not exist"):
        append_days(path, 1)
    assert path.read_bytes() == before


def test_tables_and_indexes_that_other_programs_add_to_a_history_stay(path: Path) -> None:
    append_days(path, 1)
    with closing(sqlite3.connect(path)) as db:
        db.executescript("CREATE TABLE notes AS SELECT 'mine' AS note; CREATE INDEX by_rule ON findings (rule); ANALYZE")

    append_days(path, 3)
    assert History(path).prune(86_400) == 2
    with closing(sqlite3.connect(path)) as db:
        names = "SELECT name FROM sqlite_master WHERE name IN ('notes', 'by_rule', 'sqlite_stat1')"
        assert len(db.execute(names).fetchall()) == 3
        assert db.execute("SELECT note FROM notes").fetchall() == [("mine",)]


def test_a_history_belongs_to_one_service(path: Path) -> None:
    world, _ = one_campaign()
    History(path, address="https://api.example/").append(*world.read(START))
    for address in "https://API.example:443", None:
        assert History(path, address=address).daily("workspace")
    with pytest.raises(InvalidRequest, match=r"belongs to the service https://api\.example, not to https://b\.example"):
        History(path, address="https://b.example")


def test_a_history_that_was_replaced_or_is_of_a_newer_version_is_refused(path: Path) -> None:
    append_days(path, 1)
    history = History(path)
    path.unlink()
    append_days(path, 1)

    with pytest.raises(InvalidRequest, match="was replaced by another history; start again"):
        history.daily("workspace")
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")

    with pytest.raises(InvalidRequest, match="was written by a newer version of this library"):
        History(path)


def test_a_history_in_use_is_an_error_that_says_so(path: Path) -> None:
    class Impatient(History):
        @contextmanager
        def _open(self, mode: str) -> Iterator[sqlite3.Connection]:
            with super()._open(mode) as db:
                db.execute("PRAGMA busy_timeout = 0")
                yield db

    append_days(path, 1)
    world, _ = one_campaign()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(HistoryError, match="database is locked; wait until the other program has ended, and try again"):
            Impatient(path).append(*world.read(START + DAY))


def test_an_older_audit_of_the_same_workspaces_is_not_appended(path: Path) -> None:
    append_days(path, 3)
    world, _ = one_campaign()
    history, other = History(path), DrawnWorld(["space_9"], boxes={"space_9": [mailbox()]})
    assert not history.append(*world.read(START))
    assert history.append(*other.read(START))
    other.workspaces = ("space_9", "space_1")
    assert "has an audit of 2026-03-04 08:00 UTC" in str(history.refusal(other.read(START - DAY)[0]))


# Reading.


def test_the_format_changes_only_with_its_version() -> None:
    # If this fails, add 1 to FORMAT_VERSION, convert older histories, and change the checksum. Views may change at any time.
    assert (FORMAT_VERSION, crc32("\n".join(map(create_table, COLUMNS)).encode())) == (3, 442121961)


class ReadOnly(History):
    """A history whose file this process may not write."""

    @contextmanager
    def _open(self, mode: str) -> Iterator[sqlite3.Connection]:
        with super()._open(mode.replace("rw", "ro")) as db:
            yield db


_OTHER_VERSIONS = {
    "a reworded view": "DROP VIEW campaign_days; CREATE VIEW campaign_days AS SELECT 1 AS other -- words",
    "no views": ";".join(f"DROP VIEW {name}" for name in VIEWS),
    "a view that does not work": "DROP VIEW mailbox_days; CREATE VIEW mailbox_days AS SELECT * FROM missing",
    "a table in other words": "CREATE TABLE copy AS SELECT * FROM days; DROP TABLE days;"
    'CREATE TABLE "days" ( "day", date text , crc, primary key(day) ) without rowid; INSERT INTO days SELECT * FROM copy',
    "the first format": "DROP TABLE openings; DROP TABLE actions; PRAGMA user_version = 1; DROP VIEW workspace_days;"
    "CREATE VIEW workspace_days AS SELECT 1 AS other",
}


@pytest.mark.parametrize("written", _OTHER_VERSIONS)
def test_a_history_of_another_version_shows_the_same_and_gets_these_views(path: Path, written: str) -> None:
    append_days(path, 3)
    expected, opened = read_tables(path), History(path).opened(["space_1"])
    with closing(sqlite3.connect(path)) as db:
        db.executescript(_OTHER_VERSIONS[written])
    content = path.read_bytes()

    with ReadOnly(path).tables() as tables:
        assert {name: sorted(map(repr, rows)) for name, (_, rows) in tables.items()} == expected
    assert (read_tables(path), History(path).opened(["space_1"]), path.read_bytes()) == (expected, opened, content)
    both = [threading.Thread(target=History(path).prune, args=(9 * DAY,)) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    with closing(sqlite3.connect(path)) as db:
        views = dict(db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'view'"))
        assert db.execute("PRAGMA user_version").fetchone() == (FORMAT_VERSION,)
    assert views == {name: create_view(name) for name in VIEWS}
    assert read_tables(path) == expected


def test_a_history_can_be_read_while_another_program_writes(path: Path) -> None:
    append_days(path, 2)
    expected = read_tables(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        assert read_tables(path) == expected


def test_the_queries_of_the_guide_run(path: Path) -> None:
    world, sent = one_campaign(sent=100)
    world.troubled.add(world.boxes["space_1"][0].id)
    for day in range(5):
        sent.sent += 50 if day < 2 else 0
        sent.bounced += day < 2
        History(path).append(*world.read(START + day * DAY))
    queries = re.findall(r"```sql\n(.*?)```", guide.__doc__ or "", re.DOTALL)
    with closing(sqlite3.connect(path)) as db:
        answers = [pd.read_sql_query(query, db).to_dict("records") for query in queries]

    assert answers == [[{"name": "space_1", "sent": 50, "percent": 2.0}]]


def test_figures_of_other_workspaces_are_left_out(path: Path) -> None:
    append_days(path, 2, campaigns=2)
    history = History(path)
    assert {day.id for day in history.daily("campaign", workspaces=["space_2"])} == {"camp_1"}
    assert {day.sent_30days for day in history.daily("domain", workspaces=["space_2"])} == {mailbox().sent_30days}


@pytest.mark.parametrize(("kind", "days", "message"), [("planet", 1, "kind: expected one of"), ("domain", 0, "days: expected")])
def test_invalid_arguments_name_the_argument(path: Path, kind: Any, days: int, message: str) -> None:
    append_days(path, 1)
    with pytest.raises(InvalidRequest, match=message):
        History(path).daily(kind, days=days)
    for arguments, expected in (
        ({"keep": 0}, "keep: expected more than 0 seconds, got 0"),
        ({"after": math.nan}, "after: expected a time in Unix seconds, got nan"),
        ({}, "keep, after: expected one of them"),
        ({"keep": 1, "after": 1}, "keep, after: expected one of them"),
    ):
        with pytest.raises(InvalidRequest, match=expected):
            History(path).prune(**arguments)


def test_a_baseline_has_the_totals_of_each_workspace_whose_campaigns_were_read(path: Path) -> None:
    world = DrawnWorld(["space_1", "space_2", "space_3"], boxes={"space_3": [mailbox()]})
    for at in range(3):
        world.campaigns[f"camp_{at}"] = Sent("space_1" if at < 2 else "space_2", START, sent=at + 1)
    history = History(path)
    history.append(*world.read(START - DAY, unread=["space_2"]))
    world.campaigns["camp_0"].name = "Autumn"
    history.append(*world.read(START, unread=["space_2"]))

    for spaces in (["space_1", "space_2", "space_3"], ["space_1"], ["space_2"]):
        baseline = history.baseline(spaces)
        assert baseline is not None
        assert baseline.campaigns is not None
        assert {space: (each.campaigns, each.sent) for space, each in baseline.campaigns.totals.items()} == {
            "space_1": (2, 3),
            "space_3": (0, 0),
        }


def test_a_baseline_has_at_most_the_last_100_audits(path: Path) -> None:
    world, _ = one_campaign()
    History(path).append(*world.read(START))
    with closing(sqlite3.connect(path)) as db, db:  # 101 appends would take seconds
        for number in range(1, 102):
            insert(db, "snapshots", 1 + number, START // DAY, START - number, 90.0, 1, 1, 0, 0, 0, 0, "other")
    baseline = History(path).baseline(["space_1"])
    assert baseline is not None
    assert [point.at for point in baseline.history] == [START - number for number in range(99, -1, -1)]


def test_a_mailbox_that_the_service_lists_twice_is_stored_once(path: Path) -> None:
    world, _ = one_campaign()
    report, readings = world.read(START)
    record_mailboxes(readings, "space_1", [mailbox(sent_today=99)])
    history = History(path)
    history.append(report, readings)

    assert [day.sent_today for day in history.daily("mailbox")] == [mailbox().sent_today]
    assert (repr(history), repr(readings)) == (f"History('{path}')", "<Readings mailboxes=2 campaigns=1>")


def test_a_missing_history_has_no_baseline_and_no_days(path: Path) -> None:
    assert History(path).baseline(["space_1"]) is None
    with pytest.raises(InvalidRequest, match="does not exist; pass the path of a history"):
        History(path).daily("workspace")
    assert not path.exists()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    world, _ = one_campaign()
    with pytest.raises(HistoryError, match=r"No such file or directory.*nothing was stored"):
        History(tmp_path / "none" / "history.db").append(*world.read(START))


# Old rows, size and pruning.


def test_rows_that_do_not_change_are_not_repeated_and_old_rows_stay(path: Path) -> None:
    world, _ = one_campaign(days_left=0)
    history = History(path)
    query = "SELECT first, last, sent_today FROM mailbox_figures"
    world.boxes["space_1"] = [mailbox(sent_today=7)]
    for day in range(5):
        history.append(*world.read(START + day * DAY))
    with closing(sqlite3.connect(path)) as db:
        before = db.execute(query).fetchall()
    world.boxes["space_1"] = [mailbox(sent_today=9)]
    history.append(*world.read(START + 5 * DAY))
    with closing(sqlite3.connect(path)) as db:
        after = db.execute(query).fetchall()

    assert before == [(1, 5, 7)]
    assert after == [*before, (6, 6, 9)]
    for table in ("campaigns", "campaign_figures", "domain_figures"):
        assert [(row["first"], row["last"]) for row in rows_of(path, table)] == [(1, 6)]


@pytest.mark.covers
@pytest.mark.thorough
def test_pruning_keeps_the_days_that_remain_and_frees_space(path: Path) -> None:
    world, chance = agency(boxes=40, campaigns=20, spaces=3), random.Random(1)  # noqa: S311 - a sample
    history = History(path)
    for day in range(20):
        history.append(*world.read(START + day * DAY))
        pass_day(world, chance)
    before, size = history.daily("campaign", days=5), path.stat().st_size
    baseline = history.baseline(world.workspaces)

    assert history.prune(keep=6 * DAY) == 13
    assert history.daily("campaign", days=5) == before
    assert path.stat().st_size < size * 0.7
    assert history.prune(keep=6 * DAY) == 0
    after = history.baseline(world.workspaces)
    assert (after and attrs.evolve(after, history=[])) == (baseline and attrs.evolve(baseline, history=[]))


def test_a_baseline_of_an_earlier_time_is_the_one_that_it_was_then(path: Path) -> None:
    world, chance = agency(boxes=12, campaigns=6, spaces=4), random.Random(2)  # noqa: S311 - a sample
    history, known = History(path), list[Report | None]()
    for day in range(9):
        world.troubled = set(chance.sample([box.id for boxes in world.boxes.values() for box in boxes], 4))
        history.append(*world.read(START + day * DAY, unread=world.workspaces[:2] if day in {3, 6} else ()))
        known.append(history.baseline(world.workspaces))
        pass_day(world, chance)
    before = path.read_bytes()

    def shown(report: Report | None) -> tuple[set[tuple[str | None, ...]], Report]:
        assert report is not None  # a finding has the text of its last reading
        return {(each.workspace, each.rule, each.mailbox) for each in report.findings}, attrs.evolve(report, findings=[])

    for day in range(9):
        assert shown(history.baseline(world.workspaces, until=START + (day + 0.5) * DAY)) == shown(known[day])
    assert history.baseline(world.workspaces, until=START + 8 * DAY) == known[8]
    assert history.baseline(world.workspaces, until=START - 1) is None
    assert path.read_bytes() == before
    with pytest.raises(InvalidRequest, match="until: expected a time in Unix seconds, got nan; pass"):
        history.baseline(world.workspaces, until=math.nan)


def test_pruning_counts_from_now_and_not_from_a_clock_that_was_ahead(path: Path) -> None:
    world, _ = one_campaign()
    now = START + 5 * DAY
    history = History(path, clock=lambda: now)
    for day in (0, 4, 5, 1000):
        assert history.refusal(world.read(START + day * DAY)[0]) is None
        history.append(*world.read(START + day * DAY))
    other = DrawnWorld(["space_9"], boxes={"space_9": [mailbox()]})
    assert history.append(*other.read(now + 1))

    assert history.prune(keep=2 * DAY) == 1
    assert history.prune(after=now) == 2
    assert [day.date for day in history.daily("mailbox")] == ["2026-03-06", "2026-03-07"]
    assert history.refusal(world.read(now - DAY / 2)[0]) == (
        f"{path} has an audit of 2026-03-07 08:00 UTC, which is later than this one; nothing was appended: run the audit again, "
        "or correct the clock"
    )
    assert not history.append(*world.read(now - DAY / 2))
    assert history.prune(after=0) == 2
    assert (history.baseline(["space_1"]), history.daily("mailbox"), history.opened(["space_1"])) == (None, [], {})
    assert history.append(*world.read(now))


def test_a_finding_that_was_appended_late_stays_open(path: Path) -> None:
    world, _ = one_campaign()
    late = DrawnWorld(["space_9"], boxes={"space_9": [mailbox(id="mailbox_9")]}, troubled={"mailbox_9"})
    history = History(path)
    history.append(*world.read(START + 5 * DAY))
    history.append(*late.read(START))

    assert history.prune(keep=DAY) == 1
    assert history.opened(["space_9"]) == {("space_9", "OA101", "error"): START}


def test_a_finding_that_was_resolved_by_a_clock_that_was_ahead_is_open_again(path: Path) -> None:
    world, _ = one_campaign()
    history = History(path)
    world.troubled.add(world.boxes["space_1"][0].id)
    history.append(*world.read(START - DAY))
    history.append(*world.read(START))
    before = read_tables(path)
    world.troubled.clear()
    history.append(*world.read(START + DAY))
    assert history.opened(["space_1"]) == {}

    assert history.prune(after=START) == 1
    assert read_tables(path) == before
    for day in (1, 2):
        history.append(*world.read(START + day * DAY))
    assert history.prune(after=START + DAY) == 1
    assert history.opened(["space_1"]) == {}
    history.append(*world.read(START + 3 * DAY))
    assert history.prune(keep=DAY) == 3
    assert all(row["rule"] != "OA101" for row in rows_of(path, "findings"))


def test_a_campaign_whose_figures_were_pruned_is_read_again(path: Path) -> None:
    world, _ = one_campaign()
    history = History(path)
    history.append(*world.read(START))
    for day in (1, 2):
        history.append(*read_without(world, START + day * DAY, *CAMPAIGN.figures))

    assert history.prune(keep=DAY) == 1
    assert history.append(*world.read(START + 3 * DAY))
    assert [day.sent for day in history.daily("campaign", days=100)] == [None] * 3


def test_an_interrupt_while_a_history_is_checked_is_not_damage(path: Path) -> None:
    append_days(path, 1)

    def interrupt(frame: FrameType, *_: object) -> None:
        if frame.f_code.co_name == "_checksum":
            raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            History(path)
    finally:
        sys.setprofile(before)


def test_an_error_of_the_block_that_reads_tables_is_not_damage(path: Path) -> None:
    append_days(path, 1)
    with pytest.raises(UnicodeError, match="charmap"), History(path).tables():
        "\u2603".encode("cp1252")


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_year_of_an_agency_takes_less_than_20_megabytes(path: Path) -> None:
    world, chance = agency(), random.Random(2)  # noqa: S311 - a sample
    history = History(path)
    for day in range(365):
        history.append(*world.read(START + day * DAY))
        if day % 7 < 5:
            pass_day(world, chance)

    assert path.stat().st_size < 20_000_000
