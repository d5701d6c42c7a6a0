"""Find the changes of the options or of the file with which most of the failed rows of an import would be imported."""

from __future__ import annotations

import shlex
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, count
from pathlib import Path
from typing import Final, NamedTuple

import attrs

from outreach_async import Outcome
from outreach_async._cli.output import Screen
from outreach_async._plumbing import is_url
from outreach_async.bulk import ContactOutcome
from outreach_async.errors import format_count
from outreach_async.importer import Columns, Row
from outreach_async.importer._checks import CHECK_OF_FIELD, DROPS, Level
from outreach_async.importer._rejects import find_field, fit_cells
from outreach_async.importer._rows import Block, RowFinding, RowReader, describe_misfit

_MAX_REMEDIES: Final = 3
_MAX_SEPARATE: Final = 2  # ways of leaving values out
_BATCH_SIZE: Final = 500  # rows that are checked at a time: most of their values are the same
_LOWERED: Final = frozenset({"role", "typo", "cells"})  # checks whose findings can be sent as they are
_OF_CELLS: Final = frozenset({"cells", "phone"})  # checks of damaged cells, which another check may be strict about
_REPEATS: Final = "repeats"
_SHORT_ROWS: Final = "short_rows"


class Remedy(NamedTuple):
    """What to do, and the number of rows that it imports."""

    rows: int
    remedy: str


class Way(NamedTuple):
    """How a row can be imported: with these checks at a lower level, with another option, or after a correction of fields."""

    checks: tuple[str, ...] = ()
    fields: str = ""
    status: str = Outcome.REJECTED


@attrs.define
class Ways:
    """Counts the failed rows by the way in which they can be imported. Few rows are kept at a time."""

    reader: RowReader | None = None
    levels: Mapping[str, Level] = attrs.Factory(dict)
    _counts: Counter[Way] = attrs.Factory(Counter)
    _rows: list[tuple[Row, ContactOutcome]] = attrs.Factory(list)

    def add(self, outcome: ContactOutcome) -> None:
        """Count a row that failed."""
        if outcome.repeats is not None:
            self._counts[Way((_REPEATS,))] += 1
        elif self.reader is None or not isinstance(outcome.contact, Row) or outcome.status != Outcome.REJECTED:
            self._counts[Way((), find_field(outcome), outcome.status)] += 1
        else:
            self._rows.append((outcome.contact, outcome))
            if len(self._rows) == _BATCH_SIZE:
                self._judge(self.reader)

    def _judge(self, reader: RowReader) -> None:
        padded = [_pad(row, reader.columns) for row, _ in self._rows]
        cells = [row.cells if each is None else each for (row, _), each in zip(self._rows, padded, strict=True)]
        read = reader.read(Block([row.line for row, _ in self._rows], cells, {}, {}, {}))
        for at, (row, outcome) in enumerate(self._rows):
            findings = read.findings.get(at, ())
            if padded[at] is None:
                way = _find_way(row, outcome, findings, self.levels)
            else:
                known = read.row(at)
                is_sent = known.fault is None and known.excluded is None and _has_address(known, findings)
                way = Way((_SHORT_ROWS,)) if is_sent else Way()
            self._counts[way] += 1
        self._rows.clear()

    def counts(self) -> Mapping[Way, int]:
        if self.reader is not None and self._rows:
            self._judge(self.reader)
        return self._counts


def _pad(row: Row, columns: Columns) -> Sequence[str] | None:
    """Return the cells of a row that is too short; `None` for other rows, and if a missing cell may say who opted out."""
    width, size = len(columns.headers), len(row.cells)
    is_short = size < width and row.fault == describe_misfit(width, size)
    return fit_cells(row.cells, width) if is_short and all(at < size for at, _ in columns.consent) else None


