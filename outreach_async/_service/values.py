"""Turn the text of a cell into the value of a field: undo or find what spreadsheets, exports and wrong encodings did to it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from outreach_async._vocabulary import STANDARD_FIELDS


class Change(NamedTuple):
    """What was changed in a text, or found in it: a `value` is sent instead, a text without one is sent as it is."""

    kind: str
    message: str
    value: str | None = None
    damaged: bool = False


DIGIT_FIELDS: Final = frozenset({"mobile_phone", "work_phone", "home_phone", "voip_phone", "other_phone", "zip"})
"""Fields whose values lose leading zeros and plus signs if a program stores them as numbers."""
_SINGLE_FIELDS: Final = {"email", *STANDARD_FIELDS} - {"personal_note"}  # notes and custom fields may contain the text `:::`
_EXACT_DIGITS: Final = 15  # maximum number of digits that both a float and a spreadsheet preserve

_SCIENTIFIC: Final = re.compile(r"\s*[+-]?[0-9](?:[.,][0-9]+)?E\+[0-9]{2,}\s*")  # the form that spreadsheets write
_UNSENDABLE: Final = re.compile("[\0\ud800-\udfff]")
# The forms in which programs write a whole number stored as a float or a decimal. Three zeros are thousands: `1,000`.
_DECIMAL: Final = re.compile(r"([0-9]{1,15})[.,]0{1,2}")
_SEVERAL: Final = ":::"  # the separator with which Google Contacts writes several values into one cell

_ERROR_VALUES: Final = frozenset(
    {
        *("#N/A", "#REF!", "#NAME?", "#VALUE!", "#DIV/0!", "#NUM!", "#NULL!", "#SPILL!", "#CALC!", "#FIELD!", "#ERROR!"),
        *("#NV", "#BEZUG!", "#WERT!", "#ZAHL!", "#VALEUR!", "#NOM?", "#NOMBRE!"),
        *("#¡REF!", "#¿NOMBRE?", "#¡VALOR!", "#¡DIV/0!", "#¡NUM!", "#RIF!", "#NOME?", "#VALORE!", "#N/D", "#VALOR!", "#NÚM!"),
        *("#N/B", "#VERW!", "#NAAM?", "#WAARDE!", "#DEEL/0!", "#GETAL!"),
        *("#N/D!", "#ADR!", "#NAZWA?", "#ARG!", "#DZIEL/0!", "#LICZBA!", "#ODKAZ!", "#NÁZEV?", "#HODNOTA!", "#ČÍSLO!"),
    }
)
"""The error values of Excel in English, German, French, Spanish, Italian, Portuguese, Dutch, Polish and Czech."""
_MISSING_VALUES: Final = frozenset({"NULL", "nan", "NaN", "NaT", "<NA>", "None"})
"""The texts that databases, pandas and Python write for a missing value. Case matters: `Null` and `Nan` are names."""
_HINTS: Final = ("E+", "\0", _SEVERAL, ".0", ",0", "#", *_MISSING_VALUES)
"""A row without these texts has no issue if it is ASCII. A few searches per row are fast, and nearly all rows have none."""

# UTF-8 read as Windows-1252: the first byte of a Latin, Cyrillic, punctuation or emoji character, then its continuation bytes.
_CONTINUATION: Final = f"[\x80-\x9f{bytes(range(0x80, 0xC0)).decode('cp1252', 'ignore')}]"
_MOJIBAKE_HINT: Final = re.compile("[Â-ÅÐÑâð\ud800-\udfff]")
_MOJIBAKE: Final = re.compile(f"[Â-Å]{_CONTINUATION}|(?:[ÐÑ]{_CONTINUATION}){{2,}}|â{_CONTINUATION}{{2}}|ð{_CONTINUATION}{{3}}")


def read_value(code: str, text: str) -> tuple[str, tuple[Change, ...]]:
    """Return the value to send in the field `code`, and what was changed or found."""
    changes = tuple(_find_changes(code, text)) if find_suspects(code, (text,)) else ()
    return next((change.value for change in reversed(changes) if change.value is not None), text), changes


def find_suspects(_code: str, texts: Collection[str]) -> set[str]:
    """Return the texts for which `read_value` may return a change. It is fast, because nearly all texts are plain."""
    return {text for text in texts if _has_hint(text)} if _has_hint("\n".join(texts)) else set()


def _has_hint(text: str) -> bool:
    """Return whether one of the cells in `text` may have a problem."""
    return any(map(text.__contains__, _HINTS)) or not (text.isascii() or _MOJIBAKE_HINT.search(text) is None)


def number_change(text: str, *, exact: bool = False) -> Change:
    # Leading zeros, a plus sign or digits may be lost if the cell is a phone number or a postal code.
    if not exact and len(text.lstrip("-")) > _EXACT_DIGITS:
        remedy = "restore the other digits, and format the cell as text"
        lost = f"{text} is a number in the file, and only its first {_EXACT_DIGITS} digits are exact; {remedy}"
        return Change("digits", lost, damaged=True)
    message = f"{text} is a number in the file, so leading zeros or a plus sign may be lost; format the cell as text"
    return Change("number", message)


def error_change(what: str = "the cell's value is an error such as #N/A") -> Change:
    return Change("error", f"{what} and is not sent; fix the formula, or clear the cell", value="")


def _find_changes(code: str, cell: str) -> Iterator[Change]:
    text = cell.strip()
    if text in _ERROR_VALUES:
        yield error_change(f"{text!r} is an error of a spreadsheet")
    elif text in _MISSING_VALUES:
        yield Change("missing", f"{text!r} stands for a missing value and is not sent; clear the cell", value="")
    elif code in DIGIT_FIELDS and (number := _DECIMAL.fullmatch(text)):
        message = f"{text!r} is a number in the file and is sent as {number[1]!r}, so leading zeros or a plus sign may be lost"
        yield Change("decimal", f"{message}; format the cell as text", value=number[1])
    elif code in _SINGLE_FIELDS and _SEVERAL in text and (values := _split_values(text)):
        message = f"the cell has {len(values)} values, separated by {_SEVERAL!r}, and only the first is sent: {values[0]!r}"
        yield Change("several", f"{message}; keep one value", value=values[0])
    if unsendable := _UNSENDABLE.search(cell):
        what = "a NUL character" if unsendable[0] == "\0" else "a lone surrogate (half a character)"
        yield Change("unsendable", f"the cell contains {what}; remove it", damaged=True)
    if _SCIENTIFIC.fullmatch(cell):
        lost = f"{text!r} is a long number that a spreadsheet shortened, and its digits are lost; enter it again as text"
        yield Change("scientific", lost, damaged=code in DIGIT_FIELDS)
    for garbled in () if cell.isascii() else _MOJIBAKE.finditer(cell):
        # Windows-1252 does not define some bytes. It is assumed that such a byte was decoded as Latin-1.
        with suppress(UnicodeDecodeError):
            bytes_read = (char.encode("cp1252" if ord(char) > 0xFF else "latin-1") for char in garbled[0])  # noqa: PLR2004 - a byte
            message = f"{garbled[0]!r} is probably {b''.join(bytes_read).decode()!r}, read in the wrong encoding"
            yield Change("mojibake", f"{message}; export the file again as UTF-8")
            return


def _split_values(text: str) -> list[str]:
    return [value.strip() for value in text.split(_SEVERAL) if value.strip()]
