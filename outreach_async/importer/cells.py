"""Find cells that a spreadsheet or a wrong encoding damaged. All functions are pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple


class CellIssue(NamedTuple):
    """A problem with one cell.

    Attributes:
        column: Index of the column, from 0.
        kind: The kind of problem, in one word.
        message: The problem and its remedy.
        fatal: Whether the value is lost. If it is lost and the column maps to a field, the row has a fault.
    """

    column: int
    kind: str
    message: str
    fatal: bool = False


_EXACT_DIGITS: Final = 15
"""Maximum number of digits that a float and a spreadsheet preserve."""

_SCIENTIFIC: Final = re.compile(r"\s*[+-]?[0-9](?:[.,][0-9]+)?E\+[0-9]{2,}\s*")  # the form that spreadsheets write
_UNSENDABLE: Final = re.compile("[\0\ud800-\udfff]")

# UTF-8 read as Windows-1252: the first byte of a Latin, Cyrillic, punctuation or emoji character, then its continuation bytes.
_CONTINUATION: Final = f"[\x80-\x9f{bytes(range(0x80, 0xC0)).decode('cp1252', 'ignore')}]"
_MOJIBAKE_HINT: Final = re.compile("[Â-ÅÐÑâð\ud800-\udfff]")
_MOJIBAKE: Final = re.compile(f"[Â-Å]{_CONTINUATION}|(?:[ÐÑ]{_CONTINUATION}){{2,}}|â{_CONTINUATION}{{2}}|ð{_CONTINUATION}{{3}}")


def find_issues(cells: Sequence[str]) -> tuple[CellIssue, ...]:
    """Return the problems of a row's cells."""
    text = "\n".join(cells)  # one search per row is fast, and nearly all rows have no issue
    if "E+" not in text and "\0" not in text and (text.isascii() or not _MOJIBAKE_HINT.search(text)):
        return ()
    return tuple(issue for column, cell in enumerate(cells) for issue in _check_cell(column, cell))


def number_issue(column: int, text: str, *, exact: bool = False) -> CellIssue:
    """Return an issue for a cell that the file stores as a whole number.

    If the cell is a phone number or a postal code, leading zeros, a plus sign or digits may be lost.

    Args:
        column: Index of the column.
        text: The number.
        exact: Whether the file format preserves all digits of the number.
    """
    if not exact and len(text.lstrip("-")) > _EXACT_DIGITS:
        remedy = "restore the other digits, and format the cell as text"
        lost = f"{text} is a number in the file, which keeps only {_EXACT_DIGITS} digits; {remedy}"
        return CellIssue(column, "digits", lost, fatal=True)
    message = f"{text} is a number in the file, so leading zeros or a plus sign may be lost; format the cell as text"
    return CellIssue(column, "number", message)


def _check_cell(column: int, cell: str) -> Iterator[CellIssue]:
    if unsendable := _UNSENDABLE.search(cell):
        what = "a NUL character" if unsendable[0] == "\0" else "a lone surrogate (half a character)"
        yield CellIssue(column, "unsendable", f"the cell contains {what}; remove it", fatal=True)
    if _SCIENTIFIC.fullmatch(cell):
        lost = f"{cell.strip()!r} is a long number that a spreadsheet shortened, and its digits are lost; enter it again as text"
        yield CellIssue(column, "scientific", lost)
    for garbled in _MOJIBAKE.finditer(cell):
        if (meant := _repair(garbled[0])) is not None:
            message = f"{garbled[0]!r} is probably {meant!r}, read in the wrong encoding; export the file again as UTF-8"
            yield CellIssue(column, "mojibake", message)
            return


def _repair(text: str) -> str | None:
    """Undo the decoding of UTF-8 as Windows-1252; return `None` if that is not possible.

    Bytes that Windows-1252 does not define are assumed to have been kept unchanged.
    """
    try:
        return b"".join(char.encode("cp1252" if ord(char) > 0xFF else "latin-1") for char in text).decode()  # noqa: PLR2004 - a byte
    except UnicodeDecodeError:
        return None
