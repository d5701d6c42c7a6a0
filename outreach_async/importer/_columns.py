"""Map the columns of a file to the fields of a contact. The workspace's fields are requested only if a file needs them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import attrs

from outreach_async import Target
from outreach_async._plumbing import (
    CUSTOM_CODE,
    order_fields,
    require_types,
    show_name,
    similar_names,
)
from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest, format_count
from outreach_async.importer._consent import CONSENT_CODES, guess_kinds, is_about_telephones, load_consent_headers
from outreach_async.importer._known_exports import (
    ExportFormat,
    clean_name,
    detect_export,
    find_ambiguous,
    fold_column_name,
    fold_name,
    load_common_fields,
)
from outreach_async.importer._mapping import (
    CODE,
    IGNORE,
    Decision,
    describe_sample,
    find_meanings,
    map_option,
    order_columns,
    unmapped_error,
)
from outreach_async.models import RESERVED_FIELDS, STANDARD_FIELDS, WorkspaceField

if TYPE_CHECKING:
    from outreach_async._plumbing import Targets

_STANDARD_CODES: Final = ("email", *STANDARD_FIELDS)
_CUSTOM_NAME: Final = re.compile(r"custom(0|[1-9][0-9]*)")
_MAX_OPTIONS: Final = 7  # in an error
_NUMBER: Final = re.compile(r" \(\d+\)$")  # of a column whose name occurs more than once

_FIELD_NAMES: Final = frozenset(map(fold_name, _STANDARD_CODES))
_MAX_VALUES: Final = 10_000  # maximum number of different values in a column that is recognised

_Tier: TypeAlias = tuple[Callable[[str], str], Mapping[str, frozenset[str]]]
"""A function that normalises a name, and the field codes by normalised name."""


@attrs.frozen
class Columns:
    """A mapping of the columns of a file to the fields of a contact.

    Several columns may map to one field. For each row, the first of them
    that has a value counts.

    Attributes:
        headers: Column names, as in the file.
        codes: The field code of each column; `None` ignores the column. A
            column with the code `opt_out`, `opt_in` or `email_status` says
            who must not be written to, and is never sent.
        reasons: The reason for each code, as readable text.
        export: The tool that wrote the file; `None` if the header was not
            recognised.
        fallbacks: Indexes of the columns of each field that has several,
            the preferred one first; by default, as in the file.
        sources: Indexes of the columns of each field by its code, the
            preferred one first.
        consent: Index and code of each column that says who must not be
            written to.

    Example:
        ```python
        columns = map_columns(["E-mail", "First Name"])
        print(columns.codes)  # -> ('email', 'first_name')
        ```
    """

    headers: tuple[str, ...]
    codes: tuple[str | None, ...]
    reasons: tuple[str, ...] = attrs.field(default=(), eq=False)
    export: str | None = attrs.field(default=None, eq=False)
    fallbacks: tuple[tuple[int, ...], ...] = ()
    sources: Mapping[str, tuple[int, ...]] = attrs.field(init=False, eq=False, repr=False)
    consent: tuple[tuple[int, str], ...] = attrs.field(init=False, eq=False, repr=False)
    _known: tuple[tuple[int, str], ...] = attrs.field(init=False, eq=False, repr=False)
    _extra: tuple[tuple[int, str], ...] = attrs.field(init=False, eq=False, repr=False)
    plain: tuple[tuple[str, ...], Callable[[Sequence[str]], tuple[str, ...]]] | None = attrs.field(
        init=False, eq=False, repr=False
    )
    email_at: int | None = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Divide the columns: those of contacts, of `extra`, and of consent."""
        sources = dict[str, tuple[int, ...]]()
        for at, code in enumerate(self.codes):
            if code and code not in CONSENT_CODES:
                sources[code] = (*sources.get(code, ()), at)
        sources |= {cast("str", self.codes[places[0]]): places for places in self.fallbacks}
        consent = tuple((at, code) for at, code in enumerate(self.codes) if code in CONSENT_CODES)
        known = tuple((first, code) for code, (first, *_) in sources.items() if is_contact_member(code))
        extra = tuple((first, code) for code, (first, *_) in sources.items() if not is_contact_member(code))
        names = order_fields(tuple(code for _, code in known))
        pick = itemgetter(*(sources[name][0] for name in names)) if len(names) > 1 else None  # itemgetter(1) returns no tuple
        plain = (names, pick) if pick and not extra else None
        found = {"sources": sources, "consent": consent, "_known": known, "_extra": extra, "plain": plain}
        several = tuple(places for places in sources.values() if len(places) > 1)
        for name, value in {**found, "fallbacks": several, "email_at": sources.get("email", (None,))[0]}.items():
            object.__setattr__(self, name, value)

    def members(self, cells: Sequence[str]) -> dict[str, Any]:
        """Return a row's values by field code, as `create_many` accepts them.

        The cells are those that are sent. The value of a field is read
        from its preferred column, where `File.rows` puts that of another
        column if it is blank. Blank cells are omitted, but `email` is
        always present. Values of other fields are in a dict under `extra`.

        Example:
            ```python
            print(map_columns(["E-mail", "City"]).members(["ann@company.example", " "]))  # -> {'email': 'ann@company.example'}
            ```
        """
        members: dict[str, Any] = {code: cell for at, code in self._known if (cell := cells[at]) and not cell.isspace()}
        members.setdefault("email", "")
        if self._extra and (extra := {code: cells[at] for at, code in self._extra if cells[at].strip()}):
            members["extra"] = extra
        return members

    def decisions(self) -> list[tuple[str, str, str]]:
        """Return the name, code (or `ignore`) and reason for each column.

        Example:
            ```python
            print(map_columns(["E-mail", "Notes"], {"Notes": "ignore"}).decisions())
            # -> [('E-mail', 'email', 'by name'), ('Notes', 'ignore', 'override')]
            ```
        """
        others = dict.fromkeys((at for at, _ in self.consent), "; says who must not be written to")
        for code, places in self.sources.items():
            for earlier, at in pairwise(places):
                also = "" if self.codes[at] == code else f"also {code} "
                others[at] = f"; {also}if {clean_name(self.headers[earlier])!r} is blank" + others.get(at, "")
        rows = zip(self.headers, self.codes, self.reasons or [""] * len(self.headers), strict=True)
        return [
            (clean_name(header), IGNORE if code is None else code, f"{reason}{others.get(at, '')}")
            for at, (header, code, reason) in enumerate(rows)
        ]


