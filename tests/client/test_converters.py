"""Converters: what is accepted, what is refused and in which words, and the hooks and models of users."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any, Final, get_origin

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.fuzz import KEY, client_of
from support.tables import check_rows
from support.transport import Script
from support.wire import (
    CONVERTER,
    KINDS,
    OF_EVERY_KIND,
    TABLES,
    TAKES,
    Wire,
    build_model,
    exactly,
    faults_of,
    kind_of,
    load,
    names,
    places,
    unhurried,
    wire,
    with_value,
    without_member,
    write_json,
)

from outreach_async import (
    CampaignSteps,
    CreatedContact,
    InvalidRequest,
    Mailbox,
    NewContact,
    Outcome,
    OutreachClient,
    Page,
    Response,
    Template,
    Undecodable,
    UnexpectedResponse,
)
from outreach_async.converters import OutreachConverter
from outreach_async.models import CreateContactResponse, MailboxStatus

ANSWER: Wire = {"status": "added", "id": "contact_1", "details": None}
TEMPLATE: Wire = {field: {"str": "x", "number": 1}.get(kind) for field, kind in TABLES["Template"].items()}
STEP: Wire = {
    **{field: {"str": "x", "number": 1}.get(kind, []) for field, kind in TABLES["Step"].items()},
    "templates": [TEMPLATE, TEMPLATE],
}
MAILBOX: Wire = {field: {"str": "x", "number": 1, "bool": True}.get(kind) for field, kind in TABLES["Mailbox"].items()}
PAGE: Wire = {"status": "ok", "headers": ["email"], "data": [], "total_found": 5, "current_page": 1, "total_pages": 1}
MAILBOX_MODEL: Mailbox = build_model("Mailbox", MAILBOX)
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
    return faults_of(KINDS[name], json.dumps(value).encode()).split("; ")


@pytest.mark.thorough
@unhurried
@given(drawn(), st.integers(0))
def test_a_response_is_decoded_to_its_model(answer: tuple[str, Wire], seed: int) -> None:
    name, value = answer
    assert exactly(load(KINDS[name], write_json(value, seed))) == exactly(build_model(name, value))


@pytest.mark.thorough
@unhurried
@given(drawn())
def test_a_model_is_encoded_to_its_json_with_unknown_members(answer: tuple[str, Wire]) -> None:
    name, value = answer
    model = build_model(name, value)
    assert exactly(json.loads(model.to_json())) == exactly(model.to_dict()) == exactly(value)


@unhurried
@given(drawn(), st.integers(0))
def test_a_converter_structures_json_as_a_client_decodes_a_body(answer: tuple[str, Wire], seed: int) -> None:
    name, value = answer
    model = load(KINDS[name], write_json(value, seed))
    assert exactly(model) == exactly(CONVERTER.structure(value, KINDS[name]))
    assert exactly(CONVERTER.unstructure(model)) == exactly(model.to_dict())


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
        assert faults_of(KINDS[name], text.encode()) == f"$: expected object, got {kind}"


def test_a_body_that_is_not_json_is_one_fault_for_every_model() -> None:
    def check(body: bytes) -> None:
        (fault,) = {faults_of(kind, body) for kind in KINDS.values()}
        assert fault.startswith("$: expected JSON")

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
    for keep in (False, True):
        try:
            model = load(KINDS[name], body, keep=keep)
        except ValueError:
            continue
        if not (name.startswith("Page") and model.undecodable):
            assert exactly(model.to_dict()) == exactly(
                CONVERTER.structure(json.loads(body.decode(errors="replace")), KINDS[name]).to_dict()
            )


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
    assert load(CreateContactResponse, body).to_dict() == expected
    page = b'{"status": "ok", "headers": [], "data": [1, %b], "total_found": 2, "current_page": 1, "total_pages": 1}'
    (kept, other) = load(Page[Mailbox], page % body, keep=True).undecodable
    assert (kept.id, other.id, other.fields) == (None, expected["id"], expected)


def test_the_last_of_two_members_with_the_same_name_counts() -> None:
    body = b'{"status":"skipped","id":null,"details":null,"status":"added"}'
    assert load(CreateContactResponse, body).status is Outcome.ADDED


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
    boxes = [{**MAILBOX, **common} for _ in range(16)]
    boxes += [{**MAILBOX, "sender_name": name, **({} if new is None else new | common)} for name, new in others]
    value = {**of_page, **PAGE, "data": [{**box, "id": MAILBOX["id"]} for box in boxes]}
    body = json.dumps(value).encode()
    for _ in range(2):  # the second time, the converter knows the names
        page = load(Page[Mailbox], body)
        assert exactly([box.to_dict() for box in page.data]) == exactly(value["data"])
        assert exactly(page) == exactly(CONVERTER.structure(value, Page[Mailbox]))
        assert page.undecodable == []


def test_an_unknown_member_that_is_not_text_is_a_fault() -> None:
    body = json.dumps({**PAGE, "data": [{**MAILBOX, "new": "?"}]}).encode()
    fault = faults_of(Page[Mailbox], body.replace(b"?", b"\xff"))
    assert fault.startswith(("$: expected JSON: 'utf-8' codec", "$: expected JSON: Invalid UTF-8"))  # newer versions of msgspec


def test_unknown_members_are_kept_at_every_depth() -> None:
    step = {**STEP, "new": 1, "templates": [{**TEMPLATE, "newer": [2]}]}
    value = {"status": "ok", "days_left": 1, "days_left_date": "", "days_left_display": "", "data": [step], "newest": {"a": None}}
    value |= dict.fromkeys("zyxwvu")
    steps = load(CampaignSteps, json.dumps(value).encode())
    assert [*steps.extra.items()] == [("newest", {"a": None}), *dict.fromkeys("zyxwvu").items()]  # in the order of the body
    assert steps.data[0].extra == {"new": 1}
    assert steps.data[0].templates[0].extra == {"newer": [2]}
    assert json.loads(steps.to_json()) == value


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
    page = load(Page[Mailbox], json.dumps({**PAGE, "data": sent, "new": 1}).encode(), keep=True)
    assert exactly(page.data) == exactly([build_model("Mailbox", item) for item, good in items if good])
    assert [(each.index, each.id, each.error) for each in page.undecodable] == bad
    assert [each.fields for each in page.undecodable] == [sent[index] for index, _, _ in bad]
    assert (page.total_found, page.extra) == (5, {"new": 1})


def test_an_item_that_is_not_an_object_is_reported_without_fields() -> None:
    page = load(Page[Mailbox], json.dumps({**PAGE, "data": [None, MAILBOX, 7]}).encode(), keep=True)
    assert page.undecodable == [
        Undecodable(index=0, id=None, error="$.data[0]: expected object, got None"),
        Undecodable(index=2, id=None, error="$.data[2]: expected object, got int"),
    ]
    assert page.data == [build_model("Mailbox", MAILBOX)]


def test_every_fault_of_an_item_is_reported_with_its_path() -> None:
    item = {**MAILBOX, "id": 5, "spf": 1}
    page = load(Page[Mailbox], json.dumps({**PAGE, "data": [without_member(item, ("email",))]}).encode(), keep=True)
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
    assert faults_of(Page[Mailbox], json.dumps(value).encode(), keep=True).split("; ") == faults


class Masked(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__


def page_of(*items: Any, **members: Any) -> bytes:
    return json.dumps({**PAGE, "data": items, **members}).encode()


def test_items_with_the_same_fault_are_each_told_with_their_place_and_fields() -> None:
    items = [{**MAILBOX, "id": f"mailbox_{at}", "email": None} for at in range(3)]
    kept = load(Page[Mailbox], page_of(*items, MAILBOX), keep=True)
    expected = [(at, f"$.data[{at}].email: expected str, got None", item) for at, item in enumerate(items)]
    assert [(each.index, each.error, each.fields) for each in kept.undecodable] == expected
    assert kept.data == [MAILBOX_MODEL]


def converter_with(kind: Any, hook: Any) -> OutreachConverter:
    converter = OutreachConverter()
    if get_origin(kind) in {list, Page}:
        converter.register_structure_hook_func(lambda each: each == kind, hook)
    else:
        converter.register_structure_hook(kind, hook)
    return converter


async def list_with(converter: OutreachConverter, body: bytes, **options: Any) -> Page[Any]:
    async with client_of(Script(Response(200, {}, body)), converter=converter) as client:
        return await client.mailboxes.list(**options)


@pytest.mark.parametrize(
    ("kind", "hook", "field", "value"),
    [
        (MailboxStatus, lambda text, kind: kind(text.upper()), "status", "X"),
        (str, lambda text, _: text.removesuffix("x"), "sender_name", ""),
        (str | None, lambda text, _: text or "none", "domain_ip", "none"),
        (int | float, lambda number, _: Decimal(number) / 2, "daily_limit", Decimal("0.5")),
        (bool, lambda flag, _: not flag, "spf", False),
    ],
    ids=["enumeration", "str", "str or null", "number", "bool"],
)
async def test_a_hook_is_called_wherever_a_page_has_its_type(kind: Any, hook: Any, field: str, value: object) -> None:
    converter = OutreachConverter()
    assert getattr((await list_with(converter, page_of(MAILBOX))).data[0], field) != value
    converter.register_structure_hook(kind, hook)  # also after the first page
    for used in (converter, converter.copy()):
        for keep in ("raise", "keep"):
            page = await list_with(used, page_of({**MAILBOX, "new": [1]}), undecodable=keep)
            assert (getattr(page.data[0], field), page.data[0].extra) == (value, {"new": [1]})
    assert getattr((await list_with(OutreachConverter(), page_of(MAILBOX))).data[0], field) != value


async def test_a_hook_for_a_model_may_return_anything_in_a_list_but_not_in_its_place() -> None:
    emails = converter_with(Mailbox, lambda value, _: value["email"])
    assert (await list_with(emails, page_of(MAILBOX, {**MAILBOX, "email": "y"}))).data == ["x", "y"]
    with pytest.raises(UnexpectedResponse, match=r"with \$: expected a hook that returns Page, got dict"):
        await list_with(converter_with(Page[Mailbox], lambda value, _: value), page_of(MAILBOX))


def raises(_value: object, _kind: object) -> Any:
    raise KeyError(f"no {KEY}")


@pytest.mark.parametrize("kind", [Mailbox, MailboxStatus, int | float, Page[Mailbox], list[Mailbox]], ids=str)
async def test_what_a_hook_raises_is_an_error_with_its_place_and_without_the_key(kind: Any) -> None:
    with pytest.raises(
        UnexpectedResponse, match=r"\$[^ ]*: expected a hook that reads the value, got KeyError: .no \*\*\*"
    ) as caught:
        await list_with(converter_with(kind, raises), page_of(MAILBOX))
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


async def test_an_item_whose_hook_raises_is_kept_as_undecodable() -> None:
    def status(value: str, kind: Any) -> Any:
        if value == "odd":
            raise LookupError(value)
        return kind(value)

    converter = converter_with(MailboxStatus, status)
    page = await list_with(converter, page_of(MAILBOX, {**MAILBOX, "status": "odd"}), undecodable="keep")
    assert [item.status for item in page.data] == ["x"]
    assert page.undecodable[0].error == "$.data[1].status: expected a hook that reads the value, got LookupError: odd"


@pytest.mark.parametrize(
    ("kind", "hook"), [(Outcome, lambda _value, _kind: 1), (str | None, lambda _value, _kind: 1), (str | None, raises)]
)
async def test_the_error_of_an_answer_that_a_hook_spoils_says_that_a_contact_may_exis(kind: Any, hook: Any) -> None:
    transport = Script(Response(200, {}, json.dumps(ANSWER).encode()))
    async with client_of(transport, converter=converter_with(kind, hook)) as client:
        with pytest.raises(UnexpectedResponse, match=r"\$\.(status|id|details): expected") as caught:
            await client.contacts.create(email="ann@company.example")
        report = await client.contacts.create_many([{"email": "ann@company.example"}], stop_after_rejects=None)
    assert caught.value.maybe_applied
    assert report.outcomes[Outcome.UNKNOWN] == 1


def test_threads_share_a_converter_that_learns_names_and_is_given_hooks() -> None:
    shared = OutreachConverter()

    def read(number: int) -> list[Any]:
        if number % 7 == 3:
            shared.register_structure_hook(MailboxStatus, lambda value, kind: kind(value))
        boxes = [{**MAILBOX, f"new{(number + at) % 5}": at} for at in range(20)]
        page = shared.loads(page_of(*boxes), Page[Mailbox])
        return [box.to_dict() == value for box, value in zip(page.data, boxes, strict=True)]

    with ThreadPoolExecutor(4) as threads:
        assert {same for each in threads.map(read, range(60)) for same in each} == {True}


@attrs.frozen(kw_only=True)
class TaggedMailbox(Mailbox):
    tags: list[str]
    owner: str | None = None
    notes: list[str] = attrs.field(factory=list)


@attrs.frozen(kw_only=True)
class OwnTemplate(Template):
    new: int = 0


@attrs.frozen(kw_only=True)
class OwnCreated(CreatedContact):
    score: int = 0


@attrs.frozen(kw_only=True)
class WithTemplate(Mailbox):
    best: Template | None = None
    since: Decimal


async def test_a_subclass_takes_the_place_of_its_model() -> None:
    converter = OutreachConverter()
    before = await list_with(converter, page_of(MAILBOX | {"tags": ["a"]}))
    assert (type(before.data[0]), before.data[0].extra) == (Mailbox, {"tags": ["a"]})
    assert [converter.use(kind) for kind in (TaggedMailbox, OwnTemplate, OwnCreated)] == [TaggedMailbox, OwnTemplate, OwnCreated]
    for used in (converter, converter.copy()):
        for new in ({}, {"new": 1}):
            page = await list_with(used, page_of({**MAILBOX, "tags": ["a"], **new}, {**MAILBOX, "tags": ["a"], **new}))
            box = page.data[1]
            assert (type(box), box.tags, box.owner, box.notes, box.extra) == (TaggedMailbox, ["a"], None, [], new)
        with pytest.raises(UnexpectedResponse, match=r"\$\.data\[0\]\.tags: missing key 'tags'"):
            await list_with(used, page_of(MAILBOX))
        step = {**STEP, "templates": [{**TEMPLATE, "new": 5}]}
        steps = used.loads(
            json.dumps({"status": "ok", "days_left": 1, "days_left_date": 1, "days_left_display": "", "data": [step]}),
            CampaignSteps,
        )
        assert steps.data[0].templates[0] == OwnTemplate(**TEMPLATE, new=5)
        async with client_of(
            Script(Response(200, {"x-request-id": "r"}, json.dumps({**ANSWER, "score": 7}).encode())), converter=used
        ) as client:
            created: Any = await client.contacts.create(email="ann@company.example")
        assert (type(created), created.score, created.extra, created.possible) == (OwnCreated, 7, {}, {Outcome.ADDED})
        assert (created.request_id, created.response.status) == ("r", 200)


async def test_a_field_of_a_subclass_can_be_a_model_and_of_a_type_with_a_hook() -> None:
    converter = OutreachConverter()
    converter.use(WithTemplate)
    body = page_of({**MAILBOX, "since": "1.5", "best": {**TEMPLATE, "new": 1}})
    with pytest.raises(UnexpectedResponse, match=r"\$: Unsupported type: .*Decimal.*Register a structure hook"):
        await list_with(converter, body)
    converter.register_structure_hook(Decimal, lambda value, _: Decimal(value))
    box = (await list_with(converter, body)).data[0]
    assert (box.since, box.best.extra) == (Decimal("1.5"), {"new": 1})


@pytest.mark.parametrize("kind", [Mailbox, Page, Decimal, NewContact, 5])
def test_only_a_subclass_of_a_model_can_take_its_place(kind: Any) -> None:
    with pytest.raises(
        InvalidRequest, match=r"^model: expected a subclass of a model, got .*; derive it, for example from Mailbox$"
    ):
        OutreachConverter().use(type("Mine", (kind,), {}) if kind is Page else kind)


async def test_a_hook_that_raises_for_the_result_of_a_create_is_an_error() -> None:
    async with client_of(
        Script(Response(200, {}, json.dumps(ANSWER).encode())), converter=converter_with(CreatedContact, raises)
    ) as client:
        with pytest.raises(UnexpectedResponse, match=r"\$: expected a hook that reads the value, got KeyError"):
            await client.contacts.create(email="ann@company.example")


@attrs.frozen(repr=False)
class Lead(NewContact):
    linkedin: str | None = attrs.field(default=None, kw_only=True)


async def sent_by(converter: OutreachConverter, row: Any, **options: Any) -> list[Any]:
    """Return the fields that `create` and `create_many` send for a row, without the members that every request has."""
    transport = Script(Response(200, {}, json.dumps(ANSWER).encode()))
    async with client_of(transport, converter=converter) as client:
        await client.contacts.create(row)
        await client.contacts.create_many([row], **options)
    return [
        {
            name: value
            for name, value in json.loads(request.body).items()
            if name not in {"owner_key", "workspace", "upload_options"}
        }
        for request in transport.requests
    ]


@pytest.mark.parametrize("options", [{}, {"spool": True}, {"repeats": "last"}], ids=str)
@pytest.mark.parametrize(
    "row",
    [{"email": "a@b.example", "city": "Lyon", "custom_1": "x"}, NewContact("a@b.example", city="Lyon", custom={"custom_1": "x"})],
)
async def test_hooks_for_contacts_and_strings_are_seen_in_what_is_sent(row: Any, options: Any, tmp_path: Any) -> None:
    options = {**options, "journal": str(tmp_path / "run.db")} if options else options
    converter = OutreachConverter()
    converter.register_unstructure_hook(NewContact, lambda contact: {**contact.to_dict(), "city": f"{contact.city}!"})
    expected = {"email": "a@b.example", "city": "Lyon!", "custom_1": "x"}
    assert await sent_by(converter, row, **options) == [expected, expected]


async def test_a_hook_for_strings_and_a_field_of_a_subclass_are_seen_in_what_is_sent() -> None:
    upper = OutreachConverter()
    upper.register_unstructure_hook(str, str.upper)
    assert await sent_by(upper, {"email": "a", "city": None}) == [{"email": "A", "city": None}] * 2
    lead = Lead("a", linkedin="x", extra={"y": "z"})
    assert await sent_by(OutreachConverter(), lead) == [{"email": "a", "linkedin": "x", "y": "z"}] * 2
    assert OutreachConverter().structure(lead.to_dict(), Lead) == lead


@pytest.mark.parametrize(
    ("returned", "got"),
    [
        (None, "a dict with an email, got NoneType"),
        ({"email": 5}, "a dict with an email, got dict"),
        ({"email": "a", "owner_key": "key_other"}, "fields of a contact, got 'owner_key'"),
        ({"email": "a", "workspace": "space_2"}, "fields of a contact, got 'workspace'"),
        (LookupError, "a dict, got TypeError"),
    ],
)
async def test_a_hook_for_contacts_can_set_no_other_part_of_a_request(returned: Any, got: str) -> None:
    def hook(_contact: NewContact) -> Any:
        return returned if returned is not LookupError else {**5}  # type: ignore[dict-item]

    converter, transport = OutreachConverter(), Script(Response(200, {}, b"{}"))
    converter.register_unstructure_hook(NewContact, hook)
    async with client_of(transport, converter=converter) as client:
        with pytest.raises(InvalidRequest, match=f"^contact: expected a hook that returns {got}; correct the hook$"):
            await client.contacts.create(email="a")
        report = await client.contacts.create_many([{"email": "a"}])
    assert (report.outcomes[Outcome.REJECTED], transport.requests) == (1, [])


async def test_a_hook_that_needs_too_much_memory_ends_the_run() -> None:
    def hook(_contact: NewContact) -> Any:
        raise MemoryError

    converter = OutreachConverter()
    converter.register_unstructure_hook(NewContact, hook)
    with pytest.raises(MemoryError):
        await sent_by(converter, {"email": "a"})


async def test_a_string_subclass_is_sent_as_its_characters() -> None:
    contact = NewContact(Masked("a@b.example"), city=Masked("é"))
    assert await sent_by(OutreachConverter(), contact) == [{"email": "a@b.example", "city": "é"}] * 2


async def test_copies_of_a_client_have_its_converter_or_their_own() -> None:
    emails = converter_with(Mailbox, lambda value, _: value["email"])
    async with client_of(Script(Response(200, {}, page_of(MAILBOX))), converter=emails) as client:
        assert [str(item) for item in (await client.with_options(timeout=5).mailboxes.list()).data] == ["x"]
        assert (await client.with_options(converter=OutreachConverter()).mailboxes.list()).data == [MAILBOX_MODEL]


def test_a_client_refuses_what_is_not_one_of_our_converters() -> None:
    with pytest.raises(InvalidRequest, match=r"^converter: expected an OutreachConverter, got dict; pass OutreachConverter\(\)"):
        OutreachClient("https://api.example", converter={})  # type: ignore[arg-type]
