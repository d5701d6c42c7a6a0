"""The tables of a store, and its format. A reader of a file finds them in the views `runs`, `rows` and `entries`."""

# What is written when, and why no crash can make a label false
# =============================================================
#
# A row passes these states. Each arrow is one transaction, which is durable before the next step begins.
#
#     read -> marked -> (sent, any number of times) -> outcome recorded -> outcome delivered -> merged into the entries
#
#     transaction   tables                          written by          before
#     begin         meta, run; clears the last run  start, or open      anything is marked
#     mark          window, meta.marked; sent       the feed            the first row of the window is sent
#     outcomes      outcome, error, meta.totals     the recorder        one of them is delivered
#     end           meta.state, meta.possibly_sent  the recorder        the run is merged
#     merge         entry, reject, run, meta        its own process,    the next run marks anything
#                                                   or the next run
#
# A process may be killed between any two of them, or within one, which rolls it back. Then:
#
# - A row that was not marked was not sent. It has no outcome, and is sent by the next run.
# - A marked row without an outcome may have been sent, and its request may still arrive: it is uncertain. If the process has
#   recorded its end, it has also recorded which of these rows it has sent. Otherwise, all of them count.
# - A recorded outcome is certain, or says what is possible. It may not have been delivered: a resumed run delivers the others,
#   and a ledger calls the row `unchanged` the next time.
# - A run that was not merged is merged before the next one begins, from what it had recorded. Its entries are those that it would
#   have written itself, so it does not matter who merges, or how often it was tried.
#
# Two orders decide the truth. A mark is in the file itself, not only in SQLite's log, before its rows are sent: whoever loses the
# log loses outcomes, which makes rows uncertain, and never marks. And doubts come after outcomes: an unanswered request may
# arrive after every other one of its contact, so its entry is uncertain whatever a later row was answered; see `_ledgers`.
#
# Only one process may write. A file is locked, and its identity and first bytes are compared before each transaction. Objects
# have no lock: each write creates the next object of the log, which fails if another process has created it. A process that has
# not written for 5 seconds writes before it sends, and so finds out that it was taken over. Only a process that is suspended in
# the moment in which it writes a request, between this check and the write, still sends that request when it goes on: no process
# can do both in one step. A ledger in objects has copies of its entries: whoever has written the last object of a run creates the
# next copy, and only one can.

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from outreach_async._wire_words import ID_PREFIXES, Outcome

APPLICATION_ID: Final = 0x4F41424A  # "OABJ": outreach_async, bulk journal
LEDGER_ID: Final = 0x4F41424C  # "OABL": outreach_async, bulk ledger
FORMAT_VERSION: Final = 3

DIGEST_BITS: Final = 42
OUT_OF_DATE: Final = 1 << DIGEST_BITS
"""Digest of an entry whose contact may have other values now: those of a similar e-mail, or of an unanswered row."""
UNCERTAIN: Final = OUT_OF_DATE + 1
"""Digest of an entry whose contact may have been changed by an attempt, while no later answer says whether it was."""

# A checksum of a row's integers, as SQLite computes it: 23 bits, which take three bytes. Its divisor is prime, and no factor is a
# multiple of it, so one changed bit always changes the sum. No sum is too large for an integer: a column of more than 48 bits is
# made smaller first. Millions of entries are checked while they are read, which takes 0.2 us each; a checksum of JSON would have
# to be computed in Python.
_KEY: Final = "key % 2147483629 * 40503"
_SUM: Final = "({}) % 8388593".format
_ID_SUM: Final = "coalesce(id_1, -1) % 2147483629 * 123457 + coalesce(id_2, -1) * 1999"  # a text has its digest in `id_2`
ENTRY_SUM: Final = _SUM(f"{_KEY} + digest * 47513 + target * 77773 + run * 97531 + {_ID_SUM} + domain * 4001 + gone * 515153")
SENT_SUM: Final = _SUM(f"{_KEY} + seq * 97531 + digest * 47513 + target * 77773 + domain * 4001")
REJECT_SUM: Final = _SUM(f"{_KEY} + run * 97531")

TABLES: Final = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value, crc NOT NULL) WITHOUT ROWID",
    "CREATE TABLE window (first INTEGER PRIMARY KEY, rows INTEGER NOT NULL, digest BLOB NOT NULL, crc NOT NULL)",
    # The columns have no types: a status is a number or a string. Rarely used columns come last: a missing value costs a byte.
    (
        "CREATE TABLE outcome"
        " (seq INTEGER PRIMARY KEY, status NOT NULL, id_1, id_2, attempts NOT NULL, crc, possible, error, repeats, target)"
    ),
    "CREATE TABLE target (number INTEGER PRIMARY KEY, workspace, campaign, crc NOT NULL)",
    "CREATE TABLE error (digest INTEGER PRIMARY KEY, text TEXT NOT NULL)",
    "CREATE TABLE event (number INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL, crc NOT NULL)",
    "CREATE TABLE spool (seq INTEGER PRIMARY KEY, key TEXT, payload TEXT NOT NULL, crc NOT NULL)",
    # Only ledgers use the following tables, but a journal has one row in `run`.
    "CREATE TABLE sent (seq INTEGER PRIMARY KEY, key NOT NULL, digest NOT NULL, target NOT NULL, domain NOT NULL, crc NOT NULL)",
    (
        "CREATE TABLE entry (key INTEGER PRIMARY KEY, digest NOT NULL, target NOT NULL, run NOT NULL, id_1, id_2,"
        " domain NOT NULL, gone NOT NULL, crc NOT NULL)"
    ),
    "CREATE TABLE reject (key INTEGER PRIMARY KEY, run NOT NULL, crc NOT NULL)",
    (
        "CREATE TABLE run (number INTEGER PRIMARY KEY, at REAL NOT NULL, stamp TEXT NOT NULL, counts TEXT NOT NULL,"
        " request TEXT NOT NULL, repeats TEXT NOT NULL, crc NOT NULL)"
    ),
)
"""Statements that create the tables. The column `crc` is a checksum of the row's other columns. The table `error` has no `crc`,
because the digest is a checksum of the text. In the table `spool`, `key` is the e-mail by which repeats of a row are found. It is
null if the row never counts as a repeat."""