def map_columns(
    headers: Sequence[str],
    overrides: Mapping[str, str] | None = None,
    fields: Iterable[WorkspaceField] = (),
    *,
    ignore_unknown: bool = False,
    samples: Sequence[str] = (),
) -> Columns:
    """Map each column to a field.

    `overrides` decide, else the tool that wrote the file, else the name. A
    name is compared, regardless of case, accents, blanks and punctuation,
    first with the codes of standard and custom fields, then with the code,
    the label and the searchable names of each workspace field, and last
    with common names.

    Args:
        headers: Column names.
        overrides: Codes by column name, the preferred column of a field
            first; `"ignore"` or an empty code ignores the column.
        fields: The workspace's fields, as `client.workspaces.fields()`
            returns them.
        ignore_unknown: Ignore columns that match no field. A name with
            several meanings remains an error, as does a column that may
            say who must not be written to.
        samples: A cell of each column, as `File.samples` returns them, to
            show in errors.

    Raises:
        UnmappedColumns: A column is unknown or ambiguous.
        InvalidRequest: Two columns map to one field by their names, no
            column maps to `email`, or an override names an unknown column
            or field.

    Example:
        ```python
        columns = map_columns(["E-mail", "Firma", "Stufe"], {"Stufe": "custom_1"})
        print(columns.codes)  # -> ('email', 'company_name', 'custom_1')
        ```
    """
    require_types(map_columns, locals())
    fields = tuple(fields)
    require_types(map_columns, {"fields": fields})  # those of an iterator, too
    samples = (*samples, *[""] * (len(headers) - len(samples)))
    mapper = ColumnMapper.of(headers, _resolve_overrides(headers, overrides or {}, fields), fields, samples)
    decisions = mapper.decide_all(headers)
    unmapped = [at for at, decision in enumerate(decisions) if decision is None]
    if rejected := [at for at in unmapped if not ignore_unknown or find_meanings(headers[at])]:
        usable = [field for field in fields if _is_sendable(field.code)]
        codes = {**load_common_fields(), **{fold_name(code): code for code in _STANDARD_CODES}}
        codes |= {fold_name(name): field.code for field in usable for name in (field.code, field.label)}
        order = order_columns(len(headers), _group_columns(headers, decisions, mapper).values())
        raise unmapped_error(headers, decisions, rejected, codes, samples, order)
    decided: list[Decision] = [decision or (None, "unknown, ignored") for decision in decisions]
    fallbacks = _find_fallbacks(headers, decided, mapper, samples)
    by_column: Any = zip(*decided, strict=True)
    codes, reasons = by_column
    return Columns(tuple(headers), codes, reasons, mapper.export.name if mapper.export else None, fallbacks)


