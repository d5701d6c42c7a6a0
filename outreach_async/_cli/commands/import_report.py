"""Print the findings and results of an import in human-readable form."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from outreach_async import Outcome
from outreach_async._cli.commands.grouped import fit_line, print_groups, show_finding, show_rows
from outreach_async._cli.commands.remedies import Remedy, Ways, list_remedies
from outreach_async._cli.messages import format_seconds, note_applied
from outreach_async._cli.output import Screen
from outreach_async._plumbing import TARGET_FIELDS, affects_every_row
from outreach_async.bulk import BulkReport, ContactOutcome, LedgerCounts
from outreach_async.errors import BulkError, OutreachError, StatusError, format_count, shorten
from outreach_async.importer import IGNORE, Columns, Row, is_reject
from outreach_async.importer._checks import CHECKS, CheckPolicy
from outreach_async.importer._groups import Groups, RowKey, row_key
from outreach_async.importer._preflight import Preflight
from outreach_async.importer._rejects import FindNumber, find_email, number_record, reject_message
from outreach_async.importer._rows import RowNumber, RowReader

_MAX_TARGETS: Final = 20
_MAX_NOTES: Final = 3
_MAX_NAME: Final = 30  # characters of a column name in a list
_MAX_ITEMS: Final = 60
_MAX_ROWS: Final = 5  # of the table of outcomes
_TABLE_EDGES: Final = 4  # lines of a table besides its rows
_LEAST: Final = 3
_AFTER_TARGETS: Final = 10
_AFTER_OUTCOMES: Final = 20  # lines that may follow the outcomes


class FailedRows:
    """Groups the rows of an import that failed or were excluded by reason, each with the first rows, their e-mails and errors."""

    def __init__(self, find_number: FindNumber = lambda _index: None) -> None:
        self.failures: Groups[RowKey] = Groups()
        self.exclusions: Groups[RowKey] = Groups()
        self.find_number = find_number
        self._ways = Ways()

    def read_with(self, policy: CheckPolicy) -> Callable[[Columns, dict[int, str]], None]:
        """Return a function that takes what is needed to read the rows again, to find out what would import them."""

        def read(columns: Columns, people: dict[int, str]) -> None:
            self._ways.reader, self._ways.levels = RowReader(columns, policy, people, finds_all=True), policy.levels

        return read

    def add(self, outcome: ContactOutcome, number: RowNumber | None = None, email: str | None = None) -> None:
        """Add a row that failed or was excluded. Without `number` and `email`, they are those of the row itself."""
        # An error that affects every row is not listed, because it is printed once, after the run.
        is_excluded = outcome.status == Outcome.EXCLUDED
        if not is_excluded and (not is_reject(outcome) or (outcome.status != Outcome.REJECTED and _is_run_error(outcome.error))):
            return
        if not is_excluded:
            self._ways.add(outcome)
        message = reject_message(outcome, self.find_number)
        number = number or self._number(outcome)
        group = (self.exclusions if is_excluded else self.failures).add(row_key(outcome, message), message, number.value)
        if group is not None:
            email = find_email(outcome) if email is None else email
            example: dict[str, Any] = {number.unit: number.value, **({"email": email} if email else {}), "message": message}
            if isinstance(outcome.contact, Row) and any(name in outcome.contact.members for name in TARGET_FIELDS):
                example |= outcome.target._asdict()
            group.keep(number.value, example)

    def _number(self, outcome: ContactOutcome) -> RowNumber:
        if isinstance(outcome.contact, Row):
            return RowNumber("line", outcome.contact.line)
        return self.find_number(outcome.index) or number_record(outcome.index)

    def remedies(self, rejects: Path | None, journal: Path | str | None) -> list[Remedy]:
        return list_remedies(self._ways.counts(), rejects, journal)

    def to_dict(self, preflight: Preflight, remedies: Sequence[Remedy]) -> dict[str, Any]:
        """Return the members that the JSON result has for people: groups of findings and rows, and what would import more."""
        return {
            "findings": preflight.findings.to_dicts(),
            "failures": self.failures.to_dicts(),
            "exclusions": self.exclusions.to_dicts(),
            "remedies": [remedy._asdict() for remedy in remedies],
        }

    def print(self, screen: Screen, reserve: int, *, rejects: Path | None = None, findings: Path | None = None) -> None:
        few = min(self.exclusions.count, _LEAST - 1)
        where = name_file("--rejects", rejects), name_file("--findings", findings)
        print_groups(screen, [*map(show_rows, self.failures.ordered())], "row", where[0], reserve + few + 1)
        if not screen.is_silent:  # that nobody was written to is no warning
            print_groups(screen, [*map(show_rows, self.exclusions.ordered())], "row", where[1], reserve)


def _is_run_error(error: OutreachError | None) -> bool:
    return isinstance(error, BulkError) or (isinstance(error, StatusError) and affects_every_row(error))


def name_file(flag: str, path: Path | None) -> str:
    """Return the file that an option has written, or else the option that would write it."""
    return f"{flag} FILE" if path is None else str(path)


def print_notes(screen: Screen, notes: Sequence[str]) -> None:
    few = len(notes) if screen.room(0) is None else _MAX_NOTES
    for note in notes[:few]:
        screen.print_line(fit_line(screen, f"note: {note}"))
    if len(notes) > few:
        screen.print_line(f"... and {format_count(len(notes) - few, 'more note')}; --verbose lists all")


def print_columns(screen: Screen, columns: Columns, reserve: int) -> None:
    # Omit the table if the output is not a terminal and every column name equals its code.
    if columns.export:
        screen.print_line(f"recognised as an export from {columns.export}")
    decisions, room = columns.decisions(), screen.room(reserve)
    if screen.console and room is not None and len(decisions) + _TABLE_EDGES > room:
        sent = [f"{_shorten(column)} -> {code}" for column, code, _ in decisions if code != IGNORE]
        ignored = [_shorten(column) for column, code, _ in decisions if code == IGNORE]
        screen.print_line(_enumerate(screen, "sent: ", sent, max(room - _TABLE_EDGES, _LEAST)))
        if ignored:
            screen.print_line(_enumerate(screen, "ignored: ", ignored, _LEAST - 1))
        screen.print_footer("--verbose lists every column, and why it is sent or ignored.")
    elif screen.console or any(column != code for column, code, _ in decisions):
        screen.print_table(("column", "code", "why"), decisions)


def _shorten(column: str) -> str:
    return shorten(column.strip(), _MAX_NAME) or "(no name)"


def _enumerate(screen: Screen, beginning: str, items: Sequence[str], height: int) -> str:
    """Return as many items as fit in a number of lines, and the number of the others."""
    few = min(len(items), _MAX_ITEMS)
    while True:
        more = f" and {len(items) - few:,} more" if few < len(items) else ""
        if screen.height(line := f"{beginning}{', '.join(items[:few])}{more}") <= height or few == 1:
            return line
        few -= 1


def print_findings(screen: Screen, preflight: Preflight, reserve: int, findings: Path | None = None) -> None:
    # Rows that a finding rejects or excludes are printed among the failed rows.
    found = [group for group in preflight.findings.ordered() if group.key.level != "error"]
    below, of, where = [], f"of {preflight.rows:,}", name_file("--findings", findings)
    if preflight.excluded:
        below.append(f"people who must not be written to: {preflight.excluded:,} {of} rows are not sent; {where} lists all")
    if preflight.refused:
        below.append(f"invalid rows, which will be rejected: {preflight.refused:,} {of}")
    if not screen.is_silent:
        print_groups(screen, [*map(show_finding, found)], "finding", where, reserve + len(below) + 1)
    if any(group.key.check in CHECKS for group in found):
        screen.print_footer("--check NAME=error rejects such rows, and NAME=off turns the check off.")
    for line in below:
        screen.print_line(line)


_POLICIES: Final = {
    "serial": "if one of them differs, all are sent, in their order; to send only the last one: --repeats last",
    "last": "only the last one counts",
    "first": "only the first one counts",
    "error": "the first one counts, and the others are rejected",
}


def print_ledger(screen: Screen, counts: LedgerCounts | None, repeats: str) -> None:
    if counts is None:
        return
    found = {name: count for name, count in attrs.asdict(counts).items() if count}
    repeated, kept = found.pop("repeated", 0), found.pop("kept", 0)
    screen.print_line(f"ledger: {', '.join(f'{count:,} {name}' for name, count in found.items()) or 'no rows'}")
    if repeated:
        screen.print_line(f"--repeats {repeats}: {repeated:,} rows have the e-mail of another row; {_POLICIES[repeats]}")
    if kept:  # perhaps because they were emptied in the file
        blank = format_count(kept, "blank cell")
        remedy = "to clear the fields of blank cells, pass --duplicates overwrite --blank clear"
        screen.print_line(f"note: the changed rows have {blank}, for which the service keeps its values; {remedy}")


def name_outcomes(outcomes: Mapping[Outcome, int] | Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the outcomes that occurred, as people read them: `overwriten` is the service's spelling."""
    return [
        ("overwritten" if outcome == Outcome.OVERWRITTEN else str(outcome), count) for outcome, count in outcomes.items() if count
    ]


