"""Write what an audit read into the tables of a history, read the baseline of the next audit from them, and delete snapshots."""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import cache
from secrets import token_hex
from types import MappingProxyType
from typing import Any, Final, Literal
from zlib import crc32

import attrs
import msgspec

from outreach_async.audit._evaluation import Score, Scores
from outreach_async.audit._findings import Action, Finding, Severity
from outreach_async.audit._report import MAX_HISTORY, HistoryPoint, Report, find_unchecked, history_point, match_findings
from outreach_async.audit._rules import INCOMPLETE
from outreach_async.audit._values import DAY, figure_or_none
from outreach_async.audit.campaigns import CampaignResults, CampaignRow, add_up
from outreach_async.audit.history._tables import (
    APPLICATION_ID,
    CAMPAIGN,
    CAMPAIGN_COUNTERS,
    COLUMNS,
    COUNTS,
    DOMAIN,
    ENTITIES,
    FINDING_TEXTS,
    FORMAT_VERSION,
    MAILBOX,
    STEP,
    TABLES,
    VIEWS,
    Entity,
    Readings,
    Record,
    create_table,
    create_view,
    missing_tables,
    records_of,
    storable,
)

Reading = Literal["complete", "partial", "none"]

_LAST: Final = len(CAMPAIGN.identity) + CAMPAIGN.settings.index("planned_end")


def _checksum(values: Sequence[object]) -> int:
    """Return 15 bits, which take two bytes in the file."""
    # Not a function of SQL: SQLite would turn a KeyboardInterrupt within it into an error that looks like damage.
    return crc32(msgspec.json.encode(values)) & 0x7FFF


_INSERTS: Final = {
    table: f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' for _ in (*columns, 'crc'))})"  # noqa: S608 - a name of this package
    for table, columns in COLUMNS.items()
}


def insert(db: sqlite3.Connection, table: str, *values: object) -> None:
    db.execute(_INSERTS[table], (*values, _checksum(values)))


def find_damage(db: sqlite3.Connection, version: int) -> str | None:
    """Return a description of damage that `PRAGMA quick_check` does not find, or `None`. `version` is the file's format."""
    kinds = dict(db.execute("SELECT lower(name), type FROM sqlite_master"))
    missing = missing_tables(version)
    for table in COLUMNS:
        if table in missing:
            if table in kinds:
                return f"its format has the number {version}, but it has the table {table}"
            continue
        if _structure(db, table) != _expected_structure(table):
            return f"the definition of {table} has changed"
        rows = db.execute(f"SELECT crc, {', '.join(COLUMNS[table])} FROM {table}")  # noqa: S608 - names of this package
        if any(_checksum(row[1:]) != row[0] for row in rows):
            return f"a row of {table} has changed"
    taken = [name for name in VIEWS if kinds.get(name, "view") != "view"]
    return f"{taken[0]} is not a view" if taken else None


def _structure(db: sqlite3.Connection, table: str) -> tuple[list[Any], list[Any]]:
    """Return the columns and the constraints of a table, whose text other programs and later versions may write differently."""
    constraints = db.execute("SELECT origin FROM pragma_index_list(?) WHERE origin <> 'c'", (table,)).fetchall()
    return db.execute("SELECT * FROM pragma_table_xinfo(?)", (table,)).fetchall(), constraints


@cache
def _expected_structure(table: str) -> tuple[list[Any], list[Any]]:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(create_table(table))
        return _structure(db, table)


def define(db: sqlite3.Connection, version: int) -> None:
    """Add what a history of an earlier format lacks, and replace the views that another version of this package has written."""
    if version < FORMAT_VERSION:
        for table in missing_tables(version):
            db.execute(create_table(table))
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
    known = dict(db.execute("SELECT name, sql FROM sqlite_master"))
    for name in VIEWS:
        if known.get(name) != create_view(name):
            db.execute(f"DROP VIEW IF EXISTS {name}")
            db.execute(create_view(name))


