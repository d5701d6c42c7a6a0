"""What became of the rows of a file, as a person reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final, Self

from outreach_async.bulk import BulkReport, ContactOutcome
from outreach_async.bulk.outcome import concerns_every_row
from outreach_async.cli.screen import Screen
from outreach_async.errors import BulkStopped, OutreachError, StatusError
from outreach_async.importer import Columns, Row, is_reject
from outreach_async.importer.checks import Survey
from outreach_async.importer.estimate import Estimate
from outreach_async.importer.rejects import LineOf, message_of

_FEW: Final = 10


class Undone:
    """Lists the rows that made no contact, each with its line and the reason, until its block ends.

    Args:
        screen: Where to print.
        few: List that many, at the end, and count the rest; `None` lists every row at once.
        line_of: Knows the line of a row that another repeats.
    """

    def __init__(self, screen: Screen, few: int | None, line_of: LineOf = lambda _index: None) -> None:
        self._screen = screen
        self._few = few
        self._line_of = line_of
        self._kept: list[str] = []
        self._more = 0

    def add(self, outcome: ContactOutcome) -> None:
        """Take a row, to list it if it made no contact for a reason of its own; one that concerns every row is told once."""
        if not is_reject(outcome) or _is_everyones(outcome.error):
            return
        told = (*_whose(outcome), outcome.status, message_of(outcome, self._line_of))
        text = ": ".join(str(part) for part in told if part)
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


def _whose(outcome: ContactOutcome) -> tuple[str, str]:
    """Return where a row stands, and its e-mail: what the journal has kept of an input is numbered only."""
    row = outcome.contact
    if isinstance(row, Row):
        return f"line {row.line}", row.members.get("email", "").strip()
    email = row.get("email", "") if isinstance(row, Mapping) else ""
    return f"row {outcome.index + 1}", email.strip()


def _is_everyones(error: OutreachError | None) -> bool:
    """Whether it is, or follows from, the refusal that ends the run: the command's last line tells of it."""
    return isinstance(error, BulkStopped) or (isinstance(error, StatusError) and concerns_every_row(error))


def listed(screen: Screen) -> int | None:
    """Return how many undone rows to list: a terminal shows a few, a file or a pipe takes them all."""
    return _FEW if screen.console else None


def show_columns(screen: Screen, columns: Columns, notes: Iterable[str]) -> None:
    """Print where the columns go, and why; a pipe is spared it where each is named by its very code."""
    for note in notes:
        screen.say(f"note: {note}")
    if columns.export:
        screen.say(f"the header is that of an export of {columns.export}")
    decisions = columns.decisions()
    if screen.console or any(column != code for column, code, _ in decisions):
        screen.table(("column", "code", "why"), decisions)


def show_findings(screen: Screen, survey: Survey) -> None:
    """Print what was found in a file: of each kind how often, and the first lines."""
    for kind in survey.kinds.values():
        screen.say(f"{'error' if kind.level == 'error' else 'warning'}: {kind.check}: {kind.count:,} found")
        for line, message in kind.first:
            screen.say(f"  line {line}: {message}")
        if kind.count > len(kind.first):
            screen.say(f"  ... and {kind.count - len(kind.first):,} more", "dim")
    if survey.refused:
        screen.say(f"{survey.refused:,} of {survey.rows:,} rows can never be sent, and will be rejected")


def show_estimate(screen: Screen, estimate: Estimate | None) -> None:
    """Print how long it will take, if that is known."""
    if estimate is not None:
        duration = timedelta(seconds=round(estimate.seconds))
        screen.say(f"{estimate.rows:,} rows at {estimate.rate:,.4g} a second ({estimate.known}) take about {duration}")


def show_report(screen: Screen, report: BulkReport, total: int | None, journal: Path | None) -> None:
    """Print the figures of a run, how far it came, and where to read more."""
    screen.table(("outcome", "rows"), [(outcome.value, count) for outcome, count in report.outcomes.items()])
    rate = f", {report.rows / report.seconds:,.0f} rows/s" if report.seconds else ""
    of = "" if total is None else f" of {total:,}"
    screen.say(f"{report.rows:,}{of} rows in {report.seconds:.1f} s{rate}")
    if report.repeats:
        screen.say(f"{report.repeats:,} of the rows not applied repeat the e-mail of a row that was sent for them")
    if report.uncertain:
        screen.say(f"{report.uncertain:,} rows have an outcome that is not certain: an answer was lost, or proves nothing")
        screen.say(f"'report {journal} --uncertain' lists them" if journal else "--journal PATH would keep them, to be listed")
    if total is not None and report.rows < total:
        screen.say(_rest(journal))


def _rest(journal: Path | None) -> str:
    if journal is not None:
        return f"The others are left: the same command with --journal {journal} --resume goes on with them."
    return "The others were not sent, or were on their way; import the file again, for the service finds duplicates by e-mail."
