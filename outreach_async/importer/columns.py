"""Which column of a file becomes which field of a contact; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, TypeAlias
from unicodedata import normalize

import attrs

from outreach_async.errors import InvalidRequest
from outreach_async.models import WorkspaceField
from outreach_async.vocabulary import CUSTOM_PREFIX, RESERVED_FIELDS, STANDARD_FIELDS

IGNORE: Final = "ignore"
"""The code that leaves a column out; a blank code does too."""

_CODES: Final = ("email", *STANDARD_FIELDS)
_CUSTOM_CODE: Final = re.compile(r"custom_[0-9]+")
_CUSTOM_NAME: Final = re.compile(r"custom(0|[1-9][0-9]*)")
_NEAR: Final = 0.5  # 'Email Address' is that near to 'email'

_Index: TypeAlias = Mapping[str, frozenset[str]]
_Tier: TypeAlias = tuple[Callable[[str], str], _Index]


@attrs.frozen
class Columns:
    """Where each column goes.

    Attributes:
        headers: The columns' names as the file has them.
        codes: The code each column is sent under; `None` leaves it out.
    """

    headers: tuple[str, ...]
    codes: tuple[str | None, ...]

    def members(self, cells: Sequence[str]) -> dict[str, Any]:
        """Return what the cells mean by code: an empty cell means nothing, except that an e-mail is never left out."""
        found: dict[str, Any] = {"email": ""}
        extra: dict[str, str] = {}
        for code, cell in zip(self.codes, cells, strict=True):
            if code is None or not cell.strip():
                continue
            place = found if code in _CODES or code.startswith(CUSTOM_PREFIX) else extra
            place[code] = cell
        return {**found, "extra": extra} if extra else found


def map_columns(
    headers: Sequence[str], overrides: Mapping[str, str] | None = None, fields: Iterable[WorkspaceField] = ()
) -> Columns:
    """Decide where each column goes: what `overrides` says, else the field of that name.

    A name is a field's code, or one that differs only in case, blanks and punctuation ("First Name", "E-mail"); then likewise the
    code, the label or a searchable name of one of the workspace's fields.

    Args:
        headers: The columns' names.
        overrides: Codes by column name; `"ignore"` or a blank code leaves the column out.
        fields: The workspace's fields, as `client.workspaces.fields()` lists them.

    Raises:
        InvalidRequest: A column that no field is known for, two columns for one field, or no column for the e-mail.
    """
    fields = tuple(fields)
    chosen = _chosen(headers, overrides or {}, fields)
    tiers = _tiers(fields)
    codes = tuple(chosen[name] if (name := header.strip()) in chosen else _code_of(header, tiers) for header in headers)
    if unknown := [(at, header) for at, (header, code) in enumerate(zip(headers, codes, strict=True), 1) if code == ""]:
        raise InvalidRequest(f"{'; '.join(_unknown(at, header, fields) for at, header in unknown)}; {_REMEDY}")
    _refuse_doubles(headers, codes)
    return Columns(tuple(headers), codes)


def knows_all(headers: Sequence[str], overrides: Mapping[str, str]) -> bool:
    """Whether every column and every override is understood without asking the workspace for its fields."""
    chosen = {column.strip(): code for column, code in overrides.items()}
    tiers = _tiers(())
    named = (_code_of(header, tiers) for header in headers if header.strip() not in chosen)
    return all(code != "" for code in named) and all(_is_known(code, ()) for code in chosen.values())


def parse_overrides(texts: Iterable[str]) -> dict[str, str]:
    """Read `Column=code` texts; the last `=` parts them, since codes have none.

    Raises:
        InvalidRequest: A text without `=`, or a column named twice.
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


_REMEDY: Final = "map each to a code as in 'Column=company_name', or leave it out with 'Column=ignore'"


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


def _tiers(fields: Sequence[WorkspaceField]) -> tuple[_Tier, ...]:
    """Return what a header is compared with, most certain first."""
    usable = [field for field in fields if _is_code(field.code)]
    return (
        (str.strip, _index((code, code) for code in _CODES)),
        (_squash, _index((_squash(code), code) for code in _CODES)),
        (str.strip, _index((field.code, field.code) for field in usable)),
        (str.strip, _index((field.label.strip(), field.code) for field in usable)),
        (_squash, _index((_squash(name), field.code) for field in usable for name in (field.code, field.label))),
        (_squash, _index((_squash(name), field.code) for field in usable for name in field.searchable)),
    )


def _code_of(header: str, tiers: Iterable[_Tier]) -> str:
    """Return the code for a header; an empty text if none is known.

    Raises:
        InvalidRequest: The name stands for two fields.
    """
    if _CUSTOM_CODE.fullmatch(name := header.strip()):
        return name
    if custom := _CUSTOM_NAME.fullmatch(_squash(header)):
        return CUSTOM_PREFIX + custom[1]
    for spelled, index in tiers:
        if found := index.get(spelled(header)):
            if len(found) > 1:
                both = " and ".join(map(repr, sorted(found)))
                raise InvalidRequest(f"column {header!r} names {both}; map it to one of them, as in '{name}={min(found)}'")
            return min(found)
    return ""


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
