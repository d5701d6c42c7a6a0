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
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain
from typing import Any, Final

import attrs
import msgspec

from outreach_async._files.objects import open_objects
from outreach_async._types import require_types
from outreach_async.bulk._contact_keys import contact_key, spellings
from outreach_async.bulk._rows import ERASED, NO_ROWS, decode_spooled, encode_spooled
from outreach_async.errors import InvalidRequest, OutreachError
from outreach_async.models import Target
from outreach_async.store import _records as records
from outreach_async.store._comparing import hash_keys, start_keys
from outreach_async.store._ledgers import FileLedger, LedgerHeader, ObjectLedger, merge_last, require_entries, start_run
from outreach_async.store._objects import ObjectDatabase
from outreach_async.store._schema import SENT_SUM
from outreach_async.store._sqlite import FileDatabase, JournalInUseError, query_journal
from outreach_async.store._store import Store, read_clock
from outreach_async.store._writer import Transaction

_EMAIL: Final = re.compile(r'(?:"[^"@]+"|[^\s@<>,;:()]+)@[^\s@<>,;:()"]+')
_ESCAPED: Final = re.compile(r"\\u([0-9A-Fa-f]{4})")
_READS_AGAIN: Final = (
    "its run is not finished, and its input is read again; finish the run, and exclude these people, before you change the input"
)
_IN: Final = "IN (SELECT value FROM json_each(?))"
_CUT: Final = 2  # characters of an address from which the end of a message that was cut is taken for it: the "@" and the next


def match_people(emails: Iterable[str], ids: Iterable[str] = ()) -> Callable[[str], bool]:
    r"""Return a function that tells whether a text names one of the people.

    Case and the spelling of a domain (Punycode) do not matter. An address
    in JSON (`\u00fc`) or in a URL (`%40`) counts, too.

    Args:
        emails: E-mails of the people.
        ids: Ids of their contacts, if known.

    Raises:
        InvalidRequest: There is no e-mail, or one of them is none.

    Example:
        ```python
        names = match_people(["ann@company.example"])
        print(names("To: Ann@Company.example."), names("joann@company.example"))  # -> True False
        ```
    """
    require_types(match_people, locals())
    emails, ids = [*emails], [*ids]
    require_types(match_people, {"emails": emails, "ids": ids})  # of an iterator, whose items are known only now
    keys = [*map(contact_key, emails)]
    for at, key in enumerate(keys, 1):
        if not _EMAIL.fullmatch(key):
            raise InvalidRequest(f"emails: expected an e-mail address, got another text as number {at}; pass only addresses")
    if not keys:
        raise InvalidRequest("emails: expected at least one e-mail address, got none; pass the addresses to erase")
    keys = [*chain.from_iterable(map(spellings, keys))]
    texts = {form for key in (*keys, *map(str.lower, ids)) for form in (key, json.dumps(key, ensure_ascii=False)[1:-1])}
    either = "|".join(re.escape(text).replace("@", "(?:@|%40)") for text in sorted(texts))
    # In JSON, a line break before an address is an "n" or an "r". An apostrophe may quote an address, or be a part of it.
    named = re.compile(rf"(?:(?<![\w.+-])(?<!\w')|(?<=\\[nrt]))(?:{either})(?![\w-]|\.\w)")

    def names(text: str) -> bool:
        if "\\u" in text:
            text = _ESCAPED.sub(lambda code: chr(int(code[1], 16)), text)
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # a character may have two codes
        return named.search(text.lower()) is not None

    return names


@attrs.frozen
class Erased:
    """What `erase` has removed from a store, or would remove.

    Attributes:
        location: Path or URL of the store.
        counts: Numbers of removed `entries` and `rejects` of a ledger, of
            `rows` of a run, and of `errors` that quoted an address.
        contacts: Workspace and id of each contact, which the service has.
        problem: Why the store was not, or not wholly, changed; empty if it
            was.

    Example:
        ```python
        await client.contacts.create_many([{"email": "ann@company.example"}], ledger="a.ledger", changed="ignore")
        (found,) = erase(["a.ledger"], ["ann@company.example"])
        print(found.counts["entries"], sorted(found.contacts)[0][0])  # -> 1 space_1
        ```
    """

    location: str
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
    or erased; call it again to complete. A store with several names, such
    as a file with hard links, is erased and returned once.

    Args:
        locations: Paths or URLs of journals and ledgers.
        emails: E-mails, compared as the service does, and in each spelling
            of their domains.
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
    emails = [*emails]
    names = match_people(emails)
    find = partial(_Found, emails=[*map(str.strip, emails), *chain.from_iterable(map(spellings, emails))], names=names)
    unique = dict[object, Store]()
    for location in locations:
        store = location if isinstance(location, Store) else Store(location)
        unique.setdefault(_identify(store), store)
    stores = [*unique.values()]
    found, steps = dict[Store, Erased](), dict[Store, _Steps]()
    with ExitStack() as stack:
        for store in sorted(stores, key=lambda each: each.objects is not None):  # opening objects takes over their run
            each = stack.enter_context(closing((_plan if dry_run else _change)(store, find)))
            try:
                if not store.exists():
                    raise InvalidRequest(f"journal: {store.location} does not exist; pass the path or URL of a store")
                found[store] = Erased(os.fspath(store.location), contacts=next(each))
                steps[store] = each
            except JournalInUseError:
                raise InvalidRequest(f"erase: a run is using {store.location}; wait until it ends: nothing was erased") from None
            except (OutreachError, OSError) as error:
                found[store] = Erased(os.fspath(store.location), problem=str(error))
        known = {id_ for each in found.values() for _, id_ in each.contacts}
        for store in sorted(
            steps, key=lambda each: len(found[each].contacts)
        ):  # last, those that show the ids, also after a kill
            try:
                found[store] = attrs.evolve(found[store], **steps[store].send(known))
            except (OutreachError, OSError) as error:
                found[store] = attrs.evolve(found[store], problem=str(error))
    return [found[store] for store in stores]


