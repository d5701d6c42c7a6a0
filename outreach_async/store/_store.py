"""What users open: a store of one run (a journal) or of all runs (a ledger), in a file or an object store."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final, Literal, Self

import attrs
import msgspec

from outreach_async._core.arguments import require_encodable, require_float, require_types
from outreach_async._core.limits import unix_time
from outreach_async._display import TabularReport, show_object
from outreach_async._files.objects import Objects, is_url, list_folders, open_objects
from outreach_async.bulk._outcomes import ContactOutcome
from outreach_async.bulk._rows import Repeats
from outreach_async.errors import InvalidRequest
from outreach_async.models import Target
from outreach_async.store import _records as records
from outreach_async.store._ledgers import FileLedger, LedgerMedium, ObjectLedger, load_entries, translate_ledger_errors
from outreach_async.store._objects import ObjectDatabase, boot_time
from outreach_async.store._sqlite import FileDatabase, query_journal, read_kind
from outreach_async.store._writer import JournalWriter, WriterThread, open_journal

LAST_TIME: Final = 253_402_300_799
"""The end of the year 9999. Larger numbers are not seconds, but perhaps nanoseconds."""

Changed = Literal["send", "ignore"]
"""What a run with a ledger does with a row that differs from the last row of its contact: `send` sends the row. `ignore` sends
only rows of contacts that the ledger does not know.

Example:
    ```python
    await client.contacts.create_many([{"email": "ann@company.example"}], ledger="contacts.ledger", changed="ignore")
    changed_rows = [{"email": "ann@company.example", "city": "Lyon"}]
    report = await client.contacts.create_many(changed_rows, ledger="contacts.ledger", changed="ignore")
    print(report.outcomes["unchanged"])  # -> 1
    ```
