"""Escape strings for spreadsheets, and restore the original strings."""

from __future__ import annotations

import re
from typing import Final

_FORMULA: Final = r"['\"]*[=+\-@\t\n\uff1d\uff0b\uff0d\uff20]"
"""Pattern for the start of a cell that a spreadsheet evaluates as a formula.

The last four characters are full-width forms, which East Asian versions of spreadsheet programs also accept.

The pattern also matches a formula after apostrophes or quotation marks. The cell `'=1` is escaped as `''=1`, because
`unescape_formula` removes one apostrophe. The cell `"=1` is escaped, because a program that reads the file may remove the
quotation mark and evaluate the rest as a formula.
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
    r"""Escape a string for a spreadsheet cell; `unescape_formula` restores it."""
    # If the string starts with a formula, an apostrophe is added in front, so that a spreadsheet does not evaluate it. An
    # apostrophe is also added to each formula after a delimiter such as a comma or semicolon, because a spreadsheet may split the
    # cell there. Control characters other than newline and tab become escapes such as `\x1b`.
    return _UNESCAPED_FORMULA.sub("'", _UNESCAPED_CONTROL.sub(_escape_control, text))


def unescape_formula(text: str) -> str:
    """Return the string that was passed to `escape_formula`."""
    return _ESCAPED_CONTROL.sub(_unescape_control, _ESCAPED_FORMULA.sub("", text))


def _escape_control(match: re.Match[str]) -> str:
    """Double the backslashes of a match, and replace its control character, if any, with a hexadecimal escape."""
    if match[2] is None:
        return 2 * match[3]
    return f"{2 * match[1]}\\x{ord(match[2]):02x}"


def _unescape_control(match: re.Match[str]) -> str:
    backslashes, is_escape = divmod(len(match[1]), 2)
    return "\\" * backslashes + (chr(int(match[2][1:], 16)) if is_escape else match[2])