def _views() -> tuple[str, ...]:
    """Return the statements that create the views, which are for other programs."""
    outcomes = [*enumerate(each.value for each in Outcome)]
    statuses = " ".join(f"WHEN {number} THEN '{name}'" for number, name in outcomes)
    possible = " || ".join(f"iif(possible >> {number} & 1, '{name} ', '')" for number, name in outcomes)
    prefix, half = ID_PREFIXES["contact"], 1 << 47
    number = f"printf('%x%012x', id_1, id_2 + {half})"
    digits = f"substr(iif(id_1, {number}, printf('%x', id_2 + {half})), 2)"
    id_ = f"iif(id_2 IS NULL, NULL, iif(typeof(id_1) = 'text', json_extract(id_1, '$'), '{prefix}' || {digits})) AS id"
    own = "(SELECT json_extract(value, '$.{}') FROM meta WHERE name = 'identity')".format
    state = "(SELECT json_extract(value, '$') FROM meta WHERE name = 'state')"
    totals = "(SELECT json_extract(value, '$.outcomes') FROM meta WHERE name = 'totals')"
    # All of this is made of names and numbers of this package.
    return (
        f"""CREATE VIEW runs AS SELECT number AS run, datetime(at, 'unixepoch') AS at,
            iif(number = (SELECT max(number) FROM run), {state}, 'ended') AS state,
            iif(counts = '{{}}' AND number = (SELECT max(number) FROM run), {totals}, counts) AS counts FROM run""",  # noqa: S608 - see above
        f"""CREATE VIEW rows AS SELECT row, status, certain, possible, id, attempts, json_extract(text, '$[0]') AS error_class,
            json_extract(text, '$[1]') AS error, repeats, coalesce(workspace, {own("workspace")}) AS workspace,
            iif(workspace IS NULL, {own("options.campaign")}, campaign) AS campaign, key FROM (
                SELECT seq AS row, CASE status {statuses} ELSE json_extract(status, '$') END AS status,
                    possible IS NULL AS certain,
                    CASE typeof(possible) WHEN 'integer' THEN trim({possible}) ELSE possible END AS possible,
                    {id_}, attempts, error, repeats, coalesce(sent.target, outcome.target) AS target, key
                FROM outcome LEFT JOIN sent USING (seq)
                UNION ALL SELECT seq, NULL, 0, NULL, NULL, NULL, NULL, NULL, target, key FROM sent
                WHERE seq NOT IN (SELECT seq FROM outcome)
            ) LEFT JOIN target ON number = target LEFT JOIN error ON digest = error""",  # noqa: S608 - see above
        f"""CREATE VIEW entries AS SELECT key, CASE digest WHEN {OUT_OF_DATE} THEN 'out of date' WHEN {UNCERTAIN} THEN 'uncertain'
            ELSE 'known' END AS state, {id_}, workspace, campaign, run, datetime(at, 'unixepoch') AS at, gone, digest, domain
            FROM entry JOIN target ON target.number = target JOIN run ON run.number = run""",  # noqa: S608 - see above
    )


VIEWS: Final = _views()
RUN_TABLES: Final = ("window", "outcome", "error", "event", "spool", "sent")
"""The tables that are about the last run alone."""

_USER_VERSION: Final = 60  # https://sqlite.org/fileformat2.html#the_database_header
_APPLICATION_ID: Final = 68
HEADER_SIZE: Final = 100
_OLD_LEDGER: Final = b"OALEDG"  # a ledger of the first version, which was not an SQLite file

Kind: TypeAlias = Literal["journal", "ledger"]
KINDS: Final[Mapping[int, Kind]] = {APPLICATION_ID: "journal", LEDGER_ID: "ledger"}


def classify_header(header: bytes) -> Literal["journal", "ledger", "older", "newer", "foreign"]:
    """Return what a file is, according to its first bytes: a store of this version or of another one, or another file."""
    # A file is classified before SQLite opens it, because SQLite might change a file that is not ours.
    if header.startswith(_OLD_LEDGER):
        return "older"
    if len(header) < HEADER_SIZE or not header.startswith(b"SQLite format 3\0"):
        return "foreign"
    (application,), (version,) = (struct.unpack_from(">I", header, at) for at in (_APPLICATION_ID, _USER_VERSION))
    return classify(application, version)


def classify(application: int, version: int) -> Literal["journal", "ledger", "older", "newer", "foreign"]:
    """Return what a file is, according to its application id and version."""
    if application not in KINDS:
        return "foreign"
    if version != FORMAT_VERSION:
        return "newer" if version > FORMAT_VERSION else "older"
    return KINDS[application]
