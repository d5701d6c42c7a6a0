"""The codec that converts between JSON bytes and models.

msgspec decodes each body first, because it is strict and supports attrs classes natively. msgspec drops unknown fields, so
objects that contain unknown fields are decoded again. Bodies that msgspec rejects are decoded again by the cattrs
converter in `structuring`, which reports every fault with its path. `structuring` and cattrs are imported on first use.

A lone surrogate escape, such as half of an emoji in a name that the service cut, is decoded as U+FFFD. RFC 8259 allows it, but
msgspec rejects it, so a rejected body is searched for them, and decoded again if it has any.

If msgspec rejects any other body above 1 MiB, the body is not decoded again, because the decoded dicts and lists can take 24
times as much memory as the body. Only the first fault of such a body is reported.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

import attrs
import msgspec

from outreach_async._wire_words import STANDARD_FIELDS, OpenEnum
from outreach_async.errors import drop_tracebacks
from outreach_async.models import LOCAL_FIELDS, NewContact, Page, Step, Template, Undecodable

T = TypeVar("T")

_DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors that msgspec raises for invalid input; `UnicodeDecodeError` is for invalid UTF-8 inside a string."""

_LARGE_BODY: Final = 2**20  # body size in bytes above which only the first fault is reported

# A large page is decoded item by item only if it has at least this many bytes per comma, and per bracket: commas separate
# the items, and each item takes 64 bytes of memory.
_MIN_BYTES_PER_VALUE: Final = 16
# Maximum number of commas, brackets and braces in a body that is decoded again for its unknown fields: 16 MiB of empty lists
# would block the event loop for more than a second. 16 MiB of mailboxes have 700,000.
_MAX_VALUES: Final = 2**20
_MAX_FAULTS: Final = 10_000  # maximum number of faults in the items of a page, because finding one takes about 10 us

encode: Final = msgspec.json.Encoder(enc_hook=str.__str__).encode
"""Encode JSON values as UTF-8 JSON. Instances of subclasses of `str` are encoded as strings; some data frames contain them."""

_TYPE_MISMATCH: Final = re.compile(r"Expected `(?P<expected>[^`]*)`, got `(?P<got>[^`]*)`(?: - at `(?P<path>.*)`)?", re.DOTALL)
_MISSING_MEMBER: Final = re.compile(r"Object missing required field `(?P<name>[^`]*)`(?: - at `(?P<path>.*)`)?", re.DOTALL)
# The names of types in fault messages, if they differ from those of msgspec
_FOUND_TYPE_NAMES: Final = {"null": "None", "object": "dict", "array": "list"}
_EXPECTED_TYPE_NAMES: Final = {"int | float": "number", "int | float | str": "str or number"}


class _PartialObject(msgspec.Struct):
    """The status and id of an object that is too large, or has too many faults, to be decoded in full."""

    status: msgspec.Raw = msgspec.Raw(b"null")
    id: msgspec.Raw = msgspec.Raw(b"null")


class DecodeError(ValueError):
    """A body is not JSON, or a JSON value does not match its model."""

    def __init__(self, faults: list[str], value: dict[str, Any] | None = None) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults
        self.value = value


def decode_model(kind: type[T], body: bytes, *, fully: bool | None = None) -> T:
    fault, whole = None, body
    try:
        model: T = _decoder(kind).decode(body)  # type: ignore[arg-type]  # mypy confuses a class's hash with its instances'
        items = getattr(model, "data", None)
        own_keys = len(_known_names(model.__class__))  # type: ignore[arg-type]
        keys = own_keys + (_count_item_members(items) if items else 0)
        if body.count(b":") != keys:
            _keep_unknown_members(model, items, body, keys)
        return model  # noqa: TRY300 - an `else` would obscure which errors are caught
    except _DECODE_ERRORS as error:
        whole = replace_lone_surrogates(body)
        is_partial = fully is False or (fully is None and len(body) > _LARGE_BODY)
        if whole == body and (is_partial or not _can_structure()):
            fault = _first_fault(body, error)
    if whole != body:
        return decode_model(kind, whole, fully=fully)
    if fault is None:
        value = decode_json(body)
        if not isinstance(value, dict):
            raise DecodeError([f"$: expected object, got {'None' if value is None else type(value).__name__}"])
        return structure(kind, value)
    raise DecodeError([fault], None if fault.startswith("$: expected JSON") else _decode_partially(body))


def decode_page(kind: type[Page[T]], body: bytes) -> Page[T]:
    """Decode a page as `decode_model` does, but keep an invalid item in `undecodable` instead of raising."""
    try:
        return decode_model(kind, body)
    except DecodeError:
        body = replace_lone_surrogates(body)
        if (decoded := _decode_items(kind, body)) is None:
            raise
    page, items = decoded
    undecodable = [item for item in items if isinstance(item, Undecodable)]
    return attrs.evolve(page, data=[item for item in items if not isinstance(item, Undecodable)], undecodable=undecodable)


def _can_structure() -> bool:
    """Import what `structure` needs; `False` if this process has no descriptor left for it."""
    try:
        import outreach_async._core.structuring  # noqa: F401 - a slow import
    except (OSError, ImportError):
        return False
    return True


