"""The tables and views of a history (SQL, without I/O), and the records that an audit collects for them.

Mailboxes, domains, campaigns and steps have two tables each: one for names and settings, and one for figures. A row is valid from
the snapshot `first` to the snapshot `last`. While a reading equals the one before, only `last` changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from outreach_async.audit._findings import ACTIONS
from outreach_async.audit._rules import email_domain
from outreach_async.audit._values import figure_or_none, sum_or_none
from outreach_async.audit.campaigns import CampaignRow
from outreach_async.models import Campaign, Mailbox, Number, Step, StepStatus, TemplateStatus

APPLICATION_ID: Final = 0x4F414849  # "OAHI": outreach_async, history
FORMAT_VERSION: Final = 3
COUNTS: Final = ("critical", "error", "warning", "info")


@attrs.frozen(eq=False)
class Entity:
    table: str
    key: str
    identity: tuple[str, ...]
    settings: tuple[str, ...]
    figures: tuple[str, ...]

    @property
    def figure_table(self) -> str:
        return f"{self.table.removesuffix('es' if self.table == 'mailboxes' else 's')}_figures"

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.identity, *self.settings)

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables whose rows are valid from a snapshot to another."""
        return (self.table, self.figure_table, *(["actions"] if self.table == "mailboxes" else []))


MAILBOX: Final = Entity(
    *("mailboxes", "mailbox", ("workspace", "id")),
    ("email", "domain", "type", "status", "server_ip", "spf", "dkim", "dmarc", "created_at"),
    ("daily_limit", "campaigns", "blacklists", "sent_today", "sent_30days", "sent_90days", "bounced_30days", "opened_14days"),
)
DOMAIN: Final = Entity("domains", "number", ("domain",), (), ("mailboxes", "sent_30days", "score"))
CAMPAIGN: Final = Entity(
    *("campaigns", "campaign", ("workspace", "id"), ("name", "status", "created", "planned_end")),
    (
        *("steps", "contacts", "sent", "opens_num", "replies_num", "interested_num", "bounces_num", "unsubscribed_num"),
        *("left_to_send", "ends"),
    ),
)
STEP: Final = Entity(
    *("steps", "step", ("workspace", "campaign_id", "id"), ("position", "status")),
    ("sent", "opened_num", "replied_num", "unsubscribed_num", "left_to_send", "already_sent", "out_of"),
)
ENTITIES: Final = (MAILBOX, DOMAIN, CAMPAIGN, STEP)
CAMPAIGN_COUNTERS: Final = {
    "sent": "sent",
    "opened": "opens_num",
    "replied": "replies_num",
    "interested": "interested_num",
    "bounced": "bounces_num",
    "added": "contacts",
}
_MAILBOX_COUNTERS: Final = {"sent": "sent_90days", "bounced": "bounced_30days"}
_NEVER: Final = 1 << 62  # a snapshot that comes after all others
_WINDOWS: Final = {"sent_90days": 89 * 86_400, "bounced_30days": 29 * 86_400}
"""Age in seconds up to which no e-mail of a mailbox has left a total. Until then, its difference is the number of events."""

FINDING_TEXTS: Final = (
    *("workspace", "rule", "severity", "mailbox", "email", "domain", "server_ip", "campaign", "campaign_name", "step"),
    *("message", "remedy", "confidence"),
)
TEXT_COLUMNS: Final = frozenset(
    {*FINDING_TEXTS, "action", "date", "id", "name", "type", "status", "server_ip", "campaign_id", "reading", "scope", "figures"}
)
"""Names of the columns of `History.tables` that contain text, also if every cell is blank.

Example:
    ```python
    print("email" in TEXT_COLUMNS, "sent_30days" in TEXT_COLUMNS)  # -> True False
    ```
"""

