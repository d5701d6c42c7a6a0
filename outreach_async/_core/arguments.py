"""Checks of arguments and contacts before anything is sent. Only values that can never be valid are rejected."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from difflib import get_close_matches
from functools import lru_cache
from math import isnan
from typing import Any, Final
from urllib.parse import quote

from outreach_async import _wire_words as words
from outreach_async._types import MAX_INTEGER, show_number
from outreach_async._types import require_encodable as require_encodable  # noqa: PLC0414 - a check of arguments, too
from outreach_async._types import require_types as require_types  # noqa: PLC0414 - as above
from outreach_async._types import type_name as type_name  # noqa: PLC0414 - as above
from outreach_async._wire_words import UNSET
from outreach_async.errors import InvalidRequest, OutreachError, shorten
from outreach_async.models import RUN_TARGET, NewContact, Target, standard_values
from outreach_async.transport._secret import OWNER_KEY, Secret, hide, reveal
from outreach_async.transport._sending import check_headers, require_origin_form
from outreach_async.transport._wire import METHOD

_AROUND: Final = "\ufeff\u200b" + "".join(filter(str.isspace, map(chr, range(0x3001))))  # also a byte order mark
_MAX_COMPARED: Final = 100


def is_missing(value: object) -> bool:
    """Return whether a value is one that data frames and databases have for a missing value: NaN, or `NaT` and `NA` of pandas."""
    # The classes are known by their names, so that nothing is imported, and no code of another class runs.
    kind: Any = type(value)
    if issubclass(kind, float):
        return isnan(value)  # type: ignore[arg-type]
    if issubclass(kind, Decimal):
        return Decimal.is_nan(value)  # type: ignore[arg-type]
    if kind.__name__ in _NUMPY_TYPES and kind.__module__ == "numpy":
        return bool(value != value)  # noqa: PLR0124 - true of NaN and NaT alone
    return kind.__name__ in {"NaTType", "NAType"}  # of pandas


_NUMPY_TYPES: Final = frozenset({"float16", "float32", "longdouble", "datetime64", "timedelta64"})  # others are floats


def trim(value: object) -> Any:
    """Return a text or a secret without whitespace around it, `None` if nothing is left, any other value unchanged."""
    # Secrets and variables often end in a line break: `echo` writes it. What is sent and what is masked must not differ by it.
    text = reveal(value)
    if not isinstance(text, str):
        return value
    return (hide(stripped) if isinstance(value, Secret) else stripped) if (stripped := text.strip(_AROUND)) else None


def require_id(field: str, value: object, what: str, remedy: str) -> str:
    """Return an id without whitespace around it, after checking its characters and the prefix for ids of its kind."""
    prefix, text = words.ID_PREFIXES[what], trim(value)
    if not isinstance(text, str):
        got = "a blank string" if isinstance(value, str) else type_name(value)
    elif not text.startswith(prefix) or text == prefix:
        got = _describe_string(text)
    elif len(ids := re.split(r"[\s,]+", text)) > 1 and all(id_.startswith(prefix) for id_ in ids):
        noun = "key" if what == "owner_key" else "id"
        raise InvalidRequest(f"{field}: expected one {noun}, got {len(ids)} in one string; {remedy}")
    else:
        require_plain(field, text, remedy)
        return text
    raise InvalidRequest(f"{field}: expected a string starting with {prefix!r}, got {got}; {remedy}")


def require_plain(field: str, value: str, remedy: str) -> None:
    """Check that an id or a key has no whitespace and no invisible characters, which no header field and no URL can have."""
    require_encodable(field, value)
    if not value.isprintable() or " " in value:
        place = next(place for place, each in enumerate(value) if not each.isprintable() or each == " ")
        got = "a line break" if value[place] in "\r\n" else "whitespace" if value[place].isspace() else "an invisible character"
        raise InvalidRequest(f"{field}: expected one line without whitespace, got {got} at character {place}; {remedy}")


def require_workspace_ids(workspaces: str | Iterable[str]) -> list[str]:
    """Return the ids of workspaces without duplicates and whitespace around them."""
    ids = [workspaces] if isinstance(workspaces, str) else list(workspaces)
    if not ids:
        raise InvalidRequest("workspaces: expected at least one workspace id, got none; pass ids such as 'space_1'")
    require_types(require_workspace_ids, {"workspaces": ids})  # of an iterator, whose items are known only now
    spaces = [trim(workspace) or "" for workspace in ids]
    if any(workspace.startswith(words.ID_PREFIXES["owner_key"]) for workspace in spaces):  # findings would show the key
        raise InvalidRequest("workspaces: expected workspace ids, got what looks like an API key; pass ids such as 'space_1'")
    for workspace in spaces:
        require_plain("workspaces", workspace, "pass ids such as 'space_1'")
    return list(dict.fromkeys(spaces))


def _describe_string(value: str) -> str:
    """Describe a string without showing its characters, because it may be a key that was passed as the wrong argument."""
    for resource, prefix in words.ID_PREFIXES.items():
        if value.startswith(prefix):
            kind_of_id = "an owner_key" if resource == "owner_key" else f"a {resource} id"
            return f"only the prefix {prefix!r}" if value == prefix else f"what looks like {kind_of_id} ({prefix}...)"
    return f"a string of {len(value)} characters without that prefix"


def masked_repr(value: object) -> str:
    """Return the repr of a string with any owner key masked, or the type name of any other value."""
    if not isinstance(value, str):
        return type_name(value)
    return repr(OWNER_KEY.sub("key_...", value))


def show_name(value: object, most: int = 60) -> str:
    """Return `masked_repr` of a name, cut to `most` characters."""
    return masked_repr(shorten(value, most) if isinstance(value, str) else value)


def similar_names(name: str, known: Iterable[str], cutoff: float = 0.6, *, text: str = "{}") -> str:
    """Return the most similar names, whatever their case, as `'a' or 'b'` in a text; an empty string if none is similar."""
    by_folded = {_fold(each): each for each in known}
    near = " or ".join(show_name(by_folded[each]) for each in get_close_matches(_fold(name), by_folded, n=3, cutoff=cutoff))
    return near and text.format(near)


def _fold(name: str) -> str:
    return name[:_MAX_COMPARED].casefold()  # a comparison takes time by the square of the length


def require_number(field: str, value: object, *, least: int, most: int = MAX_INTEGER) -> int:
    """Return a value after checking that it is a whole number between `least` and `most`, both inclusive."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{field}: expected a whole number, got {type_name(value)}; pass an int of at least {least}")
    if value < least:
        raise InvalidRequest(f"{field}: expected at least {least}, got {show_number(value)}; pass a larger number")
    if value > most:
        raise InvalidRequest(f"{field}: expected at most {most}, got {show_number(value)}; pass a smaller number")
    return value


