"""Send only what changed: a ledger remembers the last certain outcome of each contact, over any number of runs.

With `ledger="contacts.ledger"`, a run compares each row with the last row that was sent for its contact. A row without a
difference is not sent: its outcome is `unchanged`, with the contact's id. The call is the same every night, with any input, and
after any crash.

```python
import anyio
from outreach_async import OutreachClient


async def night(rows: list[dict[str, str]]) -> None:
    async with OutreachClient() as client:
        report = await client.contacts.create_many(rows, ledger="contacts.ledger", duplicates="overwrite")
    print(report.ledger.new, "new,", report.ledger.changed, "changed,", report.ledger.unchanged, "unchanged")


rows = [{"email": f"user{number}@company.example", "city": "Lyon"} for number in range(200)]
anyio.run(night, rows)  # -> 200 new, 0 changed, 0 unchanged
rows[7]["city"] = "Bern"
anyio.run(night, [*rows, {"email": "new@company.example"}])  # -> 1 new, 1 changed, 199 unchanged
```

What is sent
------------
    new        the ledger does not know the contact
    changed    the row differs from the last row of its contact, or the options differ; `duplicates` decides what the service does
    uncertain  an earlier attempt was not answered; `possible` has every status that this attempt leaves open. The row is sent in
               each run until the service answers the only attempt of one that started late enough (see below)
    expired    the entry is older than `max_age`, or its time is in the future: others may have edited the contact. `max_age=0`
               sends every row, also with `changed="ignore"`
    unchanged  not sent
    excluded   not sent, because the person must not be written to (see `outreach_async.Excluded`). What the ledger knows of the
               contact stays: when the row may be sent again, it is compared as before

A row that the service rejects changes nothing that the ledger knows about its contact, and is sent again in each run, because the
service may accept it now. The ledger remembers for 90 days that it was rejected. Such a row, also with other values, does not
count for `stop_after_rejects`, so rows that stay wrong in the input do not stop a run. `gone` counts the contacts of the ledger
that a whole input did not have. The service cannot delete contacts, so nothing is done about them. With `duplicates="skip"`, the
service would ignore a changed row. Pass `"overwrite"` or `"update_missing_fields"`, or `changed="ignore"` to send only new
contacts.

A request that was not answered may still arrive at the service, and would then replace newer values: its process was killed, or
another run took over. So an uncertain row stays uncertain, and is sent again, in runs that start while this is possible: for
`timeout` + 65 seconds after its run was added to the ledger, and for at most an hour. The run that adds a killed run is one of
these. This assumes that the service carries out a request within a minute after its timeout, less the difference between the
clocks of two machines.

A value that is emptied in the input makes its row a changed one, but a blank value is not sent, so the contact keeps what it
has. `blank="clear"` (`--blank clear`) clears the fields of blank values, also of those that were emptied before: the first run
with it sends each row that has a blank value. The ledger has a digest of each row, not its values, so it cannot tell which of
them had a value: `BulkReport.ledger.kept` counts the fields without a value in the changed rows.

If a contact has several rows in one input, the ledger compares them together, in their order: rows that come in the same order
again are unchanged, and a row that was added at the end is sent alone. If one of them changes, it and the later ones are sent.
`repeats="last"` or `"first"` sends only one of the rows with an e-mail and a target; the others are `not_applied`. With
`"error"`, they are rejected. A row that the service rejects counts as any other, and so does one that is excluded; a row that is
rejected before it is sent does not. Another policy than last night sends these contacts once more. `BulkReport.ledger.repeated`
counts such rows. For this, the input is read twice: files, lists and other sequences, dict views, and frames of pandas, polars
and pyarrow. Rows that can be read only once, such as those of a generator, a cursor or a DuckDB query, are compared one by one:
if the rows of a contact differ, they are sent in each run, so that the contact has the values of the last one.

One run may have rows of many campaigns (see `Target`), and counts what is gone only from those that its rows name. Each campaign
and workspace has its own entries, so a row that names another campaign than last night is new. A contact has one set of values in
a workspace, and the rows of all its campaigns are compared together, as above. So use one ledger for each table. A row is
compared as JSON. The owner key is not compared: with another key, rows stay unchanged, and `max_age=0` sends them with the new
key.

A contact is an e-mail in a workspace, whatever its letter case. E-mails that some services treat as equal, such as
`ann+news@company.example` and `ann@company.example`, are contacts of their own. If the service answers with the same id for both,
or if an answer with an id was lost, a row of one may have changed the other, whose row is then sent again.

The file
--------
A ledger takes about 32 bytes for each contact, and 12 for each rejected row. Comparing a row takes a few microseconds. A ledger
contains no e-mails, names or keys: entries are keyed hashes. Each run writes a journal beside the ledger,
`contacts.ledger.run-000007`, and adds it to the ledger when it ends. If its process is killed at any moment, the next run adds
the journal first. The journal of the last run stays, and shows if an older copy of the ledger is restored. Copy or move a ledger
together with its journals, and only when no run uses it. If an older copy is restored without the journals, run once with
`max_age=0`.

A ledger belongs to the address of one service. Keep the file on a local disk; like journals in files, it is not supported on
Windows. Two runs cannot use one ledger at the same time: the second is refused.

`ledger="s3://bucket/contacts"` (also `file:///folder`; see `outreach_async.store.journal`) keeps the ledger in an object
store. Each run then reads the whole ledger when it starts, and writes it when it ends. There is no lock. A run that starts
takes over from a run that has not ended. The earlier run stops with JournalError when it writes to its journal, at the latest
before it sends a row more than 5 seconds after it started its last successful write. One exception: a process that is
suspended in the moment in which it writes a request still sends it when it goes on, however late. Rows that it had marked and
has no answer for are uncertain. `entries/` has the ledger's last two generations, and `run-000007/` the journal of a run. No
lifecycle rule may delete these objects: it cannot tell a run that was not added yet. Delete journals by hand, when their
processes have ended and two later runs have been added.

Schedulers
----------
The job needs one command, and no state but the ledger, and may be started again at any time. `import` exits with 75 if the
service was down for too long, with 77 if the key was refused, with 3 if rows failed or the run ended early for another reason,
and with 0 otherwise. A scheduler that counts 3 as a success hides a run that stopped. `--map Campaign=campaign`, or a column
`campaign`, sends each row to its own campaign, by id or name.

    # cron: every night at two
    0 2 * * *  cd /srv/crm && .venv/bin/outreach-async import people.csv --ledger crm.db --duplicates overwrite --results ids.csv

    # systemd: a timer with OnCalendar=02:00, and a service that is started again if the service was down or the process died.
    # If rows failed or the run stopped, it fails, and waits for someone to look.
    [Service]
    Type=oneshot
    WorkingDirectory=/srv/crm
    EnvironmentFile=/etc/outreach.env
    ExecStart=/srv/crm/.venv/bin/outreach-async import people.csv --ledger crm.db --duplicates overwrite --results ids.csv
    Restart=on-failure
    RestartPreventExitStatus=1 2 3 77
    RestartSec=15min

In Airflow and Dagster, a task or an asset calls a function like `send_changes` of the example `tests/examples/nightly.py`, which
reads a DuckDB table and writes the ids back. `airflow_nightly.py` and `dagster_nightly.py` beside it are complete: they start a
failed job again, and let only one run at a time use the ledger. (Tested by hand with Airflow 3.3 and Dagster 1.13. The test suite
calls their functions without the frameworks.)

`Ledger("contacts.ledger").report()`, and on the command line `outreach-async report contacts.ledger`, counts contacts and lists
the runs. `import --ledger contacts.ledger --dry-run` only counts, and with `--results ids.csv` writes the ids that the ledger
knows.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_bytes
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, Self

import attrs
import msgspec

from outreach_async._core.arguments import show_number, type_name
from outreach_async._files.objects import is_url
from outreach_async.bulk._rows import Repeats
from outreach_async.errors import InvalidRequest
from outreach_async.models import Target
from outreach_async.store.ledger._applying import translate_errors
from outreach_async.store.ledger._entries import Generation, create, is_ledger_file
from outreach_async.store.ledger._stores import FileStore, LedgerStore, ObjectStore

__all__ = ["Changed", "Ledger", "LedgerReport"]

_LAST_TIME: Final = 253_402_300_799
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


@attrs.frozen
class LedgerReport:
    """The contacts, runs and targets of a ledger.

    Attributes:
        contacts: Number of contacts whose last outcome is known or uncertain.
        uncertain: Number of contacts that may have been changed by an attempt without an answer. Their rows are sent again.
        gone: Number of contacts that the last whole input did not have.
        runs: The runs, the last one first: each with its number, the time of its start, and its counts.
        address: Address of the service.
        targets: Number of contacts for each (workspace, campaign).
        pending: Whether a run has not been added yet, because it is running or its process was killed. The next run adds it.

    Example:
        ```python
        await client.contacts.create_many([{"email": "ann@company.example"}], ledger="contacts.ledger", changed="ignore")
        report = Ledger("contacts.ledger").report()
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

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values.

        Example:
            ```python
            await client.contacts.create_many([{"email": "ann@company.example"}], ledger="contacts.ledger", changed="ignore")
            print(Ledger("contacts.ledger").report().to_dict()["contacts"])  # -> 1
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


