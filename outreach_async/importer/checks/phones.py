"""Check phone numbers against the numbering plans of their countries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from phonenumbers import PhoneMetadata, PhoneNumberDesc

_CACHED: Final = 1 << 14
_INTERNATIONAL: Final = re.compile(r"\+[ (]*[1-9][0-9 ().-]{5,23}")
_NATIONAL: Final = re.compile(r"[(]*[0-9][0-9 ().-]{5,23}")
_MARKS: Final = dict.fromkeys(map(ord, "+ ().-"))
_KINDS: Final = ("fixed_line", "mobile")
"""Nearly all numbers of people; the library checks the rest."""
_LONGEST_CODE: Final = 3
"""Most digits of a country's calling code."""


def complaint(number: tuple[str, str | None]) -> str | None:
    """Return the problem of a phone number; `None` if it is valid.

    Args:
        number: The number, and the two-letter code of its country in case it has no country code.
    """
    text, country = number
    return None if not text or _is_plain(text, country) else _looked_up(text, country)


def _is_plain(text: str, country: str | None) -> bool:
    """Return whether a number is valid at first sight. The library takes fifty times as long, and agrees."""
    if text[0] == "+":
        if not _INTERNATIONAL.fullmatch(text):
            return False
        digits = text.translate(_MARKS)
        pattern, length = _international(digits[:_LONGEST_CODE])
        return pattern is not None and pattern.fullmatch(digits, length) is not None
    if country and _NATIONAL.fullmatch(text):
        pattern, prefix = _national(country)
        digits = text.translate(_MARKS)
        dialled = prefix.match(digits) if prefix else None
        return pattern is not None and pattern.fullmatch(digits, dialled.end() if dialled else 0) is not None
    return False


@lru_cache(maxsize=_CACHED)
def _looked_up(text: str, country: str | None) -> str | None:
    import phonenumbers

    try:
        number = phonenumbers.parse(text, country)
    except phonenumbers.NumberParseException as error:
        if error.error_type == phonenumbers.NumberParseException.INVALID_COUNTRY_CODE and not text.lstrip().startswith("+"):
            return "the country is unknown; add the country code, as in +1 206 555 0100"
        return f"not a phone number: {error}"
    return None if phonenumbers.is_valid_number(number) else f"not a valid number of +{number.country_code}"


@cache
def _international(beginning: str) -> tuple[re.Pattern[str] | None, int]:
    """Return a pattern for the numbers of the countries with the calling code that the digits begin with, and its length."""
    import phonenumbers

    for length in range(1, _LONGEST_CODE + 1):
        regions = phonenumbers.region_codes_for_country_code(int(beginning[:length]))
        if regions and "001" not in regions:
            return _of_regions(regions), length
    return None, 0


@cache
def _national(region: str) -> tuple[re.Pattern[str] | None, re.Pattern[str] | None]:
    """Return a pattern for the numbers of a country, and one for the prefix dialled within the country."""
    from phonenumbers import PhoneMetadata

    metadata = PhoneMetadata.metadata_for_region(region, None)
    if metadata is None or metadata.national_prefix_transform_rule is not None:
        return None, None
    prefix = metadata.national_prefix_for_parsing
    return _of_regions((region,)), re.compile(prefix) if prefix else None


@cache
def _of_regions(regions: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern for the numbers of countries, as dialled from abroad."""
    from phonenumbers import PhoneMetadata

    known = filter(None, (PhoneMetadata.metadata_for_region(region, None) for region in regions))
    return re.compile("|".join(pattern for metadata in known for pattern in _patterns(metadata)))


def _patterns(metadata: PhoneMetadata) -> Iterator[str]:
    for kind in _KINDS:
        described: PhoneNumberDesc | None = getattr(metadata, kind)
        if described is not None and described.national_number_pattern:
            yield f"(?:{described.national_number_pattern})\\Z"
