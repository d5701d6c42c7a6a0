"""Scale the number of examples of a property test to the current Hypothesis profile."""

from __future__ import annotations

from typing import Final

from hypothesis import Phase, settings

WITHOUT_SHRINKING: Final = (Phase.explicit, Phase.reuse, Phase.generate)
"""The phases of tests that draw whole reports, which take minutes to shrink."""

_REFERENCE: Final = 60


def scaled(examples: int) -> int:
    """Return the number of examples in the current profile; `examples` is the number in a profile with 60 examples."""
    return max(1, examples * settings().max_examples // _REFERENCE)
