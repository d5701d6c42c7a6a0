"""The columns of other tools' exports, as data: which of them is which field, and which have none.

Each tool has a file beside this one. A tool is recognised by its header, and that is told: every column that is left out is named
with the reason.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib.resources import files
from operator import attrgetter
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Export:
    """What the columns of a tool's export mean. Names are compared without regard to case and outer blanks.

    Attributes:
        name: What the tool is called.
        known_from: Where its columns are known from.
        marks: Columns that it is known by.
        least: How many of them a header has at least.
        fields: For each code the columns it can come from, best first.
        workspace: For each name that a workspace may call a field by, the columns it can come from.
        misleading: Columns that are not what their name says elsewhere, and what they are.
        left_out: Columns that no field is meant for, and what they are.
        left_out_like: The same by regular expression, for columns that are numbered.
    """

    name: str
    known_from: str
    marks: frozenset[str]
    least: int
    fields: Mapping[str, tuple[str, ...]]
    workspace: Mapping[str, tuple[str, ...]]
    misleading: Mapping[str, str]
    left_out: Mapping[str, str]
    left_out_like: tuple[tuple[re.Pattern[str], str], ...]

    @classmethod
    def read(cls, text: str) -> Export:
        """Read a tool's file."""
        known: dict[str, Any] = tomllib.loads(text)
        return cls(
            name=known["name"],
            known_from=known["known_from"],
            marks=frozenset(map(folded, known["marks"])),
            least=known["least"],
            fields={code: tuple(map(folded, columns)) for code, columns in known["fields"].items()},
            workspace={name: tuple(map(folded, columns)) for name, columns in known.get("workspace", {}).items()},
            misleading=_folded(known.get("misleading", {})),
            left_out=_folded(known["left_out"]),
            left_out_like=tuple(
                (re.compile(pattern, re.IGNORECASE), reason) for pattern, reason in known.get("left_out_like", {}).items()
            ),
        )

    def sources(self, headers: Sequence[str], taken: Collection[str]) -> dict[str, str]:
        """Return the code of each column that is a field, by folded name: the best column that is there for each code.

        Args:
            headers: The columns' names.
            taken: Codes that come from elsewhere.
        """
        there = set(map(folded, headers))
        found: dict[str, str] = {}
        for code, columns in self.fields.items():
            best = next((column for column in columns if column in there and column not in found), None)
            if best is not None and code not in taken:
                found[best] = code
        return found

    def names(self, header: str) -> tuple[str, ...]:
        """Return what a workspace may call the field of a column."""
        return tuple(name for name, columns in self.workspace.items() if folded(header) in columns)

    def reason(self, header: str) -> str | None:
        """Return why a column is left out; `None` if nobody has thought of it."""
        name = folded(header)
        if name in self.left_out:
            return self.left_out[name]
        if like := next((reason for pattern, reason in self.left_out_like if pattern.fullmatch(name)), None):
            return like
        if self.names(header):
            return "the workspace has no field for it"
        return "another column has it, too" if any(name in columns for columns in self.fields.values()) else None


def export_of(headers: Sequence[str]) -> Export | None:
    """Return the tool that writes such a header; `None` if it is none of those known."""
    there = set(map(folded, headers))
    counted = [(len(export.marks & there), export) for export in exports()]
    most, export = max(counted, key=lambda pair: pair[0])
    return export if most >= export.least else None


@cache
def exports() -> tuple[Export, ...]:
    """Return all tools known: those that have a file beside this one."""
    tables = sorted((file for file in files(__name__).iterdir() if file.name.endswith(".toml")), key=attrgetter("name"))
    return tuple(Export.read(table.read_text(encoding="utf-8")) for table in tables)


def folded(name: str) -> str:
    """Return a column's name as names are compared."""
    return name.strip().casefold()


def _folded(reasons: Mapping[str, str]) -> dict[str, str]:
    return {folded(column): reason for column, reason in reasons.items()}
