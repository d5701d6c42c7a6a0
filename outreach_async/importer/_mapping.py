"""Mappings of columns to fields: TOML files, and the error for columns that are unknown or ambiguous, with proposals."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from outreach_async._plumbing import atomic_write, parse_toml, require_types, show_name
from outreach_async.errors import InvalidRequest, format_count
from outreach_async.importer._consent import CONSENT_CODES, guess_kinds
from outreach_async.importer._known_exports import clean_name, find_ambiguous, fold_name

IGNORE: Final = "ignore"
"""The code that ignores a column. An empty code has the same meaning."""

CODE: Final = "CODE"
"""The placeholder in a proposed option for which no field is known. It is not a code, so an option with it is refused."""

_TABLE: Final = "columns"
_MAX_SIZE: Final = 1 << 24
_EXAMPLE: Final = 'write, for example, [columns] and below it "Company" = "company_name"'


def read_mapping(path: str | Path) -> dict[str, str]:
    r"""Read a mapping file of `--save-mapping`: codes by column name.

    Raises:
        InvalidRequest: The file cannot be read, or is not a mapping.

    Example:
        ```python
        Path("mapping.toml").write_text('[columns]\n"Firm" = "company_name"\n')
        print(read_mapping("mapping.toml"))  # -> {'Firm': 'company_name'}
        ```
    """
    path = Path(path)
    try:
        if path.stat().st_size > _MAX_SIZE:
            raise InvalidRequest(f"mapping: {path} has more than {_MAX_SIZE:,} bytes; {_EXAMPLE}")
        document: dict[str, Any] = parse_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRequest(f"mapping: {path}: {error.strerror or error}; pass a readable file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"mapping: {path} is not TOML in UTF-8: {error}; {_EXAMPLE}") from None
    columns = document.get(_TABLE)
    if set(document) != {_TABLE} or not isinstance(columns, dict):
        got = ", ".join(map(repr, document)) or "none"
        raise InvalidRequest(f"mapping: {path}: expected one table, [columns], got {got}; {_EXAMPLE}")
    for column, code in columns.items():
        if not isinstance(code, str):
            raise InvalidRequest(
                f"mapping: {path}: column {show_name(column)}: expected a field code in quotes, got {code!r}; {_EXAMPLE}"
            )
    return {clean_name(column): code.strip() for column, code in columns.items()}


def clean_names(mapping: Mapping[str, str]) -> dict[str, str]:
    require_types(clean_names, {"mapping": mapping})
    return {clean_name(column): code for column, code in mapping.items()}


def apply_mapping(saved: Mapping[str, str], headers: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the part of a saved mapping that applies to the columns of a file."""
    names = {*map(clean_name, headers)}
    lacking = [column for column, code in saved.items() if column not in names and code not in {"", "ignore"}]
    return {column: code for column, code in saved.items() if column in names}, lacking


def number_codes(mapping: Mapping[str, str]) -> dict[str, str]:
    """Return a mapping in order of preference for a journal, which has to tell a first column of a field from a second one."""
    counts = Counter[str]()
    numbered: dict[str, str] = {}
    for column, code in mapping.items():
        counts[code] += 1
        is_first = counts[code] == 1 or code in {"", IGNORE, *CONSENT_CODES}
        numbered[column] = code if is_first else f"{code} ({counts[code]})"
    return numbered


def mapping_text(name: str, notes: Sequence[str], rows: Sequence[tuple[str, str, str]]) -> str:
    """Return a mapping file for a file with this name, from the name, the code and the reason of each column."""
    lines = [f"Fields for the columns of {_to_comment(name)}; read this file with --mapping.", *notes]
    lines += ["Each value is a field code, as listed by the command 'fields', or \"ignore\"."]
    entries: dict[str, str] = {}
    for column, code, reason in rows:
        # A repeated name, such as a blank name, is written once: an override applies to every column with that name.
        entries.setdefault(column, f"{_quote(column)} = {_quote(code)} # {_to_comment(reason)}")
    return "".join(f"{line}\n" for line in (*(f"# {line}" for line in lines), "", f"[{_TABLE}]", *entries.values()))


def _quote(value: str) -> str:
    # As JSON, except that TOML does not allow DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _to_comment(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


Decision: TypeAlias = tuple[str | None, str]
"""The code of a column (`None` to ignore the column), and the reason for the code."""

_MAX_SHOWN: Final = 7  # columns listed in an error; a sheet can have 16,384 columns
_MAX_COMPARED: Final = 100  # columns for which similar fields are searched, which takes milliseconds for each
_MAX_SAMPLE_LENGTH: Final = 30  # characters of a sample cell that an error shows
_MAX_SIMILAR: Final = 3
_ADDRESS: Final = re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+")
_MIN_SIMILARITY: Final = 0.8  # of proposed fields: 'adress' and 'adresse' have 0.92, 'plan' and 'land' 0.75


