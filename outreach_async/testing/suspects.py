"""Which readings a test cannot bear, told from the rows of a cover that it failed and passed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations

from outreach_async.fake.behaviour import READINGS, Behaviour
from outreach_async.testing.pairwise import pairwise
from outreach_async.testing.reports import reading, row_id

_Readings = frozenset[str]


def suspects(failed: Collection[Behaviour], passed: Collection[Behaviour]) -> list[str]:
    """Find the readings that all failed rows share and no passed row has; pairs of them if no single one is so.

    Args:
        failed: Behaviours under which a test failed; one at least.
        passed: Those under which it passed.

    Returns:
        Readings as they are written in a test, pairs joined by `and`; none if the cover cannot tell.
    """
    shared = _shared([_written(behaviour) for behaviour in failed])
    innocent = [_written(behaviour) for behaviour in passed]
    for size in (1, 2):
        found = [some for some in combinations(shared, size) if not any(set(some) <= row for row in innocent)]
        if found:
            return [" and ".join(some) for some in found]
    return []


def _shared(rows: Sequence[_Readings]) -> list[str]:
    return sorted(rows[0].intersection(*rows[1:]))


def _written(behaviour: Behaviour) -> _Readings:
    return frozenset(f"{knob}={reading(getattr(behaviour, knob))}" for knob in READINGS)


def verdicts(ran: Iterable[tuple[str, int, bool]]) -> list[str]:
    """Say of each test that failed under some rows of the cover what those share, a line each.

    Args:
        ran: Of each run the test's id, the number of the row, and whether it failed. A row may come several times.
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
    return f"{line}: those with {', or with '.join(found)}" if found else line
