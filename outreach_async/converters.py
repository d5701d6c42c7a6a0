"""Convert between JSON and models.

Hooks and models may be your own. attrs defines the models, cattrs converts
them and finds every fault of a response, and msgspec does the work where
no hook of yours is involved. Pass a converter of your own to a client to
change how it reads and writes values:

```python
import anyio
from decimal import Decimal
from outreach_async import NewContact, OutreachClient
from outreach_async.converters import OutreachConverter

converter = OutreachConverter()
converter.register_structure_hook(int | float, lambda value, _: Decimal(str(value)))
converter.register_unstructure_hook(NewContact, lambda contact: {**contact.to_dict(), "school": "unknown"})


async def main() -> None:
    async with OutreachClient(converter=converter) as client:
        campaigns = await client.campaigns.list()
        print(repr(campaigns.data[0].steps))  # -> Decimal('2')
        print((await client.contacts.create(email="ann@company.example")).status)  # -> added


anyio.run(main)
```

Hooks are those of cattrs; see its documentation for
`register_structure_hook`, `register_unstructure_hook` and their factories.
The client calls a hook wherever a response has its type: in lists, on
pages, and in the answers to `create` and `create_many`. Decoding a page
takes about six times as long if a hook takes part. A run uses the hooks
for contacts that exist when it starts. A hook is given values of responses
and contacts, never keys or requests. If it raises an error, the call
raises an `OutreachError`: for a response, it names the place and the
error, with keys masked; for a contact, only the class of the error. In a
run, the row is rejected.

`structure` reads what the `to_dict()` of a model, a contact or a report
has written. It refuses what a client refuses: it converts no value of a
response to another type, and keeps unknown members in `extra`. Clients and
threads can share a converter.
"""

# ruff: noqa: SLF001 - a converter copies itself, and a reader of items is a part of it

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import chain
from operator import attrgetter
from typing import Any, Final, Self, TypeVar, cast, get_args, get_origin, get_type_hints

import attrs
import msgspec
from cattrs import Converter, IterableValidationError, StructureHandlerNotFoundError, transform_error
from cattrs.errors import IterableValidationNote
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from outreach_async._core.codec import (
    DECODE_ERRORS,
    DecodeError,
    decode_json,
    encode,
    encode_contact,
    first_fault,
    read_status_and_id,
    replace_lone_surrogates,
)
from outreach_async._types import require_types, type_name
from outreach_async._wire_words import CUSTOM_PREFIX, OpenEnum
from outreach_async.errors import InvalidRequest, drop_tracebacks
from outreach_async.models import LOCAL_FIELDS, NewContact, Page, ResponseModel, ResponseWithInfo, Undecodable
from outreach_async.models import T as ITEM

__all__ = ["OutreachConverter"]

T = TypeVar("T")

_STRICT: Final[dict[Any, str]] = {str: "str", bool: "bool", int: "int", int | float: "number", str | int | float: "str or number"}
"""Strict types, with their names in faults. A value of another type is refused, never converted."""
_LARGE: Final = 2**20  # bytes; of a larger body that is refused, only the first fault is reported, because dicts take much memory
_MAX_VALUES: Final = 2**20  # of a large body that is decoded into dicts: 16 MiB of empty lists would block for over a second
_MIN_BYTES_PER_VALUE: Final = 16  # a large page with smaller values is not decoded item by item: each item takes 64 bytes
_MAX_FAULTY_ITEMS: Final = 20  # of a list whose faults are reported: a small body can contain thousands
_MAX_FAULTS: Final = 10_000  # of the items that are kept as undecodable, because finding one takes about 10 us
_MAX_LEARNED: Final = 32  # unknown members of a model that structs have
_LEARNABLE: Final = re.compile(r"\w{1,64}")
_CHUNK: Final = 128  # items that are decoded together
_SMALL_CHUNK: Final = 16  # items of a chunk with an invalid item that are decoded together
_MAX_CHUNK_BYTES: Final = 2**18  # of items that are decoded into dicts together


