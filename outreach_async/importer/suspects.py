"""Cells that do not hold what was meant, as far as their text tells; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple


class Flaw(NamedTuple):
    """What is wrong with one cell.

    Attributes:
        column: Its place in the row, from 0.
        kind: What was found, in one word.
        message: What is the matter, and what to do.
        fatal: Whether the cell is worthless, so that a row that would send it is at fault.
    """

    column: int
    kind: str
    message: str
    fatal: bool = False


_KEPT: Final = 15
"""Digits of a number that a float keeps, and so does a spreadsheet."""

_SCIENTIFIC: Final = re.compile(r"\s*[+-]?[0-9](?:[.,][0-9]+)?E\+[0-9]{2,}\s*")  # as spreadsheets write it
_UNSENDABLE: Final = re.compile("[\0\ud800-\udfff]")

# UTF-8 read as Windows-1252: a character that begins one of Latin, Cyrillic, punctuation or emoji, and what follows it there.
_REST: Final = f"[\x80-\x9f{bytes(range(0x80, 0xC0)).decode('cp1252', 'ignore')}]"
_RARE: Final = re.compile("[Â-ÅÐÑâð\ud800-\udfff]")
_MOJIBAKE: Final = re.compile(f"[Â-Å]{_REST}|(?:[ÐÑ]{_REST}){{2,}}|â{_REST}{{2}}|ð{_REST}{{3}}")


def suspects_of(cells: Sequence[str]) -> tuple[Flaw, ...]:
    """Return what is wrong with the cells of a row."""
    text = "\n".join(cells)  # one look at the row: nearly all rows have nothing to find, and a million of them add up
    if "E+" not in text and "\0" not in text and (text.isascii() or not _RARE.search(text)):
        return ()
    return tuple(flaw for column, cell in enumerate(cells) for look in _LOOKS if (flaw := look(column, cell)))


def number_flaw(column: int, text: str, *, exact: bool = False) -> Flaw:
    """Return what is wrong with a cell that holds a whole number, in case it goes to a field whose digits are none.

    Args:
        column: Its place in the row.
        text: The number.
        exact: Whether all of its digits are sure to be there.
    """
    if not exact and len(text.lstrip("-")) > _KEPT:
        lost = f"{text} is a number in the file, which keeps {_KEPT} of its digits; bring back the others, as text"
        return Flaw(column, "digits", lost, fatal=True)
    return Flaw(
        column,
        "number",
        f"{text} is a number in the file, which has lost zeros or a plus sign before it, if there were any; format it as text",
    )


def _unsendable(column: int, cell: str) -> Flaw | None:
    if found := _UNSENDABLE.search(cell):
        what = "a NUL character" if found[0] == "\0" else "half a character (a lone surrogate)"
        return Flaw(column, "unsendable", f"the cell holds {what}; take it out", fatal=True)
    return None


def _scientific(column: int, cell: str) -> Flaw | None:
    if _SCIENTIFIC.fullmatch(cell):
        return Flaw(
            column,
            "scientific",
            f"{cell.strip()!r} is what a spreadsheet made of a long number, whose digits are lost; bring it back as text",
        )
    return None


def _mojibake(column: int, cell: str) -> Flaw | None:
    for found in _MOJIBAKE.finditer(cell):
        if (meant := _repaired(found[0])) is not None:
            return Flaw(
                column, "mojibake", f"{found[0]!r} is probably {meant!r}, once read in the wrong encoding; export the file anew"
            )
    return None


def _repaired(text: str) -> str | None:
    """Return what a text was before its UTF-8 was read as Windows-1252, as programs do that leave undefined bytes alone."""
    try:
        written = b"".join(char.encode("cp1252" if ord(char) > 0xFF else "latin-1") for char in text)  # noqa: PLR2004 - a byte
        return written.decode()
    except UnicodeDecodeError:
        return None


_LOOKS: Final[Sequence[Callable[[int, str], Flaw | None]]] = (_unsendable, _scientific, _mojibake)
