"""Find the encodings that can decode a text file, and show how each reads a cell of the file.

Nearly every encoding with one byte per character can decode nearly every file, and statistics cannot tell two of them apart: the
Polish `Łukasz` in Windows-1250 is `£ukasz` in Windows-1252. Only a person who knows the names can choose, so this module guesses
no encoding. It only leaves out encodings that are impossible, and sorts implausible ones last.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import BinaryIO, Final
from unicodedata import category, name

from outreach_async._service.validation import masked_repr
from outreach_async.errors import shorten

_ENCODINGS: Final = (
    *("utf-8", "cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "iso8859_2"),
    *("cp932", "gb18030", "euc_kr", "big5", "mac_roman", "cp852", "cp850"),
)
"""Encodings of spreadsheet programs and CRMs, the most common ones first. cp850 and cp852 are those of `CSV (MS-DOS)`."""
_ASCII: Final = bytes(range(0x80))
_MAX_SHOWN: Final = 6
_MAX_LENGTH: Final = 40  # characters of a sample cell that are shown
_MAX_SAMPLES: Final = 3  # cells that are shown for each encoding
_MAX_LINE_LENGTH, _MAX_EVIDENCE = 1 << 14, 1 << 17  # bytes of a line, and of all lines, that are decoded: the search is fast
_IMPOSSIBLE: Final = frozenset({"Cc", "Cn", "Co"})  # no text has control characters, or characters without a meaning
_TYPOGRAPHIC: Final = frozenset("\xa0€°«»‘’‚“”„•–—…ºª")  # noqa: RUF001 - as programs write them
_CELL: Final = re.compile(r'[^,;|"\t\r\n]+')
_WORD: Final = re.compile(r"[^\W\d_]+")
_MAX_ACCENTED: Final = 2  # letters of a Latin word that may have mostly accents, such as `où`


def describe_candidates(file: BinaryIO) -> str:
    """Return an option for each encoding that can decode a file, with cells that it reads. The most plausible six are listed."""
    # Encodings that decode the file to the same text are listed once. The file is read to its end.
    evidence = _collect_evidence(file)
    texts: dict[str, str] = {}
    for encoding in _ENCODINGS if b"\0" not in evidence else ():
        try:
            text = evidence.decode(encoding)
        except UnicodeDecodeError:
            continue
        if not any(category(char) in _IMPOSSIBLE for char in set(text) if not char.isascii()):
            texts.setdefault(text, encoding)

    def count_oddities(text: str) -> int:
        symbols = sum(not char.isascii() and not char.isalpha() and char not in _TYPOGRAPHIC for char in text)
        return symbols + sum(map(_is_odd, _WORD.findall(text)))

    best = sorted(texts, key=count_oddities)[:_MAX_SHOWN]
    samples = _choose_samples(best) if best else ()
    return "; ".join(
        f"--encoding {texts[text]} reads {' and '.join(masked_repr(shorten(cell.strip(), _MAX_LENGTH)) for cell in cells)}"
        for text, cells in zip(best, samples, strict=True)
    )


def _collect_evidence(file: BinaryIO) -> bytes:
    """Return the lines that contain a non-ASCII byte that no earlier line contains."""
    # Two encodings with one byte per character that decode these lines equally also decode the whole file equally.
    seen: set[int] = set()
    lines: list[bytes] = []
    while sum(map(len, lines)) < _MAX_EVIDENCE and (line := file.readline(_MAX_LINE_LENGTH)):
        if not line.isascii() and not seen.issuperset(new := line.translate(None, _ASCII)):
            seen.update(new)
            lines.append(line)
    return b"".join(lines)


def _is_odd(word: str) -> bool:
    """Return whether a word mixes scripts, has an unusual capital letter, or consists mostly of letters with accents."""
    if word.isascii():
        return False
    scripts = {name(char, "").partition(" ")[0] for char in word} - {"COMBINING", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"}
    if len(scripts) > 1 or "HALFWIDTH" in scripts:
        return True
    if scripts == {"LATIN"} and sum(map(str.isascii, word)) * 2 < len(word) > _MAX_ACCENTED:
        return True
    return any(before.islower() and after.isupper() for before, after in pairwise(word))


def _choose_samples(texts: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the same few cells of each text: short ones, chosen so that no two texts have the same cells."""
    cells = list(zip(*map(_CELL.findall, texts), strict=False))  # multi-byte encodings may have other cells near the end
    samples: list[tuple[str, ...]] = [()] * len(texts)

    def rate(cell: Sequence[str]) -> tuple[bool, bool, int, int]:
        readings = len(set(zip(samples, cell, strict=True)))
        return readings > len(set(samples)), max(map(len, cell)) <= _MAX_LENGTH, readings, len(set("".join(cell)))

    for _ in range(_MAX_SAMPLES):
        cell = max(cells, key=rate)
        samples = [(*chosen, reading) for chosen, reading in zip(samples, cell, strict=True)]
        if len(set(samples)) == len(texts):
            break
    return samples