def can_map_all(headers: Sequence[str], overrides: Mapping[str, str]) -> bool:
    """True if no column and no override needs the workspace's fields."""
    chosen = {clean_name(column): code for column, code in overrides.items()}
    if not all(_is_known(code, ()) for code in chosen.values()):
        return False
    mapper = ColumnMapper.of(headers, {name: code or None for name, code in chosen.items()}, ())
    return all(mapper.decide_known(header) for header in headers)


@attrs.frozen
class ColumnMapper:
    overrides: Mapping[str, str | None]
    export: ExportFormat | None
    export_codes: Mapping[str, str]
    workspace_tiers: tuple[_Tier, ...]
    samples: Mapping[str, str]

    @classmethod
    def of(
        cls,
        headers: Sequence[str],
        chosen: Mapping[str, str | None],
        fields: Sequence[WorkspaceField],
        samples: Sequence[str] = (),
    ) -> ColumnMapper:
        export = detect_export(headers)
        rest = [header for header in headers if clean_name(header) not in chosen]
        export_codes = export.match_columns(rest, {code for code in chosen.values() if code}) if export else {}
        return cls(chosen, export, export_codes, _create_workspace_tiers(fields), dict(zip(headers, samples, strict=False)))

    def rank(self, header: str, code: str) -> int | None:
        """Return the place of a column in the order of preference; `None` if it maps to its field only by its name."""
        if (name := clean_name(header)) in self.overrides:
            return [*self.overrides].index(name)
        folded = fold_column_name(header)
        if self.export is None or self.export_codes.get(folded) != code:
            return None
        return self.export.rank(folded, code)

    def find_shared(self, code: str, headers: Sequence[str], decisions: Sequence[Decision]) -> list[int]:
        """Return the columns of other fields that the tool's table also lists for this field, in order of preference."""
        listed = self.export.fields if self.export else {}
        places = {fold_column_name(header): at for at, header in enumerate(headers)}
        found = [(column, places[column]) for column in listed.get(code, ()) if column in places]
        return [at for column, at in found if (other := decisions[at][0]) != code and column in listed.get(other or "", ())]

    def decide_all(self, headers: Sequence[str]) -> list[Decision | None]:
        """Return the code and the reason for each column; `None` for an unknown or ambiguous column."""
        decisions = [self.decide(header) for header in headers]
        names = frozenset(map(fold_name, headers))
        taken = {
            decision[0] for decision in decisions if decision and decision[0]
        }  # not changed below, so that the order of the columns does not matter
        for at, header in enumerate(headers):
            if decisions[at] is None and (ambiguous := find_ambiguous(header)):
                decisions[at] = ambiguous.decide(names, taken)
        return decisions

    def decide(self, header: str) -> Decision | None:
        """Return the code and the reason for a column; `None` if the column is unknown, or ambiguous without the others."""
        if decision := self.decide_known(header):
            return decision
        for name in (header, *(self.export.workspace_names(header) if self.export else ())):
            if code := _find_code(name, self.workspace_tiers, self.samples):
                return code, "workspace field" if name is header else f"workspace field {name!r}"
        if self.export and (reason := self.export.find_ignore_reason(header)):
            is_named = fold_column_name(header) in self.export.left_out  # and not only by a pattern, which fits any field
            return (None, f"{self.export.name}: {reason}") if is_named or not guess_kinds(header) else None
        if common := load_common_fields().get(fold_name(header)):
            return common, "common name"
        return (None, "about telephones, not e-mail") if is_about_telephones(header) else None

    def decide_known(self, header: str) -> Decision | None:
        """Return the code and the reason for a column if they do not depend on the workspace's fields, else `None`."""
        plain = _NUMBER.sub("", header)  # a second column of this name
        listed = self.export.find_consent(fold_column_name(plain)) if self.export else None
        if (name := clean_name(header)) in self.overrides:
            code = self.overrides[name]
            is_lost = code not in CONSENT_CODES and (listed or fold_name(plain) in load_consent_headers())
            return code, "override, so it excludes nobody" if is_lost else "override"
        if export := self.export:
            folded = fold_column_name(header)
            if reason := export.misleading.get(folded):
                return None, f"{export.name}: {reason}"
            if code := self.export_codes.get(folded) or listed:
                return code, f"{export.name} column"
            if export.lists(folded):
                return None, f"{export.name}: {export.find_ignore_reason(header)}"
        if CUSTOM_CODE.fullmatch(name):
            code = name
        elif custom := _CUSTOM_NAME.fullmatch(fold_name(header)):
            code = f"custom_{custom[1]}"
        elif not (code := _find_code(header, _STANDARD_TIERS, self.samples)):
            kind = load_consent_headers().get(fold_name(plain))
            return (kind, "common name") if kind else None
        return (code, "by name") if code else None


