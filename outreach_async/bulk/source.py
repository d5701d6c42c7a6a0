"""Where rows come from, and which of them must not overtake each other."""

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
"""Separates the labels of a domain, too (RFC 3490, section 3.1)."""
_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Unicode's Default_Ignorable_Code_Point: zero-width characters, the byte order mark, variation selectors."""
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)+)"', re.DOTALL)
_QUOTED_PAIR: Final = re.compile(r"\\(.)", re.DOTALL)
_GMAIL: Final = "gmail.com"
_GOOGLEMAIL: Final = "googlemail.com"
_LONGEST_DOMAIN: Final = 253
"""Characters of a domain name at most; nobody decodes labels of a longer one."""
END: Final = object()
"""What `Source.pull` returns when there is no further row."""


class Pulled(Protocol):
    """Rows, pulled one at a time."""

    @property
    def ready(self) -> bool:
        """Whether the next row is there without waiting."""
        ...

    async def pull(self) -> Any:
        """Return the next row, or `END`."""
        ...


class Source:
    """Rows, pulled one at a time by many tasks.

    Attributes:
        total: How many there are; `None` if the input does not say.

    Raises:
        InvalidRequest: Not an iterable of rows: a single contact, a mapping or a text is one row or none.
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
        """Whether the next row is there without waiting: an iterable's always is, a stream's never surely."""
        return self._stream is None

    async def pull(self) -> Any:
        """Return the next row, or `END`; what the rows' own code raises passes through."""
        if self._many is not None:
            return next(self._many, END)
        async with self._turn:  # an async generator refuses to be asked twice at a time
            return await anext(self._stream, END) if self._stream is not None else END


class Ahead:
    """Rows of a stream, pulled ahead of who needs them, so that what has arrived can be taken without waiting for more.

    Args:
        source: The stream.
        room: Rows to hold at most.
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
        """Whether a row, or the end, is there."""
        return bool(self._rows) or self._over

    async def pull(self) -> Any:
        """Return the next row, or `END`; what the rows' own code raised is raised after the rows before."""
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
        """Pull to the end."""
        try:
            while (row := await self._source.pull()) is not END:
                self._rows.append(row)
                self._tell()
                while len(self._rows) >= self._room:
                    await self._changed.wait()
        except Exception as error:  # noqa: BLE001 - raised to who pulls
            self._failure = error
        self._over = True
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def order_key(email: str) -> str:
    """Return a string that is equal for any two addresses which a service may hold equal, and for no others.

    Rows with one key are sent one after the other. The key ignores case, compatibility forms (NFKC), invisible characters,
    accents, a trailing dot, tags, quotes around the local part, the spelling of an international domain, and in Gmail's domains
    dots. A local part never becomes empty: one that consists of such characters alone is kept as it is.
    """
    if email.isascii():  # as nearly all are, so that most of the folding is left out
        local, _, domain = email.rpartition("@")
        domain = _folded_domain(domain.lower())
        return f"{_folded_local(local.lower(), domain) or local}@{domain}"
    local, _, domain = email.translate(_AT_SIGNS).rpartition("@")
    domain = _folded_domain(_folded(domain).replace(_IDEOGRAPHIC_FULL_STOP, "."))
    return f"{_folded_local(_folded(local), domain) or local}@{domain}"


def _folded_local(local: str, domain: str) -> str:
    """Leave out of a local part, whose characters are folded, what makes no other mailbox."""
    local = local.lstrip()
    if local[:1] == '"' and (quoted := _QUOTED.fullmatch(local)):
        local = _QUOTED_PAIR.sub(r"\1", quoted[1])
    if (tag := local.find("+", 1)) > 0:
        local = local[:tag]
    return local.replace(".", "") or local if domain == _GMAIL else local


def _folded_domain(domain: str) -> str:
    """Return the one spelling of a domain, whose characters are folded."""
    domain = domain.rstrip().rstrip(".")
    if "xn--" in domain and len(domain) <= _LONGEST_DOMAIN:
        domain = ".".join(map(_decoded, domain.split(".")))
    return _GMAIL if domain == _GOOGLEMAIL else domain


def _folded(text: str) -> str:
    """Fold characters that look alike into one, each by itself, so that it does not matter where a text is taken apart."""
    # Both cases are needed: some characters have an upper case that folds to another letter than they do themselves.
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).upper().casefold())
    return "".join(character for character in _INVISIBLE.sub("", decomposed) if not unicodedata.combining(character))


def _decoded(label: str) -> str:
    if not label.startswith("xn--"):
        return label
    try:
        return _folded(label[4:].encode("ascii").decode("punycode"))
    except UnicodeError:
        return label