class _FaultError(ValueError):
    """A value does not have the type that the API documentation states."""


def _own(hook: Any) -> Any:
    """Declare that msgspec does the same as a hook. A hook without this declaration may be a user's."""
    hook.is_own = True
    return hook


def _is_own(hook: Any) -> bool:
    return getattr(hook, "is_own", False)


def _strict(name: str, *exact: type, build: Callable[[Any, Any], Any] = lambda value, _: value) -> Any:
    # Exact types, because `isinstance` accepts a bool as an int. cattrs on its own turns `None` into `"None"`, `"false"` into
    # `True`, 3.9 into 3 and a string into a list of letters.
    def hook(value: Any, kind: Any) -> Any:
        if type(value) not in exact:
            raise _FaultError(f"expected {name}, got {'None' if value is None else type(value).__name__}")
        return build(value, kind)

    return _own(hook)


def _is_a(kind: Any, base: type) -> bool:
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, base)


def _is_list(kind: Any) -> bool:
    return _is_a(kind, list) or _is_a(kind, frozenset)


@cache
def _members(kind: Any) -> dict[str, tuple[Any, attrs.Attribute[Any]]]:
    """Return the fields of a model that are on the wire, each with its type."""
    origin, (item, *_) = get_origin(kind) or kind, get_args(kind) or (Any,)
    hints = {name: list[item] if hint == list[ITEM] else hint for name, hint in get_type_hints(origin).items()}  # type: ignore[valid-type]
    return {each.name: (hints[each.name], each) for each in attrs.fields(origin) if each.name not in LOCAL_FIELDS}


@cache
def _lists_of_models(kind: Any) -> dict[str, Any]:
    """Return the fields of a model that are lists of models, each with the class of its items."""
    hints = {name: hint for name, (hint, _) in _members(kind).items() if get_origin(hint) is list}
    return {name: get_args(hint)[0] for name, hint in hints.items() if _is_a(get_args(hint)[0], ResponseModel)}


