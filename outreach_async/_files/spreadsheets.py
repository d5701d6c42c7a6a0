"""Escape strings for spreadsheets, and restore the original strings."""

from __future__ import annotations

import re
from typing import Final

# The start of a formula. The last four characters are full-width forms, which East Asian spreadsheet programs also accept. A
# formula may follow apostrophes or quotation marks: `unescape_formula` removes one apostrophe, so `'=1` is escaped as `''=1`, and
# a program that reads `"=1` may remove the quotation mark.
_FORMULA: Final = r"['\"]*[=+\-@\t\n\uff1d\uff0b\uff0d\uff20]"
_CELL_START: Final = r"(?<![^,;|\t\n])"  # the start of the string, or the position after a possible delimiter
_UNESCAPED_FORMULA: Final = re.compile(f"{_CELL_START}(?={_FORMULA})")
_ESCAPED_FORMULA: Final = re.compile(f"{_CELL_START}'(?={_FORMULA})")

_CONTROL: Final = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
_CONTROL_CODE: Final = "x(?:0[0-8b-f]|1[0-9a-f]|7f|[89][0-9a-f])"
_UNESCAPED_CONTROL: Final = re.compile(rf"(?<!\\)(?:(\\*+)({_CONTROL})|(\\++)(?={_CONTROL_CODE}))")
_ESCAPED_CONTROL: Final = re.compile(rf"(?<!\\)(\\++)({_CONTROL_CODE})")


def escape_formula(text: str) -> str:
    r"""Escape a string for a spreadsheet cell; `unescape_formula` restores it."""
    # An apostrophe before a formula keeps a spreadsheet from evaluating it, also after a delimiter, where the cell may be split.
    # Control characters other than newline and tab become escapes such as `\x1b`.
    return _UNESCAPED_FORMULA.sub("'", _UNESCAPED_CONTROL.sub(_escape_control, text))


def unescape_formula(text: str) -> str:
    """Return the string that was passed to `escape_formula`."""
    return _ESCAPED_CONTROL.sub(_unescape_control, _ESCAPED_FORMULA.sub("", text))


def _escape_control(match: re.Match[str]) -> str:
    """Double the backslashes of a match, and replace its control character, if any, with a hexadecimal escape."""
    return 2 * match[3] if match[2] is None else f"{2 * match[1]}\\x{ord(match[2]):02x}"


def _unescape_control(match: re.Match[str]) -> str:
    backslashes, is_escape = divmod(len(match[1]), 2)
    return "\\" * backslashes + (chr(int(match[2][1:], 16)) if is_escape else match[2])
