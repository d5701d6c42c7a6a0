"""Save and load mappings of columns to fields: TOML files with lines such as `"First Name" = "first_name" # by name`."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from outreach_async._plumbing import parse_toml
from outreach_async.errors import InvalidRequest
from outreach_async.importer._consent import CONSENT_CODES
from outreach_async.importer._known_exports import clean_name

IGNORE: Final = "ignore"
"""The code that ignores a column. An empty code has the same meaning."""

CODE: Final = "CODE"
"""The placeholder in a proposed option for which no field is known. It is not a code, so an option with it is refused."""

_TABLE: Final = "columns"
_MAX_SIZE: Final = 1 << 24
_EXAMPLE: Final = 'write, for example, [columns] and below it "Company" = "company_name"'


def read_mapping(path: str | Path) -> dict[str, str]:
    r"""Read a mapping file, as `--save-mapping` writes it: the codes of columns by their names.

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
            raise InvalidRequest(f"mapping: {path}: column {column!r}: expected a field code in quotes, got {code!r}; {_EXAMPLE}")
    return {clean_name(column): code.strip() for column, code in columns.items()}


def clean_names(mapping: Mapping[str, str]) -> dict[str, str]:
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
