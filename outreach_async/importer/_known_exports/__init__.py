"""Tables of known column names: the columns of exports by other tools, and common names in nine languages.

Each tool has a TOML file in this folder, which maps each column of its exports to a field, or states why the column is ignored.
`common_headers.toml` maps common names to fields. Its rules choose a meaning of an ambiguous name by the other columns.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from operator import attrgetter, itemgetter
from typing import Any, Final
from unicodedata import combining, normalize

import attrs

_STROKED: Final = str.maketrans("łđø", "ldo")  # Unicode does not decompose these letters into a letter and an accent


def fold_name(text: str) -> str:
    """Normalise a name for comparison: fold its case, and remove accents, blanks and punctuation."""
    folded = normalize("NFKD", text).casefold().translate(_STROKED)
    return "".join(char for char in folded if char.isalnum() and not combining(char))


def clean_name(name: str) -> str:
    """Return the name of a column as people type it, in one line. Options, saved mappings and journals name columns by it."""
    return " ".join("".join(char if char.isprintable() else " " for char in name).split())


# Exports of other tools.


def fold_column_name(name: str) -> str:
    return name.strip().casefold()


def _fold_all(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(fold_column_name, names))


def _fold_values(columns: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    return {name: _fold_all(group) for name, group in columns.items()}


def _fold_keys(reasons: Mapping[str, str]) -> dict[str, str]:
    return dict(zip(_fold_all(reasons), reasons.values(), strict=True))


@attrs.frozen(kw_only=True)
class ExportFormat:
    """The columns of a tool's exports, as read from the tool's TOML file. All column names are in lower case."""

    name: str
    known_from: str
    marks: tuple[str, ...] = attrs.field(converter=_fold_all)
    least: int
    fields: Mapping[str, tuple[str, ...]] = attrs.field(converter=_fold_values)
    """The columns of each field, in order of preference: in each row, the first that has a value counts."""
    instead: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict, converter=_fold_values)
    """Columns that count only if the header has none of the above: the city of a company is not that of a person."""
    forbids: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict, converter=_fold_values)
    """The columns that say who must not be written to, by their kind."""
    forbids_like: Mapping[str, str] = attrs.field(factory=dict)
    workspace: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict, converter=_fold_values)
    misleading: Mapping[str, str] = attrs.field(factory=dict, converter=_fold_keys)
    left_out: Mapping[str, str] = attrs.field(converter=_fold_keys)
    left_out_like: Mapping[str, str] = attrs.field(factory=dict)

    def match_columns(self, headers: Sequence[str], taken: Collection[str]) -> dict[str, str]:
        """Return the field codes of the columns in a header, by folded name. A column of several fields is that of the first."""
        present = {*_fold_all(headers)}
        matches: dict[str, str] = {}
        for columns_of in self.fields, self.instead:
            for code, columns in columns_of.items():  # each field first gets a column of its own
                best = next((column for column in columns if column in present and column not in matches), None)
                if best is not None and code not in {*taken, *matches.values()}:
                    matches[best] = code
        found = {*matches.values()}
        for code, columns in self.fields.items():
            for column in columns if code in found else ():
                if column in present:
                    matches.setdefault(column, code)
        return matches

    def rank(self, folded: str, code: str) -> int:
        return [*self.fields.get(code, ()), *self.instead.get(code, ())].index(folded)

    def lists(self, folded: str) -> bool:
        """Return whether a column belongs to a field."""
        return any(folded in columns for columns in (*self.fields.values(), *self.instead.values()))

    def find_consent(self, folded: str) -> str | None:
        """Return the kind of a column that says who must not be written to; `None` for any other column."""
        for kind, columns in self.forbids.items():
            if folded in columns:
                return kind
        return next((kind for pattern, kind in self.forbids_like.items() if re.fullmatch(pattern, folded, re.IGNORECASE)), None)

    def workspace_names(self, header: str) -> tuple[str, ...]:
        return tuple(name for name, columns in self.workspace.items() if fold_column_name(header) in columns)

    def find_ignore_reason(self, header: str) -> str | None:
        """Return the reason why a column is ignored; `None` if the tool's TOML file does not list the column."""
        name = fold_column_name(header)
        if name in self.left_out:
            return self.left_out[name]
        for pattern, reason in self.left_out_like.items():
            if re.fullmatch(pattern, name, re.IGNORECASE):
                return reason
        if self.workspace_names(header):
            return "the workspace has no field for this column"
        return "another column is used instead" if self.lists(name) else None


def detect_export(headers: Sequence[str]) -> ExportFormat | None:
    folded = {*_fold_all(headers)}
    found = [(len(folded.intersection(export.marks)), export) for export in load_exports()]
    return max(((count, export) for count, export in found if count >= export.least), key=itemgetter(0), default=(0, None))[1]


@cache
def load_exports() -> tuple[ExportFormat, ...]:
    tables = sorted((file for file in files(__name__).iterdir() if file.name.endswith(".toml")), key=attrgetter("name"))
    return tuple(ExportFormat(**tomllib.loads(table.read_text(encoding="utf-8"))) for table in tables)


# Common names.


@attrs.frozen(kw_only=True)
class AmbiguousHeader:
    """A column name with several meanings. Each rule chooses one by the other columns of the file."""

    names: Sequence[str]
    may_be: tuple[str, ...] = attrs.field(converter=tuple)
    rules: Sequence[Mapping[str, Any]] = ()

    def decide(self, names: Collection[str], taken: Collection[str]) -> tuple[str, str] | None:
        """Return the field code and the reason of the first rule that fits the folded names and the codes of other columns."""
        for rule in self.rules:
            beside, present, absent = (rule.get(key, ()) for key in ("beside", "present", "absent"))
            is_beside = not beside or any(fold_name(name) in names for name in beside)
            if is_beside and {*present}.issubset(taken) and {*absent}.isdisjoint(taken):
                return rule["field"], rule["reason"]
        return None


@cache
def read_table(name: str) -> dict[str, Any]:
    """Return a TOML file of the package, by its path in it."""
    return tomllib.loads(files("outreach_async.importer").joinpath(name).read_text(encoding="utf-8"))


def read_common_headers() -> dict[str, Any]:
    return read_table("common_headers.toml")


@cache
def load_common_fields() -> Mapping[str, str]:
    groups = [group for language in read_common_headers()["languages"].values() for group in language["fields"].items()]
    return {fold_name(name): code for code, names in groups for name in names}


@cache
def load_ambiguous_headers() -> Mapping[str, AmbiguousHeader]:
    headers = [AmbiguousHeader(**header) for header in read_common_headers()["ambiguous"]]
    return {fold_name(name): header for header in headers for name in header.names}


def find_ambiguous(name: str) -> AmbiguousHeader | None:
    return load_ambiguous_headers().get(fold_name(name))
