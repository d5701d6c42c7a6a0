"""Texts made fit to be shown."""

from __future__ import annotations

import re
from typing import Any, Final

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_KEY: Final = re.compile(r"\bkey_[^\s'\")]+")


def printable(value: Any) -> str:
    """Return a value as one line of text.

    What the service or a file says must not move the cursor, change colours or reverse the line: control characters are escaped.
    """
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.10g}"
        case _:
            return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), str(value))


def without_keys(text: str) -> str:
    """Return a text with every owner key masked: an argument in the wrong place comes back in the message about it."""
    return _KEY.sub("key_***", text)
