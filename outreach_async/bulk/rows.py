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

from outreach_async.bulk.outcomes import ContactOutcome, refused_repeat, stood_for, unsent
from outreach_async.bulk.possibly_sent import NONE, Suspects
from outreach_async.contacts import CreateAnswer, NewContact
from outreach_async.errors import InvalidRequest
from outreach_async.operations import Creation, Operation, Trail
from outreach_async.validation import contact_of, kind
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

_REACH: Final = 10_000
"""Number of recent rows whose e-mails are remembered."""


def same_as(place: str) -> str:
    """Return the message for a row with the e-mail of another row.

    Args:
        place: The other row, such as `line 3`.
    """
    return f"email: same address as {place}"


def refused_as(place: str) -> str:
    """Return the message for a row that is rejected because of this, with the remedy."""
    return f"{same_as(place)}; remove one of them, or choose another policy for repeats"


class Recent:
    """Remembers the e-mails of the last rows.

    Only identical addresses count as repeated: rejecting by a coarser key could lose a contact.
    """

    def __init__(self, reach: int = _REACH) -> None:
        self._reach = reach
        self._rows: OrderedDict[str, int] = OrderedDict()

    def earlier(self, index: int, email: str) -> int | None:
        """Return the index of an earlier row with the same e-mail; remember this row if there is none."""
        while self._rows and next(iter(self._rows.values())) < index - self._reach:
            self._rows.popitem(last=False)
        found = self._rows.setdefault(email, index)
        return None if found == index else found

    @staticmethod
    def refused(index: int, given: object, earlier: int) -> ContactOutcome:
        """Return the outcome of a row that repeats an earlier one."""
        return refused_repeat(index, given, earlier, InvalidRequest(refused_as(f"row {earlier}")))


_REMEDY: Final = "pass a list, a generator or an async generator of contacts"
_AT_SIGNS: Final = dict.fromkeys((0xFE6B, 0xFF20), "@")
_IDEOGRAPHIC_FULL_STOP: Final = "\u3002"
"""Separates the labels of a domain, as a full stop does (RFC 3490, section 3.1)."""
_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Unicode's Default_Ignorable_Code_Point: zero-width characters, the byte order mark, variation selectors and others."""
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)+)"', re.DOTALL)
_QUOTED_PAIR: Final = re.compile(r"\\(.)", re.DOTALL)
_GMAIL: Final = "gmail.com"
_GOOGLEMAIL: Final = "googlemail.com"
_LONGEST_DOMAIN: Final = 253
"""Maximum number of characters in a domain name; labels of a longer one are not decoded."""
END: Final = object()
"""Returned by `Source.pull` when there are no more rows."""


class Pulled(Protocol):
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
            raise InvalidRequest(f"rows: expected many contacts, got one {kind(rows)}; {_REMEDY}")
        self._turn = anyio.Lock(fast_acquire=True)
        self._many: Iterator[Any] | None = None
        self._stream: AsyncIterator[Any] | None = None
        self.total = len(rows) if isinstance(rows, Sized) else None
        if isinstance(rows, AsyncIterable):
            self._stream = aiter(rows)
        elif isinstance(rows, Iterable):
            self._many = iter(rows)
        else:
            raise InvalidRequest(f"rows: expected an iterable of contacts, got {kind(rows)}; {_REMEDY}")

    @property
    def ready(self) -> bool:
        """True if the next row is available without waiting: always for an iterable, never for an async iterable."""
        return self._stream is None

    async def pull(self) -> Any:
        """Return the next row, or `END`. Exceptions of the iterable pass through."""
        if self._many is not None:
            return next(self._many, END)
        async with self._turn:  # an async generator raises if two tasks advance it at the same time
            return await anext(self._stream, END) if self._stream is not None else END


