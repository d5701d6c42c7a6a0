"""Write what an audit read into the tables of a history, and read the baseline of the next audit from them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, Literal
from zlib import crc32

import attrs
import msgspec

from outreach_async.audit._findings import Finding, Severity
from outreach_async.audit._history_tables import (
    CAMPAIGN,
    CAMPAIGN_COUNTERS,
    COUNTS,
    CRC_COLUMNS,
    DOMAIN,
    FINDING_TEXTS,
    MAILBOX,
    SNAPSHOT_FIGURES,
    STEP,
    WORKSPACE_FIGURES,
    Entity,
    create_statements,
    parity,
    parity_of,
)
from outreach_async.audit._readings import Readings, Record, records_of, storable
from outreach_async.audit._report import MAX_HISTORY, HistoryPoint, Report, find_unchecked, match_findings
from outreach_async.audit._rules import INCOMPLETE
from outreach_async.audit._scoring import Score, Scores
from outreach_async.audit._values import DAY, figure_or_none
from outreach_async.audit.campaigns import CampaignResults, CampaignRow, CampaignTotals

Reading = Literal["complete", "partial", "none"]

_LAST: Final = len(CAMPAIGN.identity) + CAMPAIGN.settings.index("planned_end")


def insert(db: sqlite3.Connection, table: str, values: Mapping[str, Any], checked: Iterable[str] = ()) -> None:
    """Insert or replace a row, with its checksums."""
    row = [*values.values()]
    if covered := CRC_COLUMNS.get(table):
        row.append(_crc([values[name] for name in covered]))
    db.execute(_insert_statement(table, tuple(values), tuple(checked)), row)


@cache
def _insert_statement(table: str, columns: Sequence[str], checked: Sequence[str]) -> str:
    names = [*columns, *(["crc"] if table in CRC_COLUMNS else [])]
    marks = [f"?{place}" for place in range(1, len(names) + 1)]
    if checked:
        marks.append(parity(f"?{columns.index(name) + 1}" for name in checked))
        names.append("parity")
    return f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({', '.join(marks)})"  # noqa: S608 - names of this package


def _crc(values: Sequence[Any]) -> int:
    return crc32(msgspec.json.encode(values))


def find_damage(db: sqlite3.Connection) -> str | None:
    """Return a description of damage that `PRAGMA quick_check` does not find, or `None`."""
    expected = {statement.split()[2]: statement for statement in create_statements() if statement.startswith("CREATE")}
    known = dict(db.execute("SELECT name, sql FROM sqlite_master").fetchall())
    if changed := [name for name, statement in expected.items() if known.get(name) != statement]:
        return f"the definition of {changed[0]} has changed"
    for table, columns in CRC_COLUMNS.items():
        for *values, crc in db.execute(f"SELECT {', '.join(columns)}, crc FROM {table}"):  # noqa: S608 - names of this package
            if _crc(values) != crc:
                return f"a row of {table} has changed"
    return None


def renew_checksums(db: sqlite3.Connection) -> None:
    """Compute the checksums of texts again, after their rows were changed."""
    db.create_function("crc", -1, lambda *values: _crc(values), deterministic=True)
    for table, columns in CRC_COLUMNS.items():
        db.execute(f"UPDATE {table} SET crc = crc({', '.join(columns)})")  # noqa: S608 - names of this package


def write_snapshot(db: sqlite3.Connection, report: Report, readings: Readings) -> int:
    """Write a snapshot into an open transaction, and return its number."""
    baseline = read_baseline(db, report.workspaces)
    compared = report if baseline is None else report.since(baseline)
    number: int
    ((number,),) = db.execute("SELECT coalesce(max(snapshot), 0) + 1 FROM snapshots")
    day = int(report.at // DAY)
    _add_days(db, day)
    about: dict[str, Any] = {"snapshot": number, "day": day, "at": report.at, "score": report.scores.overall}
    about |= {"mailboxes": report.mailboxes, "campaigns": report.campaigns.checked if report.campaigns else None}
    about |= {severity.value: count for severity, count in compared.counts.items()} | {"scope": HistoryPoint.of(report).scope}
    insert(db, "snapshots", about, ("snapshot", *SNAPSHOT_FIGURES))
    plans = {(storable(row.workspace), storable(row.id)): figure_or_none(row.planned_end) for row in _campaign_rows(compared)}
    writers = {entity.table: _EntityWriter(db, entity, number) for entity in (MAILBOX, CAMPAIGN, STEP)}
    for workspace in report.workspaces:
        before = _previous_readings(db, workspace)
        for entity in (MAILBOX, CAMPAIGN, STEP):
            records = records_of(readings, workspace, entity)
            if entity is CAMPAIGN:
                records = [((*labels[:_LAST], plans.get(labels[:2])), figures) for labels, figures in records]
            writers[entity.table].write(records, before[entity is not MAILBOX])
        _write_workspace(db, number, workspace, compared)
    domains = [((storable(key),), (each.mailboxes, each.sent_30days, each.score)) for key, each in report.scores.domains.items()]
    _EntityWriter(db, DOMAIN, number).write(domains, None)
    _write_findings(db, number, compared)
    return number


def _campaign_rows(report: Report) -> Sequence[CampaignRow]:
    return report.campaigns.rows if report.campaigns else ()


def _add_days(db: sqlite3.Connection, day: int) -> None:
    """Add all days between the known days and `day` to the calendar."""
    first, last = db.execute("SELECT coalesce(min(day), ?), coalesce(max(day), ?) FROM days", (day, day)).fetchone()
    known = [
        (each, datetime.fromtimestamp(each * DAY, UTC).date().isoformat()) for each in range(min(first, day), max(last, day) + 1)
    ]
    if day < first or day >= last:
        db.executemany("INSERT OR IGNORE INTO days VALUES (?, ?)", known)


def _previous_readings(db: sqlite3.Connection, workspace: str) -> tuple[int | None, int | None]:
    """Return the last snapshots in which the mailboxes and the campaigns of a workspace were read."""
    query = """SELECT max(snapshot), max(CASE WHEN campaigns IS NOT NULL THEN snapshot END) FROM workspaces
      WHERE workspace = ? AND reading <> 'none'"""
    mailboxes, campaigns = db.execute(query, (storable(workspace),)).fetchone()
    return mailboxes, campaigns


class _EntityWriter:
    """Writes records of one kind: a new row if a record differs from the one before, otherwise a new `last`."""

    def __init__(self, db: sqlite3.Connection, entity: Entity, snapshot: int) -> None:
        self._db = db
        self._entity = entity
        self._snapshot = snapshot
        query = f"SELECT {entity.key}, max(first), {', '.join(entity.labels)} FROM {entity.table} GROUP BY {entity.key}"  # noqa: S608 - no text
        self._labels = {row[2 : 2 + len(entity.identity)]: row for row in db.execute(query)}
        self._figures = dict(self._newest_figures())
        self._next = max((row[0] for row in self._labels.values()), default=0) + 1

    def _newest_figures(self) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield the newest figures of each thing by its key. The newest rows come first, so most of the table is not read."""
        entity, left = self._entity, {row[0] for row in self._labels.values()}
        columns = ", ".join((entity.key, "first", "last", *entity.figures))
        for row in self._db.execute(f"SELECT {columns} FROM {entity.figure_table} ORDER BY first DESC"):  # noqa: S608 - no text
            if row[0] in left:
                left.remove(row[0])
                yield row[0], row
            if not left:
                return

    def write(self, records: Iterable[Record], before: int | None) -> None:
        """Write records. `before` is the snapshot of the last reading: rows that it lacks are not extended over it."""
        for labels, figures in records:
            known = self._labels.get(labels[: len(self._entity.identity)])
            key = known[0] if known else self._next
            self._next = max(self._next, key + 1)
            if known and known[2:] == labels:
                self._extend(self._entity.table, known)
            else:
                self._add(self._entity.table, key, labels)
            self._write_figures(key, figures, before)

    def _write_figures(self, key: int, figures: tuple[Any, ...], before: int | None) -> None:
        known = self._figures.get(key)
        if known is None:
            self._add(self._entity.figure_table, key, figures)
            return
        first, last, *values = known[1:]
        if first == self._snapshot:  # the service listed a thing twice
            return
        if self._entity is CAMPAIGN and self._has_lost(values, figures):
            return
        if tuple(values) == figures and (before is None or last == before):
            self._extend(self._entity.figure_table, known)
        else:
            self._add(self._entity.figure_table, key, figures)

    def _has_lost(self, values: Sequence[Any], figures: Sequence[Any]) -> bool:
        """Return whether a counter that was known is missing: the campaign then counts as not read."""
        places = [self._entity.figures.index(name) for name in CAMPAIGN_COUNTERS.values()]
        return any(values[place] is not None and figures[place] is None for place in places)

    def _add(self, table: str, key: int, values: Sequence[Any]) -> None:
        entity, is_figures = self._entity, table == self._entity.figure_table
        columns = (entity.key, "first", "last", *(entity.figures if is_figures else entity.labels))
        row = dict(zip(columns, (key, self._snapshot, self._snapshot, *values), strict=True))
        insert(self._db, table, row, columns if is_figures else ())
        newest = (key, self._snapshot, *((self._snapshot,) if is_figures else ()), *values)
        if is_figures:
            self._figures[key] = newest
        else:
            self._labels[tuple(values[: len(entity.identity)])] = newest

    def _extend(self, table: str, known: tuple[Any, ...]) -> None:
        entity = self._entity
        check, values = "crc = ?4", [self._snapshot, known[1], known[0]]
        if table == entity.figure_table:
            check = f"parity = {parity_of(entity, last='?1')}"  # an expression of SET sees the old values of the row
        else:
            values.append(_crc((*known[:2], self._snapshot, *known[2:])))
        query = f"UPDATE {table} SET last = ?1, {check} WHERE first = ?2 AND {entity.key} = ?3"  # noqa: S608 - names of this package
        self._db.execute(query, values)