@attrs.frozen
class Ledger:
    """A record of the last certain outcome of each contact, over any number of runs; see `create_many`.

    Args:
        location: Path of the ledger's file, or the URL of an object store or a folder.
        inline: As for `Journal`.
        wall: Function that returns the Unix time in seconds. The time of an entry is the start of its run.

    Example:
        ```python
        ledger = Ledger("contacts.ledger")
        await client.contacts.create_many([{"email": "ann@company.example"}], ledger=ledger, duplicates="overwrite")
        again = await client.contacts.create_many([{"email": "ann@company.example"}], ledger=ledger, duplicates="overwrite")
        print(again.outcomes["unchanged"])  # -> 1
        ```
    """

    location: str | os.PathLike[str]
    inline: bool = attrs.field(default=False, kw_only=True)
    wall: Callable[[], float] = attrs.field(default=time.time, kw_only=True)

    def _open_store(self) -> LedgerStore:
        location = os.fspath(self.location)
        return ObjectStore(location, inline=self.inline) if is_url(location) else FileStore(Path(location), inline=self.inline)

    def _now(self) -> float:
        now: Any = self.wall()
        if isinstance(now, bool) or not isinstance(now, int | float) or not 0 <= now <= _LAST_TIME:
            got = show_number(now) if isinstance(now, int | float) else type_name(now)
            raise InvalidRequest(
                f"wall: expected the Unix time in seconds, from 0 to {_LAST_TIME}, got {got}; pass a function such as time.time"
            )
        return float(now)

    def exists(self) -> bool:
        """Return whether the ledger exists.

        Raises:
            JournalError: The store cannot be read.

        Example:
            ```python
            print(Ledger("contacts.ledger").exists())  # -> False
            ```
        """
        with closing(self._open_store()) as store, translate_errors(store.name):
            return store.load() is not None

    def report(self) -> LedgerReport:
        """Return what the ledger holds. A run that is under way, or that was killed, is not included.

        Raises:
            InvalidRequest: The ledger does not exist, or the file is not a ledger.
            JournalError: The ledger is damaged or cannot be read.

        Example:
            ```python
            await client.contacts.create_many([{"email": "ann@company.example"}], ledger="contacts.ledger", changed="ignore")
            print(Ledger("contacts.ledger").report().contacts)  # -> 1
            ```
        """
        with closing(self._open_store()) as store, translate_errors(store.name):
            if (path := store.load()) is None:
                raise InvalidRequest(f"ledger: {store.name} does not exist; pass the path or URL of a ledger")
            with closing(Generation(path)) as opened:
                known = opened.metadata
                uncertain, gone, targets = opened.count_entries()
                runs = tuple((number, datetime.fromtimestamp(at, UTC), sums) for number, at, sums in known.runs[::-1])
                pending = (store.last_journal() or 0) > known.generation
                return LedgerReport(opened.count, uncertain, gone, runs, known.address, targets, pending)