class Ahead:
    """Reads a stream ahead, so that a window can take all rows that have arrived without waiting for more.

    Args:
        source: The stream.
        room: Maximum number of rows to hold.
    """

    def __init__(self, source: Source, room: int) -> None:
        self._source = source
        self._room = room
        self._rows: deque[Any] = deque()
        self._failure: Exception | None = None
        self._over = False
        self._changed = anyio.Event()

    @property
    def ready(self) -> bool:
        """True if a row, or the end, has arrived."""
        return bool(self._rows) or self._over

    async def pull(self) -> Any:
        """Return the next row, or `END`. An exception of the stream is raised after the rows before it."""
        while not self.ready:
            await self._changed.wait()
        if self._rows:
            self._tell()
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
                self._tell()
                while len(self._rows) >= self._room:
                    await self._changed.wait()
        except Exception as error:  # noqa: BLE001 - raised by `pull`
            self._failure = error
        self._over = True
        self._tell()

    def _tell(self) -> None:
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
        domain = _folded_domain(domain.lower())
        return f"{_folded_local(local.lower(), domain) or local}@{domain}"
    local, _, domain = email.translate(_AT_SIGNS).rpartition("@")
    domain = _folded_domain(_folded(domain).replace(_IDEOGRAPHIC_FULL_STOP, "."))
    return f"{_folded_local(_folded(local), domain) or local}@{domain}"


def _folded_local(local: str, domain: str) -> str:
    """Remove from a folded local part what does not change the mailbox: leading spaces, quotes, a tag and, for Gmail, dots."""
    local = local.lstrip()
    if local[:1] == '"' and (quoted := _QUOTED.fullmatch(local)):
        local = _QUOTED_PAIR.sub(r"\1", quoted[1])
    if (tag := local.find("+", 1)) > 0:
        local = local[:tag]
    return local.replace(".", "") or local if domain == _GMAIL else local


def _folded_domain(domain: str) -> str:
    """Return the canonical spelling of a folded domain."""
    domain = domain.rstrip().rstrip(".")
    if "xn--" in domain and len(domain) <= _LONGEST_DOMAIN:
        domain = ".".join(map(_decoded, domain.split(".")))
    return _GMAIL if domain == _GOOGLEMAIL else domain


def _folded(text: str) -> str:
    """Fold equivalent characters into one, each character by itself, so that a string may be split before or after folding."""
    # Both `upper` and `casefold` are needed: the upper case of some characters folds to another letter than the character itself.
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).upper().casefold())
    return "".join(character for character in _INVISIBLE.sub("", decomposed) if not unicodedata.combining(character))


def _decoded(label: str) -> str:
    if not label.startswith("xn--"):
        return label
    try:
        return _folded(label[4:].encode("ascii").decode("punycode"))
    except UnicodeError:
        return label


class Intake(Protocol):
    """Supplies rows to the workers."""

    async def next(self) -> Row | ContactOutcome | None:
        """Return the next row, the outcome of a row that is not sent, or `None` at the end.

        Raises:
            Exception: Raised by the iterable of rows.
        """
        ...

    def stop(self) -> None:
        """Return no more rows."""
        ...

    def left(self) -> Suspects:
        """Return the rows that were not returned by `next` and may have been sent by an earlier process."""
        ...


class Direct:
    """Returns rows as they are pulled."""

    def __init__(self, source: Source, reader: Reader) -> None:
        self._source = source
        self._reader = reader
        self._pulled = 0
        self._stopped = False

    async def next(self) -> Row | ContactOutcome | None:
        """Pull and return the next row, or the outcome of a row that is not sent; `None` at the end."""
        given = END if self._stopped else await self._source.pull()
        if given is END:
            self._stopped = True
            return None
        index, self._pulled = self._pulled, self._pulled + 1
        return self._reader.read(index, given)

    def stop(self) -> None:
        """Pull no more rows."""
        self._stopped = True

    def left(self) -> Suspects:
        """Return no rows: without a journal, no earlier process is known."""
        return NONE