def _write_workspace(db: sqlite3.Connection, snapshot: int, workspace: str, report: Report) -> None:
    found = [finding for finding in report.findings if finding.workspace == workspace]
    score = report.scores.workspaces.get(workspace)
    campaigns = report.campaigns.totals.get(workspace) if report.campaigns else None
    was_read = bool(score or (campaigns and campaigns.campaigns))
    reading: Reading = "complete"
    if workspace in report.unreadable or any(finding.rule in INCOMPLETE for finding in found):
        reading = "partial" if was_read else "none"
    is_known = score is not None and workspace not in report.unreadable  # the score of a part would be wrong
    counts = {severity.value: sum(finding.severity is severity for finding in found) for severity in Severity}
    values = {
        "snapshot": snapshot,
        "workspace": storable(workspace),
        "name": storable(report.name_of(workspace)),
        "reading": reading,
        "mailboxes": score.mailboxes if score and is_known else 0 if reading == "complete" else None,
        "sent_30days": figure_or_none(score.sent_30days) if score and is_known else None,
        "score": score.score if score and is_known else None,
        "campaigns": campaigns.campaigns if campaigns and reading != "none" else None,
        **counts,
    }
    insert(db, "workspaces", values, ("snapshot", *WORKSPACE_FIGURES))


FINDING_CHECKED: Final = ("finding", "first", "last", "resolved", "sent_30days")


