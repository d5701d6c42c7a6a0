"""Which column of a file becomes which field of a contact; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, TypeAlias
from unicodedata import normalize

import attrs

from outreach_async.errors import InvalidRequest
from outreach_async.importer.exports import Export, export_of, folded
from outreach_async.models import WorkspaceField
from outreach_async.vocabulary import CUSTOM_PREFIX, RESERVED_FIELDS, STANDARD_FIELDS

IGNORE: Final = "ignore"
"""The code that leaves a column out; a blank code does too.

Example:
    ```python
    print(map_columns(["E-mail", "Notes"], {"Notes": IGNORE}).codes)  # -> ('email', None)
    ```
"""

_CODES: Final = ("email", *STANDARD_FIELDS)
_CUSTOM_CODE: Final = re.compile(r"custom_[0-9]+")
_CUSTOM_NAME: Final = re.compile(r"custom(0|[1-9][0-9]*)")
_NAMED: Final = 50
"""Unknown columns that an error names at most: the nearest names are looked for, and a sheet has up to 16,384 columns."""

_NEAR: Final = 0.5  # 'Email Address' is that near to 'email'

_Index: TypeAlias = Mapping[str, frozenset[str]]
_Tier: TypeAlias = tuple[Callable[[str], str], _Index]


@attrs.frozen
class Columns:
    """Where each column goes.

    Attributes:
        headers: The columns' names as the file has them.
        codes: The code each column is sent under; `None` leaves it out.
        reasons: For each column why it goes there, for a person to read.
        export: The tool that wrote the file, if its header was recognised.

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
    _known: tuple[tuple[int, str], ...] = attrs.field(init=False, eq=False, repr=False)
    _extra: tuple[tuple[int, str], ...] = attrs.field(init=False, eq=False, repr=False)

    @_known.default
    def _of_contacts(self) -> tuple[tuple[int, str], ...]:
        return tuple((at, code) for at, code in enumerate(self.codes) if code and _has_place(code))

    @_extra.default
    def _further(self) -> tuple[tuple[int, str], ...]:
        return tuple((at, code) for at, code in enumerate(self.codes) if code and not _has_place(code))

    def members(self, cells: Sequence[str]) -> dict[str, Any]:
        """Return what the cells mean by code: an empty cell means nothing, except that an e-mail is never left out."""
        found: dict[str, Any] = {code: cell for at, code in self._known if (cell := cells[at]) and not cell.isspace()}
        found.setdefault("email", "")
        if self._extra and (extra := {code: cells[at] for at, code in self._extra if cells[at].strip()}):
            found["extra"] = extra
        return found

    def cell(self, code: str) -> int | None:
        """Return the place of the column that is sent under a code.

        Example:
            ```python
            print(map_columns(["City", "E-mail"]).cell("email"))  # -> 1
            ```
        """
        return self.codes.index(code) if code in self.codes else None

    def decisions(self) -> list[tuple[str, str, str]]:
        """Return for each column its name, its code (or `ignore`), and why.

        Example:
            ```python
            print(map_columns(["E-mail", "Notes"], {"Notes": "ignore"}).decisions())
            # -> [('E-mail', 'email', 'its name'), ('Notes', 'ignore', 'as asked')]
            ```
        """
        return [
            (header.strip(), IGNORE if code is None else code, reason)
            for header, code, reason in zip(self.headers, self.codes, self.reasons or [""] * len(self.headers), strict=True)
        ]


def map_columns(
    headers: Sequence[str],
    overrides: Mapping[str, str] | None = None,
    fields: Iterable[WorkspaceField] = (),
    *,
    ignore_unknown: bool = False,
) -> Columns:
    """Decide where each column goes: as `overrides` say, else as the tool that wrote the file means, else by name.

    Tools are recognised by their header (`outreach_async.importer.exports`). A name is a field's code, or differs only
    in case, blanks and punctuation ("First Name", "E-mail"); then likewise the code, the label or a searchable name of one of the
    workspace's fields.

    Args:
        headers: The columns' names.
        overrides: Codes by column name; `"ignore"` or a blank code leaves the column out.
        fields: The workspace's fields, as `client.workspaces.fields()` lists them.
        ignore_unknown: Leave out columns that no field is known for.

    Raises:
        InvalidRequest: A column that no field is known for, two columns for one field, or no column for the e-mail.

    Example:
        ```python
        columns = map_columns(["E-mail", "Company"], {"Company": "company_name"})
        print(columns.codes)  # -> ('email', 'company_name')
        ```
    """
    fields = tuple(fields)
    decider = Decider.of(headers, _chosen(headers, overrides or {}, fields), fields)
    decided = [decider.decide(header) for header in headers]
    if not ignore_unknown and (unknown := [(at, headers[at - 1]) for at, each in enumerate(decided, 1) if each is None]):
        named = [_unknown(at, header, fields) for at, header in unknown[:_NAMED]]
        if len(unknown) > _NAMED:
            named.append(f"{len(unknown) - _NAMED:,} more columns")
        raise InvalidRequest(f"{'; '.join(named)}; {_REMEDY}")
    codes, reasons = zip(*(each or (None, "unknown, and left out as asked") for each in decided), strict=True)
    _refuse_doubles(headers, codes)
    return Columns(tuple(headers), codes, reasons, decider.export.name if decider.export else None)


