"""The one door between bytes and models.

Reading goes through msgspec first, which decodes attrs classes natively and strictly. What it refuses, and what holds fields that
the models do not know, is read again through the cattrs converter of `structuring`: it names every fault by path and keeps every
field. That module, and cattrs with it, is imported when first needed.

A body above 1 MiB that msgspec refuses is not read again: as dicts and lists it can take 24 times its size. Only its first fault
is reported.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, TypeVar

import attrs
import msgspec

from outreach_async.contacts import NewContact
from outreach_async.errors import forget_frames
from outreach_async.models import NOT_ON_THE_WIRE, Page, Step, Template, Undecodable

T = TypeVar("T")

_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that it does not take; bytes that are no UTF-8 inside a text are not among its own errors."""

_LARGE: Final = 2**20
"""Bytes of a body beyond which only the first fault is reported."""

_DENSE: Final = 16
"""Bytes for each comma, at least, of a large page whose items are read one by one: 64 bytes of memory for each item bound it."""

_MOST_FAULTS: Final = 10_000
"""Faults of a page's items beyond which the page as a whole is refused: each takes 10 us to find."""

_BLANKS: Final = b" \t\n\r"  # RFC 8259, section 2


_encode: Final = msgspec.json.Encoder(enc_hook=str.__str__).encode

