"""Parses the caller's rows: each becomes a row that can be sent, or the outcome of a row that never can be."""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs
import msgspec

from outreach_async.bulk.outcome import ContactOutcome, stood_for, unsent
from outreach_async.bulk.repeats import Recent
from outreach_async.bulk.source import order_key
from outreach_async.checks import contact_of
from outreach_async.contacts import CreateAnswer
from outreach_async.errors import InvalidRequest
from outreach_async.operations import Creation, Operation, Trail
from outreach_async.vocabulary import Outcome

Answer: TypeAlias = tuple[CreateAnswer, Trail]


@attrs.define
class Row:
    """A row to send.

    Attributes:
        index: Index of the row in the input, from 0.
        given: The row as the caller passed it.
        key: Order key: rows with the same key are sent one after the other.
        operation: The operation to send.
        tainted: Whether an earlier process may have sent the row.
    """

    index: int
    given: object
    key: str
    operation: Operation[Answer]
    tainted: bool = False


@attrs.frozen
class Kept:
    """A row read from the journal's spool.

    Attributes:
        members: JSON members of the contact, as they are sent.
        refusal: Why the row can never be sent; `None` if it can.
        repeats: Index of the row that is sent instead; `None` if this row is sent.
    """

    members: dict[str, Any]
    refusal: str | None = None
    repeats: int | None = None


class Reader:
    """Parses rows, one at a time.

    Args:
        creation: The options of every contact request.
        recent: Finds e-mails that occurred before, whose rows are rejected; `None` rejects none.
    """

    def __init__(self, creation: Creation, recent: Recent | None = None) -> None:
        self._creation = creation
        self._recent = recent

    def read(self, index: int, given: object) -> Row | ContactOutcome:
        """Return the parsed row, or the outcome of a row that is not sent."""
        if not isinstance(given, Kept):
            return self._read(index, given)
        if given.repeats is not None:
            return stood_for(index, given.members, given.repeats)
        if given.refusal is not None:
            return unsent(index, given.members, Outcome.REJECTED, InvalidRequest(given.refusal))
        return self._read(index, given.members)

    def _read(self, index: int, given: object) -> Row | ContactOutcome:
        try:
            contact = contact_of(given)
            operation = self._creation.row(contact)
        except InvalidRequest as error:
            return unsent(index, given, Outcome.REJECTED, error)
        if self._recent is not None and (earlier := self._recent.earlier(index, contact.email)) is not None:
            return self._recent.refused(index, given, earlier)
        return Row(index, given, order_key(contact.email), operation)

    def form(self, row: Row | ContactOutcome) -> bytes:
        """Return bytes that identify the row: its part of the request body, or why it is not sent. They contain no owner key."""
        if isinstance(row, Row):
            return row.operation.request.body[self._creation.head :]
        return str(row.error).encode()

    def keep(self, given: object) -> tuple[str, bytes]:
        """Return the row's exact e-mail, and its JSON for the spool: its members, or as a string why it can never be sent."""
        try:
            contact = contact_of(given)
            return contact.email, b"{" + self._creation.row(contact).request.body[self._creation.head :]
        except InvalidRequest as error:
            return "", msgspec.json.encode(str(error))
