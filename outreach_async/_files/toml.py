"""Parse TOML in bounded time: `tomllib` needs minutes for a key with thousands of parts, and fails on deep nesting."""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

_MAX_PARTS: Final = 10
_PART: Final = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
# A key begins a line, a table or a member. No part of the pattern gives characters back, so the search is fast on any text.
_LONG_KEY: Final = re.compile(rf"(?:^|[\[{{,])[ \t]*+{_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{_MAX_PARTS}}}", re.MULTILINE)


class UnusualTomlError(tomllib.TOMLDecodeError):
    """Raised for a document that is valid, but that nobody writes."""

    def __init__(self, text: str) -> None:
        ValueError.__init__(self, text)  # newer versions of Python expect a position in the initializer of the class above


def parse_toml(text: str) -> dict[str, Any]:
    if found := _LONG_KEY.search(text):
        raise UnusualTomlError(f"a key has more than {_MAX_PARTS} parts (at line {text.count(chr(10), 0, found.start()) + 1})")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise UnusualTomlError("a value is nested too deeply") from None
    except ValueError:  # Python limits the digits that it converts
        raise UnusualTomlError("a number has too many digits") from None