# The primary key of entities begins with the snapshot: rows are appended, which fills the pages of the file.
_KEYS: Final = {
    "about": "name",
    "days": "day",
    "snapshots": "snapshot",
    "workspaces": "workspace, snapshot",
    **{table: f"first, {entity.key}" for entity in ENTITIES for table in entity.tables},
    "findings": "finding",
    "openings": "finding",
}
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "about": ("name", "value"),
    "days": ("day", "date"),
    "snapshots": ("snapshot", "day", "at", "score", "mailboxes", "campaigns", *COUNTS, "scope"),
    "workspaces": ("snapshot", "workspace", "name", "reading", "mailboxes", "sent_30days", "score", "campaigns", *COUNTS),
    **{each.table: (each.key, "first", "last", *each.labels) for each in ENTITIES},
    **{each.figure_table: (each.key, "first", "last", *each.figures) for each in ENTITIES},
    "actions": ("mailbox", "first", "last", "action"),
    "findings": ("finding", "first", "last", "resolved", *FINDING_TEXTS, "sent_30days", "figures"),
    "openings": ("finding", "at"),
}
"""The columns of each table; `crc`, the checksum of a row, follows. Numbers have no type: SQLite then stores them as they are."""
_ADDED: Final = {"openings": 2, "actions": 3}
"""The version of the format that added a table."""
TABLES: Final = tuple(table for table in COLUMNS if table not in {"about", "days"})  # to export; `about` and `days` are internal


def missing_tables(version: int) -> list[str]:
    """Return the tables that a history with this version of the format lacks; 0 is an empty file."""
    return [table for table in COLUMNS if _ADDED.get(table, 1) > version]


def create_table(table: str, kind: str = "TABLE") -> str:
    columns = COLUMNS[table]
    typed = ", ".join(f"{name} TEXT" if name in TEXT_COLUMNS and name != columns[0] else name for name in columns)
    return f"CREATE {kind} {table} ({typed}, crc, PRIMARY KEY ({_KEYS[table]})) WITHOUT ROWID"


def create_view(name: str, kind: str = "VIEW") -> str:
    return f"CREATE {kind} {name} AS {VIEWS[name]}"


def _difference_terms(counters: Mapping[str, str]) -> tuple[str, ...]:
    """Return the SQL terms of the differences of counters, in the order in which `_days_of` names them."""
    known_first, known_last = (
        {name: f"{at} - created < {_WINDOWS[total]}" if total in _WINDOWS else "1" for name, total in counters.items()}
        for at in ("first_at", "last_at")
    )
    lags = ", ".join(f"f.{total} - lag(f.{total}, 1, CASE WHEN born IS NOT NULL THEN 0 END) OVER w AS d_{name}"
                     for name, total in counters.items())  # fmt: skip
    # Contacts can be removed, which resets no total.
    fell = " OR ".join(f"({known_first[name]} AND d_{name} < 0)" for name in counters if name != "added")
    given = ", ".join(
        f"CASE WHEN NOT coalesce({fell}, 0) AND {known_first[name]} AND d_{name} >= 0 THEN d_{name} END" for name in counters
    )
    none, zero = ", ".join("NULL" for _ in counters), ", ".join(f"CASE WHEN {each} THEN 0 END" for each in known_last.values())
    names = ", ".join(f"d_{name}" for name in counters)
    # A sum ignores NULL, and would then be too low.
    sums = ", ".join(
        f"CASE WHEN count(d_{name}) = count(*) THEN sum(CASE spread WHEN 1 THEN d_{name} ELSE 1.0 * d_{name} / spread END) END"
        f" AS {name}"
        for name in counters
    )
    return lags, fell, given, none, zero, names, sums


