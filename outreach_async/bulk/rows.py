"""Pull the caller's rows and parse them: each becomes a row that can be sent, or the outcome of a row that never can be.

Elsewhere these are called duplicates. Here, `duplicates` is the service's option for contacts that it already has.
"""

from __future__ import annotations

import re
import unicodedata
from collections import OrderedDict, deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sized
from typing import Any, Final, Literal, Protocol, TypeAlias

import anyio
import attrs
import msgspec

from outreach_async.bulk.outcomes import ContactOutcome, repeated_outcome, superseded_outcome, unsent_outcome
from outreach_async.bulk.possibly_sent import NO_ROWS, PossiblySent
from outreach_async.contacts import CreateContactResponse, NewContact
from outreach_async.errors import InvalidRequest
from outreach_async.operations import AttemptInfo, ContactRequests, Operation
from outreach_async.validation import to_contact, type_name
from outreach_async.vocabulary import Outcome

CreateResult: TypeAlias = tuple[CreateContactResponse, AttemptInfo]


@attrs.define
class ParsedRow:
    """A row to send.

    Attributes:
        index: Index of the row in the input, from 0.
        original: The row as the caller passed it.
        key: Order key: rows with the same key are sent one after the other.
        operation: The operation to send.
        maybe_applied: Whether an earlier process may have sent the row.
    """

    index: int
    original: object
    key: str
    operation: Operation[CreateResult]
    maybe_sent: bool = False


@attrs.frozen
class SpooledInput:
    """A row read from the journal's spool.

    Attributes:
        members: JSON members of the contact, as they are sent.
        refusal: Why the row can never be sent; `None` if it can.
        repeats: Index of the row that is sent instead; `None` if this row is sent.
    """

    members: dict[str, Any]
    refusal: str | None = None
    repeats: int | None = None


class RowParser:
    """Parses rows, one at a time.

    Args:
        creation: The options of every contact request.
        recent: Finds e-mails that occurred before, whose rows are rejected; `None` rejects none.
    """

    def __init__(self, creation: ContactRequests, recent: RecentEmails | None = None) -> None:
        self._contact_requests = creation
        self._recent_emails = recent

    def parse(self, index: int, given: object) -> ParsedRow | ContactOutcome:
        """Return the parsed row, or the outcome of a row that is not sent."""
        if not isinstance(given, SpooledInput):
            return self._parse_contact(index, given)
        if given.repeats is not None:
            return superseded_outcome(index, given.members, given.repeats)
        if given.refusal is not None:
            return unsent_outcome(index, given.members, Outcome.REJECTED, InvalidRequest(given.refusal))
        return self._parse_contact(index, given.members)

    def _parse_contact(self, index: int, given: object) -> ParsedRow | ContactOutcome:
        try:
            contact = to_contact(given)
            operation = self._contact_requests.build_row(contact)
        except InvalidRequest as error:
            return unsent_outcome(index, given, Outcome.REJECTED, error)
        if self._recent_emails is not None and (earlier := self._recent_emails.find_earlier(index, contact.email)) is not None:
            return self._recent_emails.rejected_outcome(index, given, earlier)
        return ParsedRow(index, given, order_key(contact.email), operation)

    def identifying_bytes(self, row: ParsedRow | ContactOutcome) -> bytes:
        """Return bytes that identify the row: its part of the request body, or why it is not sent. They contain no owner key."""
        if isinstance(row, ParsedRow):
            return row.operation.request.body[self._contact_requests.prefix_size :]
        return str(row.error).encode()

    def encode_for_spool(self, given: object) -> tuple[str, bytes]:
        """Return the row's exact e-mail, and its JSON for the spool: its members, or as a string why it can never be sent."""
        try:
            contact = to_contact(given)
            return contact.email, b"{" + self._contact_requests.build_row(contact).request.body[
                self._contact_requests.prefix_size :
            ]
        except InvalidRequest as error:
            return "", msgspec.json.encode(str(error))


Repeats = Literal["serial", "error", "first", "last", "coalesce"]
"""Policy for e-mails that occur more than once in the input. `serial` sends every row, one at a time per e-mail. `error` rejects
a row that repeats one of the last 10,000. `first`, `last` and `coalesce` send one row per e-mail, once the whole input is in the
journal's spool.

Example:
    ```python
    report = await client.contacts.create_many([{"email": "ann@company.example"}] * 2, repeats="error")
    print(report.outcomes[Outcome.ADDED], report.outcomes[Outcome.REJECTED])  # -> 1 1
    ```
"""

