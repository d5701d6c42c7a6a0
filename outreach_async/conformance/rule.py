"""The type of a stated rule: an id, what the interface says, where to look, and what violates it."""

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
    """One thing to which a rule applies.

    Attributes:
        asked: The request and response in which it was found.
        where: Its place in the response.
        value: The thing itself.
    """

    asked: Asked
    where: str
    value: Any


@attrs.frozen
class Rule:
    """A rule that the interface states.

    Attributes:
        id: Its id.
        says: What the interface says.
        subjects: Yields the things to which the rule applies.
        faults: Yields what is wrong with one of them; nothing if it conforms.
        writes: Whether the rule can be observed only by creating contacts.
    """

    id: str
    says: str
    subjects: Callable[[Measured], Iterator[Subject]]
    faults: Callable[[Any], Iterator[str]]
    writes: bool = False


def shown(value: object) -> str:
    """Return a short representation of a value from a response."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def no_success(asked: Asked, statuses: Collection[int]) -> Iterator[str]:
    """Yield why a response is not a success."""
    if asked.answer is None:
        yield "did not arrive"
    elif asked.answer.status not in statuses:
        yield f"has the status {asked.answer.status}"
    elif not isinstance(document(asked.answer), dict):
        yield "is not a JSON object"