class OutreachConverter(Converter):
    """A cattrs converter of models and reports, for a client's `converter=`.

    Example:
        ```python
        converter = OutreachConverter()
        print(converter.unstructure(NewContact("ann@company.example")))  # -> {'email': 'ann@company.example'}
        ```
    """

    def __init__(self) -> None:
        super().__init__(detailed_validation=True, unstruct_collection_overrides={frozenset: sorted})
        # What several threads read is replaced, never changed: a thread that is late repeats some work, and nothing else.
        self._readers: dict[Any, tuple[Any, Callable[[bytes], Any] | None]] = {}
        self._chosen: dict[Any, Any] = {}
        self._learned: dict[Any, tuple[str, ...]] = {}
        for kind, name in _STRICT.items():
            self.register_structure_hook(kind, _strict(name, *(get_args(kind) or (kind,))))
        for kind in (str, bool, int, int | float):
            self.register_structure_hook(kind | None, self._make_optional_hook(kind))
        # By class, because a hook for `str` takes precedence over predicates.
        self.register_structure_hook(OpenEnum, _strict("str", str, build=lambda value, kind: kind(value)))
        self.register_structure_hook_factory(_is_list, self._make_list_hook)
        self.register_structure_hook_factory(_is_report, _make_report_hook)
        self.register_structure_hook_factory(lambda kind: _is_a(kind, ResponseModel), self._make_model_hook)
        self.register_structure_hook_factory(lambda kind: _is_a(kind, NewContact), self._make_contact_hook)
        self.register_unstructure_hook_func(_is_report, lambda report: report.to_dict())
        self.register_unstructure_hook(OpenEnum, str)
        self.register_unstructure_hook_factory(lambda kind: _is_a(kind, ResponseModel), self._make_unstructure_hook)
        self.register_unstructure_hook_func(lambda kind: _is_a(kind, NewContact), _own(partial(self._unstructure_contact)))
        self._struct_copy_skip = self._structure_func.get_num_fns()
        self._unstruct_copy_skip = self._unstructure_func.get_num_fns()
        # `get_structure_hook` asks these caches of cattrs too, in twice the time. Registering a hook empties them.
        self._find_reader = cast("Any", self._structure_func.dispatch)
        self._find_writer = cast("Any", self._unstructure_func.dispatch)
        self._plain_text = self._find_writer(str)

    def copy(self) -> Self:  # type: ignore[override]  # the options of cattrs are fixed
        """Return a copy with the same hooks and subclasses, to add others to.

        Example:
            ```python
            upper = OutreachConverter()
            upper.register_unstructure_hook(str, str.upper)
            print(upper.copy().unstructure(NewContact("ann@company.example")))  # -> {'email': 'ANN@COMPANY.EXAMPLE'}
            ```
        """
        new = type(self)()
        self._structure_func.copy_to(new._structure_func, self._struct_copy_skip)
        self._unstructure_func.copy_to(new._unstructure_func, self._unstruct_copy_skip)
        unions = self._union_struct_registry.items()  # cattrs does not copy them
        new._union_struct_registry.update({kind: hook for kind, hook in unions if not _is_own(hook)})
        new._chosen = self._chosen
        return new

    def use(self, model: type[T]) -> type[T]:
        """Use a subclass with further fields for its model in all responses.

        It is also a decorator. Lists of a subclass of `Campaign` or
        `Mailbox` take no longer to decode than others.

        Raises:
            InvalidRequest: The class is not a subclass of a model, or is
                one of `Page`.

        Example:
            ```python
            import attrs

            converter = OutreachConverter()


            @converter.use
            @attrs.frozen(kw_only=True)
            class TaggedMailbox(Mailbox):
                tags: list[str] = attrs.field(factory=list)


            page = await client.with_options(converter=converter).mailboxes.list()
            print(type(page.data[0]).__name__, page.data[0].tags)  # -> TaggedMailbox []
            ```
        """
        ours = [each for each in getattr(model, "__mro__", ())[1:] if each.__module__ == ResponseModel.__module__]
        base: Any = next((each for each in ours if _is_a(each, ResponseModel)), None)
        if base in {None, ResponseModel, ResponseWithInfo, Page}:
            got = getattr(model, "__name__", type(model).__name__)
            raise InvalidRequest(f"model: expected a subclass of a model, got {got}; derive it, for example from Mailbox")
        _members(cast("Any", model))  # an annotation that cannot be resolved is an error here, and not in the first call
        self._chosen = {**self._chosen, base: model}
        # Of the converter that asks, which may be a copy.
        self.register_structure_hook_factory(
            lambda kind: kind is base, lambda _, converter: _own(lambda value, _: converter.structure(value, model))
        )
        return model

    def loads(self, body: bytes | str, kind: type[T], *, keep: bool = False) -> T:
        """Decode JSON as a client decodes a response.

        Args:
            body: The JSON.
            kind: The model, such as `Mailbox` or `Page[Mailbox]`.
            keep: Put the invalid items of a page into its `undecodable`,
                instead of raising an error.

        Raises:
            InvalidRequest: An argument is of another type.
            ValueError: The body is not JSON, or does not match the model;
                the message names every fault.

        Example:
            ```python
            mailbox = (await client.mailboxes.list()).data[0]
            print(OutreachConverter().loads(mailbox.to_json(), Mailbox) == mailbox)  # -> True
            ```
        """
        require_types(OutreachConverter.loads, {"body": body, "keep": keep})
        model: object = kind
        if not isinstance(model, type) and get_origin(model) is None:
            raise InvalidRequest(f"kind: expected a model, got {type_name(model)}; pass one such as Mailbox")
        body = body.encode() if isinstance(body, str) else body
        read = self._reader(kind)
        if read is not None and not (self._learned and _has_many_values(body)):
            try:
                decoded: T = read(body)
            except DECODE_ERRORS:
                pass
            else:
                return decoded
        body = replace_lone_surrogates(body)
        if (keep or read is not None) and (items := self._item_kind(kind)) and _may_split(body, keep=keep):
            page = self._read_items(body, kind, items, keep=keep)
            if page is not None:
                return cast("T", page)
        return cast("T", self._read_whole(body, kind, is_own=read is not None))

    def encode_contact(self, contact: NewContact) -> bytes:
        """Encode a checked contact, which can set no other part of the body."""
        if self.encodes_plainly(type(contact)):
            return encode_contact(contact)
        try:
            fields, fault = self.unstructure(contact), ""
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - a hook may raise anything, also with a secret in it
            fields, fault = None, f"contact: expected a hook that returns a dict, got {type(error).__name__}; correct the hook"
        if not fault and (type(fields) is not dict or type(fields.get("email")) is not str):
            fault = f"contact: expected a hook that returns a dict with an email, got {type(fields).__name__}; correct the hook"
        if not fault and (reserved := _REQUEST_MEMBERS & fields.keys()):
            fault = f"contact: expected a hook that returns fields of a contact, got {min(reserved)!r}; correct the hook"
        if fault:
            raise InvalidRequest(fault)
        return encode(fields)

    def encodes_plainly(self, kind: type[NewContact] = NewContact) -> bool:
        """Return whether contacts of a class have no hook or further field."""
        return kind is NewContact and self._find_writer(str) is self._plain_text and _is_own(self._find_writer(kind))

    def has_own(self, kind: Any) -> bool:
        """Return whether no hook of the user and no subclass builds a model."""
        return kind not in self._chosen and _is_own(self._find_reader(kind))

    def reads_plainly(self, kind: Any) -> bool:
        """Return whether no hook is involved, so msgspec may decode a model."""
        return kind not in self._chosen and self._reader(kind) is not None

    # - cattrs: structures and unstructures values, and finds every fault

    def _make_list_hook(self, kind: Any) -> Any:
        item, origin = get_args(kind)[0], get_origin(kind)
        read = self.get_structure_hook(item)

        def build(values: list[Any], _: Any) -> Any:
            built: list[Any] = []
            faults: list[Exception] = []
            for index, value in enumerate(values):
                try:
                    built.append(read(value, item))
                except Exception as error:  # noqa: BLE001 - a hook may raise anything
                    error.add_note(IterableValidationNote(f"Structuring {kind} @ index {index}", index, item))
                    faults.append(error)
                    if len(faults) == _MAX_FAULTY_ITEMS:
                        break
            if faults:
                raise IterableValidationError("a list", faults, kind)
            return built if origin is list else frozenset(built)

        return _strict("array", list, build=build)

    def _make_optional_hook(self, kind: Any) -> Any:
        return _own(lambda value, _: None if value is None else self.structure(value, kind))

    def _make_model_hook(self, kind: Any) -> Any:
        known, build = _members(kind).keys(), make_dict_structure_fn(kind, self, **_local(kind))
        return _strict("object", dict, build=lambda value, _: _keep_unknown(build(value, kind), value, known))

    def _make_unstructure_hook(self, kind: Any) -> Any:
        unstructure = make_dict_unstructure_fn(kind, self, **_local(kind))
        return lambda model: {**unstructure(model), **model.extra}

    def _make_contact_hook(self, kind: Any) -> Any:
        names = {each.name for each in attrs.fields(kind)} - {"_custom", "_extra"}

        def build(values: dict[str, Any], _: Any) -> Any:
            known: dict[str, Any] = {"custom": {}, "extra": {}}
            for name, value in values.items():
                home = known if name in names else known["custom" if name.startswith(CUSTOM_PREFIX) else "extra"]
                home[name] = self.structure(value, str | None)  # type: ignore[arg-type]
            return kind(**known)

        return _strict("object", dict, build=build)

    def _unstructure_contact(self, contact: NewContact) -> dict[str, Any]:
        return {name: value if value is None else self.unstructure(value) for name, value in contact.to_dict().items()}

    def _read(self, value: Any, kind: Any) -> Any:
        try:
            return self.structure(value, kind)
        except Exception as error:  # noqa: BLE001 - a hook may raise anything
            faults = _describe_faults(error)
            drop_tracebacks(error)  # cattrs' frames and the errors form reference cycles
        raise DecodeError(faults, value if isinstance(value, dict) else None)

    def read_hooked(self, value: Any, kind: Any) -> Any:
        """Structure a response; hooks must keep its class and value kinds."""
        model, fault = self._read(value, kind), None
        if not isinstance(model, get_origin(kind) or kind):
            fault = f"$: expected a hook that returns {kind.__name__}, got {type(model).__name__}"
        elif not _lists_of_models(kind):
            try:
                checked = msgspec.convert({name: getattr(model, name) for name in _members(kind)}, kind)
                model = attrs.evolve(model, **{name: getattr(checked, name) for name in _members(kind)})
            except DECODE_ERRORS as error:
                fault = str(first_fault(b"", error))
        if fault:
            raise DecodeError([fault], value)
        return model

    # - msgspec: decodes bodies into structs that refuse unknown members, and builds the models from them

    def _reader(self, kind: Any) -> Callable[[bytes], Any] | None:
        """Return what decodes a kind by msgspec, and refuses unknown members; `None` if a hook of the user is involved."""
        hook, reader = self._readers.get(kind, (None, None))
        try:
            if hook is not (current := self._find_reader(kind)):  # registering a hook replaces the others
                reader = self._make_reader(kind) if self._is_own(kind) else None
                self._readers = {**self._readers, kind: (current, reader)}
        except StructureHandlerNotFoundError as error:  # of a field of a subclass
            raise DecodeError([f"$: {error}"]) from None
        return reader

    def _make_reader(self, kind: Any) -> Callable[[bytes], Any]:
        target, learned = self._target(kind), self._learned
        read, direct = msgspec.json.Decoder(_make_struct(target, learned)).decode, msgspec.json.Decoder(target).decode
        is_list = get_origin(kind) is list
        if not (is_list or _lists_of_models(target) or learned.get(target)):
            return lambda body: (read(body), direct(body))[1]  # of a small object, faster than `convert`

        def read_models(body: bytes) -> Any:
            structs = read(body)
            models = msgspec.convert(structs, target, from_attributes=True)
            if learned and is_list:
                _keep_learned(models, structs, get_args(target)[0], learned)
            elif learned:
                _keep_learned([models], [structs], target, learned)
            return models

        return read_models

    def _learn(self, kind: Any, names: Iterable[str]) -> None:
        """Let structs of a model have its unknown members, because other items and other pages have them too."""
        before = self._learned.get(kind, ())
        after = (*dict.fromkeys((*before, *names)),)
        if len(before) < len(after) <= _MAX_LEARNED and all(map(_LEARNABLE.fullmatch, after)):
            self._learned = {**self._learned, kind: after}
            self._readers = {}

    def _convert(self, values: list[Any], kind: Any) -> list[Any]:
        """Build models from dicts by msgspec, and keep their unknown members."""
        if {*map(type, values)} != {dict}:
            raise msgspec.ValidationError
        models: list[Any] = msgspec.convert(values, list[kind])
        self._keep_all_unknown(models, values, kind)
        return models

    def _keep_all_unknown(self, models: list[Any], values: list[Any], kind: Any) -> None:
        known, names = _members(kind).keys(), dict[str, Any]()
        for model, value in zip(models, values, strict=True):
            names.update(_keep_unknown(model, value, known).extra)
        self._learn(kind, names)
        for name, item in _lists_of_models(kind).items():
            inner = [value for each in values for value in each.get(name, ())]
            self._keep_all_unknown([*chain.from_iterable(map(attrgetter(name), models))], inner, item)

    def _is_own(self, kind: Any) -> bool:
        """Return whether msgspec may read a kind: no hook of the user is involved, and no inner subclass that it would miss."""
        if not _is_own(self.get_structure_hook(kind)):
            return False
        if not _is_a(kind, ResponseModel):
            return kind in _STRICT or all(each is type(None) or self._is_own(each) for each in get_args(kind))
        target = self._target(kind)
        lists = _lists_of_models(target)
        if not get_origin(kind) and any(self._target(each) is not each for each in lists.values()):
            return False
        hints = {name: hint for name, (hint, _) in _members(target).items()}
        others = [each for name, hint in hints.items() if name not in lists for each in (hint, *get_args(hint))]
        if any(_is_a(each, ResponseModel) for each in others):
            return False  # their unknown members would be lost
        return all(map(self._is_own, hints.values()))

    def _target(self, kind: Any) -> Any:
        """Return a kind with the subclasses of `use` in the place of models."""
        origin: Any = get_origin(kind)
        if origin is list or _is_a(origin, ResponseModel):
            return origin[tuple(map(self._target, get_args(kind)))]
        return self._chosen.get(kind, kind)

    # - what msgspec refuses: unknown members, faults, and what a hook takes part in

    def _item_kind(self, kind: Any) -> Any:
        """Return the class of the items of a page that can be decoded one by one; `None` without such items."""
        item = _lists_of_models(kind).get("data") if _is_a(kind, ResponseModel) else None
        hooks = [self.get_structure_hook(each) for each in (kind, list.__class_getitem__(item))] if item else []
        return item if all(map(_is_own, hooks)) else None

    def _read_items(self, body: bytes, kind: Any, item_kind: Any, *, keep: bool) -> Any:
        """Decode a page item by item; `None` if its faults are to be found in the whole body."""
        try:
            members, raw = _split_page(body, kind)
            page = self._read({**members, "data": []}, kind)
        except DECODE_ERRORS:
            return None
        except DecodeError:
            if keep:
                raise
            return None
        reader = _ItemReader(self, item_kind)
        self._learn(self._target(kind), page.extra)
        for first in range(0, len(raw), _CHUNK):
            reader.read(first, raw[first : first + _CHUNK])
            if reader.faults > (_MAX_FAULTS if keep else 0):
                return None
        return attrs.evolve(page, data=reader.items, **({"undecodable": reader.undecodable} if reader.undecodable else {}))

    def _read_whole(self, body: bytes, kind: Any, *, is_own: bool) -> Any:
        fault = None
        if is_own and len(body) > _LARGE:
            try:
                msgspec.json.decode(body, type=self._target(kind))
            except DECODE_ERRORS as error:
                fault = first_fault(body, error)
        if fault is None and _has_many_values(body):
            text = f"$: expected at most {_MAX_VALUES:,} values in a body with unknown fields, got more"
            fault = DecodeError([text], read_status_and_id(body))
        if fault is not None:
            raise fault
        value = decode_json(body)
        if type(value) is not dict:
            raise DecodeError([f"$: expected object, got {'None' if value is None else type(value).__name__}"])
        if is_own and not _lists_of_models(kind):
            try:
                return self._convert([value], self._target(kind))[0]
            except DECODE_ERRORS:
                pass
        return self._read(value, kind) if is_own else self.read_hooked(value, kind)