WHOLE_INPUT: Final = frozenset({"first", "last", "coalesce"})
"""Policies that need all rows before the first is sent."""

_HISTORY_SIZE: Final = 10_000
"""Number of recent rows whose e-mails are remembered."""


def same_address_message(place: str) -> str:
    """Return the message for a row with the e-mail of another row.

    Args:
        place: The other row, such as `line 3`.
    """
    return f"email: same address as {place}"


def rejection_message(place: str) -> str:
    """Return the message for a row that is rejected because of this, with the remedy."""
    return f"{same_address_message(place)}; remove one of them, or choose another policy for repeats"


class RecentEmails:
    """Remembers the e-mails of the last rows.

    Only identical addresses count as repeated: rejecting by a coarser key could lose a contact.
    """

    def __init__(self, reach: int = _HISTORY_SIZE) -> None:
        self._history_size = reach
        self._rows: OrderedDict[str, int] = OrderedDict()

    def find_earlier(self, index: int, email: str) -> int | None:
        """Return the index of an earlier row with the same e-mail; remember this row if there is none."""
        while self._rows and next(iter(self._rows.values())) < index - self._history_size:
            self._rows.popitem(last=False)
        found = self._rows.setdefault(email, index)
        return None if found == index else found

    @staticmethod
    def rejected_outcome(index: int, given: object, earlier: int) -> ContactOutcome:
        """Return the outcome of a row that repeats an earlier one."""
        return repeated_outcome(index, given, earlier, InvalidRequest(rejection_message(f"row {earlier}")))


_REMEDY: Final = "pass a list, a generator or an async generator of contacts"
_AT_SIGN_FORMS: Final = dict.fromkeys((0xFE6B, 0xFF20), "@")
_IDEOGRAPHIC_FULL_STOP: Final = "\u3002"
"""Separates the labels of a domain, as a full stop does (RFC 3490, section 3.1)."""
_IGNORABLE_CHARACTERS: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Unicode's Default_Ignorable_Code_Point: zero-width characters, the byte order mark, variation selectors and others."""
_QUOTED_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)+)"', re.DOTALL)
_QUOTED_PAIR: Final = re.compile(r"\\(.)", re.DOTALL)
_GMAIL: Final = "gmail.com"
_GOOGLEMAIL: Final = "googlemail.com"
_MAX_DOMAIN_LENGTH: Final = 253
"""Maximum number of characters in a domain name; labels of a longer one are not decoded."""
END: Final = object()
"""Returned by `Source.pull` when there are no more rows."""


class RowSource(Protocol):
    """Rows that are pulled one at a time."""

    @property
    def ready(self) -> bool:
        """True if the next row is available without waiting."""
        ...

    async def pull(self) -> Any:
        """Return the next row, or `END`."""
        ...


class Source:
    """Rows of the caller's iterable, pulled one at a time by many tasks.

    Attributes:
        total: Number of rows; `None` if the iterable has no length.

    Raises:
        InvalidRequest: `rows` is not an iterable of rows, or is a single contact, a mapping, a string or bytes.
    """

    def __init__(self, rows: Iterable[Any] | AsyncIterable[Any]) -> None:
        if isinstance(rows, str | bytes | Mapping | NewContact):
            raise InvalidRequest(f"rows: expected many contacts, got one {type_name(rows)}; {_REMEDY}")
        self._lock = anyio.Lock(fast_acquire=True)
        self._iterator: Iterator[Any] | None = None
        self._async_iterator: AsyncIterator[Any] | None = None
        self.total = len(rows) if isinstance(rows, Sized) else None
        if isinstance(rows, AsyncIterable):
            self._async_iterator = aiter(rows)
        elif isinstance(rows, Iterable):
            self._iterator = iter(rows)
        else:
            raise InvalidRequest(f"rows: expected an iterable of contacts, got {type_name(rows)}; {_REMEDY}")

    @property
    def ready(self) -> bool:
        """True if the next row is available without waiting: always for an iterable, never for an async iterable."""
        return self._async_iterator is None

    async def pull(self) -> Any:
        """Return the next row, or `END`. Exceptions of the iterable pass through."""
        if self._iterator is not None:
            return next(self._iterator, END)
        async with self._lock:  # an async generator raises if two tasks advance it at the same time
            return await anext(self._async_iterator, END) if self._async_iterator is not None else END


