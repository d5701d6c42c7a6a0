"""What a stated rule is: a name, what the interface says, where to look, and what breaks it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

import attrs

from outreach_async.conformance.calibration import Measured
from outreach_async.conformance.site import document
from outreach_async.conformance.survey import Asked

_SHOWN: Final = 60


@attrs.frozen
class Subject:
    """One thing that a rule is about.

    Attributes:
        asked: Where it was seen.
        where: Where it stands in the answer.
        value: The thing.
    """

    asked: Asked
    where: str
    value: Any


@attrs.frozen
class Rule:
    """A rule that the interface states.

    Attributes:
        id: Its name.
        says: What the interface says.
        subjects: Finds what it is about.
        faults: Says what is wrong with one of them; nothing if it is as it should be.
        writes: Whether it shows only when contacts are created.
    """

    id: str
    says: str
    subjects: Callable[[Measured], Iterator[Subject]]
    faults: Callable[[Any], Iterator[str]]
    writes: bool = False


def shown(value: object) -> str:
    """Write a value of an answer, in few characters."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def no_success(asked: Asked, statuses: Collection[int]) -> Iterator[str]:
    """Say why an answer is no success."""
    if asked.answer is None:
        yield "did not come"
    elif asked.answer.status not in statuses:
        yield f"has the status {asked.answer.status}"
    elif not isinstance(document(asked.answer), dict):
        yield "is no JSON object"