def is_address(text: str) -> bool:
    return _ADDRESS.fullmatch(text.strip()) is not None


def map_option(header: str, code: str) -> str:
    """Return the option that maps a column, quoted for a shell."""
    return f"--map {shlex.quote(f'{clean_name(header)}={code}')}"


def describe_sample(sample: str) -> str:
    return f" (such as {show_name(sample, _MAX_SAMPLE_LENGTH)})" if sample else ""


def order_columns(count: int, groups: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Return the indexes of all columns as in the file, except that those of one group are in the order of the group."""
    order = [*range(count)]
    for places in groups:
        for slot, at in zip(sorted(places), places, strict=True):
            order[slot] = at
    return tuple(order)


def find_meanings(header: str) -> tuple[str, ...]:
    """Return the codes among which the user chooses for an ambiguous column; none for an unknown one, which may be left out."""
    if ambiguous := find_ambiguous(header):
        return ambiguous.may_be
    return (*kinds, IGNORE) if (kinds := guess_kinds(header)) else ()


@attrs.frozen
class UnmappedColumn:
    number: int
    header: str
    proposals: tuple[str, ...]
    ambiguous: bool
    sample: str = ""
    doubt: str = ""
    """Why the column is not recognised by its values."""

    @property
    def remark(self) -> str:
        """What is special about the column; empty for any other unknown column."""
        if not clean_name(self.header):
            return f"column {self.number} has no name"
        if not {*CONSENT_CODES}.isdisjoint(self.proposals):
            return "looks like a column that says who must not be written to"
        return "ambiguous" if self.ambiguous else ""

    @property
    def comments(self) -> list[str]:
        """What a user needs to know to choose a code, to be written behind the proposal."""
        comments = [self.remark, self.doubt or describe_sample(self.sample)[2:-1]]
        comments += [f"or {', '.join(self.proposals[1:])}"] if len(self.proposals) > 1 else []
        return [comment for comment in comments if comment]

    def option(self) -> str:
        """Return the option that maps the column to the best proposal, quoted for a shell."""
        return map_option(self.header, self.proposals[0])

    def __str__(self) -> str:
        others = f" (or {', '.join(self.proposals[1:])})" if len(self.proposals) > 1 else ""
        name = f"{self.remark or 'unknown'} column {self.header!r}"
        if not clean_name(self.header) or self.remark.startswith("looks"):
            name = f"column {self.header!r} {self.remark}" if clean_name(self.header) else self.remark
        return f"{name}{describe_sample(self.sample)}: {self.option()}{others}"


class UnmappedColumns(InvalidRequest):
    """Raised if columns of a file are unknown or ambiguous.

    Attributes:
        columns: These columns, each with `header`, `sample`, and the codes
            that it may have in `proposals`, the best one first: `CODE` for
            a column that resembles no field.
        draft: The mapping file that `save` has written, for the user to
            complete.

    Example:
        ```python
        try:
            map_columns(["E-mail", "Qqq"])
        except UnmappedColumns as error:
            print(error.columns[0].header, error.columns[0].proposals)  # -> Qqq ('CODE', 'ignore')
        ```
    """

    columns: tuple[UnmappedColumn, ...] = ()
    draft: Path | None = None
    _headers: tuple[str, ...] = ()
    _decisions: tuple[Decision | None, ...] = ()
    _order: tuple[int, ...] = ()  # of the columns: those of one field are in order of preference
    _draft_existed: bool = False

    def save(self, path: Path, name: str) -> None:
        """Write the mapping of the file `name`, for the user to complete.

        A file that exists is left as it is.

        Raises:
            OSError: The file cannot be written.

        Example:
            ```python
            try:
                map_columns(["E-mail", "Qqq"])
            except UnmappedColumns as error:
                error.save(Path("mapping.toml"), "people.csv")
            print(Path("mapping.toml").read_text().splitlines()[-1])  # -> "Qqq" = "CODE" # check this line: or ignore
            ```
        """
        self.draft, self._draft_existed = path, path.is_file() and path.stat().st_size > 0
        if self._draft_existed:
            return
        decisions = [decision or (None, "unknown, ignored") for decision in self._decisions]
        for column in self.columns:
            decisions[column.number - 1] = column.proposals[0], f"check this line: {'; '.join(column.comments)}"
        rows = [
            (clean_name(header), IGNORE if code is None else code, reason)
            for header, (code, reason) in zip(self._headers, decisions, strict=True)
        ]
        notes = [f"Check the marked lines, and replace each {CODE} with the code of a field, or with {IGNORE}."]
        atomic_write(path, mapping_text(name, notes, [rows[at] for at in self._order]))

    def lines(self) -> Iterator[str]:
        """Yield lines for a terminal: a `--map` option for the first columns.

        Example:
            ```python
            try:
                map_columns(["E-mail", "Titel"])
            except UnmappedColumns as error:
                print(next(error.lines()))  # -> 1 ambiguous column; pass these options:
            ```
        """
        # A shell ignores the comment of an option, so users can copy the line.
        count, more = len(self.columns), len(self.columns) - _MAX_SHOWN
        ambiguous = sum(column.ambiguous for column in self.columns)
        unknown = count - ambiguous
        kinds = [f"{number:,} {kind}" for number, kind in ((unknown, "unknown"), (ambiguous, "ambiguous")) if number]
        columns = "columns" if count > 1 else "column"
        yield f"{' and '.join(kinds)} {columns}; pass these options{'' if ambiguous else ', or --ignore-unknown'}:"
        for column in self.columns[:_MAX_SHOWN]:
            yield f"  {column.option()}" + (f"  # {'; '.join(column.comments)}" if column.comments else "")
        if more > 0:
            remedy = "" if self.draft else "; --save-mapping mapping.toml writes all to a file"
            yield f"  ... and {format_count(more, 'more column')}{remedy}"
        if self.draft is not None:
            path = shlex.quote(str(self.draft))
            if self._draft_existed:
                yield f"{path} exists and is left as it was; pass a new path to --save-mapping for a file with all columns"
            else:
                yield f"{path} has all columns; edit it, and pass --mapping {path} instead of these options"
        if unknown and ambiguous:
            yield "To skip the unknown columns, but not the ambiguous ones: --ignore-unknown"
        if not any(self._decisions):
            yield "No column is recognised. If a title precedes the header, pass --header-row N."
            yield "If another character separates the columns, pass --delimiter CHAR."
        elif any(column.proposals[0] == CODE for column in self.columns[:_MAX_SHOWN]):
            yield f"Replace {CODE} with the code of a field, as listed by: outreach-async fields"
        else:
            yield "To list the fields of the workspace: outreach-async fields"


def unmapped_error(  # noqa: PLR0917 - what `map_columns` has found out
    headers: Sequence[str],
    decisions: Sequence[Decision | None],
    unmapped: Sequence[int],
    codes: Mapping[str, str],
    samples: Sequence[str],
    order: tuple[int, ...],
) -> UnmappedColumns:
    """Return the error for the unmapped columns. `codes` are those of all fields, by their normalised names."""
    taken = {decision[0] for decision in decisions if decision} - {*CONSENT_CODES}  # any number of columns may have those
    columns = list[UnmappedColumn]()
    for at in unmapped:
        meanings = similar = find_meanings(headers[at])
        if not meanings and len(columns) < _MAX_COMPARED:
            matches = get_close_matches(fold_name(headers[at]), codes, n=6, cutoff=_MIN_SIMILARITY)
            similar = tuple(dict.fromkeys(codes[match] for match in matches))[:_MAX_SIMILAR]
            if is_address(samples[at]) and "email" not in taken:
                similar = ("email", *similar)
        # The best proposal comes first. It never ignores the column, whose data would be lost.
        proposals = tuple(code for code in similar if code not in taken and code != IGNORE)
        if not proposals or (not meanings and proposals[0] != similar[0]):  # another column maps to the most similar field
            proposals = (CODE, *proposals)
        if proposals[0] == CODE or IGNORE in similar:
            proposals = (*proposals, IGNORE)
        columns.append(UnmappedColumn(at + 1, headers[at], proposals, bool(meanings), samples[at]))
        taken |= {proposals[0]} - {CODE, *CONSENT_CODES}  # so that all options can be pasted together
    shown, more = columns[:_MAX_SHOWN], len(columns) - _MAX_SHOWN
    message = "; ".join([*map(str, shown), *([format_count(more, "more column")] if more > 0 else [])])
    if any(column.proposals[0] == CODE for column in shown):
        message += f"; replace {CODE} with the code of a field"
    if not all(column.ambiguous for column in columns):
        which = "the unknown ones" if any(column.ambiguous for column in columns) else "all of them"
        message += f"; or ignore {which} with --ignore-unknown"
    error = UnmappedColumns(message)
    error.columns, error._headers, error._decisions, error._order = tuple(columns), tuple(headers), tuple(decisions), order  # noqa: SLF001 - of this class
    return error
