"""What can never be right, refused before anything is sent; the rest is the service's word."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from outreach_async.contacts import NewContact, standard_values
from outreach_async.errors import InvalidRequest
from outreach_async.vocabulary import (
    CUSTOM_PREFIX,
    DUPLICATE_POLICIES,
    ID_PREFIXES,
    MAX_MAILBOX_DISPLAY,
    RESERVED_FIELDS,
    STANDARD_FIELDS,
    UNSET,
)

_CUSTOM_CODE: Final = re.compile(r"custom_[0-9]+")
_TARGET: Final = re.compile(r"/[A-Za-z0-9\-._~!$&'()*+,;=:@/?%\[\]]*")  # what every backend sends byte for byte
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_METHOD: Final = re.compile(r"[A-Z]+(?:-[A-Z]+)*")
_KEY: Final = re.compile(rf"{ID_PREFIXES['owner_key']}.+", re.DOTALL)
_LARGEST: Final = 2**63 - 1  # what every JSON reader takes; Python refuses to write out numbers far beyond it
_HEADER_VALUE: Final = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")  # what every library sends alike


def kind(value: object) -> str:
    """Name a value's kind without showing the value, which may be a secret."""
    return "None" if value is None else type(value).__name__


def require_id(field: str, value: object, what: str, remedy: str) -> str:
    """Return an id that starts as ids of its kind do.

    Raises:
        InvalidRequest: It is no text, blank, or has another prefix.
    """
    prefix = ID_PREFIXES[what]
    if not isinstance(value, str):
        raise InvalidRequest(f"{field}: expected a text starting with {prefix!r}, got {kind(value)}; {remedy}")
    if not value.strip():
        raise InvalidRequest(f"{field}: expected a text starting with {prefix!r}, got a blank text; {remedy}")
    if not value.startswith(prefix) or value == prefix:
        raise InvalidRequest(f"{field}: expected a text starting with {prefix!r}, got {_described(value)}; {remedy}")
    if not value.isascii():
        require_encodable(field, value)
    return value


def _described(value: str) -> str:
    """Say what a text looks like; its own characters are kept out, for it may be a key in the wrong place."""
    for what, prefix in ID_PREFIXES.items():
        if value.startswith(prefix):
            kind_of_id = "an owner_key" if what == "owner_key" else f"a {what} id"
            return f"only the prefix {prefix!r}" if value == prefix else f"what looks like {kind_of_id} ({prefix}...)"
    return f"a text of {len(value)} characters that starts otherwise"


def shown(value: object) -> str:
    """Quote a text, without the key that it may be in the wrong place; of anything else name the kind."""
    if not isinstance(value, str):
        return kind(value)
    return repr(_KEY.sub(f"{ID_PREFIXES['owner_key']}...", value))


def _figure(value: object) -> str:
    return f"a number of {value.bit_length()} bits" if isinstance(value, int) and abs(value) > _LARGEST else str(value)


def require_encodable(field: str, value: str) -> None:
    """Refuse a text that UTF-8 cannot carry.

    Raises:
        InvalidRequest: It holds a lone surrogate.
    """
    try:
        value.encode()
    except UnicodeEncodeError as error:
        fault = f"got a lone surrogate at character {error.start}"
        raise InvalidRequest(f"{field}: expected text that UTF-8 can carry, {fault}; decode its source rightly") from None