def parse_overrides(texts: Iterable[str]) -> dict[str, str]:
    """Parse `Column=code` strings.

    The last `=` separates the column from the code, because codes contain
    no `=`.

    Raises:
        InvalidRequest: A string contains no `=`, or a column is given
            twice.

    Example:
        ```python
        print(parse_overrides(["Company=company_name", "Notes=ignore"]))  # -> {'Company': 'company_name', 'Notes': 'ignore'}
        ```
    """
    overrides: dict[str, str] = {}
    for text in texts:
        column, sign, code = text.rpartition("=")
        if not sign:
            raise InvalidRequest(f"map: expected Column=code, got {text!r}; write, for example, --map Company=company_name")
        if (name := clean_name(column)) in overrides:
            raise InvalidRequest(f"map: expected each column once, got {show_name(name)} twice; remove one of them")
        overrides[name] = code.strip()
    return overrides


def _create_tier(normalise: Callable[[str], str], names: Iterable[tuple[str, str]]) -> _Tier:
    index: dict[str, frozenset[str]] = {}
    for name, code in names:
        if folded := normalise(name):
            index[folded] = index.get(folded, frozenset()) | {code}
    return normalise, index


_STANDARD_TIERS: Final = tuple(
    _create_tier(normalise, ((code, code) for code in _STANDARD_CODES)) for normalise in (str.strip, fold_name)
)


def _create_workspace_tiers(fields: Sequence[WorkspaceField]) -> tuple[_Tier, ...]:
    usable = [field for field in fields if _is_sendable(field.code)]
    return (
        _create_tier(str.strip, ((field.code, field.code) for field in usable)),
        _create_tier(str.strip, ((field.label, field.code) for field in usable)),
        _create_tier(fold_name, ((name, field.code) for field in usable for name in (field.code, field.label))),
        _create_tier(fold_name, ((name, field.code) for field in usable for name in field.searchable)),
    )


def _find_code(header: str, tiers: Iterable[_Tier], samples: Mapping[str, str]) -> str:
    for normalise, index in tiers:
        if codes := index.get(normalise(header)):
            if len(codes) > 1:
                column = f"column {header!r}{describe_sample(samples.get(header, ''))}"
                remedy = f"choose one of them, as in {map_option(header, min(codes))}"
                raise InvalidRequest(f"{column} matches {' and '.join(map(repr, sorted(codes)))}; {remedy}")
            return min(codes)
    return ""


def is_contact_member(code: str) -> bool:
    """Return whether a code belongs to a target, or a standard or custom field. Values of all others are sent in `extra`."""
    return code in _STANDARD_CODES or code in Target._fields or code.startswith("custom_")


def _is_sendable(code: str) -> bool:
    return bool(code) and (code in _STANDARD_CODES or code not in {*RESERVED_FIELDS, *Target._fields, *CONSENT_CODES})


def _is_known(code: str, fields: Iterable[WorkspaceField]) -> bool:
    if code in {"", IGNORE, *_STANDARD_CODES, *Target._fields, *CONSENT_CODES} or CUSTOM_CODE.fullmatch(code):
        return True
    return any(field.code == code for field in fields if _is_sendable(code))


def _resolve_overrides(
    headers: Sequence[str], overrides: Mapping[str, str], fields: Sequence[WorkspaceField]
) -> dict[str, str | None]:
    names = [*map(clean_name, headers)]
    chosen: dict[str, str | None] = {}
    if open_ := [column for column, code in overrides.items() if code == CODE]:
        what = f"expected the code of a field, or 'ignore', got the placeholder {CODE} for {format_count(len(open_), 'column')}"
        raise InvalidRequest(f"map: {what}, such as {show_name(open_[0])}; replace it")
    for column, code in overrides.items():
        if clean_name(column) not in names:
            similar = similar_names(column, names, text=" (similar: {})")
            raise InvalidRequest(f"map: the file has no column {show_name(column)}{similar}; use a name from its header")
        if not _is_known(code, fields):
            known = [*_STANDARD_CODES, *Target._fields, *CONSENT_CODES, *(field.code for field in fields)]
            similar = similar_names(code, known, text=" (similar: {})")
            raise InvalidRequest(
                f"map: column {show_name(column)} has the unknown code {show_name(code)}{similar}; use a code, or 'ignore'"
            )
        chosen[clean_name(column)] = None if code in {"", IGNORE} else code
    return chosen


