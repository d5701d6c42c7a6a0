"""Escape strings for spreadsheets, and restore the original strings."""

from __future__ import annotations

import re
from typing import Final

_FORMULA: Final = r"['\"]*[=+\-@\t\n\uff1d\uff0b\uff0d\uff20]"
"""Pattern for the start of a cell that a spreadsheet evaluates as a formula.

The last four characters are full-width forms, which East Asian versions of spreadsheet programs also accept. The pattern
also matches a formula after leading apostrophes or quotation marks. A cell such as `'=1` gets another apostrophe, which
`unescape_formula` removes instead of the original one. A program that reads the file may remove leading quotation marks, which
would leave a formula.
"""
_CELL_START: Final = r"(?<![^,;|\t\n])"
"""Pattern for the positions where a cell may start: the start of the string, and the position after each possible delimiter."""
_UNESCAPED_FORMULA: Final = re.compile(f"{_CELL_START}(?={_FORMULA})")
_ESCAPED_FORMULA: Final = re.compile(f"{_CELL_START}'(?={_FORMULA})")

_CONTROL: Final = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
_CONTROL_CODE: Final = "x(?:0[0-8b-f]|1[0-9a-f]|7f|[89][0-9a-f])"
_UNESCAPED_CONTROL: Final = re.compile(rf"(?<!\\)(?:(\\*+)({_CONTROL})|(\\++)(?={_CONTROL_CODE}))")
_ESCAPED_CONTROL: Final = re.compile(rf"(?<!\\)(\\++)({_CONTROL_CODE})")


def escape_formula(text: str) -> str:
    r"""Escape a string for a spreadsheet cell; `unescape_formula` restores it.

    An apostrophe prevents a spreadsheet from evaluating the string as a formula. Apostrophes are also added within the string,
    because a spreadsheet may split cells at a delimiter other than that of the file. Control characters other than newline and
    tab become escapes such as `\x1b`.
    """
    return _UNESCAPED_FORMULA.sub("'", _UNESCAPED_CONTROL.sub(_escape_control, text))


def unescape_formula(text: str) -> str:
    """Return the string that was passed to `escape_formula`."""
    return _ESCAPED_CONTROL.sub(_unescape_control, _ESCAPED_FORMULA.sub("", text))


def _escape_control(match: re.Match[str]) -> str:
    """Return the replacement for a match: backslashes are doubled, and a control character becomes a hexadecimal escape."""
    if match[2] is None:
        return 2 * match[3]
    return f"{2 * match[1]}\\x{ord(match[2]):02x}"


def _unescape_control(match: re.Match[str]) -> str:
    backslashes, is_escape = divmod(len(match[1]), 2)
    return "\\" * backslashes + (chr(int(match[2][1:], 16)) if is_escape else match[2])
