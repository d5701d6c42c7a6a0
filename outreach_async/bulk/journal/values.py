"""The values that a journal takes and returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from outreach_async.bulk.report import BulkReport
from outreach_async.vocabulary import Outcome

State: TypeAlias = Literal["running", "finished", "suspended", "stopped", "interrupted"]

Earlier: TypeAlias = Literal["known", "unknown"]
"""Knowledge of earlier runs: with `known`, the journal is trusted; with `unknown`, any row may have been sent."""

ENDS: Final = ("finished", "suspended", "stopped", "interrupted")
"""The states in which a run can end."""


@attrs.frozen
class Identity:
    """The identity of a run. A run is resumed only with the identity that it was started with.

    Attributes:
        workspace: Workspace id.
        options: Options that determine the requests, as JSON values: `duplicates`, `campaign` and so on.
        source: Name of the input, such as the path of a file. It is for reports, and may change.
        fingerprint: Fingerprint of the whole input, such as a file's digest; `None` if unknown.
        mapping: Field codes by column name, if the input has columns; when resuming, of the columns that the caller specified.
    """

    workspace: str
    options: Mapping[str, Any]
    source: str | None = None
    fingerprint: str | None = None
    mapping: Mapping[str, str] | None = None


@attrs.frozen
class Window:
    """Consecutive rows of the input that are marked together before the first of them is sent.

    Attributes:
        first: Index of the first row.
        rows: Number of rows.
        digest: Digest of the rows' encoded forms: 8 bytes (blake2b).
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
    """The report of a run, read from its journal. The same journal always gives the same report.

    Attributes:
        state: How the run ended; `running` until it has ended, and also after a kill.
        rows: Rows with an outcome.
        outcomes: Number of rows by outcome; all seven outcomes are present, with 0 for those that did not occur.
        uncertain: Rows with more than one possible outcome.
        repeats: Rows that were not sent because another row with the same e-mail was; they also count as `not_applied`.
        seconds: Duration of the run in seconds, over all its resumes, without the time between them.
        marked: Rows marked as about to be sent; no row beyond them was ever sent.
        possibly_sent: Marked rows without an outcome.
        windows: Number of marked windows.
        events: Number of events by kind.
        workspace: Workspace id.
        source: Name of the input; `None` if unknown.
        fingerprint: Fingerprint of the whole input; `None` if unknown.
        mapping: Field codes by column name; `None` if the input had no columns.
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
        """Return the report as JSON values: those of `BulkReport`, then those of the journal."""
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