def _to_age(age: Any) -> float | None:
    seconds = age.total_seconds() if isinstance(age, timedelta) else age
    if seconds is None:
        return None
    expected, remedy = "expected at least 0 seconds, or a timedelta", "pass 0 to send every row again, or None for no limit"
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidRequest(f"max_age: {expected}, got {type_name(age)}; {remedy}")
    if not 0 <= seconds <= sys.float_info.max:
        raise InvalidRequest(f"max_age: {expected}, got {show_number(seconds)}; {remedy}")
    return float(seconds)


@attrs.frozen
class Comparison:
    """How rows are compared with a ledger."""

    repeats: Repeats | None = None
    """`None`, only to count changes, for the policy of the ledger's last run."""
    request: Mapping[str, Any] = attrs.field(factory=dict)
    """The options that are part of a request, without its target; empty, only to count changes, for those of the last run."""
    max_age: float | None = attrs.field(default=None, converter=_to_age)
    ignore_changes: bool = attrs.field(default=False, kw_only=True)


def read_clock(ledger: Ledger) -> float:
    """Return the Unix time by the ledger's clock; an error if it is not a time."""
    return ledger._now()  # noqa: SLF001 - not a method for users


@contextmanager
def open_entries(ledger: Ledger) -> Iterator[Generation]:
    """Open a ledger for reading; a ledger that does not exist is empty."""
    with closing(ledger._open_store()) as store, TemporaryDirectory() as folder:  # noqa: SLF001 - not a method for users
        with translate_errors(store.name):
            if (path := store.load()) is None:
                create(path := Path(folder) / "empty", None, token_bytes(32))
            opened = Generation(path)
        with closing(opened):
            yield opened


def is_ledger(location: str | os.PathLike[str]) -> bool:
    """Return whether a location contains a ledger, rather than a journal or nothing."""
    if is_url(location):
        return Ledger(location).exists()
    try:
        return is_ledger_file(Path(location))
    except OSError:
        return False