def define_for_reading(db: sqlite3.Connection, version: int) -> None:
    """Define the same for one connection, which also works if the file cannot be written: the stored views may be older."""
    for table in missing_tables(version):
        db.execute(create_table(table, "TEMP TABLE"))
    for name in VIEWS:
        db.execute(create_view(name, "TEMP VIEW"))


def write_snapshot(db: sqlite3.Connection, report: Report, readings: Readings) -> int:
    baseline = read_baseline(db, report.workspaces)
    compared = report if baseline is None else report.since(baseline)
    number: int
    ((number,),) = db.execute("SELECT coalesce(max(snapshot), 0) + 1 FROM snapshots")
    day = int(report.at // DAY)
    first, last = db.execute("SELECT coalesce(min(day), ?), coalesce(max(day), ?) FROM days", (day, day - 1)).fetchone()
    for each in range(day, first) if day < first else range(last + 1, day + 1):  # the calendar has no gaps
        insert(db, "days", each, datetime.fromtimestamp(each * DAY, UTC).date().isoformat())
    campaigns = report.campaigns.checked if report.campaigns else None
    about = number, day, report.at, report.scores.overall, report.mailboxes, campaigns
    insert(db, "snapshots", *about, *compared.counts.values(), history_point(report).scope)
    rows = compared.campaigns.rows if compared.campaigns else ()
    plans = {(storable(row.workspace), storable(row.id)): figure_or_none(row.planned_end) for row in rows}
    writers = {entity: _EntityWriter(db, entity, number) for entity in (MAILBOX, CAMPAIGN, STEP)}
    actions = {(storable(each.workspace), storable(each.mailbox)): each.action for each in report.actions}
    found: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in compared.findings:
        found[finding.workspace].append(finding)
    # The last snapshots in which the mailboxes and the campaigns of a workspace were read.
    query = """SELECT max(snapshot), max(CASE WHEN campaigns IS NOT NULL THEN snapshot END) FROM workspaces
      WHERE workspace = ? AND reading <> 'none'"""
    for workspace in report.workspaces:
        before = db.execute(query, (storable(workspace),)).fetchone()
        for entity, writer in writers.items():
            records = records_of(readings, workspace, entity)
            if entity is CAMPAIGN:
                records = [((*labels[:_LAST], plans.get(labels[:2])), figures) for labels, figures in records]
            writer.write(records, before[entity is not MAILBOX], actions if entity is MAILBOX else {})
        _write_workspace(db, number, workspace, compared, found[workspace])
    domains = [((storable(key),), (each.mailboxes, each.sent_30days, each.score)) for key, each in report.scores.domains.items()]
    _EntityWriter(db, DOMAIN, number).write(domains, None)
    _write_findings(db, number, compared)
    return number


class _EntityWriter:
    """Writes records of one kind: a new row if a record differs from the one before, otherwise a new `last`."""

    def __init__(self, db: sqlite3.Connection, entity: Entity, snapshot: int) -> None:
        self._db = db
        self._entity = entity
        self._snapshot = snapshot
        self._labels, self._figures, *more = (_newest_rows(db, entity, table) for table in entity.tables)
        self._actions = more[0] if more else {}
        self._keys = {row[2 : 2 + len(entity.identity)]: key for key, row in self._labels.items()}
        self._next = max(self._labels, default=0) + 1
        self._counters = [CAMPAIGN.figures.index(name) for name in CAMPAIGN_COUNTERS.values() if entity is CAMPAIGN]

    def write(
        self, records: Iterable[Record], before: int | None, actions: Mapping[tuple[Any, ...], Action] = MappingProxyType({})
    ) -> None:
        """Write records, and actions by identity. Rows that lack `before`, the snapshot of the last reading, are not extended."""
        for labels, figures in records:
            identity = labels[: len(self._entity.identity)]
            key = self._keys.setdefault(identity, self._next)
            self._next = max(self._next, key + 1)
            known = self._labels.get(key)
            self._labels[key] = self._store(self._entity.table, key, labels, self._extendable(known, labels, before))
            if identity in actions:
                known, values = self._actions.get(key), (actions[identity],)
                self._actions[key] = self._store("actions", key, values, self._extendable(known, values, before))
            known = self._figures.get(key)
            if known is None:
                self._figures[key] = self._store(self._entity.figure_table, key, figures, None)
                continue
            # A campaign that lacks a counter which was known counts as not read, and the service may list a thing twice.
            has_lost = any(known[2 + place] is not None and figures[place] is None for place in self._counters)
            if known[1] != self._snapshot and not has_lost:
                self._figures[key] = self._store(
                    self._entity.figure_table, key, figures, self._extendable(known, figures, before)
                )

    def _extendable(self, known: tuple[Any, ...] | None, values: tuple[Any, ...], before: int | None) -> tuple[Any, ...] | None:
        is_equal = known is not None and known[2:] == values
        return known if known and is_equal and (before is None or known[1] in {before, self._snapshot}) else None

    def _store(self, table: str, key: int, values: tuple[Any, ...], known: tuple[Any, ...] | None) -> tuple[Any, ...]:
        """Add a row, or extend the row `known`, which has these values. Return the row without its key."""
        row = known or (self._snapshot, self._snapshot, *values)
        stored = row[0], self._snapshot, *row[2:]  # the checksum of an equal number of another type would differ
        insert(self._db, table, key, *stored)
        return stored


def _newest_rows(db: sqlite3.Connection, entity: Entity, table: str) -> dict[int, tuple[Any, ...]]:
    """Return the newest row of each thing by its key. The newest rows come first, so most of the table is not read."""
    ((count,),) = db.execute(f"SELECT count(DISTINCT {entity.key}) FROM {entity.table}")  # noqa: S608 - names of this package
    newest: dict[int, tuple[Any, ...]] = {}
    rows = db.execute(f"SELECT {', '.join(COLUMNS[table])} FROM {table} ORDER BY first DESC")  # noqa: S608 - names of this package
    for key, *values in rows:
        newest.setdefault(key, tuple(values))
        if len(newest) == count:  # a thing whose figures were pruned has none
            break
    return newest


def _write_workspace(db: sqlite3.Connection, snapshot: int, workspace: str, report: Report, found: Sequence[Finding]) -> None:
    score = report.scores.workspaces.get(workspace)
    campaigns = report.campaigns.totals.get(workspace) if report.campaigns else None
    was_read = bool(score or (campaigns and campaigns.campaigns))
    reading: Reading = "complete"
    if workspace in report.unreadable or any(finding.rule in INCOMPLETE for finding in found):
        reading = "partial" if was_read else "none"
    is_known = score is not None and workspace not in report.unreadable  # the score of a part would be wrong
    insert(
        *(db, "workspaces", snapshot, storable(workspace), storable(report.name_of(workspace)), reading),
        score.mailboxes if score and is_known else 0 if reading == "complete" else None,
        figure_or_none(score.sent_30days) if score and is_known else None,
        score.score if score and is_known else None,
        campaigns.campaigns if campaigns and reading != "none" else None,
        *(sum(finding.severity is severity for finding in found) for severity in Severity),
    )


def _write_findings(db: sqlite3.Connection, snapshot: int, report: Report) -> None:
    known = _open_findings(db, {*map(storable, report.workspaces)})
    places = {id(finding): place for place, finding in known}
    matches, gone = match_findings([finding for _, finding in known], report.findings)
    ((number,),) = db.execute("SELECT coalesce(max(finding), 0) FROM findings")
    for before, finding in zip(matches, report.findings, strict=True):
        number += before is None
        found, first, _ = (number, snapshot, snapshot) if before is None else places[id(before)]
        _write_finding(db, (found, first, snapshot, None), finding)
    is_unchecked, off = find_unchecked(report), set(report.policy.off)
    for finding in gone:
        if not is_unchecked(finding) or finding.rule in off:
            _write_finding(db, (*places[id(finding)], snapshot), finding)


def _write_finding(db: sqlite3.Connection, place: tuple[int, int, int, int | None], finding: Finding) -> None:
    """Write a finding with its number, its first and last snapshots, and the one in which it is resolved."""
    given = [getattr(finding, name) for name in FINDING_TEXTS]
    texts = [None if text is None else storable(text) for text in given]
    insert(db, "findings", *place, *texts, finding.sent_30days, json.dumps(finding.figures))


def _open_findings(db: sqlite3.Connection, workspaces: Collection[str]) -> list[tuple[tuple[int, int, int], Finding]]:
    query = f"SELECT finding, first, last, sent_30days, figures, {', '.join(FINDING_TEXTS)} FROM findings WHERE resolved IS NULL"  # noqa: S608 - no text
    found = []
    for number, first, last, sent, figures, *texts in db.execute(query):
        values = dict(zip(FINDING_TEXTS, texts, strict=True))
        if values["workspace"] in workspaces:
            values |= {"severity": Severity(values["severity"]), "sent_30days": sent, "figures": json.loads(figures)}
            found.append(((number, first, last), Finding(**values)))
    return found


def read_baseline(db: sqlite3.Connection, workspaces: Iterable[str]) -> Report | None:
    """Return the last readings of these workspaces, and of those of the last snapshot, as one report."""
    # A workspace that was never read has no figures, but the finding that it could not be read.
    seen = {workspace for (workspace,) in db.execute("SELECT DISTINCT workspace FROM workspaces")}
    read = dict(db.execute("""SELECT workspace, max(at) FROM workspaces JOIN snapshots USING (snapshot)
      WHERE reading <> 'none' GROUP BY workspace"""))  # fmt: skip
    complete = dict(db.execute("""SELECT workspace, max(at) FROM workspaces JOIN snapshots USING (snapshot)
      WHERE reading = 'complete' GROUP BY workspace"""))  # fmt: skip
    latest = [row[0] for row in db.execute("""SELECT workspace FROM workspaces
      WHERE snapshot = (SELECT max(snapshot) FROM workspaces WHERE reading <> 'none') ORDER BY workspace""")]  # fmt: skip
    spaces = [space for space in dict.fromkeys([*map(storable, workspaces), *latest]) if space in seen]
    if read.keys().isdisjoint(spaces):
        return None
    findings = [finding for _, finding in _open_findings(db, set(spaces))]
    at = max(read[space] for space in spaces if space in read)
    query = f"SELECT at, score, mailboxes, scope, {', '.join(COUNTS)} FROM snapshots WHERE at <= ? ORDER BY at, snapshot"  # noqa: S608 - names
    before = [
        HistoryPoint(at=moment, score=score, mailboxes=boxes, counts=dict(zip(Severity, counts, strict=True)), scope=scope)
        for moment, score, boxes, scope, *counts in db.execute(query, (at,))
    ]
    report = Report(
        mailboxes=0,
        unreadable=[],
        findings=sorted(findings, key=lambda finding: finding.severity.rank),
        scores=_read_scores(db, spaces),
        workspaces=spaces,
        at=at,
        history=before[-MAX_HISTORY:],
        last_read={space: complete[space] for space in spaces if space in complete},
        campaigns=_read_campaigns(db, spaces),
    )
    scope = history_point(report).scope
    same = next((point for point in reversed(before) if point.scope == scope), before[-1])
    return attrs.evolve(report, mailboxes=same.mailboxes, scores=attrs.evolve(report.scores, overall=same.score))


def read_readings(db: sqlite3.Connection, since: float) -> list[tuple[float, Readings]]:
    found = []
    for snapshot, at in db.execute("SELECT snapshot, at FROM snapshots WHERE at >= ? ORDER BY at", (since,)).fetchall():
        found.append((at, readings := Readings()))
        for entity in (MAILBOX, CAMPAIGN, STEP):
            names = ", ".join([*(f"a.{name}" for name in entity.labels), *(f"b.{name}" for name in entity.figures)])
            query = f"""SELECT {names} FROM {entity.table} a JOIN {entity.figure_table} b USING ({entity.key})
              JOIN workspaces w ON w.workspace = a.workspace AND w.snapshot = :at AND w.reading = 'complete'
              WHERE :at BETWEEN a.first AND a.last AND :at BETWEEN b.first AND b.last"""  # noqa: S608 - names of this package
            for row in db.execute(query, {"at": snapshot}):
                labels, figures = row[: len(entity.labels)], row[len(entity.labels) :]
                records_of(readings, labels[0], entity).append((labels, figures))
                if entity is CAMPAIGN and (ends := figures[entity.figures.index("ends")]):
                    readings.days_left[labels[:2]] = max(0.0, ends - at) / DAY
    return found


def _read_scores(db: sqlite3.Connection, workspaces: Collection[str]) -> Scores:
    spaces = db.execute("""SELECT workspace, score, mailboxes, sent_30days, max(snapshot) FROM workspaces
      WHERE score IS NOT NULL GROUP BY workspace""")  # fmt: skip
    known = {row[0]: Score(score=row[1], mailboxes=row[2], sent_30days=row[3]) for row in spaces}
    domains = db.execute("""SELECT domain, f.score, f.mailboxes, f.sent_30days, max(f.first)
      FROM domain_figures f JOIN domains USING (number)
      WHERE f.last = (SELECT max(last) FROM domain_figures) GROUP BY domain ORDER BY f.score""")  # fmt: skip
    return Scores(
        overall=None,
        workspaces={space: known[space] for space in workspaces if space in known},
        domains={row[0]: Score(score=row[1], mailboxes=row[2], sent_30days=row[3]) for row in domains},
    )


def _read_campaigns(db: sqlite3.Connection, workspaces: Collection[str]) -> CampaignResults | None:
    """Return the campaigns that the last complete reading of their workspace did not lack; `None` if none was ever read."""
    complete = dict(db.execute("""SELECT workspace, max(CASE WHEN reading = 'complete' THEN snapshot ELSE 0 END) FROM workspaces
      WHERE campaigns IS NOT NULL GROUP BY workspace"""))  # fmt: skip
    if not complete:
        return None
    figures = {row[0]: row[2:] for row in db.execute(
        f"SELECT campaign, max(first), {', '.join(CAMPAIGN.figures)} FROM campaign_figures GROUP BY campaign")}  # noqa: S608 - no text  # fmt: skip
    query = f"SELECT campaign, max(first), last, {', '.join(CAMPAIGN.labels)} FROM campaigns GROUP BY campaign"  # noqa: S608 - names
    rows = []
    for campaign, _, last, *labels in db.execute(query):
        about = dict(zip(CAMPAIGN.labels, labels, strict=True))
        if about["workspace"] in workspaces and campaign in figures and last >= complete.get(about["workspace"], 0):
            counts = dict(zip(CAMPAIGN.figures, figures[campaign], strict=True))
            about |= {name: value for name, value in counts.items() if name not in {"opens_num", "ends"}}
            rows.append(CampaignRow(**about, severity=None, rules=[], opens=None, end=counts["ends"], last_activity=""))
    totals = {space: add_up([row for row in rows if row.workspace == space]) for space in workspaces if space in complete}
    return CampaignResults(checked=len(rows), totals=totals, rows=rows)


def prune_older(db: sqlite3.Connection, at: float) -> int:
    """Delete the snapshots before a time, and the findings that were resolved in them. When the others began is kept."""
    times, began = _read_times(db)
    kept = sorted(snapshot for snapshot, moment in times.items() if moment >= at)
    for number, first, last, resolved, *values in _select(db, "findings"):
        if resolved is not None and times[resolved] < at:
            db.execute("DELETE FROM findings WHERE finding = ?", (number,))
        elif times[first] < at:
            insert(db, "openings", number, began.get(number, times[first]))
            start = _nearest(kept, first)
            insert(db, "findings", number, start, max(start, last), resolved, *values)
    return _delete(db, "at < ?", at)


def prune_later(db: sqlite3.Connection, at: float) -> int:
    """Delete the snapshots after a time, and the findings that began in them. Those that were resolved in them are open again."""
    times, began = _read_times(db)
    kept = sorted(snapshot for snapshot, moment in times.items() if moment <= at)
    for number, first, last, resolved, *values in _select(db, "findings"):
        if not kept or began.get(number, times[first]) > at:
            db.execute("DELETE FROM findings WHERE finding = ?", (number,))
            continue
        start = _nearest(kept, first)
        end = max(start, kept[max(0, bisect_right(kept, last) - 1)])
        is_open = resolved is None or times[resolved] > at
        insert(db, "findings", number, start, end, None if is_open else resolved, *values)
    return _delete(db, "at > ?", at)


_WORDS: Final = frozenset({"scope", "workspace", "rule", "severity", "confidence", "reading", "action", "figures"})
"""Columns that have words of this package, and no text of a person."""


def replace_people(db: sqlite3.Connection, names: Callable[[str], bool]) -> list[tuple[str, list[Any]]]:
    """Return the rows that name people or have the id of a mailbox of theirs, each with its table, as they are without."""
    boxes = db.execute("SELECT DISTINCT id, email FROM mailboxes")
    erased = {id_: f"erased-{token_hex(8)}" for id_, email in boxes if names(email or "")}

    def clean(column: str, value: Any) -> Any:
        if not isinstance(value, str) or column in _WORDS:
            return value
        return erased.get(value, "erased" if names(value) else value)

    pairs = ((table, row, [*map(clean, COLUMNS[table], row)]) for table in TABLES for row in _select(db, table))
    return [(table, new) for table, row, new in pairs if new != [*row]]


def _read_times(db: sqlite3.Connection) -> tuple[dict[int, float], dict[int, float]]:
    """Return the times of the snapshots, and when the findings began whose first snapshot was deleted."""
    return dict(db.execute("SELECT snapshot, at FROM snapshots")), dict(db.execute("SELECT finding, at FROM openings"))


def _nearest(kept: Sequence[int], snapshot: int) -> int:
    """Return the first snapshot that is kept and not before a snapshot, or else the last one."""
    return kept[min(bisect_left(kept, snapshot), len(kept) - 1)]


def _select(db: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    return db.execute(f"SELECT {', '.join(COLUMNS[table])} FROM {table}").fetchall()  # noqa: S608 - names of this package


def _delete(db: sqlite3.Connection, condition: str, at: float) -> int:
    deleted = db.execute(f"DELETE FROM snapshots WHERE {condition}", (at,)).rowcount  # noqa: S608 - text of this module
    db.execute("DELETE FROM workspaces WHERE snapshot NOT IN (SELECT snapshot FROM snapshots)")
    db.execute("DELETE FROM openings WHERE finding NOT IN (SELECT finding FROM findings)")
    for entity in ENTITIES:
        _cut_entity(db, entity)
    first, last = db.execute("SELECT coalesce(min(day), 1), coalesce(max(day), 0) FROM snapshots").fetchone()
    db.execute("DELETE FROM days WHERE day NOT BETWEEN ? AND ?", (first, last))
    return deleted


def _cut_entity(db: sqlite3.Connection, entity: Entity) -> None:
    """Let each row begin and end with a snapshot in which its workspace was read. Delete rows that no snapshot has."""
    condition = "campaigns IS NOT NULL" if entity in {CAMPAIGN, STEP} else "reading <> 'none'"
    about = f"SELECT workspace, snapshot FROM workspaces WHERE {condition} ORDER BY snapshot"  # noqa: S608 - text of this module
    keys = f"SELECT DISTINCT {entity.key}, workspace FROM {entity.table}"  # noqa: S608 - names of this package
    if entity is DOMAIN:  # a domain may have mailboxes of every workspace
        about, keys = "SELECT '', snapshot FROM snapshots ORDER BY snapshot", "SELECT DISTINCT number, '' FROM domains"
    read: defaultdict[str, list[int]] = defaultdict(list)
    for workspace, snapshot in db.execute(about):
        read[workspace].append(snapshot)
    spaces = dict(db.execute(keys).fetchall())
    for table in entity.tables:
        for key, first, last, *values in _select(db, table):
            known = read[spaces[key]]
            valid = known[bisect_left(known, first) : bisect_right(known, last)]
            if not valid or (valid[0], valid[-1]) != (first, last):
                db.execute(f"DELETE FROM {table} WHERE first = ? AND {entity.key} = ?", (first, key))  # noqa: S608 - names of this package
                if valid:
                    insert(db, table, key, valid[0], valid[-1], *values)