def require_number(field: str, value: object, *, least: int, most: int | None = None) -> int:
    """Return a whole number within bounds.

    Raises:
        InvalidRequest: It is no whole number (a `bool` is none), or out of bounds.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{field}: expected a whole number, got {kind(value)}; pass an int of at least {least}")
    if value < least:
        raise InvalidRequest(f"{field}: expected at least {least}, got {_figure(value)}; pass a larger number")
    if most is not None and value > most:
        raise InvalidRequest(
            f"{field}: expected at most {most}, got {_figure(value)}; ask for smaller pages and walk more of them"
        )
    if value > _LARGEST:
        raise InvalidRequest(f"{field}: expected at most {_LARGEST}, got {_figure(value)}; pass a smaller number")
    return value


def require_display(field: str, value: object, *, mailboxes: bool) -> int:
    """Return a page size; mailboxes have the one maximum that the interface states."""
    return require_number(field, value, least=1, most=MAX_MAILBOX_DISPLAY if mailboxes else None)


def require_seconds(field: str, value: object) -> float | None:
    """Return a positive span in seconds, or `None` for no bound.

    Raises:
        InvalidRequest: It is no number, not positive, or not a number at all (NaN).
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"{field}: expected seconds as a number or None, got {kind(value)}; pass for example 30.0")
    if not value > 0:
        raise InvalidRequest(f"{field}: expected more than 0 seconds, got {_figure(value)}; pass None for no bound")
    try:
        return float(value)
    except OverflowError:
        raise InvalidRequest(f"{field}: expected seconds, got {_figure(value)}; pass None for no bound") from None


def require_options(duplicates: object, strict_validation: object, campaign: object) -> None:
    """Check `upload_options` as a whole.

    Raises:
        InvalidRequest: An option is not of the interface's kind.
    """
    if duplicates not in DUPLICATE_POLICIES:
        raise InvalidRequest(
            f"duplicates: expected one of {', '.join(map(repr, DUPLICATE_POLICIES))}, got {shown(duplicates)}; pass one of them"
        )
    if not isinstance(strict_validation, bool):
        raise InvalidRequest(f"strict_validation: expected bool, got {kind(strict_validation)}; pass True or False")
    if campaign is not None:
        require_id("campaign", campaign, "campaign", "pass a campaign's id, or None to add to no campaign")


def check_contact(contact: NewContact) -> None:
    """Refuse a contact that the service could never accept.

    Raises:
        InvalidRequest: A blank e-mail, a value that is no text, or a malformed code.
    """
    _check_email(contact.email)
    if not _plain(standard_values(contact)):
        for field, value in contact.standard().items():
            _check_text(field, value)
    for field, codes in ("custom", contact.custom), ("extra", contact.extra):
        if codes != {}:
            _check_codes(field, codes)


def _plain(values: tuple[Any, ...]) -> bool:
    """Whether all that were set are ASCII texts, as most are: asked of all at once, in half of the time."""
    try:
        return "".join([value for value in values if value is not UNSET]).isascii()
    except TypeError:  # one is no text
        return False


def _check_email(email: object) -> None:
    if not isinstance(email, str):
        raise InvalidRequest(f"email: expected text, got {kind(email)}; give the contact an e-mail address")
    if not email.strip():
        raise InvalidRequest("email: expected an address, got a blank text; give the contact an e-mail address")
    if not email.isascii():
        require_encodable("email", email)


