r"""Keep the figures of every audit in a file.

The service returns current totals only. A history, an SQLite file, stores
the totals that each audit reads, and computes the figures of each day:

```python
import anyio
from outreach_async import OutreachClient
from outreach_async.audit import audit
from outreach_async.audit.history import History, Readings


async def main() -> None:
    history = History("history.db", address="https://api.example")
    for _ in range(2):  # once a day
        readings = Readings()
        async with OutreachClient() as client:
            report = await audit(client, ["space_1"], campaigns=True, readings=readings)
        if earlier := history.baseline(report.workspaces):
            print(report.since(earlier).diff.counts.unchanged, "unchanged")  # -> 1 unchanged
        history.append(report, readings)
    for day in history.daily("campaign", "camp_1", days=7):
        print(day.name, day.sent, day.replied)  # -> Spring None None


anyio.run(main)
```

`outreach-async audit --history history.db` and
`brief --history history.db` do the same; with `--no-append`, they only
compare. `outreach-async history show|export|prune` shows daily figures,
writes tables and views to Parquet or CSV, and deletes snapshots: old ones,
or those of a clock that was ahead.

Days
----
Days are in UTC. A figure of a day is the difference between its last
reading and the last one before it, so an audit at 08:00 shows what
happened since 08:00 of the day before. If days lack a reading, the
difference is spread over them, and `spread_over` is their number. A figure
is `NULL` if it is not known:

- on the day of the first reading, unless the campaign was created after
  the reading before;
- if a total has fallen, because a campaign was reset; `gap` is then 1;
- when a campaign or mailbox was deleted, moved or archived, or came back,
  from the day after the reading before to the next one;
- while a workspace cannot be read; later, the difference is spread over
  these days;
- for a sum of which a part is not known: one that is too low looks like a
  bad day.

The totals of mailboxes cover 30 or 90 days, so their differences are no
daily figures, except for new mailboxes: `sent` is known up to an age of 89
days, and `bounced` up to 29 days. For older ones, use `sent_30days`,
`bounced_30days` and `sent_today`, which the service counts itself.
E-mails, opens, replies and bounces of a day come from campaigns.

Tables
------
`snapshots` has a row for each audit, and `workspaces` one for each
workspace of an audit, whose `reading` is `complete`, `partial` or `none`.
In all other tables, a row is valid from the snapshot `first` to the
snapshot `last`: rows that do not change are not repeated, and stay valid
while they cannot be read. `crc` is a checksum.

| table or view | columns |
|---|---|
| `snapshots` | `snapshot`, `day`, `at` (Unix seconds), `score`, `mailboxes`, `campaigns`, findings by severity |
| `workspaces` | `snapshot`, `workspace`, `name`, `reading`, `mailboxes`, `score`, `campaigns`, findings by severity, ... |
| `mailboxes`, `mailbox_figures` | `mailbox` (a number); `id`, `email`, ...; `daily_limit`, `blacklists`, `sent_90days`, ... |
| `domains`, `domain_figures` | `number`, `domain`; `mailboxes`, `sent_30days`, `score` |
| `campaigns`, `campaign_figures` | `campaign` (a number); `id`, `name`, `status`, ...; `contacts`, `sent`, `replies_num`, ... |
| `steps`, `step_figures` | `step` (a number); `campaign_id`, `id`, `position`; `sent`, `replied_num`, `left_to_send`, ... |
| `actions` | `mailbox` (a number); `action`: `stop`, `fix` or `watch` |
| `findings` | `resolved` (a snapshot, or `NULL` while open), `rule`; `severity`, `message`, ... of the last reading |
| `openings` | `finding`, `at`: when a finding began whose first snapshot was deleted |
| `workspace_days` | each day: `sent`, `opened`, `replied`, `interested`, `bounced`, `score`, `stop`, `fix`, `watch`, ... |
| `campaign_days` | each day: `sent`, `opened`, `replied`, `interested`, `bounced`, `added`, `contacts`, ... |
| `domain_days`, `mailbox_days` | each day: `sent`, `bounced`, `sent_today`, `sent_30days`, `bounced_30days`, ... |

pandas, Datasette and Metabase read the file; open it read-only. DuckDB
reads what `outreach-async history export` writes. The bounces of each
workspace in a week, worst first:

```sql
SELECT name, sum(sent) AS sent, round(100.0 * sum(bounced) / sum(sent), 1) AS percent
FROM workspace_days WHERE date > date((SELECT max(date) FROM days), '-7 days')
GROUP BY workspace, name HAVING sum(sent) > 0 ORDER BY percent DESC
```

Size and safety
---------------
100 days of 400 mailboxes and 200 campaigns with three steps each, which
all change on five days a week, take 5 MB. A kill, a full disk or a loss of
power loses at most the snapshot that is being written. Processes that
append wait for each other. Each use checks the whole file, and refuses a
damaged one. A file that is not a history is never changed, and a history
belongs to the address of one service. Tables, views and indexes that other
programs add, also by `ANALYZE`, are neither checked nor changed. It
contains the addresses of mailboxes, so only its owner can read it.

A version of this package reads the histories of earlier ones, and shows
its own figures of each day. Other programs see the views of the version
that wrote the file last, which replaces them.
"""

