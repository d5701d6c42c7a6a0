"""Checks of reported outcomes against what the service did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from typing import Final

from outreach_async import ContactOutcome, Outcome
from outreach_async.errors import Excluded

FINDINGS: Final = frozenset({Outcome.REJECTED, Outcome.NOT_APPLIED, Outcome.UNKNOWN, Outcome.EXCLUDED})
"""Outcomes that the service never sends; the library determines them itself."""


def turns(sure: Sequence[bool | None]) -> Iterator[tuple[int, ...]]:
    """Yield every order in which rows may have been applied."""
    fixed = [row for row, known in enumerate(sure) if known]
    loose = [row for row, known in enumerate(sure) if known is False]
    for choices in product((True, False), repeat=len(loose)):
        chosen = fixed + [row for row, take in zip(loose, choices, strict=True) if take]
        yield from (order for order in permutations(chosen) if [row for row in order if row in fixed] == fixed)


def find_wrong_labels(outcome: ContactOutcome, truth: Outcome | None, *, sent: bool) -> Iterator[str]:
    """Yield each violation in the outcome of a row."""
    status, possible = outcome.status, outcome.possible
    if truth is None and status not in FINDINGS:
        yield "reported as carried out although it was not"
    if (truth or (status if status in {Outcome.REJECTED, Outcome.EXCLUDED} else Outcome.NOT_APPLIED)) not in possible:
        yield "label excludes the true outcome"
    if status is Outcome.NOT_APPLIED and (sent or not outcome.certain):
        yield "not_applied although sent"
    if status is Outcome.EXCLUDED and not (outcome.certain and isinstance(outcome.error, Excluded)):
        yield "excluded without its reason"
    if status is Outcome.UNKNOWN and outcome.certain:
        yield "unknown but certain"


def when_applied(outcome: ContactOutcome) -> bool | None:
    """Return the value that `turns` takes for a row with this outcome."""
    if outcome.status in FINDINGS:
        return None if outcome.certain else False
    return True