def require_seconds(field: str, value: object) -> float | None:
    """Return a time limit in seconds as a `float`, after checking it; `None` is valid."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"{field}: expected seconds as a number or None, got {type_name(value)}; pass a number such as 30.0")
    if not value > 0:
        raise InvalidRequest(f"{field}: expected more than 0 seconds, got {show_number(value)}; pass a positive number")
    if value > sys.float_info.max and isinstance(value, int):
        raise InvalidRequest(f"{field}: expected seconds that fit a float, got {show_number(value)}; pass a smaller number")
    return float(value)


def require_float(field: str, value: object, is_valid: Callable[[float], bool], expected: str, remedy: str) -> float:
    """Return a number as a `float`, after checking that it is valid. The error says what was `expected`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(value, int | float) or not is_number or not is_valid(value):
        got = show_number(value) if is_number else type_name(value)
        raise InvalidRequest(f"{field}: expected {expected}, got {got}; {remedy}")
    return float(value)


def require_rate(field: str, value: object) -> float:
    expected, remedy = "a finite number of requests per second greater than 0", "pass a number such as 50"
    return require_float(field, value, lambda rate: 0 < rate <= sys.float_info.max, expected, remedy)


def read_rate(environment: Mapping[str, str]) -> float | None:
    """Return the rate that the environment variable `OUTREACH_RATE` sets; `None` if it is unset or empty."""
    text = environment.get("OUTREACH_RATE")
    if not text:
        return None
    try:
        return require_rate("OUTREACH_RATE", float(text))
    except (ValueError, InvalidRequest):
        raise InvalidRequest(
            f"OUTREACH_RATE: expected a finite number of requests per second greater than 0, got {shorten(repr(text), 40)}; "
            "set it to a number such as 50, or unset it"
        ) from None


