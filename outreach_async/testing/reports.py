"""What a failing test shows of its fake: seed, behaviour, faults that wait, and the last requests. No secret is in it."""

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
"""Requests that are shown, the last ones."""

_BODY: Final = 300
"""Characters of a body that are shown."""


@attrs.frozen
class Use:
    """A fake in a test's hands.

    Attributes:
        fake: The fake.
        order: What the test ordered.
        behaviour: Which of the ordered behaviours it began with.
    """

    fake: FakeService
    order: Order
    behaviour: Behaviour

    @property
    def unfired(self) -> list[str]:
        """What never struck and fails the test, a text each."""
        return _counted(self.fake.faults.unfired) if self.order.unfired == "error" else []

    def report(self) -> str:
        """Tell what the fake was like and what it was asked last."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"seed: {self.fake.seed}"
        yield f"behaviour: {self._row()}{readings(self.fake.behaviour)}"
        yield from (f"never struck: {fault}" for fault in _counted(self.fake.faults.unfired))
        recent = self.fake.requests.recent(REQUESTS)
        yield f"requests: {len(self.fake.requests)}{', the last of them:' if recent else ''}"
        for recorded in recent:
            yield from _request(recorded, recorded.at - recent[0].at)

    @property
    def row(self) -> int | None:
        """The number of the behaviour among those ordered; `None` if it is the only one."""
        rows = self.order.behaviours
        return rows.index(self.behaviour) if len(rows) > 1 else None

    def _row(self) -> str:
        return "" if self.row is None else f"{row_id(self.row)} of {len(self.order.behaviours)}: "


def row_id(number: int) -> str:
    """Name a row of a cover, as in the test's id."""
    return f"row{number:02}"


def readings(behaviour: Behaviour) -> str:
    """Write the knobs that are not at their default, as they are written in a test."""
    return ", ".join(f"{knob}={reading(value)}" for knob, value in differing(behaviour).items()) or "every default"


def _counted(texts: Iterable[str]) -> list[str]:
    return [f"{text}, {times} times" if times > 1 else text for text, times in Counter(texts).items()]


def _request(recorded: Recorded, after: float) -> Iterator[str]:
    answered = "no answer" if recorded.status is None else str(recorded.status)
    struck = f", struck by {recorded.fault}" if recorded.fault else ""
    yield f"#{recorded.number} +{after:.3f} s {recorded.method} {masked(recorded.target)} -> {answered}{struck}"
    if recorded.json is not None:
        yield f"    body: {_body(recorded.json)}"
    yield from (f"    hint: {masked(hint)}" for hint in recorded.hints)


def _body(document: Any) -> str:
    # Masked before it is cut: half a key is no key that could be told.
    text = masked(json.dumps(_keyless(document), ensure_ascii=False))
    return text if len(text) <= _BODY else text[:_BODY] + "..."


def _keyless(value: Any) -> Any:
    """Hide what stands for the owner key wherever it is, for what is no key may be sent as one."""
    if isinstance(value, dict):
        return {name: "***" if name == "owner_key" else _keyless(item) for name, item in value.items()}
    return [_keyless(item) for item in value] if isinstance(value, list) else value


def reading(value: Any) -> str:
    """Write a reading."""
    # A function's own text shows an address, which differs from run to run.
    return getattr(value, "__qualname__", None) or repr(value)