def _days_of(entity: Entity, counters: Mapping[str, str], read: str) -> str:
    """Return CTEs that end with `diffs`, the differences of an entity's counters for each day, and `levels`, its other figures.

    `read` is a condition on the rows of `workspaces` in which the entity was read.
    """
    key, created = entity.key, "created_at" if entity is MAILBOX else "created"
    lags, fell, given, none, zero, names, sums = _difference_terms(counters)
    return f"""
  current AS (
    SELECT {key}, max(first) AS version, {", ".join(entity.labels)} FROM {entity.table} GROUP BY {key}),
  spaces AS (
    SELECT workspace, min(day) AS earliest, max(day) AS latest
    FROM workspaces JOIN snapshots USING (snapshot) GROUP BY workspace),
  rows AS (
    SELECT f.*, workspace, {created} AS created, coalesce(lag(f.last) OVER w, 0) AS before, lead(f.first) OVER w AS next
    FROM {entity.figure_table} f JOIN current USING ({key}) WINDOW w AS (PARTITION BY f.{key} ORDER BY f.first)),
  gaps AS (  -- before each row, and after the last one
    SELECT {key}, workspace, first, before AS since, first AS until, 0 AS is_end FROM rows
    UNION ALL SELECT {key}, workspace, first, last, {_NEVER}, 1 FROM rows WHERE next IS NULL),
  absences AS (  -- the complete readings in a gap that lack the entity
    SELECT g.{key}, g.first, is_end, min(day) AS gone, max(day) AS absent, l.status IS 'draft' AS was_draft
    FROM gaps g JOIN workspaces w ON w.workspace = g.workspace AND w.snapshot BETWEEN since AND until
      JOIN snapshots s ON s.snapshot = w.snapshot
      LEFT JOIN {entity.table} m ON m.{key} = g.{key} AND w.snapshot BETWEEN m.first AND m.last
      LEFT JOIN {entity.table} l ON l.{key} = g.{key} AND since BETWEEN l.first AND l.last
    WHERE w.reading = 'complete' AND {read} AND m.first IS NULL GROUP BY g.{key}, g.first, is_end),
  births AS (  -- entities that were created after the reading before their first one: their totals began at 0
    SELECT {key}, first, s.day AS born FROM rows r JOIN snapshots s ON s.snapshot = (
      SELECT max(snapshot) FROM workspaces w WHERE workspace = r.workspace AND {read} AND snapshot < r.first)
    WHERE before = 0 AND created > s.at),
  readings AS (
    SELECT f.*, a.day AS first_day, z.day AS last_day, a.at AS first_at, z.at AS last_at, lag(z.day) OVER w AS day_before,
      x.gone, x.absent, x.was_draft, coalesce(born, CASE WHEN x.gone IS NULL THEN lag(z.day) OVER w END) AS before_day, {lags}
    FROM rows f JOIN snapshots a ON a.snapshot = f.first JOIN snapshots z ON z.snapshot = f.last
      LEFT JOIN births b ON b.{key} = f.{key} AND b.first = f.first
      LEFT JOIN absences x ON x.{key} = f.{key} AND x.first = f.first AND NOT is_end
    WINDOW w AS (PARTITION BY f.{key} ORDER BY f.first)),
  changes ({key}, since, until, spread, gap, {names}) AS (
    SELECT {key}, min(before_day + 1, first_day), first_day, max(1, first_day - before_day), coalesce({fell}, 0), {given}
      FROM readings WHERE before_day IS NOT NULL
    UNION ALL  -- it came after the last complete reading that lacks it, and not before its creation
    SELECT {key}, min(first_day, max(coalesce(absent + 1, earliest), coalesce(CAST(created / 86400 AS INT), 0))),
      first_day, 1, 0, {none}
      FROM readings JOIN spaces USING (workspace) WHERE before_day IS NULL
    UNION ALL SELECT {key}, first_day + 1, last_day, 1, 0, {zero} FROM readings WHERE last_day > first_day
    UNION ALL SELECT {key}, min(day_before + 1, gone), gone, 1, 1, {none}
      FROM readings WHERE day_before IS NOT NULL AND NOT was_draft
    UNION ALL
    SELECT r.{key}, min(last_day + 1, coalesce(x.gone, latest)), coalesce(x.gone, latest), 1, x.gone IS NOT NULL, {none}
      FROM readings r JOIN spaces USING (workspace)
        LEFT JOIN absences x ON x.{key} = r.{key} AND x.first = r.first AND is_end
      WHERE next IS NULL AND coalesce(NOT x.was_draft, latest > last_day)),
  diffs AS (
    SELECT {key}, d.day, d.date, {sums}, max(spread) AS spread_over, max(gap) AS gap
    FROM changes JOIN days d ON d.day BETWEEN since AND until GROUP BY {key}, d.day),
  levels AS (
    SELECT {key}, d.day, d.date, max(first) AS newest, {", ".join(entity.figures)}
    FROM readings JOIN days d ON d.day BETWEEN first_day AND last_day GROUP BY {key}, d.day)"""  # noqa: S608 - names of this module


def _sum_known(column: str) -> str:
    return f"CASE WHEN count({column}) = count(*) THEN sum({column}) END AS {column}"