class Prefetch:
    """Reads a stream ahead, so that a window can take all rows that have arrived without waiting for more.

    Args:
        source: The stream.
        room: Maximum number of rows to hold.
    """

    def __init__(self, source: Source, room: int) -> None:
        self._source = source
        self._capacity = room
        self._rows: deque[Any] = deque()
        self._failure: Exception | None = None
        self._ended = False
        self._changed = anyio.Event()

    @property
    def ready(self) -> bool:
        """True if a row, or the end, has arrived."""
        return bool(self._rows) or self._ended

    async def pull(self) -> Any:
        """Return the next row, or `END`. An exception of the stream is raised after the rows before it."""
        while not self.ready:
            await self._changed.wait()
        if self._rows:
            self._notify()
            return self._rows.popleft()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return END

    async def run(self) -> None:
        """Pull rows until the stream ends."""
        try:
            while (row := await self._source.pull()) is not END:
                self._rows.append(row)
                self._notify()
                while len(self._rows) >= self._capacity:
                    await self._changed.wait()
        except Exception as error:  # noqa: BLE001 - raised by `pull`
            self._failure = error
        self._ended = True
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def order_key(email: str) -> str:
    """Return a key that is equal for two addresses if, and only if, a service may treat them as equal.

    Rows with the same key are sent one after the other. The key ignores case, compatibility forms (NFKC), invisible characters,
    accents, a trailing dot, tags, quotes around the local part, the spelling of an international domain and, in Gmail's domains,
    dots. The local part never becomes empty: if it consists of such characters alone, it is used unchanged.
    """
    if email.isascii():  # nearly all are, and need only a part of the folding
        local, _, domain = email.rpartition("@")
        domain = _fold_domain(domain.lower())
        return f"{_fold_local(local.lower(), domain) or local}@{domain}"
    local, _, domain = email.translate(_AT_SIGN_FORMS).rpartition("@")
    domain = _fold_domain(_fold(domain).replace(_IDEOGRAPHIC_FULL_STOP, "."))
    return f"{_fold_local(_fold(local), domain) or local}@{domain}"


def _fold_local(local: str, domain: str) -> str:
    """Remove from a folded local part what does not change the mailbox: leading spaces, quotes, a tag and, for Gmail, dots."""
    local = local.lstrip()
    if local[:1] == '"' and (quoted := _QUOTED_STRING.fullmatch(local)):
        local = _QUOTED_PAIR.sub(r"\1", quoted[1])
    if (tag := local.find("+", 1)) > 0:
        local = local[:tag]
    return local.replace(".", "") or local if domain == _GMAIL else local


def _fold_domain(domain: str) -> str:
    """Return the canonical spelling of a folded domain."""
    domain = domain.rstrip().rstrip(".")
    if "xn--" in domain and len(domain) <= _MAX_DOMAIN_LENGTH:
        domain = ".".join(map(_decode_label, domain.split(".")))
    return _GMAIL if domain == _GOOGLEMAIL else domain


def _fold(text: str) -> str:
    """Fold equivalent characters into one, each character by itself, so that a string may be split before or after folding."""
    # Both `upper` and `casefold` are needed: the upper case of some characters folds to another letter than the character itself.
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).upper().casefold())
    return "".join(character for character in _IGNORABLE_CHARACTERS.sub("", decomposed) if not unicodedata.combining(character))


def _decode_label(label: str) -> str:
    if not label.startswith("xn--"):
        return label
    try:
        return _fold(label[4:].encode("ascii").decode("punycode"))
    except UnicodeError:
        return label


class RowFeed(Protocol):
    """Supplies rows to the workers."""

    async def next(self) -> ParsedRow | ContactOutcome | None:
        """Return the next row, the outcome of a row that is not sent, or `None` at the end.

        Raises:
            Exception: Raised by the iterable of rows.
        """
        ...

    def stop(self) -> None:
        """Return no more rows."""
        ...

    def remaining_possibly_sent(self) -> PossiblySent:
        """Return the rows that were not returned by `next` and may have been sent by an earlier process."""
        ...


class DirectFeed:
    """Returns rows as they are pulled."""

    def __init__(self, source: Source, reader: RowParser) -> None:
        self._source = source
        self._parser = reader
        self._pulled_count = 0
        self._stopped = False

    async def next(self) -> ParsedRow | ContactOutcome | None:
        """Pull and return the next row, or the outcome of a row that is not sent; `None` at the end."""
        given = END if self._stopped else await self._source.pull()
        if given is END:
            self._stopped = True
            return None
        index, self._pulled_count = self._pulled_count, self._pulled_count + 1
        return self._parser.parse(index, given)

    def stop(self) -> None:
        """Pull no more rows."""
        self._stopped = True

    def remaining_possibly_sent(self) -> PossiblySent:
        """Return no rows: without a journal, no earlier process is known."""
        return NO_ROWS
