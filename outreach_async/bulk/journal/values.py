"""What a journal is asked and answers with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from outreach_async.bulk.report import BulkReport
from outreach_async.vocabulary import Outcome

State: TypeAlias = Literal["running", "finished", "suspended", "stopped", "interrupted"]

Earlier: TypeAlias = Literal["known", "unknown"]
"""What is known of earlier runs: `known` is what the journal says, `unknown` that any row may have been sent."""

ENDS: Final = ("finished", "suspended", "stopped", "interrupted")
"""The states that a run can end in."""


@attrs.frozen
class Identity:
    """What a journal is of; a run is resumed only as what it was begun.

    Attributes:
        workspace: Workspace id.
        options: Whatever decides what is sent, as JSON values: duplicates, campaign and so on.
        source: What the input is called, such as a file's path: for reports, it may change.
        fingerprint: Of the whole input where known, such as a file's digest.
        mapping: Field codes by column where the input has columns; when resuming, of those that were asked for.
    """

    workspace: str
    options: Mapping[str, Any]
    source: str | None = None
    fingerprint: str | None = None
    mapping: Mapping[str, str] | None = None


@attrs.frozen
class Window:
    """Consecutive rows of the input that are marked together, before the first of them is sent.

    Attributes:
        first: Index of the first row.
        rows: How many.
        digest: 8 bytes (blake2b) over the encoded forms of the rows.
    """

    first: int
    rows: int
    digest: bytes

    @property
    def end(self) -> int:
        """Index after the last row."""
        return self.first + self.rows


@attrs.frozen(kw_only=True)
class JournalReport:
    """The figures of a journal: the same for the same journal, however often it is asked.

    Attributes:
        state: How the run ended; `running` until it has, and so after a kill too.
        rows: Rows that have their outcome.
        outcomes: Rows by outcome; the seven are there, with 0 where nothing happened.
        uncertain: Rows with more than one possible outcome.
        repeats: Rows in whose stead another row with the same e-mail was sent; they count as `not_applied`.
        seconds: Duration of the run, over all its resumes, without the pauses between them.
        marked: Rows that were marked as about to be sent; no row beyond was ever sent.
        possibly_sent: Rows that were marked and have no outcome.
        windows: How many windows were marked.
        events: Events by kind.
        workspace: Workspace id.
        source: What the input is called.
        fingerprint: Of the whole input, where known.
        mapping: Field codes by column, where the input had columns.
    """

    state: State
    rows: int
    outcomes: dict[Outcome, int]
    uncertain: int
    repeats: int
    seconds: float
    marked: int
    possibly_sent: int
    windows: int
    events: dict[str, int]
    workspace: str
    source: str | None
    fingerprint: str | None
    mapping: Mapping[str, str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values: those of `BulkReport`, then the journal's own."""
        return {
            **BulkReport(self.rows, self.outcomes, self.uncertain, self.seconds, self.repeats).to_dict(),
            "state": self.state,
            "marked": self.marked,
            "possibly_sent": self.possibly_sent,
            "windows": self.windows,
            "events": dict(self.events),
            "workspace": self.workspace,
            "source": self.source,
            "fingerprint": self.fingerprint,
        }
