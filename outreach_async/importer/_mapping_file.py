"""Save and load mappings of columns to fields: TOML files with lines such as `"First Name" = "first_name" # by name`."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from outreach_async._plumbing import parse_toml
from outreach_async.errors import InvalidRequest
from outreach_async.importer._columns import Columns
from outreach_async.importer._consent import CONSENT_CODES
from outreach_async.importer._known_exports import clean_name
from outreach_async.importer._unmapped import CODE, IGNORE, UnmappedColumns, order_columns

_TABLE: Final = "columns"
_MAX_SIZE: Final = 1 << 24
_EXAMPLE: Final = 'write, for example, [columns] and below it "Company" = "company_name"'


def read_mapping(path: str | Path) -> dict[str, str]:
    try:
        document: dict[str, Any] = parse_toml(Path(path).read_text(encoding="utf-8"))
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
            raise InvalidRequest(f"mapping: {path}: column {column!r}: expected a field code in quotes, got {code!r}; {_EXAMPLE}")
    return {clean_name(column): code.strip() for column, code in columns.items()}


def is_mapping(path: Path) -> bool:
    """Return whether a file is a readable mapping file of at most 16 MiB."""
    with suppress(InvalidRequest):
        return path.stat().st_size <= _MAX_SIZE and read_mapping(path) is not None
    return False


def apply_mapping(saved: Mapping[str, str], headers: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the part of a saved mapping that applies to the columns of a file."""
    names = {*map(clean_name, headers)}
    lacking = [column for column, code in saved.items() if column not in names and code not in {"", "ignore"}]
    return {column: code for column, code in saved.items() if column in names}, lacking


def merge_mappings(overrides: Mapping[str, str], saved: Mapping[str, str]) -> dict[str, str]:
    """Return all overrides, those of options first: of the columns of one field, the first is preferred."""
    return {**overrides, **{column: code for column, code in saved.items() if column not in overrides}}


def decisions_in_order(columns: Columns) -> list[tuple[str, str, str]]:
    """Return the decisions about all columns, as in the file, except that the columns of one field are in order of preference."""
    # A column is listed with its own field, also if another field uses it where its own column is blank.
    own = [[at for at in places if columns.codes[at] == code] for code, places in columns.sources.items()]
    decisions = columns.decisions()
    return [decisions[at] for at in order_columns(len(decisions), own)]


def number_codes(mapping: Mapping[str, str]) -> dict[str, str]:
    """Return a mapping in order of preference for a journal, which has to tell a first column of a field from a second one."""
    counts = Counter[str]()
    numbered: dict[str, str] = {}
    for column, code in mapping.items():
        counts[code] += 1
        is_first = counts[code] == 1 or code in {"", IGNORE, *CONSENT_CODES}
        numbered[column] = code if is_first else f"{code} ({counts[code]})"
    return numbered


def mapping_text(columns: Columns, name: str) -> str:
    notes = [f"The file was recognised as an export from {columns.export}."] if columns.export else []
    return _write_mapping(name, notes, decisions_in_order(columns))


def draft_text(error: UnmappedColumns, headers: Sequence[str], name: str) -> str:
    """Return the mapping of a file with unknown columns, for a user to complete: a placeholder is refused by `map_columns`."""
    decisions = [decision or (None, "unknown, ignored") for decision in error.decisions]
    for column in error.columns:
        decisions[column.number - 1] = column.proposals[0], f"check this line: {'; '.join(column.comments)}"
    rows = [
        (clean_name(header), IGNORE if code is None else code, reason)
        for header, (code, reason) in zip(headers, decisions, strict=True)
    ]
    notes = [f"Check the marked lines, and replace each {CODE} with the code of a field, or with {IGNORE}."]
    return _write_mapping(name, notes, [rows[at] for at in error.order])


def _write_mapping(name: str, notes: Sequence[str], rows: Sequence[tuple[str, str, str]]) -> str:
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
