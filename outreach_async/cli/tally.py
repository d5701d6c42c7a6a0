"""What became of the rows of a file, as a person reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Self, cast

from outreach_async.bulk import BulkReport, ContactOutcome
from outreach_async.bulk.outcome import concerns_every_row
from outreach_async.cli.screen import Screen
from outreach_async.errors import BulkStopped, OutreachError, StatusError
from outreach_async.importer import Row, is_reject


class Undone:
    """Lists the rows that made no contact, each with its line and the reason, until its block ends.

    Args:
        screen: Where to print.
        few: List that many, at the end, and count the rest; `None` lists every row at once.
    """

    def __init__(self, screen: Screen, few: int | None) -> None:
        self._screen = screen
        self._few = few
        self._kept: list[str] = []
        self._more = 0

    def add(self, outcome: ContactOutcome) -> None:
        """Take a row, to list it if it made no contact for a reason of its own; one that concerns every row is told once."""
        if not is_reject(outcome) or _is_everyones(outcome.error):
            return
        row = cast("Row", outcome.contact)
        who = row.members.get("email", "").strip()
        text = ": ".join(str(part) for part in (f"line {row.line}", who, outcome.status, outcome.error) if part)
        if self._few is None:
            (self._screen.warn if self._screen.as_json else self._screen.say)(text)
        elif len(self._kept) < self._few:
            self._kept.append(text)
        else:
            self._more += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Print what was kept back."""
        for text in self._kept:
            self._screen.say(text)
        if self._more:
            self._screen.say(f"... and {self._more:,} more", "dim")


def _is_everyones(error: OutreachError | None) -> bool:
    """Whether it is, or follows from, the refusal that ends the run: the command's last line tells of it."""
    return isinstance(error, BulkStopped) or (isinstance(error, StatusError) and concerns_every_row(error))


def show_report(screen: Screen, report: BulkReport, total: int, journal: Path | None) -> None:
    """Print the figures of a run, how far it came, and where to read more."""
    screen.table(("outcome", "rows"), [(outcome.value, count) for outcome, count in report.outcomes.items()])
    rate = f", {report.rows / report.seconds:,.0f} rows/s" if report.seconds else ""
    screen.say(f"{report.rows:,} of {total:,} rows in {report.seconds:.1f} s{rate}")
    if report.repeats:
        screen.say(f"{report.repeats:,} of the rows not applied repeat the e-mail of a row that was sent for them")
    if report.uncertain:
        screen.say(f"{report.uncertain:,} rows have an outcome that is not certain: an answer was lost on the way")
        screen.say(f"'report {journal} --uncertain' lists them" if journal else "--journal PATH would keep them, to be listed")
    if report.rows < total:
        screen.say(_rest(journal))


def _rest(journal: Path | None) -> str:
    if journal is not None:
        return f"The others are left: the same command with --journal {journal} --resume goes on with them."
    return "The others were not sent, or were on their way; import the file again, for the service finds duplicates by e-mail."
