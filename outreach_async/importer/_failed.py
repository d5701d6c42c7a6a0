"""Collect the rows of an import that failed or were excluded by reason, and find out what would import most of them."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from outreach_async import Outcome, Target
from outreach_async._plumbing import affects_every_row, is_url, require_types
from outreach_async.bulk import ContactOutcome
from outreach_async.errors import BulkError, OutreachError, StatusError
from outreach_async.importer._checks import CHECK_OF_FIELD, DROPS, Level
from outreach_async.importer._columns import Columns
from outreach_async.importer._groups import Groups, RowKey, find_field, row_key
from outreach_async.importer._job import MappedFile, Preflight
from outreach_async.importer._results import RowOutcome, describe_error, fit_cells, is_reject
from outreach_async.importer._rows import Block, Row, RowFinding, RowReader, describe_misfit

_MAX_REMEDIES: Final = 3
_MAX_SEPARATE: Final = 2  # ways of leaving values out
_BATCH_SIZE: Final = 500  # rows that are checked at a time: most of their values are the same
_LOWERED: Final = frozenset({"role", "typo", "cells"})  # checks whose findings can be sent as they are
_OF_CELLS: Final = frozenset({"cells", "phone"})  # checks of damaged cells, which another check may be strict about
_REPEATS: Final = "repeats"
_SHORT_ROWS: Final = "short_rows"


class _Way(NamedTuple):
    """How a row can be imported: with these checks at a lower level, with another option, or after a correction of fields."""

    checks: tuple[str, ...] = ()
    fields: str = ""
    status: str = Outcome.REJECTED


class FailedRows:
    r"""The failed and the excluded rows of an import, by reason.

    Each reason has its first rows, with their e-mails and errors.

    Attributes:
        failures: Groups of the rows that failed, the largest first.
        exclusions: Groups of the rows that were excluded.
        found: What the check of the file has found, for the numbers of
            rows.
        file: The file of the rows that are added next, to find out what
            would import them; `None` if it is unknown.
        names_files: Whether each example names its file, for an input of
            several files.

    Example:
        ```python
        Path("people.csv").write_text("E-mail,City\nann@company.example,Lyon\n,Rome\n")
        mapped = await ImportJob(file=open_file("people.csv")).map()
        failed = FailedRows(await mapped.check())
        async with client.contacts.create_many(mapped.rows()) as outcomes:
            async for outcome in outcomes:
                failed.add(outcome)
        print([(group.count, group.key.field) for group in failed.failures])  # -> [(1, 'email')]
        ```
    """

    def __init__(self, found: Preflight | None = None, file: MappedFile | None = None) -> None:
        require_types(FailedRows, locals())
        self.failures: Groups[RowKey] = Groups()
        self.exclusions: Groups[RowKey] = Groups()
        self.found = Preflight() if found is None else found
        self.file = file
        self._ways = Counter[_Way]()
        self.names_files = False
        self._rows: list[tuple[Row, ContactOutcome]] = []  # few of one file, whose ways are found together
        self._judged = file
        self._reader: RowReader | None = None

    def add(self, row: ContactOutcome | RowOutcome) -> None:
        """Add a row if it failed or was excluded.

        Example:
            ```python
            await client.contacts.create_many([{"email": ""}], journal="run.db")
            failed = FailedRows()
            for found in results_of(None, Store("run.db").outcomes()):
                failed.add(found)
            print(failed.failures.count)  # -> 1
            ```
        """
        outcome = row.outcome if isinstance(row, RowOutcome) else row
        # An error that affects every row is not listed, because it is printed once, after the run.
        is_excluded = outcome.status == Outcome.EXCLUDED
        if not is_excluded and (not is_reject(outcome) or (outcome.status != Outcome.REJECTED and _is_run_error(outcome.error))):
            return
        if not is_excluded:
            self._count(outcome)
        found = row if isinstance(row, RowOutcome) else self._locate(outcome)

        def describe() -> dict[str, Any]:
            place = {"file": found.file} if self.names_files else {}
            email = {"email": found.email} if found.email else {}
            example: dict[str, Any] = {**place, found.unit: found.number, **email, "message": found.message}
            if isinstance(outcome.contact, Row) and any(name in outcome.contact.members for name in Target._fields):
                example |= outcome.target._asdict()
            return example

        group = self.exclusions if is_excluded else self.failures
        group.add(row_key(outcome, found.message), found.message, found.number, describe)

    def _locate(self, outcome: ContactOutcome) -> RowOutcome:
        number = outcome.contact.line if isinstance(outcome.contact, Row) else self.found.find_number(outcome.index)
        unit = "record" if number is None else self.found.unit
        number = outcome.index + 1 if number is None else number
        return RowOutcome(outcome, number, describe_error(outcome, self.found.find_place), unit=unit)

    def to_dict(self, remedies: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """Return groups and remedies, as the command's JSON result has them.

        Example:
            ```python
            print(FailedRows().to_dict())  # -> {'findings': [], 'failures': [], 'exclusions': [], 'remedies': []}
            ```
        """
        judged = self.found.judged
        return {
            **({} if judged is None else {"gate": judged.to_dict()}),
            "findings": self.found.findings.to_dicts(),
            "failures": self.failures.to_dicts(),
            "exclusions": self.exclusions.to_dicts(),
            "remedies": [*remedies],
        }

    def remedies(self, rejects: Path | None = None, journal: Path | str | None = None) -> list[dict[str, Any]]:
        """Return remedies, those that would import the most rows first.

        Each has the number of `rows`, and the `remedy`: options of the
        command, or what to correct.

        Args:
            rejects: The rejects file of the import, if it has one.
            journal: The journal of the import, if it has one.

        Example:
            ```python
            failed = FailedRows()
            async with client.contacts.create_many([{"email": ""}]) as outcomes:
                failed.add(await anext(aiter(outcomes)))
            print(failed.remedies(Path("rejects.csv"))[0]["remedy"])
            # -> rejects.csv has them; correct the email there, and import that file
            ```
        """
        self._judge()
        dropping = [way for way in self._ways if way.checks and DROPS.issuperset(way.checks)]
        merged = Counter(self._ways)
        if len(dropping) > _MAX_SEPARATE:  # together they import more rows than each alone
            every = _Way(tuple(sorted({check for way in dropping for check in way.checks})))
            merged[every] += sum(merged.pop(way) for way in dropping if way != every)
        most = merged.most_common(_MAX_REMEDIES)
        return [{"rows": rows, "remedy": _word(way, rejects, journal)} for way, rows in most]

    def _count(self, outcome: ContactOutcome) -> None:
        """Count a row that failed by the way in which it can be imported."""
        if outcome.repeats is not None:
            self._ways[_Way((_REPEATS,))] += 1
        elif self.file is None or not isinstance(outcome.contact, Row) or outcome.status != Outcome.REJECTED:
            self._ways[_Way((), find_field(outcome), outcome.status)] += 1
        else:
            if self.file is not self._judged:
                self._judge()
                self._judged, self._reader = self.file, None
            self._rows.append((outcome.contact, outcome))
            if len(self._rows) == _BATCH_SIZE:
                self._judge()

    def _judge(self) -> None:
        file = self._judged
        if file is None or not self._rows:
            return
        if self._reader is None:
            self._reader = RowReader(file.columns, file.checks, file.people, finds_all=True)
        padded = [_pad(row, file.columns) for row, _ in self._rows]
        cells = [row.cells if each is None else each for (row, _), each in zip(self._rows, padded, strict=True)]
        read = self._reader.read(Block([row.line for row, _ in self._rows], cells, {}))
        for at, (row, outcome) in enumerate(self._rows):
            findings = read.findings.get(at, ())
            if padded[at] is None:
                way = _find_way(row, outcome, findings, file.checks.levels)
            else:
                known = read.row(at)
                is_sent = known.fault is None and known.excluded is None and _has_address(known, findings)
                way = _Way((_SHORT_ROWS,)) if is_sent else _Way()
            self._ways[way] += 1
        self._rows.clear()


def _is_run_error(error: OutreachError | None) -> bool:
    return isinstance(error, BulkError) or (isinstance(error, StatusError) and affects_every_row(error))


def _pad(row: Row, columns: Columns) -> Sequence[str] | None:
    """Return the cells of a row that is too short; `None` for other rows, and if a missing cell may say who opted out."""
    width, size = len(columns.headers), len(row.cells)
    is_short = size < width and row.fault == describe_misfit(width, size)
    return fit_cells(row.cells, width) if is_short and all(at < size for at, _ in columns.consent) else None


def _find_way(row: Row, outcome: ContactOutcome, findings: Iterable[RowFinding], levels: Mapping[str, Level]) -> _Way:
    field = find_field(outcome)
    if row.fault is None:  # the service refused the row
        refused = {*field.split(", ")} - {""}
        found = [each for each in findings if each.check in DROPS and each.code in refused]
        is_explained = {each.code for each in found} == refused
        return _Way(tuple(sorted({each.check for each in found}))) if is_explained else _Way((), field)
    errors = [each for each in findings if each.level == "error"]
    checks = {check for each in errors for check in _strict_checks(row, each, levels)}
    if not any(each.message == row.fault for each in errors):
        return _Way((), field)
    if not _has_address(row, findings):
        return _Way((), ", ".join(dict.fromkeys(["email", *filter(None, field.split(", "))])))
    return _Way(tuple(sorted(checks))) if checks <= DROPS | _LOWERED else _Way((), field)


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


def _word(way: _Way, rejects: Path | None, journal: Path | str | None) -> str:
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
