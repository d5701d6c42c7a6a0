"""The one door between bytes and models.

Reading goes through msgspec first, which decodes attrs classes natively and strictly. What it refuses, and what holds fields that
the models do not know, is read again through the cattrs converter of `structuring`: it names every fault by path and keeps every
field. That module, and cattrs with it, is imported when first needed.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeVar

import attrs
import msgspec

from outreach_async.contacts import NewContact
from outreach_async.models import NOT_ON_THE_WIRE, Page, Step, Template, Undecodable

T = TypeVar("T")

_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that it does not take; bytes that are no UTF-8 inside a text are not among its own errors."""

_MOST_FAULTS: Final = 10_000
"""Faults of a page's items beyond which the page as a whole is refused: each takes 10 us to find."""

_BLANKS: Final = b" \t\n\r"  # RFC 8259, section 2


_encode: Final = msgspec.json.Encoder(enc_hook=str.__str__).encode


class DecodeError(ValueError):
    """Bytes that are not what the interface says.

    Attributes:
        faults: Every fault found, each `path: expected kind, got kind`; of a list those of the first 20 items that have any.
        value: The JSON object that was read; `None` if the bytes were no JSON object.
    """

    def __init__(self, faults: list[str], value: dict[str, Any] | None = None) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults
        self.value = value

    def __reduce__(self) -> tuple[type[DecodeError], tuple[list[str], dict[str, Any] | None]]:
        """Rebuild from the faults: the default would call `__init__` with the message."""
        return DecodeError, (self.faults, self.value)


def loads(kind: type[T], body: bytes) -> T:
    """Decode a whole body into a model.

    Raises:
        DecodeError: It is no JSON, or not of that shape; nothing is ever coerced.
    """
    try:
        model: T = _decoder(kind).decode(body)  # type: ignore[arg-type]  # mypy takes a class's hash for its instances'
    except _UNREADABLE:
        return structure(kind, _object(body))
    return model if _knows_all(model, body) else structure(kind, _object(body))


def loads_each(kind: type[Page[T]], body: bytes) -> Page[T]:
    """Decode a page as `loads` does, but keep an item that cannot be read in `undecodable` instead of raising.

    Raises:
        DecodeError: The page itself is no JSON, or not of the interface's shape, or its items have more than 10,000 faults.
    """
    try:
        return loads(kind, body)
    except DecodeError as error:
        if error.value is None or not isinstance(items := error.value.get("data"), list):
            raise
        page = structure(kind, {**error.value, "data": []})
        found = _all(kind.__args__[0], items)  # type: ignore[attr-defined]  # a parametrised generic: Page[Mailbox]
        if found is None:
            raise
    return attrs.evolve(
        page,
        data=[item for item in found if not isinstance(item, Undecodable)],
        undecodable=[item for item in found if isinstance(item, Undecodable)],
    )


def structure(kind: type[T], value: object) -> T:
    """Build a model from JSON values, strictly, keeping unknown fields.

    Raises:
        DecodeError: With every fault, and the value.
    """
    from outreach_async.structuring import NotStructured, converter, faults_of

    try:
        return converter().structure(value, kind)
    except NotStructured as error:
        raise DecodeError(faults_of(error), value if isinstance(value, dict) else None) from None


def to_wire(model: object) -> Any:
    """Turn a model back into the JSON values it came from, unknown fields included."""
    from outreach_async.structuring import converter

    return converter().unstructure(model)


def dumps(model: object) -> bytes:
    """Turn a model back into wire JSON."""
    return encode(to_wire(model))


def encode(value: dict[str, Any]) -> bytes:
    """Encode JSON values as UTF-8 JSON; a text may be of a class of its own, as those of data frames and secret stores are."""
    return _encode(value)


def encode_contact(contact: NewContact) -> bytes:
    """Encode a contact as the members of the create-contact body that describe it; its values must be fit to be sent."""
    if contact.custom or contact.extra:
        return encode(contact.members())
    return _encode(contact)  # msgspec leaves out what is UNSET or private, and so the codes


def read_json(body: bytes) -> Any:
    """Read any JSON.

    Raises:
        DecodeError: It is none.
    """
    try:
        return msgspec.json.decode(body)
    except _UNREADABLE as error:
        raise DecodeError([_no_json(body, error)]) from None


def _object(body: bytes) -> dict[str, Any]:
    value = read_json(body)
    if not isinstance(value, dict):
        raise DecodeError([f"$: expected object, got {'None' if value is None else type(value).__name__}"])
    return value


def _no_json(body: bytes, error: Exception) -> str:
    if not body.strip():
        return "$: expected JSON, got an empty body"
    if body.lstrip()[:1] == b"<":
        return "$: expected JSON, got a page of HTML or XML"
    return f"$: expected JSON: {error}"


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _knows_all(model: Any, body: bytes) -> bool:
    """Whether the body has no member that the model lacks, told by counting: msgspec drops unknown members without a word.

    Every member that the model has was in the body, and has a colon, so there is no room for others if there are as many colons.
    Texts may hold colons too. Then only those behind a quote are counted, blanks taken out, for they would hide a member. A text
    that holds `":` makes the count differ still, which only costs the slower reading.
    """
    members = _members(model.__class__)
    if items := getattr(model, "data", None):
        members += _members_within(items)
    return body.count(b":") == members or body.translate(None, _BLANKS).count(b'":') == members


def _members_within(items: list[Any]) -> int:
    templates = sum(len(item.templates) for item in items) if isinstance(items[0], Step) else 0
    return len(items) * _members(items[0].__class__) + templates * _members(Template)


@cache
def _members(kind: Any) -> int:
    return sum(field.name not in NOT_ON_THE_WIRE for field in attrs.fields(kind))


def _all(kind: type[T], items: list[object]) -> list[T | Undecodable] | None:
    """Read items, each by itself; `None` if there are too many faults to tell them all."""
    found: list[T | Undecodable] = []
    left = _MOST_FAULTS
    for index, item in enumerate(items):
        try:
            found.append(structure(kind, item))
        except DecodeError as error:
            found.append(_undecodable(index, error))
            left -= len(error.faults)
            if left < 0:
                return None
    return found


def _undecodable(index: int, error: DecodeError) -> Undecodable:
    fields = error.value or {}
    name = fields.get("id")
    faults = "; ".join(fault.replace("$", f"$.data[{index}]", 1) for fault in error.faults)
    return Undecodable(index=index, id=name if isinstance(name, str) else None, error=faults, fields=fields)
