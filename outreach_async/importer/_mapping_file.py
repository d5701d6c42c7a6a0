"""Save and load mappings of columns to fields: TOML files with lines such as `"First Name" = "first_name" # by name`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from outreach_async._files.toml import parse_toml
from outreach_async.errors import InvalidRequest
from outreach_async.importer._columns import Columns

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
    return {column.strip(): code.strip() for column, code in columns.items()}


def is_mapping(path: Path) -> bool:
    """Return whether a file is a readable mapping file of at most 16 MiB."""
    with suppress(InvalidRequest):
        return path.stat().st_size <= _MAX_SIZE and read_mapping(path) is not None
    return False


def apply_mapping(saved: Mapping[str, str], headers: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the part of a saved mapping that applies to the columns of a file."""
    names = {header.strip() for header in headers}
    lacking = [column for column, code in saved.items() if column not in names and code not in {"", "ignore"}]
    return {column: code for column, code in saved.items() if column in names}, lacking


def mapping_text(columns: Columns, name: str) -> str:
    lines = [f"# Fields for the columns of {_to_comment(name)}; read this file with --mapping."]
    if columns.export:
        lines.append(f"# The file was recognised as an export from {columns.export}.")
    lines += ["# Each value is a field code, as listed by the command 'fields', or \"ignore\".", "", f"[{_TABLE}]"]
    entries: dict[str, str] = {}
    decisions = columns.decisions()
    for column, code, reason in (decisions[at] for at in _order_columns(columns)):
        # A repeated name, such as a blank name, is written once: an override applies to every column with that name.
        entries.setdefault(column, f"{_quote(column)} = {_quote(code)} # {_to_comment(reason)}")
    return "".join(f"{line}\n" for line in (*lines, *entries.values()))


def _order_columns(columns: Columns) -> list[int]:
    """Return the indexes of all columns as in the file, except that the columns of one field are in order of preference."""
    order = [*range(len(columns.headers))]
    for code, places in columns.sources.items():
        own = [at for at in places if columns.codes[at] == code]  # the others are listed with the field that they belong to
        for slot, at in zip(sorted(own), own, strict=True):
            order[slot] = at
    return order


def _quote(value: str) -> str:
    # As JSON, except that TOML does not allow DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _to_comment(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