"""


@attrs.frozen(repr=False)
class LedgerReport(TabularReport):
    """The contacts, runs and targets of a ledger.

    Attributes:
        contacts: Number of contacts whose last outcome is known or
            uncertain.
        uncertain: Number of contacts that may have been changed by an
            attempt without an answer. Their rows are sent again.
        gone: Number of contacts that the last whole input did not have.
        runs: The runs, the last one first: each with its number, the time
            of its start, and its counts.
        address: Address of the service.
        targets: Number of contacts for each (workspace, campaign).
        pending: Whether a run was not merged yet, because it is running or
            its process was killed. The next run merges it.

    Example:
        ```python
        rows = [{"email": "ann@company.example"}]
        await client.contacts.create_many(rows, ledger="contacts.ledger", changed="ignore")
        report = Store("contacts.ledger").contacts()
        print(report.contacts, report.uncertain, report.gone, len(report.runs))  # -> 1 0 0 1
        ```
    """

    contacts: int
    uncertain: int
    gone: int
    runs: tuple[tuple[int, datetime, Mapping[str, int]], ...]
    address: str | None
    targets: Mapping[Target, int]
    pending: bool

    def __repr__(self) -> str:
        return show_object(self)

    def _table(self) -> Sequence[Any]:
        return [{"run": number, "at": at.isoformat(), **counts} for number, at, counts in self.runs]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values.

        Example:
            ```python
            rows = [{"email": "ann@company.example"}]
            await client.contacts.create_many(rows, ledger="contacts.ledger", changed="ignore")
            print(Store("contacts.ledger").contacts().to_dict()["contacts"])  # -> 1
            ```
        """
        return {
            **{name: getattr(self, name) for name in ("contacts", "uncertain", "gone")},
            "runs": [{"run": number, "at": at.isoformat(), "counts": dict(counts)} for number, at, counts in self.runs],
            "address": self.address,
            "targets": [
                {"workspace": workspace, "campaign": campaign, "contacts": count}
                for (workspace, campaign), count in self.targets.items()
            ],
            "pending": self.pending,
        }

    @classmethod
    def _from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the report that `to_dict` wrote: a converter calls this."""
        runs = [(each["run"], each["at"], each["counts"]) for each in values["runs"]]
        targets = {(each["workspace"], each["campaign"]): each["contacts"] for each in values["targets"]}
        return msgspec.convert({**values, "runs": runs, "targets": targets}, cls)


@attrs.define(eq=False, repr=False, slots=False)
class Store:
    """What bulk runs record: a journal knows one run, a ledger all.

    It can be read at any time. A path is an SQLite file, and a URL is
    objects in an object store or a shared folder.
    `create_many(journal=...)` and `create_many(ledger=...)` take a path, a
    URL, or a store with further options.

    Args:
        location: Path of a file, or `s3://bucket/prefix`,
            `gs://bucket/prefix`, `az://container/prefix`, `file:///folder`
            or `memory://name`. Objects in `memory://` last as long as the
            process. Credentials are read from the environment.
        source: Name of the run's input, such as the path of a file;
            reports show it.
        fingerprint: Fingerprint of the run's whole input, such as a file's
            digest. The run of a journal cannot be resumed with a different
            fingerprint.
        mapping: Field codes by column name, if the input has columns. The
            run of a journal cannot be resumed with a different code for a
            column.
        linger: Maximum time in seconds that an outcome waits to be written
            together with others. Object stores charge for each write, so
            the default is 1 for a URL; for a path, it is 0.05.
        inline: Whether to write in the thread of the event loop. A virtual
            clock that does not wait for threads needs this;
            `outreach_async.testing.VirtualTime` waits.
        objects: Storage to use instead of the one at the URL of a journal,
            such as `StoredObjects(S3Store("bucket", endpoint=...),
            "run")`.
        clock: Function that returns monotonic time in seconds. It measures
            the time since the start of the last write to an object store.
            After more than 5 seconds, the run writes again before it sends
            the next contact.
        wall: Function that returns the Unix time in seconds. The time of a
            ledger's entry is the start of its run.

    Raises:
        InvalidRequest: The URL is invalid, or the extra `lake` is missing.

    Example:
        ```python
        store = Store("run.db", source="list of May")
        await client.contacts.create_many([{"email": "ann@company.example"}], journal=store)
        print(Store("run.db").report().source)  # -> list of May
        rows = [{"email": "ann@company.example"}]
        await client.contacts.create_many(rows, ledger="contacts.ledger", duplicates="overwrite")
        print(Store("contacts.ledger").contacts().contacts)  # -> 1
        ```
    """

    location: str | os.PathLike[str]
    source: str | None = attrs.field(default=None, kw_only=True)
    fingerprint: str | None = attrs.field(default=None, kw_only=True)
    mapping: Mapping[str, str] | None = attrs.field(default=None, kw_only=True)
    linger: float = attrs.field(kw_only=True)
    inline: bool = attrs.field(default=False, kw_only=True)
    objects: Objects | None = attrs.field(kw_only=True)
    clock: Callable[[], float] = attrs.field(default=boot_time, kw_only=True)
    wall: Callable[[], float] = attrs.field(default=unix_time, kw_only=True)

    def __attrs_post_init__(self) -> None:
        require_types(Store, vars(self))
        columns = "".join("".join(pair) for pair in (self.mapping or {}).items())
        for name, text in ("source", self.source), ("fingerprint", self.fingerprint), ("mapping", columns):
            require_encodable(name, text or "")
        require_float("linger", self.linger, lambda linger: 0 <= linger < inf, "a number of seconds of at least 0", "pass 1.0")

    @linger.default
    def _default_linger(self) -> float:
        return 1.0 if is_url(self.location) else 0.05

    @objects.default
    def _default_objects(self) -> Objects | None:
        return open_objects(str(self.location)) if is_url(self.location) else None

    @property
    def path(self) -> Path:
        """The location as a path."""
        return Path(self.location)

    @property
    def backlog(self) -> int:
        """Maximum number of rows in flight, or completed but not recorded."""
        return 4096 if self.objects is None else 1000

    def __repr__(self) -> str:
        return f"Store({os.fspath(self.location)!r})"

    def exists(self) -> bool:
        """Return whether the file or its objects exist.

        Raises:
            JournalError: The objects cannot be listed.

        Example:
            ```python
            print(Store("june.db").exists())  # -> False
            ```
        """
        if self.objects is None:
            return os.path.lexists(self.location)
        with records.translate_errors(self._name):
            return any(True for _ in self.objects.names())

    def is_ledger(self) -> bool:
        """Return whether the store exists and is a ledger, of any version.

        Example:
            ```python
            await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db")
            print(Store("run.db").is_ledger())  # -> False
            ```
        """
        if is_url(self.location):
            with closing(self.medium()) as medium, translate_ledger_errors(self._name):
                return medium.exists()
        return read_kind(self.path) == "ledger"

    @property
    def _name(self) -> str:
        return os.fspath(self.location)

    # A journal

    def writer(self, identity: records.Identity, *, resume: bool, earlier: records.Earlier = "known") -> JournalWriter:
        """Return the writer of a run's journal; `resume` continues its run."""
        # With `earlier="unknown"`, every row without an outcome counts as possibly sent, and a damaged journal is set aside and
        # replaced.
        database = FileDatabase(str(self.path)) if self.objects is None else ObjectDatabase(self.objects, self._name, self.clock)
        return open_journal(database, identity, resume=resume, earlier=earlier, wall=partial(read_clock, self))

    def writer_thread(self) -> WriterThread:
        return WriterThread(inline=self.inline)

    @contextmanager
    def _snapshot(self) -> Iterator[records.RunQuery]:
        """Provide a function that runs queries on the last run."""
        name = str(self.path.resolve()) if self.objects is None else self._name
        if self.objects is None:
            is_ledger = self.is_ledger()
        else:
            with records.translate_errors(name):
                is_ledger = any(each.partition("/")[0] == "entries" for each in self.objects.names())
        with ExitStack() as stack:
            stack.enter_context(translate_ledger_errors(name) if is_ledger else records.translate_errors(name))
            if self.objects is None:
                yield lambda query: query_journal(Path(name), query, "ledger" if is_ledger else "journal")[0]
                return
            if is_ledger:
                medium = stack.enter_context(closing(ObjectLedger(name, self.clock)))
                database = medium.open_log(medium.last_run())
            else:
                database = ObjectDatabase(self.objects, name, self.clock)
            stack.callback(database.close)
            if not database.find():
                raise InvalidRequest(f"journal: {database.name} does not exist; pass the URL of a journal")
            database.replay()
            yield database.query

    def outcomes(self) -> Iterator[ContactOutcome]:
        """Iterate over the recorded outcomes in the order of the rows.

        Memory use is bounded. An outcome's `contact` is the spooled
        mapping, or `None` if the rows were not spooled. Its `error` has
        the original class, message, status and attempts; headers and body
        are not recorded. Of a ledger, these are the rows that the last run
        has sent, numbered in the order in which they were marked.

        Raises:
            InvalidRequest: There is no store.
            JournalError: The store is damaged or cannot be read.

        Example:
            ```python
            rows = [{"email": "ann@company.example"}, {"email": ""}]
            await client.contacts.create_many(rows, journal="run.db")
            print([(outcome.index, outcome.status.value) for outcome in Store("run.db").outcomes()])
            # -> [(0, 'added'), (1, 'rejected')]
            ```
        """
        first = 0
        with self._snapshot() as run_query:
            while page := run_query(partial(records.read_page, first=first)):
                yield from page
                first = page[-1].index + 1

    def events(self) -> Iterator[tuple[float, str, dict[str, Any]]]:
        """Iterate over the run's events as (Unix time, kind, details).

        The time is by the writer's clock. Errors are as for `outcomes`.

        Example:
            ```python
            rows = [{"email": "ann@company.example"}]
            async with client.contacts.create_many(rows, journal="run.db"):
                pass  # leave before the run ends
            await client.contacts.create_many(rows, journal="run.db", resume=True)
            print([(kind, details) for at, kind, details in Store("run.db").events()])
            # -> [('resumed', {'after': 'interrupted'})]
            ```
        """
        with self._snapshot() as run_query:
            events = run_query(lambda db: records.read_events(db, records.read_metadata(db)["events"]))
        yield from events

    def report(self) -> records.JournalReport:
        """Return the report of the last run.

        Its counts are stored. The outcomes of a finished run are checked,
        which takes half a second for a million rows; errors as for
        `outcomes`.

        Example:
            ```python
            await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db")
            report = Store("run.db").report()
            print(report.state, report.rows, report.possibly_sent)  # -> finished 1 0
            ```
        """
        with self._snapshot() as run_query:
            report: records.JournalReport = run_query(records.read_report)
        return report

    def campaigns(self) -> dict[tuple[str, str], str]:
        """Return the ids of campaigns that rows named, by workspace and name.

        The rows are those of the last run. Errors are as for `outcomes`.

        Example:
            ```python
            rows = [{"email": "ann@company.example", "campaign": "Spring"}]
            await client.contacts.create_many(rows, journal="run.db")
            print(Store("run.db").campaigns())  # -> {('space_1', 'Spring'): 'camp_1'}
            ```
        """
        with self._snapshot() as run_query:
            return records.read_names(run_query(records.read_metadata))

    # A ledger

    def medium(self) -> LedgerMedium:
        """Return where the store is as a ledger."""
        return ObjectLedger(self._name, self.clock) if is_url(self.location) else FileLedger(self.path)

    def contacts(self) -> LedgerReport:
        """Return what a ledger knows of its contacts.

        A run that is under way, or that was killed, is not included.

        Raises:
            InvalidRequest: The ledger does not exist, or the file is not a
                ledger.
            JournalError: The ledger is damaged or cannot be read.

        Example:
            ```python
            rows = [{"email": "ann@company.example"}]
            await client.contacts.create_many(rows, ledger="contacts.ledger", changed="ignore")
            print(Store("contacts.ledger").contacts().contacts)  # -> 1
            ```
        """
        with closing(self.medium()) as medium, translate_ledger_errors(self._name):
            opened = medium.query(load_entries)
            uncertain, gone, targets = opened.count_entries()
            header, merged = opened.header, [run for run in opened.runs if run.number <= opened.header.merged]
            runs = tuple((run.number, datetime.fromtimestamp(run.at, UTC), run.counts) for run in reversed(merged))
            pending = medium.last_run(opened.runs) > header.merged
            return LedgerReport(opened.count, uncertain, gone, runs, header.address, targets, pending)


