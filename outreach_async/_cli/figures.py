"""Print what an import found in its file and what became of the rows, on a terminal never more than fits on a screen.

Findings and failed rows are printed in groups: one reason is one line with a count, whatever the number of rows.
"""

from __future__ import annotations

import shlex
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import attrs

from outreach_async import Outcome
from outreach_async._cli.messages import format_seconds, note_applied
from outreach_async._cli.output import Screen
from outreach_async.bulk import BulkReport, LedgerCounts
from outreach_async.errors import format_count, shorten
from outreach_async.importer import CheckPolicy, Columns, FailedRows, GateReport, Preflight, RowGroup

AFTER_FINDINGS: Final = 18  # lines that may follow the findings
FAILED_ROWS: Final = 8  # lines of failed and excluded rows for which the remedies leave room
_MAX_TARGETS: Final = 20
_MAX_NOTES: Final = 3
_MAX_NAME: Final = 30  # characters of a column name in a list
_MAX_ITEMS: Final = 60
_MAX_ROWS: Final = 5  # of the table of outcomes
_TABLE_EDGES: Final = 4  # lines of a table besides its rows
_AFTER_TARGETS: Final = 10
_AFTER_OUTCOMES: Final = 20  # lines that may follow the outcomes
_MAX_EXAMPLES: Final = 3  # of a group
_LEAST: Final = 3  # lines of each kind of groups, however many lines the others take
_MAX_SILENT: Final = 10  # groups on stderr, if nothing else is printed
_MAX_HEIGHT: Final = 2  # lines of a terminal for one line of text
_LEVELS: Final = {"error": "error", "drop": "left out", "warn": "warning"}


@attrs.frozen
class Shown:
    """A group as people read it: a line with its count, and examples below it, or one line for its only member."""

    count: int
    heading: str
    first: str
    examples: Sequence[str]
    only: str

    def lines(self, few: int) -> list[str]:
        if self.count == 1:
            return [self.only]
        return [self.heading, *(f"  {text}" for text in self.examples[:few])] if few else [f"{self.heading}; first: {self.first}"]


def show_finding(group: RowGroup[Any]) -> Shown:
    check, level, field, _ = group.key
    name = f"{_LEVELS.get(level, level)}: {check}"
    reason, examples = _find_common(group)
    in_field = "" if field in {"", check} else f" in {field}"
    heading = f"{name}: {format_count(group.count, 'finding')}{in_field}: {reason}"
    first = group.examples[0]
    return Shown(group.count, heading, _number(first), examples, _join(name, _number(first), first["message"]))


def show_rows(group: RowGroup[Any]) -> Shown:
    status, code, field, _ = group.key
    reason, examples = _find_common(group)
    named = reason if not field or reason.startswith(field) else f"{field}: {reason}"
    answered = f" (the service answered {code})" if code else ""
    heading = f"{status}: {format_count(group.count, 'row')}: {named}{answered}"
    first = group.examples[0]
    only = _join(_number(first), first.get("email"), status, first["message"])
    return Shown(group.count, heading, _number(first), examples, only)


def _find_common(group: RowGroup[Any]) -> tuple[str, list[str]]:
    """Return the reason of a group, and lines with what its examples do not have in common."""
    texts = group.messages
    places = [(_number(each), each.get("email")) for each in group.examples]
    if group.common is not None:
        return texts[0], ["; ".join(_join(*place) for place in places)]
    return group.key.reason, [_join(*place, text) for place, text in zip(places, texts, strict=True)]


def _join(*parts: str | None) -> str:
    return ": ".join(filter(None, parts))


def _number(example: Mapping[str, Any]) -> str:
    unit = "line" if "line" in example else "record"
    return _join(example.get("file"), f"{unit} {example[unit]}")


def print_groups(screen: Screen, groups: Sequence[Shown], noun: str, where: str, reserve: int) -> None:
    """Print groups, the largest first; if they take too many lines, with fewer examples, and then without the last groups.

    `where` is the option with the file that has every member.
    """
    if screen.is_silent:
        for line in _listed([each.lines(0)[0] for each in groups], groups, _MAX_SILENT, noun, where):
            screen.warn(line)
        return
    room = screen.room(reserve)
    for few in (_MAX_EXAMPLES, 1, 0):
        lines = [fit_line(screen, line) for each in groups for line in each.lines(few)]
        if room is None or sum(map(screen.height, lines)) <= max(room, _LEAST):
            break
    else:
        heights = [*accumulate(map(screen.height, lines))]
        lines = _listed(lines, groups, bisect_left(heights, max(room or 0, _LEAST)), noun, where)  # the last line counts the rest
    for line in lines:
        screen.print_line(line)


