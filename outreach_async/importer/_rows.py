"""The records of a file, and the rows that they become: what is sent of each, and why a row is not sent."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeAlias

import attrs

from outreach_async import Target
from outreach_async._plumbing import (
    Change,
    contact_key,
    find_suspects,
    is_blank,
    read_value,
    require_encodable,
    show_name,
)
from outreach_async.errors import Excluded, InvalidRequest
from outreach_async.importer._checks import (
    CHECK_OF_FIELD,
    SUGGESTION,
    VALUE_CHECKS,
    CheckPolicy,
    Level,
    find_problems,
)
from outreach_async.importer._columns import Columns, is_contact_member
from outreach_async.importer._consent import find_exclusion
from outreach_async.importer._known_exports import fold_name

_MAX_TEXT: Final = 30_000  # characters; a cell of Excel holds 32,767

CellChange: TypeAlias = tuple[int, Change]
"""What a reader found in the column with this index."""


class Oddity(NamedTuple):
    """What few records have: a fault, or what their cells do not show."""

    fault: str | None = None
    issues: tuple[CellChange, ...] = ()
    text: str = ""
    """The row as in the file, if its cells do not show it: of a line that is not CSV or JSON, or with a damaged value."""
    absent: Collection[int] = ()
    """The empty cells that are not blank, because the file does not have them: they say nothing, and clear no field."""


PLAIN: Final = Oddity()

Record: TypeAlias = tuple[int, Sequence[str], Oddity, int]
"""The line of a record, its cells, what is odd about it, and the number of characters of the cells."""


class Block(NamedTuple):
    """Records of a file, in order, and what is odd about some of them, by the index of the record."""

    lines: list[int]
    cells: list[Sequence[str]]
    odd: dict[int, Oddity]

    def choose(self, flags: Sequence[int]) -> Block:
        """Return the records whose flag is set."""
        kept = [at for at, flag in enumerate(flags) if flag]
        if len(kept) == len(self.lines):
            return self
        odd = {place: self.odd[at] for place, at in enumerate(kept) if at in self.odd}
        return Block([self.lines[at] for at in kept], [self.cells[at] for at in kept], odd)

    @property
    def faults(self) -> dict[int, str]:
        return {at: odd.fault for at, odd in self.odd.items() if odd.fault is not None}


def group_records(records: Iterable[Record], size: int, max_length: int) -> Iterator[Block]:
    """Yield the records in blocks of at most `size`, and fewer if the rows are long."""
    lines, all_cells, odd = block = Block([], [], {})
    length = 0
    try:
        for line, cells, oddity, characters in records:
            if oddity is not PLAIN:
                odd[len(lines)] = oddity
            lines.append(line)
            all_cells.append(cells)
            length += characters
            if length > max_length or len(lines) == size:
                yield block
                lines, all_cells, odd = block = Block([], [], {})
                length = 0
    except InvalidRequest:  # an unreadable part follows
        if lines:
            yield block
        raise
    if lines:
        yield block


def text_of(cells: Sequence[str], odd: Oddity, width: int, ignored: Collection[int] = ()) -> str:
    """Return the text of a row for its rejects; empty if the cells, read again, have the same faults as the row."""
    is_damaged = any(change.damaged for at, change in odd.issues if at not in ignored)
    is_shown = not (odd.fault or is_damaged) and len(cells) == width
    return "" if is_shown else odd.text or join_cells(cells)


def join_cells(cells: Sequence[str]) -> str:
    """Return cells as a line of CSV."""
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="").writerow(cells)
    return cut_text(line.getvalue())


def cut_text(text: str) -> str:
    """Return the text of a row, cut to a length that a cell of a spreadsheet holds."""
    length = len(text)
    return text if length <= _MAX_TEXT else f"{text[:_MAX_TEXT]}... (the first {_MAX_TEXT:,} of {length:,} characters)"


class RowFinding(NamedTuple):
    r"""What a check says about a value of a row, or what the cells become.

    Attributes:
        check: Name of the check, such as `"phone"`.
        level: What happens: `"error"` rejects or excludes the row,
            `"drop"` leaves the value out, `"warn"` changes nothing.
        code: The code of the field; empty if the finding is about the
            whole row.
        reason: The part of the message that rows with the same problem
            have in common.
        message: The problem and its remedy.
        column: Name of the column, if a cell was changed, left out, or
            looks damaged.
        kind: The kind of problem of such a cell, in one word, such as
            `"mojibake"`.
        value: The text that is sent instead of the cell, empty if the
            field is left unset; `None` if the cell is sent unchanged.
        damaged: Whether the value is lost. Then nothing of it is sent, and
            `blank="clear"` does not clear the field.

    Example:
        ```python
        Path("people.csv").write_text("E-mail,City\nann@company.example,OrlÃ©ans\n", encoding="utf-8")
        file = open_file("people.csv")
        print([found.kind for row in file.rows(map_columns(file.headers)) for found in row.warnings])  # -> ['mojibake']
        ```
    """

    check: str
    level: str
    code: str
    reason: str
    message: str
    column: str = ""
    kind: str = ""
    value: str | None = None
    damaged: bool = False


@attrs.frozen(slots=False)  # without slots, creating a frozen object takes half the time
class Row(Mapping[str, Any]):
    r"""A row for `create_many`: a mapping of the fields of a new contact.

    Reading the fields of a row with a `fault` raises `InvalidRequest`, and
    a bulk run reports the row as `rejected`. If the row is `excluded`, the
    error is `Excluded`, and so is the outcome.

    Attributes:
        line: The line of the file on which the row begins, from 1; the
            header is usually line 1.
        cells: The cells of the row, as strings, as in the file.
        fault: The reason why the row cannot be sent, if there is one.
        excluded: The reason why the person must not be written to, if a
            column says so.
        warnings: What was changed or found in the cells; the row can still
            be sent.
        sent: The cells as they are sent; empty if the row has not one cell
            for each column.
        text: The row as in the file, if its cells do not show it, such as
            a line that is not CSV; otherwise empty.

    Example:
        ```python
        Path("people.csv").write_text("E-mail,City\nann@company.example,Lyon\n")
        file = open_file("people.csv")
        (row,) = file.rows(map_columns(file.headers))
        print(row.line, dict(row))  # -> 2 {'email': 'ann@company.example', 'city': 'Lyon'}
        ```
    """

    line: int
    cells: tuple[str, ...]
    fault: str | None = None
    excluded: str | None = None
    warnings: tuple[RowFinding, ...] = ()
    _columns: Columns | None = attrs.field(default=None, eq=False, repr=False)
    sent: Sequence[str] = attrs.field(default=(), eq=False, repr=False)
    text: str = attrs.field(default="", eq=False, repr=False)
    _members: Mapping[str, Any] | None = attrs.field(default=None, eq=False, repr=False)
    _absent: Collection[int] = attrs.field(default=(), eq=False, repr=False)

    @property
    def members(self) -> Mapping[str, Any]:
        """The values that are sent, by field code; none of an unreadable row."""
        if self._members is None:  # computed when it is first needed: most rows are sent without
            members = {} if self._columns is None else self._columns.members(self.sent)
            object.__setattr__(self, "_members", members)
            return members
        return self._members

    @property
    def email(self) -> str:
        """The e-mail as it is sent; empty if there is none."""
        if self._columns is None or (at := self._columns.email_at) is None:
            return str(self.members.get("email", ""))
        return self.sent[at]

    @property
    def plain(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """The codes of standard and custom fields, and their cells.

        It is `None` if the row has other values, or cannot be sent.
        """
        columns = self._columns
        if columns is None or columns.plain is None or self._members is not None:
            return None
        if self.fault is not None or self.excluded is not None:
            return None
        codes, pick = columns.plain
        return codes, pick(self.sent)

    @property
    def blanks(self) -> tuple[str, ...]:
        """The codes of fields that are not sent because cells are blank."""
        members, columns = self.members, self._columns
        if columns is None or not self.sent or self.fault is not None or self.excluded is not None:
            return ()
        known = {*members, *members.get("extra", ()), *Target._fields}
        known.update(found.code for found in self.warnings if found.damaged)  # a damaged value may have no text
        return tuple(code for code, places in columns.sources.items() if code not in known and self._is_blank(code, places))

    def _is_blank(self, code: str, places: Iterable[int]) -> bool:
        cells = [self.cells[at] for at in places if at not in self._absent]
        return bool(cells) and all(is_blank(code, cell) for cell in cells)

    def clear_blanks(self) -> Row:
        r"""Return the row with `None` for blank fields, for `blank="clear"`.

        Example:
            ```python
            Path("people.csv").write_text("E-mail,City\nann@company.example,\n")
            file = open_file("people.csv")
            print([dict(row.clear_blanks()) for row in file.rows(map_columns(file.headers))])
            # -> [{'email': 'ann@company.example', 'city': None}]
            ```
        """
        if not (blanks := self.blanks):
            return self
        members = {**self.members, **{code: None for code in blanks if is_contact_member(code)}}
        if extra := {code: None for code in blanks if not is_contact_member(code)}:
            members["extra"] = {**members.get("extra", {}), **extra}
        return attrs.evolve(self, members=members)

    def __getitem__(self, code: str) -> Any:
        return self._require_readable()[code]

    def __iter__(self) -> Iterator[str]:
        return iter(self._require_readable())

    def __len__(self) -> int:
        return len(self.members)

    def items(self) -> ItemsView[str, Any]:
        r"""Return the field codes and values of the row.

        Example:
            ```python
            Path("people.csv").write_text("E-mail,City\nann@company.example,Lyon\n")
            file = open_file("people.csv")
            print([list(row.items()) for row in file.rows(map_columns(file.headers))])
            # -> [[('email', 'ann@company.example'), ('city', 'Lyon')]]
            ```
        """
        # The inherited method is twenty times slower, because it looks up each code.
        return self._require_readable().items()

    def _require_readable(self) -> Mapping[str, Any]:
        if self.excluded is not None:
            raise Excluded(self.excluded)
        if self.fault is not None:
            raise InvalidRequest(self.fault)
        return self.members


class ReadBlock(NamedTuple):
    """The rows of a block as they are sent. `odd` has each row that is not sent, or not with exactly its cells."""

    block: Block
    columns: Columns
    odd: Mapping[int, Row]
    findings: Mapping[int, Sequence[RowFinding]]

    def row(self, at: int) -> Row:
        if at in self.odd:
            return self.odd[at]
        cells, absent = tuple(self.block.cells[at]), self.block.odd.get(at, PLAIN).absent
        return Row(self.block.lines[at], cells, columns=self.columns, sent=cells, absent=absent)

    def rows(self) -> Iterator[Row]:
        cells = [*map(tuple, self.block.cells)]
        rows = map(Row, self.block.lines, cells, repeat(None), repeat(None), repeat(()), repeat(self.columns), cells)
        others = self.odd.keys() | self.block.odd.keys()
        return (self.row(at) if at in others else row for at, row in enumerate(rows)) if others else rows


@attrs.define
class _Draft:
    """The rows of a block while they are read: their cells and their values by column, and what was found by row."""

    cells: Sequence[Sequence[str]]
    columns: list[Sequence[str]]
    odd: set[int] = attrs.Factory(set)
    faults: dict[int, str] = attrs.Factory(dict)
    findings: defaultdict[int, list[RowFinding]] = attrs.Factory(lambda: defaultdict(list))

    def put(self, column: int, values: Mapping[int, str]) -> None:
        """Replace the values of some rows."""
        texts = list(self.columns[column])
        for row, value in values.items():
            texts[row] = value
        self.columns[column] = texts
        self.odd.update(values)


_MIN_PHONE_DIGITS: Final = 11  # of a whole number that may be a phone number
_BLANK_EMAIL: Final = "email: expected an address, got a blank string; give the contact an e-mail address"

_Issues: TypeAlias = Mapping[int, Mapping[int, Sequence[Change]]]
"""What the reader of the file found in its cells, by column and row."""


ExcludedPeople: TypeAlias = Mapping[int, str]
"""The first row that excludes each person, such as `line 7`, by the hash of the person's e-mail."""