class _ItemReader:
    """Reads the items of a page, chunk by chunk. Finds the faults of an item once for each shape of an item."""

    # The memory is proportional to the size of the page. All faults and members of an invalid item are kept if this item and the
    # invalid items before it are together at most 1 MiB in size. Otherwise, only the first fault, the id and the status are kept.

    def __init__(self, converter: OutreachConverter, kind: Any) -> None:
        self.items: list[Any] = []
        self.undecodable: list[Undecodable] = []
        self.faults = 0
        self._converter, self._kind, self._target = converter, kind, converter._target(kind)
        self._list: Any = list.__class_getitem__(kind)
        self._bytes_left = _LARGE
        # The faults of an item without lists depend only on its names and on the types of its values.
        self._is_flat = not any(get_origin(hint) is list for hint, _ in _members(self._target).values())
        self._faults_by_shape: dict[Any, list[str]] = {}

    def read(self, first: int, raw: list[msgspec.Raw]) -> None:
        content, values = b"[%b]" % b",".join(raw), cast("Any", msgspec.UNSET)
        read = self._converter._reader(self._list)
        try:
            if read is not None:
                self.items += read(content)
                return
        except DECODE_ERRORS:
            pass
        smaller = _SMALL_CHUNK if len(raw) > _SMALL_CHUNK else 1 if len(content) > _MAX_CHUNK_BYTES and len(raw) > 1 else 0
        if smaller:
            for at in range(0, len(raw), smaller):
                self.read(first + at, raw[at : at + smaller])
            return
        try:
            values = msgspec.json.decode(content)
            if read is not None:
                self.items += self._converter._convert(values, self._target)
                return
        except DECODE_ERRORS:
            pass
        for at, each in enumerate(map(bytes, raw)):
            value = values if values is msgspec.UNSET else values[at]
            if error := self._read_item(each, value, is_own=read is not None):
                fields = error.value or {}
                id_ = fields.get("id") if isinstance(fields.get("id"), str) else None
                text = "; ".join(fault.replace("$", f"$.data[{first + at}]", 1) for fault in error.faults)
                self.undecodable.append(Undecodable(index=first + at, id=id_, error=text, fields=fields))
                self.faults += len(error.faults)
                self._bytes_left -= len(each)

    def _read_item(self, raw: bytes, value: Any, *, is_own: bool) -> DecodeError | None:
        """Read one item, or return what is wrong with it."""
        try:
            value = decode_json(raw) if value is msgspec.UNSET else value
            if is_own and len(raw) > self._bytes_left:
                msgspec.json.decode(raw, type=self._target)
        except DecodeError as error:
            return error.with_traceback(None)
        except DECODE_ERRORS as error:
            return first_fault(raw, error)
        shape = (*value, *map(type, value.values())) if is_own and self._is_flat and type(value) is dict else None
        if faults := self._faults_by_shape.get(shape):
            return DecodeError(faults, value)
        try:
            if is_own:
                self.items += self._converter._convert([value], self._target)
                return None
        except DECODE_ERRORS:
            pass
        try:
            self.items.append(self._converter._read(value, self._kind))
        except DecodeError as error:
            if shape:
                self._faults_by_shape[shape] = error.faults
            return error.with_traceback(None)
        return None