def _listed(lines: Sequence[str], groups: Sequence[Shown], few: int, noun: str, where: str) -> list[str]:
    if len(groups) <= few:
        return [*lines]
    count = sum(each.count for each in groups[few:])
    reasons = format_count(len(groups) - few, "more reason" if few else "reason")
    return [*lines[:few], f"... and {reasons}: {format_count(count, noun)}; {where} lists all"]


def fit_line(screen: Screen, line: str) -> str:
    """Shorten a line that would take too much of a terminal."""
    if screen.console is None or screen.verbose:
        return line
    width = _MAX_HEIGHT * screen.console.width
    while screen.height(line) > _MAX_HEIGHT:
        line = shorten(line, width := width - 8)
    return line


def print_failed(
    screen: Screen, failed: FailedRows, reserve: int, *, rejects: Path | None = None, findings: Path | None = None
) -> None:
    few = min(failed.exclusions.count, _LEAST - 1)
    where = name_file("--rejects", rejects), name_file("--findings", findings)
    print_groups(screen, [*map(show_rows, failed.failures)], "row", where[0], reserve + few + 1)
    if not screen.is_silent:  # that nobody was written to is not a warning
        print_groups(screen, [*map(show_rows, failed.exclusions)], "row", where[1], reserve)


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
        pairs = [*zip((_shorten(column) for column, _, _ in decisions), columns.codes, strict=True)]
        sent = [f"{column} -> {code}" for column, code in pairs if code is not None]
        ignored = [column for column, code in pairs if code is None]
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
    found = [group for group in preflight.findings if group.key.level != "error" or group.key.check == "gate"]
    below, of, where = [], f"of {preflight.rows:,}", name_file("--findings", findings)
    if preflight.excluded:
        below.append(f"people who must not be written to: {preflight.excluded:,} {of} rows are not sent; {where} lists all")
    if preflight.refused:
        below.append(f"invalid rows, which will be rejected: {preflight.refused:,} {of}")
    if not screen.is_silent:
        print_groups(screen, [*map(show_finding, found)], "finding", where, reserve + len(below) + 1)
    if not {group.key.check for group in found}.isdisjoint(CheckPolicy.of().levels):
        screen.print_footer("--check NAME=error rejects such rows, and NAME=off turns the check off.")
    for line in below:
        screen.print_line(line)


def print_gate(screen: Screen, report: GateReport | None) -> None:
    if report is None:
        return
    found = [(name, count) for name, count in report.counts.items() if count]
    room = screen.room(AFTER_FINDINGS) if screen.console else None
    few = len(found) if room is None else max(room - _TABLE_EDGES, _LEAST)
    if found:
        rows = [(_words(name), count, f"{100 * count / report.rows:.3g}%", report.sources[name]) for name, count in found[:few]]
        screen.print_table(("gate", "rows", "share", "how"), rows)
    if unknown := [f"{_words(name)} ({report.sources[name]})" for name, count in report.counts.items() if count is None]:
        screen.print_line(fit_line(screen, f"gate: unknown: {'; '.join(unknown)}"))
    if (failed := report.sources["no_mail_server"]).startswith("the look-up failed"):  # it was asked for, also with --quiet
        screen.warn(f"gate: {failed}, so no row is withheld for its mail server; to find it elsewhere, pass --gate=mx@ADDRESS")
    risky = f"{len(report.findings):,} of {report.rows:,} rows are risky ({100 * report.risk:.3g}%)"
    bounce = "" if report.predicted is None else f"; {100 * report.predicted:.3g}% of the others may bounce, as far as is known"
    screen.print_line(f"gate: {risky}, and {report.bad:,} of them are not sent{bounce}")


def _words(name: str) -> str:
    return name.replace("_", " ")


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
    again = f"run the same command again: it continues the run in {place}."
    if report.ledger is not None:
        again = "run the same command again: it sends what the ledger does not know."
    if report.ledger is not None or journal:  # the error that stopped a run is printed next
        first = f"Fix the cause of the error. Then {again}" if stopped else again[0].upper() + again[1:]
        screen.print_line(f"Some rows remain. {first}")
    else:
        hint = "Importing the file again is safe: the service detects duplicates."
        screen.print_line(f"The remaining rows were not sent, except perhaps a few that were in flight. {hint}")


def print_remedies(screen: Screen, remedies: Sequence[Mapping[str, Any]], reserve: int) -> None:
    """Print the remedies, or as many as leave room for `reserve` lines, but the first one in any case."""
    lines = [f"  {format_count(each['rows'], 'row')}: {each['remedy']}" for each in remedies]
    room, heights = screen.room(reserve), [*accumulate(map(screen.height, lines), initial=1)]
    few = len(lines) if room is None else max(1, bisect_right(heights, room) - 1)
    for line in ["To import more rows:", *lines[:few]] if lines else ():
        screen.print_line(line, wrap=False)
