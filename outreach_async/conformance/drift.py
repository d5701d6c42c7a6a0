"""Compare a measurement with that of an earlier run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from outreach_async.conformance.findings import Finding
from outreach_async.fake.behaviour import HeaderAuth

Readings = Mapping[str, tuple[Any, ...]]
"""Possible values by knob, as loaded from a behaviour file."""


@attrs.frozen
class Drift:
    """A knob whose value has changed.

    Attributes:
        knob: Its name.
        was: The values that were possible.
        now: The values that are possible now.
        how: How this was observed.
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
    """Return the knobs whose value has changed. A knob that is not observed now has not drifted."""
    found = []
    for knob, finding in findings.items():
        was = before.get(knob, ())
        if was and finding.possible and not any(_same(old, new) for old in was for new in finding.possible):
            found.append(Drift(knob, was, finding.possible, finding.how))
    return found


def _same(old: Any, new: Any) -> bool:
    # Ignore tokens: they are secrets and never measured.
    if isinstance(old, HeaderAuth) and isinstance(new, HeaderAuth):
        return (old.header, old.scheme) == (new.header, new.scheme)
    return bool(old == new)


def together(before: Readings, findings: Mapping[str, Finding]) -> dict[str, Finding]:
    """Merge in what the earlier run observed more precisely, so that a read-only run forgets nothing of one with writes."""
    return {knob: _better(before.get(knob, ()), finding) for knob, finding in findings.items()}


def _better(was: tuple[Any, ...], finding: Finding) -> Finding:
    if not was or finding.seen:
        return finding
    if not finding.possible:
        return Finding(was, f"observed by an earlier run, but not now: {finding.how}")
    left = tuple(new for new in finding.possible if any(_same(old, new) for old in was))
    return Finding(left, f"{finding.how}; an earlier run was more precise") if left and left != finding.possible else finding