def read_clock(store: Store) -> float:
    """Return the Unix time by the clock `wall` of a store; an error if that is not a time."""
    expected, remedy = f"the Unix time in seconds, from 0 to {LAST_TIME}", "pass a function such as time.time"
    return require_float("wall", store.wall(), lambda now: 0 <= now <= LAST_TIME, expected, remedy)


def stores_in(location: str | os.PathLike[str]) -> dict[str, Store]:
    """Return the stores in a folder or under a URL, sorted by name.

    An import in parts has one journal for each part.

    Raises:
        JournalError: The folder or the objects cannot be listed.

    Example:
        ```python
        await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db")
        print(stores_in("."))  # -> {'run': Store('run.db')}
        ```
    """
    path_or_url = os.fspath(location)
    with records.translate_errors(path_or_url):
        if is_url(path_or_url):
            return {name: Store(f"{path_or_url.rstrip('/')}/{name}") for name in list_folders(path_or_url)}
        return {path.stem: Store(path) for path in sorted(Path(path_or_url).glob("*.db"))}


def _to_age(age: Any) -> float | None:
    seconds = age.total_seconds() if isinstance(age, timedelta) else age
    if seconds is None:
        return None
    expected, remedy = "at least 0 seconds, or a timedelta", "pass 0 to send every row again, or None for no limit"
    return require_float("max_age", seconds, lambda age: 0 <= age <= sys.float_info.max, expected, remedy)


@attrs.frozen
class Comparison:
    """How rows are compared with a ledger."""

    repeats: Repeats | None = None
    """`None`, only to count changes, for the policy of the ledger's last run."""
    request: Mapping[str, Any] = attrs.field(factory=dict)
    """The options that are part of a request, without its target; empty, only to count changes, for those of the last run."""
    max_age: float | None = attrs.field(default=None, converter=_to_age)
    ignore_changes: bool = attrs.field(default=False, kw_only=True)
