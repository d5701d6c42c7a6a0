"""Parse response heads with llhttp. Importing this module imports httptools, which is llhttp for Python."""

from __future__ import annotations

from typing import Final

import httptools

VERSION: Final[str] = httptools.__version__


class _Collector:
    def __init__(self) -> None:
        self.fields: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value.rstrip()))


def parse_by_llhttp(head: bytes) -> list[tuple[bytes, bytes]]:
    """Return the header fields of a response head; see `HeadParser`."""
    collector = _Collector()
    try:
        httptools.HttpResponseParser(collector).feed_data(head)
    except httptools.HttpParserError as error:
        raise ValueError from error
    return collector.fields
