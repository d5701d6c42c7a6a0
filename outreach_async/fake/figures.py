"""Percentages as the service writes them (rules T8 and W9)."""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Literal

import attrs


@attrs.frozen
class Figures:
    """How percentages are written.

    Attributes:
        numbers: Whole ones as integers, all as floats, or whole ones either way.
        digits: Decimal places.
    """

    numbers: Literal["int_when_whole", "float", "mixed"]
    digits: int

    def percent(self, n: int, of: int, salt: str) -> float:
        """Work out `100 * n / of`, rounded half to even; 0 of nothing.

        Args:
            n: The part.
            of: The whole.
            salt: What the number is called where it stands, such as `camp_1.opens`: `mixed` decides by it, so that a number keeps
                its form from answer to answer.
        """
        value = _rounded(n, of, self.digits)
        whole = value.is_integer() and self.numbers != "float"
        return int(value) if whole and (self.numbers == "int_when_whole" or zlib.crc32(salt.encode()) & 1) else value


@lru_cache(maxsize=16_384)  # a page of mailboxes has thousands of them, and the next one the same
def _rounded(n: int, of: int, digits: int) -> float:
    # In integers: 100 * n / of is seldom a binary fraction, and its float is not where the half is.
    if of <= 0:
        return 0.0
    scale = 10**digits
    quotient, rest = divmod(100 * scale * n, of)
    if 2 * rest > of or (2 * rest == of and quotient % 2):
        quotient += 1
    share: float = quotient / scale
    return share
