"""Encoding and decoding models: what is accepted, what is refused, and the messages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.tables import check_rows
from support.wire import (
    KINDS,
    OF_EVERY_KIND,
    TABLES,
    TAKES,
    Wire,
    build_model,
    exactly,
    kind_of,
    names,
    places,
    unhurried,
    values,
    wire,
    with_value,
    without_member,
    write_json,
)

from outreach_async import Outcome
from outreach_async._core.codec import DecodeError, decode_json, decode_model, decode_page, encode, structure
from outreach_async.models import CampaignSteps, CreateContactResponse, Mailbox, Page, Undecodable

ANSWER: Wire = {"status": "added", "id": "contact_1", "details": None}
TEMPLATE: Wire = {field: {"str": "x", "number": 1}.get(kind) for field, kind in TABLES["Template"].items()}
STEP: Wire = {
    **{field: {"str": "x", "number": 1}.get(kind, []) for field, kind in TABLES["Step"].items()},
    "templates": [TEMPLATE, TEMPLATE],
}
MAILBOX: Wire = {field: {"str": "x", "number": 1, "bool": True}.get(kind) for field, kind in TABLES["Mailbox"].items()}
PAGE: Wire = {"status": "ok", "headers": ["email"], "data": [], "total_found": 5, "current_page": 1, "total_pages": 1}
DEEP = b"[" * 100_000 + b"]" * 100_000

UNREADABLE = {
    "an empty body": b"",
    "HTML": b"<!doctype html><html><body>502 Bad Gateway</body></html>",
    "plain text": b"upstream timed out",
    "a truncated object": b'{"status": "added", "id": "contact_1", "det',
    "two values": b'{"status": "added"}{"status": "added"}',
    "single quotes": b"{'status': 'added'}",
    "NaN": b'{"status": NaN, "id": null, "details": null}',
    "Infinity": b'{"status": "added", "id": null, "details": -Infinity}',
    "a number beyond floats": b'{"status": "added", "id": null, "details": null, "new": 1e400}',
    "a number of 5,000 digits": b'{"status": "added", "id": null, "details": null, "new": ' + b"9" * 5000 + b"}",
    "100,000 lone surrogates": b'{"status": "%b", "id": null, "details": null}' % (b"\\ud800" * 100_000),
    "a surrogate in UTF-8": b'{"status": "\xed\xa0\x80", "id": null, "details": null}',
    "a byte that is no UTF-8": b'{"status": "\xff", "id": null, "details": null}',
    "a byte that is no UTF-8 in a name": b'{"\xff": 1, "status": "added", "id": null, "details": null}',
    "a byte that is no UTF-8 in an unknown member": b'{"status": "added", "id": null, "details": null, "new": "\xc3"}',
    "a byte order mark": b"\xef\xbb\xbf" + json.dumps(ANSWER).encode(),
    "UTF-16": json.dumps(ANSWER).encode("utf-16"),
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
    "100,000 open brackets": b"[" * 100_000,
    "100,000 brackets": DEEP,
    "100,000 objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "100,000 brackets in a member": b'{"status": %b, "id": null, "details": null}' % DEEP,
    "100,000 brackets in an unknown member": json.dumps(ANSWER).encode()[:-1] + b', "new": %b}' % DEEP,
}

NO_OBJECT = {"null": "None", "true": "bool", "1": "int", "1.5": "float", '"text"': "str", "[]": "list"}


def drawn(**options: Any) -> st.SearchStrategy[tuple[str, Wire]]:
    return names.flatmap(lambda name: st.tuples(st.just(name), wire(name, **options)))


def fault(name: str, value: Any) -> list[str]:
    """Return the faults of a JSON value, which must be the same for both decoders."""
    with pytest.raises(DecodeError) as read:
        decode_model(KINDS[name], json.dumps(value).encode())
    if isinstance(value, dict):
        with pytest.raises(DecodeError) as structured:
            structure(KINDS[name], value)
        assert (structured.value.faults, structured.value.value) == (read.value.faults, read.value.value)
        assert read.value.value == value
    assert str(read.value) == "; ".join(read.value.faults)
    return read.value.faults


@pytest.mark.thorough
@unhurried
@given(drawn(), st.integers(0))
def test_a_response_is_decoded_to_its_model(answer: tuple[str, Wire], seed: int) -> None:
    name, value = answer
    assert exactly(decode_model(KINDS[name], write_json(value, seed))) == exactly(build_model(name, value))


@pytest.mark.thorough
@unhurried
@given(drawn())
def test_a_model_is_encoded_to_its_json_with_unknown_members(answer: tuple[str, Wire]) -> None:
    name, value = answer
    model = build_model(name, value)
    assert exactly(json.loads(model.to_json())) == exactly(model.to_dict()) == exactly(value)


@unhurried
@given(drawn(), st.integers(0))
def test_both_decoders_agree(answer: tuple[str, Wire], seed: int) -> None:
    name, value = answer
    body = write_json(value, seed)
    assert exactly(decode_model(KINDS[name], body)) == exactly(structure(KINDS[name], decode_json(body)))


@pytest.mark.thorough
@settings(unhurried, max_examples=scaled(80))
@given(drawn(), st.data())
def test_nothing_is_coerced_and_the_fault_says_where_and_what(answer: tuple[str, Wire], data: st.DataObject) -> None:
    name, value = answer
    place = data.draw(st.sampled_from(places(name, value)))
    wrong = data.draw(st.sampled_from([other for other in OF_EVERY_KIND if type(other) not in place.takes]))
    message = f"{place.path}: expected {place.expected}, got {kind_of(wrong)}"
    assert fault(name, with_value(value, place.way, wrong)) == [message]


@unhurried
@given(drawn(), st.data())
def test_a_missing_member_is_named_with_its_path(answer: tuple[str, Wire], data: st.DataObject) -> None:
    name, value = answer
    members = [place for place in places(name, value) if place.way and isinstance(place.way[-1], str)]
    place = data.draw(st.sampled_from(members))
    assert fault(name, without_member(value, place.way)) == [f"{place.path}: missing key {place.way[-1]!r}"]


@unhurried
@given(st.lists(wire("Mailbox", unknown=False), min_size=1, max_size=3), st.data())
def test_every_fault_of_a_response_is_named(items: list[Wire], data: st.DataObject) -> None:
    value: Wire = {**PAGE, "data": items}
    leaves = [place for place in places("Page[Mailbox]", value) if place.takes not in {TAKES["array"][1], TAKES["object"][1]}]
    wrong = data.draw(st.lists(st.sampled_from(leaves), min_size=1, max_size=5, unique_by=lambda place: place.path))
    for place in wrong:
        value = with_value(value, place.way, {"of": "no kind"})
    assert sorted(fault("Page[Mailbox]", value)) == sorted(
        f"{place.path}: expected {place.expected}, got dict" for place in wrong
    )


@pytest.mark.parametrize("name", sorted(TABLES))
def test_json_that_is_not_an_object_is_one_fault(name: str) -> None:
    for text, kind in NO_OBJECT.items():
        with pytest.raises(DecodeError) as caught:
            decode_model(KINDS[name], text.encode())
        assert (caught.value.faults, caught.value.value) == ([f"$: expected object, got {kind}"], None)


def test_a_body_that_is_not_json_is_one_fault_for_every_model() -> None:
    def check(body: bytes) -> None:
        with pytest.raises(DecodeError, match=r"^\$: expected JSON") as read:
            decode_json(body)
        for kind in KINDS.values():
            with pytest.raises(DecodeError) as caught:
                decode_model(kind, body)
            assert (caught.value.faults, caught.value.value) == (read.value.faults, None)

    check_rows(((body,) for body in UNREADABLE.values()), check)


def damaged(body: bytes) -> st.SearchStrategy[bytes]:
    """Draw the body with some bytes replaced, removed or added."""
    spans = st.tuples(st.integers(0, len(body)), st.integers(0, 3), st.binary(max_size=3))
    return spans.map(lambda span: body[: span[0]] + span[2] + body[span[0] + span[1] :])


@pytest.mark.thorough
@settings(unhurried, max_examples=scaled(80))
@given(st.binary() | drawn().flatmap(lambda answer: damaged(write_json(answer[1], 0))), names)
@example(b'{"status":"added","id":null,"details":null,"new" : 1}', "CreateContactResponse")
def test_any_bytes_are_decoded_without_loss_or_are_a_fault(body: bytes, name: str) -> None:
    for load in (decode_model, decode_page) if name.startswith("Page") else (decode_model,):
        try:
            model = load(KINDS[name], body)
        except DecodeError:
            continue
        if not (name.startswith("Page") and model.undecodable):
            assert exactly(model.to_dict()) == exactly(decode_json(body))


@unhurried
@given(values, st.integers(0))
def test_any_json_is_decoded_unchanged(value: Any, seed: int) -> None:
    assert exactly(decode_json(write_json(value, seed))) == exactly(value)
    assert exactly(decode_json(encode({"value": value}))) == exactly({"value": value})


_ESCAPED = st.lists(
    st.sampled_from(
        ["\\ud83d", "\\ude00", "\\uD83D", "\\udCfF", "\\\\", "\\n", '\\"', "\\u0041", "\\u005c", "ud83d", "é", "\U0001f600", ""]
    ),
    max_size=6,
).map("".join)


def _with_whole_characters(value: Any) -> Any:
    if isinstance(value, dict):
        return {_with_whole_characters(name): _with_whole_characters(member) for name, member in value.items()}
    if isinstance(value, list):
        return [*map(_with_whole_characters, value)]
    return re.sub("[\ud800-\udfff]", "\ufffd", value) if isinstance(value, str) else value


@unhurried
@given(st.lists(_ESCAPED, min_size=6, max_size=6))
@example(  # of the six texts, three have no half
    ["\\ud83d", "\\\\ud83d", "\\ud83d\\ude00", "\\\\ud83d\\ude00", "\\ud83d\\ud83d\\ude00\\ude00", "\\ud83d\\\\ude00"]
)
def test_each_half_of_an_emoji_is_read_as_the_replacement_character(texts: list[str]) -> None:
    name, status, id_, details, new, deep = texts
    unknown = f'"x{name}": ["{new}", {{"{deep}": "{deep}"}}]'
    body = f'{{"status": "{status}", "id": "{id_}", "details": "{details}", {unknown}}}'.encode()
    expected = _with_whole_characters(json.loads(body))
    assert decode_json(body) == decode_model(CreateContactResponse, body).to_dict() == expected
    page = b'{"status": "ok", "headers": [], "data": [1, %b], "total_found": 2, "current_page": 1, "total_pages": 1}'
    (kept, other) = decode_page(Page[Mailbox], page % body).undecodable
    assert (kept.id, other.id, other.fields) == (None, expected["id"], expected)


def test_the_last_of_two_members_with_the_same_name_counts() -> None:
    body = b'{"status":"skipped","id":null,"details":null,"status":"added"}'
    assert decode_model(CreateContactResponse, body).status is Outcome.ADDED


NEW_VALUES: Final = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3)
)
NEW_NAMES: Final = st.sampled_from(["new", "newer", "id", "undecodable", "extra", "_extra", 'a"b', "c:d", "\u00e9"])
COLONS: Final = st.sampled_from(["a", "b", ":", '"', '":'])


@unhurried
@given(
    st.dictionaries(NEW_NAMES, NEW_VALUES, max_size=3),
    st.lists(st.tuples(COLONS, st.none() | st.dictionaries(NEW_NAMES, NEW_VALUES | st.just([{}]), max_size=1)), max_size=2),
    st.just({}) | st.dictionaries(NEW_NAMES, NEW_VALUES),
)
@example({"new": 1, "newer": "a:b"}, [], {})
@example({"new": 1, "newer": "ab"}, [], {})
@example({"new": "x"}, [(":", {})], {})
@example({"new": 1}, [('":', {})], {})
@example({"new": 1}, [("a", None)], {})
@example({}, [(":", None)], {})
@example({"new": 1}, [("a", {"newer": [{}]})], {})
@example({'a"b': 1}, [], {})
@example({}, [], {"undecodable": [{"index": 0, "id": None, "error": "e", "fields": {}}]})
def test_new_fields_of_a_whole_page_are_kept_as_those_of_single_items(
    common: Wire, others: list[tuple[str, Wire | None]], of_page: Wire
) -> None:
    # Without a colon in any string, the number of colons alone shows whether there are other keys.
    plain = {name: value.replace(":", "") if isinstance(value, str) else value for name, value in MAILBOX.items()}
    boxes = [{**(MAILBOX if others else plain), **common} for _ in range(16)]
    boxes += [{**MAILBOX, "sender_name": name, **({} if new is None else new | common)} for name, new in others]
    value = {**of_page, **PAGE, "data": [{**box, "id": MAILBOX["id"]} for box in boxes]}
    page = decode_model(Page[Mailbox], json.dumps(value).encode())
    assert exactly([box.to_dict() for box in page.data]) == exactly(value["data"])
    assert exactly(page) == exactly(structure(Page[Mailbox], value))
    assert page.undecodable == []


def test_an_unknown_member_that_is_not_text_is_a_fault() -> None:
    body = json.dumps({**PAGE, "data": [{**MAILBOX, "new": "?"}]}).encode()
    with pytest.raises(DecodeError, match=r"\$: expected JSON: 'utf-8' codec"):
        decode_model(Page[Mailbox], body.replace(b"?", b"\xff"))


def test_unknown_members_are_kept_at_every_depth() -> None:
    step = {**STEP, "new": 1, "templates": [{**TEMPLATE, "newer": [2]}]}
    value = {"status": "ok", "days_left": 1, "days_left_date": "", "days_left_display": "", "data": [step], "newest": {"a": None}}
    value |= dict.fromkeys("zyxwvu")
    steps = decode_model(CampaignSteps, json.dumps(value).encode())
    assert [*steps.extra.items()] == [("newest", {"a": None}), *dict.fromkeys("zyxwvu").items()]  # in the order of the body
    assert steps.data[0].extra == {"new": 1}
    assert steps.data[0].templates[0].extra == {"newer": [2]}
    assert json.loads(encode(steps.to_dict())) == value


@pytest.mark.thorough
@unhurried
@given(st.lists(st.tuples(wire("Mailbox"), st.booleans()), max_size=5), st.data())
def test_lenient_decoding_keeps_good_items_and_reports_bad_ones(items: list[tuple[Wire, bool]], data: st.DataObject) -> None:
    sent: list[Any] = []
    bad: list[tuple[int, str | None, str]] = []
    for index, (item, good) in enumerate(items):
        place = data.draw(st.sampled_from(places("Mailbox", item)[1:]))
        wrong = data.draw(st.sampled_from([other for other in OF_EVERY_KIND if type(other) not in place.takes]))
        sent.append(item if good else with_value(item, place.way, wrong))
        if not good:
            name = None if place.path == "$.id" else item["id"]
            bad.append((index, name, f"$.data[{index}]{place.path[1:]}: expected {place.expected}, got {kind_of(wrong)}"))
    page = decode_page(Page[Mailbox], json.dumps({**PAGE, "data": sent, "new": 1}).encode())
    assert exactly(page.data) == exactly([build_model("Mailbox", item) for item, good in items if good])
    assert [(each.index, each.id, each.error) for each in page.undecodable] == bad
    assert [each.fields for each in page.undecodable] == [sent[index] for index, _, _ in bad]
    assert (page.total_found, page.extra) == (5, {"new": 1})


def test_an_item_that_is_not_an_object_is_reported_without_fields() -> None:
    page = decode_page(Page[Mailbox], json.dumps({**PAGE, "data": [None, MAILBOX, 7]}).encode())
    assert page.undecodable == [
        Undecodable(index=0, id=None, error="$.data[0]: expected object, got None"),
        Undecodable(index=2, id=None, error="$.data[2]: expected object, got int"),
    ]
    assert page.data == [build_model("Mailbox", MAILBOX)]


def test_every_fault_of_an_item_is_reported_with_its_path() -> None:
    item = {**MAILBOX, "id": 5, "spf": 1}
    page = decode_page(Page[Mailbox], json.dumps({**PAGE, "data": [without_member(item, ("email",))]}).encode())
    assert page.undecodable[0].id is None
    assert page.undecodable[0].error == (
        "$.data[0].id: expected str, got int; $.data[0].email: missing key 'email'; $.data[0].spf: expected bool, got int"
    )


@pytest.mark.parametrize(
    ("value", "faults"),
    [
        ({**PAGE, "data": {}}, ["$.data: expected array, got dict"]),
        (without_member(PAGE, ("data",)), ["$.data: missing key 'data'"]),
        ({**PAGE, "data": [1], "total_found": "5"}, ["$.total_found: expected number, got str"]),
        ({**PAGE, "data": [1], "headers": None}, ["$.headers: expected array, got None"]),
    ],
)
def test_an_invalid_page_is_a_fault_even_in_lenient_decoding(value: Wire, faults: list[str]) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_page(Page[Mailbox], json.dumps(value).encode())
    assert caught.value.faults == faults
    assert caught.value.value is not None


class Masked(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__


def test_a_string_subclass_is_encoded_as_its_characters() -> None:
    assert encode({"a": Masked("x"), "b": [Masked("é")], Masked("c"): Outcome.OVERWRITTEN}) == (
        '{"a":"x","b":["é"],"c":"overwriten"}'.encode()
    )


def test_what_is_not_a_json_value_cannot_be_encoded() -> None:
    with pytest.raises(TypeError):
        encode({"a": object()})


@pytest.mark.parametrize(
    ("kind", "value", "loaded"),
    [
        ("CreateContactResponse", ANSWER, False),
        ("Page[Mailbox]", {**PAGE, "data": [MAILBOX]}, False),
        ("Template", {**TEMPLATE, "new": 1}, False),
        ("Template", {}, True),
    ],
    ids=["creation", "page", "unknown member", "invalid"],
)
def test_cattrs_is_imported_only_for_invalid_responses(kind: str, value: Wire, loaded: bool) -> None:
    code = (
        "import sys\n"
        "from contextlib import suppress\n"
        "from outreach_async.models import *\n"
        "from outreach_async._core.codec import decode_model\n"
        "from outreach_async.models import *\n"
        "with suppress(ValueError):\n"
        f"    decode_model({kind}, {json.dumps(value, separators=(',', ':')).encode()!r})\n"
        "print('cattrs' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    assert done.stdout.strip() == str(loaded)
