"""The columns of exports by other tools. Each column is mapped to a field, or ignored for a stated reason.

Each tool has a TOML file in this folder. A tool is recognised by the header of its exports. Every ignored column is reported with
the reason.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from operator import attrgetter

import attrs


def fold_column_name(name: str) -> str:
    """Normalise a column name for comparison: strip it, and fold its case."""
    return name.strip().casefold()


def _fold_names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(map(fold_column_name, names))


def _fold_keys(reasons: Mapping[str, str]) -> dict[str, str]:
    return {fold_column_name(column): reason for column, reason in reasons.items()}


def _fold_values(columns: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(map(fold_column_name, group)) for name, group in columns.items()}


def _compile_keys(reasons: Mapping[str, str]) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern, re.IGNORECASE), reason) for pattern, reason in reasons.items())


@attrs.frozen(kw_only=True)
class ExportFormat:
    """The columns of a tool's exports, as read from the tool's TOML file. The names of columns are folded.

    Attributes:
        name: Name of the tool.
        known_from: Source of the column names.
        marks: Columns that identify the tool.
        least: Minimum number of `marks` that a header must contain for the tool to be recognised.
        fields: Columns that map to a field, by field code, in order of preference.
        workspace: Columns that map to a workspace field, by a possible name of the field.
        misleading: Columns whose name has another meaning in this tool, with that meaning.
        left_out: Columns that are ignored, with a description of their content.
        left_out_like: Regular expressions for more columns that are ignored, with a description of their content.
    """

    name: str
    known_from: str
    marks: frozenset[str] = attrs.field(converter=_fold_names)
    least: int
    fields: Mapping[str, tuple[str, ...]] = attrs.field(converter=_fold_values)
    workspace: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict, converter=_fold_values)
    misleading: Mapping[str, str] = attrs.field(factory=dict, converter=_fold_keys)
    left_out: Mapping[str, str] = attrs.field(converter=_fold_keys)
    left_out_like: tuple[tuple[re.Pattern[str], str], ...] = attrs.field(factory=dict, converter=_compile_keys)

    def match_columns(self, headers: Sequence[str], taken: Collection[str]) -> dict[str, str]:
        """Return field codes by folded column name. For each code, only the most preferred column in the header is used.

        Args:
            headers: Column names.
            taken: Codes that other columns already map to.
        """
        folded = _fold_names(headers)
        matches: dict[str, str] = {}
        for code, columns in self.fields.items():
            best = next((column for column in columns if column in folded and column not in matches), None)
            if best is not None and code not in taken:
                matches[best] = code
        return matches

    def workspace_names(self, header: str) -> tuple[str, ...]:
        """Return the names that a workspace may give to the field of a column."""
        return tuple(name for name, columns in self.workspace.items() if fold_column_name(header) in columns)

    def find_ignore_reason(self, header: str) -> str | None:
        """Return why a column is ignored; `None` if the tool's TOML file does not list the column."""
        name = fold_column_name(header)
        if name in self.left_out:
            return self.left_out[name]
        if like := next((reason for pattern, reason in self.left_out_like if pattern.fullmatch(name)), None):
            return like
        if self.workspace_names(header):
            return "the workspace has no field for this column"
        return "another column is used instead" if any(name in columns for columns in self.fields.values()) else None


def detect_export(headers: Sequence[str]) -> ExportFormat | None:
    """Return the export format of the tool whose exports have this header; `None` if no known tool matches."""
    folded = _fold_names(headers)
    export = max(load_exports(), key=lambda export: len(export.marks & folded))
    return export if len(export.marks & folded) >= export.least else None


@cache
def load_exports() -> tuple[ExportFormat, ...]:
    """Return the export format of every known tool, from the TOML files in this folder."""
    tables = sorted((file for file in files(__name__).iterdir() if file.name.endswith(".toml")), key=attrgetter("name"))
    return tuple(ExportFormat(**tomllib.loads(table.read_text(encoding="utf-8"))) for table in tables)