def structure(kind: type[T], value: object) -> T:
    """Build a model from JSON values. Values are never coerced, and unknown fields are kept."""
    from outreach_async._core.structuring import STRUCTURE_ERRORS, default_converter, list_faults

    try:
        return default_converter().structure(value, kind)
    except STRUCTURE_ERRORS as error:
        faults = list_faults(error)
        drop_tracebacks(error)  # cattrs' frames and the errors form reference cycles
    raise DecodeError(faults, value if isinstance(value, dict) else None)


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
    except _DECODE_ERRORS as error:
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


def _first_fault(body: bytes, error: Exception) -> str:
    """Return the first fault that msgspec found, in the same wording as the cattrs converter."""
    if not isinstance(error, msgspec.ValidationError):
        return _invalid_json_fault(body, error)
    if match := _MISSING_MEMBER.fullmatch(str(error)):
        return f"{match['path'] or '$'}.{match['name']}: missing key {match['name']!r}"
    if match := _TYPE_MISMATCH.fullmatch(str(error)):
        expected = match["expected"].replace(" | null", "")
        got = _FOUND_TYPE_NAMES.get(match["got"], match["got"])
        return f"{match['path'] or '$'}: expected {_EXPECTED_TYPE_NAMES.get(expected, expected)}, got {got}"
    return _invalid_json_fault(body, error)


def _decode_partially(body: bytes) -> dict[str, Any] | None:
    """Return the status and the id of a JSON object, each only if it is a string; `None` if the body is not an object."""
    try:
        outline = _decoder(_PartialObject).decode(body)
        members = {"status": outline.status, "id": outline.id}
        return {name: msgspec.json.decode(raw) for name, raw in members.items() if bytes(raw).startswith(b'"')}
    except _DECODE_ERRORS:
        return None


def _invalid_json_fault(body: bytes, error: Exception) -> str:
    if not body.strip():
        return "$: expected JSON, got an empty body"
    if body.lstrip()[:1] == b"<":
        return "$: expected JSON, got a page of HTML or XML"
    return f"$: expected JSON: {error}"


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _count_item_members(items: Sequence[Any]) -> int:
    templates = sum(len(item.templates) for item in items) if isinstance(items[0], Step) else 0
    return len(items) * len(_known_names(items[0].__class__)) + templates * len(_known_names(Template))


@cache
def _known_names(kind: Any) -> frozenset[str]:
    return frozenset(field.name for field in attrs.fields(kind)) - LOCAL_FIELDS


def _count_strings(models: list[Any]) -> int:
    """Return the number of string values in models of the same class. Keys and unknown fields are not counted."""
    fixed, variable, lists = _string_fields(models[0].__class__)
    count = fixed * len(models)
    for name in variable:
        count += list(map(type, map(attrgetter(name), models))).count(str)
    for name in lists:
        if values := list(chain.from_iterable(map(attrgetter(name), models))):
            count += len(values) if isinstance(values[0], str) else _count_strings(values)
    return count


@cache
def _string_fields(kind: Any) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """Return, for a model class, how many fields are always strings, which fields may be strings, and which fields are lists."""
    kinds = {name: value for name, value in get_type_hints(kind).items() if name in _known_names(kind)}
    fixed = sum(isinstance(value, type) and issubclass(value, str | OpenEnum) for value in kinds.values())
    variable = tuple(name for name, value in kinds.items() if str in get_args(value) and get_origin(value) is not list)
    return fixed, variable, tuple(name for name, value in kinds.items() if get_origin(value) is list)


# msgspec silently drops unknown keys. To find them, the body is not decoded again. Instead, its colons and quotes are counted: a
# key has one colon and two quotes, and a string value has two quotes. If one of the two counts is as expected for the known keys
# and the string values, the body has no other keys. If strings contain both, the body is decoded again without need.


def _keep_unknown_members(model: Any, items: Sequence[Any] | None, body: bytes, keys: int) -> None:
    """Store the unknown fields of a body, if it has any, in its newly decoded model. `keys` is the number of known keys."""
    # If the model has a list `data`, only the items that may have unknown fields are decoded again.
    if items and len(items) >= _MIN_COMMON and not isinstance(items[0], Step) and _keep_common_members(model, items, body, keys):
        return
    if body.count(b'"') == 2 * (keys + _count_strings([model])):
        return
    if len(body) > _MAX_VALUES and sum(map(body.count, (b",", b"[", b"{"))) > _MAX_VALUES:
        fault = f"$: expected at most {_MAX_VALUES:,} values in a body with unknown fields, got more"
        raise DecodeError([fault], _decode_partially(body))
    if not items:
        _store_unknown(model, msgspec.json.decode(body))
        return
    members = _decoder(dict[str, msgspec.Raw]).decode(body)
    raw_items = _decoder(list[msgspec.Raw]).decode(members["data"])
    known = _known_names(model.__class__)
    _store_unknown(model, {name: msgspec.json.decode(raw) for name, raw in members.items() if name not in known})
    counts = map(_count_item_members, zip(items)) if isinstance(items[0], Step) else repeat(_count_item_members(items[:1]))
    decode = _decoder(dict[str, Any]).decode
    for item, raw, count in zip(items, map(bytes, raw_items), counts, strict=False):
        if raw.count(b":") != count:
            _store_unknown(item, decode(raw))


