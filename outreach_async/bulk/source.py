"""Pulls rows from the caller's iterable, and computes the key of rows that must be sent in order."""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sized
from typing import Any, Final, Protocol

import anyio

from outreach_async.checks import kind
from outreach_async.contacts import NewContact
from outreach_async.errors import InvalidRequest

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
