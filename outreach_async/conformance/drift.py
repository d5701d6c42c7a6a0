"""Compares what is measured with what an earlier run measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from outreach_async.conformance.findings import Finding
from outreach_async.fake.behaviour import HeaderAuth

Readings = Mapping[str, tuple[Any, ...]]
"""Possible readings by knob, as a behaviour file holds them."""


@attrs.frozen
class Drift:
    """A knob that is read another way than before.

    Attributes:
        knob: Its name.
        was: The readings that were possible.
        now: Those that are.
        how: How that was seen.
    """

    knob: str
    was: tuple[Any, ...]
    now: tuple[Any, ...]
    how: str

    def __str__(self) -> str:
        return f"{self.knob} was {_either(self.was)}, is now {_either(self.now)}: {self.how}"


def _either(readings: tuple[Any, ...]) -> str:
    return " or ".join(repr(sorted(reading) if isinstance(reading, frozenset) else reading) for reading in readings)


def drifts(before: Readings, findings: Mapping[str, Finding]) -> list[Drift]:
    """Find the knobs that are read another way than before; what is not seen now has not drifted."""
    found = []
    for knob, finding in findings.items():
        was = before.get(knob, ())
        if was and finding.possible and not any(_same(old, new) for old in was for new in finding.possible):
            found.append(Drift(knob, was, finding.possible, finding.how))
    return found


def _same(old: Any, new: Any) -> bool:
    # Tokens are secrets, which are never measured.
    if isinstance(old, HeaderAuth) and isinstance(new, HeaderAuth):
        return (old.header, old.scheme) == (new.header, new.scheme)
    return bool(old == new)


def together(before: Readings, findings: Mapping[str, Finding]) -> dict[str, Finding]:
    """Keep what an earlier run knew better: a run that only reads forgets nothing that one with writes has seen."""
    return {knob: _better(before.get(knob, ()), finding) for knob, finding in findings.items()}


def _better(was: tuple[Any, ...], finding: Finding) -> Finding:
    if not was or finding.seen:
        return finding
    if not finding.possible:
        return Finding(was, f"seen by an earlier run; now not: {finding.how}")
    left = tuple(new for new in finding.possible if any(_same(old, new) for old in was))
    return Finding(left, f"{finding.how}; an earlier run saw more") if left and left != finding.possible else finding
