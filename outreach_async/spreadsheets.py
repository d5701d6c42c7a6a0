"""Strings that are safe in a spreadsheet, and the way back."""

from __future__ import annotations

import re
from typing import Final

_FORMULA: Final = r"['\"]*[=+\-@\t\n\uff1d\uff0b\uff0d\uff20]"
"""What makes a spreadsheet run a cell; the last four are the full-width forms, which East Asian versions accept too. Apostrophes
before it count as well, so that those of a string can be told from ours; so do quotes, which a reader may take off."""
_START: Final = r"(?<![^,;|\t\n])"
"""Where a cell may begin: at the start of a string, and after every character that a reader may take for a delimiter."""
_EXPOSED: Final = re.compile(f"{_START}(?={_FORMULA})")
_SHIELDED: Final = re.compile(f"{_START}'(?={_FORMULA})")

_CONTROL: Final = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
_CODE: Final = "x(?:0[0-8b-f]|1[0-9a-f]|7f|[89][0-9a-f])"
_RAW: Final = re.compile(rf"(?<!\\)(?:(\\*+)({_CONTROL})|(\\++)(?={_CODE}))")
_ESCAPED: Final = re.compile(rf"(?<!\\)(\\++)({_CODE})")


def shield(text: str) -> str:
    r"""Make a string safe in a cell; `unshield` restores it.

    An apostrophe keeps a spreadsheet from running the string, or a part of it if the spreadsheet splits cells at another
    delimiter, as a formula. Control characters other than newline and tab become escapes such as `\x1b`.
    """
    return _EXPOSED.sub("'", _RAW.sub(_escaped, text))


def unshield(text: str) -> str:
    """Return what `shield` was given."""
    return _ESCAPED.sub(_raw, _SHIELDED.sub("", text))


def _escaped(found: re.Match[str]) -> str:
    """Escape a control character. Backslashes before it, or before what looks like its escape, are doubled."""
    if found[2] is None:
        return 2 * found[3]
    return f"{2 * found[1]}\\x{ord(found[2]):02x}"


def _raw(found: re.Match[str]) -> str:
    backslashes, odd = divmod(len(found[1]), 2)
    return "\\" * backslashes + (chr(int(found[2][1:], 16)) if odd else found[2])