_MIN_COMMON: Final = 16  # from this many items, a struct for their unknown fields is faster than a dict for each item
_MAX_COMMON: Final = 32  # maximum number of unknown fields that are decoded into a struct
_FIRST_ITEM: Final = re.compile(rb'"data"\s*:\s*\[\s*(\{[^{}]{0,16384}\})')


def _keep_common_members(model: Any, items: Sequence[Any], body: bytes, keys: int) -> bool:
    """Store the unknown fields that all items have, and return `True`; `False` if there may be others, or other values."""
    # A service that adds a field to a resource adds it to every item. Decoding only the new fields into structs takes a third of
    # the time of decoding each item into a dict. The first item only suggests the names: if an item lacks one, or if there are
    # any other keys, the counts differ.
    known, match = _known_names(items[0].__class__), _FIRST_ITEM.search(body)
    try:
        names = () if match is None else tuple(name for name in _decoder(dict[str, Any]).decode(match[1]) if name not in known)
        rows = _column_decoder(names).decode(body).data if 0 < len(names) <= _MAX_COMMON else []
    except (*_DECODE_ERRORS, ValueError):  # a struct cannot have a field with a quote in its name
        return False
    columns = [list(map(attrgetter(f"f{number}"), rows)) for number in range(len(names))] if rows else []
    keys += len(items) * len(names)
    if not columns or any(msgspec.UNSET in column for column in columns):
        return False
    if body.count(b":") != keys:
        strings = _count_strings([model]) + sum(list(map(type, column)).count(str) for column in columns)
        if body.count(b'"') != 2 * (keys + strings):
            return False
    set_extra = items[0].__class__._extra.__set__  # noqa: SLF001 - the setter of the slot, because models are frozen for callers
    for item, row in zip(items, zip(*columns, strict=True), strict=True):
        set_extra(item, dict(zip(names, row)))  # noqa: B905 - a check of the lengths takes time for every item
    return True


@lru_cache(maxsize=64)
def _column_decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    """Return a decoder for these fields of all items of a page; a field that an item does not have is `UNSET`."""
    kind: Any = str | int | float | bool | msgspec.UnsetType | None
    fields = [(f"f{at}", kind, msgspec.field(default=msgspec.UNSET, name=name)) for at, name in enumerate(names)]
    item: Any = msgspec.defstruct("Item", fields, gc=False)
    return msgspec.json.Decoder(msgspec.defstruct("Columns", [("data", list[item])], gc=False))


def _store_unknown(model: Any, members: dict[str, Any]) -> None:
    if unknown := set(members).difference(_known_names(model.__class__)):
        names = unknown if len(unknown) == 1 else filter(unknown.__contains__, members)  # in the order of the body
        # Models are frozen for callers, but this one is new. Reset `undecodable`, which a field of that name may have set.
        object.__setattr__(model, "_extra", {name: members[name] for name in names})
        if isinstance(model, Page):
            object.__setattr__(model, "undecodable", [])
    if isinstance(model, Step):
        for template, value in zip(model.templates, members["templates"], strict=True):
            _store_unknown(template, value)


def _decode_items(kind: type[Page[T]], body: bytes) -> tuple[Page[T], list[T | Undecodable]] | None:
    """Decode the items of a page one by one; `None` if the page has no list of items, or too many items or faults."""
    # The memory is proportional to the size of the page. All faults and keys of an invalid item are kept if this item and the
    # invalid items before it are together at most 1 MiB in size. Otherwise, only the first fault, the id and the status are kept.
    values = max(body.count(b","), body.count(b"[") + body.count(b"{"))
    if len(body) > _LARGE_BODY and values * _MIN_BYTES_PER_VALUE > len(body):
        return None
    try:
        members = _decoder(dict[str, msgspec.Raw]).decode(body)
        raw_items = _decoder(list[msgspec.Raw]).decode(members.get("data", b""))
    except _DECODE_ERRORS:
        return None
    members["data"] = msgspec.Raw(b"[]")
    page = structure(kind, {name: decode_json(bytes(raw)) for name, raw in members.items()})
    items: list[T | Undecodable] = []
    item_kind: Any = get_args(kind)[0]  # `kind` is a parametrised generic such as Page[Mailbox]
    bytes_left, faults_left = _LARGE_BODY, _MAX_FAULTS
    for index, item in enumerate(map(bytes, raw_items)):
        try:
            items.append(decode_model(item_kind, item, fully=len(item) <= bytes_left))
        except DecodeError as error:
            fields = error.value or {}
            name = fields.get("id") if isinstance(fields.get("id"), str) else None
            faults = "; ".join(fault.replace("$", f"$.data[{index}]", 1) for fault in error.faults)
            items.append(Undecodable(index=index, id=name, error=faults, fields=fields))
            bytes_left -= len(item)
            faults_left -= len(error.faults)
            if faults_left < 0:
                return None
    return page, items
