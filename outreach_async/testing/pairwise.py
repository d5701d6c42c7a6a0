"""Pairwise coverage of the fake's knobs: a few behaviours that cover every pair of values of any two knobs.

Most bugs that depend on knobs depend on only one or two knobs. About thirty behaviours are enough to find these bugs, although
there are billions of combinations of all knobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations_with_replacement
from typing import Any

from outreach_async.fake.behaviour import KNOB_NAMES, KNOB_VALUES, Behaviour

_FactorLevel = tuple[int, int]
"""A factor and one of its levels, both as indexes."""


def cover_pairs(levels: Sequence[int]) -> list[tuple[int, ...]]:
    """Choose rows, each with one level per factor, that cover every level and every pair of levels of any two factors.

    The first row has level 0 of every factor. The result is deterministic.

    Args:
        levels: Number of levels of each factor.

    Returns:
        The rows. Each row contains the index of a level for every factor. The algorithm is greedy: the number of rows is close to
        the minimum, but not always minimal.
    """
    values = [(factor, level) for factor, count in enumerate(levels) for level in range(count)]
    # A dict instead of a set, because a dict keeps its order. A value paired with itself stands for the single value.
    pairs = combinations_with_replacement(values, 2)
    missing = dict.fromkeys((one, other) for one, other in pairs if one == other or one[0] != other[0])
    rows = [(0,) * len(levels)]
    _remove_covered(missing, rows[0])
    while missing:
        rows.append(_build_row(levels, missing))
        _remove_covered(missing, rows[-1])
    return rows


def _remove_covered(missing: dict[tuple[_FactorLevel, _FactorLevel], None], row: Sequence[int]) -> None:
    for pair in combinations_with_replacement(enumerate(row), 2):
        missing.pop(pair, None)


def _build_row(levels: Sequence[int], missing: dict[tuple[_FactorLevel, _FactorLevel], None]) -> tuple[int, ...]:
    """Build a row from the first missing pair: for every other factor, choose the level that covers the most missing pairs."""
    chosen = dict(next(iter(missing)))
    for factor in sorted(range(len(levels)), key=lambda factor: -levels[factor]):
        if factor not in chosen:
            chosen[factor] = max(range(levels[factor]), key=lambda level: _count_gain((factor, level), chosen, missing))
    return tuple(chosen[factor] for factor in range(len(levels)))


def _count_gain(value: _FactorLevel, chosen: dict[int, int], missing: dict[tuple[_FactorLevel, _FactorLevel], None]) -> int:
    return sum((min(value, other), max(value, other)) in missing for other in chosen.items())


@cache
def pairwise() -> tuple[Behaviour, ...]:
    """Return behaviours that cover every pair of values of any two knobs. The first behaviour is `Behaviour.documented()`.

    `auth`, `rate_limit` and the other knobs without a list of values keep their defaults.

    Example:
        ```python
        print(len(pairwise()), pairwise()[0] == Behaviour.documented())  # -> 28 True
        ```
    """
    rows = cover_pairs([len(values) for values in KNOB_VALUES.values()])
    knobs = KNOB_VALUES.items()
    return tuple(Behaviour(**{knob: values[level] for (knob, values), level in zip(knobs, row, strict=True)}) for row in rows)


def differing(behaviour: Behaviour) -> dict[str, Any]:
    """Return the knobs of a behaviour that are not at their default, with their values.

    Example:
        ```python
        print(differing(Behaviour(past_end="clamp")))  # -> {'past_end': 'clamp'}
        ```
    """
    default = Behaviour()
    return {name: value for name in KNOB_NAMES if (value := getattr(behaviour, name)) != getattr(default, name)}
