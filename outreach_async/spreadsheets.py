"""Texts that are safe in a spreadsheet, and what they were before."""

from __future__ import annotations

import re
from typing import Final

_FORMULA: Final = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
"""What makes a spreadsheet run a cell; the last four are the full-width forms, which East Asian versions take too. Apostrophes
before it count as well, so that those of a text can be told from ours."""


def shield(text: str) -> str:
    """Keep a spreadsheet from running a text as a formula, by an apostrophe before it."""
    return f"'{text}" if _FORMULA.match(text) else text


def unshield(text: str) -> str:
    """Return what `shield` was given."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
