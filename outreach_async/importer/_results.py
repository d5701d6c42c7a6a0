"""What became of each row of an import, and files with it: results, rejects that users can correct, and findings of checks."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from io import TextIOWrapper
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self, TypeAlias

import attrs

from outreach_async import Outcome, store
from outreach_async._plumbing import (
    atomic_file,
    escape_formula,
    mask_keys,
    open_table,
    read_value,
    rejection_message,
    require_types,
    show_name,
    similar_names,
)
from outreach_async.bulk import ContactOutcome
from outreach_async.errors import Forbidden, InvalidRequest, NotFound
from outreach_async.importer._columns import Columns
from outreach_async.importer._groups import find_field
from outreach_async.importer._job import MappedFile
from outreach_async.importer._known_exports import clean_name
from outreach_async.importer._mapping import IGNORE
from outreach_async.importer._rows import PLAIN, Row, RowFinding, join_cells, text_of
from outreach_async.importer._table import REASONS, File, count_reason_columns, read_records
from outreach_async.models import FAILED_OUTCOMES

_OUTCOME_COLUMNS: Final = ("email", "workspace", "campaign", "status", "certain", "possible", "attempts", "id", "error", "remedy")
_PLACE_COLUMNS: Final = ("file", "line", "record")
_RESULT_COLUMNS: Final = (*_PLACE_COLUMNS, *_OUTCOME_COLUMNS)
_FINDING_COLUMNS: Final = (*_PLACE_COLUMNS, "check", "level", "field", "column", "value", "message")
_HEAD_SIZE: Final = 1 << 16  # of a file from which its kind is recognised
_REMEDIES: Final[Mapping[Outcome, str]] = {
    Outcome.REJECTED: "correct the row, and import it again",
    Outcome.NOT_APPLIED: "import the row again",
    Outcome.UNKNOWN: "import the row again; the service detects a contact that exists",
}
_UNKNOWN_TARGET: Final = "check the workspace and the campaign of the row, and import it again"

FindPlace: TypeAlias = Callable[[int], str | None]
"""A function that takes the index of a row, and returns where the row is, such as `line 7`; `None` if that is unknown."""


def is_reject(outcome: ContactOutcome) -> bool:
    """Return whether a row failed, but not because another superseded it.

    Failed rows are `rejected`, `not_applied` or `unknown`.

    Example:
        ```python
        async with client.contacts.create_many([{"email": ""}, {"email": "bo@acme.example"}]) as outcomes:
            print(sorted([(outcome.index, is_reject(outcome)) async for outcome in outcomes]))  # -> [(0, True), (1, False)]
        ```
    """
    is_superseded = outcome.repeats is not None and outcome.status is Outcome.NOT_APPLIED
    return outcome.status in FAILED_OUTCOMES and not is_superseded


@attrs.frozen(slots=False)  # as `Row`
class RowOutcome:
    """An outcome of a run, with its row in the input.

    Attributes:
        outcome: The outcome.
        number: The line of the row or, with the unit `record`, its
            position, from 1.
        message: The error; of a repeat, with the place of the earlier row.
            Empty if there is none.
        cells: The cells of the row, as in its file.
        headers: The names of the columns.
        text: The row as in the file, if its cells do not show it, or if it
            is a repeat.
        file: Path or URL of the file; `None` if unknown, or a stream.
        unit: What the number counts.

    Example:
        ```python
        report = await client.contacts.create_many([{"email": ""}], journal="run.db")
        (found,) = results_of(None, Store("run.db").outcomes())
        print(found.place, found.unit, found.message.partition(";")[0])
        # -> record 1 record email: expected an address, got a blank string
        ```
    """

    outcome: ContactOutcome
    number: int
    message: str
    cells: Sequence[str] = ()
    headers: tuple[str, ...] = ()
    text: str = ""
    file: str | None = None
    unit: str = "line"
    _email_at: Sequence[int] = ()

    @classmethod
    def of(cls, file: File, outcome: ContactOutcome, find_place: FindPlace = lambda _index: None) -> RowOutcome:
        r"""Return an outcome whose contact is a `Row` of a file.

        `find_place` tells where the row with an index is, as `line 7`.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            file = open_file("people.csv")
            async with client.contacts.create_many(file.rows(map_columns(file.headers))) as outcomes:
                print([RowOutcome.of(file, outcome).place async for outcome in outcomes])  # -> ['line 2']
            ```
        """
        row: Any = outcome.contact
        return _locate(outcome, file, row, find_place)

    @property
    def place(self) -> str:
        """Where the row is, in words."""
        return f"{self.unit} {self.number}"

    @property
    def email(self) -> str:
        """The e-mail of the row; empty if there is none."""
        contact = self.outcome.contact
        if isinstance(contact, Row):
            return contact.email.strip()
        if self._email_at:
            return next(filter(None, (_read_email(self.cells[at]) for at in self._email_at if at < len(self.cells))), "")
        return str(contact.get("email", "")).strip() if isinstance(contact, Mapping) else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the columns of a results file, with a remedy for a failure.

        Example:
            ```python
            await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db")
            print([found.to_dict()["status"] for found in results_of(None, Store("run.db").outcomes())])  # -> ['added']
            ```
        """
        outcome, error, remedy = self.outcome, self.message, None
        if is_reject(outcome):
            remedy = _REMEDIES[outcome.status]
            if isinstance(outcome.error, InvalidRequest):  # its message ends with the remedy
                error, _, remedy = error.rpartition("; ") if "; " in error else (error, "", remedy)
            elif isinstance(outcome.error, Forbidden | NotFound):  # a target that does not exist, or is not the caller's
                remedy = _UNKNOWN_TARGET
        described: dict[str, Any] = {"file": self.file} if self.file else {}
        described[self.unit] = self.number
        certainty = (outcome.status.value, outcome.certain, sorted(outcome.possible), outcome.attempts)
        values = (self.email, *outcome.target, *certainty, outcome.id, error or None, remedy)
        described.update(zip(_OUTCOME_COLUMNS, values, strict=True))
        return described


def _locate(outcome: ContactOutcome, file: File, row: Row, find_place: FindPlace, email_at: Sequence[int] = ()) -> RowOutcome:
    # Alone in a rejects file, a repeat would replace the values of the row that counts, so it has its text there.
    text = row.text or (join_cells(row.cells) if outcome.repeats is not None and is_reject(outcome) else "")
    message = describe_error(outcome, find_place)
    return RowOutcome(outcome, row.line, message, row.cells, file.headers, text, file.location, file.unit, email_at)


def describe_error(outcome: ContactOutcome, find_place: FindPlace) -> str:
    """Return the error of a row; of a repeat, with the place of the earlier row."""
    place = find_place(outcome.repeats) if outcome.repeats is not None and is_reject(outcome) else None
    return str(outcome.error or "") if place is None else rejection_message(place)


def _name_record(index: int) -> str:
    return f"record {index + 1}"


def _read_email(cell: str) -> str:
    value, changes = read_value("email", cell)
    return "" if any(change.damaged for change in changes) else value.strip()


def results_of(
    rows: File | Iterable[tuple[MappedFile, Row]] | None,
    outcomes: Iterable[ContactOutcome],
    mapping: Mapping[str, str] | None = None,
) -> Iterator[RowOutcome]:
    r"""Yield outcomes in the order of their index, each with its row.

    `ResultsFile` and `RejectsFile` write them. The failed rows are those
    of `filter(is_reject, outcomes)`.

    Args:
        rows: The file; or all rows of the input in order, each with its
            file; `None` if the input is unknown, such as that of a run
            whose journal stores it.
        outcomes: The outcomes.
        mapping: The mapping of the journal's report, which says in which
            columns of a file the e-mails are. A damaged value in a column
            that it ignores is no reason for a row to be rejected again.

    Raises:
        InvalidRequest: The file can no longer be read, or the outcomes
            come from a journal that does not exist.
        JournalError: The journal cannot be read.

    Example:
        ```python
        Path("people.csv").write_text('E-mail,City\nann@company.example,\n" ",Lyon\n')
        file = open_file("people.csv")
        await client.contacts.create_many(file.rows(map_columns(file.headers)), journal="run.db")
        outcomes = Store("run.db").outcomes()
        print([(found.number, found.outcome.status.value) for found in results_of(file, outcomes)])
        # -> [(2, 'added'), (3, 'rejected')]
        ```
    """
    require_types(results_of, locals())
    if rows is None:
        for outcome in outcomes:
            yield RowOutcome(outcome, outcome.index + 1, describe_error(outcome, _name_record), unit="record")
        return
    located = (
        _read_rows(rows, mapping or {})
        if isinstance(rows, File)
        else ((mapped.file, row, mapped.columns.sources["email"]) for mapped, row in rows)
    )
    numbers, files = array("Q"), list[tuple[int, File]]()

    def name(index: int) -> str:
        _, first = files[bisect_right(files, index, key=itemgetter(0)) - 1]
        return f"{first.location}: " * (len(files) > 1) + f"{first.unit} {numbers[index]}"

    for outcome in outcomes:
        while len(numbers) <= outcome.index:
            file, row, email_at = next(located)
            if not files or files[-1][1].location != file.location:
                files.append((len(numbers), file))
            numbers.append(row.line)
        yield _locate(outcome, file, row, name, email_at)


def _read_rows(file: File, mapping: Mapping[str, str]) -> Iterator[tuple[File, Row, Sequence[int]]]:
    names = [*map(clean_name, file.headers)]
    emails = [names.index(name) for name, code in mapping.items() if code.split(" ")[0] == "email" and name in names]
    ignored = {at for at, name in enumerate(names) if mapping.get(name) == IGNORE}
    records = read_records(file)
    return ((file, Row(line, cells, text=text_of(cells, odd, len(names), ignored)), emails) for line, cells, odd in records)


def spooled_rejects(journal: store.Store) -> tuple[tuple[str, ...], Iterator[RowOutcome]]:
    """Return the columns and failed rows of a run, for `RejectsFile`.

    The run's journal must store the input (`spool=True`). The columns are
    field codes. The journal does not store the values of rows that can
    never be sent, so their cells are empty.

    Raises:
        InvalidRequest: The journal does not exist.
        JournalError: The journal cannot be read.

    Example:
        ```python
        fake.faults.script("create_contact", faults.status(422))
        rows = [{"email": "ann@company.example", "city": "Lyon"}]
        await client.contacts.create_many(rows, journal="run.db", spool=True)
        headers, rejects = spooled_rejects(Store("run.db"))
        print(headers, [row.cells for row in rejects])  # -> ('email', 'city') [['ann@company.example', 'Lyon']]
        ```
    """
    codes: dict[str, None] = {"email": None}
    for outcome in filter(is_reject, journal.outcomes()):
        codes |= dict.fromkeys(_string_members(outcome))

    def read() -> Iterator[RowOutcome]:
        for found in results_of(None, filter(is_reject, journal.outcomes())):
            cells = [_string_members(found.outcome).get(code, "") for code in codes]
            text = join_cells(cells) if found.outcome.repeats is not None else ""
            yield attrs.evolve(found, cells=cells, text=text)

    return tuple(codes), read()


def _string_members(outcome: ContactOutcome) -> dict[str, str]:
    members = outcome.contact if isinstance(outcome.contact, Mapping) else {}
    return {str(code): value for code, value in members.items() if isinstance(value, str)}


class _OutputFile(ABC):
    """A file that appears when the `with` block ends, even after an exception. Only its owner can read a new one."""

    def __init__(self, path: str | Path) -> None:
        require_types(_OutputFile, {"path": path})
        self.rows = 0
        self.is_finished = True
        self.path = Path(path)

    def __enter__(self) -> Self:
        """Create a temporary file."""
        with ExitStack() as stack:
            self._open(stack)
            self._exit_stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._exit_stack.close()

    @abstractmethod
    def _open(self, stack: ExitStack) -> None: ...

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Return whether a file, edited or not, is of this kind and suffix.

        Example:
            ```python
            with ResultsFile(Path("results.csv")):
                pass
            print(ResultsFile.recognises(Path("results.csv")))  # -> True
            ```
        """
        with path.open("rb") as file:
            return cls._fits(file.read(_HEAD_SIZE).removeprefix(b"\xef\xbb\xbf"), path.suffix.lower())

    @classmethod
    @abstractmethod
    def _fits(cls, head: bytes, suffix: str) -> bool: ...


class RejectsFile(_OutputFile):
    r"""A CSV file of failed rows, in UTF-8.

    The file appears when the `with` block ends, even after an exception.

    Only its owner can read a new file; an existing file keeps its
    permissions. Cells that a spreadsheet would run as a formula start with
    an apostrophe, and control characters other than newline and tab are
    escaped. An import reverses both changes.

    Args:
        path: Path of the file.
        headers: Column names of the input.

    Attributes:
        path: Path of the file.
        rows: Number of rows written.
        is_finished: Whether the rows are those of a finished run, true by
            default. Otherwise the file is written beside that at `path`,
            and does not replace it: for `rejects.csv`, its name is
            `rejects.partial.csv`.

    Raises:
        OSError: The file cannot be written; raised on entering or leaving
            the `with` block.

    Example:
        ```python
        Path("people.csv").write_text('E-mail,City\n" ",Lyon\n')
        file = open_file("people.csv")
        with RejectsFile("rejects.csv", file.headers) as rejects:
            async with client.contacts.create_many(file.rows(map_columns(file.headers))) as outcomes:
                async for outcome in outcomes:
                    if is_reject(outcome):
                        rejects.add(RowOutcome.of(file, outcome))
        print(rejects.rows)  # -> 1
        ```
    """

    def __init__(self, path: str | Path, headers: Sequence[str]) -> None:
        require_types(RejectsFile, {"headers": headers})
        super().__init__(path)
        self._headers = headers

    def _open(self, stack: ExitStack) -> None:
        draft = stack.enter_context(atomic_file(self.path, private=True, is_finished=lambda: self.is_finished))
        # A response of the service may contain lone surrogates, which UTF-8 cannot encode.
        self._text = TextIOWrapper(draft, encoding="utf-8", errors="backslashreplace", newline="")
        stack.callback(self._text.detach)  # writes what is buffered, and leaves the file open
        self.replace(())

    @classmethod
    def _fits(cls, head: bytes, suffix: str) -> bool:  # noqa: ARG003 - it is CSV in any case
        text = head.decode(errors="replace")
        return count_reason_columns(next(csv.reader(io.StringIO(text, newline="")), ())) > 0

    def replace(self, found: Iterable[RowOutcome]) -> None:
        """Write these rows instead of those that were written so far.

        Example:
            ```python
            await client.contacts.create_many([{"email": ""}], journal="run.db", spool=True)
            with RejectsFile("rejects.csv", ["email"]) as rejects:
                rejects.replace(spooled_rejects(Store("run.db"))[1])
            print(rejects.rows)  # -> 1
            ```
        """
        self._text.seek(0)
        self._text.truncate()
        self.rows = 0
        self._writer = csv.writer(self._text)
        self._writer.writerow([*map(escape_formula, self._headers), *REASONS])
        for each in found:
            self.add(each)

    def add(self, found: RowOutcome) -> None:
        """Write a failed row to the file.

        Example:
            ```python
            await client.contacts.create_many([{"email": ""}], journal="run.db")
            with RejectsFile("rejects.csv", ["E-mail"]) as rejects:
                rejects.add(next(results_of(None, Store("run.db").outcomes())))
            print(Path("rejects.csv").read_text().splitlines()[0])  # -> E-mail,_row,_code,_field,_message,_text
            ```
        """
        width, message = len(self._headers), found.message
        text = found.text or text_of(found.cells, PLAIN, width)
        if text and "_text" not in message:
            message += "; when the cells are right, clear _text"
        reasons = (str(found.number), found.outcome.status.value, find_field(found.outcome), message, text)
        self._writer.writerow(map(escape_formula, (*fit_cells(found.cells, width), *reasons)))
        self.rows += 1


def fit_cells(cells: Sequence[str], width: int) -> list[str]:
    """Return the first cells of a row, as many as there are columns. `text_of` returns all cells of a row that does not fit."""
    return [*cells[:width], *[""] * (width - len(cells))]


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
        results = {*map(str.casefold, _RESULT_COLUMNS)}
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


class _TableFile(_OutputFile):
    """A CSV, JSON Lines or Parquet file, as the suffix of its name says."""

    columns: ClassVar[tuple[str, ...]]

    def __init__(self, path: Path, more: Iterable[str] = ()) -> None:
        super().__init__(path)
        require_types(_TableFile, {"more": more})
        self._columns = (*self.columns, *more)

    def _open(self, stack: ExitStack) -> None:
        self._write = stack.enter_context(open_table(self.path, self._columns, lambda: self.is_finished))

    @classmethod
    def _fits(cls, head: bytes, suffix: str) -> bool:
        begins = {".jsonl": b'{"file": ', ".parquet": b"PAR1"}
        return head.startswith(begins.get(suffix, ",".join(cls.columns).encode()))

    def _add(self, values: Mapping[str, Any]) -> None:
        self._write(values)
        self.rows += 1


class ResultsFile(_TableFile):
    """A CSV, JSON Lines or Parquet file (by suffix) of what became of rows.

    The file appears when the `with` block ends, even after an exception,
    and only its owner can read a new file.

    Args:
        path: Path of the file.
        keep: Names of columns of the input that are copied, or `"all"`. A
            column with a name of the results, regardless of case, is
            renamed `input_NAME`: so is `id`.
        headers: The column names of the inputs.

    Attributes:
        path: Path of the file.
        columns: Names of the columns, but for those that are kept. A row
            from standard input with a journal has a record number instead
            of a file and a line.
        rows: Number of rows written.
        is_finished: Whether the rows are those of a finished run, true by
            default. Otherwise the file is written beside that at `path`,
            and does not replace it: for `results.csv`, its name is
            `results.partial.csv`.

    Raises:
        InvalidRequest: No input has a column of `keep`.
        OSError: The file cannot be written; raised on entering or leaving
            the `with` block.

    Example:
        ```python
        await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db")
        with ResultsFile(Path("results.csv")) as results:
            for found in results_of(None, Store("run.db").outcomes()):
                results.add(found)
        print(results.rows, ResultsFile.recognises(Path("results.csv")))  # -> 1 True
        ```
    """

    columns = _RESULT_COLUMNS

    def __init__(self, path: Path, keep: Iterable[str] = (), headers: Iterable[Sequence[str]] = ()) -> None:
        require_types(ResultsFile, {"keep": keep, "headers": headers})
        self._kept = _KeptColumns(keep, headers)
        super().__init__(path, self._kept.names.values())

    def add(self, found: RowOutcome) -> None:
        """Write an outcome to the file.

        Example:
            ```python
            await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db")
            with ResultsFile(Path("results.jsonl")) as results:
                results.add(next(results_of(None, Store("run.db").outcomes())))
            print(results.rows)  # -> 1
            ```
        """
        self._add({**found.to_dict(), **self._kept.pick(found.headers, found.cells)})


class FindingsFile(_TableFile):
    r"""A CSV, JSON Lines or Parquet file (by suffix) of a check's findings.

    Args:
        path: Path of the file.
        more: Names of more columns.

    Attributes:
        path: Path of the file.
        rows: Number of findings written.
        is_finished: Whether the check has finished, as for `ResultsFile`.

    Raises:
        OSError: The file cannot be written; raised on entering or leaving
            the `with` block.

    Example:
        ```python
        Path("people.csv").write_text("E-mail,City\nann@company.example,NULL\n")
        mapped = await ImportJob(file=open_file("people.csv")).map()
        with FindingsFile(Path("findings.csv")) as findings:
            await mapped.check(Preflight(on_finding=findings.add))
        print(findings.rows)  # -> 1
        ```
    """

    columns = _FINDING_COLUMNS

    def add(self, checked: MappedFile, number: int, finding: RowFinding, cells: Sequence[str]) -> None:
        r"""Write a finding, with the number and the cells of its row.

        The cells are empty for a repeated e-mail.

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
        place = {"file": file.location} if file.location else {}
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
