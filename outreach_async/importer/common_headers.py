"""Map common column names in seven languages, such as "Job Title" and "Vorname", to fields. The table names its sources.

If a name has several meanings, such as "Name", the other columns of the file decide. If they do not, the name stays ambiguous.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import attrs

from outreach_async.importer.value_checks import fold_name


def _fold_all(names: Iterable[str]) -> frozenset[str]:
    return frozenset(map(fold_name, names))


@attrs.frozen(kw_only=True)
class HeaderLanguage:
    """The common column names of one language, each with a single meaning.

    Attributes:
        name: English name of the language.
        source: The programs that write these column names.
        unsourced: Column names without a source.
        fields: Maps the code of each field to its column names.
    """

    name: str
    source: str
    unsourced: tuple[str, ...] = attrs.field(converter=tuple)
    fields: Mapping[str, Sequence[str]]


@attrs.frozen(kw_only=True)
class NeighbourRule:
    """Decides the meaning of an ambiguous column name by the other columns.

    Attributes:
        field: Code of the field that the name refers to if the rule applies.
        reason: Human-readable reason for this meaning.
        beside: Folded column names. If not empty, the file must have one of them.
        present: Codes that other columns must map to.
        absent: Codes that no other column may map to.
    """

    field: str
    reason: str
    beside: frozenset[str] = attrs.field(default=(), converter=_fold_all)
    present: frozenset[str] = attrs.field(default=(), converter=frozenset)
    absent: frozenset[str] = attrs.field(default=(), converter=frozenset)

    def fits(self, names: Collection[str], taken: Collection[str]) -> bool:
        """Return whether the rule applies, given the folded names and the codes of the other columns."""
        beside = not self.beside or not self.beside.isdisjoint(names)
        return beside and self.present <= {*taken} and self.absent.isdisjoint(taken)


def _create_rules(rules: Iterable[Mapping[str, Any]]) -> tuple[NeighbourRule, ...]:
    return tuple(NeighbourRule(**rule) for rule in rules)


@attrs.frozen(kw_only=True)
class AmbiguousHeader:
    """A column name with several meanings.

    Attributes:
        names: Spellings of the name.
        may_be: Codes of the fields that the name can refer to, most likely first; `"ignore"` if it may refer to no field.
        rules: Rules that decide the meaning by the other columns; the first rule that applies is used.
    """

    names: tuple[str, ...] = attrs.field(converter=tuple)
    may_be: tuple[str, ...] = attrs.field(converter=tuple)
    rules: tuple[NeighbourRule, ...] = attrs.field(default=(), converter=_create_rules)

    def decide(self, names: Collection[str], taken: Collection[str]) -> tuple[str, str] | None:
        """Return the code and the reason for it; `None` if no rule applies.

        Args:
            names: Folded names of the other columns.
            taken: Codes that other columns map to.
        """
        return next(((rule.field, rule.reason) for rule in self.rules if rule.fits(names, taken)), None)


@attrs.frozen
class CommonHeaders:
    """The table of common column names.

    Attributes:
        languages: The names with a single meaning, by language.
        ambiguous: The names with several meanings.
    """

    languages: tuple[HeaderLanguage, ...]
    ambiguous: tuple[AmbiguousHeader, ...]
    _fields: Mapping[str, str] = attrs.field(init=False, repr=False)
    _by_name: Mapping[str, AmbiguousHeader] = attrs.field(init=False, repr=False)

    @_fields.default
    def _index_fields(self) -> Mapping[str, str]:
        entries = (entry for language in self.languages for entry in language.fields.items())
        return {fold_name(name): code for code, names in entries for name in names}

    @_by_name.default
    def _index_ambiguous(self) -> Mapping[str, AmbiguousHeader]:
        return {fold_name(name): header for header in self.ambiguous for name in header.names}

    def find(self, name: str) -> str | None:
        """Return the code of the field that a name refers to; `None` if the name is unknown or has several meanings."""
        return self._fields.get(fold_name(name))

    def find_ambiguous(self, name: str) -> AmbiguousHeader | None:
        """Return the meanings of a name; `None` if the name is unknown or has a single meaning."""
        return self._by_name.get(fold_name(name))

    def items(self) -> Iterable[tuple[str, str]]:
        """Return the folded names with a single meaning, each with its code."""
        return self._fields.items()


@cache
def load_common_headers() -> CommonHeaders:
    """Return the table, from the TOML file in this folder."""
    text = files("outreach_async.importer").joinpath("common_headers.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    return CommonHeaders(
        tuple(HeaderLanguage(name=name, **language) for name, language in table["languages"].items()),
        tuple(AmbiguousHeader(**header) for header in table["ambiguous"]),
    )
