"""The figures of a journal. They are committed with the outcomes they count, so a report need not count. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from outreach_async.bulk.journal.records import require
from outreach_async.bulk.outcome import ContactOutcome
from outreach_async.bulk.report import BulkReport, Tally
from outreach_async.vocabulary import Outcome


def kept(totals: BulkReport) -> dict[str, Any]:
    """Return figures as the JSON values that a journal stores."""
    return {
        "rows": totals.rows,
        "outcomes": dict(totals.outcomes),
        "uncertain": totals.uncertain,
        "repeats": totals.repeats,
        "seconds": totals.seconds,
    }


def read(figures: Mapping[str, Any]) -> BulkReport:
    """Return the figures from their stored JSON values.

    Raises:
        Damage: They do not add up.
    """
    outcomes = {Outcome(name): count for name, count in figures["outcomes"].items()}
    require(sum(outcomes.values()) == figures["rows"], "the totals do not add up")
    return BulkReport(figures["rows"], outcomes, figures["uncertain"], figures["seconds"], figures["repeats"])


def plus(totals: BulkReport, outcomes: Iterable[ContactOutcome], seconds: float) -> BulkReport:
    """Return the figures with these outcomes added, after a run of this many seconds."""
    tally = Tally(totals)
    for outcome in outcomes:
        tally.add(outcome)
    return tally.report(seconds)