def knows_all(headers: Sequence[str], overrides: Mapping[str, str]) -> bool:
    """Whether every column and every override is understood without asking the workspace for its fields."""
    chosen = {column.strip(): code for column, code in overrides.items()}
    if not all(_is_known(code, ()) for code in chosen.values()):
        return False
    decider = Decider.of(headers, {name: code or None for name, code in chosen.items()}, ())
    return all(decider.field(header) for header in headers)


Decision: TypeAlias = tuple[str | None, str]
"""A code, or `None` for a column that is left out, and why."""


@attrs.frozen
class Decider:
    """Decides column by column; whoever is asked first has the say.

    Attributes:
        chosen: What the caller says, by column name.
        export: The tool that wrote the file.
        sources: Which columns are which fields, by what the tool means.
        own: Names of the fields that every contact has.
        workspace: Names of the workspace's fields.
    """

    chosen: Mapping[str, str | None]
    export: Export | None
    sources: Mapping[str, str]
    own: tuple[_Tier, ...]
    workspace: tuple[_Tier, ...]

    @classmethod
    def of(cls, headers: Sequence[str], chosen: Mapping[str, str | None], fields: Sequence[WorkspaceField]) -> Decider:
        """Prepare for a header."""
        export = export_of(headers)
        rest = [header for header in headers if header.strip() not in chosen]
        sources = export.sources(rest, {code for code in chosen.values() if code}) if export else {}
        return cls(chosen, export, sources, _own_tiers(), _workspace_tiers(fields))

    def decide(self, header: str) -> Decision | None:
        """Return where a column goes; `None` if nobody knows.

        Raises:
            InvalidRequest: Its name stands for two fields.
        """
        return self.field(header) or self._workspace_field(header) or self._left_out(header)

    def field(self, header: str) -> Decision | None:
        """Return what is known without the workspace.

        Raises:
            InvalidRequest: Its name stands for two fields.
        """
        if (name := header.strip()) in self.chosen:
            return self.chosen[name], "as asked"
        if self.export and (reason := self.export.misleading.get(folded(header))):
            return None, f"{self.export.name}: {reason}"
        if self.export and (code := self.sources.get(folded(header))):
            return code, f"{self.export.name}'s name for it"
        if self.export and any(folded(header) in columns for columns in self.export.fields.values()):
            return None, f"{self.export.name}: {self.export.reason(header)}"
        code = _custom_code(header) or _code_of(header, self.own)
        return (code, "its name") if code else None

    def _workspace_field(self, header: str) -> Decision | None:
        if code := _code_of(header, self.workspace):
            return code, "a field of the workspace"
        for name in self.export.names(header) if self.export else ():
            if code := _code_of(name, self.workspace):
                return code, f"the workspace's field {name!r}"
        return None

    def _left_out(self, header: str) -> Decision | None:
        if self.export and (reason := self.export.reason(header)):
            return None, f"{self.export.name}: {reason}"
        return None


def parse_overrides(texts: Iterable[str]) -> dict[str, str]:
    """Read `Column=code` texts; the last `=` parts them, since codes have none.

    Raises:
        InvalidRequest: A text without `=`, or a column named twice.

    Example:
        ```python
        print(parse_overrides(["Company=company_name", "Notes=ignore"]))  # -> {'Company': 'company_name', 'Notes': 'ignore'}
        ```
    """
    overrides: dict[str, str] = {}
    for text in texts:
        column, sign, code = text.rpartition("=")
        if not sign:
            raise InvalidRequest(f"map: expected Column=code, got {text!r}; write for example 'Company=company_name'")
        if column.strip() in overrides:
            raise InvalidRequest(f"map: column {column.strip()!r} is mapped twice; keep one of them")
        overrides[column.strip()] = code.strip()
    return overrides


_REMEDY: Final = (
    "map each to a code as in 'Column=company_name', or leave it out with 'Column=ignore', or all of them with ignore_unknown"
)


def _squash(name: str) -> str:
    """Keep what two spellings of one name share: letters and digits, whatever their case."""
    return "".join(filter(str.isalnum, normalize("NFKC", name).casefold()))


