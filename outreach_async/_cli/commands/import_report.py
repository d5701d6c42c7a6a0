"""Print the findings and results of an import in human-readable form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import attrs

from outreach_async._cli.messages import format_seconds, note_applied
from outreach_async._cli.output import Screen
from outreach_async._files.atomic import partial_path
from outreach_async._service.validation import TARGET_FIELDS
from outreach_async._vocabulary import Outcome
from outreach_async.bulk import BulkReport, ContactOutcome
from outreach_async.bulk._outcomes import LedgerCounts, affects_every_row
from outreach_async.errors import BulkError, OutreachError, StatusError, format_count
from outreach_async.importer import Columns, Row, is_reject
from outreach_async.importer._checks import CHECKS
from outreach_async.importer._preflight import Preflight
from outreach_async.importer._rejects import FindNumber, find_email, number_record, reject_message
from outreach_async.importer._table import RowNumber

_MAX_FAILURES: Final = 100
_MAX_TARGETS: Final = 20


class FailedRows:
    """Prints the failed rows of an import, each with its number, its e-mail if known, and the reason."""

    def __init__(self, screen: Screen, few: int | None, find_number: FindNumber = lambda _index: None) -> None:
        self.failures: list[dict[str, Any]] = []
        self._screen = screen
        self._max_listed = few
        self._find_number = find_number
        self._lines: list[str] = []
        self._unlisted = 0

    def add(self, outcome: ContactOutcome) -> None:
        # An error that affects every row is not listed, because it is printed once, after the run.
        if not is_reject(outcome) or (outcome.status != Outcome.REJECTED and _is_run_error(outcome.error)):
            return
        number, email, message = self._number(outcome), find_email(outcome), reject_message(outcome, self._find_number)
        if len(self.failures) < _MAX_FAILURES:
            named = {"email": email} if email else {}
            if isinstance(outcome.contact, Row) and any(name in outcome.contact.members for name in TARGET_FIELDS):
                named |= outcome.target._asdict()
            self.failures.append({number.unit: number.value, **named, "status": outcome.status.value, "message": message})
        text = ": ".join(filter(None, (str(number), email, outcome.status.value, message)))
        if self._max_listed is None:
            (self._screen.warn if self._screen.is_silent else self._screen.print_line)(text)
        elif len(self._lines) < self._max_listed:
            self._lines.append(text)
        else:
            self._unlisted += 1

    def _number(self, outcome: ContactOutcome) -> RowNumber:
        if isinstance(outcome.contact, Row):
            return RowNumber("line", outcome.contact.line)
        return self._find_number(outcome.index) or number_record(outcome.index)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for text in self._lines:
            self._screen.print_line(text)
        if self._unlisted:
            text = f"... and {self._unlisted:,} more" if self._lines else f"failed rows: {self._unlisted:,}"
            self._screen.print_line(text, "dim")


def _is_run_error(error: OutreachError | None) -> bool:
    return isinstance(error, BulkError) or (isinstance(error, StatusError) and affects_every_row(error))


def print_columns(screen: Screen, columns: Columns) -> None:
    # Omit the table if the output is not a terminal and every column name equals its code.
    if columns.export:
        screen.print_line(f"recognised as an export from {columns.export}")
    decisions = columns.decisions()
    if screen.console or any(column != code for column, code, _ in decisions):
        screen.print_table(("column", "code", "why"), decisions)


def print_findings(screen: Screen, preflight: Preflight) -> None:
    for kind in preflight.kinds.values():
        level = "error" if kind.level == "error" else "warning"
        screen.print_line(f"{level}: {kind.check}: {format_count(kind.count, 'finding')}")
        for number, message in kind.first:
            screen.print_line(f"  {preflight.unit} {number}: {message}")
        if kind.count > len(kind.first):
            screen.print_line(f"  ... and {kind.count - len(kind.first):,} more", "dim")
    if CHECKS.keys() & preflight.kinds:
        screen.print_footer("--check NAME=error rejects rows with this finding; --check NAME=off turns the check off.")
    if preflight.refused:
        screen.print_line(f"invalid rows, which will be rejected: {preflight.refused:,} of {preflight.rows:,}")


def print_ledger(screen: Screen, counts: LedgerCounts | None) -> None:
    if counts is not None:
        found = ", ".join(f"{count:,} {name}" for name, count in attrs.asdict(counts).items() if count)
        screen.print_line(f"ledger: {found or 'no rows'}")


def name_outcomes(outcomes: Mapping[Outcome, int] | Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the outcomes that occurred, as people read them: `overwriten` is the service's spelling."""
    return [
        ("overwritten" if outcome == Outcome.OVERWRITTEN else str(outcome), count) for outcome, count in outcomes.items() if count
    ]