def require_choice(field: str, value: object, choices: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in choices:  # a value of another class may have no truth, such as an array
        valid = ", ".join(map(repr, choices))
        raise InvalidRequest(f"{field}: expected one of {valid}, got {masked_repr(value)}; pass one of them")


def require_upload_options(duplicates: object, strict_validation: object, campaign: object) -> str | None:
    """Check the options of requests that create contacts, and return the id of the campaign."""
    require_choice("duplicates", duplicates, words.DUPLICATE_POLICIES)
    if not isinstance(strict_validation, bool):
        raise InvalidRequest(f"strict_validation: expected bool, got {type_name(strict_validation)}; pass True or False")
    remedy = "pass a campaign id, or None for no campaign"
    return None if campaign is None else require_id("campaign", campaign, "campaign", remedy)


def check_contact(contact: NewContact) -> None:
    """Reject a contact that the service can never accept."""
    email: object = contact.email
    if not isinstance(email, str):
        raise InvalidRequest(f"email: expected a string, got {type_name(email)}; give the contact an e-mail address")
    if not email.strip():
        raise InvalidRequest("email: expected an address, got a blank string; give the contact an e-mail address")
    require_encodable("email", email)
    if not _are_encodable(standard_values(contact)):
        for field, value in contact.standard().items():
            _check_string(field, value)
    for field, codes in ("custom", contact.custom), ("extra", contact.extra):
        if type(codes) is not dict or codes:  # only the truth of a dict is known
            _check_codes(field, codes)


def _are_encodable(values: Iterable[Any]) -> bool:
    """Return whether all values other than `UNSET` are encodable strings, checked as one joined string, for speed."""
    try:
        text = "".join([value for value in values if value is not UNSET])
        return text.isascii() or bool(text.encode())
    except (TypeError, UnicodeEncodeError):  # a value is not a string, or has a lone surrogate
        return False


def _check_string(field: str, value: object) -> None:
    if value is None:
        return
    if is_missing(value):
        raise InvalidRequest(f"{field}: expected a string or None, got NaN, which stands for a missing value; omit the field")
    if not isinstance(value, str):
        remedy = (
            "convert it with f'{value:.15g}', because str() may add '.0'" if isinstance(value, float) else "convert it with str()"
        )
        raise InvalidRequest(f"{field}: expected a string or None, got {type_name(value)}; {remedy}")
    require_encodable(field, value)


def _check_codes(field: str, codes: object) -> None:
    if not isinstance(codes, Mapping):
        raise InvalidRequest(f"{field}: expected a mapping of codes to strings, got {type_name(codes)}; pass a dict")
    # Not `all(map(...))`, which takes a StopIteration of a code's hash for the end.
    if field == "custom" and all(_is_custom_code(code) for code in codes) and _are_encodable(codes.values()):
        return
    for code, value in codes.items():
        _check_code(field, code)
        _check_string(f"{field}[{masked_repr(code)}]", value)


@lru_cache(maxsize=1024)  # a workspace has few codes, and every row repeats them
def _is_custom_code(code: object) -> bool:
    return isinstance(code, str) and words.CUSTOM_CODE.fullmatch(code) is not None


def _check_code(field: str, code: object) -> None:
    if not isinstance(code, str) or not code:
        got = "an empty string" if isinstance(code, str) else type_name(code)
        raise InvalidRequest(f"{field}: expected codes as strings, got {got}; use the codes of client.workspaces.fields()")
    require_encodable(field, code)
    if field == "custom" and not words.CUSTOM_CODE.fullmatch(code):
        raise InvalidRequest(
            f"custom[{masked_repr(code)}]: expected a code of the form custom_<n>; use the codes of client.workspaces.fields()"
        )
    if field == "extra" and (code in words.RESERVED_FIELDS or code.startswith(words.CUSTOM_PREFIX)):
        remedy = "pass the value in custom" if code.startswith(words.CUSTOM_PREFIX) else "pass the value as an argument"
        raise InvalidRequest(f"extra[{masked_repr(code)}]: this code is reserved; {remedy}")


def unreadable(error: Exception) -> InvalidRequest:
    """Return the error of a contact whose own code raised `error`, of which only the type is shown: the rest may be a secret."""
    got = f"{type(error).__name__} when they were read"
    return InvalidRequest(f"contact: expected fields that can be read, got {got}; pass a dict of strings")


@contextmanager
def require_readable() -> Iterator[None]:
    """Raise `InvalidRequest` for any exception that code of the caller raises while a contact is read."""
    try:
        yield
    except (OutreachError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - a value may be of any class
        rejection = unreadable(error)
    else:
        return
    raise rejection


def to_contact(row: object) -> NewContact:
    """Convert a mapping to a contact. The values of the contact are checked later, before it is sent."""
    contact, target = to_targeted_contact(row)
    if target is not RUN_TARGET:
        name = "campaign" if target.workspace is None else "workspace"
        raise InvalidRequest(f"{name}: not a field of a contact; pass it as an argument")
    return contact


def checked_contact(row: object) -> NewContact:
    """Convert a mapping to a contact, and reject one that the service can never accept."""
    check_contact(contact := to_contact(row))
    return contact


def choose_contact(contact: object, email: object, fields: Mapping[str, object]) -> NewContact:
    if email is UNSET and not fields:
        if contact is None:
            raise InvalidRequest("email: missing; pass email= and the other fields of the contact, or a NewContact")
        return to_contact(contact)
    if contact is not None:
        raise InvalidRequest("contact: expected a contact or its fields, got both; put every field into the contact")
    if email is UNSET:
        raise InvalidRequest("email: missing; give the contact an e-mail address")
    for name in fields:
        if name not in _CONTACT_MEMBERS and not name.startswith(words.CUSTOM_PREFIX):
            near = get_close_matches(name, (*_CONTACT_MEMBERS, *_CREATE_OPTIONS), n=1)
            if near and near[0] in _CREATE_OPTIONS:  # as a field in `extra`, the option would have no effect
                raise InvalidRequest(f"{name}: not an argument of create; did you mean {near[0]!r}?")
    return to_contact({"email": email, **fields})


_CREATE_OPTIONS: Final = ("duplicates", "strict_validation", "campaign", "owner_key", "workspace", "timeout", "deadline")


def to_targeted_contact(row: object) -> tuple[NewContact, Target]:
    """Convert a row to a contact, and the target that the row names; `RUN_TARGET` itself if it names none."""
    if isinstance(row, NewContact):
        return row, RUN_TARGET
    if type(row) is tuple and len(row) == 2 and isinstance(row[1], Target):  # noqa: PLR2004 - a pair
        return to_targeted_contact(row[0])[0], row[1]
    if not isinstance(row, Mapping):
        raise InvalidRequest(
            f"contact: expected NewContact or a mapping, got {type_name(row)}; pass email= or build NewContact(email, ...)"
        )
    known: dict[str, Any] = {}
    custom: dict[str, Any] = {}
    target: dict[str, Any] = {}
    for member, value in row.items():
        if type(value) is not str and is_missing(value):  # most values are strings
            continue
        if member in _CONTACT_MEMBERS:
            known[member] = value
            continue
        is_custom = isinstance(member, str) and member.startswith(words.CUSTOM_PREFIX)
        if not is_custom and member not in TARGET_FIELDS:
            raise InvalidRequest(_unknown_member_message(member))
        (custom if is_custom else target)[member] = value
    if "email" not in known:
        raise InvalidRequest("email: missing; give the contact an e-mail address")
    if custom:
        _check_codes("custom", known.get("custom", {}))
        known["custom"] = {**known.get("custom", {}), **custom}
    return NewContact(**known), Target(target.get("workspace"), target.get("campaign")) if target else RUN_TARGET


TARGET_FIELDS: Final = ("workspace", "campaign")  # fields of a row that name its target
_CONTACT_MEMBERS: Final = frozenset({"email", "custom", "extra", *words.STANDARD_FIELDS})


def _unknown_member_message(member: object) -> str:
    if not isinstance(member, str):
        return f"contact: expected strings as keys, got {type_name(member)}; use the field names of NewContact"
    near = suggest_field(member)
    meant = f"did you mean {near!r}? Otherwise, " if near else ""
    return f"{masked_repr(member)}: not a field of a contact; {meant}pass other field codes of the workspace in 'extra'"


@lru_cache(maxsize=64)  # a wrong column has one name in all rows, and a comparison takes 90 us
def suggest_field(name: str) -> str | None:
    """Return the field of a contact with the most similar name; `None` if no name is similar."""
    return next(iter(get_close_matches(name, _CONTACT_MEMBERS, n=1)), None)


def require_method(method: object) -> str:
    if not isinstance(method, str) or not METHOD.fullmatch(method):
        got = "a string with other characters" if isinstance(method, str) else type_name(method)
        raise InvalidRequest(f"method: expected an HTTP method in upper case, got {got}; pass a method such as 'GET'")
    return method


def require_body(body: object) -> bytes:
    if not isinstance(body, bytes):
        remedy = "encode it, for example with json.dumps(value).encode()"
        raise InvalidRequest(f"body: expected bytes, got {type_name(body)}; {remedy}")
    return body


def require_target(target: object) -> str:
    if not isinstance(target, str):
        expected = "a string such as '/campaigns?page=1'"
        raise InvalidRequest(f"target: expected {expected}, got {type_name(target)}; pass a path and query")
    return require_origin_form(target)


def join_params(target: str, params: object) -> str:
    """Return a request target with parameters added to its query, percent-encoded."""
    if not isinstance(params, Mapping):
        raise InvalidRequest(f"params: expected a mapping of names to values, got {type_name(params)}; pass a dict")
    expected = "expected names that are strings, and values that are strings, numbers, Booleans or lists of them"
    pairs = []
    for name, value in params.items():
        if not isinstance(name, str):
            raise InvalidRequest(f"params: {expected}, got a name of the type {type_name(name)}; convert it")
        for each in value if isinstance(value, list | tuple) else (value,):
            if not isinstance(each, str | int | float | None) or (isinstance(each, int) and abs(each) > MAX_INTEGER):
                raise InvalidRequest(f"params: {expected}, got a value of the type {type_name(each)}; convert it")
            text = str(each).lower() if isinstance(each, bool) else str(each)
            require_encodable("params", name + text)
            pairs += [] if each is None else [f"{quote(name, safe='')}={quote(text, safe='')}"]
    separator = "&" if "?" in target else "?"
    return target + separator + "&".join(pairs) if pairs else target


def require_headers(headers: object) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        raise InvalidRequest(f"headers: expected a mapping of strings to strings, got {type_name(headers)}; pass a dict")
    return check_headers(headers.items())
