"""What became of each row of an import, and files with it: results, and what the checks have found."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self, cast

import attrs

from outreach_async import Outcome
from outreach_async._plumbing import (
    fails_only_its_rows,
    is_url,
    mask_keys,
    open_table,
    read_value,
    rejection_message,
    show_name,
    similar_names,
)
from outreach_async.bulk import ContactOutcome
from outreach_async.errors import InvalidRequest
from outreach_async.importer._columns import Columns
from outreach_async.importer._job import MappedFile
from outreach_async.importer._known_exports import clean_name
from outreach_async.importer._mapping_file import IGNORE
from outreach_async.importer._rejects import Reject, is_reject, reject
from outreach_async.importer._rows import Row, RowFinding, text_of
from outreach_async.importer._table import File, read_records

_OUTCOME_COLUMNS: Final = ("workspace", "campaign", "status", "certain", "possible", "attempts", "id", "error", "remedy")
RESULT_COLUMNS: Final = ("file", "line", "record", "email", *_OUTCOME_COLUMNS)
"""The columns of a results file. A row from standard input with a journal has a record number instead of a file and a line.

Example:
    ```python
    print(RESULT_COLUMNS[:4])  # -> ('file', 'line', 'record', 'email')
    ```
"""
_FINDING_COLUMNS: Final = ("file", "line", "record", "check", "level", "field", "column", "value", "message")
_REMEDIES: Final[Mapping[Outcome, str]] = {
    Outcome.REJECTED: "correct the row, and import it again",
    Outcome.NOT_APPLIED: "import the row again",
    Outcome.UNKNOWN: "import the row again; the service detects a contact that exists",
}
_UNKNOWN_TARGET: Final = "check the workspace and the campaign of the row, and import it again"


@attrs.frozen
class PlacedRow:
    """A row of a file, and where it is.

    Attributes:
        number: Its line or, with the unit `record`, its position, from 1.
        cells: Its cells, as in the file.
        headers: The names of the columns.
        email_at: The indexes of the columns of e-mails, the preferred one first.
        text: The row as in the file, if its cells do not show it.
        file: Path or URL of the file.
        unit: What the number counts.

    Example:
        ```python
        print(PlacedRow(2, ["ann@company.example"], ("E-mail",), (0,)).place)  # -> line 2
        ```
    """

    number: int
    cells: Sequence[str] = ()
    headers: tuple[str, ...] = ()
    email_at: Sequence[int] = ()
    text: str = ""
    file: str | None = None
    unit: str = "line"

    @property
    def place(self) -> str:
        """Where the row is, in words."""
        return f"{self.unit} {self.number}"


@attrs.frozen
class RowOutcome:
    """An outcome of a run, with its row in the input.

    Attributes:
        outcome: The outcome.
        row: The row.
        message: The error; of a repeat, with the place of the earlier row. Empty if there is none.

    Example:
        ```python
        report = await client.contacts.create_many([{"email": ""}], journal="run.db")
        (found,) = locate_outcomes(Journal("run.db").outcomes())
        print(found.row.place, found.row.unit, found.message.partition(";")[0])
        # -> record 1 record email: expected an address, got a blank string
        ```
    """

    outcome: ContactOutcome
    row: PlacedRow
    message: str

    @classmethod
    def of(cls, file: File, outcome: ContactOutcome) -> RowOutcome:
        r"""Return an outcome whose contact is a `Row` of a file.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            file = open_file("people.csv")
            async with client.contacts.create_many(file.rows(map_columns(file.headers))) as outcomes:
                print([RowOutcome.of(file, outcome).row.place async for outcome in outcomes])  # -> ['line 2']
            ```
        """
        row, path = cast("Row", outcome.contact), str(file.path) if file.path else None
        placed = PlacedRow(row.line, row.cells, file.headers, (), row.text, path, file.unit)
        return cls(outcome, placed, str(outcome.error or ""))

    @property
    def email(self) -> str:
        """The e-mail of the row; empty if there is none."""
        if isinstance(self.outcome.contact, Row) or not self.row.email_at:
            return find_email(self.outcome)
        cells = self.row.cells
        return next(filter(None, (_read_email(cells[at]) for at in self.row.email_at if at < len(cells))), "")

    def to_dict(self) -> dict[str, Any]:
        """Return the columns of a results file, with a remedy if the row failed.

        Example:
            ```python
            await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db")
            print([found.to_dict()["status"] for found in locate_outcomes(Journal("run.db").outcomes())])  # -> ['added']
            ```
        """
        outcome, error, remedy = self.outcome, self.message, None
        if is_reject(outcome):
            remedy = _REMEDIES[outcome.status]
            if isinstance(outcome.error, InvalidRequest):  # its message ends with the remedy
                error, _, remedy = error.rpartition("; ") if "; " in error else (error, "", remedy)
            elif outcome.error is not None and fails_only_its_rows(outcome.error):
                remedy = _UNKNOWN_TARGET
        certainty = (outcome.status.value, outcome.certain, sorted(outcome.possible), outcome.attempts)
        place = {"file": self.row.file} if self.row.file else {}
        values = (*outcome.target, *certainty, outcome.id, error or None, remedy)
        described = dict(zip(_OUTCOME_COLUMNS, values, strict=True))
        return {**place, self.row.unit: self.row.number, "email": self.email, **described}

    def reject(self) -> Reject:
        """Return the row as `RejectsFile.add` takes it.

        Example:
            ```python
            await client.contacts.create_many([{"email": ""}], journal="run.db")
            print([found.reject().field for found in locate_outcomes(Journal("run.db").outcomes())])  # -> ['email']
            ```
        """
        made = reject(self.row.number, self.row.cells, self.outcome, text=self.row.text)
        return attrs.evolve(made, message=self.message)


def find_email(outcome: ContactOutcome) -> str:
    row = outcome.contact
    if isinstance(row, Row):
        return row.email.strip()
    return str(row.get("email", "")).strip() if isinstance(row, Mapping) else ""


def _read_email(cell: str) -> str:
    value, changes = read_value("email", cell)
    return "" if any(change.damaged for change in changes) else value.strip()


def locate_outcomes(outcomes: Iterable[ContactOutcome], rows: Iterable[PlacedRow] | None = None) -> Iterator[RowOutcome]:
    """Yield outcomes, ordered by index, each with its row; without `rows`, with the position of its row.

    Example:
        ```python
        await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db", spool=True)
        print([found.email for found in locate_outcomes(Journal("run.db").outcomes())])  # -> ['ann@company.example']
        ```
    """
    if rows is None:
        for outcome in outcomes:
            placed = PlacedRow(outcome.index + 1, unit="record")
            yield RowOutcome(outcome, placed, _message_of(outcome, lambda index: f"record {index + 1}"))
        return
    numbers, files, left = array("Q"), list[tuple[int, PlacedRow]](), iter(rows)

    def name(index: int) -> str:
        _, first = files[bisect_right(files, index, key=itemgetter(0)) - 1]
        return f"{first.file}: " * (len(files) > 1) + f"{first.unit} {numbers[index]}"

    for outcome in outcomes:
        while len(numbers) <= outcome.index:
            row = next(left)
            if not files or files[-1][1].file != row.file:
                files.append((len(numbers), row))
            numbers.append(row.number)
        yield RowOutcome(outcome, row, _message_of(outcome, name))


def _message_of(outcome: ContactOutcome, name: Callable[[int], str]) -> str:
    if outcome.repeats is not None and is_reject(outcome):
        return rejection_message(name(outcome.repeats))
    return str(outcome.error or "")


def place_rows(file: File | None, mapping: Mapping[str, str] | None) -> Iterator[PlacedRow] | None:
    """Yield the rows of a file, given the mapping of a journal's report."""
    if file is None:
        return None
    names, columns = [*map(clean_name, file.headers)], mapping or {}
    emails = [names.index(name) for name, code in columns.items() if code.split(" ")[0] == "email" and name in names]
    ignored = {at for at, name in enumerate(names) if columns.get(name) == IGNORE}
    path, width = str(file.path) if file.path else None, len(names)
    return (
        PlacedRow(each.line, each.cells, file.headers, emails, text_of(each, width, ignored), path, file.unit)
        for each in read_records(file)
    )


def results_of(
    file: File | None, outcomes: Iterable[ContactOutcome], mapping: Mapping[str, str] | None = None
) -> Iterator[RowOutcome]:
    r"""Yield the outcomes of the rows of a file, in the order of their index, each with its row, for `ResultsFile`.

    Args:
        file: The file; `None` if it is unknown, such as that of a run whose journal stores the input.
        outcomes: The outcomes.
        mapping: The mapping of the journal's report, which says in which columns the e-mails are.

    Raises:
        InvalidRequest: The file can no longer be read, or the outcomes come from a journal that does not exist.
        JournalError: The journal cannot be read.

    Example:
        ```python
        Path("people.csv").write_text("E-mail\nann@company.example\n")
        file = open_file("people.csv")
        await client.contacts.create_many(file.rows(map_columns(file.headers)), journal="run.db")
        print([found.to_dict()["line"] for found in results_of(file, Journal("run.db").outcomes())])  # -> [2]
        ```
    """
    return locate_outcomes(outcomes, place_rows(file, mapping))


def rejects_of(file: File, outcomes: Iterable[ContactOutcome], mapping: Mapping[str, str] | None = None) -> Iterator[Reject]:
    r"""Yield the failed rows of a file, given the outcomes of its rows in the order of their index.

    With the `mapping` of a journal's report, a damaged value in a column that is ignored is no reason for a row to be rejected
    again.

    Raises:
        InvalidRequest: The file can no longer be read, or the outcomes come from a journal that does not exist.
        JournalError: The journal cannot be read.

    Example:
        ```python
        Path("people.csv").write_text('E-mail,City\n" ",Lyon\n')
        file = open_file("people.csv")
        await client.contacts.create_many(file.rows(map_columns(file.headers)), journal="run.db")
        print([(row.line, row.field) for row in rejects_of(file, Journal("run.db").outcomes())])  # -> [(2, 'email')]
        ```
    """
    return (found.reject() for found in results_of(file, filter(is_reject, outcomes), mapping))


_ALL: Final = "all"
_PREFIX: Final = "input_"
_MIN_SIMILARITY: Final = 0.5


class _KeptColumns:
    """Picks cells of the input by the name of their column, so that people can join results on a key of theirs.

    A column whose name is that of a column of results, regardless of case, is renamed `input_NAME`: so is `id`.
    """

    def __init__(self, wanted: Iterable[str], headers: Iterable[Sequence[str]]) -> None:
        known: dict[str, None] = {}
        for each in headers:
            known |= dict.fromkeys(_name_columns(each))
        names: dict[str, None] = {}
        for name in (each.strip() for each in wanted):
            if name != _ALL and name not in known:
                near = similar_names(name, known, _MIN_SIMILARITY, text=" (similar: {})")
                raise InvalidRequest(f"keep: the file has no column {show_name(name)}{near}; use a name from its header")
            names |= known if name == _ALL else {name: None}
        results = {*map(str.casefold, RESULT_COLUMNS)}
        used = results | {*map(str.casefold, names)}
        self.names: dict[str, str] = {}
        for name in names:
            # Some readers ignore case. Arrow and UTF-8 cannot store lone surrogates.
            given = name.encode(errors="backslashreplace").decode()
            if name.casefold() in results:
                while given.casefold() in used:
                    given = f"{_PREFIX}{given}"
                used.add(given.casefold())
            self.names[name] = given
        self._places: dict[tuple[str, ...], list[tuple[int, str]]] = {}

    def pick(self, headers: tuple[str, ...], cells: Sequence[str]) -> Mapping[str, str | None]:
        """Return the cells of a row as in its file, `None` where it has none, by the names of the results file."""
        if not self.names:
            return {}
        if (places := self._places.get(headers)) is None:
            named = enumerate(_name_columns(headers))
            places = self._places[headers] = [(at, self.names[name]) for at, name in named if name in self.names]
        return {name: cells[at] if at < len(cells) else None for at, name in places}


def _name_columns(headers: Sequence[str]) -> list[str]:
    """Return the names of columns, which are unique except for blank ones."""
    return [header.strip() or f"column {at}" for at, header in enumerate(headers, 1)]


class _TableFile:
    """A CSV, JSON Lines or Parquet file, as the suffix of its name says. It is completed also if the `with` block raises."""

    columns: ClassVar[tuple[str, ...]]

    def __init__(self, path: Path, more: Iterable[str] = ()) -> None:
        self.rows = 0
        self.is_finished = True
        self.path = path
        self._columns = (*self.columns, *more)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._write = stack.enter_context(open_table(self.path, self._columns, lambda: self.is_finished))
            self._exit_stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._exit_stack.close()

    def _add(self, values: Mapping[str, Any]) -> None:
        self._write(values)
        self.rows += 1

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Return whether a file looks like one of this kind, in the format that its suffix says.

        Example:
            ```python
            with ResultsFile(Path("results.csv")):
                pass
            print(ResultsFile.recognises(Path("results.csv")))  # -> True
            ```
        """
        begins = {".jsonl": b'{"file": ', ".parquet": b"PAR1"}
        begin = begins.get(path.suffix.lower(), ",".join(cls.columns).encode())
        with path.open("rb") as file:
            return file.read(len(begin) + 3).removeprefix(b"\xef\xbb\xbf").startswith(begin)


class ResultsFile(_TableFile):
    """A file with what became of each row: CSV, JSON Lines or Parquet, as the suffix of its name says.

    The file appears when the `with` block ends, even after an exception, and only its owner can read a new file.

    Args:
        path: Path of the file.
        keep: Names of columns of the input that are copied, or `"all"`. A column with a name of the results, regardless of case,
            is renamed `input_NAME`: so is `id`.
        headers: The column names of the inputs.

    Attributes:
        path: Path of the file.
        rows: Number of rows written.
        is_finished: Whether the rows are those of a finished run, true by default. Otherwise the file is written beside that at
            `path`, and does not replace it: for `results.csv`, its name is `results.partial.csv`.

    Raises:
        InvalidRequest: No input has a column of `keep`.
        OSError: The file cannot be written; raised on entering or leaving the `with` block.

    Example:
        ```python
        await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db")
        with ResultsFile(Path("results.csv")) as results:
            for found in locate_outcomes(Journal("run.db").outcomes()):
                results.add(found)
        print(results.rows, ResultsFile.recognises(Path("results.csv")))  # -> 1 True
        ```
    """

    columns = RESULT_COLUMNS

    def __init__(self, path: Path, keep: Iterable[str] = (), headers: Iterable[Sequence[str]] = ()) -> None:
        self._kept = _KeptColumns(keep, headers)
        super().__init__(path, self._kept.names.values())

    def add(self, found: RowOutcome) -> None:
        """Write an outcome to the file.

        Example:
            ```python
            await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db")
            with ResultsFile(Path("results.jsonl")) as results:
                results.add(next(locate_outcomes(Journal("run.db").outcomes())))
            print(results.rows)  # -> 1
            ```
        """
        self._add({**found.to_dict(), **self._kept.pick(found.row.headers, found.row.cells)})


class FindingsFile(_TableFile):
    r"""A file with every finding of a check: CSV, JSON Lines or Parquet, as the suffix of its name says.

    Args:
        path: Path of the file.
        more: Names of more columns.

    Attributes:
        path: Path of the file.
        rows: Number of findings written.
        is_finished: Whether the check has finished, as for `ResultsFile`.

    Raises:
        OSError: The file cannot be written; raised on entering or leaving the `with` block.

    Example:
        ```python
        Path("people.csv").write_text("E-mail,City\nann@company.example,NULL\n")
        mapped = await ImportJob(file=open_file("people.csv")).map()
        with FindingsFile(Path("findings.csv")) as findings:
            await mapped.check(on_finding=findings.add)
        print(findings.rows)  # -> 1
        ```
    """

    columns = _FINDING_COLUMNS

    def add(self, checked: MappedFile, number: int, finding: RowFinding, cells: Sequence[str]) -> None:
        r"""Write a finding in a row of a file with this number and these cells; the cells are empty for a repeated e-mail.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            mapped = await ImportJob(file=open_file("people.csv")).map()
            with FindingsFile(Path("findings.csv")) as findings:
                findings.add(mapped, 2, RowFinding("role", "warn", "email", "a role", "email: a role"), ["info@company.example"])
            print(findings.rows)  # -> 1
            ```
        """
        file = checked.file
        place = {"file": str(file.path or file.name)} if file.path or is_url(file.name) else {}
        column, value = _find_cell(checked.columns, finding.code, cells)
        found = {file.unit: number, "check": finding.check, "level": finding.level, "field": finding.code}
        texts = {"column": column, "value": mask_keys(value), "message": mask_keys(finding.message)}
        self._add({**place, **found, **texts})


def _find_cell(columns: Columns, code: str, cells: Sequence[str]) -> tuple[str, str]:
    """Return the name and the cell of the column that a value of a field comes from; blank ones if it has none."""
    places = columns.sources.get(code) or [at for at, kind in columns.consent if kind == code]
    found = [at for at in places if at < len(cells) and cells[at].strip()] or [*places]
    if not found:
        return "", ""
    return columns.headers[found[0]].strip(), cells[found[0]] if found[0] < len(cells) else ""