_REQUEST_MEMBERS: Final = {"owner_key", "workspace", "upload_options"}


def _is_report(kind: Any) -> bool:
    is_ours = attrs.has(kind) and kind.__module__.startswith("outreach_async.")
    return is_ours and hasattr(kind, "to_dict") and not issubclass(kind, (ResponseModel, NewContact))


def _make_report_hook(kind: Any) -> Any:
    read = getattr(kind, "from_dict", None) or getattr(kind, "_from_dict", None) or partial(msgspec.convert, type=kind)
    return lambda value, _: read(value)


def _local(kind: Any) -> dict[str, Any]:
    return {each.name: override(omit=True) for each in attrs.fields(get_origin(kind) or kind) if each.name in LOCAL_FIELDS}


def _describe_faults(error: BaseException) -> list[str]:
    """Return every fault in cattrs' error, each as `path: expected type, got type` or `path: missing key 'name'`."""
    texts = transform_error(error, format_exception=lambda fault, _: _describe_fault(fault))
    return [f"{path}: {fault}" for fault, _, path in (text.rpartition(" @ ") for text in texts)]


def _describe_fault(fault: BaseException) -> str:
    if isinstance(fault, KeyError) and (fault.__traceback__ is None or fault.__traceback__.tb_next is None):  # not from a hook
        return f"missing key {fault}"
    if isinstance(fault, _FaultError | StructureHandlerNotFoundError):
        return str(fault)
    return f"expected a hook that reads the value, got {type(fault).__name__}: {fault}"


