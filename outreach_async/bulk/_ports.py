"""What a run asks of the store that records it; `outreach_async.store` implements this for journals and ledgers.

A run pulls rows from a feed, sends them, and passes their outcomes to a recorder, which delivers them when they are recorded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, Protocol, TypeAlias

import attrs
from anyio.abc import TaskGroup

from outreach_async.bulk._exclusions import Finder
from outreach_async.bulk._outcomes import ContactOutcome, LedgerCounts, OutcomeCounts, Revision, UnsentRows
from outreach_async.bulk._rows import ParsedRow, PossiblySent, RowParser
from outreach_async.bulk._source import Source
from outreach_async.bulk._stream import StreamReader
from outreach_async.bulk._throttle import Fence

MAX_WINDOW_SIZE: Final = 1_000  # rows; after a crash, any row of a marked window may have been sent if it has no outcome

EndState: TypeAlias = Literal["finished", "suspended", "stopped", "interrupted"]


class Feed(Protocol):
    """Supplies the rows of a run, in their order."""

    def start(self, group: TaskGroup, /) -> None:
        """Start to read rows ahead, in a task of `group`."""

    async def next(self) -> ParsedRow | ContactOutcome | UnsentRows | None:
        """Return a row that may be sent now, or what is known about rows that are not sent; `None` after the last row."""

    def stop(self) -> None:
        """Supply no more rows."""

    def remaining_possibly_sent(self) -> PossiblySent:
        """Return the rows that were not supplied, and that an earlier process may have sent."""


class Recorder(Fence, Protocol):
    """Records the outcomes of a run, and delivers them."""

    counts: OutcomeCounts
    """Counts of the outcomes that the caller has received, with those of earlier processes."""
    ledger: LedgerCounts | None

    @property
    def feed(self) -> Feed: ...

    @property
    def backlog(self) -> int:
        """Maximum number of rows in flight, or completed but not recorded."""

    @property
    def resumable(self) -> bool:
        """Whether a row may be left without an outcome, because a later run sends it."""

    @property
    def again(self) -> str:
        """How a run that was stopped goes on."""

    def record_outcome(self, outcome: ContactOutcome) -> None:
        """Accept an outcome. It is delivered when it is recorded."""

    def revise(self, index: int, revised: Revision) -> None:
        """Replace a row's outcome with the result of `revised`, unless it was delivered or is being recorded."""

    def end(self) -> None:
        """Make `run` return when all outcomes are recorded, because no more follow."""

    async def run(self) -> None:
        """Record and deliver outcomes, until `end` is called and no outcome is left."""

    async def close(self, state: EndState, possibly_sent: PossiblySent, /) -> None:
        """Record how the run ended, and which rows without an outcome may have been sent. Only the first call has an effect."""


@attrs.frozen
class RunContext:
    """What a store gets of the run that opens it."""

    source: Source | StreamReader
    parser: RowParser
    window_size: Callable[[], int]
    """Returns the number of rows to mark next."""
    deliver: Callable[[Sequence[ContactOutcome]], None]
    only_counts: bool
    """Whether nobody receives the outcomes of rows that are unchanged."""
    width: int
    """The number of fields of each row before blank ones were left out; 0 if that is not known."""
    exclusions: Sequence[Finder] = ()


OpenRecorder: TypeAlias = Callable[[RunContext], Awaitable[Recorder]]
"""Opens the store of a run. An error means that the run does not start."""
