"""Rows with values of any class: whatever their code raises, it is the outcome of its row, and no other row is affected."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from weakref import proxy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.runs import outcomes_of
from support.time import virtual_time
from support.wire import unhurried

from outreach_async import UNSET, ContactOutcome, ContactRejected, Excluded, InvalidRequest, NewContact, OutreachClient, Target
from outreach_async.bulk._frames import UnsendableRow
from outreach_async.bulk._source import approximate_size
from outreach_async.fake import FakeService, FakeTransport

ERRORS = [RuntimeError, ValueError, KeyError, OverflowError, RecursionError, StopIteration, StopAsyncIteration]
METHODS = ["__bool__", "__eq__", "__hash__", "__repr__", "__str__", "__len__", "__iter__", "__getitem__", "__contains__"]
TEXT_METHODS = ["strip", "isascii", "encode", "lower", "casefold", "translate", "startswith"]
MAPPING_METHODS = ["keys", "items", "values", "get"]


class Dict(Mapping[str, Any]):
    """A mapping that is not a dict."""

    def __init__(self, values: Any = ()) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Frozen(Dict):
    """The same, with a hash, so that it counts as unchangeable."""

    def __hash__(self) -> int:
        return 1


class Keyed:
    """A key with the hash of another one."""

    def __init__(self, name: str) -> None:
        self._hash = hash(name)

    def __hash__(self) -> int:
        return self._hash

    __eq__: Any


def fails(error: type[Exception]) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise error("secret text")

    return fail


def odd_class(random: Random, base: type, methods: list[str]) -> Any:
    """Return a class of which some methods raise."""
    chosen = random.sample(methods, random.randint(1, len(methods)))
    return type("Odd", (base,), {"__hash__": base.__hash__} | {name: fails(random.choice(ERRORS)) for name in chosen})


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
SEEDS = st.integers(0, 2**32).map(Random)
VALUES = [10**5000, Decimal("sNaN"), ENDLESS, b"x", 1.5, float("nan"), object(), ("a",), {"a": ENDLESS}, "", "\ud83d", None]


def cell(random: Random) -> Any:
    match random.randrange(4):
        case 0:
            return random.choice(VALUES)
        case 1:
            return odd_class(random, object, METHODS)()
        case 2:
            return odd_class(random, str, METHODS + TEXT_METHODS)("ann@company.example")
        case _:
            return type("Odd", (), {"__class__": property(fails(random.choice(ERRORS)))})()


def mapping(random: Random, values: Any) -> Any:
    return odd_class(random, random.choice([Dict, Frozen, dict]), METHODS + MAPPING_METHODS)(values)


FIELDS = ["email", "first_name", "custom_1", "custom", "extra", "campaign", "workspace"]
SHAPES: list[Callable[[Random, dict[Any, Any]], Any]] = [
    lambda _, row: row,
    mapping,
    lambda random, row: {**row, "custom": mapping(random, {"custom_1": "x"})},
    lambda random, row: (row, Target(cell(random), cell(random))),
    lambda random, _: (cell(random), cell(random)),
    lambda random, _: cell(random),
    lambda random, row: NewContact(row["email"], first_name=row.get("first_name"), custom=cell(random)),
    lambda random, row: {cell(random): "x", **row},
    lambda random, row: {**row, odd_class(random, Keyed, ["__eq__"])("campaign"): "x"},
]


def odd_row(random: Random, number: int) -> Any:
    row = {"email": f"odd{number}@a.example", random.choice(FIELDS): cell(random)}
    try:
        return random.choice(SHAPES)(random, row)
    except Exception:  # noqa: BLE001 - the value cannot be put into a row
        return row


MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "no repeats": {"repeats": "error"},
    "journal": {"journal": "run.db"},
    "spool": {"journal": "run.db", "repeats": "first"},
    "ledger": {"ledger": "contacts.ledger", "duplicates": "overwrite"},
    "cells": {"normalise": True, "blank": "clear", "duplicates": "overwrite"},
}


async def streamed(rows: Any) -> AsyncIterator[Any]:
    for row in rows:
        yield row


async def check_run(
    mode: str, rows: list[Any], good: Sequence[int], *, streams: bool = False, refused: str = "rejected"
) -> list[ContactOutcome]:
    """Check that each good row is added, and that any other is added or refused; return the outcomes."""
    fake = FakeService(seed=1)
    key = fake.add_owner_key(fake.add_workspace(id="space_1"))
    with TemporaryDirectory() as folder:
        options: dict[str, Any] = dict(MODES[mode])
        options |= {name: str(Path(folder, name)) for name in ("journal", "ledger") if name in options}
        async with OutreachClient(transport=FakeTransport(fake), owner_key=key, workspace="space_1") as client:
            run = client.contacts.create_many(streamed(rows) if streams else rows, concurrency=1, order="input", **options)
            outcomes = await outcomes_of(run)
            assert [outcome.index for outcome in outcomes] == [*range(len(rows))]
            for outcome in outcomes:
                assert outcome.status == "added" or (outcome.status == refused and outcome.index not in good)
                assert isinstance(outcome.error, InvalidRequest | ContactRejected | Excluded | None)
                assert "secret text" not in f"{outcome.error} {outcome!r}"
            if "journal" in options:
                assert (await client.contacts.create_many(rows, resume=True, **options)).rows == len(rows)
            created = [each for each in fake.requests if each.operation == "create_contact"]
            assert len(created) == sum(outcome.attempts for outcome in outcomes)
    return outcomes


@virtual_time
@pytest.mark.parametrize(
    "mode", ["plain", *(pytest.param(mode, marks=pytest.mark.thorough) for mode in MODES if mode != "plain")]
)
@settings(unhurried, max_examples=scaled(60))
@given(SEEDS, st.booleans())
async def test_any_exception_of_a_row_is_the_rejection_of_that_row(mode: str, random: Random, streams: bool) -> None:
    good = [number for number in range(4) if random.random() < 0.5]
    rows = [{"email": f"good{number}@a.example"} if number in good else odd_row(random, number) for number in range(4)]
    await check_run(mode, rows, good, streams=streams)


def odd(base: type, *methods: str) -> Any:
    return type("Odd", (base,), dict.fromkeys(methods, fails(StopIteration)) | {"__hash__": fails(StopIteration)})


EMAIL = {"email": "a@b.example"}
GOOD = [{"email": "good@a.example"}, {"email": "better@a.example"}]
UNREAD = "contact: expected fields that can be read, got {} when they were read; pass a dict of strings"
REJECTED: list[tuple[Any, str]] = [
    ({**EMAIL, "city": 10**5000}, "city: expected a string or None, got int; convert it with str()"),
    (
        {**EMAIL, "city": None, "title": odd(object, "__eq__")()},
        "title: expected a string or None, got Odd; convert it with str()",
    ),
    (
        NewContact("a@b.example", custom=odd(object, "__eq__")()),
        "custom: expected a mapping of codes to strings, got Odd; pass a dict",
    ),
    ((EMAIL, Target(None, odd(object, "__eq__")())), "campaign: expected an id or a name, got Odd; pass a string"),
    (odd(dict, "items")(EMAIL), UNREAD.format("StopIteration")),
    (odd(Frozen, "items")(EMAIL), UNREAD.format("StopIteration")),
    ((odd(dict, "items")(EMAIL), Target()), UNREAD.format("StopIteration")),
    (NewContact(odd(str, "strip")("a@b.example")), UNREAD.format("StopIteration")),
    (proxy(Dict(EMAIL)), UNREAD.format("ReferenceError")),
    ((proxy(Dict(EMAIL)), Target()), UNREAD.format("ReferenceError")),
]


@virtual_time
@pytest.mark.parametrize("mode", sorted(MODES.keys() - {"cells"}))
async def test_a_rejected_row_names_the_field_whose_value_cannot_be_used(mode: str) -> None:
    good = [odd(Frozen, "get")(GOOD[0]), {"email": odd(str, "__eq__")(GOOD[1]["email"]), "first_name": odd(str)("Ann")}]
    found = await check_run(mode, [*(row for row, _ in REJECTED), *good], [len(REJECTED), len(REJECTED) + 1])
    assert [str(outcome.error) for outcome in found[:-2]] == [message for _, message in REJECTED]
    assert [outcome.status for outcome in found[-2:]] == ["added", "added"]


def unsubscribed(base: type, email: str) -> Any:
    def items(_: object) -> Any:
        raise Excluded("unsubscribed")

    return type("Person", (base,), {"items": items, "__hash__": base.__hash__})({"email": email})


@virtual_time
@pytest.mark.parametrize("mode", MODES)
async def test_a_row_that_raises_excluded_is_not_sent_and_no_failure(mode: str) -> None:
    people = [unsubscribed(base, f"{base.__name__}@a.example") for base in (dict, Dict, Frozen)]
    rows = [*people, *((person, Target()) for person in people), EMAIL]
    found = await check_run(mode, rows, [len(rows) - 1], refused="excluded")
    assert {(str(outcome.error), type(outcome.error), outcome.certain) for outcome in found[:-1]} == {
        ("unsubscribed", Excluded, True)
    }


async def test_a_lack_of_memory_is_no_fault_of_its_row() -> None:
    unread = type("Odd", (dict,), {"items": fails(MemoryError)})
    with pytest.raises(MemoryError):
        await check_run("plain", [EMAIL, unread(EMAIL)], [0])


@virtual_time
@settings(unhurried, max_examples=scaled(60))
@given(SEEDS)
async def test_a_single_contact_with_an_odd_value_is_refused_as_an_invalid_request(random: Random) -> None:
    members: Any = {"email": "ann@a.example", random.choice(FIELDS): cell(random)}
    fake = FakeService(seed=1)
    key = fake.add_owner_key(fake.add_workspace(id="space_1"))
    async with OutreachClient(transport=FakeTransport(fake), owner_key=key, workspace="space_1") as client:
        for contact, fields in ((members, {}), (UNSET, members), (cell(random), {})):
            with suppress(InvalidRequest, ContactRejected):
                await client.contacts.create(*([] if contact is UNSET else [contact]), **fields)


@given(SEEDS)
def test_the_size_of_any_value_is_estimated_without_its_code(random: Random) -> None:
    for value in cell(random), mapping(random, {"email": "ann@a.example"}), UnsendableRow({"email": "x" * 100}, ""):
        sizes = [approximate_size(row) for row in (value, {"email": "x" * 100, "city": value}, ({"email": "x" * 100}, value))]
        assert min(sizes) >= 0
        assert min(sizes[1:]) >= 100