def _index(names: Iterable[tuple[str, str]]) -> _Index:
    """Return the codes that each name stands for; a name may be shared, and an empty one stands for none."""
    index: dict[str, frozenset[str]] = {}
    for name, code in names:
        if name:
            index[name] = index.get(name, frozenset()) | {code}
    return index


def _own_tiers() -> tuple[_Tier, ...]:
    """Return what a header is compared with in any workspace, most certain first."""
    return (
        (str.strip, _index((code, code) for code in _CODES)),
        (_squash, _index((_squash(code), code) for code in _CODES)),
    )


def _workspace_tiers(fields: Sequence[WorkspaceField]) -> tuple[_Tier, ...]:
    """Return what a header is compared with in one workspace, most certain first."""
    usable = [field for field in fields if _is_code(field.code)]
    return (
        (str.strip, _index((field.code, field.code) for field in usable)),
        (str.strip, _index((field.label.strip(), field.code) for field in usable)),
        (_squash, _index((_squash(name), field.code) for field in usable for name in (field.code, field.label))),
        (_squash, _index((_squash(name), field.code) for field in usable for name in field.searchable)),
    )


def _custom_code(header: str) -> str:
    """Return the code of a custom field that a header spells out; an empty text if it does not."""
    if _CUSTOM_CODE.fullmatch(name := header.strip()):
        return name
    custom = _CUSTOM_NAME.fullmatch(_squash(header))
    return CUSTOM_PREFIX + custom[1] if custom else ""


def _code_of(header: str, tiers: Iterable[_Tier]) -> str:
    """Return the code for a header; an empty text if none is known.

    Raises:
        InvalidRequest: The name stands for two fields.
    """
    name = header.strip()
    for spelled, index in tiers:
        if found := index.get(spelled(header)):
            if len(found) > 1:
                both = " and ".join(map(repr, sorted(found)))
                raise InvalidRequest(f"column {header!r} names {both}; map it to one of them, as in '{name}={min(found)}'")
            return min(found)
    return ""


def _has_place(code: str) -> bool:
    """Whether a code is a member of a contact; any other goes under `extra`."""
    return code in _CODES or code.startswith(CUSTOM_PREFIX)


def _is_code(code: str) -> bool:
    """Whether a field's code is one that a contact can be sent with."""
    return bool(code) and (code in _CODES or code not in RESERVED_FIELDS)


def _is_known(code: str, fields: Iterable[WorkspaceField]) -> bool:
    if code in {"", IGNORE, *_CODES} or _CUSTOM_CODE.fullmatch(code):
        return True
    return any(field.code == code for field in fields if _is_code(code))


def _chosen(headers: Sequence[str], overrides: Mapping[str, str], fields: Sequence[WorkspaceField]) -> dict[str, str | None]:
    """Return the caller's choices by column name, `None` for a column to leave out."""
    names = [header.strip() for header in headers]
    chosen: dict[str, str | None] = {}
    for column, code in overrides.items():
        if column.strip() not in names:
            raise InvalidRequest(f"map: the file has no column {column!r}{_near(column, names)}")
        if not _is_known(code, fields):
            raise InvalidRequest(f"map: {column!r} goes to {code!r}, which is no field of a contact{_near(code, _names(fields))}")
        chosen[column.strip()] = None if code in {"", IGNORE} else code
    return chosen


def _names(fields: Iterable[WorkspaceField]) -> list[str]:
    return [*_CODES, *(field.code for field in fields if field.code not in _CODES)]


def _unknown(at: int, header: str, fields: Sequence[WorkspaceField]) -> str:
    if not header.strip():
        return f"column {at} has no name"
    return f"unknown column {header!r}{_near(header, _names(fields))}"


def _near(name: str, known: Iterable[str]) -> str:
    squashed = {_squash(each): each for each in known}
    found = get_close_matches(_squash(name), squashed, n=3, cutoff=_NEAR)
    return f" (near: {', '.join(repr(squashed[each]) for each in found)})" if found else ""


def _refuse_doubles(headers: Sequence[str], codes: Sequence[str | None]) -> None:
    first: dict[str, str] = {}
    for header, code in _sent(headers, codes):
        if code in first:
            raise InvalidRequest(
                f"columns {first[code]!r} and {header!r} both go to {code!r}; leave one out with '{header.strip()}=ignore'"
            )
        first[code] = header
    if "email" not in first:
        raise InvalidRequest("no column goes to 'email', which every contact needs; map one to it as in 'Column=email'")


def _sent(headers: Sequence[str], codes: Sequence[str | None]) -> Iterator[tuple[str, str]]:
    return ((header, code) for header, code in zip(headers, codes, strict=True) if code is not None)