from __future__ import annotations

import math
import os
import shlex
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Literal

import attrs

from outreach_async._plumbing import SqliteFile, parse_base_url, require_number, require_types, trim
from outreach_async.audit._report import Report
from outreach_async.audit.history._snapshot import (
    define,
    define_for_reading,
    find_damage,
    insert,
    prune_later,
    prune_older,
    read_baseline,
    read_readings,
    replace_people,
    write_snapshot,
)
from outreach_async.audit.history._tables import (
    APPLICATION_ID,
    FORMAT_VERSION,
    TABLES,
    TEXT_COLUMNS,
    VIEWS,
    Readings,
    domain_sums,
    storable,
)
from outreach_async.errors import InvalidRequest, OutreachError
from outreach_async.models import Number

__all__ = ["TEXT_COLUMNS", "DayFigures", "History", "HistoryError", "Readings"]

Kind = Literal["workspace", "campaign", "domain", "mailbox"]

_WAIT: Final = 60.0  # seconds to wait for another process that writes a snapshot, which takes less than one
_MAX_CLOCK_ERROR: Final = 60.0  # seconds by which the clocks of computers that share a history may differ
_MOVE: Final = "move it away and restore a copy, or start a new history"


class HistoryError(OutreachError):
    """A history cannot be read or written (disk full, file damaged, ...).

    Example:
        ```python
        history.path.write_bytes(history.path.read_bytes()[:8192])
        try:
            history.daily("workspace")
        except HistoryError as error:
            print(error)  # -> history history.db is damaged: ...
        ```
    """


@attrs.frozen(kw_only=True)
class DayFigures:
    """The figures of one workspace, campaign, domain or mailbox on one day.

    A figure is `None` if it is not known.

    Attributes:
        date: The day in UTC, as `YYYY-MM-DD`.
        workspace: Id of the workspace; `None` for a domain.
        id: Id of the workspace, campaign or mailbox, or the domain.
        name: Name of the workspace or campaign, address of the mailbox, or
            the domain.
        sent, bounced: E-mails sent and bounced.
        opened, replied, interested: E-mails opened, replies, and those of
            interested contacts, for campaigns and workspaces.
        added: Contacts added to campaigns, for the same.
        sent_today: E-mails that a mailbox or domain had sent on this day
            when it was read.
        sent_30days, bounced_30days: E-mails sent and bounced in 30 days,
            as the service stated on this day.
        score: Score of the workspace or domain.
        stop, fix, watch: Numbers of the workspace's mailboxes by what to
            do with them.
        action: What to do with the mailbox: `stop`, `fix` or `watch`.
        spread_over: Number of days over which a difference was spread; 1
            without a gap between snapshots.

    Example:
        ```python
        print(history.daily("domain")[0].name)  # -> north.example
        ```
    """

    date: str
    workspace: str | None
    id: str
    name: str
    sent: Number | None
    opened: Number | None = None
    replied: Number | None = None
    interested: Number | None = None
    bounced: Number | None = None
    added: Number | None = None
    sent_today: Number | None = None
    sent_30days: Number | None = None
    bounced_30days: Number | None = None
    score: float | None = None
    stop: int | None = None
    fix: int | None = None
    watch: int | None = None
    action: str | None = None
    spread_over: int = 1