def _find_way(row: Row, outcome: ContactOutcome, findings: Iterable[RowFinding], levels: Mapping[str, Level]) -> Way:
    field = find_field(outcome)
    if row.fault is None:  # the service refused the row
        refused = {*field.split(", ")} - {""}
        found = [each for each in findings if each.check in DROPS and each.code in refused]
        is_explained = {each.code for each in found} == refused
        return Way(tuple(sorted({each.check for each in found}))) if is_explained else Way((), field)
    errors = [each for each in findings if each.level == "error"]
    checks = {check for each in errors for check in _strict_checks(row, each, levels)}
    if not any(each.message == row.fault for each in errors):
        return Way((), field)
    if not _has_address(row, findings):
        return Way((), ", ".join(dict.fromkeys(["email", *filter(None, field.split(", "))])))
    return Way(tuple(sorted(checks))) if checks <= DROPS | _LOWERED else Way((), field)


def _has_address(row: Row, findings: Iterable[RowFinding]) -> bool:
    """Return whether a row has an address to which the service may write: no option gives it one."""
    return bool(row.email.strip()) and all(each.check != "email" for each in findings)


def _strict_checks(row: Row, finding: RowFinding, levels: Mapping[str, Level]) -> Iterable[str]:
    """Return the checks because of whose level a finding rejects its row."""
    if finding.check not in _OF_CELLS:
        return (finding.check,)
    if finding.code == "email":  # a damaged e-mail always does
        return ("cells",) if row.email.strip() else ("email",)
    return (check for check in ("cells", CHECK_OF_FIELD.get(finding.code, "cells")) if levels[check] == "error")


def list_remedies(counts: Mapping[Way, int], rejects: Path | None, journal: Path | str | None) -> list[Remedy]:
    """Return the remedies that import most rows, those of the most rows first."""
    dropping = [way for way in counts if way.checks and DROPS.issuperset(way.checks)]
    merged = Counter(counts)
    if len(dropping) > _MAX_SEPARATE:  # together they import more rows than each alone
        every = Way(tuple(sorted({check for way in dropping for check in way.checks})))
        merged[every] += sum(merged.pop(way) for way in dropping if way != every)
    return [Remedy(rows, _word(way, rejects, journal)) for way, rows in merged.most_common(_MAX_REMEDIES)]


def _word(way: Way, rejects: Path | None, journal: Path | str | None) -> str:
    again = "" if journal is None else f" --journal {shlex.quote(str(_next_journal(journal)))}"
    if way.checks == (_REPEATS,):
        return f"--repeats serial{again} sends them, too"
    if way.checks == (_SHORT_ROWS,):
        return f"--short-rows pad{again} sends them, with blank cells for those that are missing at the end"
    if way.checks:
        options = " ".join(f"--check {check}={'drop' if check in DROPS else 'warn'}" for check in way.checks)
        dropped = [check.replace("_", " ") for check in way.checks if check in DROPS]
        without = f" without the {' and '.join(filter(None, (', '.join(dropped[:-1]), dropped[-1])))}" if dropped else ""
        return f"{options}{again} sends them{without}"
    what = (
        f"correct the {way.fields or 'rows'} there, and import that file"
        if way.status == Outcome.REJECTED
        else "import that file"
    )
    if rejects is not None:
        return f"{shlex.quote(str(rejects))} has them; {what}"
    report = f"outreach-async report {shlex.quote(str(journal))} " if journal else ""
    return f"{report}--rejects rejects.csv writes them to a file; {what}"


def _next_journal(journal: Path | str) -> Path | str:
    """Return a path or URL beside that of a journal, at which there is none."""
    text = str(journal).rstrip("/")
    if is_url(text):
        return f"{text}-2"
    path = Path(text)
    return next(each for at in count(2) if not (each := path.with_name(f"{path.stem}-{at}{path.suffix}")).exists())


def print_remedies(screen: Screen, remedies: Sequence[Remedy], reserve: int) -> None:
    """Print the remedies, or as many as leave room for `reserve` lines, but the first one in any case."""
    lines = [f"  {format_count(rows, 'row')}: {remedy}" for rows, remedy in remedies]
    room, heights = screen.room(reserve), [*accumulate(map(screen.height, lines), initial=1)]
    few = len(lines) if room is None else max(1, bisect_right(heights, room) - 1)
    for line in ["To import more rows:", *lines[:few]] if lines else ():
        screen.print_line(line, wrap=False)
