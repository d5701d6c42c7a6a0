"""Where rows come from, and which of them must not overtake each other."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Final

import anyio

from outreach_async.checks import kind
from outreach_async.contacts import NewContact
from outreach_async.errors import InvalidRequest

_REMEDY: Final = "pass a list, a generator or an async generator of contacts"
END: Final = object()
"""What `Source.pull` returns when there is no further row."""


class Source:
    """Rows, pulled one at a time by many tasks.

    Raises:
        InvalidRequest: Not an iterable of rows: a single contact, a mapping or a text is one row or none.
    """

    def __init__(self, rows: Iterable[Any] | AsyncIterable[Any]) -> None:
        if isinstance(rows, str | bytes | Mapping | NewContact):
            raise InvalidRequest(f"rows: expected many contacts, got one {kind(rows)}; {_REMEDY}")
        self._turn = anyio.Lock(fast_acquire=True)
        self._many: Iterator[Any] | None = None
        self._stream: AsyncIterator[Any] | None = None
        if isinstance(rows, AsyncIterable):
            self._stream = aiter(rows)
        elif isinstance(rows, Iterable):
            self._many = iter(rows)
        else:
            raise InvalidRequest(f"rows: expected an iterable of contacts, got {kind(rows)}; {_REMEDY}")

    async def pull(self) -> Any:
        """Return the next row, or `END`; what the rows' own code raises passes through."""
        if self._many is not None:
            return next(self._many, END)
        async with self._turn:  # an async generator refuses to be asked twice at a time
            return await anext(self._stream, END) if self._stream is not None else END


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