def _check_text(field: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise InvalidRequest(f"{field}: expected text or None, got {kind(value)}; convert it with str()")
    if not value.isascii():
        require_encodable(field, value)


def _check_codes(field: str, codes: object) -> None:
    if not isinstance(codes, Mapping):
        raise InvalidRequest(f"{field}: expected a mapping of code to text, got {kind(codes)}; pass a dict")
    for code, value in codes.items():
        _check_code(field, code)
        _check_text(f"{field}[{shown(code)}]", value)


def _check_code(field: str, code: object) -> None:
    if not isinstance(code, str) or not code:
        got = kind(code) if code != "" else "a blank text"
        raise InvalidRequest(f"{field}: expected codes as texts, got {got}; use the codes of client.workspaces.fields()")
    require_encodable(field, code)
    if field == "custom" and not _CUSTOM_CODE.fullmatch(code):
        raise InvalidRequest(
            f"custom[{shown(code)}]: expected a code of the form custom_<n>; use the codes of client.workspaces.fields()"
        )
    if field == "extra" and (code in RESERVED_FIELDS or code.startswith(CUSTOM_PREFIX)):
        raise InvalidRequest(f"extra[{shown(code)}]: this code has a place of its own; pass it as an argument or in custom")


def contact_of(row: object) -> NewContact:
    """Return the contact that a row of a bulk run stands for; its values are checked when it is sent.

    Args:
        row: A `NewContact`, or a mapping with `email`, standard fields, `custom_<n>` codes, and `custom` and `extra` mappings.

    Raises:
        InvalidRequest: It is neither, lacks an e-mail, or has a member nobody knows.
    """
    if isinstance(row, NewContact):
        return row
    if isinstance(row, Mapping):
        return _contact_from(row)
    raise InvalidRequest(f"contact: expected NewContact or a mapping, got {kind(row)}; build NewContact(email, ...)")


def _contact_from(row: Mapping[Any, Any]) -> NewContact:
    known: dict[str, Any] = {}
    custom: dict[str, Any] = {}
    for member, value in row.items():
        if member in _MEMBERS:
            known[member] = value
        elif isinstance(member, str) and member.startswith(CUSTOM_PREFIX):
            custom[member] = value
        else:
            raise InvalidRequest(_unknown_member(member))
    if "email" not in known:
        raise InvalidRequest("email: missing; every contact needs an e-mail address")
    if custom:
        _check_codes("custom", known.get("custom", {}))
        known["custom"] = {**known.get("custom", {}), **custom}
    return NewContact(**known)


_MEMBERS: Final = frozenset({"email", "custom", "extra", *STANDARD_FIELDS})


def _unknown_member(member: object) -> str:
    if not isinstance(member, str):
        return f"contact: expected members named by texts, got {kind(member)}; use the names of NewContact"
    near = get_close_matches(member, _MEMBERS, n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"{shown(member)}: not a field of a contact; {meant}Further codes of the workspace go under 'extra'"


def require_method(method: object) -> str:
    """Return an HTTP method.

    Raises:
        InvalidRequest: It is none; what it holds is not shown.
    """
    if not isinstance(method, str) or not _METHOD.fullmatch(method):
        raise InvalidRequest(f"method: expected an HTTP method in capitals, got {kind(method)}; pass for example 'GET'")
    return method


def require_body(body: object) -> bytes:
    """Return a request's body.

    Raises:
        InvalidRequest: It is no bytes.
    """
    if not isinstance(body, bytes):
        raise InvalidRequest(f"body: expected bytes, got {kind(body)}; encode it, such as json.dumps(value).encode()")
    return body


def require_target(target: object) -> str:
    """Return a request target that means the same to every backend.

    Raises:
        InvalidRequest: It is no origin-form target, or has a `.` or `..` segment, which clients collapse.
    """
    if not isinstance(target, str):
        raise InvalidRequest(f"target: expected text such as '/campaigns?page=1', got {kind(target)}; pass path and query in one")
    if not _TARGET.fullmatch(target) or target.startswith("//"):
        raise InvalidRequest(
            "target: expected a percent-encoded path and query starting with one '/'; encode with urllib.parse.quote"
        )
    if any(segment in {".", ".."} for segment in target.partition("?")[0].replace("%2e", ".").replace("%2E", ".").split("/")):
        raise InvalidRequest("target: '.' and '..' segments mean different things to different backends; leave them out")
    return target


def require_headers(headers: object) -> dict[str, str]:
    """Return header fields by lower-case name.

    Raises:
        InvalidRequest: A name or value that HTTP cannot carry; the value is never shown.
    """
    if not isinstance(headers, Mapping):
        raise InvalidRequest(f"headers: expected a mapping of text to text, got {kind(headers)}; pass a dict")
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise InvalidRequest("headers: expected field names of letters, digits and hyphens; remove blanks and line breaks")
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise InvalidRequest(
                f"headers[{shown(name)}]: expected ASCII text without outer blanks and line breaks, got {kind(value)}; encode it"
            )
    return {name.lower(): value for name, value in headers.items()}
