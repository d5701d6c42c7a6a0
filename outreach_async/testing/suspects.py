"""Find the knob values that explain under which pairwise behaviours a test failed and passed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

from outreach_async.fake.behaviour import READINGS, Behaviour
from outreach_async.testing.pairwise import pairwise
from outreach_async.testing.reports import reading, row_id

_Readings = frozenset[str]
_Causes = tuple[_Readings, ...]
"""Alternative causes: a row fails if it has every value of one of them."""

_SINGLES: Final = 4
"""Most single values that are combined as alternatives."""

_PAIRS: Final = 2
"""The same if pairs of values are included, which are too numerous to combine further."""

_SHOWN: Final = 8
"""Most explanations shown for a test."""


def suspects(failed: Collection[Behaviour], passed: Collection[Behaviour]) -> list[str]:
    """Find the fewest knob values that explain which rows failed: every failed row has one of them, and no passed row has any.

    If single values explain nothing, pairs of values are tried too.

    Args:
        failed: Behaviours under which a test failed; at least one.
        passed: Behaviours under which it passed.

    Returns:
        Explanations, starting with the one whose values are in most failed rows. Each lists its values in the syntax of a test,
        with alternatives joined by `or` and pairs by `and`. Several explanations fit equally well; there are none if the rows do
        not tell.
    """
    rows, innocent = [_written(behaviour) for behaviour in failed], [_written(behaviour) for behaviour in passed]
    singles = [cause for cause in _parts(rows, 1) if not any(cause <= row for row in innocent)]
    guilty = frozenset[str]().union(*singles)
    pairs = [pair for pair in _parts(rows, 2) if not pair & guilty and not any(pair <= row for row in innocent)]
    for causes, most in ((singles, _SINGLES), ([*singles, *pairs], _PAIRS)):
        for count in range(1, most + 1):
            found = set(_covers(rows, causes, count))
            if found:
                return [_text(cover) for cover in sorted(found, key=lambda cover: (-_weight(cover, rows), _text(cover)))]
    return []


def _parts(rows: Sequence[_Readings], size: int) -> list[_Readings]:
    return list(dict.fromkeys(frozenset(part) for row in rows for part in combinations(sorted(row), size)))


def _covers(rows: Sequence[_Readings], causes: Sequence[_Readings], count: int) -> Iterator[_Causes]:
    """Yield combinations of at most `count` causes such that every row has one of them."""
    if not rows:
        yield ()
    elif count:
        # One of the causes must be in the first row.
        for cause in causes:
            if cause <= rows[0]:
                left = [row for row in rows if not cause <= row]
                yield from (tuple(sorted((cause, *others), key=sorted)) for others in _covers(left, causes, count - 1))


def _weight(causes: _Causes, rows: Sequence[_Readings]) -> int:
    return sum(cause <= row for cause in causes for row in rows)


def _text(causes: _Causes) -> str:
    return " or ".join(" and ".join(sorted(cause)) for cause in causes)


def _written(behaviour: Behaviour) -> _Readings:
    return frozenset(f"{knob}={reading(getattr(behaviour, knob))}" for knob in READINGS)


def verdicts(ran: Iterable[tuple[str, int, bool]]) -> list[str]:
    """Return one line for each test that failed under some rows, with the values that these rows share.

    Args:
        ran: For each run the test's id, the number of the row, and whether it failed. A row may occur several times.
    """
    tests: dict[str, dict[int, bool]] = {}
    for name, row, failed in ran:
        rows = tests.setdefault(name.replace(row_id(row), "row*"), {})
        rows[row] = rows.get(row, False) or failed
    return [_verdict(name, rows) for name, rows in tests.items() if any(rows.values())]


def _verdict(name: str, rows: Mapping[int, bool]) -> str:
    failed = [pairwise()[row] for row, bad in rows.items() if bad]
    passed = [pairwise()[row] for row, bad in rows.items() if not bad]
    found = suspects(failed, passed) if passed else []
    line = f"{name} failed under {len(failed)} of {len(rows)} behaviours"
    if not found:
        return line
    more = [f"{len(found) - _SHOWN} more explanations"] if len(found) > _SHOWN else []
    return f"{line}: {'; or '.join([*(f'those with {text}' for text in found[:_SHOWN]), *more])}"