def list_outcomes(outcomes: Mapping[Outcome, int] | Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in name_outcomes(outcomes))


def settle_partial_files(screen: Screen, results: Path | None, rejects: Path | None, *, is_finished: bool) -> None:
    """Name the files of an unfinished run, which are written beside those of a finished one. A finished run removes them."""
    for flag, path in ("--results", results), ("--rejects", rejects):
        if path is None or (beside := partial_path(path)) is None:
            continue
        if is_finished:
            beside.unlink(missing_ok=True)
        else:
            screen.warn(f"the run is not finished: {flag} wrote {beside}, and left {path} as it was")


def print_outcomes(screen: Screen, report: BulkReport) -> None:
    if occurred := name_outcomes(report.outcomes):
        screen.print_table(("outcome", "rows"), occurred)
    if len(report.targets) <= 1:
        return
    rows = [(*(id_ or "-" for id_ in target), list_outcomes(found)) for target, found in report.targets.items()]
    screen.print_table(("workspace", "campaign", "rows"), rows[:_MAX_TARGETS])
    if len(rows) > _MAX_TARGETS:
        screen.print_line(f"... and {len(rows) - _MAX_TARGETS:,} more targets; --json lists all")


def note_report(report: BulkReport) -> None:
    note_applied(f"the rows of the run: {list_outcomes(report.outcomes) or 'none'}")


def print_report(
    screen: Screen,
    report: BulkReport,
    total: int | None,
    journal: Path | str | None,
    source: Path | None = None,
    *,
    stopped: bool = False,
) -> None:
    print_outcomes(screen, report)
    rate = f", {report.rows / report.seconds:,.0f} rows/s" if report.seconds else ""
    of = "" if total is None else f" of {total:,}"
    screen.print_line(f"{report.rows:,}{of} rows in {format_seconds(report.seconds)}{rate}")
    if report.repeats:
        screen.print_line(f"{report.repeats:,} of the not_applied rows are duplicates: another row with the same e-mail was sent")
    print_ledger(screen, report.ledger)
    if report.uncertain:
        screen.print_line(f"uncertain outcomes: {report.uncertain:,} (a response was lost or inconclusive)")
    if report.uncertain and report.ledger is None:
        command = f"outreach-async report {journal} --uncertain" + (f" --input {source}" if source else "")
        screen.print_line(f"list these rows with: {command}" if journal else "to list them, import with --journal", wrap=False)
    if total is None or report.rows >= total:
        return
    again = f"resume with the same command and --journal {journal} --resume."
    if report.ledger is not None:
        again = "run the same command again: it sends what the ledger does not know."
    if report.ledger is not None or journal:  # the error that stopped a run is printed next
        first = f"Fix the cause of the error. Then {again}" if stopped else again[0].upper() + again[1:]
        screen.print_line(f"Some rows remain. {first}")
    else:
        hint = "Importing the file again is safe: the service detects duplicates."
        screen.print_line(f"The remaining rows were not sent, except perhaps a few that were in flight. {hint}")