@attrs.frozen
class _OpenFinding:
    number: int
    first: int
    last: int
    finding: Finding


def _write_findings(db: sqlite3.Connection, snapshot: int, report: Report) -> None:
    """Add new findings, renew those that are still open, and mark those that are resolved."""
    known = _open_findings(db, {*map(storable, report.workspaces)})
    by_identity = {id(each.finding): each for each in known}
    matches, gone = match_findings([each.finding for each in known], report.findings)
    ((number,),) = db.execute("SELECT coalesce(max(finding), 0) FROM findings")
    for before, finding in zip(matches, report.findings, strict=True):
        if before is None:
            number += 1
            _write_finding(db, _OpenFinding(number, snapshot, snapshot, finding), None)
        else:
            _write_finding(db, attrs.evolve(by_identity[id(before)], last=snapshot, finding=finding), None)
    is_unchecked, off = find_unchecked(report), set(report.policy.off)
    for finding in gone:
        if not is_unchecked(finding) or finding.rule in off:
            _write_finding(db, by_identity[id(finding)], snapshot)


def _write_finding(db: sqlite3.Connection, about: _OpenFinding, resolved: int | None) -> None:
    finding = about.finding
    texts = {name: getattr(finding, name) for name in FINDING_TEXTS}
    values: dict[str, Any] = {"finding": about.number, "first": about.first, "last": about.last, "resolved": resolved}
    values |= {name: None if text is None else storable(text) for name, text in texts.items()}
    values |= {"sent_30days": finding.sent_30days, "figures": json.dumps(finding.figures)}
    insert(db, "findings", values, FINDING_CHECKED)


def _open_findings(db: sqlite3.Connection, workspaces: Collection[str]) -> list[_OpenFinding]:
    query = f"SELECT finding, first, last, sent_30days, figures, {', '.join(FINDING_TEXTS)} FROM findings WHERE resolved IS NULL"  # noqa: S608 - no text
    found = []
    for number, first, last, sent, figures, *texts in db.execute(query):
        values = dict(zip(FINDING_TEXTS, texts, strict=True))
        if values["workspace"] in workspaces:
            values |= {"severity": Severity(values["severity"]), "sent_30days": sent, "figures": json.loads(figures)}
            found.append(_OpenFinding(number, first, last, Finding(**values)))
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
    findings = [each.finding for each in _open_findings(db, set(spaces))]
    at = max(read[space] for space in spaces if space in read)
    history = _read_points(db)
    before = [point for point in history if point.at <= at]
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
    scope = HistoryPoint.of(report).scope
    same = next((point for point in reversed(before) if point.scope == scope), before[-1])
    return attrs.evolve(report, mailboxes=same.mailboxes, scores=attrs.evolve(report.scores, overall=same.score))


def _read_points(db: sqlite3.Connection) -> list[HistoryPoint]:
    query = f"SELECT at, score, mailboxes, scope, {', '.join(COUNTS)} FROM snapshots ORDER BY at, snapshot"  # noqa: S608 - names
    return [
        HistoryPoint(at=at, score=score, mailboxes=mailboxes, counts=dict(zip(Severity, counts, strict=True)), scope=scope)
        for at, score, mailboxes, scope, *counts in db.execute(query)
    ]


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
            rows.append(_campaign_row(about, counts))
    totals = {
        space: CampaignTotals.of(row for row in rows if row.workspace == space) for space in workspaces if space in complete
    }
    return CampaignResults(checked=len(rows), totals=totals, rows=rows)


def _campaign_row(about: Mapping[str, Any], counts: Mapping[str, Any]) -> CampaignRow:
    own = {name: value for name, value in counts.items() if name not in {"opens_num", "ends"}}
    return CampaignRow(**about, **own, severity=None, rules=[], opens=None, end=counts["ends"], last_activity="")