def list_outcomes(outcomes: Mapping[Outcome, int] | Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in name_outcomes(outcomes))


def print_outcomes(screen: Screen, report: BulkReport, results: Path | None = None) -> None:
    occurred, room = name_outcomes(report.outcomes), screen.room(_AFTER_OUTCOMES)
    if screen.console and len(occurred) > (_MAX_ROWS if room is None else min(room, _MAX_ROWS)):
        screen.print_line(f"outcomes: {list_outcomes(report.outcomes)}")
    elif occurred:
        screen.print_table(("outcome", "rows"), occurred)
    if excluded := report.outcomes.get(Outcome.EXCLUDED):
        where = name_file("--results", results)
        screen.print_line(f"excluded rows: {excluded:,}; nothing is sent to these people, and {where} has the reasons")
    if len(report.targets) <= 1:
        return
    room = screen.room(_AFTER_TARGETS)
    few = _MAX_TARGETS if not screen.console or room is None else max(1, min(_MAX_TARGETS, (room - _TABLE_EDGES) // 2))
    rows = [(*(id_ or "-" for id_ in target), list_outcomes(found)) for target, found in report.targets.items()]
    screen.print_table(("workspace", "campaign", "rows"), rows[:few])
    if len(rows) > few:
        screen.print_line(f"... and {format_count(len(rows) - few, 'more target')}; --json lists all")


def note_report(report: BulkReport) -> None:
    note_applied(f"the rows of the run: {list_outcomes(report.outcomes) or 'none'}")


def print_report(
    screen: Screen,
    report: BulkReport,
    total: int | None,
    journal: Path | str | None,
    source: Path | None = None,
    *,
    repeats: str = "serial",
    results: Path | None = None,
    stopped: bool = False,
) -> None:
    place = shlex.quote(str(journal))
    print_outcomes(screen, report, results)
    rate = f", {report.rows / report.seconds:,.0f} rows/s" if report.seconds else ""
    of = "" if total is None else f" of {total:,}"
    screen.print_line(f"{report.rows:,}{of} rows in {format_seconds(report.seconds)}{rate}")
    if report.repeats and report.ledger is None:
        screen.print_line(
            f"{report.repeats:,} of the not_applied rows are duplicates: another row with the same e-mail counts instead"
        )
    print_ledger(screen, report.ledger, repeats)
    if report.uncertain:
        screen.print_line(f"uncertain outcomes: {report.uncertain:,} (a response was lost or inconclusive)")
    if report.uncertain and report.ledger is None:
        command = f"outreach-async report {place} --uncertain" + (f" --input {shlex.quote(str(source))}" if source else "")
        screen.print_line(f"list these rows with: {command}" if journal else "to list them, import with --journal", wrap=False)
    if total is None or report.rows >= total:
        return
    again = f"resume with the same command and --journal {place} --resume."
    if report.ledger is not None:
        again = "run the same command again: it sends what the ledger does not know."
    if report.ledger is not None or journal:  # the error that stopped a run is printed next
        first = f"Fix the cause of the error. Then {again}" if stopped else again[0].upper() + again[1:]
        screen.print_line(f"Some rows remain. {first}")
    else:
        hint = "Importing the file again is safe: the service detects duplicates."
        screen.print_line(f"The remaining rows were not sent, except perhaps a few that were in flight. {hint}")
