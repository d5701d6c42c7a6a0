"""JSON without models: decode and encode values, and say in words what is wrong with a body.

`outreach_async.converters` decodes responses. This module imports no cattrs, so that errors and requests need none.

A lone surrogate escape, such as half of an emoji in a name that the service cut, is decoded as U+FFFD. RFC 8259 allows it, but
msgspec rejects it, so a rejected body is searched for them, and decoded again if it has any.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from outreach_async._wire_words import STANDARD_FIELDS
from outreach_async.models import NewContact

DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors that msgspec raises for invalid input; `UnicodeDecodeError` is for invalid UTF-8 inside a string."""

encode: Final = msgspec.json.Encoder(enc_hook=str.__str__).encode
"""Encode JSON values as UTF-8 JSON. Instances of subclasses of `str` are encoded as strings; some data frames contain them."""

_TYPE_MISMATCH: Final = re.compile(r"Expected `(?P<expected>[^`]*)`, got `(?P<got>[^`]*)`(?: - at `(?P<path>.*)`)?", re.DOTALL)
_MISSING_MEMBER: Final = re.compile(r"Object missing required field `(?P<name>[^`]*)`(?: - at `(?P<path>.*)`)?", re.DOTALL)
# The names of types in fault messages, if they differ from those of msgspec
_FOUND_TYPE_NAMES: Final = {"null": "None", "object": "dict", "array": "list"}
_EXPECTED_TYPE_NAMES: Final = {"int | float": "number", "int | float | str": "str or number"}


class DecodeError(ValueError):
    """A body is not JSON, or a JSON value does not match its model."""

    def __init__(self, faults: list[str], value: dict[str, Any] | None = None) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults
        self.value = value


def encode_contact(contact: NewContact) -> bytes:
    """Encode a contact as a JSON object for the body of a create request. The caller must have checked the contact."""
    body = encode(contact)  # msgspec omits UNSET values and private fields, including `custom` and `extra`
    for codes in contact.custom, contact.extra:
        if codes:
            body = body[:-1] + b"," + encode(codes)[1:]
    return body


FIELD_ORDER: Final = tuple(msgspec.json.decode(encode_contact(NewContact("", **dict.fromkeys(STANDARD_FIELDS)))))
"""The standard fields of a contact, in the order in which they are encoded. Custom fields follow the standard fields."""


def decode_json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except DECODE_ERRORS as error:
        whole = replace_lone_surrogates(body)
        fault = _invalid_json_fault(body, error)
    if whole != body:
        return decode_json(whole)
    raise DecodeError([fault])


_MAX_LONE_SURROGATES: Final = 2**16  # of a body; replacing one takes about 90 bytes of memory
_LONE_SURROGATE: Final = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)


def replace_lone_surrogates(body: bytes) -> bytes:
    r"""Replace each `\ud800` to `\udfff` in a JSON body that is half of a pair by `\ufffd`, which has the same length."""
    if b"\\u" not in body or b"\0" in body:  # no JSON has a NUL
        return body
    # Backslashes that are themselves escaped are hidden, so that every other backslash begins an escape.
    whole, count = _LONE_SURROGATE.subn(rb"\\ufffd", body.replace(rb"\\", b"\0\0"), _MAX_LONE_SURROGATES)
    return body if count == _MAX_LONE_SURROGATES else whole.replace(b"\0\0", rb"\\")


def first_fault(body: bytes, error: Exception) -> DecodeError:
    """Return the first fault that msgspec found, in the wording of the converter, with the status and the id of the object."""
    fault = _invalid_json_fault(body, error)
    if isinstance(error, msgspec.ValidationError):
        if match := _MISSING_MEMBER.fullmatch(str(error)):
            fault = f"{match['path'] or '$'}.{match['name']}: missing key {match['name']!r}"
        elif match := _TYPE_MISMATCH.fullmatch(str(error)):
            expected = match["expected"].replace(" | null", "")
            got = _FOUND_TYPE_NAMES.get(match["got"], match["got"])
            fault = f"{match['path'] or '$'}: expected {_EXPECTED_TYPE_NAMES.get(expected, expected)}, got {got}"
    return DecodeError([fault], None if fault.startswith("$: expected JSON") else read_status_and_id(body))


class _PartialObject(msgspec.Struct):
    status: msgspec.Raw = msgspec.Raw(b"null")
    id: msgspec.Raw = msgspec.Raw(b"null")


_decode_partially: Final = msgspec.json.Decoder(_PartialObject).decode


def read_status_and_id(body: bytes) -> dict[str, Any] | None:
    """Return the status and the id of a JSON object, each only if it is a string; `None` if the body is not an object."""
    try:
        outline = _decode_partially(body)
        members = {"status": outline.status, "id": outline.id}
        return {name: msgspec.json.decode(raw) for name, raw in members.items() if bytes(raw).startswith(b'"')}
    except DECODE_ERRORS:
        return None


def _invalid_json_fault(body: bytes, error: Exception) -> str:
    if not body.strip():
        return "$: expected JSON, got an empty body"
    if body.lstrip()[:1] == b"<":
        return "$: expected JSON, got a page of HTML or XML"
    return f"$: expected JSON: {error}"