def _make_struct(kind: Any, learned: dict[Any, tuple[str, ...]]) -> Any:
    """Return a struct with the fields of a model, which refuses others."""
    if _is_a(kind, ResponseModel):
        fields: list[Any] = [
            (name, _make_struct(hint, learned), *_default(each)) for name, (hint, each) in _members(kind).items()
        ]
        names = enumerate(learned.get(kind, ()))
        fields += [(f"f{at}", Any, msgspec.field(default=msgspec.UNSET, name=name)) for at, name in names]
        return msgspec.defstruct("Struct", sorted(fields, key=len), forbid_unknown_fields=True, gc=False)
    if get_origin(kind) is list:
        return list[_make_struct(get_args(kind)[0], learned)]  # type: ignore[misc]
    return str if _is_a(kind, OpenEnum) else kind  # `convert` makes enumerations faster from strings


def _default(field: attrs.Attribute[Any]) -> tuple[Any, ...]:
    default: Any = field.default
    if default is attrs.NOTHING:
        return ()
    return (msgspec.field(default_factory=default.factory) if isinstance(default, attrs.Factory) else default,)  # type: ignore[arg-type]


def _keep_learned(models: list[Any], structs: list[Any], kind: Any, learned: dict[Any, tuple[str, ...]]) -> None:
    """Store the unknown members that structs have in the models that were built from them."""
    if models and (names := learned.get(kind)):
        store, unset = _store(kind), msgspec.UNSET
        pick = attrgetter(*(f"f{at}" for at in range(len(names))))
        rows: Iterable[Any] = map(pick, structs) if len(names) > 1 else zip(map(pick, structs))
        for model, row in zip(models, rows, strict=True):
            if unset not in row:
                store(model, dict(zip(names, row)))  # noqa: B905 - a check of the lengths takes time for every item
            elif members := {name: value for name, value in zip(names, row, strict=True) if value is not unset}:
                store(model, members)
    for name, item in _lists_of_models(kind).items():
        inner, within = ([*chain.from_iterable(map(attrgetter(name), each))] for each in (models, structs))
        _keep_learned(inner, within, item, learned)


