"""Describe the fake in a failing test's report.

The report has the seed, the behaviour, faults that never fired, and the last requests. Secrets are masked.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs

from outreach_async.fake.behaviour import Behaviour
from outreach_async.fake.journal import Recorded
from outreach_async.fake.refusals import masked
from outreach_async.fake.service import FakeService
from outreach_async.testing.orders import Order
from outreach_async.testing.pairwise import differing

REQUESTS: Final = 20
"""Number of requests shown; the last ones."""

_BODY: Final = 300
"""Number of characters shown of a body."""


@attrs.frozen
class Use:
    """A fake in use by a test.

    Attributes:
        fake: The fake.
        order: The configuration that the test requested.
        behaviour: The behaviour with which the test began, one of those requested.
    """

    fake: FakeService
    order: Order
    behaviour: Behaviour

    @property
    def unfired(self) -> list[str]:
        """Descriptions of the faults that never fired, if these fail the test."""
        return _counted(self.fake.faults.unfired) if self.order.unfired == "error" else []

    def report(self) -> str:
        """Describe the state of the fake and its last requests."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"seed: {self.fake.seed}"
        yield f"behaviour: {self._row()}{readings(self.fake.behaviour)}"
        yield from (f"never fired: {fault}" for fault in _counted(self.fake.faults.unfired))
        recent = self.fake.requests.recent(REQUESTS)
        yield f"requests: {len(self.fake.requests)}{', the last ones:' if recent else ''}"
        for recorded in recent:
            yield from _request(recorded, recorded.at - recent[0].at)

    @property
    def row(self) -> int | None:
        """The index of the behaviour among those requested; `None` if there is only one."""
        rows = self.order.behaviours
        return rows.index(self.behaviour) if len(rows) > 1 else None

    def _row(self) -> str:
        return "" if self.row is None else f"{row_id(self.row)} of {len(self.order.behaviours)}: "


def row_id(number: int) -> str:
    """Return the name of a row of the pairwise behaviours, as in the test's id."""
    return f"row{number:02}"


def readings(behaviour: Behaviour) -> str:
    """Return the knobs that are not at their default, in the syntax of a test."""
    return ", ".join(f"{knob}={reading(value)}" for knob, value in differing(behaviour).items()) or "all defaults"


def _counted(texts: Iterable[str]) -> list[str]:
    return [f"{text}, {times} times" if times > 1 else text for text, times in Counter(texts).items()]


def _request(recorded: Recorded, after: float) -> Iterator[str]:
    answered = "no response" if recorded.status is None else str(recorded.status)
    struck = f", fault {recorded.fault}" if recorded.fault else ""
    yield f"#{recorded.number} +{after:.3f} s {recorded.method} {masked(recorded.target)} -> {answered}{struck}"
    if recorded.json is not None:
        yield f"    body: {_body(recorded.json)}"
    yield from (f"    hint: {masked(hint)}" for hint in recorded.hints)


def _body(document: Any) -> str:
    # Mask before cutting: half a key would not be recognised as one.
    text = masked(json.dumps(_keyless(document), ensure_ascii=False))
    return text if len(text) <= _BODY else text[:_BODY] + "..."


def _keyless(value: Any) -> Any:
    """Hide every `owner_key`, because a test may send a value there that does not look like a key."""
    if isinstance(value, dict):
        return {name: "***" if name == "owner_key" else _keyless(item) for name, item in value.items()}
    return [_keyless(item) for item in value] if isinstance(value, list) else value


def reading(value: Any) -> str:
    """Return a knob's value as a string."""
    # The repr of a function has an address, which differs between runs.
    return getattr(value, "__qualname__", None) or repr(value)
