"""Percentages in the service's format (rules T8 and W9)."""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Literal

import attrs


@attrs.frozen
class Figures:
    """The format of percentages.

    Attributes:
        numbers: Whole percentages as integers, all as floats, or whole ones in either form.
        digits: Number of decimal places.
    """

    numbers: Literal["int_when_whole", "float", "mixed"]
    digits: int

    def percent(self, n: int, of: int, salt: str) -> float:
        """Return `100 * n / of`, rounded half to even; 0 if `of` is 0.

        Args:
            n: The part.
            of: The whole.
            salt: A name of the number, such as `camp_1.opens`. `mixed` derives the form from it: a number has the same form in
                every response.
        """
        value = _rounded(n, of, self.digits)
        whole = value.is_integer() and self.numbers != "float"
        return int(value) if whole and (self.numbers == "int_when_whole" or zlib.crc32(salt.encode()) & 1) else value


@lru_cache(maxsize=16_384)  # a page of mailboxes has thousands of percentages, and the next page mostly the same ones
def _rounded(n: int, of: int, digits: int) -> float:
    # Integer arithmetic: a float of 100 * n / of is rarely exact, and would put exact halves on the wrong side.
    if of <= 0:
        return 0.0
    scale = 10**digits
    quotient, rest = divmod(100 * scale * n, of)
    if 2 * rest > of or (2 * rest == of and quotient % 2):
        quotient += 1
    share: float = quotient / scale
    return share