def _identify(store: Store) -> object:
    """Return what two names of one store have in common: a file may have several, such as hard links."""
    try:
        file = None if store.objects else store.path.stat()
    except OSError:
        file = None
    return (file.st_dev, file.st_ino) if file else os.fspath(store.location)


_Steps = Generator[Any, set[str], None]
"""The erasure of one store. It yields the contacts of the people, takes the ids of all, and yields what it has removed."""


def _plan(store: Store, find: Callable[[sqlite3.Connection], _Found]) -> _Steps:
    """Erase people from a private copy."""
    with closing(sqlite3.connect("", isolation_level=None)) as copy, ExitStack() as stack:
        if store.is_ledger():
            stack.enter_context(closing(store.medium())).query(lambda db: db.backup(copy))
        elif store.objects is None:
            query_journal(store.path, lambda db: db.backup(copy))
        else:
            database = stack.enter_context(closing(ObjectDatabase(store.objects, str(store.location), store.clock)))
            database.find()
            database.replay()
            database.query(lambda db: db.backup(copy))
        found = find(copy)
        yield found.erase(copy, (yield found.contacts))


def _change(store: Store, find: Callable[[sqlite3.Connection], _Found]) -> _Steps:
    """Erase people from a store that no other process can write meanwhile."""
    name, wall, run = os.fspath(store.location), partial(read_clock, store), None
    with ExitStack() as stack:
        database: Any  # a file or objects
        if (is_ledger := store.is_ledger()) and store.objects is not None:
            # The next run of the ledger, without rows: whoever begins it alone may write the next copy of the entries.
            medium = stack.enter_context(closing(ObjectLedger(name, store.clock)))
            identity = records.Identity(**medium.query(records.read_metadata)["identity"])
            options = {"duplicates": "overwrite", "strict_validation": True, "repeats": "serial", **identity.options}
            run = start_run(medium, attrs.evolve(identity, options=options), wall, with_ids=False, with_runs=False)
            database = stack.enter_context(closing(run)).database
        elif store.objects is not None:
            database = stack.enter_context(closing(ObjectDatabase(store.objects, name, store.clock)))
        else:
            database = stack.enter_context(closing(FileDatabase(name, "ledger" if is_ledger else "journal")))
        if run is None:
            database.open(lambda _: None, resume=True)
            if is_ledger:
                merge_last(FileLedger(store.path), database, wall)
        found = database.query(find)
        known = yield found.contacts
        with database.transaction(marks=True) as transaction:
            erased = found.erase(transaction.db, known)
        if run is not None:
            run.writer.end("finished")
            run.merge(NO_ROWS, {}, None, ())
            medium.purge(run.run.number)
        elif store.objects is None:
            database.purge()
        else:
            database.rewrite(open_objects(name))
        yield erased


