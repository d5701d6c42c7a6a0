"""Where rows come from, and which of them must not overtake each other."""

from __future__ import annotations

import unicodedata
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sized
from typing import Any, Final, Protocol

import anyio

from outreach_async.checks import kind
from outreach_async.contacts import NewContact
from outreach_async.errors import InvalidRequest

_REMEDY: Final = "pass a list, a generator or an async generator of contacts"
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
    """Return a text that is equal for any two addresses which a service could hold to be the same mailbox.

    It is coarse on purpose: rows with one key are sent one after the other, and doing that needlessly costs only time. Case,
    composition, dots and tags of the local part, and the spelling of an international domain make no difference.
    """
    text = email.strip().casefold()
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    local, _, domain = text.rpartition("@")
    return f"{local.partition('+')[0].replace('.', '')}@{domain if domain.isascii() else _ascii(domain)}"


def _ascii(domain: str) -> str:
    try:
        return domain.encode("idna").decode()
    except UnicodeError:
        return domain