def domain_sums(condition: str) -> str:
    sums = ", ".join(map(_sum_known, ("sent", "bounced", "sent_today", "sent_30days", "bounced_30days")))
    return f"""SELECT date, domain, count(*) AS mailboxes, {sums}, max(blacklists) AS blacklists, max(spread_over) AS spread_over
  FROM mailbox_days WHERE domain IS NOT NULL AND {condition} GROUP BY domain, date"""  # noqa: S608 - names of this module


_LEVELS: Final = "sent_today, sent_30days, bounced_30days, daily_limit, blacklists, opened_14days"
VIEWS: Final = {
    "campaign_days": f"""WITH {_days_of(CAMPAIGN, CAMPAIGN_COUNTERS, "w.campaigns IS NOT NULL")}
SELECT d.date, c.workspace, c.id, c.name, c.status, d.sent, d.opened, d.replied, d.interested, d.bounced, d.added,
  l.contacts, l.left_to_send, d.spread_over, d.gap
FROM diffs d JOIN current c USING (campaign) LEFT JOIN levels l USING (campaign, day)""",  # noqa: S608 - names of this module
    "mailbox_days": f"""WITH {_days_of(MAILBOX, _MAILBOX_COUNTERS, "w.reading <> 'none'")},
  both AS (SELECT mailbox, day, date FROM diffs UNION SELECT mailbox, day, date FROM levels),
  last_of_day AS (
    SELECT workspace, day, max(snapshot) AS snapshot FROM workspaces JOIN snapshots USING (snapshot)
    WHERE reading <> 'none' GROUP BY workspace, day),
  advice AS (
    SELECT mailbox, day, action FROM actions a JOIN current USING (mailbox)
      JOIN last_of_day r USING (workspace) WHERE r.snapshot BETWEEN a.first AND a.last)
SELECT b.date, c.workspace, c.id, c.email, c.domain, d.sent, d.bounced, {_LEVELS}, coalesce(d.spread_over, 1) AS spread_over,
  l.day IS NOT NULL AS was_read, a.action
FROM both b JOIN current c USING (mailbox) LEFT JOIN diffs d USING (mailbox, day) LEFT JOIN levels l USING (mailbox, day)
  LEFT JOIN advice a USING (mailbox, day)""",  # noqa: S608 - no text
    "domain_days": f"""WITH scores AS (
    SELECT domain, d.day, d.date, max(f.first) AS newest, f.score FROM domains JOIN domain_figures f USING (number)
      JOIN snapshots a ON a.snapshot = f.first JOIN snapshots z ON z.snapshot = f.last
      JOIN days d ON d.day BETWEEN a.day AND z.day GROUP BY domain, d.day)
SELECT m.*, s.score FROM ({domain_sums("1")}) m LEFT JOIN scores s USING (domain, date)""",  # noqa: S608 - as above
    "workspace_days": f"""WITH totals AS (
    SELECT workspace, date, {", ".join(map(_sum_known, CAMPAIGN_COUNTERS))}, max(spread_over) AS spread_over, sum(gap) AS gaps
    FROM campaign_days GROUP BY workspace, date),
  states AS (
    SELECT workspace, d.date, max(w.snapshot) AS snapshot, w.name, w.reading, w.mailboxes, w.sent_30days, w.score,
      {", ".join(f"w.{name}" for name in COUNTS)}
    FROM workspaces w JOIN snapshots s USING (snapshot) JOIN days d USING (day) GROUP BY workspace, d.day),
  both AS (SELECT workspace, date FROM totals UNION SELECT workspace, date FROM states),
  names AS (SELECT workspace, max(snapshot) AS snapshot, name FROM workspaces GROUP BY workspace),
  tallies AS (
    SELECT s.workspace, s.date, {", ".join(f"sum(action = '{name}') AS {name}" for name in ACTIONS)}
    FROM states s JOIN (SELECT DISTINCT workspace, mailbox FROM mailboxes) USING (workspace) JOIN actions a USING (mailbox)
    WHERE s.snapshot BETWEEN a.first AND a.last GROUP BY s.workspace, s.date)
SELECT b.date, b.workspace, n.name, coalesce(s.reading, 'none') AS reading,
  {", ".join(f"t.{name}" for name in CAMPAIGN_COUNTERS)}, s.mailboxes, s.sent_30days, s.score,
  {", ".join(f"s.{name}" for name in COUNTS)},
  {", ".join(f"CASE WHEN s.snapshot >= began THEN coalesce(y.{name}, 0) END AS {name}" for name in ACTIONS)},
  coalesce(t.spread_over, 1) AS spread_over, coalesce(t.gaps, 0) AS gaps
FROM both b JOIN names n USING (workspace) LEFT JOIN totals t USING (workspace, date)
  LEFT JOIN states s USING (workspace, date) LEFT JOIN tallies y USING (workspace, date)
  LEFT JOIN (SELECT min(first) AS began FROM actions)""",  # noqa: S608 - names of this module
}