def _keep_unknown(model: Any, value: dict[str, Any], known: Any) -> Any:
    if not known >= value.keys():
        _store(model.__class__)(model, {name: each for name, each in value.items() if name not in known})
    return model


@cache
def _store(kind: Any) -> Any:
    """Return the setter of the slot for unknown members: models are frozen for callers, but these are new."""
    return cast("Any", get_origin(kind) or kind)._extra.__set__


def _has_many_values(body: bytes) -> bool:
    """Return whether the dicts and lists of a body could take much more memory than the body."""
    return len(body) > _MAX_VALUES and sum(map(body.count, (b",", b"[", b"{"))) > _MAX_VALUES


def _may_split(body: bytes, *, keep: bool) -> bool:
    if not keep or len(body) <= _LARGE:
        return not _has_many_values(body)
    return max(body.count(b","), body.count(b"[") + body.count(b"{")) * _MIN_BYTES_PER_VALUE <= len(body)


@cache
def _outline(kind: Any) -> msgspec.json.Decoder[Any]:
    fields: list[Any] = [(name, list[msgspec.Raw] if name == "data" else msgspec.Raw) for name in _members(kind)]
    return msgspec.json.Decoder(msgspec.defstruct("Outline", fields, forbid_unknown_fields=True))


def _split_page(body: bytes, kind: Any) -> tuple[dict[str, Any], list[msgspec.Raw]]:
    """Return the members of a page without its items, and the items as JSON."""
    try:  # nearly always: the page itself has no unknown members
        parts = msgspec.structs.asdict(_outline(kind).decode(body))
        raw = parts.pop("data")
    except msgspec.ValidationError:
        parts = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        raw = msgspec.json.decode(parts.pop("data", b"null"), type=list[msgspec.Raw])
    return {name: decode_json(bytes(each)) for name, each in parts.items()}, raw
