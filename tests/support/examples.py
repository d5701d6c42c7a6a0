"""The number of examples of a property test, by profile."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

_REFERENCE: Final = 60


def scaled(examples: int) -> int:
    """Return how many examples to try in the current profile; `examples` is the number for a profile with 60."""
    return max(1, examples * settings().max_examples // _REFERENCE)