Record: TypeAlias = tuple[tuple[Any, ...], tuple[Number | None, ...]]  # labels and figures


class Readings:
    """Collects an audit's mailboxes, campaigns and steps for a history.

    A report contains only the mailboxes with findings. Pass an instance as
    `readings` to one call of `audit` or `stream`, then to
    `History.append`. It takes about 600 bytes for each mailbox.

    Example:
        ```python
        await audit(client, ["space_1"], readings=(readings := Readings()))
        print(readings)  # -> <Readings mailboxes=2 campaigns=0>
        ```
    """

    def __init__(self) -> None:
        self._records: defaultdict[tuple[str, Entity], list[Record]] = defaultdict(list)
        # What a plan needs, and no history keeps: the wait of a step in days, and whether it sends; and `days_left`.
        self.settings: dict[tuple[str, str, str], tuple[float, bool]] = {}
        self.days_left: dict[tuple[str, str], float] = {}

    def __repr__(self) -> str:
        mailboxes, campaigns = (
            sum(len(found) for (_, kind), found in self._records.items() if kind is entity) for entity in (MAILBOX, CAMPAIGN)
        )
        return f"<{type(self).__name__} mailboxes={mailboxes} campaigns={campaigns}>"


def records_of(readings: Readings, workspace: str, entity: Entity) -> list[Record]:
    return readings._records[workspace, entity]  # noqa: SLF001 - users of a `Readings` have no use for it


def record_mailboxes(readings: Readings, workspace: str, mailboxes: Iterable[Mailbox]) -> None:
    records = records_of(readings, workspace, MAILBOX)
    for box in mailboxes:
        texts = (box.email, email_domain(box.email), box.type, box.status, box.server_ip)
        records.append(
            (
                (
                    *(storable(workspace), storable(box.id)),
                    *(None if text is None else storable(text) for text in texts),
                    *(int(box.spf), int(box.dkim), int(box.dmarc), figure_or_none(box.created_at)),
                ),
                tuple(figure_or_none(getattr(box, name)) for name in MAILBOX.figures),
            )
        )


def record_campaign(readings: Readings, row: CampaignRow, campaign: Campaign, steps: Iterable[Step] | None) -> None:
    given = {name: getattr(row, name, None) for name in CAMPAIGN.figures}
    given |= {"opens_num": campaign.opens_num, "ends": None if row.end is None else round(row.end)}
    # The last label is the planned end, which depends on earlier readings.
    labels = storable(row.workspace), storable(row.id), storable(row.name), storable(row.status), row.created, None
    records_of(readings, row.workspace, CAMPAIGN).append((labels, tuple(map(figure_or_none, given.values()))))
    readings.days_left[labels[:2]] = figure_or_none(campaign.days_left) or 0.0
    for step in steps or ():
        ids = storable(row.workspace), storable(row.id), storable(step.id), figure_or_none(step.order), storable(step.status)
        names = ("sent", "opened_num", "replied_num", "unsubscribed_num")
        sums = [figure_or_none(sum_or_none(getattr(each, name) for each in step.templates)) for name in names]
        own = (figure_or_none(getattr(step, name)) for name in ("left_to_send", "already_sent", "out_of"))
        records_of(readings, row.workspace, STEP).append((ids, (*sums, *own)))
        sends = step.status == StepStatus.LIVE.value and any(each.status == TemplateStatus.LIVE.value for each in step.templates)
        readings.settings[ids[:3]] = (figure_or_none(step.wait_time) or 0) / 86_400_000, sends


def storable(value: object) -> str:
    """Return a string that SQLite can store: a service may send lone surrogates."""
    return str(value).encode("utf-8", "backslashreplace").decode()