def _group_columns(headers: Sequence[str], decisions: Sequence[Decision | None], mapper: ColumnMapper) -> dict[str, list[int]]:
    """Return the columns of each field, the preferred one first."""
    groups = dict[str, list[int]]()
    for at, decision in enumerate(decisions):
        if decision and (code := decision[0]) and code not in CONSENT_CODES:
            groups.setdefault(code, []).append(at)
    return {code: sorted(places, key=lambda at: mapper.rank(headers[at], code) or 0) for code, places in groups.items()}


def _find_fallbacks(
    headers: Sequence[str], decisions: Sequence[Decision], mapper: ColumnMapper, samples: Sequence[str]
) -> tuple[tuple[int, ...], ...]:
    """Return the columns of each field that has several, the preferred one first. By name alone, no two share a field."""
    groups = _group_columns(headers, decisions, mapper)
    if "email" not in groups:
        raise InvalidRequest("no column maps to 'email', which every contact needs; map one, as in --map Column=email")
    for code, places in groups.items():
        by_name = [at for at in sorted(places) if mapper.rank(headers[at], code) is None]
        if len(places) > 1 and by_name:
            one, other = (f"{headers[at]!r}{describe_sample(samples[at])}" for at in sorted(places)[:2])
            options = " ".join(map_option(headers[at], code) for at in by_name[:_MAX_OPTIONS])
            remedy = f"pass {options} to use the first in the order of the options that has a value, or map one to 'ignore'"
            raise InvalidRequest(f"columns {one} and {other} both map to {code!r}; {remedy}")
        places.extend(mapper.find_shared(code, headers, decisions))
    return tuple(tuple(places) for places in groups.values() if len(places) > 1)


async def columns_for(
    client: OutreachClient,
    headers: Sequence[str],
    overrides: Mapping[str, str] | None = None,
    *,
    ignore_unknown: bool = False,
    samples: Sequence[str] = (),
) -> Columns:
    """Map columns as `map_columns` does, with the workspace's fields.

    The fields are requested if a column or an override needs them.

    Raises:
        InvalidRequest: As `map_columns` does.
        OutreachError: The workspace's fields could not be read.

    Example:
        ```python
        columns = await columns_for(client, ["E-mail", "Plan"])
        print(columns.codes)  # -> ('email', 'custom_1')
        ```
    """
    overrides = overrides or {}
    fields = () if can_map_all(headers, overrides) else await client.workspaces.fields()
    return map_columns(headers, overrides, fields, ignore_unknown=ignore_unknown, samples=samples)


def decisions_in_order(columns: Columns) -> list[tuple[str, str, str]]:
    """Return the decisions about all columns, as in the file, except that the columns of one field are in order of preference."""
    # A column is listed with its own field, also if another field uses it where its own column is blank.
    own = [[at for at in places if columns.codes[at] == code] for code, places in columns.sources.items()]
    decisions = columns.decisions()
    return [decisions[at] for at in order_columns(len(decisions), own)]


async def recognise_targets(
    headers: Sequence[str],
    read_records: Callable[[], Iterable[tuple[int, Sequence[str], object]]],
    overrides: Mapping[str, str],
    targets: Targets,
) -> tuple[dict[str, str], dict[str, str]]:
    """Return codes for the columns with names such as "Campaign" whose values are all ids or known names.

    If a value is unknown, return no codes, and for the columns what is wrong with the first such value.
    """
    chosen = {clean_name(column): code for column, code in overrides.items()}
    places: dict[str, list[int]] = {code: [] for code in Target._fields}
    for at, header in enumerate(headers):
        # The table of common names takes time to load, and most files need no name of it.
        meanings = None if fold_name(header) in _FIELD_NAMES else find_ambiguous(header)
        code = chosen.get(clean_name(header), meanings.may_be[0] if meanings else None)
        if code in places:
            places[code].append(at)
    found = {clean_name(headers[at]): code for code, several in places.items() for at in several}
    found = {column: code for column, code in found.items() if column not in chosen}
    if not found or any(len(several) > 1 for several in places.values()):
        return {}, {}
    columns = [next(iter(places[code]), None) for code in Target._fields]
    seen: set[tuple[str, ...]] = set()
    for line, cells, fault in read_records():
        pair = tuple("" if at is None or at >= len(cells) else cells[at] for at in columns)
        if fault is not None or pair in seen:
            continue
        if len(seen) == _MAX_VALUES:
            return {}, {}
        seen.add(pair)
        try:
            await targets.apply(targets.find, Target(*pair))
        except InvalidRequest as error:
            if not targets.refuses(Target(*pair)):
                return {}, dict.fromkeys(found, f"line {line}: {str(error).partition('; ')[0]}; such rows are rejected")
    return found, {}
