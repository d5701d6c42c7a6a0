"""Define a run's identity, marked windows and report, and check that a journal belongs to the run that is being resumed.

This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs
import msgspec

from outreach_async._service.validation import masked_repr
from outreach_async.bulk._outcomes import BulkReport
from outreach_async.bulk.journal._records import to_json
from outreach_async.errors import InvalidRequest

JournalState: TypeAlias = Literal["running", "finished", "suspended", "stopped", "interrupted"]

Earlier: TypeAlias = Literal["known", "unknown"]
"""Determines which rows of a resumed run may count as possibly sent. With `known`, only rows that are marked in the journal and
have no outcome may count. With `unknown`, all rows without an outcome count."""

OTHER_JOURNAL: Final = 'pass another journal, with earlier="unknown" if some of the rows may have been sent'
"""The remedy for a journal that cannot be used. In a new journal, no row counts as sent, so contacts that an earlier run created
would be reported as certainly `skipped`."""

END_STATES: Final = ("finished", "suspended", "stopped", "interrupted")
"""The states in which a run can end."""


@attrs.frozen
class Identity:
    """The identity of a run. A run can be resumed only with a matching identity; see `require_same_run`.

    Attributes:
        workspace: Workspace id.
        options: Options that determine the requests, as JSON values: `duplicates`, `campaign`, `spool` and so on.
        source: Name of the input, such as the path of a file; reports show it. A resumed run may use another name.
        fingerprint: Fingerprint of the whole input, such as a file's digest; `None` if unknown.
        mapping: Field codes by column name, if the input has columns. A resumed run may pass only some of the columns.
        address: Address of the service, without user and password; `None` if unknown.
    """

    workspace: str
    options: Mapping[str, Any]
    source: str | None = None
    fingerprint: str | None = None
    mapping: Mapping[str, str] | None = None
    address: str | None = None


@attrs.frozen
class MarkedWindow:
    """Consecutive rows of the input that are marked together before the first of them is sent."""

    first: int
    rows: int
    digest: bytes

    @property
    def end(self) -> int:
        """Index of the first row after the window."""
        return self.first + self.rows


@attrs.frozen(kw_only=True)
class JournalReport(BulkReport):
    """The report of a run, read from its journal: a `BulkReport`, in which the time between the processes does not count.

    Attributes:
        state: State in which the run ended; `running` if the run has not ended, or if its process was killed.
        marked: Number of rows that were marked as about to be sent. Rows after the last marked row were not sent.
        possibly_sent: Number of marked rows without an outcome.
        windows: Number of marked windows.
        events: Number of events by kind.
        workspace: Workspace id.
        source: Name of the input; `None` if unknown.
        fingerprint: Fingerprint of the whole input; `None` if unknown.
        mapping: Field codes by column name; `None` if the input had no columns.
        spooled: Number of rows of the input, if the journal stores all of them; otherwise `None`.
    """

    state: JournalState
    marked: int
    possibly_sent: int
    windows: int
    events: dict[str, int]
    workspace: str
    source: str | None
    fingerprint: str | None
    mapping: Mapping[str, str] | None = None
    spooled: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values: first the values of `BulkReport`, then the additional values of the journal."""
        names = ("state", "marked", "possibly_sent", "windows", "events", "workspace", "source", "fingerprint")
        return {**super().to_dict(), **{name: getattr(self, name) for name in names}}


def encode_identity(identity: Identity) -> dict[str, Any]:
    """Return an identity as JSON values. Reading the identity from a journal returns equal values."""
    values = attrs.asdict(identity, recurse=False)  # in this order, which is part of the format
    encoded = msgspec.json.encode(values, enc_hook=dict)  # a caller's mapping need not be a `dict`
    return msgspec.json.decode(encoded, type=dict[str, Any])


def require_same_run(path: str, identity: Identity, recorded: Mapping[str, Any]) -> None:
    """Check that a journal belongs to the run that is being resumed."""
    if changes := list(_describe_changes(recorded, encode_identity(identity))):
        raise InvalidRequest(
            f"journal: {path} belongs to another run: {'; '.join(changes)};"
            f" resume with the original input and options, or {OTHER_JOURNAL}"
        )


def _describe_changes(recorded: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    before, now = (
        {"base_url": each["address"], "workspace": each["workspace"], **dict(sorted(each["options"].items()))}
        for each in (recorded, current)
    )
    for name in before | now:
        if before.get(name) != now.get(name):
            yield _describe_change(name, before.get(name), now.get(name))
    if None not in (recorded["fingerprint"], current["fingerprint"]) and recorded["fingerprint"] != current["fingerprint"]:
        yield "the input has changed since the run began (its fingerprint differs)"
    if (fields := recorded["mapping"]) is not None:
        for column, code in (current["mapping"] or {}).items():
            if fields.get(column) != code:
                change = _describe_change(f"the field of column {masked_repr(column)}", fields.get(column), code)
                yield f"the input changed: {change}"


def _describe_change(name: str, *values: object) -> str:
    before, now = (masked_repr(value) if isinstance(value, str) else to_json(value) for value in values)
    return f"{name} was {before} and is now {now}"
