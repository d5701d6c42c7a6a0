"""What became of the rows of a file, as a person reads it."""

from __future__ import annotations

from outreach_async.bulk import BulkReport
from outreach_async.bulk.outcome import concerns_every_row
from outreach_async.cli.exits import UNDONE
from outreach_async.cli.screen import Screen
from outreach_async.errors import BulkStopped, OutreachError, StatusError
from outreach_async.importer import Row


class Undone:
    """Lists the rows that made no contact, each with its line and the reason.

    Args:
        screen: Where to print.
        few: List that many, at the end, and count the rest; `None` lists every row at once.
    """

    def __init__(self, screen: Screen, few: int | None) -> None:
        self._screen = screen
        self._few = few
        self._kept: list[str] = []
        self._more = 0

    def add(self, row: Row, status: str, error: OutreachError | None) -> None:
        """Take a row, to list it if it made no contact for a reason of its own; one that concerns every row is told once."""
        if status not in UNDONE or _is_everyones(error):
            return
        who = row.members.get("email", "").strip()
        text = ": ".join(str(part) for part in (f"line {row.line}", who, status, error) if part)
        if self._few is None:
            (self._screen.warn if self._screen.as_json else self._screen.say)(text)
        elif len(self._kept) < self._few:
            self._kept.append(text)
        else:
            self._more += 1

    def close(self) -> None:
        """Print what was kept back."""
        for text in self._kept:
            self._screen.say(text)
        if self._more:
            self._screen.say(f"... and {self._more:,} more", "dim")


def _is_everyones(error: OutreachError | None) -> bool:
    """Whether it is, or follows from, the refusal that ends the run: the command's last line tells of it."""
    return isinstance(error, BulkStopped) or (isinstance(error, StatusError) and concerns_every_row(error))


def show_report(screen: Screen, report: BulkReport, total: int) -> None:
    """Print the figures of a run, and how far it came."""
    screen.table(("outcome", "rows"), [(outcome.value, count) for outcome, count in report.outcomes.items()])
    rate = f", {report.rows / report.seconds:,.0f} rows/s" if report.seconds else ""
    screen.say(f"{report.rows:,} of {total:,} rows in {report.seconds:.1f} s{rate}")
    if report.uncertain:
        screen.say(f"{report.uncertain:,} rows have an outcome that is not certain: an answer was lost on the way")
    if report.rows < total:
        screen.say(
            "The others were not sent, or were on their way; import the file again, for the service finds duplicates by e-mail."
        )
