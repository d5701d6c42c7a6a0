"""The figures of a journal, committed with the outcomes they count, so that no report has to count again: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from outreach_async.bulk.journal.records import require
from outreach_async.bulk.outcome import ContactOutcome
from outreach_async.bulk.report import BulkReport, Tally
from outreach_async.vocabulary import Outcome


def kept(totals: BulkReport) -> dict[str, Any]:
    """Return figures as the JSON values that a journal keeps."""
    return {
        "rows": totals.rows,
        "outcomes": dict(totals.outcomes),
        "uncertain": totals.uncertain,
        "repeats": totals.repeats,
        "seconds": totals.seconds,
    }


def read(figures: Mapping[str, Any]) -> BulkReport:
    """Return the figures that were kept so.

    Raises:
        Damage: They do not add up.
    """
    outcomes = {Outcome(name): count for name, count in figures["outcomes"].items()}
    require(sum(outcomes.values()) == figures["rows"], "the totals do not add up")
    return BulkReport(figures["rows"], outcomes, figures["uncertain"], figures["seconds"], figures["repeats"])


def plus(totals: BulkReport, outcomes: Iterable[ContactOutcome], seconds: float) -> BulkReport:
    """Return the figures with these outcomes, after a run of so many seconds."""
    tally = Tally(totals)
    for outcome in outcomes:
        tally.add(outcome)
    return tally.report(seconds)