class _Found:
    """What a store has of people."""

    def __init__(self, db: sqlite3.Connection, emails: Iterable[str], names: Callable[[str], bool]) -> None:
        self._names, self._metadata, self._keys = names, records.read_metadata(db), [*map(contact_key, emails)]
        self._header, self._spooled = None, dict[int, Target | None]()
        targets = records.read_targets(db)
        if "ledger" in self._metadata:
            self._header = header = LedgerHeader.from_metadata(self._metadata)
            texts = [*dict.fromkeys((*emails, *self._keys))]
            starts = [start_keys(header.secret, target, number) for number, target in records.read_recorded_targets(db).items()]
            chosen = records.to_json([key for start in starts for key in hash_keys(texts, [start] * len(texts))])
            self._rows = {seq for (seq,) in db.execute(f"SELECT seq FROM sent WHERE key {_IN}", (chosen,))}  # noqa: S608 - our text
            found = db.execute(f"SELECT target, id_1, id_2 FROM entry WHERE key {_IN}", (chosen,))  # noqa: S608 - our text
        else:
            spooled = db.execute("SELECT seq, payload FROM spool")
            self._spooled = {seq: decode_spooled(payload)[1] for seq, payload in spooled if names(payload)}
            self._rows, chosen = {*self._spooled}, records.to_json([*self._spooled])
            found = db.execute(f"SELECT target, id_1, id_2 FROM outcome WHERE seq {_IN}", (chosen,))  # noqa: S608 - our text
        self._chosen = chosen
        contacts = ((str(targets[target or 0].workspace), records.decode_id(*id_)) for target, *id_ in found)
        self.contacts = frozenset((workspace, id_) for workspace, id_ in contacts if id_ is not None)

    def erase(self, db: sqlite3.Connection, ids: Iterable[str]) -> dict[str, Any]:
        """Remove it, and what has the ids. Return the numbers of what was removed, and the problem."""
        counts, known, header = Counter[str](), {*map(records.encode_id, ids)}, self._header
        with_ids = db.execute("SELECT seq, id_1, id_2 FROM outcome WHERE id_2 IS NOT NULL")
        self._rows |= {seq for seq, *id_ in with_ids if tuple(id_) in known}
        numbers = records.to_json([*self._rows])
        db.create_function("checksum", -1, lambda *columns: records.checksum(columns))
        if header is not None:
            require_entries(db, header)
            db.execute(
                f"INSERT OR REPLACE INTO sent SELECT *, {SENT_SUM} FROM (SELECT seq, 0 AS key, 0 AS digest, target, 0 AS domain"  # noqa: S608 - names
                f" FROM sent WHERE seq {_IN})",
                (numbers,),
            )
            for kind, table in ("entries", "entry"), ("rejects", "reject"):
                counts[kind] = db.execute(f"DELETE FROM {table} WHERE key {_IN}", (self._chosen,)).rowcount  # noqa: S608 - names
                setattr(header, kind, getattr(header, kind) - counts[kind])
            Transaction(db).set_metadata(ledger=header.to_metadata())
        tombstones = ((encode_spooled(ERASED, target).decode(), seq) for seq, target in self._spooled.items())
        db.executemany("UPDATE spool SET key = NULL, payload = ? WHERE seq = ?", tombstones)
        db.execute(f"UPDATE spool SET crc = checksum(seq, key, payload) WHERE seq {_IN}", (self._chosen,))  # noqa: S608 - our text
        reads_again = header is None and self._metadata["state"] != "finished" and self._metadata["spooled"] is None
        if not reads_again:
            # A digest of few rows would tell whose they are. It is needed only while an input is read again.
            db.executemany(
                "UPDATE window SET digest = x'', crc = checksum(first, rows, x'')"
                " WHERE first = (SELECT max(first) FROM window WHERE first <= ?)",
                [(seq,) for seq in self._rows],
            )
        counts["rows"], counts["errors"] = len(self._rows), self._erase_outcomes(db, numbers)
        return {
            "counts": dict(+counts),
            "problem": _READS_AGAIN if reads_again else "",
        }

    def _erase_outcomes(self, db: sqlite3.Connection, numbers: str) -> int:
        """Remove ids and errors of rows, and errors that name people. Return the number of errors."""
        errors = {digest: msgspec.json.decode(text) for digest, text in db.execute("SELECT digest, text FROM error")}
        quoting = [digest for digest, (_, message, *_) in errors.items() if self._quotes(message)]
        texts = {digest: records.to_json([name, ERASED.reason, *more]) for digest, (name, _, *more) in errors.items()}
        db.executemany("INSERT OR IGNORE INTO error VALUES (?, ?)", {(records.digest(text), text) for text in texts.values()})
        db.create_function("erased", 1, lambda digest: digest and records.digest(texts[digest]))
        columns = ", ".join(records.OUTCOME_COLUMNS)
        db.execute(
            f"INSERT OR REPLACE INTO outcome ({columns}, crc) SELECT *, checksum({columns}) FROM (SELECT seq, status,"  # noqa: S608 - names
            f" iif(seq {_IN}, NULL, id_1) AS id_1, iif(seq {_IN}, NULL, id_2) AS id_2, attempts, possible,"
            f" erased(error) AS error, repeats, target FROM outcome WHERE seq {_IN} OR error {_IN})",
            (numbers, numbers, numbers, records.to_json(quoting)),
        )
        db.execute("DELETE FROM error WHERE digest NOT IN (SELECT error FROM outcome WHERE error IS NOT NULL)")
        return len(quoting)

    def _quotes(self, message: str) -> bool:
        """Return whether the message of an error names people, also if it ends within an address, because it was cut."""
        begun = tuple(key[:end] for key in self._keys for end in range(key.index("@") + _CUT, len(key)))
        return self._names(message) or (len(message) >= records.MESSAGE_LIMIT and message.lower().endswith(begun))
