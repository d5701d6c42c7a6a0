"""Erase what stores have of people.

Rows of a run stay, so that its totals, its windows and the chain of its objects hold: a row loses what says whose it is, and a
stored row that was not sent yet becomes one that may not be sent. Entries and rejects of a ledger are deleted.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, Final, TypeVar

import attrs
import msgspec

from outreach_async._files.objects import open_objects
from outreach_async._types import require_types
from outreach_async.bulk._contact_keys import contact_key
from outreach_async.bulk._rows import ERASED, NO_ROWS, decode_spooled, encode_spooled
from outreach_async.errors import InvalidRequest, OutreachError
from outreach_async.models import Target
from outreach_async.store import _records as records
from outreach_async.store._comparing import hash_keys, start_keys
from outreach_async.store._ledgers import FileLedger, LedgerHeader, ObjectLedger, merge_last, require_entries, start_run
from outreach_async.store._objects import ObjectDatabase
from outreach_async.store._schema import SENT_SUM, Kind
from outreach_async.store._sqlite import FileDatabase, JournalInUseError, query_journal
from outreach_async.store._store import Store, read_clock
from outreach_async.store._writer import Transaction

T = TypeVar("T")

_ESCAPED: Final = re.compile(r"\\u([0-9A-Fa-f]{4})")
_READS_AGAIN: Final = (
    "its run is not finished, and its input is read again; finish the run, and exclude these people, before you change the input"
)
_CUT: Final = 2  # characters of an address from which the end of a message that was cut is taken for it: the "@" and the next


class People:
    """The people to erase, by their e-mails and, if known, their ids.

    Args:
        emails: E-mails. Case, and spaces around them, do not matter.
        ids: Ids of contacts.

    Raises:
        InvalidRequest: There is no e-mail, or one of them is none.

    Example:
        ```python
        people = People(["ann@company.example"])
        print(people.named_in("To: Ann@Company.example."), people.named_in("joann@company.example"))  # -> True False
        ```
    """

    def __init__(self, emails: Iterable[str], ids: Iterable[str] = ()) -> None:
        require_types(People, locals())
        self.emails = tuple(dict.fromkeys(email.strip() for email in emails))
        for at, email in enumerate(self.emails, 1):
            if not re.fullmatch(r"\S.*@[^@\s]+", email):
                raise InvalidRequest(f"emails: expected an e-mail address, got another text as number {at}; pass whole addresses")
        if not self.emails:
            raise InvalidRequest("emails: expected at least one e-mail address, got none; pass the addresses to erase")
        self.keys = [*dict.fromkeys(map(contact_key, self.emails))]
        texts = {form for key in (*self.keys, *map(str.lower, ids)) for form in (key, json.dumps(key, ensure_ascii=False)[1:-1])}
        either = "|".join(re.escape(text).replace("@", "(?:@|%40)") for text in sorted(texts))
        # In JSON, a line break before an address is an "n" or an "r". An apostrophe may quote an address, or be a part of it.
        self._named = re.compile(rf"(?:(?<![\w.+-])(?<!\w')|(?<=\\[nrt]))(?:{either})(?![\w-]|\.\w)")

    def named_in(self, text: str) -> bool:
        r"""Return whether a text has one of the e-mails or ids, in any case.

        An address in JSON (`\u00fc`) or in a URL (`%40`) counts, too.

        Example:
            ```python
            print(People(["ann@company.example"]).named_in("https://x.example/?to=ann%40company.example"))  # -> True
            ```
        """
        if "\\u" in text:
            text = _ESCAPED.sub(lambda code: chr(int(code[1], 16)), text)
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # a character may have two codes
        return self._named.search(text.lower()) is not None


@attrs.frozen
class Erased:
    """What `erase` has removed from a store, or would remove.

    Attributes:
        location: Path or URL of the store.
        kind: `journal` or `ledger`.
        counts: Numbers of removed `entries` and `rejects` of a ledger, of
            `rows` of a run, and of `errors` that quoted an address.
        contacts: Workspace and id of each contact, which the service has.
        problem: Why the store was not, or not wholly, changed; empty if it
            was.

    Example:
        ```python
        await client.contacts.create_many([{"email": "ann@company.example"}], ledger="a.ledger", changed="ignore")
        (found,) = erase(["a.ledger"], ["ann@company.example"])
        print(found.kind, found.counts["entries"], sorted(found.contacts)[0][0])  # -> ledger 1 space_1
        ```
    """

    location: str
    kind: Kind
    counts: Mapping[str, int] = attrs.field(factory=dict)
    contacts: frozenset[tuple[str, str]] = frozenset()
    problem: str = ""


def erase(locations: Iterable[str | os.PathLike[str] | Store], emails: Iterable[str], *, dry_run: bool = False) -> list[Erased]:
    """Remove what journals and ledgers have of people. Return what it was.

    All files are locked before the first is changed. A run whose store is
    at a URL is taken over, as by a run that resumes it. A ledger's last
    run is merged first if it was not. The row of a person in a run that is
    not finished is `excluded`, with the reason "erased", if the journal
    stores the input; otherwise, only the ids of contacts show whose a row
    is. At a URL, the rows of a ledger's earlier runs, and what a damaged
    journal has left, are removed, too. A kill leaves each store as it was,
    or erased; call it again to complete.

    Args:
        locations: Paths or URLs of journals and ledgers.
        emails: E-mails, which are compared as the service does.
        dry_run: Whether to change nothing.

    Raises:
        InvalidRequest: A run is using one of the stores; nothing was
            changed. Or an e-mail is invalid.

    Example:
        ```python
        rows = [{"email": "ann@company.example"}, {"email": "bo@acme.example"}]
        await client.contacts.create_many(rows, journal="run.db", spool=True)
        print(erase(["run.db"], ["ANN@company.example"])[0].counts)  # -> {'rows': 1}
        print([outcome.contact for outcome in Store("run.db").outcomes()])  # -> [{}, {'email': 'bo@acme.example'}]
        ```
    """
    require_types(erase, locals())
    people, stores = People(emails), [each if isinstance(each, Store) else Store(each) for each in locations]
    opened, found = dict[Store, _Opened](), dict[Store, Erased]()
    with ExitStack() as stack:
        for store in sorted(stores, key=lambda each: each.objects is not None):  # opening objects takes over their run
            location = os.fspath(store.location)
            found[store] = Erased(location, "journal")
            try:
                kind: Kind = "ledger" if store.is_ledger() else "journal"
                one = (_open_copy if dry_run else _open)(store, kind, stack.enter_context(ExitStack()))
                ids = one.query(partial(_find_contacts, people=people))
                opened[store], found[store] = one, Erased(location, kind, contacts=frozenset(ids))
            except JournalInUseError:
                raise InvalidRequest(f"erase: a run is using {location}; wait until it ends: nothing was erased") from None
            except (OutreachError, OSError) as error:
                found[store] = attrs.evolve(found[store], problem=str(error))
        known = {id_ for each in found.values() for _, id_ in each.contacts}
        for store, one in opened.items():
            try:
                counts = one.change(partial(_erase, people=people, ids=known))
                problem = _READS_AGAIN if one.query(_reads_input_again) else ""
                found[store] = attrs.evolve(found[store], counts=dict(+counts), problem=problem)
            except (OutreachError, OSError) as error:
                found[store] = attrs.evolve(found[store], problem=str(error))
    return [found[store] for store in stores]


def _reads_input_again(db: sqlite3.Connection) -> bool:
    metadata = records.read_metadata(db)
    return "ledger" not in metadata and metadata["state"] != "finished" and metadata["spooled"] is None


_Query = Callable[[sqlite3.Connection], Any]


@attrs.frozen
class _Opened:
    """A store that is open: how it is read, and how it is changed."""

    query: Callable[[_Query], Any]
    change: Callable[[_Query], Any]


def _open_copy(store: Store, kind: Kind, stack: ExitStack) -> _Opened:
    """Open a private copy of a store."""
    copy = stack.enter_context(closing(sqlite3.connect(":memory:", isolation_level=None)))
    if store.objects is None:
        query_journal(store.path, lambda db: db.backup(copy), kind)
    elif kind == "ledger":
        stack.enter_context(closing(store.medium())).query(lambda db: db.backup(copy))
    else:
        database = stack.enter_context(closing(ObjectDatabase(store.objects, str(store.location), store.clock)))
        _require_found(store, found=database.find())
        database.replay()
        database.query(lambda db: db.backup(copy))
    return _Opened(lambda query: query(copy), lambda query: query(copy))


def _require_found(store: Store, *, found: bool) -> None:
    if not found:
        raise InvalidRequest(f"journal: {os.fspath(store.location)} does not exist; pass the path or URL of a store")


def _open(store: Store, kind: Kind, stack: ExitStack) -> _Opened:
    """Open a store for this process alone."""
    wall = partial(read_clock, store)
    if store.objects is not None and kind == "ledger":
        # The next run of the ledger, without rows: whoever begins it alone may write the next copy of the entries.
        medium = ObjectLedger(os.fspath(store.location), store.clock)
        stack.callback(medium.close)
        identity = records.Identity(**medium.query(records.read_metadata)["identity"])
        options = {"duplicates": "overwrite", "strict_validation": True, "repeats": "serial", **identity.options}
        run = start_run(medium, attrs.evolve(identity, options=options), wall, with_ids=False, with_runs=False)
        stack.callback(run.close)

        def change_copy(query: _Query) -> Any:
            with run.database.transaction() as transaction:
                result = query(transaction.db)
            run.writer.end("finished")
            run.merge(NO_ROWS, {}, None, ())
            medium.purge(run.run.number)
            return result

        return _Opened(run.database.query, change_copy)
    name = os.fspath(store.location)
    database = FileDatabase(name, kind) if store.objects is None else ObjectDatabase(store.objects, name, store.clock)
    stack.callback(database.close)
    _require_found(store, found=database.open(lambda _: None, resume=True) is not None)
    if kind == "ledger":
        merge_last(FileLedger(store.path), database, wall)

    def change(query: _Query) -> Any:
        database.query(lambda db: db.execute("PRAGMA secure_delete = ON"))
        with database.transaction(marks=True) as transaction:
            result = query(transaction.db)
        if isinstance(database, FileDatabase):
            database.purge()
        else:
            database.rewrite(open_objects(name))
        return result

    return _Opened(database.query, change)


def _keys_of(db: sqlite3.Connection, people: People, header: LedgerHeader) -> str:
    """Return the keys of people in all targets of a ledger, as JSON."""
    starts = [start_keys(header.secret, target) for target in records.read_recorded_targets(db).values()]
    emails = [*dict.fromkeys((*people.emails, *people.keys))]
    return records.to_json([key for start in starts for key in hash_keys(emails, [start] * len(emails))])


def _find_contacts(db: sqlite3.Connection, people: People) -> set[tuple[str, str]]:
    """Return workspace and id of each contact of people."""
    targets, metadata = records.read_targets(db), records.read_metadata(db)
    if "ledger" in metadata:
        keys = _keys_of(db, people, LedgerHeader.from_metadata(metadata))
        rows = db.execute("SELECT target, id_1, id_2 FROM entry WHERE key IN (SELECT value FROM json_each(?))", (keys,))
    else:
        numbers = records.to_json([*_find_spooled(db, people)])
        rows = db.execute("SELECT target, id_1, id_2 FROM outcome WHERE seq IN (SELECT value FROM json_each(?))", (numbers,))
    found = ((targets[target or 0].workspace, records.decode_id(*id_)) for target, *id_ in rows)
    return {(str(workspace), id_) for workspace, id_ in found if id_ is not None}


def _find_spooled(db: sqlite3.Connection, people: People) -> dict[int, Target | None]:
    """Return the stored rows that name people, each with its target."""
    rows = db.execute("SELECT seq, payload FROM spool")
    return {seq: decode_spooled(payload)[1] for seq, payload in rows if people.named_in(payload)}


def _erase(db: sqlite3.Connection, people: People, ids: Collection[str]) -> Counter[str]:
    """Remove what a store has of people, whose contacts have the ids. Return the numbers of what was removed."""
    metadata, counts = records.read_metadata(db), Counter[str]()
    known = {*map(records.encode_id, ids)}
    rows = {seq for seq, *id_ in db.execute("SELECT seq, id_1, id_2 FROM outcome WHERE id_2 IS NOT NULL") if tuple(id_) in known}
    if "ledger" in metadata:
        header = LedgerHeader.from_metadata(metadata)
        require_entries(db, header)
        keys = _keys_of(db, people, header)
        rows |= {seq for (seq,) in db.execute("SELECT seq FROM sent WHERE key IN (SELECT value FROM json_each(?))", (keys,))}
        numbers = records.to_json([*rows])
        db.execute(
            f"INSERT OR REPLACE INTO sent SELECT *, {SENT_SUM} FROM (SELECT seq, 0 AS key, 0 AS digest, target, 0 AS domain"  # noqa: S608 - names
            " FROM sent WHERE seq IN (SELECT value FROM json_each(?)))",
            (numbers,),
        )
        for kind, table in ("entries", "entry"), ("rejects", "reject"):
            counts[kind] = db.execute(f"DELETE FROM {table} WHERE key IN (SELECT value FROM json_each(?))", (keys,)).rowcount  # noqa: S608 - names
            setattr(header, kind, getattr(header, kind) - counts[kind])
        Transaction(db).set_metadata(ledger=header.to_metadata())
    else:
        spooled = _find_spooled(db, people)
        rows |= spooled.keys()
        for seq, target in spooled.items():
            row = [seq, None, encode_spooled(ERASED, target).decode()]
            db.execute("INSERT OR REPLACE INTO spool VALUES (?, ?, ?, ?)", (*row, records.checksum(row)))
        # A digest of few rows would tell whose they are. It is needed only until the run is finished, and a spool has checksums.
        for seq in rows if metadata["spooled"] is not None or metadata["state"] == "finished" else ():
            window = db.execute("SELECT first, rows FROM window WHERE first <= ? ORDER BY first DESC LIMIT 1", (seq,)).fetchone()
            if window is not None:
                values = (b"", records.checksum((*window, b"")), window[0])
                db.execute("UPDATE window SET digest = ?, crc = ? WHERE first = ?", values)
    counts["rows"] = len(rows)
    counts["errors"] = _erase_outcomes(db, people, rows)
    return counts


def _erase_outcomes(db: sqlite3.Connection, people: People, rows: AbstractSet[int]) -> int:
    """Remove ids and errors of rows, and errors that name people. Return the number of errors."""
    texts = dict(db.execute("SELECT digest, text FROM error"))
    quoting = {digest for digest, text in texts.items() if _quotes(people, msgspec.json.decode(text)[1])}
    columns, chosen = ", ".join(records.OUTCOME_COLUMNS), "seq IN (SELECT value FROM json_each(?))"
    found = db.execute(
        f"SELECT {columns} FROM outcome WHERE {chosen} OR error IN (SELECT value FROM json_each(?))",  # noqa: S608 - our names
        (records.to_json([*rows]), records.to_json([*quoting])),
    ).fetchall()
    for seq, status, *id_, attempts, possible, error, repeats, target in found:
        if error is not None:
            name, _, *attributes = msgspec.json.decode(texts[error])
            text = records.to_json([name, ERASED.reason, *attributes])
            error = records.digest(text)  # noqa: PLW2901 - the stored form
            db.execute("INSERT OR IGNORE INTO error VALUES (?, ?)", (error, text))
        row = [seq, status, *((None, None) if seq in rows else id_), attempts, possible, error, repeats, target]
        db.execute(
            f"INSERT OR REPLACE INTO outcome ({columns}, crc) VALUES ({', '.join('?' * (len(row) + 1))})",  # noqa: S608 - our names
            (*row, records.checksum(row)),
        )
    db.execute("DELETE FROM error WHERE digest NOT IN (SELECT error FROM outcome WHERE error IS NOT NULL)")
    return len(quoting)


def _quotes(people: People, message: str) -> bool:
    """Return whether the message of an error names people, also if it ends within an address, because it was cut."""
    is_cut = len(message) >= records.MESSAGE_LIMIT
    begun = (key[:end] for key in people.keys for end in range(key.index("@") + _CUT, len(key)))
    return people.named_in(message) or (is_cut and message.lower().endswith(tuple(begun)))