SAME_PERSON: Final = "same address as an excluded row"


class RowReader:
    """Reads the rows of blocks, in a dry run and in a run alike, so that a run sends exactly what the dry run has judged.

    If one row of a person is excluded, `people` says so of all. Only with `finds_all`, values are also checked by the checks that
    merely warn, which takes most of the time.
    """

    def __init__(
        self, columns: Columns, policy: CheckPolicy, people: ExcludedPeople | None = None, *, finds_all: bool = False
    ) -> None:
        if "email" not in columns.sources:
            raise InvalidRequest("columns: expected a column that maps to 'email', which every contact needs, got none; map one")
        self.columns, self._levels, self._people = columns, policy.levels, {} if people is None else people
        self._drops_phones = policy.levels["phone"] != "off" or "phone" in policy.missing
        levels = {"error", "drop", "warn"} if finds_all else {"error", "drop"}
        self._checks = [
            (name, code, at)
            for name, (codes, _) in VALUE_CHECKS.items()
            for code in codes
            if policy.levels[name] in levels and (at := columns.sources.get(code, (None,))[0]) is not None
        ]

    def read(self, block: Block) -> ReadBlock:
        """Return the rows of a block. The first value of each field counts, and is checked."""
        draft, faults = self._draft(block.cells, block.faults)
        excluded = self._find_excluded(draft.cells, block, self.columns.consent) if self._levels["consent"] != "off" else {}
        issues = self._issues(block, faults)
        for code, places in self.columns.sources.items():
            self._read_field(draft, code, places, issues)
        for name, code, at in self._checks:
            self._check(draft, name, code, at)
        self._require_sendable(draft, block, faults)
        if self._people:
            excluded |= self._find_people(draft, {row for row, finding in excluded.items() if finding.level == "error"})
        return self._assemble(block, draft, faults, excluded)

    def find_excluded(self, block: Block) -> list[tuple[int, str]]:
        """Return the index and the e-mail of each row that a column excludes, also of rows that do not fit the header."""
        width = len(self.columns.headers)
        cells = [each if len(each) == width else [*each, *[""] * width][:width] for each in block.cells]
        draft, faults = self._draft(cells, {})
        # A deleted record is often a duplicate of one that stays, so it says nothing about its person.
        consent = [(at, code) for at, code in self.columns.consent if "deleted" not in fold_name(self.columns.headers[at])]
        if not (excluded := self._find_excluded(draft.cells, block, consent)):
            return []
        places = self.columns.sources["email"]
        self._read_field(draft, "email", places, self._issues(block, faults))
        emails = self._list_emails(draft)
        return [(row, emails[row]) for row in sorted(excluded) if excluded[row].level == "error" and emails[row].strip()]

    def _list_emails(self, draft: _Draft) -> Sequence[str]:
        """Return the e-mails by which people are compared, also of cells that are sent as they are."""
        texts = draft.columns[self.columns.sources["email"][0]]
        return [read_value("email", text)[0] for text in texts] if self._levels["cells"] == "off" else texts

    def _draft(self, cells: Sequence[Sequence[str]], faults: Mapping[int, str]) -> tuple[_Draft, Mapping[int, str]]:
        """Return a draft of rows, without the cells of faulty rows, and the faults."""
        width = len(self.columns.headers)
        if {*map(len, cells)} != {width}:
            faults = {at: describe_misfit(width, len(each)) for at, each in enumerate(cells) if len(each) != width} | {**faults}
        if faults:
            cells = [("",) * width if at in faults else each for at, each in enumerate(cells)]
        columns = [*zip(*cells, strict=True)]
        return _Draft(columns, [*columns]), faults

    def _issues(self, block: Block, faults: Mapping[int, str]) -> _Issues:
        return _by_column(block, faults) if block.odd and self._levels["cells"] != "off" else {}

    def _find_excluded(
        self, columns: Sequence[Sequence[str]], block: Block, consent: Sequence[tuple[int, str]]
    ) -> dict[int, RowFinding]:
        """Return a finding for each row of a person who must not be written to, or whose consent cannot be read."""
        found: dict[int, RowFinding] = {}
        for at, code in sorted(consent, key=lambda each: each[1] == "email_status"):  # what a person said counts first
            header = self.columns.headers[at]
            name = f"column {header.strip()!r}"
            reasons = {text: find_exclusion(code, header, text) for text in {*columns[at]}}
            said = (
                {row: reason for row, text in enumerate(columns[at]) if (reason := reasons[text])}
                if any(reasons.values())
                else {}
            )
            unread = dict[int, str]()
            issues = ((row, issue) for row, odd in block.odd.items() for issue in odd.issues)
            for row, change in ((row, change) for row, (place, change) in issues if place == at):
                if change.kind in {"error", "nested", "bytes"}:
                    unread[row] = f"{name}: {change.message}"
            for row, reason in {**said, **unread}.items():
                found.setdefault(row, RowFinding("consent", self._levels["consent"], code, name, reason))
        return found

    def _find_people(self, draft: _Draft, known: Collection[int]) -> dict[int, RowFinding]:
        """Return a finding for each row of a person whom another row of the file excludes."""
        people = self._people
        return {
            row: RowFinding(
                "consent", "error", "email", SAME_PERSON, f"same address as {people[person]}, whose person must not be written to"
            )
            for row, person in enumerate(map(hash, map(contact_key, self._list_emails(draft))))
            if person in people and row not in known
        }

    def _read_field(self, draft: _Draft, code: str, places: Sequence[int], issues: _Issues) -> None:
        """Put the first value of a field, of those in its columns, at the place of the first column, and note what was found."""
        first, notes = places[0], defaultdict[int, list[tuple[int, Change]]](list)
        rows: Sequence[int] = range(len(draft.cells[first]))
        for at in places:
            texts = draft.cells[at]
            if at != first:
                rows = [row for row in rows if not (text := draft.columns[first][row]) or text.isspace()]
            values, changes = self._read_cells(code, texts, rows, issues.get(at, {}))
            if at != first:
                values = {row: values.get(row, texts[row]) for row in rows}
            if values:
                draft.put(first, values)
            for row, found in changes.items():
                notes[row] += [(at, change) for change in found]
        for row, changed in notes.items():
            self._note(draft, row, code, changed)

    def _read_cells(
        self, code: str, texts: Sequence[str], rows: Sequence[int], issues: Mapping[int, Sequence[Change]]
    ) -> tuple[dict[int, str], dict[int, Sequence[Change]]]:
        """Return the values of some rows that differ from their cells, and the changes and findings, by row."""
        if self._levels["cells"] == "off":
            return {}, {}
        distinct = {*texts} if len(rows) == len(texts) else {texts[row] for row in rows}
        known = {text: read_value(code, text) for text in find_suspects(code, distinct)}
        if code.endswith("_phone") and not self._drops_phones:
            known = {text: read for text, read in known.items() if not any(each.kind == "phone" for each in read[1])}
        found = {row: known[text] for row in rows if (text := texts[row]) in known} if known else {}
        for row in rows if issues else ():
            if given := [each for each in issues.get(row, ()) if _is_relevant(each, code, texts[row])]:
                value, changes = found.get(row, (texts[row], ()))
                found[row] = next((each.value for each in given if each.value is not None), value), (*given, *changes)
        for row, (_, changes) in found.items():
            if damaged := tuple(each for each in changes if each.damaged):
                found[row] = "", damaged
        return (
            {row: value for row, (value, _) in found.items() if value != texts[row]},
            {row: changes for row, (_, changes) in found.items() if changes},
        )

    def _note(self, draft: _Draft, row: int, code: str, changes: Sequence[tuple[int, Change]]) -> None:
        is_lost = not draft.columns[self.columns.sources[code][0]][row].strip()
        for at, change in changes:
            level: Level = "drop" if change.damaged else "warn"
            is_strict = change.damaged and self._levels[CHECK_OF_FIELD.get(code, "cells")] == "error"
            if self._levels["cells"] == "error" or (is_lost and (is_strict or code == "email")):
                level = "error"
            message = change.loss if level == "drop" else change.message
            value = "" if change.damaged else change.value
            name = change.kind if change.kind == "phone" else "cells"
            changed = (self.columns.headers[at], change.kind, value, change.damaged)
            draft.findings[row].append(RowFinding(name, level, code, change.reason, f"{code}: {message}", *changed))
        draft.odd.add(row)

    def _check(self, draft: _Draft, name: str, code: str, at: int) -> None:
        texts, level, (country, *_) = draft.columns[at], self._levels[name], self.columns.sources.get("country", (None,))
        countries = [""] * len(texts) if country is None else draft.columns[country]
        problems = find_problems(name, texts, countries)
        changed = (self.columns.headers[at], name, "") if level == "drop" else ()
        for row, problem in problems.items():
            message = f"{code}: {show_name(texts[row].strip())}: {problem}"
            reason = problem.partition(SUGGESTION)[0]
            draft.findings[row].append(RowFinding(name, level, code, reason, message, *changed))
        if level == "drop" and problems:
            draft.put(at, dict.fromkeys(problems, ""))

    def _require_sendable(self, draft: _Draft, block: Block, faults: Mapping[int, str]) -> None:
        """Note the faults of rows that the service can never accept."""
        emails = draft.columns[self.columns.sources["email"][0]]
        if blank := {email for email in {*emails} if not email or email.isspace()}:
            draft.faults |= {row: _BLANK_EMAIL for row, email in enumerate(emails) if email in blank}
        if self._levels["cells"] != "off":
            return
        lost = _by_column(block, faults)
        for code, (first, *_) in self.columns.sources.items():
            for row, text in enumerate(draft.columns[first]):
                try:
                    require_encodable(code, text)
                except InvalidRequest as error:
                    draft.faults.setdefault(row, str(error))
            for row, changes in lost.get(first, {}).items():
                if changes[0].kind == "nested" and not draft.columns[first][row]:  # nothing can be sent as it is
                    draft.faults.setdefault(row, f"{code}: {changes[0].message}")

    def _assemble(self, block: Block, draft: _Draft, faults: Mapping[int, str], excluded: Mapping[int, RowFinding]) -> ReadBlock:
        for row, finding in excluded.items():
            draft.findings[row] = [finding] if finding.level == "error" else [*draft.findings[row], finding]
        errors = {row: found for row, found in draft.findings.items() if any(each.level == "error" for each in found)}
        odd: dict[int, Row] = {}
        codes = self.columns.codes
        ignored = {at for at, code in enumerate(codes) if code is None}
        for row in {*faults, *draft.odd, *draft.faults, *errors}:
            line, cells, found = block.lines[row], tuple(block.cells[row]), block.odd.get(row, PLAIN)
            text = text_of(cells, found, len(codes), ignored)
            if row in faults:
                odd[row] = Row(line, cells, faults[row], text=text)
                continue
            fault, reason = draft.faults.get(row), None
            if row in errors:
                first = min((each for each in errors[row] if each.level == "error"), key=lambda each: each.code != "email")
                fault, reason = (None, first.message) if first.check == "consent" else (first.message, None)
            sent = tuple(column[row] for column in draft.columns)
            warnings = tuple(finding for finding in draft.findings.get(row, ()) if finding.kind)
            odd[row] = Row(line, cells, fault, reason, warnings, self.columns, sent, text, absent=found.absent)
        return ReadBlock(block, self.columns, odd, draft.findings)


def describe_misfit(width: int, count: int) -> str:
    remedy = "name every column, and quote cells that contain the delimiter"
    if count < width:
        remedy = "quote a cell that contains a line break, or pass --short-rows pad if blank cells are missing at the end"
    return f"expected {width} cells, as in the header, got {count}; {remedy}"


def _by_column(block: Block, faults: Mapping[int, str]) -> _Issues:
    found: defaultdict[int, defaultdict[int, list[Change]]] = defaultdict(lambda: defaultdict(list))
    for row, odd in block.odd.items():
        for column, change in odd.issues if row not in faults else ():
            found[column][row].append(change)
    return found


def _is_relevant(change: Change, code: str, cell: str) -> bool:
    return change.kind != "number" or code.endswith("_phone") or code == "zip" or len(cell.lstrip("-")) >= _MIN_PHONE_DIGITS