_SHARED: Final = "date, sent, bounced, sent_30days, spread_over"
_COLUMNS: Final[dict[str, str]] = {
    "workspace": f"{_SHARED}, workspace, workspace AS id, name, opened, replied, interested, added, score, stop, fix, watch",
    "campaign": f"{_SHARED.replace('sent_30days, ', '')}, workspace, id, name, opened, replied, interested, added",
    "domain": f"{_SHARED}, NULL AS workspace, domain AS id, domain AS name, sent_today, bounced_30days, score",
    "mailbox": f"{_SHARED}, workspace, id, email AS name, sent_today, bounced_30days, action",
}


class History:
    """A file with the figures of all audits.

    Each method opens the file, and closes it at its end.

    Args:
        path: Path of the file; `append` creates it.
        address: Base URL of the service; that of another is refused.
        clock: Returns the time of now, in Unix seconds. Snapshots that are
            later are those of a clock that was ahead.

    Raises:
        InvalidRequest: The file is not a history, belongs to another
            service, or was written by a newer version.
        HistoryError: The file is damaged.

    Example:
        ```python
        print(len(History("history.db").daily("mailbox")))  # -> 2
        ```
    """

    def __init__(
        self, path: str | os.PathLike[str], *, address: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        require_types(History, locals())
        self.path = Path(path)
        self._clock = clock
        # `fake:` is the embedded service of the command line.
        self._address = str(parse_base_url(address)) if address and "//" in address else address
        self._identity: str | None = None
        if self.exists:
            with self._reading():
                pass

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    @property
    def exists(self) -> bool:
        """True if it exists, and not as the empty file of a killed process."""
        return self.path.exists() and (not self.path.is_file() or self.path.stat().st_size > 0)

    def append(self, report: Report, readings: Readings) -> bool:
        """Append an audit's report and its `Readings`: all, or nothing.

        Returns:
            True; False if nothing was appended, because the history has a
            later reading of one of the workspaces: another process was
            faster, or a clock was wrong. `refusal` says which. A reading
            that is later than now blocks all others, which a
            `RuntimeWarning` says, with the remedy.

        Raises:
            HistoryError: The snapshot could not be written. The history
                contains everything that it contained before.

        Example:
            ```python
            later = await audit(client, ["space_1"], readings=(readings := Readings()))
            print(history.append(later, readings))  # -> True
            ```
        """
        with self._writing() as db:
            later = _find_later(db, report)
            if later is None:
                write_snapshot(db, report, readings)
                return True
        if self._is_ahead(later, report):
            warnings.warn(self._explain_refusal(later, report), RuntimeWarning, stacklevel=2)
        return False

    def refusal(self, report: Report) -> str | None:
        """Return why `append` refuses a report, with the remedy, or `None`.

        Example:
            ```python
            print(history.refusal(await audit(client, ["space_1"])))  # -> None
            ```
        """
        if not self.exists:
            return None
        with self._reading() as db:
            later = _find_later(db, report)
        return None if later is None else self._explain_refusal(later, report)

    def _is_ahead(self, later: float, report: Report) -> bool:
        return later > max(self._clock(), report.at) + _MAX_CLOCK_ERROR

    def _explain_refusal(self, later: float, report: Report) -> str:
        known = f"{self.path} has an audit of {datetime.fromtimestamp(later, UTC):%Y-%m-%d %H:%M} UTC, which is later than"
        if not self._is_ahead(later, report):
            return f"{known} this one; nothing was appended: run the audit again, or correct the clock"
        now = datetime.fromtimestamp(math.ceil(max(self._clock(), report.at)), UTC)
        return (
            f"{known} now; nothing was appended: correct the "
            "clock, or if it was ahead in that audit, delete what that audit wrote: "
            f"outreach-async history prune {shlex.quote(str(self.path))} --after {now:%Y-%m-%dT%H:%M:%SZ}"
        )

    def baseline(self, workspaces: str | Sequence[str], *, until: float | None = None) -> Report | None:
        """Return the last readings of workspaces as a report; `None` if none.

        `report.since` and `build_brief` take it. If a workspace could not
        be read in the last audit, the baseline has its reading before;
        `last_read` has the time.

        Args:
            workspaces: Ids of the workspaces, or one id.
            until: A time in Unix seconds. Readings after it are ignored,
                but a finding has the text of its last reading.

        Raises:
            InvalidRequest: `until` is not a number.

        Example:
            ```python
            print(report.since(history.baseline(["space_1"])).diff.counts.unchanged)  # -> 1
            ```
        """
        require_types(History.baseline, locals())
        if not self.exists:
            return None
        if until is not None and math.isnan(until):
            raise InvalidRequest(f"until: expected a time in Unix seconds, got {until!r}; pass, for example, time.time()")
        with self._reading() as db, closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
            if until is not None:
                db.backup(copy)
                define(copy, *copy.execute("PRAGMA user_version").fetchone())  # a copy lacks the temporary tables
                prune_later(copy, until)
            return read_baseline(db if until is None else copy, _ids_of(workspaces))

    def readings(self, since: float) -> list[tuple[float, Readings]]:
        """Return what audits have read, with times, oldest first.

        `outreach_async.audit.plan.build_plan` takes them.

        Args:
            since: Time in Unix seconds; earlier audits are left out.

        Raises:
            InvalidRequest: An argument is of another type.

        Example:
            ```python
            print([readings for at, readings in history.readings(0)])  # -> [<Readings mailboxes=2 campaigns=1>]
            ```
        """
        require_types(History.readings, locals())
        with self._reading() as db:
            return read_readings(db, since)

    def daily(
        self, kind: Kind, subject: str | None = None, *, workspaces: str | Sequence[str] | None = None, days: int = 30
    ) -> list[DayFigures]:
        """Return the figures of the last days, oldest first.

        Args:
            kind: What to return figures of: `workspace`, `campaign`,
                `domain` or `mailbox`.
            subject: Id of the workspace, campaign or mailbox, or the
                domain; by default, all of them.
            workspaces: Ids of workspaces, or one id; figures of others are
                left out. A domain then has no score, which belongs to all
                its mailboxes.
            days: Number of days, which end with the last day of the
                history.

        Raises:
            InvalidRequest: `kind` or `days` is invalid, or the file does
                not exist.

        Example:
            ```python
            print(history.daily("campaign")[0].name)  # -> Spring
            ```
        """
        require_types(History.daily, locals())
        require_number("days", days, least=1)
        values: dict[str, object] = {"days": f"-{days} days", "subject": subject and storable(trim(subject) or "")}
        spaces = _ids_of(workspaces or ())
        values |= {f"workspace_{number}": workspace for number, workspace in enumerate(spaces)}
        where, source = "date > (SELECT date(max(date), :days) FROM days)", f"{kind}_days"
        if subject is not None:
            where += " AND id = :subject"
        if workspaces is not None:
            among = f"workspace IN ({', '.join(f':workspace_{number}' for number in range(len(spaces)))})"
            if kind == "domain":  # other workspaces may have mailboxes of the same domain
                source = f"(SELECT *, NULL AS score FROM ({domain_sums(among)}))"  # noqa: S608 - names of this package
            else:
                where += f" AND {among}"
        query = f"SELECT * FROM (SELECT {_COLUMNS[kind]} FROM {source}) WHERE {where} ORDER BY date, name, id"  # noqa: S608 - no text
        with self._reading() as db:
            rows = db.execute(query, values)
            names = [column[0] for column in rows.description]
            return [DayFigures(**dict(zip(names, row, strict=True))) for row in rows]

    def opened(self, workspaces: str | Sequence[str]) -> dict[tuple[str, str, str], float]:
        """Return when findings opened, by workspace, rule and severity.

        Times are in Unix seconds. The oldest finding counts.

        Raises:
            InvalidRequest: An argument is of another type.

        Example:
            ```python
            print(list(history.opened(["space_1"])))  # -> [('space_1', 'OA101', 'error')]
            ```
        """
        require_types(History.opened, locals())
        query = """SELECT workspace, rule, severity, min(coalesce(o.at, s.at))
          FROM findings JOIN snapshots s ON snapshot = first LEFT JOIN openings o USING (finding)
          WHERE resolved IS NULL GROUP BY workspace, rule, severity"""
        with self._reading() as db:
            known = {*_ids_of(workspaces)}
            return {(space, rule, severity): at for space, rule, severity, at in db.execute(query) if space in known}

    @contextmanager
    def tables(self) -> Iterator[dict[str, tuple[list[str], Iterator[tuple[Any, ...]]]]]:
        """Provide columns and rows of every table and view, as of one moment.

        Example:
            ```python
            with history.tables() as tables:
                columns, rows = tables["mailbox_days"]
                print(columns[3], [row[3] for row in rows])  # -> email ['ada@north.example', 'bob@north.example']
            ```
        """
        foreign: Exception | None = None
        with self._reading() as db:
            found = {name: _select(db, name) for name in (*TABLES, *VIEWS)}
            try:
                yield {name: (columns, iter(rows)) for name, (columns, rows) in found.items()}
            except (OSError, UnicodeError) as error:  # of what the caller does with the rows
                foreign = error
            finally:
                for _, rows in found.values():  # rows that the caller keeps would lock the file
                    rows.close()
        if foreign is not None:
            raise foreign

    def prune(self, keep: float | None = None, *, after: float | None = None) -> int:
        """Delete snapshots, and free their space. Return their number.

        `opened` does not change.

        Args:
            keep: Delete the snapshots that are older than this number of
                seconds before the last one that is not later than now.
            after: Delete the snapshots after this time, in Unix seconds,
                such as those of a clock that was ahead. What they changed
                is as it was before.

        Raises:
            InvalidRequest: `keep` is not more than 0, or not exactly one
                of the arguments is given.

        Example:
            ```python
            print(history.prune(keep=400 * 86_400))  # -> 0
            ```
        """
        require_types(History.prune, locals())
        if (keep is None) == (after is None):
            raise InvalidRequest("keep, after: expected one of them; pass, for example, keep=400 * 86_400")
        if keep is not None and not keep > 0:
            raise InvalidRequest(f"keep: expected more than 0 seconds, got {keep!r}; pass, for example, 400 * 86_400")
        if after is not None and math.isnan(after):
            raise InvalidRequest(f"after: expected a time in Unix seconds, got {after!r}; pass, for example, time.time()")
        self._require_existing()
        with self._writing() as db:
            if after is not None:
                deleted = prune_later(db, after)
            else:
                query = "SELECT coalesce(max(CASE WHEN at <= ? THEN at END), max(at), 0) FROM snapshots"
                ((last,),) = db.execute(query, (self._clock() + _MAX_CLOCK_ERROR,))
                deleted = prune_older(db, last - keep)
        if deleted:
            with self._open("rw") as db:
                db.execute("VACUUM")  # copies the file; a kill leaves the old one
        return deleted

    def erase(self, names: Callable[[str], bool], *, dry_run: bool = False) -> int:
        """Remove what the history has of people. Return the number of rows.

        A mailbox with their address keeps its figures, with another id and
        no address. Texts that quote the address are replaced by `erased`.

        Args:
            names: Tells whether a text names one of the people, as from
                `store.match_people`.
            dry_run: Whether to change nothing.

        Raises:
            InvalidRequest: An argument is of another type.

        Example:
            ```python
            erased = history.erase(lambda text: "bob@north.example" in text)
            print(erased > 0, history.daily("mailbox")[-1].name)  # -> True erased
            ```
        """
        require_types(History.erase, locals())
        self._require_existing()
        with self._reading() if dry_run else self._writing() as db:
            found = replace_people(db, names)
            for table, row in () if dry_run else found:
                insert(db, table, *row)
        if not dry_run:
            with self._open("rw") as db:  # free pages still have what was deleted
                db.execute("VACUUM")
        return len(found)

    @contextmanager
    def _open(self, mode: str) -> Iterator[sqlite3.Connection]:
        with self._explained(), closing(SqliteFile(self.path, timeout=_WAIT).connect(f"mode={mode}")) as db:
            yield db

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        self._require_existing()
        with self._open("rw" if os.access(self.path, os.W_OK) else "ro") as db:
            db.execute("BEGIN")  # another process may write between two statements
            define_for_reading(db, self._require_intact(db))
            yield db

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        if self.exists:
            self._require_history()
        else:
            with self._explained():
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))  # contains addresses of mailboxes
        with self._open("rw") as db:
            db.execute("PRAGMA synchronous = EXTRA")  # a commit is durable, also after a loss of power
            with SqliteFile.transaction(db):
                # Only now can no other process create the tables, or replace the views.
                if db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                    define(db, 0)
                    insert(db, "about", "identity", token_hex(8))
                    insert(db, "about", "address", self._address or "")
                define(db, self._require_intact(db))
                yield db

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeError) as error:
            remedy = {
                "inside": _MOVE,
                "busy": "wait until the other program has ended, and try again",
                "outside": "nothing was stored: free disk space or check its permissions, and try again",
            }[cause := SqliteFile.cause_of(error)]
            damaged, text = " is damaged" if cause == "inside" else "", str(error).partition("\n")[0]
            raise HistoryError(f"history {self.path}{damaged}: {text}; {remedy}") from error

    def _require_existing(self) -> None:
        if not self.exists:
            state = "is empty" if self.path.exists() else "does not exist"
            raise InvalidRequest(f"history: {self.path} {state}; pass the path of a history, as written by `audit --history`")
        self._require_history()

    def _require_history(self) -> None:
        """Check the header before SQLite opens the file, because it might change a file that is not a history."""
        if SqliteFile(self.path, timeout=_WAIT).application_id() != APPLICATION_ID:
            raise InvalidRequest(
                f"history: {self.path} is not a history; pass the path of a history, or of a file that does not exist"
            )

    def _require_intact(self, db: sqlite3.Connection) -> int:
        """Return the version of the file's format."""
        ((version,),) = db.execute("PRAGMA user_version")
        if version > FORMAT_VERSION:
            raise InvalidRequest(f"history: {self.path} was written by a newer version of this library; use that version")
        ((result,), *_) = db.execute("PRAGMA quick_check(1)")
        if (found := find_damage(db, version) if result == "ok" else result) is not None:
            raise HistoryError(f"history {self.path} is damaged: {found}; {_MOVE}")
        about = dict(db.execute("SELECT name, value FROM about"))
        identity, address = about.get("identity"), about.get("address")
        if identity is None or address is None:
            raise HistoryError(f"history {self.path} is damaged: it does not name its service; {_MOVE}")
        if self._address and address and self._address != address:
            raise InvalidRequest(
                f"history: {self.path} belongs to the service {address}, not to {self._address}; use one file for each service"
            )
        if self._identity not in {None, identity}:
            raise InvalidRequest(f"history: {self.path} was replaced by another history; start again")
        self._identity = identity
        return int(version)


def _ids_of(workspaces: str | Sequence[str]) -> list[str]:
    """Return ids as they are stored; a string is one id, as for an audit."""
    return [storable(trim(each) or "") for each in ([workspaces] if isinstance(workspaces, str) else workspaces)]


def _find_later(db: sqlite3.Connection, report: Report) -> float | None:
    """Return the time of the last audit of one of a report's workspaces, if it is later than the report."""
    query = "SELECT workspace, max(at) FROM workspaces JOIN snapshots USING (snapshot) WHERE at > ? GROUP BY workspace"
    known = dict(db.execute(query, (report.at,)))
    return max((known[space] for space in map(storable, report.workspaces) if space in known), default=None)


def _select(db: sqlite3.Connection, name: str) -> tuple[list[str], sqlite3.Cursor]:
    rows = db.execute(f"SELECT * FROM {name}")  # noqa: S608 - a name of this package
    return [column[0] for column in rows.description], rows