_WRONG: Final = re.compile(r"Expected `(?P<expected>[^`]*)`, got `(?P<got>[^`]*)`(?: - at `(?P<path>.*)`)?", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>[^`]*)`(?: - at `(?P<path>.*)`)?", re.DOTALL)
_NAMES: Final = {"null": "None", "object": "dict", "array": "list"}
"""How Python calls what msgspec found, where the names differ."""
_KINDS: Final = {"int | float": "number", "int | float | str": "str or number"}
"""How faults call what msgspec expected, where the names differ."""


class _Outline(msgspec.Struct):
    """What is read of an object that is too large, or too wrong, to be read whole."""

    status: msgspec.Raw = msgspec.Raw(b"null")
    id: msgspec.Raw = msgspec.Raw(b"null")


class DecodeError(ValueError):
    """Bytes that are not what the interface says.

    Attributes:
        faults: Every fault found, each `path: expected kind, got kind`; of a list those of the first 20 items that have any.
        value: The JSON object that was read, of one above 1 MiB only its `status` and `id`; `None` if the bytes were no JSON
            object.
    """

    def __init__(self, faults: list[str], value: dict[str, Any] | None = None) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults
        self.value = value

    def __reduce__(self) -> tuple[type[DecodeError], tuple[list[str], dict[str, Any] | None]]:
        """Rebuild from the faults: the default would call `__init__` with the message."""
        return DecodeError, (self.faults, self.value)


def loads(kind: type[T], body: bytes, *, fully: bool | None = None) -> T:
    """Decode a whole body into a model.

    Args:
        kind: The model.
        body: The body.
        fully: Whether to tell every fault of a body that is refused, and not the first alone; by its size if not given.

    Raises:
        DecodeError: It is no JSON, or not of that shape; nothing is ever coerced.
    """
    fault = None
    try:
        model: T = _decoder(kind).decode(body)  # type: ignore[arg-type]  # mypy takes a class's hash for its instances'
        if _knows_all(model, body):
            return model
        del model  # it is read again
    except _UNREADABLE as error:
        if fully is False or (fully is None and len(body) > _LARGE):
            fault = _first_fault(body, error)
    if fault is None:
        return structure(kind, _object(body))
    raise DecodeError([fault], None if fault.startswith("$: expected JSON") else _outline(body))


def loads_each(kind: type[Page[T]], body: bytes) -> Page[T]:
    """Decode a page as `loads` does, but keep an item that cannot be read in `undecodable` instead of raising.

    Raises:
        DecodeError: The page itself is no JSON, or not of the interface's shape, or its items have more than 10,000 faults.
    """
    try:
        return loads(kind, body)
    except DecodeError as error:
        read = _isolated(kind, body) if len(body) > _LARGE else _each(kind, error.value)
        if read is None:
            raise
    page, found = read
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
        faults = faults_of(error)
        forget_frames(error)  # those of cattrs hold the errors, and the errors hold them
    raise DecodeError(faults, value if isinstance(value, dict) else None)


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
        fault = _no_json(body, error)
    raise DecodeError([fault])


def _object(body: bytes) -> dict[str, Any]:
    value = read_json(body)
    if not isinstance(value, dict):
        raise DecodeError([f"$: expected object, got {'None' if value is None else type(value).__name__}"])
    return value


def _first_fault(body: bytes, error: Exception) -> str:
    """Say what msgspec found wrong first, in the words of the slower reading."""
    if not isinstance(error, msgspec.ValidationError):
        return _no_json(body, error)
    if found := _MISSING.fullmatch(str(error)):
        return f"{found['path'] or '$'}.{found['name']}: missing member {found['name']!r}"
    if found := _WRONG.fullmatch(str(error)):
        expected = found["expected"].replace(" | null", "")
        got = _NAMES.get(found["got"], found["got"])
        return f"{found['path'] or '$'}: expected {_KINDS.get(expected, expected)}, got {got}"
    return _no_json(body, error)


def _outline(body: bytes) -> dict[str, Any] | None:
    """Return the status and id of a JSON object, where they are texts, and build nothing of the rest; `None` if it is none."""
    try:
        outline = _decoder(_Outline).decode(body)
        members = {"status": outline.status, "id": outline.id}
        return {name: msgspec.json.decode(raw) for name, raw in members.items() if bytes(raw).startswith(b'"')}
    except _UNREADABLE:
        return None


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


def _each(kind: type[Page[T]], value: dict[str, Any] | None) -> tuple[Page[T], list[T | Undecodable]] | None:
    """Read the items of a page by themselves; `None` if the page is wrong, or there are too many faults to tell them all."""
    if value is None or not isinstance(items := value.get("data"), list):
        return None
    page = structure(kind, {**value, "data": []})
    found: list[T | Undecodable] = []
    left = _MOST_FAULTS
    for index, item in enumerate(items):
        try:
            found.append(structure(_item_kind(kind), item))
        except DecodeError as error:
            found.append(_undecodable(index, error))
            left -= len(error.faults)
            if left < 0:
                return None
    return page, found


def _isolated(kind: type[Page[T]], body: bytes) -> tuple[Page[T], list[T | Undecodable]] | None:
    """Read the items of a large page by themselves, as `_each` does, in memory that its size bounds.

    Of items with faults all is told and kept until they make up 1 MiB, then the first fault and the id.
    """
    if body.count(b",") * _DENSE > len(body):
        return None
    try:
        page: Any = _decoder(Page[msgspec.Raw]).decode(body)
    except _UNREADABLE:
        return None
    found: list[T | Undecodable] = []
    left, faults, colons = _LARGE, _MOST_FAULTS, _members(Page)
    for index, item in enumerate(map(bytes, page.data)):
        colons += item.count(b":")
        try:
            found.append(loads(_item_kind(kind), item, fully=len(item) <= left))
        except DecodeError as error:
            found.append(_undecodable(index, error))
            left -= len(item)
            faults -= len(error.faults)
            if faults < 0:
                return None
    if body.count(b":") != colons:  # the page may have members that it does not know
        page = structure(kind, {**_object(body), "data": []})
    return page, found


def _item_kind(kind: Any) -> Any:
    return kind.__args__[0]  # a parametrised generic: Page[Mailbox]


def _undecodable(index: int, error: DecodeError) -> Undecodable:
    fields = error.value or {}
    name = fields.get("id")
    faults = "; ".join(fault.replace("$", f"$.data[{index}]", 1) for fault in error.faults)
    return Undecodable(index=index, id=name if isinstance(name, str) else None, error=faults, fields=fields)
